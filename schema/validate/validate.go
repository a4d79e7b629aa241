// Package validate checks JSON against a JSON Schema and lists every problem, in
// a fixed order, so that a model can mend all of them at once.
//
// It is a package of its own for what it weighs: the library behind it compiles
// the meta-schemas of all drafts when a program starts, which takes a processor
// 5 ms. A dispatcher does not notice. A tool, which is started for every call
// and links package schema, would take thrice as long.
//
// The library is santhosh-tekuri/jsonschema, since it passes the official suite
// of every draft and keeps the place of each error.
package validate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/toolfleet/toolfleet/schema"
)

// MaxSchema is the longest schema, in bytes.
const MaxSchema = 128 << 10

// location names a schema inside the compiler; nothing is ever loaded from it.
const location = "toolfleet:///schema"

// Schema is a compiled JSON Schema. It is safe for concurrent use.
type Schema struct {
	compiled *jsonschema.Schema
}

// Compile reads a schema of draft 4 to 2020-12; without "$schema" it is
// 2020-12. References reach the schema itself and the published meta-schemas
// only: nothing is read from disk or network. The error lists every fault, on
// one line.
func Compile(raw json.RawMessage) (*Schema, error) {
	if problems := schema.CheckJSON(raw, MaxSchema); problems != nil {
		return nil, fmt.Errorf("schema: %s", join(problems))
	}
	doc, err := decode(raw)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	if err := c.AddResource(location, doc); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	compiled, err := c.Compile(location)
	if err != nil {
		return nil, compileError(err)
	}
	return &Schema{compiled}, nil
}

// noLoader refuses every reference that leaves the schema. The library's own
// default reads file:// URLs, which would let a schema probe the disk.
type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errors.New("a schema may refer to itself only")
}

// compileError brings a faulty schema's faults into the form of Validate's.
func compileError(err error) error {
	var meta *jsonschema.SchemaValidationError
	var invalid *jsonschema.ValidationError
	if errors.As(err, &meta) && errors.As(meta.Err, &invalid) {
		return fmt.Errorf("schema: not a JSON Schema: %s", join(schema.Tidy(leaves(nil, invalid))))
	}
	return fmt.Errorf("schema: %s", schema.Clip(strings.ReplaceAll(err.Error(), location, "")))
}

// Validate returns every problem of raw, sorted, at most [schema.MaxProblems], or nil
// when it fits. Text that [schema.CheckJSON] refuses is not looked at further.
func (s *Schema) Validate(raw []byte) []schema.Problem {
	if problems := schema.CheckJSON(raw, len(raw)); problems != nil {
		return problems
	}
	doc, err := decode(raw)
	if err != nil {
		return []schema.Problem{{Message: "is not JSON"}}
	}
	var invalid *jsonschema.ValidationError
	if err := s.compiled.Validate(doc); errors.As(err, &invalid) {
		return schema.Tidy(leaves(nil, invalid))
	} else if err != nil {
		return []schema.Problem{{Message: schema.Clip(err.Error())}}
	}
	return nil
}

// decode keeps numbers as text, so that 2^53+1 is not rounded before it is
// judged.
func decode(raw []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var doc any
	err := dec.Decode(&doc)
	return doc, err
}

var english = message.NewPrinter(language.English)

// leaves appends the innermost faults below e, which are the ones that tell
// what to change.
func leaves(problems []schema.Problem, e *jsonschema.ValidationError) []schema.Problem {
	if names, ok := e.ErrorKind.(*kind.PropertyNames); ok {
		// The library shares the slice of this location with its later work
		// (seen in 6.0.3), so it names any place; the name itself tells more.
		return append(problems, schema.At(nil, badName(names.Property, e.Causes)))
	}
	if len(e.Causes) == 0 {
		return append(problems, schema.At(e.InstanceLocation, words(e.ErrorKind)))
	}
	for _, cause := range e.Causes {
		problems = leaves(problems, cause)
	}
	return problems
}

// badName says why a property may not bear its name.
func badName(name string, causes []*jsonschema.ValidationError) string {
	var why []string
	for _, cause := range causes {
		for _, p := range leaves(nil, cause) {
			why = append(why, p.Message)
		}
	}
	slices.Sort(why)
	return fmt.Sprintf("property name %q is not allowed: %s", name, strings.Join(why, ", "))
}

// words says what is wrong, mostly as the library does. Lists that it takes
// from a Go map are sorted, so that the same fault always reads the same, and
// numbers are written out, which it rounds.
func words(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.AdditionalProperties:
		slices.Sort(k.Properties)
	case *kind.FalseSchema:
		return "is not allowed"
	case *kind.Minimum:
		return fmt.Sprintf("got %s, want at least %s", number(k.Got), number(k.Want))
	case *kind.Maximum:
		return fmt.Sprintf("got %s, want at most %s", number(k.Got), number(k.Want))
	case *kind.ExclusiveMinimum:
		return fmt.Sprintf("got %s, want more than %s", number(k.Got), number(k.Want))
	case *kind.ExclusiveMaximum:
		return fmt.Sprintf("got %s, want less than %s", number(k.Got), number(k.Want))
	case *kind.MultipleOf:
		return fmt.Sprintf("got %s, want a multiple of %s", number(k.Got), number(k.Want))
	}
	return k.LocalizedString(english)
}

// number writes a number as JSON would, to twenty digits after the point.
func number(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	return strings.TrimRight(r.FloatString(20), "0")
}

func join(problems []schema.Problem) string {
	texts := make([]string, len(problems))
	for i, p := range problems {
		texts[i] = p.String()
	}
	return strings.Join(texts, "; ")
}
