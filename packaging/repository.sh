#!/bin/sh
# Adds the packages in RELEASE to the apt and dnf repositories in REPOSITORY: static files for any web server. What was
# added before stays, so that hosts can go back to it.
#
# Wants KEY, fingerprints of keys that gpg has, and URL, where the files will be found. The metadata is signed with all
# of the keys: a host that knows one of them takes it (docs/dev/release.md, "Another key"). Without RELEASE it signs anew.
set -eu
export LC_ALL=C
umask 022
URL=${URL%/}
: "${KEY:?names one key of gpg or more}" "${URL:?says where the repository will be found}"
REPOSITORY=$(realpath -m "${REPOSITORY:?}")
name=hostpath-provisioner

fail() {
	echo "repository: $1" >&2
	exit 1
}

# It is made aside, so that one that is killed leaves the former. Files are shared with that: they are replaced, and
# never written.
new=$REPOSITORY.new
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$new"
mkdir -p "$new/apt/pool" "$new/rpm/packages"
[ ! -d "$REPOSITORY" ] || cp -al "$REPOSITORY/." "$new/"

signers=
for key in $KEY; do
	signers="$signers --local-user $key"
done
sign() { gpg --batch --yes $signers "$@"; }
gpg --batch --armor --export $KEY >"$work/keys"

# add takes a package, or finds the same one, apart from its signature: what a version is does not change.
same() {
	case $1 in
	*.rpm) [ "$(header "$1")" = "$(header "$2")" ] ;;
	*) cmp -s "$1" "$2" ;;
	esac
}
header() { rpm --nosignature -qp --qf '%{SHA256HEADER}' "$1"; }
add() { # FILE DIRECTORY
	to=$2/$(basename "$1")
	if [ ! -e "$to" ]; then
		cp "$1" "$to"
	elif ! same "$1" "$to"; then
		fail "$(basename "$1") is there already, with other contents"
	fi
}
if [ -n "${RELEASE:-}" ]; then
	for package in "$RELEASE"/*.deb "$RELEASE"/*.rpm; do
		case $package in
		*/\**) fail "$RELEASE has no ${package##*/}" ;;
		*.deb) add "$package" "$new/apt/pool" ;;
		*.rpm) add "$package" "$new/rpm/packages" ;;
		esac
	done
fi

# An .rpm has one signature, of a key that hosts are given: with the last key those are signed that have none.
mkdir "$work/rpmdb"
rpmkeys --dbpath "$work/rpmdb" --import "$work/keys"
for rpm in "$new"/rpm/packages/*.rpm; do
	if ! rpmkeys --dbpath "$work/rpmdb" -D '_pkgverify_level all' -K "$rpm" >/dev/null; then
		cp "$rpm" "$work/package.rpm"
		rpmsign -D "_gpg_name ${KEY##* }" -D "__gpg $(command -v gpg)" --addsign "$work/package.rpm" >/dev/null
		cp --remove-destination "$work/package.rpm" "$rpm"
	fi
done

# By the one hash of Release, apt finds the list that belongs to the Release it has, also when another one is put in place meanwhile.
put() { # FILE
	cat >"$1.new"
	mkdir -p "$(dirname "$1")/by-hash/SHA256"
	ln -f "$1.new" "$(dirname "$1")/by-hash/SHA256/$(sha256sum <"$1.new" | cut -d ' ' -f 1)"
	mv "$1.new" "$1"
}
cd "$new/apt"
for arch in amd64 arm64; do
	lists=dists/stable/main/binary-$arch
	mkdir -p "$lists"
	apt-ftparchive --arch $arch packages pool >"$work/Packages"
	put "$lists/Packages" <"$work/Packages"
	gzip -9n <"$work/Packages" | put "$lists/Packages.gz"
done
rm -f dists/stable/*Release*
set -- Origin=$name Label=$name Suite=stable Codename=stable Components=main Acquire-By-Hash=yes MD5=no SHA1=no SHA512=no
options=
for option; do
	options="$options -o APT::FTPArchive::Release::$option"
done
apt-ftparchive $options -o APT::FTPArchive::Release::Architectures='amd64 arm64' release dists/stable >"$work/Release"
cp "$work/Release" dists/stable/Release
sign --clearsign --output dists/stable/InRelease dists/stable/Release
sign --armor --detach-sign --output dists/stable/Release.gpg dists/stable/Release

cd "$new/rpm"
createrepo_c --quiet --update --retain-old-md 5 .
rm -f repodata/repomd.xml.asc
sign --armor --detach-sign --output repodata/repomd.xml.asc repodata/repomd.xml

cd "$new"
rm -f $name.asc $name.sources $name.repo
cp "$work/keys" $name.asc
cat >$name.sources <<END
Types: deb
URIs: $URL/apt
Suites: stable
Components: main
Signed-By:
$(sed 's/^$/./; s/^/ /' "$work/keys")
END
cat >$name.repo <<END
[$name]
name=$name
baseurl=$URL/rpm
gpgcheck=1
repo_gpgcheck=1
gpgkey=$URL/$name.asc
END

rm -rf "$REPOSITORY.old"
[ ! -d "$REPOSITORY" ] || mv "$REPOSITORY" "$REPOSITORY.old"
mv "$new" "$REPOSITORY"
rm -rf "$REPOSITORY.old"
echo "$REPOSITORY: $(ls "$REPOSITORY/apt/pool" "$REPOSITORY/rpm/packages" | grep -c $name) packages, for $URL"
