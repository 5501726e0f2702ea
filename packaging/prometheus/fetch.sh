#!/bin/sh
# Puts Prometheus' own promtool and prometheus into BUILD (default .build). They are the system's, or they are taken
# out of the distribution's package, without installing a server.
set -eu
cd "$(dirname "$0")"
build=${BUILD:-../../.build}
mkdir -p "$build"
build=$(realpath "$build")
[ ! -x "$build/promtool" ] || [ ! -x "$build/prometheus" ] || exit 0

if ! command -v promtool >/dev/null || ! command -v prometheus >/dev/null; then
	echo "fetching promtool and prometheus from the distribution's package"
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	if command -v apt-get >/dev/null; then
		apt-get update -qq
		(cd "$work" && apt-get -o APT::Sandbox::User=root download -qq prometheus && dpkg-deb -x prometheus_*.deb .)
		cp "$work/usr/bin/promtool" "$work/usr/bin/prometheus" "$build"
		exit
	elif command -v dnf >/dev/null; then
		dnf install -y -q golang-github-prometheus
	else
		echo "alerts: neither apt-get nor dnf is here; install promtool and prometheus" >&2
		exit 1
	fi
fi
ln -sf "$(command -v promtool)" "$(command -v prometheus)" "$build"
