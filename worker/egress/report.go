package egress

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/toolfleet/toolfleet/call"
)

// entry is one connection that was made or refused, or a name that was asked for
// in vain.
type entry struct {
	to             string
	addr           netip.Addr
	connected      bool
	reason, detail string
	sent, received int64
	took           time.Duration
}

// verdict is what metrics and results call it.
func (e entry) verdict() string {
	if e.connected {
		return "connected"
	}
	if e.reason == reasonFailed || e.reason == reasonName {
		return "failed"
	}
	return "denied"
}

// maxReported bounds the kinds of entries that a result tells.
const maxReported = 32

type report struct {
	kinds []call.Egress
	more  int
}

// add counts e with others of its kind, and tells whether it is the first.
func (r *report) add(e entry) (first bool) {
	for i := range r.kinds {
		k := &r.kinds[i]
		if k.To == e.to && k.Verdict == e.verdict() && k.Reason == e.reason {
			k.Count++
			k.SentBytes += e.sent
			k.ReceivedBytes += e.received
			return false
		}
	}
	if len(r.kinds) == maxReported {
		r.more++
		return false
	}
	r.kinds = append(r.kinds, call.Egress{
		To: e.to, Verdict: e.verdict(), Reason: e.reason, Count: 1, SentBytes: e.sent, ReceivedBytes: e.received,
	})
	return true
}

// tell counts a connection, and writes its line of the audit log. Refusals of one
// kind have one line: a tool could fill the log with them.
func (c *Call) tell(e entry) {
	c.mu.Lock()
	first := c.report.add(e)
	c.mu.Unlock()
	c.opts.Metrics.Egress(e.verdict(), e.reason, e.sent, e.received)
	if !first && !e.connected {
		return
	}
	attrs := []any{
		slog.String("to", e.to), slog.String("verdict", e.verdict()),
		slog.Int64("sent", e.sent), slog.Int64("received", e.received), slog.Duration("took", e.took),
	}
	if e.addr.IsValid() {
		attrs = append(attrs, slog.String("address", e.addr.String()))
	}
	if e.reason != "" {
		attrs = append(attrs, slog.String("reason", e.reason), slog.String("detail", e.detail))
	}
	c.opts.Logger.Info("egress", attrs...)
}

// Report is what the call's result tells: at most 32 kinds of connections, and
// how many others there were.
func (c *Call) Report() (kinds []call.Egress, more int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]call.Egress(nil), c.report.kinds...), c.report.more
}
