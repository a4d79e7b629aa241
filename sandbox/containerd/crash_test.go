package containerd_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
)

// TestPain1ContainerdKilledWhileStarting (P1): wherever in a start or an end
// containerd is killed, a sweep afterwards finds all that is left of it.
func TestPain1ContainerdKilledWhileStarting(t *testing.T) {
	state := newState(t)
	d := startDaemon(t, state)
	rt, err := containerd.New(containerd.Config{Address: d.Address(), Owner: "w1", AgentPath: shell, BinDir: binDir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close() })
	importTestImage(t, rt)
	for n := range 12 {
		done := make(chan struct{})
		go func() {
			defer close(done)
			inst, err := rt.Start(t.Context(), fmt.Sprintf("crash-%d", n), sandbox.Spec{Image: testImage})
			if err == nil {
				_ = inst.Close(endCtx(t)) // fails when containerd is gone just then
			}
		}()
		<-time.After(time.Duration(n) * 15 * time.Millisecond) // another place in the start each time
		if err := syscall.Kill(pidOf(t, state), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-done
		stopDaemon(t, d)
		d = startDaemon(t, state)
		awaitReady(t, rt)
		sweepAll(t, rt)
		if t.Failed() {
			t.Fatalf("killed after %d steps of time", n)
		}
	}
}

// awaitReady returns when the runtime's containerd serves.
func awaitReady(t *testing.T, rt *containerd.Runtime) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for rt.Ready(ctx) != nil {
		if ctx.Err() != nil {
			t.Fatal("containerd does not serve")
		}
	}
}
