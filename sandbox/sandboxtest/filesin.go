package sandboxtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/sandbox"
)

// fileOf is a file that holds data.
func fileOf(name string, data []byte) sandbox.File {
	return sandbox.File{Name: name, Size: int64(len(data)), Open: func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	}}
}

// testFilesIn: the files of a call are there when its tool starts, whole and its
// own; and a call whose files cannot be had runs nothing.
func (s *suite) testFilesIn(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	files := []sandbox.File{fileOf("a picture.png", []byte("\x89PNG")), fileOf("big", big), fileOf("empty", nil)}
	want := fmt.Sprintf("a picture.png 4 %x\nbig %d %x\nempty 0 %x\nand stdin",
		sha256.Sum256([]byte("\x89PNG")), len(big), sha256.Sum256(big), sha256.Sum256(nil))
	for _, user := range []string{"", "1234:5678", "0:0"} {
		if user != "" && os.Getuid() != 0 {
			continue
		}
		t.Run("User"+user, func(t *testing.T) {
			p := s.probe("see-files")
			p.Files, p.User, p.Stdin = files, user, []byte("and stdin")
			exit := s.run(t, p, sandbox.Sink{})
			expect(t, exit, sandbox.CauseExited)
			if exit.Code != 0 || string(exit.Stdout) != want {
				t.Errorf("code %d, it saw %q, want %q", exit.Code, exit.Stdout, want)
			}
		})
	}
	t.Run("None", func(t *testing.T) {
		exit := s.run(t, s.probe("see-files"), sandbox.Sink{})
		if exit.Code != 1 || !strings.Contains(string(exit.Stdout), "no such file") {
			t.Errorf("code %d, it saw %q", exit.Code, exit.Stdout)
		}
	})
	t.Run("TooLargeForTheDisk", func(t *testing.T) {
		if !s.Limits {
			return // its disk is the machine's
		}
		p := s.probe("see-files")
		p.Files = []sandbox.File{{Name: "huge", Size: 80 << 20, Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(zeros{}), nil }}}
		exit := s.run(t, p, sandbox.Sink{})
		expect(t, exit, sandbox.CauseNotStarted)
		if !strings.Contains(exit.Detail, "do not fit") {
			t.Errorf("detail %q", exit.Detail)
		}
	})
	t.Run("ThatCannotBeHad", func(t *testing.T) {
		gone := errors.New("gone")
		p := s.probe("see-files")
		p.Files = []sandbox.File{files[0], {Name: "x", Size: 1 << 20, Open: func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(io.LimitReader(zeros{}, 100_000), failing{gone})), nil
		}}}
		sb := s.open(t)
		exit, err := sb.Run(testContext(t), p, sandbox.Sink{})
		if !errors.Is(err, gone) || !exit.Started.IsZero() {
			t.Errorf("error %v, started %v", err, exit.Started)
		}
		if sb.Reusable() {
			t.Error("reusable")
		}
	})
	t.Run("StoppedMeanwhile", func(t *testing.T) {
		ctx, cancel := context.WithCancel(testContext(t))
		p := s.probe("see-files")
		p.Files = []sandbox.File{files[0], {Name: "x", Size: 1 << 20, Open: func(ctx context.Context) (io.ReadCloser, error) {
			cancel()
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}}}
		exit, err := s.open(t).Run(ctx, p, sandbox.Sink{})
		if err != nil || exit.Cause != sandbox.CauseStopped || !exit.Started.IsZero() {
			t.Errorf("cause %q, started %v, %v", exit.Cause, exit.Started, err)
		}
	})
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
