package results_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"github.com/toolfleet/toolfleet/internal/natsd"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/results"
)

// truth reads what is in the stream for one log, behind after: from its leader,
// since the client library asks any replica, which may lag.
func truth(t require, js jetstream.JetStream, ref results.Ref, after uint64) []uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
	defer cancel()
	var seqs []uint64
	for {
		question := fmt.Sprintf(`{"seq": %d, "next_by_subj": "toolfleet.events.%s.%s.*"}`, after+1, ref.Tenant, ref.Key)
		msg, err := js.Conn().RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+results.Stream, []byte(question))
		if err != nil {
			t.Fatalf("%v", err)
		}
		var answer struct {
			Error   *jetstream.APIError
			Message struct{ Seq uint64 }
		}
		switch err := json.Unmarshal(msg.Data, &answer); {
		case err != nil:
			t.Fatalf("%v", err)
		case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
			return seqs
		case answer.Error != nil:
			t.Fatalf("%v", answer.Error)
		}
		after = answer.Message.Seq
		seqs = append(seqs, after)
	}
}

// require is what a test and a property have in common.
type require interface {
	Helper()
	Fatalf(format string, args ...any)
	Context() context.Context
}

func seqs(entries []results.Entry) []uint64 {
	var s []uint64
	for _, e := range entries {
		s = append(s, e.Seq)
	}
	return s
}

