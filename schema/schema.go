package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
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
	if problems := CheckJSON(raw, MaxSchema); problems != nil {
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
		return fmt.Errorf("schema: not a JSON Schema: %s", join(tidy(leaves(nil, invalid))))
	}
	return fmt.Errorf("schema: %s", clip(strings.ReplaceAll(err.Error(), location, "")))
}

// Validate returns every problem of raw, sorted, at most [MaxProblems], or nil
// when it fits. Text that [CheckJSON] refuses is not looked at further.
func (s *Schema) Validate(raw []byte) []Problem {
	if problems := CheckJSON(raw, len(raw)); problems != nil {
		return problems
	}
	doc, err := decode(raw)
	if err != nil {
		return []Problem{{Message: "is not JSON"}}
	}
	var invalid *jsonschema.ValidationError
	if err := s.compiled.Validate(doc); errors.As(err, &invalid) {
		return tidy(leaves(nil, invalid))
	} else if err != nil {
		return []Problem{{Message: clip(err.Error())}}
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
func leaves(problems []Problem, e *jsonschema.ValidationError) []Problem {
	path := pointer(e.InstanceLocation)
	if names, ok := e.ErrorKind.(*kind.PropertyNames); ok {
		// Below this point the library counts from the name, not from the
		// object that has it.
		why := make([]string, 0, 1)
		for _, p := range leaves(nil, &jsonschema.ValidationError{ErrorKind: &kind.Group{}, Causes: e.Causes}) {
			why = append(why, p.Message)
		}
		slices.Sort(why)
		return append(problems, Problem{path, fmt.Sprintf("property name %q is not allowed: %s", names.Property, strings.Join(why, ", "))})
	}
	if len(e.Causes) == 0 {
		return append(problems, Problem{path, words(e.ErrorKind)})
	}
	for _, cause := range e.Causes {
		problems = leaves(problems, cause)
	}
	return problems
}

// words says what is wrong. Lists that the library takes from a Go map are
// sorted, so that the same fault always reads the same.
func words(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.AdditionalProperties:
		slices.Sort(k.Properties)
	case *kind.FalseSchema:
		return "is not allowed"
	}
	return k.LocalizedString(english)
}

func join(problems []Problem) string {
	texts := make([]string, len(problems))
	for i, p := range problems {
		texts[i] = p.String()
	}
	return strings.Join(texts, "; ")
}
