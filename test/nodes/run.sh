#!/bin/sh
# Real pods on two real nodes; see doc.go. Usage, from anywhere: make test-nodes, or sh test/nodes/run.sh
set -eu
cd "$(dirname "$0")/../.."

if [ "$(id -u)" != 0 ]; then
	echo "test-nodes: this makes namespaces and mounts; run it as root" >&2
	exit 1
fi
for built in controlplane kubelet hostpath-provisioner; do
	test -x ".build/$built" || make ".build/$built"
done

cni() { ls /usr/lib/cni/ptp /usr/libexec/cni/ptp /opt/cni/bin/ptp 2>/dev/null | grep -q .; }
need=
for tool in containerd ctr runc busybox ip nsenter losetup mkfs.ext4; do
	command -v "$tool" >/dev/null 2>&1 || need="$need $tool"
done
cni || need="$need cni-plugins"
if [ -n "$need" ]; then
	echo "test-nodes: installing what is missing:$need"
	if command -v apt-get >/dev/null; then
		export DEBIAN_FRONTEND=noninteractive
		apt-get update -qq
		apt-get install -y -qq --no-install-recommends containerd runc containernetworking-plugins busybox-static iproute2 util-linux e2fsprogs >/dev/null
	elif command -v dnf >/dev/null; then
		dnf install -y -q containerd runc containernetworking-plugins busybox iproute util-linux e2fsprogs
	else
		echo "test-nodes: neither apt-get nor dnf is here; install:$need" >&2
		exit 1
	fi
fi

export CGO_ENABLED=0
go vet -trimpath -tags nodes ./test/nodes
cd test/nodes
exec go test -trimpath -tags nodes -count=1 -timeout 15m "$@"
