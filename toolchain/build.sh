#!/usr/bin/env bash
# Builds pinned programs of this module, and of those in the directories below,
# into .toolchain/bin: build.sh NAME...
#
# A program is built again when the pins, its flags or the Go version change; a
# stamp beside it remembers them. A lock keeps two builds from one directory,
# and a program is replaced in one step, so one that runs is never written to.
set -euo pipefail
cd "$(dirname "$0")"
out=$PWD/../.toolchain
mkdir -p "$out/bin" "$out/stamps"

exec 9>"$out/lock"
flock 9

build() {
	local name=$1 pkg=$2 cgo=$3 tags=$4 module=${5:-.} extra=${6:-} pins stamp began
	pins=$(cat "$module/go.mod" "$module/go.sum" | sha256sum)
	stamp="$pins $pkg $cgo $tags $extra$(go env GOVERSION GOARCH | tr '\n' ' ')"
	if [[ -x $out/bin/$name && $(cat "$out/stamps/$name" 2>/dev/null) == "$stamp" ]]; then
		return
	fi
	began=$SECONDS
	echo "setup: building $name (a few minutes the first time)"
	CGO_ENABLED=$cgo go build -C "$module" -buildvcs=false -trimpath -ldflags="-s -w $extra" -tags "$tags" -o "$out/bin/.$name" "$pkg"
	mv -f "$out/bin/.$name" "$out/bin/$name"
	echo "$stamp" >"$out/stamps/$name"
	echo "setup: built $name in $((SECONDS - began)) s"
}

containerd=github.com/containerd/containerd/v2/cmd
for name in "$@"; do
	case $name in
	containerd) build "$name" $containerd/containerd 0 no_cri,no_btrfs,no_devmapper,no_zfs,no_aufs ;;
	# A node's, which speaks to the kubelet; ctr imports its images.
	containerd-cri) build "$name" $containerd/containerd 0 no_btrfs,no_devmapper,no_zfs,no_aufs ;;
	ctr) build "$name" $containerd/ctr 0 '' ;;
	containerd-shim-runc-v2) build "$name" $containerd/containerd-shim-runc-v2 0 '' ;;
	# Static, so that it runs in an image that holds no library.
	runc) build "$name" github.com/opencontainers/runc 1 seccomp,netgo,osusergo . -extldflags=-static ;;
	runsc)
		version=$(go list -C gvisor -m -f '{{.Version}}' gvisor.dev/gvisor)
		build "$name" gvisor.dev/gvisor/runsc 0 '' gvisor "-X gvisor.dev/gvisor/runsc/version.version=$version"
		;;
	helm)
		version=$(go list -C kubernetes -m -f '{{.Version}}' helm.sh/helm/v4)
		build "$name" helm.sh/helm/v4/cmd/helm 0 '' kubernetes "-X helm.sh/helm/v4/internal/version.version=$version"
		;;
	kubeconform) build "$name" github.com/yannh/kubeconform/cmd/kubeconform 0 '' kubernetes ;;
	golangci-lint) build "$name" github.com/golangci/golangci-lint/v2/cmd/golangci-lint 0 '' ;;
	gotestsum) build "$name" gotest.tools/gotestsum 0 '' ;;
	*)
		echo "toolfleet: toolchain/build.sh knows no program '$name'." >&2
		exit 1
		;;
	esac
done
