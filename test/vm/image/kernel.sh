#!/bin/sh
# kernel.sh TO: unpacks the newest kernel for virtual machines into the folder TO, as a hook of mmdebstrap, which says
# where the configuration of the tree's apt is.
set -eu
export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
mkdir -p "$1"
cd "$1"
kernel=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
[ -n "$kernel" ] || { echo "kernel.sh: apt knows no linux-image-cloud-amd64" >&2; exit 1; }
apt-get -qq -o Acquire::Retries=3 -o APT::Sandbox::User=root download "$kernel"
dpkg-deb -x ./*.deb .
rm ./*.deb
# From Debian 13 on they are in /usr.
[ -d lib/modules ] || { mkdir -p lib && mv usr/lib/modules lib/modules; }
