package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"runtime/debug"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/schema"
)

// Option changes what [Define] derived from the types.
type Option func(*definition)

// definition is a tool while it is being made.
type definition struct {
	info   Info
	input  *jsonschema.Schema
	output *jsonschema.Schema
}

// UseWhen adds a hint of one sentence: when a model should reach for the tool.
func UseWhen(hint string) Option { return func(d *definition) { d.info.UseWhen = hint } }

// Annotate says what a call does. Without it a call counts as one that may not
// be repeated. ReadOnly implies Idempotent.
func Annotate(a Annotations) Option {
	a.Idempotent = a.Idempotent || a.ReadOnly
	return func(d *definition) { d.info.Annotations = a }
}

// EditInput changes the schema of the arguments: an enum, a minimum, a default.
// [Define] panics when what it leaves is no schema, and [Tool.Info] when it
// cannot be written as JSON, such as a default that is none.
func EditInput(edit func(*jsonschema.Schema)) Option {
	return func(d *definition) { edit(d.input) }
}

// Define makes a tool of a function. The schema of the arguments is derived
// from In, which must be an object in JSON; what the function returns becomes
// a result:
//
//   - a string is one text part, a []byte one media part with a MIME type made
//     out from its first bytes, a [Result] is passed on, and anything else is
//     compact JSON in one text part;
//   - an error is an error result with the error's text. What was produced so
//     far stands before it: the value beside the error when it is not zero,
//     else the content of the last update;
//   - a panic is an error result too.
//
// Define panics, naming the tool and the type, when the name is not valid or a
// type has no schema, so that a program fails when it starts. The schemas are
// written down when [Tool.Info] is first asked for them: a call needs none.
func Define[In, Out any](name, description string, fn func(context.Context, *Call, In) (Out, error), options ...Option) Tool {
	return define(Info{Name: name, Description: description}, fn, options)
}

// DefineParallel is [Define] with a hint to the model that calls may be made at
// once. It limits nothing.
func DefineParallel[In, Out any](name, description string, fn func(context.Context, *Call, In) (Out, error), options ...Option) Tool {
	return define(Info{Name: name, Description: description, Parallel: true}, fn, options)
}

func define[In, Out any](info Info, fn func(context.Context, *Call, In) (Out, error), options []Option) Tool {
	t, err := newFunction(info, fn, options)
	if err != nil {
		panic(fmt.Sprintf("tool: %q: %v", info.Name, err))
	}
	return t
}

// function is a tool made of a Go function.
type function[In, Out any] struct {
	definition definition
	// written is the definition's info with the schemas. To write the first one
	// takes encoding/json a quarter of a millisecond.
	written   func() Info
	arguments *jsonschema.Resolved
	fn        func(context.Context, *Call, In) (Out, error)
}

func newFunction[In, Out any](info Info, fn func(context.Context, *Call, In) (Out, error), options []Option) (*function[In, Out], error) {
	d := definition{info: info}
	var err error
	if d.input, err = schema.For[In](); err != nil {
		return nil, err
	}
	if d.input.Type == "" && d.input.Types == nil {
		d.input.Type = "object" // any value: arguments are an object
	}
	if d.input.Type != "object" {
		return nil, fmt.Errorf("arguments are a JSON object, which %s is not", reflect.TypeFor[In]())
	}
	if structured[Out]() {
		if d.output, err = schema.For[Out](); err != nil {
			return nil, err
		}
	}
	for _, option := range options {
		option(&d)
	}
	t := &function[In, Out]{definition: d, written: sync.OnceValue(d.write), fn: fn}
	// The schema of the answer is as it was generated, and nothing of ours
	// judges by it.
	if t.arguments, err = d.input.Resolve(nil); err != nil {
		return nil, fmt.Errorf("type %s: %w", reflect.TypeFor[In](), err)
	}
	return t, d.info.validate()
}

// structured reports whether Out is told to a model as JSON of one shape.
func structured[Out any]() bool {
	var out Out
	switch any(out).(type) {
	case nil, string, []byte, Result, json.RawMessage:
		return false // nil: Out is an interface, whose values vary
	}
	return true
}

