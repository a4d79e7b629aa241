#!/usr/bin/env bash
# Says in one sentence why Toolfleet cannot be built and run on this machine,
# and exits 1; says nothing on a machine that will do.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
	echo "toolfleet: $1" >&2
	exit 1
}

os=$(uname -s)
[[ $os == Linux ]] ||
	fail "this machine runs $os; sandboxes need Linux with containerd, so use a Linux machine or virtual machine."

[[ ${EUID:-$(id -u)} == 0 ]] ||
	fail "run this as root (for instance with sudo); making containers, mounts and cgroups needs it."

command -v go >/dev/null ||
	fail "Go is not in PATH; install Go 1.26 or newer from https://go.dev/dl and try again."
want=$(awk '$1 == "go" { print $2; exit }' go.mod)
have=$(go env GOVERSION 2>/dev/null) ||
	fail "$(command -v go) cannot build this module, which needs Go $want; install it from https://go.dev/dl."
oldest=$(printf '%s\n' "$want" "${have#go}" | sort -V | head -n 1)
[[ $oldest == "$want" ]] ||
	fail "Go $want or newer is needed and ${have#go} is what runs here; install it from https://go.dev/dl."

# cgroup v2 tells its controllers in one file, v1 mounts each of them.
controllers=$(cat /sys/fs/cgroup/cgroup.controllers 2>/dev/null || true)
for c in cpu memory pids; do
	[[ " $controllers " == *" $c "* || -e /sys/fs/cgroup/$c/cgroup.procs ]] ||
		fail "the cgroup controller '$c' is not mounted under /sys/fs/cgroup; without it a tool cannot be limited."
done
root=/sys/fs/cgroup
[[ -e $root/cgroup.controllers ]] || root=$root/pids
probe=$root/toolfleet-check-$$
mkdir "$probe" 2>/dev/null && rmdir "$probe" ||
	fail "cgroups under /sys/fs/cgroup cannot be made (an unprivileged container?); run on the host, or in a privileged container."

grep -qw overlay /proc/filesystems || modprobe overlay 2>/dev/null ||
	fail "this kernel has no overlayfs, which containerd's snapshots need."

tmp=${TMPDIR:-/tmp}
[[ -d $tmp && -w $tmp ]] || fail "$tmp is not a directory that can be written; set TMPDIR to one."
[[ $(stat -f -c %T "$tmp") != overlayfs ]] ||
	fail "$tmp lies on an overlay, where containerd cannot keep snapshots; set TMPDIR to a directory on ext4, xfs, btrfs or tmpfs."
