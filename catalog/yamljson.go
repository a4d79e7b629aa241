package catalog

import (
	"encoding/json"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// json appends the JSON of a node, with members in the order of the file: a
// model reads a schema from top to bottom. Anchors and aliases are refused,
// because a file of a few lines can expand to gigabytes by them.
func (d *decoder) json(out []byte, n *yaml.Node, field string, depth int) []byte {
	if depth > maxYAMLDepth {
		d.fault(n, field, "is nested deeper than %d levels", maxYAMLDepth)
		return out
	}
	switch n.Kind {
	case yaml.MappingNode:
		out = append(out, '{')
		first := true
		d.members(n, field, func(key, value *yaml.Node, inner string) {
			if !first {
				out = append(out, ',')
			}
			first = false
			out = append(appendText(out, key.Value), ':')
			out = d.json(out, value, inner, depth+1)
		})
		return append(out, '}')
	case yaml.SequenceNode:
		out = append(out, '[')
		for i, item := range n.Content {
			if i > 0 {
				out = append(out, ',')
			}
			out = d.json(out, item, field+"["+strconv.Itoa(i)+"]", depth+1)
		}
		return append(out, ']')
	case yaml.AliasNode:
		d.fault(n, field, "aliases are not supported; write the value out")
		return out
	}
	return d.scalarJSON(out, n, field)
}

func (d *decoder) scalarJSON(out []byte, n *yaml.Node, field string) []byte {
	switch n.ShortTag() {
	case "!!str", "!!timestamp":
		return appendText(out, n.Value)
	case "!!null":
		return append(out, "null"...)
	case "!!bool":
		var b bool
		if n.Decode(&b) == nil {
			return strconv.AppendBool(out, b)
		}
	case "!!int", "!!float":
		if json.Valid([]byte(n.Value)) {
			return append(out, n.Value...) // digit for digit, however many
		}
		var i int64
		if n.Decode(&i) == nil {
			return strconv.AppendInt(out, i, 10)
		}
		var f float64
		if n.Decode(&f) == nil {
			if raw, err := json.Marshal(f); err == nil {
				return append(out, raw...)
			}
		}
	}
	d.fault(n, field, "expected a JSON value, got %s (%s)", describe(n), cut(n.Tag))
	return out
}

func appendText(out []byte, s string) []byte {
	raw, err := json.Marshal(s)
	if err != nil {
		panic("catalog: " + err.Error()) // no string fails to encode
	}
	return append(out, raw...)
}