// write is the info with the schemas.
func (d definition) write() Info {
	info := d.info
	info.InputSchema = d.mustWrite(d.input)
	if d.output != nil {
		info.OutputSchema = d.mustWrite(d.output)
	}
	return info
}

// mustWrite writes a schema down.
func (d definition) mustWrite(s *jsonschema.Schema) json.RawMessage {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("tool: %q: the schema cannot be written: %v", d.info.Name, err))
	}
	return raw
}

// Info implements [Tool].
func (t *function[In, Out]) Info() Info { return t.written() }

func (t *function[In, Out]) name() string { return t.definition.info.Name }

// Run implements [Tool].
func (t *function[In, Out]) Run(ctx context.Context, req Request) (Result, error) {
	r, err := t.run(ctx, req)
	r.CallID = req.ID
	return r, err
}

func (t *function[In, Out]) run(ctx context.Context, req Request) (Result, error) {
	in, misfit := t.decode(req.Input)
	if misfit != "" {
		return call.Failure(call.KindInvalidArguments, "The arguments do not fit:"+misfit), nil
	}
	c := &Call{ID: req.ID, Name: req.Name, ctx: ctx, onUpdate: req.OnUpdate}
	out, failure := t.guarded(ctx, c, in, req.OnPanic)
	last := c.end()
	if failure == nil {
		return answer(out)
	}
	return failed(out, last, failure), nil
}

// decode checks the arguments and decodes them, or says what does not fit. They
// were checked before they came here, where every problem is listed; this is the
// second lock on the door, by the generator's own validator, which costs a tool
// nothing to start with (see package schema/validate).
func (t *function[In, Out]) decode(input json.RawMessage) (in In, misfit string) {
	for _, p := range schema.CheckJSON(input, len(input)) {
		misfit += "\n- " + p.String()
	}
	if misfit != "" {
		return in, misfit
	}
	var doc any
	if err := json.Unmarshal(input, &doc); err != nil {
		return in, "\n- " + err.Error()
	}
	if err := t.arguments.Validate(doc); err != nil {
		return in, "\n- " + err.Error()
	}
	// encoding/json takes a member for a field whatever its case; the schema
	// has refused those. What is unknown to the type is refused here.
	dec := json.NewDecoder(bytes.NewReader(input))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return in, "\n- " + err.Error()
	}
	return in, ""
}

// guarded calls the function and turns a panic into an error.
func (t *function[In, Out]) guarded(ctx context.Context, c *Call, in In, onPanic func(any, []byte)) (out Out, err error) {
	defer func() {
		if v := recover(); v != nil {
			if onPanic != nil {
				onPanic(v, debug.Stack())
			}
			// Addresses would make the same panic read differently every time,
			// and tell a model nothing.
			addresses := regexp.MustCompile(`0x[0-9a-fA-F]+`)
			err = errors.New("panic: " + addresses.ReplaceAllString(fmt.Sprint(v), "0x…"))
		}
	}()
	return t.fn(ctx, c, in)
}

// answer turns what a function returned without an error into a result. Its
// own error means that the value cannot be written.
func answer(out any) (Result, error) {
	if r, ok := out.(Result); ok {
		return r, nil
	}
	parts, err := parts(out)
	return Result{Content: parts}, err
}

// failed is the result of a function that returned an error.
func failed(out any, last []agui.Part, failure error) Result {
	partial, extra := last, []agui.Part(nil)
	if r, ok := out.(Result); ok {
		partial, extra = r.Content, r.Extra
	} else if v := reflect.ValueOf(out); v.IsValid() && !v.IsZero() {
		if produced, err := parts(out); err == nil {
			partial = produced
		}
	}
	r := call.Failure(call.KindToolError, failure.Error(), partial...)
	r.Extra = extra
	return r
}

// parts writes a value as content.
func parts(out any) ([]agui.Part, error) {
	switch out := out.(type) {
	case string:
		return []agui.Part{agui.Text(out)}, nil
	case []byte:
		if len(out) == 0 {
			return nil, nil // media without bytes is none
		}
		return []agui.Part{agui.MediaOf(out)}, nil
	}
	raw, err := encode(out)
	if err != nil {
		return nil, err
	}
	return []agui.Part{agui.Text(string(raw))}, nil
}
