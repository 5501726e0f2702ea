#!/bin/sh
# usage: build.sh DIR
#
# Builds into DIR the snapshot-controller of Kubernetes, and puts beside it the CustomResourceDefinitions that belong to it. Go
# itself decides what is up to date.
set -eu

export CGO_ENABLED=0 # of go's cache key, as -trimpath is
mkdir -p "$1"
dir=$(realpath "$1")
cd "$(dirname "$0")"

go build -trimpath -ldflags '-s -w' -o "$dir/snapshot-controller" github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller
source=$(go list -m -f '{{.Dir}}' github.com/kubernetes-csi/external-snapshotter/client/v8)/config/crd
for name in volumesnapshots volumesnapshotcontents volumesnapshotclasses; do
	install -m 644 "$source/snapshot.storage.k8s.io_$name.yaml" "$dir/$name.yaml"
done
