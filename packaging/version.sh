#!/bin/sh
# Prints the version of the program that a build of this tree has, in semver's form.
#
#   v0.2.0                  the commit has this tag, and nothing was edited since
#   v0.2.0-dev.198+g1a2b3c  on the way to 0.2.0, the first heading of CHANGELOG.md, 198 commits in
#
# The number of commits grows with each commit of a branch, so that a package of a later one is newer for
# dpkg and rpm too; the time of a commit does not, and its hash says nothing. AFTER=N prints the version that
# the Nth commit from here would have.
#
# With --package VERSION it prints how dpkg and rpm write that version: "~" sorts before the release.
set -eu

if [ "${1:-}" = --package ]; then
	echo "${2#v}" | sed 's/-/~/g; s/[+]/./g'
	exit
fi

cd "$(dirname "$0")/.."
base=$(sed -n 's/^## \([0-9][0-9.]*\).*/\1/p' CHANGELOG.md | head -n 1)
if ! commit=$(git rev-parse --short=12 HEAD 2>/dev/null); then
	echo "v${base:?}-dev" # not a clone
	exit
fi
dirty=
[ -z "$(git status --porcelain --untracked-files=no)" ] || dirty=.dirty
if [ -z "$dirty${AFTER:-}" ] && git describe --tags --exact-match --match 'v[0-9]*' HEAD 2>/dev/null; then
	exit
fi
count=$(git rev-list --count HEAD)
if [ -n "${AFTER:-}" ]; then
	echo "v${base:?}-dev.$((count + AFTER))+after.$commit$dirty"
else
	echo "v${base:?}-dev.$count+g$commit$dirty"
fi
