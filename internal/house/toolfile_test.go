package house

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolfleet/toolfleet/catalog"
)

// row is a row of a table: a name in code font, and its second cell.
var row = regexp.MustCompile("(?m)^\\| `([A-Za-z.]+)` \\| ([^|]*?) *\\|")

// The reference of the tool file names every field that there is and none that
// there is not, in the order of the struct, with the defaults that a file which
// says nothing gets.
func TestToolFileIsDocumented(t *testing.T) {
	text := read(t, "docs/tools.md")
	var got []string
	said := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(text, -1) {
		got = append(got, m[1])
		said[m[1]] = m[2]
	}
	want := members(reflect.TypeFor[catalog.Spec](), "")
	want = append(want, members(reflect.TypeFor[catalog.Limits](), "limits.")...)
	want = append(want, members(reflect.TypeFor[catalog.Annotations](), "annotations.")...)
	want = append(want, members(reflect.TypeFor[catalog.Files](), "files.")...)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/tools.md names other fields than catalog.Spec has (-want +got):\n%s", diff)
	}

	for name, value := range defaults(t) {
		if !strings.Contains(said[name], "`"+value+"`") {
			t.Errorf("docs/tools.md says that %s is %q by default; it is %s", name, said[name], value)
		}
	}
}

// members are the names of a struct's fields in JSON.
func members(typ reflect.Type, prefix string) []string {
	var names []string
	for field := range typ.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, prefix+name)
	}
	return names
}

// defaults are the texts and numbers that a file gets which says no more than
// it has to.
func defaults(t *testing.T) map[string]string {
	t.Helper()
	spec, err := catalog.Parse([]byte("name: required\ndescription: required\nimage: required\ncommand: [required]\n"))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	var limits map[string]json.RawMessage
	if err := json.Unmarshal(fields["limits"], &limits); err != nil {
		t.Fatal(err)
	}
	for name, value := range limits {
		fields["limits."+name] = value
	}
	values := map[string]string{}
	for name, value := range fields {
		if text := strings.Trim(string(value), `"`); text != "required" && !strings.ContainsAny(text, "{[") {
			values[name] = text
		}
	}
	if len(values) < 15 {
		t.Fatalf("only %d defaults were found: %v", len(values), values)
	}
	return values
}
