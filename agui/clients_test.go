package agui_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/toolfleet/toolfleet/agui"
)

// testdata/clients.json holds what the official client, @ag-ui/client 1.0.0,
// makes of many streams; `make conformance` sees that it is true. What we let
// pass, the client takes: a stream that passes all our stages is one that it
// does not reject, and one that passes without a warning is one that it does
// not warn about.
func TestNoLaxerThanTheOfficialClient(t *testing.T) {
	data, err := os.ReadFile("testdata/clients.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct {
		// Events are those of all streams, each once.
		Events  []json.RawMessage
		Streams []struct {
			Verdict string
			Events  []int
		}
	}
	if err := json.Unmarshal(data, &recorded); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, s := range recorded.Streams {
		events := make([]json.RawMessage, len(s.Events))
		for i, n := range s.Events {
			events[i] = recorded.Events[n]
		}
		ours, why := judge(events)
		counts[s.Verdict+" by it, "+ours+" by us"]++
		if s.Verdict == "rejected" && ours != "rejected" || s.Verdict == "warned" && ours == "accepted" {
			t.Errorf("%s by the client, %s by us (%s): %s", s.Verdict, ours, why, events)
		}
	}
	t.Log(counts)
	for _, want := range []string{"accepted by it, accepted by us", "accepted by it, rejected by us", "rejected by it, rejected by us"} {
		if counts[want] == 0 {
			t.Errorf("no stream is %s; the recording proves nothing", want)
		}
	}
}

// judge takes events through every stage, as a door does.
func judge(events []json.RawMessage) (verdict, why string) {
	var (
		d agui.Decoder
		x agui.Expander
		v agui.Verifier
	)
	verdict = "accepted"
	for _, raw := range events {
		e, warnings, err := d.Decode(raw)
		if err != nil {
			return "rejected", err.Error()
		}
		if len(warnings) > 0 {
			verdict, why = "warned", warnings[0].Message
		}
		if e == nil {
			continue
		}
		expanded, err := x.Expand(e)
		if err != nil {
			return "rejected", err.Error()
		}
		for _, e := range expanded {
			if err := v.Check(e); err != nil {
				return "rejected", err.Error()
			}
		}
	}
	if err := v.End(); err != nil {
		return "rejected", err.Error()
	}
	return verdict, why
}
