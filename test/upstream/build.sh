#!/bin/sh
# usage: build.sh DIR
#
# Builds into DIR what make test-upstream runs: the suite, the program that runs it in several processes,
# and agnhost with the certificate that it serves with, for an image. Go itself decides what is up to date.
set -eu

export CGO_ENABLED=0 # of go's cache key, as -trimpath is
mkdir -p "$1"
dir=$(realpath "$1")
cd "$(dirname "$0")"

test -e "$dir/agnhost" || echo "building Kubernetes' storage suite: about 6 minutes on 2 cores the first time, seconds afterwards"
go test -c -trimpath -ldflags '-s -w' -o "$dir/suite.test" .
go build -trimpath -ldflags '-s -w' -o "$dir/ginkgo" github.com/onsi/ginkgo/v2/ginkgo
go build -trimpath -ldflags '-s -w' -o "$dir/agnhost" k8s.io/kubernetes/test/images/agnhost
source=$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)/test/images/agnhost/porter
for file in localhost.crt localhost.key; do
	install -m 644 "$source/$file" "$dir/$file"
done
