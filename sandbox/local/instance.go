package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// agentPath is the PATH of agent and tool: not the host's own, which may lead
// anywhere.
const agentPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// instance is one agent with its tool.
type instance struct {
	stdin   *os.File // the agent's, written here
	stdout  *os.File // the agent's, read here
	runtime *Runtime
	id, dir string
	cmd     *exec.Cmd
	gone    chan struct{} // closed when the agent has ended and was waited for

	mu     sync.Mutex // one Kill or Close at a time
	killed bool
	closed bool
}

// start starts the agent in dir.
func (r *Runtime) start(id, dir string) (_ *instance, err error) {
	var fds [4]*os.File // agent's stdin, ours; ours, agent's stdout
	defer func() {
		for i, f := range fds {
			if f != nil && (err != nil || i == 0 || i == 3) {
				_ = f.Close()
			}
		}
	}()
	if fds[0], fds[1], err = os.Pipe(); err != nil {
		return nil, err
	}
	if fds[2], fds[3], err = os.Pipe(); err != nil {
		return nil, err
	}
	//nolint:noctx // the instance outlives the start
	cmd := exec.Command(r.cfg.Agent, "-workspace", filepath.Join(dir, "workspace"), "-home", filepath.Join(dir, "home"), "-tmp", filepath.Join(dir, "tmp"))
	cmd.Env = []string{agentPath}
	cmd.Stdin, cmd.Stdout = fds[0], fds[3]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if os.Geteuid() == 0 && !r.cfg.NoPIDNamespace {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	i := &instance{stdin: fds[1], stdout: fds[2], runtime: r, id: id, dir: dir, cmd: cmd, gone: make(chan struct{})}
	go func() {
		defer close(i.gone)
		_ = cmd.Wait() // how an agent ends is nobody's business
	}()
	if err := i.writeRecord(); err != nil {
		return nil, errors.Join(err, i.kill())
	}
	return i, nil
}

func (i *instance) writeRecord() error {
	pid := i.cmd.Process.Pid
	born, err := bornAt(pid)
	if err != nil {
		return err
	}
	b, err := json.Marshal(record{Owner: i.runtime.cfg.Owner, Created: time.Now(), PID: pid, Born: born})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(i.dir, recordFile), b, 0o600)
}

// ID is the id given to Start.
func (i *instance) ID() string { return i.id }

// Read reads from the agent's stdout.
func (i *instance) Read(b []byte) (int, error) { return i.stdout.Read(b) }

// Write writes to the agent's stdin.
func (i *instance) Write(b []byte) (int, error) { return i.stdin.Write(b) }

// Kill ends the agent and everything below it.
func (i *instance) Kill(ctx context.Context) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.killLocked(ctx)
}

func (i *instance) killLocked(ctx context.Context) error {
	if i.killed {
		return nil
	}
	if err := i.kill(); err != nil {
		return fmt.Errorf("local: kill %s: %w", i.id, err)
	}
	select {
	case <-i.gone:
		i.killed = true
		return nil
	case <-ctx.Done():
		return fmt.Errorf("local: kill %s: %w", i.id, context.Cause(ctx))
	}
}

// kill kills the tree. In a pid namespace, the kernel lets its first process go
// only when all others are gone, so waiting for the agent is waiting for all.
func (i *instance) kill() error {
	return killAgent(i.cmd.Process.Pid, func(sig syscall.Signal) error {
		if err := i.cmd.Process.Signal(sig); sig != syscall.SIGKILL || !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		return nil
	})
}

// Usage is always empty: nothing counts here.
func (i *instance) Usage(context.Context) (sandbox.Usage, error) { return sandbox.Usage{}, nil }

// Close kills the tree and removes the directory.
func (i *instance) Close(ctx context.Context) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return nil
	}
	if err := i.killLocked(ctx); err != nil {
		return err
	}
	_ = i.stdout.Close()
	_ = i.stdin.Close()
	if err := removeDir(i.dir); err != nil {
		return fmt.Errorf("local: close %s: %w", i.id, err)
	}
	i.closed = true
	i.runtime.mu.Lock()
	defer i.runtime.mu.Unlock()
	delete(i.runtime.instances, i.id)
	return nil
}

// makeDirs makes a sandbox's directories. As root they are the tool's, which
// has another user.
func makeDirs(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"workspace", "workspace/" + wire.DirOut, "home", "tmp"} {
		sub := filepath.Join(dir, name)
		if err := os.Mkdir(sub, 0o755); err != nil {
			return err
		}
		// The tool may ask for any user.
		if err := os.Chmod(sub, 0o1777); err != nil {
			return err
		}
		if os.Geteuid() == 0 {
			if err := os.Chown(sub, wire.ToolUser, wire.ToolUser); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeDir removes a sandbox's directory, also what a tool made unreadable.
func removeDir(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || os.Geteuid() == 0 {
		return err
	}
	_ = filepath.WalkDir(dir, func(path string, e os.DirEntry, _ error) error {
		if e != nil && e.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// bornAt is when the process pid began, in the kernel's ticks.
func bornAt(pid int) (uint64, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	const startTime = 19 // of the fields after the name, which ends with the last parenthesis
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= startTime {
		return 0, errors.New("/proc: a stat file is too short")
	}
	return strconv.ParseUint(string(fields[startTime]), 10, 64)
}
