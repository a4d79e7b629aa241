package sandbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// PoolConfig configures a [Pool].
type PoolConfig struct {
	// Runtime starts the sandboxes. Required.
	Runtime Runtime
	// Prefix begins the id of every sandbox; a worker uses its own id. It
	// matches [a-z0-9-]{1,48}. Empty means "sb".
	Prefix string
	// Logger takes what fails in the background. nil drops it.
	Logger *slog.Logger
	// MaxWarm bounds the warm sandboxes of all specs together. 0 means 64.
	MaxWarm int
	// Parallel bounds the refills at one time. 0 means 2.
	Parallel int
	// StartTimeout bounds one refill. 0 means 2 minutes: it may pull an image.
	StartTimeout time.Duration
	// MaxAge is how long a sandbox waits warm before a new one takes its
	// place. What a runtime makes expires at some time, and a call must not
	// get a sandbox that is about to: MaxAge and the longest call together
	// have to be less than that. 0 means 15 minutes.
	MaxAge time.Duration
	// Idle is how long after its last Get a spec keeps more than its min. 0
	// means 5 minutes.
	Idle time.Duration
	// OnStart, if not nil, is told of every start, good or bad. It is called
	// from several goroutines.
	OnStart func(PoolStart)
}

// PoolStart tells of one start of a sandbox.
type PoolStart struct {
	Spec Spec
	// Refill says that the start filled the pool and no call waited for it.
	Refill bool
	Took   time.Duration
	Err    error
}

// PoolStats counts the sandboxes of a pool by what they are doing.
type PoolStats struct {
	Warm     int // started, and waiting for a call
	Starting int // on their way, for the pool or for a call
	InUse    int // handed out by Get and not yet discarded
	Closing  int // being removed
}

// ErrPoolClosed says that the pool's Run has ended.
var ErrPoolClosed = errors.New("sandbox: the pool is closed")

// Bounds of a pool's closings: so many at one time, and so many waiting.
const (
	closeParallel = 4
	closeWaiting  = 64
)

// checkTimeout bounds the question whether a warm sandbox is alive. It stands
// between a call and its sandbox, so it is short; an agent answers in less than
// a millisecond.
const checkTimeout = time.Second

// Pool keeps sandboxes started early. A sandbox that was handed out never comes
// back: it serves one call and is removed.
//
// How many are kept: of every wanted spec min, always; and max from its first
// Get until it has been idle for a while. Calls come first: while any sandbox
// is in use, refills run one at a time, and none begins while a call waits for
// a cold start. A spec whose refill fails is tried again after growing pauses.
//
// A Pool must be run, see [Pool.Run]; before that Get works but always starts
// cold. Its methods are safe for concurrent use.
type Pool struct {
	cfg     PoolConfig
	kick    chan struct{} // wakes Run; whoever changes what it looks at puts one
	waiting chan struct{} // a place for each closing, begun or not
	slots   chan struct{} // a place for each closing at work

	mu       sync.Mutex // guards everything below
	shelves  map[Spec]*shelf
	inUse    map[*Sandbox]struct{}
	starting int // refills
	cold     int // starts that a call waits for
	closing  int
	closed   bool
	closings sync.WaitGroup // Add only under mu and while not closed
}

// NewPool returns a pool that keeps nothing yet.
func NewPool(cfg PoolConfig) *Pool {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	defTime := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&cfg.MaxWarm, 64)
	def(&cfg.Parallel, 2)
	defTime(&cfg.StartTimeout, 2*time.Minute)
	defTime(&cfg.MaxAge, 15*time.Minute)
	defTime(&cfg.Idle, 5*time.Minute)
	if cfg.Prefix == "" {
		cfg.Prefix = "sb"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Pool{
		cfg: cfg, kick: make(chan struct{}, 1),
		waiting: make(chan struct{}, closeWaiting), slots: make(chan struct{}, closeParallel),
		shelves: make(map[Spec]*shelf), inUse: make(map[*Sandbox]struct{}),
	}
}

