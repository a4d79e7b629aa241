package metrics_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/toolfleet/toolfleet/metrics"
)

// TestPain100HostileNamesDoNotMakeSeries drives every label that takes a string with
// ten thousand different ones, and the tenants with a thousand: names of tools,
// images, classes and runtimes that are raw bytes, whole pages, or lines of another
// metric. The budget holds, and what is scraped can be read.
func TestPain100HostileNamesDoNotMakeSeries(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := metrics.New(reg)
	page := strings.Repeat("x", 10_000)
	for i := range 10_000 {
		name := fmt.Sprintf("name-%d", i)
		switch i % 8 {
		case 1:
			name += "\xff\x00\xc0"
		case 3:
			name += page
		case 5:
			name += "\"} 1\ntoolfleet_forged_total{a=\""
		case 7:
			name = "registry.example/" + name + ":latest@sha256:" + strings.Repeat("0", 64)
		}
		tenant := fmt.Sprintf("tenant-%d", i%1000)
		m.CallAdmitted(name)
		m.CallEnded(metrics.Ended{Tool: name, Tenant: tenant, Status: "failed", Kind: "crashed", Run: time.Second, Truncated: []string{name}, TraceID: name})
		m.LetterFiled(name, name)
		m.SetTenantJobs(map[string]metrics.TenantJobs{tenant: {Waiting: 1}})
		m.SetWorkers(map[string]int{name: 1})
		m.SetOldestWaiting(map[string]time.Duration{name: 1})
		m.SetInFlightLimit(name, i)
		m.SetStream(name, 1, 1)
		m.SetQueue(name, 1, 1)
		m.SetWaiting(name, 1)
		m.Delivery(name)
		m.SetSandboxes(name, metrics.Sandboxes{Warm: 1})
		m.SandboxStarted(name, i%2 == 0, time.Second)
		m.SandboxFailed(name)
		m.SandboxesSwept(name, 1)
		m.SetPool(name, "cell", 1, 1)
		m.PoolGet(name, name, i%2 == 0)
		m.RefillFailed(name, name)
		m.ProgressDropped(name)
		m.AppendLost(name)
		m.HTTPRequest("http", name, name, i, time.Second)
		m.HTTPStreams(name, 1)
		m.SetCatalog(name, 1)
		m.CatalogFailed(name)
		m.Egress(name, name, 1, 1)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	total, series := 0, map[string]int{}
	for _, f := range families {
		n := len(f.GetMetric())
		series[f.GetName()] = n
		total += n
		// Four states or outcomes of a name at the most, and a series for each tool.
		if limit := 4 * 257; n > limit && f.GetName() != "toolfleet_http_requests_total" {
			t.Errorf("%s has %d series, above %d", f.GetName(), n, limit)
		}
	}
	if total > 20_000 {
		t.Errorf("%d series", total)
	}
	for name, want := range map[string]int{
		"toolfleet_calls_admitted_total":     1001, // and _other
		"toolfleet_tenant_calls_ended_total": 201,
		"toolfleet_tool_run_seconds_total":   1001,
		"toolfleet_tenant_run_seconds_total": 201,
		"toolfleet_workers":                  1, // a picture, and the last one had one class
		"toolfleet_tenant_jobs":              2,
		"toolfleet_tool_output_bytes_total":  2,
		"toolfleet_dead_letters_filed_total": 1001,
		"toolfleet_sandbox_failures_total":   256, // of 256 names in all a door has one
	} {
		if n := series[name]; n != want {
			t.Errorf("%s has %d series, want %d", name, n, want)
		}
	}
	rec := httptest.NewRecorder()
	metrics.Handler(reg).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	body := rec.Body.String()
	if rec.Code != 200 || strings.Contains(body, "\ntoolfleet_forged_total") || strings.Contains(body, page) {
		t.Errorf("status %d, or the scrape has what a name smuggled in", rec.Code)
	}
}

// TestPain104WhatIsGoneHasNoSeries holds that a class without workers or calls, and a
// tenant without jobs, are not told of for ever.
func TestPain104WhatIsGoneHasNoSeries(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := metrics.New(reg)
	m.SetWorkers(map[string]int{"default": 2, "gpu": 1})
	m.SetWorkers(map[string]int{"default": 1})
	m.SetOldestWaiting(map[string]time.Duration{"gpu": time.Minute})
	m.SetOldestWaiting(nil)
	m.SetTenantJobs(map[string]metrics.TenantJobs{"acme": {Waiting: 1}})
	m.SetTenantJobs(nil)
	want := "# HELP toolfleet_workers Workers that are registered and alive, by class. Every dispatcher tells the same.\n" +
		"# TYPE toolfleet_workers gauge\n" +
		"toolfleet_workers{class=\"default\"} 1\n"
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "toolfleet_workers", "toolfleet_oldest_waiting_call_age_seconds", "toolfleet_tenant_jobs"); err != nil {
		t.Error(err)
	}
}

// TestPain104PoolGaugesReturn holds that what the pool and the host are said to
// have replaces what was said before.
func TestPain104PoolGaugesReturn(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := metrics.New(reg)
	m.SetPool("runc", "cell", 3, 4)
	m.SetPool("runc", "cell", 0, 0)
	m.SetHostObjects(metrics.HostObjects{Sandboxes: 2, Cgroups: 2, NetworkNamespaces: 2})
	m.SetHostObjects(metrics.HostObjects{})
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range families {
		switch f.GetName() {
		case "toolfleet_pool_warm", "toolfleet_pool_target", "toolfleet_host_objects":
			for _, s := range f.GetMetric() {
				seen++
				if v := s.GetGauge().GetValue(); v != 0 {
					t.Errorf("%s%v is %v", f.GetName(), s.GetLabel(), v)
				}
			}
		}
	}
	if seen != 10 {
		t.Errorf("%d series, want two of the pool and eight of the host", seen)
	}
}
