#!/bin/sh
# Builds the benchmark and its peer, and runs it from the repository's root: run.sh [-short] [flags].
# `run.sh -h` explains them. The daemon and the control plane are there already (make bench).
set -eu
cd "$(dirname "$0")/../.."
BUILD=$(realpath -m "${BUILD:-.build}")
export BUILD CGO_ENABLED=0
mkdir -p "$BUILD"
(cd test/bench/peer && go build -trimpath -ldflags '-s -w' -o "$BUILD/bench-peer" .)
go build -trimpath -o "$BUILD/bench" ./test/bench
exec "$BUILD/bench" "$@"
