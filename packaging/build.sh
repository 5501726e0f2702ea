#!/bin/sh
# Builds the .deb and .rpm of each architecture into OUT (default .build/packages), from what is in the
# repository and nothing else: the same commit makes the same bytes, wherever and whenever.
#
# Wants VERSION (of the program, from which the packages' follows), and NFPM, the tool's binary.
# With CYCLONEDX, that tool's binary, each architecture has an archive with the program and a bill of its modules, too.
# With SYSEXT=yes each has an image for systemd-sysext (of mksquashfs).
# SOURCE_DATE_EPOCH follows from the commit where it is not given. EXAMPLE is another example of a configuration, for
# tests. With --stage DIR it fills DIR with the files of
# this machine's package and makes none.
set -eu
cd "$(dirname "$0")/.."

VERSION=${VERSION:?}
OUT=${OUT:-.build/packages}
ARCHES=${ARCHES:-amd64 arm64}
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
PACKAGE_VERSION=$(sh packaging/version.sh --package "$VERSION")
export SOURCE_DATE_EPOCH PACKAGE_VERSION CGO_ENABLED=0 LC_ALL=C TZ=UTC
umask 022

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ "${1:-}" = --stage ]; then
	STAGE=$(realpath "$2")
	ARCHES=$(go env GOHOSTARCH)
else
	NFPM=$(realpath "${NFPM:?}")
	CYCLONEDX=$([ -z "${CYCLONEDX:-}" ] || realpath "$CYCLONEDX")
	mkdir -p "$OUT"
	OUT=$(realpath "$OUT")
fi

program() { # ARCH FILE
	GOOS=linux GOARCH=$1 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION" -o "$2" ./cmd/hostpath-provisioner
}

# archive makes NAME.tar.gz of what the packages of ARCH have, for hosts without dpkg and rpm, and NAME.cdx.json.
archive() { # ROOT
	name=hostpath-provisioner-$PACKAGE_VERSION-linux-$ARCH
	mkdir -p "$work/archive/$name/man/man8" "$work/archive/$name/man/man5"
	cp "$1/man/"*.8.gz "$work/archive/$name/man/man8/"
	cp "$1/man/"*.5.gz "$work/archive/$name/man/man5/"
	cp -r "$1/usr/bin/hostpath-provisioner" "$1/completions" "$1/config.toml" "$1/LICENSE" "$1/licenses.txt" \
		"$1/share/manifests.yaml" "$1/doc/CHANGELOG.md" packaging/ansible "$work/archive/$name/"
	tar -C "$work/archive" --sort=name --format=gnu --mode=u=rwX,go=rX --owner=0 --group=0 --numeric-owner \
		--mtime="@$SOURCE_DATE_EPOCH" -cf - "$name" | gzip -9n >"$OUT/$name.tar.gz"
	"$CYCLONEDX" bin -json -std -noserial -notimestamp -version "$VERSION" -output "$OUT/$name.cdx.json" \
		"$1/usr/bin/hostpath-provisioner"
}

# image makes NAME.raw of what the Debian package has in /usr, which is all that systemd-sysext
# merges. It has no attributes, and so no labels of SELinux. ID=_any: it fits each distribution.
image() { # FOLDER OF NFPM
	tree=$work/image-$ARCH
	"$work/install" "$1" "$tree"
	rm -r "$tree/etc" "$tree/usr/share/lintian"
	mkdir -p "$tree/usr/lib/extension-release.d"
	case $ARCH in amd64) machine=x86-64 ;; *) machine=$ARCH ;; esac
	printf 'ID=_any\nARCHITECTURE=%s\nEXTENSION_RELOAD_MANAGER=1\n' "$machine" \
		>"$tree/usr/lib/extension-release.d/extension-release.hostpath-provisioner"
	mksquashfs "$tree" "$OUT/hostpath-provisioner-$PACKAGE_VERSION-$machine.raw" \
		-noappend -all-root -no-xattrs -comp zstd -no-progress -quiet
}

