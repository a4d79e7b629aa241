#!/usr/bin/env bash
# Unpacks Debian packages, with all they depend on, into a directory that becomes
# the root of a tool's image:
#
#	examples/debian.sh DIRECTORY PACKAGE...
#
# It takes the network and some seconds, so it is done again only for other
# packages, or after a change of this script. `make clean` forgets.
set -euo pipefail

root=$1
shift
key=$({ cat "$0"; echo "$@"; } | sha256sum)
[[ -f $root.key && $(<"$root.key") == "$key" ]] && exit 0
rm -rf "$root" "$root.key"
mkdir -p "$(dirname "$root")"

# The packages are unpacked and not set up: a tool needs no users, no services and
# no package manager.
mmdebstrap --quiet --variant=extract --include="$(IFS=,; echo "$*")" bookworm "$root"

# What no tool reads, what would make each build another (logs, the machine's own
# name), and Perl, which only the packages' scripts want. Licences stay.
rm -rf "$root"/{dev,proc,sys,run,var,sbin} "$root"/etc/{apt,hostname,resolv.conf,fstab} \
	"$root"/usr/{sbin,share/{man,info,locale,perl,perl5,lintian,bug}} \
	"$root"/usr/lib/*/{gconv,perl,perl5,perl-base} "$root"/usr/bin/{perl*,dpkg*,debconf*}
find "$root"/usr/share/doc ! -type d ! -name copyright -delete
find "$root"/usr/share/doc -type d -empty -delete

# Python compiles what it imports and keeps that beside the source, which a
# read-only root would make it do again in every call. Files have no times in an
# image, so what is compiled here is not held against them.
if [[ -x $root/usr/bin/python3 ]]; then
	chroot "$root" /usr/bin/python3 -m compileall -q --invalidation-mode unchecked-hash /usr/lib/python3 /usr/lib/python3.*
fi
echo "$key" >"$root.key"
