package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/results"
)

// tagCalls groups the operations on calls in the document.
var tagCalls = []string{"Calls"}

func (s *Server) registerCalls(api huma.API) {
	huma.Register(api, submitOperation(api), s.submit)
	// RawBody made the body "binary"; it is read by decodeRequest.
	api.OpenAPI().Paths["/v1/calls"].Post.RequestBody.Content["application/json"].Schema = requestSchema(api.OpenAPI().Components.Schemas)
	huma.Register(api, huma.Operation{
		OperationID: "listCalls", Method: http.MethodGet, Path: "/v1/calls", Tags: tagCalls,
		Summary: "List calls, newest first",
	}, s.listCalls)
	huma.Register(api, huma.Operation{
		OperationID: "getCall", Method: http.MethodGet, Path: "/v1/calls/{id}", Tags: tagCalls,
		Summary: "Where a call stands, with its result when it has ended",
	}, s.getCall)
	huma.Register(api, huma.Operation{
		OperationID: "cancelCall", Method: http.MethodDelete, Path: "/v1/calls/{id}", Tags: tagCalls,
		Summary:     "Cancel a call",
		Description: "202 when the cancel was asked for and the call is still ending; 200 when it has ended, by this cancel or before it. Asking again is no error. The log of the call stays.",
		Responses:   map[string]*huma.Response{"202": response[callView](api, "Asked for.")},
	}, s.cancelCall)
}

func submitOperation(api huma.API) huma.Operation {
	return huma.Operation{
		OperationID: "submitCall", Method: http.MethodPost, Path: "/v1/calls", Tags: tagCalls,
		Summary: "Submit a call and wait for its result",
		Description: "With Accept: text/event-stream the call is streamed as a whole AG-UI run, each event with the id to resume at (see the events of a call). " +
			"Otherwise the request waits for the result. With wait=0 it answers 202 at once, with wait=DURATION after that time at the latest. A client that disconnects cancels nothing.",
		SkipValidateBody: true,
		Responses: map[string]*huma.Response{
			"200": withEventStream(response[callView](api, "The call was answered.")),
			"202": response[callView](api, "The call was taken; Location says where to ask for it."),
		},
	}
}

