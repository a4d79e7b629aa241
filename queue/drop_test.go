package queue_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/queue"
)

// TestARefusedDeleteIsAnError has streams that delete nothing. What is still
// there is not told to be gone.
func TestARefusedDeleteIsAnError(t *testing.T) {
	ctx, js := t.Context(), natsdtest.JetStream(t)
	q := open(t, js, queue.Options{})
	key := enqueue(t, q, "stays", 0)
	file(t, q.Dead(), letter("stays"))
	for _, name := range []string{queue.CallsStream, queue.DeadStream} {
		s, err := js.Stream(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		config := s.CachedInfo().Config
		config.DenyDelete = true
		if _, err := js.UpdateStream(ctx, config); err != nil {
			t.Fatal(err)
		}
	}
	for name, err := range map[string]error{
		"Drop":        q.Drop(ctx, 1),
		"Remove":      q.Remove(ctx, at(key)),
		"of a letter": q.Dead().Drop(ctx, "default", key),
	} {
		if !errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) || errors.Is(err, queue.ErrNoLetter) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := q.Drop(ctx, 1000); err != nil {
		t.Errorf("Drop of what is not there: %v", err)
	}
}
