#!/bin/sh
# After the files are there. dpkg calls it with "configure" and the version that was there before, if
# any; rpm with the number of versions that are installed now. Nothing is started that did not run.
set -e

case "$1" in
configure) before=$2 ;;
abort-*) exit 0 ;;
1) before= ;;
*) before=some ;;
esac

say() { echo "hostpath-provisioner: $*"; }

if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers hostpath-provisioner.conf
fi

module=/usr/libexec/hostpath-provisioner/selinux-module
if [ -x $module ] && ! $module install; then
	say "the SELinux policy module is not loaded; once that is mended, run: $module install"
fi

old=/etc/systemd/system/hostpath-provisioner.service
if [ -e $old ] && ! grep -qs '^ExecStart=.*/hostpath-provisioner' $old; then
	say "warning: $old comes before the unit of this package, and does something else:"
	grep -s '^ExecStart=' $old || true
	say "(kubevirt's old instructions make one that only runs chcon). Remove it, then run: systemctl daemon-reload"
fi

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
	if [ -n "$before" ]; then
		# It finishes or undoes what the old one had begun; pods notice nothing.
		systemctl try-restart --no-block hostpath-provisioner.service || true
	fi
fi

if [ -z "$before" ]; then
	cat <<'EOF'
hostpath-provisioner is installed and not started. What comes next:
    edit /etc/hostpath-provisioner/config.toml
    hostpath-provisioner check --config-only
    hostpath-provisioner prepare POOL      (before and after mounting the pool's storage)
    put a kubeconfig into /etc/hostpath-provisioner/kubeconfig, mode 0600
    systemctl enable --now hostpath-provisioner
man hostpath-provisioner says more.
EOF
fi
