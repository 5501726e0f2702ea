#!/bin/sh
# Checks the packages in .build/packages: lintian and rpmlint have nothing left to say, and a second
# build from a copy of the sources elsewhere makes the same bytes.
set -eu
cd "$(dirname "$0")/.."
packages=$(realpath "${OUT:-.build/packages}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for deb in "$packages"/*.deb; do
	lintian --allow-root --no-cfg --fail-on error,warning "$deb"
done
for rpm in "$packages"/*.rpm; do
	rpmlint -c packaging/lint/rpmlint.toml "$rpm" >"$work/said" 2>&1 || true
	if grep -E ': [EW]: ' "$work/said" || ! grep -q '0 errors, 0 warnings' "$work/said"; then
		cat "$work/said"
		exit 1
	fi
done
echo "lintian and rpmlint: nothing to say"

mkdir "$work/elsewhere" "$work/again"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$work/elsewhere"
(
	SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
	export SOURCE_DATE_EPOCH
	NFPM=$(realpath "${NFPM:?}")
	cd "$work/elsewhere"
	TZ=Pacific/Chatham NFPM=$NFPM OUT=$work/again sh packaging/build.sh >/dev/null
)
for one in "$packages"/*.deb "$packages"/*.rpm; do
	cmp "$one" "$work/again/$(basename "$one")"
done
echo "a second build elsewhere: the same bytes"
