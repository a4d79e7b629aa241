package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
)

type text struct {
	Text string `json:"text" jsonschema:"a text"`
}

func run(t *testing.T, tl Tool, input string) Result {
	t.Helper()
	r, err := tl.Run(t.Context(), Request{ID: "c1", Name: tl.Info().Name, Input: json.RawMessage(input)})
	if err != nil {
		t.Fatal(err)
	}
	if r.CallID != "c1" {
		t.Errorf("call_id = %q", r.CallID)
	}
	return r
}

// returning makes a tool that returns a value and an error.
func returning[Out any](out Out, err error) Tool {
	return Define("t", "d", func(context.Context, *Call, struct{}) (Out, error) { return out, err })
}

// speechless is an error that cannot be read when it is nil.
type speechless struct{ words string }

func (s *speechless) Error() string { return s.words }

// unwritable panics when it is written.
type unwritable struct{}

func (unwritable) MarshalJSON() ([]byte, error) { panic("no words") }

func TestWhatAFunctionReturns(t *testing.T) {
	png := []byte("\x89PNG\r\n\x1a\n...")
	image := agui.MediaOf(png)
	failure := errors.New("no luck")
	for _, tt := range []struct {
		name  string
		tool  Tool
		want  []agui.Part
		extra []agui.Part
		kind  call.Kind
	}{
		{"text", returning("a<b", nil), []agui.Part{agui.Text("a<b")}, nil, ""},
		{"bytes", returning(png, nil), []agui.Part{image}, nil, ""},
		{"no bytes", returning([]byte{}, nil), nil, nil, ""},
		{"a struct", returning(text{"<é>"}, nil), []agui.Part{agui.Text(`{"text":"<é>"}`)}, nil, ""},
		{"a number", returning(7, nil), []agui.Part{agui.Text("7")}, nil, ""},
		{"a number of many digits", returning(struct{ N big.Int }{*big.NewInt(7)}, nil), []agui.Part{agui.Text(`{"N":7}`)}, nil, ""},
		{"nothing", returning[any](nil, nil), []agui.Part{agui.Text("null")}, nil, ""},
		{"a result", returning(Result{Content: []agui.Part{image}, Extra: []agui.Part{Reminder("r")}}, nil), []agui.Part{image}, []agui.Part{Reminder("r")}, ""},
		{"a result that says error", returning(Result{Content: []agui.Part{agui.Text("x")}, IsError: true}, nil), []agui.Part{agui.Text("x")}, nil, call.KindToolError},
		{"an error without words", returning("", errors.New(" ")), []agui.Part{agui.Text("The tool failed and did not say why.")}, nil, call.KindToolError},
		{"an error whose words panic", returning("", error((*speechless)(nil))), []agui.Part{agui.Text("panic: runtime error: invalid memory address or nil pointer dereference")}, nil, call.KindToolError},
		{"a value whose JSON panics", returning(unwritable{}, nil), []agui.Part{agui.Text("panic: no words")}, nil, call.KindToolError},
		{"an error", returning("", failure), []agui.Part{agui.Text("no luck")}, nil, call.KindToolError},
		{"text and an error", returning("half", failure), []agui.Part{agui.Text("half"), agui.Text("\nno luck")}, nil, call.KindToolError},
		{"a result and an error", returning(Result{Content: []agui.Part{image}, Extra: []agui.Part{Reminder("r")}}, failure), []agui.Part{image, agui.Text("\nno luck")}, []agui.Part{Reminder("r")}, call.KindToolError},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := run(t, tt.tool, "{}")
			if diff := cmp.Diff(tt.want, r.Content); diff != "" {
				t.Errorf("content (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.extra, r.Extra); diff != "" {
				t.Errorf("extra (-want +got):\n%s", diff)
			}
			if r.Kind() != tt.kind {
				t.Errorf("kind %q, want %q", r.Kind(), tt.kind)
			}
		})
	}
}

func TestUnwritableValueIsAnError(t *testing.T) {
	bad := returning[any](func() {}, nil)
	if _, err := bad.Run(t.Context(), Request{Input: json.RawMessage("{}")}); err == nil {
		t.Error("a function was written as JSON")
	}
}

