package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/results"
)

// logged is what the log of one call holds.
type logged struct {
	results int
	// kind and says are those of the first result.
	kind call.Kind
	says string
	// started says that some worker took the start fence to run the tool.
	started bool
	// attempts is the highest number of a claim or a start.
	attempts  int
	cancelled bool
}

// readLog reads the stream from its first message to its last, and returns what
// it says about each call, by its tool call id. It does not ask package results,
// which is what is being verified.
func readLog(ctx context.Context, js jetstream.JetStream) (map[string]logged, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	c, err := js.OrderedConsumer(ctx, results.Stream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return nil, fmt.Errorf("chaos: read the log: %w", err)
	}
	r := logReader{ids: map[string]string{}, logs: map[string]logged{}}
	for left := uint64(1); left > 0; {
		batch, err := c.Fetch(1000, jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			return nil, fmt.Errorf("chaos: read the log: %w", err)
		}
		for msg := range batch.Messages() {
			meta, err := msg.Metadata()
			if err != nil {
				return nil, fmt.Errorf("chaos: read the log: %w", err)
			}
			left = meta.NumPending
			if err := r.take(msg.Subject(), msg.Data()); err != nil {
				return nil, err
			}
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("chaos: read the log: %w", context.Cause(ctx))
		}
	}
	return r.byID(), nil
}

// logReader collects what messages say, by the key of their call.
type logReader struct {
	ids  map[string]string // tool call ids
	logs map[string]logged
}

// take takes one message of the stream.
func (r *logReader) take(subject string, data []byte) error {
	f := strings.Split(subject, ".")
	if len(f) != 5 {
		return fmt.Errorf("chaos: the log has a message under %q", subject)
	}
	key := f[3]
	l := r.logs[key]
	var ev struct {
		Value struct {
			Attempt int
			Void    bool
			Call    struct{ ToolCallID string }
		}
	}
	if err := json.Unmarshal(data, &ev); err != nil {
		return fmt.Errorf("chaos: the log has no JSON under %q: %w", subject, err)
	}
	switch f[4] {
	case results.KindAdmit:
		r.ids[key] = ev.Value.Call.ToolCallID
	case results.KindClaim:
		l.attempts = max(l.attempts, ev.Value.Attempt)
	case results.KindStart:
		if !ev.Value.Void {
			l.started = true
			l.attempts = max(l.attempts, ev.Value.Attempt)
		}
	case results.KindCancel:
		l.cancelled = true
	case results.KindResult:
		result, err := resultOf(data)
		if err != nil {
			return fmt.Errorf("chaos: the result under %q: %w", subject, err)
		}
		if l.results++; l.results == 1 {
			l.kind = result.Kind()
			if result.Error != nil {
				l.says = result.Error.Message
			}
		}
	}
	r.logs[key] = l
	return nil
}

// resultOf reads how a call ended.
func resultOf(data []byte) (call.Result, error) {
	ev, _, err := agui.Decode(data)
	if err != nil {
		return call.Result{}, err
	}
	result, ok := ev.(agui.ToolCallResult)
	if !ok {
		return call.Result{}, fmt.Errorf("it is a %T", ev)
	}
	return call.ResultOf(result)
}

// byID is the logs by tool call id. Ids are unique in a run.
func (r *logReader) byID() map[string]logged {
	logs := map[string]logged{}
	for key, l := range r.logs {
		logs[r.ids[key]] = l
	}
	return logs
}
