package sandbox_test

import (
	"slices"
	"testing"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// TestNextCellGoesWithTheStart: every run's next cell is asked for once, behind
// the run's own frames, and the sandbox serves one run after the other.
func TestNextCellGoesWithTheStart(t *testing.T) {
	type heard struct {
		kind   wire.Kind
		stream uint32
	}
	frames := make(chan heard, 16)
	rt := &fakeRuntime{agent: func(a *fakeAgent) {
		a.hello()
		for {
			f, err := a.Next()
			if err != nil {
				return
			}
			frames <- heard{f.Kind, f.Stream}
			if f.Kind == wire.KindStdinClose {
				_ = a.Frame(wire.KindStarted, f.Stream, []byte(`{"pid":2}`))
				_ = a.Frame(wire.KindExit, f.Stream, []byte("{}"))
			}
		}
	}}
	sb, err := sandbox.Open(t.Context(), rt, "cells-1", cellA)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if exit, err := sb.Run(t.Context(), sandbox.Process{Argv: []string{"x"}}, sandbox.Sink{}); err != nil || exit.Cause != sandbox.CauseExited || !sb.Reusable() {
			t.Fatalf("got %+v, %v, reusable %v", exit, err, sb.Reusable())
		}
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(frames)
	var got []heard
	for h := range frames {
		got = append(got, h)
	}
	want := []heard{
		{wire.KindPrepare, 1},
		{wire.KindStart, 1},
		{wire.KindStdinClose, 1},
		{wire.KindPrepare, 2},
		{wire.KindStart, 2},
		{wire.KindStdinClose, 2},
		{wire.KindPrepare, 3},
	}
	if !slices.Equal(got, want) {
		t.Errorf("the agent heard %v, want %v", got, want)
	}
}
