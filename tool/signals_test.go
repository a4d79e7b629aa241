package tool

import (
	"context"
	"errors"
	"testing"
	"time"
)

type key struct{}

// cancelled is a listener that has heard a signal already.
func cancelled(parent context.Context, listened chan<- struct{}) func() context.Context {
	return func() context.Context {
		close(listened) // a second time panics
		ctx, cancel := context.WithCancel(context.WithValue(parent, key{}, "v"))
		cancel()
		return ctx
	}
}

func TestSignalsAreHeardFromTheFirstLook(t *testing.T) {
	for name, look := range map[string]func(context.Context) bool{
		"Done":    func(ctx context.Context) bool { <-ctx.Done(); return true },
		"Err":     func(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) },
		"Value":   func(ctx context.Context) bool { return ctx.Value(key{}) == "v" },
		"derived": func(ctx context.Context) bool { return derivedErr(ctx) != nil },
	} {
		t.Run(name, func(t *testing.T) {
			listened := make(chan struct{})
			ctx := newSignalled(time.Hour, cancelled(t.Context(), listened))
			if _, ok := ctx.Deadline(); ok {
				t.Error("a deadline")
			}
			select {
			case <-listened:
				t.Fatal("listened before anybody looked")
			default:
			}
			for range 2 {
				if !look(ctx) {
					t.Error("the context does not say what the listener's does")
				}
			}
			<-listened
		})
	}
}

func derivedErr(ctx context.Context) error {
	derived, cancel := context.WithCancel(ctx)
	defer cancel()
	return derived.Err()
}

func TestSignalsAreHeardWithoutALookAfterAWhile(t *testing.T) {
	listened := make(chan struct{})
	newSignalled(0, cancelled(t.Context(), listened))
	<-listened
}
