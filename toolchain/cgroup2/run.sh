#!/usr/bin/env bash
# Runs the sandbox's tests on machines that have cgroup v2 and nothing else,
# whatever this one has.
#
# They are Debian's user-mode Linux: the distribution's kernel as an ordinary
# process, which needs no virtualization and no image. Its root file system is
# this machine's, read-only; what the tests write goes to a disk of its own, and
# what they tell comes out through one directory. It has one slow processor: so
# there are two of them, the tests are compiled here, and the race detector
# stays here too.
set -euo pipefail
cd "$(dirname "$0")/../.."
repo=$PWD
uml=$repo/.toolchain/user-mode-linux

# Half an hour is for a busy machine; an idle one needs a tenth of it. A kernel
# that hangs must not hang the run.
timeout=${TIMEOUT:-1800}

fail() {
	echo "toolfleet: $1" >&2
	exit 1
}

work=$(mktemp -d /var/tmp/toolfleet-cgroup2-XXXXXX)
guests=()
finish() {
	# timeout passes the signal on to its kernel, and kills it in the end.
	((${#guests[@]} == 0)) || kill "${guests[@]}" 2>/dev/null || true
	wait
	rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# fetch unpacks the package below .toolchain, unless it is there.
fetch() {
	local lock
	exec {lock}>"$repo/.toolchain/lock" # as toolchain/build.sh does
	flock "$lock"
	[[ -e $uml/stamp ]] || download
	exec {lock}>&-
}

download() {
	command -v dpkg-deb >/dev/null ||
		fail "these tests need the package user-mode-linux of Debian or Ubuntu, and this is neither."
	echo "test-cgroup2: downloading user-mode-linux"
	local dir=$work/package log=$work/apt.log
	mkdir -p "$dir"
	(cd "$dir" && { apt-get download user-mode-linux || { apt-get update && apt-get download user-mode-linux; }; }) >"$log" 2>&1 || {
		tail -n 20 "$log" >&2
		fail "apt-get could not download user-mode-linux; see above."
	}
	dpkg-deb -x "$dir"/user-mode-linux_*.deb "$dir/root"
	rm -rf "$uml"
	mv "$dir/root" "$uml"
	touch "$uml/stamp"
}

# memory is where a kernel keeps what is its memory: in ours, if there is room.
memory() {
	local free
	free=$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1) || free=0
	if ((free > 4 << 20)); then echo /dev/shm; else echo "$work"; fi
}

# prepare GUEST PACKAGE TEST-FLAG...: has the guest run the package's tests. Each
# call of it is a numbered job.
jobs=0
prepare() {
	local out=$work/$1 pkg=$2 compiled=$work/${2//\//-}.test
	shift 2
	mkdir -p "$out"
	[[ -e $compiled ]] || CGO_ENABLED=0 go test -c -o "$compiled" "./$pkg"
	jobs=$((jobs + 1))
	ln "$compiled" "$out/$jobs.test"
	echo "$jobs $pkg $*" >>"$out/tests"
}

# boot GUEST: runs it to its end, in the background.
boot() {
	local out=$work/$1
	truncate -s 4G "$out/disk"
	mkfs.ext4 -q "$out/disk"
	declare -p repo goroot gopath gocache >"$out/env"
	TMPDIR=$(memory) timeout --kill-after=5 "$timeout" "$uml/usr/bin/linux.uml" \
		mem=1536M root=/dev/root rootfstype=hostfs rootflags=/ ro init="$work/init.sh" out="$out" \
		ubd0="$out/disk" con=null con0=null,fd:1 con1=null quiet panic=-1 \
		uml_dir="$out" umid=guest </dev/null >"$out/console" 2>&1 &
	guests+=($!)
}

# judge GUEST: prints how its tests ended, and counts. A skipped test is a failed
# one, as in make test, and so is a package that ended badly with none.
passed=0 failed=0
judge() {
	local out=$work/$1 job pkg flags log code bad
	while read -r job pkg flags; do
		log=$out/$job.log
		code=$(cat "$out/$job.code" 2>/dev/null) || code=none
		bad=$(count 'FAIL|SKIP' "$log")
		if [[ $code != 0 || ! -s $log ]]; then bad=$((bad > 0 ? bad : 1)); fi
		passed=$((passed + $(count PASS "$log"))) failed=$((failed + bad))
		echo "test-cgroup2: $pkg $flags: $(cat "$out/$job.took" 2>/dev/null || echo 'did not end')"
		((bad > 0)) || continue
		grep -v '^=== ' "$log" || true
		echo "test-cgroup2: exit code $code; the kernel said last:"
		tail -n 20 "$out/console"
	done <"$out/tests"
}

# count RESULT FILE: how many tests ended so.
count() {
	local n
	n=$(grep -scE "^ *--- ($1): " "$2") || true
	echo "${n:-0}"
}

cp toolchain/cgroup2/init.sh "$work/"
goroot=$(go env GOROOT) gopath=$(go env GOPATH) gocache=$(go env GOCACHE)
toolchain/packages.sh e2fsprogs busybox-static
fetch
# All of the package, but of the runtimes only the one that leaves cgroups to the
# kernel alone (gVisor does not run in a kernel that is a process itself); and one
# whole fleet. The two guests take about as long.
prepare one sandbox/containerd -test.run='^TestSuite$/^runc$/^container$'
prepare one cmd/toolfleet -test.run='^TestEveryEnd$'
# TestNoRoom has its state on a tmpfs, which maps no ids before Linux 6.3.
prepare two sandbox/containerd -test.skip='^(TestSuite|TestRunscState|TestNoRoom)$'
prepare two sandbox/containerd -test.run='^TestSuite$/^runc$/^cell$'
# The tests build their programs in the guests, where only linking is cheap.
CGO_ENABLED=0 go build -trimpath -o "$work/warm/" ./cmd/agent ./sandbox/sandboxtest/probe
CGO_ENABLED=0 go build -o "$work/warm/" ./sandbox/containerd/testdata/shell
echo "test-cgroup2: two guests run the tests, which takes a few minutes"
boot one
boot two
wait "${guests[@]}" || true # what they told counts
guests=()
judge one
judge two
echo "test-cgroup2: took $SECONDS s"
echo "test-cgroup2: $passed passed, $failed failed"
((failed == 0 && passed > 0))
