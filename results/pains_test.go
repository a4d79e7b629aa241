package results_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/internal/natsd"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/results"
)

// TestAThousandFollowers of one process begin and resume anywhere in fifty logs
// while those are written, and some of them read slowly. Each yields what the
// stream holds behind its start, in order and once; the server has one
// consumer; and what they hold together has a bound.
func TestAThousandFollowers(t *testing.T) {
	const calls, followers, entries = 50, 1000, 40
	js := natsdtest.JetStream(t)
	l := open(t, js, results.Options{})
	random := rand.New(rand.NewPCG(5, 1))
	refs := make([]results.Ref, calls)
	seqs := make([][]uint64, calls) // of the entries that were there at first
	for i := range refs {
		var seq uint64
		refs[i], seq = admit(t, l, fmt.Sprint("c", i))
		seqs[i] = append(seqs[i], 0, seq)
		for n := range random.IntN(10) {
			if err := l.Progress(t.Context(), refs[i], progress(n), false); err != nil {
				t.Fatal(err)
			}
		}
		seqs[i] = append(seqs[i], truth(t, js, refs[i], seq)...)
	}
	before := heap()
	type read struct {
		call  int
		after uint64
		got   []uint64
	}
	reads := make([]*read, followers)
	var began, all sync.WaitGroup
	for i := range reads {
		c := random.IntN(calls)
		r := &read{call: c, after: seqs[c][random.IntN(len(seqs[c]))]}
		reads[i] = r
		slow, breaks := random.IntN(10) == 0, random.IntN(3)
		began.Add(1)
		all.Go(func() {
			ready := sync.OnceFunc(began.Done)
			defer ready()
			at := r.after
			for { // each turn is a connection; a client resumes behind what it has
				f, err := l.Follow(t.Context(), refs[c], at)
				if err != nil {
					t.Error(err)
					return
				}
				ready()
				for n := 0; breaks == 0 || n < entries/3; n++ {
					e, err := f.Next(t.Context())
					if errors.Is(err, io.EOF) {
						f.Stop()
						return
					}
					if err != nil {
						t.Error(err)
						f.Stop()
						return
					}
					r.got = append(r.got, e.Seq)
					at = e.Seq
					if slow {
						runtime.Gosched()
					}
				}
				f.Stop()
				breaks--
			}
		})
	}
	began.Wait()
	if s, err := js.Stream(t.Context(), results.Stream); err != nil || s.CachedInfo().State.Consumers != 1 {
		t.Errorf("consumers: %+v, %v", s.CachedInfo().State, err)
	}
	var writers sync.WaitGroup
	for i, ref := range refs {
		writers.Go(func() {
			for n := range entries {
				if err := l.Progress(t.Context(), ref, progress(n), false); err != nil {
					t.Error(err)
				}
			}
			if _, err := l.Finish(t.Context(), ref, fmt.Sprint("c", i), success("")); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	if grown := heap() - before; grown > 64<<20 {
		t.Errorf("a thousand followers hold %d MiB", grown>>20)
	}
	all.Wait()
	for i := range refs {
		want := truth(t, js, refs[i], 0)
		for _, r := range reads {
			if r.call != i {
				continue
			}
			from, _ := slices.BinarySearch(want, r.after+1)
			if !slices.Equal(r.got, want[from:]) {
				t.Fatalf("behind %d of call %d: %v, want %v", r.after, i, r.got, want[from:])
			}
		}
	}
}

// heap is what is alive on the heap.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// outage is a server that can be taken away and brought back, and a connection
// to it by a socket.
type outage struct {
	t      *testing.T
	config natsd.Config
	server *natsd.Server
	nc     *nats.Conn
	back   chan struct{}
}

func newOutage(t *testing.T, c natsd.Config) (*outage, jetstream.JetStream) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr, _ := l.Addr().(*net.TCPAddr)
	l.Close()
	c.StoreDir, c.Port = t.TempDir(), addr.Port
	o := &outage{t: t, config: c, back: make(chan struct{}, 1)}
	o.server = natsdtest.StartWith(t, o.config)
	o.nc, err = nats.Connect(o.server.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.ReconnectHandler(func(*nats.Conn) { o.back <- struct{}{} }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.nc.Close)
	js, err := jetstream.New(o.nc)
	if err != nil {
		t.Fatal(err)
	}
	return o, js
}

// begin takes the server away and returns when the connection knows.
func (o *outage) begin() {
	o.t.Helper()
	lost := o.nc.StatusChanged(nats.RECONNECTING)
	defer o.nc.RemoveStatusListener(lost)
	o.server.Shutdown()
	if o.nc.IsConnected() {
		<-lost
	}
}

func (o *outage) end() {
	o.t.Helper()
	o.server = natsdtest.StartWith(o.t, o.config)
	<-o.back
}

// TestProgressIsDroppedFirst: while the server is away progress is refused at
// once and results wait, none of them in the client's buffer, where each try
// would leave a copy.
func TestProgressIsDroppedFirst(t *testing.T) {
	const calls = 20
	o, js := newOutage(t, natsd.Config{})
	l := open(t, js, results.Options{})
	refs := make([]results.Ref, calls)
	for i := range refs {
		refs[i], _ = admit(t, l, fmt.Sprint("c", i))
	}
	o.begin()
	if err := l.Progress(t.Context(), refs[0], progress(1), false); !errors.Is(err, nats.ErrConnectionReconnecting) {
		t.Errorf("progress: %v", err)
	}
	if err := l.Progress(t.Context(), refs[0], progress(1), true); !errors.Is(err, nats.ErrConnectionReconnecting) {
		t.Errorf("a state: %v", err)
	}
	var finished sync.WaitGroup
	trying := make(chan struct{}, calls)
	for _, ref := range refs {
		finished.Go(func() {
			trying <- struct{}{}
			if won, err := l.Finish(t.Context(), ref, "c", success(strings.Repeat("x", 200<<10))); !won || err != nil {
				t.Errorf("Finish = %v, %v", won, err)
			}
		})
	}
	for range refs {
		<-trying
	}
	// A handful of tries later, as long as one of them lasts.
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := l.Finish(ctx, results.Ref{Tenant: "default", Key: call.MakeKey("a", "b", "c", "d")}, "c", success("")); err == nil {
		t.Error("a result was taken by nobody")
	}
	if n, err := o.nc.Buffered(); err != nil || n > 64<<10 {
		t.Errorf("%d bytes of %d results wait in the client's buffer: %v", n, calls, err)
	}
	o.end()
	finished.Wait()
	for _, ref := range refs {
		if n := len(truth(t, js, ref, 0)); n != 2 {
			t.Errorf("a log has %d entries, want the admission and the result", n)
		}
	}
}

// TestPain38OversizeNamesTheLimit: what the server would not take is found before
// it is sent, by the server's own limit, and costs the connection nothing.
func TestPain38OversizeNamesTheLimit(t *testing.T) {
	const limit = 64 << 10
	_, js := newOutage(t, natsd.Config{MaxPayload: limit})
	l := open(t, js, results.Options{})
	big := job("big")
	big.Call.Arguments = `{"text":"` + strings.Repeat("x", limit) + `"}`
	_, err := l.Admit(t.Context(), big)
	if !errors.Is(err, results.ErrTooLarge) || !strings.Contains(err.Error(), fmt.Sprint(limit-1<<10)) {
		t.Errorf("an admission over the limit: %v", err)
	}
	ref, _ := admit(t, l, "c")
	if _, err := l.Finish(t.Context(), ref, "c", success(strings.Repeat("x", limit))); !errors.Is(err, results.ErrTooLarge) {
		t.Errorf("a result over the limit: %v", err)
	}
	if won, err := l.Finish(t.Context(), ref, "c", success("small")); !won || err != nil { // Pain39
		t.Errorf("the connection was lost: %v, %v", won, err)
	}
}

// TestAge is by the server's clock: what the dispatcher wrote into the job plays
// no part.
func TestAge(t *testing.T) {
	l := open(t, natsdtest.JetStream(t), results.Options{})
	j := job("c")
	j.Admitted, j.Expires = j.Admitted.Add(-10*time.Minute), j.Expires.Add(-10*time.Minute)
	if _, err := l.Admit(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	if age, err := l.Age(t.Context(), refOf(j)); err != nil || age < 0 || age > 5*time.Minute {
		t.Errorf("Age = %s, %v", age, err)
	}
	if _, err := l.Age(t.Context(), refOf(job("nobody"))); !errors.Is(err, results.ErrNotFound) {
		t.Errorf("without a log: %v", err)
	}
}

// TestVoid takes the fence for one who ends a call without a run: from then on
// nobody starts it, whoever else wants to end it may, and one that was started
// is its worker's to end.
func TestVoid(t *testing.T) {
	l := open(t, natsdtest.JetStream(t), results.Options{})
	me, other := results.Worker{ID: "w1"}, results.Worker{ID: "w2"}
	ref, _ := admit(t, l, "voided")
	for _, w := range []results.Worker{me, other} {
		if ok, err := l.Void(t.Context(), ref, w, 0); !ok || err != nil {
			t.Errorf("Void by %s = %v, %v", w.ID, ok, err)
		}
	}
	if won, m, err := l.Start(t.Context(), ref, results.Marker{Worker: other, Attempt: 1}); won || err != nil || !m.Void || m.ID != "w1" {
		t.Errorf("a start behind the void: %v, %+v, %v", won, m, err)
	}
	started, _ := admit(t, l, "started")
	if won, _, err := l.Start(t.Context(), started, results.Marker{Worker: other, Attempt: 1}); !won || err != nil {
		t.Fatal(won, err)
	}
	if ok, err := l.Void(t.Context(), started, me, 0); ok || err != nil {
		t.Errorf("Void of a started call = %v, %v", ok, err)
	}
}

// TestBeyondTheHorizon: progress is gone long before a result, which is still
// read and still fences; behind the stream's MaxAge everything is forgotten, and
// the same call is a new one. That is where the promise ends.
func TestBeyondTheHorizon(t *testing.T) {
	js := natsdtest.JetStream(t)
	l := open(t, js, results.Options{})
	ref, _ := admit(t, l, "c")
	if err := l.Progress(t.Context(), ref, progress(1), true); err != nil {
		t.Fatal(err)
	}
	if won, err := l.Finish(t.Context(), ref, "c", success("kept")); !won || err != nil {
		t.Fatal(won, err)
	}
	s, err := js.Stream(t.Context(), results.Stream)
	if err != nil {
		t.Fatal(err)
	}
	state, err := s.GetLastMsgForSubject(t.Context(), "toolfleet.events.default."+string(ref.Key)+".state")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteMsg(t.Context(), state.Sequence); err != nil { // as its time to live does
		t.Fatal(err)
	}
	if got := kinds(readAll(t, l, ref, 0)); !slices.Equal(got, []string{results.KindAdmit, results.KindResult}) {
		t.Errorf("without its progress the log is %v", got)
	}
	if won, err := l.Finish(t.Context(), ref, "c", success("late")); won || err != nil {
		t.Errorf("a second result within the horizon: %v, %v", won, err)
	}

	config := s.CachedInfo().Config
	config.MaxAge = time.Second
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	for {
		o, err := l.Admit(t.Context(), job("c"))
		if err != nil {
			t.Fatal(err)
		}
		if o.New {
			return
		}
	}
}
