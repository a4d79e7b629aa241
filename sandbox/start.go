package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// toolOOMScore makes a tool die before its agent when memory runs out.
const toolOOMScore = 1000

// toolRlimits are every tool's. The cgroup bounds the rest.
var toolRlimits = []wire.Rlimit{
	{Resource: unix.RLIMIT_CORE},                           // a core file is a copy of the call's secrets
	{Resource: unix.RLIMIT_NOFILE, Soft: 1024, Hard: 4096}, // 1024 is what select(2) can bear
	// The kernel charges these to the user who made the sandbox as well, and
	// that is the host's root: with its usual limits one tool takes every timer
	// and every message queue of the machine.
	{Resource: unix.RLIMIT_SIGPENDING, Soft: 256, Hard: 256},
	{Resource: unix.RLIMIT_MSGQUEUE},
}

// newStart makes the payload of the start frame for p. Its errors are sentences
// for the tool's author.
func newStart(p Process, agent wire.Hello, filter []byte) ([]byte, error) {
	uid, gid, err := user(p.User, agent)
	if err != nil {
		return nil, err
	}
	if len(p.Argv) == 0 || p.Argv[0] == "" {
		return nil, errors.New("there is no program to run")
	}
	for _, v := range slices.Concat(p.Argv, p.Env, []string{p.Dir}) {
		if strings.ContainsRune(v, 0) {
			return nil, errors.New("an argument, the environment or the working directory contains a NUL byte")
		}
	}
	start := wire.Start{
		Argv: p.Argv, Env: p.Env, Dir: p.Dir, UID: uid, GID: gid,
		Seccomp: filter, Rlimits: toolRlimits, OOMScoreAdj: toolOOMScore,
		Listen: p.Listeners.Addresses,
		Files:  len(p.Files) > 0,
	}
	if p.FilesOut.Files > 0 {
		start.Out = (*wire.Out)(&p.FilesOut)
	}
	payload, err := json.Marshal(start)
	if err != nil || len(payload) > wire.MaxPayload {
		return nil, fmt.Errorf("arguments and environment are more than %d bytes together", wire.MaxPayload)
	}
	return payload, nil
}

// user reads "", "uid" or "uid:gid". A lone uid is also the gid. An agent that
// is not root, which only sandbox/local has, shares its own user with a tool
// that asks for none.
func user(s string, agent wire.Hello) (uid, gid int, err error) {
	if s == "" && agent.UID != 0 {
		return agent.UID, agent.GID, nil
	}
	if s == "" {
		return wire.ToolUser, wire.ToolUser, nil
	}
	u, g, both := strings.Cut(s, ":")
	if !both {
		g = u
	}
	uid64, uidErr := strconv.ParseUint(u, 10, 31)
	gid64, gidErr := strconv.ParseUint(g, 10, 31)
	if uidErr != nil || gidErr != nil {
		return 0, 0, fmt.Errorf("the user %q is neither a number nor two with a colon between", s)
	}
	return int(uid64), int(gid64), nil
}
