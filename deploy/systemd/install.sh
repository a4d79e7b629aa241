#!/usr/bin/env bash
# Installs a checkout's programs and units on this machine, without a package:
#
#   deploy/systemd/install.sh            after `make setup`
#   deploy/systemd/install.sh --remove   takes away what it installed
#
# It starts nothing: the services want tools and a NATS server first, see
# deploy/README.md. It may be run again to install a newer checkout; settings in
# /etc/toolfleet and the state in /var/lib/toolfleet are left alone, also by
# --remove. DESTDIR installs below another root.
set -euo pipefail
cd "$(dirname "$0")/../.."
to=${DESTDIR:-}
units=(toolfleet-dispatcher.service toolfleet-worker.service)

# On a machine that is installed into, but not run, there is no systemd to tell.
systemd() { if [[ -z $to && -d /run/systemd/system ]]; then "$@"; fi; }

if [[ -z $to && $EUID -ne 0 ]]; then
	echo "install: only root may install into this machine; or give DESTDIR" >&2
	exit 1
fi
if [[ ${1:-} == --remove ]]; then
	systemd systemctl disable --now "${units[@]}"
	for unit in "${units[@]}"; do rm -f "$to/etc/systemd/system/$unit"; done
	rm -rf "$to/opt/toolfleet/bin" "$to/etc/tmpfiles.d/toolfleet.conf"
	systemd systemctl daemon-reload
	exit
elif (($#)); then
	echo "usage: deploy/systemd/install.sh [--remove]" >&2
	exit 2
fi

own=(bin/{dispatcher,worker,toolfleet,agent})
pinned=(.toolchain/bin/{containerd,containerd-shim-runc-v2,runc})
for program in "${own[@]}" "${pinned[@]}"; do
	[[ -x $program ]] || { echo "install: $program is not built; run make setup" >&2; exit 1; }
done

install -d "$to"/opt/toolfleet/bin "$to"/etc/systemd/system "$to"/etc/tmpfiles.d
install -d "$to"/etc/toolfleet/{tools,images}
# `install` puts a new file in the place of one that runs, and does not write to it.
install "${own[@]}" "${pinned[@]}" "$to/opt/toolfleet/bin/"
for unit in "${units[@]}"; do install -m 644 "deploy/systemd/$unit" "$to/etc/systemd/system/"; done
install -m 644 deploy/systemd/toolfleet.conf "$to/etc/tmpfiles.d/"
for part in dispatcher worker; do
	settings=$to/etc/toolfleet/$part.env
	[[ -e $settings ]] || printf '# TOOLFLEET_NATS=nats://127.0.0.1:4222\n' | install -m 600 /dev/stdin "$settings"
done
if [[ -z $to ]]; then
	systemd systemd-tmpfiles --create /etc/tmpfiles.d/toolfleet.conf
	systemd systemctl daemon-reload
fi
echo "install: done; put tool files into /etc/toolfleet/tools and archives of images into /etc/toolfleet/images, then:"
echo "  systemctl enable --now ${units[*]}"
