package dispatch

import (
	"pgregory.net/rapid"

	"github.com/toolfleet/toolfleet/agui"
)

// verify holds a run, as it stands on the wire, against the strict decoder and
// the verifier.
func verify(t *rapid.T, evs []RunEvent) {
	t.Helper()
	var (
		d agui.Decoder
		v agui.Verifier
	)
	for _, ev := range evs {
		data, err := agui.Encode(ev.Event)
		if err != nil {
			t.Fatal(err)
		}
		back, warnings, err := d.Decode(data)
		if err != nil || len(warnings) > 0 || back == nil {
			t.Fatalf("%s: %v %v", data, err, warnings)
		}
		if err := v.Check(back); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.End(); err != nil {
		t.Fatal(err)
	}
	if pending := v.Pending(); len(pending) > 0 {
		t.Fatalf("unanswered: %v", pending)
	}
}
