package catalog

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxServerTool bounds the name of a tool inside an MCP server, in bytes.
const maxServerTool = 256

// ServerTool is the name by which an MCP server knows the tool.
func (s *Spec) ServerTool() string {
	if s.MCP != nil && s.MCP.Tool != "" {
		return s.MCP.Tool
	}
	return s.Name
}

// mcp checks what a tool says of the MCP server that it is in.
func (v *validator) mcp(s *Spec) {
	isServer := s.Protocol == ProtocolMCP
	if s.MCP != nil && !isServer {
		v.fault("mcp", "is for protocol: mcp, and this tool has %q", cut(s.Protocol))
	}
	if s.MCP != nil && !validServerTool(s.MCP.Tool) {
		v.fault("mcp.tool", "expected at most %d bytes of printable text, got %q", maxServerTool, cut(s.MCP.Tool))
	}
	if isServer && s.Output != OutputAuto {
		v.fault("output", "is for protocol: exec; an MCP server says itself what its answer is")
	}
}

func validServerTool(name string) bool {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	return len(name) <= maxServerTool && utf8.ValidString(name) && !strings.ContainsFunc(name, unprintable)
}

// annotations refuses hints that cannot both be true.
func (v *validator) annotations(s *Spec) {
	if s.Annotations.ReadOnly && s.Annotations.Destructive {
		v.fault("annotations", "a tool that is readOnly changes nothing, so it cannot be destructive")
	}
}
