package validate

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/schema"
)

// TestFaultsUnderLongNames has a fault at every few bytes below names that
// fill the rest of the text. Each problem once held the whole path: half a
// megabyte of arguments took gigabytes.
func TestFaultsUnderLongNames(t *testing.T) {
	long := `{"` + strings.Repeat("n", 256<<10) + `":`
	doubles := long + `{"a":1` + strings.Repeat(`,"a":1`, 20_000) + `}}`
	numbers := long + `[1` + strings.Repeat(`,1`, 20_000) + `]}`
	s, err := Compile(json.RawMessage(`{"additionalProperties":{"items":{"type":"string"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, check := range map[string]func() []schema.Problem{
		"given twice":      func() []schema.Problem { return schema.CheckJSON([]byte(doubles), 1<<20) },
		"against a schema": func() []schema.Problem { return s.Validate([]byte(numbers)) },
		"numbers too large": func() []schema.Problem {
			return schema.CheckJSON([]byte(strings.ReplaceAll(numbers, "1", "1e999")), 1<<20)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			problems := check()
			runtime.ReadMemStats(&after)
			if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 200 {
				t.Errorf("%d MiB were allocated", took)
			}
			if len(problems) == 0 || len(problems) > schema.MaxProblems {
				t.Fatalf("%d problems", len(problems))
			}
			if n := len(problems[0].Path); n < maxSaid || n > maxSaid+len("…") {
				t.Errorf("the path has %d bytes", n)
			}
		})
	}
}
