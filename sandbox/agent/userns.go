package agent

import (
	"os"
	"strings"
)

// userLimits bound what the kernel counts for a user and not for a cgroup. All
// that a sandbox takes is charged to the host's user who made it as well, which
// is root: without a bound one tool takes all inotify instances of the machine.
// The tool has no use for namespaces; its filter refuses them too.
var userLimits = map[string]string{
	"max_inotify_instances": "16",
	"max_inotify_watches":   "8192",
	"max_fanotify_groups":   "0",
	"max_fanotify_marks":    "0",
	"max_user_namespaces":   "0",
	"max_cgroup_namespaces": "0",
	"max_time_namespaces":   "0",
}

// cellLimits count the namespaces that cells are made of. A cell needs one of
// each; of those that ended some may wait for the kernel to clean them up.
var cellLimits = []string{"max_mnt_namespaces", "max_pid_namespaces", "max_net_namespaces", "max_ipc_namespaces", "max_uts_namespaces"}

// limitUser sets the limits of this process's user namespace. The host's hold
// besides. A runtime that leaves the files read-only, or a kernel without one
// of them, keeps what it has.
func limitUser(cells bool) {
	if !ownUserNamespace() {
		return // these would be the host's limits
	}
	for name, limit := range userLimits {
		_ = os.WriteFile("/proc/sys/user/"+name, []byte(limit), 0)
	}
	limit := "0"
	if cells {
		limit = "512"
	}
	for _, name := range cellLimits {
		_ = os.WriteFile("/proc/sys/user/"+name, []byte(limit), 0)
	}
}

// ownUserNamespace tells whether this is another user namespace than the
// machine's first, which maps every id to itself.
func ownUserNamespace() bool {
	ids, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(ids)), " ") != "0 0 4294967295"
}
