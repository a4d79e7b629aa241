package schema

import (
	"encoding/json"
	"log/slog"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func texts(problems []Problem) []string {
	var got []string
	for _, p := range problems {
		got = append(got, p.String())
	}
	return got
}

func TestCheckJSON(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, tt := range []struct {
		name, in string
		want     []string
	}{
		{"an object", ` {"a":[1,-0.5e3,true,null,"x"],"b":{}} `, nil},
		{"a scalar", `"a"`, nil},
		{"the same key on two levels", `{"a":{"a":1},"b":[{"a":1},{"a":2}]}`, nil},
		{"deep enough", nested(MaxDepth), nil},
		{"the largest float", `1.7976931348623157e308`, nil},
		{"a surrogate pair", `"\ud83d\ude00"`, nil},
		{"empty", "", []string{"is empty and not JSON; an object without members is {}"}},
		{"blank", " \n", []string{"is empty and not JSON; an object without members is {}"}},
		{"cut", `{"a":`, []string{"is not JSON: unexpected end of JSON input (at byte 5)"}},
		{"two values", `{}{}`, []string{"is not JSON: invalid character '{' after top-level value (at byte 3)"}},
		{"a trailing comma", `{"a":1,}`, []string{"is not JSON: invalid character '}' looking for beginning of object key string (at byte 8)"}},
		{"NaN", `NaN`, []string{"is not JSON: invalid character 'N' looking for beginning of value (at byte 1)"}},
		{"not UTF-8", "\"\xff\"", []string{"is not UTF-8"}},
		{"twins", `{"a":1,"a":2,"b":{"c/d":1,"c\/d":2},"l":[{"x":1,"\u0078":2}]}`, []string{"/a: is given twice", "/b/c~1d: is given twice", "/l/0/x: is given twice"}},
		{"too deep", `{"a":` + nested(MaxDepth) + `}`, []string{"/a" + strings.Repeat("/0", MaxDepth-1) + ": is nested deeper than 64 levels"}},
		{"far too deep", strings.Repeat("[", 400) + "x", []string{strings.Repeat("/0", MaxDepth) + ": is nested deeper than 64 levels"}},
		{"a huge exponent", `{"a":[0,1e999999]}`, []string{"/a/1: is a number out of range"}},
		{"a huge negative exponent", `1E-999999`, []string{"is a number out of range"}},
		{"a huge number", strings.Repeat("9", maxNumber+1), []string{"is a number out of range"}},
		{"too long", `"` + strings.Repeat("x", 1000) + `"`, []string{"is 1002 bytes long, and at most 1000 are allowed"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, texts(CheckJSON([]byte(tt.in), 1000))); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

type blob []byte

type everything struct {
	Text     string           `json:"text" jsonschema:"the text"`
	Optional int8             `json:"optional,omitempty"`
	Bytes    []byte           `json:"bytes"`
	Blob     *blob            `json:"blob"`
	Blobs    [][]byte         `json:"blobs"`
	Raw      json.RawMessage  `json:"raw"`
	RawToo   *json.RawMessage `json:"rawToo"`
	List     []*string        `json:"list"`
	Map      map[string][]int `json:"map,omitzero"`
	Time     *time.Time       `json:"time"`
	Address  netip.Addr       `json:"address"`
	Big      *big.Int         `json:"big"`
	Number   json.Number      `json:"number"`
	Level    slog.Level       `json:"level"`
	Any      any              `json:"any"`
	Inner    *struct {
		Array [2]bool `json:"array"`
	} `json:"inner"`
	Hidden func() `json:"-"`
}

func TestFor(t *testing.T) {
	s, err := For[everything]()
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	var want, have any
	for raw, v := range map[string]*any{string(got): &have, `{
		"type": "object", "additionalProperties": false,
		"required": ["text","bytes","blob","blobs","raw","rawToo","list","time","address","big","number","level","any","inner"],
		"properties": {
			"text": {"type":"string","description":"the text"},
			"optional": {"type":"integer","minimum":-128,"maximum":127},
			"bytes": {"type":"string","contentEncoding":"base64"},
			"blob": {"type":"string","contentEncoding":"base64"},
			"blobs": {"type":"array","items":{"type":"string","contentEncoding":"base64"}},
			"raw": true, "rawToo": true,
			"list": {"type":"array","items":{"type":"string"}},
			"map": {"type":"object","additionalProperties":{"type":"array","items":{"type":"integer"}}},
			"time": {"type":"string"}, "address": {"type":"string"}, "big": {"type":"integer"}, "number": {"type":"number"}, "level": {"type":"string"},
			"any": true,
			"inner": {"type":"object","additionalProperties":false,"required":["array"],"properties":{
				"array": {"type":"array","items":{"type":"boolean"},"minItems":2,"maxItems":2}}}
		}}`: &want} {
		if err := json.Unmarshal([]byte(raw), v); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("schema (-want +got):\n%s", diff)
	}
	if first := strings.Index(string(got), `"text"`); first > strings.Index(string(got), `"optional"`) {
		t.Error("properties are not in the order of the fields")
	}
}

func TestOfRefuses(t *testing.T) {
	type loop struct{ Next *loop }
	for _, typ := range []reflect.Type{
		reflect.TypeFor[chan int](), reflect.TypeFor[func()](), reflect.TypeFor[complex128](),
		reflect.TypeFor[loop](), reflect.TypeFor[map[int]string](), reflect.TypeFor[struct{ F func() }](),
	} {
		if _, err := Of(typ); err == nil || !strings.Contains(err.Error(), typ.String()) {
			t.Errorf("%s: error %v", typ, err)
		}
	}
}

type Named string

type point struct{ X, Y int }

// TestOfRefusesWhatTheGeneratorReadsOtherwise has types that are fine in
// encoding/json, and of which the generator would make the schema of something
// else.
func TestOfRefusesWhatTheGeneratorReadsOtherwise(t *testing.T) {
	for want, typ := range map[string]reflect.Type{
		"error is an interface with methods": reflect.TypeFor[struct{ E []error }](),
		"the field N of struct": reflect.TypeFor[struct {
			N int `json:"n,omitempty,string"`
		}](),
		"the embedded field point of struct": reflect.TypeFor[struct {
			point `json:"p"`
		}](),
		"the embedded field Named of struct": reflect.TypeFor[struct{ Named }](),
		`are both called "X" in JSON`: reflect.TypeFor[struct {
			point
			Z int `json:"X"`
		}](),
	} {
		if _, err := Of(typ); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", typ, err, want)
		}
	}
	if _, err := For[struct {
		point `json:",inline"`
		E     error `json:"-"`
	}](); err != nil {
		t.Error(err)
	}
}
