package blob_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/internal/natsd"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
)

// TestPain70NothingHangsWhileTheServerIsAway: a get fails within the time of one
// question; a put waits, as long as its context allows, and is done when the
// server is back.
func TestPain70NothingHangsWhileTheServerIsAway(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr, _ := l.Addr().(*net.TCPAddr)
	l.Close()
	config := natsd.Config{StoreDir: t.TempDir(), Port: addr.Port}
	server := natsdtest.StartWith(t, config)
	nc, err := nats.Connect(server.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s := openOn(t, js)
	data := bytes.Repeat([]byte("x"), 300<<10)
	if _, err := s.Put(t.Context(), id(1), "text/plain", data); err != nil {
		t.Fatal(err)
	}
	server.Shutdown()

	if _, _, err := s.Get(t.Context(), id(1), 0); err == nil {
		t.Error("a get was answered by nobody")
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Put(short, id(2), "text/plain", data); err == nil {
		t.Error("a put was taken by nobody")
	}
	put := make(chan error, 1)
	go func() {
		_, err := s.Put(t.Context(), id(3), "text/plain", data)
		put <- err
	}()
	natsdtest.StartWith(t, config)
	if err := <-put; err != nil {
		t.Errorf("the put that waited: %v", err)
	}
	_, r, err := s.Get(t.Context(), id(3), 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes are back: %v", len(got), err)
	}
}
