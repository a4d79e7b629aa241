package containerd_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
)

// TestPull: the policies.
func TestPull(t *testing.T) {
	rt := openFor(t, "policies", containerd.Registries{})
	h := newHub(t)
	ref := h.host + "/tools/pulled:1"
	first, second := shellImage(t, "pulled first"), shellImage(t, "pulled second")
	ensure := func(ref, pull string, want v1.Image, why sandbox.ImageFault) {
		t.Helper()
		got, err := rt.Ensure(t.Context(), ref, pull)
		if want == nil {
			if fault(err) != why {
				t.Errorf("%s: %v is no %s", pull, err, why)
			}
		} else if err != nil || got != digestOf(t, want) {
			t.Errorf("%s: %s, %v", pull, got, err)
		}
	}
	ensure(ref, "never", nil, sandbox.ImageAbsent)
	ensure(ref, "missing", nil, sandbox.ImageNotFound)
	h.push(t, "tools/pulled:1", first)
	ensure(ref, "never", nil, sandbox.ImageAbsent)
	ensure(ref, "missing", first, "")
	h.push(t, "tools/pulled:1", second)
	h.protect(nil)
	ensure(ref, "missing", first, "")
	ensure(ref, "never", first, "")
	if n := h.count(""); n != 0 {
		t.Errorf("%d requests for an image that is there", n)
	}
	ensure(ref, "always", second, "")
	if got := content(t, rt, "pulled", ref); got != "pulled second" {
		t.Errorf("sandbox of %q", got)
	}
	h.protect(nil)
	ensure(ref, "always", second, "")
	if n, heads := h.count(""), h.count("HEAD /v2/tools/pulled/manifests/1"); n != 1 || heads != 1 {
		t.Errorf("a name that has not moved took %d requests, %d of them for what it means", n, heads)
	}
	// What is pinned stays, and needs no registry once it is there.
	pinned := ref + "@" + digestOf(t, first)
	ensure(pinned, "missing", first, "")
	h.protect(nil)
	ensure(pinned, "always", first, "")
	if n := h.count(""); n != 0 {
		t.Errorf("%d requests for a pinned image that is there", n)
	}
	ensure(ref+"@sha256:"+strings.Repeat("0", 64), "missing", nil, sandbox.ImageNotFound)
	h.Close()
	ensure(ref, "always", nil, sandbox.ImageUnreachable)
	ensure(ref, "missing", second, "")
}

