#!/bin/bash
# SPDX-License-Identifier: MIT
# Runs the smallest case of every benchmark for an instant: the first of those that differ in their arguments only. Of
# whole models, which take their time, those of one format.
# usage: bench_smoke.sh PROGRAM
set -euo pipefail
program=$1

# Names are layer/variant/…/arg:value/…; a family is the name without its arguments.
mapfile -t cases < <("$program" --benchmark_list_tests=true | grep -vE '^model/[a-z]+/([^s]|smollm2-135m/([^q]|q[^4]|q4_[^0]))' |
  awk '{ family = $0; gsub(/\/[a-z_]+:[^\/]*/, "", family); if (!seen[family]++) print }')
if [[ ${#cases[@]} == 0 ]]; then
  echo "$program registers no benchmark"
  exit 1
fi
filter=$(printf '%s\n' "${cases[@]}" | sed 's/[][().*+?^$|{}\\]/\\&/g' | paste -sd '|')

output=$("$program" --benchmark_min_time=0.001 --benchmark_filter="^($filter)\$" 2>&1)
echo "$output"
if grep -q 'ERROR OCCURRED' <<< "$output"; then
  exit 1
fi
for name in "${cases[@]}"; do
  if ! grep -qF -- "$name" <<< "$output"; then
    echo "$name did not run"
    exit 1
  fi
done

# What it says in the end: both strategies line by line, growth beside that of the counts, and where attention overtakes.
short='^(attention|decode)/(recompute|cached)/f32/n_tokens:(32|64|128)$|^step/(recompute|cached)/f32/position:(0|255)$'
summary=$("$program" --benchmark_min_time=0.001 "--benchmark_filter=$short" 2>&1 | sed '1,/^Attention alone writes/d')
says() {
  grep -qE -- "$1" <<< "$summary" && return
  echo "the summary has no /$1/: $summary"
  exit 1
}
says '^ +128 +[0-9.]+ ms +[0-9.]+ ms +[0-9.]+ +4.579e\+07 against 1.057e\+06$'
says 'recompute from T = 64 to 128: time grows as T\^[0-9.]+, multiply-adds as T\^2.97; fitted over all: .*N'
says 'cached +from T = 64 to 128: time grows as T\^[0-9.]+, multiply-adds as T\^1.99; '
says '^A whole model writes T tokens'
says 'attention multiplies more than all matrices only from T = 400 on'
if "$program" --benchmark_format=json --benchmark_min_time=0.001 "--benchmark_filter=$short" 2> /dev/null |
  grep -q 'Attention alone'; then
  echo "the summary is in the way of what reads JSON"
  exit 1
fi
