package sandbox_test

import (
	"context"
	"sync"
	"testing"

	"github.com/toolfleet/toolfleet/sandbox"
)

// TestCloseWhileInUse: a sandbox that is closed while it serves a call, and is
// asked whether it lives, ends them both.
func TestCloseWhileInUse(t *testing.T) {
	rt := &fakeRuntime{agent: started((*fakeAgent).linger)}
	for range 300 {
		sb, err := sandbox.Open(t.Context(), rt, "fake-1", sandbox.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var users sync.WaitGroup
		users.Go(func() { _, _ = sb.Run(ctx, prog, sandbox.Sink{}) })
		users.Go(func() { _ = sb.Check(ctx) })
		users.Go(cancel)
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
		users.Wait()
	}
}
