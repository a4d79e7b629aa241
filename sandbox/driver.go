package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// How long the parts of a sandbox's life may take that no caller bounds.
const (
	helloTimeout = 10 * time.Second // from the start of the agent to its hello
	killTimeout  = 30 * time.Second // to kill everything and read what was left
	closeTimeout = 60 * time.Second // to remove everything
	usageTimeout = 5 * time.Second  // to read the counters
)

// SeccompFilter is what a [Runtime] implements that wants the tool to run under
// a seccomp filter of its own, beside the one the whole sandbox has. Seccomp
// returns the compiled filter, an array of struct sock_filter in the machine's
// byte order, or nil for none.
type SeccompFilter interface {
	Seccomp() []byte
}

// Sandbox is an [Instance] whose agent has said hello. It serves one call, one
// [Sandbox.Run]; a sandbox of cells serves many, one after the other. Its
// methods are safe for concurrent use.
type Sandbox struct {
	inst    Instance
	runtime Runtime
	spec    Spec
	born    time.Time
	out     *wire.Writer
	sends   sync.WaitGroup // frames being sent; Go only under mu and while not closed

	hello   wire.Hello    // written before greeted is closed, then read only
	greeted chan struct{} // closed by the reader at the hello
	pongs   chan struct{} // the reader puts one, Check takes it
	lost    chan struct{} // closed by the reader when no more frames come
	gone    chan struct{} // closed by the reader at the end of the stream
	lostErr error         // written before lost is closed, then read only

	mu     sync.Mutex // guards the fields below
	run    *run       // the last run, once one began
	served uint32     // runs that began, which is the stream of the last one
	spent  bool       // no other run may follow
	before Usage      // the counters when the last run began
	pinged int        // pings that no pong answered
	closed bool       // nothing is sent any more, and Close waits for what is
}

// Open starts the sandbox id and waits for its agent's hello. ctx bounds the
// start only. A failed Open leaves nothing behind, or says in its error what it
// could not remove.
func Open(ctx context.Context, rt Runtime, id string, spec Spec) (*Sandbox, error) {
	inst, err := rt.Start(ctx, id, spec)
	if err != nil {
		return nil, fmt.Errorf("sandbox: start %s: %w", id, err)
	}
	s := &Sandbox{
		inst: inst, runtime: rt, spec: spec, born: time.Now(), out: wire.NewWriter(inst),
		greeted: make(chan struct{}), pongs: make(chan struct{}, 1),
		lost: make(chan struct{}), gone: make(chan struct{}),
	}
	go s.read()
	if err := s.greet(ctx); err != nil {
		closeCtx, cancel := detached(ctx, closeTimeout)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("sandbox: start %s: %w", id, err), s.Close(closeCtx))
	}
	if s.cells() {
		s.prepare(ctx)
	}
	return s, nil
}

// greet waits for the hello and checks it.
func (s *Sandbox) greet(ctx context.Context) error {
	timer := time.NewTimer(helloTimeout)
	defer timer.Stop()
	select {
	case <-s.greeted:
	case <-s.lost:
		return fmt.Errorf("the agent said no hello: %w", s.lostErr)
	case <-ctx.Done():
		return fmt.Errorf("wait for the agent's hello: %w", context.Cause(ctx))
	case <-timer.C:
		return fmt.Errorf("the agent said no hello within %v", helloTimeout)
	}
	if s.hello.Version != wire.Version {
		return fmt.Errorf("the agent speaks version %d and this program version %d; use the agent that was built with it", s.hello.Version, wire.Version)
	}
	if s.hello.UID != 0 && len(s.seccomp()) > 0 {
		return fmt.Errorf("the agent runs as user %d and could not lock the tool down; it has to be user 0 of its sandbox", s.hello.UID)
	}
	return nil
}

// ID is the sandbox's id, unique on the host.
func (s *Sandbox) ID() string { return s.inst.ID() }

// Runtime is the name of the runtime, such as "runc".
func (s *Sandbox) Runtime() string {
	if s.spec.Runtime != "" {
		return s.spec.Runtime
	}
	return s.runtime.Name()
}

// Alive reports whether the agent's stream is whole. It asks nobody; see
// [Sandbox.Check].
func (s *Sandbox) Alive() bool {
	select {
	case <-s.lost:
		return false
	default:
		return true
	}
}

