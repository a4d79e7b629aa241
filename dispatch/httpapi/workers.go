package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/queue"
)

func (s *Server) registerWorkers(api huma.API) {
	if s.config.Workers == nil {
		return
	}
	huma.Register(api, huma.Operation{
		OperationID: "listWorkers", Method: http.MethodGet, Path: "/v1/workers", Tags: []string{"Operation"},
		Summary:     "List the workers that are alive",
		Description: "For operators: on a server with tokens, for those whose line in the token file says \"operator\". A worker that has not beaten for 15 seconds, three heartbeats, is not in the list.",
	}, s.listWorkers)
}

// workerView is a worker as its last heartbeat tells.
type workerView struct {
	ID       string    `json:"id"`
	Host     string    `json:"host"`
	Version  string    `json:"version,omitempty"`
	Class    string    `json:"class" doc:"Of the calls that it takes."`
	Runtimes []string  `json:"runtimes" doc:"What its sandboxes can run on."`
	Slots    int       `json:"slots" doc:"Calls that it runs at once."`
	Busy     int       `json:"busy" doc:"Slots in use."`
	Started  time.Time `json:"started"`
	Beat     time.Time `json:"beat" doc:"When the last heartbeat came; one comes every 5 seconds."`
}

type workersOutput struct {
	Body struct {
		Workers []workerView `json:"workers"`
	}
}

// listWorkers is GET /v1/workers.
func (s *Server) listWorkers(ctx context.Context, _ *struct{}) (*workersOutput, error) {
	if !dispatch.CallerOf(ctx).Operator {
		return nil, problem(http.StatusForbidden, "The workers are shown to operators only: the token's line in the token file must end with the word operator.")
	}
	workers, err := s.config.Workers(ctx)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	out := &workersOutput{}
	out.Body.Workers = make([]workerView, 0, len(workers))
	for _, w := range sortedWorkers(workers) {
		out.Body.Workers = append(out.Body.Workers, viewWorker(w))
	}
	return out, nil
}

func viewWorker(w queue.WorkerInfo) workerView {
	return workerView{
		ID: w.ID, Host: w.Host, Version: w.Version, Class: w.Class, Runtimes: append([]string{}, w.Runtimes...),
		Slots: w.Slots, Busy: w.Busy, Started: w.Started, Beat: w.Beat,
	}
}

// sortedWorkers are workers by class and id.
func sortedWorkers(workers []queue.WorkerInfo) []queue.WorkerInfo {
	return slices.SortedFunc(slices.Values(workers), func(a, b queue.WorkerInfo) int {
		return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.ID, b.ID))
	})
}
