package tenant

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolfleet/toolfleet/catalog"
)

// poll is how often a file is looked at. A file this small is read whole and
// compared: watches of the file system are lost when an editor or a Kubernetes
// ConfigMap puts another file in its place, and so is a time stamp when two
// changes come within its grain.
const poll = 2 * time.Second

// maxFile bounds what is read; [catalog.Decode] refuses less than that.
const maxFile = 1 << 20

// Set is the limits of all tenants, as their file says. It is safe for
// concurrent use. A nil *Set is that of a fleet without a file: nobody has a
// quota, and all weigh the same.
type Set struct {
	name string
	now  atomic.Pointer[table]

	reading sync.Mutex
	seen    []byte // what was read last, good or bad
}

// Parse makes a Set that never changes. The error is [catalog.Problems], all
// that were found, with lines and without a file.
func Parse(data []byte) (*Set, error) {
	t, err := parse(data)
	if err != nil {
		return nil, err
	}
	s := &Set{}
	s.now.Store(t)
	return s, nil
}

// Open reads a file. The error is [catalog.Problems], all that were found, with
// file and lines.
func Open(name string) (*Set, error) {
	s := &Set{name: name}
	if _, err := s.Reload(); err != nil {
		return nil, err
	}
	return s, nil
}

// Of is what a tenant may have. Whether there is such a tenant is not asked:
// one that the file does not name has what "default" says.
func (s *Set) Of(tenant string) Limits {
	if s == nil {
		return none
	}
	return s.now.Load().of(tenant)
}

// Share is what the scheduler asks: the weight of a tenant, from 1 up, and how
// many of its calls may be with workers at a time, 0 for no limit.
func (s *Set) Share(tenant string) (weight, maxInFlight int) {
	l := s.Of(tenant)
	return l.Weight, l.MaxInFlight
}

// Run reads the file again whenever it has changed, until ctx is done. A file
// with faults changes nothing: what was read before stays, and the faults are
// logged once. It returns nil; for a nil Set, and one that has no file, it only
// waits.
func (s *Set) Run(ctx context.Context, logger *slog.Logger) error {
	if s == nil || s.name == "" {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		switch changed, err := s.Reload(); {
		case err != nil:
			logger.Error("the tenants file has faults; what was read before stays", "file", s.name, "error", err)
		case changed:
			logger.Info("the tenants file was read again", "file", s.name)
		}
	}
}

// Reload reads the file now. changed is true when it holds something else than
// at the last time. Faults are told once for the same content: they are the
// error of the Reload that met them first.
func (s *Set) Reload() (changed bool, err error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	data, err := read(s.name)
	if err != nil {
		// Told once, too: the text stands for the content that is not there.
		data = []byte(err.Error())
	}
	if s.seen != nil && bytes.Equal(data, s.seen) {
		return false, nil
	}
	s.seen = data
	if err != nil {
		return true, catalog.Problems{{File: s.name, Message: err.Error()}}
	}
	t, err := parse(data)
	if faults, ok := errors.AsType[catalog.Problems](err); ok {
		for i := range faults {
			faults[i].File = s.name
		}
	}
	if err != nil {
		return true, err
	}
	s.now.Store(t)
	return true, nil
}

// read reads a file of a bounded size, and nothing that could block.
func read(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is not a regular file")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	return data, nil
}
