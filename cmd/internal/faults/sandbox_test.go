package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// sandboxes hands out sandboxes that are a goroutine each, and keeps a ledger of
// what was started in them.
type sandboxes struct {
	t *testing.T
	// hold keeps a tool from ending until it is closed; nil holds none.
	hold func(callID string) <-chan struct{}

	n       atomic.Int64
	mu      sync.Mutex
	starts  map[string]int
	started chan string // takes the id of a call whose tool began, when there is room
}

func newSandboxes(t *testing.T) *sandboxes {
	return &sandboxes{t: t, starts: map[string]int{}, started: make(chan string, 1000)}
}

// Take implements worker.Sandboxes. Every sandbox counts as warm.
func (s *sandboxes) Take(ctx context.Context, spec sandbox.Spec, _ func(context.Context) error) (*sandbox.Sandbox, bool, error) {
	sb, err := sandbox.Open(ctx, s, fmt.Sprint("s-", s.n.Add(1)), spec)
	return sb, true, err
}

// Release implements worker.Sandboxes.
func (s *sandboxes) Release(sb *sandbox.Sandbox) {
	if err := sb.Close(context.WithoutCancel(s.t.Context())); err != nil {
		s.t.Error(err)
	}
}

// Name implements sandbox.Runtime.
func (*sandboxes) Name() string { return "none" }

// Start implements sandbox.Runtime.
func (s *sandboxes) Start(_ context.Context, id string, _ sandbox.Spec) (sandbox.Instance, error) {
	i := &instance{id: id, house: s, killed: make(chan struct{})}
	i.stdin, i.toAgent = io.Pipe()
	i.fromAgent, i.stdout = io.Pipe()
	i.agent.Go(i.serve)
	return i, nil
}

// List implements sandbox.Runtime.
func (*sandboxes) List(context.Context) ([]sandbox.Record, error) { return nil, nil }

// Remove implements sandbox.Runtime.
func (*sandboxes) Remove(context.Context, string) error { return sandbox.ErrNotFound }

// began writes a start into the ledger.
func (s *sandboxes) began(callID string) {
	s.mu.Lock()
	s.starts[callID]++
	s.mu.Unlock()
	select {
	case s.started <- callID:
	default:
	}
}

func (s *sandboxes) startsOf(callID string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.starts[callID]
}

type instance struct {
	id               string
	house            *sandboxes
	agent            sync.WaitGroup
	once             sync.Once
	killed           chan struct{}
	toAgent, stdout  *io.PipeWriter
	fromAgent, stdin *io.PipeReader
}

func (i *instance) ID() string                                 { return i.id }
func (i *instance) Read(b []byte) (int, error)                 { return i.fromAgent.Read(b) }
func (i *instance) Write(b []byte) (int, error)                { return i.toAgent.Write(b) }
func (*instance) Usage(context.Context) (sandbox.Usage, error) { return sandbox.Usage{}, nil }
func (i *instance) Close(ctx context.Context) error            { return i.Kill(ctx) }

// Kill ends the agent and waits for it.
func (i *instance) Kill(context.Context) error {
	i.once.Do(func() { close(i.killed) })
	_ = i.stdin.Close()
	_ = i.stdout.Close()
	i.agent.Wait()
	return nil
}

// serve is the agent and the tool in one. Writes fail once the sandbox was
// killed, and so does the read that follows.
func (i *instance) serve() {
	in, out := wire.NewReader(i.stdin), wire.NewWriter(i.stdout)
	_ = out.JSON(wire.KindHello, 0, wire.Hello{Version: wire.Version, PID: 1})
	var callID string
	for {
		f, err := in.Next()
		if err != nil {
			return
		}
		switch f.Kind {
		case wire.KindStart:
			callID = callOf(f.Payload)
			i.house.began(callID)
			_ = out.JSON(wire.KindStarted, f.Stream, wire.Started{PID: 2})
		case wire.KindStdinClose:
			if i.house.hold != nil {
				select {
				case <-i.house.hold(callID):
				case <-i.killed:
					return
				}
			}
			_ = out.Frame(wire.KindStdout, f.Stream, []byte("done"))
			_ = out.JSON(wire.KindExit, f.Stream, wire.Exit{})
		}
	}
}

// callOf reads the call's id where a tool does.
func callOf(payload []byte) string {
	var start wire.Start
	if err := json.Unmarshal(payload, &start); err != nil {
		return err.Error()
	}
	for _, env := range start.Env {
		if id, ok := strings.CutPrefix(env, "TOOLFLEET_CALL_ID="); ok {
			return id
		}
	}
	return ""
}
