package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/toolfleet/toolfleet/cmd/internal/client"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
)

// How often is looked before the calls, and at the most after them: what a fleet
// has used may take a while to be gone.
const (
	baseLooks = 15
	leftLooks = 150
)

// leftovers runs a fleet of its own through mixed calls and returns how many of
// each thing it has afterwards beyond what it had before, with its pools full
// and nothing going on.
func (b *bench) leftovers(ctx context.Context) (left map[string]int, err error) {
	f, err := startFleet(ctx, b.c, "mixed",
		declared{"cell", "word-count", "cell", "runc", []string{"/tool"}, warmSize},
		declared{"warm", "word-count", "container", "runc", []string{"/tool"}, warmSize},
		declared{"shell", "shell", "container", "runc", []string{"/tool"}, warmSize},
		declared{"shell-cell", "shell", "cell", "runc", []string{"/tool"}, warmSize},
	)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	if err := f.mixed(ctx, b.c.Mixed/10); err != nil {
		return nil, err
	}
	before, err := f.held(ctx, b.c, nil)
	if err != nil {
		return nil, err
	}
	if err := f.mixed(ctx, b.c.Mixed); err != nil {
		return nil, err
	}
	return f.held(ctx, b.c, before)
}

// held counts for a while and returns the most of each thing, or, when it is told
// what was there before, the least beyond that: a leak stays, and a connection or
// a goroutine that comes and goes is none. It returns as soon as nothing is left.
func (f *fleet) held(ctx context.Context, c Config, before map[string]int) (map[string]int, error) {
	looks := baseLooks
	if before != nil {
		looks = leftLooks
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var held map[string]int
	for range looks {
		now, err := f.count(ctx, c)
		if err != nil {
			return nil, err
		}
		first := held == nil
		if first {
			held = map[string]int{}
		}
		total := 0
		if before == nil || first {
			for name, n := range now {
				held[name] = max(held[name], n-before[name])
			}
		}
		for name := range held {
			if before != nil {
				held[name] = max(0, min(held[name], now[name]-before[name]))
			}
			total += held[name]
		}
		if before != nil && total == 0 {
			break
		}
		<-tick.C
	}
	return held, nil
}

// mixed makes n calls of all kinds: most succeed, some fail, are killed for what
// they do, or are cancelled.
func (f *fleet) mixed(ctx context.Context, n int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i := range n {
		g.Go(func() error {
			switch i % 20 {
			case 0:
				_, err := f.cancelTree(ctx)
				return err
			case 1:
				return f.ends(ctx, "shell", "exit 3")
			case 2:
				return f.ends(ctx, "shell", "kill -9 $$")
			case 3:
				return f.ends(ctx, "shell-cell", "yes")
			case 4:
				return f.ends(ctx, "shell-cell", "sleep 1000 & exec sleep 0")
			case 5, 6:
				return f.call(ctx, "warm")
			default:
				return f.call(ctx, "cell")
			}
		})
	}
	return g.Wait()
}

// ends runs a script to its end, whatever that is.
func (f *fleet) ends(ctx context.Context, tool, text string) error {
	req := script(text)
	req.Tool = tool
	return f.client.Call(ctx, req, func(string) {}, func(client.Event) error { return nil })
}

var goroutines = regexp.MustCompile(`(?m)^go_goroutines (\d+)$`)

// count counts what the fleet has, on the host and in its process, once its
// pools are full and it is idle.
func (f *fleet) count(ctx context.Context, c Config) (map[string]int, error) {
	if err := f.full(ctx); err != nil {
		return nil, err
	}
	// Ours are not its.
	f.http.CloseIdleConnections()
	http.DefaultClient.CloseIdleConnections() // of package client
	host, err := containerd.Look(ctx, f.state(), c.Agent)
	if err != nil {
		return nil, err
	}
	used, err := containerd.MeasureFootprint(f.state())
	if err != nil {
		return nil, err
	}
	files, blocks, err := f.files()
	if err != nil {
		return nil, err
	}
	page, err := f.metrics(ctx)
	if err != nil {
		return nil, err
	}
	m := goroutines.FindSubmatch(bytes.TrimSpace(page))
	if m == nil {
		return nil, errors.New("the fleet does not tell its goroutines")
	}
	running, err := strconv.Atoi(string(m[1]))
	if err != nil {
		return nil, err
	}
	count := map[string]int{
		"shims": host.Shims - used.Shims, "containers": host.Containers, "snapshots": host.Snapshots, "mounts": host.Mounts,
		"control groups": host.Cgroups, "network namespaces": host.NetworkNamespaces, "directories": host.Dirs,
		"goroutines": running - blocks,
	}
	// A worker holds a lock and a handle of a shim. The warm sandboxes that were
	// there before may sit in one shim, and those that took their places in two; a
	// shim that serves is not left over.
	for kind, n := range files {
		if strings.HasSuffix(kind, "/shims") || kind == "anon_inode" {
			n -= used.Shims
		}
		count["open files: "+kind] = n
	}
	return count, nil
}

// files counts the files that the fleet's process has open, by what they are: the
// upper directories of a file, the kind of anything else.
//
// Two kinds follow something else than leftovers, and are counted apart or left
// out: the files in which its NATS server keeps messages, since it opens another
// when one is full, each with a goroutine that flushes it; and a user namespace
// for each range of ids, of which there are as many as there were ever sandboxes
// at one time.
func (f *fleet) files() (kinds map[string]int, blocks int, err error) {
	dir := fmt.Sprintf("/proc/%d/fd", f.cmd.Process.Pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, 0, err
	}
	kinds = map[string]int{}
	for _, e := range entries {
		name, err := os.Readlink(filepath.Join(dir, e.Name()))
		kind, _, _ := strings.Cut(name, ":[") // socket:[4711]
		switch {
		case err != nil: // closed meanwhile
		case strings.HasSuffix(name, ".blk"):
			blocks++
		case kind == "user":
		case filepath.IsAbs(name):
			parts := strings.SplitN(filepath.Dir(name), "/", 6)
			kinds[strings.Join(parts[:min(5, len(parts))], "/")]++
		default:
			kinds[kind]++
		}
	}
	return kinds, blocks, nil
}
