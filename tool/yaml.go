package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// yamlOf writes a JSON object as YAML that a person likes to read and edit:
// mappings as blocks with their members in order, lists on one line. A YAML
// library would do it too, and would be in every tool.
func yamlOf(object []byte) ([]byte, error) {
	w := yamlWriter{dec: json.NewDecoder(bytes.NewReader(object))}
	w.dec.UseNumber() // digit for digit
	if _, err := w.dec.Token(); err != nil {
		return nil, err
	}
	err := w.block("")
	return w.out.Bytes(), err
}

// yamlWriter writes what dec reads.
type yamlWriter struct {
	dec *json.Decoder
	out bytes.Buffer
}

// block writes the members of an object that has been opened, a line for each.
func (w *yamlWriter) block(indent string) error {
	for w.dec.More() {
		key, err := w.dec.Token()
		if err != nil {
			return err
		}
		w.out.WriteString(indent + yamlText(key.(string), false) + ":")
		value, err := w.dec.Token()
		if err != nil {
			return err
		}
		if value == json.Delim('{') && w.dec.More() {
			w.out.WriteByte('\n')
			err = w.block(indent + "  ")
		} else {
			w.out.WriteByte(' ')
			err = w.inline(value, false)
			w.out.WriteByte('\n')
		}
		if err != nil {
			return err
		}
	}
	_, err := w.dec.Token() // the end of the object
	return err
}

// inline writes the value that begins with a token on the line, in flow or as
// the whole of what follows a key.
func (w *yamlWriter) inline(value json.Token, flow bool) error {
	switch value := value.(type) {
	case json.Delim:
		w.out.WriteString(value.String())
		if err := w.list(value == '{'); err != nil {
			return err
		}
		end, err := w.dec.Token()
		fmt.Fprint(&w.out, end)
		return err
	case string:
		w.out.WriteString(yamlText(value, flow))
	case nil:
		w.out.WriteString("null")
	default: // a number or a bool
		fmt.Fprint(&w.out, value)
	}
	return nil
}

// list writes what is inside brackets or, in pairs, inside braces.
func (w *yamlWriter) list(pairs bool) error {
	for n := 0; w.dec.More(); n++ {
		switch {
		case pairs && n%2 == 1:
			w.out.WriteString(": ")
		case n > 0:
			w.out.WriteString(", ")
		}
		value, err := w.dec.Token()
		if err != nil {
			return err
		}
		if err := w.inline(value, true); err != nil {
			return err
		}
	}
	return nil
}

// yamlWords are the words that some reader of YAML does not take for text.
var yamlWords = []string{"null", "true", "false", "yes", "no", "on", "off", "y", "n"}

// yamlText writes text plainly where no reader could take it for anything else,
// else in quotes. Go's escapes are all among YAML's.
func yamlText(s string, flow bool) string {
	marks := "_-./"
	if !flow {
		marks += " ,:'()"
	}
	odd := func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		return !letter && (r < '0' || r > '9') && !strings.ContainsRune(marks, r)
	}
	plain := s != "" && (s[0] == '/' || s[0]|0x20 >= 'a' && s[0]|0x20 <= 'z') &&
		!strings.ContainsFunc(s, odd) && !strings.Contains(s, ": ") && !strings.HasSuffix(s, ":") && !strings.HasSuffix(s, " ") &&
		!slices.Contains(yamlWords, strings.ToLower(s))
	if plain {
		return s
	}
	return strconv.Quote(s)
}
