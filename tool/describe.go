package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// declaration is a tool file: what the program knows of a tool, and where
// "toolfleet image build" puts the program. Limits, warm sandboxes and the like
// are left to their defaults, and to who runs the fleet.
type declaration struct {
	APIVersion   string          `json:"apiVersion"`
	Kind         string          `json:"kind"`
	Name         string          `json:"name"`
	Type         string          `json:"type,omitempty"`
	ServerType   string          `json:"serverType,omitempty"`
	ServerConfig json.RawMessage `json:"serverConfig,omitempty"`
	Description  string          `json:"description"`
	UseWhen      string          `json:"useWhen,omitempty"`
	Image        string          `json:"image,omitempty"`
	Command      []string        `json:"command,omitempty"`
	Parameters   json.RawMessage `json:"parameters,omitempty"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	Annotations  Annotations     `json:"annotations,omitzero"`
	Parallel     bool            `json:"parallel,omitempty"`
}

// declare writes the tool file of a tool whose program is in an image.
func declare(info Info, image string) ([]byte, error) {
	d := declaration{
		APIVersion: "toolfleet/v1", Kind: "Tool",
		Name: info.Name, Description: info.Description, UseWhen: info.UseWhen,
		Parameters: info.InputSchema, OutputSchema: info.OutputSchema,
		Annotations: info.Annotations, Parallel: info.Parallel,
	}
	if info.Kind == KindServer {
		d.Type, d.ServerType, d.ServerConfig = KindServer, info.ServerType, info.ServerConfig
	} else {
		d.Image, d.Command = image, []string{"/tool"}
	}
	raw, err := encode(d)
	if err != nil {
		return nil, err
	}
	return yamlOf(raw)
}

// describe prints a file that declares the tools, or the named one: a document for
// each.
func (p program) describe(name string) int {
	var documents [][]byte
	for _, t := range p.tools {
		if name != "" && nameOf(t) != name {
			continue
		}
		document, err := declare(t.Info(), p.image())
		if err != nil {
			return p.fail(exitFailed, fmt.Errorf("tool: describe %q: %w", nameOf(t), err))
		}
		documents = append(documents, document)
	}
	if documents == nil {
		return p.fail(exitUsage, fmt.Errorf("there is no tool %q here, but: %s", name, strings.Join(p.names(), ", ")))
	}
	if _, err := p.stdout.Write(bytes.Join(documents, []byte("---\n"))); err != nil {
		return p.fail(exitFailed, fmt.Errorf("write the description: %w", err))
	}
	return exitOK
}

// image is the name that the program's image is expected to have: all its tools
// share it, so it is called after the first that runs.
func (p program) image() string {
	for _, t := range p.tools {
		if info := t.Info(); info.Kind != KindServer {
			return "local/" + strings.ToLower(info.Name) + ":1"
		}
	}
	return ""
}
