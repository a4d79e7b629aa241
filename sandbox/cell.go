package sandbox

import (
	"context"
	"encoding/json"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// maxServed is how many calls a container of cells serves. What a call may have
// left behind in spite of everything (memory the kernel keeps for the container,
// a leak in the agent) has an end then.
const maxServed = 1000

// cells tells whether the sandbox gives every call a cell of its own.
func (s *Sandbox) cells() bool { return s.spec.Isolation == "cell" }

// Reusable reports whether the sandbox may serve another call: it is a
// container of cells, its last call ended without any anomaly, and it has not
// served its number of calls.
func (s *Sandbox) Reusable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cells() && s.Alive() && !s.spent && s.served < maxServed
}

// peakResetter is what an [Instance] implements that can count the peak of
// memory anew for another call. One that cannot has its peaks of a reused
// sandbox left out.
type peakResetter interface {
	ResetPeak(ctx context.Context) error
}

// nextCell is the frame that tells the agent that the cell after the last run
// may be made. The cell has nothing of the call to come. The frame goes out
// with the start of the run before, as the agent waits for that one's end
// anyway; after a run that makes the sandbox unfit for another it is in vain.
func (s *Sandbox) nextCell() (wire.Frame, error) {
	s.mu.Lock()
	f := wire.Frame{Kind: wire.KindPrepare, Stream: s.served + 1}
	s.mu.Unlock()
	want := wire.Cell{Disk: s.spec.Limits.WithDefaults().Disk}
	if f.Stream == 1 {
		want.Seccomp = s.seccomp()
	}
	var err error
	f.Payload, err = json.Marshal(want)
	return f, err
}

// prepare sends nextCell by itself: before the first run, and after one that
// ended before all was sent that should have gone before.
func (s *Sandbox) prepare(ctx context.Context) {
	f, err := s.nextCell()
	if err == nil {
		err = s.send(ctx, f.Kind, f.Stream, f.Payload)
	}
	if err != nil {
		s.mu.Lock()
		s.spent = true
		s.mu.Unlock()
	}
}

// used is what the run that has just ended took of usage, which counts for the
// container as a whole.
func (s *Sandbox) used(usage Usage) Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	usage.OOMKills -= s.before.OOMKills
	usage.PidsRefused -= s.before.PidsRefused
	usage.CPU -= s.before.CPU
	if _, ok := s.inst.(peakResetter); !ok && s.served > 1 {
		usage.PeakMemory = 0 // of an earlier call, for all we know
	}
	return usage
}

// settle makes ready for the next call, or for none: a sandbox whose call met a
// limit, was stopped or broke a rule may be marked by it. A conversation that
// had finished is none of these.
func (s *Sandbox) settle(ctx context.Context, r *run, exit Exit, err error) {
	whole := exit.Cause == CauseExited || exit.Cause == CauseFinished
	again := s.cells() && err == nil && whole && exit.Met == "" && s.Alive() && waitFor(ctx, r.fed) == nil
	usage := exit.Usage
	s.mu.Lock()
	s.spent = !again
	s.before.OOMKills += usage.OOMKills
	s.before.PidsRefused += usage.PidsRefused
	s.before.CPU += usage.CPU
	s.mu.Unlock()
	if !s.Reusable() {
		return
	}
	if p, ok := s.inst.(peakResetter); ok {
		if err := p.ResetPeak(ctx); err != nil {
			s.mu.Lock()
			s.spent = true
			s.mu.Unlock()
			return
		}
	}
	if !r.prepared {
		s.prepare(ctx)
	}
}
