#!/usr/bin/env bash
# Checks rules and alerts: promtool's own reading of them, a case in which each
# alert fires and one in which it keeps silent, a page for each that its
# runbook_url leads to, no page without an alert, and no name of a metric that the
# fleet does not have.
set -euo pipefail
cd "$(dirname "$0")"
root=../..
promtool=$("$root/toolchain/prometheus.sh")/promtool

fail() {
	echo "alerts: $*" >&2
	exit 1
}

"$promtool" check rules recording.yaml alerts.yaml
"$promtool" test rules alerts_test.yaml

alerts=$(sed -n 's/^ *- alert: //p' alerts.yaml | sort)
[[ $(wc -l <<<"$alerts") -ge 10 ]] || fail "fewer than ten"
pages=$(cd "$root/docs/runbooks" && printf '%s\n' Toolfleet*.md | sed 's/\.md$//' | sort)
[[ $alerts == "$pages" ]] || fail "alerts and pages of docs/runbooks differ: $(diff <(echo "$alerts") <(echo "$pages") | grep '^[<>]' | paste -sd' ')"
for alert in $alerts; do
	grep -q "runbooks/$alert.md" "$root/docs/operations.md" || fail "docs/operations.md does not name $alert"
	for case in fires "is silent"; do
		grep -qxF "  - name: $alert $case" alerts_test.yaml || fail "$alert has no case '$alert $case' in alerts_test.yaml"
	done
	for wanted in "severity: " "summary: " "description: " "runbook_url: .*/docs/runbooks/$alert.md\$"; do
		awk -v a="$alert" '/- alert: /{on=$3==a} on' alerts.yaml | grep -q "$wanted" || fail "$alert has no ${wanted%%:*}"
	done
done

# Whoever was woken finds the same on every page, and queries that can be pasted:
# each line of a block of promql is one, and promtool reads them as rules.
queries=$(mktemp --suffix=.yaml)
trap 'rm -f "$queries"' EXIT
echo "groups: [{name: runbooks, rules: [" >"$queries"
for alert in $alerts; do
	page=$root/docs/runbooks/$alert.md
	for heading in "# $alert" "## What users feel" "## Look first" "## Causes, likeliest first, and what to do" "## It is over when"; do
		grep -qxF "$heading" "$page" || fail "the page of $alert has no heading '$heading'"
	done
	grep -qF "[$alert]($alert.md)" "$root/docs/runbooks/README.md" || fail "$alert is not in the list of docs/runbooks"
	awk -v a="$alert" '/^```/{on=$0=="```promql";next} on{gsub(/\047/,"&&"); printf "{record: \"runbook:%s:%d\", expr: \047%s\047},\n", a, ++n, $0}' "$page" >>"$queries"
done
echo "]}]" >>"$queries"
"$promtool" check rules "$queries" >&2

# A histogram's series have its name and an ending.
known=$(awk '{print $1} $2=="histogram"{print $1"_bucket\n"$1"_count\n"$1"_sum"}' "$root/metrics/testdata/metrics.txt" | sort)
used=$(grep -hoE '\btoolfleet_[a-z_]+' alerts.yaml recording.yaml "$queries" | sort -u)
unknown=$(comm -13 <(echo "$known") <(echo "$used"))
[[ -z $unknown ]] || fail "no such metrics: $unknown"

# The chart carries copies, since a chart takes no file from outside its directory.
for file in recording.yaml alerts.yaml; do
	cmp "$file" "$root/charts/toolfleet/rules/$file" || fail "copy deploy/prometheus/$file to charts/toolfleet/rules"
done
echo "alerts: $(wc -l <<<"$alerts") with runbooks and cases"
