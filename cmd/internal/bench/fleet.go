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
	"strings"
	"syscall"
	"time"

	"github.com/toolfleet/toolfleet/cmd/internal/client"
)

// spec declares a tool. Sandboxes of one shape are shared by all tools, so each
// has another limit of memory: a cold one must not be served from a warm one's
// pool.
const spec = `apiVersion: toolfleet/v1
kind: Tool
name: %s
type: function
description: A tool that is measured.
image: local/%s:1
pull: never
command: [%s]
parameters: {type: object}
annotations: {readOnly: true}
isolation: %s
runtime: %s
limits: {timeout: 60s, memory: %dMi, output: 4Ki}
warm: {min: %d, max: %d}
`

// declared is one tool of a fleet that is measured.
type declared struct {
	name, image, isolation, runtime string
	command                         []string
	// warm is how many sandboxes are kept, no more and no less.
	warm int
}

// fleet is a fleet in a process of its own, so that its garbage is not ours.
type fleet struct {
	cmd    *exec.Cmd
	url    string
	dir    string
	warm   int // sandboxes that a full pool holds
	http   http.Client
	client *client.Fleet
}

var readyLine = regexp.MustCompile(`^ready http=(\S+) `)

func startFleet(ctx context.Context, c Config, name string, tools ...declared) (*fleet, error) {
	f := &fleet{dir: filepath.Join(c.Dir, name), http: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	specs := filepath.Join(f.dir, "tools")
	if err := os.MkdirAll(specs, 0o755); err != nil {
		return nil, err
	}
	for i, t := range tools {
		text := fmt.Appendf(nil, spec, t.name, t.image, strings.Join(t.command, ", "), t.isolation, t.runtime, 256+i, t.warm, t.warm)
		if err := os.WriteFile(filepath.Join(specs, t.name+".tool.yaml"), text, 0o600); err != nil {
			return nil, err
		}
		f.warm += t.warm
	}
	f.cmd = exec.CommandContext(ctx, c.Program, "up", "--state", f.state(),
		"--tools", specs, "--images", c.Images, "--programs", c.Programs,
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
	if f.client, err = client.New(f.url, ""); err != nil {
		return nil, errors.Join(err, f.stop())
	}
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
	return f.until(ctx, map[string]float64{"warm": float64(f.warm), "starting": 0, "running": 0, "closing": 0})
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

// has reports whether the fleet has just so many sandboxes in those states.
func (f *fleet) has(ctx context.Context, want map[string]float64) (bool, error) {
	page, err := f.metrics(ctx)
	if err != nil {
		return false, err
	}
	have := map[string]float64{}
	for _, m := range sandboxes.FindAllSubmatch(page, -1) {
		v, err := strconv.ParseFloat(string(m[2]), 64)
		if err != nil {
			return false, err
		}
		have[string(m[1])] += v
	}
	for state, n := range want {
		if have[state] != n {
			return false, nil
		}
	}
	return true, nil
}

// metrics reads the fleet's metrics.
func (f *fleet) metrics(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := f.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}
