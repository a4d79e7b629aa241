package catalog

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The YAML is read by go.yaml.in/yaml/v3 as nodes, which know their lines, and
// laid onto the struct here. The library's own strict mode stops at a type's
// first unknown field, names Go types to the reader, and takes 010 for 8 where
// text was meant; reading through sigs.k8s.io/yaml loses the lines.

// maxFile is the longest file, in bytes. It bounds what the YAML parser sees;
// MaxSpec bounds what it may mean.
const maxFile = 4 * MaxSpec

// maxYAMLDepth is the deepest nesting of a file.
const maxYAMLDepth = 64

// decoder lays the nodes of one file onto a struct.
type decoder struct {
	problems Problems
	// lines tells where each field stands.
	lines map[string]int
}

func (d *decoder) fault(n *yaml.Node, field, format string, args ...any) {
	d.problems = append(d.problems, Problem{Line: n.Line, Field: field, Message: fmt.Sprintf(format, args...)})
}

// expectedTool says what a tool file should be.
const expectedTool = "a tool (apiVersion: " + APIVersion + ", kind: " + Kind + ", …)"

// Parse reads one tool's declaration, fills in defaults and validates it. The
// error is [Problems] with lines and without a file.
func Parse(data []byte) (Spec, error) {
	roots, err := documents(data, expectedTool)
	if err == nil && len(roots) > 1 {
		err = errors.New("holds more than one document; one tool is expected")
	}
	if err != nil {
		return Spec{}, Problems{syntaxProblem(err)}
	}
	return parseTool(roots[0])
}

// ParseAll reads every tool of a file: one YAML document each, as a program with
// several tools describes itself. The error is [Problems] over all of them.
func ParseAll(data []byte) ([]Spec, error) {
	roots, err := documents(data, expectedTool)
	if err != nil {
		return nil, Problems{syntaxProblem(err)}
	}
	var specs []Spec
	var problems Problems
	for _, root := range roots {
		s, err := parseTool(root)
		faults, _ := errors.AsType[Problems](err)
		problems = append(problems, faults...)
		specs = append(specs, s)
	}
	if len(problems) > 0 {
		return nil, fewest(problems)
	}
	return specs, nil
}

func parseTool(root *yaml.Node) (Spec, error) {
	// Defaults come first, so that a value that is written down is judged as
	// written: "timeout: 0s" is a fault, not thirty seconds.
	s := Spec{Warm: Warm{Max: 4}}
	s.SetDefaults()
	err := decode(root, expectedTool, &s, func() Problems {
		s.imply()
		s.OutputSchema = dropEmpty(s.OutputSchema)
		faults, _ := errors.AsType[Problems](s.Validate())
		return faults
	})
	if err != nil {
		return Spec{}, err
	}
	return s, nil
}

// Decode lays the one YAML document of a file onto v, a pointer to a struct
// whose fields have JSON names, and then has check judge what was read. It is
// how tools are read, and other files that people write for the fleet: what is
// unknown, given twice or of another type is a fault, and every fault is told.
// expected says what the file should be, such as "a tool".
//
// The error is [Problems] with lines and without a file. The problems of check
// get the line of their field; one about a field that could not be read is an
// echo, and is dropped.
func Decode(data []byte, expected string, v any, check func() Problems) error {
	roots, err := documents(data, expected)
	if err == nil && len(roots) > 1 {
		err = errors.New("holds more than one document; write one a file")
	}
	if err != nil {
		return Problems{syntaxProblem(err)}
	}
	return decode(roots[0], expected, v, check)
}

// decode is Decode for a document.
func decode(root *yaml.Node, expected string, v any, check func() Problems) error {
	if root.Kind != yaml.MappingNode {
		return Problems{{Line: root.Line, Message: fmt.Sprintf("is %s; expected %s", describe(root), expected)}}
	}
	d := decoder{lines: map[string]int{}}
	d.value(root, reflect.ValueOf(v).Elem(), "")
	for _, p := range check() {
		if !d.reported(p.Field) {
			p.Line = d.line(p.Field)
			d.problems = append(d.problems, p)
		}
	}
	if len(d.problems) > 0 {
		slices.SortStableFunc(d.problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
		return fewest(d.problems)
	}
	return nil
}

// mostFaults is how many faults of one file are told: a file of another kind, or
// of an enemy, has more than anybody reads.
const mostFaults = 100

func fewest(p Problems) Problems {
	if more := len(p) - mostFaults; more > 0 {
		p = append(p[:mostFaults:mostFaults], Problem{Line: p[mostFaults].Line, Message: fmt.Sprintf("has %d more faults", more)})
	}
	return p
}

// syntaxError is how the YAML library tells where a file is no YAML.
var syntaxError = regexp.MustCompile(`^yaml: line ([0-9]{1,9}): `)

// syntaxProblem is a fault of the file as a whole. The library has no other
// way to give the line than in its text; where it gives none, or should it say
// it otherwise one day, the text is kept as it is.
func syntaxProblem(err error) Problem {
	text := err.Error()
	m := syntaxError.FindStringSubmatch(text)
	if m == nil {
		return Problem{Message: text}
	}
	line, err := strconv.Atoi(m[1])
	if err != nil {
		return Problem{Message: text}
	}
	return Problem{Line: line, Message: "is not YAML: " + strings.TrimPrefix(text, m[0])}
}

// documents reads the YAML documents of a file, without those that are empty. At
// least one is left.
func documents(data []byte, expected string) ([]*yaml.Node, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("is %d bytes long, and at most %d are allowed", len(data), maxFile)
	}
	var roots []*yaml.Node
	for dec := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		err := dec.Decode(&doc)
		switch {
		case errors.Is(err, io.EOF) && roots == nil:
			return nil, errors.New("is empty; expected " + expected)
		case errors.Is(err, io.EOF):
			return roots, nil
		case err != nil:
			return nil, err
		case len(doc.Content) == 1 && doc.Content[0].ShortTag() != "!!null":
			roots = append(roots, doc.Content[0])
		}
	}
}

