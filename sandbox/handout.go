package sandbox

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"
)

// checkTimeout bounds the question whether a warm sandbox is alive. It stands
// between a call and its sandbox, so it is short; an agent answers in less than
// a millisecond. One that has answered within trustTime is not asked again.
const (
	checkTimeout = time.Second
	trustTime    = time.Second
)

// Get hands out a sandbox of spec: a warm one that is alive, or else one that
// is started now, within ctx. Whoever got it gives it to Release in the end.
func (p *Pool) Get(ctx context.Context, spec Spec) (sb *Sandbox, warm bool, err error) {
	return p.Take(ctx, spec, func(context.Context) error { return nil })
}

// Take is Get for a caller that has to put down what it is about to do before a
// sandbox is started: it calls cold then. An error of cold is Take's, and
// nothing is started.
func (p *Pool) Take(ctx context.Context, spec Spec, cold func(context.Context) error) (sb *Sandbox, warm bool, err error) {
	if ctx.Err() != nil {
		return nil, false, fmt.Errorf("sandbox: no sandbox for a call that is over: %w", context.Cause(ctx))
	}
	sh, k, err := p.arrive(spec)
	if err != nil {
		return nil, false, err
	}
	for ; k.Sandbox != nil; k = p.another(sh) {
		err := p.check(ctx, k)
		if err == nil {
			return k.Sandbox, true, nil
		}
		p.cfg.Logger.Warn("warm sandbox dropped: its agent does not answer", "sandbox", k.ID(), "error", err)
		p.drop(k.Sandbox)
	}
	sb, err = p.startCold(ctx, spec, sh, cold)
	return sb, false, err
}

// arrive counts a Get and takes the first warm sandbox for it, in one step: a
// call that was counted and had not taken its cell yet would make the shelf
// look too full. The shelf may be nil.
func (p *Pool) arrive(spec Spec) (*shelf, kept, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, kept{}, ErrPoolClosed
	}
	now := time.Now()
	p.lastGet = now
	sh := p.shelves[spec]
	if sh != nil {
		sh.out++
		sh.get(now, p.window())
	}
	return sh, p.take(sh), nil
}

// another takes the next one for a call whose first was no good.
func (p *Pool) another(sh *shelf) kept {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.take(sh)
}

// take takes the first warm sandbox off the shelf. When there is none it
// counts a cold start, which startCold ends. p.mu is held.
func (p *Pool) take(sh *shelf) kept {
	if sh != nil {
		if k, ok := sh.take(); ok {
			p.inUse[k.Sandbox] = sh
			if !sh.cells() { // a cell comes back; there is nothing to fill
				p.wake()
			}
			return k
		}
	}
	p.cold++
	return kept{}
}

// check asks the agent of k for an answer, unless it has just given one. The end
// of the call does not end the question: it says nothing about the agent, and
// one call after another would be the end of every warm sandbox.
func (p *Pool) check(ctx context.Context, k kept) error {
	if k.Alive() && time.Since(k.answered) < trustTime {
		return nil
	}
	ctx, cancel := detached(ctx, checkTimeout)
	defer cancel()
	return k.Check(ctx)
}

// drop removes a sandbox that was taken and is not good. Its call goes on
// without it and is still among the shelf's.
func (p *Pool) drop(sb *Sandbox) {
	p.mu.Lock()
	delete(p.inUse, sb)
	p.mu.Unlock()
	p.wake()
	p.dispose(sb)
}

func (p *Pool) startCold(ctx context.Context, spec Spec, sh *shelf, cold func(context.Context) error) (sb *Sandbox, err error) {
	began := time.Now()
	if err = cold(ctx); err == nil {
		sb, err = p.open(ctx, p.newID(), spec, false)
	}
	p.mu.Lock()
	p.cold--
	switch {
	case err == nil:
		p.inUse[sb] = sh
		if sh != nil {
			sh.demand.started(time.Since(began))
		}
	case sh != nil:
		sh.out--
	}
	p.mu.Unlock()
	p.wake()
	return sb, err
}

// Release takes back a sandbox that Get handed out. A container of cells that
// may serve another call goes to the front of its shelf; everything else is
// removed in the background. It waits only when very many removals are waiting
// already, and for the removal itself once Run has ended. Releasing twice does
// nothing.
func (p *Pool) Release(sb *Sandbox) {
	good := sb.Reusable()
	now := time.Now()
	p.mu.Lock()
	sh, ok := p.inUse[sb]
	delete(p.inUse, sb)
	if sh != nil {
		sh.out--
	}
	stays := ok && good && p.wants(sh, sb, now)
	if stays {
		sh.putBack(sb, now)
	}
	p.mu.Unlock()
	if ok && !stays {
		p.wake()
		p.dispose(sb)
	}
}

// wants tells whether sb may wait on sh for its next call.
func (p *Pool) wants(sh *shelf, sb *Sandbox, now time.Time) bool {
	if sh == nil || p.shelves[sh.spec] != sh || now.Sub(sb.born) > p.cfg.MaxAge {
		return false
	}
	p.allot(now)
	return sh.have() < sh.places && p.roomLeft().fits(sh)
}

// open starts a sandbox under an id that is new.
func (p *Pool) open(ctx context.Context, id string, spec Spec, refill bool) (*Sandbox, error) {
	began := time.Now()
	sb, err := Open(ctx, p.cfg.Runtime, id, spec)
	if p.cfg.OnStart != nil {
		p.cfg.OnStart(PoolStart{Spec: spec, Refill: refill, Took: time.Since(began), Err: err})
	}
	return sb, err
}

// newID returns an id that no sandbox has had: 65 random bits after the prefix.
func (p *Pool) newID() string {
	return fmt.Sprintf("%s-%s", p.cfg.Prefix, strings.ToLower(rand.Text()[:13]))
}
