package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/internal/natsd"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natsdtest.Main(m)) }

func openStore(t *testing.T, js jetstream.JetStream) *Store {
	t.Helper()
	s, err := OpenStore(t.Context(), js, StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// named is a tool that differs from others by its name and description.
func named(name, description string) Spec {
	s := Spec{Name: name, Description: description, Image: "local/none:1", Command: []string{"/tool"}}
	s.SetDefaults()
	return s
}

func apply(t *testing.T, s *Store, c Change) Outcome {
	t.Helper()
	out, err := s.Apply(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// actions is what an outcome says, without digests.
func actions(o Outcome) string {
	var words []string
	for _, s := range o.Steps {
		words = append(words, s.Action+" "+s.Name)
	}
	return strings.Join(words, ", ")
}

func TestApply(t *testing.T) {
	s := openStore(t, natsdtest.JetStream(t))
	for _, step := range []struct {
		change Change
		want   string
	}{
		{Change{Tools: []Spec{named("a", "1"), named("b", "1")}, DryRun: true}, "added a, added b"},
		{Change{Tools: []Spec{named("a", "1"), named("b", "1")}}, "added a, added b"},
		{Change{Tools: []Spec{named("a", "1"), named("b", "1")}}, "unchanged a, unchanged b"},
		{Change{Tools: []Spec{named("a", "2")}}, "changed a"},
		{Change{Tools: []Spec{named("a", "2"), named("c", "1")}, Prune: true}, "unchanged a, deleted b, added c"},
		{Change{Delete: []string{"a"}}, "deleted a"},
		{Change{Tools: []Spec{named("a", "1")}, Delete: []string{"c"}}, "added a, deleted c"},
		{Change{Prune: true}, "deleted a"},
		{Change{}, ""},
	} {
		if got := actions(apply(t, s, step.change)); got != step.want {
			t.Errorf("%s, want %s", got, step.want)
		}
	}
}

// What is refused changes nothing, and says everything that is wrong.
func TestApplyRefuses(t *testing.T) {
	s := openStore(t, natsdtest.JetStream(t))
	at := apply(t, s, Change{Tools: []Spec{named("a", "1")}}).Revision
	bad := named("b", "1")
	bad.Image, bad.Limits.CPU = "", -1
	deep := named("d", "1")
	deep.Parameters = json.RawMessage(`{"type":"object","default":` + strings.Repeat(`[`, 70) + strings.Repeat(`]`, 70) + `}`)
	earlier := at - 1
	for name, test := range map[string]struct {
		change Change
		err    error
		want   []string
	}{
		"faulty tools":    {Change{Tools: []Spec{named("c", "1"), bad, deep}}, nil, []string{"tools[1].image: is missing", "tools[1].limits.cpu: expected", "tools[2]"}},
		"twice":           {Change{Tools: []Spec{named("c", "1"), named("c", "2")}}, nil, []string{`tools[1].name: "c" is declared twice`}},
		"unknown":         {Change{Tools: []Spec{named("c", "1")}, Delete: []string{"a", "x"}}, ErrUnknown, []string{`"x"`}},
		"both":            {Change{Tools: []Spec{named("a", "2")}, Delete: []string{"a"}}, nil, []string{`"a" is to be applied and deleted`}},
		"another's state": {Change{Tools: []Spec{named("c", "1")}, IfRevision: &earlier}, ErrConflict, []string{"it is at revision"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.Apply(t.Context(), test.change)
			if _, problems := errors.AsType[Problems](err); err == nil || !problems && !errors.Is(err, test.err) {
				t.Fatalf("err = %v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in:\n%v", want, err)
				}
			}
		})
	}
	if set, err := s.Set(t.Context()); err != nil || set.Revision != at || len(set.Tools) != 1 {
		t.Errorf("set = %+v, %v", set, err)
	}
}

// A bucket that is full says so and stays as it was: of tools, and of bytes.
func TestApplyToAFullBucket(t *testing.T) {
	js := natsdtest.JetStream(t)
	s := openStore(t, js)
	apply(t, s, Change{Tools: []Spec{named("a", "1")}})
	var many []Spec
	for i := range MaxTools {
		many = append(many, named(fmt.Sprint("t", i), "d"))
	}
	if _, err := s.Apply(t.Context(), Change{Tools: many, DryRun: true}); !errors.Is(err, ErrFull) {
		t.Errorf("%d tools: %v", MaxTools+1, err)
	}
	if _, err := s.Apply(t.Context(), Change{Tools: many, Prune: true, DryRun: true}); err != nil {
		t.Errorf("%d tools: %v", MaxTools, err)
	}
	small := storeConfig(StoreOptions{})
	small.MaxBytes = 4 << 10
	if _, err := js.UpdateStream(t.Context(), small); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(t.Context(), Change{Tools: []Spec{named("b", "1"), named("c", strings.Repeat("x", 8<<10))}}); !errors.Is(err, ErrFull) {
		t.Errorf("too many bytes: %v", err)
	}
	if set, err := s.Set(t.Context()); err != nil || len(set.Tools) != 1 {
		t.Errorf("set = %+v, %v", set, err)
	}
}

// Changes made at the same time are all there in the end, and none is undone.
func TestApplyBesideOthers(t *testing.T) {
	js := natsdtest.JetStream(t)
	var all sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} {
		s := openStore(t, js)
		all.Go(func() {
			for _, description := range []string{"1", "2"} {
				if _, err := s.Apply(t.Context(), Change{Tools: []Spec{named(name, description)}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	f, err := Follow(t.Context(), FollowerConfig{Store: openStore(t, js)})
	if err != nil {
		t.Fatal(err)
	}
	state, _ := f.State()
	if got := summary(state); got != "a 2 bucket, b 2 bucket, c 2 bucket, d 2 bucket" {
		t.Error(got)
	}
}

// summary is what a state serves.
func summary(s State) string {
	var words []string
	for _, t := range s.Tools {
		word := t.Spec.Name + " " + t.Spec.Description + " " + t.Source
		if t.Hides {
			word += " (hides)"
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

// Declarations that no set names go after a while, and no sooner.
func TestUnusedDeclarationsGo(t *testing.T) {
	s := openStore(t, natsdtest.JetStream(t))
	count := func() uint64 {
		info, err := s.stream.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info.State.Msgs
	}
	apply(t, s, Change{Tools: []Spec{named("a", "1"), named("b", "1")}})
	apply(t, s, Change{Tools: []Spec{named("a", "2")}})
	if n := count(); n != 4 {
		t.Errorf("%d entries; the set and three declarations", n)
	}
	s.keepUnused = 0
	apply(t, s, Change{Tools: []Spec{named("a", "3")}})
	if n := count(); n != 3 {
		t.Errorf("%d entries; the set and two declarations", n)
	}
	apply(t, s, Change{Tools: []Spec{named("a", "1")}})
	if spec, err := s.spec(t.Context(), "a", digestIn(t, s, "a")); err != nil || spec.Description != "1" {
		t.Errorf("%+v, %v", spec, err)
	}
}

func digestIn(t *testing.T, s *Store, name string) string {
	t.Helper()
	set, err := s.Set(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return set.Tools[name]
}

// follow runs a follower and returns a way to wait for what it serves.
func follow(t *testing.T, c FollowerConfig) (f *Follower, await func(want string) State) {
	t.Helper()
	f, err := Follow(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return f, func(want string) State {
		t.Helper()
		return awaitState(t, f, want, func(s State) bool { return summary(s) == want })
	}
}

func awaitState(t *testing.T, f *Follower, want string, is func(State) bool) State {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		state, changed := f.State()
		if is(state) {
			return state
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("it serves %q with %v, want %q", summary(state), state.Faults, want)
		}
	}
}

// A tool of the bucket is served by whoever follows it, and one of a file wins.
func TestFollowFilesAndBucket(t *testing.T) {
	js := natsdtest.JetStream(t)
	s := openStore(t, js)
	dir := t.TempDir()
	write(t, dir, "a.tool.yaml", strings.Replace(minimal, "name: t", "name: a", 1))
	f, await := follow(t, FollowerConfig{Dir: dir, Store: openStore(t, js)})
	await("a d file")
	apply(t, s, Change{Tools: []Spec{named("a", "shared"), named("b", "shared")}})
	await("a d file (hides), b shared bucket")
	if spec, ok := f.Catalog().Resolve("default", "a"); !ok || spec.Description != "d" {
		t.Errorf("a is %+v", spec)
	}
	write(t, dir, "c/tool.yaml", strings.Replace(minimal, "name: t", "name: c", 1))
	await("a d file (hides), b shared bucket, c d file")
	if err := os.Remove(filepath.Join(dir, "a.tool.yaml")); err != nil {
		t.Fatal(err)
	}
	await("a shared bucket, b shared bucket, c d file")
	apply(t, s, Change{Delete: []string{"b"}})
	await("a shared bucket, c d file")
	if _, err := f.Apply(t.Context(), Change{Tools: []Spec{named("d", "mine")}}); err != nil {
		t.Fatal(err)
	}
	if _, ok := f.Catalog().Resolve("default", "d"); !ok {
		t.Error("what was applied here is not served when Apply returns")
	}
}

// Files that have faults change nothing, say so once, and are read again.
func TestFaultyFilesChangeNothing(t *testing.T) {
	dir := t.TempDir()
	good := strings.Replace(minimal, "name: t", "name: a", 1)
	write(t, dir, "a.tool.yaml", good)
	log := &lines{}
	f, await := follow(t, FollowerConfig{Dir: dir, Logger: slog.New(slog.NewTextHandler(log, nil))})
	await("a d file")
	for _, bad := range []string{good + "colour: red\n", good + "colour: blue\nsize: 1\n"} {
		write(t, dir, "a.tool.yaml", bad)
		state := awaitState(t, f, "faults", func(s State) bool { return len(s.Faults) == strings.Count(bad, "\n")-strings.Count(good, "\n") })
		if !strings.Contains(state.Faults[0].Message, "a.tool.yaml:7: colour: unknown field") || summary(state) != "a d file" {
			t.Errorf("state = %s, %v", summary(state), state.Faults)
		}
	}
	for range 3 {
		f.Reload()
	}
	if n := log.count("what was read before stays"); n != 2 {
		t.Errorf("two faulty files were told %d times", n)
	}
	write(t, dir, "a.tool.yaml", strings.Replace(good, "description: d", "description: e", 1))
	if state := await("a e file"); len(state.Faults) > 0 {
		t.Errorf("faults = %v", state.Faults)
	}
	// A directory that is empty, as one is that was not mounted, is a fault too.
	if err := os.Remove(filepath.Join(dir, "a.tool.yaml")); err != nil {
		t.Fatal(err)
	}
	awaitState(t, f, "a fault", func(s State) bool { return len(s.Faults) == 1 && summary(s) == "a e file" })
}

// lines is a log that can be counted.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), s)
}

// A ConfigMap's change is the change of one link.
func TestFollowAConfigMap(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "..1/t.tool.yaml", minimal)
	write(t, dir, "..2/t.tool.yaml", strings.Replace(minimal, "description: d", "description: e", 1))
	link := func(to, name string) {
		if err := errors.Join(os.Symlink(to, filepath.Join(dir, "new")), os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, name))); err != nil {
			t.Fatal(err)
		}
	}
	link("..1", "..data")
	link("..data/t.tool.yaml", "t.tool.yaml")
	_, await := follow(t, FollowerConfig{Dir: dir})
	await("t d file")
	link("..2", "..data")
	await("t e file")
}

// What is wrong with one tool of the bucket costs that tool and is told; what is
// wrong with the set, or of a newer version, changes nothing.
func TestTheBucketIsNotBelieved(t *testing.T) {
	js := natsdtest.JetStream(t)
	s := openStore(t, js)
	put := func(subject, text string) {
		t.Helper()
		if _, err := js.Publish(t.Context(), subject, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	apply(t, s, Change{Tools: []Spec{named("good", "1")}})
	good := digestIn(t, s, "good")
	log := &lines{}
	f, await := follow(t, FollowerConfig{Store: openStore(t, js), Logger: slog.New(slog.NewTextHandler(log, nil))})
	await("good 1 bucket")

	tools := map[string]string{"good": good, "again": good, "gone": call.Digest("nothing"), "odd": "md5:1", "long": "sha256:" + strings.Repeat("G", 64)}
	for name, text := range map[string]string{
		"newer": `{"name":"newer","description":"d","image":"i","command":["/tool"],"leash":"short"}`,
		"next":  `{"apiVersion":"toolfleet/v2","name":"next","description":"d","image":"i","command":["/tool"]}`,
		"junk":  `["junk"]`,
		"typed": `{"name":"typed","description":1}`,
		"twice": `{"name":"twice","name":"once"}`,
		"empty": `{}`,
	} {
		digest, err := digestOf([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		tools[name] = digest
		put(specPrefix+strings.TrimPrefix(digest, digestType), text)
	}
	// A text under another's name.
	forged := call.Digest("forged")
	tools["forged"] = forged
	put(specPrefix+strings.TrimPrefix(forged, digestType), `{"name":"forged","description":"d","image":"i","command":["/tool"]}`)
	raw, err := json.Marshal(writtenSet{Version: 1, Tools: tools})
	if err != nil {
		t.Fatal(err)
	}
	put(setSubject, string(raw))
	state := awaitState(t, f, "good with 11 faults", func(s State) bool { return len(s.Faults) == len(tools)-1 })
	if summary(state) != "good 1 bucket" {
		t.Errorf("it serves %s", summary(state))
	}
	told := ""
	for _, fault := range state.Faults {
		told += fault.Message + "\n"
	}
	for _, want := range []string{
		`tool "again" is not served: its declaration cannot be served: it declares "good"`,
		`tool "gone" is not served: its declaration is not in the bucket`,
		`tool "newer" is not served: its declaration cannot be served: unknown field "leash"; a field that is not known here may be one of a newer version`,
		`tool "next" is not served: its declaration cannot be served: apiVersion: expected toolfleet/v1`,
		`tool "typed" is not served: its declaration cannot be served: description: takes no JSON number`,
		`tool "twice" is not served: its declaration cannot be served: /name: is given twice`,
		`tool "forged" is not served: its declaration cannot be served: it is not the text`,
		`tool "odd" is not served: its declaration cannot be served: "md5:1" is no digest`,
	} {
		if !strings.Contains(told, want) {
			t.Errorf("%q is not in:\n%s", want, told)
		}
	}
	for range 3 {
		if err := f.Refresh(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if n := log.count("tools are not served"); n != 1 {
		t.Errorf("the faults were told %d times", n)
	}

	for text, want := range map[string]string{
		`{"version":2,"tools":{}}`: "was written by a newer version of Toolfleet (form 2; this one knows 1): upgrade this process",
		`{"tools":{}}`:             "is none (form 0",
		`junk`:                     "cannot be read",
	} {
		put(setSubject, text)
		state := awaitState(t, f, want, func(s State) bool { return len(s.Faults) == 1 && strings.Contains(s.Faults[0].Message, want) })
		if summary(state) != "good 1 bucket" {
			t.Errorf("with the set %s it serves %s", text, summary(state))
		}
		if _, err := s.Apply(t.Context(), Change{Tools: []Spec{named("x", "1")}}); err == nil {
			t.Errorf("the set %s was overwritten", text)
		}
	}
	put(setSubject, `{"version":1,"tools":{"good":"`+good+`"}}`)
	if state := awaitState(t, f, "good", func(s State) bool { return len(s.Faults) == 0 }); summary(state) != "good 1 bucket" {
		t.Errorf("it serves %s", summary(state))
	}
}

// A follower goes on where a server that was away has changed meanwhile.
func TestFollowOutlivesTheBucketsEnd(t *testing.T) {
	js := natsdtest.JetStream(t)
	s := openStore(t, js)
	apply(t, s, Change{Tools: []Spec{named("a", "1")}})
	f, await := follow(t, FollowerConfig{Store: openStore(t, js)})
	await("a 1 bucket")
	if err := js.DeleteStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	if err := f.Refresh(t.Context()); err == nil {
		t.Error("a bucket that is not there was read")
	}
	if state, _ := f.State(); summary(state) != "a 1 bucket" || len(state.Faults) != 1 {
		t.Errorf("without a bucket it serves %q, %v", summary(state), state.Faults)
	}
	s = openStore(t, js)
	apply(t, s, Change{Tools: []Spec{named("b", "1")}})
	await("b 1 bucket")
}

// A call runs the declaration that it was checked against, whatever becomes of
// the tool while it waits.
func TestCallKeepsItsDeclaration(t *testing.T) {
	js := natsdtest.JetStream(t)
	f, _ := follow(t, FollowerConfig{Store: openStore(t, js)})
	change := func(c Change) {
		t.Helper()
		if _, err := f.Apply(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	change(Change{Tools: []Spec{named("a", "1")}})
	waiting, refusal := f.Catalog().Check(aCall("a"), `{}`, time.Now())
	if refusal != nil {
		t.Fatal(refusal)
	}
	second := named("a", "2")
	second.Parameters = json.RawMessage(`{"type":"object","required":["x"]}`)
	change(Change{Tools: []Spec{second}})
	if _, refusal := f.Catalog().Check(aCall("a"), `{}`, time.Now()); refusal == nil || refusal.Kind() != call.KindInvalidArguments {
		t.Errorf("a call after the change: %+v", refusal)
	}
	change(Change{Delete: []string{"a"}})
	if _, refusal := f.Catalog().Check(aCall("a"), `{}`, time.Now()); refusal == nil || refusal.Kind() != call.KindUnknownTool {
		t.Errorf("a call after the end: %+v", refusal)
	}
	first := named("a", "1")
	if diff := cmp.Diff(&first, waiting.Spec, cmpopts.EquateEmpty()); diff != "" || waiting.SpecDigest != first.Digest() {
		t.Errorf("the call that waits has another declaration: %s", diff)
	}
}

// The first reading is strict, and tells everything.
func TestFollowRefusesFaultyFiles(t *testing.T) {
	dir := t.TempDir()
	if _, err := Follow(t.Context(), FollowerConfig{Dir: dir}); err == nil || !strings.Contains(err.Error(), "name the directory of your tools") {
		t.Errorf("an empty directory: %v", err)
	}
	write(t, dir, "1.tool.yaml", "a: 1\n")
	write(t, dir, "2.tool.yaml", minimal+"colour: red\n")
	_, err := Follow(t.Context(), FollowerConfig{Dir: dir})
	if problems, ok := errors.AsType[Problems](err); !ok || problems[len(problems)-1].Field != "colour" {
		t.Errorf("err = %v", err)
	}
	if _, err := Follow(t.Context(), FollowerConfig{Tools: []Spec{{Name: "a"}}}); err == nil {
		t.Error("a faulty tool is served")
	}
}

// A server that comes back, with changes that nobody here heard of, is followed
// again, and meanwhile everything is served as it was.
func TestFollowOutlivesItsServer(t *testing.T) {
	dir, port := t.TempDir(), natsdtest.FreePorts(t, 1)[0]
	start := func() *natsd.Server {
		return natsdtest.StartWith(t, natsd.Config{StoreDir: dir, Port: port})
	}
	server := start()
	nc, err := nats.Connect(server.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, openStore(t, js), Change{Tools: []Spec{named("a", "1")}})
	s := openStore(t, js)
	s.timeout = time.Second
	f, await := follow(t, FollowerConfig{Store: s})
	await("a 1 bucket")
	server.Shutdown()
	if err := f.Refresh(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("without a server: %v", err)
	}
	if _, err := f.Apply(t.Context(), Change{Tools: []Spec{named("a", "2")}}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("without a server: %v", err)
	}
	if state, _ := f.State(); summary(state) != "a 1 bucket" || len(state.Faults) != 1 {
		t.Errorf("without a server it serves %q, %v", summary(state), state.Faults)
	}
	other := natsdtest.JetStreamOn(t, start())
	apply(t, openStore(t, other), Change{Tools: []Spec{named("a", "3")}})
	if state := await("a 3 bucket"); len(state.Faults) > 0 {
		t.Errorf("faults = %v", state.Faults)
	}
	apply(t, openStore(t, other), Change{Tools: []Spec{named("a", "4")}})
	await("a 4 bucket")
}
