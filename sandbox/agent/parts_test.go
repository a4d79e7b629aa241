package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// TestSplitter: however a stream is cut into pieces, the lines are the same.
func TestSplitter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOf(rapid.StringMatching(`[a-z ]{0,6}`)).Draw(t, "lines")
		stream := strings.Join(lines, "\n") + "\n"
		var want []string
		for _, l := range lines {
			if l = strings.TrimSpace(l); l != "" {
				want = append(want, l)
			}
		}
		var got []string
		s := &splitter{send: func(line []byte) error { got = append(got, string(line)); return nil }}
		for len(stream) > 0 {
			n := rapid.IntRange(1, len(stream)).Draw(t, "piece")
			if err := s.add([]byte(stream[:n])); err != nil {
				t.Fatal(err)
			}
			stream = stream[n:]
		}
		if err := s.end(true); err != nil || s.long {
			t.Fatalf("end: %v, long %v", err, s.long)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestSplitterEnds(t *testing.T) {
	exact := strings.Repeat("x", wire.MaxMessage)
	for _, c := range []struct {
		name, stream string
		inOrder      bool
		want         []string
		long         bool
	}{
		{"nothing", "", true, nil, false},
		{"whole without newline", "a\n{}", false, []string{"a", "{}"}, false},
		{"half without newline", "a\n{", true, []string{"a", "{"}, false},
		{"half without newline, killed", "a\n{", false, []string{"a"}, false},
		{"carriage return", "a\r\n", true, []string{"a"}, false},
		{"longest", exact + "\n", true, []string{exact}, false},
		{"too long", "a\n" + exact + "x\nb\n", true, []string{"a"}, true},
		{"too long without newline", exact + "x", true, nil, true},
	} {
		for _, size := range []int{1 << 30, wire.MaxChunk, 1000} {
			var got []string
			s := &splitter{send: func(line []byte) error { got = append(got, string(line)); return nil }}
			for piece := range slices.Chunk([]byte(c.stream), size) {
				if err := s.add(piece); err != nil {
					t.Fatal(err)
				}
				if len(s.part) > wire.MaxMessage {
					t.Fatalf("%s: %d bytes are held", c.name, len(s.part))
				}
			}
			if err := s.end(c.inOrder); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, c.want) || s.long != c.long {
				t.Errorf("%s in pieces of %d: %d lines, long %v", c.name, size, len(got), s.long)
			}
		}
	}
}

func TestEnviron(t *testing.T) {
	cfg := Config{Home: "/home/tool", Tmp: "/tmp"}
	got := environ(
		[]string{"PATH=/image/bin", "HOME=/root", "LANG=C", "=odd", "odd"},
		[]string{"LANG=C.UTF-8", "EMPTY=", "TOOLFLEET_FD=9", "A=b=c"}, cfg)
	want := []string{"PATH=/image/bin", "HOME=/home/tool", "TMPDIR=/tmp", "LANG=C.UTF-8", "EMPTY=", "TOOLFLEET_FD=3", "A=b=c"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := environ(nil, nil, cfg); got[0] != "PATH="+defaultPath {
		t.Errorf("got %q", got)
	}
}

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"bin/tool": 0o755, "bin/plain": 0o644, "here/local": 0o755} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	bin, here := filepath.Join(dir, "bin"), filepath.Join(dir, "here")
	for _, c := range []struct{ name, path, want string }{
		{"tool", "/nowhere:" + bin, bin + "/tool"},
		{"plain", bin, "plain"},
		{"missing", bin, "missing"},
		{"local", ":" + bin, here + "/local"},
		{"local", ".", here + "/local"},
		{"./tool", bin, "./tool"},
		{"/x/tool", bin, "/x/tool"},
		{"", bin, ""},
	} {
		if got := lookPath(c.name, c.path, here); got != c.want {
			t.Errorf("%q in %q is %q, want %q", c.name, c.path, got, c.want)
		}
	}
}

// TestReadStat: the name of a process may look like the fields after it.
func TestReadStat(t *testing.T) {
	link := filepath.Join(t.TempDir(), ") Z 1 (")
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(sleep, link); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), link, "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	p, parent, ok := readStat(cmd.Process.Pid)
	if !ok || parent != os.Getpid() || p.zombie {
		t.Errorf("parent %d, zombie %v, %v", parent, p.zombie, ok)
	}
	if !slices.Contains(descendants(os.Getpid()), cmd.Process.Pid) {
		t.Error("a child is no descendant")
	}
}

func TestKillTreeOfNothing(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if !KillTree(cmd.Process.Pid, time.Second) {
		t.Error("a process without children has some")
	}
	if !slices.Contains(descendants(os.Getpid()), cmd.Process.Pid) {
		t.Error("the root itself was killed")
	}
}
