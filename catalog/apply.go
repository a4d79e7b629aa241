package catalog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// Errors of [Store.Apply]. But for ErrUnavailable it changed nothing.
var (
	// ErrConflict says that the catalogue is not at the revision that a change
	// was made for, or that others change it without a pause.
	ErrConflict = errors.New("catalog: the catalogue was changed by somebody else meanwhile")
	// ErrUnknown says that a tool to be deleted is not in the bucket.
	ErrUnknown = errors.New("catalog: not in the fleet's catalogue")
	// ErrUnavailable says that the server did not answer. Whether anything was
	// changed is not known.
	ErrUnavailable = errors.New("catalog: the bucket does not answer")
	// ErrFull says that the catalogue has no room for a change.
	ErrFull = errors.New("catalog: the fleet's catalogue is full")
)

// Change is what the bucket is to be made of. All of it happens, or nothing.
type Change struct {
	// Tools are added, or take the place of tools of the same names.
	Tools []Spec
	// Delete names tools that are to go. Each must be there.
	Delete []string
	// Prune deletes every tool that is not in Tools.
	Prune bool
	// DryRun tells what would change and changes nothing.
	DryRun bool
	// IfRevision is the revision that the change was made for; nil takes any.
	IfRevision *uint64
}

// What a change does to one tool.
const (
	Added     = "added"
	Changed   = "changed"
	Unchanged = "unchanged"
	Deleted   = "deleted"
)

// Step is what a change does to one tool.
type Step struct {
	Name   string
	Action string // Added, Changed, Unchanged or Deleted
	// Digest names the tool's declaration afterwards, and Was before; empty when
	// there is none.
	Digest, Was string
}

// Outcome is what a change did, or would do.
type Outcome struct {
	// Revision is the catalogue's, afterwards.
	Revision uint64
	// Steps are sorted by name.
	Steps []Step
}

// Moves reports whether anything is other than before.
func (o Outcome) Moves() bool {
	return slices.ContainsFunc(o.Steps, func(s Step) bool { return s.Action != Unchanged })
}

const (
	// applyTimeout bounds a change. It is far below keepUnused, which is how long
	// a declaration stays that no set names: a change writes the declarations
	// first.
	applyTimeout = 30 * time.Second
	keepUnused   = time.Hour
	// applyTries is how often a change is tried while others change the set.
	applyTries = 16
)

// Apply changes the bucket. The error is [Problems] when a tool is faulty. After
// any error the same change may be applied again.
func (s *Store) Apply(ctx context.Context, c Change) (Outcome, error) {
	texts, want, err := encode(c.Tools)
	if err != nil {
		return Outcome{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout) // of the bucket; a slow machine may take its time before
	defer cancel()
	for range applyTries {
		set, err := s.Set(ctx)
		if err != nil {
			return Outcome{}, err
		}
		if c.IfRevision != nil && *c.IfRevision != set.Revision {
			return Outcome{}, fmt.Errorf("%w: it is at revision %d and not at %d", ErrConflict, set.Revision, *c.IfRevision)
		}
		spoilt, err := s.spoilt(ctx, set, want)
		if err != nil {
			return Outcome{}, err
		}
		out, err := plan(c, want, spoilt, &set)
		if err != nil || c.DryRun || !out.Moves() {
			return out, err
		}
		out.Revision, err = s.write(ctx, out.Steps, texts, set)
		switch {
		case err == nil:
			s.collect(ctx)
			return out, nil
		case !errors.Is(err, ErrConflict):
			return Outcome{}, err
		}
	}
	return Outcome{}, ErrConflict
}

// encode is the text of each tool, by its digest, and the digests by name.
func encode(tools []Spec) (texts map[string][]byte, digests map[string]string, err error) {
	texts, digests = map[string][]byte{}, map[string]string{}
	var problems Problems
	for i, spec := range tools {
		field := fmt.Sprintf("tools[%d]", i)
		raw, digest, err := written(spec)
		if faults, bad := errors.AsType[Problems](err); bad {
			for _, f := range faults {
				f.Field = strings.TrimSuffix(field+"."+f.Field, ".")
				problems = append(problems, f)
			}
			continue
		}
		if digests[spec.Name] != "" {
			problems = append(problems, Problem{Field: field + ".name", Message: fmt.Sprintf("%q is declared twice", spec.Name)})
		}
		texts[digest], digests[spec.Name] = raw, digest
	}
	if len(problems) > 0 {
		return nil, nil, problems
	}
	return texts, digests, nil
}

// written is how a tool stands in the bucket. What a reader would refuse is
// refused here. The error is [Problems].
func written(spec Spec) (raw []byte, digest string, err error) {
	spec.SetDefaults()
	if err := spec.Validate(); err != nil { // Marshal would tell less
		return nil, "", err
	}
	if raw, err = json.Marshal(spec); err != nil {
		return nil, "", Problems{{Message: err.Error()}}
	}
	if _, err := ParseJSON(raw); err != nil {
		return nil, "", err
	}
	return raw, spec.Digest(), nil
}

// spoilt are the tools that the set has as they are wanted, and whose declarations
// cannot be read: what is applied again is to be served again, whatever became of
// the bucket.
func (s *Store) spoilt(ctx context.Context, set Set, want map[string]string) (map[string]bool, error) {
	spoilt := map[string]bool{}
	var mu sync.Mutex // guards spoilt
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readParallel)
	for name, digest := range want {
		if set.Tools[name] != digest {
			continue
		}
		g.Go(func() error {
			_, err := s.spec(ctx, name, digest)
			if errors.Is(err, errMissing) || errors.Is(err, errUnreadable) {
				mu.Lock()
				defer mu.Unlock()
				spoilt[name] = true
				return nil
			}
			return err
		})
	}
	return spoilt, g.Wait()
}

