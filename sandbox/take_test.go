package sandbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolfleet/toolfleet/sandbox"
)

// TestTakeSaysBeforeItStarts: a warm sandbox is handed out without a word, and an
// error stops a start before it begins.
func TestTakeSaysBeforeItStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &fakeRuntime{agent: honest}
		p, _ := runPool(t, sandbox.PoolConfig{Runtime: rt})
		p.Want(specA, 1, 1)
		settle(10 * time.Second)
		said := 0
		var refused error
		cold := func(context.Context) error { said++; return refused }
		sb, warm, err := p.Take(t.Context(), specA, cold)
		if err != nil || !warm || said != 0 {
			t.Errorf("the warm one: %v, %v, said %d times", warm, err, said)
		}
		p.Release(sb)
		_, before := rt.count()
		if sb, warm, err = p.Take(t.Context(), specB, cold); err != nil || warm || said != 1 {
			t.Errorf("a cold one: %v, %v, said %d times", warm, err, said)
		}
		p.Release(sb)
		refused = errors.New("not now")
		if _, _, err = p.Take(t.Context(), specB, cold); !errors.Is(err, refused) || said != 2 {
			t.Errorf("a refused start: %v, said %d times", err, said)
		}
		settle(10 * time.Second)
		mustBe(t, "stats", p.Stats(), sandbox.PoolStats{Warm: 1})
		if _, after := rt.count(); after != before+2 { // the cold one, and the refill
			t.Errorf("%d starts, want 2", after-before)
		}
	})
}
