package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// defaultPath is the PATH of a tool whose image names none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// program fills in what the start frame leaves open.
func (a *agent) program(s wire.Start) program {
	s.Env = environ(os.Environ(), s.Env, a.cfg)
	if s.Dir == "" {
		s.Dir = a.cfg.Workspace
	}
	in, out := filepath.Join(a.cfg.Workspace, wire.DirIn), filepath.Join(a.cfg.Workspace, wire.DirOut)
	return program{Start: s, places: []string{a.cfg.Workspace, a.cfg.Home, out}, in: in, out: out}
}

// own gives a tool with a user of its own the directories that were made for the
// usual one. A user that does not exist is told of when the tool becomes it.
func (p *program) own() error {
	if os.Geteuid() != 0 || p.UID == wire.ToolUser && p.GID == wire.ToolUser {
		return nil
	}
	for _, place := range p.places {
		if err := os.Chown(place, p.UID, p.GID); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("give the tool its directory: %w", err)
		}
	}
	return nil
}

// lookUp finds the file to execute.
func (p *program) lookUp() {
	if len(p.Argv) > 0 {
		p.path = lookPath(p.Argv[0], getenv(p.Env, "PATH"), p.Dir)
	}
}

// environ lays the call's environment over the image's. The image's HOME does
// not count: it is root's, or what the container runtime made up, and the tool
// could not write there.
func environ(image, call []string, cfg Config) []string {
	image = slices.DeleteFunc(slices.Clone(image), func(kv string) bool { return strings.HasPrefix(kv, "HOME=") })
	env := []string{"PATH=" + defaultPath, "HOME=" + cfg.Home, "TMPDIR=" + cfg.Tmp}
	for _, kv := range slices.Concat(image, call, []string{"TOOLFLEET_FD=" + strconv.Itoa(toolFD)}) {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			continue
		}
		i := slices.IndexFunc(env, func(have string) bool { return strings.HasPrefix(have, name+"=") })
		if i < 0 {
			env = append(env, kv)
		} else {
			env[i] = kv
		}
	}
	return env
}

func getenv(env []string, name string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// lookPath finds the file to execute. Like a shell it looks only for a name
// without a slash; what it cannot find is left for exec to refuse.
func lookPath(name, path, dir string) string {
	if name == "" || strings.Contains(name, "/") {
		return name
	}
	for _, d := range filepath.SplitList(path) {
		file := filepath.Join(d, name)
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file
		}
	}
	return name
}

// execError says why the tool could not be executed, to its author.
type execError struct{ sentence string }

func (e *execError) Error() string { return e.sentence }

// newExecError finds the words for err. ForkExec does not tell a working
// directory that is missing from a program that is, so this looks again. What is
// not the author's mistake comes back as another kind of error.
func newExecError(p program, err error) error {
	if info, statErr := os.Stat(p.Dir); errors.Is(statErr, fs.ErrNotExist) || statErr == nil && !info.IsDir() {
		return &execError{fmt.Sprintf("the working directory %s does not exist", p.Dir)}
	}
	switch {
	case len(p.Argv) == 0:
		return &execError{"there is no program to run"}
	case errors.Is(err, unix.ENOMEM):
		// Not for want of the tool's memory, which ends in a kill: the kernel
		// has none, or has killed the init of the tool's cell, after which it
		// says the same.
		return fmt.Errorf("start %s: %w", p.path, err)
	case errors.Is(err, unix.ENOENT) && p.path == p.Argv[0] && !strings.Contains(p.path, "/"):
		return &execError{fmt.Sprintf("%s: no such program in PATH", p.path)}
	case errors.Is(err, unix.ENOENT):
		if _, statErr := os.Stat(p.path); statErr == nil {
			return &execError{fmt.Sprintf("%s: its interpreter or dynamic loader does not exist in the image", p.path)}
		}
		return &execError{fmt.Sprintf("%s: no such file in the image", p.path)}
	case errors.Is(err, unix.EACCES):
		return &execError{fmt.Sprintf("%s: permission denied; it has to be executable for user %d, and so has its directory %s", p.path, p.UID, p.Dir)}
	case errors.Is(err, unix.ENOEXEC):
		return &execError{fmt.Sprintf("%s: neither a program for this machine nor a script with a #! line", p.path)}
	}
	return &execError{fmt.Sprintf("%s: %v", p.path, err)}
}
