package sandboxtest

import (
	"errors"
	"slices"
	"testing"

	"github.com/toolfleet/toolfleet/sandbox"
)

// testLife: sandboxes are listed while they exist, can be removed by id, and
// leave nothing behind.
func (s *suite) testLife(t *testing.T) {
	t.Run("ListAndClose", func(t *testing.T) {
		id := NewID()
		sb, err := sandbox.Open(testContext(t), s.runtime, id, s.Spec)
		if err != nil {
			t.Fatal(err)
		}
		if sb.ID() != id || !sb.Alive() {
			t.Errorf("id %q, alive %v", sb.ID(), sb.Alive())
		}
		i := slices.IndexFunc(s.list(t), func(r sandbox.Record) bool { return r.ID == id })
		if i < 0 {
			t.Fatalf("%s is not in the list", id)
		}
		if r := s.list(t)[i]; r.Created.IsZero() || !r.Expires.After(r.Created) {
			t.Errorf("created %v, expires %v", r.Created, r.Expires)
		}
		closeSandbox(t, sb)
		closeSandbox(t, sb) // again: nothing happens
		if sb.Alive() {
			t.Error("alive after Close")
		}
		if slices.ContainsFunc(s.list(t), func(r sandbox.Record) bool { return r.ID == id }) {
			t.Errorf("%s is still in the list", id)
		}
	})
	t.Run("RemoveUnknown", func(t *testing.T) {
		if err := s.runtime.Remove(testContext(t), NewID()); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("SameIDTwice", func(t *testing.T) {
		sb := s.open(t)
		again, err := sandbox.Open(testContext(t), s.runtime, sb.ID(), s.Spec)
		if err == nil {
			closeSandbox(t, again)
			t.Fatal("a second sandbox with the same id was started")
		}
		if err := sb.Check(testContext(t)); err != nil {
			t.Errorf("the first one suffered: %v", err)
		}
	})
}

func (s *suite) list(t *testing.T) []sandbox.Record {
	t.Helper()
	list, err := s.runtime.List(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// testNothingLeft is the last test: everything before it is closed by now.
func (s *suite) testNothingLeft(t *testing.T) {
	for _, r := range s.list(t) {
		t.Errorf("%s is left", r.ID)
	}
}
