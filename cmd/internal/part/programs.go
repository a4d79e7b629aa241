package part

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// Programs are the programs that a worker needs beside itself.
type Programs struct {
	// Agent is the path of the sandboxes' agent.
	Agent string
	// given is the directory that was asked for; dirs is where the others are looked for, in order.
	given string
	dirs  []string
}

// Dir is the directory that was asked for, or "".
func (p Programs) Dir() string { return p.given }

// FindPrograms looks for the agent. dir is where to look, as itself, in bin
// and in .toolchain/bin below it; empty means the directory of this program
// and its parent, so that both an installed and a freshly built fleet find
// what belongs to them.
func FindPrograms(dir string) (Programs, error) {
	p := Programs{given: dir}
	if dir != "" {
		p.dirs = []string{dir, filepath.Join(dir, "bin"), filepath.Join(dir, ".toolchain", "bin")}
	} else if exe, err := os.Executable(); err == nil {
		at := filepath.Dir(exe)
		p.dirs = []string{at, filepath.Join(filepath.Dir(at), ".toolchain", "bin")}
	}
	for _, d := range p.dirs {
		if name := filepath.Join(d, "agent"); executable(name) {
			p.Agent = name
			return p, nil
		}
	}
	return p, fmt.Errorf("the program agent is in none of %v; run make setup, or name its directory with --programs", p.dirs)
}

// Containerd returns the directory that holds containerd, its shim and runc.
func (p Programs) Containerd() (string, error) {
	dirs := p.dirs
	if path, err := exec.LookPath("containerd"); err == nil {
		dirs = append(slices.Clip(dirs), filepath.Dir(path))
	}
	for _, d := range dirs {
		if executable(filepath.Join(d, "containerd")) && executable(filepath.Join(d, "containerd-shim-runc-v2")) && executable(filepath.Join(d, "runc")) {
			return d, nil
		}
	}
	return "", fmt.Errorf("containerd, containerd-shim-runc-v2 and runc are in none of %v; run make setup, or name their directory with --programs", dirs)
}

func executable(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
