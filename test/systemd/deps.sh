#!/bin/sh
# Installs what building and trying the packages needs, where it is missing. The tree that is booted is
# made of Debian packages, so this is for Debian and Ubuntu.
set -eu

need=
for tool in mmdebstrap systemd-nspawn rpm rpmlint lintian apt-ftparchive createrepo_c gpg \
	nsenter ip mksquashfs ansible-playbook ssh; do
	command -v "$tool" >/dev/null 2>&1 || need="$need $tool"
done
[ -n "$need" ] || exit 0

echo "installing what is missing:$need"
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "deps: this needs root and apt-get; install:$need" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends mmdebstrap systemd-container rpm rpmlint lintian \
	apt-utils createrepo-c gnupg util-linux iproute2 squashfs-tools ansible-core \
	openssh-client >/dev/null
