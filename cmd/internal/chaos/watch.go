package chaos

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/toolfleet/toolfleet/cmd/internal/client"
)

// watch looks, while a fleet is restarted, at what its operators look at: the
// screen of `toolfleet status`, and the pages of metrics that dashboards are drawn
// from. It belongs to the one who runs it.
type watch struct {
	toolfleet string
	doors     []string // URLs of the dispatchers
	gauge     gauge    // toolfleet_workers
	status    statuses
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

// statuses is what was seen on the screens, and the last of them.
type statuses struct {
	seen int
	// draining, away and versions count the screens with a worker that drains,
	// with a dispatcher that is not there, and with two versions.
	draining, away, versions int
	last                     client.Status
}

func (s *statuses) note(v client.Status) {
	s.seen++
	s.last = v
	for _, w := range v.Workers {
		if w.State == "draining" {
			s.draining++
			break
		}
	}
	if len(v.Dispatchers) < dispatchers {
		s.away++
	}
	if len(versions(v)) == 2 {
		s.versions++
	}
}

// versions are those of all parts on a screen.
func versions(v client.Status) map[string]int {
	all := map[string]int{}
	for _, d := range v.Dispatchers {
		all[d.Version]++
	}
	for _, w := range v.Workers {
		all[w.Version]++
	}
	return all
}

// newWatch makes a watch of the fleet.
func newWatch(f *fleet) *watch {
	w := &watch{toolfleet: f.program("toolfleet")}
	for _, d := range f.dispatchers {
		w.doors = append(w.doors, strings.TrimSuffix(d.page, "/readyz"))
	}
	return w
}

// watchEvery is how often is looked. A worker is away for longer.
const watchEvery = 250 * time.Millisecond

// run looks until ctx is done. A dispatcher that is away is no news.
func (w *watch) run(ctx context.Context) {
	for n := 0; pause(ctx, watchEvery); n++ {
		_ = w.look(ctx, w.doors[n%len(w.doors)])
	}
}

// look looks once, through one dispatcher.
func (w *watch) look(ctx context.Context, door string) error {
	page, err := read(ctx, door+"/metrics")
	if err != nil {
		return err
	}
	if v, ok := sum(page, "toolfleet_workers"); ok {
		w.gauge.note(v)
	}
	cmd := exec.CommandContext(ctx, w.toolfleet, "status", "--json")
	cmd.Env = append(os.Environ(), "TOOLFLEET_URL="+door)
	out, err := cmd.Output() // with exit code 1 it tells what is wrong
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return err
	}
	var v client.Status
	if err := json.Unmarshal(out, &v); err != nil {
		return fmt.Errorf("chaos: toolfleet status said %.200q: %w", out, err)
	}
	w.status.note(v)
	return nil
}

// settle looks until both doors show the whole fleet, and fails with what they
// show if they never do.
func (w *watch) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	for _, door := range w.doors {
		for {
			err := w.look(ctx, door)
			if err == nil {
				err = w.whole()
			}
			if err == nil {
				break
			}
			if !pause(ctx, watchEvery) {
				return err
			}
		}
	}
	return nil
}

// whole says what the last look lacks.
func (w *watch) whole() error {
	s := w.status.last
	if w.gauge.last != workers {
		return fmt.Errorf("chaos: toolfleet_workers is %v, and not %d", w.gauge.last, workers)
	}
	if len(s.Workers) != workers || len(s.Dispatchers) != dispatchers || len(versions(s)) != 1 || len(s.Problems) > 0 {
		return fmt.Errorf("chaos: toolfleet status does not show %d workers and %d dispatchers of one version that are well: %+v", workers, dispatchers, s)
	}
	return nil
}

// missed says what of a roll was on no screen; nil when all was.
func (w *watch) missed() error {
	switch s := w.status; {
	case w.gauge.seen == 0 || w.gauge.least >= workers:
		return errors.New("chaos: toolfleet_workers never fell")
	case s.draining == 0:
		return errors.New("chaos: toolfleet status never showed a worker that drains")
	case s.away == 0:
		return errors.New("chaos: toolfleet status never showed that a dispatcher was away")
	case s.versions == 0:
		return errors.New("chaos: toolfleet status never showed two versions")
	}
	return nil
}

func (w *watch) String() string {
	return fmt.Sprintf("metrics showed toolfleet_workers at %v and then at %v; of %d screens of toolfleet status %d showed two versions, %d a worker that drains, %d a dispatcher less",
		w.gauge.least, w.gauge.last, w.status.seen, w.status.versions, w.status.draining, w.status.away)
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
