package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/toolfleet/toolfleet/schema"
)

// ParseJSON reads one tool's declaration as JSON, as it stands in the fleet's
// bucket and in requests. Defaults are those of a file. It takes nothing that it
// does not know: a field that is unknown here may be a limit that a newer version
// keeps. The error is [Problems] without lines.
func ParseJSON(raw []byte) (Spec, error) {
	if faults := schema.CheckJSON(raw, MaxSpec); faults != nil {
		problems := make(Problems, len(faults))
		for i, f := range faults {
			problems[i] = Problem{Message: f.String()}
		}
		return Spec{}, problems
	}
	s := Spec{Warm: Warm{Max: 4}}
	s.SetDefaults()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return Spec{}, Problems{jsonProblem(err)}
	}
	s.imply()
	if err := s.Validate(); err != nil {
		return Spec{}, err
	}
	return s, nil
}

// jsonProblem says where a value is of the wrong type, without the names of Go.
func jsonProblem(err error) Problem {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return Problem{Field: wrong.Field, Message: "takes no JSON " + wrong.Value}
	}
	return Problem{Message: strings.TrimPrefix(err.Error(), "json: ") + "; a field that is not known here may be one of a newer version"}
}
