package keeper

import (
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/results"
)

func TestJudge(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	start := func(void bool) *results.Marker {
		return &results.Marker{Worker: results.Worker{ID: "w"}, Void: void, Time: ago(time.Minute)}
	}
	why := ""
	refusal := call.Failure(call.KindDeclined, "no")
	for name, c := range map[string]struct {
		f    facts // an old call that has not expired and is queued, but for
		deed deed
		kind call.Kind
	}{
		"in order":                              {facts{}, leave, ""},
		"admitted just now":                     {facts{admitted: now, refused: true}, leave, ""},
		"refused":                               {facts{refused: true, refusal: &refusal}, end, call.KindDeclined},
		"cancelled":                             {facts{cancel: &why}, endUnrun, call.KindCancelled},
		"expired":                               {facts{expires: ago(1)}, endUnrun, call.KindExpired},
		"expires later":                         {facts{expires: now.Add(1)}, leave, ""},
		"never expires":                         {facts{expires: time.Time{}}, leave, ""},
		"expired, being started":                {facts{expires: ago(1), claims: 1, claimed: now, alive: true}, leave, ""},
		"expired, claimed by a dead worker":     {facts{expires: ago(1), claims: 1, claimed: now}, endUnrun, call.KindExpired},
		"expired, claimed for ages":             {facts{expires: ago(1), claims: 1, claimed: ago(time.Hour), alive: true}, endUnrun, call.KindExpired},
		"last attempt going on":                 {facts{claims: 3, claimed: now, alive: true}, leave, ""},
		"attempts spent":                        {facts{claims: 3, claimed: now}, endUnrun, call.KindSandboxFailed},
		"void, just now":                        {facts{start: &results.Marker{Void: true, Time: now}}, leave, ""},
		"void, cancelled":                       {facts{start: start(true), cancel: &why}, end, call.KindCancelled},
		"void, expired":                         {facts{start: start(true)}, end, call.KindExpired},
		"void, attempts spent":                  {facts{start: start(true), claims: 3}, end, call.KindSandboxFailed},
		"runs":                                  {facts{start: start(false), alive: true}, leave, ""},
		"runs, expired meanwhile":               {facts{start: start(false), alive: true, expires: ago(1)}, leave, ""},
		"runs, to be cancelled":                 {facts{start: start(false), alive: true, cancel: &why}, leave, ""},
		"worker lost":                           {facts{start: start(false)}, end, call.KindInterrupted},
		"worker lost, cancelled":                {facts{start: start(false), cancel: &why}, end, call.KindInterrupted},
		"worker lost, may run again":            {facts{start: start(false), idempotent: true, claims: 1}, leave, ""},
		"worker lost, may run again, spent":     {facts{start: start(false), idempotent: true, claims: 3}, end, call.KindSandboxFailed},
		"worker lost, may run again, cancelled": {facts{start: start(false), idempotent: true, cancel: &why}, end, call.KindCancelled},
	} {
		f := c.f
		f.now, f.settle, f.queued = now, settleTime, true
		if f.admitted.IsZero() {
			f.admitted = ago(time.Hour)
		}
		deed, r := judge(f)
		if deed != c.deed || r.Kind() != c.kind {
			t.Errorf("%s: %s %q, want %s %q", name, deed, r.Kind(), c.deed, c.kind)
		}
		f.queued = false
		if again, _ := judge(f); c.deed == leave && c.f.admitted.IsZero() && !(f.alive && f.start == nil) && !(f.start != nil && f.start.Void) && again != push {
			t.Errorf("%s: not queued, and %s", name, again)
		}
	}
}

func TestCheckHorizon(t *testing.T) {
	if err := CheckHorizon(10*time.Minute, time.Hour, time.Minute); err != nil {
		t.Error(err)
	}
	if err := CheckHorizon(results.MaxAge-time.Hour, time.Hour, 0); err == nil {
		t.Error("no error at the horizon")
	}
}
