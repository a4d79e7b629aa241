package queue_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/queue"
)

func letter(id string, change ...func(*catalog.Job)) queue.Letter {
	j := job(id)
	for _, f := range change {
		f(&j)
	}
	attempts := []call.Attempt{{N: 1, Worker: "w", Incarnation: "i", Time: time.Now().UTC()}}
	return queue.NewLetter(j, call.Spent(3), attempts, time.Now())
}

func file(t *testing.T, d *queue.DeadLetters, l queue.Letter) bool {
	t.Helper()
	filed, err := d.File(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	return filed
}

// TestOneLetterOfACall: whoever ends a call files, and one letter is there: the
// first, whole.
func TestOneLetterOfACall(t *testing.T) {
	d := open(t, natsdtest.JetStream(t), queue.Options{}).Dead()
	first := letter("c")
	if !file(t, d, first) {
		t.Fatal("the first letter was not filed")
	}
	var g errgroup.Group
	for n := range 20 {
		g.Go(func() error {
			l := letter("c")
			l.Message = fmt.Sprint("another ", n)
			filed, err := d.File(t.Context(), l)
			if filed {
				err = errors.Join(err, errors.New("a second letter was filed"))
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	got, err := d.Get(t.Context(), "default", first.Job.Call.Key())
	if err != nil {
		t.Fatal(err)
	}
	first.Cursor = got.Cursor
	if diff := cmp.Diff(first, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n, err := d.Len(t.Context()); n != 1 || err != nil {
		t.Errorf("%d letters, %v", n, err)
	}
	if err := d.Drop(t.Context(), "default", got.Job.Call.Key()); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Get(t.Context(), "default", got.Job.Call.Key()); !errors.Is(err, queue.ErrNoLetter) {
		t.Errorf("a dropped letter: %v", err)
	}
	if err := d.Drop(t.Context(), "default", got.Job.Call.Key()); !errors.Is(err, queue.ErrNoLetter) {
		t.Errorf("a second drop: %v", err)
	}
}

// TestLettersAreTheirTenants: nobody sees, reads or drops another's letter, and
// nothing that comes from outside becomes a wildcard.
func TestLettersAreTheirTenants(t *testing.T) {
	d := open(t, natsdtest.JetStream(t), queue.Options{}).Dead()
	key := letter("c").Job.Call.Key()
	file(t, d, letter("c"))
	for _, tenant := range []string{"other", "*", ">", ""} {
		if _, err := d.Get(t.Context(), tenant, key); !errors.Is(err, queue.ErrNoLetter) {
			t.Errorf("tenant %q reads it: %v", tenant, err)
		}
		if err := d.Drop(t.Context(), tenant, key); !errors.Is(err, queue.ErrNoLetter) {
			t.Errorf("tenant %q drops it: %v", tenant, err)
		}
		if list, _ := d.List(t.Context(), tenant, queue.LetterFilter{}); len(list) > 0 {
			t.Errorf("tenant %q lists %d", tenant, len(list))
		}
	}
	if _, err := d.Get(t.Context(), "default", "*"); !errors.Is(err, queue.ErrNoLetter) {
		t.Errorf("a wildcard is a key: %v", err)
	}
	if list, err := d.List(t.Context(), "default", queue.LetterFilter{Tool: "*"}); len(list) > 0 || err != nil {
		t.Errorf("a wildcard is a tool: %d, %v", len(list), err)
	}
}

// TestListOfLetters is a list in pages, oldest first, of one tool or of all.
func TestListOfLetters(t *testing.T) {
	d := open(t, natsdtest.JetStream(t), queue.Options{}).Dead()
	var want []call.Key
	for n := range 7 {
		l := letter(fmt.Sprint("c", n), func(j *catalog.Job) {
			j.Call.Arguments = "{}"
			if n%2 == 1 {
				j.Call.Tool, j.Spec.Class = "other", "large"
			}
		})
		file(t, d, l)
		want = append(want, l.Job.Call.Key())
	}
	if err := d.Drop(t.Context(), "default", want[2]); err != nil {
		t.Fatal(err)
	}
	want = append(want[:2], want[3:]...)
	var got []call.Key
	var f queue.LetterFilter
	for f.Limit = 4; ; {
		page, err := d.List(t.Context(), "default", f)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range page {
			if l.Job.Call.Arguments != "" {
				t.Error("a list holds argument texts")
			}
			got = append(got, l.Job.Call.Key())
		}
		if len(page) < f.Limit {
			break
		}
		f.After = page[len(page)-1].Cursor
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	others, err := d.List(t.Context(), "default", queue.LetterFilter{Tool: "other"})
	if err != nil || len(others) != 3 {
		t.Errorf("%d letters of one tool, %v", len(others), err)
	}
}

// TestALetterAlwaysFits: no spec is so long that its letter is lost.
func TestALetterAlwaysFits(t *testing.T) {
	d := open(t, natsdtest.JetStream(t), queue.Options{}).Dead()
	l := letter("c", func(j *catalog.Job) {
		j.Spec.Parameters = []byte(`{"description":"` + strings.Repeat("x", 1<<20) + `"}`)
		j.Spec.Annotations.Idempotent = true
	})
	file(t, d, l)
	got, err := d.Get(t.Context(), "default", l.Job.Call.Key())
	if err != nil || got.Job.Spec.Name != "word-count" || !got.Job.Spec.Annotations.Idempotent {
		t.Errorf("%+v, %v", got.Job.Spec, err)
	}
}
