package httpd_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/internal/httpd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestUnusedConnectionsDoNotDelayTheEnd ends a server while one connection was
// never used and one carries a request. The first is cut, the second finishes.
// A plain Shutdown would wait five seconds for the first, which is longer than
// it gets here.
func TestUnusedConnectionsDoNotDelayTheEnd(t *testing.T) {
	var d net.Dialer
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	entered, leave := make(chan struct{}), make(chan struct{})
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-leave
		_, _ = io.WriteString(w, "whole")
	})}
	seen := make(chan struct{}, 2)
	shutdown := httpd.Quick(s)
	track := s.ConnState
	s.ConnState = func(c net.Conn, state http.ConnState) {
		track(c, state)
		if state == http.StateNew {
			seen <- struct{}{}
		}
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()

	idle, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	<-seen
	used, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	if _, err := io.WriteString(used, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-entered

	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 4*time.Second)
		defer cancel()
		ended <- shutdown(ctx)
	}()
	if _, err := io.ReadAll(idle); err != nil {
		t.Errorf("the unused connection: %v", err)
	}
	close(leave)
	if text, err := io.ReadAll(used); err != nil || len(text) < 5 || string(text[len(text)-5:]) != "whole" {
		t.Errorf("the request that had begun: %q, %v", text, err)
	}
	if err := <-ended; err != nil {
		t.Errorf("shutdown: %v", err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}
