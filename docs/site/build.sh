#!/bin/sh
# build.sh [browser] makes the pages of README.md and docs a static site, in $BUILD/site, by the locked versions of
# package-lock.json, and has a browser read it. It works in $BUILD/site-src, so that no modules lie among the sources.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
out=$BUILD/site
work=$BUILD/site-src
command -v npm >/dev/null || { echo "site: npm is missing; install nodejs (20 or later) and npm" >&2; exit 1; }
rm -rf "$out" "$work/pages" "$work/.vitepress"
mkdir -p "$work/pages/docs"
cp "$here/package.json" "$here/package-lock.json" "$here"/*.mjs "$work/"
cp -r "$here/vitepress" "$work/.vitepress"
cp "$root/README.md" "$root/CHANGELOG.md" "$work/pages/"
cp -r "$root"/docs/*.md "$root/docs/dev" "$root/docs/pictures" "$root/docs/measured" "$work/pages/docs/"
cd "$work"
npm ci --silent --no-audit --no-fund
VERSION=$VERSION OUT=$out npx vitepress build .
node check.mjs "$out" "$VERSION"
[ "${1:-}" != browser ] || node browser.mjs "$out" "$VERSION"
