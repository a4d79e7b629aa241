package containerd

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/toolfleet/toolfleet/sandbox"
)

// Config says how to run sandboxes on a containerd.
type Config struct {
	// Address is the path of containerd's socket, such as [Daemon.Address].
	Address string
	// Namespace is containerd's namespace; "toolfleet" when empty.
	Namespace string
	// Owner is the worker's id, as it stands in the labels of everything it
	// makes. Required.
	Owner string
	// AgentPath is the agent's static binary on the host. It is read once; a
	// copy of it goes into the images' furniture. Required.
	AgentPath string
	// BinDir holds runc and the shim, such as [Daemon.BinDir]. When empty,
	// the containerd is somebody else's: its shim finds runc itself, and each
	// sandbox has a shim of its own.
	BinDir string
	// StateDir is a directory that outlives the worker, on a file system that
	// programs may be run from; a script is kept there for a runtime that needs
	// flags. When empty, it lies below /run, where many systems forbid it.
	StateDir string
	// Runtimes names runtime handlers beside runc, runsc and crun, or in their
	// place: each the absolute path of an OCI runtime, or containerd's name of
	// a shim, such as io.containerd.kata.v2.
	Runtimes map[string]string
	// SubIDBase is where the ranges of host ids begin; 100000 when 0.
	SubIDBase uint32
	// CgroupParent is the cgroup above all sandboxes; "toolfleet" when empty.
	// One that begins with a slash lies below the root. Any other lies, on
	// cgroup v2, below the group of this process if it was given that to
	// divide (a container's, or a systemd unit's with DelegateSubgroup=), else
	// below the root too.
	CgroupParent string
	// Expiry is how long after its start a sandbox whose worker is dead may
	// be removed by anybody; 2 hours when 0. The worker's own restart does
	// not wait for it.
	Expiry time.Duration
	// Registries says how images are pulled.
	Registries Registries
	// Pulled is told of each pull that has ended, and how long it took. Nil tells
	// nobody.
	Pulled func(took time.Duration, err error)
	// Logger takes what goes wrong while cleaning up. Nil discards it.
	Logger *slog.Logger
}

const defaultSubIDBase = 100_000

// Runtime is a [sandbox.Runtime] on containerd, and the keeper of its images.
type Runtime struct {
	cfg    Config
	client *client.Client
	log    *slog.Logger
	dir    string // per-sandbox directories, short-lived
	group  cgroup // above all sandboxes of this containerd
	// process is this run of the worker, beside its owner's name.
	process string

	agent       []byte
	agentDigest string
	filter      []byte
	profile     *specs.LinuxSeccomp
	handlers    map[string]*handler
	cellProfile *specs.LinuxSeccomp // lets an agent make cells
	apparmor    string

	images     imageCache
	registries *registries
	closing    chan struct{}  // closed by Close, for what goes on behind callers
	work       sync.WaitGroup // of what does; see behind
	shims      *sharedShims   // nil: every sandbox has a shim of its own
	userns     userNamespaces
	sweeps     sync.Mutex // one sweep at a time
}

var _ sandbox.Runtime = (*Runtime)(nil)

// New connects to a containerd. Close the runtime when it is no longer used.
func New(cfg Config) (*Runtime, error) {
	if cfg.Owner == "" || cfg.AgentPath == "" {
		return nil, errors.New("containerd: the owner and the path of the agent are required")
	}
	if cfg.Namespace == "" {
		cfg.Namespace = defaultNamespace
	}
	if cfg.SubIDBase == 0 {
		cfg.SubIDBase = defaultSubIDBase
	}
	if cfg.CgroupParent == "" {
		cfg.CgroupParent = "toolfleet"
	}
	if cfg.Expiry == 0 {
		cfg.Expiry = 2 * time.Hour
	}
	r := &Runtime{cfg: cfg, log: cfg.Logger, process: rand.Text(), closing: make(chan struct{})}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	// Two containerds, or two namespaces of one, may both have a sandbox of
	// one name; below these they do not meet.
	r.dir = runDir("r", cfg.Address+"\x00"+cfg.Namespace)
	above, err := aboveSandboxes(cfg.CgroupParent)
	if err != nil {
		return nil, err
	}
	r.group = cgroup{path: path.Join(above, filepath.Base(r.dir))}
	if err := r.prepare(); err != nil {
		return nil, err
	}
	if r.registries, err = newRegistries(cfg.Registries); err != nil {
		return nil, err
	}
	if r.client, err = dial(cfg.Address, cfg.Namespace); err != nil {
		return nil, err
	}
	if cfg.BinDir != "" {
		r.shims = &sharedShims{launch: r.launchShim}
	}
	return r, nil
}

