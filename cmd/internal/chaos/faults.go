package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// havoc carries a schedule out. It is safe for concurrent use.
type havoc struct {
	fleet  *fleet
	logger *slog.Logger
	// cable and disk are held while they are out of order.
	cable, disk sync.Mutex

	mu     sync.Mutex // guards what follows
	done   map[kind]int
	missed []error
}

// run carries out faults, each at its time after now, and returns when the last
// is mended or ctx is done.
func (h *havoc) run(ctx context.Context, faults []fault) {
	began := time.Now()
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, f := range faults {
		if !pause(ctx, f.at-time.Since(began)) {
			return
		}
		wg.Go(func() {
			h.logger.Info("fault", "fault", f.String())
			err := h.do(ctx, f)
			h.mu.Lock()
			defer h.mu.Unlock()
			if err != nil {
				h.missed = append(h.missed, fmt.Errorf("%s: %w", f, err))
				return
			}
			h.done[f.kind]++
		})
	}
}

// do does one fault to its end.
func (h *havoc) do(ctx context.Context, f fault) error {
	fleet := h.fleet
	switch f.kind {
	case workerKill:
		return fleet.workers[f.target].kill(ctx, f.length)
	case dispatcherKill:
		return fleet.dispatchers[f.target].kill(ctx, f.length)
	case natsKill:
		return fleet.servers[f.target].kill(ctx, f.length)
	case containerdKill:
		return h.hunt(ctx, f.target, func() error { return killContainerd(fleet.state(f.target)) })
	case shimKill:
		return h.hunt(ctx, f.target, func() error { return killShim(fleet.state(f.target), int(f.at/time.Millisecond)) })
	case stop:
		return fleet.workers[f.target].freeze(ctx, f.length)
	case partition:
		return h.cutOff(ctx, f.length)
	case diskFull:
		return h.fill(ctx, f.length)
	}
	return fmt.Errorf("chaos: no such fault as %q", f.kind)
}

// hunt kills something that belongs to a worker that is up, and waits for it
// when there is none.
func (h *havoc) hunt(ctx context.Context, worker int, kill func() error) error {
	ctx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	for {
		if _, err := h.fleet.workers[worker].awaitUp(ctx); err != nil {
			return err
		}
		if err := kill(); !errors.Is(err, errNoPrey) {
			return err
		}
		if !pause(ctx, 50*time.Millisecond) {
			return errNoPrey
		}
	}
}

// cutOff takes a worker off the network.
func (h *havoc) cutOff(ctx context.Context, length time.Duration) error {
	h.cable.Lock()
	defer h.cable.Unlock()
	if _, err := h.fleet.workers[cutOff].awaitUp(ctx); err != nil {
		return err
	}
	if err := h.fleet.net.cut(ctx); err != nil {
		return err
	}
	pause(ctx, length)
	return h.fleet.net.mend(context.WithoutCancel(ctx))
}

// fill fills the disk of a server, and frees it. A server whose disk is full
// turns JetStream off and leaves it so, which is its design; so whoever has made
// room starts it again.
func (h *havoc) fill(ctx context.Context, length time.Duration) error {
	h.disk.Lock()
	defer h.disk.Unlock()
	server := h.fleet.servers[smallDisk]
	if _, err := server.awaitUp(ctx); err != nil {
		return err
	}
	if err := h.fleet.disk.fill(); err != nil {
		return err
	}
	pause(ctx, length)
	if err := h.fleet.disk.free(); err != nil {
		return err
	}
	return server.kill(ctx, 0)
}

// counts is the report's line of what was done.
func (h *havoc) counts() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	b.WriteString("faults")
	for _, m := range menu {
		fmt.Fprintf(&b, " %s=%d", m.kind, h.done[m.kind])
	}
	return b.String()
}

// pause waits for d; false means that ctx was done first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
