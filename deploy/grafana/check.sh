#!/usr/bin/env bash
# Checks the dashboards: Grafana's own schema reads them strictly, their queries
# name what there is, and a Prometheus that scrapes a fleet at work has data for
# each of them. Wants what `make setup` makes.
set -euo pipefail
cd "$(dirname "$0")/../.."
go -C toolchain/grafana run . "$PWD"/deploy/grafana/*.json
TOOLFLEET_OPS_PROMETHEUS=$(toolchain/prometheus.sh) go test -tags=ops -count=1 -timeout=4m ./cmd/internal/dashboards
echo "dashboards: $(ls deploy/grafana/*.json | wc -l) show data"
