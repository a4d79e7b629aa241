package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/toolfleet/toolfleet/call"
)

// The kinds of a tool. The empty kind means function, so compare against
// KindServer.
const (
	KindFunction = "function"
	KindServer   = "server"
)

// Info describes a tool to a model and to the fleet.
type Info struct {
	// Name matches [A-Za-z0-9_-]{1,64}.
	Name        string `json:"name"`
	Description string `json:"description"`
	// UseWhen is a hint of one sentence: when a model should reach for it.
	UseWhen string `json:"use_when,omitempty"`
	// InputSchema is the JSON Schema of the arguments, which are an object.
	InputSchema json.RawMessage `json:"input_schema,omitempty"`
	// OutputSchema is the JSON Schema of a structured answer, or nil.
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
	// Parallel tells a model that calls may be made at once. It limits
	// nothing: a spec's maxInFlight does.
	Parallel bool `json:"parallel,omitempty"`
	// Kind is KindFunction, KindServer or empty.
	Kind string `json:"kind,omitempty"`
	// ServerType and ServerConfig describe a tool that the model's provider
	// runs. The config is free-form; each adapter takes the keys it knows.
	ServerType   string          `json:"server_type,omitempty"`
	ServerConfig json.RawMessage `json:"server_config,omitempty"`
	Annotations  Annotations     `json:"annotations,omitzero"`
}

// Annotations are MCP's hints about what a call does. Nothing declared is the
// careful reading: not idempotent. ReadOnly implies Idempotent. The names are
// MCP's and the same in a spec, so they are camelCase in every JSON.
type Annotations struct {
	// ReadOnly says that a call changes nothing outside the sandbox.
	ReadOnly bool `json:"readOnly,omitempty"`
	// Idempotent says that a second run of the same call does no harm. The
	// fleet may then run a call again when a worker was lost.
	Idempotent bool `json:"idempotent,omitempty"`
	// Destructive says that a call may delete or overwrite.
	Destructive bool `json:"destructive,omitempty"`
	// OpenWorld says that a call reaches things outside the fleet.
	OpenWorld bool `json:"openWorld,omitempty"`
}

var errName = errors.New("the name is not 1 to 64 of A-Z, a-z, 0-9, _ and -")

// validate says why a tool may not bear this info.
func (i Info) validate() error {
	switch {
	case !call.ValidToolName(i.Name):
		return errName
	case i.Kind == KindServer && i.ServerType == "":
		return errors.New("a server tool has a server type, such as web_search")
	case i.ServerConfig != nil && (!json.Valid(i.ServerConfig) || bytes.TrimSpace(i.ServerConfig)[0] != '{'):
		return fmt.Errorf("the config of server type %s is no JSON object", i.ServerType)
	}
	return nil
}
