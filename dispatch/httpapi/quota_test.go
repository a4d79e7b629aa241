package httpapi_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
)

// A call over its tenant's quota is answered like any other, with an error
// result; only a client that goes on and on is turned away at the door.
func TestQuotaIsAnAnswerAndAFloodIsNot(t *testing.T) {
	f := dispatchtest.NewWithTenants(t, "default: {callsPerMinute: 1}\n", dispatchtest.Spec("echo", nil))
	f.Work(t, map[string]dispatchtest.Tool{"echo": echo})
	d := open(t, f)
	const body = `{"tool":"echo","arguments":{"text":"hi"}}`
	d.call(http.StatusOK, "/v1/calls", body, "Idempotency-Key: first")
	over := d.call(http.StatusOK, "/v1/calls", body, "Idempotency-Key: over")
	if over.Status != "refused" || !strings.Contains(over.text(), "1 calls a minute") {
		t.Errorf("%s: %s", over.Status, over.text())
	}
	var a answer
	for i := 0; i < 1000 && a.Status != http.StatusTooManyRequests; i++ {
		a = d.do(http.MethodPost, "/v1/calls", body, fmt.Sprint("Idempotency-Key: k", i))
	}
	d.wantProblem(a, http.StatusTooManyRequests)
	if after, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || after < 1 || after > 61 {
		t.Errorf("Retry-After: %q", a.Header.Get("Retry-After"))
	}
	// What is known is answered all the same.
	for key, status := range map[string]string{"first": "succeeded", "over": "refused"} {
		if got := d.call(http.StatusOK, "/v1/calls", body, "Idempotency-Key: "+key); got.Status != status {
			t.Errorf("%s: %s", key, got.Status)
		}
	}
	d.wantProblem(d.do(http.MethodPost, "/v1/calls", `{"tool":"echo","arguments":{"text":"ho"}}`, "Idempotency-Key: first"), http.StatusConflict)
}
