#!/usr/bin/env bash
# Checks the chart without a cluster: helm's own lint, and each values file in ci/
# rendered and held to strict schemas of Kubernetes, KEDA and the Prometheus
# operator. Then wrong values must be refused, and so must an object with a field
# that nobody knows: a check that lets everything pass is none.
set -euo pipefail
cd "$(dirname "$0")"
root=../..
"$root/toolchain/build.sh" helm kubeconform >&2
schemas=$("$root/toolchain/kubernetes/schemas.sh")
helm=$root/.toolchain/bin/helm
conform() {
	"$root/.toolchain/bin/kubeconform" -strict "$@" -schema-location "$schemas/{{ .ResourceKind }}{{ .KindSuffix }}.json"
}
render() { "$helm" template fleet . --namespace fleet "$@"; }
refuse() {
	local what=$1 out
	shift
	if out=$("$@" 2>&1); then
		echo "chart: $what was taken:" >&2
		tail -n 3 <<<"$out" >&2
		exit 1
	fi
}

for values in ci/*.yaml; do
	echo "chart: $values"
	"$helm" lint --strict --quiet . --values "$values"
	render --values "$values" | conform -summary
done

refuse "a value with a misspelt name" render -f ci/trial.yaml --set dispatcher.replicaz=2
refuse "a value that is no number" render -f ci/trial.yaml --set-string dispatcher.replicas=two
refuse "a fleet without tokens" render -f ci/trial.yaml --set auth.tokens=
refuse "a fleet without NATS" render -f ci/trial.yaml --set nats.inChart.enabled=false
refuse "two workers on one node's containerd" render -f ci/host.yaml --set worker.kind=Deployment
refuse "a signing key that can be guessed" render -f ci/trial.yaml --set auth.signingKey=short
misspelt() { render -f ci/production.yaml | sed "s/$1:/$1z:/" | conform; }
for field in serviceAccountName minReplicaCount interval maxUnavailable; do
	refuse "a field ${field}z" misspelt "$field"
done
echo "chart: wrong values and misspelt fields are refused"
