package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"
)

// spec declares word-count once warm and once cold. Sandboxes of one shape are
// shared by all tools, so the two have different limits: the cold one must not
// be served from the warm one's pool.
const spec = `apiVersion: toolfleet/v1
kind: Tool
name: %s
type: function
description: Counts words in a text.
image: local/word-count:1
pull: never
command: [/tool]
parameters: {type: object, required: [text], properties: {text: {type: string}}}
annotations: {readOnly: true}
limits: {memory: %dMi}
warm: {min: %d, max: %d}
`

// warmSize is how many sandboxes a full pool holds.
const warmSize = 2

// fleet is a fleet in a process of its own, so that its garbage is not ours.
type fleet struct {
	cmd  *exec.Cmd
	url  string
	dir  string
	http http.Client
}

var readyLine = regexp.MustCompile(`^ready http=(\S+) `)

func startFleet(ctx context.Context, c Config) (*fleet, error) {
	f := &fleet{dir: filepath.Join(c.Dir, "fleet")}
	tools, images := filepath.Join(f.dir, "tools"), filepath.Join(f.dir, "images")
	for _, dir := range []string{tools, images} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	for name, n := range map[string]int{"warm": warmSize, "cold": 0} {
		if err := os.WriteFile(filepath.Join(tools, name+".tool.yaml"), fmt.Appendf(nil, spec, name, 256+n, n, n), 0o600); err != nil {
			return nil, err
		}
	}
	image, err := filepath.Abs(c.Image)
	if err != nil {
		return nil, err
	}
	if err := os.Symlink(image, filepath.Join(images, "word-count.tar")); err != nil {
		return nil, err
	}
	f.cmd = exec.CommandContext(ctx, c.Program, "up", "--state", f.state(),
		"--tools", tools, "--images", images, "--programs", c.Programs,
		"--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--log-level", "warn")
	f.cmd.Cancel = func() error { return f.cmd.Process.Signal(syscall.SIGTERM) }
	f.cmd.WaitDelay = time.Minute
	f.cmd.Stderr = c.Err
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := f.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	m := readyLine.FindStringSubmatch(line)
	if m == nil {
		return nil, errors.Join(errors.New("bench: the fleet did not become ready"), err, f.stop())
	}
	f.url = m[1]
	return f, nil
}

// state is the fleet's state directory.
func (f *fleet) state() string { return filepath.Join(f.dir, "state") }

// stop ends the fleet in order.
func (f *fleet) stop() error {
	f.http.CloseIdleConnections()
	_ = f.cmd.Process.Signal(syscall.SIGTERM)
	if err := f.cmd.Wait(); err != nil {
		return fmt.Errorf("bench: the fleet ended with %w", err)
	}
	return nil
}

// call submits a call and waits for its result.
func (f *fleet) call(ctx context.Context, tool string) error {
	body := fmt.Appendf(nil, `{"tool":%q,"arguments":{"text":"to be or not to be"}}`, tool)
	return post(ctx, &f.http, f.url, body)
}

// full waits until the pool is full and nothing else goes on.
func (f *fleet) full(ctx context.Context) error {
	return f.until(ctx, map[string]float64{"warm": warmSize, "starting": 0, "running": 0, "closing": 0})
}

// idle waits until no sandbox is being started or removed.
func (f *fleet) idle(ctx context.Context) error {
	return f.until(ctx, map[string]float64{"starting": 0, "running": 0, "closing": 0})
}

var sandboxes = regexp.MustCompile(`(?m)^toolfleet_sandboxes\{[^}]*state="(\w+)"[^}]*\} (\S+)$`)

func (f *fleet) until(ctx context.Context, want map[string]float64) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := f.has(ctx, want)
		if err != nil || ok {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("bench: the pool never came to %v", want)
		}
	}
}

func (f *fleet) has(ctx context.Context, want map[string]float64) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"/metrics", nil)
	if err != nil {
		return false, err
	}
	resp, err := f.http.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		return false, err
	}
	seen := 0
	for _, m := range sandboxes.FindAllSubmatch(page, -1) {
		v, err := strconv.ParseFloat(string(m[2]), 64)
		if w, ok := want[string(m[1])]; ok {
			if err != nil || v != w {
				return false, err
			}
			seen++
		}
	}
	return seen == len(want), nil
}
