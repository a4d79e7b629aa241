package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/queue"
)

// tagDead groups the operations on dead letters in the document.
var tagDead = []string{"Dead letters"}

func (s *Server) registerDead(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "listDeadLetters", Method: http.MethodGet, Path: "/v1/dead", Tags: tagDead,
		Summary:     "List dead letters, oldest first",
		Description: "A dead letter is a call that ended by a fault of the fleet's own (sandbox_failed, internal), kept for seven days so that it can be made again.",
	}, s.listDead)
	huma.Register(api, huma.Operation{
		OperationID: "getDeadLetter", Method: http.MethodGet, Path: "/v1/dead/{id}", Tags: tagDead,
		Summary: "One dead letter",
	}, s.getDead)
	huma.Register(api, huma.Operation{
		OperationID: "redriveDeadLetter", Method: http.MethodPost, Path: "/v1/dead/{id}/redrive", Tags: tagDead,
		Summary: "Make the call of a dead letter again",
		Description: "Makes a new call, checked against the catalogue of now, and removes the letter. The old call keeps its answer. " +
			"Asked twice, it makes one call. 409 when the call would be refused, when it may have done its work and its tool is not declared idempotent (force overrules that), or when it is still being ended.",
		DefaultStatus: http.StatusAccepted,
	}, s.redriveDead)
	huma.Register(api, huma.Operation{
		OperationID: "dropDeadLetter", Method: http.MethodDelete, Path: "/v1/dead/{id}", Tags: tagDead,
		Summary: "Remove a dead letter", Description: "The call that it is about keeps its log and its answer.",
	}, s.dropDead)
}

// letterLine is one dead letter of a list.
type letterLine struct {
	ID         call.Key  `json:"id" doc:"Id of the call that ended."`
	ToolCallID string    `json:"toolCallId"`
	ThreadID   string    `json:"threadId"`
	Tool       string    `json:"tool"`
	Kind       call.Kind `json:"kind"`
	Message    string    `json:"message" doc:"Of the call's error result."`
	Attempts   int       `json:"attempts"`
	Started    bool      `json:"started" doc:"Whether the tool may have run."`
	Idempotent bool      `json:"idempotent" doc:"Whether the tool was declared so then."`
	Admitted   time.Time `json:"admitted"`
	Filed      time.Time `json:"filed" doc:"When the call ended."`
}

// letterView is a dead letter with all a tenant may know of it.
type letterView struct {
	letterLine
	RunID      string         `json:"runId"`
	Arguments  string         `json:"arguments,omitempty" doc:"The text as the caller wrote it; absent when it was long."`
	Priority   string         `json:"priority,omitempty"`
	Timeout    string         `json:"timeout,omitempty" doc:"A Go duration; absent when the caller gave none."`
	Class      string         `json:"class,omitempty"`
	SpecDigest string         `json:"specDigest"`
	RedriveOf  call.Key       `json:"redriveOf,omitempty" doc:"The call whose dead letter this one was made of."`
	Tries      []call.Attempt `json:"tries" doc:"Which workers took the call, in their order. Those that never started the tool are forgotten after a day."`
}

func viewLetterLine(l queue.Letter) letterLine {
	c := l.Job.Call
	line := letterLine{
		ID: c.Key(), ToolCallID: c.ToolCallID, ThreadID: c.ThreadID, Tool: c.Tool, Kind: l.Kind, Message: l.Message,
		Started: l.Started(), Idempotent: l.Job.Spec.Annotations.Idempotent, Admitted: l.Job.Admitted.UTC(), Filed: l.Filed,
	}
	for _, a := range l.Attempts {
		line.Attempts = max(line.Attempts, a.N)
	}
	return line
}

func viewLetter(l queue.Letter) letterView {
	c := l.Job.Call
	v := letterView{
		letterLine: viewLetterLine(l), RunID: c.RunID, Arguments: c.Arguments, Priority: c.Priority,
		Class: l.Job.Spec.Class, SpecDigest: l.Job.SpecDigest, RedriveOf: c.RedriveOf, Tries: l.Attempts,
	}
	if c.Timeout > 0 {
		v.Timeout = c.Timeout.String()
	}
	if v.Tries == nil {
		v.Tries = []call.Attempt{}
	}
	return v
}

