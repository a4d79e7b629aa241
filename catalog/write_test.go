package catalog

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// A file that YAML wrote is the spec again, its schema's order included.
func TestYAMLIsAToolFile(t *testing.T) {
	want, err := Parse([]byte(complete))
	if err != nil {
		t.Fatal(err)
	}
	want.Description = "Two\nlines: and \"quotes\" # no comment \t\u2028 \U0001f600"
	want.UseWhen, want.Reminder = "017", " yes "
	want.Command = []string{"/tool", "~", "0x10", "2026-11-30", "on", "-", "- a", "{", "!x", "1e3", "=", "<<", "&a", "*a", "?", ".inf", ""}
	want.Parameters = json.RawMessage(`{"type":"object","properties":{"z":{"maximum":90071992547409931,"multipleOf":0.10,"default":1E300},"a":{"enum":["\ud83d\ude00",null,true,1.0,"1",[],{}]}}}`)
	text, err := YAML(&want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Spec{}, "Parameters")); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, text)
	}
	if string(got.Parameters) != `{"type":"object","properties":{"z":{"maximum":90071992547409931,"multipleOf":0.10,"default":1E300},"a":{"enum":["😀",null,true,1.0,"1",[],{}]}}}` {
		t.Errorf("parameters = %s", got.Parameters)
	}
}

// Whatever is taken as JSON can be written as a file, and is the same tool then.
func FuzzParseJSON(f *testing.F) {
	spec, err := Parse([]byte(complete))
	if err != nil {
		f.Fatal(err)
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`{"name":"t","description":"d","image":"i","command":["/tool"],"parameters":{"type":"object","default":"\ud800\u0085\ufeff"}}`))
	f.Add([]byte(`{"name":"t","description":"\u0000","type":"server","serverType":"x","serverConfig":{"<<":1,"~":{"":1e5}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := ParseJSON(raw)
		if _, faulty := errors.AsType[Problems](err); faulty {
			return
		}
		if err != nil {
			t.Fatalf("an error of another kind: %v", err)
		}
		stored, digest, err := written(s)
		if err != nil {
			t.Fatalf("a tool that was read cannot be stored: %v", err)
		}
		if again, err := ParseJSON(stored); err != nil || again.Digest() != digest {
			t.Errorf("what was stored is another tool: %v\n%s", err, stored)
		}
		file, err := YAML(&s)
		if err != nil {
			t.Fatalf("a tool has no file: %v", err)
		}
		if back, err := Parse(file); err != nil || back.Digest() != digest {
			t.Errorf("a tool's file is another tool: %v\n%s\n%s", err, raw, file)
		}
	})
}
