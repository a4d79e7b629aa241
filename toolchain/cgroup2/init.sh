#!/bin/bash
# The first process of a guest that run.sh boots: mounts what a machine has and
# runs the tests that the file "tests" in $out names. $out is on the kernel's
# command line, which puts it into the environment.
# shellcheck disable=SC2154 # repo, goroot, gopath, gocache: in the file env
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
ln -s /proc/self/fd /dev/fd

# The one place that can be written on the host, and that can be read again.
mount -t hostfs -o "$out" none /mnt
out=/mnt
. $out/env
export PATH=$goroot/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root GOPATH=$gopath GOCACHE=$gocache GOTOOLCHAIN=local GOFLAGS=-buildvcs=false

busybox ip link set lo up

# What the tests write goes to the disk: an image's layers cannot lie on tmpfs
# before Linux 6.3, as it has no id mappings. The cache of Go is the host's.
mount -t ext4 /dev/ubda /tmp
mkdir -m 1777 /tmp/var
mkdir /tmp/cache /tmp/work
mount --bind /tmp/var /var/tmp
# What lies below /tmp on the host is hidden now.
for dir in "$repo" "$goroot" "$gopath" "$gocache"; do
	[[ -e $dir ]] || { mkdir -p "$dir" && mount -t hostfs -o "$dir" none "$dir"; }
done
busybox insmod "$repo"/.toolchain/user-mode-linux/usr/lib/uml/modules/*/kernel/fs/overlayfs/overlay.ko
mount -t overlay overlay -o "lowerdir=$gocache,upperdir=/tmp/cache,workdir=/tmp/work" "$gocache"

while read -r job pkg flags; do
	began=$SECONDS
	cd "$repo/$pkg" || continue
	# Unquoted: flags are several words.
	# shellcheck disable=SC2086
	"$out/$job.test" -test.v -test.timeout=20m $flags >"$out/$job.log" 2>&1
	echo $? >"$out/$job.code"
	echo "$((SECONDS - began)) s, Linux $(uname -r)" >"$out/$job.took"
done <"$out/tests"

echo o >/proc/sysrq-trigger # off; it takes a moment
read -r -t 60 <>/dev/console
