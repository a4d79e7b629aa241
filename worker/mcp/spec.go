package mcp

import (
	"errors"
	"fmt"
	"strings"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/schema/validate"
)

// maxName is the longest name of a tool in the catalogue.
const maxName = 64

// Spec declares t for the catalogue. base says what all tools of the server have
// in common (image, command, environment …), prefix stands before each name. What
// the catalogue cannot take is changed or left out, and notes say how; an err says
// why the tool cannot be declared at all.
func (t Tool) Spec(base catalog.Spec, prefix string) (s catalog.Spec, notes []string, err error) {
	if t.Execution.TaskSupport == "required" {
		return s, nil, errors.New("it can only be run as a task, which outlives its call")
	}
	s = base
	s.Protocol, s.MCP = catalog.ProtocolMCP, &catalog.MCP{Tool: t.Name}
	s.Name = catalogName(prefix + t.Name)
	if s.Name != prefix+t.Name {
		notes = append(notes, "its name does not fit the catalogue's pattern")
	}
	s.Description = t.Description
	for _, stand := range []string{t.Title, t.Annotations.Title, fmt.Sprintf("The tool %s of an MCP server.", t.Name)} {
		if strings.TrimSpace(s.Description) == "" {
			s.Description = stand
		}
	}
	s.Annotations = catalog.Annotations{
		ReadOnly: t.Annotations.ReadOnly, Idempotent: t.Annotations.Idempotent,
		// Of a tool that changes nothing, MCP gives the hint no meaning.
		Destructive: t.Annotations.Destructive && !t.Annotations.ReadOnly,
		OpenWorld:   t.Annotations.OpenWorld,
	}
	s.Parameters, s.OutputSchema = t.Input, nil
	if len(t.Output) > 0 {
		if _, err := validate.Compile(t.Output); err != nil {
			notes = append(notes, fmt.Sprintf("its outputSchema was left out: %v", err))
		} else {
			s.OutputSchema = t.Output
		}
	}
	s.SetDefaults()
	var faults catalog.Problems
	if err := s.Validate(); errors.As(err, &faults) {
		words := make([]string, len(faults))
		for i, f := range faults {
			words[i] = f.Field + ": " + f.Message
		}
		return s, notes, errors.New(strings.Join(words, "; "))
	} else if err != nil {
		return s, notes, err
	}
	return s, notes, nil
}

// catalogName is the nearest to name that the catalogue takes.
func catalogName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, name)
	return name[:min(len(name), maxName)]
}
