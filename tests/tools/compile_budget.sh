#!/bin/bash
# SPDX-License-Identifier: MIT
# The price of including kvdecode: what it takes to compile one float decoder, and one with a second cache type, as
# ratios to parsing <Eigen/Core>. Time, the median of 3, is reported only, as it differs from run to run; what fails is
# memory, which a compiler takes alike each time: g++ tells (-ftime-report), others do not.
# usage: compile_budget.sh [COMPILER [EIGEN_INCLUDE_DIR]]
set -euo pipefail
cd "$(dirname "$0")/../.."
compiler=${1:-g++}
eigen=${2:-/usr/include/eigen3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Budgets, in hundredths of <Eigen/Core>.
time_of_decoder=400 time_of_cache=30
memory_of_decoder=320 memory_of_cache=10

echo '#include <Eigen/Core>' > "$work/eigen.cpp"

decode_with() {  # NAME CACHE: a function that decodes one token
  cat << CPP
float $1(const kvdecode::Transformer<float>& transformer, kvdecode::TokenId token);
float $1(const kvdecode::Transformer<float>& transformer, kvdecode::TokenId token) {
  auto decoder = kvdecode::Decoder(transformer, kvdecode::Cached<$2>{.max_seq_len = 64});
  return decoder.step(token)[0];
}
CPP
}
{
  echo '#include <kvdecode/kvdecode.hpp>'
  decode_with growing ''
} > "$work/decoder.cpp"
{
  cat "$work/decoder.cpp"
  decode_with contiguous 'kvdecode::ContiguousCache<>'  # of a format that the first one has: formats bring kernels
} > "$work/two_caches.cpp"

compile() {  # FILE OPTION…
  local file=$1
  shift
  "$compiler" -std=c++20 -O2 -mavx2 -mfma -mf16c -I include -isystem "$eigen" -c "$file" -o "$work/out.o" "$@"
}
milliseconds() {  # of user time to compile $1
  local TIMEFORMAT=%3U seconds
  seconds=$({ time compile "$1" 2> "$work/log"; } 2>&1) || { cat "$work/log" >&2; return 1; }
  echo $((10#${seconds/./}))
}
megabytes() {  # that the compiler takes for $1; nothing if it does not tell
  compile "$1" -ftime-report 2>&1 | sed -nE 's/^ *TOTAL +:.* ([0-9]+)M *\)?$/\1/p'
}

decoder_ratios=() cache_ratios=()
for _ in 1 2 3; do
  base=$(milliseconds "$work/eigen.cpp")
  decoder=$(milliseconds "$work/decoder.cpp")
  two=$(milliseconds "$work/two_caches.cpp")
  decoder_ratios+=($((decoder * 100 / base)))
  cache_ratios+=($(((two - decoder) * 100 / base)))
  echo "<Eigen/Core> $base ms, one float decoder $decoder ms, with a second cache $two ms"
done

report() {  # WHAT BUDGET RATIO: whether it is within
  awk -v what="$1" -v budget="$2" -v ratio="$3" 'BEGIN {
    verdict = ratio <= budget ? "within" : "ABOVE"
    printf "%-28s %5.2f x <Eigen/Core>, budget %.2f: %s\n", what, ratio / 100, budget / 100, verdict
  }'
  (($3 <= $2))
}
median() { printf '%s\n' "$@" | sort -n | sed -n 2p; }
report 'time of one float decoder' $time_of_decoder "$(median "${decoder_ratios[@]}")" || true
report 'time of a further cache' $time_of_cache "$(median "${cache_ratios[@]}")" || true

base=$(megabytes "$work/eigen.cpp") decoder=$(megabytes "$work/decoder.cpp") two=$(megabytes "$work/two_caches.cpp")
if [[ -z $base || -z $decoder || -z $two ]]; then
  echo "$compiler does not tell how much memory it takes"
  exit 0
fi
status=0
report 'memory of one float decoder' $memory_of_decoder $((decoder * 100 / base)) || status=1
report 'memory of a further cache' $memory_of_cache $(((two - decoder) * 100 / base)) || status=1
exit $status
