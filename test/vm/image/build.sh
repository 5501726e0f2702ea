#!/bin/sh
# build.sh OUT AGENT SUITE: makes a machine of this suite of Debian in the directory OUT: root.img (ext4, labelled for
# SELinux), vmlinuz, initrd. AGENT is the static program that takes commands over virtio-serial.
#
# Everything comes from Debian's packages. The kernel is unpacked, not installed: nothing builds an
# initramfs or a boot loader. Labels are written here by setfiles, so that no boot has to relabel.
set -eu
out=$1 agent=$2 suite=$3
here=$(cd "$(dirname "$0")" && pwd)
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
mkdir -p "$out"
tree=$out/tree
trap 'rm -rf "$tree" "$out"/debian.sources "$out"/sources.list' EXIT
rm -rf "$tree"

# What the steps use, by package: the policy and its compiler, filesystems, device-mapper, NFS, what runs pods.
packages=systemd,systemd-sysv,udev,dbus,kmod,iproute2,procps,util-linux,\
selinux-policy-default,selinux-policy-src,selinux-policy-dev,policycoreutils,selinux-utils,checkpolicy,semodule-utils,\
e2fsprogs,xfsprogs,dmsetup,nfs-kernel-server,nfs-common,attr,make,m4,containerd,runc
# From where this system has its own packages, and the tree's suite: another mirror may not be reached from here.
sources=
for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
	[ -z "$sources" ] && [ -s "$file" ] && sources=$file
done
[ -n "$sources" ] || { echo "build.sh: apt has no sources here" >&2; exit 1; }
own=$(. /etc/os-release && echo "$VERSION_CODENAME")
sed "s/\b$own\b/$suite/g" "$sources" >"$out/$(basename "$sources")"
mmdebstrap --quiet --mode=root --variant=minbase --include="$packages" \
	--aptopt='Acquire::Retries "3"' \
	--dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
	--customize-hook="sh -eu $here/kernel.sh \"\$1/kernel\"" \
	"$suite" "$tree" "$out/$(basename "$sources")"

# The kernel, unpacked.
version=$(ls "$tree/kernel/lib/modules")
cp "$tree/kernel/boot/vmlinuz-$version" "$out/vmlinuz"
mkdir -p "$tree/usr/lib/modules"
mv "$tree/kernel/lib/modules/$version" "$tree/usr/lib/modules/$version"
rm -rf "$tree/kernel"
chroot "$tree" depmod "$version"

# container.te and its file contexts: Debian's binary policy has no container_t and no container_file_t.
mkdir "$tree/tmp/policy"
zstd -q -dc "$tree/usr/src/selinux-policy-src.tar.zst" | tar -x -C "$tree/tmp/policy"
chroot "$tree" sh -eu -s <<'CONTAINER'
mkdir /tmp/container && cd /tmp/container
from=$(find /tmp/policy -name container.te | head -n 1)
cp "${from%.te}".te "${from%.te}".if "${from%.te}".fc .
make -s -f /usr/share/selinux/devel/Makefile container.pp >/dev/null
install -D -m 0644 container.pp /usr/share/test/container.pp
semodule -n -i container.pp
rm -rf /tmp/container /tmp/policy
CONTAINER

# Units and settings.
cp -a "$here/tree/." "$tree/"
install -m 0755 "$agent" "$tree/usr/local/sbin/test-agent"
chroot "$tree" systemctl -q enable test-agent.service
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
	fstrim.timer systemd-tmpfiles-clean.timer systemd-timesyncd.service getty@tty1.service getty.target \
	nfs-server.service rpcbind.service rpcbind.socket nfs-client.target rpc-statd-notify.service nfs-blkmap.service \
	systemd-update-utmp.service systemd-update-utmp-runlevel.service selinux-autorelabel.service \
	systemd-pstore.service containerd.service sys-kernel-debug.mount sys-kernel-tracing.mount dev-hugepages.mount; do
	ln -sf /dev/null "$tree/etc/systemd/system/$unit"
done
echo 'machine' >"$tree/etc/hostname"
echo '127.0.0.1 localhost machine' >"$tree/etc/hosts"
echo '/dev/vda / ext4 defaults,noatime 0 0' >"$tree/etc/fstab"
: >"$tree/etc/machine-id"
echo 0123456789abcdef0123456789abcdef >"$tree/etc/machine-id"
rm -rf "$tree/var/cache/apt" "$tree/var/lib/apt/lists" "$tree/usr/share/doc" "$tree/usr/share/selinux/default"
mkdir -p "$tree/var/cache/apt/archives/partial"
useradd=$(chroot "$tree" useradd -m -u 1000 alice 2>&1) || { echo "$useradd" >&2; exit 1; }
echo 'secret' >"$tree/home/alice/secret"

# The initramfs: busybox, and what finds the root disk.
init=$out/init
rm -rf "$init"
mkdir -p "$init/bin" "$init/modules" "$init/root" "$init/dev" "$init/proc" "$init/sys"
cp "$(command -v busybox)" "$init/bin/busybox"
cp "$here/init" "$init/init"
for module in virtio_pci virtio_blk ext4; do
	chroot "$tree" modprobe -S "$version" --show-depends "$module"
done | awk -v tree="$tree" '$1 == "insmod" && !seen[$2]++ { print tree $2 }' >"$init/list"
n=10
while read -r module; do
	to=$init/modules/$n-$(basename "$module" .xz)
	case $module in
	*.xz) xz -dc "$module" >"$to" ;; # Debian 13's
	*) cp "$module" "$to" ;;
	esac
	n=$((n + 1))
done <"$init/list"
(cd "$init" && find . | cpio --quiet -o -H newc | gzip -1) >"$out/initrd"
rm -rf "$init"

# Labels and the disk.
setfiles -m -F -q -r "$tree" "$tree/etc/selinux/default/contexts/files/file_contexts" "$tree"
rm -f "$out/root.img"
truncate -s 3G "$out/root.img"
mkfs.ext4 -q -E lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0 -O ^metadata_csum_seed -d "$tree" "$out/root.img"
