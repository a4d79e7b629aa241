#!/usr/bin/env bash
# Fetches Debian's Prometheus and promtool and prints the directory they are in.
#
# The package is unpacked and not installed: installing it would start a server on
# the machine, and its forty dependencies are for pages that no check looks at.
set -euo pipefail
cd "$(dirname "$0")"
out=$PWD/../.toolchain/prometheus
mkdir -p "$PWD/../.toolchain"
exec 9>"$PWD/../.toolchain/prometheus.lock"
flock 9
if [[ ! -d $out ]]; then
	if ! command -v dpkg-deb >/dev/null; then
		echo "toolfleet: this is no Debian or Ubuntu; put prometheus and promtool into $out." >&2
		exit 1
	fi
	tmp=$(mktemp -d "$out.new-XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	# apt downloads into the working directory, as a user of its own where it may.
	chmod 755 "$tmp"
	(cd "$tmp" && { apt-get download prometheus || { apt-get update && apt-get download prometheus; }; } >log 2>&1) || {
		tail -n 20 "$tmp/log" >&2
		echo "toolfleet: apt-get could not download prometheus; see above." >&2
		exit 1
	}
	dpkg-deb -x "$tmp"/prometheus_*.deb "$tmp/root"
	mv -T "$tmp/root/usr/bin" "$out"
fi
realpath "$out"