func TestASlowFollowerMissesNothing(t *testing.T) {
	js := natsdtest.JetStream(t)
	l := open(t, js, results.Options{})
	ref, seq := admit(t, l, "c")
	slow, err := l.Follow(t.Context(), ref, seq)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Stop()
	fast := make(chan []results.Entry, 1)
	go func() { fast <- readAll(t, l, ref, seq) }()
	for i := range 1000 { // many times what a buffer takes
		if err := l.Progress(t.Context(), ref, progress(i), false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Finish(t.Context(), ref, "c", success("")); err != nil {
		t.Fatal(err)
	}
	want := truth(t, js, ref, seq)
	if diff := cmp.Diff(want, seqs(<-fast)); diff != "" {
		t.Errorf("the fast one: %s", diff)
	}
	if diff := cmp.Diff(want, seqs(drain(t, slow))); diff != "" {
		t.Errorf("the slow one: %s", diff)
	}
}

// TestFollowWithoutRun sees a follower get everything although nobody runs the
// shared follower, or one that does not follow everything.
func TestFollowWithoutRun(t *testing.T) {
	js := natsdtest.JetStream(t)
	writer := open(t, js, results.Options{})
	idle, err := results.Open(t.Context(), js, results.Options{})
	if err != nil {
		t.Fatal(err)
	}
	stopped, err := results.Open(t.Context(), js, results.Options{})
	if err != nil {
		t.Fatal(err)
	}
	run(t, stopped)()
	for name, l := range map[string]*results.Log{
		"never run": idle, "run no more": stopped, "follows cancels": open(t, js, results.Options{Kinds: []string{results.KindCancel}}),
	} {
		t.Run(name, func(t *testing.T) {
			ref, seq := admit(t, writer, name)
			f, err := l.Follow(t.Context(), ref, seq)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Stop()
			if err := writer.Cancel(t.Context(), ref, ""); err != nil {
				t.Fatal(err)
			}
			if e, err := f.Next(t.Context()); err != nil || e.Kind != results.KindCancel {
				t.Fatalf("%s, %v", e.Kind, err)
			}
			if _, err := writer.Finish(t.Context(), ref, "c", success("")); err != nil {
				t.Fatal(err)
			}
			if got := kinds(drain(t, f)); len(got) != 1 {
				t.Errorf("then %v", got)
			}
		})
	}
}

func TestNextEndsWithItsContext(t *testing.T) {
	l := open(t, natsdtest.JetStream(t), results.Options{})
	ref, seq := admit(t, l, "c")
	f, err := l.Follow(t.Context(), ref, seq)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Stop()
	why := errors.New("the client left")
	ctx, cancel := context.WithCancelCause(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := f.Next(ctx)
		got <- err
	}()
	cancel(why)
	if err := <-got; !errors.Is(err, why) {
		t.Errorf("err = %v", err)
	}
}

func TestCancelled(t *testing.T) {
	js := natsdtest.JetStream(t)
	dispatcher := open(t, js, results.Options{})
	worker := open(t, js, results.Options{Kinds: []string{results.KindCancel}})
	ref, _ := admit(t, dispatcher, "c")
	other, _ := admit(t, dispatcher, "other")
	ch, stop := worker.Cancelled(ref)
	defer stop()
	second, stopSecond := worker.Cancelled(ref)
	defer stopSecond()
	never, stopNever := worker.Cancelled(other)
	defer stopNever()
	for range 2 {
		if err := dispatcher.Cancel(t.Context(), ref, "why"); err != nil {
			t.Fatal(err)
		}
	}
	<-ch
	<-second
	select {
	case <-never:
		t.Error("another call was cancelled, too")
	default:
	}
	if _, err := worker.List(t.Context(), "default", results.ListOptions{}); err == nil {
		t.Error("a worker has a list")
	}
}

// TestACancelBeforeRun is not missed: Run begins where the log was opened.
func TestACancelBeforeRun(t *testing.T) {
	js := natsdtest.JetStream(t)
	worker, err := results.Open(t.Context(), js, results.Options{Kinds: []string{results.KindCancel}})
	if err != nil {
		t.Fatal(err)
	}
	ref, _ := admit(t, worker, "c")
	ch, stop := worker.Cancelled(ref)
	defer stop()
	if err := worker.Cancel(t.Context(), ref, ""); err != nil {
		t.Fatal(err)
	}
	run(t, worker)
	<-ch
}

// TestAFollowerSurvivesARestart of the NATS server.
func TestAFollowerSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	s := natsdtest.StartWith(t, natsd.Config{StoreDir: dir, Port: natsd.RandomPort})
	nc, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	l := open(t, js, results.Options{})
	ref, seq := admit(t, l, "c")
	all := make(chan []results.Entry, 1)
	go func() { all <- readAll(t, l, ref, seq) }()
	for round := range 3 {
		if err := l.Progress(t.Context(), ref, progress(round), false); err != nil {
			t.Fatal(err)
		}
		var port int
		addr := nc.ConnectedAddr()
		if _, err := fmt.Sscanf(addr[strings.LastIndexByte(addr, ':'):], ":%d", &port); err != nil {
			t.Fatal(err)
		}
		s.Shutdown()
		appended := make(chan error, 1)
		go func() { appended <- l.Claim(t.Context(), ref, results.Worker{}, round+1) }() // waits for the server
		s = natsdtest.StartWith(t, natsd.Config{StoreDir: dir, Port: port})
		if err := <-appended; err != nil {
			t.Fatal(err)
		}
	}
	if won, err := l.Finish(t.Context(), ref, "c", success("")); !won || err != nil {
		t.Fatal(won, err)
	}
	if diff := cmp.Diff(truth(t, js, ref, seq), seqs(<-all)); diff != "" {
		t.Error(diff)
	}
}

// Each case is a stream, followers and some thousand messages: a quarter of
// the usual number of cases, unless the command line says otherwise.
func init() { _ = flag.Set("rapid.checks", "25") }

// TestAnyInterleavingIsGapless lets writers, followers that begin and resume
// anywhere, and the shared follower itself come and go in any order. Whatever
// happens, a follower yields exactly what the stream holds behind its start.
func TestAnyInterleavingIsGapless(t *testing.T) {
	js := natsdtest.JetStream(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		h := newInterleaving(rt, t, js, fmt.Sprint("case", n))
		rt.Repeat(map[string]func(*rapid.T){
			"append": h.append,
			"follow": h.follow,
			"read":   h.read,
			"run":    h.toggle,
			"":       func(*rapid.T) {},
		})
		h.finish(rt)
	})
}

type interleaving struct {
	js    jetstream.JetStream
	l     *results.Log
	refs  []results.Ref
	seqs  map[results.Ref][]uint64 // what the stream holds
	fs    []*following
	stop  func()
	wrote int
}