// TestPain97PrivateRegistry: who may pull, and with what.
func TestPain97PrivateRegistry(t *testing.T) {
	const user, password = "fleet", "canary-pass"
	h := newHub(t)
	ref := h.push(t, "private/tool:1", shellImage(t, "private"))
	var sentOn atomic.Value // the Authorization that a host got which the registry redirected to
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sentOn.Store(r.Header.Get("Authorization"))
		h.registry.ServeHTTP(w, r)
	}))
	t.Cleanup(elsewhere.Close)
	basic := func(w http.ResponseWriter, r *http.Request) bool {
		if u, p, _ := r.BasicAuth(); u == user && p == password {
			if strings.Contains(r.URL.Path, "/blobs/") {
				http.Redirect(w, r, elsewhere.URL+r.URL.Path+"?signature=canary-signature", http.StatusTemporaryRedirect)
				return true
			}
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	token := func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/token" {
			_ = r.ParseForm()
			u, p, _ := r.BasicAuth()
			if r.FormValue("password") != password && r.FormValue("refresh_token") != password && (u != user || p != password) {
				w.WriteHeader(http.StatusUnauthorized)
				return true
			}
			fmt.Fprint(w, `{"access_token":"canary-token","token":"canary-token"}`)
			return true
		}
		if r.Header.Get("Authorization") == "Bearer canary-token" {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="`+h.URL+`/token",service="s",scope="repository:private/tool:pull"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	auth := func(u, p string) string {
		return `{"auths":{"` + h.host + `":{"auth":"` + base64.StdEncoding.EncodeToString([]byte(u+":"+p)) + `"}}}`
	}
	helpers := t.TempDir()
	t.Setenv("PATH", helpers+":"+os.Getenv("PATH"))
	helper := "#!/bin/sh\nread host\n[ \"$host\" = " + h.host + " ] || { echo canary-junk; exit 1; }\n" +
		`echo '{"Username":"` + user + `","Secret":"` + password + `"}'` + "\n"
	for name, script := range map[string]string{"good": helper, "bad": "#!/bin/sh\necho canary-junk; exit 1\n", "leaves": "#!/bin/sh\nsleep 20 &\nexit 0\n"} {
		if err := os.WriteFile(filepath.Join(helpers, "docker-credential-"+name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		guard  func(http.ResponseWriter, *http.Request) bool
		config string
		good   bool
	}{
		{"basic without", basic, `{}`, false},
		{"basic with others", basic, auth("fleet", "wrong"), false},
		{"basic", basic, auth(user, password), true},
		{"credHelpers", basic, `{"credHelpers":{"` + h.host + `":"good"}}`, true},
		{"credsStore", basic, `{"credsStore":"good"}`, true},
		{"a helper that fails", basic, `{"credsStore":"bad"}`, false},
		{"a helper that leaves a process", basic, `{"credsStore":"leaves"}`, false},
		{"a helper that is not there", basic, `{"credsStore":"none"}`, false},
		{"a helper out of its place", basic, `{"credsStore":"../../bin/sh"}`, false},
		{"token without", token, `{}`, false},
		{"token with others", token, auth("fleet", "wrong"), false},
		{"token", token, auth(user, password), true},
		{"identity token", token, `{"auths":{"` + h.host + `":{"identitytoken":"` + password + `"}}}`, true},
		{"registry token", token, `{"auths":{"` + h.host + `":{"registrytoken":"canary"}}}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			rt := openFor(t, "private", containerd.Registries{Config: config(t, c.config)})
			h.protect(c.guard)
			_, err := rt.Ensure(t.Context(), ref, "always")
			switch {
			case c.good && err != nil:
				t.Error(err)
			case !c.good && fault(err) != sandbox.ImageForbidden:
				t.Errorf("%v is not forbidden", err)
			case err != nil && strings.Contains(err.Error(), "canary"):
				t.Errorf("a secret in %v", err)
			}
			forget(t, ref)
		})
	}
	if got := sentOn.Load(); got != "" {
		t.Errorf("a host that the registry sends on to got %q", got)
	}
	for _, bad := range []string{`{`, `{"auths":{"x":{"auth":"canary"}}}`} {
		_, err := containerd.New(containerd.Config{Address: daemon.Address(), Owner: "x", AgentPath: shell, Registries: containerd.Registries{Config: config(t, bad)}})
		if err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// forget removes an image with all that only it needed.
func forget(t *testing.T, ref string) {
	t.Helper()
	store, err := containerd.OpenImages(daemon.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	_, _ = store.Remove(t.Context(), ref, true) // it may never have come
}

// TestPullFaults: each fault is told from the others, and what passes is tried
// again.
func TestPullFaults(t *testing.T) {
	rt := openFor(t, "faults", containerd.Registries{})
	h := newHub(t)
	img := shellImage(t, "faults")
	ref := h.push(t, "faults/tool:1", img)
	other, lied := shellImage(t, "another"), shellImage(t, "lied about")
	wrong, err := other.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	foreign := foreignImage(t, img)
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: foreign, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}})
	h.push(t, "faults/foreign:1", foreign)
	h.push(t, "faults/index:1", index)

	status := func(code int, header ...string) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
			fmt.Fprint(w, strings.Repeat("canary \x1b[31m", 10_000))
		}
	}
	cut := func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", "1000000")
		_, _ = w.Write([]byte("half"))
		panic(http.ErrAbortHandler)
	}
	for _, c := range []struct {
		name  string
		ref   string
		at    string // what of the path is answered otherwise
		times int64  // how often; 0: always
		with  func(http.ResponseWriter)
		want  sandbox.ImageFault // "" for a pull that succeeds
	}{
		{"not found", ref + "x", "", 1, nil, sandbox.ImageNotFound},
		{"forbidden", ref, "/manifests/", 0, status(http.StatusForbidden), sandbox.ImageForbidden},
		{"unauthorized", ref, "/manifests/", 0, status(http.StatusUnauthorized), sandbox.ImageForbidden},
		{"busy once", ref, "/manifests/", 1, status(http.StatusTooManyRequests, "Retry-After", "0"), ""},
		{"busy for ever", ref, "/manifests/", 0, status(http.StatusTooManyRequests), sandbox.ImageUnreachable},
		{"busy for a day", ref, "/manifests/", 1, status(http.StatusTooManyRequests, "Retry-After", "86400"), sandbox.ImageUnreachable},
		{"broken once", ref, "/blobs/", 1, status(http.StatusBadGateway), ""},
		{"broken for ever", ref, "/blobs/", 0, status(http.StatusInternalServerError), sandbox.ImageUnreachable},
		{"a layer is missing", ref, "/blobs/", 0, status(http.StatusNotFound), sandbox.ImageNotFound},
		{"cut off once", ref, "/manifests/", 1, func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, ""},
		{"cut off in the middle, for ever", ref, "/blobs/", 0, cut, sandbox.ImageUnreachable},
		{"another manifest than its digest", ref + "@" + digestOf(t, lied), "/manifests/", 0, func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			_, _ = w.Write(wrong)
		}, sandbox.ImageCorrupt},
		{"a manifest without end", ref, "/manifests/", 0, func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			w.Header().Set("Content-Length", "1000000000000")
			w.Header().Set("Docker-Content-Digest", digestOf(t, img))
		}, sandbox.ImageCorrupt},
		{"junk for a manifest", ref, "/manifests/", 0, func(w http.ResponseWriter) { fmt.Fprint(w, "<html>") }, sandbox.ImageCorrupt},
		{"for another machine", h.host + "/faults/foreign:1", "", 1, nil, sandbox.ImagePlatform},
		{"nothing for this machine", h.host + "/faults/index:1", "", 1, nil, sandbox.ImagePlatform},
		{"sent on to plain HTTP", ref, "/blobs/", 0, status(http.StatusTemporaryRedirect, "Location", "http://registry.example.com/layer"), sandbox.ImageUnreachable},
		{"no reference", h.host + "/UPPER", "", 1, nil, sandbox.ImageInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			var n atomic.Int64
			h.protect(func(w http.ResponseWriter, r *http.Request) bool {
				if c.with == nil || !strings.Contains(r.URL.Path, c.at) || c.times > 0 && n.Add(1) > c.times {
					return false
				}
				c.with(w)
				return true
			})
			_, err := rt.Ensure(t.Context(), c.ref, "always")
			if fault(err) != c.want || c.want == "" && err != nil {
				t.Errorf("%v is not %q", err, c.want)
			}
			if err != nil && (len(err.Error()) > 800 || strings.ContainsAny(err.Error(), "\x1b\n") || strings.Contains(err.Error(), "canary")) {
				t.Errorf("a registry's words in %.2000q", err)
			}
			if c.name == "sent on to plain HTTP" && !strings.Contains(fmt.Sprint(err), "plain HTTP is for") {
				t.Errorf("the request was made: %v", err)
			}
			if n := h.count(""); n > 20 {
				t.Errorf("%d requests", n)
			}
			forget(t, c.ref)
		})
	}
}

// foreignImage is img for another CPU.
func foreignImage(t *testing.T, img v1.Image) v1.Image {
	t.Helper()
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	file = file.DeepCopy()
	file.Architecture = "s390x"
	if img, err = mutate.ConfigFile(img, file); err != nil {
		t.Fatal(err)
	}
	return img
}

// TestPullTLS: a registry is believed when a certificate vouches for it, and one
// that no certificate vouches for is not spoken to in plain instead.
func TestPullTLS(t *testing.T) {
	h := newHub(t)
	secure := httptest.NewTLSServer(h)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that fail, as they should
	t.Cleanup(secure.Close)
	plain := h.host
	h.host = strings.TrimPrefix(secure.URL, "https://")
	ref := h.push(t, "tls/tool:1", shellImage(t, "tls"))
	if _, err := openFor(t, "tls", containerd.Registries{}).Ensure(t.Context(), ref, "missing"); fault(err) != sandbox.ImageUnreachable {
		t.Errorf("a certificate that nobody knows: %v", err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	rt := openFor(t, "tls", containerd.Registries{CA: file})
	if _, err := rt.Ensure(t.Context(), ref, "missing"); err != nil {
		t.Error(err)
	}
	listed := openFor(t, "tls", containerd.Registries{PlainHTTP: []string{plain}})
	if _, err := listed.Ensure(t.Context(), plain+"/tls/tool:1", "missing"); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{file + "x", config(t, "no PEM")} {
		if _, err := containerd.New(containerd.Config{Address: daemon.Address(), Owner: "x", AgentPath: shell, Registries: containerd.Registries{CA: bad}}); err == nil {
			t.Errorf("%s was taken for certificates", bad)
		}
	}
}

// TestPullOnce: many want an image at once, and it is fetched once; one that
// does not wait for its end takes nothing from the others, and is told so.
func TestPullOnce(t *testing.T) {
	rt := openFor(t, "once", containerd.Registries{})
	h := newHub(t)
	ref := h.push(t, "once/tool:1", shellImage(t, "once"))
	held, release := make(chan struct{}), make(chan struct{})
	var first sync.Once
	h.protect(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") {
			first.Do(func() { close(held) })
			<-release
		}
		return false
	})
	impatient, give := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := rt.Ensure(impatient, ref, "missing")
		left <- err
	}()
	<-held
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := rt.Ensure(t.Context(), ref, "missing"); err != nil {
				t.Error(err)
			}
		})
	}
	give()
	if err := <-left; fault(err) != sandbox.ImagePending {
		t.Errorf("who did not wait got %v", err)
	}
	close(release)
	all.Wait()
	if n := h.count("GET /v2/once/tool/manifests"); n != 1 {
		t.Errorf("the manifest was fetched %d times", n)
	}
}

// TestCloseEndsPulls: nothing goes on behind a runtime that is closed.
func TestCloseEndsPulls(t *testing.T) {
	h := newHub(t)
	ref := h.push(t, "slow/tool:1", shellImage(t, "slow"))
	held := make(chan struct{}, 16)
	h.protect(func(_ http.ResponseWriter, r *http.Request) bool {
		held <- struct{}{}
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	})
	rt, err := containerd.New(containerd.Config{Address: daemon.Address(), Owner: "ends", AgentPath: shell, BinDir: binDir})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := rt.Ensure(t.Context(), ref, "missing")
		ended <- err
	}()
	<-held
	if err := rt.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("a pull that was ended succeeded")
	}
}

// TestKeepImages: what was pulled goes when nobody has a use for it; nothing
// else does.
func TestKeepImages(t *testing.T) {
	rt := openFor(t, "keeper", containerd.Registries{})
	h := newHub(t)
	ref := h.push(t, "kept/tool:1", shellImage(t, "kept"))
	idle := h.push(t, "idle/tool:1", shellImage(t, "idle"))
	importImage(t, rt, "local/by-hand:1", shellImage(t, "by hand"))
	for _, ref := range []string{ref, idle} {
		if _, err := rt.Ensure(t.Context(), ref, "missing"); err != nil {
			t.Fatal(err)
		}
	}
	keep := func(unused time.Duration, uses map[string][]string, want ...string) {
		t.Helper()
		removed, err := rt.KeepImages(t.Context(), uses, unused)
		var ours []string
		for _, name := range removed {
			if strings.HasPrefix(name, h.host) || strings.HasPrefix(name, "local/") {
				ours = append(ours, name)
			}
		}
		if err != nil || fmt.Sprint(ours) != fmt.Sprint(want) {
			t.Errorf("removed %v and not %v, %v", ours, want, err)
		}
	}
	keep(time.Hour, nil)
	inst, err := rt.Start(t.Context(), "keeps-image", sandbox.Spec{Image: idle, Pull: "never"})
	if err != nil {
		t.Fatal(err)
	}
	keep(time.Nanosecond, map[string][]string{ref: {"shout", "greet"}})
	closeInstance(t, inst)

	store, err := containerd.OpenImages(daemon.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	list, err := store.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, img := range list {
		seen[img.Name] = img.Origin + " " + strings.Join(img.Tools, ",")
		if img.Name == ref && (img.Size == 0 || !strings.HasPrefix(img.Platform, "linux/")) {
			t.Errorf("listed as %+v", img)
		}
	}
	if seen[ref] != "pulled greet,shout" || seen[idle] != "pulled " || seen["local/by-hand:1"] != "imported " {
		t.Errorf("listed as %q", seen)
	}
	if _, err := store.Remove(t.Context(), ref, false); err == nil || !strings.Contains(err.Error(), "greet, shout") {
		t.Errorf("removed what tools use: %v", err)
	}
	keep(time.Nanosecond, map[string][]string{ref: {"greet"}}, idle)
	keep(time.Nanosecond, nil, ref)
	if _, err := rt.Ensure(t.Context(), ref, "never"); fault(err) != sandbox.ImageAbsent {
		t.Errorf("after its removal: %v", err)
	}
	if got := content(t, rt, "by-hand", "local/by-hand:1"); got != "by hand" {
		t.Errorf("sandbox of %q", got)
	}
	if _, err := store.Remove(t.Context(), "local/by-hand:1", false); err != nil {
		t.Error(err)
	}
	if _, err := store.Remove(t.Context(), "local/by-hand:1", true); err == nil {
		t.Error("removed twice")
	}
}
