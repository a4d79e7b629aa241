package catalog

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
)

// A declaration that is not in the bucket, or not the text that it should be,
// comes back when its tool is applied again: nobody has to delete the tool first.
func TestApplyMendsTheBucket(t *testing.T) {
	js := natsdtest.JetStream(t)
	s := openStore(t, js)
	change := Change{Tools: []Spec{named("lost", "1"), named("spoilt", "1"), named("well", "1")}}
	apply(t, s, change)
	f, await := follow(t, FollowerConfig{Store: openStore(t, js)})
	await("lost 1 bucket, spoilt 1 bucket, well 1 bucket")
	subject := func(name string) string {
		return specPrefix + strings.TrimPrefix(digestIn(t, s, name), digestType)
	}
	msg, err := s.stream.GetLastMsgForSubject(t.Context(), subject("lost"))
	if err == nil {
		err = s.stream.DeleteMsg(t.Context(), msg.Sequence)
	}
	if err == nil {
		_, err = js.Publish(t.Context(), subject("spoilt"), []byte("junk"))
	}
	if err != nil {
		t.Fatal(err)
	}
	fresh, awaitFresh := follow(t, FollowerConfig{Store: openStore(t, js)})
	if state, _ := fresh.State(); summary(state) != "well 1 bucket" || len(state.Faults) != 2 {
		t.Fatalf("it serves %s, %v", summary(state), state.Faults)
	}
	if got := actions(apply(t, s, change)); got != "changed lost, changed spoilt, unchanged well" {
		t.Error(got)
	}
	awaitFresh("lost 1 bucket, spoilt 1 bucket, well 1 bucket")
	if state, _ := f.State(); len(state.Faults) > 0 {
		t.Error(fmt.Sprint(state.Faults))
	}
	if got := actions(apply(t, s, change)); got != "unchanged lost, unchanged spoilt, unchanged well" {
		t.Error(got)
	}
}
