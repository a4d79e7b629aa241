package httpapi

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sync/errgroup"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/queue"
)

func (s *Server) registerStatus(api huma.API) {
	if s.config.Workers == nil || s.config.Dispatchers == nil {
		return
	}
	huma.Register(api, huma.Operation{
		OperationID: "getStatus", Method: http.MethodGet, Path: "/v1/status", Tags: []string{"Operation"},
		Summary: "The whole fleet: who lives, what waits, what is wrong",
		Description: forOperators + "Answers also while parts of the fleet do not: what cannot be told is missing, and a problem says so. " +
			"The fleet is looked at once a second at the most.",
	}, s.getStatus)
}

// statusView is the fleet at a moment.
type statusView struct {
	At          time.Time        `json:"at" doc:"When this was so, by the fleet's clock. Ages are counted to it."`
	Problems    []string         `json:"problems" doc:"What keeps the fleet from its work, in sentences; empty when it is healthy."`
	Notices     []string         `json:"notices" doc:"What is worth knowing and no problem, such as an upgrade that is under way."`
	Unknown     []string         `json:"unknown" enum:"dispatchers,workers,queues,deadLetters,scheduler" doc:"What could not be told, whose members mean nothing."`
	Dispatchers []dispatcherView `json:"dispatchers"`
	Workers     []fleetWorker    `json:"workers"`
	Queues      []queueView      `json:"queues"`
	Dead        deadView         `json:"deadLetters"`
	Catalogue   *catalogueLine   `json:"catalogue,omitempty"`
}

type dispatcherView struct {
	ID        string    `json:"id"`
	Version   string    `json:"version,omitempty"`
	Started   time.Time `json:"started"`
	Beat      time.Time `json:"beat" doc:"When its last heartbeat came."`
	Ready     bool      `json:"ready"`
	Problem   string    `json:"problem,omitempty" doc:"Why it is not ready."`
	Schedules bool      `json:"schedules" doc:"It is the one of the fleet that decides which call runs next."`
	Answered  bool      `json:"answered" doc:"It is the one that gives this answer."`
}

// fleetWorker is a worker with what only the status tells.
type fleetWorker struct {
	workerView
	Warm       int    `json:"warm" doc:"Idle sandboxes that are started."`
	WarmTarget int    `json:"warmTarget" doc:"How many should be."`
	Sandboxes  int    `json:"sandboxes" doc:"All that exist, warm ones and those in use."`
	State      string `json:"state" enum:"ready,draining,not ready"`
	Problem    string `json:"problem,omitempty" doc:"Why it takes no calls."`
}

// State of a worker.
const (
	workerReady    = "ready"
	workerDraining = "draining"
	workerNotReady = "not ready"
)

type queueView struct {
	Class         string  `json:"class"`
	Waiting       int     `json:"waiting" doc:"Calls that were admitted and that nobody has started."`
	Ready         int     `json:"ready" doc:"Of them, those that wait for a free slot only."`
	InFlight      int     `json:"inFlight" doc:"Calls in a slot, or given back to come again."`
	OldestSeconds float64 `json:"oldestSeconds" doc:"How long the oldest call that waits has waited."`
}

type deadView struct {
	Count  int          `json:"count" doc:"Of all tenants."`
	Recent []lastLetter `json:"recent" doc:"The last few, the last first."`
}

// lastLetter is what an operator is told about somebody's dead letter. Its
// arguments are the tenant's.
type lastLetter struct {
	ID      call.Key  `json:"id"`
	Tenant  string    `json:"tenant"`
	Tool    string    `json:"tool"`
	Kind    call.Kind `json:"kind"`
	Message string    `json:"message"`
	Filed   time.Time `json:"filed"`
}

type catalogueLine struct {
	Revision uint64 `json:"revision"`
	Tools    int    `json:"tools"`
	Faults   int    `json:"faults"`
}

type statusOutput struct{ Body statusView }

// getStatus is GET /v1/status.
func (s *Server) getStatus(ctx context.Context, _ *struct{}) (*statusOutput, error) {
	if !dispatch.CallerOf(ctx).Operator {
		return nil, problem(http.StatusForbidden, "The fleet's status is shown to operators only: the token's line in the token file must end with the word operator.")
	}
	return &statusOutput{s.status.of(ctx, s.lookAtFleet)}, nil
}

const (
	// statusAge is how old a status may be.
	statusAge = time.Second
	// statusTimeout bounds a look at the fleet, most of which is one question
	// beside another.
	statusTimeout = 3 * time.Second
)

// lastStatus keeps the last status, so that a room full of screens asks the NATS
// servers no more than one of them does.
type lastStatus struct {
	mu    sync.Mutex
	view  statusView
	taken time.Time
}

func (l *lastStatus) of(ctx context.Context, look func(context.Context) statusView) statusView {
	l.mu.Lock() // for statusTimeout at the most
	defer l.mu.Unlock()
	if l.taken.IsZero() || time.Since(l.taken) > statusAge {
		// For all who wait here, so not ended by the one who happens to ask.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusTimeout)
		defer cancel()
		l.view = look(ctx)
		l.taken = time.Now()
	}
	return l.view
}

// sighting is what the parts of the fleet said when they were asked, or why they
// did not.
type sighting struct {
	dispatchers []queue.DispatcherInfo
	workers     []queue.WorkerInfo
	queues      []dispatch.ClassQueue
	letters     []queue.Letter
	dead        int
	leader      string

	dispatchersErr, workersErr, queuesErr, deadErr, leaderErr error
}

// lookAtFleet asks for everything at a time.
func (s *Server) lookAtFleet(ctx context.Context) statusView {
	var seen sighting
	d := s.config.Dispatcher
	var g errgroup.Group
	g.Go(func() error { seen.dispatchers, seen.dispatchersErr = s.config.Dispatchers(ctx); return nil })
	g.Go(func() error { seen.letters, seen.dead, seen.deadErr = d.RecentDeadLetters(ctx); return nil })
	g.Go(func() error { seen.leader, seen.leaderErr = d.Leader(ctx); return nil })
	g.Go(func() error {
		seen.workers, seen.workersErr = s.config.Workers(ctx)
		classes := []string{queue.DefaultClass}
		for _, w := range seen.workers {
			classes = append(classes, w.Class)
		}
		seen.queues, seen.queuesErr = d.Queues(ctx, classes)
		return nil
	})
	_ = g.Wait() // each error is in its own place
	return s.viewStatus(&seen)
}
