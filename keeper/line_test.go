package keeper

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/queue"
)

// shares are the limits of a test's tenants.
type shares map[string][2]int

func (s shares) of(tenant string) (weight, maxInFlight int) {
	if l, ok := s[tenant]; ok {
		return l[0], l[1]
	}
	return 1, 0
}

// waiting makes a call that waits; n numbers it and its place.
func waiting(n int, tenant, tool, priority string, limit int, since time.Time) queue.Waiting {
	return queue.Waiting{
		Address: queue.Address{Class: "default", Priority: priority, Tenant: tenant, Tool: tool, Key: call.MakeKey(tenant, "t", "s", fmt.Sprint(n))},
		Seq:     uint64(n), Since: since, MaxInFlight: limit, //nolint:gosec // small
	}
}

// now is when the tests of the line happen.
var now = time.Unix(1_000_000, 0)

// drain lets everything run that may, places permitting, and names the tenants
// in the order of their calls.
func drain(l *line, n int) (order []string) {
	c := l.class("default")
	c.places = c.ready + n
	for range n {
		e := l.next(c, now)
		if e == nil {
			break
		}
		order = append(order, e.in.tenant.name)
	}
	return order
}

func TestPriorityGoesFirstUntilBatchIsOld(t *testing.T) {
	for name, c := range map[string]struct {
		waited time.Duration
		first  string
	}{"young": {ageing - time.Second, "b"}, "old": {ageing, "a"}} {
		t.Run(name, func(t *testing.T) {
			l := newLine(shares{}.of)
			l.add(waiting(1, "a", "x", call.PriorityBatch, 0, now.Add(-c.waited)))
			l.add(waiting(2, "b", "x", call.PriorityInteractive, 0, now))
			if got := drain(l, 2); len(got) != 2 || got[0] != c.first {
				t.Errorf("%v, want %s first", got, c.first)
			}
		})
	}
}

