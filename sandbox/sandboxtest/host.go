package sandboxtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox"
)

// figures are what a sandbox must not take from the host.
type figures struct {
	processes int
	files     int // open in the whole system
}

func hostFigures() (f figures, err error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return f, err
	}
	f.processes = len(dirs)
	nr, err := os.ReadFile("/proc/sys/fs/file-nr")
	if err != nil {
		return f, err
	}
	_, err = fmt.Sscan(string(nr), &f.files)
	return f, err
}

// highest watches the figures until stop, which returns the highest of each.
func highest(t *testing.T) (stop func() figures) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var top figures
	var watching sync.WaitGroup
	watching.Go(func() {
		again := time.NewTicker(20 * time.Millisecond)
		defer again.Stop()
		for ctx.Err() == nil {
			f, err := hostFigures()
			if err != nil {
				t.Error(err)
				return
			}
			top.processes, top.files = max(top.processes, f.processes), max(top.files, f.files)
			select {
			case <-again.C:
			case <-ctx.Done():
			}
		}
	})
	return func() figures { cancel(); watching.Wait(); return top }
}

// What others on this machine may open and start while a test looks.
const (
	othersFiles     = 20_000
	othersProcesses = 300
)

// maxFiles is how many files one process may hold.
const maxFiles = 4096

// testOpenFiles: a tool whose every process opens all the files it may has no
// more than its processes times its files, the host's root can still open what
// it needs, and all of it comes back.
func (s *suite) testOpenFiles(t *testing.T, next func(*testing.T)) {
	pids := int(s.Spec.Limits.Pids)
	for _, kind := range []string{"pipe", "socket", "eventfd", "epoll", "memfd", "timerfd", "inotify", "/dev/null"} {
		t.Run(filepath.Base(kind), func(t *testing.T) {
			before, err := hostFigures()
			if err != nil {
				t.Fatal(err)
			}
			stop := highest(t)
			exit := s.stopAt(t, s.probe("open", kind, "5", mark()), 6, func() {
				if fd, err := unix.InotifyInit(); err != nil {
					t.Errorf("the host has no inotify instance left: %v", err)
				} else if err := unix.Close(fd); err != nil {
					t.Error(err)
				}
				next(t)
			})
			top := stop()
			if exit.Cause != sandbox.CauseStopped && exit.Cause != sandbox.CauseOutOfMemory && exit.Cause != sandbox.CausePidsLimit {
				t.Errorf("cause %q (%s): %s", exit.Cause, exit.Detail, exit.Stderr)
			}
			if n := top.files - before.files; n > pids*maxFiles+othersFiles {
				t.Errorf("%d more open files", n)
			}
			if n := top.processes - before.processes; n > pids+othersProcesses {
				t.Errorf("%d more processes", n)
			}
			t.Logf("%d more open files; the tool said %.100q", top.files-before.files, exit.Stderr)
			awaitFiles(t, before.files+othersFiles)
		})
	}
}

// awaitFiles waits until the system has no more than so many open files.
func awaitFiles(t *testing.T, most int) {
	t.Helper()
	ctx := testContext(t)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		f, err := hostFigures()
		if err != nil {
			t.Fatal(err)
		}
		if f.files <= most {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("%d open files are left, want at most %d", f.files, most)
		}
	}
}

// testProcessor: however many processors a tool keeps busy, it gets its quota
// of them.
func (s *suite) testProcessor(t *testing.T, next func(*testing.T)) {
	spec := s.Spec
	spec.Limits.CPU = 0.25
	sb, err := sandbox.Open(testContext(t), s.runtime, NewID(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer closeSandbox(t, sb)
	exit, err := sb.Run(testContext(t), s.probe("spin", "2000"), sandbox.Sink{})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, exit, sandbox.CauseExited)
	// Beside the quota there are a period's slices on each processor, the agent's
	// own start, and a kernel that counts time by its ticks. Without it the tool
	// would take a whole processor at least; the line is half way between.
	wall := exit.Ended.Sub(exit.Started)
	most := time.Duration((0.25 + 1) / 2 * float64(wall))
	if used := exit.Usage.CPU; used > most {
		t.Errorf("%v of processor time in %v, want at most %v", used, wall, most)
	}
	next(t)
}
