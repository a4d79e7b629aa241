package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/tool"
)

// Values of a spec's fields that code compares against.
const (
	APIVersion = "toolfleet/v1"
	Kind       = "Tool"

	TypeFunction = "function"
	TypeServer   = "server"

	ProtocolExec = "exec"
	ProtocolMCP  = "mcp"

	OutputAuto   = "auto"
	OutputText   = "text"
	OutputJSON   = "json"
	OutputParts  = "parts"
	OutputBinary = "binary"

	ApprovalNone     = "none"
	ApprovalRequired = "required"

	IsolationContainer = "container"
	IsolationCell      = "cell"
)

// Spec declares one tool, as a file of kind Tool does. A loaded Spec is
// complete: every default is filled in. Its JSON is what travels in a job, and
// its members are those of the YAML.
type Spec struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Name matches [A-Za-z0-9_-]{1,64} and is unique in the catalogue.
	Name string `json:"name"`
	// Type is TypeFunction (the default), or TypeServer for a tool that the
	// model's provider runs and the fleet never does.
	Type         string          `json:"type"`
	ServerType   string          `json:"serverType,omitempty"`
	ServerConfig json.RawMessage `json:"serverConfig,omitempty"`
	Description  string          `json:"description"`
	// UseWhen is one sentence that tells a model when to reach for the tool.
	UseWhen string `json:"useWhen,omitempty"`
	// Image is an OCI reference, best with a digest.
	Image string `json:"image,omitempty"`
	// Pull is "missing" (the default), "always" or "never".
	Pull string `json:"pull,omitempty"`
	// Command is an argv; no shell ever sees it.
	Command []string          `json:"command,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	// Workdir is absolute; empty means the sandbox's own.
	Workdir string `json:"workdir,omitempty"`
	// User is "uid" or "uid:gid" inside; empty means the sandbox's own.
	User string `json:"user,omitempty"`
	// Protocol is ProtocolExec (the default) or ProtocolMCP.
	Protocol string `json:"protocol,omitempty"`
	MCP      *MCP   `json:"mcp,omitempty"`
	// Output is one of the Output constants; OutputAuto is the default.
	Output string `json:"output,omitempty"`
	// Parameters is the JSON Schema of the arguments; any object by default.
	Parameters   json.RawMessage `json:"parameters,omitempty"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	Annotations  Annotations     `json:"annotations"`
	// Parallel is a hint to the model; MaxInFlight is what limits a tool.
	Parallel bool `json:"parallel,omitempty"`
	// Approval is ApprovalNone (the default) or ApprovalRequired.
	Approval string `json:"approval,omitempty"`
	// Isolation is IsolationContainer (the default) or IsolationCell.
	Isolation string `json:"isolation,omitempty"`
	// Runtime is a runtime handler: "runc" (the default), "runsc", "crun", or
	// what the workers of the class have by that name.
	Runtime string `json:"runtime,omitempty"`
	// Class says which workers may run the tool; "default" by default.
	Class   string  `json:"class,omitempty"`
	Network Network `json:"network,omitzero"`
	Limits  Limits  `json:"limits"`
	Warm    Warm    `json:"warm"`
	// MaxInFlight bounds the calls of the tool that run at once; 0 is no bound.
	MaxInFlight int `json:"maxInFlight,omitempty"`
	// QueueTimeout is how long a call may wait for a worker; 10m by default.
	QueueTimeout Duration `json:"queueTimeout,omitempty"`
	Secrets      []Secret `json:"secrets,omitempty"`
	Files        *Files   `json:"files,omitempty"`
	// Reminder is stapled to every result as an Extra part.
	Reminder string `json:"reminder,omitempty"`
	// Tenants may use the tool; empty means all.
	Tenants []string `json:"tenants,omitempty"`
}

// Annotations are MCP's hints. Nothing declared means not idempotent; ReadOnly
// implies Idempotent, and a loaded Spec says so.
type Annotations = tool.Annotations

// MCP says how to reach a tool inside an MCP server.
type MCP struct {
	// Tool is the name the server knows; empty means the spec's own.
	Tool string `json:"tool,omitempty"`
}

// Limits bound one call of the tool.
type Limits struct {
	// Timeout is in (0, 1h]; 30s by default.
	Timeout Duration `json:"timeout"`
	// Grace is how long the tool has to end by itself after a SIGTERM, at its
	// deadline, a cancel or a worker's stop; 0, the default, kills at once. It
	// is at most [MaxGrace].
	Grace Duration `json:"grace,omitempty"`
	// CPU is in cores; 1 by default.
	CPU float64 `json:"cpu"`
	// Memory is 256Mi by default and does not count Disk.
	Memory Bytes `json:"memory"`
	// Pids counts processes and threads; 64 by default.
	Pids int64 `json:"pids"`
	// Disk is over all writable places together; 64Mi by default.
	Disk Bytes `json:"disk"`
	// Output bounds stdout; 1Mi by default.
	Output Bytes `json:"output"`
}

// Warm says how many sandboxes are kept started early. Max 0 means none; a
// file that says nothing gets {min: 0, max: 4}.
type Warm struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// Secret names a secret that a call may see, and how.
type Secret struct {
	Name   string  `json:"name"`
	Env    string  `json:"env,omitempty"`
	File   string  `json:"file,omitempty"`
	Inject *Inject `json:"inject,omitempty"`
}

