package queue_test

import (
	"context"
	"sync"
	"testing"

	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/queue"
)

func TestRegistry(t *testing.T) {
	r, err := queue.OpenRegistry(t.Context(), natsdtest.JetStream(t))
	if err != nil {
		t.Fatal(err)
	}
	start := func(incarnation string) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		asked := make(chan struct{})
		once := sync.OnceFunc(func() { close(asked) })
		done := make(chan error, 1)
		go func() {
			done <- r.Run(ctx, func() queue.WorkerInfo {
				once()
				return queue.WorkerInfo{ID: "w", Incarnation: incarnation, Class: "default", Slots: 4}
			})
		}()
		get(t, asked, "the first beat")
		awaitAlive(t, r, incarnation, true)
		return func() {
			cancel()
			if err := get(t, done, "the end of Run"); err != nil {
				t.Error(err)
			}
		}
	}
	stopFirst := start("1")
	stopSecond := start("2") // the worker was started again
	awaitAlive(t, r, "1", false)
	stopFirst() // late, and must not sign the second one off
	awaitAlive(t, r, "2", true)
	list, err := r.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Incarnation != "2" || list[0].Slots != 4 {
		t.Errorf("List = %+v, %v", list, err)
	}
	stopSecond()
	awaitAlive(t, r, "2", false)
	if list, err := r.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("List = %+v, %v", list, err)
	}
}

// awaitAlive asks until the answer is the one wanted.
func awaitAlive(t *testing.T, r *queue.Registry, incarnation string, want bool) {
	t.Helper()
	for {
		alive, err := r.Alive(t.Context(), "w", incarnation)
		if err != nil {
			t.Fatalf("waiting for alive = %v: %v", want, err)
		}
		if alive == want {
			return
		}
	}
}
