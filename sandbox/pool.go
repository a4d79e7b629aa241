package sandbox

import (
	"errors"
	"log/slog"
	"runtime"
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
	// MaxMemory bounds what the warm sandboxes of all specs cost together while
	// they are idle, in bytes; those that are being started count too. 0 means
	// an eighth of the machine's memory: what waits shall not take much from
	// what works, and a tool takes 256 MiB where an idle sandbox takes 12. Where
	// sandboxes have a limit together, it has to be told.
	MaxMemory int64
	// IdleMemory tells what one idle sandbox of a spec costs, in bytes. nil
	// means 12 MiB for each.
	IdleMemory func(Spec) int64
	// Parallel bounds the starts at one time while no call is waiting for one;
	// while sandboxes are in use it is half of that. 0 means one for each
	// processor, and at least 2.
	Parallel int
	// StartTimeout bounds one refill. 0 means 2 minutes: it may pull an image.
	StartTimeout time.Duration
	// MaxAge is how long a sandbox waits warm before a new one takes its
	// place. What a runtime makes expires at some time, and a call must not
	// get a sandbox that is about to: MaxAge and the longest call together
	// have to be less than that. 0 means 15 minutes.
	MaxAge time.Duration
	// Idle is how long a spec without calls keeps more than its min: at most
	// this, and at least half of it. 0 means 5 minutes.
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

// ErrPoolClosed says that the pool's Run has ended.
var ErrPoolClosed = errors.New("sandbox: the pool is closed")

// Pool keeps sandboxes started early. A container serves one call and is
// removed; a container of cells serves many, one after the other, and comes
// back in between as long as it is as good as new (see [Sandbox.Reusable]).
//
// How many are kept of every wanted spec: as many as its calls of the last few
// minutes needed at once, at least min and at most max. Of cells there may be
// more while more are in use at once, and for some seconds after. All specs together keep within
// MaxWarm and MaxMemory; when that is too little for all, the specs with the
// most calls have it. A sandbox is of exactly the spec that it is asked for:
// the whole spec is the key.
//
// Calls come first. A refill waits for a gap between calls and for every call
// that is starting its own sandbox; but not for long, and not at all when calls
// come so quickly that the spec's shelf is running empty. A spec whose refill
// fails is tried again after growing pauses.
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
	kinds    map[Kind]struct{} // that there ever were shelves of
	serial   int               // of the newest shelf
	inUse    map[*Sandbox]*shelf
	lastGet  time.Time
	starting int // refills
	cold     int // starts that a call waits for
	closing  int
	closed   bool
	closings sync.WaitGroup // Add only under mu and while not closed
}

// NewPool returns a pool that keeps nothing yet.
func NewPool(cfg PoolConfig) *Pool {
	orDefault(&cfg.MaxWarm, 64)
	orDefault(&cfg.Parallel, max(2, runtime.GOMAXPROCS(0)))
	orDefault(&cfg.StartTimeout, 2*time.Minute)
	orDefault(&cfg.MaxAge, 15*time.Minute)
	orDefault(&cfg.Idle, 5*time.Minute)
	if cfg.MaxMemory <= 0 {
		cfg.MaxMemory = machineMemory() / 8
	}
	if cfg.IdleMemory == nil {
		cfg.IdleMemory = func(Spec) int64 { return defaultIdleMemory }
	}
	if cfg.Prefix == "" {
		cfg.Prefix = "sb"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Pool{
		cfg: cfg, kick: make(chan struct{}, 1),
		waiting: make(chan struct{}, closeWaiting), slots: make(chan struct{}, closeParallel),
		shelves: make(map[Spec]*shelf), kinds: make(map[Kind]struct{}), inUse: make(map[*Sandbox]*shelf),
	}
}

func orDefault[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// window is how long peaks of demand are gathered before they begin to be
// forgotten.
func (p *Pool) window() time.Duration { return p.cfg.Idle / 2 }

// Want sets how many sandboxes of spec are kept warm: at least min, at most
// max. 0, 0 removes what is warm of it and forgets the spec.
func (p *Pool) Want(spec Spec, minimum, maximum int) {
	minimum = max(minimum, 0)
	maximum = max(maximum, minimum)
	p.mu.Lock()
	var gone []*Sandbox
	sh := p.shelves[spec]
	if sh == nil && maximum > 0 {
		p.serial++
		sh = newShelf(spec, max(1, p.cfg.IdleMemory(spec)), p.serial)
		p.shelves[spec] = sh
		p.kinds[p.Kind(spec)] = struct{}{}
	}
	if sh != nil {
		sh.min, sh.max = minimum, maximum
		gone = sh.cut(maximum)
	}
	p.mu.Unlock()
	p.wake()
	p.dispose(gone...)
}

// wake makes Run look again.
func (p *Pool) wake() {
	select {
	case p.kick <- struct{}{}:
	default: // it will
	}
}
