package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/toolfleet/toolfleet/cmd/internal/client"
)

// screen is a fleet's status for people: what is wrong first, then who lives and
// what waits. Ages are counted to the moment that the fleet gives, so that a
// clock that goes wrong here shows nothing wrong there.
type screen struct {
	width  int
	status *client.Status
	text   strings.Builder
}

// How many lines of each kind fit on a screen of 24 beside the others in a small
// fleet, and do not make it endless in a large one.
const (
	maxSentences = 8
	maxParts     = 12
)

// String draws it.
func (s *screen) String() string {
	s.head()
	s.dispatchers()
	s.workers()
	s.queues()
	s.letters()
	return s.text.String()
}

// head says how the fleet is in one line, and why in the next ones.
func (s *screen) head() {
	how := "healthy"
	if n := len(s.status.Problems); n > 0 {
		how = plural(n, "problem")
	}
	busy, slots := 0, 0
	for _, w := range s.status.Workers {
		busy, slots = busy+w.Busy, slots+w.Slots
	}
	facts := []string{s.count("dispatchers", len(s.status.Dispatchers), "dispatcher"), s.count("workers", len(s.status.Workers), "worker")}
	if !slices.Contains(s.status.Unknown, "workers") {
		facts = append(facts, fmt.Sprintf("%d/%d slots busy", busy, slots))
	}
	s.line(fmt.Sprintf("%s  fleet %s: %s", s.status.At.UTC().Format("15:04:05Z"), how, strings.Join(facts, ", ")))
	s.sentences("! ", s.status.Problems)
	s.sentences("  ", s.status.Notices)
}

// count is n of something, unless the fleet could not tell.
func (s *screen) count(member string, n int, noun string) string {
	if slices.Contains(s.status.Unknown, member) {
		return noun + "s unknown"
	}
	return plural(n, noun)
}

// sentences are wrapped, not cut: what to do stands at their ends.
func (s *screen) sentences(mark string, list []string) {
	for i, sentence := range list {
		if i == maxSentences {
			s.line(fmt.Sprintf("%sand %d more: see --json", mark, len(list)-i))
			return
		}
		line := mark
		for word := range strings.FieldsSeq(harmless(sentence)) {
			if len([]rune(line))+len([]rune(word)) >= s.width && strings.TrimSpace(line) != strings.TrimSpace(mark) {
				s.line(strings.TrimRight(line, " "))
				line = "  "
			}
			line += word + " "
		}
		s.line(strings.TrimRight(line, " "))
	}
}

func (s *screen) dispatchers() {
	t := s.table("DISPATCHER", "VERSION", "UP", "READY", "SCHEDULES", "SEEN")
	for _, d := range s.bound(len(s.status.Dispatchers)) {
		one := s.status.Dispatchers[d]
		t.row(clip(oneLine(one.ID), 28), clip(oneLine(one.Version), 20), s.since(one.Started), yes(one.Ready), yes(one.Schedules), s.since(one.Beat))
	}
	t.end(len(s.status.Dispatchers))
}

func (s *screen) workers() {
	// Those that need somebody come first, where a large fleet is cut.
	workers := slices.Clone(s.status.Workers)
	order := map[string]int{"not ready": 0, "draining": 1}
	rank := func(w client.WorkerStatus) int {
		if r, ok := order[w.State]; ok {
			return r
		}
		return len(order)
	}
	slices.SortStableFunc(workers, func(a, b client.WorkerStatus) int { return cmp.Compare(rank(a), rank(b)) })
	t := s.table("WORKER", "CLASS", "STATE", "BUSY", "WARM", "BOXES", "SEEN", "RUNTIMES", "VERSION")
	for _, i := range s.bound(len(workers)) {
		w := workers[i]
		t.row(clip(oneLine(w.ID), 14), clip(oneLine(w.Class), 10), oneLine(w.State), fmt.Sprintf("%d/%d", w.Busy, w.Slots), fmt.Sprintf("%d/%d", w.Warm, w.WarmTarget),
			fmt.Sprint(w.Sandboxes), s.since(w.Beat), clip(oneLine(strings.Join(w.Runtimes, ",")), 14), clip(oneLine(w.Version), 20))
	}
	t.end(len(workers))
}

func (s *screen) queues() {
	t := s.table("QUEUE", "WAITING", "READY", "IN FLIGHT", "OLDEST")
	for _, i := range s.bound(len(s.status.Queues)) {
		q := s.status.Queues[i]
		oldest := "-"
		if q.Waiting > 0 {
			oldest = age(time.Duration(q.OldestSeconds * float64(time.Second)))
		}
		t.row(clip(oneLine(q.Class), 20), fmt.Sprint(q.Waiting), fmt.Sprint(q.Ready), fmt.Sprint(q.InFlight), oldest)
	}
	t.end(len(s.status.Queues))
}

// letters ends the screen with the fleet's own last faults, and the catalogue.
func (s *screen) letters() {
	line := s.count("deadLetters", s.status.Dead.Count, "dead letter")
	if c := s.status.Catalogue; c != nil {
		line += fmt.Sprintf("; catalogue at revision %d, %s", c.Revision, plural(c.Tools, "tool"))
	}
	s.line("")
	s.line(line)
	for _, l := range s.status.Dead.Recent {
		s.line(fmt.Sprintf("  %4s ago  %s  %s  %s: %s", s.since(l.Filed), oneLine(l.Kind), oneLine(l.Tool), oneLine(l.Tenant), oneLine(l.Message)))
	}
}

// line writes a line of at most the screen's width.
func (s *screen) line(text string) { s.text.WriteString(clip(text, s.width) + "\n") }

// bound counts to n, or to as many as are shown.
func (s *screen) bound(n int) []int {
	list := make([]int, min(n, maxParts))
	for i := range list {
		list[i] = i
	}
	return list
}

// since is how long ago t was.
func (s *screen) since(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return age(s.status.At.Sub(t))
}

// age is a duration in one unit, or two where the second one tells something.
func age(d time.Duration) string {
	d = max(0, d)
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// table is a table on the screen, with an empty line before it.
type table struct {
	screen *screen
	cells  strings.Builder
	writer *tabwriter.Writer
}

func (s *screen) table(head ...string) *table {
	t := &table{screen: s}
	t.writer = tabwriter.NewWriter(&t.cells, 0, 0, 2, ' ', 0)
	t.row(head...)
	return t
}

func (t *table) row(cells ...string) { fmt.Fprintln(t.writer, strings.Join(cells, "\t")) }

// end draws a table that has n rows, not all of which need be in it. Nothing of
// one without rows is drawn.
func (t *table) end(n int) {
	if n == 0 {
		return
	}
	_ = t.writer.Flush() // into memory
	t.screen.line("")
	for line := range strings.Lines(t.cells.String()) {
		t.screen.line(strings.TrimRight(line, " \n"))
	}
	if n > maxParts {
		t.screen.line(fmt.Sprintf("and %d more", n-maxParts))
	}
}
