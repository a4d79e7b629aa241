package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
	"github.com/toolfleet/toolfleet/sandbox"
)

func TestOneDeliveryOneResult(t *testing.T) {
	h := newHouse(t)
	h.quiet = time.Hour
	job := h.admit(`cat; echo " $TOOLFLEET_TOOL"`)
	r := h.run(job)
	wantKind(t, r, "")
	if got, want := words(t, r), "{\"a\":1} sh\n"; got != want {
		t.Errorf("the result is %q, want %q", got, want)
	}
	x := r.Execution
	if x == nil || x.Attempt != 1 || x.Runtime != "local" || x.Sandbox == "" {
		t.Errorf("the execution is %+v", x)
	}
	if got, want := h.kinds(job), "admit claim start result"; got != want {
		t.Errorf("the log is %q, want %q", got, want)
	}
	if err := h.deliver(t.Context(), job); err != nil {
		t.Errorf("a redelivery after the result: %v", err)
	}
	if n := h.pool.started.Load(); n != 1 {
		t.Errorf("%d sandboxes were started, want 1", n)
	}
}

// A call costs the log what somebody may need to know of it, and no more.
func TestEntriesOfACall(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		warm         bool
		quiet        time.Duration
		want         string
	}{
		{"warm", "echo done", true, time.Hour, "admit start result"},
		{"cold", "echo done", false, time.Hour, "admit claim start result"},
		{"it said something", "echo so >&2", true, time.Hour, "admit start state result"},
		{"it takes its time", "sleep 0.2", true, time.Millisecond, "admit start state result"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t)
			h.pool.warm, h.quiet = tt.warm, tt.quiet
			job := h.admit(tt.script)
			wantKind(t, h.run(job), "")
			// Whether the last word goes out before the end or with it is luck.
			if got := strings.ReplaceAll(h.kinds(job), "state state", "state"); got != tt.want {
				t.Errorf("the log is %q, want %q", got, tt.want)
			}
			if s := h.state(job); s.Claims != 1 || s.ClaimedBy != h.Self {
				t.Errorf("attempts are %+v, want one by this worker", s.Attempts)
			}
		})
	}
}

