#!/bin/sh
# Builds the .deb and .rpm of each architecture into OUT (default .build/packages), from what is in the
# repository and nothing else: the same commit makes the same bytes, wherever and whenever.
#
# Wants VERSION (of the program), and NFPM, the tool's binary. PACKAGE_VERSION and SOURCE_DATE_EPOCH
# follow from the commit where they are not given.
set -eu
cd "$(dirname "$0")/.."

VERSION=${VERSION:?}
NFPM=$(realpath "${NFPM:?}")
OUT=${OUT:-.build/packages}
ARCHES=${ARCHES:-amd64 arm64}
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
# Without a release's tag the version is only a commit: such a package is older than every release.
case ${VERSION#v} in
[0-9]*.[0-9]*) default=$(echo "${VERSION#v}" | sed 's/-\([0-9]*\)-g/+\1.g/; s/-/~/g') ;;
*) default=0.0.0+git$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d).$(echo "$VERSION" | tr - .) ;;
esac
: "${PACKAGE_VERSION:=$default}"
export SOURCE_DATE_EPOCH PACKAGE_VERSION CGO_ENABLED=0 LC_ALL=C TZ=UTC
umask 022

mkdir -p "$OUT"
OUT=$(realpath "$OUT")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

program() { # ARCH FILE
	GOOS=linux GOARCH=$1 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION" -o "$2" ./cmd/hostpath-provisioner
}

# What is the same for all architectures comes from a binary that runs here.
common=$work/common
mkdir -p "$common/units" "$common/share" "$common/man" "$common/completions" "$common/scripts" "$common/lint" "$common/usr/bin"
native=$work/native
program "$(go env GOHOSTARCH)" "$native"
cp systemd/*.service systemd/*.socket "$common/units/"
cp packaging/sysusers.conf packaging/config.toml packaging/copyright LICENSE "$common/"
cp packaging/scripts/*.sh "$common/scripts/"
cp packaging/lint/lintian-overrides "$common/lint/"
"$native" manifests >"$common/share/manifests.yaml"
mkdir -p "$common/selinux"
cp selinux/*.te selinux/*.fc selinux/*.if selinux/selinux-module "$common/selinux/" 2>/dev/null || true
go build -trimpath -o "$work/manual" ./packaging/manual
date=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%d)
"$work/manual" 8 "$native" "$date" "$VERSION" | gzip -9n >"$common/man/hostpath-provisioner.8.gz"
"$work/manual" 5 docs/configuration.md "$date" "$VERSION" | gzip -9n >"$common/man/hostpath-provisioner.toml.5.gz"
for shell in bash zsh fish; do
	"$native" completion "$shell" >"$common/completions/$shell"
done
go run -trimpath ./packaging/licenses "$native" >"$common/licenses.txt"
cat >"$common/changelog.yaml" <<EOF
- semver: $PACKAGE_VERSION-1
  date: $(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
  packager: hostpath-provisioner developers <developers@hostpath-provisioner.example>
  deb: {urgency: medium, distributions: [stable]}
  changes:
    - note: Built from $VERSION; the history is in the repository.
EOF

for ARCH in $ARCHES; do
	export ARCH
	mkdir -p "$work/$ARCH"
	cp -r "$common" "$work/$ARCH/root"
	mv "$work/$ARCH/root/changelog.yaml" "$work/$ARCH/"
	program "$ARCH" "$work/$ARCH/root/usr/bin/hostpath-provisioner"
	cp packaging/nfpm.yaml "$work/$ARCH/nfpm.yaml"
	if [ ! -e "$common/selinux/selinux-module" ]; then
		sed -i '/selinux/d' "$work/$ARCH/nfpm.yaml"
	fi
	for packager in deb rpm; do
		(cd "$work/$ARCH" && "$NFPM" package --config nfpm.yaml --packager $packager --target "$OUT/" >/dev/null)
	done
done
ls -1 "$OUT"
