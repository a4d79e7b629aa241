package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/agent"
)

// lifetime is how long a sandbox may exist before anybody may remove it.
const lifetime = 2 * time.Hour

// Config configures a [Runtime].
type Config struct {
	// Agent is the path of the agent's binary. Required.
	Agent string
	// Dir holds a directory for each sandbox. Required; it is made when it
	// does not exist. As root, tools run as another user and have to get to
	// it: Dir and everything above it has to be searchable by everybody.
	Dir string
	// Owner is the id of the worker, for List.
	Owner string
	// NoPIDNamespace makes root do as others have to: without a pid namespace.
	NoPIDNamespace bool
}

// Runtime starts sandboxes that are none. It is safe for concurrent use.
type Runtime struct {
	cfg Config

	mu        sync.Mutex // guards instances
	instances map[string]*instance
}

var _ sandbox.Runtime = (*Runtime)(nil)

// New returns a runtime and makes its directory.
func New(cfg Config) (*Runtime, error) {
	if cfg.Agent == "" || cfg.Dir == "" {
		return nil, errors.New("local: an agent and a directory are required")
	}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	return &Runtime{cfg: cfg, instances: make(map[string]*instance)}, nil
}

// Name is "local".
func (r *Runtime) Name() string { return "local" }

var validID = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

// record is what is kept of a sandbox on disk, for a process that finds it
// after its maker died.
type record struct {
	Owner   string    `json:"owner"`
	Created time.Time `json:"created"`
	PID     int       `json:"pid"`
	// Born is when the process began, in the kernel's ticks: a number that a
	// later process with the same id does not have.
	Born uint64 `json:"born"`
}

const recordFile = "sandbox.json"

// Start starts an agent. The spec is ignored.
func (r *Runtime) Start(ctx context.Context, id string, _ sandbox.Spec) (sandbox.Instance, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if !validID.MatchString(id) {
		return nil, fmt.Errorf("local: %q is no id", id)
	}
	dir := filepath.Join(r.cfg.Dir, id)
	if err := makeDirs(dir); err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	inst, err := r.start(id, dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("local: %w", err), removeDir(dir))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.instances[id] = inst
	return inst, nil
}

// List reads what is in the directory, whoever made it.
func (r *Runtime) List(context.Context) ([]sandbox.Record, error) {
	entries, err := os.ReadDir(r.cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("local: list: %w", err)
	}
	var found []sandbox.Record
	for _, e := range entries {
		if !e.IsDir() {
			continue // not a sandbox
		}
		rec, err := readRecord(filepath.Join(r.cfg.Dir, e.Name()))
		if err != nil {
			// Half made, or its maker died in the middle: still ours to list.
			info, err := e.Info()
			if err != nil {
				continue // removed meanwhile
			}
			rec = record{Created: info.ModTime()}
		}
		found = append(found, sandbox.Record{ID: e.Name(), Owner: rec.Owner, Created: rec.Created, Expires: rec.Created.Add(lifetime)})
	}
	return found, nil
}

// Remove ends and removes the sandbox id, also one that another process made.
func (r *Runtime) Remove(ctx context.Context, id string) error {
	r.mu.Lock()
	inst := r.instances[id]
	r.mu.Unlock()
	if inst != nil {
		return inst.Close(ctx)
	}
	dir := filepath.Join(r.cfg.Dir, id)
	if _, err := os.Stat(dir); !validID.MatchString(id) || err != nil {
		return fmt.Errorf("local: remove %s: %w", id, sandbox.ErrNotFound)
	}
	if rec, err := readRecord(dir); err == nil && rec.PID > 0 {
		if err := killForeign(rec); err != nil {
			return fmt.Errorf("local: remove %s: %w", id, err)
		}
	}
	if err := removeDir(dir); err != nil {
		return fmt.Errorf("local: remove %s: %w", id, err)
	}
	return nil
}

// killForeign kills an agent that another process started, and its tool.
func killForeign(rec record) error {
	fd, err := unix.PidfdOpen(rec.PID, 0)
	if err != nil {
		return nil //nolint:nilerr // there is no such process
	}
	defer func() { _ = unix.Close(fd) }()
	if born, err := bornAt(rec.PID); err != nil || born != rec.Born {
		return nil //nolint:nilerr // the id is another's by now
	}
	return killAgent(rec.PID, func(sig unix.Signal) error { return unix.PidfdSendSignal(fd, sig, nil, 0) })
}

// killAgent ends the agent pid with everything below it. An agent that was
// stopped starts nothing while the tree below it is killed; in a pid namespace
// its end would take the tree along anyway. The signals go through a pidfd, so
// that they never meet a later process with the same id.
func killAgent(pid int, signal func(unix.Signal) error) error {
	if err := signal(unix.SIGSTOP); err != nil {
		return nil //nolint:nilerr // it has ended, and took its tree along
	}
	gone := agent.KillTree(pid, treeTimeout)
	if err := signal(unix.SIGKILL); err != nil {
		return fmt.Errorf("kill the agent: %w", err)
	}
	if !gone {
		return errors.New("processes are left that could not be killed")
	}
	return nil
}

// treeTimeout bounds the killing of one tree.
const treeTimeout = 10 * time.Second

func readRecord(dir string) (record, error) {
	var rec record
	b, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err != nil {
		return rec, err
	}
	return rec, json.Unmarshal(b, &rec)
}
