package sandboxtest

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/sandbox"
)

// testLimits: each limit holds, and is told by its name. While the tests run, a
// neighbour in another sandbox works on and is not refused anything.
func (s *suite) testLimits(t *testing.T) {
	next := s.neighbour(t)
	for _, c := range []struct {
		name  string
		args  []string
		cause sandbox.Cause
	}{
		{"Pain51Memory", []string{"eat"}, sandbox.CauseOutOfMemory},
		{"Pain51Memory/Anonymous", []string{"balloon", "anonymous"}, sandbox.CauseOutOfMemory},
		{"Pain51Memory/Shared", []string{"balloon", "shared"}, sandbox.CauseOutOfMemory},
		{"Pain51Memory/SysV", []string{"balloon", "sysv"}, sandbox.CauseOutOfMemory},
		{"Pain51Memory/Memfd", []string{"balloon", "memfd"}, sandbox.CauseOutOfMemory},
		{"Pain93ForkBomb", []string{"forks", "on", mark()}, sandbox.CausePidsLimit},
		{"Pain93TooManyForks", []string{"forks", "once", mark()}, sandbox.CausePidsLimit},
		{"Pain94DiskBytes", []string{"fill", "/tmp", "1000000"}, sandbox.CauseDiskLimit},
		{"Pain94DiskWorkspace", []string{"fill", "/workspace", "4096"}, sandbox.CauseDiskLimit},
		{"Pain94DiskHome", []string{"fill", "/home/tool", "100000"}, sandbox.CauseDiskLimit},
		{"Pain94DiskShm", []string{"fill", "/dev/shm", "100000"}, sandbox.CauseDiskLimit},
		{"Pain94SmallFiles", []string{"fill", "/workspace", "0"}, sandbox.CauseDiskLimit},
		{"Pain94SymbolicLinks", []string{"links", "symbolic"}, sandbox.CauseDiskLimit},
		{"Pain94HardLinks", []string{"links", "hard"}, sandbox.CauseDiskLimit},
		{"Pain94DeepDirectories", []string{"deep", "/tmp"}, sandbox.CauseDiskLimit},
		{"Pain94MappedFile", []string{"mapped"}, sandbox.CauseDiskLimit},
	} {
		t.Run(c.name, func(t *testing.T) {
			exit := s.run(t, s.probe(c.args...), sandbox.Sink{})
			if s.OwnKernel != "" && s.Spec.Isolation == "cell" && exit.Cause == sandbox.CauseOutOfMemory {
				// The cell's disk is that kernel's, and the names in it are its
				// memory.
				c.cause = sandbox.CauseOutOfMemory
			}
			expect(t, exit, c.cause)
			if n := marked(t, c.args[len(c.args)-1]); c.cause == sandbox.CausePidsLimit && exit.Signal == "" && n > 64 {
				t.Errorf("%d processes", n)
			}
			s.expectPeak(t, exit)
			next(t)
		})
	}
	t.Run("Pain52OwnSIGKILLIsNotMemory", s.testOwnKill)
	t.Run("Pain56WhoKilledIt", s.testKiller)
	t.Run("Pain55Taken", func(t *testing.T) { s.testTaken(t, next) })
	t.Run("Pain93OpenFiles", func(t *testing.T) { s.testOpenFiles(t, next) })
	t.Run("Pain94WritablePlaces", s.testPlaces)
	t.Run("Processor", func(t *testing.T) { s.testProcessor(t, next) })
}

// expectPeak fails when the sandbox held more memory than it may. The kernel
// lets a group exceed its limit by a few pages that cannot wait.
func (s *suite) expectPeak(t *testing.T, exit sandbox.Exit) {
	t.Helper()
	if most := s.Spec.Limits.Memory + s.Spec.Limits.Disk + s.Overhead + 1<<20; exit.Usage.PeakMemory > most {
		t.Errorf("a peak of %d bytes, want at most %d", exit.Usage.PeakMemory, most)
	}
}

