package part

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
	"github.com/toolfleet/toolfleet/sandbox"
)

// TestChangesLoseNoCall changes a tool while its calls wait and run, deletes it
// while more wait, and has every call answered by the declaration that it was
// checked against.
func TestChangesLoseNoCall(t *testing.T) {
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	bus, err := OpenBus(t.Context(), natsdtest.Connect(t, natsdtest.Start(t)), BusOptions{}, logger)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	run := func(f func(context.Context) error) {
		running.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	tools, err := ToolsConfig{}.Open(ctx, bus, nil, logger)
	if err != nil {
		t.Fatal(err)
	}
	d, err := StartDispatcher(DispatcherConfig{Listen: "127.0.0.1:0"}, bus, tools, Process{}, Telemetry{Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []func(context.Context) error{bus.Log.Run, tools.Run, d.Run} {
		run(f)
	}

	// Each version is called, and then changed. Nobody works yet.
	versions := []string{"first", "second", "third"}
	asked := map[string]string{} // by id, the version
	for _, version := range versions {
		if _, err := tools.Apply(ctx, catalog.Change{Tools: []catalog.Spec{trialTool(version)}}); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			asked[ask(t, d.URL(), http.StatusAccepted)] = version
		}
	}
	if _, err := tools.Apply(ctx, catalog.Change{Delete: []string{"echo"}}); err != nil {
		t.Fatal(err)
	}
	ask(t, d.URL(), http.StatusOK) // refused, with a result

	run(func(ctx context.Context) error {
		return bus.Registry.Run(ctx, func() queue.WorkerInfo {
			return queue.WorkerInfo{ID: "w", Incarnation: "1", Class: queue.DefaultClass, Slots: 4}
		})
	})
	run((&queue.Server{Queue: bus.Queue, Handler: tellsVersion{t, bus}, Slots: 4, Drain: time.Minute, Log: logger}).Run)
	for id, want := range asked {
		if got := answered(t, bus, d.URL(), id); got != want {
			t.Errorf("a call of the %s version was answered by the %s", want, got)
		}
	}
}

// tellsVersion answers with the description of the tool that it was handed.
type tellsVersion struct {
	t   *testing.T
	bus *Bus
}

// Handle implements [queue.Handler].
func (w tellsVersion) Handle(ctx context.Context, d *queue.Delivery) {
	ref := results.Ref{Tenant: d.Job.Call.Tenant, Key: d.Job.Call.Key()}
	id := d.Job.Call.ToolCallID
	_, _, startErr := w.bus.Log.Start(ctx, ref, results.Marker{Worker: results.Worker{ID: "w", Incarnation: "1"}, Attempt: 1})
	_, finishErr := w.bus.Log.Finish(ctx, ref, id, call.Result{CallID: id, Content: []agui.Part{agui.Text(d.Job.Spec.Description)}})
	if err := errors.Join(startErr, finishErr, d.Ack(ctx)); err != nil {
		w.t.Errorf("worker: %v", err)
	}
}

// ask makes a call and returns its id.
func ask(t *testing.T, url string, want int) string {
	t.Helper()
	wait := "?wait=0s"
	if want == http.StatusOK {
		wait = "?wait=1m"
	}
	var answer struct{ ID string }
	request(t, http.MethodPost, url+"/v1/calls"+wait, `{"tool":"echo","arguments":{}}`, want, &answer)
	return answer.ID
}

// answered waits for a call and returns the text of its result.
func answered(t *testing.T, bus *Bus, url, id string) string {
	t.Helper()
	f, err := bus.Log.Follow(t.Context(), results.Ref{Tenant: call.DefaultTenant, Key: call.Key(id)}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Stop()
	for err == nil { // until after the result
		_, err = f.Next(t.Context())
	}
	var answer struct {
		Result struct{ Content []struct{ Text string } }
	}
	request(t, http.MethodGet, url+"/v1/calls/"+id, "", http.StatusOK, &answer)
	if len(answer.Result.Content) != 1 {
		t.Fatalf("the call %s has no answer", id)
	}
	return answer.Result.Content[0].Text
}

func request(t *testing.T, method, url, body string, want int, v any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
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
	text, err := io.ReadAll(res.Body)
	if err := errors.Join(err, json.Unmarshal(text, v)); err != nil || res.StatusCode != want {
		t.Fatalf("%s %s: %d %s (%v)", method, url, res.StatusCode, text, err)
	}
}

// TestWorkerAdoptsTools: a running worker keeps warm what the tools of now ask
// for, gives up what is gone, and goes on beside a tool that it cannot run, which
// it tells once.
func TestWorkerAdoptsTools(t *testing.T) {
	shape := func(name, image, runtime string, warm catalog.Warm) catalog.Served {
		s := trialTool("d")
		s.Name, s.Image, s.Runtime, s.Warm = name, image, runtime, warm
		return catalog.Served{Spec: &s, Source: catalog.FromBucket}
	}
	cell := shape("cells", "c", "runc", catalog.Warm{Min: 1, Max: 1})
	cell.Spec.Isolation = catalog.IsolationCell
	wider := shape("cells", "c", "runc", catalog.Warm{Min: 2, Max: 3})
	wider.Spec.Isolation = catalog.IsolationCell
	elsewhere := shape("elsewhere", "e", "youki", catalog.Warm{Max: 1})
	elsewhere.Spec.Class = "other"

	var log bytes.Buffer
	w := &Worker{
		cfg: WorkerConfig{Class: "default"}, runtimes: []string{"runc"}, problems: map[string]string{"runsc": "it is not installed"},
		logger: slog.New(slog.NewTextHandler(&log, nil)),
		pool:   newWarmPool(sandbox.PoolConfig{Runtime: noRuntime{}}, nil),
	}
	warm := func(tools ...catalog.Served) map[string]catalog.Warm {
		w.adopt(catalog.State{Tools: tools})
		got := map[string]catalog.Warm{}
		for spec, warm := range w.pool.kept {
			got[spec.Image] = warm
		}
		return got
	}
	a, b := shape("a", "a", "runc", catalog.Warm{Max: 2}), shape("b", "a", "runc", catalog.Warm{Min: 1, Max: 2})
	cannot := shape("d", "d", "runsc", catalog.Warm{Max: 1})
	for _, step := range []struct {
		tools []catalog.Served
		want  map[string]catalog.Warm
		cells int
	}{
		{[]catalog.Served{a, elsewhere}, map[string]catalog.Warm{"a": {Max: 2}}, 0},
		{[]catalog.Served{a, b, cannot}, map[string]catalog.Warm{"a": {Min: 1, Max: 4}}, 0},
		{[]catalog.Served{a, b, cannot, cell}, map[string]catalog.Warm{"a": {Min: 1, Max: 4}, "c": {Min: 1, Max: 1}}, 1},
		{[]catalog.Served{cell, cannot}, map[string]catalog.Warm{"c": {Min: 1, Max: 1}}, 1},
		{[]catalog.Served{wider}, map[string]catalog.Warm{"c": {Min: 2, Max: 3}}, 1},
		{nil, map[string]catalog.Warm{}, 0},
	} {
		if diff := cmp.Diff(step.want, warm(step.tools...)); diff != "" {
			t.Error(diff)
		}
		if n := len(w.pool.recent); n != step.cells {
			t.Errorf("%d cells are wanted, want %d", n, step.cells)
		}
	}
	if n := strings.Count(log.String(), "which this worker does not have: it is not installed"); n != 1 || strings.Contains(log.String(), "youki") {
		t.Errorf("the log is\n%s", &log)
	}
}
