package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/worker/mcp"
)

// TestListRefuses: a server whose list cannot be had makes one clear error.
func TestListRefuses(t *testing.T) {
	b := newBench(t)
	for mode, want := range map[string]string{
		"many-tools":    "mcp: the server announces more than 1000 tools",
		"endless-pages": "mcp: the server's list of tools has more than 100 pages",
		"refuses":       "mcp: the server refused to list its tools: initialize is of yesterday",
		"dies":          "mcp: the server gave no list of its tools: it exited with code 1; it said:\ncannot find module 'everything'\n",
		"banner":        `mcp: the server gave no list of its tools: it wrote to stdout what is no message of MCP ("Welcome to my server!")`,
		"mute":          "mcp: the server gave no list of its tools: it did not answer in time (context deadline exceeded)",
		"signal":        "mcp: the server gave no list of its tools: it was killed by SIGKILL",
	} {
		t.Run(mode, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if mode == "mute" {
				ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
			}
			p := b.process(mode)
			p.OutputLimit = 8 << 20
			if mode == "signal" {
				p.Argv = []string{"/bin/sh", "-c", "kill -9 $$"}
			}
			tools, err := mcp.List(ctx, b.run(t), p)
			if err == nil || err.Error() != want {
				t.Errorf("%d tools, %v\nwant %s", len(tools), err, want)
			}
		})
	}
}

// TestSpecs: what a server announces is declared as far as the catalogue takes
// it, and what is changed or left out is told.
func TestSpecs(t *testing.T) {
	b := newBench(t)
	var list bytes.Buffer
	if err := json.Compact(&list, []byte(`[
		{"name":"files/read","inputSchema":{"type":"object","properties":{"z":{"maximum":12345678901234567890},"a":{}}},
		 "title":"Reads","annotations":{"readOnlyHint":true,"destructiveHint":true},"outputSchema":{"type":"object"}},
		{"name":"remote","description":"d","inputSchema":{"$ref":"https://example.com/s.json"}},
		{"name":"odd-output","description":"d","inputSchema":{"type":"object"},"outputSchema":{"$ref":"file:///etc/passwd"}},
		{"name":"task","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}},
		{"name":"list","description":"d","inputSchema":{"type":"array"}}
	]`)); err != nil {
		t.Fatal(err)
	}
	tools, err := mcp.List(t.Context(), b.run(t), b.process("tools", list.String()))
	if err != nil {
		t.Fatal(err)
	}
	base := catalog.Spec{Image: "local/x:1", Command: []string{"/server"}}
	var got []string
	for _, tool := range tools {
		s, notes, err := tool.Spec(base, "p-")
		line := s.Name + ": " + strings.Join(notes, ", ")
		if err != nil {
			line = tool.Name + " not: " + err.Error()
		} else if again, perr := roundTrip(s); perr != nil || cmp.Diff(s, again) != "" {
			t.Errorf("%s: %v\n%s", s.Name, perr, cmp.Diff(s, again))
		}
		got = append(got, line)
	}
	want := []string{
		"p-files-read: its name does not fit the catalogue's pattern",
		`remote not: parameters: schema: failing loading "https://example.com/s.json": a schema may refer to itself only`,
		`p-odd-output: its outputSchema was left out: schema: failing loading "file:///etc/passwd": a schema may refer to itself only`,
		"task not: it can only be run as a task, which outlives its call",
		"list not: parameters: expected a schema with type: object",
	}
	for i := range want {
		if i >= len(got) || !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("got %q\nwant %q", got, want[i])
		}
	}
	first, _, _ := tools[0].Spec(base, "p-")
	if first.MCP.Tool != "files/read" || first.Description != "Reads" || !first.Annotations.ReadOnly || first.Annotations.Destructive ||
		string(first.Parameters) != `{"type":"object","properties":{"z":{"maximum":12345678901234567890},"a":{}}}` {
		t.Errorf("got %+v with %s", first, first.Parameters)
	}
}

// roundTrip writes a spec as a file and reads that.
func roundTrip(s catalog.Spec) (catalog.Spec, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return s, err
	}
	return catalog.Parse(raw) // JSON is YAML
}
