package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
)

// asTool makes the test binary be a tool program, so that Main is tested as the
// process that it is.
const asTool = "TOOLFLEET_TEST_AS_TOOL"

func TestMain(m *testing.M) {
	switch os.Getenv(asTool) {
	case "":
	case "described":
		Main(Described...)
	default:
		Main(echo, waits)
	}
	goleak.VerifyTestMain(m)
}

var (
	echo = Define("echo", "Says it again.", func(_ context.Context, c *Call, in text) (string, error) {
		c.Update(Update{Current: 1, Total: 2, Message: "thinking"})
		if in.Text == "" {
			return "", errors.New("nothing to say")
		}
		return in.Text, nil
	})
	// waits says that it has begun, and ends when it is told to.
	waits = Define("waits", "Waits.", func(ctx context.Context, c *Call, _ struct{}) (string, error) {
		c.Update(Update{Message: "waiting"})
		<-ctx.Done()
		return "so far", errors.New("told to stop")
	})
)

// messages is a descriptor 3.
type messages struct{ bytes.Buffer }

func (*messages) Close() error { return nil }

// ran is what a program did.
type ran struct {
	code           int
	stdout, stderr string
	messages       string
}

func runProgram(t *testing.T, tools []Tool, args []string, env map[string]string, stdin string) ran {
	t.Helper()
	var stdout, stderr bytes.Buffer
	var fd3 messages
	code := program{
		tools: tools, args: args, getenv: func(name string) string { return env[name] },
		stdin: strings.NewReader(stdin), stdout: &stdout, stderr: &stderr,
		open: func(string) (io.WriteCloser, error) { return &fd3, nil },
	}.run(t.Context())
	return ran{code, stdout.String(), stderr.String(), fd3.String()}
}

