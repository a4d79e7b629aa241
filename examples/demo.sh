#!/usr/bin/env bash
# Starts a fleet with the example tools, calls each of them, stops the fleet, and
# checks that nothing is left of it. Some calls are meant to fail: what they get
# is an error result, and the demo counts it as a result.
set -uo pipefail
cd "$(dirname "$0")/.."

state=$(mktemp -d "${TMPDIR:-/tmp}/toolfleet-demo.XXXXXX")
fleet= calling=
stop() {
	[[ -z $fleet ]] && return
	kill -TERM "$fleet" 2>/dev/null
	wait "$fleet"
}
trap 'stop; rm -rf "$state"' EXIT

# An interrupt ends the demo at once. Every program runs in the background and
# is waited for, since a shell hears nothing while one runs in the foreground.
# Two signals tell the fleet not to drain.
interrupted() {
	trap '' INT TERM
	echo "demo: interrupted; stopping the fleet" >&2
	[[ -z $calling ]] || { kill -KILL "$calling" && wait "$calling"; } 2>/dev/null
	[[ -z $fleet ]] || kill -INT "$fleet" 2>/dev/null
	exit "$1"
}
trap 'interrupted 130' INT
trap 'interrupted 143' TERM

fail() {
	echo "demo: $1" >&2
	[[ ! -s $state/log ]] || { echo "demo: the fleet's log ends:" >&2; tail -n 20 "$state/log" >&2; }
	exit 1
}

mkfifo "$state/ready"
bin/toolfleet up --state "$state" --tools examples/tools --images bin/images \
	--listen 127.0.0.1:0 --nats-listen 127.0.0.1:0 >"$state/ready" 2>"$state/log" &
fleet=$!
read -r ready <"$state/ready" || { fleet=; fail "the fleet did not start"; }
rm "$state/ready"
echo "demo: $ready"
TOOLFLEET_URL=$(sed 's/.*http=\([^ ]*\).*/\1/' <<<"$ready")
export TOOLFLEET_URL

calls=0 results=0 wrong=0
# call WANTED-EXIT-CODE TOOL ARGUMENTS [FLAG...]
call() {
	local want=$1 tool=$2 args=$3 code=0
	shift 3
	printf "\n\$ toolfleet call %s --args '%s'%s\n" "$tool" "$args" "${*:+ $*}"
	# The progress goes to the terminal while it happens, the result after it.
	bin/toolfleet call "$tool" --args "$args" "$@" >"$state/result" &
	calling=$!
	wait "$calling" || code=$?
	calling=
	if (($(wc -l <"$state/result") > 12)); then
		head -n 3 "$state/result" | cut -c 1-100
		echo "…"
		tail -n 3 "$state/result" | cut -c 1-100
	else
		cat "$state/result"
	fi
	calls=$((calls + 1))
	((code > 1)) || results=$((results + 1))
	((code == want)) || { echo "demo: exit code $code, and $want was expected"; wrong=$((wrong + 1)); }
}
call 0 word-count '{"text":"to be or not to be"}'
call 0 countdown '{"from":20}'
call 0 chart '{"values":[3,1,4,1,5,9,2,6]}' --output-dir "$state/media"
call 0 shell '{"script":"echo I am user $(id -u) of $(uname -s); ls /"}'
call 0 filesystem-list_directory '{"path":"/srv"}'
call 1 shell '{"script":"echo so far, so good; echo and now this >&2; exit 7"}'
call 1 python '{"code":"from PIL import Image\nprint(6 * 7)\nImage.new(\"RGB\", (8, 8)).save(\"/workspace/out/dot.png\")\nraise ValueError(\"enough\")"}' --output-dir "$state/media"
call 0 pdf '{}' --file examples/tools/pdf/letter.pdf
call 1 word-count '{"txet":1}'
call 1 no-such-tool '{}'
for mode in error panic signal eat-memory fork-bomb flood-stdout; do
	call 1 flaky "{\"mode\":\"$mode\"}"
done
call 1 flaky '{"mode":"hang"}' --timeout 1s
echo

# Everything that a fleet makes on a machine carries one of these: its state
# directory, its worker's id, the places of its containerd and of its sandboxes.
marks=$state/marks
{
	echo "$state/"
	cat "$state/worker-id"
	sed -n 's|.*"\(/run/toolfleet/[^/"]*\).*|\1|p' "$state/containerd/config.toml"
	find /sys/fs/cgroup -type d -path "*$(<"$state/worker-id")*" -printf '%h\n' 2>/dev/null | sed 's|.*/||'
} | sort -u >"$marks"
[[ $(wc -l <"$marks") -ge 4 ]] || fail "cannot tell what belongs to the fleet"

stop || fail "the fleet ended with exit code $?"
fleet=
left=$(
	grep -lsaFf - /proc/[0-9]*/cmdline <"$marks" | sed 's|/proc/\([0-9]*\)/cmdline|process \1|'
	grep -Ff "$marks" /proc/self/mountinfo | sed 's/^/mount /'
	find /sys/fs/cgroup /run -type d 2>/dev/null | grep -Ff "$marks"
	find "$state" -type p
)
[[ -z $left ]] || fail "left behind:
$left"
((wrong == 0)) || fail "$wrong calls did not end as they should"
echo "demo: $calls calls, $results results, $((calls - results)) lost"
((calls == results))
