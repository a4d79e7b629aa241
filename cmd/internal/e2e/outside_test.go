//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// prefix begins the names of all that a run makes on the machine: its directory
// below /var/tmp, and its group in each cgroup hierarchy.
const prefix = "toolfleet-e2e-"

const (
	base     = "/var/tmp"
	cgroupAt = "/sys/fs/cgroup"
	// dirVar names the run's directory to the processes inside.
	dirVar = "TOOLFLEET_E2E_DIR"
)

// outside runs the rest of this program in namespaces of its own, and removes
// what is left when it has ended, however it ended.
func outside() (int, error) {
	if os.Geteuid() != 0 {
		return 1, errors.New("a node needs root")
	}
	if _, err := os.Stat(filepath.Join(cgroupAt, "cgroup.controllers")); err == nil {
		return 1, errors.New("this machine has cgroup v2 alone, and the node is made for v1 and hybrid machines; make test-cgroup2 tests the sandbox there")
	}
	if err := sweep(); err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp(base, prefix)
	if err != nil {
		return 1, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return 1, err
	}
	defer lock.Close()
	code, err := contain(dir)
	return code, errors.Join(err, remove(dir))
}

// contain starts the first process and waits for it.
func contain(dir string) (int, error) {
	if err := makeGroups(filepath.Base(dir)); err != nil {
		return 1, err
	}
	// The child is killed when this thread ends, so it must stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), stage+"="+stageFirst, dirVar+"="+dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    true,
	}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(stop)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case s := <-stop:
		_ = cmd.Process.Kill() // all of the namespace goes with it
		<-ended
		return 1, fmt.Errorf("ended by %v", s)
	}
	return cmd.ProcessState.ExitCode(), nil
}

// sweep removes what killed runs left: directories that nobody has locked.
func sweep() error {
	dirs, err := filepath.Glob(filepath.Join(base, prefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		lock, err := lockDir(dir)
		if errors.Is(err, unix.EWOULDBLOCK) {
			continue
		}
		if err == nil {
			err = errors.Join(remove(dir), lock.Close())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// hierarchies are the directories of all cgroup hierarchies.
func hierarchies() ([]string, error) {
	var dirs []string
	entries, err := os.ReadDir(cgroupAt)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, filepath.Join(cgroupAt, e.Name()))
		}
	}
	return dirs, nil
}

// makeGroups makes a group of that name in every hierarchy.
func makeGroups(name string) error {
	dirs, err := hierarchies()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
		// A group of cpuset takes nobody before it has these.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(dir, file))
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name, file), value, 0)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// remove removes the groups and the directory of a run. The kernel needs a moment
// to take the last processes out of their groups.
func remove(dir string) error {
	dirs, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range dirs {
		group := filepath.Join(h, filepath.Base(dir))
		for until := time.Now().Add(10 * time.Second); ; <-time.After(50 * time.Millisecond) {
			err := removeGroup(group)
			if err == nil {
				break
			}
			if time.Now().After(until) {
				return err
			}
		}
	}
	return os.RemoveAll(dir)
}

// removeGroup removes a group and those below it, the deepest first.
func removeGroup(group string) error {
	var groups []string
	err := filepath.WalkDir(group, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			groups = append(groups, path)
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
	for i := len(groups) - 1; i >= 0 && err == nil; i-- {
		if err = os.Remove(groups[i]); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	return err
}

// patience is how long any one program may take; helm and kubectl have bounds of
// their own below it.
const patience = 5 * time.Minute

// command runs a program and returns what it said.
func command(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), err
}
