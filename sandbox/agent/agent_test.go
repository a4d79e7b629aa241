package agent_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/sandbox/sandboxtest"
	"github.com/toolfleet/toolfleet/sandbox/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host drives one agent, as a process of its own, from the other end.
type host struct {
	*wire.Writer
	t     *testing.T
	in    *wire.Reader
	stdin *os.File
	cmd   *exec.Cmd
}

// startAgent starts an agent and takes its hello.
func startAgent(t *testing.T, path string) *host {
	t.Helper()
	dir := sandboxtest.PublicDir(t)
	if err := os.Mkdir(filepath.Join(dir, "out"), 0o700); err != nil { // as a runtime makes it
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, "-workspace", dir, "-home", dir, "-tmp", dir)
	theirs, stdin, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout = theirs, theirOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	theirOut.Close()
	t.Cleanup(func() { stdin.Close(); stdout.Close(); _ = cmd.Wait() })
	h := &host{Writer: wire.NewWriter(stdin), t: t, in: wire.NewReader(stdout), stdin: stdin, cmd: cmd}
	h.expect(wire.KindHello)
	return h
}

// expect takes the next frame, which has to be of a kind.
func (h *host) expect(kind wire.Kind) wire.Frame {
	h.t.Helper()
	f, err := h.in.Next()
	if err != nil || f.Kind != kind {
		h.t.Fatalf("got %v %q, %v, want %v", f.Kind, f.Payload, err, kind)
	}
	return f
}

// end reads to the end of the stream and returns how the agent ended.
func (h *host) end() error {
	for {
		if _, err := h.in.Next(); err != nil {
			break
		}
	}
	return h.cmd.Wait()
}

// start starts a tool as the agent's own user.
func (h *host) start(argv ...string) {
	h.t.Helper()
	s := wire.Start{Argv: argv, UID: os.Getuid(), GID: os.Getgid(), OOMScoreAdj: 1000}
	if err := h.JSON(wire.KindStart, 1, s); err != nil {
		h.t.Fatal(err)
	}
}

