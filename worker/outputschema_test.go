package worker

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
)

func TestAnswersAreHeldToTheirSchema(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}`)
	picture := agui.MediaOf([]byte("\x89PNG\r\n\x1a\n"))
	for _, tt := range []struct {
		name string
		spec catalog.Spec
		r    call.Result
		says string // "": as it was
	}{
		{"fits", catalog.Spec{OutputSchema: schema}, call.Result{Content: text(`{"n":1.0}`)}, ""},
		{"media beside it", catalog.Spec{OutputSchema: schema}, call.Result{Content: append(text(`{"n":1}`), picture)}, ""},
		{"no schema", catalog.Spec{}, call.Result{Content: text("hello")}, ""},
		{"an error", catalog.Spec{OutputSchema: schema}, call.Failure(call.KindToolError, "no"), ""},
		{"an MCP server's", catalog.Spec{OutputSchema: schema, Protocol: "mcp"}, call.Result{Content: text("hello")}, ""},
		{"another type", catalog.Spec{OutputSchema: schema}, call.Result{Content: text(`{"n":"x"}`), Extra: text("e")}, "{\"n\":\"x\"}\nThe tool's answer is not what its outputSchema declares:\n- /n: got string, want integere"},
		{"no JSON", catalog.Spec{OutputSchema: schema}, call.Result{Content: text("hello")}, "hello\nThe tool's answer is not what its outputSchema declares:\n- is not JSON: invalid character 'h' looking for beginning of value (at byte 1)"},
		{"nothing", catalog.Spec{OutputSchema: schema}, call.Result{}, "The tool's answer is not what its outputSchema declares:\n- is empty and not JSON; an object without members is {}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var o outputSchemas
			r := o.hold(&tt.spec, tt.r)
			if tt.says == "" {
				if words(t, r) != words(t, tt.r) || r.Kind() != tt.r.Kind() {
					t.Errorf("it became %+v", r)
				}
				return
			}
			wantKind(t, r, call.KindToolError)
			if got := words(t, r); got != tt.says {
				t.Errorf("it says %q, want %q", got, tt.says)
			}
		})
	}
}

func TestOutputSchemasAreBounded(t *testing.T) {
	var o outputSchemas
	for i := range maxOutputSchemas + 10 {
		if _, err := o.of(json.RawMessage(fmt.Sprintf(`{"maximum":%d}`, i))); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(o.compiled); n > maxOutputSchemas {
		t.Errorf("%d schemas are kept", n)
	}
}
