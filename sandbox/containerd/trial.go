package containerd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox"
)

// trialTimeout bounds the trial of one runtime.
const trialTimeout = 20 * time.Second

// trial is where a runtime is tried: a directory of ours below runBase, the ids
// and the cgroup of one sandbox.
type trial struct {
	agent  []byte
	dir    string
	base   uint32
	cgroup cgroup
}

// makeTrialDir makes a directory for trials outside of any fleet.
func makeTrialDir() (string, error) {
	if err := mkdirWalkable(runBase); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(runBase, "try-")
	if err != nil {
		return "", fmt.Errorf("containerd: make a directory for trials: %w", err)
	}
	return dir, mkdirWalkable(dir)
}

// try runs an agent once, in all that a sandbox has but its image, and says why
// that does not work. The agent ends by itself, since nobody talks to it.
func (h *handler) try(ctx context.Context, t trial) (err error) {
	if h.program == "" {
		return errors.New("it is not installed")
	}
	ctx, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	ids, err := takeRange(t.base, t.cgroup)
	if err != nil {
		return err
	}
	defer ids.release()
	bundle, err := os.MkdirTemp(t.dir, "try-")
	if err != nil {
		return fmt.Errorf("make a bundle: %w", err)
	}
	defer func() {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		err = errors.Join(err, t.undo(undo, bundle))
	}()
	if err := t.furnish(h, bundle, ids); err != nil {
		return err
	}
	args := append(append([]string{}, h.flags...), "--root", filepath.Join(bundle, "runtime"), "run", "--bundle", bundle, filepath.Base(bundle))
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, h.program, args...)
	cmd.Stderr = &said
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s cannot run a sandbox here: %w: %s", h.program, err, lastLine(said.String()))
	}
	return nil
}

// furnish makes the bundle: a root filesystem, a disk and a spec.
func (t trial) furnish(h *handler, bundle string, ids *idRange) error {
	if err := mkdirWalkable(bundle); err != nil {
		return err
	}
	root := filepath.Join(bundle, "rootfs")
	if err := os.Mkdir(root, 0o755); err != nil {
		return fmt.Errorf("make a bundle: %w", err)
	}
	// A tmpfs of its own, since /run may not hold programs.
	if err := unix.Mount("toolfleet", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=32m,mode=755"); err != nil {
		return fmt.Errorf("make a bundle: %w", err)
	}
	if err := furniture(root, t.agent); err != nil {
		return fmt.Errorf("make a bundle: %w", err)
	}
	limits := sandbox.Limits{}.WithDefaults()
	disk, err := makeDisk(filepath.Join(bundle, "disk"), limits.Disk, ids.base)
	if err != nil {
		return err
	}
	spec, err := json.Marshal(h.spec(specParts{limits: limits, ids: ids, root: root, disk: disk, cgroup: t.cgroup, seccomp: containerProfile(agentCaps)}))
	if err != nil {
		return fmt.Errorf("make a bundle: %w", err)
	}
	return os.WriteFile(filepath.Join(bundle, "config.json"), spec, 0o600)
}

// undo removes what is left, also of a runtime that failed half-way.
func (t trial) undo(ctx context.Context, bundle string) error {
	errs := []error{t.cgroup.kill(ctx), t.cgroup.remove(ctx)}
	if err := unmountBelow(bundle); err != nil {
		return errors.Join(append(errs, err)...)
	}
	return errors.Join(append(errs, os.RemoveAll(bundle))...)
}

// lastLine is the end of what a runtime said, which mostly tells what it is
// about.
func lastLine(said string) string {
	said = strings.TrimSpace(said)
	line := said[strings.LastIndexByte(said, '\n')+1:]
	return line[max(0, len(line)-300):]
}
