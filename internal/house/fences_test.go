package house

import (
	"slices"
	"strings"
	"testing"
)

// fence keeps a dependency in the few packages that own it.
type fence struct {
	// prefix is the beginning of the import paths that are fenced in.
	prefix string
	// inside are the packages that may import it; one that ends in "/" stands
	// for everything in that folder.
	inside []string
	// tests says that tests may climb the fence.
	tests bool
}

var fences = []fence{
	{prefix: "github.com/containerd/containerd/", inside: []string{"sandbox/containerd"}},
	{prefix: "github.com/nats-io/nats-server/", inside: []string{"internal/natsd"}},
	{
		prefix: "github.com/nats-io/nats.go/jetstream",
		inside: []string{"queue", "results", "blob", "catalog", "internal/natsd", "internal/natsd/", "cmd/"},
		tests:  true,
	},
	{prefix: "github.com/modelcontextprotocol/", inside: []string{"worker/mcp", "dispatch/mcp"}},
	{prefix: "go.opentelemetry.io/", inside: []string{"internal/tracing", "internal/tracing/otlp"}, tests: true},
	{prefix: "github.com/alecthomas/kong", inside: []string{"cmd/"}},
}

func TestFences(t *testing.T) {
	for _, p := range listed(t) {
		for _, f := range fences {
			if f.allows(p.rel()) {
				continue
			}
			imports := p.Imports
			if !f.tests {
				imports = slices.Concat(p.Imports, p.TestImports, p.XTestImports)
			}
			for _, imp := range imports {
				if strings.HasPrefix(imp, f.prefix) {
					t.Errorf("%s imports %s, which belongs to %s", p.rel(), imp, strings.Join(f.inside, ", "))
				}
			}
		}
	}
}

func (f fence) allows(pkg string) bool {
	return slices.ContainsFunc(f.inside, func(in string) bool {
		return pkg == in || strings.HasSuffix(in, "/") && strings.HasPrefix(pkg, in)
	})
}

// What runs inside every sandbox is small enough to be read whole: the frames,
// the agent, the standard library and x/sys.
func TestAgentStaysSmall(t *testing.T) {
	deps, err := goList("-deps", "./cmd/agent")
	if err != nil {
		t.Fatal(err)
	}
	allowed := []string{module + "/sandbox/wire", module + "/sandbox/agent", module + "/cmd/agent"}
	for _, d := range deps {
		if !d.Standard && !slices.Contains(allowed, d.ImportPath) && !strings.HasPrefix(d.ImportPath, "golang.org/x/sys/") {
			t.Errorf("the agent depends on %s", d.ImportPath)
		}
	}
}

// Doors are ways in to the same dispatcher; one that needs another is a sign
// that something belongs into package dispatch.
func TestDoorsDoNotImportEachOther(t *testing.T) {
	door := func(pkg string) bool { return strings.HasPrefix(pkg, "dispatch/") }
	for _, p := range listed(t) {
		for _, imp := range p.Imports {
			if door(p.rel()) && door(rel(imp)) {
				t.Errorf("door %s imports door %s", p.rel(), rel(imp))
			}
		}
	}
}

// A program that is shipped carries nothing that exists for tests.
func TestNoTestPackagesOutsideTests(t *testing.T) {
	forTests := []string{
		"testing", "go.uber.org/goleak", "pgregory.net/rapid", "github.com/google/go-cmp/",
		"github.com/rogpeppe/go-internal/testscript",
	}
	for _, p := range listed(t) {
		if isTest(p.ImportPath) {
			continue
		}
		for _, imp := range p.Imports {
			named := slices.ContainsFunc(forTests, func(f string) bool {
				return imp == f || strings.HasPrefix(imp, strings.TrimSuffix(f, "/")+"/")
			})
			if named || ours(imp) && isTest(imp) {
				t.Errorf("%s imports %s, which is for tests", p.rel(), imp)
			}
		}
	}
}
