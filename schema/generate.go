package schema

import (
	"encoding"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/big"
	"reflect"
	"slices"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// For derives the schema of T; see [Of].
func For[T any]() (*jsonschema.Schema, error) { return Of(reflect.TypeFor[T]()) }

// Of derives the schema of a Go type as encoding/json reads it. Struct fields
// are required unless tagged omitempty or omitzero, a jsonschema tag is a
// field's description, and unknown members are refused. It fails for types
// that have no schema: channels, functions, complex numbers, types that
// contain themselves.
//
// The generator's defaults are corrected where they mislead: bytes are base64
// text, json.RawMessage is any value, a type that writes itself is text or any
// value, and no type is ["null", …], which some model providers answer with an
// error; what is optional is told by "required".
func Of(t reflect.Type) (*jsonschema.Schema, error) {
	special := map[reflect.Type]*jsonschema.Schema{}
	findSpecial(t, special, map[reflect.Type]bool{})
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: special})
	if err != nil {
		return nil, fmt.Errorf("schema: type %s: %w", t, err)
	}
	dropNull(s)
	return s, nil
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
	// generated are the types that the generator knows better than we do.
	generated = []reflect.Type{
		reflect.TypeFor[time.Time](), reflect.TypeFor[slog.Level](),
		reflect.TypeFor[big.Int](), reflect.TypeFor[big.Rat](), reflect.TypeFor[big.Float](),
	}
)

// findSpecial collects the schemas of the types below t that encoding/json
// does not write as their kind suggests.
func findSpecial(t reflect.Type, special map[reflect.Type]*jsonschema.Schema, seen map[reflect.Type]bool) {
	if seen[t] || slices.Contains(generated, t) {
		return
	}
	seen[t] = true
	implements := func(i reflect.Type) bool {
		return t.Kind() != reflect.Pointer && t.Kind() != reflect.Interface && reflect.PointerTo(t).Implements(i)
	}
	switch {
	case implements(jsonMarshaler):
		special[t] = &jsonschema.Schema{}
		return
	case implements(textMarshaler):
		special[t] = &jsonschema.Schema{Type: "string"}
		return
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		special[t] = &jsonschema.Schema{Type: "string", ContentEncoding: "base64"}
		return
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		findSpecial(t.Elem(), special, seen)
	case reflect.Struct:
		for field := range t.Fields() {
			// An embedded struct that writes itself would hide its siblings;
			// the generator treats its fields one by one.
			findSpecial(field.Type, special, seen)
		}
	}
}

// dropNull takes "null" out of every list of types below s.
func dropNull(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	s.Types = slices.DeleteFunc(s.Types, func(name string) bool { return name == "null" })
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
