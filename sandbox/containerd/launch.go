package containerd

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	bootstrap "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	ctrdsandbox "github.com/containerd/containerd/v2/core/sandbox"
	"google.golang.org/protobuf/proto"
)

// shimProgram is the program that containerd starts for [shimRuntime].
const shimProgram = "containerd-shim-runc-v2"

// shimEndTimeout is how long a shim without tasks may take to go.
const shimEndTimeout = 2 * time.Second

// shimDir is the working directory of a shared shim; empty id: of all. It is
// made first and removed last, and locked for as long as its worker lives.
func (r *Runtime) shimDir(id string) string { return filepath.Join(r.dir, "shims", id) }

// launchShim starts a shim that has no task yet, the way containerd does: the
// program's start command leaves a server behind and writes its address.
func (r *Runtime) launchShim(ctx context.Context) (_ *sharedShim, err error) {
	// A short id: its directory holds a socket, whose path has 106 bytes.
	s := &sharedShim{id: strings.ToLower(rand.Text()[:8]), changed: make(chan struct{})}
	// Where there is none, the shim's own program does what is done already.
	s.cleaner, _ = exec.LookPath("true")
	s.dir = r.shimDir(s.id)
	if err := mkdirWalkable(filepath.Join(s.dir, "tmp")); err != nil {
		return nil, err
	}
	if s.lock, err = lockDir(s.dir); err != nil {
		return nil, fmt.Errorf("containerd: lock directory of shim: %w", err)
	}
	defer func() {
		if err != nil {
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
			defer cancel()
			err = errors.Join(err, r.removeShimDir(undo, s.id), s.lock.Close())
		}
	}()
	now := time.Now()
	_, err = r.client.SandboxStore().Create(ctx, ctrdsandbox.Sandbox{
		ID: s.id, Labels: map[string]string{labelOwner: r.cfg.Owner},
		Runtime: ctrdsandbox.RuntimeOpts{Name: shimRuntime}, CreatedAt: now, UpdatedAt: now,
	})
	if err != nil {
		return nil, wrap("create record of shim", err)
	}
	if s.address, err = r.startShim(ctx, s.id); err != nil {
		return nil, err
	}
	s.proc, err = r.findShim(s.id)
	return s, err
}

// startShim runs the program's start command and returns the address that the
// shim serves.
func (r *Runtime) startShim(ctx context.Context, id string) (string, error) {
	dir := r.shimDir(id)
	// The files that the program wants to find where it is started. It writes
	// what goes wrong to log.
	for name, content := range map[string]string{"config.json": "{}", "log": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return "", fmt.Errorf("containerd: furnish shim: %w", err)
		}
	}
	ttrpc := r.cfg.Address + ".ttrpc"
	params, err := proto.Marshal(&bootstrap.BootstrapParams{
		InstanceID: id, Namespace: r.cfg.Namespace, LogLevel: bootstrap.LogLevel_LOG_LEVEL_WARN,
		ContainerdGrpcAddress: r.cfg.Address, ContainerdTtrpcAddress: ttrpc, SocketDir: &dir,
	})
	if err != nil {
		return "", fmt.Errorf("containerd: start shim: %w", err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(r.cfg.BinDir, shimProgram),
		"-namespace", r.cfg.Namespace, "-address", r.cfg.Address, "-id", id, "start")
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + r.cfg.BinDir + ":/usr/sbin:/usr/bin:/sbin:/bin",
		"TMPDIR=" + filepath.Join(dir, "tmp"), // for the mounts of a start
		"TTRPC_ADDRESS=" + ttrpc,
		"GOGC=off", // for runc, which lives for milliseconds; the shim sets its own
	}
	cmd.Stdin = bytes.NewReader(params)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("containerd: start shim: %w: %s", err, stderrOf(err))
	}
	var result bootstrap.BootstrapResult
	if err := proto.Unmarshal(out, &result); err != nil {
		return "", fmt.Errorf("containerd: start shim: read its answer: %w", err)
	}
	if result.Version != shimVersion {
		return "", fmt.Errorf("containerd: start shim: it speaks version %d and not %d; run make setup", result.Version, shimVersion)
	}
	return result.Protocol + "+" + result.Address, nil
}

// shimVersion is the version of the shims' task service that we were built
// for.
const shimVersion = 3

func stderrOf(err error) []byte {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return bytes.TrimSpace(exit.Stderr)
	}
	return nil
}

// findShim opens a handle on the shim id. Its command line stays the only
// thing that tells whose it is, for a sweep as well.
func (r *Runtime) findShim(id string) (*process, error) {
	shims, err := shimsOf(r.cfg.Address)
	if err != nil {
		return nil, err
	}
	for _, s := range shims {
		if s.id == id && s.namespace == r.cfg.Namespace {
			p, err := openPID(s.pid)
			if err != nil {
				return nil, fmt.Errorf("containerd: open shim: %w", err)
			}
			return p, nil
		}
	}
	return nil, fmt.Errorf("containerd: start shim: %s ended at once", id)
}

// dispose removes a shim that nobody sits in.
func (r *Runtime) dispose(ctx context.Context, s *sharedShim) error {
	// containerd has told it to go, if it ever had a task.
	if err := s.proc.end(shimEndTimeout); err != nil {
		return fmt.Errorf("containerd: end shim %s: %w", s.id, err)
	}
	s.proc.close()
	return errors.Join(r.removeShimDir(ctx, s.id), s.lock.Close())
}

// removeShimDir ends the shim id, if it still runs, and removes everything
// that is kept about it.
func (r *Runtime) removeShimDir(ctx context.Context, id string) error {
	shims, err := shimsOf(r.cfg.Address)
	if err != nil {
		return err
	}
	for _, s := range shims {
		if s.id == id && s.namespace == r.cfg.Namespace {
			if err := s.kill(r.cfg.Address); err != nil {
				return err
			}
		}
	}
	if err := wrapEnd("delete record of shim", r.client.SandboxStore().Delete(ctx, id)); err != nil {
		return err
	}
	if err := unmountBelow(r.shimDir(id)); err != nil {
		return err
	}
	if err := os.RemoveAll(r.shimDir(id)); err != nil {
		return fmt.Errorf("containerd: remove directory of shim: %w", err)
	}
	return nil
}

// abandon leaves the shim to the sweep.
func (s *sharedShim) abandon() error {
	s.proc.close()
	if err := s.lock.Close(); err != nil {
		return fmt.Errorf("containerd: unlock shim %s: %w", s.id, err)
	}
	return nil
}
