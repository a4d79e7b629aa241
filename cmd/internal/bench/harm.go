package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/toolfleet/toolfleet/cmd/internal/client"
)

// Scripts that harm: a tree of twenty processes, and a gigabyte.
const (
	treeScript  = `for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; do sleep 1000 & done; echo all up >&2; wait`
	floodScript = `head -c 1000000000 /dev/zero | tr "\\000" "x" >&2`
)

// cancels is how many trees are cancelled in a round: 200 in five.
const cancels = 40

// harm takes what hostile tools do to the fleet: how long a cancel takes, from
// its request to the result, which says that the tree is seen empty; and how
// much a worker grows while a tool writes a gigabyte.
func (b *bench) harm(ctx context.Context, _ int, out map[string][]float64) error {
	for range min(cancels, 2*b.c.Calls) {
		if err := b.cells.full(ctx); err != nil {
			return fmt.Errorf("cancel: %w", err)
		}
		took, err := b.cells.cancelTree(ctx)
		if err != nil {
			return fmt.Errorf("cancel: %w", err)
		}
		out["cancel"] = append(out["cancel"], float64(took.Microseconds())/1000)
	}
	grown, err := b.cells.flood(ctx)
	if err != nil {
		return fmt.Errorf("flood: %w", err)
	}
	out["flood"] = []float64{grown}
	return nil
}

func script(text string) client.Request {
	id := rand.Text()
	return client.Request{Tool: "shell", Arguments: fmt.Sprintf(`{"script":%q}`, text), ToolCallID: id, ThreadID: id, RunID: id}
}

// cancelTree runs the tree, cancels it when all of it is up, and returns how
// long its end took.
func (f *fleet) cancelTree(ctx context.Context) (took time.Duration, err error) {
	var id string
	var began time.Time
	deleted := make(chan error, 1)
	err = f.client.Call(ctx, script(treeScript), func(got string) { id = got }, func(ev client.Event) error {
		result := bytes.Contains(ev.JSON, []byte(`"TOOL_CALL_RESULT"`))
		switch {
		case result:
			took = time.Since(began)
			if began.IsZero() || !bytes.Contains(ev.JSON, []byte("cancelled")) {
				return fmt.Errorf("the tree ended by itself: %.500s", ev.JSON)
			}
		case began.IsZero() && bytes.Contains(ev.JSON, []byte(`"ACTIVITY_`)) && bytes.Contains(ev.JSON, []byte("all up")):
			began = time.Now()
			go func() { deleted <- f.client.Delete(ctx, "/v1/calls/"+id, nil) }()
		}
		return nil
	})
	if !began.IsZero() {
		err = errors.Join(err, <-deleted)
	}
	return took, err
}

// flood runs the flood and returns by how much the fleet's process grew, in
// mebibytes.
func (f *fleet) flood(ctx context.Context) (float64, error) {
	if err := f.full(ctx); err != nil {
		return 0, err
	}
	before, err := residentKiB(f.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	done := make(chan error, 1)
	go func() {
		done <- f.client.Call(ctx, script(floodScript), func(string) {}, func(ev client.Event) error {
			if bytes.Contains(ev.JSON, []byte(`"TOOL_CALL_RESULT"`)) && !bytes.Contains(ev.JSON, []byte(`"stderrBytes":1000000000`)) {
				return fmt.Errorf("the tool did not write a gigabyte: %.500s", ev.JSON)
			}
			return nil
		})
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for most := before; ; {
		select {
		case err := <-done:
			return float64(most-before) / 1024, err
		case <-tick.C:
			now, err := residentKiB(f.cmd.Process.Pid)
			if err != nil {
				return 0, errors.Join(err, <-done)
			}
			most = max(most, now)
		}
	}
}

// residentKiB is the resident set of a process, in KiB.
func residentKiB(pid int) (int, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")))
		}
	}
	return 0, errors.New("a process without a resident set")
}
