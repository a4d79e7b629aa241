package mcp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolfleet/toolfleet/sandbox"
)

const (
	// linger is how long a server may take to end by itself when it has been
	// asked all. Most do at the end of their stdin; the call waits for it.
	linger = 100 * time.Millisecond
	// notifyTime is how long a server that is to be stopped may take to hear it.
	notifyTime = 250 * time.Millisecond
	// defaultLine bounds a message of a server whose output has no other bound.
	defaultLine = 1 << 20
	// handshake is the protocol that a server is offered first. Servers of all
	// ages answer to it; those that are too young to know it say so, and are
	// offered the newest. The other way round would be a request that is unknown
	// to nearly all servers there are, and some end at a first word that they do
	// not know.
	handshake = "2025-11-25"
)

// Runner runs a process in a sandbox to its end, as [sandbox.Sandbox.Run] does.
type Runner func(ctx context.Context, p sandbox.Process, sink sandbox.Sink) (sandbox.Exit, error)

// client is this side, as servers are told.
func client() *mcp.Client {
	return mcp.NewClient(&mcp.Implementation{Name: "toolfleet", Version: "1"}, &mcp.ClientOptions{
		Capabilities:   &mcp.ClientCapabilities{},
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
		Logger:         slog.New(slog.DiscardHandler), // it would log what the server says
	})
}

// converse runs p, the server, and talk, which asks it; then ends the server. It
// returns how the server ended, what talk returned, and a failure of ours.
func (t *transport) converse(ctx context.Context, run Runner, p sandbox.Process, sink sandbox.Sink, talk func(context.Context, *mcp.ClientSession) error) (exit sandbox.Exit, talked, err error) {
	p.Stdin, p.Input, p.Linger = nil, t.input, linger
	sink.Stdout = t.hear
	t.maxLine = int(p.OutputLimit)
	if t.maxLine <= 0 {
		t.maxLine = defaultLine
	}
	t.cancelled = make(chan struct{})

	// The server is told that it is to stop before it is stopped.
	runCtx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	defer context.AfterFunc(ctx, func() {
		t.awaitCancelled()
		stop(context.Cause(ctx))
	})()

	done := make(chan error, 1)
	go func() {
		done <- t.talk(ctx, talk)
	}()
	exit, err = run(runCtx, p, sink)
	t.end()
	return exit, <-done, err
}

// awaitCancelled waits until the server was told of the cancel, for a while. A
// server that was not asked yet is told nothing.
func (t *transport) awaitCancelled() {
	t.mu.Lock()
	asked := t.asked.IsValid()
	t.mu.Unlock()
	if !asked {
		return
	}
	timer := time.NewTimer(notifyTime)
	defer timer.Stop()
	select {
	case <-t.cancelled:
	case <-t.closed:
	case <-timer.C:
	}
}

// talk shakes hands with the server and asks it.
func (t *transport) talk(ctx context.Context, ask func(context.Context, *mcp.ClientSession) error) error {
	session, err := client().Connect(ctx, t, &mcp.ClientSessionOptions{ProtocolVersion: handshake})
	if refused(err) != nil && ctx.Err() == nil {
		session, err = client().Connect(ctx, t, nil)
	}
	if err == nil {
		err = ask(ctx, session)
	}
	if ctx.Err() != nil {
		t.awaitCancelled() // a session that is closed sends nothing
	}
	// First, since a session waits for what is being written, and a server need
	// not read it.
	t.hangUp()
	if session != nil {
		_ = session.Close() // of pipes of ours
	}
	return err
}

// refused returns the error that the server itself answered with, or nil.
func refused(err error) *jsonrpc.Error {
	if errors.Is(err, mcp.ErrConnectionClosed) {
		return nil // which has the form of a server's answer, and is not one
	}
	e, _ := errors.AsType[*jsonrpc.Error](err)
	return e
}

// unanswered puts the end of a server that has not answered in the words of
// package sandbox. A server that broke the rules may end by itself, or be ended,
// when it is hung up on; either is our doing.
func (t *transport) unanswered(ctx context.Context, exit sandbox.Exit, talked error) sandbox.Exit {
	t.mu.Lock()
	broken := t.broken
	t.mu.Unlock()
	switch {
	case exit.Cause != sandbox.CauseFinished && exit.Cause != sandbox.CauseExited:
		// A limit, a signal, a stop: it says more than the silence.
	case ctx.Err() != nil:
		exit.Cause = sandbox.CauseStopped
	case broken != nil:
		exit.Cause, exit.Detail = sandbox.CauseProtocol, "it wrote to stdout what is no message of MCP ("+clip(broken.Error())+")"
	case !ended(talked):
		exit.Cause, exit.Detail = sandbox.CauseProtocol, "its answer is none of MCP ("+clip(talked.Error())+")"
	case exit.Code == 0:
		exit.Cause, exit.Detail = sandbox.CauseProtocol, "the MCP server ended before it had answered"
	}
	return exit
}

// ended tells whether err comes of the server's end.
func ended(err error) bool {
	for _, end := range []error{mcp.ErrConnectionClosed, io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// settled is the exit of a server that has answered: what it did afterwards, and
// how it was ended, takes nothing back.
func settled(exit sandbox.Exit) sandbox.Exit {
	exit.Cause, exit.Code, exit.Signal, exit.KilledBy, exit.Detail = sandbox.CauseExited, 0, "", "", ""
	return exit
}
