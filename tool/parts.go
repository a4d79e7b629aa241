package tool

import "fmt"

// MaxParts is how many parts a message may have, all its lists together. An
// empty part takes three bytes to write and thirty times that to hold; of parts
// that say something, a message has no room for more.
const MaxParts = 20_000

// The depths at which parts stand.
const (
	depthInMessage = 2 // in a list in an object
	depthInList    = 1
)

// checkParts refuses JSON with too many elements at a depth, by its commas and
// before anything of it is held. It need not be valid.
func checkParts(raw []byte, depth int) error {
	at, commas := 0, 0
	inString, escaped := false, false
	for _, c := range raw {
		switch {
		case escaped:
			escaped = false
		case inString:
			escaped, inString = c == '\\', c != '"'
		case c == '"':
			inString = true
		case c == '[' || c == '{':
			at++
		case c == ']' || c == '}':
			at--
		case c == ',' && at == depth:
			commas++
		}
	}
	if commas >= MaxParts {
		return fmt.Errorf("has more than %d parts", MaxParts)
	}
	return nil
}