func TestPanicIsAResult(t *testing.T) {
	var stack []byte
	tl := Define("t", "d", func(_ context.Context, c *Call, _ struct{}) (string, error) {
		c.Update(Update{Content: []agui.Part{agui.Text("so far")}})
		var x struct{}
		panic(fmt.Sprintf("at %p: gone", &x))
	})
	r, err := tl.Run(t.Context(), Request{Input: json.RawMessage("{}"), OnPanic: func(_ any, s []byte) { stack = s }})
	if err != nil {
		t.Fatal(err)
	}
	want := []agui.Part{agui.Text("so far"), agui.Text("\npanic: at 0x…: gone")}
	if diff := cmp.Diff(want, r.Content); diff != "" || !r.IsError {
		t.Errorf("content (-want +got):\n%s", diff)
	}
	if !bytes.Contains(stack, []byte("TestPanicIsAResult")) {
		t.Errorf("stack = %s", stack)
	}
}

func TestInputIsCheckedAgain(t *testing.T) {
	tl := Define("t", "d", func(_ context.Context, _ *Call, in struct {
		A string `json:"a"`
		B int    `json:"b,omitempty"`
	},
	) (string, error) {
		return in.A, nil
	}, EditInput(func(s *jsonschema.Schema) { s.Properties["a"].Enum = []any{"x", "y"} }))
	for in, want := range map[string]string{
		`{"a":"x","b":1}`:    "x",
		`{"A":"x"}`:          "The arguments do not fit:\n- lacks \"a\"\n- /A: is unknown",
		`{"a":"z","b":1}`:    "The arguments do not fit:\n- /a: enum: z does not equal any of: [x y]",
		`{"a":"x","b":""}`:   "The arguments do not fit:\n- /b: type:  has type \"string\", want \"integer\"",
		`{"a":"x","a":""}`:   "The arguments do not fit:\n- /a: is given twice",
		`{"a":"x","b":1e30}`: "The arguments do not fit:\n- json: cannot unmarshal number 1e30 into Go struct field .b of type int",
		``:                   "The arguments do not fit:\n- is empty and not JSON; an object without members is {}",
	} {
		r := run(t, tl, in)
		if got := r.Content[0].Text; got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
		if r.IsError && r.Kind() != call.KindInvalidArguments {
			t.Errorf("%s: kind %q", in, r.Kind())
		}
	}
}

func TestInfo(t *testing.T) {
	tl := DefineParallel("t", "d", func(context.Context, *Call, text) (text, error) { return text{}, nil },
		UseWhen("often"), Annotate(Annotations{ReadOnly: true}))
	got, err := json.Marshal(tl.Info())
	if err != nil {
		t.Fatal(err)
	}
	object := `{"type":"object","properties":{"text":{"type":"string","description":"a text"}},"required":["text"],"additionalProperties":false}`
	want := `{"name":"t","description":"d","use_when":"often","input_schema":` + object + `,"output_schema":` + object + `,"parallel":true,"annotations":{"readOnly":true,"idempotent":true}}`
	if string(got) != want {
		t.Errorf("info = %s\nwant   %s", got, want)
	}
	for name, tl := range map[string]Tool{
		"text": returning("", nil), "bytes": returning([]byte{}, nil), "result": returning(Result{}, nil), "any": returning[any](1, nil),
	} {
		if s := tl.Info().OutputSchema; s != nil {
			t.Errorf("%s has the output schema %s", name, s)
		}
	}
	loose := Define("t", "d", func(context.Context, *Call, json.RawMessage) (string, error) { return "", nil })
	if s := string(loose.Info().InputSchema); s != `{"type":"object"}` {
		t.Errorf("any arguments are %s", s)
	}
}

