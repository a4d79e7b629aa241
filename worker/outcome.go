package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/tool"
)

// outcome turns the end of a tool into the result of its call. reply is what an
// MCP server answered, or nil; cause is the cause of the run's context, timeout
// the time the tool had.
func outcome(spec *catalog.Spec, exit sandbox.Exit, reply *call.Result, cause error, timeout time.Duration) call.Result {
	r := evidence(answer(spec, exit, reply, cause, timeout), exit)
	if spec.Reminder != "" {
		r.Extra = append(r.Extra, call.Reminder(spec.Reminder))
	}
	return r
}

func answer(spec *catalog.Spec, exit sandbox.Exit, reply *call.Result, cause error, timeout time.Duration) call.Result {
	switch exit.Cause {
	case sandbox.CauseExited:
		if exit.Code != 0 {
			return exitCode(exit)
		}
		r := success(spec, exit, reply)
		// A tool that says it failed, with its limit met, failed of the limit.
		if kind, sentence := limit(spec, exit.Met); r.IsError && r.Kind() == call.KindToolError && kind != "" {
			extra := r.Extra
			r = call.Failure(kind, sentence, r.Content...)
			r.Extra = extra
		}
		return r
	case sandbox.CauseSignaled:
		return call.Failure(call.KindCrashed, fmt.Sprintf("The tool was killed by signal %s.%s", exit.Signal, said(exit)), partial(exit)...)
	case sandbox.CauseStopped:
		if errors.Is(cause, errTimeout) {
			return call.Failure(call.KindTimeout, fmt.Sprintf("The tool did not end within %s and was stopped.%s", timeout, said(exit)), partial(exit)...)
		}
		return call.Cancelled("", partial(exit)...)
	case sandbox.CauseNotStarted:
		return call.Failure(call.KindToolError, "The tool could not be started: "+exit.Detail+".")
	case sandbox.CauseProtocol:
		return call.Failure(call.KindCrashed, "The tool broke the protocol: "+exit.Detail+"."+said(exit), partial(exit)...)
	}
	if kind, sentence := limit(spec, exit.Cause); kind != "" {
		return call.Failure(kind, sentence+said(exit), partial(exit)...)
	}
	return call.Failure(call.KindInternal, "The tool ended in a way the fleet does not know.", partial(exit)...)
}

// evidence puts the code or the signal of the tool's end into its error,
// whatever the error is: a kind says what went wrong, and they say how it looked.
func evidence(r call.Result, exit sandbox.Exit) call.Result {
	if r.Error == nil {
		return r
	}
	r.Error.Signal = exit.Signal
	if exit.Code != 0 {
		r.Error.ExitCode = &exit.Code
	}
	return r
}

// limit says which limit of the spec a tool ran into, and how that is said. The
// kind is "" when cause is not a limit.
func limit(spec *catalog.Spec, cause sandbox.Cause) (call.Kind, string) {
	l := spec.Limits
	switch cause {
	case sandbox.CauseOutOfMemory:
		return call.KindOutOfMemory, fmt.Sprintf("The tool needed more memory than its limit of %s.", size(int64(l.Memory)))
	case sandbox.CausePidsLimit:
		return call.KindPidsLimit, fmt.Sprintf("The tool needed more processes than its limit of %d.", l.Pids)
	case sandbox.CauseDiskLimit:
		return call.KindDiskLimit, fmt.Sprintf("The tool filled its disk of %s.", size(int64(l.Disk)))
	case sandbox.CauseOutputLimit:
		return call.KindOutputLimit, fmt.Sprintf("The tool wrote more than its output limit of %s and was stopped; the head is kept.", size(int64(l.Output)))
	}
	return "", ""
}

// foreign drops the file handles that the tool was not given in its arguments.
// A handle names a file in the account of whoever talks to the provider; one
// that a sandbox made up would be a forgery of somebody's file, and the model's
// provider would open it. What a caller handed in may be handed back.
func foreign(r call.Result, args []byte) call.Result {
	keep := func(parts []agui.Part) []agui.Part {
		return slices.DeleteFunc(parts, func(p agui.Part) bool {
			if p.Source == nil || p.Source.Type != agui.SourceFile {
				return false
			}
			quoted, err := json.Marshal(p.Source.Value)
			if err == nil && bytes.Contains(args, quoted) {
				return false
			}
			r.Dropped = append(r.Dropped, "a file handle that was not in the arguments")
			return true
		})
	}
	r.Content, r.Extra = keep(r.Content), keep(r.Extra)
	return r
}

