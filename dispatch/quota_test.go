package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
)

// refusedFor is the sentence of the call's refusal, or "" when it was taken.
func refusedFor(t *testing.T, f *dispatchtest.Fleet, c call.Call) string {
	t.Helper()
	ticket := submit(t, f, c)
	st, err := f.Status(t.Context(), ticket.Ref)
	if err != nil {
		t.Fatal(err)
	}
	if st.Result == nil || st.Result.Kind() != call.KindQuotaExceeded {
		return ""
	}
	if st.Status != call.StatusRefused || !st.Result.Error.Retryable {
		t.Errorf("status %s, %+v", st.Status, st.Result.Error)
	}
	text, _ := agui.ContentOf(st.Result.Content).Flatten()
	return text
}

// until asks again with new calls until got is what is wanted: dispatchers know
// of each other's calls a moment late.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(what)
		}
	}
}

func TestQuotaOfCallsAMinute(t *testing.T) {
	f := dispatchtest.NewWithTenants(t, "default: {callsPerMinute: 5}\n", dispatchtest.Spec("echo", nil))
	first := newCall("echo", `{"text":"hi"}`, "c0")
	for i := range 5 {
		if text := refusedFor(t, f, newCall("echo", `{"text":"hi"}`, fmt.Sprint("c", i))); text != "" {
			t.Fatalf("call %d: %s", i, text)
		}
	}
	over := newCall("echo", `{"text":"hi"}`, "over")
	text := refusedFor(t, f, over)
	if !strings.Contains(text, "quota of 5 calls a minute") || !strings.Contains(text, "Make a new call in ") {
		t.Errorf("the sixth call: %q", text)
	}
	// The same calls again meet their logs, whatever of the quota is used.
	if again := submit(t, f, first); again.New {
		t.Error("a known call is new")
	}
	if again := submit(t, f, over); again.New {
		t.Error("a refused call is new")
	}
	first.Arguments = `{"text":"ho"}`
	if _, err := f.Submit(t.Context(), first); !errors.Is(err, dispatch.ErrConflict) {
		t.Errorf("other arguments over quota: %v", err)
	}
	// Another tenant has a quota of its own.
	other := newCall("echo", `{"text":"hi"}`, "c0")
	other.Tenant = "other"
	if text := refusedFor(t, f, other); text != "" {
		t.Errorf("another tenant: %s", text)
	}
	// Another dispatcher counts the same calls: from the history, and live.
	second := f.Second(t)
	until(t, "a second dispatcher does not know the first one's calls", func() bool {
		ids++
		return refusedFor(t, second, newCall("echo", `{"text":"hi"}`, fmt.Sprint("second", ids))) != ""
	})
}

// ids makes ids of calls that are tried until one is refused.
var ids int

// TestQuotaOfManySubmitsAtOnce: a dispatcher knows of its own calls at once, so
// exactly the quota is let in, however many come together.
func TestQuotaOfManySubmitsAtOnce(t *testing.T) {
	const quota, callers = 10, 40
	f := dispatchtest.NewWithTenants(t, fmt.Sprintf("default: {callsPerMinute: %d}\n", quota), dispatchtest.Spec("echo", nil))
	var in atomic.Int32
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			ticket, err := f.Submit(t.Context(), newCall("echo", `{"text":"hi"}`, fmt.Sprint("c", i)))
			if err != nil {
				t.Error(err)
				return
			}
			st, err := f.Status(t.Context(), ticket.Ref)
			if err != nil {
				t.Error(err)
			} else if st.Result == nil {
				in.Add(1)
			}
		})
	}
	wg.Wait()
	if in.Load() != quota {
		t.Errorf("%d calls were let in, and the quota is %d", in.Load(), quota)
	}
}

func TestQuotaOfWaitingCalls(t *testing.T) {
	f := dispatchtest.NewWithTenants(t, "default: {maxWaiting: 2}\n", dispatchtest.Spec("echo", nil))
	for i := range 2 {
		if text := refusedFor(t, f, newCall("echo", `{"text":"hi"}`, fmt.Sprint("c", i))); text != "" {
			t.Fatalf("call %d: %s", i, text)
		}
	}
	if text := refusedFor(t, f, newCall("echo", `{"text":"hi"}`, "c2")); !strings.Contains(text, "no more than 2 wait") {
		t.Errorf("the third call: %q", text)
	}
	f.Work(t, map[string]dispatchtest.Tool{"echo": echo})
	until(t, "calls that began are still counted as waiting", func() bool {
		ids++
		return refusedFor(t, f, newCall("echo", `{"text":"hi"}`, fmt.Sprint("later", ids))) == ""
	})
}

