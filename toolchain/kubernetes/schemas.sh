#!/usr/bin/env bash
# Makes the schemas that charts are checked by and prints their directory: those
# of the pinned Kubernetes, and of the objects of KEDA and the Prometheus operator
# as their modules bring them.
set -euo pipefail
cd "$(dirname "$0")"
keda=github.com/kedacore/keda/v2@v2.21.0
operator=github.com/prometheus-operator/prometheus-operator@v0.85.0
cache=${XDG_CACHE_HOME:-$HOME/.cache}/toolfleet/schemas
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
out=$cache/$({ cat schemas.sh schemas/main.go; echo "$version"; } | sha256sum | cut -c1-16)
if [[ -d $out ]]; then
	echo "$out"
	exit
fi

# The modules are not built, so they are in no go.mod; their sums are checked all
# the same.
source_of() { go mod download -json "$1" | awk -F '"' '$2 == "Dir" { print $4 }'; }
mkdir -p "$cache"
tmp=$(mktemp -d "$cache/.new-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
crds=("$(source_of $keda)/config/crd/bases/keda.sh_scaledobjects.yaml")
for kind in servicemonitors podmonitors prometheusrules; do
	crds+=("$(source_of $operator)/example/prometheus-operator-crd/monitoring.coreos.com_$kind.yaml")
done
go run ./schemas "$tmp" "$(source_of "k8s.io/kubernetes@$version")/api/openapi-spec/swagger.json" "${crds[@]}"
# The definitions themselves, for a cluster that has none of the operators.
mkdir "$tmp/crds"
cp "${crds[@]}" "$tmp/crds/"
chmod 755 "$tmp"
mv -T "$tmp" "$out"
echo "$out"
