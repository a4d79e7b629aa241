package containerd_test

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
)

// hub is a registry on the loopback interface, with a guard before it.
type hub struct {
	*httptest.Server
	host     string
	registry http.Handler

	mu    sync.Mutex
	guard func(w http.ResponseWriter, r *http.Request) (answered bool)
	asked []string // "GET /v2/…"
}

func newHub(t *testing.T) *hub {
	t.Helper()
	h := &hub{registry: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	h.host = strings.TrimPrefix(h.URL, "http://")
	return h
}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.asked = append(h.asked, r.Method+" "+r.URL.Path)
	guard := h.guard
	h.mu.Unlock()
	if guard == nil || !guard(w, r) {
		h.registry.ServeHTTP(w, r)
	}
}

// protect puts guard before the registry, and forgets what was asked.
func (h *hub) protect(guard func(w http.ResponseWriter, r *http.Request) (answered bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.guard, h.asked = guard, nil
}

// count is how often something was asked for.
func (h *hub) count(part string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range h.asked {
		if strings.Contains(one, part) {
			n++
		}
	}
	return n
}

// push puts an image or an index into the registry, behind the guard's back.
func (h *hub) push(t *testing.T, repo string, what remote.Taggable) (ref string) {
	t.Helper()
	ref = h.host + "/" + repo
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	behind := remote.WithTransport(straight{h.registry})
	switch what := what.(type) {
	case v1.ImageIndex:
		err = remote.WriteIndex(tag, what, behind)
	case v1.Image:
		err = remote.Write(tag, what, behind)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// straight calls a handler without a network.
type straight struct{ http.Handler }

func (s straight) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	s.ServeHTTP(w, r)
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

// fault is why an image could not be had, "" for anything else.
func fault(err error) sandbox.ImageFault {
	if e, ok := errors.AsType[*sandbox.ImageError](err); ok {
		return e.Fault
	}
	return ""
}

// openFor returns a runtime that pulls as told, without long pauses.
func openFor(t *testing.T, owner string, how containerd.Registries) *containerd.Runtime {
	t.Helper()
	rt, err := containerd.New(containerd.Config{Address: daemon.Address(), Owner: owner, AgentPath: shell, BinDir: binDir, Registries: how})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
	})
	rt.Hasten()
	return rt
}

// config writes a config.json.
func config(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
