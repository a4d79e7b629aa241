#!/usr/bin/env bash
# Runs the tests given as arguments to `go test` and closes with one line that
# says how many ran. A skipped test fails the run: a suite that passes because
# it did not run is worse than one that fails.
set -euo pipefail
cd "$(dirname "$0")/.."

events=$(mktemp)
trap 'rm -f "$events"' EXIT
code=0
.toolchain/bin/gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg --hide-summary=output \
	--jsonfile "$events" -- "$@" || code=$?

# Events of a package as a whole carry no "Test".
count() { grep -c "\"Action\":\"$1\".*\"Test\":" "$events" || true; }
passed=$(count pass) failed=$(count fail) skipped=$(count skip)

if ((skipped > 0)); then
	echo "test: skipped tests fail the run:"
	sed -n 's/.*"Action":"skip".*"Package":"\([^"]*\)","Test":"\([^"]*\)".*/  \1 \2/p' "$events"
	code=1
fi
if ((passed == 0)); then
	echo "test: no test ran"
	code=1
fi
# What a machine does not have is not tested; the tests say so themselves.
sed -n 's/.*"Output":"[^"]*\(absent: [^"\\]*\).*/test: \1/p' "$events" | sort -u
echo "test: took $SECONDS s"
echo "test: $passed passed, $failed failed, $skipped skipped"
exit "$code"
