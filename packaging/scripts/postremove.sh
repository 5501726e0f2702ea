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

if [ "$1" = purge ]; then # dpkg's; rpm has no purge
	lib=/var/lib/hostpath-provisioner
	state=$lib/state
	etc=/etc/hostpath-provisioner
	for file in $state/lock $state/token $state/token.new $state/pools/*.json $state/pools/*.json.new $lib/lock $lib/pools/*.json $lib/pools/*.json.new $etc/conf.d/*.toml $etc/kubeconfig \
		/etc/credstore/hostpath-provisioner.kubeconfig /etc/credstore.encrypted/hostpath-provisioner.kubeconfig; do
		if [ -f "$file" ] || [ -L "$file" ]; then
			rm -f "$file"
		fi
	done
	for folder in $state/pools $state $lib/pools $lib $etc/conf.d $etc; do
		rmdir "$folder" 2>/dev/null || true
	done
fi