// reported says whether field, or something around or inside it, has a fault
// already: the second one would only be an echo.
func (d *decoder) reported(field string) bool {
	for _, p := range d.problems {
		if p.Field == field || strings.HasPrefix(p.Field, field+".") || strings.HasPrefix(field, p.Field+".") {
			return true
		}
	}
	return false
}

// line finds the line of the field, or of the nearest thing around it.
func (d *decoder) line(field string) int {
	for {
		if line, ok := d.lines[field]; ok {
			return line
		}
		cut := strings.LastIndexAny(field, ".[")
		if cut < 0 {
			return d.lines[""]
		}
		field = field[:cut]
	}
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// value lays n onto v.
func (d *decoder) value(n *yaml.Node, v reflect.Value, field string) {
	d.lines[field] = n.Line
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if v.Addr().Type().Implements(unmarshaler) {
		d.custom(n, v, field)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.structure(n, v, field)
	case reflect.Map:
		d.textMap(n, v, field)
	case reflect.Slice:
		d.list(n, v, field)
	default:
		d.scalar(n, v, field)
	}
}

// custom reads a value that knows its own JSON.
func (d *decoder) custom(n *yaml.Node, v reflect.Value, field string) {
	before := len(d.problems)
	raw := d.json(nil, n, field, 0)
	if len(d.problems) > before {
		return
	}
	if err := json.Unmarshal(raw, v.Addr().Interface()); err != nil {
		d.fault(n, field, "%v", err)
	}
}

func (d *decoder) structure(n *yaml.Node, v reflect.Value, field string) {
	fields := map[string]int{}
	var names []string
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		fields[name] = i
		names = append(names, name)
	}
	d.members(n, field, func(key *yaml.Node, value *yaml.Node, inner string) {
		i, known := fields[key.Value]
		if !known {
			d.fault(key, inner, "unknown field%s", didYouMean(key.Value, names))
			return
		}
		d.value(value, v.Field(i), inner)
	})
}

func (d *decoder) textMap(n *yaml.Node, v reflect.Value, field string) {
	v.Set(reflect.MakeMap(v.Type()))
	d.members(n, field, func(key *yaml.Node, value *yaml.Node, inner string) {
		element := reflect.New(v.Type().Elem()).Elem()
		d.value(value, element, inner)
		v.SetMapIndex(reflect.ValueOf(key.Value), element)
	})
}

// members calls each for every member of a mapping, once a name.
func (d *decoder) members(n *yaml.Node, field string, each func(key, value *yaml.Node, inner string)) {
	if n.Kind != yaml.MappingNode {
		d.fault(n, field, "expected an object, got %s", describe(n))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		inner := strings.TrimPrefix(field+"."+cut(key.Value), ".")
		if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" {
			d.fault(key, field, "expected a plain name as a key, got %s", describe(key))
			continue
		}
		if line, twice := seen[key.Value]; twice {
			d.fault(key, inner, "is given twice; the first is on line %d", line)
			continue
		}
		seen[key.Value] = key.Line
		each(key, value, inner)
	}
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, field string) {
	if n.Kind != yaml.SequenceNode {
		d.fault(n, field, "expected a list, got %s", describe(n))
		return
	}
	list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		d.value(item, list.Index(i), fmt.Sprintf("%s[%d]", field, i))
	}
	if len(n.Content) == 0 {
		list = reflect.Zero(v.Type()) // an empty list is as good as none
	}
	v.Set(list)
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, field string) {
	wrong := func(expected string) { d.fault(n, field, "expected %s, got %s", expected, describe(n)) }
	tag := n.ShortTag()
	if n.Kind != yaml.ScalarNode {
		tag = ""
	}
	switch v.Kind() {
	case reflect.String:
		switch tag {
		case "!!str", "!!timestamp": // a date without quotes is text to us
			v.SetString(n.Value)
		case "!!int", "!!float", "!!bool":
			wrong("text (put it in quotes)")
		default:
			wrong("text")
		}
	case reflect.Bool:
		if tag != "!!bool" || n.Decode(v.Addr().Interface()) != nil {
			wrong("true or false")
		}
	case reflect.Int, reflect.Int64:
		if tag != "!!int" || n.Decode(v.Addr().Interface()) != nil {
			wrong("a whole number")
		}
	case reflect.Float64:
		if (tag != "!!int" && tag != "!!float") || n.Decode(v.Addr().Interface()) != nil || math.IsInf(v.Float(), 0) || math.IsNaN(v.Float()) {
			wrong("a number")
		}
	default:
		panic("catalog: no way to read a " + v.Type().String()) // a field of a kind that this file must learn
	}
}

// describe says what a node is, for "expected …, got …".
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!bool", "!!int", "!!float":
		return cut(n.Value)
	}
	return fmt.Sprintf("%q", cut(n.Value))
}

// dropEmpty turns {} and null, which say nothing, into absence.
func dropEmpty(raw json.RawMessage) json.RawMessage {
	if text := string(raw); text == "{}" || text == "null" {
		return nil
	}
	return raw
}
