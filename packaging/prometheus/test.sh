#!/bin/sh
# Checks the alerts, and tests with Prometheus' own promtool, which fetch.sh puts into BUILD (default .build), that each
# fires: on what daemons served (recorded, test/alerts), and on invented series where none was in that state.
set -eu
cd "$(dirname "$0")"
sh fetch.sh
promtool=$(realpath "${BUILD:-../../.build}")/promtool

"$promtool" check rules rules.yaml
"$promtool" test rules rules_test.yaml recorded_test.yaml
