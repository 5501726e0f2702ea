#!/bin/sh
# Builds what a release is, here and from a copy of the sources elsewhere with nothing from a build cache: both have
# the same bytes. lintian and rpmlint have nothing left to say about the packages, and krew installs the plugin.
#
# Wants what release.sh wants, and KREW.
set -eu
cd "$(dirname "$0")/.."
NFPM=$(realpath "${NFPM:?}")
CYCLONEDX=$(realpath "${CYCLONEDX:?}")
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
export NFPM CYCLONEDX SOURCE_DATE_EPOCH KEY=
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

OUT=$work/here sh packaging/release.sh
for deb in "$work"/here/*.deb; do
	lintian --allow-root --no-cfg --fail-on error,warning "$deb"
done
for rpm in "$work"/here/*.rpm; do
	rpmlint -c packaging/lint/rpmlint.toml "$rpm" >"$work/said" 2>&1 || true
	if grep -E ': [EW]: ' "$work/said" || ! grep -q '0 errors, 0 warnings' "$work/said"; then
		cat "$work/said"
		exit 1
	fi
done
echo "lintian and rpmlint: nothing to say"

KREW_ROOT=$work/krew "${KREW:?}" install --manifest="$work/here/hostpath.yaml" \
	--archive="$(ls "$work"/here/*-linux-"$(go env GOARCH)".tar.gz)" >/dev/null 2>&1
"$work/krew/bin/kubectl-hostpath" why --help | grep 'kubectl hostpath why KIND NAME'
echo "krew: installed the plugin"

mkdir "$work/elsewhere"
(
	umask 077
	git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$work/elsewhere"
	cd "$work/elsewhere"
	GOCACHE=$work/cache TZ=Pacific/Chatham OUT=$work/again sh packaging/release.sh >/dev/null
)
diff -r "$work/here" "$work/again"
echo "a second build elsewhere: the same bytes"
