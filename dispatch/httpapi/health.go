package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/toolfleet/toolfleet/internal/health"
)

// livenessOutput is the answer of a process that answers.
type livenessOutput struct {
	Body struct {
		Status string `json:"status" enum:"ok"`
	}
}

// readinessOutput is the answer of one that takes requests.
type readinessOutput struct {
	Body struct {
		Status string        `json:"status" enum:"ok"`
		Checks health.Report `json:"checks" doc:"What was looked at, each without a problem."`
	}
}

func (s *Server) registerHealth(api huma.API) {
	open := []map[string][]string{} // no token
	huma.Register(api, huma.Operation{
		OperationID: "healthz", Method: http.MethodGet, Path: "/healthz", Summary: "Whether the process lives", Tags: []string{"Operation"}, Security: open,
		Description: "200 from every process that answers, whatever it lacks: starting it anew would not bring that back.",
	}, func(context.Context, *struct{}) (*livenessOutput, error) {
		out := &livenessOutput{}
		out.Body.Status = "ok"
		return out, nil
	})
	huma.Register(api, huma.Operation{
		OperationID: "readyz", Method: http.MethodGet, Path: "/readyz", Summary: "Whether the process can serve", Tags: []string{"Operation"}, Security: open,
		Description: "Answers at once, from checks that go on in the background. 503 names each one that failed under errors, and what to do.",
	}, s.getReady)
}

// getReady is GET /readyz.
func (s *Server) getReady(context.Context, *struct{}) (*readinessOutput, error) {
	report := s.report()
	err := report.Err()
	if err == nil {
		out := &readinessOutput{}
		out.Body.Status, out.Body.Checks = "ok", report
		return out, nil
	}
	p := problem(http.StatusServiceUnavailable, "Not ready: "+err.Error())
	for _, f := range report {
		if f.Problem != "" {
			p.Errors = append(p.Errors, &huma.ErrorDetail{Message: f.Problem, Location: f.Name})
		}
	}
	return nil, huma.ErrorWithHeaders(p, http.Header{"Retry-After": {"1"}})
}
