#!/bin/sh
# Before the files go. dpkg says "remove" or "upgrade"; rpm the number of versions that stay: 0 is removal.
set -e

# rpm 4.20 runs scripts in a network namespace with nothing in it (its plugin unshare): the API server is reached from that
# of the host's init.
net=
if [ -e /proc/1/ns/net ] && ! [ /proc/self/ns/net -ef /proc/1/ns/net ]; then
	net='nsenter --net=/proc/1/ns/net'
fi

# The scheduler compares what the nodes publish: a node without a daemon publishes nothing any more. The command names what it
# could not take back.
withdraw() { timeout 30 $net "$program" withdraw-capacity || true; }
program=/usr/bin/hostpath-provisioner
kept=/usr/libexec/hostpath-provisioner/withdraw

case "$1" in
remove | 0) ;;
upgrade) # dpkg's, with the other version.
	# Before 0.2 nothing was published: what is there would stay, and be compared for ever.
	# postremove.sh starts the service.
	if dpkg --compare-versions "$2" lt 0.2.0~; then
		if systemctl --quiet is-active hostpath-provisioner.service 2>/dev/null; then
			systemctl stop hostpath-provisioner.service || true
			: >/run/hostpath-provisioner-stopped
		fi
		withdraw
	fi
	exit 0
	;;
1) # rpm's, when the other version is there. One that publishes has its own program kept by now.
	if [ -x $kept ] && ! [ $kept -ef $program ]; then
		program=$kept
		case $(systemctl show -P ActiveState hostpath-provisioner.service 2>/dev/null) in
		'' | inactive | failed) ;;
		*) # It may be this version yet, or be about to become the other one.
			systemctl daemon-reload || true
			timeout 60 systemctl restart hostpath-provisioner.service || true
			;;
		esac
		withdraw
	fi
	exit 0
	;;
*) exit 0 ;;
esac

# An API server that is away is no reason to wait for long, nor a configuration that has errors to fail.
bound=$(timeout 30 $net /usr/bin/hostpath-provisioner volumes 2>/dev/null | grep -cE '  (bound|unknown)( |$)') || true
if [ "${bound:-0}" -gt 0 ]; then
	cat <<EOF
hostpath-provisioner: bound volumes on this node: $bound. They stay, with their data. Without the daemon
    pods go on with them, but those with a volume of source "csi" neither end nor start,
    and a claim that is deleted leaves its PersistentVolume and its directory.
    To remove them, install the package again, and delete their claims first.
EOF
fi

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

withdraw

module=/usr/libexec/hostpath-provisioner/selinux-module
if [ -x $module ]; then
	$module remove || true
fi