// TestHostGone: when the host is gone, the agent ends and so does everything
// its tool started, even while stdin is full and the tool does not read it.
func TestHostGone(t *testing.T) {
	h := startAgent(t, sandboxtest.BuildAgent(t))
	m := "mark-" + strconv.Itoa(os.Getpid())
	h.start(sandboxtest.BuildProbe(t), "tree", "2", m)
	h.expect(wire.KindStarted)
	for range wire.StdinWindow / wire.MaxChunk {
		if err := h.Frame(wire.KindStdin, 1, make([]byte, wire.MaxChunk)); err != nil {
			t.Fatal(err)
		}
	}
	for leaves := 0; leaves < 4; {
		f, err := h.in.Next()
		if err != nil {
			t.Fatal(err)
		}
		leaves += bytes.Count(f.Payload, []byte("leaf\n"))
	}
	if n := len(marked(t, m)); n < 5 {
		t.Fatalf("%d processes, want a tree", n)
	}
	h.stdin.Close()
	if err := h.end(); err != nil {
		t.Errorf("the agent ended with %v", err)
	}
	if left := marked(t, m); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// marked lists the processes with an argument.
func marked(t *testing.T, m string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(files, func(f string) bool {
		b, err := os.ReadFile(f)
		return err != nil || !slices.Contains(strings.Split(string(b), "\x00"), m)
	})
}

// TestHostBreaksRules: the first frame that a host should not send ends the
// agent.
func TestHostBreaksRules(t *testing.T) {
	path := sandboxtest.BuildAgent(t)
	for name, breakRule := range map[string]func(h *host) error{
		"Junk":             func(h *host) error { _, err := h.stdin.WriteString("GET / HTTP/1.1\r\n"); return err },
		"AgentsFrame":      func(h *host) error { return h.Frame(wire.KindExit, 1, []byte("{}")) },
		"StdinBeforeStart": func(h *host) error { return h.Frame(wire.KindStdin, 1, []byte("x")) },
		"StartNotJSON":     func(h *host) error { return h.Frame(wire.KindStart, 1, []byte("x")) },
		"SecondStart":      func(h *host) error { h.start("/no/such/file"); return h.Frame(wire.KindStart, 2, []byte("{}")) },
		"StdinAfterClose": func(h *host) error {
			h.start("sleep", "1000")
			return errors.Join(h.Frame(wire.KindStdinClose, 1, nil), h.Frame(wire.KindStdin, 1, []byte("x")))
		},
		"PrepareWithoutCells": func(h *host) error { return h.JSON(wire.KindPrepare, 1, wire.Cell{Disk: 1 << 20}) },
		"LongSignal": func(h *host) error {
			h.start("sleep", "1000")
			return h.Frame(wire.KindSignal, 1, nil)
		},
		"BeyondWindow": func(h *host) error {
			h.start("sleep", "1000")
			for range wire.StdinWindow/wire.MaxChunk + 5 { // what the pipe takes is credited
				if h.Frame(wire.KindStdin, 1, make([]byte, wire.MaxChunk)) != nil {
					break // it has ended already
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := startAgent(t, path)
			if err := breakRule(h); err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if err := h.end(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Errorf("the agent ended with %v, want exit status 1", err)
			}
		})
	}
}

// TestFlood: the agent carries any amount of output, holding a few chunks of it
// and making no thread.
func TestFlood(t *testing.T) {
	h := startAgent(t, sandboxtest.BuildAgent(t))
	before := status(t, h.cmd.Process.Pid, "Threads")
	const size = 50_000_000
	h.start(sandboxtest.BuildProbe(t), "flood", strconv.Itoa(size), strconv.Itoa(size))
	h.expect(wire.KindStarted)
	total := 0
	for {
		f, err := h.in.Next()
		if err != nil {
			t.Fatal(err)
		}
		if f.Kind == wire.KindExit {
			break
		}
		total += len(f.Payload)
	}
	if total != 2*size {
		t.Errorf("%d bytes came, want %d", total, 2*size)
	}
	if kib := status(t, h.cmd.Process.Pid, "VmHWM"); kib > 16<<10 {
		t.Errorf("the agent took %d KiB", kib)
	}
	if after := status(t, h.cmd.Process.Pid, "Threads"); after > before {
		t.Errorf("%d threads became %d", before, after)
	}
}

// status reads a number of /proc/pid/status.
func status(t *testing.T, pid int, name string) int {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == name+":" {
			n, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

// TestLockDownFails: what the host asked for and the kernel refuses is the
// operator's to mend, and the tool is not run.
func TestLockDownFails(t *testing.T) {
	path := sandboxtest.BuildAgent(t)
	for name, change := range map[string]func(*wire.Start){
		"FilterOfNoSize": func(s *wire.Start) { s.Seccomp = []byte("abc") },
		"BadFilter":      func(s *wire.Start) { s.Seccomp = bytes.Repeat([]byte{0xff}, 16) },
		"OOMScore":       func(s *wire.Start) { s.OOMScoreAdj = 5000 },
		"Rlimit":         func(s *wire.Start) { s.Rlimits = []wire.Rlimit{{Resource: 999}} },
	} {
		t.Run(name, func(t *testing.T) {
			h := startAgent(t, path)
			s := wire.Start{Argv: []string{"true"}, UID: os.Getuid(), GID: os.Getgid()}
			change(&s)
			if err := h.JSON(wire.KindStart, 1, s); err != nil {
				t.Fatal(err)
			}
			var exit wire.Exit
			if err := json.Unmarshal(h.expect(wire.KindExit).Payload, &exit); err != nil {
				t.Fatal(err)
			}
			if exit.Failed == "" || exit.NotStarted != "" {
				t.Errorf("got %+v", exit)
			}
		})
	}
}

// TestSize: the agent is in every sandbox, and read from a cold disk at the
// first.
func TestSize(t *testing.T) {
	info, err := os.Stat(sandboxtest.BuildAgent(t))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() >= 4<<20 {
		t.Errorf("the agent has %d bytes, want less than 4 MiB", info.Size())
	}
}

// BenchmarkReady is from the start of the agent's process to its hello.
func BenchmarkReady(b *testing.B) {
	path := sandboxtest.BuildAgent(b)
	for b.Loop() {
		cmd := exec.CommandContext(b.Context(), path)
		in, err := cmd.StdinPipe()
		if err != nil {
			b.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		if _, err := wire.NewReader(out).Next(); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		in.Close()
		if _, err := io.Copy(io.Discard, out); err != nil {
			b.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
