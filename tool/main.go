package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
)

// Environment variables that the fleet sets for a tool.
const (
	// EnvFD is the number of the file descriptor that takes messages.
	EnvFD = "TOOLFLEET_FD"
	// EnvCallID is the toolCallId.
	EnvCallID = "TOOLFLEET_CALL_ID"
	// EnvTool is the name the model called.
	EnvTool = "TOOLFLEET_TOOL"
)

// Exit codes of [Main]. An error result that was delivered as a message exits
// with 0, because the message says it already: other codes then always mean
// that something else went wrong, and stay free for tools that exit by
// themselves.
const (
	exitOK     = 0
	exitFailed = 1 // no result could be delivered, or it is an error and was printed
	exitUsage  = 2
)

// Main serves one call inside a sandbox and exits. The arguments are read from
// stdin; updates and the result go out as messages on the file descriptor that
// TOOLFLEET_FD names. Without it, by hand in a terminal, the answer is printed
// on stdout and progress on stderr. A single tool answers whatever name was
// called; of several, TOOLFLEET_TOOL chooses. With --describe the tools are
// declared in one file, ready to be loaded by a fleet, and with a name behind it
// that tool alone. SIGTERM and SIGINT cancel the function's context,
// from the function's first look at it on, and 20 ms after the start at the
// latest; a signal before that ends the process.
func Main(tools ...Tool) {
	os.Exit(program{
		tools: tools, args: os.Args[1:], getenv: os.Getenv,
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		open: openFD,
	}.run(newSignalled(unheard, hear(context.Background()))))
}

// program is one run of a tool program, with its surroundings as fields.
type program struct {
	tools          []Tool
	args           []string
	getenv         func(string) string
	stdin          io.Reader
	stdout, stderr io.Writer
	open           func(fd string) (io.WriteCloser, error)
}

func (p program) run(ctx context.Context) int {
	if err := p.check(); err != nil {
		return p.fail(exitUsage, err)
	}
	switch n := len(p.args); {
	case n == 1 && p.args[0] == "--describe":
		return p.describe("")
	case n == 2 && p.args[0] == "--describe":
		return p.describe(p.args[1])
	case n > 0:
		return p.fail(exitUsage, errors.New("usage: a JSON object on stdin, or --describe [tool]"))
	}
	t, err := p.choose()
	if err != nil {
		return p.fail(exitUsage, err)
	}
	input, err := io.ReadAll(io.LimitReader(p.stdin, call.MaxArguments+1))
	if err != nil {
		return p.fail(exitFailed, fmt.Errorf("read the arguments: %w", err))
	}
	req := Request{ID: p.getenv(EnvCallID), Name: p.getenv(EnvTool), Input: input, OnPanic: p.panicked}
	if req.Name == "" {
		req.Name = nameOf(t)
	}
	fd := p.getenv(EnvFD)
	if fd == "" {
		return p.print(ctx, t, req)
	}
	out, err := p.open(fd)
	if err != nil {
		return p.fail(exitFailed, err)
	}
	defer out.Close()
	return p.serve(ctx, t, req, out)
}

// check says why these tools can be served by no one. A type of its author's own
// has not been through [Define].
func (p program) check() error {
	if len(p.tools) == 0 {
		return errors.New("this program has no tools")
	}
	seen := map[string]bool{}
	for _, name := range p.names() {
		switch {
		case !call.ValidToolName(name):
			return fmt.Errorf("tool: %q: %w", name, errName)
		case seen[name]:
			return fmt.Errorf("tool: %q: two tools have this name", name)
		}
		seen[name] = true
	}
	return nil
}

// answer runs a tool. A type of its author's own may panic as a function may.
func (p program) answer(ctx context.Context, t Tool, req Request) (Result, error) {
	return guarded(req.OnPanic, func() (Result, error) {
		return t.Run(ctx, req)
	}, func(panicked error) Result {
		r := call.Failure(call.KindToolError, panicked.Error())
		r.CallID = req.ID
		return r
	})
}

// serve answers with messages.
func (p program) serve(ctx context.Context, t Tool, req Request, out io.Writer) int {
	updates := newSender(out)
	req.OnUpdate = updates.send
	r, err := p.answer(ctx, t, req)
	updates.close()
	if err == nil {
		err = p.deliver(r, out)
	}
	if err != nil {
		return p.fail(exitFailed, err)
	}
	return exitOK
}

// deliver sends a result. One that is too long for a message goes to stdout
// when it is one plain part, since stdout takes more and is the answer when
// there is no message; any other becomes an error result.
func (p program) deliver(r Result, out io.Writer) error {
	line, err := encodeResult(r)
	if err != nil {
		return err
	}
	if size := len(line); size > MaxMessage {
		if data, ok := plain(r); ok {
			_, err := p.stdout.Write(data)
			return err
		}
		line, err = encodeResult(call.Failure(call.KindToolError, fmt.Sprintf(
			"The result is %d bytes long as a message, and at most %d are allowed. A single text or []byte may be larger.", size, MaxMessage)))
		if err != nil {
			return err
		}
	}
	_, err = out.Write(append(line, '\n'))
	return err
}

// print answers a person.
func (p program) print(ctx context.Context, t Tool, req Request) int {
	req.OnUpdate = func(u Update) {
		fmt.Fprintln(p.stderr, strings.TrimSpace(fmt.Sprintf("%v/%v %s", u.Current, u.Total, u.Message)))
	}
	r, err := p.answer(ctx, t, req)
	if err != nil {
		return p.fail(exitFailed, err)
	}
	text, dropped := agui.Content{Parts: r.Contents()}.Flatten()
	if data, ok := plain(r); ok && len(dropped) > 0 {
		_, err = p.stdout.Write(data) // media, for a pipe or a file
	} else {
		_, err = fmt.Fprintln(p.stdout, strings.TrimSuffix(text, "\n"))
		for _, part := range dropped {
			fmt.Fprintf(p.stderr, "(a part of type %s is not shown)\n", part)
		}
	}
	if err != nil {
		return p.fail(exitFailed, fmt.Errorf("write the result: %w", err))
	}
	if r.IsError {
		return exitFailed
	}
	return exitOK
}

// choose finds the tool that is called.
func (p program) choose() (Tool, error) {
	if len(p.tools) == 1 {
		return p.tools[0], nil
	}
	name := p.getenv(EnvTool)
	for _, t := range p.tools {
		if nameOf(t) == name {
			return t, nil
		}
	}
	return nil, fmt.Errorf("set %s to one of: %s", EnvTool, strings.Join(p.names(), ", "))
}

func (p program) names() []string {
	names := make([]string, len(p.tools))
	for i, t := range p.tools {
		names[i] = nameOf(t)
	}
	return names
}

func (p program) panicked(value any, stack []byte) {
	fmt.Fprintf(p.stderr, "panic: %v\n\n%s", value, stack)
}

func (p program) fail(code int, err error) int {
	fmt.Fprintln(p.stderr, err)
	return code
}

// openFD opens the descriptor that TOOLFLEET_FD names, and keeps it from the
// tool's children: one that lives on would hold the pipe open.
func openFD(number string) (io.WriteCloser, error) {
	fd, err := strconv.Atoi(number)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("%s=%q is not a file descriptor above 2", EnvFD, number)
	}
	syscall.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "messages")
	if _, err := f.Stat(); err != nil {
		return nil, fmt.Errorf("%s=%s is not open: %w", EnvFD, number, err)
	}
	return f, nil
}
