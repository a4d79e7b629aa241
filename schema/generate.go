package schema

import (
	"encoding"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// For derives the schema of T; see [Of].
func For[T any]() (*jsonschema.Schema, error) { return Of(reflect.TypeFor[T]()) }

// Of derives the schema of a Go type as encoding/json reads it. Struct fields
// are required unless tagged omitempty or omitzero, a jsonschema tag is a
// field's description, and unknown members are refused. It fails for types
// that have no schema (channels, functions, complex numbers, types that contain
// themselves), for those that encoding/json cannot read (interfaces with
// methods), and for structs of which the generator has another idea than
// encoding/json; the error says what to write instead.
//
// The generator's defaults are corrected where they mislead: bytes are base64
// text, json.RawMessage is any value, a type that writes itself is text or any
// value, and no type is ["null", …], which some model providers answer with an
// error; what is optional is told by "required". What the type writes has
// [Written].
func Of(t reflect.Type) (*jsonschema.Schema, error) {
	s, err := derive(t)
	if err == nil {
		dropNull(s)
	}
	return s, err
}

// Written derives the schema of a Go type as encoding/json writes it: [Of], and
// null wherever a nil pointer, slice or map would be written. No provider is
// asked to take it, and to make an empty list of a nil one would need a copy of
// every answer.
func Written(t reflect.Type) (*jsonschema.Schema, error) {
	s, err := derive(t)
	if err == nil {
		addNull(s)
	}
	return s, err
}

// derive is what both have in common: some of what may be null says so.
func derive(t reflect.Type) (*jsonschema.Schema, error) {
	special := map[reflect.Type]*jsonschema.Schema{}
	if err := findSpecial(t, special, map[reflect.Type]bool{}); err != nil {
		return nil, fmt.Errorf("schema: type %s: %w", t, err)
	}
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: special})
	if err != nil {
		return nil, fmt.Errorf("schema: type %s: %w", t, err)
	}
	return s, nil
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
	// generated are the types that the generator knows better than we do.
	generated = []reflect.Type{
		reflect.TypeFor[time.Time](), reflect.TypeFor[slog.Level](),
		reflect.TypeFor[big.Rat](), reflect.TypeFor[big.Float](),
	}
	// numbers are the types that are numbers, and that the generator takes for
	// text.
	numbers = map[reflect.Type]string{
		reflect.TypeFor[json.Number](): "number", reflect.TypeFor[big.Int](): "integer",
	}
)

// findSpecial collects the schemas of the types below t that encoding/json
// does not write as their kind suggests.
func findSpecial(t reflect.Type, special map[reflect.Type]*jsonschema.Schema, seen map[reflect.Type]bool) error {
	if seen[t] || slices.Contains(generated, t) {
		return nil
	}
	seen[t] = true
	if s := specialOf(t); s != nil {
		special[t] = s
		return nil
	}
	switch t.Kind() {
	case reflect.Interface:
		if t.NumMethod() > 0 {
			return fmt.Errorf("%s is an interface with methods, which JSON cannot be read into", t)
		}
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return findSpecial(t.Elem(), special, seen)
	case reflect.Struct:
		if err := checkFields(t); err != nil {
			return err
		}
		for field := range t.Fields() {
			if field.Tag.Get("json") == "-" {
				continue
			}
			// An embedded struct that writes itself would hide its siblings;
			// the generator treats its fields one by one.
			if err := findSpecial(field.Type, special, seen); err != nil {
				return err
			}
		}
	}
	return nil
}

// specialOf is the schema of a type that encoding/json does not write as its
// kind suggests, or nil.
func specialOf(t reflect.Type) *jsonschema.Schema {
	switch {
	case numbers[t] != "":
		return &jsonschema.Schema{Type: numbers[t]}
	case implements(t, jsonMarshaler):
		return &jsonschema.Schema{}
	case implements(t, textMarshaler):
		return &jsonschema.Schema{Type: "string"}
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 &&
		!implements(t.Elem(), jsonMarshaler) && !implements(t.Elem(), textMarshaler):
		return &jsonschema.Schema{Types: []string{"null", "string"}, ContentEncoding: "base64"}
	}
	return nil
}

// implements reports whether encoding/json finds the methods of i on a value of
// t. Those of a pointer are its element's, and those of an interface its value's.
func implements(t, i reflect.Type) bool {
	return t.Kind() != reflect.Pointer && t.Kind() != reflect.Interface && reflect.PointerTo(t).Implements(i)
}

// checkFields refuses a struct whose members encoding/json names otherwise than
// the generator.
func checkFields(t reflect.Type) error {
	names := map[string]string{}
	for _, field := range reflect.VisibleFields(t) {
		tag := field.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case tag == "-" && !field.Anonymous, !field.IsExported() && !field.Anonymous:
			continue
		case field.Anonymous:
			if name != "" || !flattened(field) {
				return fmt.Errorf("the embedded field %s of %s is not read as its fields are; give it a name of its own", field.Name, t)
			}
			continue
		case slices.Contains(strings.Split(options, ","), "string"):
			return fmt.Errorf("the field %s of %s has the option string, which has no schema; make it a string", field.Name, t)
		case name == "":
			name = field.Name
		}
		if names[name] != "" {
			return fmt.Errorf("the fields %s and %s of %s are both called %q in JSON", names[name], field.Name, t, name)
		}
		names[name] = field.Name
	}
	return nil
}

// flattened reports whether encoding/json reads and writes the fields of an
// embedded field without a name, or passes over it. A pointer to a struct that
// is not exported it cannot set.
func flattened(field reflect.StructField) bool {
	t := field.Type
	if t.Kind() == reflect.Pointer {
		return field.IsExported() && t.Elem().Kind() == reflect.Struct
	}
	return t.Kind() == reflect.Struct || !field.IsExported()
}

// dropNull takes "null" out of every list of types below s.
func dropNull(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	// Types that occur twice share their list.
	s.Types = slices.DeleteFunc(slices.Clone(s.Types), func(name string) bool { return name == "null" })
	switch len(s.Types) {
	case 0:
		s.Types = nil
	case 1:
		s.Type, s.Types = s.Types[0], nil
	}
	for _, property := range s.Properties {
		dropNull(property)
	}
	dropNull(s.Items)
	dropNull(s.AdditionalProperties)
}

// addNull lets the maps below s be null, which the generator forgets. For a
// pointer to any value it says null alone.
func addNull(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	isMap := s.Type == "object" && s.AdditionalProperties != nil && s.AdditionalProperties.Not == nil
	switch {
	case isMap:
		s.Type, s.Types = "", []string{"null", "object"}
	case slices.Equal(s.Types, []string{"null"}):
		s.Types = nil
	}
	for _, property := range s.Properties {
		addNull(property)
	}
	addNull(s.Items)
	addNull(s.AdditionalProperties)
}
