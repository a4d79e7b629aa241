// Command toolfleet is the fleet's command line: `up` runs a whole fleet in one
// process, the other commands call tools on a fleet that runs, look at calls
// and tools, build tool images, and look at what this machine can do.
//
// Exit codes are part of the interface: 0 the call has a result, 1 it has an
// error result (or the command failed), 2 the command line or the request was
// wrong, 3 there is no fleet to talk to.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"

	"github.com/toolfleet/toolfleet/cmd/internal/client"
	"github.com/toolfleet/toolfleet/cmd/internal/part"
)

// The exit codes.
const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2
	exitNoFleet = 3
)

// commands is the command line.
type commands struct {
	Up       UpCmd       `cmd:"" help:"Run a whole fleet in this process."`
	Status   StatusCmd   `cmd:"" help:"Show the fleet on one screen: who lives, what waits, what is wrong."`
	Call     CallCmd     `cmd:"" help:"Call a tool and follow the call to its end."`
	Calls    CallsCmd    `cmd:"" help:"Look at calls: list, show, follow, cancel."`
	Dead     DeadCmd     `cmd:"" help:"Look at dead letters, calls that the fleet could not run: list, show, redrive, drop."`
	Tools    ToolsCmd    `cmd:"" help:"Look at tools: list, show, check; change the fleet's: apply, delete, diff."`
	Image    ImageCmd    `cmd:"" help:"Make tool images."`
	Workers  WorkersCmd  `cmd:"" help:"List the workers that are alive."`
	Doctor   DoctorCmd   `cmd:"" help:"Say what this machine can do and what is missing."`
	Bench    BenchCmd    `cmd:"" help:"Measure a fleet beside bare containers."`
	BenchBus BenchBusCmd `cmd:"" help:"Measure what a call costs beside its sandbox."`
	Escape   EscapeCmd   `cmd:"" help:"Try to break out of this machine's sandboxes."`
	Egress   EgressCmd   `cmd:"" help:"Let a hostile tool try to reach what its network does not allow."`
	NATS     NATSCmd     `cmd:"" name:"nats" help:"Run one NATS server from a configuration of its own."`

	Version kong.VersionFlag `help:"Print the version."`
}

// terminal is where a command reads and writes.
type terminal struct {
	in       io.Reader
	out, err io.Writer
	// width is of the terminal behind err in columns; 0 when it is none.
	width int
	// raw says that out is no terminal, so that bytes go there as they are.
	raw bool
}

func main() {
	os.Exit(run(context.Background(), os.Args[1:], standard()))
}

// run parses and runs one command line and returns the exit code.
func run(ctx context.Context, args []string, term *terminal) int {
	parser, err := kong.New(&commands{},
		kong.Name("toolfleet"),
		kong.Description("Runs the tools that AI agents call, at scale, without trusting them."),
		kong.UsageOnError(),
		kong.Configuration(part.YAML),
		kong.Vars{"version": part.Version()},
		kong.Writers(term.out, term.err),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(term),
	)
	if err != nil {
		panic(err) // a fault in the struct above
	}
	cmd, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(term.err, "toolfleet: %v\nSee `toolfleet --help`.\n", err)
		return exitUsage
	}
	err = cmd.Run()
	code := codeOf(err)
	// An error result was printed as a result; it needs no second word.
	if err != nil && !errors.Is(err, errErrorResult) {
		fmt.Fprintln(term.err, "toolfleet:", err)
	}
	return code
}

// errErrorResult says that the call was answered with an error result.
var errErrorResult = errors.New("the tool failed")

// usageError is a command line that makes no sense, found by the command.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func codeOf(err error) int {
	problem := new(client.Problem)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, client.ErrUnreachable):
		return exitNoFleet
	case errors.As(err, new(usageError)):
		return exitUsage
	case errors.As(err, &problem) && problem.Status < 500:
		return exitUsage
	}
	return exitFailed
}
