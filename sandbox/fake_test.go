package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeRuntime starts instances whose agent is a function of the test. It is the
// only way to have agents that lie; honest ones are tested with real runtimes,
// in package sandboxtest.
type fakeRuntime struct {
	// agent is the life of an agent; its stream ends when it returns.
	agent func(a *fakeAgent)
	// usage is what every instance has used.
	usage func() sandbox.Usage
	// start, if not nil, is asked before each start.
	start func(ctx context.Context, spec sandbox.Spec) error
	// killErr is the answer to every Kill, which then kills nothing.
	killErr error
	// cleanup, if not nil, sees the context of each Kill and Close.
	cleanup func(what string, ctx context.Context)
	// filter is the seccomp filter for tools.
	filter []byte

	mu      sync.Mutex
	live    map[*fakeInstance]sandbox.Spec
	started int
}

func (r *fakeRuntime) Name() string    { return "fake" }
func (r *fakeRuntime) Seccomp() []byte { return r.filter }

func (r *fakeRuntime) List(context.Context) ([]sandbox.Record, error) { return nil, nil }
func (r *fakeRuntime) Remove(context.Context, string) error           { return sandbox.ErrNotFound }

func (r *fakeRuntime) Start(ctx context.Context, id string, spec sandbox.Spec) (sandbox.Instance, error) {
	r.mu.Lock()
	r.started++
	r.mu.Unlock()
	if r.start != nil {
		if err := r.start(ctx, spec); err != nil {
			return nil, err
		}
	}
	i := &fakeInstance{id: id, runtime: r}
	i.stdin, i.toAgent = io.Pipe()
	i.fromAgent, i.stdout = io.Pipe()
	i.agent.Go(func() {
		defer i.stdin.Close()
		defer i.stdout.Close()
		r.agent(&fakeAgent{Reader: wire.NewReader(i.stdin), Writer: wire.NewWriter(i.stdout), raw: i.stdout, group: &i.agent})
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live == nil {
		r.live = make(map[*fakeInstance]sandbox.Spec)
	}
	r.live[i] = spec
	return i, nil
}

// count counts the live instances, and all that were ever started.
func (r *fakeRuntime) count() (live, started int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.live), r.started
}

// all returns the live instances.
func (r *fakeRuntime) all() map[*fakeInstance]sandbox.Spec {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.live)
}

type fakeInstance struct {
	id      string
	runtime *fakeRuntime
	agent   sync.WaitGroup

	toAgent, stdout  *io.PipeWriter
	fromAgent, stdin *io.PipeReader
}

func (i *fakeInstance) ID() string                  { return i.id }
func (i *fakeInstance) Read(b []byte) (int, error)  { return i.fromAgent.Read(b) }
func (i *fakeInstance) Write(b []byte) (int, error) { return i.toAgent.Write(b) }

func (i *fakeInstance) Kill(ctx context.Context) error {
	if i.runtime.cleanup != nil {
		i.runtime.cleanup("kill", ctx)
	}
	if i.runtime.killErr != nil {
		return i.runtime.killErr
	}
	i.die()
	return nil
}

// die is the end of the agent, as the kernel would bring it about.
func (i *fakeInstance) die() {
	_ = i.stdin.CloseWithError(io.ErrClosedPipe)
	_ = i.stdout.Close()
	i.agent.Wait()
}

func (i *fakeInstance) Usage(context.Context) (sandbox.Usage, error) {
	if i.runtime.usage == nil {
		return sandbox.Usage{}, nil
	}
	return i.runtime.usage(), nil
}

func (i *fakeInstance) Close(ctx context.Context) error {
	if i.runtime.cleanup != nil {
		i.runtime.cleanup("close", ctx)
	}
	i.die()
	i.runtime.mu.Lock()
	defer i.runtime.mu.Unlock()
	delete(i.runtime.live, i)
	return nil
}

// fakeAgent is the agent's side of the connection.
type fakeAgent struct {
	*wire.Reader
	*wire.Writer
	raw   io.Writer
	group *sync.WaitGroup // of the instance's goroutines
	gone  chan struct{}   // closed when the host of a started agent is gone
}

// send sends a frame of the run. What cannot be sent is the test's business
// only when it misses the answer.
func (a *fakeAgent) send(kind wire.Kind, payload string) {
	_ = a.Frame(kind, 1, []byte(payload))
}

func (a *fakeAgent) hello() {
	_ = a.JSON(wire.KindHello, 0, wire.Hello{Version: wire.Version, PID: 1})
}

// idle says hello and answers pings until the start, which it returns.
func (a *fakeAgent) idle() (wire.Start, bool) {
	a.hello()
	for {
		f, err := a.Next()
		switch {
		case err != nil:
			return wire.Start{}, false
		case f.Kind == wire.KindPing:
			_ = a.Frame(wire.KindPong, f.Stream, f.Payload)
		case f.Kind == wire.KindStart:
			var s wire.Start
			return s, json.Unmarshal(f.Payload, &s) == nil
		}
	}
}

// drain reads until the host is gone.
func (a *fakeAgent) drain() {
	for {
		if _, err := a.Next(); err != nil {
			return
		}
	}
}

// started plays an agent that starts a tool and then does what says.
func started(what func(a *fakeAgent)) func(a *fakeAgent) {
	return func(a *fakeAgent) {
		if _, ok := a.idle(); !ok {
			return
		}
		a.gone = make(chan struct{})
		a.group.Go(func() { defer close(a.gone); a.drain() })
		a.send(wire.KindStarted, `{"pid":2}`)
		what(a)
	}
}

// linger waits until the host is gone.
func (a *fakeAgent) linger() { <-a.gone }

// openFake opens a sandbox of rt that ends with the test.
func openFake(t *testing.T, rt *fakeRuntime) *sandbox.Sandbox {
	t.Helper()
	sb, err := sandbox.Open(t.Context(), rt, "fake-1", sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sb.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return sb
}

var errFake = errors.New("told to fail")

// wait lets d of the bubble's time pass.
func wait(d time.Duration) { <-time.After(d) }

var prog = sandbox.Process{Argv: []string{"/tool"}}

func mustBe(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}
