package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// TestOpenRefuses: an agent that does not say a good hello is no sandbox, and
// nothing of it is left.
func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct {
		name, says string
		agent      func(a *fakeAgent)
	}{
		{"Gone", "said no hello", func(*fakeAgent) {}},
		{"Silent", "within 10s", func(a *fakeAgent) { a.drain() }},
		{"Junk", "bad frame", func(a *fakeAgent) { _, _ = a.raw.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")) }},
		{"HugeLength", "bad frame", func(a *fakeAgent) { _, _ = a.raw.Write([]byte{255, 255, 255, 255, 1, 0, 0, 0, 0}) }},
		{"NotJSON", "hello", func(a *fakeAgent) { _ = a.Frame(wire.KindHello, 0, []byte("hello")) }},
		{"OtherVersion", "speaks version 7", func(a *fakeAgent) {
			_ = a.JSON(wire.KindHello, 0, wire.Hello{Version: 7})
			a.drain()
		}},
		{"NotRoot", "user 1000", func(a *fakeAgent) {
			_ = a.JSON(wire.KindHello, 0, wire.Hello{Version: wire.Version, UID: 1000})
			a.drain()
		}},
		{"OutputFirst", "nothing was started", func(a *fakeAgent) { a.send(wire.KindStdout, "x") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := &fakeRuntime{agent: c.agent, filter: make([]byte, 8)}
				_, err := sandbox.Open(t.Context(), rt, "fake-1", sandbox.Spec{})
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("got %v, want an error with %q", err, c.says)
				}
				live, _ := rt.count()
				mustBe(t, "live", live, 0)
			})
		})
	}
	t.Run("Cancelled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errFake)
			defer cancel()
			_, err := sandbox.Open(ctx, &fakeRuntime{agent: (*fakeAgent).drain}, "fake-1", sandbox.Spec{})
			if !errors.Is(err, errFake) {
				t.Errorf("got %v", err)
			}
		})
	})
	t.Run("RuntimeFails", func(t *testing.T) {
		rt := &fakeRuntime{start: func(context.Context, sandbox.Spec) error { return sandbox.ErrImage }}
		if _, err := sandbox.Open(t.Context(), rt, "fake-1", sandbox.Spec{}); !errors.Is(err, sandbox.ErrImage) {
			t.Errorf("got %v", err)
		}
	})
}

// TestHostileAgent: whatever an agent says once its tool runs, the call has an
// end, and it is not our failure.
func TestHostileAgent(t *testing.T) {
	stdout := func(n int) []byte { return bytes.Repeat([]byte("x"), n) }
	for _, c := range []struct {
		name  string
		says  func(a *fakeAgent)
		cause sandbox.Cause
	}{
		{"GoesAway", func(*fakeAgent) {}, sandbox.CauseProtocol},
		{"Junk", func(a *fakeAgent) { _, _ = a.raw.Write(stdout(100)) }, sandbox.CauseProtocol},
		{"HalfAFrame", func(a *fakeAgent) { _, _ = a.raw.Write([]byte{0, 0, 0, 9, 9, 0, 0, 0, 1, 'x'}) }, sandbox.CauseProtocol},
		{"SecondStarted", func(a *fakeAgent) { a.send(wire.KindStarted, "{}") }, sandbox.CauseProtocol},
		{"SecondHello", func(a *fakeAgent) { a.hello() }, sandbox.CauseProtocol},
		{"PongUnasked", func(a *fakeAgent) { _ = a.Frame(wire.KindPong, 0, nil) }, sandbox.CauseProtocol},
		{"HostsFrame", func(a *fakeAgent) { a.send(wire.KindStdin, "x") }, sandbox.CauseProtocol},
		{"OtherStream", func(a *fakeAgent) { _ = a.Frame(wire.KindStdout, 2, stdout(1)) }, sandbox.CauseProtocol},
		{"CreditUnasked", func(a *fakeAgent) { _ = a.Frame(wire.KindStdinCredit, 1, wire.Credit(1)) }, sandbox.CauseProtocol},
		{"CreditOfNoSize", func(a *fakeAgent) { a.send(wire.KindStdinCredit, "x") }, sandbox.CauseProtocol},
		{"ExitNotJSON", func(a *fakeAgent) { a.send(wire.KindExit, "0") }, sandbox.CauseProtocol},
		{"ExitCodeTooLarge", func(a *fakeAgent) { a.send(wire.KindExit, `{"code":256}`) }, sandbox.CauseProtocol},
		{"ExitSignalNegative", func(a *fakeAgent) { a.send(wire.KindExit, `{"signal":-1}`) }, sandbox.CauseProtocol},
		{"ExitNeverStarted", func(a *fakeAgent) { a.send(wire.KindExit, `{"notStarted":"no"}`) }, sandbox.CauseProtocol},
		{"MessageNotJSON", func(a *fakeAgent) { a.send(wire.KindMessage, "{"); a.linger() }, sandbox.CauseProtocol},
		{"MessageOfNoType", func(a *fakeAgent) { a.send(wire.KindMessage, "{}"); a.linger() }, sandbox.CauseProtocol},
		{"EndlessStdout", func(a *fakeAgent) {
			for a.Frame(wire.KindStdout, 1, stdout(wire.MaxChunk)) == nil {
				continue
			}
		}, sandbox.CauseOutputLimit},
		{"EndlessStderr", func(a *fakeAgent) {
			for range 1000 {
				_ = a.Frame(wire.KindStderr, 1, stdout(wire.MaxChunk))
			}
			a.send(wire.KindExit, "{}")
		}, sandbox.CauseExited},
		{"FramesAfterExit", func(a *fakeAgent) {
			a.send(wire.KindExit, `{"code":3}`)
			a.send(wire.KindStderr, "late")
			a.send(wire.KindExit, `{"code":4}`)
		}, sandbox.CauseExited},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sb := openFake(t, &fakeRuntime{agent: started(c.says)})
				exit, err := sb.Run(t.Context(), prog, sandbox.Sink{})
				if err != nil || exit.Cause != c.cause {
					t.Fatalf("cause %q (%s), error %v, want cause %q", exit.Cause, exit.Detail, err, c.cause)
				}
				if c.cause == sandbox.CauseProtocol && exit.Detail == "" {
					t.Error("no detail")
				}
				if len(exit.Stdout) > 1<<20 || len(exit.Stderr) > 64<<10 || bytes.Contains(exit.Stderr, []byte("late")) {
					t.Errorf("kept %d bytes of stdout, %d of stderr", len(exit.Stdout), len(exit.Stderr))
				}
			})
		})
	}
}

