#!/bin/bash
# SPDX-License-Identifier: MIT
# Builds tests/digest/digest.cpp for every compiler, optimisation level, contraction mode and instruction set of the
# bit contract, runs every build (aarch64 under qemu-user), and compares the last line each prints: `digest HEX`.
# Two builds at a time. Exits 1 if a digest differs or a build fails.
# usage: run_matrix.sh [--quick | --all] [--only REGEX] [--out FOLDER]
#   --quick        one build per compiler and instruction set
#   --all          also builds between two that are there: one more level, another mode of the other compiler
#   --only REGEX   only builds whose name matches
#   --out FOLDER   keeps NAME.txt (what the program printed) and NAME.log (compiler and run time errors)
# environment: EIGEN (/usr/include/eigen3), DIGEST_SOURCE (digest.cpp beside this script)
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
include=$(cd "$here/../../include" && pwd)
source=${DIGEST_SOURCE:-$here/digest.cpp}
eigen=${EIGEN:-/usr/include/eigen3}
launcher=${CMAKE_CXX_COMPILER_LAUNCHER:-}  # ccache, where it is set up
of='qa'  # the kinds of builds
only=.
out=''
while (($# > 0)); do
  case $1 in
    --quick) of='q' ;;
    --all) of='qas' ;;
    --only) only=$2; shift ;;
    --out) out=$2; shift ;;
    *) sed -n '6,10s/^# //p' "$0" >&2; exit 2 ;;
  esac
  shift
done

# name | compiler | flags | what the machine must have to run it | q: quick, a: always but then, s: seldom
avx2="-mavx2 -mfma -mf16c"
avx512="-march=x86-64-v4"
arm_clang="--target=aarch64-linux-gnu -static"
matrix="
gcc-avx2-O2            |g++|-O2 $avx2|avx2|q
gcc-avx2-O0            |g++|-O0 $avx2|avx2|a
gcc-avx2-O1            |g++|-O1 $avx2|avx2|s
gcc-avx2-O3            |g++|-O3 $avx2|avx2|a
gcc-avx2-O2-off        |g++|-O2 $avx2 -ffp-contract=off|avx2|a
gcc-avx2-O2-fast       |g++|-O2 $avx2 -ffp-contract=fast|avx2|a
gcc-avx2-O2-scalar     |g++|-O2 $avx2 -DEIGEN_DONT_VECTORIZE|avx2|a
gcc-x86_64-O2          |g++|-O2|x86_64|q
gcc-avx512-O2          |g++|-O2 $avx512|avx512|q
gcc-aarch64-O0         |aarch64-linux-gnu-g++|-O0 -static|qemu|a
gcc-aarch64-O2         |aarch64-linux-gnu-g++|-O2 -static|qemu|q
clang14-avx2-O0        |clang++-14|-O0 $avx2|avx2|a
clang14-avx2-O1        |clang++-14|-O1 $avx2|avx2|s
clang14-avx2-O2        |clang++-14|-O2 $avx2|avx2|q
clang14-avx2-O3        |clang++-14|-O3 $avx2|avx2|a
clang14-avx2-O2-off    |clang++-14|-O2 $avx2 -ffp-contract=off|avx2|s
clang14-avx2-O2-fast   |clang++-14|-O2 $avx2 -ffp-contract=fast|avx2|a
clang14-avx2-O2-scalar |clang++-14|-O2 $avx2 -DEIGEN_DONT_VECTORIZE|avx2|a
clang14-x86_64-O2      |clang++-14|-O2|x86_64|s
clang14-avx512-O2      |clang++-14|-O2 $avx512|avx512|a
clang14-aarch64-O2     |clang++-14|-O2 $arm_clang|qemu|a
clang19-avx2-O2-fast   |clang++-19|-O2 $avx2 -ffp-contract=fast|avx2|s
clang19-avx2-O3        |clang++-19|-O3 $avx2|avx2|a
"

work=${out:-$(mktemp -d)}
mkdir -p "$work"
[[ -n $out ]] || trap 'rm -rf "$work"' EXIT

