package dashboards

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// dashboard is what the tests look at of a dashboard; the rest of its schema is
// toolchain/grafana's.
type dashboard struct {
	file       string
	UID        string
	Title      string
	Links      []link
	Templating struct {
		List []struct{ Name, Type, Query string }
	}
	Panels []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	Datasource               struct{ UID string }
	Links                    []link
	Targets                  []struct {
		Expr       string
		Exemplar   bool
		Datasource struct{ UID string }
	}
}

type link struct{ URL string }

// load reads the dashboards.
func load(t *testing.T) []dashboard {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "deploy/grafana/*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 3 {
		t.Fatalf("found %d dashboards; the rules would hold for nothing", len(files))
	}
	var all []dashboard
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		d := dashboard{file: filepath.Base(name)}
		if err := json.Unmarshal(raw, &d); err != nil {
			t.Fatalf("%s: %v", d.file, err)
		}
		all = append(all, d)
	}
	return all
}

// queries calls visit with each query of the dashboards, and with what it is of:
// a panel, or a variable.
func queries(all []dashboard, visit func(of, query string)) {
	for _, d := range all {
		for _, v := range d.Templating.List {
			if v.Type == "query" {
				visit(d.file+", variable "+v.Name, v.Query)
			}
		}
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				visit(d.file+", panel "+p.Title, target.Expr)
			}
		}
	}
}

var (
	// A metric, or a rule (toolfleet:what:how), with the matchers behind it.
	selector = regexp.MustCompile(`\b((?:toolfleet|process|go)[_:][a-zA-Z0-9_:]+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`([a-z_]+)(?:=~|!~|!=|=)"`)
	byLabels = regexp.MustCompile(`\bby \(([^)]*)\)`)
	variable = regexp.MustCompile(`\$([a-z]+)\b`)
)

// known is the labels of each series that the fleet has: of the metrics in their
// golden list, of the rules, and of the few of the process that dashboards use.
func known(t *testing.T) map[string][]string {
	t.Helper()
	series := map[string][]string{}
	for _, name := range []string{"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_max_fds", "go_goroutines"} {
		series[name] = []string{"instance", "job"}
	}
	golden, err := os.ReadFile(filepath.Join(root, "metrics/testdata/metrics.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(golden)) {
		fields := append(strings.Fields(line), "")
		labels := append(strings.Split(fields[2], ","), "instance", "job")
		if fields[1] != "histogram" {
			series[fields[0]] = labels
			continue
		}
		series[fields[0]+"_count"], series[fields[0]+"_sum"] = labels, labels
		series[fields[0]+"_bucket"] = append(slices.Clone(labels), "le")
	}
	rules, err := os.ReadFile(filepath.Join(root, "deploy/prometheus/recording.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(rules)) {
		if _, name, ok := strings.Cut(line, "- record: "); ok {
			series[strings.TrimSpace(name)] = nil
		}
	}
	return series
}

// TestQueriesNameWhatThereIs wants every metric of a query to be one, and every
// label that it selects or sums by to be one of its metrics'.
func TestQueriesNameWhatThereIs(t *testing.T) {
	series, all := known(t), load(t)
	queries(all, func(of, query string) {
		found := selector.FindAllStringSubmatch(query, -1)
		if len(found) == 0 {
			t.Errorf("%s: no metric in %s", of, query)
		}
		var union []string
		for _, s := range found {
			labels, ok := series[s[1]]
			if !ok {
				t.Errorf("%s: there is no %s", of, s[1])
			}
			union = append(union, labels...)
			for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
				if !slices.Contains(labels, m[1]) {
					t.Errorf("%s: %s has no label %s", of, s[1], m[1])
				}
			}
		}
		for _, by := range byLabels.FindAllStringSubmatch(query, -1) {
			for label := range strings.SplitSeq(by[1], ",") {
				if !slices.Contains(union, strings.TrimSpace(label)) {
					t.Errorf("%s: sums by %s, which no metric of it has: %s", of, label, query)
				}
			}
		}
	})
	for _, d := range all {
		var names []string
		for _, v := range d.Templating.List {
			names = append(names, v.Name)
		}
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				for _, v := range variable.FindAllStringSubmatch(target.Expr, -1) {
					if !slices.Contains(names, v[1]) {
						t.Errorf("%s, panel %s: there is no variable $%s", d.file, p.Title, v[1])
					}
				}
			}
		}
	}
}

// TestPanelsExplainThemselves wants of each panel what somebody needs who is woken
// by it: what is normal, a page that is there, a source that can be chosen, and a
// place of its own on the screen. Histograms lead to traces.
func TestPanelsExplainThemselves(t *testing.T) {
	const pages = "https://github.com/toolfleet/toolfleet/blob/main/docs/runbooks/"
	uids := map[string]string{}
	for _, d := range load(t) {
		if other, taken := uids[d.UID]; taken || d.UID == "" {
			t.Errorf("%s: uid %q is that of %q too", d.file, d.UID, other)
		}
		uids[d.UID] = d.file
		links, ids, cells := d.Links, map[int]bool{}, map[[2]int]string{}
		for _, p := range d.Panels {
			if ids[p.ID] {
				t.Errorf("%s, panel %s: id %d is another's", d.file, p.Title, p.ID)
			}
			ids[p.ID] = true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := cells[[2]int{x, y}]; other != "" || x > 23 {
						t.Fatalf("%s, panel %s: lies over %q, or beyond the 24 columns", d.file, p.Title, other)
					}
					cells[[2]int{x, y}] = p.Title
				}
			}
			if p.Type == "row" {
				continue
			}
			links = append(links, p.Links...)
			if len(p.Description) < 30 {
				t.Errorf("%s, panel %s: its description does not say what is normal", d.file, p.Title)
			}
			if len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
				t.Errorf("%s, panel %s: has no query, or no data source that can be chosen", d.file, p.Title)
			}
			for _, target := range p.Targets {
				if target.Datasource.UID != "${datasource}" {
					t.Errorf("%s, panel %s: a query has a data source of its own", d.file, p.Title)
				}
				if strings.Contains(target.Expr, "_bucket") && !target.Exemplar {
					t.Errorf("%s, panel %s: a histogram without exemplars", d.file, p.Title)
				}
			}
		}
		for _, l := range links {
			name, ours := strings.CutPrefix(l.URL, pages)
			if l.URL == "" {
				continue // to the other dashboards, by their tag
			}
			if _, err := os.Stat(filepath.Join(root, "docs/runbooks", name)); !ours || err != nil {
				t.Errorf("%s: links to %s, which is no page of docs/runbooks", d.file, l.URL)
			}
		}
	}
}

// A chart takes no file from outside of its directory, so it has copies.
func TestChartHasTheSameDashboards(t *testing.T) {
	const copies = "charts/toolfleet/dashboards"
	count := 0
	for _, d := range load(t) {
		count++
		original, err := os.ReadFile(filepath.Join(root, "deploy/grafana", d.file))
		if err != nil {
			t.Fatal(err)
		}
		if carried, err := os.ReadFile(filepath.Join(root, copies, d.file)); err != nil || string(carried) != string(original) {
			t.Errorf("copy deploy/grafana/%s to %s", d.file, copies)
		}
	}
	if files, _ := filepath.Glob(filepath.Join(root, copies, "*.json")); len(files) != count {
		t.Errorf("%s holds %d dashboards, deploy/grafana %d", copies, len(files), count)
	}
}
