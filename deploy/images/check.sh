#!/usr/bin/env bash
# Makes the fleet's images twice, from this checkout and from a copy of it
# elsewhere, and compares their digests. What is pinned is taken as it is: it is
# built by the same compiler from modules that are checked by their sums.
set -euo pipefail
cd "$(dirname "$0")/../.."
tmp=$(mktemp -d "${TMPDIR:-/tmp}/toolfleet-images.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

mkdir "$tmp/copy"
tar -c --exclude=./.git --exclude=./bin --exclude=./.toolchain . | tar -x -C "$tmp/copy"
images() {
	local dir=$1 out=$2
	make -C "$dir" build BIN="$out/bin" vcs=false >&2
	go run ./deploy/images --bin "$out/bin" --output "$out" --tag check
}
images . "$tmp/one" >"$tmp/one.txt"
images "$tmp/copy" "$tmp/two" >"$tmp/two.txt"
if ! diff "$tmp/one.txt" "$tmp/two.txt"; then
	echo "images: two builds of the same sources differ" >&2
	exit 1
fi
echo "images: the same digests from two places"
cat "$tmp/one.txt"
