package sandbox

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// pruneInterval is how often the shelves are looked over for what died or grew
// old, when nothing else wakes Run.
const pruneInterval = time.Second

// shelf is what is kept of one spec. The pool's mutex guards it.
type shelf struct {
	min, max  int
	warm      []*Sandbox // oldest first
	starting  int        // refills on their way
	used      time.Time  // of the last Get
	retry     *backoff.ExponentialBackOff
	notBefore time.Time // of the next refill, after one that failed
}

func newShelf(minimum, maximum int) *shelf {
	retry := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(time.Second),
		backoff.WithMaxInterval(time.Minute),
		backoff.WithMaxElapsedTime(0), // never gives up
	)
	return &shelf{min: minimum, max: maximum, retry: retry}
}

// target is how many there should be now.
func (sh *shelf) target(now time.Time, idle time.Duration) int {
	if sh.used.IsZero() || now.Sub(sh.used) > idle {
		return sh.min
	}
	return sh.max
}

// take removes the oldest one, or returns nil.
func (sh *shelf) take() *Sandbox {
	if len(sh.warm) == 0 {
		return nil
	}
	sb := sh.warm[0]
	sh.warm = sh.warm[1:]
	return sb
}

// cut removes the oldest ones until n are left.
func (sh *shelf) cut(n int) []*Sandbox {
	extra := max(len(sh.warm)-n, 0)
	gone := sh.warm[:extra:extra]
	sh.warm = sh.warm[extra:]
	return gone
}

// Run fills the pool until ctx ends. Then it removes everything warm, waits for
// all removals and refills, and returns nil. Sandboxes that are in use stay
// with whoever got them. Run once.
func (p *Pool) Run(ctx context.Context) error {
	prune := time.NewTicker(pruneInterval)
	defer prune.Stop()
	var refills sync.WaitGroup
	for ctx.Err() == nil {
		p.dispose(p.prune(time.Now())...)
		for {
			spec, sh := p.next(time.Now())
			if sh == nil {
				break
			}
			refills.Go(func() { p.refill(ctx, spec, sh) })
		}
		select {
		case <-ctx.Done():
		case <-p.kick:
		case <-prune.C:
		}
	}
	refills.Wait()
	p.close()
	return nil
}

// close removes all that is warm and waits for every removal.
func (p *Pool) close() {
	p.mu.Lock()
	var warm []*Sandbox
	for _, sh := range p.shelves {
		warm = append(warm, sh.warm...)
	}
	clear(p.shelves)
	p.mu.Unlock()
	p.dispose(warm...)
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.closings.Wait()
}

// prune takes off the shelves what is dead, too old, or more than is wanted.
func (p *Pool) prune(now time.Time) []*Sandbox {
	p.mu.Lock()
	defer p.mu.Unlock()
	var gone []*Sandbox
	for _, sh := range p.shelves {
		keep := make([]*Sandbox, 0, len(sh.warm))
		for _, sb := range sh.warm {
			switch {
			case !sb.Alive():
				p.cfg.Logger.Warn("warm sandbox died", "sandbox", sb.ID(), "error", sb.lostErr)
				gone = append(gone, sb)
			case now.Sub(sb.born) > p.cfg.MaxAge:
				gone = append(gone, sb)
			default:
				keep = append(keep, sb)
			}
		}
		sh.warm = keep
		gone = append(gone, sh.cut(sh.target(now, p.cfg.Idle))...)
	}
	return gone
}

// next chooses the spec that lacks most and counts its refill, or returns nil
// when nothing is to be filled now. Counting and choosing are one step, so that
// there are never more than max: warm and starting together.
func (p *Pool) next(now time.Time) (Spec, *shelf) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.starting >= p.allowed() {
		return Spec{}, nil
	}
	var neediest Spec
	lacks, total := 0, p.starting
	for spec, sh := range p.shelves {
		total += len(sh.warm)
		lack := sh.target(now, p.cfg.Idle) - len(sh.warm) - sh.starting
		if lack > lacks && !now.Before(sh.notBefore) {
			neediest, lacks = spec, lack
		}
	}
	if lacks == 0 || total >= p.cfg.MaxWarm {
		return Spec{}, nil
	}
	sh := p.shelves[neediest]
	sh.starting++
	p.starting++
	return neediest, sh
}

// allowed is how many refills may run now. A refill and a call want the same
// processors, and the call has somebody waiting.
func (p *Pool) allowed() int {
	switch {
	case p.cold > 0:
		return 0
	case len(p.inUse) > 0:
		return 1
	}
	return p.cfg.Parallel
}

// refill starts one sandbox for sh.
func (p *Pool) refill(ctx context.Context, spec Spec, sh *shelf) {
	startCtx, cancel := context.WithTimeout(ctx, p.cfg.StartTimeout)
	defer cancel()
	sb, err := p.open(startCtx, spec, true)

	p.mu.Lock()
	p.starting--
	sh.starting--
	// Want may have changed its mind meanwhile.
	wanted := ctx.Err() == nil && p.shelves[spec] == sh && len(sh.warm) < sh.max
	var pause time.Duration
	switch {
	case err != nil:
		pause = sh.retry.NextBackOff()
		sh.notBefore = time.Now().Add(pause)
	case wanted:
		sh.retry.Reset()
		sh.warm = append(sh.warm, sb)
	}
	p.mu.Unlock()
	p.wake()

	switch {
	case err != nil && ctx.Err() == nil:
		p.cfg.Logger.Warn("warm sandbox not started", "image", spec.Image, "error", err, "pause", pause)
	case err == nil && !wanted:
		p.dispose(sb)
	}
}
