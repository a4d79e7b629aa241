package metrics_test

import (
	"flag"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/toolfleet/toolfleet/metrics"
)

// useAll touches every metric once, so that each has a series.
func useAll(m *metrics.Metrics, tool string) {
	m.CallAdmitted(tool)
	m.CallEnded(metrics.Ended{Tool: tool, Kind: "timeout", Status: "timed_out", Queue: time.Millisecond, Start: time.Second, Run: time.Minute, Publish: time.Millisecond, Total: time.Hour, Tenant: "acme", Truncated: []string{"stdout"}})
	m.LetterFiled(tool, "internal")
	m.SetDeadLetters(2)
	m.SetOldestWaiting(map[string]time.Duration{"default": time.Minute})
	m.SetTenantJobs(map[string]metrics.TenantJobs{"acme": {Waiting: 1, Placed: 2}})
	m.SetQueue("default", 3, 2)
	m.SetInFlightLimit("default", 10_000)
	m.Redelivered()
	m.SetWorkers(map[string]int{"default": 2})
	m.WorkersLost(1)
	m.SpansDropped(1)
	m.SetNATS(true)
	m.SetContainerd(false)
	m.SetStream("LOG", 1, 2)
	m.ImagePulled(time.Second, nil)
	m.SetWaiting("default", 4)
	m.Delivery("ack")
	m.ConsumerRebuilt()
	m.SetSlots(8, 2)
	m.SetSandboxes("runc", metrics.Sandboxes{Starting: 1, Warm: 2, Running: 3, Closing: 4})
	m.SandboxStarted("runc", true, 3*time.Millisecond)
	m.SandboxFailed("runc")
	m.SandboxesSwept("runc", 2)
	m.SetPool("runc", "cell", 2, 3)
	m.PoolGet("runc", "cell", true)
	m.RefillFailed("runc", "cell")
	m.SetHostObjects(metrics.HostObjects{Sandboxes: 1, Shims: 1})
	m.ProgressDropped("full")
	m.AppendLost("progress")
	m.ResultDropped()
	m.HTTPRequest("http", "/v1/calls/{id}", "GET", 200, time.Millisecond)
	m.HTTPStreams("http", 1)
	m.BlobPut(100)
	m.BlobGot(50)
	m.SetCatalog("bucket", 3)
	m.CatalogLoaded(time.Unix(1_800_000_000, 0))
	m.CatalogFailed("file")
	m.Egress("connected", "", 1, 2)
}

func TestNamesAndUnitsPassTheLinter(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	useAll(metrics.New(reg), "word-count")
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	want := reflect.TypeFor[metrics.Metrics]().NumField() - 4 + 1 // four bounds are no metrics, build_info is no field
	if len(families) != want {
		t.Errorf("useAll touched %d metrics of %d: extend it", len(families), want)
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "toolfleet_") {
			t.Errorf("%s does not begin toolfleet_", f.GetName())
		}
	}
}

var update = flag.Bool("update", false, "write the golden file")

// TestGoldenList holds that the names, which people have in dashboards and alerts,
// change only on purpose: testdata/metrics.txt is their list.
func TestGoldenList(t *testing.T) {
	const golden = "testdata/metrics.txt"
	reg := prometheus.NewRegistry()
	useAll(metrics.New(reg), "word-count")
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		fmt.Fprintln(&got, strings.TrimSpace(fmt.Sprintf("%s %s %s", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ","))))
	}
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("other metrics than in %s; when that is meant, run the test with -update and tell it in CHANGELOG.md:\n%s", golden, diff)
	}
}

// TestExemplars holds that a scraper that asks for OpenMetrics gets the trace of a
// call, and that what is no trace id does no harm.
func TestExemplars(t *testing.T) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	reg := prometheus.NewRegistry()
	m := metrics.New(reg)
	for _, id := range []string{"", "\xff", strings.Repeat("ab", 400), "4bf92f", trace} {
		m.CallEnded(metrics.Ended{Tool: "a", Status: "succeeded", Run: time.Second, Total: 2 * time.Second, TraceID: id})
	}
	rec := httptest.NewRecorder()
	req := httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil)
	req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	metrics.Handler(reg).ServeHTTP(rec, req)
	for _, step := range []string{"run", "total"} {
		found := false
		for line := range strings.Lines(rec.Body.String()) {
			found = found || strings.Contains(line, `step="`+step+`"`) && strings.Contains(line, `# {trace_id="`+trace+`"}`)
		}
		if !found {
			t.Errorf("step %s has no exemplar", step)
		}
	}
	if n := strings.Count(rec.Body.String(), "# {"); n != 2 {
		t.Errorf("%d exemplars, want the one trace's in two steps", n)
	}
}

func TestNilMetricsCountsNothing(*testing.T) {
	var m *metrics.Metrics
	useAll(m, "word-count")
}

func TestUnknownToolIsOneSeries(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := metrics.New(reg)
	m.CallAdmitted("")
	m.CallAdmitted("")
	want := "# HELP toolfleet_calls_admitted_total Calls taken, refused ones included, by tool.\n" +
		"# TYPE toolfleet_calls_admitted_total counter\n" +
		"toolfleet_calls_admitted_total{tool=\"_unknown\"} 2\n"
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "toolfleet_calls_admitted_total"); err != nil {
		t.Error(err)
	}
}

// TestPain104TotalCountsCalls holds that the count of step total is the number
// of calls, and that a step which did not happen is not observed.
func TestPain104TotalCountsCalls(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := metrics.New(reg)
	m.CallEnded(metrics.Ended{Tool: "a", Status: "succeeded", Queue: 1, Start: 1, Run: 1, Total: 3})
	m.CallEnded(metrics.Ended{Tool: "a", Status: "refused", Kind: "invalid_arguments"})
	m.CallEnded(metrics.Ended{Tool: "a", Status: "cancelled", Kind: "cancelled", Total: -time.Second})
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, f := range families {
		if f.GetName() != "toolfleet_call_duration_seconds" {
			continue
		}
		for _, s := range f.GetMetric() {
			got[s.GetLabel()[0].GetValue()] = s.GetHistogram().GetSampleCount()
		}
	}
	if diff := cmp.Diff(map[string]uint64{"queue": 1, "start": 1, "run": 1, "total": 3}, got); diff != "" {
		t.Error(diff)
	}
}

func TestHandlerServesTheText(t *testing.T) {
	reg := metrics.NewRegistry()
	metrics.New(reg)
	rec := httptest.NewRecorder()
	metrics.Handler(reg).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	body, err := io.ReadAll(rec.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"toolfleet_build_info{", "go_goroutines", "process_open_fds"} {
		if !strings.Contains(string(body), want) {
			t.Errorf("no %s in the answer", want)
		}
	}
}

func ExampleMetrics_CallEnded() {
	reg := prometheus.NewRegistry()
	m := metrics.New(reg)
	m.CallEnded(metrics.Ended{Tool: "word-count", Status: "succeeded", Queue: 2 * time.Millisecond, Start: 40 * time.Millisecond, Run: time.Second, Total: 1042 * time.Millisecond})
	n, err := testutil.GatherAndCount(reg, "toolfleet_calls_ended_total")
	fmt.Println(n, err)
	// Output: 1 <nil>
}
