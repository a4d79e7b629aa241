package catalog

import (
	"encoding/json"
	"time"

	"github.com/toolfleet/toolfleet/sandbox"
)

// Spec declares one tool, as a file of kind Tool does. A loaded Spec is
// complete: every default is filled in. Its JSON is what travels in a job.
type Spec struct {
	APIVersion   string            `json:"apiVersion"`
	Kind         string            `json:"kind"`
	Name         string            `json:"name"`
	Type         string            `json:"type"`
	ServerType   string            `json:"serverType,omitempty"`
	ServerConfig json.RawMessage   `json:"serverConfig,omitempty"`
	Description  string            `json:"description"`
	UseWhen      string            `json:"useWhen,omitempty"`
	Image        string            `json:"image,omitempty"`
	Pull         string            `json:"pull,omitempty"`
	Command      []string          `json:"command,omitempty"`
	Env          map[string]string `json:"env,omitempty"`
	Workdir      string            `json:"workdir,omitempty"`
	User         string            `json:"user,omitempty"`
	Protocol     string            `json:"protocol,omitempty"`
	Output       string            `json:"output,omitempty"`
	Parameters   json.RawMessage   `json:"parameters,omitempty"`
	OutputSchema json.RawMessage   `json:"outputSchema,omitempty"`
	Annotations  Annotations       `json:"annotations"`
	Parallel     bool              `json:"parallel,omitempty"`
	Approval     string            `json:"approval,omitempty"`
	Isolation    string            `json:"isolation,omitempty"`
	Runtime      string            `json:"runtime,omitempty"`
	Class        string            `json:"class,omitempty"`
	Limits       Limits            `json:"limits"`
	Warm         Warm              `json:"warm"`
	MaxInFlight  int               `json:"maxInFlight,omitempty"`
	QueueTimeout Duration          `json:"queueTimeout,omitempty"`
	Reminder     string            `json:"reminder,omitempty"`
	Tenants      []string          `json:"tenants,omitempty"`
}

// Annotations are MCP's hints. Nothing declared means not idempotent; ReadOnly
// implies Idempotent, and a loaded Spec says so.
type Annotations struct {
	ReadOnly    bool `json:"readOnly,omitempty"`
	Idempotent  bool `json:"idempotent,omitempty"`
	Destructive bool `json:"destructive,omitempty"`
	OpenWorld   bool `json:"openWorld,omitempty"`
}

// Limits bound one call of the tool.
type Limits struct {
	Timeout Duration `json:"timeout"`
	CPU     float64  `json:"cpu"`
	Memory  Bytes    `json:"memory"`
	Pids    int64    `json:"pids"`
	Disk    Bytes    `json:"disk"`
	Output  Bytes    `json:"output"`
}

// Warm says how many sandboxes are kept started early. Max 0 means none.
type Warm struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// Duration is a time.Duration written as Go writes it, such as "30s".
type Duration time.Duration

// Bytes is a number of bytes, written with a binary suffix, such as "64Mi", or
// as a plain number.
type Bytes int64

// Sandbox is the part of the spec that shapes a sandbox and keys the pool.
func (s *Spec) Sandbox() sandbox.Spec {
	return sandbox.Spec{
		Image: s.Image, Pull: s.Pull, Runtime: s.Runtime, Isolation: s.Isolation,
		Limits: sandbox.Limits{CPU: s.Limits.CPU, Memory: int64(s.Limits.Memory), Disk: int64(s.Limits.Disk), Pids: s.Limits.Pids},
	}
}