// success is the answer of a tool that exited with 0: what it said as an MCP
// server, its result message when it sent one, else its stdout.
func success(spec *catalog.Spec, exit sandbox.Exit, reply *call.Result) call.Result {
	if reply != nil {
		return *reply
	}
	if exit.Result != nil {
		r, err := tool.DecodeResult(exit.Result)
		if err != nil {
			return call.Failure(call.KindCrashed, "The tool broke the protocol: "+err.Error()+".", partial(exit)...)
		}
		if r.IsError {
			r.Error = &call.Error{Kind: call.KindToolError, Message: "The tool answered with an error."}
		}
		return call.Result{Content: r.Content, Extra: r.Extra, IsError: r.IsError, Error: r.Error, Dropped: r.Dropped}
	}
	parts, dropped, err := content(spec.Output, exit.Stdout)
	if err != nil {
		return call.Failure(call.KindToolError, "The tool's output is not what it declares: "+err.Error()+".", partial(exit)...)
	}
	return call.Result{Content: parts, Dropped: dropped}
}

// exitCode is the answer of a tool that exited with another code. A result
// message on fd 3 takes the place of stdout; the code makes it an error all
// the same.
func exitCode(exit sandbox.Exit) call.Result {
	parts := partial(exit)
	var extra []agui.Part
	if exit.Result != nil {
		if r, err := tool.DecodeResult(exit.Result); err == nil {
			parts, extra = r.Content, r.Extra
		}
	}
	r := call.Failure(call.KindToolError, fmt.Sprintf("The tool exited with code %d.%s", exit.Code, said(exit)), parts...)
	r.Extra = extra
	return r
}

// content reads stdout as the spec's output says.
func content(output string, stdout []byte) (parts []agui.Part, dropped []string, err error) {
	switch output {
	case "text":
		return text(strings.ToValidUTF8(string(stdout), "\uFFFD")), nil, nil
	case "json":
		var b bytes.Buffer
		if err := json.Compact(&b, stdout); err != nil || !utf8.Valid(stdout) {
			return nil, nil, errors.New("not JSON")
		}
		return text(b.String()), nil, nil
	case "parts":
		return tool.DecodeParts(stdout)
	case "binary":
		if len(stdout) == 0 {
			return nil, nil, nil // media without bytes is none
		}
		return []agui.Part{agui.MediaOf(stdout)}, nil, nil
	}
	return auto(stdout), nil, nil
}

// auto takes valid UTF-8 as text and anything else as media.
func auto(b []byte) []agui.Part {
	if utf8.Valid(b) && !bytes.ContainsRune(b, 0) {
		return text(string(b))
	}
	return []agui.Part{agui.MediaOf(b)}
}

func text(s string) []agui.Part {
	if s == "" {
		return nil
	}
	return []agui.Part{agui.Text(s)}
}

// partial is what a failed tool had said on stdout, kept before the sentence
// that says how it failed. A head that was cut inside a rune loses the broken
// rune, not its being text.
func partial(exit sandbox.Exit) []agui.Part {
	b := exit.Stdout
	for i := 0; i < utf8.UTFMax-1 && len(b) > 0 && !utf8.Valid(b); i++ {
		if r, n := utf8.DecodeLastRune(b); r == utf8.RuneError && n == 1 {
			b = b[:len(b)-1]
		}
	}
	if !utf8.Valid(b) {
		b = exit.Stdout
	}
	if len(b) == 0 {
		return nil
	}
	return auto(b)
}

// saidMax bounds how much of stderr a sentence quotes.
const saidMax = 2000

// said quotes the end of stderr, which is where tools say why.
func said(exit sandbox.Exit) string {
	s := strings.TrimSpace(strings.ToValidUTF8(string(exit.Stderr), "\uFFFD"))
	if s == "" {
		return ""
	}
	if len(s) > saidMax {
		s = "…" + strings.ToValidUTF8(s[len(s)-saidMax:], "")
	}
	return " It said:\n" + s
}

// size writes a number of bytes for people.
func size(n int64) string {
	for _, u := range []struct {
		name string
		n    int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.n && n%u.n == 0 {
			return fmt.Sprintf("%d %s", n/u.n, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
