package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	pb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// receiver is an OTLP collector that keeps what it gets.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex // guards the fields below
	spans []*pb.Span
	raw   []byte
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		raw, err := io.ReadAll(req.Body)
		var got collector.ExportTraceServiceRequest
		if err != nil || req.URL.Path != "/v1/traces" || proto.Unmarshal(raw, &got) != nil {
			t.Errorf("%s: no traces: %q", req.URL.Path, raw)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.raw = append(r.raw, raw...)
		for _, from := range got.GetResourceSpans() {
			for _, s := range from.GetScopeSpans() {
				r.spans = append(r.spans, s.GetSpans()...)
			}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// trace is a trace's spans by name.
func (r *receiver) trace(t *testing.T, id string) map[string]*pb.Span {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	byName := map[string]*pb.Span{}
	for _, s := range r.spans {
		if hex.EncodeToString(s.GetTraceId()) != id {
			continue
		}
		if byName[s.GetName()] != nil {
			t.Errorf("two spans %q", s.GetName())
		}
		byName[s.GetName()] = s
	}
	return byName
}

// A call is followed from the span of its client's request to the last step of its
// worker, and nothing that its author or its tool has said is in what is sent.
func TestTraces(t *testing.T) {
	r := newReceiver(t)
	f := startFleet(t, t.TempDir(), "--otlp-endpoint", r.URL, "--log-format", "json")
	const trace, span, canary = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "canary-5f1c"
	for parent, script := range map[string]string{
		"00-" + trace + "-" + span + "-01":                    "echo " + canary + "; echo " + canary + " >&2; exit 3",
		"00-" + strings.Repeat("ab", 16) + "-" + span + "-00": "echo " + canary, // its client keeps no trace
		"00-nonsense": "echo " + canary,
	} {
		f.callTraced(t, parent, script)
	}
	_, page := f.getAs(t, "/metrics", "application/openmetrics-text")
	if !strings.Contains(page, `trace_id="`+trace+`"`) {
		t.Error("no exemplar of the trace among the metrics")
	}
	f.stop()

	got := r.trace(t, trace)
	for child, parent := range map[string]string{
		"submit": "", "validate": "submit", "admit": "submit", "push": "submit", "execute_tool shell": "submit",
		"queue": "execute_tool shell", "sandbox": "execute_tool shell", "start": "execute_tool shell", "run": "execute_tool shell", "publish": "execute_tool shell",
	} {
		s := got[child]
		if s == nil {
			t.Errorf("no span %q", child)
			continue
		}
		want := span
		if parent != "" {
			want = hex.EncodeToString(got[parent].GetSpanId())
		}
		if p := hex.EncodeToString(s.GetParentSpanId()); p != want {
			t.Errorf("%q is below %s, want %s (%q)", child, p, want, parent)
		}
		if s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() {
			t.Errorf("%q ends before it begins", child)
		}
	}
	if len(got) != 10 {
		t.Errorf("%d spans in the trace, want 10", len(got))
	}
	if s := got["execute_tool shell"].GetStatus(); s.GetCode() != pb.Status_STATUS_CODE_ERROR || s.GetMessage() != "tool_error" {
		t.Errorf("the call's status is %v", s)
	}
	if n := len(r.trace(t, strings.Repeat("ab", 16))); n != 0 {
		t.Errorf("%d spans of a trace that nobody keeps", n)
	}
	var ids []string
	for _, s := range r.spans {
		ids = append(ids, hex.EncodeToString(s.GetTraceId()))
	}
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) != 2 {
		t.Errorf("traces %q: the client's, and one that begins here", ids)
	}
	if bytes.Contains(r.raw, []byte(canary)) {
		t.Error("arguments or output are in what was sent")
	}
}

// callTraced makes a call whose request brings a trace context.
func (f *fleet) callTraced(t *testing.T, parent, script string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.http+"/v1/calls", strings.NewReader(`{"tool":"shell","arguments":{"script":"`+script+`"}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Traceparent", parent)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("HTTP %d, %v: %s", resp.StatusCode, err, body)
	}
}

func (f *fleet) getAs(t *testing.T, path, accept string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.http+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}
