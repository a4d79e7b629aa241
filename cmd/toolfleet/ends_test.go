package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/call"
)

// TestEveryEnd makes every row of the table of how a call can end happen that
// can happen with one healthy fleet, and sees its kind, its status and its
// words. Each call has exactly one result.
func TestEveryEnd(t *testing.T) {
	f := startFleet(t, t.TempDir())
	long := `{"text":"` + strings.Repeat("x", call.MaxArguments) + `"}`
	tests := []struct {
		name string
		tool string
		args any
		kind call.Kind
		// says are pieces of the result's text, in their order.
		says []string
	}{
		{"success", "word-count", object{"text": "one two three"}, "", []string{"3"}},
		{"raw text arguments", "word-count", `{"text":"one two"}`, "", []string{"2"}},
		{"unknown tool", "word-cuont", object{}, call.KindUnknownTool, []string{"word-cuont", "word-count"}},
		{"not JSON", "word-count", `{"text": `, call.KindInvalidArguments, []string{"JSON"}},
		{"duplicate key", "word-count", `{"text":"a","text":"b"}`, call.KindInvalidArguments, []string{"text"}},
		{"breaks the schema, all problems told", "word-count", object{"text": 7, "zzz": 1}, call.KindInvalidArguments, []string{"zzz", "/text"}},
		{"arguments over 1 MiB", "word-count", long, call.KindInvalidArguments, []string{"1048576"}},
		{"consent", "consent", object{}, call.KindDeclined, []string{"consent"}},
		{"error", "flaky", object{"mode": "error"}, call.KindToolError, nil},
		{"panic", "flaky", object{"mode": "panic"}, call.KindToolError, []string{"panic"}},
		{"exit 3", "flaky", object{"mode": "exit3"}, call.KindToolError, []string{"exited with code 3"}},
		{"signal", "flaky", object{"mode": "signal"}, call.KindCrashed, []string{"signal SIG"}},
		{"hangs", "flaky", object{"mode": "hang"}, call.KindTimeout, []string{"did not end within"}},
		{"eats memory", "patient", object{"mode": "eat-memory"}, call.KindOutOfMemory, []string{"memory", "64 MiB"}},
		{"forks without end", "patient", object{"mode": "fork-bomb"}, call.KindPidsLimit, []string{"processes", "32"}},
		{"floods stdout", "patient", object{"mode": "flood-stdout"}, call.KindOutputLimit, []string{"output limit", "head is kept"}},
		{"fills the disk", "patient", object{"mode": "fill-disk"}, call.KindDiskLimit, []string{"disk"}},
		{"junk on fd 3", "patient", object{"mode": "bad-fd3"}, call.KindCrashed, []string{"protocol"}},
		{"program missing", "no-program", object{}, call.KindToolError, []string{"/not-there"}},
		{"image missing", "no-image", object{}, call.KindImageUnavailable, []string{"local/does-not-exist:1"}},
		{"no worker", "nobody", object{}, call.KindExpired, []string{"No worker"}},
	}
	seen := map[call.Kind]bool{}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := *f
			f.t = t
			a := f.call(tt.tool, tt.args)
			if got, want := a.kind(), tt.kind; got != want {
				t.Errorf("kind is %q, want %q: %.500s", got, want, a.text())
			}
			if got, want := a.Status, call.EndOf(tt.kind).Status; got != want {
				t.Errorf("status is %q, want %q", got, want)
			}
			rest := a.text()
			for _, s := range tt.says {
				_, after, ok := strings.Cut(rest, s)
				if !ok {
					t.Fatalf("the result does not say %q in its place: %.500s", s, a.text())
				}
				rest = after
			}
			if a.Result.IsError && (a.Result.Error.Message == "" || a.text() == "") {
				t.Errorf("an error result without words: %+v", a)
			}
			again := f.await(a.ID)
			if again.text() != a.text() {
				t.Errorf("read again, the result is %q, was %q", again.text(), a.text())
			}
		})
		seen[tt.kind] = true
	}

	t.Run("cancel while it runs", func(t *testing.T) {
		f := *f
		f.t = t
		id := f.submit("flaky", object{"mode": "hang"})
		f.awaitRunning(id)
		if code, raw := f.do(http.MethodDelete, "/v1/calls/"+id, nil); code/100 != 2 {
			t.Fatalf("HTTP %d: %s", code, raw)
		}
		if a := f.await(id); a.kind() != call.KindCancelled || a.Status != call.StatusCancelled {
			t.Errorf("ended as %+v", a)
		}
	})
	t.Run("cancel while it waits", func(t *testing.T) {
		f := *f
		f.t = t
		id := f.submit("nobody", object{})
		if code, raw := f.do(http.MethodDelete, "/v1/calls/"+id, nil); code/100 != 2 {
			t.Fatalf("HTTP %d: %s", code, raw)
		}
		if a := f.await(id); a.kind() != call.KindCancelled {
			t.Errorf("ended as %+v", a)
		}
	})
	seen[call.KindCancelled] = true
	t.Run("bytes that are no UTF-8", func(t *testing.T) {
		f := *f
		f.t = t
		a := f.call("flaky", object{"mode": "not-utf8"})
		if a.Result.IsError || len(a.Result.Content) != 1 || a.Result.Content[0].Source == nil {
			t.Errorf("want one media part, got %+v", a.Result)
		}
	})
	t.Run("partial output is kept", func(t *testing.T) {
		f := *f
		f.t = t
		a := f.call("shell", object{"script": "echo so far so good; exit 4"})
		if !strings.HasPrefix(a.text(), "so far so good\n") || *a.Result.Error.ExitCode != 4 {
			t.Errorf("got %+v: %q", a.Result.Error, a.text())
		}
	})

	// What needs a lost worker, a quota or a fault of ours has its tests
	// elsewhere; the list keeps this table from forgetting a row.
	elsewhere := []call.Kind{call.KindInterrupted, call.KindQuotaExceeded, call.KindSandboxFailed, call.KindInternal}
	for _, end := range call.Ends {
		if !seen[end.Kind] && !slices.Contains(elsewhere, end.Kind) {
			t.Errorf("no test makes %q happen", end.Kind)
		}
	}
	f.stop()
}

// TestMalformedRequestIsAProblem sees RFC 9457 problem documents for requests
// that are no calls.
func TestMalformedRequestIsAProblem(t *testing.T) {
	f := startFleet(t, t.TempDir())
	for _, body := range []string{``, `{`, `[]`, `{"tool":7}`, `{"tool":"word-count","nope":1}`, "\x00\xff", `{"tool":"word-count","timeout":"-1s"}`} {
		code, raw := f.do(http.MethodPost, "/v1/calls", body)
		var p struct {
			Title  string `json:"title"`
			Status int    `json:"status"`
		}
		if err := json.Unmarshal(raw, &p); err != nil || p.Status != code || p.Title == "" || code/100 != 4 {
			t.Errorf("body %q: HTTP %d, not a problem document: %s", body, code, raw)
		}
		if strings.Contains(string(raw), "goroutine") {
			t.Errorf("body %q: a stack trace: %s", body, raw)
		}
	}
	f.stop()
}
