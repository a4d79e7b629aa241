package chaos

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"time"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/cmd/internal/client"
)

// makeCalls makes the calls, each at its time, follows each to its end, and
// returns what their clients saw, in the order of calls.
func (f *fleet) makeCalls(ctx context.Context, calls []asked) []answer {
	answers := make([]answer, len(calls))
	began := time.Now()
	var wg sync.WaitGroup
	for i, a := range calls {
		if !pause(ctx, a.at-time.Since(began)) {
			for j := i; j < len(calls); j++ {
				answers[j].err = context.Cause(ctx)
			}
			break
		}
		wg.Go(func() { answers[i] = f.makeCall(ctx, a, byStream, i) })
	}
	wg.Wait()
	return answers
}

// makeCall makes one call by a door of one dispatcher. Whatever breaks, it goes on with the same ids at the
// other dispatcher, as a client should: the same call again finds its log.
func (f *fleet) makeCall(ctx context.Context, a asked, d door, first int) answer {
	ctx, done := context.WithCancel(ctx)
	defer done()
	var cancels sync.WaitGroup
	defer cancels.Wait()
	defer done()
	began := time.Now()
	seen := answer{accepted: -1}
	accepted := func(key string) {
		if seen.accepted >= 0 {
			return
		}
		seen.accepted = time.Since(began)
		if a.cancelAfter > 0 {
			cancels.Go(func() { f.cancel(ctx, key, a.cancelAfter) })
		}
	}
	for seen.tries = 1; ; seen.tries++ {
		at := (first + seen.tries - 1) % len(f.clients)
		err := d(ctx, f.clients[at], a, visit{seen: &seen, accepted: accepted})
		if err != nil {
			f.logger.Info("a client was disappointed", "call", a.id, "dispatcher", at, "error", err)
		}
		if err == nil || ctx.Err() != nil || !errors.Is(err, client.ErrUnreachable) {
			seen.err = err
			return seen
		}
		if !pause(ctx, 200*time.Millisecond) {
			seen.err = context.Cause(ctx)
			return seen
		}
	}
}

// take notes a result, the n-th of its stream.
func (s *answer) take(r agui.ToolCallResult, n int) error {
	result, err := call.ResultOf(r)
	if err != nil {
		return err
	}
	s.note(result.Kind(), n)
	return nil
}

// note notes the kind of a result, the n-th that its reader was given.
func (s *answer) note(k call.Kind, n int) {
	s.differs = s.differs || s.results > 0 && s.kind != k
	s.kind, s.results = k, max(s.results, n)
}

// cancel asks for a call's end after a while, until a dispatcher takes it.
func (f *fleet) cancel(ctx context.Context, key string, after time.Duration) {
	for try := 0; pause(ctx, after); try++ {
		err := f.clients[try%len(f.clients)].Delete(ctx, "/v1/calls/"+url.PathEscape(key), nil)
		if !errors.Is(err, client.ErrUnreachable) {
			return // taken, or the call has ended
		}
		after = 200 * time.Millisecond
	}
}
