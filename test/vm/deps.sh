#!/bin/sh
# Installs what test/vm needs: qemu, and what builds a Debian tree. It needs a Debian-family host.
set -eu

need=
for tool in qemu-system-x86_64 qemu-img mmdebstrap setfiles busybox cpio zstd mkfs.ext4 mkfs.xfs; do
	command -v "$tool" >/dev/null 2>&1 || need="$need $tool"
done
[ -n "$need" ] || exit 0

echo "installing what is missing:$need"
if ! command -v apt-get >/dev/null; then
	echo "test/vm: the machine is built from Debian's packages with apt-get, which is not here" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 \
	qemu-system-x86 qemu-utils mmdebstrap policycoreutils busybox-static cpio zstd e2fsprogs xfsprogs >/dev/null
