#!/bin/bash
# SPDX-License-Identifier: MIT
# Runs core_limits for an instant: whether its loops have the canonical sums, what it prints, how it fails. No time is
# judged.
# usage: check_core_limits.sh PROGRAM
set -euo pipefail
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
faults=0
fault() {
  echo "$*"
  faults=$((faults + 1))
}

status=0
"$program" --kib 1 --seconds 0 > "$work/out" 2> "$work/err" || status=$?
if ((status != 0)) || [[ -s $work/err ]]; then
  fault "exit status $status, on standard error: $(head -c 300 "$work/err")"
fi
for format in f32 f16 q8_0 q4_0 q4_k; do
  n_loops=$(grep -cE "^$format +[a-z]+ [a-z]+ +[0-9.]+ +[0-9.]+$" "$work/out") || true
  case $format in f32) wanted=2 ;; f16) wanted=3 ;; *) wanted=4 ;; esac
  ((n_loops == wanted)) || fault "$format: $n_loops loops, expected $wanted: $(< "$work/out")"
  grep -qE "^$format is bound by (arithmetic|memory): [0-9.]+ GB/s in cache against [0-9.]+ GB/s from memory$" \
    "$work/out" || fault "$format: no sentence: $(< "$work/out")"
  grep -qE "^$format: 4 sequences at once are at most [0-9.]+ times as fast as one, 16 at most [0-9.]+ times," \
    "$work/out" || fault "$format: no sentence of batches: $(< "$work/out")"
done
[[ $(grep -E '^(format|f|q)[^:]*$' "$work/out" | awk '{ print length($0) }' | sort -u | wc -l) == 1 ]] ||
  fault "the table is not aligned: $(< "$work/out")"

for arguments in '--kib 0' '--kib many' '--seconds -1' '--unknown'; do
  status=0
  # shellcheck disable=SC2086
  "$program" $arguments > "$work/out" 2> "$work/err" || status=$?
  if ((status != 2 || $(wc -l < "$work/err") != 1)) || [[ -s $work/out ]]; then
    fault "$arguments: exit status $status, expected 2 and one line: $(head -c 300 "$work/out" "$work/err")"
  fi
done

((faults == 0))