type listDeadInput struct {
	Tool   string `query:"tool" maxLength:"256" doc:"Only calls of this tool."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor string `query:"cursor" doc:"next of the page before."`
}

type listDeadOutput struct {
	Body struct {
		Letters []letterLine `json:"letters"`
		Next    string       `json:"next,omitempty" doc:"Cursor of the next page; absent on the last one."`
	}
}

// listDead is GET /v1/dead.
func (s *Server) listDead(ctx context.Context, in *listDeadInput) (*listDeadOutput, error) {
	f := queue.LetterFilter{Tool: in.Tool, Limit: in.Limit}
	if in.Cursor != "" {
		after, err := strconv.ParseUint(in.Cursor, 36, 64)
		if err != nil || after == 0 {
			return nil, badRequest(fmt.Errorf("cursor %q is not one that this API gave", clip(in.Cursor)))
		}
		f.After = after
	}
	list, err := s.config.Dispatcher.DeadLetters(ctx, tenantOf(ctx), f)
	if err != nil {
		return nil, s.failDead(ctx, err)
	}
	out := &listDeadOutput{}
	out.Body.Letters = make([]letterLine, 0, len(list))
	for _, l := range list {
		out.Body.Letters = append(out.Body.Letters, viewLetterLine(l))
	}
	if len(list) == in.Limit {
		out.Body.Next = strconv.FormatUint(list[len(list)-1].Cursor, 36)
	}
	return out, nil
}

type letterInput struct {
	ID string `path:"id" doc:"Id of the call that ended."`
}

type letterOutput struct{ Body letterView }

// getDead is GET /v1/dead/{id}.
func (s *Server) getDead(ctx context.Context, in *letterInput) (*letterOutput, error) {
	ref, err := refOf(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	l, err := s.config.Dispatcher.DeadLetter(ctx, ref)
	if err != nil {
		return nil, s.failDead(ctx, err)
	}
	return &letterOutput{viewLetter(l)}, nil
}

type redriveInput struct {
	ID          string `path:"id" doc:"Id of the call that ended."`
	Traceparent string `header:"traceparent" doc:"W3C trace context."`
	Body        struct {
		Force bool `json:"force,omitempty" doc:"Make the call again though it may have done its work."`
	}
}

type redriveOutput struct {
	Location string `header:"Location"`
	Body     callView
}

// redriveDead is POST /v1/dead/{id}/redrive.
func (s *Server) redriveDead(ctx context.Context, in *redriveInput) (*redriveOutput, error) {
	ref, err := refOf(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	t, err := s.config.Dispatcher.Redrive(ctx, ref, traceparentOf(in.Traceparent), in.Body.Force)
	if err != nil {
		return nil, s.failDead(ctx, err)
	}
	st, err := s.config.Dispatcher.Status(ctx, t.Ref)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &redriveOutput{location(t.Key), s.viewCall(ctx, t.Ref, st)}, nil
}

// dropDead is DELETE /v1/dead/{id}.
func (s *Server) dropDead(ctx context.Context, in *letterInput) (*struct{}, error) {
	ref, err := refOf(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if err := s.config.Dispatcher.DropDeadLetter(ctx, ref); err != nil {
		return nil, s.failDead(ctx, err)
	}
	return nil, nil
}

// failDead is fail for what can only happen to dead letters.
func (s *Server) failDead(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, dispatch.ErrNoLetter):
		return problem(http.StatusNotFound, "There is no such dead letter.")
	case errors.Is(err, dispatch.ErrNotRedriven):
		return problem(http.StatusConflict, strings.TrimPrefix(err.Error(), dispatch.ErrNotRedriven.Error()+": "))
	}
	return s.fail(ctx, err)
}