// Starts count as attempts, so a call that kills every worker with a warm
// sandbox is given up as well.
func TestStartsAreCounted(t *testing.T) {
	h := newHouse(t)
	h.pool.warm = true
	job := h.admit("echo ran", idempotent)
	for n := 1; n <= call.MaxAttempts; n++ {
		m := results.Marker{Worker: results.Worker{ID: "w-x", Incarnation: "1"}, Attempt: n}
		won, _, err := h.Log.Start(t.Context(), ref(job), m)
		if err == nil && !won {
			err = h.Log.StartAgain(t.Context(), ref(job), m)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	wantKind(t, h.run(job), call.KindSandboxFailed)
	if h.pool.started.Load() != 0 {
		t.Error("a call that kills its workers was run once more")
	}
}

// TestAFreshCallThatWasTouched: a consumer that has lost its state, or was
// rebuilt, delivers for the first time what others have had. The attempts before
// count all the same.
func TestAFreshCallThatWasTouched(t *testing.T) {
	other := results.Worker{ID: "w-other", Incarnation: "9"}
	for _, warm := range []bool{true, false} {
		h := newHouse(t)
		h.pool.warm = warm
		h.listen()
		job := h.admit("echo ran", idempotent)
		if !warm {
			if err := h.Log.Claim(t.Context(), ref(job), other, 1); err != nil {
				t.Fatal(err)
			}
		} else if won, _, err := h.Log.Start(t.Context(), ref(job), results.Marker{Worker: other, Attempt: 1}); !won || err != nil {
			t.Fatal(won, err)
		}
		first := h.attempt(job)
		first.first = true
		if err := first.handle(t.Context()); !errors.Is(err, errTouched) {
			t.Errorf("warm %v: the first delivery: %v", warm, err)
		}
		if r := h.run(job); r.Execution.Attempt != 2 {
			t.Errorf("warm %v: attempt is %d, want 2", warm, r.Execution.Attempt)
		}
	}
}

// TestDiesWorkerBeforeItsResult: the start fence decides what the redelivery does.
func TestDiesWorkerBeforeItsResult(t *testing.T) {
	other := results.Worker{ID: "w-other", Incarnation: "9"}
	for _, tt := range []struct {
		name   string
		change func(*catalog.Job)
		marker results.Marker
		alive  bool
		kind   call.Kind
		back   bool
	}{
		{"idempotent, runs again", idempotent, results.Marker{Worker: other, Attempt: 1}, false, "", false},
		{"not idempotent, the worker is dead", nil, results.Marker{Worker: other, Attempt: 1}, false, call.KindInterrupted, false},
		{"not idempotent, the worker lives", nil, results.Marker{Worker: other, Attempt: 1}, true, "", true},
		{"not idempotent, our own start that nobody runs", nil, results.Marker{Worker: results.Worker{ID: "w-test", Incarnation: "1"}, Attempt: 1}, true, call.KindInterrupted, false},
		{"somebody is ending it", nil, results.Marker{Worker: other, Void: true}, false, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t)
			h.alive.Store(tt.alive)
			var changes []func(*catalog.Job)
			if tt.change != nil {
				changes = append(changes, tt.change)
			}
			job := h.admit("echo ran", changes...)
			if err := h.Log.Claim(t.Context(), ref(job), other, 1); err != nil {
				t.Fatal(err)
			}
			if won, _, err := h.Log.Start(t.Context(), ref(job), tt.marker); !won || err != nil {
				t.Fatal(won, err)
			}
			err := h.deliver(t.Context(), job)
			if tt.back {
				if !errors.As(err, new(*errGiveBack)) || h.state(job).Result != nil {
					t.Errorf("want it given back, got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			r := h.result(job)
			wantKind(t, r, tt.kind)
			if ran := h.pool.started.Load() == 1; ran != (tt.kind == "") {
				t.Errorf("ran is %v", ran)
			}
			if tt.kind == "" && r.Execution.Attempt != 2 {
				t.Errorf("attempt is %d, want 2", r.Execution.Attempt)
			}
		})
	}
}

func TestSpentAttempts(t *testing.T) {
	h := newHouse(t)
	job := h.admit("echo ran", idempotent)
	for n := 1; n <= call.MaxAttempts; n++ {
		if err := h.Log.Claim(t.Context(), ref(job), results.Worker{ID: "w-x", Incarnation: "1"}, n); err != nil {
			t.Fatal(err)
		}
	}
	wantKind(t, h.run(job), call.KindSandboxFailed)
	if h.pool.started.Load() != 0 {
		t.Error("a call that kills its workers was run once more")
	}
}

func imageFault(f sandbox.ImageFault) error {
	return fmt.Errorf("start: %w", &sandbox.ImageError{Image: "registry.example.com/x:1", Fault: f, Detail: "secret"})
}

func TestOurFailureIsTriedAgainThenAnswered(t *testing.T) {
	for _, tt := range []struct {
		err  error
		kind call.Kind
		says string
	}{
		{sandbox.ErrImage, call.KindImageUnavailable, "is missing, forbidden or cannot be reached"},
		{imageFault(sandbox.ImageAbsent), call.KindImageUnavailable, "is not in the worker's store"},
		{imageFault(sandbox.ImageNotFound), call.KindImageUnavailable, "is not found"},
		{imageFault(sandbox.ImageForbidden), call.KindImageUnavailable, "is not allowed"},
		{imageFault(sandbox.ImageUnreachable), call.KindImageUnavailable, "is not reachable"},
		{imageFault(sandbox.ImagePending), call.KindImageUnavailable, "is still being pulled"},
		{imageFault(sandbox.ImagePlatform), call.KindImageUnavailable, "another operating system or CPU"},
		{imageFault(sandbox.ImageCorrupt), call.KindImageUnavailable, "is damaged"},
		{errors.New("some secret path"), call.KindSandboxFailed, "its sandbox could not be made"},
	} {
		h := newHouse(t)
		h.pool.err = tt.err
		job := h.admit("echo ran")
		var last time.Duration
		for range call.MaxAttempts - 1 {
			var back *errGiveBack
			if err := h.deliver(t.Context(), job); !errors.As(err, &back) || back.after <= last {
				t.Fatalf("want it given back for longer than %s, got %+v", last, back)
			}
			last = back.after
		}
		r := h.run(job)
		wantKind(t, r, tt.kind)
		if got := words(t, r); strings.Contains(got, "secret") || !strings.Contains(got, tt.says) {
			t.Errorf("a model reads %q; want %q, and no chain of errors", got, tt.says)
		}
	}
}

// TestPain97PullIsNotInTheCallsTime: a start may take as long as a pull does, and
// the tool then has all of its time.
func TestPain97PullIsNotInTheCallsTime(t *testing.T) {
	h := newHouse(t)
	job := h.admit("echo ran")
	job.Spec.Limits.Timeout = catalog.Duration(time.Second)
	var left time.Duration
	h.pool.taking = func(ctx context.Context) {
		until, _ := ctx.Deadline()
		left = time.Until(until)
	}
	if r := h.run(job); r.IsError {
		t.Error(words(t, r))
	}
	if left < time.Minute {
		t.Errorf("a call of 1 s gives its start %s", left)
	}
}

func TestCancel(t *testing.T) {
	h := newHouse(t)
	job := h.admit("echo before; sleep 600")
	done := make(chan error, 1)
	go func() { done <- h.deliver(t.Context(), job) }()
	h.until(job, running)
	if err := h.Log.Cancel(t.Context(), ref(job), "not needed any more"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r := h.result(job)
	wantKind(t, r, call.KindCancelled)
	if r.Status() != call.StatusCancelled {
		t.Errorf("status is %q", r.Status())
	}

	waiting := h.admit("echo ran")
	if err := h.Log.Cancel(t.Context(), ref(waiting), "changed my mind"); err != nil {
		t.Fatal(err)
	}
	r = h.run(waiting)
	wantKind(t, r, call.KindCancelled)
	if !strings.Contains(words(t, r), "changed my mind") || h.pool.started.Load() != 1 {
		t.Errorf("%s; %d sandboxes", words(t, r), h.pool.started.Load())
	}
}

// TestPain24TheDeadlineIsTheWorkers: there is nobody but the worker here, and the
// call ends in time.
func TestPain24TheDeadlineIsTheWorkers(t *testing.T) {
	h := newHouse(t)
	job := h.admit("echo so far; sleep 600", func(j *catalog.Job) { j.Call.Timeout = 300 * time.Millisecond })
	r := h.run(job)
	wantKind(t, r, call.KindTimeout)
	if s := words(t, r); !strings.HasPrefix(s, "so far\n") || !strings.Contains(s, "300ms") {
		t.Errorf("the result says %q", s)
	}
}

// TestDiesBySIGTERM: a run that a drain cuts short is given back where it may be
// repeated, at once, and answered where not.
func TestDiesBySIGTERM(t *testing.T) {
	for _, again := range []bool{true, false} {
		h := newHouse(t)
		var changes []func(*catalog.Job)
		if again {
			changes = append(changes, idempotent)
		}
		job := h.admit("sleep 600", changes...)
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.deliver(ctx, job) }()
		h.until(job, running)
		cancel(queue.ErrDraining)
		err := <-done
		if again {
			var back *errGiveBack
			if !errors.Is(err, queue.ErrDraining) || !errors.As(err, &back) || back.after != 0 || h.state(job).Result != nil {
				t.Errorf("want it given back, got %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		wantKind(t, h.result(job), call.KindInterrupted)
	}
}

// TestLate has another worker publish the result while the tool runs: this
// one hears of it at its next progress and stops, without a word.
func TestLate(t *testing.T) {
	h := newHouse(t)
	job := h.admit("while :; do echo tick >&2; sleep 0.05; done")
	done := make(chan error, 1)
	go func() { done <- h.deliver(t.Context(), job) }()
	h.until(job, running)
	if won, err := h.Log.Finish(t.Context(), ref(job), job.Call.ToolCallID, call.Interrupted("the test says so")); !won || err != nil {
		t.Fatal(won, err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wantKind(t, h.result(job), call.KindInterrupted)
}

func TestExpiredBeforeItsStart(t *testing.T) {
	h := newHouse(t)
	job := h.admit("echo ran", func(j *catalog.Job) { j.Expires = time.Now().Add(-time.Second) })
	wantKind(t, h.run(job), call.KindExpired)
	if h.pool.started.Load() != 0 {
		t.Error("an expired call was run")
	}
}

// TestPain42ArgumentsAtTheCap passes 1 MiB of arguments, which are too long to
// travel inline, to tools that read all, some or none of them.
func TestPain42ArgumentsAtTheCap(t *testing.T) {
	args := `{"text":"` + strings.Repeat("x", call.MaxArguments-11) + `"}`
	for script, want := range map[string]string{
		"wc -c | tr -d ' \n'":           "1048576",
		"head -c 9":                     `{"text":"`,
		"exec <&-; printf closed":       "closed",
		"printf unread":                 "unread",
		"head -c 70000 | wc -c; exit 0": "70000\n",
	} {
		h := newHouse(t)
		job := h.admit(script, func(j *catalog.Job) {
			id := blob.ID{Tenant: j.Call.Tenant, Key: j.Call.Key()}
			if _, err := h.Blobs.Put(t.Context(), id, "application/json", []byte(args)); err != nil {
				t.Fatal(err)
			}
			j.Call.Arguments, j.Call.ArgumentsBlob, j.Call.ArgumentsDigest = "", id.String(), call.Digest(args)
		})
		r := h.run(job)
		wantKind(t, r, "")
		if got := words(t, r); got != want {
			t.Errorf("%s: the tool said %q, want %q", script, got, want)
		}
	}
}

// TestLostArguments: a call whose arguments are gone is answered as a fault of
// ours after its attempts, and not tried for as long as it may wait.
func TestLostArguments(t *testing.T) {
	h := newHouse(t)
	job := h.admit("echo ran", func(j *catalog.Job) {
		j.Call.Arguments, j.Call.ArgumentsBlob = "", blob.ID{Tenant: j.Call.Tenant, Key: j.Call.Key()}.String()
	})
	for range call.MaxAttempts - 1 {
		if err := h.deliver(t.Context(), job); !errors.As(err, new(*errGiveBack)) {
			t.Fatalf("want it given back, got %v", err)
		}
	}
	wantKind(t, h.run(job), call.KindInternal)
	if h.pool.started.Load() != 0 {
		t.Error("a call without its arguments was run")
	}
}

// TestPain37LargeOutputStillAnswers has a tool write more than an event, or a
// message, can hold: its result keeps the head and a document with the whole.
func TestPain37LargeOutputStillAnswers(t *testing.T) {
	h := newHouse(t)
	job := h.admit(`head -c 5000000 /dev/zero | tr '\0' '<'`, func(j *catalog.Job) { j.Spec.Limits.Output = 8 << 20 })
	r := h.run(job)
	wantKind(t, r, "")
	if len(r.Content) != 2 || r.Content[1].Type != agui.PartDocument {
		t.Fatalf("the result has %d parts", len(r.Content))
	}
	a := h.attempt(job)
	whole, err := a.fetch(t.Context(), r.Content[1].Source.Value, 8<<20, "")
	if err != nil || len(whole) != 5000000 || !strings.HasPrefix(string(whole), r.Content[0].Text) {
		t.Errorf("the blob has %d bytes, the head %d: %v", len(whole), len(r.Content[0].Text), err)
	}
}

// TestEveryResultFitsAnEvent: whatever a tool answers, the log takes it.
func TestEveryResultFitsAnEvent(t *testing.T) {
	h := newHouse(t)
	image := agui.Media(agui.PartImage, agui.Source{Type: agui.SourceData, Value: "AAAA", MimeType: "image/png"})
	with := func(p agui.Part, change func(*agui.Part)) agui.Part {
		if p.Source != nil {
			source := *p.Source
			p.Source = &source
		}
		change(&p)
		return p
	}
	long := strings.Repeat("<", 200<<10)
	for name, parts := range map[string][]agui.Part{
		"large texts":     slices.Repeat([]agui.Part{agui.Text(strings.Repeat("é\"", 30<<10))}, 64),
		"escaped texts":   slices.Repeat([]agui.Part{agui.Text(strings.Repeat("\x01", 40<<10))}, 64),
		"many texts":      slices.Repeat([]agui.Part{agui.Text("x")}, 20_000),
		"many images":     slices.Repeat([]agui.Part{image}, 10_000),
		"a long id":       {with(agui.Text("x"), func(p *agui.Part) { p.ID = long })},
		"long metadata":   {with(agui.Text("x"), func(p *agui.Part) { p.Metadata = json.RawMessage(`"` + long + `"`) })},
		"a long type":     {with(image, func(p *agui.Part) { p.Source.MimeType = long })},
		"long everywhere": {with(image, func(p *agui.Part) { p.ID, p.Metadata, p.Source.MimeType = long, json.RawMessage(`"`+long+`"`), long })},
	} {
		t.Run(name, func(t *testing.T) {
			job := h.admit("true")
			r := h.attempt(job).fit(t.Context(), call.Result{Content: parts, Extra: parts})
			data, err := agui.Encode(r.Event(job.Call.Key(), job.Call.ToolCallID))
			if err != nil || len(data) > blob.InlineEvent {
				t.Errorf("the event has %d bytes: %v", len(data), err)
			}
			if r.Content == nil {
				t.Error("nothing is left of the result")
			}
		})
	}
}

// TestTheRestOfAResult is in one document, in order.
func TestTheRestOfAResult(t *testing.T) {
	h := newHouse(t)
	job := h.admit("true")
	var parts []agui.Part
	for i := range 20_000 {
		parts = append(parts, agui.Text(strconv.Itoa(i)))
	}
	a := h.attempt(job)
	got := a.fit(t.Context(), call.Result{Content: parts}).Content
	rest := got[len(got)-1]
	if rest.Type != agui.PartDocument || rest.Source.MimeType != "application/json" {
		t.Fatalf("the last of %d parts is %+v", len(got), rest)
	}
	data, err := a.fetch(t.Context(), rest.Source.Value, 8<<20, "")
	if err != nil {
		t.Fatal(err)
	}
	var more []agui.Part
	if err := json.Unmarshal(data, &more); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(parts, append(slices.Clone(got[:len(got)-1]), more...)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestSandboxLostBeforeTheTool kills the agent of the first sandbox while
// nobody looks: the call is run in the next one, also when its tool may not be
// repeated.
func TestSandboxLostBeforeTheTool(t *testing.T) {
	h := newHouse(t)
	h.pool.spoil.Store(1)
	job := h.admit("echo ran")
	r := h.run(job)
	wantKind(t, r, "")
	if n := h.pool.started.Load(); n != 2 {
		t.Errorf("%d sandboxes were started, want 2", n)
	}
}
