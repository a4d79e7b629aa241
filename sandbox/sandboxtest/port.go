package sandboxtest

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox"
)

// testPort: a port that a grandchild has opened is closed by the stop, seen in
// the network namespace that it was opened in.
func (s *suite) testPort(t *testing.T) {
	if s.OwnKernel != "" {
		expect(t, s.stopAt(t, s.probe("listen", "2", mark()), 1, nil), sandbox.CauseStopped)
		return // its sockets are the kernel's that has gone with it
	}
	var network *os.File
	var before []int
	m := mark()
	exit := s.stopAt(t, s.probe("listen", "2", m), 1, func() {
		network = networkOf(t, m)
		before = listening(t, network)
	})
	if network == nil {
		t.Fatalf("it ended before it was stopped: %q: %s", exit.Cause, exit.Stderr)
	}
	defer network.Close()
	expect(t, exit, sandbox.CauseStopped)
	var port int
	if _, err := fmt.Sscanf(string(exit.Stderr), "leaf %d\n", &port); err != nil || !slices.Contains(before, port) {
		t.Fatalf("the tool said %q, open were %v: %v", exit.Stderr, before, err)
	}
	if after := listening(t, network); slices.Contains(after, port) {
		t.Errorf("port %d is still open", port)
	}
}

// networkOf opens the network namespace of a process with the argument m. It
// lives for as long as it is open.
func networkOf(t *testing.T, m string) *os.File {
	t.Helper()
	for _, dir := range withMark(t, m) {
		if f, err := os.Open(dir + "/ns/net"); err == nil {
			return f
		}
	}
	t.Error("no process is seen from here")
	return nil
}

// listening lists the ports that are listened at in a network namespace. It
// goes there with a thread that is thrown away.
func listening(t *testing.T, network *os.File) []int {
	t.Helper()
	var table []byte
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Setns(int(network.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			table, err = os.ReadFile("/proc/thread-self/net/tcp")
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
	var ports []int
	for line := range strings.Lines(string(table)) {
		var slot, address, port, peer, peerPort, state int
		if n, _ := fmt.Sscanf(line, "%d: %x:%x %x:%x %x", &slot, &address, &port, &peer, &peerPort, &state); n == 6 && state == 10 {
			ports = append(ports, port)
		}
	}
	return ports
}
