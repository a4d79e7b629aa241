package dispatch

import (
	"sync"
	"time"

	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/results"
	"github.com/toolfleet/toolfleet/tenant"
)

// Quotas says whether a tenant may have one more call. Make it with [NewQuotas];
// it is safe for concurrent use.
//
// It counts what it hears from the log, which every dispatcher reads whole:
// there is no counter that they share, nothing to fetch before a call is taken,
// and nothing to mend when one of them dies. The price is that dispatchers know
// of each other's calls a moment late, so that a tenant who sends to several at
// once may get a few calls more than its quota. Of its own calls a dispatcher
// knows at once.
//
// A dispatcher that starts counts the last minute from the history of the log.
type Quotas struct {
	limits *tenant.Set
	log    *results.Log
	usage  *blob.Usage

	mu sync.Mutex
	// accounts has every tenant of whom the log knows a call, a kilobyte each.
	// Tenants are made by an operator, in the file of tokens.
	accounts map[string]*account
}

// account is what a tenant has used.
type account struct {
	taken   window // calls that may run
	refused window
	waiting int
	// coming are calls of our own that were let in and have not come back from
	// the log, with how many submits each has under way. The quotas bound it.
	coming map[call.Key]int
}

// NewQuotas makes the quotas of a dispatcher whose log and blobs these are. It
// observes the log, so it must come before Log.Run; usage.Run must be running
// for quotas of blobs to mean anything.
func NewQuotas(limits *tenant.Set, log *results.Log, usage *blob.Usage) *Quotas {
	q := &Quotas{limits: limits, log: log, usage: usage, accounts: map[string]*account{}}
	log.Observe(q)
	return q
}

// account is the tenant's. The caller holds mu.
func (q *Quotas) account(tenant string) *account {
	a := q.accounts[tenant]
	if a == nil {
		a = &account{coming: map[call.Key]int{}}
		q.accounts[tenant] = a
	}
	return a
}

// Admitted implements [results.Observer].
func (q *Quotas) Admitted(ref results.Ref, at time.Time, refused, waits bool) {
	now := q.log.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.account(ref.Tenant)
	delete(a.coming, ref.Key)
	if refused {
		a.refused.add(at, now)
		return
	}
	a.taken.add(at, now)
	if waits {
		a.waiting++
	}
}

// Left implements [results.Observer].
func (q *Quotas) Left(ref results.Ref) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.account(ref.Tenant).waiting--
}

// enter makes room for a call, or says why there is none. bytes is what the call
// itself would add to its tenant's blobs. The room is the call's until it is
// heard of in the log, or until leave.
func (q *Quotas) enter(ref results.Ref, bytes int64) (over *overQuota) {
	l := q.limits.Of(ref.Tenant)
	if !l.Quotas() {
		return nil
	}
	now := q.log.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.account(ref.Tenant)
	if a.coming[ref.Key] == 0 { // another submit of the same call has the room already
		if over := q.over(ref.Tenant, a, l, bytes, now); over != nil {
			return over
		}
	}
	a.coming[ref.Key]++
	return nil
}

// over says which quota has no room; of several, the one that takes the longest
// to have some again. The caller holds mu.
func (q *Quotas) over(tenant string, a *account, l tenant.Limits, bytes int64, now time.Time) *overQuota {
	if l.BlobBytes > 0 {
		held := q.usage.Held(tenant, now)
		if held >= l.BlobBytes || held+bytes > l.BlobBytes {
			frees := q.usage.Frees(tenant, max(1, l.BlobBytes-bytes))
			return overBlobs(l.BlobBytes, held, bytes, frees.Sub(now))
		}
	}
	coming := len(a.coming)
	if l.CallsPerMinute > 0 && a.taken.count(now)+coming >= l.CallsPerMinute {
		return overRate(l.CallsPerMinute, a.taken.room(max(1, l.CallsPerMinute-coming), now))
	}
	if l.MaxWaiting > 0 && a.waiting+coming >= l.MaxWaiting {
		return overWaiting(l.MaxWaiting)
	}
	return nil
}

// leave gives back the room of a call that was not admitted, or was before.
func (q *Quotas) leave(ref results.Ref) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.account(ref.Tenant)
	switch n := a.coming[ref.Key]; {
	case n > 1:
		a.coming[ref.Key] = n - 1
	case n == 1:
		delete(a.coming, ref.Key)
	}
}

// flooded says how long to wait before another refused call of the tenant may
// have a log; 0 when it may now.
//
// A refusal is an answer, and has a log of two entries that stay for a week. A
// client that goes on calling whatever it is told would fill with them the log
// of everybody. So of those there may be ten a minute for each call that the
// tenant may have a minute, and refusalsPerMinute without such a quota.
func (q *Quotas) flooded(tenant string) time.Duration {
	l := q.limits.Of(tenant)
	if !l.Quotas() {
		return 0
	}
	limit := refusalsPerMinute
	if l.CallsPerMinute > 0 {
		limit = max(fewestRefusals, refusalsPerCall*l.CallsPerMinute)
	}
	now := q.log.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.account(tenant).refused.room(limit, now)
}

// How many refusals of a tenant may enter the log.
const (
	refusalsPerCall   = 10
	refusalsPerMinute = 6000
	// fewestRefusals lets a tenant with a tiny quota still be told why.
	fewestRefusals = 60
)

// Held is how many bytes the tenant's blobs hold, as its quota counts them.
func (q *Quotas) Held(tenant string) int64 { return q.usage.Held(tenant, q.log.Now()) }
