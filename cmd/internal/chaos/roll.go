package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"
)

// Roll restarts every process of the fleet in turn while calls are made, as one
// upgrades it: each is told to stop, ends by itself, is started again as the other
// build, and all must be well before the next one's turn: NATS servers first, then
// dispatchers, then workers, as docs/operations.md tells operators. Nothing is broken here,
// so nothing is forgiven either: every call has to end as it was asked to. The
// first roll is an upgrade, the second its rollback, and so on.
//
// Its error is ErrBroken when a promise was broken, or says why nothing can be
// told.
func Roll(ctx context.Context, cfg Config) (err error) {
	if cfg.Calls < 1 || cfg.Rolls < 1 {
		return errors.New("chaos: at least one call and one roll have to be made")
	}
	logger := slog.New(slog.NewTextHandler(cfg.Err, nil))
	f, err := startFleet(ctx, cfg, false, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.remove(ctx)) }()
	if err := f.awaitWell(ctx); err != nil {
		return errors.Join(err, f.stop(ctx))
	}
	r := &rolling{fleet: f, watch: newWatch(f), began: time.Now()}
	fmt.Fprintf(cfg.Out, "%d NATS servers, %d dispatchers and %d workers are well\n", servers, dispatchers, workers)
	made, rollErr := r.run(ctx)
	logs, err := f.finalLog(ctx)
	if ctx.Err() != nil {
		err = errors.Join(err, context.Cause(ctx))
	}
	if err = errors.Join(rollErr, err, f.stop(ctx)); err != nil {
		return err
	}
	ledger, err := readLedger(f.ledger())
	if err != nil {
		return err
	}
	v := &verdict{}
	for _, m := range made {
		v.judge(m.asked, m.answer, logs[m.asked.id], ledger[m.asked.id])
		v.judgeCalm(m.asked, logs[m.asked.id])
	}
	if err := v.judgeOrphans(ctx, f); err != nil {
		return err
	}
	return r.report(made, logs, ledger, v)
}

// rolling is one run of Roll.
type rolling struct {
	fleet *fleet
	watch *watch
	began time.Time
}

// made is a call that was made, and what its client saw.
type made struct {
	asked  asked
	answer answer
}

// run makes calls while everything is restarted, and then until there were enough.
func (r *rolling) run(ctx context.Context) (calls []*made, err error) {
	rolled := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(rolled)
		err = r.roll(ctx)
	})
	calls = r.load(ctx, rolled)
	wg.Wait()
	return calls, err
}

// roll restarts everything, as often as it was told to, while it is watched.
func (r *rolling) roll(ctx context.Context) error {
	watching, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { r.watch.run(watching) })
	err := r.steps(ctx)
	stop()
	wg.Wait()
	if err != nil {
		return err
	}
	return r.watch.settle(ctx)
}

func (r *rolling) steps(ctx context.Context) error {
	cfg := r.fleet.cfg
	for n := range cfg.Rolls {
		bin := cfg.Next
		if n%2 == 1 {
			bin = cfg.Bin
		}
		for _, group := range [][]*process{r.fleet.servers, r.fleet.dispatchers, r.fleet.workers} {
			for _, p := range group {
				if err := r.step(ctx, n+1, p, bin); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// step restarts one process and waits until all is well.
func (r *rolling) step(ctx context.Context, roll int, p *process, bin string) error {
	ended, ready, err := p.restart(ctx, filepath.Join(bin, filepath.Base(p.program())))
	if err != nil {
		return err
	}
	began := time.Now()
	if err := r.fleet.awaitWell(ctx); err != nil {
		return err
	}
	fmt.Fprintf(r.fleet.cfg.Out, "%6.1fs roll %d: %-5s ended in %s, was ready after %s, all were well after %s\n",
		time.Since(r.began).Seconds(), roll, p.name, short(ended), short(ready), short(time.Since(began)))
	return nil
}

func short(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }

// The load of a roll. It stays below what two of the workers can do.
const (
	rollPace = 250 * time.Millisecond
	// rollOpen bounds the calls that are open at once: more would only wait.
	rollOpen = 200
)

// load makes calls until everything was restarted and enough of them were made,
// and follows each to its end.
func (r *rolling) load(ctx context.Context, rolled <-chan struct{}) (calls []*made) {
	hurried, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	author := newAuthor(r.fleet.cfg.Seed, calmBehaviours)
	open := make(chan struct{}, rollOpen)
	tick := time.NewTicker(rollPace)
	defer tick.Stop()
	var wg sync.WaitGroup
	for going := true; going || len(calls) < r.fleet.cfg.Calls; {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		select {
		case <-rolled:
			going = false
		default:
		}
		select {
		case open <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		m, n := &made{asked: author.next()}, len(calls)
		m.asked.at = time.Since(r.began)
		calls = append(calls, m)
		wg.Go(func() {
			defer func() { <-open }()
			m.answer = r.fleet.makeCall(hurried, m.asked, doors[n%len(doors)], n/len(doors))
		})
	}
	impatient := time.AfterFunc(patience, func() { cancel(errors.New("the call has no result")) })
	defer impatient.Stop()
	wg.Wait()
	return calls
}
