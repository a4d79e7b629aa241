package blob_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natsdtest.Main(m)) }

func open(t testing.TB) *blob.Store {
	t.Helper()
	return openOn(t, natsdtest.JetStream(t))
}

func openOn(t testing.TB, js jetstream.JetStream) *blob.Store {
	t.Helper()
	s, err := blob.Open(t.Context(), js, blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func id(n int) blob.ID {
	return blob.ID{Tenant: "default", Key: call.MakeKey("default", "t", "s", "c"), N: n}
}

func TestPutAndGetByRange(t *testing.T) {
	s := open(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 40_000) // several chunks
	put, err := s.Put(t.Context(), id(1), "image/png", data)
	if err != nil {
		t.Fatal(err)
	}
	for _, offset := range []int64{0, 1, 131_072, int64(len(data)) - 1, int64(len(data))} {
		info, r, err := s.Get(t.Context(), id(1), offset)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		if info != put || !bytes.Equal(got, data[offset:]) {
			t.Errorf("offset %d: %+v, %d bytes", offset, info, len(got))
		}
	}
	if put.Digest != call.Digest(string(data)) || put.MimeType != "image/png" || put.Size != int64(len(data)) {
		t.Errorf("Put = %+v", put)
	}
	if _, _, err := s.Get(t.Context(), id(1), put.Size+1); err == nil {
		t.Error("an offset beyond the end is no error")
	}
}

func TestIsWrittenOnce(t *testing.T) {
	s := open(t)
	first, err := s.Put(t.Context(), id(0), "text/plain", []byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Put(t.Context(), id(0), "text/plain", []byte("one"))
	if err != nil || again != first {
		t.Errorf("the same bytes again: %+v, %v", again, err)
	}
	if _, err := s.Put(t.Context(), id(0), "text/plain", []byte("two")); err == nil {
		t.Error("other bytes were taken")
	}
}

// TestOneOfManyPutsWins puts other bytes under one id from many goroutines at
// once: one wins, and whoever reads meanwhile is not cut off.
func TestOneOfManyPutsWins(t *testing.T) {
	const putters = 16
	js := natsdtest.JetStream(t)
	s := openOn(t, js)
	bytesOf := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 300_000) }
	var winners atomic.Int32
	var wg sync.WaitGroup
	for i := range putters {
		wg.Go(func() {
			_, err := s.Put(t.Context(), id(1), "", bytesOf(i))
			if err == nil {
				winners.Add(1)
			}
			info, r, err := s.Get(t.Context(), id(1), 0)
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := io.ReadAll(r); err != nil || int64(len(got)) != info.Size || !bytes.Equal(got, bytesOf(int(got[0]))) {
				t.Errorf("read %d bytes: %v", len(got), err)
			}
		})
	}
	wg.Wait()
	if winners.Load() != 1 {
		t.Errorf("%d puts won", winners.Load())
	}
	// The losers' chunks are gone: three of the winner and a description.
	stream, err := js.Stream(t.Context(), "OBJ_"+blob.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	if got := stream.CachedInfo().State.Msgs; got != 4 {
		t.Errorf("%d messages in the store, want 4", got)
	}
}

// TestPain70AMissingChunkIsAnError: what is not there is asked for, not waited for.
func TestPain70AMissingChunkIsAnError(t *testing.T) {
	js := natsdtest.JetStream(t)
	s := openOn(t, js)
	if _, err := s.Put(t.Context(), id(1), "", make([]byte, 300_000)); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "OBJ_"+blob.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.DeleteMsg(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	_, r, err := s.Get(t.Context(), id(1), 0)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, r); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("read %d bytes, %v", n, err)
	}
}

// TestOtherToolsReadIt holds the store to the layout of a JetStream object
// store.
func TestOtherToolsReadIt(t *testing.T) {
	js := natsdtest.JetStream(t)
	s := openOn(t, js)
	want := bytes.Repeat([]byte("x"), 200_000)
	if _, err := s.Put(t.Context(), id(1), "text/plain", want); err != nil {
		t.Fatal(err)
	}
	obs, err := js.ObjectStore(t.Context(), blob.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got, err := obs.GetBytes(ctx, "default/"+string(id(1).Key)+"/1")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
}

func TestNotFound(t *testing.T) {
	if _, _, err := open(t).Get(t.Context(), id(7), 0); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("err = %v", err)
	}
}

func TestReferences(t *testing.T) {
	want := id(3)
	got, err := blob.Parse(want.String())
	if err != nil || got != want {
		t.Errorf("Parse = %v, %v", got, err)
	}
	for _, bad := range []string{"", "http://x", "toolfleet-blob:a/b/1", strings.TrimSuffix(want.String(), "3") + "-1", want.String() + "/x"} {
		if _, err := blob.Parse(bad); err == nil {
			t.Errorf("Parse(%q) succeeded", bad)
		}
	}
}
