#!/bin/sh
# groups.sh TARGET... makes each target, whatever becomes of the others, and tells at the end how long each took and
# which failed. Its last lines are the tests that failed once and then passed (test/rerun). Exit code 1 if one failed.
set -u
outermost=
if [ -z "${UNSTABLE:-}" ]; then
	outermost=yes UNSTABLE=$(mktemp)
	export UNSTABLE
	trap 'rm -f "$UNSTABLE"' EXIT
fi

failed=0 table=
for target; do
	began=$(date +%s)
	${MAKE:-make} --no-print-directory "$target" </dev/null && result=passed || result=FAILED failed=1
	table="$table$(printf '%-12s %5s s  %s' "$target" $(($(date +%s) - began)) "$result")
"
done
printf '%s' "$table"
[ -n "$outermost" ] && cat "$UNSTABLE"
exit $failed
