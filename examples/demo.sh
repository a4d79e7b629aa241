#!/usr/bin/env bash
# Starts a fleet with the example tools, calls each of them, stops the fleet, and
# checks that nothing is left of it. Some calls are meant to fail: what they get
# is an error result, and the demo counts it as a result.
set -uo pipefail
cd "$(dirname "$0")/.."

state=$(mktemp -d "${TMPDIR:-/tmp}/toolfleet-demo.XXXXXX")
fleet=
stop() {
	[[ -z $fleet ]] && return
	kill -TERM "$fleet" 2>/dev/null
	wait "$fleet"
}
trap 'stop; rm -rf "$state"' EXIT

fail() {
	echo "demo: $1" >&2
	[[ ! -s $state/log ]] || { echo "demo: the fleet's log ends:" >&2; tail -n 20 "$state/log" >&2; }
	exit 1
}

# What a fleet on this state could leave behind, one line each.
leftovers() {
	grep -lsa -- "$state" /proc/[0-9]*/cmdline | sed 's|/proc/\([0-9]*\)/.*|process \1|' | grep -vw "$$"
	awk -v s="$state" 'index($2, s) == 1 { print "mount", $2 }' /proc/self/mounts
	find /sys/fs/cgroup -type d -path '*/toolfleet*' -printf 'cgroup %p\n' 2>/dev/null
	find "$state" -type p -printf 'fifo %p\n' 2>/dev/null
	for pid in /proc/[0-9]*; do readlink "$pid/ns/net"; done 2>/dev/null | sort -u | sed 's/^/network /'
}
leftovers >"$state.before"

mkfifo "$state/ready"
bin/toolfleet up --state "$state" --tools examples/tools --images bin/images \
	--listen 127.0.0.1:0 --nats-listen 127.0.0.1:0 >"$state/ready" 2>"$state/log" &
fleet=$!
read -r ready <"$state/ready" || { fleet=; fail "the fleet did not start"; }
echo "demo: $ready"
TOOLFLEET_URL=$(sed 's/.*http=\([^ ]*\).*/\1/' <<<"$ready")
export TOOLFLEET_URL

calls=0 results=0 wrong=0
# call WANTED-EXIT-CODE TOOL ARGUMENTS [FLAG...]
call() {
	local want=$1 tool=$2 args=$3 code=0
	shift 3
	printf '\n$ toolfleet call %s --args %q\n' "$tool" "$args"
	calls=$((calls + 1))
	bin/toolfleet call "$tool" --args "$args" "$@" || code=$?
	((code > 1)) || results=$((results + 1))
	((code == want)) || { echo "demo: exit code $code, and $want was expected"; wrong=$((wrong + 1)); }
}
call 0 word-count '{"text":"to be or not to be"}'
call 0 countdown '{"from":20}'
call 0 chart '{"values":[3,1,4,1,5,9,2,6]}' --output-dir "$state/media"
call 0 shell '{"script":"echo I am $(id -u) on $(uname -s); echo to stderr >&2; ls /"}'
call 1 shell '{"script":"echo so far, so good; exit 7"}'
call 1 word-count '{"txet":1}'
call 1 no-such-tool '{}'
for mode in error panic exit3 signal eat-memory; do
	call 1 flaky "{\"mode\":\"$mode\"}"
done
call 1 flaky '{"mode":"hang"}' --timeout 1s

echo
stop || fail "the fleet ended with exit code $?"
fleet=
rm -f "$state/ready"
left=$(comm -13 <(sort "$state.before") <(leftovers | sort))
rm -f "$state.before"
[[ -z $left ]] || fail "left behind:
$left"
((wrong == 0)) || fail "$wrong calls did not end as they should"
echo "demo: $calls calls, $results results, $((calls - results)) lost"
((calls == results))
