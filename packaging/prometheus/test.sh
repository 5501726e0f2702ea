#!/bin/sh
# Checks the alerts, and tests with Prometheus' own promtool that each fires. The tool is the system's, or it is
# taken out of the distribution's package into BUILD (default .build), without installing a server.
set -eu
cd "$(dirname "$0")"
build=$(realpath "${BUILD:-../../.build}")

promtool=$(command -v promtool || true)
if [ -z "$promtool" ]; then
	promtool=$build/promtool
fi
if [ ! -x "$promtool" ]; then
	echo "fetching promtool from the distribution's package prometheus"
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	if command -v apt-get >/dev/null; then
		apt-get update -qq
		(cd "$work" && apt-get -o APT::Sandbox::User=root download -qq prometheus && dpkg-deb -x prometheus_*.deb .)
		mkdir -p "$build"
		cp "$work/usr/bin/promtool" "$promtool"
	elif command -v dnf >/dev/null; then
		dnf install -y -q golang-github-prometheus
		promtool=$(command -v promtool)
	else
		echo "alerts: neither apt-get nor dnf is here; install promtool" >&2
		exit 1
	fi
fi

"$promtool" check rules rules.yaml
"$promtool" test rules rules_test.yaml
