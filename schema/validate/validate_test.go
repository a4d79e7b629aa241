package validate

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolfleet/toolfleet/schema"
)

// maxSaid is the longest message and the longest path, in bytes.
const maxSaid = 300

func texts(problems []schema.Problem) []string {
	var got []string
	for _, p := range problems {
		got = append(got, p.String())
	}
	return got
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
	if len(got) != schema.MaxProblems || got[schema.MaxProblems-1].Message != "and 981 more problems" {
		t.Errorf("%d problems, the last %q", len(got), got[len(got)-1])
	}
	for _, p := range got {
		if len(p.Message) > maxSaid+len("…") || strings.ContainsRune(p.Message, '\uFFFD') {
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

// FuzzValidate holds that what is accepted is JSON whose decoding and judging
// are safe, and that the whole is bounded.
func FuzzValidate(f *testing.F) {
	for _, seed := range []string{`{"a":[1,{"b":null}],"a":2}`, `[[[[1e5]]]]`, `"\ud800"`, `{"":{"":0}}`, `[1,]`} {
		f.Add([]byte(seed))
	}
	s, err := Compile(json.RawMessage(`{"type":["object","array"],"properties":{"a":{"type":"string"}},"items":{"multipleOf":0.5},"uniqueItems":true}`))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		problems := schema.CheckJSON(raw, 1<<16)
		if len(problems) > schema.MaxProblems {
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