func TestDefinePanics(t *testing.T) {
	type loop struct{ Next *loop }
	for want, define := range map[string]func(){
		`tool: "bad name"`: func() { Define("bad name", "d", func(context.Context, *Call, text) (string, error) { return "", nil }) },
		`chan int`: func() {
			Define("t", "d", func(context.Context, *Call, struct{ C chan int }) (string, error) { return "", nil })
		},
		`tool.loop`: func() { Define("t", "d", func(context.Context, *Call, loop) (string, error) { return "", nil }) },
		`tool: "t": there is no function`: func() {
			Define[text, string]("t", "d", nil)
		},
		`tool: "t": type *call.Result: a result is returned as a value`: func() { returning[*Result](nil, nil) },
		`tool: "t": type tool.text: an option: runtime error: invalid memory address`: func() {
			Define("t", "d", func(context.Context, *Call, text) (string, error) { return "", nil }, EditInput(func(s *jsonschema.Schema) { s.Properties["txet"].Pattern = "x" }))
		},
		`func()`:                      func() { returning(struct{ F func() }{}, nil) },
		`arguments are a JSON object`: func() { Define("t", "d", func(context.Context, *Call, string) (string, error) { return "", nil }) },
		`error parsing regexp`: func() {
			Define("t", "d", func(context.Context, *Call, text) (string, error) { return "", nil }, EditInput(func(s *jsonschema.Schema) { s.Properties["text"].Pattern = "(" }))
		},
		`tool: "w": the config of server type x is no JSON object`: func() {
			DefineServer(Info{Name: "w", ServerType: "x", ServerConfig: json.RawMessage(` []`)})
		},
		`tool: "w": a server tool has a server type`: func() { DefineServer(Info{Name: "w"}) },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("panic %q, want %q", got, want)
				}
			}()
			define()
		}()
	}
}

func TestServerToolIsNeverRun(t *testing.T) {
	tl := DefineServer(Info{Name: "web", ServerType: "web_search", ServerConfig: json.RawMessage(`{"max_uses":3}`)})
	if _, err := tl.Run(t.Context(), Request{}); !errors.Is(err, ErrServerTool) {
		t.Errorf("error = %v", err)
	}
	if tl.Info().Kind != KindServer {
		t.Errorf("kind = %q", tl.Info().Kind)
	}
}

func TestUpdates(t *testing.T) {
	var got []string
	late := make(chan *Call, 1)
	tl := Define("t", "d", func(ctx context.Context, c *Call, _ struct{}) (string, error) {
		late <- c
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { c.Update(Update{Message: "working"}) })
		}
		all.Wait()
		return c.ID + " " + c.Name, nil
	})
	r, err := tl.Run(t.Context(), Request{ID: "c1", Name: "alias", Input: json.RawMessage("{}"), OnUpdate: func(u Update) { got = append(got, u.Message) }})
	if err != nil || r.Content[0].Text != "c1 alias" {
		t.Fatalf("%+v, %v", r, err)
	}
	(<-late).Update(Update{Message: "late"})
	if len(got) != 8 || strings.Contains(strings.Join(got, ""), "late") {
		t.Errorf("updates = %q", got)
	}
	if r := run(t, tl, "{}"); r.IsError { // nobody listens
		t.Errorf("%+v", r)
	}
}

// A tool may go on writing into the list of an update that nobody has read yet.
func TestUpdateIsACopy(t *testing.T) {
	var first Update
	tl := Define("t", "d", func(_ context.Context, c *Call, _ struct{}) (string, error) {
		parts := []agui.Part{agui.Text("half")}
		c.Update(Update{Content: parts})
		parts[0] = agui.Text("whole")
		return "", errors.New("e")
	})
	r, err := tl.Run(t.Context(), Request{Input: json.RawMessage("{}"), OnUpdate: func(u Update) { first = u }})
	if err != nil {
		t.Fatal(err)
	}
	if got := first.Content[0].Text + " " + r.Content[0].Text; got != "half half" {
		t.Errorf("update and result hold %q", got)
	}
}

func TestUpdateIsDroppedOnceTheContextIsDone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	tl := Define("t", "d", func(_ context.Context, c *Call, _ struct{}) (string, error) {
		cancel()
		c.Update(Update{})
		return "", nil
	})
	if _, err := tl.Run(ctx, Request{Input: json.RawMessage("{}"), OnUpdate: func(Update) { t.Error("an update got through") }}); err != nil {
		t.Fatal(err)
	}
}

