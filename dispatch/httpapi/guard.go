package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/dispatch"
)

// The longest request bodies, in bytes.
const (
	// maxBody is above the longest arguments, so that arguments which are too
	// long get an answer that a model understands and not a 413.
	maxBody = 4 << 20
	// maxDoorBody is for doors whose requests bring a whole conversation, with
	// its pictures inside, and for calls, which may bring files.
	maxDoorBody = 16 << 20
)

// maxBodyOf is the longest body that a path takes.
func maxBodyOf(path string) int64 {
	if strings.HasPrefix(path, "/v1/") && path != "/v1/calls" {
		return maxBody
	}
	return maxDoorBody
}

// tenantOf is the tenant of a request.
func tenantOf(ctx context.Context) string { return dispatch.CallerOf(ctx).Tenant }

// guard lets a request through to next when it may come in, and decides whose
// it is. The order matters: who asks is settled before anything is read.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" || r.URL.Path == "/readyz" {
			next.ServeHTTP(w, r)
			return
		}
		c, ok := s.admit(w, r)
		if !ok {
			return
		}
		select {
		case s.requests <- struct{}{}:
			defer func() { <-s.requests }()
		default:
			w.Header().Set("Retry-After", "1")
			writeProblem(w, http.StatusServiceUnavailable, "The server is serving as many requests as it takes at once.")
			return
		}
		if !readBody(w, r, maxBodyOf(r.URL.Path)) {
			return
		}
		base := s.config.PublicURL
		if base == "" {
			base = "http://" + r.Host
		}
		c.BlobURL = func(id blob.ID) string { return s.signer.url(base, id) }
		next.ServeHTTP(w, r.WithContext(dispatch.WithCaller(r.Context(), c)))
	})
}

// admit decides whose request r is, or answers it. A server without tokens is on
// loopback, where whoever asks may see everything.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) (c dispatch.Caller, ok bool) {
	if s.tokens == nil {
		if why := foreign(r, false); why != "" {
			writeProblem(w, http.StatusForbidden, why)
			return dispatch.Caller{}, false
		}
	}
	if tenant, ok := s.signer.tenant(r); ok {
		// A page may show what somebody gave it the URL of.
		w.Header().Set("Access-Control-Allow-Origin", "*")
		return dispatch.Caller{Tenant: tenant}, true
	}
	if s.tokens == nil {
		if why := foreign(r, !s.allowedOrigin(r)); why != "" {
			writeProblem(w, http.StatusForbidden, why)
			return dispatch.Caller{}, false
		}
		return dispatch.Caller{Tenant: call.DefaultTenant, Operator: true}, true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		token = strings.TrimSpace(token)
		if tenant, ok := s.tokens.Tenant(token); ok {
			return dispatch.Caller{Tenant: tenant, Operator: s.tokens.Operator(token)}, true
		}
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="toolfleet"`)
	writeProblem(w, http.StatusUnauthorized, "A bearer token is required.")
	return dispatch.Caller{}, false
}

// foreign says why a request to a server without tokens may be the work of a
// web page: it names a host that is not loopback (DNS rebinding), or, with
// origin, it was sent by a page of another origin. Programs send neither
// header and pass.
func foreign(r *http.Request, origin bool) string {
	if !loopbackHost(r.Host) {
		return "This server answers to loopback hosts only (localhost, 127.0.0.1, [::1])."
	}
	if !origin {
		return ""
	}
	if o, ok := r.Header["Origin"]; ok {
		u, err := url.Parse(strings.Join(o, ","))
		if err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) || u.Scheme != "http" {
			return "This server takes no requests from pages of another origin."
		}
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return ""
	}
	return "This server takes no requests from pages of another origin."
}

// loopbackHost reports whether a Host header names this machine without the
// help of DNS, with any port.
func loopbackHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

// readBody reads the body of a POST within its bounds and leaves it in r, or
// answers the request. It is read here and at once because a read deadline
// that is still set while a request waits for its call would end the request.
func readBody(w http.ResponseWriter, r *http.Request, most int64) bool {
	if r.Method != http.MethodPost {
		return true
	}
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mediaType != "application/json" {
		writeProblem(w, http.StatusUnsupportedMediaType, "Content-Type: application/json is required.")
		return false
	}
	rc := http.NewResponseController(w)
	if err := rc.SetReadDeadline(time.Now().Add(bodyTimeout)); err != nil {
		writeProblem(w, http.StatusInternalServerError, "The request could not be read.")
		return false
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, most+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		writeProblem(w, http.StatusRequestTimeout, "The body did not arrive in time.")
		return false
	case err != nil:
		w.Header().Set("Connection", "close")
		writeProblem(w, http.StatusBadRequest, "The body could not be read.")
		return false
	case int64(len(body)) > most:
		w.Header().Set("Connection", "close")
		writeProblem(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("The body is longer than %d MiB.", most>>20))
		return false
	}
	if err := rc.SetReadDeadline(time.Time{}); err != nil {
		writeProblem(w, http.StatusInternalServerError, "The request could not be read.")
		return false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return true
}
