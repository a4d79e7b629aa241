package aguidoor_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
)

// A call over its tenant's quota is answered in the run, which goes on; a run
// whose calls are one refusal too many is turned away while there is no stream.
func TestQuotaIsAnAnswerAndAFloodIsNot(t *testing.T) {
	f := dispatchtest.NewWithTenants(t, "default: {callsPerMinute: 1}\n", dispatchtest.Spec("echo", nil))
	f.Work(t, map[string]dispatchtest.Tool{"echo": echo})
	d := open(t, f)
	d.runs(direct, input("t", "r1", user("hi"), asks("m1", `c1 echo {"text":"a"}`)))
	s := d.runs(direct, input("t", "r2", user("hi"), asks("m2", `c2 echo {"text":"a"}`)))
	if r := s.result("c2"); kind(t, r) != call.KindQuotaExceeded || !strings.Contains(s.text("c2"), "1 calls a minute") {
		t.Errorf("%s: %s", kind(t, r), s.text("c2"))
	}
	var a answer
	for i := 0; i < 1000 && a.Status != http.StatusTooManyRequests; i++ {
		a = d.do(http.MethodPost, direct, fmt.Sprintf(`{"threadId":"t","runId":"flood%d","messages":[{"id":"x%d","role":"assistant","toolCalls":[{"id":"y%d","type":"function","function":{"name":"echo","arguments":"{}"}}]}]}`, i, i, i))
	}
	if a.Status != http.StatusTooManyRequests || a.Header.Get("Retry-After") == "" {
		t.Errorf("%d %v %s", a.Status, a.Header, a.Body)
	}
}
