package chaos

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/toolfleet/toolfleet/call"
)

// report says how it went, the two lines that count last.
func report(out io.Writer, f *fleet, h *havoc, v *verdict, logs map[string]logged) error {
	for _, d := range v.details {
		fmt.Fprintln(out, d)
	}
	for _, err := range h.missed {
		fmt.Fprintln(out, "not done:", err)
	}
	ends(out, logs)
	var d deaths
	for _, p := range f.all() {
		d.failpoints += p.deaths.failpoints
		d.panics += p.deaths.panics
		d.exits += p.deaths.exits
	}
	fmt.Fprintf(out, "ends of processes beside these: failpoints=%d panics=%d exits=%d\n", d.failpoints, d.panics, d.exits)
	fmt.Fprintln(out, h.counts())
	fmt.Fprintln(out, v)
	switch {
	case !v.kept():
		return ErrBroken
	case d.panics > 0:
		return fmt.Errorf("chaos: a part panicked; see the logs in %s", f.cfg.Dir)
	case len(h.missed) > 0:
		return fmt.Errorf("chaos: %d faults could not be made", len(h.missed))
	}
	return nil
}

// ends says how many calls ended how, the most frequent first.
func ends(out io.Writer, logs map[string]logged) {
	count := map[call.Kind]int{}
	for _, l := range logs {
		if l.results > 0 {
			count[l.kind]++
		}
	}
	fmt.Fprint(out, "ends")
	for _, k := range slices.SortedFunc(maps.Keys(count), func(a, b call.Kind) int { return cmp.Or(count[b]-count[a], cmp.Compare(a, b)) }) {
		fmt.Fprintf(out, " %s=%d", cmp.Or(string(k), "succeeded"), count[k])
	}
	fmt.Fprintln(out)
}
