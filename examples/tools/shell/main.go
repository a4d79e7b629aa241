// Command shell runs code that nobody has read: a script that a model wrote. It
// checks the arguments and then becomes the shell, so what the script prints is
// the answer, its exit code is the tool's, and no process stands in between.
//
// The script reaches the shell as one element of an argv. Nothing is pasted
// into a command line, so there is nothing to quote and nothing to escape.
package main

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"github.com/toolfleet/toolfleet/tool"
)

const busybox = "/bin/busybox"

type input struct {
	Script string `json:"script" jsonschema:"a POSIX shell script; busybox has the usual commands"`
}

func main() {
	tool.Main(tool.Define("shell", "Runs a shell script in an empty sandbox without a network, and returns what it prints.", run))
}

func run(_ context.Context, _ *tool.Call, in input) (string, error) {
	// Stdin was read to its end for the arguments, so the script's is empty.
	// File descriptor 3 is closed by the exec: there will be no message, and
	// stdout is the answer.
	err := syscall.Exec(busybox, []string{"sh", "-c", in.Script}, os.Environ())
	return "", fmt.Errorf("%s could not be started: %w", busybox, err)
}
