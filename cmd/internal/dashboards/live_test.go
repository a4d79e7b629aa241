//go:build ops

package dashboards

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is for what is seen twice a minute, on a machine that is busy.
const patience = 2 * time.Minute

// absent are metrics that a fleet without faults has no series of. Their panels
// show 0, and their names are held to the golden list.
var absent = []string{
	"toolfleet_pool_refill_failures_total", "toolfleet_sandbox_failures_total", "toolfleet_sandboxes_swept_total",
	"toolfleet_progress_dropped_total", "toolfleet_log_appends_lost_total", "toolfleet_egress_connections_total",
}

// TestEveryPanelShowsData has a Prometheus scrape a fleet at work and asks it every
// query as Grafana does, until each has once been answered with data.
func TestEveryPanelShowsData(t *testing.T) {
	f := startFleet(t)
	p := startPrometheus(t, f)
	f.load(t)

	// What is still to be seen: what it is of, and how to ask.
	type question struct{ of, path string }
	var open []question
	metrics := map[string]bool{}
	queries(load(t), func(of, query string) {
		path := "/api/v1/query?query=" + url.QueryEscape(substituted(query))
		if inner, ok := strings.CutPrefix(query, "label_values("); ok {
			at := strings.LastIndex(inner, ", ")
			path = "/api/v1/label/" + strings.TrimSuffix(inner[at+2:], ")") + "/values?match[]=" + url.QueryEscape(substituted(inner[:at]))
		}
		open = append(open, question{of + ": " + query, path})
		for _, s := range selector.FindAllStringSubmatch(query, -1) {
			metrics[s[1]] = true
		}
	})
	for name := range metrics {
		if !slices.Contains(absent, name) {
			open = append(open, question{"no series of " + name, "/api/v1/label/__name__/values?match[]=" + url.QueryEscape(name)})
		}
	}
	for _, name := range absent {
		if !metrics[name] {
			t.Errorf("no dashboard names %s", name)
		}
	}

	asked := len(open)
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		open = slices.DeleteFunc(open, func(q question) bool { return p.shows(t, q.of, q.path) })
		if len(open) == 0 || t.Failed() {
			break
		}
		select {
		case <-again.C:
			continue
		case <-deadline.C:
			for _, q := range open {
				t.Errorf("shows no data: %s", q.of)
			}
		}
		break
	}
	fmt.Fprintf(os.Stderr, "dashboards: %d queries and metrics, %d without data\n", asked, len(open))
}

// substituted is a query as Grafana sends it when everything is chosen.
func substituted(query string) string {
	query = strings.NewReplacer("$__rate_interval", "15s", "$__range", "5m").Replace(query)
	return variable.ReplaceAllString(query, ".*")
}

// prometheus is the address of one.
type prometheus string

// startPrometheus starts Debian's, with our rules, on an empty directory.
func startPrometheus(t *testing.T, f fleet) prometheus {
	t.Helper()
	rules, err := filepath.Abs(filepath.Join(root, "deploy/prometheus"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := write(t, filepath.Join(dir, "prometheus.yml"), fmt.Sprintf(`
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [%[1]s/recording.yaml, %[1]s/alerts.yaml]
scrape_configs:
  - job_name: dispatcher
    authorization: {credentials: %[2]s}
    static_configs: [{targets: ["%[3]s"]}]
  - job_name: worker
    static_configs: [{targets: ["%[4]s"]}]
`, rules, acme, f.dispatcher, f.worker))
	address := fmt.Sprint("127.0.0.1:", natsdtest.FreePorts(t, 1)[0])
	start(t, "", filepath.Join(os.Getenv("TOOLFLEET_OPS_PROMETHEUS"), "prometheus"),
		"--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--enable-feature=exemplar-storage")
	return prometheus("http://" + address)
}

// shows asks, and reports whether the answer holds anything but NaN. A query that
// Prometheus refuses fails the test.
func (p prometheus) shows(t *testing.T, of, path string) bool {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, string(p)+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		return false // it has only just been started
	}
	defer reply.Body.Close()
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(reply.Body).Decode(&answer); err != nil {
		return false // it starts: 503 in plain text
	}
	if answer.Status != "success" {
		t.Errorf("%s: refused: %s", of, answer.Error)
		return false
	}
	if strings.HasPrefix(path, "/api/v1/label/") {
		var values []string
		return json.Unmarshal(answer.Data, &values) == nil && len(values) > 0
	}
	var vector struct {
		Result []struct{ Value [2]any }
	}
	if err := json.Unmarshal(answer.Data, &vector); err != nil {
		t.Errorf("%s: %v", of, err)
		return false
	}
	return slices.ContainsFunc(vector.Result, func(s struct{ Value [2]any }) bool { return s.Value[1] != "NaN" })
}
