package secret

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// piece is the length from which on a part of a secret is taken out: long
// enough that no ordinary text has it by chance, and short enough that what is
// left of a secret which was cut up is of no use.
const piece = 12

// maxPieces bounds how many pieces there are of one line in one encoding.
const maxPieces = 1024

// maxLine is the longest line that is looked for as a whole.
const maxLine = 256

// addForms adds the patterns of a value.
//
// A value of one line is taken out in pieces: any [piece] bytes of it in a row,
// in every encoding, so that it does not matter where it was cut, whether its
// halves came in another order, or where an encoder broke its line. A value of
// several lines is looked for line by line, since nobody prints it otherwise:
// there, words are often harmless ones. Of JSON, the strings are the values.
func addForms(patterns map[string]struct{}, value string) {
	if strs, ok := jsonStrings(value); ok {
		for _, s := range strs {
			addForms(patterns, s)
		}
		return
	}
	lines := strings.FieldsFunc(value, func(r rune) bool { return r == '\n' || r == '\r' })
	for _, line := range lines {
		for _, form := range encodings(line) {
			if len(lines) == 1 || len(line) > maxLine {
				addPieces(patterns, form)
			} else if !strings.HasPrefix(line, "-----") { // which is in thousands of files
				addPattern(patterns, strings.TrimSpace(form))
			}
		}
	}
}

// addPieces adds overlapping pieces of s, at every byte of it unless it is long.
// They are whole runes, so that what is left of a text is one.
func addPieces(patterns map[string]struct{}, s string) {
	stride := 1 + len(s)/maxPieces
	length := min(len(s), piece+stride-1)
	for i := 0; ; i += stride {
		last := i+length >= len(s)
		if last {
			i = len(s) - length
		}
		addPattern(patterns, s[runeStart(s, i):runeStart(s, i+length)])
		if last {
			return
		}
	}
}

// runeStart is the first beginning of a rune at i or after it.
func runeStart(s string, i int) int {
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}
	return i
}

func addPattern(patterns map[string]struct{}, s string) {
	if len(s) >= MinValue {
		patterns[s] = struct{}{}
	}
}

// jsonStrings returns the strings and the numbers of a JSON object or array,
// without the names of members.
func jsonStrings(s string) ([]string, bool) {
	if !strings.HasPrefix(s, "{") && !strings.HasPrefix(s, "[") || !json.Valid([]byte(s)) {
		return nil, false
	}
	dec := json.NewDecoder(strings.NewReader(s))
	dec.UseNumber()
	var doc any
	if dec.Decode(&doc) != nil {
		return nil, false
	}
	var found []string
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			found = append(found, v)
		case json.Number:
			found = append(found, v.String())
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(doc)
	return found, len(found) > 0
}

// encodings are the ways in which text is usually written inside other text,
// the plain one first. Those that change nothing come out double, which does no
// harm.
func encodings(s string) []string {
	all := []string{
		s,
		hex.EncodeToString([]byte(s)), strings.ToUpper(hex.EncodeToString([]byte(s))),
		url.QueryEscape(s), url.PathEscape(s), lowerEscapes(url.QueryEscape(s)), lowerEscapes(url.PathEscape(s)),
		percent(s), lowerEscapes(percent(s)),
		jsonText(s, true), jsonText(s, false), asciiJSON(s),
	}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			all = append(all, inBase64(enc, s, before))
		}
	}
	return all
}

// inBase64 is s as it looks inside of longer text in base64, with before bytes
// more than a multiple of three in front. The characters at both ends that hold
// bits of the neighbours as well are left out.
func inBase64(enc *base64.Encoding, s string, before int) string {
	text := enc.EncodeToString([]byte(strings.Repeat("\x00", before) + s))
	first := (before*8 + 5) / 6
	last := (before + len(s)) * 8 / 6
	return text[first:max(first, last)]
}

// lowerEscapes writes %AB as %ab, as some languages do.
func lowerEscapes(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], strings.ToLower(string(b[i+1:i+3])))
		}
	}
	return string(b)
}

// percent escapes all but the characters that never need it, as JavaScript and
// Python do.
func percent(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte("-_.~", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

// jsonText is s inside a JSON string, as Go writes it.
func jsonText(s string, html bool) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(html)
	if enc.Encode(s) != nil {
		return s
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(b.String()), `"`), `"`)
}

// asciiJSON is s inside a JSON string of plain ASCII, as Python writes it.
func asciiJSON(s string) string {
	var b strings.Builder
	for _, r := range jsonText(s, false) {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
			continue
		}
		for _, u := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, "\\u%04x", u)
		}
	}
	return b.String()
}
