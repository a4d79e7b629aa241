package sandboxtest

import (
	"context"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// The addresses of these tests: a port that not everybody may have, where the
// sandbox has a loopback of its own, and not the usual address of loopback.
const (
	echoAddress  = "127.84.1.1:443"
	otherAddress = "127.84.1.2:443"
	nameAddress  = "127.0.0.1:53"
)

func (s *suite) testListeners(t *testing.T) {
	t.Run("Echo", func(t *testing.T) {
		exit := s.run(t, s.listening(echo, "exchange", "tcp", echoAddress, strings.Repeat("0123456789abcdef", 4096)), sandbox.Sink{})
		expect(t, exit, sandbox.CauseExited)
		if len(exit.Stdout) != 64<<10 {
			t.Errorf("the tool got %d bytes back: %.200q", len(exit.Stdout), exit.Stdout)
		}
	})
	t.Run("Datagram", func(t *testing.T) {
		exit := s.run(t, s.listening(func(ctx context.Context, listener int, conn *sandbox.Stream) {
			question, _ := io.ReadAll(conn)
			_, _ = conn.Write([]byte("answer to " + string(question)))
		}, "exchange", "udp", nameAddress, "question"), sandbox.Sink{})
		if got := string(exit.Stdout); got != "answer to question" {
			t.Errorf("the tool got %q", got)
		}
	})
	t.Run("ResetIsSeenAtOnce", func(t *testing.T) {
		exit := s.run(t, s.listening(func(_ context.Context, _ int, conn *sandbox.Stream) { _ = conn.Reset() },
			"exchange", "tcp", echoAddress, "anybody?"), sandbox.Sink{})
		if got := string(exit.Stdout); !strings.Contains(got, "reset") && !strings.Contains(got, "broken pipe") {
			t.Errorf("the tool got %q", got)
		}
	})
	t.Run("WrittenBeforeTheClose", func(t *testing.T) {
		exit := s.run(t, s.listening(func(_ context.Context, _ int, conn *sandbox.Stream) {
			_, _ = conn.Write(make([]byte, 60<<10))
			_ = conn.Close()
		}, "exchange", "tcp", echoAddress, "anybody?"), sandbox.Sink{})
		if len(exit.Stdout) != 60<<10 {
			t.Errorf("the tool got %d bytes: %.100q", len(exit.Stdout), exit.Stdout)
		}
	})
	t.Run("NothingElseListens", func(t *testing.T) {
		exit := s.run(t, s.listening(echo, "exchange", "tcp", "127.84.1.9:443", "anybody?"), sandbox.Sink{})
		if got := string(exit.Stdout); !strings.Contains(got, "refused") {
			t.Errorf("the tool got %q", got)
		}
	})
	t.Run("SlowPeerHoldsUpItsOwnStreamOnly", func(t *testing.T) {
		exit := s.run(t, s.listening(func(ctx context.Context, listener int, conn *sandbox.Stream) {
			if listener == 0 {
				<-ctx.Done() // reads nothing
				return
			}
			echo(ctx, listener, conn)
		}, "clog", echoAddress, "67108864", otherAddress), sandbox.Sink{})
		sent, rest, _ := strings.Cut(string(exit.Stdout), "\n")
		if rest != "still" || sent == "67108864" || sent == "" {
			t.Errorf("the tool sent %s bytes to a peer that reads none, and another answered %q", sent, rest)
		}
	})
	t.Run("SentBeforeTheEnd", func(t *testing.T) {
		got := make(chan string, 1)
		exit := s.run(t, s.listening(func(_ context.Context, _ int, conn *sandbox.Stream) {
			var all strings.Builder
			_, _ = conn.WriteTo(&all)
			got <- all.String()
		}, "part", echoAddress, "last words"), sandbox.Sink{})
		expect(t, exit, sandbox.CauseExited)
		select {
		case said := <-got:
			if said != "last words" {
				t.Errorf("%q arrived of what the tool sent", said)
			}
		default:
			t.Error("nobody served what the tool sent")
		}
	})
	t.Run("ThousandAtOnce", func(t *testing.T) {
		exit := s.run(t, s.listening(echo, "crowd", echoAddress, "1000"), sandbox.Sink{})
		if got := string(exit.Stdout); got != "all\n" {
			t.Errorf("the tool says %q %q %s", got, exit.Stderr, exit.Detail)
		}
	})
	t.Run("ThousandClogged", s.testClogged)
	if s.Limits {
		t.Run("CloggedToDeath", s.testCloggedToDeath)
	}
	t.Run("NoneWithoutListeners", func(t *testing.T) {
		exit := s.run(t, s.probe("exchange", "tcp", echoAddress, "anybody?"), sandbox.Sink{})
		if got := string(exit.Stdout); !strings.Contains(got, "refused") {
			t.Errorf("the tool got %q", got)
		}
	})
}

// Connections, a thousand of them, whose ends all send and never read cost no more than their
// windows, on either side, and one more connection is served as ever.
func (s *suite) testClogged(t *testing.T) {
	conns := 1000
	if s.OwnKernel != "" || slowKernel() {
		conns = 200 // gVisor's network keeps up to a mebibyte for each of them
	}
	var before, during runtime.MemStats
	clogged := make(chan struct{}, conns)
	runtime.GC()
	runtime.ReadMemStats(&before)
	// The sockets of the sandbox and the agent's share are the tool's own to pay for.
	spec := s.Spec
	spec.Limits.Memory = 1 << 30
	exit, err := s.openSpec(t, spec).Run(testContext(t), s.listening(func(ctx context.Context, listener int, conn *sandbox.Stream) {
		if listener == 0 {
			clog(conn)
			clogged <- struct{}{}
			<-ctx.Done()
			return
		}
		for range conns {
			select {
			case <-clogged:
			case <-ctx.Done():
				return
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&during)
		echo(ctx, listener, conn)
	}, "clogmany", echoAddress, strconv.Itoa(conns), strconv.Itoa(128<<10), otherAddress), sandbox.Sink{})
	if err != nil {
		t.Fatal(err)
	}
	sent, rest, _ := strings.Cut(string(exit.Stdout), "\n")
	if rest != "still" {
		t.Fatalf("the tool says %q %q (%s %s), peak %d MiB", exit.Stdout, exit.Stderr, exit.Cause, exit.Detail, exit.Usage.PeakMemory>>20)
	}
	// A buffer that grows may have twice the room that it needs.
	most := int64(conns) * 2 * wire.StreamWindow
	if grown := int64(during.HeapAlloc) - int64(before.HeapAlloc); grown > most {
		t.Errorf("%d connections that nobody reads took %d MiB, more than their windows' %d; the tool got rid of %s bytes", conns, grown>>20, most>>20, sent)
	}
}

// A sandbox whose connections nobody reads and whose memory they use up is told of
// like any other, though whoever writes to them may wait for an agent that is gone.
func (s *suite) testCloggedToDeath(t *testing.T) {
	exit := s.run(t, s.listening(func(ctx context.Context, listener int, conn *sandbox.Stream) {
		if listener == 1 {
			echo(ctx, listener, conn)
			return
		}
		clog(conn)
		<-ctx.Done()
	}, "clogmany", echoAddress, "1000", strconv.Itoa(1<<20), otherAddress), sandbox.Sink{})
	// Where the kernel makes sockets wait in place of giving them memory, it lives.
	if exit.Cause != sandbox.CauseOutOfMemory && string(exit.Stdout[max(0, len(exit.Stdout)-5):]) != "still" {
		t.Errorf("cause %q (%s), and it said %.200q", exit.Cause, exit.Detail, exit.Stdout)
	}
}

// slowKernel tells whether the tests run in user-mode Linux, which takes a minute
// for what others do in a second.
func slowKernel() bool {
	raw, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && strings.Contains(string(raw), "User Mode Linux")
}

// clog writes until nothing more is taken.
func clog(conn *sandbox.Stream) {
	_ = conn.SetWriteDeadline(time.Now().Add(3 * time.Second))
	for err := error(nil); err == nil; {
		_, err = conn.Write(make([]byte, wire.MaxStreamData))
	}
}

// listening is a probe with two addresses for connections and one for datagrams.
func (s *suite) listening(serve func(context.Context, int, *sandbox.Stream), args ...string) sandbox.Process {
	p := s.probe(args...)
	p.Listeners = sandbox.Listeners{Serve: serve, Addresses: []wire.Listener{
		{Network: "tcp", Address: echoAddress}, {Network: "tcp", Address: otherAddress}, {Network: "udp", Address: nameAddress},
	}}
	return p
}

// echo gives back what comes.
func echo(_ context.Context, _ int, conn *sandbox.Stream) {
	_, _ = conn.WriteTo(conn)
	_ = conn.Close()
}
