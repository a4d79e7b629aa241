package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// State is what a [Follower] serves, and what it does not. It is shared, and
// must not be changed.
type State struct {
	// Revision is the bucket's; 0 when it was never written.
	Revision uint64
	// Changed is when the bucket was written last.
	Changed time.Time
	// Loaded is when the sources were last read without a fault.
	Loaded time.Time
	// Tools are those that are served, sorted by name.
	Tools []Served
	// Faults say what is not served and why, sorted by source.
	Faults []Fault
}

// Served is a tool with where it comes from.
type Served struct {
	Spec   *Spec
	Digest string
	// Source is FromFile or FromBucket.
	Source string
	// File declares a tool of FromFile.
	File string
	// Hides says that the bucket has a tool of the same name, which is not served
	// here because of the file.
	Hides bool
}

// Fault is something that keeps a tool, or a change, from being served.
type Fault struct {
	Source  string
	Message string
}

// State is what is served now, and a channel that is closed when that changes.
func (f *Follower) State() (State, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state, f.changed
}

// note keeps the faults of a source and logs those that are new. The caller
// holds reading.
func (f *Follower) note(source, consequence string, faults []string) {
	old := f.faults[source]
	f.faults[source] = faults
	if len(faults) > 0 {
		f.Metrics.CatalogFailed(source)
	}
	if slices.Equal(old, faults) {
		return
	}
	if len(faults) > 0 {
		f.Logger.Error("a source of tools has faults", "source", source, "consequence", consequence, "faults", len(faults), "error", strings.Join(faults, "\n"))
	}
	f.show(func(s *State) { s.Faults = f.allFaults() })
}

func (f *Follower) allFaults() (all []Fault) {
	for _, source := range slices.Sorted(maps.Keys(f.faults)) {
		for _, message := range f.faults[source] {
			all = append(all, Fault{source, message})
		}
	}
	return all
}

// show changes the state and wakes those who wait for that.
func (f *Follower) show(change func(*State)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.state)
	close(f.changed)
	f.changed = make(chan struct{})
}

// publish serves what was read last of all sources. The caller holds reading.
func (f *Follower) publish() error {
	list := f.merge()
	was, _ := f.State()
	same := slices.EqualFunc(was.Tools, list, Served.equal)
	if !same || f.catalog.tools.Load() == nil {
		specs := make([]Spec, len(list))
		for i, t := range list {
			specs[i] = *t.Spec
		}
		if err := f.catalog.Replace(specs); err != nil {
			return err
		}
		f.count(list)
		f.Logger.Info("the catalogue was read", "tools", len(list), "revision", f.bucket.set.Revision, "changes", differences(was.Tools, list))
	}
	if set := f.bucket.set; !same || was.Revision != set.Revision {
		f.show(func(s *State) { s.Revision, s.Changed, s.Tools = set.Revision, set.Changed, list })
	}
	f.noteLoaded()
	return nil
}

// noteLoaded notes that the sources were read, if nothing is wrong with any.
func (f *Follower) noteLoaded() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.state.Faults) == 0 {
		f.state.Loaded = time.Now()
		f.Metrics.CatalogLoaded(f.state.Loaded)
	}
}

// merge lays the files over the bucket, sorted by name.
func (f *Follower) merge() []Served {
	tools := make(map[string]Served, len(f.files)+len(f.bucket.tools))
	for name, t := range f.bucket.tools {
		tools[name] = Served{Spec: t, Digest: f.bucket.set.Tools[name], Source: FromBucket}
	}
	for i := range f.files {
		l := &f.files[i]
		_, hides := f.bucket.set.Tools[l.spec.Name]
		tools[l.spec.Name] = Served{Spec: &l.spec, Digest: l.digest, Source: FromFile, File: l.file, Hides: hides}
	}
	return slices.SortedFunc(maps.Values(tools), func(a, b Served) int { return cmp.Compare(a.Spec.Name, b.Spec.Name) })
}

// equal compares all but where the spec is.
func (t Served) equal(other Served) bool {
	return t.Spec.Name == other.Spec.Name && t.Digest == other.Digest && t.Source == other.Source && t.File == other.File && t.Hides == other.Hides
}

// count shows how many tools there are of which source.
func (f *Follower) count(list []Served) {
	n := map[string]int{FromFile: 0, FromBucket: 0}
	for _, t := range list {
		n[t.Source]++
	}
	for source, tools := range n {
		f.Metrics.SetCatalog(source, tools)
	}
}

// mostDifferences is how many changes a log line names.
const mostDifferences = 20

// differences says in one line what is other than before: "+" was added, "-"
// is gone, "~" has changed.
func differences(was, now []Served) string {
	before := map[string]Served{}
	for _, t := range was {
		before[t.Spec.Name] = t
	}
	var words []string
	for _, t := range now {
		name := t.Spec.Name
		old, there := before[name]
		delete(before, name)
		switch {
		case !there:
			words = append(words, "+"+name)
		case old.Digest != t.Digest || old.Source != t.Source:
			words = append(words, "~"+name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		words = append(words, "-"+name)
	}
	if n := len(words) - mostDifferences; n > 0 {
		words = append(words[:mostDifferences], fmt.Sprintf("and %d more", n))
	}
	return strings.Join(words, " ")
}