// Check asks the agent for an answer and waits for it. It is for a sandbox that
// has waited, warm, for its call.
func (s *Sandbox) Check(ctx context.Context) error {
	s.mu.Lock()
	s.pinged++
	s.mu.Unlock()
	if err := s.send(ctx, wire.KindPing, 0, nil); err != nil {
		return fmt.Errorf("sandbox: ask the agent: %w", err)
	}
	select {
	case <-s.pongs:
		return nil
	case <-s.lost:
		return fmt.Errorf("sandbox: ask the agent: %w", s.lostErr)
	case <-ctx.Done():
		return fmt.Errorf("sandbox: ask the agent: %w", context.Cause(ctx))
	}
}

// Close ends the sandbox, whatever it does, removes all of it, and waits for
// its goroutines. ctx must have a deadline of its own and no cancellation from
// the call.
func (s *Sandbox) Close(ctx context.Context) error {
	if err := s.inst.Close(ctx); err != nil {
		return fmt.Errorf("sandbox: close %s: %w", s.ID(), err)
	}
	s.mu.Lock()
	r := s.run
	s.closed = true
	s.mu.Unlock()
	if err := waitFor(ctx, s.gone); err != nil {
		return fmt.Errorf("sandbox: close %s: its stream did not end: %w", s.ID(), err)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		s.sends.Wait()
		if r != nil {
			<-r.fed
		}
	}()
	if err := waitFor(ctx, sent); err != nil {
		return fmt.Errorf("sandbox: close %s: a write to it did not end: %w", s.ID(), err)
	}
	return nil
}

var errClosed = errors.New("the sandbox is closed")

// send sends one frame and waits for that no longer than ctx: an agent that
// does not read must not hold up its host. A frame that is stuck ends with the
// stream, and Close waits for it.
func (s *Sandbox) send(ctx context.Context, kind wire.Kind, stream uint32, payload []byte) error {
	sent := make(chan error, 1)
	s.mu.Lock()
	if s.closed {
		sent <- errClosed
	} else {
		s.sends.Go(func() { sent <- s.out.Frame(kind, stream, payload) })
	}
	s.mu.Unlock()
	select {
	case err := <-sent:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// read takes the agent's frames as they come, from the start to the end, also
// while the sandbox is warm: so its death is seen when it happens. After the
// first bad frame it only drains, since a stream that nobody reads would hold
// up the kill.
func (s *Sandbox) read() {
	defer close(s.gone)
	r := wire.NewReader(s.inst)
	for {
		f, err := r.Next()
		if err == nil {
			err = s.frame(f)
		}
		if err != nil {
			s.lostErr = err
			close(s.lost)
			break
		}
	}
	_, _ = io.Copy(io.Discard, s.inst)
}

// frame takes one frame. An error is a broken rule.
func (s *Sandbox) frame(f wire.Frame) error {
	switch f.Kind {
	case wire.KindHello:
		return s.takeHello(f)
	case wire.KindPong:
		return s.takePong(f)
	}
	s.mu.Lock()
	r, stream := s.run, s.served
	s.mu.Unlock()
	if r == nil || f.Stream != stream {
		return fmt.Errorf("%w: %v on stream %d, where nothing was started", wire.ErrFrame, f.Kind, f.Stream)
	}
	return r.frame(f)
}

func (s *Sandbox) takeHello(f wire.Frame) error {
	select {
	case <-s.greeted:
		return fmt.Errorf("%w: a second hello", wire.ErrFrame)
	default:
	}
	if err := wire.Decode(f, &s.hello); err != nil {
		return err
	}
	close(s.greeted)
	return nil
}

func (s *Sandbox) takePong(f wire.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pinged == 0 {
		return fmt.Errorf("%w: %v that nobody asked for", wire.ErrFrame, f.Kind)
	}
	s.pinged--
	select {
	case s.pongs <- struct{}{}:
	default: // its asker has gone away
	}
	return nil
}

// seccomp is the runtime's filter for tools, or nil.
func (s *Sandbox) seccomp() []byte {
	if f, ok := s.runtime.(SeccompFilter); ok {
		return f.Seccomp()
	}
	return nil
}

// detached returns a context for cleaning up after ctx: its values, not its
// end, and a deadline of its own.
func detached(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}

func waitFor(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
