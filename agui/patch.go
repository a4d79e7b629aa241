package agui

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Bounds on one patch: the operations, the values that they may copy, since a
// document that copies itself into itself doubles with every operation, and the
// elements of lists that they may shift, since a short operation at the head of
// a long list shifts all of it.
const (
	maxPatchOps     = 10_000
	maxPatchCopied  = 1_000_000
	maxPatchShifted = 10_000_000
)

// ApplyPatch applies an RFC 6902 patch to a document and returns the new one.
// It is atomic: on an error nothing has changed.
func ApplyPatch(doc json.RawMessage, ops []PatchOp) (json.RawMessage, error) {
	if len(ops) > maxPatchOps {
		return nil, fmt.Errorf("agui: a patch of more than %d operations", maxPatchOps)
	}
	p := patcher{}
	root, err := parse(doc)
	if err != nil {
		return nil, err
	}
	for i, op := range ops {
		if reason := op.check(); reason != "" {
			return nil, fmt.Errorf("agui: operation %d: %s", i, reason)
		}
		if root, err = p.apply(root, op); err != nil {
			return nil, fmt.Errorf("agui: operation %d: %w", i, err)
		}
	}
	return json.Marshal(root)
}

// parse keeps numbers as they are written.
func parse(raw json.RawMessage) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("agui: a document that is not JSON: %w", err)
	}
	return v, nil
}

var errNoPlace = errors.New("the path leads nowhere")

type patcher struct{ copied, shifted int }

func (p *patcher) apply(root any, op PatchOp) (any, error) {
	path := pointer(op.Path)
	switch op.Op {
	case "add", "replace", "test":
		value, err := parse(op.Value)
		if err != nil {
			return nil, err
		}
		switch op.Op {
		case "add":
			return p.put(root, path, value)
		case "replace":
			return replace(root, path, value)
		}
		have, err := get(root, path)
		if err == nil && !reflect.DeepEqual(have, value) {
			err = errors.New("the value is not the one that was tested for")
		}
		return root, err
	case "remove":
		return p.remove(root, path)
	case "copy":
		value, err := get(root, pointer(op.From))
		if err != nil {
			return nil, err
		}
		if value, err = p.clone(value); err != nil {
			return nil, err
		}
		return p.put(root, path, value)
	}
	from := pointer(op.From)
	value, err := get(root, from)
	switch {
	case err != nil:
		return nil, err
	case len(path) > len(from) && slices.Equal(path[:len(from)], from):
		return nil, errors.New("a value cannot move into itself")
	case slices.Equal(path, from):
		return root, nil
	}
	if root, err = p.remove(root, from); err != nil {
		return nil, err
	}
	return p.put(root, path, value)
}

// shift pays for elements of a list that change their places.
func (p *patcher) shift(n int) error {
	if p.shifted += n; p.shifted > maxPatchShifted {
		return fmt.Errorf("the patch shifts more than %d elements", maxPatchShifted)
	}
	return nil
}

// clone copies a value, so that two places do not share it.
func (p *patcher) clone(v any) (any, error) {
	if p.copied++; p.copied > maxPatchCopied {
		return nil, fmt.Errorf("the patch copies more than %d values", maxPatchCopied)
	}
	var err error
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, item := range v {
			if out[key], err = p.clone(item); err != nil {
				return nil, err
			}
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			if out[i], err = p.clone(item); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return v, nil
}

// pointer splits an RFC 6901 pointer; "" is the whole document.
func pointer(s string) []string {
	if s == "" {
		return nil
	}
	tokens := strings.Split(s[1:], "/")
	for i, token := range tokens {
		tokens[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
	}
	return tokens
}

// index reads the token of a list's element, which may be at most last.
func index(token string, last int) (int, error) {
	i, err := strconv.Atoi(token)
	if err != nil || i < 0 || i > last || strconv.Itoa(i) != token {
		return 0, errNoPlace
	}
	return i, nil
}

func get(v any, path []string) (any, error) {
	for _, token := range path {
		switch in := v.(type) {
		case map[string]any:
			item, ok := in[token]
			if !ok {
				return nil, errNoPlace
			}
			v = item
		case []any:
			i, err := index(token, len(in)-1)
			if err != nil {
				return nil, err
			}
			v = in[i]
		default:
			return nil, errNoPlace
		}
	}
	return v, nil
}

// within changes the container that path ends in, and puts what it became back
// into its own.
func within(root any, path []string, change func(container any, token string) (any, error)) (any, error) {
	last := len(path) - 1
	container, err := get(root, path[:last])
	if err != nil {
		return nil, err
	}
	changed, err := change(container, path[last])
	if err != nil || last == 0 {
		return changed, err
	}
	if _, isList := changed.([]any); isList { // a list may have moved
		return replace(root, path[:last], changed)
	}
	return root, nil
}

func (p *patcher) put(root any, path []string, value any) (any, error) {
	if len(path) == 0 {
		return value, nil
	}
	return within(root, path, func(container any, token string) (any, error) {
		switch in := container.(type) {
		case map[string]any:
			in[token] = value
			return in, nil
		case []any:
			if token == "-" {
				return append(in, value), nil
			}
			i, err := index(token, len(in))
			if err != nil {
				return nil, err
			}
			if err := p.shift(len(in) - i); err != nil {
				return nil, err
			}
			return slices.Insert(in, i, value), nil
		}
		return nil, errNoPlace
	})
}

func replace(root any, path []string, value any) (any, error) {
	if _, err := get(root, path); err != nil {
		return nil, err
	}
	if len(path) == 0 {
		return value, nil
	}
	container, err := get(root, path[:len(path)-1])
	if err != nil {
		return nil, err
	}
	switch token := path[len(path)-1]; in := container.(type) {
	case map[string]any:
		in[token] = value
	case []any:
		i, err := index(token, len(in)-1)
		if err != nil {
			return nil, err
		}
		in[i] = value
	}
	return root, nil
}

func (p *patcher) remove(root any, path []string) (any, error) {
	if len(path) == 0 {
		return nil, nil
	}
	return within(root, path, func(container any, token string) (any, error) {
		switch in := container.(type) {
		case map[string]any:
			if _, ok := in[token]; !ok {
				return nil, errNoPlace
			}
			delete(in, token)
			return in, nil
		case []any:
			i, err := index(token, len(in)-1)
			if err != nil {
				return nil, err
			}
			if err := p.shift(len(in) - i); err != nil {
				return nil, err
			}
			return slices.Delete(in, i, i+1), nil
		}
		return nil, errNoPlace
	})
}
