package chaos

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/toolfleet/toolfleet/call"
)

// asked is one call that is made, and how it has to end when no fault meets it.
type asked struct {
	// id is the tool call id, by which the ledger knows the call.
	id        string
	at        time.Duration
	tool      string
	arguments string
	timeout   string
	// idempotent is what the tool declares.
	idempotent bool
	// cancelAfter is how long after its submit the call is cancelled; 0 is
	// never.
	cancelAfter time.Duration
	want        call.Kind
}

// behaviour is something that a call does.
type behaviour struct {
	weight int
	want   call.Kind
	// work is the script between the two lines in the ledger.
	work func(draw *rand.Rand) string
	// timeout bounds the call.
	timeout string
	cancel  bool
	// broken replaces the arguments; absent replaces the tool.
	broken, absent bool
}

// forever outlives every call.
func forever(*rand.Rand) string { return "sleep 1000" }

func sleep(from, to float64) func(*rand.Rand) string {
	return func(draw *rand.Rand) string { return fmt.Sprintf("sleep %.2f", from+(to-from)*draw.Float64()) }
}

func say(text string) func(*rand.Rand) string { return func(*rand.Rand) string { return text } }

// behaviours are drawn by weight. Most calls do some work and succeed, and many
// take long enough to be met by a fault.
var behaviours = []behaviour{
	{weight: 46, work: sleep(0.05, 1)},
	{weight: 22, work: sleep(2, 9)},
	{weight: 8, want: call.KindToolError, work: say("sleep 0.3; echo this went wrong >&2; exit 3")},
	{weight: 5, want: call.KindCrashed, work: say("kill -9 $$")},
	{weight: 5, want: call.KindTimeout, work: forever, timeout: "2s"},
	{weight: 8, want: call.KindCancelled, work: forever, cancel: true},
	{weight: 2, want: call.KindInvalidArguments, broken: true},
	{weight: 2, want: call.KindUnknownTool, absent: true},
	{weight: 2, want: call.KindExpired},
}

// plan draws the calls of a run.
func plan(seed uint64, calls int) []asked {
	w := newAuthor(seed, behaviours)
	pace := span(calls) / time.Duration(calls)
	var all []asked
	for i := range calls {
		a := w.next()
		a.at = time.Duration(i) * pace
		all = append(all, a)
	}
	return all
}

// author draws one call after the other.
type author struct {
	draw  *rand.Rand
	menu  []behaviour
	total int
	calls int
}

func newAuthor(seed uint64, menu []behaviour) *author {
	w := &author{draw: rand.New(rand.NewPCG(seed, 2)), menu: menu}
	for _, b := range menu {
		w.total += b.weight
	}
	return w
}

// next draws a call, to be made at once.
func (w *author) next() asked {
	n := w.draw.IntN(w.total)
	b := 0
	for n -= w.menu[b].weight; n >= 0; n -= w.menu[b].weight {
		b++
	}
	a := w.menu[b].ask(fmt.Sprintf("call-%05d", w.calls), w.draw)
	w.calls++
	return a
}

// ask makes one call of the behaviour.
func (b behaviour) ask(id string, draw *rand.Rand) asked {
	a := asked{id: id, want: b.want, timeout: b.timeout}
	t := toolbox[draw.IntN(len(toolbox))]
	a.tool, a.idempotent = t.name, t.idempotent
	switch {
	case b.absent:
		a.tool, a.arguments = "no-such-tool", "{}"
	case b.broken:
		a.arguments = `{"script":5}`
	case b.want == call.KindExpired:
		a.tool, a.idempotent, a.arguments = nobodys, false, script("true")
	default:
		a.arguments = script(b.work(draw))
	}
	if b.cancel {
		a.cancelAfter = 50*time.Millisecond + time.Duration(draw.Int64N(int64(4*time.Second)))
	}
	return a
}

// script is the arguments of a call that does work between its two lines. One
// small append is one write, which no other can split.
func script(work string) string {
	const note = `echo %s $TOOLFLEET_CALL_ID $$ $EPOCHREALTIME >> /dev/ledger/notes`
	return fmt.Sprintf(`{"script":%q}`, fmt.Sprintf(note, "start")+"; "+work+"; "+fmt.Sprintf(note, "end")+"; echo done")
}
