package schema_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"pgregory.net/rapid"

	"github.com/toolfleet/toolfleet/schema"
	"github.com/toolfleet/toolfleet/schema/validate"
)

// The schema of a Go type accepts exactly what encoding/json makes of that
// type: everything it writes, and of documents that are nearly so only what it
// reads. Of what is read null is left out: such a schema never takes it for a
// pointer, slice or map, on purpose (see [schema.Of]).
func TestSchemaIsExact(t *testing.T) {
	t.Run("read", func(t *testing.T) { testExact(t, schema.Of, false) })
	t.Run("written", func(t *testing.T) { testExact(t, schema.Written, true) })
}

func testExact(t *testing.T, of func(reflect.Type) (*jsonschema.Schema, error), nils bool) {
	rapid.Check(t, func(t *rapid.T) {
		typ := goType(t, 3)
		s := compiled(t, of, typ)
		v := reflect.New(typ)
		fill(t, v.Elem(), nils)
		raw, err := json.Marshal(v.Interface())
		if err != nil {
			t.Fatal(err)
		}
		if problems := s.Validate(raw); problems != nil {
			t.Fatalf("%s\nwrites %s\nrefused: %v", typ, raw, problems)
		}
		near, err := json.Marshal(mutate(t, plain(t, raw)))
		if err != nil {
			t.Fatal(err)
		}
		accepted := s.Validate(near) == nil
		again, err := reread(typ, near)
		switch {
		case accepted && err != nil:
			t.Fatalf("%s\naccepts %s\nwhich it cannot read: %v", typ, near, err)
		case !accepted && err == nil && reflect.DeepEqual(plain(t, near), plain(t, again)):
			t.Fatalf("%s\nrefuses %s\nwhich it writes: %v", typ, near, s.Validate(near))
		}
	})
}

// texts are types whose text has a form that their schema does not tell: what
// they write is accepted, and not all that is accepted is read.
var texts = map[reflect.Type]any{
	reflect.TypeFor[time.Time]():  time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
	reflect.TypeFor[netip.Addr](): netip.MustParseAddr("::1"),
	reflect.TypeFor[big.Float]():  big.NewFloat(1.5),
	reflect.TypeFor[big.Rat]():    big.NewRat(1, 3),
}

func TestTextsAreAccepted(t *testing.T) {
	for typ, v := range texts {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if problems := compiled(t, schema.Written, typ).Validate(raw); problems != nil {
			t.Errorf("%s writes %s: %v", typ, raw, problems)
		}
	}
}

func compiled(t interface{ Fatalf(string, ...any) }, of func(reflect.Type) (*jsonschema.Schema, error), typ reflect.Type) *validate.Schema {
	derived, err := of(typ)
	if err != nil {
		t.Fatalf("%v", err)
	}
	raw, err := json.Marshal(derived)
	if err != nil {
		t.Fatalf("%s: %v", typ, err)
	}
	s, err := validate.Compile(raw)
	if err != nil {
		t.Fatalf("%s: %s: %v", typ, raw, err)
	}
	return s
}

// reread reads a document strictly and writes what was read.
func reread(typ reflect.Type, raw []byte) ([]byte, error) {
	v := reflect.New(typ)
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v.Interface()); err != nil {
		return nil, err
	}
	return json.Marshal(v.Interface())
}

