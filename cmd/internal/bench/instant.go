package bench

import (
	"context"
	"io"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// instant hands out sandboxes that are nothing but a goroutine which answers
// every call at once. With them a worker costs what its own work costs: the
// log, the queue, the words that go back and forth.
type instant struct{ n atomic.Int64 }

// Take implements worker.Sandboxes. Every sandbox counts as warm.
func (i *instant) Take(ctx context.Context, spec sandbox.Spec, _ func(context.Context) error) (*sandbox.Sandbox, bool, error) {
	sb, err := sandbox.Open(ctx, i, "instant-"+strconv.FormatInt(i.n.Add(1), 10), spec)
	return sb, true, err
}

// Release implements worker.Sandboxes.
func (*instant) Release(sb *sandbox.Sandbox) {
	_ = sb.Close(context.Background()) // closes two pipes, which does not fail
}

// Name implements sandbox.Runtime.
func (*instant) Name() string { return "instant" }

// Start implements sandbox.Runtime.
func (*instant) Start(_ context.Context, id string, _ sandbox.Spec) (sandbox.Instance, error) {
	i := &instance{id: id}
	i.stdin, i.toAgent = io.Pipe()
	i.fromAgent, i.stdout = io.Pipe()
	i.agent.Go(i.answer)
	return i, nil
}

// List implements sandbox.Runtime.
func (*instant) List(context.Context) ([]sandbox.Record, error) { return nil, nil }

// Remove implements sandbox.Runtime.
func (*instant) Remove(context.Context, string) error { return sandbox.ErrNotFound }

// instance is one sandbox: two pipes and the goroutine between them.
type instance struct {
	id               string
	agent            sync.WaitGroup
	toAgent, stdout  *io.PipeWriter
	fromAgent, stdin *io.PipeReader
}

func (i *instance) ID() string                                 { return i.id }
func (i *instance) Read(b []byte) (int, error)                 { return i.fromAgent.Read(b) }
func (i *instance) Write(b []byte) (int, error)                { return i.toAgent.Write(b) }
func (*instance) Usage(context.Context) (sandbox.Usage, error) { return sandbox.Usage{}, nil }
func (i *instance) Close(ctx context.Context) error            { return i.Kill(ctx) }

// Kill closes the pipes and waits for the agent.
func (i *instance) Kill(context.Context) error {
	_ = i.stdin.Close()
	_ = i.stdout.Close()
	i.agent.Wait()
	return nil
}

// answer is the agent: it says hello and, when the tool's input is complete,
// what the tool said. A write fails when the sandbox was closed, and then the
// read that follows does as well.
func (i *instance) answer() {
	in, out := wire.NewReader(i.stdin), wire.NewWriter(i.stdout)
	_ = out.JSON(wire.KindHello, 0, wire.Hello{Version: wire.Version, PID: 1})
	for {
		f, err := in.Next()
		if err != nil {
			return
		}
		switch f.Kind {
		case wire.KindStart:
			_ = out.JSON(wire.KindStarted, f.Stream, wire.Started{PID: 2})
		case wire.KindStdinClose:
			_ = out.Frame(wire.KindStdout, f.Stream, []byte("6"))
			_ = out.JSON(wire.KindExit, f.Stream, wire.Exit{})
		}
	}
}
