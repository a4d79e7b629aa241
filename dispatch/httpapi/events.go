package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/results"
)

func (s *Server) registerEvents(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "followCall", Method: http.MethodGet, Path: "/v1/calls/{id}/events", Tags: tagCalls,
		Summary: "Follow a call as an AG-UI run (server-sent events)",
		Description: "With Last-Event-ID the stream resumes behind that event: it begins again with RUN_STARTED, the call and a whole snapshot of its activity. " +
			"A stream that ends without RUN_FINISHED was cut and is to be resumed. 204 says that the client has seen the end.",
		Responses: map[string]*huma.Response{
			"200": withEventStream(&huma.Response{Description: "A whole AG-UI run.", Content: map[string]*huma.MediaType{}}),
			"204": {Description: "The client has seen the end of the run."},
		},
	}, s.follow)
}

func withEventStream(r *huma.Response) *huma.Response {
	r.Content["text/event-stream"] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Description: "AG-UI 1.0 events, one JSON object in each data line."}}
	return r
}

type followInput struct {
	ID          string `path:"id" doc:"Id of the call."`
	LastEventID string `header:"Last-Event-ID" doc:"id of the last event that was seen."`
}

// follow is GET /v1/calls/{id}/events.
func (s *Server) follow(ctx context.Context, in *followInput) (*huma.StreamResponse, error) {
	ref, err := refOf(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if in.LastEventID == "" {
		return s.stream(ctx, ref, 0)
	}
	after, err := strconv.ParseUint(in.LastEventID, 10, 64)
	if err != nil {
		return nil, badRequest(fmt.Errorf("Last-Event-ID %q is not the id of an event", clip(in.LastEventID)))
	}
	st, err := s.config.Dispatcher.Status(ctx, ref)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	if st.Result != nil && after >= st.LastSeq {
		// A browser's EventSource connects again for ever unless it is told
		// by a 204 that there is no more.
		return &huma.StreamResponse{Body: func(hc huma.Context) { hc.SetStatus(http.StatusNoContent) }}, nil
	}
	return s.stream(ctx, ref, after)
}

// stream begins to follow the call, and streams it once that has worked.
func (s *Server) stream(ctx context.Context, ref results.Ref, after uint64) (*huma.StreamResponse, error) {
	run, err := s.config.Dispatcher.Follow(ctx, ref, dispatch.FollowOptions{After: after, BlobURL: dispatch.CallerOf(ctx).BlobURL})
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer run.Close()
		s.config.Metrics.HTTPStreams(door, 1)
		defer s.config.Metrics.HTTPStreams(door, -1)
		r, w := humago.Unwrap(hc)
		h := w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("X-Accel-Buffering", "no") // nginx would hold events back
		h.Set("Location", location(ref.Key))
		w.WriteHeader(http.StatusOK)
		if r.Method == http.MethodHead {
			return
		}
		s.pump(hc.Context(), run, &eventWriter{w: w, controller: http.NewResponseController(w)})
	}}, nil
}

// errSilent is the cause of a wait that was long enough for a comment.
var errSilent = errors.New("httpapi: nothing to send")

// pump writes a run until it ends, the client goes away, or the server stops.
//
// A stream that cannot go on just ends, without RUN_FINISHED. RUN_ERROR would
// say that the run is over, and a client would not come back for the rest.
func (s *Server) pump(ctx context.Context, run *dispatch.Run, w *eventWriter) {
	for {
		ev, err := s.next(ctx, run)
		switch {
		case err == nil:
			err = w.event(ev)
		case errors.Is(err, errSilent):
			err = w.comment("keep-alive")
		case errors.Is(err, io.EOF):
		case ctx.Err() == nil:
			s.config.Logger.Warn("a stream was cut", "error", err)
		}
		if err != nil {
			return
		}
	}
}

// next waits for the next event, and for no longer than a client should go
// without a sign of life.
func (s *Server) next(ctx context.Context, run *dispatch.Run) (dispatch.RunEvent, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.config.KeepAlive, errSilent)
	defer cancel()
	return run.Next(ctx)
}

// eventWriter writes server-sent events, each flushed at once.
type eventWriter struct {
	w          io.Writer
	controller *http.ResponseController
}

func (w *eventWriter) event(ev dispatch.RunEvent) error {
	data, err := agui.Encode(ev.Event)
	if err != nil {
		return err
	}
	f := agui.Frame{Data: data}
	if ev.Seq != 0 {
		f.ID = strconv.FormatUint(ev.Seq, 10)
	}
	if err := agui.WriteFrame(w.w, f); err != nil {
		return err
	}
	return w.controller.Flush()
}

func (w *eventWriter) comment(text string) error {
	if err := agui.WriteComment(w.w, text); err != nil {
		return err
	}
	return w.controller.Flush()
}
