package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// YAML is the tool file of a spec, with every default written out. Members keep
// their order, of which schemas have one that a model reads. What [Parse] makes
// of it is the spec.
func YAML(s *Spec) ([]byte, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	root, err := node(dec)
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(root), enc.Close()); err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	return b.Bytes(), nil
}

// node reads the next JSON value. It is read token by token, since maps have no
// order, and YAML's own reader knows not all escapes of JSON.
func node(dec *json.Decoder) (*yaml.Node, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	scalar := func(tag, value string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value} }
	switch v := token.(type) {
	case json.Delim:
		return collection(dec, v)
	case string:
		n := scalar("!!str", v)
		// Plain YAML 1.1 of some readers, and dates, are text to us; say so.
		var plain yaml.Node
		if yaml.Unmarshal([]byte(v), &plain) != nil || len(plain.Content) != 1 || plain.Content[0].ShortTag() != "!!str" {
			n.Style = yaml.DoubleQuotedStyle
		}
		return n, nil
	case json.Number:
		tag := "!!int"
		if bytes.ContainsAny([]byte(v), ".eE") {
			tag = "!!float"
		}
		return scalar(tag, v.String()), nil
	case bool:
		return scalar("!!bool", fmt.Sprint(v)), nil
	}
	return scalar("!!null", "null"), nil
}

// collection reads an object or an array that has begun.
func collection(dec *json.Decoder, begin json.Delim) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	if begin == '[' {
		n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
	}
	for dec.More() {
		child, err := node(dec)
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, child)
	}
	if len(n.Content) == 0 {
		n.Style = yaml.FlowStyle
	}
	_, err := dec.Token() // its end
	return n, err
}
