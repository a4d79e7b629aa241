package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/schema"
)

// decode checks the arguments and decodes them, or says what does not fit. They
// were checked before they came here; this is the second lock on the door, by
// the generator's own validator, which costs a tool nothing to start with (see
// package schema/validate).
func (t *function[In, Out]) decode(input json.RawMessage) (in In, misfits []schema.Problem) {
	if problems := schema.CheckJSON(input, len(input)); problems != nil {
		return in, problems
	}
	var doc any
	dec := json.NewDecoder(bytes.NewReader(input))
	dec.UseNumber()
	if err := dec.Decode(&doc); err != nil {
		return in, []schema.Problem{schema.At(nil, err.Error())}
	}
	if misfits = judge(t.arguments, exact(doc)); misfits != nil {
		return in, misfits
	}
	// encoding/json takes a member for a field whatever its case; the schema
	// has refused those. What is unknown to the type is refused here.
	err := strictly(input, &in)
	if err == nil {
		return in, nil
	}
	var again In
	if strictly(spelledOut(input), &again) == nil {
		return again, nil
	}
	return in, []schema.Problem{schema.At(nil, err.Error())}
}

// strictly decodes what has no members that are unknown.
func strictly(input []byte, in any) error {
	dec := json.NewDecoder(bytes.NewReader(input))
	dec.DisallowUnknownFields()
	return dec.Decode(in)
}

// spelledOut writes the whole numbers of sound JSON as their digits. 1.0 and 1e3
// are integers to JSON Schema and to many a model, and not to encoding/json.
func spelledOut(input []byte) []byte {
	return number.ReplaceAllFunc(input, func(text []byte) []byte {
		if text[0] == '"' {
			return text // a string, whatever it holds
		}
		n, ok := new(big.Rat).SetString(string(text))
		if !ok || !n.IsInt() {
			return text
		}
		return []byte(n.Num().String())
	})
}

// number matches the numbers of a JSON text that have a point or an exponent,
// and its strings, so that no number is looked for inside.
var number = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?`)

// misfit is the answer to arguments with problems.
func misfit(problems []schema.Problem) Result {
	var b strings.Builder
	b.WriteString("The arguments do not fit:")
	for _, p := range problems {
		b.WriteString("\n- " + p.String())
	}
	return call.Failure(call.KindInvalidArguments, b.String())
}

// exact makes numbers of a document's numbers, for a validator that takes their
// text for text: whole ones digit for digit, so that 2^53+1 is judged as it was
// written.
func exact(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			value[name] = exact(member)
		}
	case []any:
		for i, item := range value {
			value[i] = exact(item)
		}
	case json.Number:
		if n, err := value.Int64(); err == nil {
			return n
		}
		if n, err := strconv.ParseUint(value.String(), 10, 64); err == nil {
			return n
		}
		f, _ := value.Float64() // out of range is refused before
		return f
	}
	return value
}

// judge returns every problem of doc, or nil. The validator stops at the first,
// and at its schema's place, not the value's; so when it has refused a value,
// each value inside is put before the part of the schema that is about it.
func judge(s *jsonschema.Resolved, doc any) []schema.Problem {
	err := s.Validate(doc)
	if err == nil {
		return nil
	}
	j := judgement{shallow: map[*jsonschema.Schema]*jsonschema.Resolved{}}
	j.value(s.Schema(), doc, nil)
	if j.problems == nil {
		// The fault is where the walk does not go, such as behind a $ref.
		return []schema.Problem{schema.At(nil, reason(err))}
	}
	return schema.Tidy(j.problems)
}

// judgement gathers the problems of one document.
type judgement struct {
	problems []schema.Problem
	// shallow are the schemas that were met, without what is inside. A list of
	// a hundred thousand values has one.
	shallow map[*jsonschema.Schema]*jsonschema.Resolved
}

func (j *judgement) fault(path []string, message string) {
	j.problems = append(j.problems, schema.At(path, message))
}

// value judges one value, and then those inside it.
func (j *judgement) value(s *jsonschema.Schema, value any, path []string) {
	if resolved := j.itself(s); resolved != nil {
		if err := resolved.Validate(value); err != nil {
			j.fault(path, reason(err))
		}
	}
	if !separable(s) {
		return
	}
	switch value := value.(type) {
	case map[string]any:
		j.members(s, value, path)
	case []any:
		for i, item := range value {
			if s.Items != nil {
				j.value(s.Items, item, inside(path, strconv.Itoa(i)))
			}
		}
	}
}

// separable reports whether each value inside is judged by one schema, which
// the value's name alone tells.
func separable(s *jsonschema.Schema) bool {
	return s.PatternProperties == nil && s.PrefixItems == nil && s.ItemsArray == nil &&
		s.UnevaluatedProperties == nil && s.UnevaluatedItems == nil
}

// itself is what a schema says of a value, without what it says of those
// inside. It is nil when it refers to the rest of the schema, without which it
// cannot be resolved.
func (j *judgement) itself(s *jsonschema.Schema) *jsonschema.Resolved {
	if resolved, ok := j.shallow[s]; ok {
		return resolved
	}
	shallow := *s
	if separable(s) {
		shallow.Properties, shallow.PropertyOrder, shallow.Required = nil, nil, nil
		shallow.AdditionalProperties, shallow.Items = nil, nil
	}
	resolved, err := shallow.Resolve(nil)
	if err != nil {
		resolved = nil
	}
	j.shallow[s] = resolved
	return resolved
}

// members judges what an object holds and lacks.
func (j *judgement) members(s *jsonschema.Schema, object map[string]any, path []string) {
	for _, name := range s.Required {
		if _, ok := object[name]; !ok {
			j.fault(path, fmt.Sprintf("lacks %q", name))
		}
	}
	for name, member := range object {
		at := inside(path, name)
		property, known := s.Properties[name]
		switch {
		case known:
			j.value(property, member, at)
		case s.AdditionalProperties == nil:
		case refusesAll(s.AdditionalProperties):
			j.fault(at, "is unknown")
		default:
			j.value(s.AdditionalProperties, member, at)
		}
	}
}

// refusesAll reports whether s is the schema false, which the generator writes
// as {"not": {}}.
func refusesAll(s *jsonschema.Schema) bool {
	raw, err := json.Marshal(s)
	return err == nil && string(raw) == "false"
}

// inside is the path of what is inside the value at path.
func inside(path []string, token string) []string {
	return append(slices.Clip(path), token)
}

// reason takes the validator's own path from its error: it names places in the
// schema, and a problem has the place in the arguments.
func reason(err error) string {
	return strings.ReplaceAll(err.Error(), "validating root: ", "")
}
