package containerd

import (
	"context"
	"fmt"
	"os"
	"sync"
)

// How many sandboxes share a shim: so many at one time, which is how many end
// when it is killed, and so many in its life, which bounds what it may leak.
const (
	shimSeats  = 16
	shimServes = 512
)

// sharedShims hands out the shim for the next sandbox.
//
// A shim of its own costs a sandbox two starts of a Go program, more than runc
// does, and keeps 10 MiB; see docs/adr/0015. So sandboxes of the default kind
// share one. containerd connects a task to a shim that runs already when the
// request names its address and the container's record a *sandbox*, which is
// containerd's word for containers with a common shim.
type sharedShims struct {
	launch func(context.Context) (*sharedShim, error)

	mu   sync.Mutex // held while a shim is launched: who comes meanwhile shares it
	last *sharedShim
}

// sit finds a seat for one sandbox, in a new shim if need be. Whoever got it
// calls [seat.leave] in the end.
func (s *sharedShims) sit(ctx context.Context) (*seat, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && s.last.enter() {
		return &seat{shim: s.last}, nil
	}
	shim, err := s.launch(ctx)
	if err != nil {
		return nil, err
	}
	shim.enter()
	s.last = shim
	return &seat{shim: shim}, nil
}

// sharedShim is a shim of ours that serves several sandboxes.
//
// Whenever containerd has deleted a task it tells the shim to go unless it has
// others, and a task that is just being made or deleted is none. So the last
// task of a shim is deleted alone, and nobody enters a shim whose last task is
// on its way out.
type sharedShim struct {
	id, address string
	cleaner     string // see seat.runtimePath
	dir         string
	lock        *os.File // on dir: tells a sweep that we live
	proc        *process

	mu       sync.Mutex
	making   int // tasks on their way in
	tasks    int // tasks that are there
	leaving  int // tasks on their way out
	served   int
	closed   bool          // takes no more sandboxes
	disposed bool          // somebody removes it
	changed  chan struct{} // closed, and another one made, when the counts change
}

// enter takes a seat, if there is one.
func (s *sharedShim) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.making+s.tasks+s.leaving >= shimSeats || s.proc.wait(0) {
		return false
	}
	s.making++
	s.served++
	s.closed = s.served >= shimServes
	return true
}

// unused reports, once, that nobody sits in the shim or ever will: the caller
// has to remove it.
func (s *sharedShim) unused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.making+s.tasks+s.leaving > 0 || s.disposed {
		return false
	}
	s.disposed = true
	return true
}

// seat is the place of one sandbox in a shared shim, or nil when it has a shim
// of its own. Its methods are for the one goroutine that starts or closes the
// sandbox.
type seat struct {
	shim  *sharedShim
	state seatState
}

type seatState int

const (
	seatMaking  seatState = iota // its task is on its way in
	seatTaken                    // its task is there
	seatLeaving                  // its task is on its way out
	seatFree
)

// shimID is the shim's id, or "".
func (p *seat) shimID() string {
	if p == nil {
		return ""
	}
	return p.shim.id
}

// address is where the shim serves tasks, or "".
func (p *seat) address() string {
	if p == nil {
		return ""
	}
	return p.shim.address
}

// runtimePath is the program that containerd takes for the shim's, or "" for
// the shim's own. With a shared shim all that it is still started for is to
// remove what a dead shim left, and that it does after every task, whether the
// shim is dead or not. All of that is our own to remove, so the program is one
// that does nothing.
func (p *seat) runtimePath() string {
	if p == nil {
		return ""
	}
	return p.shim.cleaner
}

// taskMade says that the sandbox's task is there.
func (p *seat) taskMade() {
	if p == nil {
		return
	}
	p.shim.mu.Lock()
	defer p.shim.mu.Unlock()
	p.move(seatTaken)
}

// leave comes before the deletion of the task, and waits where that would end
// the shim under somebody else. Leaving again does nothing.
func (p *seat) leave(ctx context.Context) error {
	if p == nil {
		return nil
	}
	s := p.shim
	s.mu.Lock()
	defer s.mu.Unlock()
	for p.state == seatTaken && s.tasks == 1 && s.making+s.leaving > 0 {
		changed := s.changed
		s.mu.Unlock()
		err := waitFor(ctx, changed)
		s.mu.Lock()
		if err != nil {
			return fmt.Errorf("containerd: wait for others in shim %s: %w", s.id, err)
		}
	}
	if p.state < seatLeaving {
		p.move(seatLeaving)
	}
	return nil
}

// free comes after the deletion of the task.
func (p *seat) free() {
	p.shim.mu.Lock()
	defer p.shim.mu.Unlock()
	p.move(seatFree)
}

// move counts a seat on. The shim's mutex is held.
func (p *seat) move(to seatState) {
	s := p.shim
	for state, count := range map[seatState]*int{seatMaking: &s.making, seatTaken: &s.tasks, seatLeaving: &s.leaving} {
		if state == p.state {
			*count--
		}
		if state == to {
			*count++
		}
	}
	p.state = to
	// With its last task a shim goes. After a creation that failed it has
	// been told to go as well, when there was none.
	s.closed = s.closed || to >= seatLeaving && s.tasks == 0
	close(s.changed)
	s.changed = make(chan struct{})
}

func waitFor(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
