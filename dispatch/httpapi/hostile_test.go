package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/call"
)

// Arguments that readers disagree about, or that would cost somebody dearly, are
// refused in one sentence and start nothing, whichever way they come.
func TestHostileArgumentsAreRefused(t *testing.T) {
	f := fleet(t)
	for name, tt := range map[string]struct{ arguments, says string }{
		"duplicate keys":            {`{"a":1,"b":{"c":1,"c":2}}`, "/b/c: is given twice"},
		"duplicate keys, escaped":   {`{"a":1,"\u0061":2}`, "/a: is given twice"},
		"a number beyond floats":    {`{"a":1e400}`, "/a: is a number out of range"},
		"a number of 10,000 digits": {`{"a":1` + strings.Repeat("0", 10_000) + `}`, "/a: is a number out of range"},
		"half a character":          {`{"a":"\ud800"}`, "has half a character, an escape \\u without its other half, at byte 7"},
		"half a character, a key":   {`{"\udc00x":1}`, "has half a character, an escape \\u without its other half, at byte 3"},
		"10,001 levels":             {`{"a":` + strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001) + `}`, "is nested deeper than 64 levels"},
		"10,001 levels of objects":  {strings.Repeat(`{"a":`, 10_001) + "1" + strings.Repeat("}", 10_001), "is nested deeper than 64 levels"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := json.Marshal(tt.arguments)
			if err != nil {
				t.Fatal(err)
			}
			d := open(t, f)
			for way, arguments := range map[string]string{"as an object": tt.arguments, "as text": string(text)} {
				if way == "as an object" && strings.HasPrefix(name, "10,001") {
					// The body itself is deeper than anybody's JSON.
					d.wantProblem(d.do(http.MethodPost, "/v1/calls", `{"tool":"echo","arguments":`+arguments+`}`), http.StatusBadRequest)
					continue
				}
				got := d.call(http.StatusOK, "/v1/calls", `{"tool":"echo","arguments":`+arguments+`}`)
				if got.Result == nil || got.Result.Error == nil || got.Result.Error.Kind != call.KindInvalidArguments {
					t.Fatalf("%s: %+v", way, got.Result)
				}
				if said := got.text(); !strings.Contains(said, tt.says) || len(said) > 1000 {
					t.Errorf("%s it says %.1000q, want %q", way, said, tt.says)
				}
				if got.Result.Execution != nil {
					t.Errorf("%s it was run", way)
				}
			}
		})
	}
}
