package egress_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
	"github.com/toolfleet/toolfleet/sandbox/image"
	"github.com/toolfleet/toolfleet/sandbox/sandboxtest"
	"github.com/toolfleet/toolfleet/worker/egress"
)

// here is where the tests' servers listen: an address of their network namespace
// that the operator has opened.
const here = "198.18.7.7"

// led leads every name to here.
type led struct{}

func (led) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr(here)}, nil
}

// serve starts a server at here and returns its port.
func serve(t *testing.T, tls bool, says string) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", here+":0")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s\n", says, r.Host)
	}))
	_ = s.Listener.Close()
	s.Listener = l
	if tls {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()[len(here)+1:]
}

// Programs as they are reach a name, and a wildcard by the proxy that stands in
// their environment: curl, Python, Node.js and Go, under each runtime and
// isolation.
func TestClients(t *testing.T) {
	plain, secure := serve(t, false, "plain"), serve(t, true, "secure")
	byName, byProxy := "http://api.test:"+plain+"/", "https://any.wild.test:"+secure+"/"
	want := "plain api.test:" + plain + "\nsecure any.wild.test:" + secure + "\n"
	const python = "import ssl,sys,urllib.request as u\nfor a in sys.argv[1:]: print(u.urlopen(a,context=ssl._create_unverified_context() if a[:5]=='https' else None).read().decode(),end='')"
	const node = "(async()=>{for(const a of process.argv.slice(1))process.stdout.write(await(await fetch(a)).text())})()"
	rt := openRuntime(t)
	for _, c := range []struct {
		client, image string
		argv          []string
	}{
		{"curl", curlImage(t, rt), []string{"/usr/bin/curl", "-sSk", byName, byProxy}},
		{"Python", imported(t, rt, "python"), []string{"/usr/bin/python3", "-c", python, byName, byProxy}},
		{"Node", imported(t, rt, "node"), []string{"node", "-e", node, byName, byProxy}},
		{"Go", probeImage(t, rt), []string{"/probe", "get", byName, byProxy}},
	} {
		for _, spec := range specs(c.image) {
			t.Run(c.client+"/"+spec.Runtime+"/"+spec.Isolation, func(t *testing.T) {
				exit, kinds := run(t, rt, spec, &egress.Policy{}, []string{"api.test:" + plain, "*.wild.test:" + secure}, c.argv...)
				if string(exit.Stdout) != want {
					t.Errorf("%s said %q, %q (%s %s); %+v", c.client, exit.Stdout, exit.Stderr, exit.Cause, exit.Detail, kinds)
				}
				slices.SortFunc(kinds, func(a, b call.Egress) int { return strings.Compare(a.To, b.To) })
				if len(kinds) != 2 || kinds[0].To != "any.wild.test:"+secure || kinds[1].To != "api.test:"+plain ||
					kinds[1].Verdict != "connected" || kinds[1].SentBytes == 0 || kinds[1].ReceivedBytes == 0 {
					t.Errorf("the result tells of %+v", kinds)
				}
			})
		}
	}
}

// specs are a sandbox of each kind.
func specs(image string) []sandbox.Spec {
	var all []sandbox.Spec
	for _, runtime := range []string{"runc", "runsc"} {
		for _, isolation := range []string{"container", "cell"} {
			s := sandbox.Spec{Image: image, Pull: "never", Runtime: runtime, Isolation: isolation, Limits: sandbox.Limits{CPU: 1, Pids: 64}}
			if isolation == "cell" {
				s.Owner = "default/client"
			}
			all = append(all, s)
		}
	}
	return all
}

// run runs a program with a network in a sandbox of its own.
func run(t *testing.T, rt sandbox.Runtime, spec sandbox.Spec, p *egress.Policy, allow []string, argv ...string) (sandbox.Exit, []call.Egress) {
	t.Helper()
	allowed, err := catalog.Network{Allow: allow}.Allowed()
	if err != nil {
		t.Fatal(err)
	}
	p.Resolver, p.AllowPrivate = led{}, []netip.Prefix{netip.MustParsePrefix(here + "/32")}
	network := p.Call(egress.Options{Allowed: allowed, Logger: slog.New(slog.DiscardHandler)})
	defer network.Close()
	sb, err := sandbox.Open(t.Context(), rt, "egress-"+strings.ToLower(rand.Text()[:10]), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := sb.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	exit, err := sb.Run(ctx, sandbox.Process{
		Argv: argv, Env: append(network.Env(), "NODE_TLS_REJECT_UNAUTHORIZED=0", "NODE_NO_WARNINGS=1"), Listeners: network.Listeners(),
	}, sandbox.Sink{})
	if err != nil {
		t.Fatal(err)
	}
	network.Close()
	kinds, _ := network.Report()
	return exit, kinds
}

func openRuntime(t *testing.T) *containerd.Runtime {
	t.Helper()
	bin, err := filepath.Abs("../../.toolchain/bin")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/var/tmp", "toolfleet-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	daemon, err := containerd.StartDaemon(t.Context(), containerd.DaemonConfig{BinDir: bin, StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := daemon.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	rt, err := containerd.New(containerd.Config{Address: daemon.Address(), Owner: "egress", AgentPath: sandboxtest.BuildAgent(t), BinDir: bin})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
	})
	return rt
}

// imported imports an example's image.
func imported(t *testing.T, rt *containerd.Runtime, name string) string {
	t.Helper()
	f, err := os.Open(filepath.Join("../../bin/images", name+".tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	importInto(t, rt, f)
	return "local/" + name + ":1"
}

func importInto(t *testing.T, rt *containerd.Runtime, archive io.Reader) {
	t.Helper()
	if _, err := rt.Import(t.Context(), archive); err != nil {
		t.Fatal(err)
	}
}

func made(t *testing.T, rt *containerd.Runtime, name string, recipe image.Recipe) string {
	t.Helper()
	img, err := recipe.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := image.WriteArchive(&archive, name, img); err != nil {
		t.Fatal(err)
	}
	importInto(t, rt, &archive)
	return name
}

func probeImage(t *testing.T, rt *containerd.Runtime) string {
	t.Helper()
	return made(t, rt, "local/probe:1", image.Recipe{Add: []string{sandboxtest.BuildProbe(t) + ":/probe"}})
}

// curlImage has the machine's own curl, and the libraries that it is linked to.
func curlImage(t *testing.T, rt *containerd.Runtime) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ldd", "/usr/bin/curl").Output()
	if err != nil {
		t.Fatal(err)
	}
	recipe := image.Recipe{Add: []string{"/usr/bin/curl:/usr/bin/curl"}}
	for _, path := range regexp.MustCompile(`/\S+\.so\S*`).FindAllString(string(out), -1) {
		file, err := filepath.EvalSymlinks(path)
		if err != nil {
			t.Fatal(err)
		}
		recipe.Add = append(recipe.Add, file+":"+path)
	}
	return made(t, rt, "local/curl:1", recipe)
}
