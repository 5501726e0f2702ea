#!/bin/sh
# groups.sh TARGET... makes each target, whatever becomes of the others, and tells at the end how long each took and
# which failed. Its last lines are the tests that failed once and then passed (test/rerun). Exit code 1 if one failed.
#
# TARGET,TARGET+TARGET,TARGET makes what is between commas in turn, and what is beside a plus at the same time: tests
# that wait leave the processors to those that work. What such a target prints comes when it has ended.
set -u
outermost=
if [ -z "${UNSTABLE:-}" ]; then
	outermost=yes UNSTABLE=$(mktemp)
	export UNSTABLE
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"; [ -z "$outermost" ] || rm -f "$UNSTABLE"' EXIT
# What runs beside does not hear an interrupt (sh ignores it for them): it is ended with the process group.
trap 'trap "" TERM; kill -TERM 0; wait; exit 130' INT TERM

# one TARGET [FILE] makes it, and notes in the table how that ended. FILE takes what it prints.
one() {
	began=$(date +%s)
	if [ $# -gt 1 ]; then
		${MAKE:-make} --no-print-directory "$1" </dev/null >"$2" 2>&1 && result=passed || result=FAILED
	else
		${MAKE:-make} --no-print-directory "$1" </dev/null && result=passed || result=FAILED
	fi
	printf '%-12s %5s s  %s\n' "$1" $(($(date +%s) - began)) "$result" >>"$dir/table"
	[ "$result" = passed ] && ended=pass || ended=fail
	# As test/rerun notes tests.
	[ -z "${RESULTS:-}" ] || printf '%s\t\t%s\t\n' $ended "$1" >>"$RESULTS"
}

# lane TARGET,TARGET makes them in turn.
lane() {
	for target in $(echo "$1" | tr , ' '); do
		one "$target" "$dir/$target"
		flock "$dir/printed" cat "$dir/$target"
	done
}

: >"$dir/table"
for group; do
	case $group in
	*[+,]*)
		for targets in $(echo "$group" | tr + ' '); do lane "$targets" & done
		wait
		;;
	*) one "$group" ;;
	esac
done
cat "$dir/table"
[ -z "$outermost" ] || cat "$UNSTABLE"
! grep -q FAILED "$dir/table"
