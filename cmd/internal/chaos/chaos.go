package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"
)

// Config says what is run, and where.
type Config struct {
	// Seed makes the calls and the schedule of faults.
	Seed uint64
	// Calls is how many calls are made, at least 1.
	Calls int
	// Bin holds the harness's own builds of dispatcher, worker and toolfleet.
	Bin string
	// Programs is where workers look for the agent and for containerd; see
	// the worker's flag of that name.
	Programs string
	// Agent is the path of the agent, BinDir the directory of containerd.
	Agent, BinDir string
	// Images holds the OCI archives of the examples.
	Images string
	// Dir is an empty directory on a disk, for everything that the fleet
	// writes. Everybody must be able to walk through it.
	Dir string
	// Rolls is how often [Roll] restarts everything.
	Rolls int
	// Next holds the builds of Bin once more, under another version.
	Next string
	// Out takes the report. Err takes what happens meanwhile.
	Out, Err io.Writer
}

// ErrBroken says that a promise was not kept.
var ErrBroken = errors.New("chaos: a promise was broken")

// patience is how long the last calls may take once no more faults are made.
const patience = 5 * time.Minute

// Run runs the fleet under its schedule and reports. Its error is ErrBroken when
// a promise was broken, or says why nothing can be told.
func Run(ctx context.Context, cfg Config) (err error) {
	if cfg.Calls < 1 {
		return errors.New("chaos: at least one call has to be made")
	}
	logger := slog.New(slog.NewTextHandler(cfg.Err, nil))
	faults, calls := schedule(cfg.Seed, cfg.Calls), plan(cfg.Seed, cfg.Calls)
	fmt.Fprintf(cfg.Out, "seed %d: %d calls in %s, %d faults\n", cfg.Seed, len(calls), span(cfg.Calls), len(faults))
	for _, f := range faults {
		fmt.Fprintln(cfg.Out, f)
	}
	f, err := startFleet(ctx, cfg, true, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.remove(ctx)) }()

	h := &havoc{fleet: f, logger: logger, done: map[kind]int{}}
	answers := f.endure(ctx, h, faults, calls)
	logs, err := f.finalLog(ctx)
	if ctx.Err() != nil {
		err = errors.Join(err, context.Cause(ctx)) // told to stop: nothing can be told
	}
	if err != nil {
		return errors.Join(err, f.stop(ctx))
	}
	if err := f.stop(ctx); err != nil {
		return err
	}
	ledger, err := readLedger(f.ledger())
	if err != nil {
		return err
	}
	v := &verdict{}
	for i, a := range calls {
		v.judge(a, answers[i], logs[a.id], ledger[a.id])
	}
	if err := v.judgeOrphans(ctx, f); err != nil {
		return err
	}
	return report(cfg.Out, f, h, v, logs)
}

// endure makes the calls while the faults happen.
func (f *fleet) endure(ctx context.Context, h *havoc, faults []fault, calls []asked) []answer {
	ctx, cancel := context.WithTimeoutCause(ctx, span(len(calls))+patience, errors.New("the call has no result"))
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { h.run(ctx, faults) })
	answers := f.makeCalls(ctx, calls)
	wg.Wait()
	return answers
}

// finalLog stops what writes to the log, and reads it.
func (f *fleet) finalLog(ctx context.Context) (map[string]logged, error) {
	if err := f.stopParts(ctx); err != nil {
		return nil, err
	}
	nc, js, err := f.connect()
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	return readLog(ctx, js)
}