runs_here() {
  case $1 in
    x86_64 | qemu) true ;;
    avx2) grep -qw avx2 /proc/cpuinfo && grep -qw fma /proc/cpuinfo && grep -qw f16c /proc/cpuinfo ;;
    avx512) grep -qw avx512f /proc/cpuinfo && grep -qw avx512dq /proc/cpuinfo && grep -qw avx512vl /proc/cpuinfo &&
              grep -qw avx512bw /proc/cpuinfo && grep -qw avx512cd /proc/cpuinfo ;;
  esac
}

# Builds and runs one row; leaves `seconds to build | seconds to run | result` in $work/NAME.row.
one() {
  local name=$1 compiler=$2 flags=$3 needs=$4 start built run=() TIMEFORMAT=%R
  rm -f "$work/$name".*
  if ! runs_here "$needs"; then
    echo "-|-|skipped: the processor has no $needs" > "$work/$name.row"
    return
  fi
  if ! command -v "$compiler" > /dev/null; then
    # clang 19 is no compiler of the promise, but a look ahead where it is installed.
    [[ $compiler == clang++-19 ]] && echo "-|-|skipped: no $compiler" > "$work/$name.row" && return
    echo "-|-|FAILED: no $compiler" > "$work/$name.row"
    return
  fi
  [[ $needs != qemu ]] || run=(qemu-aarch64)
  start=$EPOCHREALTIME
  # shellcheck disable=SC2086 # flags are words
  if ! { $launcher "$compiler" -std=c++20 $flags -I "$include" -I "$here/.." -isystem "$eigen" \
           -c "$source" -o "$work/$name.o" && "$compiler" $flags "$work/$name.o" -o "$work/$name.bin"; } \
         2> "$work/$name.log"; then
    echo "$(elapsed "$start")|-|FAILED to compile" > "$work/$name.row"
    return
  fi
  built=$(elapsed "$start")
  start=$EPOCHREALTIME
  if ! "${run[@]}" "$work/$name.bin" > "$work/$name.txt" 2>> "$work/$name.log"; then
    echo "$built|$(elapsed "$start")|FAILED to run" > "$work/$name.row"
    return
  fi
  echo "$built|$(elapsed "$start")|$(tail -n 1 "$work/$name.txt")" > "$work/$name.row"
  rm -f "$work/$name".{o,bin}
}
elapsed() { awk -v from="$1" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.1f", to - from }'; }

names=()
while IFS='|' read -r name compiler flags needs kind; do
  name=${name%% *}
  [[ -n $name && $name =~ $only ]] || continue
  [[ $of == *"$kind"* ]] || continue
  names+=("$name")
  while (($(jobs -rp | wc -l) >= 2)); do wait -n || true; done
  one "$name" "$compiler" "$flags" "$needs" &
done <<< "$matrix"
wait
((${#names[@]} > 0)) || { echo "no build matches $only"; exit 2; }

# The reference is the first digest; every other must equal it.
reference=''
status=0
n_equal=0
n_skipped=0
printf '%-24s %7s %7s  %s\n' build 'build s' 'run s' digest
for name in "${names[@]}"; do
  IFS='|' read -r built ran result < "$work/$name.row" || result="FAILED: no result"
  if [[ $result =~ ^digest\ [0-9a-f]+$ ]]; then
    reference=${reference:-$result}
    if [[ $result == "$reference" ]]; then
      n_equal=$((n_equal + 1))
    else
      result="$result  DIFFERS"
      status=1
    fi
  elif [[ $result == skipped:* ]]; then
    n_skipped=$((n_skipped + 1))
  else
    status=1
  fi
  printf '%-24s %7s %7s  %s\n' "$name" "$built" "$ran" "$result"
  [[ $result != FAILED* && $result != *DIFFERS ]] || head -n 20 "$work/$name.log"
done

# Which lines differ, for the first build that does.
if [[ $status != 0 && -n $reference ]]; then
  for name in "${names[@]}"; do
    if [[ -f $work/$name.txt && $(tail -n 1 "$work/$name.txt") != "$reference" ]]; then
      first=$(grep -lFx -- "$reference" "$work"/*.txt | head -n 1)
      echo "$(basename "$first" .txt) < > $name:"
      diff "$first" "$work/$name.txt" | head -n 20 || true
      break
    fi
  done
fi
((n_equal > 0)) || status=1
echo "$n_equal equal, $((${#names[@]} - n_equal - n_skipped)) not, $n_skipped skipped"
exit $status
