package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distribution/reference"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/schema/validate"
)

// Bounds of a spec.
const (
	// MaxSpec is the largest spec, encoded as JSON, in bytes.
	MaxSpec = 128 << 10
	// MaxQueueTimeout keeps the longest wait far below the log's horizon.
	MaxQueueTimeout = 24 * time.Hour
	// MaxGrace is less than what a worker gives its calls to end in when it
	// stops.
	MaxGrace = 10 * time.Second

	maxCPU     = 1024
	minMemory  = Bytes(8 << 20) // less does not hold the sandbox's own agent
	maxMemory  = Bytes(1 << 40)
	maxPids    = 1 << 16
	minDisk    = Bytes(1 << 20)
	maxDisk    = Bytes(1 << 40)
	maxOutput  = Bytes(64 << 20) // a worker holds it in memory
	maxWarm    = 1024
	maxImage   = 255     // bytes of the reference
	sandboxIDs = 1 << 16 // ids inside a sandbox's user namespace
)

// validator gathers the faults of one spec.
type validator struct {
	problems Problems
}

func (v *validator) fault(field, format string, args ...any) {
	v.problems = append(v.problems, Problem{Field: field, Message: fmt.Sprintf(format, args...)})
}

// oneOf checks a closed choice.
func (v *validator) oneOf(field, value string, choices ...string) {
	if !slices.Contains(choices, value) {
		v.fault(field, "expected %s, got %q", strings.Join(choices, " or "), cut(value))
	}
}

// Validate returns every fault of a complete spec as [Problems], or nil.
func (s *Spec) Validate() error {
	var v validator
	v.oneOf("apiVersion", s.APIVersion, APIVersion)
	v.oneOf("kind", s.Kind, Kind)
	v.oneOf("type", s.Type, TypeFunction, TypeServer)
	if !call.ValidToolName(s.Name) {
		v.fault("name", "expected 1 to 64 of A-Z, a-z, 0-9, _ and -, got %q", cut(s.Name))
	}
	if strings.TrimSpace(s.Description) == "" {
		v.fault("description", "is missing; a model chooses a tool by it")
	}
	if s.Type == TypeServer {
		v.server(s)
	} else {
		v.function(s)
	}
	v.schemas(s)
	v.annotations(s)
	v.limits(s)
	v.access(s)
	v.network(s)
	v.secrets(s)
	v.files(s)
	if raw, err := json.Marshal(s); err != nil {
		v.fault("", "cannot be written as JSON: %v", err)
	} else if len(raw) > MaxSpec {
		v.fault("", "is %d bytes long as JSON, and at most %d are allowed", len(raw), MaxSpec)
	}
	if len(v.problems) == 0 {
		return nil
	}
	return v.problems
}

// server checks a tool that the model's provider runs.
func (v *validator) server(s *Spec) {
	if s.ServerType == "" {
		v.fault("serverType", "is missing; a server tool has one, such as web_search")
	}
	if s.Image != "" || len(s.Command) > 0 {
		v.fault("type", "a server tool runs at the provider and has neither image nor command")
	}
	if s.ServerConfig != nil && !isObject(s.ServerConfig) {
		v.fault("serverConfig", "expected an object")
	}
}

var (
	userForm    = regexp.MustCompile(`^([0-9]{1,5})(:([0-9]{1,5}))?$`)
	envForm     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	runtimeForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	classForm   = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)
)

// function checks what a sandbox needs.
func (v *validator) function(s *Spec) {
	if s.ServerType != "" || s.ServerConfig != nil {
		v.fault("type", "serverType and serverConfig belong to type: server")
	}
	v.image(s)
	v.command(s)
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		switch {
		case !envForm.MatchString(name):
			v.fault("env."+cut(name), "expected a name of letters, digits and _")
		case strings.HasPrefix(name, "TOOLFLEET_"):
			v.fault("env."+name, "names that begin TOOLFLEET_ belong to the fleet")
		case strings.ContainsRune(s.Env[name], 0):
			v.fault("env."+name, "contains a NUL byte")
		}
	}
	if s.Workdir != "" && (!path.IsAbs(s.Workdir) || path.Clean(s.Workdir) != s.Workdir || strings.ContainsRune(s.Workdir, 0)) {
		v.fault("workdir", "expected a clean absolute path, got %q", cut(s.Workdir))
	}
	if s.User != "" && !validUser(s.User) {
		v.fault("user", "expected uid or uid:gid, numbers below %d, got %q", sandboxIDs, cut(s.User))
	}
	v.oneOf("protocol", s.Protocol, ProtocolExec, ProtocolMCP)
	v.mcp(s)
	v.oneOf("output", s.Output, OutputAuto, OutputText, OutputJSON, OutputParts, OutputBinary)
	v.oneOf("isolation", s.Isolation, IsolationContainer, IsolationCell)
	if !runtimeForm.MatchString(s.Runtime) {
		v.fault("runtime", "expected a runtime handler such as runc, got %q", cut(s.Runtime))
	}
	if !ValidClass(s.Class) {
		v.fault("class", "expected 1 to 63 of a-z, 0-9 and -, got %q", cut(s.Class))
	}
}

