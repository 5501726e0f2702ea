#!/bin/sh
# build.sh makes in OUT the page for Cockpit and its packages, cockpit-hostpath-provisioner, a .deb and an .rpm for every
# architecture, by the locked versions of package-lock.json: the same commit makes the same bytes. It works in
# $BUILD/cockpit-src, so that no modules lie among the sources.
#
# Wants what ../build.sh wants: VERSION, NFPM; and BUILD, OUT, npm.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
: "${VERSION:?}"
OUT=$(realpath -m "${OUT:?}")
NFPM=$(realpath "${NFPM:?}")
work=$(realpath -m "${BUILD:?}")/cockpit-src
command -v npm >/dev/null || { echo "cockpit: npm is missing; install nodejs (20 or later) and npm" >&2; exit 1; }
cd "$root"
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
PACKAGE_VERSION=$(sh packaging/version.sh --package "$VERSION")
export SOURCE_DATE_EPOCH PACKAGE_VERSION LC_ALL=C TZ=UTC
umask 022

mkdir -p "$work" "$OUT"
rm -rf "$work/src" "$work/root"
cp -r "$here/src" "$here/esbuild.mjs" "$here/package.json" "$here/package-lock.json" "$here/nfpm.yaml" "$work/"
cp "$here/copyright" "$here/lintian-overrides" LICENSE "$work/"
cd "$work"
npm ci --silent --no-audit --no-fund --ignore-scripts
node esbuild.mjs root
gzip -9n root/index.js root/index.css # which Cockpit serves as they are
sed -i "s/@VERSION@/$PACKAGE_VERSION/" nfpm.yaml
cat >changelog.yaml <<END
- semver: $PACKAGE_VERSION-1
  date: $(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
  packager: hostpath-provisioner developers <developers@hostpath-provisioner.example>
  deb: {urgency: medium, distributions: [stable]}
  changes:
    - note: Built from $VERSION.
END
rm -f "$OUT"/cockpit-hostpath-provisioner[-_]*
for packager in deb rpm; do
	"$NFPM" package --config nfpm.yaml --packager $packager --target "$OUT/" >/dev/null
done
ls -1 "$OUT"/cockpit-hostpath-provisioner*