// plain is a document with its numbers as they were written.
func plain(t *rapid.T, raw []byte) any {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

type octets []byte

var scalars = []reflect.Type{
	reflect.TypeFor[bool](), reflect.TypeFor[string](), reflect.TypeFor[float32](), reflect.TypeFor[float64](),
	reflect.TypeFor[int](), reflect.TypeFor[int8](), reflect.TypeFor[int16](), reflect.TypeFor[int32](), reflect.TypeFor[int64](),
	reflect.TypeFor[uint](), reflect.TypeFor[uint8](), reflect.TypeFor[uint16](), reflect.TypeFor[uint32](), reflect.TypeFor[uint64](),
	reflect.TypeFor[[]byte](), reflect.TypeFor[octets](), reflect.TypeFor[[2]byte](),
	reflect.TypeFor[any](), reflect.TypeFor[json.RawMessage](), reflect.TypeFor[json.Number](), reflect.TypeFor[*big.Int](),
	reflect.TypeFor[time.Duration](),
}

// goType draws a type, at most so many levels deep.
func goType(t *rapid.T, depth int) reflect.Type {
	if depth == 0 {
		return rapid.SampledFrom(scalars).Draw(t, "scalar")
	}
	switch rapid.SampledFrom([]string{"struct", "struct", "scalar", "pointer", "slice", "array", "map"}).Draw(t, "kind") {
	case "pointer":
		return reflect.PointerTo(goType(t, depth-1))
	case "slice":
		return reflect.SliceOf(goType(t, depth-1))
	case "array":
		return reflect.ArrayOf(rapid.IntRange(0, 3).Draw(t, "length"), goType(t, depth-1))
	case "map":
		return reflect.MapOf(reflect.TypeFor[string](), goType(t, depth-1))
	case "struct":
		return structType(t, depth)
	}
	return goType(t, 0)
}

// structType draws a struct. Its names differ by their case alone, are no
// identifiers, or say "-".
func structType(t *rapid.T, depth int) reflect.Type {
	var fields []reflect.StructField
	for i, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"", "a", "A", "b-c", "d.e", "é", "-", "$ref"}), 0, 4, rapid.ID[string]).Draw(t, "names") {
		option := rapid.SampledFrom([]string{",", ",omitempty", ",omitzero"}).Draw(t, "option")
		fields = append(fields, reflect.StructField{
			Name: fmt.Sprintf("F%d", i), Type: goType(t, depth-1), Tag: reflect.StructTag(`json:"` + name + option + `"`),
		})
	}
	return reflect.StructOf(fields)
}

// fill draws a value, which holds no nil unless it may.
func fill(t *rapid.T, v reflect.Value, nils bool) {
	if nils && slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface}, v.Kind()) && rapid.Bool().Draw(t, "nil") {
		return
	}
	switch v.Type() {
	case reflect.TypeFor[json.RawMessage](), reflect.TypeFor[json.Number]():
		v.Set(reflect.ValueOf(fmt.Sprint(rapid.Int64().Draw(t, "digits"))).Convert(v.Type()))
		return
	case reflect.TypeFor[*big.Int]():
		v.Set(reflect.ValueOf(new(big.Int).Lsh(big.NewInt(rapid.Int64().Draw(t, "big")), 70)))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.String:
		v.SetString(rapid.String().Draw(t, "text"))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(rapid.Float32().Draw(t, "float")))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, "int") >> (64 - v.Type().Bits()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(rapid.Uint64().Draw(t, "uint") >> (64 - v.Type().Bits()))
	case reflect.Interface:
		v.Set(reflect.ValueOf(other(t)))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), nils)
	case reflect.Slice:
		n := rapid.IntRange(0, 3).Draw(t, "length")
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			fill(t, v.Index(i), nils)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for _, key := range rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, "keys") {
			value := reflect.New(v.Type().Elem()).Elem()
			fill(t, value, nils)
			v.SetMapIndex(reflect.ValueOf(key), value)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(t, field, nils)
		}
	}
}

// other draws a value to stand where another stood. Its text is base64, since
// no schema tells what is.
func other(t *rapid.T) any {
	return rapid.SampledFrom([]any{true, "", "AAAA", 0.0, 1.0, -1.0, 200.0, -70000.0, 0.5, []any{}, []any{1.0}, map[string]any{}, map[string]any{"a": "AAAA"}}).Draw(t, "other")
}

// mutate changes a document in one place, or not at all.
func mutate(t *rapid.T, doc any) any {
	change := rapid.SampledFrom([]string{"nothing", "value", "inside", "inside", "inside", "add", "remove", "case"}).Draw(t, "change")
	switch doc := doc.(type) {
	case map[string]any:
		return mutateObject(t, change, doc)
	case []any:
		if change == "add" {
			return append(doc, other(t))
		}
		if len(doc) > 0 && change == "remove" {
			return doc[1:]
		}
		if len(doc) > 0 && change == "inside" {
			i := rapid.IntRange(0, len(doc)-1).Draw(t, "index")
			doc[i] = mutate(t, doc[i])
			return doc
		}
	}
	if change == "nothing" {
		return doc
	}
	return other(t)
}

func mutateObject(t *rapid.T, change string, object map[string]any) any {
	names := slices.Sorted(maps.Keys(object))
	switch {
	case change == "nothing":
	case change == "value":
		return other(t)
	case change == "add" || len(names) == 0:
		object[rapid.SampledFrom([]string{"a", "A", "b-c", "new"}).Draw(t, "name")] = other(t)
	default:
		name := rapid.SampledFrom(names).Draw(t, "name")
		member := object[name]
		switch change {
		case "remove":
			delete(object, name)
		case "case":
			delete(object, name)
			object[strings.ToUpper(name)] = member
		default:
			object[name] = mutate(t, member)
		}
	}
	return object
}
