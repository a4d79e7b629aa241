// Package health knows at once whether a process would accept work, and why not.
//
// Two questions are asked of every service, and mixing them up does harm. Whether
// it lives is for whoever would start it anew: the answer is that the process
// answers, and nothing else, since no restart brings back a NATS server that is
// away. Whether it is ready is for whoever would send it work, and depends on all
// that the work needs.
//
// A probe waits for neither: what has to be asked of others is asked by a
// [Monitor] in the background, each thing by itself and with a deadline, and the
// page tells what was heard last. So it answers while everything else hangs, and
// a thousand probes cost what one does.
package health

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Check is one thing that work needs.
type Check struct {
	Name string
	// Ask says what is wrong, in words that say what to do; nil means nothing. It
	// ends with its context, as far as the system lets it: what does not, such as
	// a look at a disk that hangs, counts as wrong meanwhile.
	Ask func(context.Context) error
}

const (
	// every is how often a check is asked, counted from its answer.
	every = 2 * time.Second
	// patience bounds one asking.
	patience = 2 * time.Second
)

// Monitor asks checks again and again. Make one with [NewMonitor] and run it. It
// is safe for concurrent use.
type Monitor struct {
	checks []*standing
	logger *slog.Logger
}

// standing is where a check stands.
type standing struct {
	Check

	mu    sync.Mutex // guards what follows
	err   error      // of the last answer
	asked time.Time  // since when an answer is awaited; zero when none is
}

// NewMonitor makes a monitor in which all is well until Run has asked: whoever
// starts a process has seen that it can. Changes are logged.
func NewMonitor(logger *slog.Logger, checks ...Check) *Monitor {
	m := &Monitor{logger: logger}
	for _, c := range checks {
		m.checks = append(m.checks, &standing{Check: c})
	}
	return m
}

// Run asks every check until ctx is done, and waits for the last answers.
func (m *Monitor) Run(ctx context.Context) error {
	var asking sync.WaitGroup
	for _, s := range m.checks {
		asking.Go(func() {
			timer := time.NewTimer(0)
			defer timer.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-timer.C:
				}
				m.ask(ctx, s)
				timer.Reset(every)
			}
		})
	}
	asking.Wait()
	return nil
}

// ask asks one check, and logs when its answer is another one than before.
func (m *Monitor) ask(ctx context.Context, s *standing) {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s.mu.Lock()
	s.asked = time.Now()
	s.mu.Unlock()
	err := s.Ask(bounded)
	if ctx.Err() != nil {
		err = nil // the end of the process is no fault
	}
	s.mu.Lock()
	was := s.err
	s.err, s.asked = err, time.Time{}
	s.mu.Unlock()
	switch {
	case was == nil && err != nil:
		m.logger.Error("no work is taken until this is mended", "check", s.Name, "error", err)
	case was != nil && err == nil && ctx.Err() == nil:
		m.logger.Info("mended", "check", s.Name)
	}
}

// now is what is wrong at this moment.
func (s *standing) now() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && !s.asked.IsZero() && time.Since(s.asked) > 2*patience {
		return fmt.Errorf("no answer for %s", time.Since(s.asked).Round(time.Second))
	}
	return s.err
}

// Report tells of every check. It does not wait.
func (m *Monitor) Report() Report {
	r := make(Report, 0, len(m.checks))
	for _, s := range m.checks {
		r = r.With(s.Name, s.now())
	}
	return r
}