func TestHooks(t *testing.T) {
	var order []string
	hooks := func(name string, deny error) Hooks {
		return Hooks{
			Before: func(context.Context, Info, Request) error { order = append(order, "before "+name); return deny },
			After: func(_ context.Context, _ Info, _ Request, r Result) Result {
				order = append(order, "after "+name)
				r.Extra = append(r.Extra, Reminder(name))
				return r
			},
		}
	}
	tl := Wrap(Wrap(returning("x", nil), hooks("inner", nil)), hooks("outer", nil))
	r := run(t, tl, "{}")
	if diff := cmp.Diff([]string{"before outer", "before inner", "after inner", "after outer"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]agui.Part{agui.Text("x"), Reminder("inner"), Reminder("outer")}, r.Contents()); diff != "" {
		t.Errorf("contents (-want +got):\n%s", diff)
	}
	replaced := Wrap(returning("x", nil), Hooks{After: func(context.Context, Info, Request, Result) Result { return Result{} }})
	run(t, replaced, "{}") // which asks for the call_id
	denied := run(t, Wrap(returning("x", nil), hooks("guard", errors.New("not on Sundays"))), "{}")
	if denied.Kind() != call.KindDeclined || denied.Content[0].Text != "The call was denied: not on Sundays" || len(denied.Extra) != 1 {
		t.Errorf("denied = %+v", denied)
	}
	if failed := run(t, Wrap(returning("", errors.New("e")), hooks("x", nil)), "{}"); !failed.IsError || len(failed.Extra) != 1 {
		t.Errorf("failed = %+v", failed)
	}
}

func TestSchemaThatCannotBeWrittenFailsInfo(t *testing.T) {
	tl := Define("t", "d", func(context.Context, *Call, text) (string, error) { return "", nil },
		EditInput(func(s *jsonschema.Schema) { s.Properties["text"].Default = json.RawMessage("{") }))
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, `tool: "t": the schema cannot be written`) {
			t.Errorf("panic %q", got)
		}
	}()
	tl.Info()
}

func ExampleDefine() {
	type trip struct {
		From string `json:"from" jsonschema:"an airport"`
		To   string `json:"to" jsonschema:"an airport"`
	}
	book := Define("book-flight", "Books a flight.", func(_ context.Context, c *Call, in trip) (string, error) {
		c.Update(Update{Message: "looking for seats"})
		if in.From == in.To {
			return "", errors.New("you are there already")
		}
		return "booked", nil
	})
	r, err := book.Run(context.Background(), Request{ID: "call-1", Input: json.RawMessage(`{"from":"ZRH","to":"ZRH"}`)})
	if err != nil {
		panic(err) // the tool could not be served
	}
	fmt.Println(r.IsError, r.Content[0].Text)
	// Output: true you are there already
}

func ExampleWrap() {
	remove := Define("delete", "Deletes a file.", func(_ context.Context, _ *Call, in struct {
		Name string `json:"name"`
	},
	) (string, error) {
		return "deleted " + in.Name, nil
	})
	careful := Wrap(remove, Hooks{
		Before: func(_ context.Context, _ Info, req Request) error {
			if strings.Contains(string(req.Input), "..") {
				return errors.New("only files in here may be deleted")
			}
			return nil
		},
		After: func(_ context.Context, _ Info, _ Request, r Result) Result {
			if !r.IsError {
				r.Extra = append(r.Extra, Reminder("Say what you have deleted."))
			}
			return r
		},
	})
	for _, input := range []string{`{"name":"a.txt"}`, `{"name":"../b.txt"}`} {
		r, err := careful.Run(context.Background(), Request{Input: json.RawMessage(input)})
		if err != nil {
			panic(err) // the tool could not be served
		}
		text, _ := agui.Content{Parts: r.Contents()}.Flatten()
		fmt.Println(text)
	}
	// Output:
	// deleted a.txt
	//
	// Say what you have deleted.
	// The call was denied: only files in here may be deleted
}
