package containerd

import (
	"context"
	"errors"
	"os"
	"testing"
)

// sharedOf hands out shims that are this process.
func sharedOf(t *testing.T) (*sharedShims, *int) {
	launched := new(int)
	return &sharedShims{launch: func(context.Context) (*sharedShim, error) {
		*launched++
		p, err := openPID(os.Getpid())
		if err != nil {
			return nil, err
		}
		t.Cleanup(p.close)
		return &sharedShim{proc: p, changed: make(chan struct{})}, nil
	}}, launched
}

func sit(t *testing.T, s *sharedShims, made bool) *seat {
	t.Helper()
	p, err := s.sit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if made {
		p.taskMade()
	}
	return p
}

// TestShimSeats: so many sandboxes share a shim, and no more.
func TestShimSeats(t *testing.T) {
	s, launched := sharedOf(t)
	var seats []*seat
	for range shimSeats {
		seats = append(seats, sit(t, s, true))
	}
	if *launched != 1 {
		t.Fatalf("%d shims for %d sandboxes", *launched, shimSeats)
	}
	sit(t, s, true)
	if *launched != 2 {
		t.Errorf("the shim took sandbox %d", shimSeats+1)
	}
	for _, p := range seats {
		if err := p.leave(t.Context()); err != nil {
			t.Error(err)
		}
		p.free()
	}
	if !seats[0].shim.unused() || seats[0].shim.unused() {
		t.Error("an empty shim is to be removed, once")
	}
}

// TestShimServes: a shim that has served its number takes nobody else.
func TestShimServes(t *testing.T) {
	s, launched := sharedOf(t)
	sit(t, s, true) // keeps it
	for range shimServes - 1 {
		p := sit(t, s, true)
		if err := p.leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.free()
	}
	if *launched != 1 {
		t.Fatalf("%d shims for %d sandboxes", *launched, shimServes)
	}
	sit(t, s, true)
	if *launched != 2 {
		t.Errorf("the shim served more than %d", shimServes)
	}
}

// TestShimLastTask: the deletion of a shim's last task ends the shim, so it
// waits for whoever is moving in or out, and nobody comes in after it.
func TestShimLastTask(t *testing.T) {
	s, launched := sharedOf(t)
	last, coming := sit(t, s, true), sit(t, s, false)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := last.leave(over); !errors.Is(err, context.Canceled) {
		t.Fatalf("it left while another task was made: %v", err)
	}
	coming.taskMade()
	if err := last.leave(over); err != nil {
		t.Fatal(err)
	}
	if err := coming.leave(over); !errors.Is(err, context.Canceled) {
		t.Fatalf("it left while another task was deleted: %v", err)
	}
	last.free()
	if err := coming.leave(over); err != nil {
		t.Fatal(err)
	}
	if sit(t, s, false); *launched != 2 {
		t.Error("somebody sat down in a shim on its way out")
	}
}

// TestShimFailedStart: with a task that could not be made a shim may go, so
// nobody enters it when it has no other.
func TestShimFailedStart(t *testing.T) {
	s, launched := sharedOf(t)
	p := sit(t, s, false)
	if err := p.leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.free()
	if !p.shim.unused() {
		t.Error("nobody removes the shim")
	}
	if sit(t, s, false); *launched != 2 {
		t.Error("somebody sat down in a shim that was told to go")
	}
}
