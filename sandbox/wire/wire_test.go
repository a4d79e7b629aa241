package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// raw is a frame as bytes, right or wrong.
func raw(size uint32, kind byte, stream uint32, payload string) string {
	b := binary.BigEndian.AppendUint32(nil, size)
	b = append(b, kind)
	b = binary.BigEndian.AppendUint32(b, stream)
	return string(b) + payload
}

func TestRoundTrip(t *testing.T) {
	frames := []wire.Frame{
		{Kind: wire.KindHello, Payload: []byte(`{"version":1}`)},
		{Kind: wire.KindStdinClose, Stream: 1, Payload: []byte{}},
		{Kind: wire.KindStart, Stream: 1<<32 - 1, Payload: bytes.Repeat([]byte("s"), wire.MaxPayload)},
		{Kind: wire.KindStdout, Stream: 2, Payload: bytes.Repeat([]byte{0xff}, wire.MaxChunk)},
		{Kind: wire.KindMessage, Stream: 2, Payload: bytes.Repeat([]byte("m"), wire.MaxMessage)},
		{Kind: wire.KindExit, Stream: 2, Payload: []byte("{}")},
	}
	var stream bytes.Buffer
	w := wire.NewWriter(&stream)
	for _, f := range frames {
		if err := w.Frame(f.Kind, f.Stream, f.Payload); err != nil {
			t.Fatal(err)
		}
	}
	all := stream.Bytes()
	for name, source := range map[string]io.Reader{
		"whole":        bytes.NewReader(all),
		"byte by byte": iotest.OneByteReader(bytes.NewReader(all)),
		"with its end": iotest.DataErrReader(bytes.NewReader(all)),
	} {
		r := wire.NewReader(source)
		for _, want := range frames {
			got, err := r.Next()
			if err != nil {
				t.Fatalf("%s: %v: %v", name, want.Kind, err)
			}
			if got.Kind != want.Kind || got.Stream != want.Stream || !bytes.Equal(got.Payload, want.Payload) {
				t.Errorf("%s: got %v on %d with %d bytes, want %v on %d with %d", name,
					got.Kind, got.Stream, len(got.Payload), want.Kind, want.Stream, len(want.Payload))
			}
		}
		if _, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: at the end: %v", name, err)
		}
	}
}

func TestReaderRefuses(t *testing.T) {
	for _, c := range []struct {
		name, stream string
		want         error
		says         string
	}{
		{"nothing", "", io.EOF, ""},
		{"half a header", "\x00\x00", io.ErrUnexpectedEOF, ""},
		{"half a payload", raw(4, byte(wire.KindStdout), 1, "ab"), io.ErrUnexpectedEOF, ""},
		{"no payload", raw(4, byte(wire.KindStdout), 1, ""), io.ErrUnexpectedEOF, ""},
		{"kind 0", raw(0, 0, 0, ""), wire.ErrFrame, "kind 0 is unknown"},
		{"a kind of tomorrow", raw(0, 99, 1, ""), wire.ErrFrame, "kind 99 is unknown"},
		{"kind 255", raw(0, 255, 0, ""), wire.ErrFrame, "kind 255 is unknown"},
		{"a huge length", raw(1<<32-1, byte(wire.KindStart), 0, ""), wire.ErrFrame, "at most 1048576"},
		{"a length beyond its kind's", raw(wire.MaxChunk+1, byte(wire.KindStdout), 0, ""), wire.ErrFrame, "at most 32768"},
		{"text", "HTTP/1.1 400 Bad Request\r\n", wire.ErrFrame, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := wire.NewReader(strings.NewReader(c.stream + raw(0, byte(wire.KindStdinClose), 0, "")))
			if errors.Is(c.want, io.EOF) || errors.Is(c.want, io.ErrUnexpectedEOF) {
				r = wire.NewReader(strings.NewReader(c.stream))
			}
			_, err := r.Next()
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("got %v, want %v with %q", err, c.want, c.says)
			}
			// What follows a bad frame is never read.
			if _, again := r.Next(); again != err { //nolint:errorlint // the very same
				t.Errorf("then: %v", again)
			}
		})
	}
}

func TestWriterRefuses(t *testing.T) {
	var out bytes.Buffer
	w := wire.NewWriter(&out)
	for _, err := range []error{
		w.Frame(0, 0, nil),
		w.Frame(200, 0, nil),
		w.Frame(wire.KindStdout, 0, make([]byte, wire.MaxChunk+1)),
		w.Frame(wire.KindStdinClose, 0, []byte("x")),
	} {
		if !errors.Is(err, wire.ErrFrame) {
			t.Errorf("got %v", err)
		}
	}
	if err := w.JSON(wire.KindHello, 0, func() {}); err == nil {
		t.Error("a function was written as JSON")
	}
	if out.Len() != 0 {
		t.Errorf("%d bytes were written", out.Len())
	}
}

