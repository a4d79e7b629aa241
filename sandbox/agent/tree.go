package agent

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// KillTree kills every descendant of the process root, but not root itself, and
// reports whether it saw that none is left. It tries for at most a duration.
//
// It is for sandboxes without a pid namespace, where root is a subreaper: then
// a descendant cannot leave the tree, and one that was forked while the others
// were killed is found in the next round.
func KillTree(root int, within time.Duration) bool {
	for end := time.Now().Add(within); ; {
		live := descendants(root)
		if len(live) == 0 {
			return true
		}
		for _, pid := range live {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if time.Now().After(end) {
			return false
		}
		<-time.After(time.Millisecond) // to die takes them a moment
	}
}

// descendants lists the live descendants of root. Zombies do not count: they
// run no more, and root reaps them.
func descendants(root int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := make(map[int][]process)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, parent, ok := readStat(pid); ok {
			children[parent] = append(children[parent], p)
		}
	}
	var live []int
	var walk func(pid int)
	walk = func(pid int) {
		for _, p := range children[pid] {
			if !p.zombie {
				live = append(live, p.pid)
			}
			walk(p.pid)
		}
	}
	walk(root)
	return live
}

type process struct {
	pid    int
	zombie bool
}

// readStat reads one process of /proc. Its second field, the name, is the
// process's own choice and may hold anything; what follows the last parenthesis
// is the kernel's.
func readStat(pid int) (p process, parent int, ok bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return p, 0, false
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return p, 0, false
	}
	parent, err = strconv.Atoi(string(fields[1]))
	state := fields[0][0]
	return process{pid: pid, zombie: state == 'Z' || state == 'X'}, parent, err == nil
}
