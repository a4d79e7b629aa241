package blob_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB) *blob.Store {
	t.Helper()
	s, err := blob.Open(t.Context(), natsdtest.JetStream(t), blob.Options{})
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
