package sandbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/wire"
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

// TestTakeOfACallThatIsOver: a call that was cancelled, before or while an agent
// is asked whether it lives, costs the pool no warm sandbox.
func TestTakeOfACallThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		rt := &fakeRuntime{agent: func(a *fakeAgent) {
			a.hello()
			for f, err := a.Next(); err == nil; f, err = a.Next() {
				cancel()
				_ = a.Frame(wire.KindPong, f.Stream, f.Payload)
			}
		}}
		p, _ := runPool(t, sandbox.PoolConfig{Runtime: rt})
		p.Want(specA, 3, 3)
		settle(10 * time.Second)
		_, before := rt.count()
		sb, warm, err := p.Get(ctx, specA)
		if err != nil || !warm {
			t.Fatalf("cancelled while its agent was asked: %v, %v", warm, err)
		}
		p.Release(sb)
		if _, _, err := p.Get(ctx, specA); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled before: %v", err)
		}
		settle(10 * time.Second)
		mustBe(t, "stats", p.Stats(), sandbox.PoolStats{Warm: 3})
		if _, after := rt.count(); after != before+1 { // for the one that was handed out
			t.Errorf("%d refills, want 1", after-before)
		}
	})
}
