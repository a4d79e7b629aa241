package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/toolfleet/toolfleet/sandbox"
)

// How long a registry is asked again, for each request: at most five times, and
// within a minute. Tokens, manifests and layers all go through here, so nothing
// above has to try again.
const (
	firstPause   = 500 * time.Millisecond
	moreTries    = 4
	longestTries = time.Minute
	// longestWish is the longest pause that a registry may ask for. One that
	// wants more is too busy for us.
	longestWish = 30 * time.Second
	// stallTimeout is how long a body may bring nothing. containerd's reader
	// then asks for what is missing.
	stallTimeout = 30 * time.Second
)

// patientTransport makes requests again that failed for a reason that passes:
// 429, 5xx, and faults of the network. A registry that says no is believed.
//
// What is left over in the end is an error and no response, which those above
// would take for a reason to try five times more.
type patientTransport struct {
	next  http.RoundTripper
	allow func(*http.Request) error
	pause time.Duration
}

// RoundTrip implements [http.RoundTripper]. Its errors are
// [sandbox.ImageError]s without the image's name.
func (t *patientTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := t.allow(req); err != nil {
		return nil, unreachable("it leads to %s://%s: %v", req.URL.Scheme, req.URL.Host, err)
	}
	growing := backoff.NewExponentialBackOff(backoff.WithInitialInterval(t.pause), backoff.WithMultiplier(2), backoff.WithMaxElapsedTime(longestTries))
	wish := &wishedBackOff{BackOff: backoff.WithMaxRetries(growing, moreTries)}
	return backoff.RetryWithData(func() (*http.Response, error) { return t.try(req, wish) }, backoff.WithContext(wish, req.Context()))
}

func (t *patientTransport) try(req *http.Request, wish *wishedBackOff) (*http.Response, error) {
	wish.pause = 0
	ctx, cancel := context.WithCancel(req.Context())
	again := req.Clone(ctx)
	if req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			cancel()
			return nil, backoff.Permanent(err)
		}
		again.Body = body
	}
	resp, err := t.next.RoundTrip(again)
	if err != nil {
		cancel()
		if req.Context().Err() != nil {
			return nil, backoff.Permanent(context.Cause(req.Context()))
		}
		return nil, unreachable("%s: %s", req.URL.Host, oneLine(err.Error()))
	}
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode < 500 {
		resp.Body = newSteady(resp.Body, cancel)
		if err := bound(req, resp); err != nil {
			resp.Body.Close()
			return nil, backoff.Permanent(err)
		}
		return resp, nil
	}
	resp.Body.Close()
	cancel()
	err = unreachable("%s answers %d %s", req.URL.Host, resp.StatusCode, http.StatusText(resp.StatusCode))
	if wish.pause = retryAfter(resp.Header.Get("Retry-After")); wish.pause > longestWish {
		return nil, backoff.Permanent(err)
	}
	return nil, err
}

// bound holds what is read whole, manifests and tokens, to the size of a
// manifest. Layers are read to the size that their manifest tells.
func bound(req *http.Request, resp *http.Response) error {
	for req.Response != nil { // we were sent on
		req = req.Response.Request
	}
	if strings.Contains(req.URL.Path, "/blobs/") {
		return nil
	}
	if resp.ContentLength > maxManifest {
		return corrupt("an answer of %d bytes where a manifest is expected; at most %d are read", resp.ContentLength, maxManifest)
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, maxManifest), resp.Body}
	return nil
}

func unreachable(format string, args ...any) error {
	return &sandbox.ImageError{Fault: sandbox.ImageUnreachable, Detail: oneLine(fmt.Sprintf(format, args...))}
}

// wishedBackOff pauses at least as long as the registry asked for.
type wishedBackOff struct {
	backoff.BackOff
	pause time.Duration
}

func (b *wishedBackOff) NextBackOff() time.Duration {
	next := b.BackOff.NextBackOff()
	if next == backoff.Stop {
		return next
	}
	return max(next, b.pause)
}

// retryAfter reads a Retry-After header: seconds, or a time. What is neither is
// no wish.
func retryAfter(s string) time.Duration {
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(s); err == nil {
		return time.Until(at)
	}
	return 0
}

// steady is a body that may be slow but not stand still. One that does, or whose
// connection breaks, ends too early, and containerd resumes where it stopped.
type steady struct {
	io.ReadCloser
	timer *time.Timer
	end   context.CancelFunc
}

func newSteady(body io.ReadCloser, end context.CancelFunc) *steady {
	s := &steady{ReadCloser: body, end: end, timer: time.AfterFunc(stallTimeout, end)}
	s.timer.Stop()
	return s
}

func (s *steady) Read(p []byte) (int, error) {
	s.timer.Reset(stallTimeout)
	defer s.timer.Stop()
	n, err := s.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (s *steady) Close() error {
	s.timer.Stop()
	defer s.end()
	return s.ReadCloser.Close()
}
