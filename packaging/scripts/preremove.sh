#!/bin/sh
# Before the files go. dpkg says "remove" or "upgrade"; rpm the number of versions that stay: 0 is removal.
set -e

case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac

# rpm removes the file, of which it knows no first version to compare with. dpkg does not know it.
config=/etc/hostpath-provisioner/config.toml
if [ "$1" = 0 ] && grep -qs '^[^#]' $config; then
	cp -a $config $config.rpmsave
fi

if [ -d /run/systemd/system ]; then
	systemctl disable --now hostpath-provisioner.service hostpath-provisioner-check.service hostpath-provisioner-metrics.socket hostpath-provisioner-csi.socket || true
	systemctl stop hostpath-provisioner-mountpoint.socket hostpath-provisioner-mountpoint.service hostpath-provisioner-csi.service || true
else
	systemctl disable hostpath-provisioner.service hostpath-provisioner-check.service hostpath-provisioner-metrics.socket hostpath-provisioner-csi.socket || true
fi

# The scheduler compares what the nodes publish: a node without a daemon publishes nothing any more.
timeout 30 /usr/bin/hostpath-provisioner withdraw-capacity 2>/dev/null || true

module=/usr/libexec/hostpath-provisioner/selinux-module
if [ -x $module ]; then
	$module remove || true
fi