// prepare does once what each start would do the same.
func (r *Runtime) prepare() error {
	for _, dir := range []string{runBase, r.dir} {
		if err := mkdirWalkable(dir); err != nil {
			return err
		}
	}
	var err error
	if r.agent, err = os.ReadFile(r.cfg.AgentPath); err != nil {
		return fmt.Errorf("containerd: read the agent: %w", err)
	}
	sum := sha256.Sum256(r.agent)
	r.agentDigest = hex.EncodeToString(sum[:])
	if r.filter, err = toolFilter(); err != nil {
		return err
	}
	if r.handlers, err = handlers(r.cfg.BinDir, r.cfg.Runtimes); err != nil {
		return err
	}
	r.profile, r.cellProfile = containerProfile(agentCaps), containerProfile(cellCaps)
	r.apparmor = loadAppArmor(r.log)
	return nil
}

// Name is the name of the default runtime handler.
func (r *Runtime) Name() string { return "runc" }

// Seccomp is the filter that the agent loads before it becomes the tool, as
// an array of struct sock_filter. The caller must not change it.
func (r *Runtime) Seccomp() []byte { return r.filter }

// AgentDigest is the SHA-256 of the agent that sandboxes run, in hex.
func (r *Runtime) AgentDigest() string { return r.agentDigest }

// Ready asks containerd whether it serves. The error wraps
// [sandbox.ErrUnavailable].
func (r *Runtime) Ready(ctx context.Context) error {
	if err := serving(ctx, r.client); err != nil {
		return fmt.Errorf("containerd: %w: %w", sandbox.ErrUnavailable, err)
	}
	return nil
}

// Close ends the pulls that still go on, and gives up the connection and the
// directories that are empty. Sandboxes must have been closed before. Call it
// once, when nothing else uses the runtime.
func (r *Runtime) Close() error {
	close(r.closing)
	r.work.Wait()
	r.registries.close()
	r.userns.close()
	err := r.client.Close()
	// runc keeps its state below the directory too, one for each namespace.
	for _, dir := range []string{"sandboxes", "shims", filepath.Join("runc", r.cfg.Namespace), "runc", "."} {
		_ = os.Remove(filepath.Join(r.dir, dir))
	}
	for g := r.group; g.path != "/" && g.path != "."; g.path = filepath.Dir(g.path) {
		for _, dir := range g.dirs() {
			_ = os.Remove(dir) // stays while another fleet uses it
		}
	}
	return err
}

var validID = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

// sandboxDir holds the FIFOs and the disk of one sandbox.
func (r *Runtime) sandboxDir(id string) string { return filepath.Join(r.dir, "sandboxes", id) }

// rootPath is where the root of one sandbox is mounted.
func (r *Runtime) rootPath(id string) string { return filepath.Join(r.sandboxDir(id), "root") }

// runcDir is where runc keeps its state of one sandbox; empty id: of all.
func (r *Runtime) runcDir(id string) string {
	return filepath.Join(r.dir, "runc", r.cfg.Namespace, id)
}

func (r *Runtime) sandboxGroup(id string) cgroup {
	return cgroup{path: r.group.path + "/" + id}
}

// Labels of our containers.
const (
	labelOwner   = "toolfleet.owner"
	labelCreated = "toolfleet.created"
	labelExpires = "toolfleet.expires"
	labelRange   = "toolfleet.range"
)

// List tells what sandboxes are in the namespace, whoever made them.
func (r *Runtime) List(ctx context.Context) ([]sandbox.Record, error) {
	found, err := r.client.ContainerService().List(ctx)
	if err != nil {
		return nil, wrap("list containers", err)
	}
	var records []sandbox.Record
	for _, c := range found {
		if owner, ours := c.Labels[labelOwner]; ours {
			created, _ := time.Parse(time.RFC3339Nano, c.Labels[labelCreated])
			expires, _ := time.Parse(time.RFC3339Nano, c.Labels[labelExpires])
			records = append(records, sandbox.Record{ID: c.ID, Owner: owner, Created: created, Expires: expires})
		}
	}
	return records, nil
}
