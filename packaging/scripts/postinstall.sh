#!/bin/sh
# After the files are there. dpkg calls it with "configure" and the version that was there before, if
# any; rpm with the number of versions that are installed now. Nothing is started that did not run.
set -e

# Where rpm calls preremove.sh, the other version's program is in the place of this one.
keep() { ln -f /usr/bin/hostpath-provisioner /usr/libexec/hostpath-provisioner/withdraw || true; }

case "$1" in
configure) before=$2 ;;
abort-*)
	# By preremove.sh, for a version that does not come.
	if [ -e /run/hostpath-provisioner-stopped ]; then
		rm /run/hostpath-provisioner-stopped
		systemctl start --no-block hostpath-provisioner.service || true
	fi
	exit 0
	;;
1) before= && keep ;;
*) before=some && keep ;;
esac

say() { echo "hostpath-provisioner: $*"; }

if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers hostpath-provisioner.conf
elif ! getent passwd hostpath-provisioner >/dev/null || ! getent passwd hostpath-mountpoint >/dev/null; then
	say "there is no systemd-sysusers, and the services need the users of /usr/lib/sysusers.d/hostpath-provisioner.conf" >&2
	say "install systemd-sysusers (package systemd, or systemd-standalone-sysusers), then configure this package again" >&2
	exit 1
fi

# The administrator's from then on. A package that had it would ask at each upgrade that changes it.
config=/etc/hostpath-provisioner/config.toml
if [ -z "$before" ] && [ ! -e $config ] && [ ! -L $config ]; then
	cat >$config.new <<'EOF'
# Made once when the package was installed; no upgrade changes it. Every key is explained by
#     man hostpath-provisioner.toml
# and in the example /usr/share/doc/hostpath-provisioner/config.toml. This is enough for a pool on
# storage that is mounted at /srv/fast:
#
#[pool.fast]
#path = "/srv/fast"
EOF
	chmod 0644 $config.new
	mv $config.new $config
fi

# For journalctl -x. RPM-based distributions do it for each catalog that is installed, dpkg for systemd's own alone.
if command -v journalctl >/dev/null; then
	journalctl --update-catalog || true
fi

module=/usr/libexec/hostpath-provisioner/selinux-module
if [ -x $module ] && ! $module install; then
	say "the SELinux policy module is not loaded; once that is mended, run: $module install"
fi

old=/etc/systemd/system/hostpath-provisioner.service
if [ "$(readlink $old || true)" = /dev/null ]; then
	say "warning: the service is masked, and does not start; to have it again: systemctl unmask hostpath-provisioner"
elif [ -e $old ] && ! grep -qs '^ExecStart=.*/hostpath-provisioner' $old; then
	say "warning: $old comes before the unit of this package, and does something else:"
	grep -s '^ExecStart=' $old || true
	say "(kubevirt's old instructions make one that only runs chcon). Remove it, then run: systemctl daemon-reload"
fi

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
	if [ -n "$before" ]; then
		# It stops its service, of the old version; the next question starts the new one.
		systemctl try-restart hostpath-provisioner-mountpoint.socket || true
		# kubelet's calls wait in its sockets, which stay.
		systemctl try-restart hostpath-provisioner-csi.service || true
		# It finishes or undoes what the old one had begun; pods notice nothing.
		systemctl try-restart --no-block hostpath-provisioner.service || true
	fi
fi

# dpkg calls it an upgrade, too, when the package was removed meanwhile, which disables the service.
if [ -n "$before" ] && ! systemctl --quiet is-enabled hostpath-provisioner.service 2>/dev/null; then
	say "the service is not enabled; to start it now and at each boot: systemctl enable --now hostpath-provisioner"
fi

if [ -z "$before" ]; then
	cat <<'EOF'
hostpath-provisioner is installed and not started. What comes next:
    edit /etc/hostpath-provisioner/config.toml
    hostpath-provisioner check --config-only
    hostpath-provisioner prepare POOL      (before and after mounting the pool's storage)
    hostpath-provisioner enroll --admin-kubeconfig FILE
    systemctl enable --now hostpath-provisioner
man hostpath-provisioner says more.
EOF
fi