// neighbour starts a sandbox whose tool works for as long as the test runs. The
// function that it returns waits until another round of the work is done.
func (s *suite) neighbour(t *testing.T) (next func(t *testing.T)) {
	t.Helper()
	rounds := make(chan struct{}, 1)
	ended := make(chan sandbox.Exit, 1)
	ctx, cancel := context.WithCancel(t.Context())
	sb := s.open(t)
	go func() {
		defer close(ended)
		exit, err := sb.Run(ctx, s.probe("work"), sandbox.Sink{Stderr: func([]byte) {
			select {
			case rounds <- struct{}{}:
			default:
			}
		}})
		if err != nil {
			exit.Detail = err.Error()
		}
		ended <- exit
	}()
	t.Cleanup(func() {
		cancel()
		if exit, ok := <-ended; ok && exit.Cause != sandbox.CauseStopped {
			t.Errorf("the neighbour ended by %q (code %d, %s): %s", exit.Cause, exit.Code, exit.Detail, exit.Stderr)
		}
	})
	return func(t *testing.T) {
		t.Helper()
		for range 2 { // the first may have been done before
			select {
			case <-rounds:
			case exit := <-ended:
				t.Fatalf("the neighbour ended by %q (code %d, %s): %s", exit.Cause, exit.Code, exit.Detail, exit.Stderr)
			case <-testContext(t).Done():
				t.Fatal("the neighbour does not get on")
			}
		}
	}
}

// testOwnKill: the fleet's SIGKILL and the tool's own are not the kernel's.
func (s *suite) testOwnKill(t *testing.T) {
	expect(t, s.run(t, s.probe("signal", "9"), sandbox.Sink{}), sandbox.CauseSignaled)
	expect(t, s.stopAt(t, s.probe("tree", "0", mark()), 1, nil), sandbox.CauseStopped)
}

func (s *suite) testKiller(t *testing.T) {
	for name, c := range map[string]struct {
		exit sandbox.Exit
		by   sandbox.Killer
	}{
		"Tool":   {s.run(t, s.probe("signal", "9"), sandbox.Sink{}), sandbox.KilledByTool},
		"Fleet":  {s.stopAt(t, s.probe("tree", "0", mark()), 1, nil), sandbox.KilledByFleet},
		"Kernel": {s.run(t, s.probe("balloon", "anonymous"), sandbox.Sink{}), sandbox.KilledByKernel},
	} {
		if c.exit.KilledBy != c.by || c.exit.Signal != "SIGKILL" || c.exit.Usage.PeakMemory == 0 || c.exit.Usage.CPU == 0 {
			t.Errorf("%s: killed by %q with %q, %+v", name, c.exit.KilledBy, c.exit.Signal, c.exit.Usage)
		}
	}
}

// testTaken: what has no limit of its own is charged as memory, or runs into
// another limit; the tool then fails or lives, and the sandbox ends in order.
func (s *suite) testTaken(t *testing.T, next func(*testing.T)) {
	for name, args := range map[string][]string{
		"PageCache":       {"read-all"},
		"Names":           {"look-up", "50000"},
		"Pipes":           {"balloon", "pipes"},
		"Sockets":         {"balloon", "sockets"},
		"InotifyWatches":  {"watches"},
		"Locks":           {"locks", "20", "1000"},
		"SparseFile":      {"sparse"},
		"ArgumentsOf600K": append([]string{"exit", "0"}, slices.Repeat([]string{"x"}, 150_000)...),
	} {
		t.Run(name, func(t *testing.T) {
			exit := s.run(t, s.probe(args...), sandbox.Sink{})
			switch exit.Cause {
			case sandbox.CauseExited, sandbox.CauseOutOfMemory, sandbox.CauseDiskLimit:
			default:
				t.Errorf("cause %q (%s): %s", exit.Cause, exit.Detail, exit.Stderr)
			}
			s.expectPeak(t, exit)
			t.Logf("%s, code %d, took %s, peak %d MiB", exit.Cause, exit.Code, bytes.TrimSpace(exit.Stdout), exit.Usage.PeakMemory>>20)
			next(t)
		})
	}
}

// testPlaces: a tool can write into four places and nowhere else, and they
// share one limit.
func (s *suite) testPlaces(t *testing.T) {
	four := []string{"/dev/shm", "/home/tool", "/tmp", "/workspace"}
	exit := s.run(t, s.probe("places"), sandbox.Sink{})
	expect(t, exit, sandbox.CauseExited)
	if found := strings.Fields(string(exit.Stdout)); !slices.Equal(found, four) {
		t.Errorf("writable are %q, want %q", found, four)
	}
	exit = s.run(t, s.probe(append([]string{"fill-all"}, four...)...), sandbox.Sink{})
	expect(t, exit, sandbox.CauseDiskLimit)
	if n, err := strconv.ParseInt(strings.TrimSpace(string(exit.Stdout)), 10, 64); err != nil || n > s.Spec.Limits.Disk || n < s.Spec.Limits.Disk/2 {
		t.Errorf("%d bytes went into a disk of %d: %v", n, s.Spec.Limits.Disk, err)
	}
}
