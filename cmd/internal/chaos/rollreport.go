package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// report says how the roll went, its last line what counts.
func (r *rolling) report(calls []*made, logs map[string]logged, ledger map[string]witness, v *verdict) error {
	out := r.fleet.cfg.Out
	for _, d := range v.details {
		fmt.Fprintln(out, d)
	}
	ends(out, logs)
	results, again := 0, 0
	for _, m := range calls {
		if logs[m.asked.id].results == 1 {
			results++
		}
		if ledger[m.asked.id].starts > 1 {
			again++
		}
	}
	var d deaths
	for _, p := range r.fleet.all() {
		d.panics += p.deaths.panics
		d.exits += p.deaths.exits
	}
	fmt.Fprintf(out, "ends of processes beside these: panics=%d exits=%d\n", d.panics, d.exits)
	fmt.Fprintf(out, "calls taken up at another door: %d, tools run again, which they allow: %d\n", moved(calls), again)
	fmt.Fprintf(out, "a client waited for its call to be taken: %s\n", waits(calls))
	fmt.Fprintln(out, r.watch)
	fmt.Fprintln(out, v)
	fmt.Fprintf(out, "rolling: %d calls, %d results, %d lost\n", len(calls), results, v.lost)
	switch {
	case !v.kept():
		return ErrBroken
	case d.panics+d.exits > 0:
		return fmt.Errorf("chaos: a part ended that nobody had told to; see the logs in %s", r.fleet.cfg.Dir)
	}
	return r.watch.missed()
}

// moved counts the calls whose clients had to ask more than once.
func moved(calls []*made) (n int) {
	for _, m := range calls {
		if m.answer.tries > 1 {
			n++
		}
	}
	return n
}

// waits says how long clients waited until they knew that their calls were taken.
func waits(calls []*made) string {
	var told []*made
	for _, m := range calls {
		if m.answer.accepted >= 0 {
			told = append(told, m)
		}
	}
	if len(told) == 0 {
		return "nobody was told"
	}
	slices.SortFunc(told, func(a, b *made) int { return cmp.Compare(a.answer.accepted, b.answer.accepted) })
	of := func(m *made) time.Duration { return m.answer.accepted.Round(time.Millisecond) }
	last := told[len(told)-1]
	return fmt.Sprintf("median %s, 99 of 100 %s, longest %s (%s, made at %.1fs)",
		of(told[len(told)/2]), of(told[len(told)*99/100]), of(last), last.asked.id, last.asked.at.Seconds())
}
