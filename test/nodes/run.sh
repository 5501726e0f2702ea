#!/bin/sh
# Real pods on two or three real nodes; see doc.go. Usage, from anywhere: make test-nodes, make test-upstream, or
# sh test/nodes/run.sh [upstream] [flags of go test]
set -eu
cd "$(dirname "$0")/../.."

if [ "$(id -u)" != 0 ]; then
	echo "test-nodes: this makes namespaces and mounts; run it as root" >&2
	exit 1
fi
built='controlplane kubelet hostpath-provisioner snapshotter'
tests='TestNodes TestCSI TestCSIData TestMove'
limit=15m
if [ "${1-}" = upstream ]; then
	shift
	built="$built kubectl upstream"
	tests=TestUpstream
	limit=23m
fi
for each in $built; do
	test -e ".build/$each" || make ".build/$each"
done

cni() { ls /usr/lib/cni/ptp /usr/libexec/cni/ptp /opt/cni/bin/ptp 2>/dev/null | grep -q .; }
need=
for tool in containerd ctr runc busybox ip nsenter losetup mkfs.ext4 mkfs.xfs; do
	command -v "$tool" >/dev/null 2>&1 || need="$need $tool"
done
cni || need="$need cni-plugins"
if [ -n "$need" ]; then
	echo "test-nodes: installing what is missing:$need"
	if command -v apt-get >/dev/null; then
		export DEBIAN_FRONTEND=noninteractive
		apt-get update -qq
		apt-get install -y -qq --no-install-recommends containerd runc containernetworking-plugins busybox-static iproute2 util-linux e2fsprogs xfsprogs >/dev/null
	elif command -v dnf >/dev/null; then
		dnf install -y -q containerd runc containernetworking-plugins busybox iproute util-linux e2fsprogs xfsprogs
	else
		echo "test-nodes: neither apt-get nor dnf is here; install:$need" >&2
		exit 1
	fi
fi

export CGO_ENABLED=0
go vet -trimpath -tags nodes ./test/nodes
go build -trimpath -o .build/prove ./test/prove # the demonstration is one of the steps
cd test/nodes
failed=
for each in $tests; do # each in a process of its own: all of them have a node-a
	ended=pass
	go test -trimpath -tags nodes -count=1 -run "^$each\$" -timeout "$limit" "$@" || ended=fail failed=yes
	# As test/groups.sh notes targets; KUBELETS is of versions.sh.
	[ -z "${RESULTS-}" ] || printf '%s\ttest/nodes\t%s %s\t\n' $ended "$each" "$KUBELETS" >>"$RESULTS"
done
[ -z "$failed" ]
