#!/bin/sh
# usage: version.sh VERSION DIR [PROGRAM]
#
# Writes into DIR this module for another release of Kubernetes, 1.33 (its newest) or 1.33.13, and
# builds the control plane there, DIR/controlplane, or another program of that release: kubelet.
# The code is the same; of go.mod only the first lines are: a newer requirement would win over an
# older one of the release.
set -eu

here=$(realpath "$(dirname "$0")")
mkdir -p "$2"
dir=$(realpath "$2")
export GOWORK=off GOFLAGS="${GOFLAGS-} -mod=mod"
cd "$dir"

# The newest patch is looked for once: it does not change between two runs.
case $1 in
1.*.*) release=v$1 ;;
*) release=$(cat release 2>/dev/null || true) ;;
esac
[ -n "$release" ] || release=$(cd / && go list -m -f '{{.Version}}' "k8s.io/kubernetes@v$1")

rm -rf ./*.go ./*.sh internal
cp -R "$here"/*.go "$here/build.sh" "$here/internal" .

# patch prints the version of a staging module: v0.33.13 for v1.33.13. A proxy may lack that of one,
# and one that is a little older is taken. What is not compiled may lack all.
patch() {
	minor=${release#v1.} newest=${release##*.}
	for try in 0 1 2 3; do
		[ "$try" -le "$newest" ] || break
		version=v0.${minor%.*}.$((newest - try))
		go mod download "$1@$version" 2>/dev/null || continue
		[ "$try" -eq 0 ] || echo "$1 is $version" >&2
		echo "$version"
		return
	done
	echo "v0.$minor"
}

# requirements prints the rest of go.mod. k8s.io/kubernetes asks for its staging modules at v0.0.0,
# as go.mod in here explains, and its own go.mod has Go's defaults for the release.
requirements() {
	upstream=$(go mod download -json "k8s.io/kubernetes@$release" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
	sed -n '/^godebug default=/p' "$upstream"
	echo "require k8s.io/kubernetes $release"
	sed -n 's|^\t\(k8s\.io/[a-z-]*\) v0\.0\.0\( // indirect\)*$|\1|p' "$upstream" | while read -r module; do
		echo "replace $module => $module $(patch "$module")"
	done
}

if [ "$(cat release 2>/dev/null)" != "$release" ]; then
	rm -f go.mod go.sum release
	sed -n '/^module /p; /^go /p' "$here/go.mod" >go.mod
	requirements >requirements
	cat requirements >>go.mod
	rm requirements
	echo "$release" >release
fi
program=${3-controlplane} package=.
[ "$program" = controlplane ] || package=k8s.io/kubernetes/cmd/$program
exec ./build.sh "$dir/$program" "$package"
