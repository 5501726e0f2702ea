#!/bin/sh
# usage: versions.sh VERSION KUBELET[,KUBELET...]
#
# Runs the stories on a control plane of one version of Kubernetes and with kubelets of others: the
# first node has the first, and so on, and then the first again. How each story ended is noted for
# the table of test/versions, beside what make test-versions notes.
set -eu
cd "$(dirname "$0")/../.."

built=$PWD/.build/versions
test/controlplane/version.sh "$1" "$built/$1"
kubelets=
for version in $(echo "$2" | tr , ' '); do
	test/controlplane/version.sh "$version" "$built/$version" kubelet
	kubelets=$kubelets,$built/$version/kubelet
done

status=0
CONTROLPLANE=$built/$1/controlplane KUBELET=${kubelets#,} KUBELETS=$2 RESULTS=$built/$1/results \
	sh test/nodes/run.sh || status=$?
go run ./test/versions table "$built"
exit "$status"
