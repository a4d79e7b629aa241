#!/usr/bin/env bash
# Builds the programs of the cluster test and prints the directory they are in.
# With --cached it builds nothing: exit code 1 says that they are not there.
#
# They take some twenty minutes of processor time and change only with the pins,
# so they lie outside the checkout, in a directory that is named after what they
# were built from and appears whole.
set -euo pipefail
cd "$(dirname "$0")"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/toolfleet/kubernetes
key=$({ cat go.mod go.sum build.sh; go env GOVERSION GOARCH; } | sha256sum | cut -c1-16)
out=$cache/$key

if [[ -d $out ]]; then
	echo "$out"
	exit
fi
if [[ ${1:-} == --cached ]]; then
	exit 1
fi
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
if [[ -d $out ]]; then
	echo "$out"
	exit
fi

version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
helm=$(go list -m -f '{{.Version}}' helm.sh/helm/v4)
minor=${version#v1.}
flags="-s -w -X helm.sh/helm/v4/internal/version.version=$helm"
for pkg in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	flags+=" -X $pkg.gitVersion=$version -X $pkg.gitMajor=1 -X $pkg.gitMinor=${minor%%.*} -X $pkg.gitTreeState=clean"
done

# One at a time: each says how long it took, and an interrupted build goes on
# where it stopped.
build=$cache/.$key
mkdir -p "$build/cni"
put() {
	local file=$build/$1 began=$SECONDS
	[[ -x $file ]] && return
	echo "kubernetes: building $1" >&2
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags="$flags" -o "$file.new" "$2"
	mv "$file.new" "$file"
	echo "kubernetes: built $1 in $((SECONDS - began)) s" >&2
}
put etcd go.etcd.io/etcd/server/v3
for name in kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet kube-proxy; do
	put "$name" "k8s.io/kubernetes/cmd/$name"
done
put helm helm.sh/helm/v4/cmd/helm
put coredns github.com/coredns/coredns
put kubeconform github.com/yannh/kubeconform/cmd/kubeconform
for plugin in main/bridge main/loopback main/ptp ipam/host-local meta/portmap; do
	put "cni/${plugin#*/}" "github.com/containernetworking/plugins/plugins/$plugin"
done
mv "$build" "$out"
echo "$out"
