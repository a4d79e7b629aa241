package escape

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
)

// witness is the host's side: what a tool could reach, read or change there.
type witness struct {
	port      int
	addresses []string // of this host, without loopback
	abstract  string   // name of an abstract socket
	dir       string   // with the marker in it
	marker    string
	secret    string

	tcp, unix           net.Listener
	accepting           sync.WaitGroup
	reachedTCP, reached atomic.Int64
}

// newWitness listens on every address of the host: a sandbox might reach one
// and not another. Whoever connects is counted and let go.
func newWitness(ctx context.Context, dir string) (w *witness, err error) {
	w = &witness{abstract: "toolfleet-escape-" + rand.Text(), dir: dir, marker: filepath.Join(dir, "marker"), secret: rand.Text()}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("escape: %w", err)
	}
	if err := os.WriteFile(w.marker, []byte(w.secret), 0o644); err != nil {
		return nil, fmt.Errorf("escape: %w", err)
	}
	// Readable for all: only the sandbox may be what keeps the tool from it.
	if err := os.Chmod(w.marker, 0o644); err != nil {
		return nil, fmt.Errorf("escape: %w", err)
	}
	var lc net.ListenConfig
	if w.tcp, err = lc.Listen(ctx, "tcp", ":0"); err != nil {
		return nil, fmt.Errorf("escape: %w", err)
	}
	if w.unix, err = lc.Listen(ctx, "unix", "@"+w.abstract); err != nil {
		return nil, errors.Join(fmt.Errorf("escape: %w", err), w.tcp.Close())
	}
	_, port, _ := net.SplitHostPort(w.tcp.Addr().String())
	_, _ = fmt.Sscan(port, &w.port)
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() {
			w.addresses = append(w.addresses, ip.IP.String())
		}
	}
	w.accepting.Go(func() { accept(w.tcp, &w.reachedTCP) })
	w.accepting.Go(func() { accept(w.unix, &w.reached) })
	return w, nil
}

// accept counts connections until l is closed.
func accept(l net.Listener, n *atomic.Int64) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		n.Add(1)
		_ = c.Close()
	}
}

func (w *witness) close() error {
	err := errors.Join(w.tcp.Close(), w.unix.Close())
	w.accepting.Wait()
	return err
}

// facts are what the host looks like, by the attempt that would change it.
type facts map[string]string

// settings are files that hold for the whole machine, by the attempts that
// write to them.
var settings = map[string][]string{
	"core-pattern":         {"/proc/sys/kernel/core_pattern"},
	"modprobe-path":        {"/proc/sys/kernel/modprobe", "/proc/sys/kernel/poweroff_cmd"},
	"proc-sys-kernel":      {"/proc/sys/kernel/panic", "/proc/sys/kernel/sysrq", "/proc/sys/kernel/randomize_va_space", "/proc/sys/kernel/kptr_restrict"},
	"proc-sys-vm":          {"/proc/sys/vm/overcommit_memory", "/proc/sys/vm/panic_on_oom"},
	"proc-sys-fs":          {"/proc/sys/fs/file-max", "/proc/sys/fs/protected_symlinks", "/proc/sys/fs/suid_dumpable"},
	"proc-sys-net":         {"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/ping_group_range"},
	"proc-sys-user":        {"/proc/sys/user/max_user_namespaces", "/proc/sys/user/max_inotify_instances"},
	"sethostname":          {"/proc/sys/kernel/hostname"},
	"setdomainname":        {"/proc/sys/kernel/domainname"},
	"swapon":               {"/proc/swaps"},
	"uevent-helper":        {"/sys/kernel/uevent_helper"},
	"cgroup-release-agent": {"/sys/fs/cgroup/memory/release_agent", "/sys/fs/cgroup/pids/release_agent", "/sys/fs/cgroup/cpu/release_agent"},
}

// look takes the facts.
func (w *witness) look() facts {
	f := facts{
		"host-loopback":        fmt.Sprintf("%d connections to its ports", w.reachedTCP.Load()),
		"host-abstract-socket": fmt.Sprintf("%d connections to its abstract socket", w.reached.Load()),
		"read-host-file":       "the file " + errText(w.intact()),
	}
	for name, paths := range settings {
		var all strings.Builder
		for _, path := range paths {
			text, err := os.ReadFile(path)
			fmt.Fprintf(&all, "%s is %q %s ", path, text, errText(err))
		}
		f[name] = all.String()
	}
	return f
}

// changes are the facts that are no longer what they were.
func (w *witness) changes(before facts) facts {
	changed := facts{}
	for name, now := range w.look() {
		if now != before[name] {
			changed[name] = now
		}
	}
	return changed
}

// intact tells whether the marker is what it was, and alone in its directory.
func (w *witness) intact() error {
	text, err := os.ReadFile(w.marker)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return err
	}
	if string(text) != w.secret || len(entries) != 1 {
		return errors.New("the host's files were changed")
	}
	return nil
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
