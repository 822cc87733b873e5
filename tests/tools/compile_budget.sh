#!/bin/bash
# SPDX-License-Identifier: MIT
# The price of including kvdecode: user time to compile one float decoder, and one with a second cache type, as
# ratios to parsing <Eigen/Core>. Median of 3; always reported; fails only above 1.5 times the budget.
# usage: compile_budget.sh [COMPILER [EIGEN_INCLUDE_DIR]]
set -euo pipefail
cd "$(dirname "$0")/../.."
compiler=${1:-g++}
eigen=${2:-/usr/include/eigen3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# what it is; its budget in hundredths of the time to parse <Eigen/Core>
budget_decoder=400
budget_cache=30

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

milliseconds() {  # of user time to compile $1
  local TIMEFORMAT=%3U seconds
  seconds=$({ time "$compiler" -std=c++20 -O2 -mavx2 -mfma -mf16c -I include -isystem "$eigen" \
                -c "$1" -o "$work/out.o" 2> "$work/log"; } 2>&1) || { cat "$work/log" >&2; return 1; }
  echo $((10#${seconds/./}))
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

status=0
report() {  # WHAT BUDGET RATIO…
  local what=$1 budget=$2 median
  shift 2
  median=$(printf '%s\n' "$@" | sort -n | sed -n 2p)
  awk -v what="$what" -v ratio="$median" -v budget="$budget" 'BEGIN {
    verdict = ratio <= budget ? "within" : ratio <= 1.5 * budget ? "above, tolerated" : "ABOVE 1.5 x the budget"
    printf "%-20s %5.2f x <Eigen/Core>, budget %.2f: %s\n", what, ratio / 100, budget / 100, verdict
  }'
  ((median * 2 <= budget * 3)) || status=1
}
report 'one float decoder' $budget_decoder "${decoder_ratios[@]}"
report 'a further cache' $budget_cache "${cache_ratios[@]}"
exit $status