// Want sets how many sandboxes of spec are kept warm: at least min, at most
// max. 0, 0 forgets the spec and removes what is warm of it.
func (p *Pool) Want(spec Spec, minimum, maximum int) {
	minimum = max(minimum, 0)
	maximum = max(maximum, minimum)
	p.mu.Lock()
	var gone []*Sandbox
	sh := p.shelves[spec]
	switch {
	case maximum == 0 && sh != nil:
		delete(p.shelves, spec)
		gone, sh.warm = sh.warm, nil
	case maximum > 0 && sh == nil:
		p.shelves[spec] = newShelf(minimum, maximum)
	case maximum > 0:
		sh.min, sh.max = minimum, maximum
		gone = sh.cut(maximum)
	}
	p.mu.Unlock()
	p.wake()
	p.dispose(gone...)
}

// Get hands out a sandbox of spec: a warm one that is alive, or else one that
// is started now, within ctx. Whoever got it gives it to Discard in the end.
func (p *Pool) Get(ctx context.Context, spec Spec) (sb *Sandbox, warm bool, err error) {
	for {
		sb, err := p.take(spec)
		if err != nil {
			return nil, false, err
		}
		if sb == nil {
			break
		}
		checkCtx, cancel := context.WithTimeout(ctx, checkTimeout)
		err = sb.Check(checkCtx)
		cancel()
		if err == nil {
			return sb, true, nil
		}
		p.cfg.Logger.Warn("warm sandbox dropped: its agent does not answer", "sandbox", sb.ID(), "error", err)
		p.Discard(sb)
	}
	sb, err = p.startCold(ctx, spec)
	return sb, false, err
}

// take takes the oldest warm sandbox of spec off its shelf. When there is none
// it counts a cold start, which startCold ends.
func (p *Pool) take(spec Spec) (*Sandbox, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrPoolClosed
	}
	if sh := p.shelves[spec]; sh != nil {
		sh.used = time.Now()
		if sb := sh.take(); sb != nil {
			p.inUse[sb] = struct{}{}
			p.wake()
			return sb, nil
		}
	}
	p.cold++
	return nil, nil
}

func (p *Pool) startCold(ctx context.Context, spec Spec) (*Sandbox, error) {
	sb, err := p.open(ctx, spec, false)
	p.mu.Lock()
	p.cold--
	if err == nil {
		p.inUse[sb] = struct{}{}
	}
	p.mu.Unlock()
	p.wake()
	return sb, err
}

// Discard takes back a sandbox that Get handed out and removes it in the
// background. It waits only when very many removals are waiting already, and
// for the removal itself once Run has ended. Discarding twice does nothing.
func (p *Pool) Discard(sb *Sandbox) {
	p.mu.Lock()
	_, ok := p.inUse[sb]
	delete(p.inUse, sb)
	p.mu.Unlock()
	if ok {
		p.wake()
		p.dispose(sb)
	}
}

// Stats counts the pool's sandboxes.
func (p *Pool) Stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := PoolStats{Starting: p.starting + p.cold, InUse: len(p.inUse), Closing: p.closing}
	for _, sh := range p.shelves {
		st.Warm += len(sh.warm)
	}
	return st
}

// open starts a sandbox under a new id.
func (p *Pool) open(ctx context.Context, spec Spec, refill bool) (*Sandbox, error) {
	began := time.Now()
	sb, err := Open(ctx, p.cfg.Runtime, p.newID(), spec)
	if p.cfg.OnStart != nil {
		p.cfg.OnStart(PoolStart{Spec: spec, Refill: refill, Took: time.Since(began), Err: err})
	}
	return sb, err
}

// newID returns an id that no sandbox has had: 65 random bits after the prefix.
func (p *Pool) newID() string {
	return fmt.Sprintf("%s-%s", p.cfg.Prefix, strings.ToLower(rand.Text()[:13]))
}

// wake makes Run look again.
func (p *Pool) wake() {
	select {
	case p.kick <- struct{}{}:
	default: // it will
	}
}

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
		p.cfg.Logger.Error("sandbox not removed; the sweep will try again", "sandbox", sb.ID(), "error", err)
	}
	p.mu.Lock()
	p.closing--
	p.mu.Unlock()
}
