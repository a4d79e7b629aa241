package call

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Version is the version of every record that crosses a process boundary. A
// reader refuses a newer one, so that workers can be upgraded one by one.
const Version = 1

// Limits on what a call may bring. They bound memory before anything is
// trusted.
const (
	// MaxArguments is the longest argument text, in bytes.
	MaxArguments = 1 << 20
	// MaxID is the longest thread, scope, run, message or call id, in bytes.
	MaxID = 256
	// MaxTimeout is the longest time a call may ask for.
	MaxTimeout = time.Hour
	// DefaultTenant is the tenant of a fleet that knows no tokens.
	DefaultTenant = "default"
)

// Priorities of a call. Interactive calls go first.
const (
	PriorityInteractive = "interactive"
	PriorityBatch       = "batch"
)

// Key identifies a call: 26 characters of lower-case base32, safe in a
// subject, a path, a URL and a container id.
type Key string

// MakeKey derives the key of a call: the first 26 characters of lower-case
// base32 of SHA-256 over the length-prefixed identity. The lengths keep
// ("ab","c") and ("a","bc") apart.
func MakeKey(tenant, threadID, scope, toolCallID string) Key {
	h := sha256.New()
	var n [8]byte
	for _, s := range [...]string{tenant, threadID, scope, toolCallID} {
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	return Key(strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil))[:26]))
}

// The letters that names are made of.
const (
	keyLetters    = "abcdefghijklmnopqrstuvwxyz234567"
	tenantLetters = "abcdefghijklmnopqrstuvwxyz0123456789-"
	toolLetters   = tenantLetters + "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"
)

// madeOf tells whether s has between shortest and longest bytes, all of
// letters. A regular expression says the same, and compiling it takes every
// program that links this package longer than a tool may take to start.
func madeOf(s, letters string, shortest, longest int) bool {
	return len(s) >= shortest && len(s) <= longest && strings.Trim(s, letters) == ""
}

// ParseKey checks that s has the form of a key. Use it on every key that comes
// from outside: keys become subjects.
func ParseKey(s string) (Key, error) {
	if !madeOf(s, keyLetters, 26, 26) {
		return "", fmt.Errorf("call: %q is not a call id (26 characters a-z2-7)", clip(s, 40))
	}
	return Key(s), nil
}

// ResultMessageID is the messageId of the call's TOOL_CALL_RESULT: unique in
// the thread, the same after a redelivery, and never the toolCallId.
func (k Key) ResultMessageID() string { return "res-" + string(k) }

// ActivityMessageID is the messageId of the call's progress activity.
func (k Key) ActivityMessageID() string { return "exec-" + string(k) }

// Call is a tool call as a door hands it in.
type Call struct {
	Version int `json:"version"`
	// Tenant is decided by the token a request brought, never by the request.
	Tenant          string `json:"tenant"`
	ThreadID        string `json:"threadId"`
	RunID           string `json:"runId"`
	Scope           string `json:"scope"`
	ToolCallID      string `json:"toolCallId"`
	ParentMessageID string `json:"parentMessageId,omitempty"`
	SubagentRunID   string `json:"subagentRunId,omitempty"`
	Tool            string `json:"tool"`
	// Arguments is the text that the model produced, as it produced it. It
	// may be no JSON. Empty when ArgumentsBlob is set.
	Arguments string `json:"arguments,omitempty"`
	// ArgumentsBlob names the blob that holds the text when it is too long to
	// travel inline; ArgumentsDigest is always of the text itself.
	ArgumentsBlob string `json:"argumentsBlob,omitempty"`
	// ArgumentsDigest is [Digest] of the argument text.
	ArgumentsDigest string `json:"argumentsDigest,omitempty"`
	// Files are those that the tool finds in /workspace/in.
	Files []File `json:"files,omitempty"`
	// Timeout bounds the run of the tool; 0 means the tool's own. On the wire
	// it is in nanoseconds.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Priority is one of the Priority constants.
	Priority string `json:"priority,omitempty"`
	// Traceparent is the W3C trace context of the request, or empty.
	Traceparent string `json:"traceparent,omitempty"`
	// RedriveOf is the call whose dead letter this one was made of, or empty.
	RedriveOf Key `json:"redriveOf,omitempty"`
}

// Key returns the call's key.
func (c Call) Key() Key { return MakeKey(c.Tenant, c.ThreadID, c.Scope, c.ToolCallID) }

// Validate says everything that makes the call malformed, joined. It does not
// look at whether the tool exists or the arguments fit: those are error
// results, not malformed requests.
func (c Call) Validate() error {
	var errs []error
	if !ValidTenant(c.Tenant) {
		errs = append(errs, errors.New("tenant must match [a-z0-9-]{1,63}"))
	}
	for _, f := range []struct {
		name, value string
		required    bool
	}{
		{"threadId", c.ThreadID, true},
		{"runId", c.RunID, true},
		{"scope", c.Scope, true},
		{"toolCallId", c.ToolCallID, true},
		{"parentMessageId", c.ParentMessageID, false},
		{"subagentRunId", c.SubagentRunID, false},
	} {
		switch {
		case f.required && f.value == "":
			errs = append(errs, fmt.Errorf("%s must not be empty", f.name))
		case len(f.value) > MaxID:
			errs = append(errs, fmt.Errorf("%s is longer than %d bytes", f.name, MaxID))
		case !utf8.ValidString(f.value):
			errs = append(errs, fmt.Errorf("%s is not UTF-8", f.name))
		case strings.ContainsFunc(f.value, unicode.IsControl):
			// Ids reach the tool's environment, where a NUL cannot be, and logs.
			errs = append(errs, fmt.Errorf("%s has a control character", f.name))
		}
	}
	if c.Tool == "" || len(c.Tool) > MaxID || !utf8.ValidString(c.Tool) {
		errs = append(errs, errors.New("tool must be a name of 1 to 256 bytes"))
	}
	if err := validFiles(c.Files); err != nil {
		errs = append(errs, err)
	}
	if c.Timeout < 0 || c.Timeout > MaxTimeout {
		errs = append(errs, fmt.Errorf("timeout must be between 0 and %s", MaxTimeout))
	}
	if c.Priority != "" && c.Priority != PriorityInteractive && c.Priority != PriorityBatch {
		errs = append(errs, errors.New("priority must be interactive or batch"))
	}
	return errors.Join(errs...)
}

// ValidToolName reports whether s may name a tool: [A-Za-z0-9_-]{1,64}.
func ValidToolName(s string) bool { return madeOf(s, toolLetters, 1, 64) }

// ValidTenant reports whether s may name a tenant: [a-z0-9-]{1,63}.
func ValidTenant(s string) bool { return madeOf(s, tenantLetters, 1, 63) }

// Digest is "sha256:" and the hex SHA-256 of text.
func Digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// clip shortens s for an error message.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}
