package chaos

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Bounds of a process's life.
const (
	// upTimeout is how long is waited for a process that is to be ready: servers
	// may take a minute to choose who leads.
	upTimeout = 2 * time.Minute
	// downPause is before the next start of a process that ended by itself.
	downPause = time.Second
	// endTimeout is how long a process may take to end when it is told to.
	endTimeout = 90 * time.Second
)

// process is one part of the fleet, which is started again whenever it ends, as
// a service manager does. It is safe for concurrent use once run was called.
type process struct {
	name string
	// argv and env are what is run; the environment may differ from start to
	// start. argv[0] is guarded by mu: a restart may change it.
	argv []string
	env  func(start int, tame bool) []string
	// ready matches the line that it prints once it serves.
	ready *regexp.Regexp
	// page answers with HTTP 200 while it takes part in the fleet's work.
	page string
	// ns is the network namespace that it runs in; nil is ours.
	ns     *os.File
	log    *os.File
	logger *slog.Logger

	mu      sync.Mutex // guards what follows
	pid     int        // 0 while it does not run
	up      bool       // it has said that it is ready
	killed  bool       // by us
	down    time.Duration
	ending  bool
	unclean bool          // its last end was another than with exit code 0
	tame    bool          // its next start gets no failpoints
	changed chan struct{} // closed and made anew at every change
	deaths  deaths
}

// deaths counts the ends of a process that nobody had asked for.
type deaths struct {
	// failpoints are kills by its own hand, panics are faults of ours, and
	// exits are all others, such as of a start without a server.
	failpoints, panics, exits int
}

// change changes what mu guards, and wakes those who wait.
func (p *process) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	if p.changed != nil {
		close(p.changed)
	}
	p.changed = make(chan struct{})
}

// await waits until cond holds, which is called with mu held.
func (p *process) await(ctx context.Context, cond func() bool) error {
	for {
		p.mu.Lock()
		if p.changed == nil {
			p.changed = make(chan struct{})
		}
		ok, changed := cond(), p.changed
		p.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("chaos: %s: %w", p.name, context.Cause(ctx))
		}
	}
}

// awaitUp waits until the process is ready, and returns its id.
func (p *process) awaitUp(ctx context.Context) (pid int, err error) {
	ctx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	err = p.await(ctx, func() bool { pid = p.pid; return p.up })
	return pid, err
}

// kill ends the process as nothing else does, and keeps it down for a while.
func (p *process) kill(ctx context.Context, down time.Duration) error {
	for {
		if _, err := p.awaitUp(ctx); err != nil {
			return err
		}
		done := false
		p.change(func() {
			if p.up { // it may just have died by another hand
				done, p.killed, p.down, p.up = true, true, down, false
				_ = syscall.Kill(p.pid, syscall.SIGKILL)
			}
		})
		if done {
			return nil
		}
	}
}

// restart tells the process to stop, waits for as long as it takes to do so, and
// starts it again, as program. It returns how long the process took to end and
// its successor to be ready, and fails when either did not do so by itself.
func (p *process) restart(ctx context.Context, program string) (ended, ready time.Duration, err error) {
	old, err := p.awaitUp(ctx)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	p.change(func() {
		p.killed, p.down, p.up, p.argv[0] = true, 0, false, program
		_ = syscall.Kill(old, syscall.SIGTERM)
	})
	bounded, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	unclean := false
	if err := p.await(bounded, func() bool { unclean = p.unclean; return p.pid != old }); err != nil {
		return 0, 0, fmt.Errorf("%w, since it was told to stop", err)
	}
	ended = time.Since(began)
	if unclean {
		return ended, 0, fmt.Errorf("chaos: %s did not end in order; its log says why", p.name)
	}
	began = time.Now()
	_, err = p.awaitUp(ctx)
	return ended, time.Since(began), err
}

// freeze stops the process for a while, without its knowledge.
func (p *process) freeze(ctx context.Context, length time.Duration) error {
	pid, err := p.awaitUp(ctx)
	if err != nil {
		return err
	}
	p.signal(pid, syscall.SIGSTOP)
	pause(ctx, length)
	p.signal(pid, syscall.SIGCONT)
	return nil
}

// signal sends a signal to the process if it is still that one.
func (p *process) signal(pid int, sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid == pid {
		_ = syscall.Kill(pid, sig) // a process that has ended is not ours to signal
	}
}

// end tells the process to stop and waits until it has. It says so when that
// takes more than endTimeout, and ends it then.
func (p *process) end(ctx context.Context) error {
	p.change(func() {
		p.ending = true
		if p.pid != 0 {
			_ = syscall.Kill(p.pid, syscall.SIGCONT)
			_ = syscall.Kill(p.pid, syscall.SIGTERM)
		}
	})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	err := p.await(ctx, func() bool { return p.pid == 0 })
	if err != nil {
		p.change(func() { _ = syscall.Kill(p.pid, syscall.SIGKILL) })
	}
	return err
}

// revive starts the process once more after its end, without failpoints. run
// must be called again.
func (p *process) revive() { p.change(func() { p.ending, p.tame = false, true }) }

// run starts the process again and again until end is called.
func (p *process) run() {
	for start := 0; ; start++ {
		err := p.once(start)
		p.mu.Lock()
		ending, killed, down := p.ending, p.killed, p.down
		p.killed, p.down = false, 0
		p.mu.Unlock()
		if ending {
			return
		}
		if !killed {
			p.logger.Info("a process ended", "process", p.name, "error", err)
			down = downPause
		}
		p.rest(down)
	}
}

// rest waits before the next start, or until there is to be none.
func (p *process) rest(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	_ = p.await(ctx, func() bool { return p.ending }) // its error is that the time is up
}

// once runs the process from its start to its end.
func (p *process) once(start int) error {
	cmd := exec.Command(p.program(), p.argv[1:]...) //nolint:noctx // ended by end and kill
	cmd.Env = append(os.Environ(), p.env(start, p.isTame())...)
	tail := &tail{w: p.log}
	cmd.Stderr = tail
	cmd.WaitDelay = 5 * time.Second                       // for what its children hold open
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	p.mu.Lock()
	if p.ending {
		p.mu.Unlock()
		return nil
	}
	if err = inNamespace(p.ns, cmd.Start); err == nil {
		p.pid = cmd.Process.Pid
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if p.ready.Match(lines.Bytes()) {
			p.change(func() { p.up = true })
		}
	}
	_, _ = io.Copy(io.Discard, out) // a line too long for the scanner
	err = cmd.Wait()
	p.change(func() {
		p.pid, p.up, p.unclean = 0, false, err != nil
		if !p.killed && !p.ending {
			p.deaths.count(tail.text())
		}
	})
	return err
}

func (p *process) program() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.argv[0]
}

func (p *process) isTame() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tame
}

func (p *process) isUnclean() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unclean
}

// count counts an end by the last that the process said.
func (d *deaths) count(said string) {
	switch {
	case strings.Contains(said, "\nfailpoint "):
		d.failpoints++
	case strings.Contains(said, "\npanic: ") || strings.Contains(said, "\nfatal error: "):
		d.panics++
	default:
		d.exits++
	}
}

// tail passes on what is written and keeps the last of it.
type tail struct {
	w    io.Writer
	mu   sync.Mutex
	kept []byte
}

// tailSize holds the stacks of a panic, which come after what it says.
const tailSize = 256 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.kept = append(t.kept, p...)
	t.kept = t.kept[max(0, len(t.kept)-tailSize):]
	t.mu.Unlock()
	return t.w.Write(p)
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return "\n" + string(t.kept)
}
