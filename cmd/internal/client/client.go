package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// ErrUnreachable says that there is no fleet to talk to: nothing listens, the
// connection broke and did not come back, or the fleet takes no calls now.
var ErrUnreachable = errors.New("no fleet to talk to")

// ErrLost says that a call was being followed and the connection to its fleet
// did not come back. The call goes on. It comes with ErrUnreachable.
var ErrLost = errors.New("the connection to the fleet was lost")

// maxBody bounds an answer that is read whole. A result has parts of at most
// 256 KiB inline; a list has at most 1000 lines.
const maxBody = 64 << 20

// Fleet is one fleet's HTTP API. It is safe for concurrent use.
type Fleet struct {
	base  *url.URL
	token string
	http  *http.Client
	// patience is how long a stream may stay broken before it is given up.
	patience time.Duration
	// silence is how long a stream may bring nothing before it counts as
	// broken. A fleet sends a comment every 15 s, so only a network that died
	// without a word is this silent.
	silence time.Duration
}

// New makes the client of the fleet at rawURL. token may be empty.
func New(rawURL, token string) (*Fleet, error) {
	base, err := url.Parse(rawURL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, fmt.Errorf("%q is not the URL of a fleet, such as http://127.0.0.1:8080", rawURL)
	}
	return &Fleet{base: base, token: token, http: &http.Client{}, patience: 30 * time.Second, silence: time.Minute}, nil
}

// Problem is an answer that is not 2xx, as RFC 9457 tells it.
type Problem struct {
	Status int    `json:"status"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	// Errors lists what is wrong with which member of the request.
	Errors []struct {
		Message  string `json:"message"`
		Location string `json:"location"`
	} `json:"errors"`
}

// Error is the problem as sentences.
func (p *Problem) Error() string {
	text := p.Detail
	if text == "" {
		text = p.Title
	}
	if text == "" {
		text = http.StatusText(p.Status)
	}
	for _, e := range p.Errors {
		text += "; "
		if e.Location != "" {
			text += e.Location + ": "
		}
		text += e.Message
	}
	return fmt.Sprintf("the fleet answered %d: %s", p.Status, text)
}

// Get reads path, which may have a query, into v.
func (f *Fleet) Get(ctx context.Context, path string, v any) error {
	return f.roundTrip(ctx, http.MethodGet, path, nil, v)
}

// Delete deletes path. v, when not nil, takes the answer.
func (f *Fleet) Delete(ctx context.Context, path string, v any) error {
	return f.roundTrip(ctx, http.MethodDelete, path, nil, v)
}

// Post posts body as JSON to path. v, when not nil, takes the answer.
func (f *Fleet) Post(ctx context.Context, path string, body, v any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return f.roundTrip(ctx, http.MethodPost, path, data, v)
}

func (f *Fleet) roundTrip(ctx context.Context, method, path string, body []byte, v any) error {
	res, err := f.do(ctx, method, f.at(path), body, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if v == nil {
		return nil
	}
	if !hasType(res, "application/json") {
		return f.stranger(res)
	}
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	if err != nil {
		return fmt.Errorf("%w: the answer broke off: %w", ErrUnreachable, err)
	}
	if err := json.Unmarshal(answer, v); err != nil {
		return fmt.Errorf("the fleet's answer to %s %s cannot be read: %w", method, path, err)
	}
	return nil
}

// Fetch opens a URL that a result named. Only the fleet's own host is asked: a
// tool may have named any other, and what this machine can reach is not its
// business.
func (f *Fleet) Fetch(ctx context.Context, rawURL string) (io.ReadCloser, error) {
	u, err := f.base.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("%q is not a URL", rawURL)
	}
	if u.Scheme != f.base.Scheme || u.Host != f.base.Host {
		return nil, fmt.Errorf("%s is not on the fleet's host and was not fetched", u.Redacted())
	}
	res, err := f.do(ctx, http.MethodGet, u.String(), nil, nil)
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// do sends one request. It returns a response whose status is 2xx, a *Problem,
// or an error that wraps ErrUnreachable.
func (f *Fleet) do(ctx context.Context, method, rawURL string, body []byte, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, rawURL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, header)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if f.token != "" {
		req.Header.Set("Authorization", "Bearer "+f.token)
	}
	res, err := f.http.Do(req)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("%w at %s (%w); start one with `toolfleet up`, or set TOOLFLEET_URL", ErrUnreachable, f.base.Redacted(), plain(err))
	case res.StatusCode/100 == 2:
		return res, nil
	}
	defer res.Body.Close()
	p, ok := problem(res)
	if !ok {
		return nil, f.stranger(res)
	}
	switch p.Status {
	case http.StatusUnauthorized:
		p.Detail += f.aboutToken()
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, p)
	}
	return nil, p
}

// aboutToken says what to do about an answer of 401.
func (f *Fleet) aboutToken() string {
	if f.token == "" {
		return " None was sent: set TOOLFLEET_TOKEN."
	}
	return " The one that was sent is not known to this fleet: look at TOOLFLEET_TOKEN."
}

// stranger is the error of an answer that no fleet gives. It may be a proxy
// whose fleet is away, so a stream that worked before is tried again.
func (f *Fleet) stranger(res *http.Response) error {
	what := res.Header.Get("Content-Type")
	if what == "" {
		what = "nothing"
	}
	return fmt.Errorf("%w at %s: what answers there is no fleet (it said %d and sent %.100s); set TOOLFLEET_URL", ErrUnreachable, f.base.Redacted(), res.StatusCode, what)
}

// hasType reports whether the answer is of that media type.
func hasType(res *http.Response, want string) bool {
	got, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	return err == nil && got == want
}

// at is the URL of a path of the API.
func (f *Fleet) at(path string) string { return strings.TrimSuffix(f.base.String(), "/") + path }

// plain takes the method and the URL out of an HTTP client's error, which the
// sentence around it says already.
func plain(err error) error {
	if e := new(url.Error); errors.As(err, &e) {
		return e.Err
	}
	return err
}

// problem reads an answer that is not 2xx, and reports whether it is one that a
// fleet gives.
func problem(res *http.Response) (*Problem, bool) {
	p := &Problem{}
	body, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err != nil || !hasType(res, "application/problem+json") || json.Unmarshal(body, p) != nil {
		return nil, false
	}
	p.Status = res.StatusCode
	return p, true
}
