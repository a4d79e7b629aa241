package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// corsLife is how long a browser may remember a preflight, in seconds.
const corsLife = "600"

// cors lets pages of the configured origins use the paths that are meant for
// browsers: it answers their preflights, which bring no token and so must be
// answered before the guard, and marks the answers that they may read. It lets
// nobody in: who may ask for what is for the guard.
func (s *Server) cors(next http.Handler) http.Handler {
	if len(s.config.Origins) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if forBrowsers(r.URL.Path) {
			w.Header().Add("Vary", "Origin")
		}
		if !s.allowedOrigin(r) {
			next.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
			h.Set("Access-Control-Allow-Headers", "Accept, Authorization, Content-Type, If-None-Match, Range, Traceparent")
			h.Set("Access-Control-Max-Age", corsLife)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		h.Set("Access-Control-Expose-Headers", "Content-Range, ETag, Retry-After")
		next.ServeHTTP(w, r)
	})
}

// allowedOrigin reports whether r comes from a page that may use its path.
func (s *Server) allowedOrigin(r *http.Request) bool {
	origins := r.Header["Origin"]
	return len(origins) == 1 && forBrowsers(r.URL.Path) && slices.Contains(s.config.Origins, origins[0])
}

// forBrowsers reports whether a path is one that pages of other origins have a
// use for: the AG-UI door, and the media in what it answers.
func forBrowsers(path string) bool {
	return strings.HasPrefix(path, "/agui/") || strings.HasPrefix(path, "/v1/calls/") && strings.Contains(path, "/blobs/")
}

// checkOrigin says what keeps s from being an origin as a browser spells it.
func checkOrigin(s string) error {
	u, err := url.Parse(s)
	switch {
	case s == "*" || s == "null":
		return fmt.Errorf("origin %q would let every page in: name the origins", s)
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "", s != u.Scheme+"://"+u.Host, s != strings.ToLower(s):
		return fmt.Errorf("origin %q is not http(s)://host[:port] in lower case", s)
	}
	return nil
}