func TestMainAnswersOnFD3(t *testing.T) {
	env := map[string]string{EnvFD: "3", EnvCallID: "c1", EnvTool: "alias"}
	for name, tt := range map[string]struct{ in, want string }{
		"success": {`{"text":"a<b"}`, `{"type":"update","current":1,"total":2,"message":"thinking"}
{"type":"result","call_id":"c1","content":[{"type":"text","text":"a<b"}]}
`},
		"an error exits with 0 too": {`{"text":""}`, `{"type":"update","current":1,"total":2,"message":"thinking"}
{"type":"result","call_id":"c1","content":[{"type":"text","text":"nothing to say"}],"is_error":true}
`},
	} {
		t.Run(name, func(t *testing.T) {
			got := runProgram(t, []Tool{echo}, nil, env, tt.in)
			if diff := cmp.Diff(ran{messages: tt.want}, got, cmp.AllowUnexported(ran{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestMainByHand(t *testing.T) {
	png := returning([]byte("\x89PNG\r\n\x1a\n"), nil)
	mixed := returning(Result{Content: []agui.Part{agui.Text("see:"), agui.MediaOf([]byte("%PDF-"))}}, nil)
	for _, tt := range []struct {
		name  string
		tools []Tool
		args  []string
		env   map[string]string
		in    string
		want  ran
	}{
		{"text", []Tool{echo}, nil, nil, `{"text":"hi"}`, ran{0, "hi\n", "1/2 thinking\n", ""}},
		{"an error", []Tool{echo}, nil, nil, `{"text":""}`, ran{1, "nothing to say\n", "1/2 thinking\n", ""}},
		{"media", []Tool{png}, nil, nil, `{}`, ran{0, "\x89PNG\r\n\x1a\n", "", ""}},
		{"text and media", []Tool{mixed}, nil, nil, `{}`, ran{0, "see:\n", "(a part of type document is not shown)\n", ""}},
		{"chosen", []Tool{echo, png}, nil, map[string]string{EnvTool: "echo"}, `{"text":"hi"}`, ran{0, "hi\n", "1/2 thinking\n", ""}},
		{"not chosen", []Tool{echo, png}, nil, nil, `{}`, ran{2, "", "set TOOLFLEET_TOOL to one of: echo, t\n", ""}},
		{"misused", []Tool{echo}, []string{"-x"}, nil, ``, ran{2, "", "usage: a JSON object on stdin, or --describe [tool]\n", ""}},
		{"too long", []Tool{echo}, nil, nil, `{"text":"` + strings.Repeat("x", call.MaxArguments) + `"}`, ran{1, "The arguments do not fit:\n- is not JSON: unexpected end of JSON input (at byte 1048577)\n", "", ""}},
		{"infrastructure", []Tool{returning[any](func() {}, nil)}, nil, nil, `{}`, ran{1, "", "tool: encode: json: unsupported type: func()\n", ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := runProgram(t, tt.tools, tt.args, tt.env, tt.in)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(ran{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// own is a Tool of its author's own.
type own struct {
	info Info
	run  func(Request) (Result, error)
}

func (o own) Info() Info { return o.info }

func (o own) Run(_ context.Context, req Request) (Result, error) { return o.run(req) }

func TestMainServesTypesOfTheirOwn(t *testing.T) {
	var late func(Update)
	tl := own{Info{Name: "own"}, func(req Request) (Result, error) {
		req.OnUpdate(Update{Message: "here"})
		late = req.OnUpdate
		panic("own goal")
	}}
	got := runProgram(t, []Tool{tl}, nil, map[string]string{EnvFD: "3", EnvCallID: "c1"}, `{}`)
	late(Update{Message: "late"})
	want := `{"type":"update","message":"here"}
{"type":"result","call_id":"c1","content":[{"type":"text","text":"panic: own goal"}],"is_error":true}
`
	if got.messages != want || got.code != 0 || !strings.Contains(got.stderr, "TestMainServesTypesOfTheirOwn") {
		t.Errorf("code %d, messages %s\nstderr %s", got.code, got.messages, got.stderr)
	}
}

func TestMainRefusesToolsThatCannotBeServed(t *testing.T) {
	for want, tools := range map[string][]Tool{
		"this program has no tools":                nil,
		`tool: "echo": two tools have this name`:   {echo, waits, echo},
		`tool: "my tool": the name is not 1 to 64`: {own{info: Info{Name: "my tool"}}},
		`there is no tool "cho" here, but: echo`:   {echo},
	} {
		if got := runProgram(t, tools, []string{"--describe", "cho"}, nil, ""); got.code != 2 || !strings.HasPrefix(got.stderr, want) {
			t.Errorf("code %d, stderr %q, want %q", got.code, got.stderr, want)
		}
	}
}

func TestDescribeNamesTheToolThatCannotBeWritten(t *testing.T) {
	got := runProgram(t, []Tool{echo, own{info: Info{Name: "own", InputSchema: json.RawMessage("{")}}}, []string{"--describe"}, nil, "")
	if got.code != 1 || got.stdout != "" || !strings.HasPrefix(got.stderr, `tool: describe "own": `) {
		t.Errorf("code %d, stdout %q, stderr %q", got.code, got.stdout, got.stderr)
	}
}

func TestLargeResults(t *testing.T) {
	env := map[string]string{EnvFD: "3"}
	large := strings.Repeat("x", MaxMessage)
	if got := runProgram(t, []Tool{returning(large, nil)}, nil, env, `{}`); got.stdout != large || got.messages != "" || got.code != 0 {
		t.Errorf("a large text: code %d, %d bytes on stdout, messages %.100q", got.code, len(got.stdout), got.messages)
	}
	if got := runProgram(t, []Tool{returning([]byte(large), nil)}, nil, env, `{}`); got.stdout != large || got.messages != "" {
		t.Errorf("large bytes: %d bytes on stdout, messages %.100q", len(got.stdout), got.messages)
	}
	got := runProgram(t, []Tool{returning(Result{Content: []agui.Part{agui.Text(large), agui.Text("y")}}, nil)}, nil, env, `{}`)
	r, err := DecodeResult([]byte(got.messages))
	if err != nil || !r.IsError || !strings.Contains(r.Content[0].Text, "at most 524288 are allowed") {
		t.Errorf("large parts: %+v, %v", r, err)
	}
}

// blockedWriter is a reader that stalls until it is let go.
type blockedWriter struct {
	began chan struct{}
	free  chan struct{}
	lines []string
}

func (b *blockedWriter) Write(p []byte) (int, error) {
	select {
	case b.began <- struct{}{}:
		<-b.free
	default:
	}
	b.lines = append(b.lines, string(p))
	return len(p), nil
}

func TestSenderNeverBlocksAndTheLatestWins(t *testing.T) {
	w := &blockedWriter{began: make(chan struct{}), free: make(chan struct{})}
	s := newSender(w)
	s.send(Update{Current: 1})
	<-w.began
	for i := range 1000 { // the reader stalls all the while
		s.send(Update{Current: float64(i + 2)})
	}
	close(w.free)
	s.close()
	s.send(Update{Message: "late"})
	want := []string{`{"type":"update","current":1}` + "\n", `{"type":"update","current":1001}` + "\n"}
	if diff := cmp.Diff(want, w.lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestSenderLeavesWhatDoesNotFit(t *testing.T) {
	var b bytes.Buffer
	s := newSender(&b)
	s.send(Update{Current: 1, Content: []agui.Part{agui.Text(strings.Repeat("x", MaxMessage))}})
	s.close()
	if b.String() != `{"type":"update","current":1}`+"\n" {
		t.Errorf("wrote %.100q", b.String())
	}
}

// command starts the test binary as a tool program with a descriptor 3.
func command(t *testing.T, name, stdin string) (cmd *exec.Cmd, messages *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { read.Close() })
	cmd = exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), asTool+"=1", EnvFD+"=3", EnvCallID+"=c1", EnvTool+"="+name)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.ExtraFiles = []*os.File{write}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	return cmd, read
}

func TestMainIsAProcess(t *testing.T) {
	cmd, messages := command(t, "echo", `{"text":"hi"}`)
	got, err := io.ReadAll(messages)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(got), `{"type":"result","call_id":"c1","content":[{"type":"text","text":"hi"}]}`+"\n") {
		t.Errorf("messages = %s", got)
	}
}

func TestSIGTERMCancels(t *testing.T) {
	cmd, messages := command(t, "waits", `{}`)
	lines := agui.NewLineReader(messages)
	if first, err := lines.Next(); err != nil || string(first) != `{"type":"update","message":"waiting"}` {
		t.Fatalf("first message %s, %v", first, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	raw, err := lines.Next()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	r, err := DecodeResult(raw)
	if err != nil || !r.IsError || fmt.Sprint(r.Content[0].Text, r.Content[1].Text) != "so far\ntold to stop" {
		t.Errorf("result %s, %v", raw, err)
	}
}

func TestOpenFD(t *testing.T) {
	for _, number := range []string{"", "x", "-1", "1", "9999"} {
		if f, err := openFD(number); err == nil {
			f.Close()
			t.Errorf("%q was opened", number)
		}
	}
}