// following is a follower and what it yielded.
type following struct {
	f     *results.Follower
	ref   results.Ref
	after uint64
	got   []uint64
	ended bool
}

func newInterleaving(rt *rapid.T, t *testing.T, js jetstream.JetStream, id string) *interleaving {
	l, err := results.Open(t.Context(), js, results.Options{})
	if err != nil {
		rt.Fatal(err)
	}
	results.SetPoll(l, time.Millisecond)
	h := &interleaving{js: js, l: l, seqs: map[results.Ref][]uint64{}}
	for i := range 3 {
		j := job(fmt.Sprint(id, "-", i))
		if _, err := l.Admit(t.Context(), j); err != nil {
			rt.Fatal(err)
		}
		h.refs = append(h.refs, refOf(j))
		h.learn(rt, refOf(j))
	}
	return h
}

// learn reads what was appended to a log.
func (h *interleaving) learn(rt *rapid.T, ref results.Ref) {
	known := h.seqs[ref]
	var last uint64
	if len(known) > 0 {
		last = known[len(known)-1]
	}
	h.seqs[ref] = append(known, truth(rt, h.js, ref, last)...)
}

// behind is what the stream holds of a log behind a sequence.
func (h *interleaving) behind(ref results.Ref, after uint64) []uint64 {
	i, _ := slices.BinarySearch(h.seqs[ref], after+1)
	return h.seqs[ref][i:]
}

func (h *interleaving) append(rt *rapid.T) {
	ref := rapid.SampledFrom(h.refs).Draw(rt, "log")
	for range rapid.SampledFrom([]int{1, 1, 3, 10, 100}).Draw(rt, "entries") { // a buffer takes 64
		h.wrote++
		if err := h.l.Progress(rt.Context(), ref, progress(h.wrote), false); err != nil {
			rt.Fatal(err)
		}
	}
	h.learn(rt, ref)
}

func (h *interleaving) follow(rt *rapid.T) {
	ref := rapid.SampledFrom(h.refs).Draw(rt, "log")
	after := rapid.SampledFrom(append([]uint64{0}, h.seqs[ref]...)).Draw(rt, "after")
	f, err := h.l.Follow(rt.Context(), ref, after)
	if err != nil {
		rt.Fatal(err)
	}
	h.fs = append(h.fs, &following{f: f, ref: ref, after: after})
}

func (h *interleaving) read(rt *rapid.T) {
	if len(h.fs) == 0 {
		rt.Skip("no follower")
	}
	f := rapid.SampledFrom(h.fs).Draw(rt, "follower")
	most := len(h.behind(f.ref, f.after)) - len(f.got)
	if most == 0 {
		return
	}
	for range rapid.IntRange(1, most).Draw(rt, "reads") {
		f.next(rt)
	}
}

func (f *following) next(rt *rapid.T) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(rt.Context()), 20*time.Second)
	defer cancel()
	switch e, err := f.f.Next(ctx); {
	case errors.Is(err, io.EOF):
		f.ended = true
	case err != nil:
		rt.Fatalf("after %d entries: %v", len(f.got), err)
	default:
		f.got = append(f.got, e.Seq)
	}
}

