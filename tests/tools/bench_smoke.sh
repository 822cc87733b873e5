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
