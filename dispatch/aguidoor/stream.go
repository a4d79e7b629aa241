package aguidoor

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/toolfleet/toolfleet/agui"
)

// errGone says that nothing more can be written: the client is not there.
var errGone = errors.New("aguidoor: the client is gone")

// stream is what the client of one run sees. It belongs to one goroutine.
//
// Every event goes through a verifier before it is written, our own too: a
// client fails a run for an event that may not stand where it stands, so a
// fault is found here, by us, and told as RUN_ERROR.
type stream struct {
	w          http.ResponseWriter
	controller *http.ResponseController
	legacy     bool
	verifier   agui.Verifier
	log        *slog.Logger
}

// openStream answers with the headers of a stream. Seeded with the input, the
// verifier knows the calls that the run may answer.
func openStream(w http.ResponseWriter, in agui.RunAgentInput, log *slog.Logger) *stream {
	s := &stream{w: w, controller: http.NewResponseController(w), legacy: in.Legacy(), log: log}
	s.verifier.Seed(in.Messages)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	w.WriteHeader(http.StatusOK)
	return s
}

// send writes one event. The error is an *agui.SequenceError when the event may
// not stand here, and nothing is written then; errGone when the client is gone.
func (s *stream) send(ev agui.Event) error {
	if err := s.verifier.Check(ev); err != nil {
		return err
	}
	if s.legacy {
		down, warnings := agui.Downgrade(ev)
		for _, w := range warnings {
			s.log.Warn("lost on the way to a client that is older than AG-UI 1.0", "what", w.String())
		}
		ev = down
	}
	data, err := agui.Encode(ev)
	if err != nil {
		return err
	}
	return s.written(agui.WriteFrame(s.w, agui.Frame{Data: data}))
}

// comment tells the client that the server is there.
func (s *stream) comment() error { return s.written(agui.WriteComment(s.w, "keep-alive")) }

func (s *stream) written(err error) error {
	if err == nil {
		err = s.controller.Flush()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}
