package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Secrets is what mode "secrets" prints of a directory of secret files.
type Secrets struct {
	Env     string            // of the variable SECRET
	Files   map[string]string // name and content
	Modes   map[string]string // name and how others may use it
	Mount   string            // the options and the type of what is mounted there
	Allowed []string          // what a tool should not be able to do
}

// secrets looks at the secret files in a directory, and tries to do with them
// what is not to be done.
func secrets(args []string) int {
	dir := args[0]
	s := Secrets{Env: os.Getenv("SECRET"), Files: map[string]string{}, Modes: map[string]string{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		text, err := os.ReadFile(name)
		if err != nil {
			text = []byte(err.Error())
		}
		s.Files[e.Name()] = string(text)
		var st unix.Stat_t
		if err := unix.Stat(name, &st); err == nil {
			s.Modes[e.Name()] = fmt.Sprintf("%o %d:%d", st.Mode&0o7777, st.Uid, st.Gid)
		}
		if unix.Access(name, unix.X_OK) == nil {
			s.Allowed = append(s.Allowed, "run "+e.Name())
		}
	}
	if os.Getuid() != 0 && os.WriteFile(filepath.Join(dir, "new"), nil, 0o600) == nil {
		s.Allowed = append(s.Allowed, "make a file")
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 3 && f[1] == dir {
			s.Mount = f[2] + " " + f[3]
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(s) // a struct of strings
	return 0
}
