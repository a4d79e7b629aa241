package blob_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
)

func TestWriter(t *testing.T) {
	s := open(t)
	for n, size := range []int{0, 1, 128 << 10, 300_000} {
		data := bytes.Repeat([]byte("7"), size)
		w := s.Create(t.Context(), id(n))
		for rest := data; len(rest) > 0; {
			m := min(len(rest), 32_767)
			if _, err := w.Write(rest[:m]); err != nil {
				t.Fatal(err)
			}
			rest = rest[m:]
		}
		if _, err := s.Stat(t.Context(), id(n)); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("before its commit: %v", err)
		}
		info, err := w.Commit("text/plain", "a/\u00e9\n.txt")
		if err != nil {
			t.Fatal(err)
		}
		want := blob.Info{Size: int64(size), MimeType: "text/plain", Name: "a/\u00e9\n.txt", Digest: call.Digest(string(data))}
		if info != want {
			t.Errorf("committed %+v, want %+v", info, want)
		}
		got, r, err := s.Get(t.Context(), id(n), 0)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := io.ReadAll(r); err != nil || got != want || !bytes.Equal(back, data) {
			t.Errorf("%d bytes of %+v, %v", len(back), got, err)
		}
	}
}

// What a Put wrote is what a Writer may write again, and nothing else.
func TestWriterOfWhatIsThere(t *testing.T) {
	s := open(t)
	if _, err := s.Put(t.Context(), id(1), "text/plain", []byte("one")); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]error{"one": nil, "two": blob.ErrOther} {
		w := s.Create(t.Context(), id(1))
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Commit("text/plain", ""); !errors.Is(err, want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// What was not committed takes no room.
func TestWriterLeavesNothing(t *testing.T) {
	js := natsdtest.JetStream(t)
	s := openOn(t, js)
	big := bytes.Repeat([]byte("x"), 200_000)
	w := s.Create(t.Context(), id(1))
	if _, err := w.Write(big); err != nil {
		t.Fatal(err)
	}
	w.Abort()
	if _, err := w.Write(big); err == nil {
		t.Error("a write after the end")
	}
	ctx, cancel := context.WithCancel(t.Context())
	w = s.Create(ctx, id(2))
	if _, err := w.Write(big); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := w.Commit("", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("commit after its context: %v", err)
	}
	w = s.Create(t.Context(), id(3))
	for range blob.MaxSize / len(big) {
		if _, err := w.Write(big); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Write(big); err == nil {
		t.Error("more than MaxSize was taken")
	}
	if _, err := w.Commit("", ""); err == nil {
		t.Error("a blob of more than MaxSize was committed")
	}
	stream, err := js.Stream(t.Context(), "OBJ_"+blob.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context())
	if err != nil || info.State.Msgs != 0 {
		t.Errorf("%d messages are left, %v", info.State.Msgs, err)
	}
}

// A writer that has sent nothing asks nothing of the store when it is given up: a
// call that loses a hundred files to a store that is away would wait for each.
func TestWriterThatSentNothing(t *testing.T) {
	js := natsdtest.JetStream(t)
	s := openOn(t, js)
	purges, err := js.Conn().SubscribeSync("$JS.API.STREAM.PURGE.>")
	if err != nil {
		t.Fatal(err)
	}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		want int
	}{{t.Context(), 1}, {late, 1}} { // the second adds none
		w := s.Create(c.ctx, id(1))
		if _, err := w.Write(make([]byte, 200_000)); !errors.Is(err, c.ctx.Err()) {
			t.Errorf("write: %v", err)
		}
		w.Abort()
		if err := js.Conn().Flush(); err != nil {
			t.Fatal(err)
		}
		if n, _, err := purges.Pending(); err != nil || n != c.want {
			t.Errorf("the store was asked %d times, want %d (%v)", n, c.want, err)
		}
	}
}
