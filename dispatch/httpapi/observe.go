package httpapi

import (
	"cmp"
	"errors"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

// door is the value of the door label.
const door = "http"

// observe is the outermost handler: it bounds every write, counts requests,
// sets the headers that every answer has, and turns a panic into a problem
// document.
func (s *Server) observe(mux *http.ServeMux, next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		began := time.Now()
		w := &responseWriter{ResponseWriter: rw, controller: http.NewResponseController(rw)}
		w.begin()
		defer func() {
			s.config.Metrics.HTTPRequest(door, route(mux, r), r.Method, cmp.Or(w.status, http.StatusOK), time.Since(began))
		}()
		defer func() {
			if p := recover(); p != nil {
				s.recovered(w, r, p)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// route is the pattern that a request matches, without its method. The path
// itself is raw input and never a label.
func route(mux *http.ServeMux, r *http.Request) string {
	_, pattern := mux.Handler(r)
	if _, path, ok := strings.Cut(pattern, " "); ok {
		return path
	}
	return pattern
}

// recovered logs a panic, once, and answers without a word of it. An answer
// that has begun can only be cut off.
func (s *Server) recovered(w *responseWriter, r *http.Request, p any) {
	if err, ok := p.(error); !ok || !gone(err) {
		s.config.Logger.Error("panic in a request", "method", r.Method, "panic", p, "stack", string(debug.Stack()))
	}
	if w.status != 0 {
		panic(http.ErrAbortHandler)
	}
	writeProblem(w, http.StatusInternalServerError, "The server failed. The failure is in its log.")
}

// gone reports whether err says that the client is not there any more.
func gone(err error) bool {
	for _, e := range [...]error{http.ErrAbortHandler, os.ErrDeadlineExceeded, net.ErrClosed, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// responseWriter gives every write a deadline of its own, so that a stream may
// last for hours and a client that stops reading still costs no more than
// that, and remembers the status.
type responseWriter struct {
	http.ResponseWriter
	controller *http.ResponseController
	status     int
}

// begin clears what the last request on the connection left.
func (w *responseWriter) begin() {
	w.setDeadline(time.Time{})
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	h.Set("Cache-Control", "no-store")
}

// setDeadline can only fail where there is no connection, in tests.
func (w *responseWriter) setDeadline(t time.Time) {
	_ = w.controller.SetWriteDeadline(t)
}

// Unwrap lets an http.ResponseController find the connection.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader remembers the status.
func (w *responseWriter) WriteHeader(code int) {
	if w.status == 0 {
		w.status = code
	}
	w.setDeadline(time.Now().Add(writeTimeout))
	w.ResponseWriter.WriteHeader(code)
}

// Write writes within writeTimeout.
func (w *responseWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.setDeadline(time.Now().Add(writeTimeout))
	return w.ResponseWriter.Write(b)
}

// notFound answers what no route matches, where the mux would answer in plain
// text: 404, or 405 with the methods there are.
func notFound(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		verdict := &discard{header: http.Header{}}
		h.ServeHTTP(verdict, r)
		if verdict.status == http.StatusMethodNotAllowed {
			allow := verdict.header.Get("Allow")
			w.Header().Set("Allow", allow)
			writeProblem(w, http.StatusMethodNotAllowed, "This path takes "+allow+".")
			return
		}
		writeProblem(w, http.StatusNotFound, "There is nothing here. GET /openapi.json tells what there is.")
	})
}

// discard is a response that is only asked for its status and headers.
type discard struct {
	header http.Header
	status int
}

// Header implements http.ResponseWriter.
func (d *discard) Header() http.Header { return d.header }

// Write implements http.ResponseWriter.
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }

// WriteHeader implements http.ResponseWriter.
func (d *discard) WriteHeader(code int) { d.status = code }
