package containerd

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/distribution/reference"
)

// elsewhere is a registry that sends whoever asks on to another address, and
// notes who else is asked.
type elsewhere struct {
	sends func(h http.Header) (status int)
	asked []string
}

func (e *elsewhere) RoundTrip(req *http.Request) (*http.Response, error) {
	resp := &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{}, Body: http.NoBody, Request: req}
	if req.URL.Host == "registry.example.com" {
		resp.StatusCode = e.sends(resp.Header)
	} else {
		e.asked = append(e.asked, req.URL.Scheme+"://"+req.URL.Host)
	}
	return resp, nil
}

// TestRegistrySendsNobodyHome: a registry, and the token server that it names,
// cannot have the worker ask its own machine for anything, nor a file or the
// cloud's metadata.
func TestRegistrySendsNobodyHome(t *testing.T) {
	for to, want := range map[string]bool{
		"https://cdn.example.com/x":  true,
		"http://listed.example.com/": true,
		"http://127.0.0.1:7777/x":    true, // by its operator's own word
		"http://cdn.example.com/x":   false,
		"http://127.0.0.1:2375/x":    false,
		"https://127.0.0.1:2375/x":   false,
		"http://127.9.9.9/x":         false,
		"http://localhost:2375/x":    false,
		"https://localhost/x":        false,
		"http://[::1]:2375/x":        false,
		"http://LOCALHOST:2375/x":    false,
		"http://localhost.:2375/x":   false,
		"http://0.0.0.0:2375/x":      false,
		"http://169.254.169.254/x":   false,
		"file://localhost/etc/x":     false,
		"file:///etc/passwd":         false,
		"gopher://127.0.0.1/x":       false,
	} {
		for how, sends := range map[string]func(http.Header) int{
			"redirect": func(h http.Header) int { h.Set("Location", to); return http.StatusTemporaryRedirect },
			"realm": func(h http.Header) int {
				h.Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm=%q,service="s",scope="repository:x:pull"`, to))
				return http.StatusUnauthorized
			},
		} {
			g, err := newRegistries(Registries{PlainHTTP: []string{"listed.example.com", "127.0.0.1:7777"}})
			if err != nil {
				t.Fatal(err)
			}
			e := &elsewhere{sends: sends}
			g.patient.next, g.patient.pause = e, time.Millisecond
			named, err := reference.ParseDockerRef("registry.example.com/tools/x:1")
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = g.resolver(t.Context(), named).Resolve(t.Context(), named.String())
			if err == nil {
				t.Errorf("%s to %s: nothing is there, and it was found", how, to)
			}
			if got := len(e.asked) > 0; got != want {
				t.Errorf("%s to %s: asked %s, %v", how, to, strings.Join(e.asked, " "), err)
			}
			g.close()
		}
	}
}
