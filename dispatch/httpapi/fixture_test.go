package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
	"github.com/toolfleet/toolfleet/dispatch/httpapi"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natsdtest.Main(m)) }

// door is a running server and a client of it.
type door struct {
	t      *testing.T
	server *httpapi.Server
	client *http.Client
	// stop ends the server and waits for it.
	stop func()
}

func open(t *testing.T, f *dispatchtest.Fleet, changes ...func(*httpapi.Config)) *door {
	t.Helper()
	c := httpapi.Config{
		Addr: "127.0.0.1:0", Dispatcher: f.Dispatcher, Tools: f.Catalog, Metrics: f.Metrics,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, change := range changes {
		change(&c)
	}
	s, err := httpapi.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	d := &door{t: t, server: s, client: &http.Client{Transport: &http.Transport{}}}
	d.stop = func() { cancel(); <-done }
	t.Cleanup(func() {
		d.client.CloseIdleConnections()
		d.stop()
	})
	return d
}

// answer is one response, read whole.
type answer struct {
	Status int
	Header http.Header
	Body   string
}

// request makes a request; header lines are "Name: value".
func (d *door) request(method, path, body string, header ...string) *http.Request {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.server.URL()+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
		if name == "Host" {
			req.Host = value
		}
		if value == "" {
			req.Header.Del(name)
		}
	}
	return req
}

func (d *door) do(method, path, body string, header ...string) answer {
	d.t.Helper()
	return d.send(d.request(method, path, body, header...))
}

func (d *door) send(req *http.Request) answer {
	d.t.Helper()
	res, err := d.client.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(text)}
}

// call submits a call and expects a status.
func (d *door) call(status int, path, body string, header ...string) callBody {
	d.t.Helper()
	a := d.do(http.MethodPost, path, body, header...)
	if a.Status != status {
		d.t.Fatalf("status %d, want %d: %s", a.Status, status, a.Body)
	}
	return decode[callBody](d.t, a.Body)
}

// callBody is a call as a client reads it.
type callBody struct {
	ID         string    `json:"id"`
	ToolCallID string    `json:"toolCallId"`
	ThreadID   string    `json:"threadId"`
	RunID      string    `json:"runId"`
	Tool       string    `json:"tool"`
	Status     string    `json:"status"`
	Cancelling bool      `json:"cancelling"`
	Admitted   time.Time `json:"admitted"`
	Ended      time.Time `json:"ended"`
	Result     *struct {
		Content   []agui.Part `json:"content"`
		IsError   bool        `json:"isError"`
		Error     *call.Error `json:"error"`
		Execution *struct {
			Attempt int `json:"attempt"`
		} `json:"execution"`
	} `json:"result"`
}

func (b callBody) text() string {
	if b.Result == nil {
		return ""
	}
	s, _ := agui.ContentOf(b.Result.Content).Flatten()
	return s
}

