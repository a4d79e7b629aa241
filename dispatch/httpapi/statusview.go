package httpapi

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolfleet/toolfleet/queue"
)

// viewStatus makes one picture of what was seen, and judges it.
func (s *Server) viewStatus(seen *sighting) statusView {
	v := statusView{
		At: s.config.Dispatcher.Log.Now().UTC(), Problems: []string{}, Notices: []string{}, Unknown: []string{},
		Dispatchers: s.viewDispatchers(seen), Workers: viewFleetWorkers(seen.workers), Queues: []queueView{},
		Dead: deadView{Count: seen.dead, Recent: []lastLetter{}},
	}
	for _, q := range seen.queues {
		v.Queues = append(v.Queues, queueView{q.Class, q.Waiting, q.Ready, q.InFlight, q.Oldest.Round(100 * time.Millisecond).Seconds()})
	}
	for _, l := range seen.letters {
		c := l.Job.Call
		v.Dead.Recent = append(v.Dead.Recent, lastLetter{c.Key(), c.Tenant, c.Tool, l.Kind, l.Message, l.Filed})
	}
	if s.config.Catalogue != nil {
		state, _ := s.config.Catalogue.State()
		v.Catalogue = &catalogueLine{state.Revision, len(state.Tools), len(state.Faults)}
	}
	v.judge(seen, s.report().Err())
	return v
}

func (s *Server) viewDispatchers(seen *sighting) []dispatcherView {
	list := []dispatcherView{}
	for _, d := range seen.dispatchers {
		list = append(list, dispatcherView{
			ID: d.ID, Version: d.Version, Started: d.Started.UTC(), Beat: d.Beat.UTC(), Ready: d.Problem == "", Problem: d.Problem,
			Schedules: d.ID == seen.leader, Answered: d.ID == s.config.ID,
		})
	}
	slices.SortFunc(list, func(a, b dispatcherView) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

func viewFleetWorkers(workers []queue.WorkerInfo) []fleetWorker {
	list := []fleetWorker{}
	for _, w := range sortedWorkers(workers) {
		v := fleetWorker{workerView: viewWorker(w), Warm: w.Warm, WarmTarget: w.WarmTarget, Sandboxes: w.Sandboxes, State: workerReady, Problem: w.Problem}
		switch {
		case w.Draining:
			v.State = workerDraining
		case w.Problem != "":
			v.State = workerNotReady
		}
		list = append(list, v)
	}
	return list
}

// judge says what is wrong, in the order in which it matters: who cannot be seen
// makes the rest hard to tell.
func (v *statusView) judge(seen *sighting, ready error) {
	problem := func(format string, args ...any) { v.Problems = append(v.Problems, fmt.Sprintf(format, args...)) }
	if ready != nil {
		problem("The dispatcher that answers is not ready: %v.", ready)
	}
	v.judgeSilence(problem, seen)
	for _, d := range v.Dispatchers {
		if !d.Ready && !d.Answered {
			problem("Dispatcher %s is not ready: %s.", d.ID, d.Problem)
		}
	}
	if seen.leader == "" && seen.leaderErr == nil {
		problem("No dispatcher schedules: calls wait. Another takes over within 15 seconds; if none does, look at the dispatchers' logs.")
	}
	v.judgeWorkers(problem, seen)
	if c := v.Catalogue; c != nil && c.Faults > 0 {
		problem("Some tools cannot be served, or not read anew (%d): `toolfleet tools list` says why.", c.Faults)
	}
	v.notice()
}

// judgeSilence says what the NATS servers do not tell; in one sentence when that
// is everything.
func (v *statusView) judgeSilence(problem func(string, ...any), seen *sighting) {
	questions := []struct {
		err        error
		name, what string
	}{
		{seen.dispatchersErr, "dispatchers", "which dispatchers live"},
		{seen.workersErr, "workers", "which workers live"},
		{seen.queuesErr, "queues", "what waits"},
		{seen.deadErr, "deadLetters", "how many dead letters there are"},
		{seen.leaderErr, "scheduler", "who schedules"},
	}
	for _, q := range questions {
		if q.err != nil {
			v.Unknown = append(v.Unknown, q.name)
		}
	}
	if len(v.Unknown) == len(questions) {
		problem("No NATS server answers: who lives and what waits is not known. Calls that run go on; see that most of the NATS servers run.")
		return
	}
	for _, q := range questions {
		if q.err != nil {
			problem("The NATS servers do not tell %s: %v.", q.what, q.err)
		}
	}
}

func (v *statusView) judgeWorkers(problem func(string, ...any), seen *sighting) {
	takes := map[string]bool{} // classes of which a worker takes calls
	for _, w := range v.Workers {
		switch w.State {
		case workerReady:
			takes[w.Class] = true
		case workerNotReady:
			problem("Worker %s takes no calls: %s.", w.ID, w.Problem)
		}
	}
	if seen.workersErr != nil {
		return
	}
	if len(v.Workers) == 0 {
		problem("There is no worker: nothing runs. Start one.")
		return
	}
	for _, q := range v.Queues {
		if q.Waiting > 0 && !takes[q.Class] {
			problem("Calls of class %s wait (%d), and no worker takes any: start one with --class %s, or mend those that are named here.", q.Class, q.Waiting, q.Class)
		}
	}
}

// notice tells what is no problem: versions that differ, workers that leave.
func (v *statusView) notice() {
	parts, draining := map[string]int{}, 0
	for _, d := range v.Dispatchers {
		parts[cmp.Or(d.Version, "unknown")]++
	}
	for _, w := range v.Workers {
		parts[cmp.Or(w.Version, "unknown")]++
		if w.State == workerDraining {
			draining++
		}
	}
	if len(parts) > 1 {
		var words []string
		for version, n := range parts {
			words = append(words, fmt.Sprintf("%d of %s", n, version))
		}
		slices.Sort(words)
		v.Notices = append(v.Notices, "Versions differ, as in an upgrade: "+strings.Join(words[:min(len(words), 4)], ", ")+".")
	}
	if draining > 0 {
		v.Notices = append(v.Notices, fmt.Sprintf("Workers that end what they have and take nothing more: %d.", draining))
	}
}
