package catalog

import (
	"math"
	"testing"
	"time"
)

// TestPain34Timeouts: a timeout that nobody can mean is refused, in a file and
// in a call; none at all is the default's or the tool's own.
func TestPain34Timeouts(t *testing.T) {
	spec := Spec{Name: "x", Limits: Limits{Timeout: Duration(30 * time.Second)}}
	for d, ok := range map[time.Duration]bool{
		0: true, 1: true, 30 * time.Second: true,
		-1: false, 30*time.Second + 1: false, math.MinInt64: false, math.MaxInt64: false, 1e18: false,
	} {
		if err := spec.CheckTimeout(d); (err == nil) != ok {
			t.Errorf("a call with %v: %v", d, err)
		}
	}
	for text, ok := range map[string]bool{
		"30s": true, "1h": true, "1ns": true,
		"0s": false, "-1s": false, "1h1ns": false, "1000000h": false, "NaN": false, "1e18": false, "30": false, "": false,
	} {
		_, err := Parse([]byte("apiVersion: toolfleet/v1\nkind: Tool\nname: x\ndescription: d\nimage: i\ncommand: [/x]\nlimits: {timeout: \"" + text + "\"}\n"))
		if (err == nil) != ok {
			t.Errorf("a file with %q: %v", text, err)
		}
	}
}
