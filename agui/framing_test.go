package agui

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestFrames(t *testing.T) {
	var b bytes.Buffer
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(WriteFrame(&b, Frame{Data: []byte(`{"a":1}`)}))
	check(WriteComment(&b, "keep-alive\ndata: {}"))
	check(WriteFrame(&b, Frame{ID: "7", Data: []byte("{\n\"a\": \"x\\ny\"\r\n}")}))
	want := "data: {\"a\":1}\n\n: keep-alive data: {}\n\nid: 7\ndata: {\"a\":\"x\\ny\"}\n\n"
	if b.String() != want {
		t.Errorf("wrote %q, want %q", b.String(), want)
	}
	if err := WriteFrame(&b, Frame{ID: "7\ndata: x", Data: []byte("{}")}); err == nil {
		t.Error("an id wrote a line of its own")
	}
	got := readFrames(t, strings.NewReader(want))
	if diff := cmp.Diff([]Frame{{Data: []byte(`{"a":1}`)}, {ID: "7", Data: []byte(`{"a":"x\ny"}`)}}, got); diff != "" {
		t.Errorf("frames (-want +got):\n%s", diff)
	}
}

func readFrames(t *testing.T, r io.Reader) []Frame {
	t.Helper()
	var got []Frame
	for frames := NewFrameReader(r); ; {
		f, err := frames.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, f)
	}
}

func TestFrameReaderIsLiberal(t *testing.T) {
	for in, want := range map[string]string{
		"data:{}\n\n":      "{}",
		"data: {}\r\n\r\n": "{}",
		": c\nevent: x\nretry: 5\nnonsense\ndata: {}\n\n": "{}",
		"data: {\ndata: }\n\n":                            "{\n}",
		"\n\n\ndata: {}":                                  "{}",
		"id: 3\n\ndata: {}\n\n":                           "{}",
	} {
		for _, r := range []io.Reader{strings.NewReader(in), iotest.OneByteReader(strings.NewReader(in))} {
			got := readFrames(t, r)
			if len(got) != 1 || string(got[0].Data) != want {
				t.Errorf("%q: frames %q", in, got)
			}
		}
	}
}

func TestReadersBound(t *testing.T) {
	for name, in := range map[string]string{
		"a line":  "data: " + strings.Repeat("x", MaxEvent+1) + "\n\n",
		"a frame": strings.Repeat("data: "+strings.Repeat("x", 1<<20)+"\n", 11) + "\n",
		"no data": strings.Repeat("x", MaxEvent+100),
	} {
		var malformed *MalformedError
		if _, err := NewFrameReader(strings.NewReader(in)).Next(); !errors.As(err, &malformed) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if f := readFrames(t, strings.NewReader("data: "+strings.Repeat("x", MaxEvent)+"\n\n")); len(f) != 1 {
		t.Errorf("a frame of the largest size: %d frames", len(f))
	}
	broken := errors.New("broken")
	if _, err := NewFrameReader(io.MultiReader(strings.NewReader("data: {}\n"), iotest.ErrReader(broken))).Next(); !errors.Is(err, broken) {
		t.Errorf("error %v, want the reader's", err)
	}
}

func TestLines(t *testing.T) {
	var b bytes.Buffer
	for _, data := range []string{`{"a":1}`, "{\n}"} {
		if err := WriteLine(&b, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	if b.String() != "{\"a\":1}\n{}\n" {
		t.Errorf("wrote %q", b.String())
	}
	lines := NewLineReader(strings.NewReader("\n{\"a\":1}\r\n \n{}"))
	var got []string
	for {
		line, err := lines.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(line))
	}
	if diff := cmp.Diff([]string{`{"a":1}`, `{}`}, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func FuzzFrameReader(f *testing.F) {
	f.Add("id: 7\ndata: {}\n\n: c\n\ndata: {\ndata: }\r\n\r\n")
	f.Add("data")
	f.Fuzz(func(t *testing.T, in string) {
		whole, bytewise := NewFrameReader(strings.NewReader(in)), NewFrameReader(iotest.OneByteReader(strings.NewReader(in)))
		for {
			a, errA := whole.Next()
			b, errB := bytewise.Next()
			if diff := cmp.Diff(a, b); diff != "" || (errA == nil) != (errB == nil) {
				t.Fatalf("split anew, the frames differ: %v, %v\n%s", errA, errB, diff)
			}
			if errA != nil {
				return
			}
		}
	})
}
