#!/bin/sh
# Fuzzes each target of the repository: fuzz.sh [TIME], default 20000x, that many inputs each (some
# seconds). A count and not a time, because up to Go 1.26 a target now and then fails with nothing but
# "context deadline exceeded" when its time is up (golang/go#75804).
set -eu
time=${1:-20000x}
for file in $(grep -rl --include='*_test.go' '^func Fuzz' . | sort); do
	package=$(dirname "$file")
	for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file"); do
		echo "fuzzing $package $target for $time"
		go test -trimpath -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x "$package"
	done
done
