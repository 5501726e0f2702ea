#!/bin/sh
# usage: build.sh OUTPUT PACKAGE
#
# Builds one program out of this module and shows how far it is: what it
# depends on is most of Kubernetes, and minutes without a word look like a
# hang. Go itself decides what is up to date. The exit status is go's.
set -eu

# CGO_ENABLED and -trimpath are part of go's cache key: called with others, go
# compiles everything once more.
export CGO_ENABLED=0

# version_stamp prints the linker flags for what a plain build leaves empty.
# Without it the API server, kubectl and each Node say v0.0.0-master.
version_stamp() {
	version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
	minor=${version#v1.}
	for into in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		printf ' -X %s.gitVersion=%s -X %s.gitMajor=1 -X %s.gitMinor=%s -X %s.gitTreeState=clean' \
			$into "$version" $into $into "${minor%%.*}" $into
	done
}

# build ends its output with go's exit status, which a pipe would lose.
build() {
	status=0
	go build -v -trimpath -ldflags "-s -w$(version_stamp)" -o "$output" "$package" 2>&1 || status=$?
	echo "go build ended with $status"
}

# progress counts the packages that go names, passes on whatever else it says,
# and returns go's exit status.
progress() {
	packages=0 status=1 open=
	while IFS= read -r line; do
		case $line in
		'go build ended with '*)
			status=${line##* }
			;;
		'' | *[!A-Za-z0-9_.~/-]*)
			[ -z "$open" ] || echo
			open=
			printf '%s\n' "$line" >&2
			;;
		*)
			packages=$((packages + 1))
			if [ -t 1 ]; then
				printf '\r%s: %d packages compiled%s' "$name" "$packages" "$total"
				open=1
			elif [ $((packages % 100)) -eq 0 ]; then
				printf '%s: %d packages compiled%s\n' "$name" "$packages" "$total"
			fi
			;;
		esac
	done
	[ -z "$open" ] || echo
	return "$status"
}

name=$1
package=$2
output=$(realpath -m "$1")
cd "$(dirname "$0")"
mkdir -p "$(dirname "$output")"

total=
if [ ! -e "$output" ]; then
	echo "building $name: up to 9 minutes on 2 cores the first time, seconds afterwards"
	total=" of at most $(go list -deps "$package" | wc -l)"
fi
build | progress
