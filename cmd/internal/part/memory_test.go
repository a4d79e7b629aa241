package part

import "testing"

func TestMemoryIsGivenBackWhenABurstIsOver(t *testing.T) {
	var m memory
	for i, step := range []struct {
		made uint64 // since the last look
		want bool
	}{
		{quiet, false}, {quiet, false}, {quiet, false}, // little to do, nothing to gain
		{worthIt, false}, {10 * worthIt, false}, // a burst
		{quiet, false}, {quiet, false}, {quiet, true}, // that is over
		{0, false}, {0, false}, {0, false}, // once is enough
		{worthIt, false}, {0, false}, {0, false}, {0, true}, // and another
	} {
		if got := m.due(m.looked + step.made); got != step.want {
			t.Errorf("step %d: due is %t", i, got)
		}
	}
}
