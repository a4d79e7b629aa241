// Command flaky fails in every way a tool can, on request. It shows what a
// caller sees of each, and the fleet's own tests are run with it.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/toolfleet/toolfleet/tool"
)

type input struct {
	Mode  string `json:"mode" jsonschema:"how to fail"`
	Sleep int    `json:"sleep,omitempty" jsonschema:"milliseconds to wait first"`
	MiB   int    `json:"mib,omitempty" jsonschema:"how much to flood; 1024 by default"`
}

// modes are the ways to fail, in the order in which they are advertised.
var modes = []struct {
	name string
	run  func(in input) (string, error)
}{
	{"ok", func(input) (string, error) { return "ok", nil }},
	{"error", func(input) (string, error) {
		return "This far it went well.", errors.New("the error that was asked for")
	}},
	{"panic", func(input) (string, error) { panic("the panic that was asked for") }},
	{"exit3", exit3},
	{"signal", func(input) (string, error) { return "", syscall.Kill(os.Getpid(), syscall.SIGKILL) }},
	{"hang", func(input) (string, error) { return hang() }},
	{"eat-memory", eatMemory},
	{"fork-bomb", func(input) (string, error) { return "", forkBomb() }},
	{"flood-stdout", func(in input) (string, error) { return "flooded", flood(os.Stdout, in.MiB) }},
	{"flood-stderr", func(in input) (string, error) { return "flooded", flood(os.Stderr, in.MiB) }},
	{"not-utf8", notUTF8},
	{"bad-fd3", badMessage},
	{"fill-disk", func(input) (string, error) { return "", fillDisk() }},
}

// bombArgument makes the program be one process of its own fork bomb.
const bombArgument = "bomb"

func main() {
	if len(os.Args) == 2 && os.Args[1] == bombArgument {
		if err := forkBomb(); err != nil {
			_, _ = hang() // until somebody ends it
		}
	}
	tool.Main(tool.Define("flaky", "Fails in the way that is asked for.", fail,
		tool.EditInput(func(s *jsonschema.Schema) {
			for _, m := range modes {
				s.Properties["mode"].Enum = append(s.Properties["mode"].Enum, m.name)
			}
			bound(s.Properties["sleep"], 0, 60_000)
			bound(s.Properties["mib"], 1, 1024)
		})))
}

func bound(s *jsonschema.Schema, low, high float64) { s.Minimum, s.Maximum = &low, &high }

func fail(ctx context.Context, _ *tool.Call, in input) (string, error) {
	select {
	case <-time.After(time.Duration(in.Sleep) * time.Millisecond):
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	for _, m := range modes {
		if m.name == in.Mode {
			return m.run(in)
		}
	}
	return "", fmt.Errorf("there is no mode %q", in.Mode) // the schema has refused it
}

func exit3(input) (string, error) {
	fmt.Println("This far it went well.")
	fmt.Fprintln(os.Stderr, "exit code 3 was asked for")
	os.Exit(3)
	return "", nil
}

// hang ignores everything that would end it politely.
func hang() (string, error) {
	for {
		<-time.After(time.Hour)
	}
}

// eatMemory touches what it takes: the kernel gives pages out only then.
func eatMemory(input) (string, error) {
	eaten := []byte{1}
	for {
		eaten = append(eaten, bytes.Repeat([]byte{1}, max(1<<20, len(eaten)/8))...)
		fmt.Fprintf(os.Stderr, "%d MiB\n", len(eaten)>>20)
	}
}

// forkBomb starts itself until it may not any more; so does each of them.
func forkBomb() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for {
		if err := exec.CommandContext(context.Background(), self, bombArgument).Start(); err != nil {
			return fmt.Errorf("no more processes: %w", err)
		}
	}
}

func flood(w io.Writer, mib int) error {
	if mib == 0 {
		mib = 1024
	}
	line := append(bytes.Repeat([]byte("flood "), 170), "...\n"...)
	for range mib << 20 / len(line) {
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return nil
}

// notUTF8 writes its bytes to stdout itself and sends no result: they are the
// answer then, whatever they are.
func notUTF8(input) (string, error) {
	if _, err := os.Stdout.Write([]byte{0xff, 0xfe, 0x00, 0x80, 0xc3, 0x28, 0xa0, 0xa1}); err != nil {
		return "", err
	}
	os.Exit(0)
	return "", nil
}

// badMessage writes what is no message where messages go.
func badMessage(input) (string, error) {
	if _, err := os.NewFile(3, "messages").WriteString("this is no message\n"); err != nil {
		return "", err
	}
	os.Exit(0)
	return "", nil
}

// fillDisk leaves its files, so that the disk is full when it ends.
func fillDisk() error {
	block := bytes.Repeat([]byte("full "), 1<<18)
	for _, dir := range []string{"/workspace", os.Getenv("HOME"), os.TempDir()} {
		f, err := os.Create(filepath.Join(dir, "filler"))
		for err == nil {
			_, err = f.Write(block)
		}
		if errors.Is(err, syscall.ENOSPC) {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	return errors.New("there is no writable place to fill")
}