// TestTenantsTakeTurns has a tenant of weight 3 and one of weight 1 that came
// later, and a third whose single call came last of all.
func TestTenantsTakeTurns(t *testing.T) {
	l := newLine(shares{"heavy": {3, 0}}.of)
	for i := range 1000 {
		l.add(waiting(1+i, "heavy", "x", call.PriorityBatch, 0, now))
	}
	for i := range 10 {
		l.add(waiting(2000+i, "light", "x", call.PriorityBatch, 0, now))
	}
	l.add(waiting(3000, "late", "x", call.PriorityBatch, 0, now))
	if got, want := fmt.Sprint(drain(l, 9)), "[heavy heavy heavy light late heavy heavy heavy light]"; got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// model is what the line is compared with: every call it was given, in a plain
// list.
type model struct {
	*line
	t      *rapid.T
	shares shares
	calls  map[uint64]*modelled
	seq    int
}

type modelled struct {
	queue.Waiting
	ready bool
}

var (
	tenantNames = rapid.SampledFrom([]string{"a", "b", "c"})
	toolNames   = rapid.SampledFrom([]string{"x", "y"})
	priorities  = rapid.SampledFrom([]string{call.PriorityInteractive, call.PriorityBatch})
)

func (m *model) draw() queue.Waiting {
	m.seq++
	tool := toolNames.Draw(m.t, "tool")
	limit := map[string]int{"x": 0, "y": 2}[tool]
	return waiting(m.seq, tenantNames.Draw(m.t, "tenant"), tool, priorities.Draw(m.t, "priority"), limit, m.since())
}

// since is when the newest call came: one every half minute until now, so that
// the first ones are old.
func (m *model) since() time.Time {
	age := max(ageing+5*time.Minute-time.Duration(m.seq)*30*time.Second, 0)
	return now.Add(-age)
}

// ready counts the calls that run of those that one of the names picks.
func (m *model) ready(tenant, tool string) (n int) {
	for _, c := range m.calls {
		if c.ready && (tenant == "" || c.Tenant == tenant) && (tool == "" || c.Tool == tool) {
			n++
		}
	}
	return n
}

// may reports whether a call's tenant, its tool and the class have room.
func (m *model) may(w queue.Waiting) bool {
	_, most := m.shares.of(w.Tenant)
	return m.ready("", "") < m.class("default").places &&
		(most == 0 || m.ready(w.Tenant, "") < most) && (w.MaxInFlight == 0 || m.ready("", w.Tool) < w.MaxInFlight)
}

func isUrgent(w queue.Waiting) bool {
	return w.Priority == call.PriorityInteractive || now.Sub(w.Since) >= ageing
}

// best is the rank of the best call that may run, false for none.
func (m *model) best() (isAnyUrgent, found bool) {
	for _, c := range m.calls {
		if !c.ready && m.may(c.Waiting) {
			found = true
			isAnyUrgent = isAnyUrgent || isUrgent(c.Waiting)
		}
	}
	return isAnyUrgent, found
}

func (m *model) next() {
	wantUrgent, found := m.best()
	e := m.line.next(m.class("default"), now)
	if (e != nil) != found {
		m.t.Fatalf("next found a call: %t, and there is one: %t", e != nil, found)
	}
	if e == nil {
		return
	}
	c := m.calls[e.seq]
	switch {
	case c == nil || c.ready:
		m.t.Fatalf("%d does not wait", e.seq)
	case !m.may(c.Waiting):
		m.t.Fatalf("%+v may not run", c.Waiting)
	case wantUrgent && !isUrgent(c.Waiting):
		m.t.Fatalf("%+v goes before an urgent call", c.Waiting)
	}
	for _, other := range m.calls { // first come, first served within a lane
		if !other.ready && other.Seq < c.Seq && other.Tenant == c.Tenant && other.Tool == c.Tool && other.Priority == c.Priority {
			m.t.Fatalf("%d goes before %d", c.Seq, other.Seq)
		}
	}
	c.ready = true
}

func (m *model) admit() {
	w := m.draw()
	_, found := m.best()
	may := m.may(w) && !found
	for _, c := range m.calls { // it does not overtake its like
		may = may && (c.ready || c.Tenant != w.Tenant || c.Tool != w.Tool || c.Priority != w.Priority)
	}
	if got := m.line.admit(w.Address, w.MaxInFlight, now); got != may {
		m.t.Fatalf("admit(%+v) = %t, want %t", w, got, may)
	}
	if may {
		m.calls[w.Seq] = &modelled{w, true}
	}
}

// some picks a call, nil when there is none.
func (m *model) some() *modelled {
	if len(m.calls) == 0 {
		return nil
	}
	for {
		if c := m.calls[uint64(rapid.IntRange(1, m.seq).Draw(m.t, "call"))]; c != nil { //nolint:gosec // small
			return c
		}
	}
}

// check compares what is counted, and sees that nothing is kept of what is gone.
func (m *model) check() {
	c := m.class("default")
	if n := m.ready("", ""); c.ready != n || c.waiting != len(m.calls)-n || len(m.line.calls) != len(m.calls) {
		m.t.Fatalf("%d ready, %d waiting, %d known; want %d of %d ready", c.ready, c.waiting, len(m.line.calls), n, len(m.calls))
	}
	flows := 0
	for name, p := range m.tenants {
		if p.ready != m.ready(name, "") || p.calls == 0 {
			m.t.Fatalf("tenant %s: %+v", name, p)
		}
		if p.calls > p.ready {
			flows++
		}
	}
	if len(c.ring) != flows || len(c.flows) != flows {
		m.t.Fatalf("%d tenants take turns, %d wait", len(c.ring), flows)
	}
}

// TestLineKeepsItsRules compares the line with the plain statement of its rules,
// whatever happens in whatever order.
func TestLineKeepsItsRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := shares{"b": {2, 3}}
		m := &model{line: newLine(s.of), t: t, shares: s, calls: map[uint64]*modelled{}}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(*rapid.T) {
				w := m.draw()
				m.add(w)
				m.calls[w.Seq] = &modelled{w, false}
			},
			"next":  func(*rapid.T) { m.next() },
			"admit": func(*rapid.T) { m.admit() },
			"end": func(*rapid.T) {
				if c := m.some(); c != nil {
					if seq, waited := m.end(idOf(c.Key)); waited == c.ready || waited && seq != c.Seq {
						m.t.Fatalf("end(%+v) = %d, %t", c, seq, waited)
					}
					delete(m.calls, c.Seq)
				}
			},
			"comes back": func(*rapid.T) {
				if c := m.some(); c != nil {
					delete(m.calls, c.Seq)
					m.seq++
					c.Seq, c.Since = uint64(m.seq), m.since() //nolint:gosec // small
					if again := m.add(c.Waiting); (again != nil) != c.ready {
						m.t.Fatalf("%+v is moved again: %t", c, again != nil)
					}
					m.calls[c.Seq] = c
				}
			},
			"places": func(t *rapid.T) { m.class("default").places = rapid.IntRange(0, 6).Draw(t, "places") },
			"":       func(*rapid.T) { m.check() },
		})
	})
}

