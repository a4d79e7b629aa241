package sandboxtest

import (
	"bytes"
	"context"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/sandbox"
)

// left runs the probe, which leaves files, and returns them by name.
func (s *suite) left(t *testing.T, what, end string, limits sandbox.FilesOut) (map[string]*bytes.Buffer, sandbox.Exit) {
	t.Helper()
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	files := map[string]*bytes.Buffer{}
	p := s.probe("leave-files", what, end)
	p.FilesOut = limits
	exit, err := s.open(t).Run(ctx, p, sandbox.Sink{
		Stderr: func([]byte) {
			if end == "stop" {
				cancel()
			}
		},
		File: func(name string, size int64) io.Writer {
			files[name] = bytes.NewBuffer(make([]byte, 0, size))
			return files[name]
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if exit.Code == 90 {
		t.Fatalf("the probe could not: %s", exit.Stderr)
	}
	return files, exit
}

// someFiles is enough for what the tests leave.
var someFiles = sandbox.FilesOut{Files: 100, Bytes: 1 << 20}

// testFilesOut: what a tool leaves comes, whole and bounded, however it ended;
// what does not come is told; and nothing outside is read.
func (s *suite) testFilesOut(t *testing.T) {
	t.Run("Whole", s.testFilesWhole)
	t.Run("HoweverItEnds", s.testFilesAtAnyEnd)
	t.Run("Pain91Tricks", s.testFileTricks)
	t.Run("Pain91Replaced", s.testOutReplaced)
	t.Run("Bounds", s.testFileBounds)
	t.Run("NotAskedFor", func(t *testing.T) {
		files, exit := s.left(t, "plain", "0", sandbox.FilesOut{})
		expect(t, exit, sandbox.CauseExited)
		if len(files) != 0 || exit.LeftOut != nil {
			t.Errorf("files %q, left out %v", slices.Sorted(maps.Keys(files)), exit.LeftOut)
		}
	})
}

func (s *suite) testFilesWhole(t *testing.T) {
	files, exit := s.left(t, "plain", "0", someFiles)
	expect(t, exit, sandbox.CauseExited)
	if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, []string{"a.txt", "empty", "sub/b.bin"}) || exit.LeftOut != nil {
		t.Fatalf("files %q, left out %v", got, exit.LeftOut)
	}
	if got := files["a.txt"].String() + files["empty"].String(); got != "hello" {
		t.Errorf("they hold %q", got)
	}
	if !bytes.Equal(files["sub/b.bin"].Bytes(), bytes.Repeat([]byte("0123456789abcdef"), 20_000)) {
		t.Errorf("%d bytes came back, or other ones", files["sub/b.bin"].Len())
	}
}

func (s *suite) testFilesAtAnyEnd(t *testing.T) {
	for end, cause := range map[string]sandbox.Cause{"3": sandbox.CauseExited, "stop": sandbox.CauseStopped} {
		files, exit := s.left(t, "one", end, someFiles)
		expect(t, exit, cause)
		if files["one"].String() != "kept" {
			t.Errorf("end %q: files %q, left out %v", end, files, exit.LeftOut)
		}
	}
}

func (s *suite) testFileTricks(t *testing.T) {
	files, exit := s.left(t, "tricks", "0", someFiles)
	expect(t, exit, sandbox.CauseExited)
	want := []string{"hard", "line\uFFFDend\uFFFD[31m", strings.Repeat("n", 255), "\uFFFD\uFFFD"}
	if os.Getuid() != 0 && !s.Isolation {
		t.Log("agent and tool are one user here")
	}
	if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, want) {
		t.Errorf("files %q", got)
	}
	if files["hard"].String() != "linked" {
		t.Errorf("the hard link holds %q", files["hard"])
	}
	for name, reason := range map[string]string{
		"link": "symbolic link", "root": "symbolic link", "loop": "symbolic link",
		"fifo": "no regular file", "socket": "no regular file",
		"locked": "permission denied", "shut": "permission denied", "sparse": "1099511627776 bytes",
	} {
		if !slices.ContainsFunc(exit.LeftOut, func(l sandbox.LeftOut) bool {
			return l.Name == name && strings.Contains(l.Reason, reason)
		}) {
			t.Errorf("no word of %s in %q", name, exit.LeftOut)
		}
	}
	if len(exit.LeftOut) != 8 || exit.LeftOutMore != 0 {
		t.Errorf("left out %q and %d more", exit.LeftOut, exit.LeftOutMore)
	}
}

func (s *suite) testOutReplaced(t *testing.T) {
	for what, reason := range map[string]string{
		"link": "no directory", "fifo": "no directory", "file": "no directory", "none": "",
		"shut": "permission denied", "closed": "permission denied",
	} {
		files, exit := s.left(t, what, "0", someFiles)
		expect(t, exit, sandbox.CauseExited)
		if len(files) != 0 {
			t.Errorf("%s: files %q", what, slices.Sorted(maps.Keys(files)))
		}
		if said := len(exit.LeftOut) == 1 && exit.LeftOut[0].Name == "" && strings.Contains(exit.LeftOut[0].Reason, reason); said != (reason != "") {
			t.Errorf("%s: left out %q", what, exit.LeftOut)
		}
	}
}

func (s *suite) testFileBounds(t *testing.T) {
	files, exit := s.left(t, "plain", "0", sandbox.FilesOut{Files: 2, Bytes: 1 << 20})
	if len(files) != 2 || len(exit.LeftOut) != 1 || exit.LeftOut[0].Name != "sub/b.bin" {
		t.Errorf("of three: %d, left out %q", len(files), exit.LeftOut)
	}
	files, exit = s.left(t, "plain", "0", sandbox.FilesOut{Files: 100, Bytes: 1 << 10})
	if len(files) != 2 || len(exit.LeftOut) != 1 || !strings.Contains(exit.LeftOut[0].Reason, "all files together") {
		t.Errorf("of 1 KiB: %d, left out %q", len(files), exit.LeftOut)
	}
	files, exit = s.left(t, "many", "0", someFiles)
	if len(files) != 100 || len(exit.LeftOut) != 20 || exit.LeftOutMore < 1000 {
		t.Errorf("of 100,000: %d, left out %d and %d more", len(files), len(exit.LeftOut), exit.LeftOutMore)
	}
	files, exit = s.left(t, "nested", "0", someFiles)
	if len(files) != 0 || len(exit.LeftOut) != 1 || !strings.Contains(exit.LeftOut[0].Reason, "deep") {
		t.Errorf("of 1,000 levels: %q, left out %q", files, exit.LeftOut)
	}
}