// Network says what a tool may reach: nothing (the zero value, written
// "none"), or the listed "host:port" pairs.
type Network struct {
	Allow []string `json:"allow"`
}

// None reports whether the tool reaches nothing.
func (n Network) None() bool { return n.Allow == nil }

// MarshalJSON writes "none" or {"allow": […]}.
func (n Network) MarshalJSON() ([]byte, error) {
	if n.None() {
		return []byte(`"none"`), nil
	}
	type plain Network
	return json.Marshal(plain(n))
}

// UnmarshalJSON reads what MarshalJSON writes.
func (n *Network) UnmarshalJSON(data []byte) error {
	wrong := fmt.Errorf(`is neither none nor {allow: ["host:port", …]}`)
	*n = Network{}
	if data[0] == '"' {
		if string(data) != `"none"` {
			return wrong
		}
		return nil
	}
	type plain Network
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode((*plain)(n)); err != nil || n.Allow == nil {
		return wrong
	}
	return nil
}

// SetDefaults fills in what is zero and has a default, and what follows from
// something else. Warm is left alone: its zero value means none.
func (s *Spec) SetDefaults() {
	for _, f := range []struct {
		field *string
		value string
	}{
		{&s.APIVersion, APIVersion},
		{&s.Kind, Kind},
		{&s.Type, TypeFunction},
		{&s.Pull, "missing"},
		{&s.Protocol, ProtocolExec},
		{&s.Output, OutputAuto},
		{&s.Approval, ApprovalNone},
		{&s.Isolation, IsolationContainer},
		{&s.Runtime, "runc"},
		{&s.Class, "default"},
	} {
		setDefault(f.field, f.value)
	}
	setDefault(&s.Limits.Timeout, Duration(30*time.Second))
	setDefault(&s.Limits.CPU, 1)
	setDefault(&s.Limits.Memory, 256<<20)
	setDefault(&s.Limits.Pids, 64)
	setDefault(&s.Limits.Disk, 64<<20)
	setDefault(&s.Limits.Output, 1<<20)
	setDefault(&s.QueueTimeout, Duration(10*time.Minute))
	if len(s.Parameters) == 0 {
		s.Parameters = json.RawMessage(`{"type":"object"}`)
	}
	s.imply()
}

// imply fills in what follows from something else.
func (s *Spec) imply() {
	s.Annotations.Idempotent = s.Annotations.Idempotent || s.Annotations.ReadOnly
	if s.Files != nil && *s.Files == (Files{}) {
		s.Files = nil // {} says nothing
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Digest is "sha256:" and the hex SHA-256 of the spec's canonical JSON: no
// space, members sorted at every level. It names what was checked and what
// must run, so it survives the way through a job.
func (s *Spec) Digest() string {
	raw, err := json.Marshal(s)
	if err != nil {
		// Only raw members can fail, and Validate refuses those.
		panic(fmt.Sprintf("catalog: digest of %s: %v", s.Name, err))
	}
	digest, err := digestOf(raw)
	if err != nil {
		panic(fmt.Sprintf("catalog: digest of %s: %v", s.Name, err))
	}
	return digest
}

// digestOf names the canonical form of raw, which is JSON.
func digestOf(raw []byte) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var doc any
	if err := dec.Decode(&doc); err != nil {
		return "", err
	}
	canonical, err := json.Marshal(doc)
	return call.Digest(string(canonical)), err
}

// VisibleTo reports whether the tenant may see and call the tool.
func (s *Spec) VisibleTo(tenant string) bool {
	return len(s.Tenants) == 0 || slices.Contains(s.Tenants, tenant)
}

// CheckTimeout says why a call of the tool may not ask for the timeout d. 0
// asks for the tool's own.
func (s *Spec) CheckTimeout(d time.Duration) error {
	if limit := time.Duration(s.Limits.Timeout); d < 0 || d > limit {
		return fmt.Errorf("catalog: timeout %s is not between 0 and %s, the limit of the tool %s", d, s.Limits.Timeout, s.Name)
	}
	return nil
}

// Info is what a model is told of the tool.
func (s *Spec) Info() tool.Info {
	return tool.Info{
		Name: s.Name, Description: s.Description, UseWhen: s.UseWhen,
		InputSchema: s.Parameters, OutputSchema: s.OutputSchema,
		Parallel: s.Parallel, Kind: s.Type, ServerType: s.ServerType, ServerConfig: s.ServerConfig,
		Annotations: s.Annotations,
	}
}

// Sandbox is the part of the spec that shapes a sandbox and keys the pool. A
// container of cells serves many calls, all of one tool and one tenant; any
// other serves one call, and tools of one shape share them.
func (s *Spec) Sandbox(tenant string) sandbox.Spec {
	owner := ""
	if s.Isolation == IsolationCell {
		owner = tenant + "/" + s.Name // neither can have a slash
	}
	return sandbox.Spec{
		Image: s.Image, Pull: s.Pull, Runtime: s.Runtime, Isolation: s.Isolation, Owner: owner,
		Secrets: owner == "" && s.HasSecretFiles(),
		Limits:  sandbox.Limits{CPU: s.Limits.CPU, Memory: int64(s.Limits.Memory), Disk: int64(s.Limits.Disk), Pids: s.Limits.Pids},
	}
}