type submitInput struct {
	Accept         string `header:"Accept" hidden:"true"`
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"200" doc:"The same key with the same threadId and toolCallId is the same call, however often it is sent; both are made from the key when they are left out. With another tool or other arguments it is refused (409)."`
	Traceparent    string `header:"traceparent" doc:"W3C trace context."`
	Wait           string `query:"wait" doc:"How long to wait for the result, as a Go duration; 0 answers at once. Until the end by default." example:"0"`
	RawBody        []byte `contentType:"application/json"`
}

// submit is POST /v1/calls.
func (s *Server) submit(ctx context.Context, in *submitInput) (*huma.StreamResponse, error) {
	req, err := decodeRequest(in.RawBody)
	if err != nil {
		return nil, badRequest(err)
	}
	wait, err := parseWait(in.Wait)
	if err != nil {
		return nil, badRequest(err)
	}
	c, err := makeCall(req, tenantOf(ctx), in.IdempotencyKey, traceparentOf(in.Traceparent))
	if err != nil {
		return nil, badRequest(err)
	}
	files, err := uploads(req.Files, dispatch.CallerOf(ctx))
	if err != nil {
		return nil, badRequest(err)
	}
	t, err := s.config.Dispatcher.Submit(ctx, c, files...)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	if wantsStream(in.Accept) {
		return s.stream(ctx, t.Ref, 0)
	}
	return s.answer(ctx, t, wait)
}

// forever is the wait of a request that does not say.
const forever time.Duration = -1

// parseWait reads the wait parameter.
func parseWait(s string) (time.Duration, error) {
	switch s {
	case "":
		return forever, nil
	case "0":
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("wait %q is not a duration such as 10s", clip(s))
	}
	return d, nil
}

// errWaited is the cause of a wait that the client bounded.
var errWaited = errors.New("httpapi: waited long enough")

// answer waits for the call to end and shows it, or shows where it stands when
// the wait is over.
func (s *Server) answer(ctx context.Context, t dispatch.Ticket, wait time.Duration) (*huma.StreamResponse, error) {
	st, err := s.await(ctx, t, wait)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	status := http.StatusOK
	if st.Result == nil {
		status = http.StatusAccepted
	}
	view := s.viewCall(ctx, t.Ref, st)
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		hc.SetHeader("Location", location(t.Key))
		hc.SetHeader("Content-Type", "application/json")
		hc.SetStatus(status)
		writeJSON(hc, view)
	}}, nil
}

// await says where the call stands when it has ended or the wait is over.
func (s *Server) await(ctx context.Context, t dispatch.Ticket, wait time.Duration) (dispatch.Standing, error) {
	switch wait {
	case 0:
		return s.config.Dispatcher.Status(ctx, t.Ref)
	case forever:
		return s.config.Dispatcher.Await(ctx, t)
	}
	bounded, cancel := context.WithTimeoutCause(ctx, wait, errWaited)
	defer cancel()
	st, err := s.config.Dispatcher.Await(bounded, t)
	if errors.Is(err, errWaited) {
		return s.config.Dispatcher.Status(ctx, t.Ref)
	}
	return st, err
}

// writeJSON writes v without a trailing thought: when it fails the client is
// gone.
func writeJSON(hc huma.Context, v any) {
	enc := json.NewEncoder(hc.BodyWriter())
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
}

func location(key call.Key) string { return "/v1/calls/" + string(key) }

type callInput struct {
	ID string `path:"id" doc:"Id of the call."`
}

// refOf names the call that a request is about. A path that holds no id is
// about no call.
func refOf(ctx context.Context, id string) (results.Ref, error) {
	key, err := call.ParseKey(id)
	if err != nil {
		return results.Ref{}, problem(http.StatusNotFound, "There is no such call.")
	}
	return results.Ref{Tenant: tenantOf(ctx), Key: key}, nil
}

type callOutput struct {
	Status int
	Body   callView
}

// getCall is GET /v1/calls/{id}.
func (s *Server) getCall(ctx context.Context, in *callInput) (*callOutput, error) {
	ref, err := refOf(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	st, err := s.config.Dispatcher.Status(ctx, ref)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &callOutput{http.StatusOK, s.viewCall(ctx, ref, st)}, nil
}

type cancelInput struct {
	ID     string `path:"id" doc:"Id of the call."`
	Reason string `query:"reason" maxLength:"200" doc:"Stands in the result."`
}

// cancelCall is DELETE /v1/calls/{id}.
func (s *Server) cancelCall(ctx context.Context, in *cancelInput) (*callOutput, error) {
	ref, err := refOf(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	ended, err := s.config.Dispatcher.Cancel(ctx, ref, in.Reason)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	st, err := s.config.Dispatcher.Status(ctx, ref)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	out := &callOutput{http.StatusAccepted, s.viewCall(ctx, ref, st)}
	if ended || st.Result != nil {
		out.Status = http.StatusOK
	}
	return out, nil
}

type listInput struct {
	Tool   string `query:"tool" maxLength:"256" doc:"Only calls of this tool."`
	Status string `query:"status" doc:"Only calls with this status." enum:"queued,starting,running,succeeded,failed,timed_out,cancelled,refused,interrupted"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor string `query:"cursor" doc:"next of the page before."`
}

type listOutput struct {
	Body struct {
		Calls []callLine `json:"calls"`
		Next  string     `json:"next,omitempty" doc:"Cursor of the next page; absent on the last one."`
	}
}

// listCalls is GET /v1/calls.
func (s *Server) listCalls(ctx context.Context, in *listInput) (*listOutput, error) {
	o := results.ListOptions{Tool: in.Tool, Status: call.Status(in.Status), Limit: in.Limit}
	if in.Cursor != "" {
		before, err := strconv.ParseUint(in.Cursor, 36, 64)
		if err != nil || before == 0 {
			return nil, badRequest(fmt.Errorf("cursor %q is not one that this API gave", clip(in.Cursor)))
		}
		o.Before = before
	}
	list, err := s.config.Dispatcher.List(ctx, tenantOf(ctx), o)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	out := &listOutput{}
	out.Body.Calls = make([]callLine, 0, len(list))
	for _, l := range list {
		out.Body.Calls = append(out.Body.Calls, viewLine(l))
	}
	if len(list) == in.Limit {
		out.Body.Next = strconv.FormatUint(list[len(list)-1].Cursor, 36)
	}
	return out, nil
}
