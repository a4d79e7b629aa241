package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/toolfleet/toolfleet/agui"
)

// Impatient is a client of the same fleet that gives a stream up as soon as it
// breaks, with ErrLost: for somebody who knows another way in.
func (f *Fleet) Impatient() *Fleet {
	other := *f
	other.patience = 1 // 0 would be patience without an end
	return &other
}

// Stream posts body as JSON to path, which answers with a stream of events, and
// visits them until visit fails or the stream ends. A stream that breaks is not
// taken up again: what to ask then is the caller's to know. It ends with an error
// that wraps ErrUnreachable; one that ends in order is no error.
func (f *Fleet) Stream(ctx context.Context, path string, body any, visit func(Event) error) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	res, err := f.do(ctx, http.MethodPost, f.at(path), data, http.Header{"Accept": {"text/event-stream"}})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if !hasType(res, "text/event-stream") {
		return f.stranger(res)
	}
	for frames := agui.NewFrameReader(res.Body); ; {
		ev, err := next(frames)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("%w: the stream broke: %w", ErrUnreachable, err)
		}
		if err := visit(ev); err != nil {
			return err
		}
	}
}

// next reads one event. One of a newer protocol is kept as it came.
func next(frames *agui.FrameReader) (Event, error) {
	frame, err := frames.Next()
	if err != nil {
		return Event{}, err
	}
	// Warnings are for those who write a fleet; this only shows what one sends.
	ev, _, err := agui.Decode(frame.Data)
	if err != nil {
		return Event{}, err
	}
	if ev == nil {
		ev = agui.Other{JSON: frame.Data}
	}
	return Event{Event: ev, JSON: frame.Data, id: frame.ID}, nil
}
