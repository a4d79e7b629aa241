package chaos

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
)

// The same seed makes the same run, another makes another, and every run has
// what the menu says, in the order of time and within the span.
func TestSchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed, calls := rapid.Uint64().Draw(t, "seed"), rapid.IntRange(1, 5000).Draw(t, "calls")
		faults := schedule(seed, calls)
		if !slices.Equal(faults, schedule(seed, calls)) {
			t.Fatal("the same seed makes another schedule")
		}
		if slices.Equal(faults, schedule(seed+1, calls)) {
			t.Fatal("another seed makes the same schedule")
		}
		if !slices.IsSortedFunc(faults, func(a, b fault) int { return int(a.at - b.at) }) {
			t.Fatal("faults are out of order")
		}
		count := map[kind]int{}
		for _, f := range faults {
			count[f.kind]++
			if f.at < 0 || f.at > span(calls) {
				t.Fatalf("%v is outside of %v", f, span(calls))
			}
		}
		for _, m := range menu {
			if count[m.kind] < 1 || calls >= menuCalls && count[m.kind] < m.n {
				t.Fatalf("%d calls have %d faults %s", calls, count[m.kind], m.kind)
			}
		}
	})
}

func TestFullMenu(t *testing.T) {
	least := map[kind]int{workerKill: 20, dispatcherKill: 10, natsKill: 10, containerdKill: 5, shimKill: 1, stop: 5, partition: 3, diskFull: 1}
	for _, m := range menu {
		if m.n < least[m.kind] {
			t.Errorf("%s happens %d times in %d calls, and not %d", m.kind, m.n, menuCalls, least[m.kind])
		}
		if m.kind == stop && m.from <= lease {
			t.Error("a stopped worker wakes up within its lease")
		}
		delete(least, m.kind)
	}
	if len(least) > 0 {
		t.Errorf("never: %v", least)
	}
}

func TestPlan(t *testing.T) {
	calls := plan(7, 1000)
	if d := cmp.Diff(calls, plan(7, 1000), cmp.AllowUnexported(asked{})); d != "" {
		t.Error(d)
	}
	if cmp.Equal(calls, plan(8, 1000), cmp.AllowUnexported(asked{})) {
		t.Error("another seed makes the same calls")
	}
	ids, wanted, repeatable := map[string]bool{}, map[call.Kind]int{}, map[bool]int{}
	for _, a := range calls {
		ids[a.id] = true
		wanted[a.want]++
		repeatable[a.idempotent]++
		if a.tool == nobodys && a.want != call.KindExpired || a.cancelAfter > 0 != (a.want == call.KindCancelled) {
			t.Errorf("%+v cannot end so", a)
		}
	}
	if len(ids) != len(calls) {
		t.Error("two calls have one id")
	}
	for _, b := range behaviours {
		if wanted[b.want] == 0 {
			t.Errorf("no call of 1000 is to end as %q", b.want)
		}
	}
	if min(repeatable[true], repeatable[false]) < 300 {
		t.Errorf("calls that may be repeated, or not: %v", repeatable)
	}
}

// The tools are what the catalogue takes, and declare what the verifier thinks.
func TestTools(t *testing.T) {
	dir := t.TempDir()
	if err := writeTools(dir); err != nil {
		t.Fatal(err)
	}
	specs, err := catalog.LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(specs) != len(toolbox)+1 {
		t.Errorf("%d tools", len(specs))
	}
	for _, tool := range toolbox {
		i := slices.IndexFunc(specs, func(s catalog.Spec) bool { return s.Name == tool.name })
		if i < 0 || specs[i].Annotations.Idempotent != tool.idempotent || specs[i].Isolation != tool.isolation {
			t.Errorf("%s is not declared as it is in the toolbox", tool.name)
		}
	}
}

func TestFaultsAreReadable(t *testing.T) {
	for want, f := range map[string]fault{
		"   1.5s stops w1 for 8.0s":   {at: 1500 * time.Millisecond, kind: stop, target: 1, length: 8 * time.Second},
		"   0.0s shim_kills w0":       {kind: shimKill},
		"   0.0s nats_kills nats2":    {kind: natsKill, target: 2},
		"   0.0s disk_full nats0":     {kind: diskFull},
		"   0.0s partitions w2":       {kind: partition},
		" 600.0s dispatcher_kills d1": {at: 10 * time.Minute, kind: dispatcherKill, target: 1},
	} {
		if got := f.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
