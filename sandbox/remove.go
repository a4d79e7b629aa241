package sandbox

import "context"

// Bounds of a pool's closings: so many at one time, and so many waiting.
const (
	closeParallel = 4
	closeWaiting  = 64
)

// dispose removes sandboxes that nobody holds any more.
func (p *Pool) dispose(sbs ...*Sandbox) {
	for _, sb := range sbs {
		p.mu.Lock()
		inline := p.closed
		p.closing++
		if !inline {
			p.closings.Add(1)
		}
		p.mu.Unlock()
		if inline {
			p.remove(sb)
			continue
		}
		p.waiting <- struct{}{}
		go func() {
			defer p.closings.Done()
			defer func() { <-p.waiting }()
			p.slots <- struct{}{}
			defer func() { <-p.slots }()
			p.remove(sb)
		}()
	}
}

// remove closes sb. What it leaves behind is the sweep's.
func (p *Pool) remove(sb *Sandbox) {
	//nolint:forbidigo // a removal belongs to no call, and must outlive them all
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := sb.Close(ctx); err != nil {
		p.cfg.Logger.Warn("sandbox not removed; the sweep will try again", "sandbox", sb.ID(), "error", err)
	}
	p.mu.Lock()
	p.closing--
	p.mu.Unlock()
}