// TestNobodyStarves lets calls come at random while as many run: no tenant waits
// for longer than the others' turns take.
func TestNobodyStarves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := shares{"a": {rapid.IntRange(1, 5).Draw(t, "weight"), 0}}
		l := newLine(s.of)
		tenants := []string{"a", "b", "c", "d"}
		n := 0
		for _, tenant := range tenants {
			for range rapid.IntRange(10, 50).Draw(t, tenant) {
				n++
				l.add(waiting(n, tenant, "x", call.PriorityInteractive, 0, now))
			}
		}
		weight, _ := s.of("a")
		seen := map[string]int{}
		for _, tenant := range drain(l, weight+3) { // one round: all have enough
			seen[tenant]++
		}
		if seen["a"] != weight || seen["b"] != 1 || seen["c"] != 1 || seen["d"] != 1 {
			t.Fatalf("in one round of weight %d: %v", weight, seen)
		}
	})
}

// TestAWaitingCallIsSmall counts what the line keeps of a call, for there may be
// a hundred thousand.
func TestAWaitingCallIsSmall(t *testing.T) {
	const calls, most = 50_000, 160
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	l := newLine(shares{}.of)
	for i := range calls {
		l.add(waiting(1+i, fmt.Sprint("tenant", i%100), "tool", call.PriorityBatch, 0, now))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if n := (after.HeapAlloc - before.HeapAlloc) / calls; n > most {
		t.Errorf("%d bytes a call, want at most %d", n, most)
	}
	if l.class("default").waiting != calls {
		t.Errorf("%d wait", l.class("default").waiting)
	}
}

// TestACallThatComesBackKeepsItsPlace has a call in READY that is found in CALLS,
// too, and one of the same tool that waits for it.
func TestACallThatComesBackKeepsItsPlace(t *testing.T) {
	l := newLine(shares{}.of)
	back := waiting(2, "a", "x", call.PriorityInteractive, 1, now)
	l.restore(back.Address)
	l.add(waiting(1, "b", "x", call.PriorityInteractive, 1, now))
	if e := l.add(back); e == nil || e.seq != back.Seq {
		t.Errorf("%+v is to be moved again", e)
	}
	if got := drain(l, 2); len(got) != 0 {
		t.Errorf("%v may run beside a call of the same tool, whose limit is 1", got)
	}
}

// TestAToolsNewLimitHoldsForWhatWaits changes a tool's maxInFlight while one call
// runs and one waits by the old spec.
func TestAToolsNewLimitHoldsForWhatWaits(t *testing.T) {
	for _, c := range []struct {
		before, after int
		want          string
	}{{1, 3, "[a b]"}, {3, 1, "[]"}} {
		l := newLine(shares{}.of)
		l.restore(waiting(1, "c", "x", call.PriorityInteractive, c.before, now).Address)
		l.add(waiting(2, "a", "x", call.PriorityInteractive, c.before, now))
		l.add(waiting(3, "b", "x", call.PriorityInteractive, c.after, now))
		if got := fmt.Sprint(drain(l, 2)); got != c.want {
			t.Errorf("from %d to %d: %s run, want %s", c.before, c.after, got, c.want)
		}
	}
}
