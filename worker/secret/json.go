package secret

import (
	"bytes"
	"encoding/json"
	"io"
)

// JSON is [Redactor.Bytes] for one JSON value: the secrets are taken out of its
// strings, so that it stays JSON. A number that holds one becomes 0. What is no
// JSON is redacted as bytes. A value without secrets comes back as it was
// written.
func (r *Redactor) JSON(raw []byte) []byte {
	if r == nil {
		return raw
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var doc any
	if dec.Decode(&doc) != nil || !atEnd(dec) {
		return r.Bytes(raw)
	}
	clean, changed := r.value(doc)
	if !changed {
		return raw
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(clean) != nil {
		return r.Bytes(raw)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func atEnd(dec *json.Decoder) bool {
	_, err := dec.Token()
	return err == io.EOF
}

func (r *Redactor) value(v any) (clean any, changed bool) {
	switch v := v.(type) {
	case string:
		s := r.String(v)
		return s, s != v
	case json.Number:
		if s := r.String(v.String()); s != v.String() {
			return 0, true
		}
	case []any:
		for i, e := range v {
			c, ch := r.value(e)
			v[i], changed = c, changed || ch
		}
		return v, changed
	case map[string]any:
		all := make(map[string]any, len(v))
		for name, e := range v {
			c, ch := r.value(e)
			n := r.String(name)
			all[n], changed = c, changed || ch || n != name
		}
		return all, changed
	}
	return v, false
}
