package containerd

import (
	"fmt"
	"path/filepath"
	"strings"
)

// unused are the plugins of containerd that a fleet has no use for. Fewer
// plugins start faster and open fewer doors: NRI, for one, listens on a socket
// of the whole machine.
var unused = []string{
	"io.containerd.differ.v1.erofs",
	"io.containerd.image-verifier.v1.bindir",
	"io.containerd.internal.v1.opt",
	"io.containerd.internal.v1.tracing",
	"io.containerd.metrics.v1.grpc-prometheus",
	"io.containerd.monitor.container.v1.restart",
	"io.containerd.monitor.task.v1.cgroups",
	"io.containerd.mount-handler.v1.erofs",
	"io.containerd.nri.v1.nri",
	"io.containerd.snapshotter.v1.blockfile",
	"io.containerd.snapshotter.v1.erofs",
	"io.containerd.snapshotter.v1.native",
	"io.containerd.tracing.processor.v1.otlp",
	"io.containerd.transfer.v1.local",
}

// daemonPaths are the places of one daemon.
type daemonPaths struct {
	dir    string // under the state directory: images, lock, log, record
	root   string // containerd's root
	lock   string // held while a fleet uses this state
	log    string
	record string // who runs, see identity
	clean  string // there after a clean stop, see staleBoot
	config string

	run     string // under /run, short: sockets, bundles
	socket  string
	shims   string // sockets of the shims; containerd allows 42 bytes
	bundles string // containerd's state
	temp    string
}

func pathsOf(stateDir string) daemonPaths {
	if abs, err := filepath.Abs(stateDir); err == nil { // fails only in a directory that is gone
		stateDir = abs
	}
	dir := filepath.Join(stateDir, "containerd")
	run := runDir("d", dir)
	return daemonPaths{
		dir:    dir,
		root:   filepath.Join(dir, "root"),
		lock:   filepath.Join(dir, "lock"),
		log:    filepath.Join(dir, "containerd.log"),
		record: filepath.Join(dir, "running.json"),
		clean:  filepath.Join(dir, "clean"),
		config: filepath.Join(dir, "config.toml"),

		run:     run,
		socket:  filepath.Join(run, "containerd.sock"),
		shims:   filepath.Join(run, "s"),
		bundles: filepath.Join(run, "state"),
		temp:    filepath.Join(run, "tmp"),
	}
}

// render writes containerd's configuration.
//
// no_sync leaves it to the kernel when the metadata reaches the disk: a killed
// containerd loses nothing, a machine that loses power may, and then the state
// is thrown away at the next start (see staleBoot), since all of it can be
// imported or pulled again. With fsync every create and delete waits for the
// disk several times.
//
// The collector runs only when something was deleted that it may have to
// follow, and never in the middle of a burst: what it holds up is the database
// that every start writes to.
func (p daemonPaths) render() string {
	var b strings.Builder
	fmt.Fprintf(&b, "version = 4\nroot = %q\nstate = %q\ntemp = %q\nimports = []\n", p.root, p.bundles, p.temp)
	b.WriteString("disabled_plugins = [\n")
	for _, id := range unused {
		fmt.Fprintf(&b, "  %q,\n", id)
	}
	b.WriteString("]\n")
	fmt.Fprintf(&b, `
[debug]
  level = "warn"
[plugins."io.containerd.server.v1.grpc"]
  address = %q
[plugins."io.containerd.server.v1.ttrpc"]
  address = %q
[plugins."io.containerd.shim.v1.manager"]
  socket_dir = %q
[plugins."io.containerd.metadata.v1.bolt"]
  no_sync = true
[plugins."io.containerd.gc.v1.scheduler"]
  pause_threshold = 0.02
  deletion_threshold = 0
  mutation_threshold = 1000
  schedule_delay = "1s"
  startup_delay = "10s"
`, p.socket, p.socket+".ttrpc", p.shims)
	return b.String()
}
