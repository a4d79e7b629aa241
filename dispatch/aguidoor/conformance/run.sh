#!/usr/bin/env bash
# Installs what the conformance checks need (Node 18 or later, the two clients),
# and runs them; arguments choose scenarios. `make conformance` builds the fleet
# before.
set -euo pipefail
cd "$(dirname "$0")"

command -v node >/dev/null && command -v npm >/dev/null || ../../../toolchain/packages.sh nodejs npm
version=$(node --version)
major=${version#v}
((${major%%.*} >= 18)) || {
	echo "conformance: Node 18 or later is needed, and $(command -v node) is $version." >&2
	exit 1
}

# What was installed last is what the lock file says, or npm is asked again.
if ! cmp -s package-lock.json node_modules/.installed; then
	echo "conformance: installing the AG-UI clients"
	npm ci --loglevel=error --update-notifier=false
	cp package-lock.json node_modules/.installed
fi

exec node conformance.mjs "$@"
