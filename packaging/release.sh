#!/bin/sh
# Makes in OUT what a release is: packages, archives and bills of modules of each architecture, and SHA256SUMS.
#
# Wants what build.sh wants, and CYCLONEDX. With KEY, the fingerprint of a key that gpg has, the .rpm and SHA256SUMS are
# signed. What is signed differs from one build to the next, and nothing else does.
set -eu
cd "$(dirname "$0")/.."
OUT=${OUT:-.build/release}
: "${CYCLONEDX:?}"
export OUT LC_ALL=C

case "${VERSION:?}" in
*-dev*) echo "$VERSION is not a release: the commit has no tag of its own, or files were edited" ;;
*)
	if grep '^## .*not released' CHANGELOG.md; then
		echo "release: CHANGELOG.md says that it is not released" >&2
		exit 1
	fi
	;;
esac

rm -rf "$OUT"
sh packaging/build.sh >/dev/null
if [ -n "${KEY:-}" ]; then
	rpmsign -D "_gpg_name $KEY" -D "__gpg $(command -v gpg)" --addsign "$OUT"/*.rpm >/dev/null
fi
(cd "$OUT" && sha256sum -- * >SHA256SUMS.new && mv SHA256SUMS.new SHA256SUMS)
if [ -n "${KEY:-}" ]; then
	gpg --batch --local-user "$KEY" --armor --detach-sign "$OUT/SHA256SUMS"
else
	echo "nothing is signed: KEY= names a key of gpg"
fi
ls -1 "$OUT"
