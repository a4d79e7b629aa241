package sandbox_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// connected is the program of a tool that has a listener.
func connected(serve func(context.Context, int, *sandbox.Stream)) sandbox.Process {
	p := prog
	p.Listeners = sandbox.Listeners{Addresses: []wire.Listener{{Network: "tcp", Address: "127.84.1.1:443"}}, Serve: serve}
	return p
}

func data(id uint32, n int) []byte {
	return append(wire.StreamPayload(id), bytes.Repeat([]byte("x"), n)...)
}

// Whatever an agent does with streams ends its own run at worst: it cannot make
// this side hold more than the windows, nor serve more than the bound.
func TestHostileStreams(t *testing.T) {
	open := func(a *fakeAgent, id uint32) { _ = a.Frame(wire.KindOpen, 1, wire.OpenPayload(id, 0)) }
	for _, c := range []struct {
		name string
		says func(a *fakeAgent)
	}{
		{"OpenTwice", func(a *fakeAgent) { open(a, 1); open(a, 1) }},
		{"OpenBackwards", func(a *fakeAgent) { open(a, 2); open(a, 1) }},
		{"OpenZero", func(a *fakeAgent) { open(a, 0) }},
		{"NoSuchListener", func(a *fakeAgent) { _ = a.Frame(wire.KindOpen, 1, wire.OpenPayload(1, 1)) }},
		{"TooMany", func(a *fakeAgent) {
			for id := range uint32(wire.MaxStreams + 1) {
				open(a, id+1)
			}
		}},
		{"DataOfNone", func(a *fakeAgent) { _ = a.Frame(wire.KindData, 1, data(1, 1)) }},
		{"DataBeyondWindow", func(a *fakeAgent) {
			open(a, 1)
			for range 3 {
				_ = a.Frame(wire.KindData, 1, data(1, wire.MaxStreamData))
			}
		}},
		{"DataAfterEnd", func(a *fakeAgent) {
			open(a, 1)
			_ = a.Frame(wire.KindEnd, 1, wire.StreamPayload(1))
			_ = a.Frame(wire.KindData, 1, data(1, 1))
		}},
		{"EmptyData", func(a *fakeAgent) { open(a, 1); _ = a.Frame(wire.KindData, 1, wire.StreamPayload(1)) }},
		{"CreditUnasked", func(a *fakeAgent) { open(a, 1); _ = a.Frame(wire.KindStreamCredit, 1, wire.StreamCredit(1, 1)) }},
		{"CreditTooLarge", func(a *fakeAgent) { open(a, 1); _ = a.Frame(wire.KindStreamCredit, 1, wire.StreamCredit(1, 1<<30)) }},
		{"SecondEnd", func(a *fakeAgent) {
			open(a, 1)
			_ = a.Frame(wire.KindEnd, 1, wire.StreamPayload(1))
			_ = a.Frame(wire.KindEnd, 1, wire.StreamPayload(1))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var serving, most atomic.Int64
				sb := openFake(t, &fakeRuntime{agent: started(func(a *fakeAgent) { c.says(a); a.linger() })})
				exit, err := sb.Run(t.Context(), connected(func(ctx context.Context, _ int, _ *sandbox.Stream) {
					most.Store(max(most.Load(), serving.Add(1)))
					<-ctx.Done()
					serving.Add(-1)
				}), sandbox.Sink{})
				if err != nil || exit.Cause != sandbox.CauseProtocol {
					t.Errorf("cause %q (%s), error %v", exit.Cause, exit.Detail, err)
				}
				if serving.Load() != 0 || most.Load() > wire.MaxStreams {
					t.Errorf("%d are served after the end, %d were at once", serving.Load(), most.Load())
				}
			})
		})
	}
}

// A tool that opens and gives up connections without end is served one by one,
// and harms nobody.
func TestStreamsGivenUp(t *testing.T) {
	var served atomic.Int64
	sb := openFake(t, &fakeRuntime{agent: started(func(a *fakeAgent) {
		for id := range uint32(5 * wire.MaxStreams) {
			_ = a.Frame(wire.KindOpen, 1, wire.OpenPayload(id+1, 0))
			_ = a.Frame(wire.KindReset, 1, wire.StreamPayload(id+1))
		}
		a.send(wire.KindExit, "{}")
	})})
	exit, err := sb.Run(t.Context(), connected(func(ctx context.Context, _ int, conn *sandbox.Stream) {
		served.Add(1)
		<-ctx.Done()
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("a stream that was given up can be read")
		}
	}), sandbox.Sink{})
	if err != nil || exit.Cause != sandbox.CauseExited || served.Load() != 5*wire.MaxStreams {
		t.Errorf("cause %q (%s), error %v, %d served", exit.Cause, exit.Detail, err, served.Load())
	}
}

// Without listeners there are no streams.
func TestStreamsUnasked(t *testing.T) {
	sb := openFake(t, &fakeRuntime{agent: started(func(a *fakeAgent) {
		_ = a.Frame(wire.KindOpen, 1, wire.OpenPayload(1, 0))
		a.linger()
	})})
	if exit, err := sb.Run(t.Context(), prog, sandbox.Sink{}); err != nil || exit.Cause != sandbox.CauseProtocol {
		t.Errorf("cause %q, error %v", exit.Cause, err)
	}
}

// A stream keeps the rules of a net.Conn that servers lean on.
func TestStreamIsAConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := make(chan string, 1)
		sb := openFake(t, &fakeRuntime{agent: started(func(a *fakeAgent) {
			_ = a.Frame(wire.KindOpen, 1, wire.OpenPayload(1, 0))
			_ = a.Frame(wire.KindData, 1, append(wire.StreamPayload(1), "question"...))
			wait(time.Minute)
			_ = a.Frame(wire.KindEnd, 1, wire.StreamPayload(1))
			said <- <-said
			a.send(wire.KindExit, "{}")
		})})
		exit, err := sb.Run(t.Context(), connected(func(_ context.Context, _ int, conn *sandbox.Stream) {
			buf := make([]byte, 4)
			n, err := io.ReadFull(conn, buf)
			if err != nil || string(buf[:n]) != "ques" {
				t.Errorf("read %q, %v", buf[:n], err)
			}
			rest := make([]byte, 100)
			if n, err = conn.Read(rest); err != nil || string(rest[:n]) != "tion" {
				t.Errorf("read %q, %v", rest[:n], err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := conn.Read(rest); err != os.ErrDeadlineExceeded { //nolint:errorlint // as net.Conn has it
				t.Errorf("a read that waits too long says %v", err)
			}
			_ = conn.SetReadDeadline(time.Time{})
			if all, err := io.ReadAll(conn); err != nil || len(all) != 0 {
				t.Errorf("read %q, %v at the end", all, err)
			}
			// Nobody takes it, so the window is what goes out.
			_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
			n, err = conn.Write([]byte(strings.Repeat("x", 2*wire.StreamWindow)))
			if err != os.ErrDeadlineExceeded || n != wire.StreamWindow { //nolint:errorlint // as above
				t.Errorf("wrote %d, %v", n, err)
			}
			said <- "done"
		}), sandbox.Sink{})
		if err != nil || exit.Cause != sandbox.CauseExited {
			t.Errorf("cause %q (%s), error %v", exit.Cause, exit.Detail, err)
		}
	})
}