# What is the same for all architectures comes from a binary that runs here.
common=$work/common
mkdir -p "$common/units" "$common/share" "$common/man" "$common/completions" "$common/scripts" "$common/lint" "$common/usr/bin"
native=$work/native
program "$(go env GOHOSTARCH)" "$native"
cp systemd/*.service systemd/*.socket "$common/units/"
mkdir -p "$common/doc/docs/pictures" "$common/presets"
cp systemd/*.preset "$common/presets/"
cp systemd/hostpath-provisioner-generator systemd/hostpath-provisioner-mountpoint systemd/hostpath-provisioner-csi-node "$common/"
cp README.md CHANGELOG.md "$common/doc/"
cp docs/*.md "$common/doc/docs/"
cp docs/pictures/*.svg docs/pictures/*.png "$common/doc/docs/pictures/"
# What is for those who change or audit it stays in the sources.
sed -zEi 's/\[([^]]*)\]\((docs\/)?dev\/[^)]*\)/\1/g' "$common"/doc/*.md "$common"/doc/docs/*.md
cp packaging/sysusers.conf packaging/copyright LICENSE "$common/"
cp "${EXAMPLE:-packaging/config.toml}" "$common/config.toml"
cp packaging/scripts/*.sh "$common/scripts/"
cp packaging/lint/lintian-overrides "$common/lint/"
"$native" manifests >"$common/share/manifests.yaml"
cp packaging/prometheus/rules.yaml "$common/share/prometheus-rules.yaml"
cp packaging/grafana/hostpath-provisioner.json "$common/share/grafana-dashboard.json"
mkdir -p "$common/selinux"
cp selinux/*.te selinux/*.fc selinux/*.if selinux/selinux-module "$common/selinux/" 2>/dev/null || true
go build -trimpath -o "$work/manual" ./packaging/manual
date=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%d)
"$work/manual" "$native" docs/configuration.md "$date" "$VERSION" "$common/man"
gzip -9n "$common"/man/*
go run -trimpath ./packaging/catalog docs/troubleshooting.md >"$common/hostpath-provisioner.catalog"
for shell in bash zsh fish; do
	"$native" completion "$shell" >"$common/completions/$shell"
done
go run -trimpath ./packaging/licenses "$native" >"$common/licenses.txt"
go build -trimpath -o "$work/install" ./packaging/install
cat >"$common/changelog.yaml" <<EOF
- semver: $PACKAGE_VERSION-1
  date: $(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
  packager: hostpath-provisioner developers <developers@hostpath-provisioner.example>
  deb: {urgency: medium, distributions: [stable]}
  changes:
    - note: Built from $VERSION; CHANGELOG.md says what changed.
EOF

for ARCH in $ARCHES; do
	export ARCH
	mkdir -p "$work/$ARCH"
	cp -r "$common" "$work/$ARCH/root"
	mv "$work/$ARCH/root/changelog.yaml" "$work/$ARCH/"
	program "$ARCH" "$work/$ARCH/root/usr/bin/hostpath-provisioner"
	cp packaging/nfpm.yaml "$work/$ARCH/nfpm.yaml"
	# nfpm knows no patterns of rpm's documents.
	(cd "$work/$ARCH/root" && find doc -type f && find man -name '*.8.gz') | sort | sed \
		-e 's,^doc/\(.*\),  - {src: root/doc/\1\, dst: /usr/share/doc/hostpath-provisioner/\1\, type: doc\, file_info: {mode: 0644}\, packager: rpm},' \
		-e 's,^man/\(.*\),  - {src: root/man/\1\, dst: /usr/share/man/man8/\1\, type: doc\, file_info: {mode: 0644}\, packager: rpm},' >"$work/docs.yaml"
	sed -i "/^contents:/r $work/docs.yaml" "$work/$ARCH/nfpm.yaml"
	if [ ! -e "$common/selinux/selinux-module" ]; then
		sed -i '/selinux/d' "$work/$ARCH/nfpm.yaml"
	fi
	if [ -n "${STAGE:-}" ]; then
		cp -r "$work/$ARCH/." "$STAGE/"
		exit
	fi
	[ -z "$CYCLONEDX" ] || archive "$work/$ARCH/root"
	[ -z "${SYSEXT:-}" ] || image "$work/$ARCH"
	for packager in deb rpm; do
		(cd "$work/$ARCH" && "$NFPM" package --config nfpm.yaml --packager $packager --target "$OUT/" >/dev/null)
	done
done
ls -1 "$OUT"
