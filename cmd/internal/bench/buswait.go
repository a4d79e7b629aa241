package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	// waitClients submit the calls that wait.
	waitClients = 16
	// waitSlices are the parts of the submits whose rates are compared, and
	// waitEnds how many of them count as the beginning and as the end.
	waitSlices = 20
	waitEnds   = 5
	// settleTime is how long the memory of waiting calls is left alone before
	// it is read: the server drops its caches of what was written last, and the
	// dispatcher gives back what the burst needed.
	settleTime = 30 * time.Second
)

// ServeBus is a fleet without workers on a store in dir: a dispatcher and an
// embedded server, in which every call waits. It writes the URL of its doors to
// out and ends when in does.
func ServeBus(ctx context.Context, dir string, in io.Reader, out io.Writer) error {
	b, err := openBus(ctx, busConfig{dir: dir})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, b.url)
	_, err = io.Copy(io.Discard, in)
	return errors.Join(err, b.close())
}

// waiting is a fleet of ServeBus in a process of its own, so that its memory is
// nobody else's.
type waiting struct {
	cmd   *exec.Cmd
	stdin io.Closer
	url   string
	http  http.Client
}

func startWaiting(ctx context.Context, c BusConfig) (w *waiting, err error) {
	w = &waiting{http: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: waitClients}}}
	w.cmd = exec.CommandContext(ctx, c.Program, "bench-bus", "--serve", filepath.Join(c.Dir, "waiting"))
	w.cmd.Stderr = c.Err
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(errors.New("the fleet did not become ready"), err, w.stop())
	}
	w.url = strings.TrimSpace(line)
	return w, nil
}

func (w *waiting) stop() error {
	w.http.CloseIdleConnections()
	return errors.Join(w.stdin.Close(), w.cmd.Wait())
}

// submit makes a call that waits.
func (w *waiting) submit(ctx context.Context) error {
	status, answer, err := send(ctx, &w.http, w.url+"/v1/calls?wait=0", busBody)
	if err == nil && status != http.StatusAccepted {
		err = fmt.Errorf("the call was answered with %d: %.500s", status, answer)
	}
	return err
}

// measureWaiting takes what a waiting call keeps in memory, and whether many of
// them make the next one dearer.
func measureWaiting(ctx context.Context, c BusConfig) (err error) {
	w, err := startWaiting(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	if err := w.submit(ctx); err != nil {
		return err
	}
	before, err := residentKiB(w.cmd.Process.Pid)
	if err != nil {
		return err
	}
	rates := make([]float64, 0, waitSlices)
	for range waitSlices {
		e, err := flood(ctx, c.Waiting/waitSlices, waitClients, w.submit)
		if err != nil {
			return err
		}
		rates = append(rates, e.rate)
	}
	busy, err := residentKiB(w.cmd.Process.Pid)
	if err != nil {
		return err
	}
	if err := pause(ctx, settleTime); err != nil {
		return err
	}
	after, err := residentKiB(w.cmd.Process.Pid)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Err, "bench: %d calls wait: %d KiB before, %d KiB while they came, %d KiB when they had; %.0f submits a second\n", c.Waiting, before, busy, after, rates)
	c.print("waiting_calls", float64(c.Waiting))
	c.print("bytes_per_waiting_call", float64(after-before)*1024/float64(c.Waiting))
	c.print("submit_rate_begin", quantile(rates[:waitEnds], 0.5))
	c.print("submit_rate_end", quantile(rates[waitSlices-waitEnds:], 0.5))
	c.print("submit_rate_end_vs_begin", quantile(rates[waitSlices-waitEnds:], 0.5)/quantile(rates[:waitEnds], 0.5))
	return nil
}

// pause waits for d.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
