package secret

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/catalog"
)

// maxFile bounds a secrets file; [catalog.Decode] refuses less than that.
const maxFile = 1 << 20

// ErrNotGranted says that no entry of the operator's file gives a secret to the
// tool and the tenant that asked for it.
var ErrNotGranted = errors.New("secret: not granted")

// Store is what the operator's file grants, and where the values are. It is safe
// for concurrent use. A nil *Store grants nothing.
type Store struct {
	name    string
	environ map[string]string
	logger  *slog.Logger

	mu     sync.Mutex // guards the fields below
	seen   []byte     // of the file, what was read last, good or bad
	grants []grant
}

// TakeEnviron takes the variables that begin with [Prefix] out of the process's
// environment and returns them by name. It is called before the process starts
// any other, so that none inherits them.
//
// Linux goes on to show a process's first environment in /proc/PID/environ, to
// its own user and to root; a file is the better place.
func TakeEnviron() map[string]string {
	taken := map[string]string{}
	for _, kv := range os.Environ() {
		if name, value, _ := strings.Cut(kv, "="); strings.HasPrefix(name, Prefix) {
			taken[name] = value
			_ = os.Unsetenv(name) // fails for names that cannot be
		}
	}
	return taken
}

// Open reads a secrets file. environ is what [TakeEnviron] returned. The error is
// [catalog.Problems], all that were found, with file and lines.
//
// The file is read again for each call that has secrets: what is taken out of
// it is no longer given from the next call on. A file that has got faults changes
// nothing, and they are logged once.
func Open(name string, environ map[string]string, logger *slog.Logger) (*Store, error) {
	s := &Store{name: name, environ: environ, logger: logger}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.reload(); err != nil {
		return nil, err
	}
	return s, nil
}

// Resolve returns the values that tool may have for tenant, one for each of
// names. The error names the first secret that cannot be had and never holds a
// value: [ErrNotGranted], or why the value cannot be read.
func (s *Store) Resolve(tool, tenant string, names []string) ([]Value, error) {
	grants := s.granted()
	values := make([]Value, len(names))
	for i, name := range names {
		g := find(grants, name, tool, tenant)
		if g == nil {
			return nil, &Error{Name: name, Err: ErrNotGranted}
		}
		v, err := s.read(g)
		if err != nil {
			return nil, &Error{Name: name, Err: err}
		}
		values[i] = v
	}
	return values, nil
}

// Ungranted returns those of names that a call of tool would be declined for: that
// are granted to it for no tenant, or not for all of tenants when some are named.
// It reads no value.
func (s *Store) Ungranted(tool string, tenants, names []string) (missing []string) {
	grants := s.granted()
	for _, name := range names {
		somebody := slices.ContainsFunc(grants, func(g grant) bool { return g.Name == name && slices.Contains(g.Tools, tool) })
		forgotten := slices.ContainsFunc(tenants, func(tenant string) bool { return find(grants, name, tool, tenant) == nil })
		if !somebody || forgotten {
			missing = append(missing, name)
		}
	}
	return missing
}

// Error says which secret could not be had, and why.
type Error struct {
	Name string
	Err  error
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("secret %q: %v", e.Name, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func find(grants []grant, name, tool, tenant string) *grant {
	for i := range grants {
		if grants[i].gives(name, tool, tenant) {
			return &grants[i]
		}
	}
	return nil
}

// granted is what the file says now.
func (s *Store) granted() []grant {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.reload(); err != nil {
		s.logger.Error("the secrets file has faults; what was read before stays", "file", s.name, "error", err)
	}
	return s.grants
}

// reload reads the file if it has changed. Faults are told once for the same
// content. The caller holds mu.
func (s *Store) reload() error {
	data, err := readFile(s.name, maxFile)
	if err != nil {
		data = []byte(err.Error()) // stands for the content that is not there
	}
	if s.seen != nil && bytes.Equal(data, s.seen) {
		return nil
	}
	s.seen = data
	if err != nil {
		return catalog.Problems{{File: s.name, Message: err.Error()}}
	}
	grants, err := parse(data, filepath.Dir(s.name))
	if faults, ok := errors.AsType[catalog.Problems](err); ok {
		for i := range faults {
			faults[i].File = s.name
		}
	}
	if err != nil {
		return err
	}
	s.grants = grants
	return nil
}

// read reads the value that g tells of.
func (s *Store) read(g *grant) (Value, error) {
	raw, err := s.raw(g)
	if err != nil {
		return Value{}, err
	}
	v, err := newValue(raw)
	if err != nil {
		return Value{}, fmt.Errorf("its value %w", err)
	}
	return v, nil
}

func (s *Store) raw(g *grant) ([]byte, error) {
	if g.File != "" {
		return readFile(g.File, MaxValue+2) // and a newline
	}
	value, ok := s.environ[g.Env]
	if !ok {
		return nil, fmt.Errorf("the worker has no variable %s in its environment", g.Env)
	}
	return []byte(value), nil
}

// readFile reads a regular file whole, at most limit bytes and one more, and
// never waits: a pipe in its place is opened and refused. Links are followed;
// Kubernetes swaps one for all files of a volume when it changes them.
func readFile(name string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", name, err)
	}
	return data, nil
}
