package dispatch

import (
	"strings"

	"pgregory.net/rapid"
)

// verify holds a run against the order of events.
func verify(t *rapid.T, evs []RunEvent) {
	t.Helper()
	var names []string
	for _, ev := range evs {
		names = append(names, string(ev.EventType()))
	}
	all := strings.Join(names, " ")
	if !strings.HasPrefix(all, "RUN_STARTED TOOL_CALL_START TOOL_CALL_ARGS") || !strings.HasSuffix(all, "TOOL_CALL_RESULT RUN_FINISHED") ||
		strings.Count(all, "TOOL_CALL_RESULT") != 1 || strings.Count(all, "RUN_") != 2 {
		t.Fatal(all)
	}
}
