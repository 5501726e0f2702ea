#!/bin/sh
# Checks the alerts, and tests with Prometheus' own promtool, which fetch.sh puts into BUILD (default .build), that each
# fires on what daemons served in its state (recorded, test/alerts), and none on what is no fault.
set -eu
cd "$(dirname "$0")"
sh fetch.sh
promtool=$(realpath "${BUILD:-../../.build}")/promtool

"$promtool" check rules rules.yaml
"$promtool" test rules rules_test.yaml recorded_test.yaml
