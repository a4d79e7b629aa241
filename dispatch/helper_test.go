package dispatch_test

import (
	"encoding/json"
	"testing"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
)

func decodeActivity(t *testing.T, ev agui.ActivitySnapshot) call.Activity {
	t.Helper()
	var a call.Activity
	if err := json.Unmarshal(ev.Content, &a); err != nil {
		t.Fatal(err)
	}
	return a
}
