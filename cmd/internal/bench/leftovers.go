package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/toolfleet/toolfleet/cmd/internal/client"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
)

// settleTime is how long what a fleet has used may take to be gone: connections
// that are kept for a while, and what the kernel frees behind.
const settleTime = 30 * time.Second

// leftovers runs a fleet of its own through mixed calls and returns how many of
// each thing it has afterwards beyond what it had before, with its pools full
// and nothing going on.
func (b *bench) leftovers(ctx context.Context) (left map[string]int, err error) {
	f, err := startFleet(ctx, b.c, "mixed",
		declared{"cell", "word-count", "cell", "runc", warmSize},
		declared{"warm", "word-count", "container", "runc", warmSize},
		declared{"shell", "shell", "container", "runc", warmSize},
		declared{"shell-cell", "shell", "cell", "runc", warmSize},
	)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	if err := f.mixed(ctx, b.c.Mixed/10); err != nil {
		return nil, err
	}
	before, err := f.count(ctx, b.c)
	if err != nil {
		return nil, err
	}
	if err := f.mixed(ctx, b.c.Mixed); err != nil {
		return nil, err
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(settleTime); ; <-tick.C {
		now, err := f.count(ctx, b.c)
		if err != nil {
			return nil, err
		}
		left, total := map[string]int{}, 0
		for name, n := range now {
			left[name] = max(0, n-before[name])
			total += left[name]
		}
		if total == 0 || time.Now().After(deadline) {
			return left, nil
		}
	}
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
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", f.cmd.Process.Pid))
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
	return map[string]int{
		"shims": host.Shims, "containers": host.Containers, "snapshots": host.Snapshots, "mounts": host.Mounts,
		"control groups": host.Cgroups, "network namespaces": host.NetworkNamespaces, "directories": host.Dirs,
		"open files": len(files), "goroutines": running,
	}, nil
}