// plan says what the change does to a set, and makes the set the new one.
func plan(c Change, want map[string]string, spoilt map[string]bool, set *Set) (Outcome, error) {
	out := Outcome{Revision: set.Revision}
	was := set.Tools
	set.Tools = maps.Clone(was)
	if c.Prune || set.Tools == nil {
		set.Tools = map[string]string{}
	}
	maps.Copy(set.Tools, want)
	for _, name := range c.Delete {
		switch {
		case was[name] == "":
			return out, fmt.Errorf("%w: %q", ErrUnknown, cut(name))
		case want[name] != "":
			return out, Problems{{Field: "delete", Message: fmt.Sprintf("%q is to be applied and deleted", name)}}
		}
		delete(set.Tools, name)
	}
	if len(set.Tools) > MaxTools {
		return out, fmt.Errorf("%w: it would hold %d tools, and at most %d are allowed", ErrFull, len(set.Tools), MaxTools)
	}
	for name, digest := range want {
		step := Step{Name: name, Action: Changed, Digest: digest, Was: was[name]}
		switch {
		case step.Was == "":
			step.Action = Added
		case step.Was == digest && !spoilt[name]:
			step.Action = Unchanged
		}
		out.Steps = append(out.Steps, step)
	}
	for name, digest := range was {
		if set.Tools[name] == "" {
			out.Steps = append(out.Steps, Step{Name: name, Action: Deleted, Was: digest})
		}
	}
	slices.SortFunc(out.Steps, func(a, b Step) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// write writes the declarations that are new, and then the set, if it is still
// what it was.
func (s *Store) write(ctx context.Context, steps []Step, texts map[string][]byte, set Set) (revision uint64, err error) {
	for _, step := range steps {
		if step.Action != Added && step.Action != Changed {
			continue
		}
		// Also when it is there: one that is written anew is not taken for unused.
		if _, err := s.publish(ctx, specPrefix+strings.TrimPrefix(step.Digest, digestType), texts[step.Digest]); err != nil {
			return 0, err
		}
	}
	raw, err := json.Marshal(writtenSet{Version: setVersion, Tools: set.Tools})
	if err != nil {
		return 0, fmt.Errorf("catalog: %w", err)
	}
	return s.publish(ctx, setSubject, raw, jetstream.WithExpectLastSequencePerSubject(set.Revision))
}

// The server's codes of a write that expected something else, and of a full
// bucket.
const (
	codeWrongSequence jetstream.ErrorCode = 10071
	codeWrongLast     jetstream.ErrorCode = 10164
	codeFull          jetstream.ErrorCode = 10077
)

func (s *Store) publish(ctx context.Context, subject string, data []byte, opts ...jetstream.PublishOpt) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	ack, err := s.js.Publish(ctx, subject, data, opts...)
	if err == nil {
		return ack.Sequence, nil
	}
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		switch api.ErrorCode {
		case codeWrongSequence, codeWrongLast:
			return 0, ErrConflict
		case codeFull:
			return 0, fmt.Errorf("%w: its bucket holds no more bytes; delete tools, and what they took is free after %s", ErrFull, Duration(keepUnused))
		}
	}
	return 0, fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// collect deletes declarations that no set has named for an hour. That is
// safe beside other writers: what is old is deleted by its number, and whoever
// uses a declaration again writes it again, under another number. A failure costs
// room until the next change, and is nobody's error.
func (s *Store) collect(ctx context.Context) {
	info, err := s.stream.Info(ctx, jetstream.WithSubjectFilter(specPrefix+"*"))
	if err != nil {
		return
	}
	set, err := s.Set(ctx)
	if err != nil {
		return
	}
	used := map[string]bool{}
	for _, digest := range set.Tools {
		used[specPrefix+strings.TrimPrefix(digest, digestType)] = true
	}
	for subject := range info.State.Subjects {
		if used[subject] {
			continue
		}
		msg, err := s.get(ctx, subject)
		if err != nil || info.TimeStamp.Sub(msg.Time) < s.keepUnused {
			continue
		}
		if err := s.stream.DeleteMsg(ctx, msg.Sequence); err != nil {
			return
		}
	}
}
