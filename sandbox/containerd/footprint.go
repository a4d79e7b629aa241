package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Footprint is what idle sandboxes keep in memory.
type Footprint struct {
	// Sandboxes is how many there are, and Shims how many shims serve them.
	Sandboxes, Shims int
	// Bytes is the proportional set size of their processes and of the shims
	// that serve them: a page that n processes share counts 1/n for each.
	Bytes int64
}

// MeasureFootprint looks at the sandboxes of the [Daemon] that has its state
// in stateDir. It is for benchmarks: it reads a line for each page range of
// each process.
func MeasureFootprint(stateDir string) (Footprint, error) {
	var f Footprint
	shims, err := shimsOf(pathsOf(stateDir).socket)
	if err != nil {
		return f, err
	}
	for _, s := range shims {
		children, err := childrenOf(s.pid)
		if err != nil {
			return f, err
		}
		f.Sandboxes += len(children)
		if len(children) > 0 {
			f.Shims++
		}
		for _, pid := range append(children, s.pid) {
			pss, err := pssOf(pid)
			if err != nil {
				return f, err
			}
			f.Bytes += pss
		}
	}
	return f, nil
}

// Look counts what the [Daemon] that has its state in stateDir has because of
// sandboxes, from another process. agentPath is any agent; see [Config].
func Look(ctx context.Context, stateDir, agentPath string) (Leftovers, error) {
	r, err := New(Config{Address: pathsOf(stateDir).socket, Owner: "onlooker", AgentPath: agentPath})
	if err != nil {
		return Leftovers{}, err
	}
	l, err := r.Leftovers(ctx)
	return l, errors.Join(err, r.Close())
}

// childrenOf lists the children of all threads of a process.
func childrenOf(pid int) ([]int, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil, err
	}
	var children []int
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			return nil, fmt.Errorf("containerd: list children: %w", err)
		}
		for field := range bytes.FieldsSeq(raw) {
			child, err := strconv.Atoi(string(field))
			if err != nil {
				return nil, fmt.Errorf("containerd: list children: %w", err)
			}
			children = append(children, child)
		}
	}
	return children, nil
}

// pssOf is the proportional set size of a process, in bytes.
func pssOf(pid int) (int64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, fmt.Errorf("containerd: read memory of process: %w", err)
	}
	for line := range bytes.Lines(raw) {
		fields := bytes.Fields(line)
		if len(fields) == 3 && string(fields[0]) == "Pss:" {
			kib, err := strconv.ParseInt(string(fields[1]), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("containerd: read memory of process: %d has no size", pid)
}
