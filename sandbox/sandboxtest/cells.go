package sandboxtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox"
)

// testCells: what a container of cells owes the next call. Row 19 of the pains
// is a sandbox that was cleaned and used again; a cell is made anew.
func (s *suite) testCells(t *testing.T) {
	t.Run("Pain19NothingOfACallIsLeft", s.testNothingOfACall)
	t.Run("ManyCalls", s.testManyCalls)
	t.Run("UsageIsTheCalls", s.testUsageOfACall)
	t.Run("AnomalyEndsReuse", s.testAnomaly)
	t.Run("KilledWhileItWaits", s.testKilledCell)
}

// next runs p as the next call of sb.
func (s *suite) next(t *testing.T, sb *sandbox.Sandbox, p sandbox.Process) sandbox.Exit {
	t.Helper()
	exit, err := sb.Run(testContext(t), p, sandbox.Sink{})
	if err != nil {
		t.Fatal(err)
	}
	return exit
}

// testNothingOfACall: a call leaves marks wherever it can, as the usual user and
// as user 0, and processes that hold on to them; the next call looks for them
// wherever it can.
func (s *suite) testNothingOfACall(t *testing.T) {
	for _, user := range []string{"", "0:0", "65534:65534"} {
		t.Run("User"+user, func(t *testing.T) {
			sb, m := s.open(t), mark()
			p := s.probe("leave", m)
			p.User, p.Env, p.Stdin = user, []string{"MARK=" + m}, []byte(m)
			exit := s.next(t, sb, p)
			expect(t, exit, sandbox.CauseExited)
			left := strings.Count(string(exit.Stdout), "left ")
			if exit.Code != 0 || left < 6 {
				t.Fatalf("code %d; it left only %q, %q", exit.Code, exit.Stdout, exit.Stderr)
			}
			if n := marked(t, m); n != 0 {
				t.Errorf("%d processes of the call are left", n)
			}
			if !sb.Reusable() {
				t.Fatal("not reusable after a call that ended well")
			}
			look := s.probe("look")
			look.User, look.Stdin = user, []byte(m)
			exit = s.next(t, sb, look)
			expect(t, exit, sandbox.CauseExited)
			if exit.Code != 0 || !bytes.HasPrefix(exit.Stdout, []byte("looked at ")) || bytes.Contains(exit.Stdout, []byte("found")) {
				t.Errorf("the next call, code %d: %s %s", exit.Code, exit.Stdout, exit.Stderr)
			}
		})
	}
}

// testManyCalls: calls follow each other, each with its own input and output,
// also when one leaves processes behind and one does not read its input.
func (s *suite) testManyCalls(t *testing.T) {
	sb := s.open(t)
	for n := range 50 {
		text := strings.Repeat(fmt.Sprint(n, " "), 1+n*1000)
		p := s.probe("cat")
		if n%5 == 4 {
			p = s.probe("exit", fmt.Sprint(n))
		}
		p.Stdin = []byte(text)
		exit := s.next(t, sb, p)
		expect(t, exit, sandbox.CauseExited)
		if n%5 == 4 && exit.Code != n || n%5 != 4 && string(exit.Stdout) != text {
			t.Fatalf("call %d: code %d, %d bytes", n, exit.Code, len(exit.Stdout))
		}
		if !sb.Reusable() {
			t.Fatalf("not reusable after call %d", n)
		}
	}
}

// testUsageOfACall: memory and processor time are the call's, not those of the
// container it shares with earlier ones.
func (s *suite) testUsageOfACall(t *testing.T) {
	if !s.Limits || s.OwnKernel != "" {
		return
	}
	sb := s.open(t)
	big := s.next(t, sb, s.probe("use", fmt.Sprint(64<<20)))
	expect(t, big, sandbox.CauseExited)
	small := s.next(t, sb, s.probe("exit", "0"))
	expect(t, small, sandbox.CauseExited)
	if big.Usage.PeakMemory < 64<<20 || small.Usage.PeakMemory > big.Usage.PeakMemory/2 {
		t.Errorf("peaks of %d and then %d bytes", big.Usage.PeakMemory, small.Usage.PeakMemory)
	}
	// The files of a call are memory too, until its disk is gone.
	filled := s.next(t, sb, s.probe("keep", "/tmp/file", "24"))
	expect(t, filled, sandbox.CauseExited)
	empty := s.next(t, sb, s.probe("exit", "0"))
	// A kernel that cannot count anew knows the first call's peak alone; the
	// others are 0 there.
	known := small.Usage.PeakMemory > 0
	if known && filled.Usage.PeakMemory < 24<<20 || empty.Usage.PeakMemory > filled.Usage.PeakMemory/2 {
		t.Errorf("peaks of %d with files and then %d bytes", filled.Usage.PeakMemory, empty.Usage.PeakMemory)
	}
	if big.Usage.CPU <= 0 || small.Usage.CPU <= 0 || small.Usage.CPU > big.Usage.CPU {
		t.Errorf("processor time of %v and then %v", big.Usage.CPU, small.Usage.CPU)
	}
}

// testAnomaly: a container whose call met a limit or was killed by a signal
// serves no other.
func (s *suite) testAnomaly(t *testing.T) {
	for name, p := range map[string]sandbox.Process{
		"Signal":     s.probe("signal", "9"),
		"NotStarted": {Argv: []string{"/no/such/tool"}},
		"Junk":       s.probe("message", "junk\n"),
		"Disk":       s.probe("fill", "/tmp", "1000000"),
	} {
		t.Run(name, func(t *testing.T) {
			sb := s.open(t)
			if exit := s.next(t, sb, p); exit.Cause == sandbox.CauseExited {
				t.Fatalf("cause %q", exit.Cause)
			}
			if sb.Reusable() {
				t.Error("reusable")
			}
			if _, err := sb.Run(testContext(t), s.probe("exit", "0"), sandbox.Sink{}); err == nil {
				t.Error("it served another call")
			}
		})
	}
}

// testKilledCell: a cell whose init somebody outside has killed before its call
// came is no mistake of the tool's author, and the call may have another.
func (s *suite) testKilledCell(t *testing.T) {
	if s.OwnKernel != "" {
		return
	}
	sb := s.open(t)
	killAndSee(t, cellInit(t, sb.ID()))
	exit, err := sb.Run(testContext(t), s.probe("exit", "0"), sandbox.Sink{})
	if err == nil || !exit.Started.IsZero() {
		t.Errorf("cause %q (%s), error %v", exit.Cause, exit.Detail, err)
	}
	if sb.Reusable() {
		t.Error("reusable")
	}
}

// cellInit waits for the cell that the sandbox id makes ahead, and returns the
// pid of its init.
func cellInit(t *testing.T, id string) int {
	t.Helper()
	ctx := testContext(t)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		dirs, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range dirs {
			name, _ := os.ReadFile(filepath.Join(dir, "comm"))
			group, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
			if string(name) == "init\n" && bytes.Contains(group, []byte(id)) {
				pid, err := strconv.Atoi(filepath.Base(dir))
				if err != nil {
					t.Fatal(err)
				}
				return pid
			}
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatal("no cell was made")
		}
	}
}

// killAndSee kills a process and returns when it is dead, whether or not its
// parent has taken notice.
func killAndSee(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		t.Fatal(err)
	}
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(poll, 10_000)
		if n == 1 {
			return
		}
		if !errors.Is(err, unix.EINTR) {
			t.Fatalf("process %d does not die: %v", pid, err)
		}
	}
}
