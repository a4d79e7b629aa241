package chaos

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// watch reads, while a fleet is restarted, what its operators read: the pages of
// metrics of its dispatchers. It belongs to the one who runs it.
type watch struct {
	pages   []string
	workers gauge
}

// gauge is what was seen of a number.
type gauge struct {
	seen        int
	least, last float64
}

func (g *gauge) note(v float64) {
	if g.seen == 0 {
		g.least = math.Inf(1)
	}
	g.seen++
	g.least, g.last = min(g.least, v), v
}

// newWatch makes a watch of the fleet's dispatchers.
func newWatch(f *fleet) *watch {
	w := &watch{}
	for _, d := range f.dispatchers {
		w.pages = append(w.pages, strings.TrimSuffix(d.page, "/readyz")+"/metrics")
	}
	return w
}

// watchEvery is how often the pages are read. A worker is away for longer.
const watchEvery = 250 * time.Millisecond

// run reads until ctx is done. A dispatcher that is away is no news.
func (w *watch) run(ctx context.Context) {
	for n := 0; pause(ctx, watchEvery); n++ {
		page, err := read(ctx, w.pages[n%len(w.pages)])
		if err != nil {
			continue
		}
		if v, ok := sum(page, "toolfleet_workers"); ok {
			w.workers.note(v)
		}
	}
}

// settled says why the metrics do not show what was done; empty when they do.
func (w *watch) settled() string {
	switch g := w.workers; {
	case g.seen == 0:
		return "toolfleet_workers was never seen"
	case g.least >= workers:
		return "toolfleet_workers never fell"
	case g.last != workers:
		return fmt.Sprintf("toolfleet_workers is %v at the end, and not %d", g.last, workers)
	}
	return ""
}

// sum adds up a metric's samples on a page in Prometheus' text format; false
// means that there are none.
func sum(page []byte, name string) (total float64, ok bool) {
	for lines := bufio.NewScanner(bytes.NewReader(page)); lines.Scan(); {
		rest, found := strings.CutPrefix(lines.Text(), name)
		if !found || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			continue
		}
		total, ok = total+v, true
	}
	return total, ok
}
