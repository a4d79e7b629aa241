package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
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
	if fn == nil {
		return nil, errors.New("there is no function")
	}
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
	if reflect.TypeFor[Out]() == reflect.TypeFor[*Result]() {
		return nil, fmt.Errorf("type %s: a result is returned as a value", reflect.TypeFor[Out]())
	}
	if structured[Out]() {
		if d.output, err = schema.Written(reflect.TypeFor[Out]()); err != nil {
			return nil, err
		}
	}
	for _, option := range options {
		d.apply(option, reflect.TypeFor[In]())
	}
	t := &function[In, Out]{definition: d, written: sync.OnceValue(d.write), fn: fn}
	// The schema of the answer is as it was generated, and nothing of ours
	// judges by it.
	if t.arguments, err = d.input.Resolve(nil); err != nil {
		return nil, fmt.Errorf("type %s: %w", reflect.TypeFor[In](), err)
	}
	return t, d.info.validate()
}

// apply applies an option. One that panics has most likely edited a property
// that is not there; whose, its own message does not say.
func (d *definition) apply(option Option, in reflect.Type) {
	defer func() {
		if v := recover(); v != nil {
			panic(fmt.Sprintf("tool: %q: type %s: an option: %v", d.info.Name, in, v))
		}
	}()
	option(d)
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
	in, misfits := t.decode(req.Input)
	if misfits != nil {
		return misfit(misfits), nil
	}
	c := &Call{ID: req.ID, Name: req.Name, ctx: ctx, onUpdate: req.OnUpdate}
	return guarded(req.OnPanic, func() (Result, error) {
		out, failure := t.fn(ctx, c, in)
		last := c.end()
		if failure == nil {
			return answer(out)
		}
		return failed(out, last, failure), nil
	}, func(panicked error) Result {
		return failed(nil, c.end(), panicked)
	})
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
	sentence := failure.Error()
	if strings.TrimSpace(sentence) == "" {
		sentence = "The tool failed and did not say why."
	}
	r := call.Failure(call.KindToolError, sentence, partial...)
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
	raw, err := encode(addressable(out))
	if err != nil {
		return nil, err
	}
	return []agui.Part{agui.Text(string(raw))}, nil
}

// addressable is a pointer to a value like out, so that encoding/json finds the
// methods of pointers to what is inside: without, a big.Int is written as {}.
func addressable(out any) any {
	if out == nil {
		return nil
	}
	p := reflect.New(reflect.TypeOf(out))
	p.Elem().Set(reflect.ValueOf(out))
	return p.Interface()
}
