#!/usr/bin/env bash
# Builds the images of the example tools into bin/images, as OCI archives that a
# worker imports with --images. The same sources make the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p bin/images

for dir in examples/tools/*/; do
	name=$(basename "$dir")
	more=()
	if [[ $name == shell ]]; then
		# Beside the tool: Debian's static busybox, a link for each of its
		# commands, and nothing else.
		more=(--add /bin/busybox:/bin/busybox)
		for command in $(/bin/busybox --list); do
			[[ $command == busybox ]] || more+=(--link "/bin/$command=busybox")
		done
	fi
	bin/toolfleet image build "$dir" --tag "local/$name:1" --output "bin/images/$name.tar" "${more[@]}"
done
