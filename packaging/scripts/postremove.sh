#!/bin/sh
# After the files are gone. Volumes are never touched: nothing is removed but files that are named here,
# and folders only when they are empty, because a pool may lie below one of them.
set -e

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
if command -v journalctl >/dev/null; then
	journalctl --update-catalog || true
fi

if [ "$1" = upgrade ] && [ -e /run/hostpath-provisioner-stopped ]; then # by preremove.sh
	rm /run/hostpath-provisioner-stopped
	systemctl start --no-block hostpath-provisioner.service || true
fi

# forget removes files of a directory, by a pattern, and directories of it that are empty then. find(1) follows no link and
# enters no mount: what is in the state directory, the daemon's user has made, which may have been taken over.
forget() {
	find -P "$1" -xdev -maxdepth 3 -regextype posix-extended \
		\( \( -type f -o -type l \) -regex "$1/($2)" -o -type d -empty -regex "$1$3" \) -delete 2>/dev/null || true
}

if [ "$1" = purge ]; then # dpkg's; rpm has no purge
	forget /var/lib/hostpath-provisioner '(state/)?(lock|(token|claim-index|volume-index|node-lease)(\.new)?|cordoned-[^/]*|pools/[^/]*\.json(\.new)?)' '(/state)?(/pools)?'
	forget /etc/hostpath-provisioner 'kubeconfig|config\.toml(\.new|\.dpkg-[a-z]+)?|conf\.d/[^/]*\.toml' '(/conf\.d)?'
	rm -f /etc/credstore/hostpath-provisioner.kubeconfig /etc/credstore.encrypted/hostpath-provisioner.kubeconfig
fi
