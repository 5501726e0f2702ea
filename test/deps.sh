#!/bin/sh
# deps.sh [TOOL...] installs what tests and the demonstration need, and these tools, where it is missing. Debian and
# Fedora families.
set -eu

need=
for tool in mkfs.ext4 mkfs.xfs mkfs.btrfs mount losetup lsattr systemd-analyze man jq restic borg "$@"; do
	command -v "$tool" >/dev/null 2>&1 || need="$need $tool"
done
[ -n "$need" ] || exit 0

echo "installing what is missing:$need"
if [ "$(id -u)" != 0 ]; then
	echo "deps: installing packages needs root; run as root, or install the tools named above" >&2
	exit 1
fi
if command -v apt-get >/dev/null; then
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq
	apt-get install -y -qq --no-install-recommends e2fsprogs xfsprogs btrfs-progs mount util-linux systemd man-db jq restic borgbackup "$@" >/dev/null
elif command -v dnf >/dev/null; then
	dnf install -y -q e2fsprogs xfsprogs btrfs-progs util-linux systemd man-db jq restic borgbackup "$@"
else
	echo "deps: neither apt-get nor dnf is here; install:$need" >&2
	exit 1
fi
