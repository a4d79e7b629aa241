//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// caller makes calls through the fleet's Service.
type caller struct {
	url  string
	http *http.Client
}

// caller looks the Service up. Each call gets a connection of its own, so that all
// of the dispatchers are asked.
func (n *node) caller(t *testing.T) *caller {
	t.Helper()
	ip := n.fleet(t, "get", "service", fullName, "-o", "jsonpath={.spec.clusterIP}")
	return &caller{url: "http://" + ip, http: &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second,
	}}
}

// errUnanswered says that a call is taken and has not ended.
var errUnanswered = errors.New("the call has not ended")

// ask counts down in the call named key; see [caller.call].
func (c *caller) ask(ctx context.Context, key string, from int) error {
	return c.call(ctx, key, "countdown", map[string]any{"from": from})
}

// call makes the call named key, or asks for it when it was made before: an error
// means that it has to be asked for again.
func (c *caller) call(ctx context.Context, key, tool string, arguments map[string]any) error {
	body, err := json.Marshal(map[string]any{"tool": tool, "arguments": arguments})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/v1/calls?wait=20s", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer token-of-acme-in-the-test")
	req.Header.Set("Idempotency-Key", key)
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return err
	}
	var view struct {
		ID, Status string
		Attempts   int
	}
	switch {
	case res.StatusCode == http.StatusAccepted:
		return errUnanswered
	case res.StatusCode != http.StatusOK:
		return fmt.Errorf("answered with %d: %.200s", res.StatusCode, raw)
	case json.Unmarshal(raw, &view) != nil || view.Status != "succeeded":
		return &wrong{fmt.Sprintf("call %s ended so: %.500s", key, raw)}
	}
	return nil
}

// wrong is an answer that asking again does not mend.
type wrong struct{ string }

func (w *wrong) Error() string { return w.string }

// Calls of the load, and how many are made at a time.
const (
	loadCalls  = 500
	loadAtOnce = 16
	loadEach   = 3 * time.Minute
)

// load makes calls until there were enough and stop is closed, and wants each to
// be answered well. A client that loses its connection asks again by the same key,
// as any client of a fleet should.
func (c *caller) load(t *testing.T, stop <-chan struct{}) {
	t.Helper()
	var made, answered, again atomic.Int64
	began := time.Now()
	var callers sync.WaitGroup
	for range loadAtOnce {
		callers.Go(func() {
			for {
				n := made.Add(1)
				select {
				case <-stop:
					if n > loadCalls {
						return
					}
				default:
				}
				retries, err := c.insist(fmt.Sprintf("load-%d", n), 10+int(n%30))
				again.Add(int64(retries))
				if err != nil {
					t.Error(err)
					return
				}
				answered.Add(1)
			}
		})
	}
	callers.Wait()
	t.Logf("%d calls answered in %.0f s, %d requests made again", answered.Load(), time.Since(began).Seconds(), again.Load())
	if answered.Load() < loadCalls {
		t.Errorf("only %d calls were answered", answered.Load())
	}
}

// insist asks until there is a result.
func (c *caller) insist(key string, from int) (retries int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), loadEach)
	defer cancel()
	for {
		err := c.ask(ctx, key, from)
		var bad *wrong
		switch {
		case err == nil, errors.As(err, &bad):
			return retries, err
		case ctx.Err() != nil:
			return retries, fmt.Errorf("call %s has no result: %w", key, err)
		case !errors.Is(err, errUnanswered):
			retries++
		}
		<-time.After(100 * time.Millisecond)
	}
}