// image checks the image's name, and whether it can be had in the way that is
// asked for: a call could only find out later.
func (v *validator) image(s *Spec) {
	if s.Image == "" {
		v.fault("image", "is missing; a function tool has an OCI reference such as local/word-count:1")
	} else if _, err := reference.ParseDockerRef(s.Image); err != nil || len(s.Image) > maxImage {
		v.fault("image", "expected an OCI reference such as local/word-count:1, in lower case but for its tag, got %q", cut(s.Image))
	} else if s.Pull == "always" && !sandbox.NamesRegistry(s.Image) {
		v.fault("pull", "always asks a registry, and image names none; write the registry's host into it, or leave pull out")
	}
	v.oneOf("pull", s.Pull, "missing", "always", "never")
}

func (v *validator) command(s *Spec) {
	if len(s.Command) == 0 || s.Command[0] == "" {
		v.fault("command", "is missing; expected an argv such as [/tool]")
	}
	for i, arg := range s.Command {
		if strings.ContainsRune(arg, 0) {
			v.fault(fmt.Sprintf("command[%d]", i), "contains a NUL byte")
		}
	}
}

func validUser(user string) bool {
	m := userForm.FindStringSubmatch(user)
	if m == nil {
		return false
	}
	for _, id := range []string{m[1], m[3]} {
		if n, err := strconv.Atoi(id); id != "" && (err != nil || n >= sandboxIDs) {
			return false
		}
	}
	return true
}

// schemas checks that both schemas compile and that arguments are an object,
// as every provider asks.
func (v *validator) schemas(s *Spec) {
	var root struct {
		Type any `json:"type"`
	}
	switch _, err := validate.Compile(s.Parameters); {
	case err != nil:
		v.fault("parameters", "%v", err)
	case json.Unmarshal(s.Parameters, &root) != nil || root.Type != "object":
		v.fault("parameters", "expected a schema with type: object, since arguments are an object")
	}
	if s.OutputSchema != nil {
		if _, err := validate.Compile(s.OutputSchema); err != nil {
			v.fault("outputSchema", "%v", err)
		}
	}
}

func (v *validator) limits(s *Spec) {
	l := s.Limits
	if l.Timeout <= 0 || time.Duration(l.Timeout) > call.MaxTimeout {
		v.fault("limits.timeout", "expected more than 0 and at most 1h, got %s", l.Timeout)
	}
	if l.Grace < 0 || time.Duration(l.Grace) > MaxGrace {
		v.fault("limits.grace", "expected 0s to %s, got %s", Duration(MaxGrace), l.Grace)
	}
	if math.IsNaN(l.CPU) || l.CPU < 0.01 || l.CPU > maxCPU {
		v.fault("limits.cpu", "expected a number of cores between 0.01 and %d, got %v", maxCPU, l.CPU)
	}
	between(v, "limits.memory", l.Memory, minMemory, maxMemory)
	between(v, "limits.pids", l.Pids, 1, maxPids)
	between(v, "limits.disk", l.Disk, minDisk, maxDisk)
	between(v, "limits.output", l.Output, 1, maxOutput)
	between(v, "warm.max", s.Warm.Max, 0, maxWarm)
	between(v, "warm.min", s.Warm.Min, 0, max(s.Warm.Max, 0))
	if s.MaxInFlight < 0 {
		v.fault("maxInFlight", "expected 0 or more, got %d", s.MaxInFlight)
	}
	if s.QueueTimeout <= 0 || time.Duration(s.QueueTimeout) > MaxQueueTimeout {
		v.fault("queueTimeout", "expected more than 0 and at most %s, got %s", Duration(MaxQueueTimeout), s.QueueTimeout)
	}
}

func between[T int | int64 | Bytes](v *validator, field string, n, low, high T) {
	if n < low || n > high {
		v.fault(field, "expected %v to %v, got %v", low, high, n)
	}
}

// access checks who may use the tool, and how.
func (v *validator) access(s *Spec) {
	v.oneOf("approval", s.Approval, ApprovalNone, ApprovalRequired)
	for i, tenant := range s.Tenants {
		field := fmt.Sprintf("tenants[%d]", i)
		if !call.ValidTenant(tenant) {
			v.fault(field, "expected 1 to 63 of a-z, 0-9 and -, got %q", cut(tenant))
		} else if slices.Contains(s.Tenants[:i], tenant) {
			v.fault(field, "names %q twice", tenant)
		}
	}
}

func isObject(raw json.RawMessage) bool {
	return json.Valid(raw) && bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{"))
}

// ValidClass reports whether s may name a class of workers: [a-z0-9-]{1,63}.
func ValidClass(s string) bool { return classForm.MatchString(s) }
