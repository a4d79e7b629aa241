package schema

import (
	"encoding/json"
	"fmt"
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

func TestValidate(t *testing.T) {
	s, err := Compile(json.RawMessage(`{
		"type": "object",
		"required": ["a", "b"],
		"properties": {
			"a": {"type": "string"},
			"b": {},
			"n": {"type": "integer", "minimum": 3, "maximum": 9007199254740992},
			"list": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "number"}]}},
			"e": {"enum": ["x", "y"]},
			"never": false,
			"names": {"propertyNames": {"maxLength": 3, "pattern": "^[a-z]+$"}}
		},
		"additionalProperties": false
	}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, in string
		want     []string
	}{
		{"fits", `{"a":"","b":1,"n":3,"list":["x",1],"e":"x","names":{"ab":1}}`, nil},
		{"below", `{"a":"","b":1,"n":-2}`, []string{"/n: got -2, want at least 3"}},
		{"missing", `{}`, []string{"missing properties 'a', 'b'"}},
		{"every problem, sorted", `{"a":1,"n":1.5,"list":[true],"e":"z","zz":1,"yy":1,"never":1,"names":{"Long1":1}}`, []string{
			"additional properties 'yy', 'zz' not allowed",
			"missing property 'b'",
			`property name "Long1" is not allowed: 'Long1' does not match pattern '^[a-z]+$', maxLength: got 5, want 3`,
			"/a: got number, want string",
			"/e: value must be one of 'x', 'y'",
			"/list/0: got boolean, want number",
			"/list/0: got boolean, want string",
			"/n: got number, want integer",
			"/never: is not allowed",
		}},
		{"exact numbers", `{"a":"","n":9007199254740993}`, []string{"missing property 'b'", "/n: got 9007199254740993, want at most 9007199254740992"}},
		{"unfit JSON is not looked at further", `{"a":1,"a":2}`, []string{"/a: is given twice"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 20 { // maps are in another order each time
				if diff := cmp.Diff(tt.want, texts(s.Validate([]byte(tt.in)))); diff != "" {
					t.Fatalf("problems (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestValidateIsBounded(t *testing.T) {
	s, err := Compile(json.RawMessage(`{"items":{"enum":["` + strings.Repeat("é", 1000) + `"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	got := s.Validate([]byte("[" + strings.Repeat("1,", 999) + "1]"))
	if len(got) != MaxProblems || got[MaxProblems-1].Message != "and 981 more problems" {
		t.Errorf("%d problems, the last %q", len(got), got[len(got)-1])
	}
	for _, p := range got {
		if len(p.Message) > maxMessage+len("…") || strings.ContainsRune(p.Message, '\uFFFD') {
			t.Errorf("message %q", p.Message)
		}
	}
}

func TestCompileDrafts(t *testing.T) {
	for _, draft := range []string{
		"http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-06/schema#", "http://json-schema.org/draft-07/schema#",
		"https://json-schema.org/draft/2019-09/schema", "https://json-schema.org/draft/2020-12/schema",
	} {
		s, err := Compile(json.RawMessage(`{"$schema":"` + draft + `","type":"object","properties":{"a":{"$ref":"#/definitions/x"}},"definitions":{"x":{"type":"string"}}}`))
		if err != nil {
			t.Errorf("%s: %v", draft, err)
			continue
		}
		if diff := cmp.Diff([]string{"/a: got number, want string"}, texts(s.Validate([]byte(`{"a":1}`)))); diff != "" {
			t.Errorf("%s: problems (-want +got):\n%s", draft, diff)
		}
	}
	// Without $schema it is 2020-12: prefixItems means something.
	s, err := Compile(json.RawMessage(`{"prefixItems":[{"type":"string"}]}`))
	if err != nil || s.Validate([]byte(`[1]`)) == nil {
		t.Errorf("the default draft does not know prefixItems: %v", err)
	}
}

func TestCompileRefuses(t *testing.T) {
	for in, want := range map[string]string{
		``:                                  "is empty",
		`{"type":"object"`:                  "is not JSON",
		`7`:                                 "got number, want boolean or object",
		`{"type":"strin","required":3}`:     "/required: got number, want array; /type:",
		`{"type":"object","type":"string"}`: "/type: is given twice",
		`{"pattern":"("}`:                   "not valid regex",
		`{"pattern":"(?=a)"}`:               "not valid regex",
		`{"multipleOf":0}`:                  "/multipleOf",
		`{"maximum":1e999999}`:              "out of range",
		`{"$ref":"#/nope"}`:                 "not found",
		`{"$ref":"file:///etc/passwd"}`:     "a schema may refer to itself only",
		`{"$ref":"http://example.com/s"}`:   "a schema may refer to itself only",
		`{"$ref":"other.json"}`:             "a schema may refer to itself only",
		`{"$schema":"http://example.com/"}`: "a schema may refer to itself only",
		`{"description":"` + strings.Repeat("x", MaxSchema) + `"}`: "at most 131072",
	} {
		_, err := Compile(json.RawMessage(in))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "schema: ") {
			t.Errorf("%.60s: error %v, want %q", in, err, want)
		}
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
		"required": ["text","bytes","blob","blobs","raw","rawToo","list","time","address","big","level","any","inner"],
		"properties": {
			"text": {"type":"string","description":"the text"},
			"optional": {"type":"integer","minimum":-128,"maximum":127},
			"bytes": {"type":"string","contentEncoding":"base64"},
			"blob": {"type":"string","contentEncoding":"base64"},
			"blobs": {"type":"array","items":{"type":"string","contentEncoding":"base64"}},
			"raw": true, "rawToo": true,
			"list": {"type":"array","items":{"type":"string"}},
			"map": {"type":"object","additionalProperties":{"type":"array","items":{"type":"integer"}}},
			"time": {"type":"string"}, "address": {"type":"string"}, "big": {"type":"string"}, "level": {"type":"string"},
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
	if _, err := Compile(got); err != nil {
		t.Errorf("the validator refuses it: %v", err)
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

// FuzzCheckJSON holds that what is accepted is JSON whose decoding and judging
// are safe, and that the whole is bounded.
func FuzzCheckJSON(f *testing.F) {
	for _, seed := range []string{`{"a":[1,{"b":null}],"a":2}`, `[[[[1e5]]]]`, `"\ud800"`, `{"":{"":0}}`, `[1,]`} {
		f.Add([]byte(seed))
	}
	s, err := Compile(json.RawMessage(`{"type":["object","array"],"properties":{"a":{"type":"string"}},"items":{"multipleOf":0.5},"uniqueItems":true}`))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		problems := CheckJSON(raw, 1<<16)
		if len(problems) > MaxProblems {
			t.Errorf("%d problems", len(problems))
		}
		if problems == nil && !json.Valid(raw) {
			t.Errorf("%q is no JSON", raw)
		}
		if len(raw) <= 1<<16 {
			s.Validate(raw)
		}
	})
}

func ExampleSchema_Validate() {
	s, err := Compile(json.RawMessage(`{"type":"object","required":["city"],"properties":{"days":{"type":"integer"}}}`))
	if err != nil {
		panic(err)
	}
	for _, p := range s.Validate([]byte(`{"days":"3"}`)) {
		fmt.Println(p)
	}
	// Output:
	// missing property 'city'
	// /days: got string, want integer
}
