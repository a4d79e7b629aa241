package results

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
)

// TestALostAcknowledgement publishes what an append is about to, as a first
// try does whose acknowledgement was lost, and sees the append know its own.
func TestALostAcknowledgement(t *testing.T) {
	l, err := Open(t.Context(), natsdtest.JetStream(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{KindAdmit, KindStart, KindResult} {
		ref := Ref{Tenant: "default", Key: call.MakeKey("default", "t", "s", kind)}
		mine, other := newNonce(), newNonce()
		data := custom(nameStart, mine, Marker{Attempt: 1})
		ack, err := l.js.Publish(t.Context(), ref.subject(kind), data)
		if err != nil {
			t.Fatal(err)
		}
		e, won, err := l.fenced(t.Context(), ref, kind, data, mine)
		if err != nil || !won || e.Seq != ack.Sequence {
			t.Errorf("%s: my own append: %+v, %v, %v", kind, e, won, err)
		}
		_, won, err = l.fenced(t.Context(), ref, kind, custom(nameStart, other, Marker{Attempt: 1}), other)
		if err != nil || won {
			t.Errorf("%s: another's append: %v, %v", kind, won, err)
		}
	}
}

func TestWrongSequence(t *testing.T) {
	for code, want := range map[jetstream.ErrorCode]bool{10071: true, 10164: true, 10077: false, 0: false} {
		if got := wrongSequence(&jetstream.APIError{ErrorCode: code}); got != want {
			t.Errorf("%d: %v", code, got)
		}
	}
	if wrongSequence(nil) {
		t.Error("no error is one")
	}
}

// TestMetadataIsReadAlone sees metadata found wherever it stands, and bytes
// that are no event refused.
func TestMetadataIsReadAlone(t *testing.T) {
	for data, want := range map[string]bool{
		`{"type":"CUSTOM","metadata":{"toolfleet.nonce":"n"},"content":broken`:                  true,
		`{"content":[{"metadata":{"toolfleet.nonce":"x"}}],"metadata":{"toolfleet.nonce":"n"}}`: true,
		`{"content":{"metadata":{"toolfleet.nonce":"n"}}}`:                                      false,
		`{"metadata":{"toolfleet.nonce":7}}`:                                                    false,
		`{"metadata":[]}`:                                                                       false,
		`[]`:                                                                                    false,
		``:                                                                                      false,
	} {
		if got := isOurs([]byte(data), "n"); got != want {
			t.Errorf("%s: %v", data, got)
		}
	}
}

func FuzzMetadata(f *testing.F) {
	f.Add([]byte(`{"type":"TOOL_CALL_RESULT","metadata":{"toolfleet.error":{"kind":"timeout"}},"content":""}`))
	f.Add([]byte(`{"metadata":null}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		_ = kindOfResult(data)
		_ = isOurs(data, "n")
	})
}

// TestOneAppendPerCallIsInFlight sees the turn given on, and left when the
// context ends.
func TestOneAppendPerCallIsInFlight(t *testing.T) {
	var f flights
	ref := Ref{Tenant: "default"}
	release, err := f.acquire(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan func())
	go func() {
		release, err := f.acquire(t.Context(), ref)
		if err != nil {
			t.Error(err)
		}
		got <- release
	}()
	select {
	case <-got:
		t.Fatal("two at once")
	case <-time.After(20 * time.Millisecond):
	}
	if other, err := f.acquire(t.Context(), Ref{Tenant: "other"}); err != nil {
		t.Error(err)
	} else {
		other()
	}
	release()
	(<-got)()
	if len(f.m) != 0 {
		t.Errorf("%d flights are left", len(f.m))
	}
}
