package containerd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// identity names one process so surely that it can be killed later by another
// process: a pid alone may meanwhile belong to somebody else.
type identity struct {
	PID int `json:"pid"`
	// Start is the process's start time in clock ticks since boot.
	Start uint64 `json:"start"`
	Boot  string `json:"boot"`
	Exe   string `json:"exe"`
	// Config is the digest of what it was started with: configuration and
	// program.
	Config string `json:"config"`
}

// process is a handle on a process that no reuse of pids can fool.
type process struct {
	pid int
	fd  int
}

// openProcess returns a handle if id still runs, else nil.
func openProcess(id identity) (*process, error) {
	boot, err := bootID()
	if err != nil || boot != id.Boot || id.PID <= 1 {
		return nil, err
	}
	fd, err := unix.PidfdOpen(id.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("containerd: open process %d: %w", id.PID, err)
	}
	// From here on the handle is fixed; now see whom it holds.
	start, err := startTime(id.PID)
	if err == nil && start == id.Start && sameExe(id) {
		return &process{pid: id.PID, fd: fd}, nil
	}
	return nil, unix.Close(fd)
}

// openPID returns a handle on pid, which the caller knows to be alive.
func openPID(pid int) (*process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	return &process{pid: pid, fd: fd}, nil
}

func sameExe(id identity) bool {
	exe, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(id.PID), "exe"))
	return err == nil && strings.TrimSuffix(exe, " (deleted)") == id.Exe
}

func (p *process) signal(sig unix.Signal) error {
	err := unix.PidfdSendSignal(p.fd, sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// wait reports whether the process ended within d.
func (p *process) wait(d time.Duration) bool {
	deadline := time.Now().Add(d)
	for {
		left := max(0, time.Until(deadline))
		fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(left.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return n > 0 && err == nil
	}
}

func (p *process) close() { _ = unix.Close(p.fd) }

// kill ends the process and waits for its end as long as ctx allows.
func (p *process) kill(ctx context.Context) error {
	if err := p.signal(unix.SIGKILL); err != nil {
		return fmt.Errorf("containerd: kill process %d: %w", p.pid, err)
	}
	for !p.wait(50 * time.Millisecond) {
		if ctx.Err() != nil {
			return fmt.Errorf("containerd: process %d does not die: %w", p.pid, context.Cause(ctx))
		}
	}
	return nil
}

// end asks the process to stop and kills it when it does not within grace.
func (p *process) end(grace time.Duration) error {
	if err := p.signal(unix.SIGTERM); err != nil {
		return err
	}
	if p.wait(grace) {
		return nil
	}
	if err := p.signal(unix.SIGKILL); err != nil {
		return err
	}
	if !p.wait(5 * time.Second) {
		return fmt.Errorf("containerd: process %d does not die", p.pid)
	}
	return nil
}

// identify describes a running process.
func identify(pid int, config string) (identity, error) {
	boot, err := bootID()
	if err != nil {
		return identity{}, err
	}
	start, err := startTime(pid)
	if err != nil {
		return identity{}, err
	}
	exe, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
	if err != nil {
		return identity{}, fmt.Errorf("containerd: read program of process: %w", err)
	}
	return identity{PID: pid, Start: start, Boot: boot, Exe: exe, Config: config}, nil
}

func readIdentity(path string) (identity, error) {
	var id identity
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return id, nil
	}
	if err != nil {
		return id, err
	}
	// A record cut short by a crash names nobody, and is treated so.
	if json.Unmarshal(raw, &id) != nil {
		return identity{}, nil
	}
	return id, nil
}

func (id identity) write(path string) error {
	raw, err := json.Marshal(id)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", raw, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// startTime is field 22 of /proc/pid/stat. The second field, the name, may
// hold blanks and parentheses, so counting begins behind its last one.
func startTime(pid int) (uint64, error) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, fmt.Errorf("containerd: read start time: %w", err)
	}
	fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("containerd: /proc/%d/stat has %d fields", pid, len(fields))
	}
	return strconv.ParseUint(string(fields[19]), 10, 64)
}

func bootID() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("containerd: read boot id: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}
