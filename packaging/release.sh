#!/bin/sh
# Makes in OUT what a release is: packages, archives, bills of modules and images of each
# architecture, krew's manifest of the plugin, and SHA256SUMS.
#
# Wants what build.sh wants, and CYCLONEDX. With COCKPIT it has the page for Cockpit, too, which wants npm and BUILD.
# URL is where the archives will be. With KEY, the fingerprint of a key that gpg has, the .rpm and SHA256SUMS are
# signed. What is signed differs from one build to the next, and nothing else does.
set -eu
cd "$(dirname "$0")/.."
OUT=${OUT:-.build/release}
: "${CYCLONEDX:?}"
export OUT LC_ALL=C SYSEXT=yes

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
[ -z "${COCKPIT:-}" ] || sh packaging/cockpit/build.sh >/dev/null
if [ -n "${KEY:-}" ]; then
	rpmsign -D "_gpg_name $KEY" -D "__gpg $(command -v gpg)" --addsign "$OUT"/*.rpm >/dev/null
fi

# plugin prints the manifest by which krew installs kubectl-hostpath (krew.sigs.k8s.io, "Writing Krew plugin manifests").
plugin() {
	cat <<END
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: hostpath
spec:
  version: $VERSION
  homepage: https://github.com/hostpath-provisioner/hostpath-provisioner
  shortDescription: Show pools and volumes of hostpath-provisioner
  description: |
    Shows the nodes, pools, volumes and snapshots of hostpath-provisioner, says what a pod,
    claim, volume or snapshot waits for, and removes what is left of a node that does not
    come back. It asks the API server alone, with your rights.
  platforms:
END
	for archive in "$OUT"/*-linux-*.tar.gz; do
		arch=${archive##*-linux-}
		cat <<END
  - selector: {matchLabels: {os: linux, arch: ${arch%.tar.gz}}}
    uri: ${URL:-https://github.com/hostpath-provisioner/hostpath-provisioner/releases/download/$VERSION}/${archive##*/}
    sha256: $(sha256sum "$archive" | cut -d ' ' -f 1)
    files:
    - {from: "*/hostpath-provisioner", to: .}
    - {from: "*/LICENSE", to: .}
    bin: hostpath-provisioner
END
	done
}
plugin >"$OUT/hostpath.yaml"
(cd "$OUT" && sha256sum -- * >SHA256SUMS.new && mv SHA256SUMS.new SHA256SUMS)
if [ -n "${KEY:-}" ]; then
	gpg --batch --local-user "$KEY" --armor --detach-sign "$OUT/SHA256SUMS"
else
	echo "nothing is signed: KEY= names a key of gpg"
fi
ls -1 "$OUT"
