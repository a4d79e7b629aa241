package house

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/toolfleet/toolfleet"

// root is the repository as seen from this package's directory, which is where
// go test runs its tests.
const root = "../.."

// floors says on which floor of the house each package lives. A package
// imports only from floors below its own. A new package gets its floor here,
// and its sentence in ARCHITECTURE.md.
var floors = map[string]int{
	"agui":               0,
	"schema":             0,
	"metrics":            0,
	"sandbox/wire":       0,
	"internal/natsd":     0,
	"internal/problem":   0,
	"internal/httpd":     0,
	"internal/failpoint": 0,
	"internal/health":    0,
	"internal/tracing":   0,

	"call":                     1,
	"schema/validate":          1,
	"sandbox":                  1,
	"sandbox/agent":            1,
	"internal/tracing/otlp":    1,
	"internal/natsd/natsdtest": 1,

	"blob":                2, // its names are made of call keys
	"tool":                2,
	"sandbox/containerd":  2,
	"sandbox/local":       2,
	"sandbox/image":       2,
	"sandbox/sandboxtest": 2,

	"catalog": 3,

	"queue":         4,
	"results":       4,
	"worker/mcp":    4,
	"worker/egress": 4,
	"worker/inject": 4,
	"tenant":        4, // its file is read as tools are

	"worker/secret": 4, // and so is this one's

	"dispatch": 5,
	"worker":   5,
	"keeper":   5,

	"dispatch/httpapi":      6,
	"dispatch/aguidoor":     6,
	"dispatch/dispatchtest": 6,

	// What the programs share, and nobody else may import.
	"cmd/internal/client":   7,
	"cmd/internal/part":     7,
	"cmd/internal/escape":   7,
	"cmd/internal/egress":   7,
	"cmd/internal/simulate": 7,
	"cmd/internal/bench":    8,
	"cmd/internal/chaos":    8,

	"cmd":                        9,
	"examples":                   9,
	"sandbox/sandboxtest/probe":  9,
	"sandbox/sandboxtest/escape": 9,
	"sandbox/sandboxtest/egress": 9,
	"worker/mcp/testserver":      9,
	"internal/house":             9,
	"deploy/images":              9,
}

// floorOf finds the floor of a package, or of the nearest folder above it that
// has one.
func floorOf(pkg string) (int, bool) {
	for ; pkg != "."; pkg = path.Dir(pkg) {
		if f, ok := floors[pkg]; ok {
			return f, true
		}
		if !nested(pkg) {
			return 0, false
		}
	}
	return 0, false
}

// nested reports whether pkg takes its floor from the folder above: programs
// do. Every other package has to be named, since a folder inside another is no
// part of it.
func nested(pkg string) bool {
	return strings.HasPrefix(pkg, "cmd/") || strings.HasPrefix(pkg, "examples/")
}

// pkg is what `go list` tells about one package of the module.
type pkg struct {
	ImportPath   string
	Name         string
	Doc          string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string
	Standard     bool
}

// rel is the path of p inside the module, or its whole path outside.
func (p pkg) rel() string { return rel(p.ImportPath) }

func rel(importPath string) string { return strings.TrimPrefix(importPath, module+"/") }

func ours(importPath string) bool { return strings.HasPrefix(importPath, module+"/") }

// isTest reports whether a package exists for tests, as its name says.
func isTest(importPath string) bool { return strings.HasSuffix(path.Base(importPath), "test") }

// packages lists the packages of the module, once.
var packages = sync.OnceValues(func() ([]pkg, error) { return goList("./...") })

func goList(args ...string) ([]pkg, error) {
	cmd := exec.Command("go", append([]string{"list", "-json"}, args...)...) //nolint:noctx // package loading has no caller to be cancelled by
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			return nil, errors.New("go list: " + string(exit.Stderr))
		}
		return nil, err
	}
	var list []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		switch err := dec.Decode(&p); {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, err
		}
		list = append(list, p)
	}
}

func listed(t *testing.T) []pkg {
	t.Helper()
	list, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 10 {
		t.Fatalf("go list found %d packages; the rules would hold for nothing", len(list))
	}
	return list
}

// Tests are free to import from any floor: they put rooms together that do not
// know each other.
func TestFloors(t *testing.T) {
	for _, p := range listed(t) {
		floor, ok := floorOf(p.rel())
		if !ok {
			t.Errorf("%s has no floor; name it in floors", p.rel())
			continue
		}
		for _, imp := range p.Imports {
			if !ours(imp) {
				continue
			}
			if below, ok := floorOf(rel(imp)); ok && below >= floor {
				t.Errorf("%s (floor %d) imports %s (floor %d); a room imports only from below", p.rel(), floor, rel(imp), below)
			}
		}
	}
}

func TestEveryFloorIsLivedOn(t *testing.T) {
	lived := map[string]bool{}
	for _, p := range listed(t) {
		for dir := p.rel(); dir != "."; dir = path.Dir(dir) {
			lived[dir] = true
		}
	}
	for name := range floors {
		if !lived[name] {
			t.Errorf("floors names %s, which is not there", name)
		}
	}
}
