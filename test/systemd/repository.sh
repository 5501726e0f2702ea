#!/bin/sh
# Makes in OUT, for test/systemd's repositories: what a publisher has with each state of his keys, by the product's own
# scripts and throwaway keys. OUT/first has one version, OUT/second two; of OUT/both the metadata is signed with the old
# key and a new one, of OUT/rotated with the new one. OUT/unsigned has packages
# without a signature in signed metadata, OUT/changed ones that do not fit it.
#
# Wants VERSION and NEWER, NFPM, CYCLONEDX, and URL.
set -eu
cd "$(dirname "$0")/../.."
OUT=$(realpath -m "${OUT:?}")
rm -rf "$OUT"
umask 022
mkdir -p "$OUT"
GNUPGHOME=$(mktemp -d)
export GNUPGHOME
trap 'gpgconf --kill all; rm -rf "$GNUPGHOME"' EXIT

for key in old new; do
	gpg --batch --quiet --pinentry-mode loopback --passphrase '' \
		--quick-generate-key "$key <$key@example.org>" rsa3072 sign never
done
fingerprint() { gpg --with-colons --list-keys "$1@" | sed -n 's/^fpr:::::::::\(.*\):/\1/p' | head -n 1; }
old=$(fingerprint old)
new=$(fingerprint new)

KEY=$old OUT=$OUT/release sh packaging/release.sh >/dev/null
VERSION=$NEWER KEY=$old OUT=$OUT/newer sh packaging/release.sh >/dev/null
gpg --batch --quiet --verify "$OUT/newer/SHA256SUMS.asc" "$OUT/newer/SHA256SUMS"
(cd "$OUT/newer" && sha256sum --quiet -c SHA256SUMS)

publish() { # STATE KEYS [RELEASE]
	sleep 1 # web servers compare whole seconds
	KEY=$2 RELEASE=${3:-} REPOSITORY=$OUT/$1 sh packaging/repository.sh
}
publish first "$old" "$OUT/release"
cp -r "$OUT/first" "$OUT/second"
publish second "$old" "$OUT/newer"
cp -r "$OUT/second" "$OUT/both"
publish both "$old $new"
cp -r "$OUT/both" "$OUT/rotated"
publish rotated "$new"

cp -r "$OUT/second" "$OUT/unsigned"
rpmsign --delsign "$OUT"/unsigned/rpm/packages/*.rpm >/dev/null
(
	cd "$OUT/unsigned/rpm"
	createrepo_c --quiet .
	gpg --batch --yes --local-user "$old" --armor --detach-sign repodata/repomd.xml
)
cp -r "$OUT/second" "$OUT/changed"
for deb in "$OUT"/changed/apt/pool/*.deb; do
	printf changed | dd of="$deb" bs=1 seek=100000 conv=notrunc status=none
done
said=$(publish first "$old" "$OUT/changed/apt/pool" 2>&1) || true
case $said in
*"with other contents") ;;
*)
	echo "repository.sh takes another package of the same name: $said" >&2
	exit 1
	;;
esac
