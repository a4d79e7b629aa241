package worker

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/internal/natsd"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/results"
	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/local"
)

var agentPath string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "worker")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		if err := os.Chmod(dir, 0o755); err != nil {
			panic(err)
		}
		agentPath = filepath.Join(dir, "agent")
		build := exec.CommandContext(context.Background(), "go", "build", "-buildvcs=false", "-o", agentPath, "../cmd/agent")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			panic(string(out))
		}
		code := natsdtest.Main(m).Run()
		if err := goleak.Find(); code == 0 && err != nil {
			println(err.Error())
			return 1
		}
		return code
	}())
}

// house is a worker with a real log and real processes, without a queue: the
// tests play the queue, delivery by delivery.
type house struct {
	*testing.T
	*Worker
	pool  *pool
	alive atomic.Bool // what the registry says of every other worker
}

// pool starts each sandbox when it is asked for, and remembers.
type pool struct {
	t       *testing.T
	rt      *local.Runtime
	err     error // returned by Take when set
	warm    bool  // every sandbox counts as warm
	started atomic.Int32
	spoil   atomic.Int32          // so many sandboxes are dead when they are handed out
	taking  func(context.Context) // called by Take when set
}

func (p *pool) Take(ctx context.Context, spec sandbox.Spec, cold func(context.Context) error) (*sandbox.Sandbox, bool, error) {
	if !p.warm {
		if err := cold(ctx); err != nil {
			return nil, false, err
		}
	}
	if p.taking != nil {
		p.taking(ctx)
	}
	if p.err != nil {
		return nil, false, p.err
	}
	p.started.Add(1)
	id := "t-" + random(p.t)
	sb, err := sandbox.Open(ctx, p.rt, id, spec)
	if err == nil && p.spoil.Add(-1) >= 0 {
		err = p.rt.Remove(ctx, id)
	}
	return sb, p.warm, err
}

func random(t *testing.T) string {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return filepath.Base(f.Name())
}

func (p *pool) Release(sb *sandbox.Sandbox) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := sb.Close(ctx); err != nil {
		p.t.Errorf("close sandbox: %v", err)
	}
}

func newHouse(t *testing.T) *house {
	t.Helper()
	return houseOn(t, natsdtest.JetStream(t))
}

// newHouseOn is a house on a server that takes smaller messages.
func newHouseOn(t *testing.T, maxPayload int32) *house {
	t.Helper()
	return houseOn(t, natsdtest.JetStreamOn(t, natsdtest.StartWith(t, natsd.Config{StoreDir: t.TempDir(), MaxPayload: maxPayload})))
}

