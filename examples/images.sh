#!/usr/bin/env bash
# Builds the images of the example tools into bin/images, as OCI archives that a
# worker imports with --images. The same sources make the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p bin/images

for dir in examples/tools/*/; do
	name=$(basename "$dir")
	if [[ $name != shell ]]; then
		bin/toolfleet image build "./$dir" --tag "local/$name:1" --output "bin/images/$name.tar"
	fi
done

# The shell tool runs scripts in Debian's static busybox; nothing but that and
# the tool itself is in its image.
busybox=$(mktemp -d)
trap 'rm -rf "$busybox"' EXIT
mkdir -p "$busybox/bin"
cp /bin/busybox "$busybox/bin/busybox"
for applet in $(/bin/busybox --list); do
	[[ $applet == busybox ]] || ln -s busybox "$busybox/bin/$applet"
done
CGO_ENABLED=0 go build -trimpath -ldflags="-s -w -buildid=" -o "$busybox/tool" ./examples/tools/shell
bin/toolfleet image build "$busybox" --tag local/shell:1 --output bin/images/shell.tar
