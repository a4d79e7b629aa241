package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/cmd/internal/client"
)

// progress is a call's progress as text on standard error: one line that
// updates in place on a terminal, a line for every change elsewhere.
type progress struct {
	term     *terminal
	activity call.Activity
	// last is what was shown last, without the clock, and said what the tool
	// said in it.
	last, said string
	// drawn says that a line stands on the terminal and must be cleared.
	drawn bool
}

// show takes the next event; a delta that cannot be applied is left out, since
// the next snapshot tells all.
func (p *progress) show(ev client.Event) error {
	switch e := ev.Event.(type) {
	case agui.ActivitySnapshot:
		var a call.Activity
		if e.ActivityType != call.ActivityType || json.Unmarshal(e.Content, &a) != nil {
			return nil
		}
		p.activity = a
	case agui.ActivityDelta:
		if e.ActivityType != call.ActivityType || p.activity.Apply(e) != nil {
			return nil
		}
	default:
		return nil
	}
	if !p.activity.Status.Ended() {
		p.draw()
	} else if said := p.words(); said != "" && said != p.said {
		// The last thing a tool says often comes with the news of its end.
		p.clear()
		fmt.Fprintln(p.term.err, oneLine(p.activity.ToolName)+": "+said)
		p.said = said
	}
	return nil
}

func (p *progress) draw() {
	line := p.line()
	p.said = p.words()
	if p.term.width > 0 {
		clock := time.Duration(p.activity.ElapsedMs) * time.Millisecond
		line = clip(fmt.Sprintf("%s  %s", line, clock.Round(100*time.Millisecond)), p.term.width-1)
		fmt.Fprintf(p.term.err, "\r\x1b[2K%s", line)
		p.drawn = true
		return
	}
	if line != p.last {
		fmt.Fprintln(p.term.err, line)
		p.last = line
	}
}

// line is the activity without its clock.
func (p *progress) line() string {
	a := p.activity
	words := []string{oneLine(a.ToolName) + ":", oneLine(string(a.Status))}
	if a.Attempt > 1 {
		words = append(words, fmt.Sprintf("(attempt %d)", a.Attempt))
	}
	if said := p.words(); said != "" {
		words = append(words, said)
	}
	return strings.Join(words, " ")
}

// words is what the tool has said: how far it is, and its message or the last
// line of its standard error.
func (p *progress) words() string {
	var words []string
	said := lastLine(p.activity.Output)
	if pr := p.activity.Progress; pr != nil {
		switch {
		case pr.Total > 0:
			words = append(words, number(pr.Current)+"/"+number(pr.Total))
		case pr.Current != 0:
			words = append(words, number(pr.Current))
		}
		if pr.Message != "" {
			said = pr.Message
		}
	}
	if said = oneLine(said); said != "" {
		words = append(words, said)
	}
	return strings.Join(words, " ")
}

// clear removes the line that stands on the terminal.
func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.term.err, "\r\x1b[2K")
		p.drawn = false
	}
}

// end clears the line and says in its place how the call ended.
func (p *progress) end(tool, id string, r *call.Result) {
	p.clear()
	if r == nil {
		return
	}
	line := oneLine(tool) + ": " + string(r.Status())
	if r.Error != nil {
		line += " (" + oneLine(string(r.Error.Kind)) + ")"
	}
	if x := r.Execution; x != nil {
		ran := time.Duration(x.RunMs) * time.Millisecond
		waited := time.Duration(x.QueuedMs+x.StartMs) * time.Millisecond
		line += fmt.Sprintf(", ran %s after %s", ran, waited)
	}
	if id != "" {
		line += "; call " + id
	}
	fmt.Fprintln(p.term.err, line)
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// lastLine is the last line of s that says something.
func lastLine(s string) string {
	s = strings.TrimRight(s, "\r\n\t ")
	return s[strings.LastIndexAny(s, "\r\n")+1:]
}
