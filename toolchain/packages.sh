#!/usr/bin/env bash
# Installs the Debian packages given, or else those that building and testing
# need, when one of them is missing. On other distributions it checks for what
# the packages bring.
set -euo pipefail

# gcc, libc6-dev, libseccomp-dev, pkg-config: runc and the race detector (cgo).
# busybox-static: the image of the example tool "shell".
# mmdebstrap, debian-archive-keyring: the images of "python" and "pdf".
# iproute2: the network that the fault harness cuts.
packages=(gcc libc6-dev libseccomp-dev pkg-config busybox-static mmdebstrap debian-archive-keyring iproute2 ca-certificates git)
(($# == 0)) || packages=("$@")

if ! command -v dpkg-query >/dev/null; then
	missing=("$@")
	if (($# == 0)); then
		for p in gcc pkg-config busybox mmdebstrap ip git; do
			command -v "$p" >/dev/null || missing+=("$p")
		done
		pkg-config --exists libseccomp 2>/dev/null || missing+=("the libseccomp headers")
	fi
	[[ -z ${missing-} ]] && exit 0
	echo "toolfleet: this is no Debian or Ubuntu; install by hand: ${missing[*]}." >&2
	exit 1
fi

for p in "${packages[@]}"; do
	[[ $(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null) == installed ]] || missing+=("$p")
done
[[ -z ${missing-} ]] && exit 0

echo "setup: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
	tail -n 20 "$log" >&2
	echo "toolfleet: apt-get could not install ${missing[*]}; see above." >&2
	exit 1
fi
echo "setup: installed ${missing[*]} in $SECONDS s"
