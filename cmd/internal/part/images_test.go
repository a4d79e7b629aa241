package part

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/catalog"
)

// someImages has the images that it holds.
type someImages struct {
	mu    sync.Mutex
	have  []string
	asked []string
	kept  []string
}

func (s *someImages) Ensure(_ context.Context, ref, pull string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, pull+" "+ref)
	if !slices.Contains(s.have, ref) {
		return "", errors.New("it is not found")
	}
	return "sha256:1", nil
}

func (s *someImages) KeepImages(_ context.Context, uses map[string][]string, _ time.Duration) ([]string, error) {
	s.kept = nil
	for ref := range uses {
		s.kept = append(s.kept, ref)
	}
	slices.Sort(s.kept)
	return nil, nil
}

// TestPrepullOfManyChanges: a change of the catalogue asks for what is new and
// for what could not be had, and tells the same fault once.
func TestPrepullOfManyChanges(t *testing.T) {
	tool := func(name, ref, pull string) catalog.Spec { return catalog.Spec{Name: name, Image: ref, Pull: pull} }
	a, b := tool("a", "r.example/a:1", "always"), tool("b", "local/b:1", "missing")
	again := tool("again", "r.example/a:1", "always")
	store := &someImages{have: []string{"r.example/a:1"}}
	var log bytes.Buffer
	i := &images{runtime: store, unused: time.Hour, logger: slog.New(slog.NewTextHandler(&log, nil))}
	for _, step := range []struct {
		tools       []catalog.Spec
		asked, kept string
	}{
		{[]catalog.Spec{a, b, again}, "always r.example/a:1, missing local/b:1", "local/b:1 r.example/a:1"},
		{[]catalog.Spec{a, b}, "missing local/b:1", "local/b:1 r.example/a:1"},
		{[]catalog.Spec{a, b}, "missing local/b:1", "local/b:1 r.example/a:1"},
		{[]catalog.Spec{b}, "missing local/b:1", "local/b:1"},
		{[]catalog.Spec{a}, "always r.example/a:1", "r.example/a:1"},
	} {
		store.asked = nil
		i.Prepull(t.Context(), step.tools)
		slices.Sort(store.asked)
		if got := strings.Join(store.asked, ", "); got != step.asked {
			t.Errorf("asked for %s, want %s", got, step.asked)
		}
		if got := strings.Join(store.kept, " "); got != step.kept {
			t.Errorf("kept %s, want %s", got, step.kept)
		}
	}
	if n := strings.Count(log.String(), "is not ready"); n != 1 || !i.ready.Load() {
		t.Errorf("told %d times:\n%s", n, &log)
	}
}