// toggle starts or stops the shared follower.
func (h *interleaving) toggle(rt *rapid.T) {
	if h.stop != nil {
		h.stop()
		h.stop = nil
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(rt.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { _ = h.l.Run(ctx) })
	h.stop = func() { cancel(); wg.Wait() }
}

// finish ends every log, reads every follower to its end, and compares.
func (h *interleaving) finish(rt *rapid.T) {
	defer func() {
		if h.stop != nil {
			h.stop()
		}
		for _, f := range h.fs {
			f.f.Stop()
		}
	}()
	ctx := context.WithoutCancel(rt.Context())
	for _, ref := range h.refs {
		if won, err := h.l.Finish(ctx, ref, "c", success("")); !won || err != nil {
			rt.Fatal(won, err)
		}
		h.learn(rt, ref)
	}
	for _, f := range h.fs {
		for !f.ended {
			f.next(rt)
		}
		if want := h.behind(f.ref, f.after); !slices.Equal(f.got, want) {
			rt.Fatalf("behind %d: %s", f.after, cmp.Diff(want, f.got))
		}
	}
}

// TestACancelBeforeItsWatch is not missed either, nor is it told twice.
func TestACancelBeforeItsWatch(t *testing.T) {
	js := natsdtest.JetStream(t)
	dispatcher := open(t, js, results.Options{})
	worker := open(t, js, results.Options{Kinds: []string{results.KindCancel}})
	ref, _ := admit(t, dispatcher, "c")
	first, stop := worker.Cancelled(ref)
	defer stop()
	if err := dispatcher.Cancel(t.Context(), ref, "why"); err != nil {
		t.Fatal(err)
	}
	<-first
	late, stopLate := worker.Cancelled(ref)
	defer stopLate()
	select {
	case <-late:
	default:
		t.Error("a watch that begins behind its cancel is not told")
	}
	if err := dispatcher.Cancel(t.Context(), ref, "again"); err != nil {
		t.Fatal(err)
	}
}

// TestFresh: nobody needs to ask about a young call, but about one that is old,
// dated by another clock, or older than what is followed.
func TestFresh(t *testing.T) {
	js := natsdtest.JetStream(t)
	worker := open(t, js, results.Options{Kinds: []string{results.KindCancel}})
	deaf := open(t, js, results.Options{Kinds: []string{results.KindClaim}})
	j := job("c")
	for _, tt := range []struct {
		log      *results.Log
		admitted time.Duration
		want     bool
	}{
		{worker, time.Second, true},
		{deaf, time.Second, false},
		{worker, 10 * time.Second, false},
		{worker, 10 * time.Minute, false},
		{worker, -time.Second, false},
	} {
		j.Admitted = worker.Now().Add(tt.admitted)
		if got := tt.log.Fresh(&j); got != tt.want {
			t.Errorf("a call admitted in %s is fresh: %v", tt.admitted, got)
		}
	}
}

// TestAForgottenCancel: a call that was cancelled before so many others that its
// cancel is not remembered any more, all within its first seconds, is asked
// about. Otherwise somebody who cancels a lot would have others' cancels missed.
func TestAForgottenCancel(t *testing.T) {
	js := natsdtest.JetStream(t)
	dispatcher := open(t, js, results.Options{})
	worker := open(t, js, results.Options{Kinds: []string{results.KindCancel}})
	j := job("c")
	j.Admitted = dispatcher.Now()
	if _, err := dispatcher.Admit(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	if err := dispatcher.Cancel(t.Context(), refOf(j), "why"); err != nil {
		t.Fatal(err)
	}
	for n, told := 0, true; told; n++ {
		if n > 1000 {
			t.Fatal("every cancel is remembered: this test proves nothing")
		}
		flood, _ := admit(t, dispatcher, fmt.Sprint("flood", n))
		came, stop := worker.Cancelled(flood)
		if err := dispatcher.Cancel(t.Context(), flood, ""); err != nil {
			t.Fatal(err)
		}
		<-came
		stop()
		watch, stop := worker.Cancelled(refOf(j))
		select {
		case <-watch:
		default:
			told = false
		}
		stop()
	}
	if worker.Fresh(&j) {
		t.Error("nobody asks about a call whose cancel was forgotten")
	}
	if j.Admitted = dispatcher.Now().Add(2 * time.Second); !worker.Fresh(&j) {
		t.Error("a call that came after what was forgotten is asked about")
	}
}

// TestTheTimeIsAskedFor also by a process that appends nothing: the clock beside
// it may have been set, or drift.
func TestTheTimeIsAskedFor(t *testing.T) {
	l, err := results.Open(t.Context(), natsdtest.JetStream(t), results.Options{Kinds: []string{results.KindCancel}})
	if err != nil {
		t.Fatal(err)
	}
	results.SetTime(l, time.Now().Add(-time.Hour), time.Millisecond)
	run(t, l)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for time.Since(l.Now()) > time.Minute {
		if err := l.Cancel(ctx, refOf(job("nobody")), ""); !errors.Is(err, results.ErrNotFound) {
			t.Fatalf("the time is still %s behind: %v", time.Since(l.Now()), err)
		}
	}
}
