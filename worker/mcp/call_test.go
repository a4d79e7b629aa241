package mcp_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/worker/mcp"
)

// flat is what an answer says, or how the server ended without one.
func flat(answer *call.Result, exit sandbox.Exit) string {
	if answer == nil {
		return string(exit.Cause) + ": " + exit.Detail
	}
	var b strings.Builder
	if answer.IsError {
		b.WriteString("error: ")
	}
	for _, p := range answer.Content {
		b.WriteString(p.Text)
	}
	return b.String()
}

// TestServers: whatever a server does, a call of it has one clear end.
func TestServers(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		mode, want string
		code       int
	}{
		{"echo", `tool-1 {"n":1}`, 0},
		// Handshakes.
		{"2025-03-26", `tool-1 {"n":1}`, 0},
		{"2024-11-05", `tool-1 {"n":1}`, 0},
		{"modern", `tool-1 {"n":1}`, 0},
		{"1999-01-01", `protocol: its answer is none of MCP (unsupported protocol version: "1999-01-01")`, 0},
		{"refuses", `error: The MCP server answered with an error: initialize is of yesterday (code -32601).`, 0},
		{"dies", `exited: `, 1},
		{"banner", `protocol: it wrote to stdout what is no message of MCP ("Welcome to my server!")`, 0},
		// Answers, and what comes after them.
		{"stays", `answered`, 0},
		{"crashes", `answered`, 0},
		{"floods", `answered`, 0},
		{"twice", `first`, 0},
		{"is-error", `error: it is broken`, 0},
		{"error", `error: The MCP server answered with an error: no such luck (code -32603).`, 0},
		{"asks", `100:true 101:true 102:true 103:false`, 0},
		// No answers.
		{"exit", `exited: `, 3},
		{"exit0", `protocol: the MCP server ended before it had answered`, 0},
		{"half", `protocol: the MCP server ended before it had answered`, 0},
		{"junk", `protocol: it wrote to stdout what is no message of MCP ("Listening for requests…")`, 0},
		{"unknown-kind", `protocol: its answer is none of MCP (calling "tools/call": unrecognized content type "hologram")`, 0},
		{"many-parts", `protocol: it wrote to stdout what is no message of MCP (one of more than 20000 parts)`, 0},
		{"many-values", `protocol: it wrote to stdout what is no message of MCP (one of more than 250000 values)`, 0},
		{"nags", `output_limit: it wrote more than 1048576 bytes to stdout`, 0},
		{"long", `output_limit: it wrote more than 1048576 bytes to stdout`, 0},
	} {
		t.Run(c.mode, func(t *testing.T) {
			answer, exit, err := mcp.Call(t.Context(), b.run(t), b.process(c.mode), sandbox.Sink{}, "tool-1")
			if err != nil {
				t.Fatal(err)
			}
			if got := flat(answer, exit); got != c.want || exit.Code != c.code {
				t.Errorf("got %q with code %d (stderr %q)\nwant %q with %d", got, exit.Code, exit.Stderr, c.want, c.code)
			}
			if answer != nil && (exit.Cause != sandbox.CauseExited || exit.KilledBy != "" || exit.Signal != "") {
				t.Errorf("after its answer it ended as %q by %q with %q", exit.Cause, exit.KilledBy, exit.Signal)
			}
		})
	}
}

// TestStops: a server that does not answer is stopped with its call, whatever it
// waits for.
func TestStops(t *testing.T) {
	b := newBench(t)
	for _, mode := range []string{"mute", "deaf", "never", "silent"} {
		t.Run(mode, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
			defer cancel()
			p := b.process(mode)
			if mode == "deaf" { // more than its stdin holds
				p.Stdin = []byte(`{"n":"` + strings.Repeat("x", 1<<20) + `"}`)
			}
			answer, exit, err := mcp.Call(ctx, b.run(t), p, sandbox.Sink{}, "tool-1")
			if err != nil || answer != nil || exit.Cause != sandbox.CauseStopped {
				t.Fatalf("answer %v, cause %q (%s), error %v", answer, exit.Cause, exit.Detail, err)
			}
		})
	}
}

// TestCancelIsTold: a server hears that its call is cancelled, and has its grace
// to act on it.
func TestCancelIsTold(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := b.process("cancel")
	p.Grace = time.Minute
	sink := sandbox.Sink{Stderr: func([]byte) { cancel() }} // it has the call
	answer, exit, err := mcp.Call(ctx, b.run(t), p, sink, "tool-1")
	if err != nil || answer != nil || exit.Cause != sandbox.CauseStopped || string(exit.Stderr) != "called\ncancelled 2\n" {
		t.Errorf("answer %v, cause %q, stderr %q, error %v", answer, exit.Cause, exit.Stderr, err)
	}
}

// TestProgress: what a server tells of the call comes in order, and nothing of it
// after the answer, nor of anything else.
func TestProgress(t *testing.T) {
	b := newBench(t)
	var u updates
	answer, exit, err := mcp.Call(t.Context(), b.run(t), b.process("progress"), u.sink(), "tool-1")
	if err != nil || flat(answer, exit) != "done" {
		t.Fatalf("%q, %v", flat(answer, exit), err)
	}
	want := []string{
		`{"type":"update","current":1,"total":3,"message":"step 1"}`,
		`{"type":"update","current":2,"total":3,"message":"step 2"}`,
		`{"type":"update","current":3,"total":3,"message":"step 3"}`,
	}
	if diff := cmp.Diff(want, u.said); diff != "" {
		t.Errorf("updates (-want +got):\n%s", diff)
	}
}
