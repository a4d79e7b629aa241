package part

import "testing"

func TestMemoryIsGivenBackWhenABurstIsOver(t *testing.T) {
	var m memory
	for i, step := range []struct {
		made uint64 // since the last look
		want bool
	}{
		{quiet, false},           // little to do, nothing to gain
		{worthIt, false},         // a burst
		{10 * worthIt, false},    // that goes on
		{quiet, true},            // and is over
		{quiet, false},           // once is enough
		{quiet / 2, false},       //
		{worthIt - quiet, false}, // busy again
		{0, true},
		{0, false},
	} {
		if got := m.due(m.looked + step.made); got != step.want {
			t.Errorf("step %d: due is %t", i, got)
		}
	}
}
