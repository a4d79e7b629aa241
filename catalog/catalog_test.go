package catalog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolfleet/toolfleet/call"
)

// wordCount is a sparse spec, as code writes one.
func wordCount() Spec {
	return Spec{
		Name: "word-count", Description: "Counts words in a text.", Image: "local/word-count:1", Command: []string{"/tool"},
		Parameters: json.RawMessage(`{"type":"object","required":["text"],"properties":{"text":{"type":"string"}},"additionalProperties":false}`),
	}
}

func newCatalog(t *testing.T, specs ...Spec) *Catalog {
	t.Helper()
	c, err := New(specs)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func aCall(tool string) call.Call {
	return call.Call{Tenant: "default", ThreadID: "t", RunID: "r", Scope: "s", ToolCallID: "c", Tool: tool}
}

func TestCheckAccepts(t *testing.T) {
	c := newCatalog(t, wordCount())
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	job, refused := c.Check(aCall("word-count"), `{"text":"a b"}`, now)
	if refused != nil {
		t.Fatalf("refused: %+v", refused)
	}
	spec, _ := c.Resolve("default", "word-count")
	want := Job{
		Version: call.Version, Call: aCall("word-count"), Spec: spec, SpecDigest: spec.Digest(),
		Admitted: now, Expires: now.Add(10 * time.Minute),
	}
	want.Call.Version = call.Version
	want.Call.ArgumentsDigest = call.Digest(`{"text":"a b"}`)
	if diff := cmp.Diff(want, job); diff != "" {
		t.Errorf("job (-want +got):\n%s", diff)
	}
}

func TestCheckRefuses(t *testing.T) {
	server := Spec{Name: "web", Type: TypeServer, ServerType: "web_search", Description: "Searches."}
	consent := wordCount()
	consent.Name, consent.Approval = "consent", ApprovalRequired
	private := wordCount()
	private.Name, private.Tenants = "private", []string{"other"}
	c := newCatalog(t, wordCount(), server, consent, private)

	deep := strings.Repeat(`{"text":`, 65) + `1` + strings.Repeat(`}`, 65)
	for _, tt := range []struct {
		name, tool, args string
		kind             call.Kind
		text             []string
	}{
		{"unknown", "wordcount", `{}`, call.KindUnknownTool, []string{`There is no tool "wordcount"`, "Available tools: word-count, consent."}},
		{"hidden from the tenant", "private", `{}`, call.KindUnknownTool, []string{"There is no tool"}},
		{"server tool", "web", `{}`, call.KindUnknownTool, []string{"run by the model's provider"}},
		{"empty", "word-count", ``, call.KindInvalidArguments, []string{"arguments: is empty and not JSON"}},
		{"not JSON", "word-count", `{oops`, call.KindInvalidArguments, []string{"arguments: is not JSON"}},
		{"two values", "word-count", `{} {}`, call.KindInvalidArguments, []string{"is not JSON"}},
		{"not an object", "word-count", `["text"]`, call.KindInvalidArguments, []string{"arguments: is not an object"}},
		{"duplicate keys", "word-count", `{"text":"a","\u0074ext":"b"}`, call.KindInvalidArguments, []string{"/text: is given twice"}},
		{"not UTF-8", "word-count", "{\"text\":\"\xff\"}", call.KindInvalidArguments, []string{"is not UTF-8"}},
		{"too deep", "word-count", deep, call.KindInvalidArguments, []string{"nested deeper than 64"}},
		{"too long", "word-count", `{"text":"` + strings.Repeat("x", call.MaxArguments) + `"}`, call.KindInvalidArguments, []string{"at most 1048576"}},
		{"schema, all problems", "word-count", `{"text":1,"b":1,"a":1}`, call.KindInvalidArguments, []string{"- arguments: additional properties 'a', 'b' not allowed\n- /text: got number, want string"}},
		{"missing", "word-count", `{}`, call.KindInvalidArguments, []string{"missing property 'text'"}},
		{"consent", "consent", `{"text":"a"}`, call.KindDeclined, []string{"this fleet cannot ask for it yet"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			job, r := c.Check(aCall(tt.tool), tt.args, time.Now())
			if r == nil {
				t.Fatal("accepted")
			}
			if r.Kind() != tt.kind || r.Status() != call.StatusRefused {
				t.Errorf("kind %q status %q, want %q refused", r.Kind(), r.Status(), tt.kind)
			}
			if job.Refusal != r || job.Call.ArgumentsDigest != call.Digest(tt.args) || job.Expires.IsZero() {
				t.Errorf("the job cannot open a log: %+v", job)
			}
			for _, want := range tt.text {
				if !strings.Contains(r.Content[0].Text, want) {
					t.Errorf("text %q lacks %q", r.Content[0].Text, want)
				}
			}
			if len(r.Content[0].Text) > 8<<10 {
				t.Errorf("text is %d bytes long", len(r.Content[0].Text))
			}
		})
	}
}

func TestCheckBoundsTheProblems(t *testing.T) {
	c := newCatalog(t, Spec{
		Name: "many", Description: "d", Image: "i", Command: []string{"/tool"},
		Parameters: json.RawMessage(`{"type":"object","additionalProperties":{"type":"string"}}`),
	})
	args := map[string]int{}
	for i := range 100 {
		args[fmt.Sprintf("k%02d", i)] = i
	}
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	_, first := c.Check(aCall("many"), string(raw), time.Now())
	if n := strings.Count(first.Content[0].Text, "\n- "); n != 20 {
		t.Errorf("%d problems are listed, want 20", n)
	}
	if !strings.Contains(first.Content[0].Text, "81 more") {
		t.Errorf("the rest is not counted: %s", first.Content[0].Text)
	}
	_, second := c.Check(aCall("many"), string(raw), time.Now())
	if first.Content[0].Text != second.Content[0].Text {
		t.Error("the same arguments read differently the second time")
	}
}

func TestUnknownToolSuggestsTheNearest(t *testing.T) {
	var specs []Spec
	for i := range 15 {
		s := wordCount()
		s.Name = fmt.Sprintf("tool-%02d", i)
		specs = append(specs, s)
	}
	specs = append(specs, wordCount())
	_, r := newCatalog(t, specs...).Check(aCall("word_count"), "{}", time.Now())
	text := r.Content[0].Text
	if !strings.Contains(text, "The nearest of 16 tools: word-count, tool-") || strings.Count(text, ", ") != 9 {
		t.Errorf("text = %q", text)
	}
	_, r = newCatalog(t).Check(aCall("x"), "{}", time.Now())
	if !strings.HasSuffix(r.Content[0].Text, "No tools are available.") {
		t.Errorf("text = %q", r.Content[0].Text)
	}
}

// The tools on offer are in an order that a reader can follow: what the name
// may have meant, then the alphabet; never the order of edit distances alone.
func TestSuggestionsAreInOrder(t *testing.T) {
	names := []string{"word-count", "chart", "countdown", "flaky", "shell", "word-counts", "archive"}
	for name, want := range map[string]string{
		"word_count": "word-count word-counts archive chart countdown flaky shell",
		"Charts":     "chart archive countdown flaky shell word-count word-counts",
		"no-such":    "archive chart countdown flaky shell word-count word-counts",
	} {
		for range 3 {
			if got := strings.Join(suggest(name, names, maxSuggestions), " "); got != want {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
			slices.Reverse(names) // whatever order they come in
		}
	}
}

func TestReplaceIsAllOrNothing(t *testing.T) {
	c := newCatalog(t, wordCount())
	bad := wordCount()
	bad.Name, bad.Parameters = "bad", json.RawMessage(`{"type":"nonsense"}`)
	if err := c.Replace([]Spec{bad}); err == nil || !strings.Contains(err.Error(), `tool "bad": parameters:`) {
		t.Errorf("err = %v", err)
	}
	if err := c.Replace([]Spec{wordCount(), wordCount()}); err == nil || !strings.Contains(err.Error(), "declared twice") {
		t.Errorf("err = %v", err)
	}
	if got := c.List("default"); len(got) != 1 || got[0].Name != "word-count" {
		t.Errorf("the catalogue changed: %v", got)
	}
	if err := c.Replace(nil); err != nil {
		t.Fatal(err)
	}
	if _, found := c.Resolve("default", "word-count"); found {
		t.Error("the old tool is still there")
	}
}

func TestCheckTimeout(t *testing.T) {
	spec, _ := newCatalog(t, wordCount()).Resolve("default", "word-count")
	for d, ok := range map[time.Duration]bool{0: true, time.Second: true, 30 * time.Second: true, -1: false, 30*time.Second + 1: false} {
		if err := spec.CheckTimeout(d); (err == nil) != ok {
			t.Errorf("CheckTimeout(%s) = %v", d, err)
		}
	}
}

func TestReadOnlyImpliesIdempotent(t *testing.T) {
	s := wordCount()
	s.Annotations.ReadOnly = true
	spec, _ := newCatalog(t, s).Resolve("default", "word-count")
	if !spec.Annotations.Idempotent {
		t.Error("a read-only tool is not idempotent")
	}
}

func TestDigestSurvivesTheJob(t *testing.T) {
	s := wordCount()
	s.Env = map[string]string{"B": "2", "A": "<1>"}
	s.Limits.Memory = 100_000_001
	c := newCatalog(t, s)
	job, _ := c.Check(aCall("word-count"), `{"text":""}`, time.Now())
	raw, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	var got Job
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if got.Spec.Digest() != job.SpecDigest {
		t.Errorf("digest %s became %s", job.SpecDigest, got.Spec.Digest())
	}
	reordered := s
	reordered.Parameters = json.RawMessage(`{ "additionalProperties":false, "type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`)
	again, _ := newCatalog(t, reordered).Resolve("default", "word-count")
	if again.Digest() != job.SpecDigest {
		t.Error("the order of a schema's members changes the digest")
	}
	changed := s
	changed.Limits.Pids = 65
	other, _ := newCatalog(t, changed).Resolve("default", "word-count")
	if other.Digest() == job.SpecDigest {
		t.Error("another limit has the same digest")
	}
}
