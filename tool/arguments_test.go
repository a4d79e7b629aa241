package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"
	"pgregory.net/rapid"

	"github.com/toolfleet/toolfleet/schema"
)

// misfits are what a tool with these arguments says of them.
func misfits[In any](t *testing.T, edit func(*jsonschema.Schema), arguments string) []string {
	t.Helper()
	tl := Define("t", "d", func(context.Context, *Call, In) (string, error) { return "", nil }, EditInput(edit))
	lines := strings.Split(run(t, tl, arguments).Content[0].Text, "\n- ")
	return lines[1:]
}

func TestEveryMisfitIsListed(t *testing.T) {
	type place struct {
		City string `json:"city"`
		Zip  int    `json:"zip,omitempty"`
	}
	type in struct {
		From  place            `json:"from"`
		Via   []place          `json:"via,omitempty"`
		Fares map[string]uint8 `json:"fares,omitempty"`
		Any   any              `json:"any,omitempty"`
		Whole int64            `json:"whole,omitempty"`
	}
	edit := func(s *jsonschema.Schema) {
		s.Properties["via"].MaxItems = new(2)
		s.Properties["any"] = &jsonschema.Schema{Ref: "#/$defs/short"}
		s.Properties["whole"].Maximum = new(float64(1 << 53))
		s.Defs = map[string]*jsonschema.Schema{"short": {MaxLength: new(1)}}
	}
	for _, tt := range []struct {
		name, in string
		want     []string
	}{
		{"none", `{"from":{"city":"x","zip":1},"via":[{"city":"y"}],"fares":{"a":255},"any":"x","whole":9007199254740992}`, []string{}},
		{"all, sorted by place", `{"via":[{"zip":1},{"city":1},{"city":"","no":2}],"fares":{"b":256,"a":-1},"x":[]}`, []string{
			`lacks "from"`,
			`/fares/a: minimum: -1/1 is less than 0.000000`,
			`/fares/b: maximum: 256/1 is greater than 255.000000`,
			`/via: maxItems: array length 3 is greater than 2`,
			`/via/0: lacks "city"`,
			`/via/1/city: type: 1 has type "integer", want "string"`,
			`/via/2/no: is unknown`,
			`/x: is unknown`,
		}},
		{"not an object", `[]`, []string{`type: [] has type "array", want "object"`}},
		{"a number that a float cannot hold", `{"from":{"city":"x"},"whole":9007199254740993}`, []string{
			`/whole: maximum: 9007199254740993/1 is greater than 9007199254740992.000000`,
		}},
		{"behind a reference", `{"from":{"city":"x"},"any":"xyz"}`, []string{
			`validating /properties/any: validating /$defs/short: maxLength: "xyz" contains 3 Unicode code points, more than 1`,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, misfits[in](t, edit, tt.in)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Where the rules of a schema hang together, one sentence has to do.
func TestMisfitsOfRulesThatHangTogether(t *testing.T) {
	edit := func(s *jsonschema.Schema) {
		s.PatternProperties = map[string]*jsonschema.Schema{"^x-": {Type: "string"}}
		s.AdditionalProperties = &jsonschema.Schema{Type: "integer"}
	}
	if got := misfits[json.RawMessage](t, edit, `{"x-a":"","b":1}`); len(got) != 0 {
		t.Errorf("misfits %q", got)
	}
	if got := misfits[json.RawMessage](t, edit, `{"x-a":1,"b":""}`); len(got) != 1 {
		t.Errorf("misfits %q", got)
	}
}

// Arguments that are wrong a hundred thousand times cost little more than
// arguments that are right: without a resolved schema kept for the next value,
// each would take a hundred allocations.
func TestMisfitsAreBounded(t *testing.T) {
	type in struct {
		List []string `json:"list"`
	}
	long := `{"list":[1` + strings.Repeat(",1", 100_000) + `]}`
	allocations := testing.AllocsPerRun(1, func() {
		got := misfits[in](t, func(*jsonschema.Schema) {}, long)
		if len(got) != schema.MaxProblems || got[schema.MaxProblems-1] != "and 99982 more problems" {
			t.Errorf("misfits %q", got)
		}
	})
	if most := 40.0; allocations > most*100_000 {
		t.Errorf("%.1f allocations for each, and %.1f are allowed", allocations/100_000, most)
	}
}

// JSON Schema says that 1.0 is an integer, and 1e3; so a field that holds one
// takes them, and a text that looks like one stays as it is.
func TestWholeNumbersInAnySpelling(t *testing.T) {
	type in struct {
		N     int64            `json:"n"`
		Small map[string]uint8 `json:"small,omitempty"`
		Big   *big.Int         `json:"big,omitempty"`
		Float float64          `json:"float,omitempty"`
		Text  string           `json:"text,omitempty"`
		Raw   json.RawMessage  `json:"raw,omitempty"`
	}
	var got in
	tl := Define("t", "d", func(_ context.Context, _ *Call, in in) (string, error) { got = in; return "", nil })
	arguments := `{"n":-9007199254740993.0,"small":{"a":2.50e2,"b\"1.0":-0.0},"big":1e30,"float":1.5,"text":"1.0 \\","raw":[1.5,"1.0"]}`
	if r := run(t, tl, arguments); r.IsError {
		t.Fatal(r.Content)
	}
	want := in{
		N: -9007199254740993, Small: map[string]uint8{"a": 250, `b"1.0`: 0}, Float: 1.5, Text: `1.0 \`, Raw: json.RawMessage(`[1.5,"1.0"]`),
		Big: new(big.Int).Exp(big.NewInt(10), big.NewInt(30), nil),
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b *big.Int) bool { return a.Cmp(b) == 0 })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for arguments, want := range map[string]string{
		`{"n":1.5}`:  "The arguments do not fit:\n- /n: type: 1.5 has type \"number\", want \"integer\"",
		`{"n":1e30}`: "The arguments do not fit:\n- json: cannot unmarshal number 1e30 into Go struct field in.n of type int64",
	} {
		if r := run(t, tl, arguments); r.Content[0].Text != want {
			t.Errorf("%s: %q", arguments, r.Content[0].Text)
		}
	}
}

func TestWholeNumbersProperty(t *testing.T) {
	type in struct {
		N int64 `json:"n"`
	}
	var got in
	tl := Define("t", "d", func(_ context.Context, _ *Call, in in) (string, error) { got = in; return "", nil })
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.Int64().Draw(rt, "n")
		zeros := rapid.IntRange(0, 5).Draw(rt, "zeros")
		text := fmt.Sprintf("%d.%s", n, strings.Repeat("0", zeros+1))
		if rapid.Bool().Draw(rt, "exponent") {
			n /= int64(math.Pow10(zeros))
			text = fmt.Sprintf("%de%d", n, zeros)
			n *= int64(math.Pow10(zeros))
		}
		if r := run(t, tl, `{"n":`+text+`}`); r.IsError || got.N != n {
			rt.Errorf("%s was read as %d: %v", text, got.N, r.Content)
		}
	})
}
