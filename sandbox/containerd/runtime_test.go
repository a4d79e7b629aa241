package containerd_test

import (
	"io"
	"testing"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
)

// noLeftovers fails the test if anything is left of sandboxes.
func noLeftovers(tb testing.TB, rt *containerd.Runtime) {
	tb.Helper()
	left, err := rt.Leftovers(endCtx(tb))
	if err != nil {
		tb.Fatal(err)
	}
	if !left.None() {
		tb.Errorf("left over: %+v", left)
	}
}

func TestStartEchoClose(t *testing.T) {
	rt := open(t, "w1")
	inst, err := rt.Start(t.Context(), "echo-1", sandbox.Spec{Image: testImage})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inst.Write([]byte("hello")); err != nil {
		t.Error(err)
	}
	buf := make([]byte, 5)
	if _, err := io.ReadFull(inst, buf); err != nil || string(buf) != "hello" {
		t.Errorf("read %q, %v", buf, err)
	}
	if err := inst.Kill(endCtx(t)); err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(inst); err != nil || len(rest) > 0 {
		t.Errorf("after kill: %q, %v", rest, err)
	}
	if u, err := inst.Usage(t.Context()); err != nil || u.PeakMemory == 0 || u.CPU == 0 {
		t.Errorf("usage %+v, %v", u, err)
	}
	if err := inst.Close(endCtx(t)); err != nil {
		t.Error(err)
	}
	noLeftovers(t, rt)
}
