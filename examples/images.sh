#!/usr/bin/env bash
# Builds the images of the example tools into bin/images, as OCI archives that a
# worker imports with --images. The same sources make the same bytes, and the same
# versions of Debian's packages.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p bin/images

for dir in examples/tools/*/; do
	name=$(basename "$dir")
	source=$dir
	more=()
	case $name in
	shell)
		# Beside the tool: Debian's static busybox, a link for each of its
		# commands, and nothing else.
		more=(--add /bin/busybox:/bin/busybox)
		for command in $(/bin/busybox --list); do
			[[ $command == busybox ]] || more+=(--link "/bin/$command=busybox")
		done
		;;
	python)
		examples/debian.sh bin/debian/python python3 python3-pil
		source=bin/debian/python
		more=(--add "$dir/run.py:/run.py")
		;;
	pdf)
		examples/debian.sh bin/debian/pdf poppler-utils
		more=(--add bin/debian/pdf:/)
		;;
	node)
		# The C++ library of Debian, the Node.js and the servers of npm.
		examples/debian.sh bin/debian/node libstdc++6
		examples/npm.sh "$dir" bin/npm/node
		source=bin/debian/node
		more=(--add bin/npm/node:/)
		;;
	esac
	bin/toolfleet image build "$source" --tag "local/$name:1" --output "bin/images/$name.tar" "${more[@]}"
done
