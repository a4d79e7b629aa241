package natsd_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/internal/natsd"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestKeepsItsStreamsOverARestart(t *testing.T) {
	dir := t.TempDir()
	for i := range 2 {
		s, err := natsd.Start(t.Context(), natsd.Config{StoreDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if url := s.ClientURL(); url != "" {
			t.Errorf("ClientURL without a listener = %q", url)
		}
		nc, err := s.Connect()
		if err != nil {
			t.Fatal(err)
		}
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		st, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := st.CachedInfo().State.Msgs; got != uint64(i) {
			t.Errorf("start %d: %d messages, want %d", i, got, i)
		}
		if _, err := js.Publish(t.Context(), "s", []byte("x")); err != nil {
			t.Fatal(err)
		}
		nc.Close()
		s.Shutdown()
	}
}

func TestListensOnLoopback(t *testing.T) {
	s := natsdtest.Start(t)
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if got := nc.MaxPayload(); got != 1<<20 {
		t.Errorf("MaxPayload = %d", got)
	}
}

func TestRefusesWithoutADirectory(t *testing.T) {
	if _, err := natsd.Start(t.Context(), natsd.Config{}); err == nil {
		t.Error("no error")
	}
}

func TestSaysWhyItDidNotStart(t *testing.T) {
	if _, err := natsd.Start(t.Context(), natsd.Config{StoreDir: "/proc/nowhere"}); err == nil {
		t.Error("no error")
	} else {
		t.Log(err)
	}
}
