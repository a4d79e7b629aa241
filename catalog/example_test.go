package catalog_test

import (
	"fmt"
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
)

// A call that does not fit is answered at once, with all that is wrong.
func ExampleCatalog_Check() {
	spec, err := catalog.Parse([]byte(`
apiVersion: toolfleet/v1
kind: Tool
name: forecast
description: Tells the weather of the coming days.
image: local/forecast:1
command: [/tool]
parameters:
  type: object
  required: [city]
  properties:
    city: {type: string}
    days: {type: integer, minimum: 1}
  additionalProperties: false
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := catalog.New([]catalog.Spec{spec})
	if err != nil {
		fmt.Println(err)
		return
	}
	cl := call.Call{Tenant: call.DefaultTenant, ThreadID: "t1", RunID: "r1", Scope: "r1", ToolCallID: "c1", Tool: "forecast"}
	_, refused := c.Check(cl, `{"city":"Bern","days":0,"unit":"C"}`, time.Now())
	fmt.Println(refused.Kind())
	fmt.Println(refused.Content[0].Text)

	job, refused := c.Check(cl, `{"city":"Bern"}`, time.Now())
	fmt.Println(refused == nil, job.Spec.Limits.Timeout)
	// Output:
	// invalid_arguments
	// The arguments do not fit the tool forecast, so it was not run. Mend them and call again:
	// - arguments: additional properties 'unit' not allowed
	// - /days: got 0, want at least 1
	// true 30s
}

// Every fault of a declaration is told, with its line.
func ExampleParse() {
	_, err := catalog.Parse([]byte(`apiVersion: toolfleet/v1
kind: Tool
name: forecast
usewhen: it rains
description: Tells the weather.
image: local/forecast:1
command: /tool
limits: {timeout: 2h}
`))
	for _, p := range err.(catalog.Problems) { //nolint:errorlint // Parse returns nothing else
		fmt.Printf("line %d: %s: %s\n", p.Line, p.Field, p.Message)
	}
	// Output:
	// line 4: usewhen: unknown field; did you mean useWhen?
	// line 7: command: expected a list, got "/tool"
	// line 8: limits.timeout: expected more than 0 and at most 1h, got 2h
}
