package chaos

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newProcess makes a process that runs a script.
func newProcess(t *testing.T, script string) *process {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	return &process{
		name: "p", argv: []string{"/bin/sh", "-c", script}, env: func(int, bool) []string { return nil },
		ready: readyLine, log: log, logger: slog.New(slog.DiscardHandler),
	}
}

// A process that is killed comes back as another; one that is frozen is the same
// afterwards; one that is told to end does not come back.
func TestProcessIsStartedAgain(t *testing.T) {
	p := newProcess(t, "echo ready now; exec sleep 1000")
	var running sync.WaitGroup
	running.Go(p.run)
	first, err := p.awaitUp(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.kill(t.Context(), time.Millisecond); err != nil {
		t.Fatal(err)
	}
	second, err := p.awaitUp(t.Context())
	if err != nil || second == first {
		t.Fatalf("after %d came %d: %v", first, second, err)
	}
	if err := p.freeze(t.Context(), time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := p.end(t.Context()); err != nil {
		t.Fatal(err)
	}
	running.Wait()
	if err := syscall.Kill(second, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("it lives: %v", err)
	}
	if p.deaths != (deaths{}) {
		t.Errorf("ends that were asked for are counted: %+v", p.deaths)
	}
}

// A process that is restarted has ended by itself, and comes back as the program
// that it is to be; one that ends with an error is not restarted in silence.
func TestRestartWaitsForBothEnds(t *testing.T) {
	p := newProcess(t, "trap 'exit $TOOLFLEET_TEST_CODE' TERM; echo ready now; while :; do sleep 0.01; done")
	code := "0"
	p.env = func(int, bool) []string { return []string{"TOOLFLEET_TEST_CODE=" + code} }
	var running sync.WaitGroup
	running.Go(p.run)
	first, err := p.awaitUp(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	code = "7"
	if _, _, err := p.restart(t.Context(), "/bin/bash"); err != nil {
		t.Fatal(err)
	}
	second, err := p.awaitUp(t.Context())
	if err != nil || second == first {
		t.Fatalf("after %d came %d: %v", first, second, err)
	}
	if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", second)); err != nil || filepath.Base(exe) != "bash" {
		t.Errorf("it came back as %q: %v", exe, err)
	}
	if _, _, err := p.restart(t.Context(), "/bin/bash"); err == nil {
		t.Error("an end with an error is taken for one in order")
	}
	if err := p.end(t.Context()); err != nil || p.deaths != (deaths{}) {
		t.Errorf("ended with %v, and %+v", err, p.deaths)
	}
	running.Wait()
}

func TestEndByItselfIsCounted(t *testing.T) {
	p := newProcess(t, "echo ready now; echo failpoint ran struck >&2; exit 1")
	var running sync.WaitGroup
	running.Go(p.run)
	if err := p.await(t.Context(), func() bool { return p.deaths.failpoints > 0 }); err != nil {
		t.Fatal(err)
	}
	if err := p.end(t.Context()); err != nil {
		t.Fatal(err)
	}
	running.Wait()
	if !p.isUnclean() {
		t.Error("its end is taken for a clean one")
	}
}

func TestDiskIsFilledAndFreed(t *testing.T) {
	d, err := makeDisk(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.remove(); err != nil {
			t.Error(err)
		}
	}()
	write := func() error { return os.WriteFile(filepath.Join(d.dir, "x"), make([]byte, 1<<16), 0o600) }
	if err := d.fill(); err != nil {
		t.Fatal(err)
	}
	if err := write(); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a full disk says %v", err)
	}
	if err := d.free(); err != nil {
		t.Fatal(err)
	}
	if err := write(); err != nil {
		t.Error(err)
	}
}
