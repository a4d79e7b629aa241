package sandbox

import (
	"context"
	"strings"
	"sync"
	"time"
)

const (
	// pruneInterval is how often the shelves are looked over for what died or
	// grew old, when nothing else wakes Run.
	pruneInterval = time.Second
	// quietGap is how long after a Get a refill begins. Most calls are over by
	// then, and a refill beside them would take their processors.
	quietGap = 20 * time.Millisecond
	// patience is how long refills wait for a gap when there is none.
	patience = time.Second
)

// Run fills the pool until ctx ends. Then it removes everything warm, waits for
// all removals and refills, and returns nil. Sandboxes that are in use stay
// with whoever got them. Run once.
func (p *Pool) Run(ctx context.Context) error {
	var refills sync.WaitGroup
	again := time.NewTimer(0)
	defer again.Stop()
	for ctx.Err() == nil {
		p.dispose(p.prune(time.Now())...)
		for {
			sh, pause := p.next(time.Now())
			if sh == nil {
				again.Reset(pause)
				break
			}
			refills.Go(func() { p.refill(ctx, sh) })
		}
		select {
		case <-ctx.Done():
		case <-p.kick:
		case <-again.C:
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
		warm = append(warm, sh.cut(0)...)
	}
	clear(p.shelves)
	p.mu.Unlock()
	p.dispose(warm...)
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.closings.Wait()
}

// prune gives every shelf its places and takes off it what is dead, too old, or
// has none.
func (p *Pool) prune(now time.Time) []*Sandbox {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allot(now)
	var gone []*Sandbox
	for spec, sh := range p.shelves {
		if sh.forgotten() {
			delete(p.shelves, spec)
			continue
		}
		good := make([]kept, 0, len(sh.warm))
		for _, k := range sh.warm {
			switch {
			case !k.Alive():
				p.cfg.Logger.Warn("warm sandbox died", "sandbox", k.ID(), "error", k.lostErr)
				gone = append(gone, k.Sandbox)
			case now.Sub(k.born) > p.cfg.MaxAge:
				gone = append(gone, k.Sandbox)
			default:
				good = append(good, k)
			}
		}
		sh.warm = good
		gone = append(gone, sh.cut(sh.places)...)
	}
	return gone
}

// next chooses the shelf that lacks most and counts its refill, or tells when
// to look again. Counting and choosing are one step, so that there are never
// more than a shelf has places: warm and starting together.
func (p *Pool) next(now time.Time) (*shelf, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pause, left := pruneInterval, p.roomLeft()
	var neediest *shelf
	most := 0
	for _, sh := range p.shelves {
		lack := sh.lack(now, p.window())
		sh.lacks(lack > 0, now)
		if lack <= 0 || !left.fits(sh) || p.starting >= p.allowed() {
			continue // whoever changes that wakes Run
		}
		if wait := max(sh.notBefore.Sub(now), p.gap(sh, now)); wait > 0 {
			pause = min(pause, wait)
			continue
		}
		if lack > most || lack == most && sh.serial < neediest.serial {
			neediest, most = sh, lack
		}
	}
	if neediest != nil {
		neediest.starting++
		p.starting++
	}
	return neediest, pause
}

// lacks notes since when there are too few.
func (sh *shelf) lacks(yes bool, now time.Time) {
	switch {
	case !yes:
		sh.lacking = time.Time{}
	case sh.lacking.IsZero():
		sh.lacking = now
	}
}

// allowed is how many refills may run now. A refill and a call want the same
// processors, and the call has somebody waiting: a call's own start takes the
// place of a refill, and while tools run, half of the places stay theirs.
func (p *Pool) allowed() int {
	n := p.cfg.Parallel - p.cold
	if len(p.inUse) > 0 {
		n = min(n, max(1, p.cfg.Parallel/2))
	}
	return n
}

// gap is how long a refill of sh waits for the calls; it is over when it is 0 or
// less. Not at all when calls
// take sandboxes faster than gaps come, since the next ones would start their
// own: that costs the same and they wait for it.
func (p *Pool) gap(sh *shelf, now time.Time) time.Duration {
	patient := sh.lacking.Add(patience).Sub(now)
	runningOut := sh.demand.recent(now) > 0 && sh.have() < sh.places/2
	switch {
	case runningOut:
		return 0
	case p.cold > 0:
		return patient
	}
	return min(patient, p.lastGet.Add(quietGap).Sub(now))
}

// refill starts one sandbox for sh.
func (p *Pool) refill(ctx context.Context, sh *shelf) {
	startCtx, cancel := context.WithTimeout(ctx, p.cfg.StartTimeout)
	defer cancel()
	id, began := p.newID(), time.Now()
	sb, err := p.open(startCtx, id, sh.spec, true)
	now := time.Now()

	p.mu.Lock()
	p.starting--
	sh.starting--
	wanted := ctx.Err() == nil && len(sh.warm) < sh.max // Want may have changed its mind
	var pause time.Duration
	was := sh.fault
	switch {
	case err != nil && ctx.Err() == nil:
		pause = sh.retry.NextBackOff()
		sh.notBefore, sh.fault = now.Add(pause), strings.ReplaceAll(err.Error(), id, "")
	case err == nil:
		sh.fault = ""
	}
	is := sh.fault
	if err == nil && wanted {
		sh.retry.Reset()
		sh.demand.started(now.Sub(began))
		sh.warm = append(sh.warm, kept{sb, now})
	}
	p.mu.Unlock()
	p.wake()

	switch is {
	case was: // what lasts is told once
	case "":
		p.cfg.Logger.Info("warm sandboxes are started again", "image", sh.spec.Image)
	default:
		p.cfg.Logger.Warn("warm sandbox not started; it is tried again", "image", sh.spec.Image, "error", err, "pause", pause)
	}
	if err == nil && !wanted {
		p.dispose(sb)
	}
}
