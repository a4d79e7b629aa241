package containerd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// DaemonConfig says how to run a containerd of our own.
type DaemonConfig struct {
	// BinDir holds containerd, containerd-shim-runc-v2 and runc.
	BinDir string
	// StateDir keeps images between runs. One fleet at a time may use it.
	StateDir string
	// Logger takes what happens to the daemon. Nil discards it. What
	// containerd itself writes goes to the file containerd.log below StateDir.
	Logger *slog.Logger
}

// Bounds of the daemon's life.
const (
	startTimeout = 30 * time.Second
	stopTimeout  = 10 * time.Second
	maxLog       = 8 << 20
)

// Daemon is a running containerd that belongs to one state directory.
//
// It is not tied to us by a parent-death signal: running calls outlive the
// fleet's process only as orphans, and to remove orphans one needs their
// containerd. So after a kill -9 of the fleet it stays, and the next
// [StartDaemon] on the same state adopts it, or ends it when it is not the
// same program with the same configuration.
type Daemon struct {
	paths  daemonPaths
	bin    string
	digest string
	log    *slog.Logger
	lock   *os.File

	stop chan struct{} // closed by Stop
	done chan struct{} // closed by supervise

	mu     sync.Mutex // guards the two below
	proc   *process
	reaped <-chan struct{} // nil for a process that is not our child

	once sync.Once
	err  error // of Stop
}