func TestCredit(t *testing.T) {
	for _, n := range []int{0, 1, wire.StdinWindow} {
		got, err := wire.DecodeCredit(wire.Frame{Kind: wire.KindStdinCredit, Payload: wire.Credit(n)})
		if err != nil || got != n {
			t.Errorf("%d became %d, %v", n, got, err)
		}
	}
	for _, b := range [][]byte{nil, {1, 2, 3}, wire.Credit(wire.StdinWindow + 1)} {
		if _, err := wire.DecodeCredit(wire.Frame{Kind: wire.KindStdinCredit, Payload: b}); !errors.Is(err, wire.ErrFrame) {
			t.Errorf("%v: %v", b, err)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	var e wire.Exit
	err := wire.Decode(wire.Frame{Kind: wire.KindExit, Payload: []byte("{")}, &e)
	if !errors.Is(err, wire.ErrFrame) || !strings.Contains(err.Error(), "exit") {
		t.Errorf("got %v", err)
	}
}

// FuzzReader: whatever comes, the reader ends with an error, gives no frame
// that its own writer would not write, and gives back what was written.
func FuzzReader(f *testing.F) {
	f.Add([]byte(raw(13, byte(wire.KindHello), 0, `{"version":1}`) + raw(2, byte(wire.KindStdout), 1, "ab")))
	f.Add([]byte(raw(1<<32-1, byte(wire.KindStdout), 1, "ab")))
	f.Add([]byte(raw(0, 0, 0, "")))
	f.Add([]byte("not a frame at all"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := wire.NewReader(bytes.NewReader(in))
		var out bytes.Buffer
		w := wire.NewWriter(&out)
		for {
			frame, err := r.Next()
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, wire.ErrFrame) {
					t.Fatalf("an error of another kind: %v", err)
				}
				break
			}
			if err := w.Frame(frame.Kind, frame.Stream, frame.Payload); err != nil {
				t.Fatalf("a frame that cannot be written: %v", err)
			}
		}
		if !bytes.HasPrefix(in, out.Bytes()) {
			t.Fatal("the frames are not the bytes that came")
		}
	})
}

func BenchmarkFrames(b *testing.B) {
	payload := make([]byte, wire.MaxChunk)
	in, out := io.Pipe()
	var writer sync.WaitGroup
	writer.Go(func() {
		for w := wire.NewWriter(out); w.Frame(wire.KindStdout, 1, payload) == nil; {
			continue
		}
	})
	defer writer.Wait()
	defer in.Close()
	r := wire.NewReader(in)
	b.SetBytes(wire.MaxChunk)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Next(); err != nil {
			b.Fatal(err)
		}
	}
}

// TestFrames: frames written together are read one by one, and one that is
// refused keeps the others back.
func TestFrames(t *testing.T) {
	var b bytes.Buffer
	w := wire.NewWriter(&b)
	if err := w.Frames(wire.Frame{Kind: wire.KindPing}, wire.Frame{Kind: wire.KindPing, Payload: make([]byte, 9)}); !errors.Is(err, wire.ErrFrame) || b.Len() != 0 {
		t.Fatalf("got %v and %d bytes", err, b.Len())
	}
	if err := w.Frames(wire.Frame{Kind: wire.KindStdin, Stream: 7, Payload: []byte("x")}, wire.Frame{Kind: wire.KindStdinClose, Stream: 7}); err != nil {
		t.Fatal(err)
	}
	r := wire.NewReader(&b)
	for _, want := range []wire.Kind{wire.KindStdin, wire.KindStdinClose} {
		if f, err := r.Next(); err != nil || f.Kind != want || f.Stream != 7 {
			t.Errorf("got %v, %v, want %v", f, err, want)
		}
	}
}

// counted counts writes and tells of each.
type counted struct {
	bytes.Buffer
	writes int
	wrote  chan struct{}
	fails  error
}

func (c *counted) Write(p []byte) (int, error) {
	c.writes++
	_, _ = c.Buffer.Write(p)
	select {
	case c.wrote <- struct{}{}:
	default:
	}
	return len(p), c.fails
}

// TestLater: a frame that may wait goes with the next one, by itself when none
// comes, or with its like when they are a chunk; the order stays, and an error
// is told with the next frame.
func TestLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &counted{wrote: make(chan struct{}, 1)}
		w := wire.NewWriter(out)
		later := func(n int) error { return w.Later(wire.KindStdout, 1, make([]byte, n)) }
		for _, err := range []error{later(1), later(2), w.Frame(wire.KindExit, 1, []byte("{}"))} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if out.writes != 1 {
			t.Errorf("%d writes for what goes together", out.writes)
		}
		<-out.wrote
		_ = later(3)
		<-out.wrote // alone, in its time
		_, _ = later(wire.MaxChunk/2), later(wire.MaxChunk/2)
		if out.writes != 3 {
			t.Errorf("%d writes for another by itself and then a chunk", out.writes)
		}
		r := wire.NewReader(out)
		for _, want := range []int{1, 2, 2, 3, wire.MaxChunk / 2, wire.MaxChunk / 2} {
			if f, err := r.Next(); err != nil || len(f.Payload) != want {
				t.Errorf("got %d bytes, %v, want %d", len(f.Payload), err, want)
			}
		}
		<-out.wrote
		out.fails = io.ErrClosedPipe
		_ = later(1)
		<-out.wrote
		synctest.Wait()
		if err := later(1); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("after a write that failed: %v", err)
		}
	})
}
