package client

import (
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/toolfleet/toolfleet/agui"
)

// A client that is not patient knows another door, and asks the first no more
// once its stream has broken.
func TestImpatientGivesABrokenStreamUp(t *testing.T) {
	s, c := newFleet(t, stream(started), stream(started, result, finished))
	err := c.Impatient().Call(t.Context(), request, func(string) {}, func(Event) error { return nil })
	if !errors.Is(err, ErrLost) || !errors.Is(err, ErrUnreachable) {
		t.Errorf("got %v, want ErrLost", err)
	}
	if len(s.requests) != 1 {
		t.Errorf("asked %q", s.requests)
	}
}

func TestStream(t *testing.T) {
	var visited []string
	note := func(ev Event) error { visited = append(visited, string(ev.JSON)); return nil }
	broken := func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", "1000")
		stream(started)(w)
	}
	newer := `{"type":"OF_A_NEWER_PROTOCOL"}`
	s, c := newFleet(t, stream(started, newer, result, finished), broken, stream(`{"type":`), page(http.StatusOK), status(503, `{"title":"away"}`), stream(started))
	if err := c.Stream(t.Context(), "/agui/run", map[string]string{"runId": "r"}, note); err != nil {
		t.Error(err)
	}
	if want := []string{started, newer, result, finished}; !slices.Equal(visited, want) {
		t.Errorf("visited %q, want %q", visited, want)
	}
	if want := `POST /agui/run {"runId":"r"}`; s.requests[0] != want {
		t.Errorf("asked %q, want %q", s.requests[0], want)
	}
	for _, what := range []string{"a broken stream", "no event", "another's page", "a fleet that is away"} {
		if err := c.Stream(t.Context(), "/agui/run", nil, note); !errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: got %v, want ErrUnreachable", what, err)
		}
	}
	full := errors.New("disk full")
	if err := c.Stream(t.Context(), "/agui/run", nil, func(ev Event) error {
		if _, ok := ev.Event.(agui.RunStarted); !ok {
			t.Errorf("visited %v", ev)
		}
		return full
	}); !errors.Is(err, full) || errors.Is(err, ErrUnreachable) {
		t.Errorf("got %v, want the visitor's", err)
	}
}
