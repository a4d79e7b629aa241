package worker

import (
	"encoding/json"
	"strings"
	"sync"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/schema/validate"
)

// outputSchemas holds answers to the outputSchema of their tool's file. Its zero
// value is ready, and it is safe for concurrent use.
//
// A spec comes with each job, so what was compiled is kept by the schema's text:
// to compile one takes a processor longer than most calls.
type outputSchemas struct {
	mu       sync.Mutex
	compiled map[string]*validate.Schema
}

// maxOutputSchemas bounds how many are kept. Beyond it all are forgotten: a fleet
// with so many tools has schemas that change, and the old ones are of no use.
const maxOutputSchemas = 512

// hold makes an error of a success that is not what its tool declares. Whoever
// takes the answer apart by that schema would fail over it, and less plainly. A
// failed call is what it is, and media beside the answer is not part of it.
//
// The answers of MCP servers are left to their protocol, which keeps structured
// content apart.
func (o *outputSchemas) hold(spec *catalog.Spec, r call.Result) call.Result {
	if spec.OutputSchema == nil || spec.Protocol == "mcp" || r.IsError {
		return r
	}
	s, err := o.of(spec.OutputSchema)
	if err != nil {
		return r // the catalogue has refused those; nobody can hold an answer to it
	}
	text, _ := agui.Content{Parts: r.Content}.Flatten()
	problems := s.Validate([]byte(text))
	if problems == nil {
		return r
	}
	var b strings.Builder
	b.WriteString("The tool's answer is not what its outputSchema declares:")
	for _, p := range problems {
		b.WriteString("\n- " + p.String())
	}
	failure := call.Failure(call.KindToolError, b.String(), r.Content...)
	failure.Extra, failure.Dropped = r.Extra, r.Dropped
	return failure
}

// of compiles a schema, or remembers it.
func (o *outputSchemas) of(raw json.RawMessage) (*validate.Schema, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.compiled[string(raw)]; s != nil {
		return s, nil
	}
	s, err := validate.Compile(raw)
	if err != nil {
		return nil, err
	}
	if o.compiled == nil || len(o.compiled) == maxOutputSchemas {
		o.compiled = map[string]*validate.Schema{}
	}
	o.compiled[string(raw)] = s
	return s, nil
}