func houseOn(t *testing.T, js jetstream.JetStream) *house {
	t.Helper()
	log, err := results.Open(t.Context(), js, results.Options{})
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.Open(t.Context(), js, blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// As root, tools run as another user, and t.TempDir is closed to others.
	dir, err := os.MkdirTemp("", "sandboxes")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	rt, err := local.New(local.Config{Agent: agentPath, Dir: dir, Owner: "w-test"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- log.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the log's follower: %v", err)
		}
		os.RemoveAll(dir)
	})
	h := &house{T: t, pool: &pool{t: t, rt: rt}}
	h.Worker = &Worker{
		Self: results.Worker{ID: "w-test", Incarnation: "1"},
		Log:  log, Blobs: blobs, Sandboxes: h.pool,
		Alive:  func(context.Context, string, string) (bool, error) { return h.alive.Load(), nil },
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	return h
}

// admit opens the log of a call that runs a shell script.
func (h *house) admit(script string, change ...func(*catalog.Job)) catalog.Job {
	h.Helper()
	spec := &catalog.Spec{
		Name: "sh", Type: "function", Command: []string{"/bin/sh", "-c", script}, Output: "auto", Runtime: "local",
		Limits: catalog.Limits{Timeout: catalog.Duration(20 * time.Second), Output: 1 << 20, Memory: 64 << 20, Disk: 1 << 20, Pids: 16},
	}
	job := catalog.Job{
		Version: call.Version,
		Call: call.Call{
			Version: call.Version, Tenant: "default", ThreadID: "t", RunID: "r", Scope: "s", ToolCallID: random(h.T),
			Tool: "sh", Arguments: `{"a":1}`, ArgumentsDigest: call.Digest(`{"a":1}`),
		},
		Spec: spec, SpecDigest: "sha256:0", Admitted: time.Now(), Expires: time.Now().Add(time.Hour),
	}
	for _, f := range change {
		f(&job)
	}
	if _, err := h.Log.Admit(h.Context(), job); err != nil {
		h.Fatal(err)
	}
	return job
}

func idempotent(j *catalog.Job) { j.Spec.Annotations.Idempotent = true }

func ref(j catalog.Job) results.Ref {
	return results.Ref{Tenant: j.Call.Tenant, Key: j.Call.Key()}
}

// deliver handles one delivery and returns what becomes of it: nil is an
// acknowledgement.
func (h *house) deliver(ctx context.Context, job catalog.Job) error {
	h.Helper()
	a := h.attempt(job)
	cancelled, stop := h.Log.Cancelled(a.ref)
	defer stop()
	a.cancelled = cancelled
	defer a.span.End()
	return a.handle(ctx)
}

func (h *house) attempt(job catalog.Job) *attempt {
	a := &attempt{Worker: h.Worker, job: &job, ref: ref(job), began: time.Now(), logger: h.Logger}
	a.span = h.trace(a, 1)
	return a
}

// listen waits until the log's follower runs: only then is a call fresh.
func (h *house) listen() {
	h.Helper()
	job := h.admit("")
	cancelled, stop := h.Log.Cancelled(ref(job))
	defer stop()
	if err := h.Log.Cancel(h.Context(), ref(job), ""); err != nil {
		h.Fatal(err)
	}
	<-cancelled
}

// run handles one delivery that must end in a result, and returns it.
func (h *house) run(job catalog.Job) call.Result {
	h.Helper()
	if err := h.deliver(h.Context(), job); err != nil {
		h.Fatalf("the delivery was given back: %v", err)
	}
	return h.result(job)
}

func (h *house) result(job catalog.Job) call.Result {
	h.Helper()
	s := h.state(job)
	if s.Result == nil {
		h.Fatal("there is no result")
	}
	return *s.Result
}

func (h *house) state(job catalog.Job) results.State {
	h.Helper()
	s, err := h.Log.Look(h.Context(), ref(job))
	if err != nil {
		h.Fatal(err)
	}
	return s
}

func words(t *testing.T, r call.Result) string {
	t.Helper()
	var b strings.Builder
	for _, p := range r.Contents() {
		b.WriteString(p.Text)
	}
	return b.String()
}

func wantKind(t *testing.T, r call.Result, kind call.Kind) {
	t.Helper()
	if r.Kind() != kind {
		t.Errorf("kind is %q, want %q: %s", r.Kind(), kind, words(t, r))
	}
}

// until waits until a followed entry of job's log satisfies f.
func (h *house) until(job catalog.Job, f func(results.Entry) bool) {
	h.Helper()
	fo, err := h.Log.Follow(h.Context(), ref(job), 0)
	if err != nil {
		h.Fatal(err)
	}
	defer fo.Stop()
	for {
		e, err := fo.Next(h.Context())
		if err != nil {
			h.Fatal(err)
		}
		if f(e) {
			return
		}
	}
}

// kinds lists the entries of a call that has ended.
func (h *house) kinds(job catalog.Job) string {
	h.Helper()
	var kinds []string
	h.until(job, func(e results.Entry) bool {
		kinds = append(kinds, e.Kind)
		return e.Kind == results.KindResult
	})
	return strings.Join(kinds, " ")
}

func running(e results.Entry) bool {
	return e.Kind == results.KindState && strings.Contains(string(e.Data), `"running"`)
}
