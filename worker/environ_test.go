package worker

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
)

func TestEnvironTellsTheProcessors(t *testing.T) {
	for _, c := range []struct {
		name string
		env  map[string]string
		cpu  float64
		want []string
	}{
		{"rounded up", map[string]string{"Z": "1", "A": "2"}, 1.2, []string{"A=2", "GOMAXPROCS=2", "Z=1"}},
		{"never 0", nil, 0.25, []string{"GOMAXPROCS=1"}},
		{"the spec's own", map[string]string{"GOMAXPROCS": "8"}, 1, []string{"GOMAXPROCS=8"}},
		{"the spec's own, empty", map[string]string{"GOMAXPROCS": ""}, 1, []string{"GOMAXPROCS="}},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := &catalog.Spec{Env: c.env, Limits: catalog.Limits{CPU: c.cpu}}
			got := environ(spec, call.Call{ToolCallID: "c1", Tool: "t"})
			c.want = append(c.want, "TOOLFLEET_CALL_ID=c1", "TOOLFLEET_TOOL=t")
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