// TestFailsBeforeStart: as long as no tool has run, it is our failure.
func TestFailsBeforeStart(t *testing.T) {
	for name, agent := range map[string]func(a *fakeAgent){
		"Gone":         func(a *fakeAgent) { a.idle() },
		"NoLockDown":   func(a *fakeAgent) { a.idle(); a.send(wire.KindExit, `{"failed":"no seccomp"}`); a.drain() },
		"OutputFirst":  func(a *fakeAgent) { a.idle(); a.send(wire.KindStdout, "x"); a.drain() },
		"ExitFirst":    func(a *fakeAgent) { a.idle(); a.send(wire.KindExit, `{}`); a.drain() },
		"DeadAtStart":  func(a *fakeAgent) { a.hello() },
		"ReadsNothing": func(a *fakeAgent) { a.hello(); _, _ = a.raw.Write([]byte("junk, and then some")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sb := openFake(t, &fakeRuntime{agent: agent})
				exit, err := sb.Run(t.Context(), prog, sandbox.Sink{})
				if err == nil || !exit.Started.IsZero() {
					t.Errorf("cause %q, error %v", exit.Cause, err)
				}
			})
		})
	}
}

// TestOutOfMemoryWithAgent: when the whole sandbox is killed for memory, the
// counter still tells.
func TestOutOfMemoryWithAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sb := openFake(t, &fakeRuntime{
			agent: started(func(a *fakeAgent) { a.send(wire.KindStdout, "partial") }),
			usage: func() sandbox.Usage { return sandbox.Usage{OOMKills: 2, PeakMemory: 42} },
		})
		exit, err := sb.Run(t.Context(), prog, sandbox.Sink{})
		if err != nil || exit.Cause != sandbox.CauseOutOfMemory || string(exit.Stdout) != "partial" || exit.Usage.PeakMemory != 42 {
			t.Errorf("cause %q, stdout %q, usage %v, error %v", exit.Cause, exit.Stdout, exit.Usage, err)
		}
	})
}

// TestForkBombIsStopped: refused forks that keep rising end the call; those of
// the past do not.
func TestForkBombIsStopped(t *testing.T) {
	for rising, want := range map[bool]sandbox.Cause{true: sandbox.CausePidsLimit, false: sandbox.CauseStopped} {
		synctest.Test(t, func(t *testing.T) {
			var refused int64
			sb := openFake(t, &fakeRuntime{
				agent: started((*fakeAgent).linger),
				usage: func() sandbox.Usage {
					if rising || refused == 0 {
						refused += 100
					}
					return sandbox.Usage{PidsRefused: refused}
				},
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			exit, err := sb.Run(ctx, prog, sandbox.Sink{})
			if err != nil || exit.Cause != want {
				t.Errorf("cause %q, error %v, want %q", exit.Cause, err, want)
			}
		})
	}
}

// TestCancelKeepsOutput: what came before the end of the context is kept, and
// after Run has returned the sink is left alone, even when the stream goes on.
func TestCancelKeepsOutput(t *testing.T) {
	for name, killErr := range map[string]error{"Killed": nil, "CannotBeKilled": errFake} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls int
				returned := false
				rt := &fakeRuntime{killErr: killErr, agent: started(func(a *fakeAgent) {
					for i := 0; a.Frame(wire.KindStderr, 1, []byte("tick ")) == nil && i < 100; i++ {
						wait(time.Second)
					}
				})}
				sb := openFake(t, rt)
				ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
				defer cancel()
				exit, err := sb.Run(ctx, prog, sandbox.Sink{Stderr: func([]byte) {
					if calls++; returned {
						t.Error("the sink was called after Run had returned")
					}
				}})
				returned = true
				if err != nil || exit.Cause != sandbox.CauseStopped || string(exit.Stderr) != strings.Repeat("tick ", calls) || calls < 3 {
					t.Errorf("cause %q, stderr %q after %d calls, error %v", exit.Cause, exit.Stderr, calls, err)
				}
				if (killErr != nil) != strings.Contains(exit.Detail, "could be seen to end") {
					t.Errorf("detail %q", exit.Detail)
				}
				wait(10 * time.Second)
			})
		})
	}
}