func TestQuotaOfBlobBytes(t *testing.T) {
	f := dispatchtest.NewWithTenants(t, "default: {blobBytes: 600Ki}\n", dispatchtest.Spec("echo", nil))
	long := `{"text":"` + strings.Repeat("x", 400<<10) + `"}`
	if text := refusedFor(t, f, newCall("echo", long, "c0")); text != "" {
		t.Fatal(text)
	}
	// Its bytes are known when they come back from the store.
	until(t, "blobs are not counted", func() bool { return f.Quotas.Held(call.DefaultTenant) > 0 })
	text := refusedFor(t, f, newCall("echo", long, "c1"))
	if !strings.Contains(text, "is 600Ki") || !strings.Contains(text, "401Ki of it are in use") || !strings.Contains(text, "in 192 hours") {
		t.Errorf("a second long call: %q", text)
	}
	if held := f.Quotas.Held(call.DefaultTenant); held != int64(len(long)) {
		t.Errorf("%d bytes are held: a refused call left a blob", held)
	}
	if text := refusedFor(t, f, newCall("echo", `{"text":"short"}`, "c2")); text != "" {
		t.Errorf("a short call within the quota: %s", text)
	}
	huge := `{"text":"` + strings.Repeat("x", 700<<10) + `"}`
	if text := refusedFor(t, f, newCall("echo", huge, "c3")); !strings.Contains(text, "shorter") {
		t.Errorf("a call that can never fit: %q", text)
	}
	// What is refused for another reason is not asked for its bytes, and has none.
	submit(t, f, newCall("unknown", long, "c4"))
	id := blob.ID{Tenant: call.DefaultTenant, Key: newCall("unknown", long, "c4").Key()}
	if _, err := f.Blobs.Stat(t.Context(), id); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("a call of a tool that is not there left its arguments: %v", err)
	}
}

// A tenant that goes on calling in spite of every refusal does not fill the log
// of the others: after enough of them it is not answered there any more.
func TestRefusalsDoNotFillTheLog(t *testing.T) {
	f := dispatchtest.NewWithTenants(t, "default: {callsPerMinute: 1}\ntenants: {free: {callsPerMinute: 0}}\n", dispatchtest.Spec("echo", nil),
		dispatchtest.Spec("consent", func(s *catalog.Spec) { s.Approval = catalog.ApprovalRequired }))
	known := newCall("consent", `{"text":"hi"}`, "known")
	submit(t, f, known)
	var err error
	refused := 0
	for ; refused < 1000; refused++ {
		if _, err = f.Submit(t.Context(), newCall("consent", `{"text":"hi"}`, fmt.Sprint("c", refused))); err != nil {
			break
		}
	}
	if !errors.Is(err, dispatch.ErrFlood) || dispatch.RetryAfter(err) <= 0 || dispatch.RetryAfter(err) > 61*time.Second {
		t.Fatalf("after %d refusals: %v, again in %s", refused, err, dispatch.RetryAfter(err))
	}
	if refused < 59 {
		t.Errorf("only %d refusals were answered", refused)
	}
	// Neither a known call nor one that may run is kept out.
	if again := submit(t, f, known); again.New {
		t.Error("a known call is new")
	}
	if text := refusedFor(t, f, newCall("echo", `{"text":"hi"}`, "in")); text != "" {
		t.Errorf("refusals were counted as calls: %s", text)
	}
	if _, err := f.Submit(t.Context(), newCall("echo", `{"text":"hi"}`, "over")); !errors.Is(err, dispatch.ErrFlood) {
		t.Errorf("a call over quota: %v", err)
	}
	free := newCall("consent", `{"text":"hi"}`, "c")
	free.Tenant = "free"
	if _, err := f.Submit(t.Context(), free); err != nil {
		t.Errorf("another tenant: %v", err)
	}
}
