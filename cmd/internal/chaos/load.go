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
		wg.Go(func() { answers[i] = f.makeCall(ctx, a, i) })
	}
	wg.Wait()
	return answers
}

// makeCall makes one call. Whatever breaks, it goes on with the same ids at the
// other dispatcher, as a client should: the same call again finds its log.
func (f *fleet) makeCall(ctx context.Context, a asked, first int) answer {
	ctx, done := context.WithCancel(ctx)
	defer done()
	req := client.Request{Tool: a.tool, Arguments: a.arguments, ToolCallID: a.id, ThreadID: "chaos", RunID: a.id, Timeout: a.timeout}
	var seen answer
	var cancels sync.WaitGroup
	defer cancels.Wait()
	defer done()
	var once sync.Once
	started := func(key string) {
		if a.cancelAfter > 0 {
			once.Do(func() { cancels.Go(func() { f.cancel(ctx, key, a.cancelAfter) }) })
		}
	}
	for try := first; ; try++ {
		results := 0
		err := f.clients[try%len(f.clients)].Call(ctx, req, started, func(ev client.Event) error {
			if r, ok := ev.Event.(agui.ToolCallResult); ok {
				results++
				return seen.take(r, results)
			}
			return nil
		})
		if err != nil {
			f.logger.Info("a client was disappointed", "call", a.id, "dispatcher", try%len(f.clients), "error", err)
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
	s.differs = s.differs || s.results > 0 && s.kind != result.Kind()
	s.kind, s.results = result.Kind(), max(s.results, n)
	return nil
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
