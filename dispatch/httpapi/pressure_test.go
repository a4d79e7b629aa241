package httpapi_test

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
	"github.com/toolfleet/toolfleet/internal/natsd"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

// post submits a call under a key and does not wait for it.
func (d *door) post(key string) answer {
	d.t.Helper()
	return d.do(http.MethodPost, "/v1/calls?wait=0s", `{"tool":"echo","arguments":{"text":"`+strings.Repeat("x", 1000)+`"}}`, "Idempotency-Key: "+key)
}

// untilRefused submits calls until one is refused, and returns the keys of those
// that were taken and the refusal.
func (d *door) untilRefused() (taken []string, refused answer) {
	d.t.Helper()
	for i := range 10_000 {
		key := fmt.Sprint("call-", i)
		a := d.post(key)
		if a.Status != http.StatusAccepted {
			return taken, a
		}
		taken = append(taken, key)
	}
	d.t.Fatal("the fleet takes everything")
	return nil, answer{}
}

// wantRetry checks that a refusal says why and when to come again.
func (d *door) wantRetry(a answer, status int, why string) {
	d.t.Helper()
	p := d.wantProblem(a, status)
	if after, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || after < 1 {
		d.t.Errorf("Retry-After is %q", a.Header.Get("Retry-After"))
	}
	if !strings.Contains(p.Detail, why) {
		d.t.Errorf("the detail %q does not say %q", p.Detail, why)
	}
}

// TestTooManyWaitingIs429: what one caller can mend by waiting a little. Calls
// that were taken are known, and are answered when somebody works.
func TestTooManyWaitingIs429(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("echo", nil))
	f.MaxWaiting = 5
	d := open(t, f)
	taken, refused := d.untilRefused()
	d.wantRetry(refused, http.StatusTooManyRequests, "As many calls wait")
	if len(taken) < f.MaxWaiting {
		t.Errorf("%d calls were taken", len(taken))
	}
	if a := d.post(taken[0]); a.Status != http.StatusAccepted {
		t.Errorf("a call that is known: %d %s", a.Status, a.Body)
	}
	// What is refused for itself is answered, not put off: it never waits.
	if a := d.do("POST", "/v1/calls", `{"tool":"nobody","arguments":{}}`); a.Status != http.StatusOK {
		t.Errorf("an unknown tool: %d %s", a.Status, a.Body)
	}
	f.Work(t, map[string]dispatchtest.Tool{"echo": echo})
	for _, key := range taken {
		d.call(http.StatusOK, "/v1/calls", `{"tool":"echo","arguments":{"text":"`+strings.Repeat("x", 1000)+`"}}`, "Idempotency-Key: "+key)
	}
}

// TestAFullQueueIs503: intake stops at 80 % of the queue's bytes, so that what was
// taken finds its place.
func TestAFullQueueIs503(t *testing.T) {
	f := dispatchtest.Alone(t, dispatchtest.Spec("echo", nil))
	var err error
	if f.Queue, err = queue.Open(t.Context(), natsdtest.JetStreamOn(t, f.NATS), queue.Options{MaxBytes: 4 << 20}); err != nil {
		t.Fatal(err)
	}
	d := open(t, f)
	taken, refused := d.untilRefused()
	d.wantRetry(refused, http.StatusServiceUnavailable, "store is nearly full")
	if a := d.post(taken[0]); a.Status != http.StatusAccepted {
		t.Errorf("a call that is known: %d %s", a.Status, a.Body)
	}
	// The answer may be a second old. Calls of that second that found the queue
	// full are the keeper's to queue, and there is none here.
	n := 0
	for n < len(taken)*3/4 && t.Context().Err() == nil {
		n = f.Queue.Room(t.Context()).Jobs
	}
	if n > len(taken) {
		t.Errorf("%d jobs of %d calls are queued", n, len(taken))
	}
}

// TestPain71AFullLog: above 80 % no new calls, above 90 % no progress, and the
// call that runs meanwhile still ends with its result.
func TestPain71AFullLog(t *testing.T) {
	const size = 2 << 20
	f := dispatchtest.Alone(t, dispatchtest.Spec("echo", nil), dispatchtest.Spec("hang", nil))
	var err error
	if f.Log, err = results.Open(t.Context(), natsdtest.JetStreamOn(t, f.NATS), results.Options{MaxBytes: size}); err != nil {
		t.Fatal(err)
	}
	dispatchtest.Go(t, f.Log.Run)
	f.Work(t, map[string]dispatchtest.Tool{"echo": echo, "hang": hang})
	d := open(t, f)
	running := d.call(http.StatusAccepted, "/v1/calls?wait=0s", `{"tool":"hang","arguments":{"text":"x"}}`)
	s := d.stream("GET", "/v1/calls/"+running.ID+"/events", "")
	s.until("ACTIVITY_DELTA") // it has said all that it says

	ref := results.Ref{Tenant: call.DefaultTenant, Key: call.Key(running.ID)}
	filler := agui.Custom{Name: "filler", Value: []byte(`"` + strings.Repeat("x", 8<<10) + `"`)}
	for err = nil; err == nil; {
		err = f.Log.Progress(t.Context(), ref, filler, false)
	}
	if !errors.Is(err, results.ErrFull) {
		t.Fatalf("progress: %v", err)
	}
	d.wantRetry(d.post("late"), http.StatusServiceUnavailable, "store is nearly full")
	if a := d.do("DELETE", "/v1/calls/"+running.ID, ""); a.Status != http.StatusAccepted && a.Status != http.StatusOK {
		t.Errorf("cancel: %d %s", a.Status, a.Body)
	}
	s.until("TOOL_CALL_RESULT")
	if b := decode[callBody](t, d.do("GET", "/v1/calls/"+running.ID, "").Body); b.Status != "cancelled" || b.text() == "" {
		t.Errorf("the running call is %s: %q", b.Status, b.text())
	}
}

// TestPain38TwoLimits: a call that fits into a request and not into a message of
// the server is refused with both numbers, and the connection bears it.
func TestPain38TwoLimits(t *testing.T) {
	const limit = 64 << 10
	f := dispatchtest.On(t, natsdtest.StartWith(t, natsd.Config{StoreDir: t.TempDir(), MaxPayload: limit}), dispatchtest.Spec("echo", nil))
	f.Work(t, map[string]dispatchtest.Tool{"echo": echo})
	d := open(t, f)
	a := d.do("POST", "/v1/calls", `{"tool":"echo","arguments":{"text":"`+strings.Repeat("x", limit)+`"}}`)
	if p := d.wantProblem(a, http.StatusRequestEntityTooLarge); !strings.Contains(p.Detail, fmt.Sprint(limit-1<<10)) || !strings.Contains(p.Detail, "max_payload") {
		t.Errorf("the detail is %q", p.Detail)
	}
	d.call(http.StatusOK, "/v1/calls", `{"tool":"echo","arguments":{"text":"small"}}`)
}
