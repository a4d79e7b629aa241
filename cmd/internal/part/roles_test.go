package part

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/metrics"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

// TestDeployedCluster starts three servers with the files of deploy/nats and what
// their script makes, and a dispatcher, a worker and a follower on them, each
// with its own nkey: together they answer a call on streams with three replicas,
// the server that each speaks to being another, and none is refused anything.
// Then each tries what is not its own.
func TestDeployedCluster(t *testing.T) {
	tr := startTrial(t, "cluster.conf", 3)
	answerOne(t, tr, 3)
	t.Run("Refused", func(t *testing.T) { refused(t, tr) })
	t.Run("Strangers", func(t *testing.T) { strangers(t, tr) })
}

// TestDeployedSingle is the same on one server.
func TestDeployedSingle(t *testing.T) {
	answerOne(t, startTrial(t, "single.conf", 1), 1)
}

// answerOne has a call answered by a dispatcher and a worker, and followed.
func answerOne(t *testing.T, tr *trial, replicas int) {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	run := func(f func(context.Context) error) {
		running.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}

	// The worker comes first and waits for the streams.
	workers := make(chan *Bus, 1)
	forWorker := tr.join(t, RoleWorker, 1)
	forDispatcher := tr.join(t, RoleDispatcher, 0)
	t.Cleanup(func() { cancel(); running.Wait() }) // before the connections close
	natsdtest.AwaitLeader(t, jetStream(t, forDispatcher))
	run(func(ctx context.Context) error {
		bus, err := OpenBus(ctx, forWorker, BusOptions{Kinds: []string{results.KindCancel}, Bind: true}, logger)
		workers <- bus
		return err
	})
	if _, err := OpenBus(t.Context(), forDispatcher, BusOptions{}, logger); err != nil {
		t.Fatal(err)
	}
	wantReplicas(t, forDispatcher, 1)
	bus, err := OpenBus(t.Context(), forDispatcher, BusOptions{Replicas: replicas}, logger)
	if err != nil {
		t.Fatal(err)
	}
	// A second dispatcher that was told nothing leaves them so.
	if _, err := OpenBus(t.Context(), forDispatcher, BusOptions{}, logger); err != nil {
		t.Fatal(err)
	}
	wantReplicas(t, forDispatcher, replicas)
	reg := prometheus.NewRegistry()
	// The dispatcher's door changes the bucket, and the worker follows it.
	tools, err := ToolsConfig{}.Open(t.Context(), bus, nil, logger)
	if err != nil {
		t.Fatal(err)
	}
	d, err := StartDispatcher(DispatcherConfig{Listen: "127.0.0.1:0"}, bus, tools, Process{}, Telemetry{Metrics: metrics.New(reg), Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	run(bus.Log.Run)
	run(tools.Run)
	run(d.Run)

	mine := <-workers
	if mine == nil {
		t.FailNow()
	}
	run(mine.Log.Run)
	run(func(ctx context.Context) error {
		return mine.Registry.Run(ctx, func() queue.WorkerInfo {
			return queue.WorkerInfo{ID: "w", Incarnation: "1", Class: queue.DefaultClass, Slots: 2}
		})
	})
	run((&queue.Server{Queue: mine.Queue, Handler: &trialWorker{t, mine}, Slots: 2, Drain: time.Minute, Log: logger}).Run)

	theirs, err := ToolsConfig{}.Open(t.Context(), mine, nil, logger)
	if err != nil {
		t.Fatal(err)
	}
	run(theirs.Run)
	for _, description := range []string{"For a trial.", "For a test."} {
		if _, err := tools.Apply(t.Context(), catalog.Change{Tools: []catalog.Spec{trialTool(description)}}); err != nil {
			t.Fatal(err)
		}
		awaitTool(t, theirs, description)
	}
	ref := submit(t, d.URL())
	followed(t, tr, ref, run)
	wantHealthy(t, d.URL())
	if workers, err := bus.Registry.List(t.Context()); err != nil || len(workers) != 1 || workers[0].ID != "w" || workers[0].Slots != 2 || time.Since(workers[0].Beat).Abs() > time.Minute {
		t.Errorf("workers are %+v: %v", workers, err)
	}
	if _, body, err := bus.Blobs.Get(t.Context(), blob.ID{Tenant: ref.Tenant, Key: ref.Key, N: 1}, 0); err != nil {
		t.Error(err)
	} else if err := body.Close(); err != nil {
		t.Error(err)
	}
}

// wantHealthy wants the fleet's status to know its parts, through the NATS servers
// and with a dispatcher's permissions, and to find nothing wrong.
func wantHealthy(t *testing.T, url string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/status", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer res.Body.Close()
	var s struct {
		Problems, Unknown []string
		Dispatchers       []struct{ Ready, Schedules, Answered bool }
		Workers           []struct{ ID, State string }
		Queues            []struct{ Class string }
	}
	if err := json.NewDecoder(res.Body).Decode(&s); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("the status is %d: %v", res.StatusCode, err)
	}
	if len(s.Problems)+len(s.Unknown) > 0 || len(s.Dispatchers) != 1 || len(s.Workers) != 1 || len(s.Queues) != 1 {
		t.Fatalf("the status is %+v", s)
	}
	if d := s.Dispatchers[0]; !d.Ready || !d.Schedules || !d.Answered || s.Workers[0].ID != "w" || s.Workers[0].State != "ready" {
		t.Errorf("the status is %+v", s)
	}
}

// awaitTool waits until the trial's tool is there, as described.
func awaitTool(t *testing.T, f *catalog.Follower, description string) {
	t.Helper()
	for {
		state, changed := f.State()
		if len(state.Tools) == 1 && state.Tools[0].Spec.Description == description {
			return
		}
		select {
		case <-changed:
		case <-t.Context().Done():
			t.Fatal("the tool did not come")
		}
	}
}

func trialTool(description string) catalog.Spec {
	s := catalog.Spec{Name: "echo", Description: description, Image: "local/echo:1", Command: []string{"/tool"}, Parameters: []byte(`{"type":"object"}`)}
	s.SetDefaults()
	return s
}

// submit makes a call through the dispatcher's door and waits for its result.
func submit(t *testing.T, url string) results.Ref {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/calls?wait=1m", strings.NewReader(`{"tool":"echo","arguments":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer res.Body.Close()
	var answer struct{ ID, Status string }
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || res.StatusCode != http.StatusOK || answer.Status != string(call.StatusSucceeded) {
		t.Fatalf("the call was answered with %d %+v (%v)", res.StatusCode, answer, err)
	}
	return results.Ref{Tenant: call.DefaultTenant, Key: call.Key(answer.ID)}
}

// followed reads a call's log as a follower.
func followed(t *testing.T, tr *trial, ref results.Ref, run func(func(context.Context) error)) {
	t.Helper()
	js := jetStream(t, tr.join(t, "follower", 2))
	log, err := results.Open(t.Context(), js, results.Options{Bind: true})
	if err != nil {
		t.Fatal(err)
	}
	run(log.Run)
	f, err := log.Follow(t.Context(), ref, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Stop()
	var kinds []string
	for {
		e, err := f.Next(t.Context())
		if err != nil {
			break // after the result
		}
		kinds = append(kinds, e.Kind)
	}
	if got := strings.Join(kinds, " "); got != "admit claim start progress result" {
		t.Errorf("the follower read %q", got)
	}
	if list, err := log.List(t.Context(), ref.Tenant, results.ListOptions{}); err != nil || len(list) != 1 {
		t.Errorf("the follower's list is %+v: %v", list, err)
	}
}

// trialWorker does everything that a worker does but run the tool.
type trialWorker struct {
	t   *testing.T
	bus *Bus
}

// Handle implements [queue.Handler].
func (w *trialWorker) Handle(ctx context.Context, d *queue.Delivery) {
	if err := w.handle(ctx, d); err != nil {
		w.t.Errorf("worker: %v", err)
	}
}

func (w *trialWorker) handle(ctx context.Context, d *queue.Delivery) error {
	ref := results.Ref{Tenant: d.Job.Call.Tenant, Key: d.Job.Call.Key()}
	self := results.Worker{ID: "w", Incarnation: "1"}
	id := d.Job.Call.ToolCallID
	_, untouchedErr := w.bus.Log.Untouched(ctx, &d.Job)
	_, lookErr := w.bus.Log.Look(ctx, ref)
	claimErr := w.bus.Log.Claim(ctx, ref, self, 1)
	_, _, startErr := w.bus.Log.Start(ctx, ref, results.Marker{Worker: self, Attempt: 1})
	_, _, againErr := w.bus.Log.Start(ctx, ref, results.Marker{Worker: self, Attempt: 1})
	activity := call.Activity{ToolCallID: id, ToolName: "echo", Status: call.StatusRunning, Attempt: 1}
	progressErr := w.bus.Log.Progress(ctx, ref, activity.Snapshot(ref.Key), false)
	_, blobErr := w.bus.Blobs.Put(ctx, blob.ID{Tenant: ref.Tenant, Key: ref.Key, N: 1}, "text/plain", []byte("hello"))
	_, aliveErr := w.bus.Registry.Alive(ctx, "w", "1")
	// A letter is filed, and taken back since the call ends well.
	_, deadErr := w.bus.Queue.Dead().File(ctx, queue.NewLetter(d.Job, call.Failure(call.KindInternal, "x"), nil, time.Now()))
	dropErr := w.bus.Queue.Dead().Drop(ctx, ref.Tenant, ref.Key)
	_, finishErr := w.bus.Log.Finish(ctx, ref, id, call.Result{CallID: id, Content: []agui.Part{agui.Text("hello")}})
	return errors.Join(untouchedErr, lookErr, claimErr, startErr, againErr, progressErr, blobErr, aliveErr, deadErr, dropErr, finishErr, d.Ack(ctx))
}

// wantReplicas wants every stream to be kept by that many servers.
func wantReplicas(t *testing.T, nc *nats.Conn, n int) {
	t.Helper()
	js := jetStream(t, nc)
	for _, name := range []string{results.Stream, queue.CallsStream, queue.ReadyStream, queue.DeadStream, "KV_" + queue.WorkersBucket, "KV_" + queue.DispatchersBucket, "OBJ_" + blob.Bucket, "KV_" + catalog.Bucket} {
		s, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := s.CachedInfo().Config.Replicas; got != n {
			t.Errorf("%s has %d replicas", name, got)
		}
	}
}

const someKey = "aaaaaaaaaaaaaaaaaaaaaaaaaa"

// refused has each role try what is not its own.
func refused(t *testing.T, tr *trial) {
	events := "toolfleet.events.default." + someKey + "."
	ready, waiting := "toolfleet.ready.default."+someKey, "toolfleet.calls.default.batch.default.echo."+someKey
	for role, subjects := range map[string][]string{
		RoleDispatcher: {
			"$JS.API.STREAM.DELETE.TOOLFLEET_EVENTS", "$JS.API.STREAM.PURGE.TOOLFLEET_EVENTS", "$JS.API.STREAM.MSG.DELETE.TOOLFLEET_EVENTS",
			events + "claim", events + "progress", "$KV.toolfleet_workers.w", "elsewhere", "_INBOX.worker.x", "$JS.API.STREAM.PURGE.KV_toolfleet_catalog",
		},
		RoleWorker: {
			events + "admit", events + "cancel", ready, waiting, "toolfleet.runs.default.x", "$KV.toolfleet_keeper.scheduler", "$KV.toolfleet_dispatchers.d",
			"$JS.API.STREAM.CREATE.MINE", "$JS.API.STREAM.UPDATE.TOOLFLEET_READY", "$JS.API.STREAM.DELETE.TOOLFLEET_READY",
			"$JS.API.STREAM.DELETE.TOOLFLEET_EVENTS", "$JS.API.STREAM.PURGE.OBJ_toolfleet_blobs", "$JS.API.STREAM.MSG.DELETE.TOOLFLEET_EVENTS",
			"$KV.toolfleet_catalog.set", "$KV.toolfleet_catalog.spec.x", "$JS.API.STREAM.MSG.DELETE.KV_toolfleet_catalog", "$JS.API.STREAM.PURGE.KV_toolfleet_catalog",
			// Consumers over what it writes itself could put its words into the queue.
			"$JS.API.CONSUMER.CREATE.TOOLFLEET_EVENTS.mine", "$JS.API.CONSUMER.CREATE.TOOLFLEET_EVENTS.mine.toolfleet.events.*.*.progress",
			"$JS.API.CONSUMER.CREATE.OBJ_toolfleet_blobs.mine.>", "$JS.API.CONSUMER.DURABLE.CREATE.TOOLFLEET_EVENTS.mine", "_INBOX.dispatcher.x",
		},
		"follower": {
			events + "admit", events + "progress", events + "result", events + "cancel", ready, waiting, "$KV.toolfleet_workers.w",
			"$JS.API.STREAM.CREATE.MINE", "$JS.API.STREAM.DELETE.TOOLFLEET_EVENTS", "$JS.API.CONSUMER.MSG.NEXT.TOOLFLEET_READY.ready-default",
			"$JS.API.STREAM.MSG.GET.TOOLFLEET_READY", "$JS.API.DIRECT.GET.OBJ_toolfleet_blobs", "elsewhere",
			"$KV.toolfleet_catalog.set", "$JS.API.STREAM.MSG.GET.KV_toolfleet_catalog",
		},
	} {
		t.Run(role, func(t *testing.T) {
			nc := tr.join(t, role, 0)
			for _, subject := range subjects {
				wantRefused(t, nc, subject)
			}
			for _, other := range []string{RoleDispatcher, RoleWorker, "follower"} {
				if other != role {
					wantUnheard(t, nc, "_INBOX."+other+".>")
				}
			}
			wantUnheard(t, nc, "toolfleet.events.>")
			wantUnheard(t, nc, ">")
		})
	}
}

// strangers wants errors that say what to do.
func strangers(t *testing.T, tr *trial) {
	good := tr.config(RoleWorker, 0)
	seed, err := os.ReadFile(good.NATSNKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		config NATSConfig
		want   string
	}{
		"NoKey":       {NATSConfig{NATS: good.NATS, NATSCA: good.NATSCA}, "name a file with --nats-nkey"},
		"UnknownKey":  {NATSConfig{NATS: good.NATS, NATSCA: good.NATSCA, NATSNKey: strangerKey(t)}, "has to name that key"},
		"NoCA":        {NATSConfig{NATS: good.NATS, NATSNKey: good.NATSNKey}, "name the file of its CA with --nats-ca"},
		"NoSuchFile":  {NATSConfig{NATSNKey: "/nowhere"}, "nats-nkey: open /nowhere: no such file"},
		"NoSeed":      {NATSConfig{NATSNKey: good.NATSCA}, "holds no user's nkey seed"},
		"TwoWays":     {NATSConfig{NATSNKey: good.NATSNKey, NATSCreds: good.NATSNKey}, "give one"},
		"HalfACert":   {NATSConfig{NATSCert: good.NATSCA}, "belong together"},
		"NoCAInThere": {NATSConfig{NATSCA: good.NATSNKey}, "holds no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			nc, err := Dial(test.config, RoleWorker, slog.New(slog.DiscardHandler))
			if err == nil {
				nc.Close()
				t.Fatal("it was let in")
			}
			if !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), strings.TrimSpace(string(seed))) {
				t.Errorf("%q says nothing of %q, or too much", err, test.want)
			}
		})
	}
}
