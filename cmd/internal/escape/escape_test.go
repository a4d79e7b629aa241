package escape

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/sandbox/image"
	"github.com/toolfleet/toolfleet/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every attempt is denied under runc, in every isolation. gVisor takes minutes,
// and its turn in make escape.
func TestEscape(t *testing.T) {
	bin, err := filepath.Abs("../../../.toolchain/bin")
	if err != nil {
		t.Fatal(err)
	}
	img, err := image.FromGoPackage(t.Context(), "../../../sandbox/sandboxtest/escape")
	if err != nil {
		t.Fatal(err)
	}
	var archive, out bytes.Buffer
	if err := image.WriteArchive(&archive, ImageName, img); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/var/tmp", "toolfleet-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c := Config{
		Agent: sandboxtest.BuildAgent(t), BinDir: bin, Image: &archive, Dir: dir,
		Runtimes: []string{"runc"}, Isolations: []string{"container", "cell"}, Out: &out,
	}
	err = Run(t.Context(), c)
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, " "+open+" ") {
			t.Error(line)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// A runtime that was asked for and is not there is a failure.
func TestMissingRuntime(t *testing.T) {
	err := Run(t.Context(), Config{BinDir: t.TempDir(), Runtimes: []string{"no-such-runtime"}, Isolations: []string{"container"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-runtime") {
		t.Errorf("got %v", err)
	}
}

// A tool that ends early has not tried what it did not tell of; a word that is
// neither of the two harmless ones is open.
func TestParse(t *testing.T) {
	for _, said := range []string{"", "plan 2\na\tdenied\tno\n", "plan x\n", "plan 1\na denied\n"} {
		if got, err := parse([]byte(said)); err == nil {
			t.Errorf("%q: got %v", said, got)
		}
	}
	got, err := parse([]byte("plan 3\na\tdenied\tno\nb\tabsent\tnone\nc\tperhaps\twho knows\n"))
	if err != nil || len(got) != 3 || got[0].word != denied || got[1].word != absent || got[2].word != open {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestTally(t *testing.T) {
	enough := make([]answer, MinTried)
	for i := range enough {
		enough[i].word = denied
	}
	for _, c := range []struct {
		name    string
		answers []answer
		ok      bool
		opened  bool
	}{
		{"all denied", enough, true, false},
		{"one open", append(enough[:MinTried:MinTried], answer{word: open}), false, true},
		{"too few", enough[1:], false, false},
		{"absent does not count", append(enough[1:MinTried:MinTried], answer{word: absent}), false, false},
	} {
		sum := &tally{}
		sum.add("here", c.answers)
		if err := sum.verdict(); (err == nil) != c.ok || errors.Is(err, ErrOpen) != c.opened {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
}

// What reaches the host's bait is seen, whatever a tool says.
func TestWitness(t *testing.T) {
	w, err := newWitness(t.Context(), filepath.Join(t.TempDir(), "bait"))
	if err != nil {
		t.Fatal(err)
	}
	before := w.look()
	if changed := w.changes(before); len(changed) != 0 {
		t.Errorf("nothing happened, but %v", changed)
	}
	for network, address := range map[string]string{"tcp": "127.0.0.1:" + strconv.Itoa(w.port), "unix": "@" + w.abstract} {
		c, err := (&net.Dialer{Timeout: time.Minute}).DialContext(t.Context(), network, address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Read(make([]byte, 1)) // returns once it was counted and closed
		_ = c.Close()
	}
	if err := os.WriteFile(filepath.Join(w.dir, "more"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	changed := w.changes(before)
	for _, name := range []string{"host-loopback", "host-abstract-socket", "read-host-file"} {
		if changed[name] == "" {
			t.Errorf("%s was not seen", name)
		}
	}
	if err := w.close(); err != nil {
		t.Error(err)
	}
}
