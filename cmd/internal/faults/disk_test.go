package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/dispatch"
)

// TestAFullDisk fills the disk under the streams, a tmpfs of its own, while a
// tool runs. New calls are refused with a hint, the running one keeps its
// result, and once there is room and the server was started anew everything
// that was taken has its answer.
func TestAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	f := newFleet(t, dir)
	release := make(chan struct{})
	f.boxes.hold = func(string) <-chan struct{} { return release }
	d := f.dispatcher()
	f.worker(1, time.Minute)
	var taken []dispatch.Ticket
	for _, id := range []string{"c1", "c2", "c3"} {
		ticket, err := d.Submit(t.Context(), newCall("once", id))
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, ticket)
	}
	<-f.boxes.started
	filler := fill(t, filepath.Join(dir, "filler"))

	refused := 0
	for i := range 100 {
		c := newCall("once", fmt.Sprint("late-", i))
		c.Arguments = `{"text":"` + strings.Repeat("x", 64<<10) + `"}`
		ticket, err := d.Submit(t.Context(), c)
		if err == nil {
			taken = append(taken, ticket) // there was room in what the server had open
			continue
		}
		if !errors.Is(err, dispatch.ErrUnavailable) || dispatch.RetryAfter(err) <= 0 {
			t.Errorf("a call on a full disk: %v, retry after %s", err, dispatch.RetryAfter(err))
		}
		if refused++; refused == 2 {
			break
		}
	}
	if refused == 0 {
		t.Error("a full disk takes every call")
	}
	close(release) // the tool ends, and its result has no place
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	f.down()
	f.up()
	for _, ticket := range taken {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		r, err := d.Wait(ctx, ticket.Ref)
		cancel()
		if err != nil || r.Kind() != "" {
			t.Errorf("call %s: %q, %v", ticket.Call.ToolCallID, r.Kind(), err)
		}
		if n := f.boxes.startsOf(ticket.Call.ToolCallID); n != 1 {
			t.Errorf("call %s was started %d times", ticket.Call.ToolCallID, n)
		}
	}
}

// fill writes a file until the disk is full.
func fill(t *testing.T, name string) string {
	t.Helper()
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	block := make([]byte, 4<<10)
	for err == nil {
		_, err = file.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return name
}