// StartDaemon starts a containerd on cfg.StateDir, or adopts the one that a
// killed predecessor left there, and returns once it answers. A containerd
// that dies is started again until [Daemon.Stop] is called.
func StartDaemon(ctx context.Context, cfg DaemonConfig) (*Daemon, error) {
	if err := Preflight(cfg.StateDir); err != nil {
		return nil, err
	}
	bin, err := filepath.Abs(cfg.BinDir)
	if err != nil {
		return nil, fmt.Errorf("containerd: program directory: %w", err)
	}
	d := &Daemon{
		paths: pathsOf(cfg.StateDir), bin: bin, log: cfg.Logger,
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if err := d.begin(ctx); err != nil {
		d.unlock()
		return nil, err
	}
	go d.supervise(context.WithoutCancel(ctx))
	return d, nil
}

// Address is the path of containerd's socket.
func (d *Daemon) Address() string { return d.paths.socket }

// BinDir is where containerd, its shim and runc lie.
func (d *Daemon) BinDir() string { return d.bin }

// begin does everything up to a containerd that answers.
func (d *Daemon) begin(ctx context.Context) error {
	var err error
	if d.digest, err = d.programDigest(); err != nil {
		return err
	}
	if err := mkdirWalkable(d.paths.dir); err != nil {
		return err
	}
	if err := d.takeLock(); err != nil {
		return err
	}
	for _, dir := range []string{runBase, d.paths.run, d.paths.bundles, d.paths.temp} {
		if err := mkdirWalkable(dir); err != nil {
			return err
		}
	}
	adopted, err := d.adopt(ctx)
	if err != nil || adopted {
		return err
	}
	if err := d.dropStaleState(); err != nil {
		return err
	}
	return d.spawn(ctx)
}

func (d *Daemon) takeLock() error {
	f, err := os.OpenFile(d.paths.lock, os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("containerd: open lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("containerd: the state directory %s is in use by another fleet; stop it or choose another --state", filepath.Dir(d.paths.dir))
		}
		return fmt.Errorf("containerd: lock state: %w", err)
	}
	d.lock = f
	return nil
}

func (d *Daemon) unlock() {
	if d.lock != nil {
		_ = d.lock.Close()
	}
}

// programDigest covers the configuration and the three programs, by size and
// time of change: reading 60 MB at every start would cost more than it tells.
func (d *Daemon) programDigest() (string, error) {
	h := sha256.New()
	_, _ = io.WriteString(h, d.paths.render())
	for _, name := range programs {
		path := filepath.Join(d.bin, name)
		info, err := os.Stat(path)
		if err != nil {
			return "", fmt.Errorf("containerd: %s is missing; run make setup: %w", path, err)
		}
		_, _ = fmt.Fprintf(h, "%s %d %d\n", path, info.Size(), info.ModTime().UnixNano())
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// adopt takes over the containerd of a predecessor if it is just what we would
// start ourselves and answers; else it ends it.
func (d *Daemon) adopt(ctx context.Context) (bool, error) {
	id, err := readIdentity(d.paths.record)
	if err != nil {
		return false, fmt.Errorf("containerd: read record of predecessor: %w", err)
	}
	p, err := openProcess(id)
	if p == nil {
		return false, err
	}
	if id.Config == d.digest && ping(ctx, d.paths.socket, 3*time.Second) == nil {
		d.log.Info("containerd adopted", "pid", id.PID)
		d.replace(p, nil)
		return true, nil
	}
	d.log.Info("containerd of a predecessor ended", "pid", id.PID, "same", id.Config == d.digest)
	defer p.close()
	return false, p.end(stopTimeout)
}

// dropStaleState throws the state away when the machine was booted since, and
// was not shut down after a clean stop: with no_sync the databases may then be
// torn. They hold nothing that cannot be imported again.
func (d *Daemon) dropStaleState() error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	id, err := readIdentity(d.paths.record)
	if err != nil {
		return err
	}
	_, unclean := os.Stat(d.paths.clean)
	if id.Boot != "" && id.Boot != boot && unclean != nil {
		d.log.Warn("containerd state dropped: the machine was restarted without a clean stop")
		if err := os.RemoveAll(d.paths.root); err != nil {
			return fmt.Errorf("containerd: drop stale state: %w", err)
		}
	}
	if err := os.Remove(d.paths.clean); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("containerd: remove mark of clean stop: %w", err)
	}
	return nil
}

// spawn starts containerd and waits until it answers.
func (d *Daemon) spawn(ctx context.Context) error {
	if err := os.WriteFile(d.paths.config, []byte(d.paths.render()), 0o600); err != nil {
		return fmt.Errorf("containerd: write configuration: %w", err)
	}
	logFile, err := os.OpenFile(d.paths.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("containerd: open log: %w", err)
	}
	defer func() { _ = logFile.Close() }()

	// No context: ending it with SIGKILL is Stop's last resort only.
	cmd := exec.Command(filepath.Join(d.bin, "containerd"), "--config", d.paths.config) //nolint:noctx // ended by Stop
	// The shims inherit this environment: they find runc on the PATH, and put
	// the mounts of a start under TMPDIR, where the clean-up looks.
	cmd.Env = []string{"PATH=" + d.bin + ":/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR=" + d.paths.temp}
	cmd.Dir = "/"
	// A file, not a pipe: a pipe would kill containerd with SIGPIPE soon after
	// the fleet was killed. supervise keeps the file short.
	cmd.Stdout, cmd.Stderr = logFile, logFile
	// A group of its own, so that Ctrl-C at a terminal stops the fleet first.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("containerd: start: %w", err)
	}
	reaped := make(chan struct{})
	go func() {
		defer close(reaped)
		_ = cmd.Wait() // how it ended stands in its log
	}()
	p, err := d.note(cmd.Process.Pid)
	if err == nil {
		if err = d.awaitReady(ctx, p); err != nil {
			p.close()
		}
	}
	if err != nil {
		_ = cmd.Process.Kill()
		<-reaped
		return fmt.Errorf("containerd: start (see %s): %w", d.paths.log, err)
	}
	d.replace(p, reaped)
	d.log.Info("containerd started", "pid", p.pid)
	return nil
}

func (d *Daemon) replace(p *process, reaped <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.proc != nil {
		d.proc.close()
	}
	d.proc, d.reaped = p, reaped
}

func (d *Daemon) current() (*process, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.proc, d.reaped
}

// note writes down who runs, for a successor, and opens a handle on it.
func (d *Daemon) note(pid int) (*process, error) {
	id, err := identify(pid, d.digest)
	if err != nil {
		return nil, err
	}
	if err := id.write(d.paths.record); err != nil {
		return nil, err
	}
	p, err := openProcess(id)
	if p == nil && err == nil {
		err = errors.New("it ended at once")
	}
	return p, err
}

// awaitReady returns once containerd answers, or has ended, or is too slow.
func (d *Daemon) awaitReady(ctx context.Context, p *process) error {
	deadline := time.Now().Add(startTimeout)
	for {
		err := ping(ctx, d.paths.socket, time.Second)
		switch {
		case err == nil:
			return nil
		case p.wait(10 * time.Millisecond):
			return errors.New("it ended before it was ready")
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case time.Now().After(deadline):
			return fmt.Errorf("not ready after %v: %w", startTimeout, err)
		}
	}
}
