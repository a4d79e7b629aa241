package main

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// kill is SIGKILL to a process that a test started.
func kill(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) }

// TestPain2FiveHundredCalls runs 500 calls in a row. They have 500 results, and
// what the fleet holds is what it held before.
func TestPain2FiveHundredCalls(t *testing.T) {
	dir := t.TempDir()
	f := startFleet(t, dir, "--slots", "2")
	run := func(n int) {
		for range n {
			if a := f.call("steady", object{"text": "a b c"}); a.Result.IsError {
				t.Fatalf("%s\n%s", a.text(), f.logTail())
			}
		}
	}
	run(20) // fills the pool and the caches
	before := f.settled(dir)
	run(500)
	after := f.settled(dir)
	if before.trace != after.trace {
		t.Errorf("on the host there was %+v, is %+v", before.trace, after.trace)
	}
	// Connections and idle workers come and go by a few.
	const slack = 12
	if after.goroutines > before.goroutines+slack || after.files > before.files+slack {
		t.Errorf("the fleet held %d goroutines and %d files, holds %d and %d",
			before.goroutines, before.files, after.goroutines, after.files)
	}
	if got := f.metric(`toolfleet_calls_ended_total\{[^}]*tool="steady"[^}]*\}`); got != 520 {
		t.Errorf("the metrics count %v calls, want 520", got)
	}
	f.stop()
	if left := traces(t, dir); left != (trace{}) {
		t.Errorf("left behind: %+v", left)
	}
}

type holding struct {
	trace
	goroutines, files int
}

// settled waits until no used sandbox is being closed and the pool is still,
// then counts.
func (f *fleet) settled(dir string) holding {
	f.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for range 600 {
		<-tick.C
		if f.metric(`toolfleet_sandboxes\{[^}]*state="(running|closing|starting)"[^}]*\}`) == 0 {
			return holding{
				trace:      traces(f.t, dir),
				goroutines: int(f.metric(`go_goroutines`)),
				files:      f.files(),
			}
		}
	}
	f.t.Fatalf("the sandboxes never come to rest:\n%s", f.logTail())
	return holding{}
}

// metric adds up the values of the series whose name matches.
func (f *fleet) metric(series string) float64 {
	f.t.Helper()
	_, raw := f.do("GET", "/metrics", nil)
	sum, found := 0.0, false
	for _, m := range regexp.MustCompile(`(?m)^`+series+` (\S+)$`).FindAllStringSubmatch(string(raw), -1) {
		v, err := strconv.ParseFloat(m[len(m)-1], 64)
		if err != nil {
			f.t.Fatal(err)
		}
		sum, found = sum+v, true
	}
	if !found {
		f.t.Fatalf("no series matches %s", series)
	}
	return sum
}

// files counts the fleet's open files, but for the user namespaces that it keeps
// for ranges of ids: which ranges are free depends on who else is on the machine.
func (f *fleet) files() int {
	f.t.Helper()
	dir := "/proc/" + strconv.Itoa(f.cmd.Process.Pid) + "/fd/"
	entries, err := os.ReadDir(dir)
	if err != nil {
		f.t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		// One that was closed meanwhile has no name any more.
		if name, err := os.Readlink(dir + e.Name()); err == nil && !strings.HasPrefix(name, "user:[") {
			n++
		}
	}
	return n
}

// TestProgressIsLive follows a countdown and sees its progress while it runs:
// the tool waits for nothing, so updates that came in one burst at the end
// would carry times close together.
func TestProgressIsLive(t *testing.T) {
	f := startFleet(t, t.TempDir())
	id := f.submit("countdown", object{"from": 10})
	var kinds []string
	f.events(id, func(ev map[string]any) bool {
		kind := ev["type"].(string)
		if kind == "ACTIVITY_DELTA" && !strings.Contains(strings.Join(kinds, " "), "TOOL_CALL_RESULT") {
			code, raw := f.do("GET", "/v1/calls/"+id, nil)
			if code != 200 {
				t.Fatalf("HTTP %d: %s", code, raw)
			}
			if f.read(raw).Status == "running" {
				kind += "(running)"
			}
		}
		kinds = append(kinds, kind)
		return true
	})
	all := strings.Join(kinds, " ")
	if n := strings.Count(all, "ACTIVITY_DELTA(running)"); n < 3 {
		t.Errorf("%d updates came while the tool ran: %s", n, all)
	}
	if !strings.HasSuffix(all, "TOOL_CALL_RESULT RUN_FINISHED") || strings.Count(all, "TOOL_CALL_RESULT") != 1 {
		t.Errorf("the run is %s", all)
	}
	f.stop()
}
