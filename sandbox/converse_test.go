package sandbox_test

import (
	"testing"

	"github.com/toolfleet/toolfleet/sandbox"
)

// TestConversationBeforeTheStart: of a conversation whose sandbox is lost before
// the tool has started nothing is taken, so it can be had in another sandbox.
func TestConversationBeforeTheStart(t *testing.T) {
	sb := openFake(t, &fakeRuntime{agent: func(a *fakeAgent) { a.idle() }})
	input := make(chan []byte, 1)
	input <- []byte("question")
	p := prog
	p.Input = input
	exit, err := sb.Run(t.Context(), p, sandbox.Sink{})
	if err == nil || !exit.Started.IsZero() {
		t.Errorf("cause %q, started %v, error %v", exit.Cause, exit.Started, err)
	}
	mustBe(t, "untaken", len(input), 1)
}