// TestStdinWindow: the host sends no more than the window while the tool does
// not read, all of it once it does, and is not held up by an agent that never
// gives credit.
func TestStdinWindow(t *testing.T) {
	p := prog
	p.Stdin = bytes.Repeat([]byte("0123456789"), 100_000)
	t.Run("Credited", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sb := openFake(t, &fakeRuntime{agent: func(a *fakeAgent) {
				a.idle()
				a.send(wire.KindStarted, "{}")
				owed := 0
				for {
					f, err := a.Next()
					if err != nil || f.Kind == wire.KindStdinClose {
						break
					}
					a.send(wire.KindStdout, string(f.Payload))
					if owed += len(f.Payload); owed == wire.StdinWindow {
						_ = a.Frame(wire.KindStdinCredit, 1, wire.Credit(owed))
						owed = 0
					}
				}
				a.send(wire.KindExit, "{}")
				a.drain()
			}})
			exit, err := sb.Run(t.Context(), p, sandbox.Sink{})
			if err != nil || exit.Cause != sandbox.CauseExited || !bytes.Equal(exit.Stdout, p.Stdin) {
				t.Errorf("cause %q, %d bytes, error %v", exit.Cause, len(exit.Stdout), err)
			}
		})
	})
	t.Run("NeverCredited", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			got := 0
			sb := openFake(t, &fakeRuntime{agent: func(a *fakeAgent) {
				a.idle()
				a.send(wire.KindStarted, "{}")
				for {
					f, err := a.Next()
					if err != nil {
						return
					}
					if f.Kind == wire.KindStdin {
						got += len(f.Payload)
					}
				}
			}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			exit, err := sb.Run(ctx, p, sandbox.Sink{})
			if err != nil || exit.Cause != sandbox.CauseStopped || got != wire.StdinWindow {
				t.Errorf("cause %q after %d bytes, error %v", exit.Cause, got, err)
			}
		})
	})
	t.Run("AgentReadsNothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			stuck := make(chan struct{})
			sb := openFake(t, &fakeRuntime{agent: func(a *fakeAgent) { a.idle(); <-stuck }})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			context.AfterFunc(ctx, func() { wait(time.Second); close(stuck) })
			exit, err := sb.Run(ctx, p, sandbox.Sink{})
			if err != nil || exit.Cause != sandbox.CauseStopped {
				t.Errorf("cause %q, error %v", exit.Cause, err)
			}
		})
	})
}

// TestCheck: a warm sandbox that is asked answers, one that is stuck does not,
// and its answer that comes too late harms nobody.
func TestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sb := openFake(t, &fakeRuntime{agent: func(a *fakeAgent) {
			a.hello()
			for {
				f, err := a.Next()
				if err != nil {
					return
				}
				wait(time.Second)
				_ = a.Frame(wire.KindPong, f.Stream, f.Payload)
			}
		}})
		if err := sb.Check(t.Context()); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := sb.Check(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		wait(time.Minute)
		if !sb.Alive() {
			t.Error("a late answer ended it")
		}
	})
}

// FuzzAgent: no bytes from an agent make a call hang, panic, keep too much, or
// fail as if it were our fault once the tool has started.
func FuzzAgent(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02\x09\x00\x00\x00\x01ab\x00\x00\x00\x0a\x0c\x00\x00\x00\x01{\"code\":1}"))
	f.Add([]byte("\x00\x00\x00\x11\x0b\x00\x00\x00\x01{\"type\":\"result\"}"))
	f.Add([]byte("\xff\xff\xff\xff\x09\x00\x00\x00\x01"))
	f.Fuzz(func(t *testing.T, says []byte) {
		synctest.Test(t, func(t *testing.T) {
			sb := openFake(t, &fakeRuntime{agent: started(func(a *fakeAgent) { _, _ = a.raw.Write(says) })})
			p := prog
			p.OutputLimit = 100
			p.Stdin = []byte("{}")
			exit, err := sb.Run(t.Context(), p, sandbox.Sink{Stderr: func([]byte) {}, Update: func([]byte) {}})
			if err != nil || exit.Cause == "" || len(exit.Stdout) > 100 {
				t.Errorf("cause %q, %d bytes, error %v", exit.Cause, len(exit.Stdout), err)
			}
		})
	})
}