// problemBody is a problem document.
type problemBody struct {
	Status int    `json:"status"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Errors []struct {
		Message  string `json:"message"`
		Location string `json:"location"`
	} `json:"errors"`
}

// wantProblem checks that an answer is a problem document of a status.
func (d *door) wantProblem(a answer, status int) problemBody {
	d.t.Helper()
	if ct := a.Header.Get("Content-Type"); a.Status != status || ct != "application/problem+json" {
		d.t.Fatalf("status %d, type %q, want a problem with %d: %s", a.Status, ct, status, a.Body)
	}
	p := decode[problemBody](d.t, a.Body)
	if p.Status != status || p.Title == "" || p.Detail == "" {
		d.t.Errorf("incomplete problem: %s", a.Body)
	}
	if strings.Contains(a.Body, "goroutine") || strings.Contains(a.Body, ".go:") {
		d.t.Errorf("a stack trace: %s", a.Body)
	}
	return p
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// stream is an open event stream.
type stream struct {
	t    *testing.T
	res  *http.Response
	scan *bufio.Scanner
}

func (d *door) stream(method, path, body string, header ...string) *stream {
	d.t.Helper()
	res, err := d.client.Do(d.request(method, path, body, append(header, "Accept: text/event-stream")...))
	if err != nil {
		d.t.Fatal(err)
	}
	if ct := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || ct != "text/event-stream" {
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		d.t.Fatalf("status %d, type %q: %s", res.StatusCode, ct, text)
	}
	d.t.Cleanup(func() { res.Body.Close() })
	s := &stream{t: d.t, res: res, scan: bufio.NewScanner(res.Body)}
	s.scan.Buffer(nil, 8<<20)
	return s
}

// frame is one server-sent event, or a comment.
type frame struct{ ID, Type, Data, Comment string }

// next returns the next frame, or io.EOF.
func (s *stream) next() (frame, error) {
	var f frame
	for s.scan.Scan() {
		line := s.scan.Text()
		switch {
		case strings.HasSuffix(line, "\r"):
			s.t.Fatal("a line ends in CRLF")
		case line == "":
			return f, nil
		case strings.HasPrefix(line, "id: "):
			f.ID = line[4:]
		case strings.HasPrefix(line, ": "):
			f.Comment = line[2:]
		case strings.HasPrefix(line, "data: "):
			f.Data = line[6:]
			f.Type = decode[struct{ Type string }](s.t, f.Data).Type
		default:
			s.t.Fatalf("odd line %q", line)
		}
	}
	if err := s.scan.Err(); err != nil {
		return frame{}, err
	}
	return frame{}, io.EOF
}

// until reads up to the first event of a type and returns what was read.
func (s *stream) until(typ string) []frame {
	s.t.Helper()
	var fs []frame
	for {
		f, err := s.next()
		if err != nil {
			s.t.Fatalf("no %s: %v (after %v)", typ, err, fs)
		}
		fs = append(fs, f)
		if f.Type == typ {
			return fs
		}
	}
}

// rest reads to the end.
func (s *stream) rest() []frame {
	s.t.Helper()
	var fs []frame
	for {
		f, err := s.next()
		if errors.Is(err, io.EOF) {
			return fs
		}
		if err != nil {
			s.t.Fatal(err)
		}
		fs = append(fs, f)
	}
}

// verify holds what a stream said against the strict decoder and the verifier.
func verify(t *testing.T, fs []frame) {
	t.Helper()
	var (
		d agui.Decoder
		v agui.Verifier
	)
	for _, f := range fs {
		ev, warnings, err := d.Decode([]byte(f.Data))
		if err != nil || len(warnings) > 0 || ev == nil {
			t.Fatalf("%s: %v %v", f.Data, err, warnings)
		}
		if err := v.Check(ev); err != nil {
			t.Error(err)
		}
	}
	if err := v.End(); err != nil {
		t.Error(err)
	}
}

func typesOf(fs []frame) string {
	var names []string
	for _, f := range fs {
		if f.Type == "ACTIVITY_DELTA" && len(names) > 0 && names[len(names)-1] == f.Type {
			continue
		}
		names = append(names, f.Type)
	}
	return strings.Join(names, " ")
}

// echo answers with its arguments.
func echo(_ context.Context, r *dispatchtest.Running) call.Result {
	r.Update("one", 1)
	return call.Result{Content: []agui.Part{agui.Text(r.Args)}}
}

// hang waits for its end.
func hang(ctx context.Context, r *dispatchtest.Running) call.Result {
	r.Update("working", 1)
	<-ctx.Done()
	return call.Result{Content: []agui.Part{agui.Text("so far")}}
}

// fleet has a worker and the tools echo and hang.
func fleet(t *testing.T) *dispatchtest.Fleet {
	t.Helper()
	f := dispatchtest.New(t, dispatchtest.Spec("echo", nil), dispatchtest.Spec("hang", nil))
	f.Work(t, map[string]dispatchtest.Tool{"echo": echo, "hang": hang})
	return f
}
