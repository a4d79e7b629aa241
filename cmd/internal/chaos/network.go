package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// network is a network namespace with one cable to ours. What runs in it
// reaches nothing but the address at our end, until the cable is cut. Its name
// carries our process id, so that a successor of a killed run finds it.
type network struct {
	name string
	// outside is the address at our end, inside the one at the other.
	outside, inside string
	ns              *os.File
}

const networkPrefix = "toolfleet-chaos-"

// makeNetwork makes the namespace, and removes those of runs that are dead.
func makeNetwork(ctx context.Context) (n *network, err error) {
	if err := sweepNetworks(ctx); err != nil {
		return nil, err
	}
	pid := os.Getpid()
	// 198.18.0.0/15 is for tests of networks, and nobody routes it.
	base := fmt.Sprintf("198.18.%d.", pid/63%256)
	first := pid % 63 * 4
	n = &network{name: networkPrefix + strconv.Itoa(pid), outside: base + strconv.Itoa(first+1), inside: base + strconv.Itoa(first+2)}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.remove(context.WithoutCancel(ctx)))
		}
	}()
	cable := fmt.Sprintf("tfc%d", pid)
	for _, args := range [][]string{
		{"netns", "add", n.name},
		{"link", "add", cable, "type", "veth", "peer", "name", "cable", "netns", n.name},
		{"addr", "add", n.outside + "/30", "dev", cable},
		{"link", "set", cable, "up"},
		{"-n", n.name, "addr", "add", n.inside + "/30", "dev", "cable"},
		{"-n", n.name, "link", "set", "lo", "up"},
		{"-n", n.name, "link", "set", "cable", "up"},
	} {
		if err := ip(ctx, args...); err != nil {
			return nil, err
		}
	}
	n.ns, err = os.Open(filepath.Join("/run/netns", n.name))
	return n, err
}

// cut cuts the cable, and mend mends it. It is cut inside, so that our address
// stays: others listen on it.
func (n *network) cut(ctx context.Context) error {
	return ip(ctx, "-n", n.name, "link", "set", "cable", "down")
}

func (n *network) mend(ctx context.Context) error {
	return ip(ctx, "-n", n.name, "link", "set", "cable", "up")
}

// remove removes the namespace, and with it the cable.
func (n *network) remove(ctx context.Context) error {
	if n.ns != nil {
		n.ns.Close()
	}
	return ip(ctx, "netns", "del", n.name)
}

// sweepNetworks removes the namespaces of runs that are dead.
func sweepNetworks(ctx context.Context) error {
	names, err := filepath.Glob("/run/netns/" + networkPrefix + "*")
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		name = filepath.Base(name)
		pid, err := strconv.Atoi(strings.TrimPrefix(name, networkPrefix))
		if err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			errs = append(errs, ip(ctx, "netns", "del", name))
		}
	}
	return errors.Join(errs...)
}

func ip(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("chaos: ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// inNamespace calls start, which starts a process, in a network namespace. A
// program such as `ip netns exec` would do the same and hide the control groups
// as well.
func inNamespace(ns *os.File, start func() error) error {
	if ns == nil {
		return start()
	}
	done := make(chan error, 1)
	go func() {
		// The thread is never unlocked, so it ends with this function and is
		// nobody else's afterwards.
		runtime.LockOSThread()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("chaos: enter network namespace: %w", err)
			return
		}
		done <- start()
	}()
	return <-done
}
