#!/bin/bash
# SPDX-License-Identifier: MIT
# A check that cannot fail checks nothing: plants one fault at a time and expects each checker beside this file to
# name it.
# usage: selftest.sh COMPILER
set -euo pipefail
tools=$(cd "$(dirname "$0")" && pwd)
compiler=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
n_cases=0
n_faults=0

# expect STATUS REGEX COMMAND…: the command's exit status, and what it says.
expect() {
  local status=$1 regex=$2 output actual=0
  shift 2
  n_cases=$((n_cases + 1))
  output=$("$@" 2>&1) || actual=$?
  if [[ $actual != "$status" ]] || ! grep -qE -- "$regex" <<< "$output"; then
    printf 'expected status %s and /%s/, got status %s:\n%s\n' "$status" "$regex" "$actual" "$output"
    n_faults=$((n_faults + 1))
  fi
}

# ---- check_layering.sh ----

# header PATH LINE…: a well-formed header under include/kvdecode/ of a fresh tree, with the lines in its namespace;
# #include lines go above it.
header() {
  local path=$1 line
  shift
  rm -rf "$work/tree"
  mkdir -p "$(dirname "$work/tree/include/kvdecode/$path")"
  {
    printf '%s\n' '// SPDX-License-Identifier: MIT' "// <kvdecode/$path> - a header of the self-test." '#pragma once' ''
    for line in "$@"; do [[ $line != '#include'* ]] || printf '%s\n' "$line"; done
    printf '\nnamespace kvdecode::inline KVDECODE_ABI {\n'
    for line in "$@"; do [[ $line == '#include'* ]] || printf '%s\n' "$line"; done
    printf '}  // namespace kvdecode\n'
  } > "$work/tree/include/kvdecode/$path"
}
edit() { sed -i "$1" "$work"/tree/include/kvdecode/*/*.hpp; }
layering() { expect "$1" "$2" "$tools/check_layering.sh" "$work/tree"; }

header cache/ring.hpp '#include <kvdecode/core/types.hpp>' '#include <Eigen/Core>' '#include <span>' 'struct Ring {};'
layering 0 '1 headers in order'
header core/lanes.hpp '#include <kvdecode/cache/ring.hpp>';  layering 1 'core may not include cache'
header text/bpe.hpp '#include <kvdecode/model/config.hpp>';  layering 1 'text may not include model'
header core/lanes.hpp '#include <kvdecode/kvdecode.hpp>';    layering 1 'a layer includes headers of layers'
header core/lanes.hpp '#include "types.hpp"';                layering 1 'includes are written'
header core/lanes.hpp '#include <Eigen/Dense>';              layering 1 'Eigen/Dense'
header core/lanes.hpp '#include <nlohmann/json.hpp>';        layering 1 'may not include <nlohmann'
header io/json.hpp '#include <nlohmann/json.hpp>';           layering 0 'in order'
header io/json.hpp '#include <pcre2.h>';                     layering 1 'io may not include <pcre2.h>'
header core/lanes.hpp '#include <immintrin.h>';              layering 1 'core may not include <immintrin.h>'
header core/simd/lanes.hpp '#include <immintrin.h>';         layering 0 'in order'
header core/lanes.hpp '#include <iostream>';                 layering 1 '<iostream> is not used'
header core/lanes.hpp 'inline __m256 zero();';               layering 1 'intrinsics stay'
header core/lanes.hpp '  return vaddq_f32(a, b);';           layering 1 'intrinsics stay'
header core/lanes.hpp '#if defined(__AVX2__)' '#endif';      layering 1 'instruction sets are known'
header core/lanes.hpp '#define KVDECODE_LANES 16';           layering 1 'macros stay in'
header core/simd/lanes.hpp '#define LANES 16';               layering 1 'macros begin with KVDECODE_'
header core/lanes.hpp 'using namespace Eigen;';              layering 1 'no using-directives'
header core/lanes.hpp '  std::views::iota(0);';             layering 1 'does not compile the views'
header core/lanes.hpp 'namespace {' '}';                     layering 1 'no anonymous namespaces'
header core/lanes.hpp 'thread_local int n = 0;';             layering 1 'no static storage'
header core/lanes.hpp 'inline void f() { std::abort(); }';   layering 1 'does not print'
header core/lanes.hpp 'Eigen::MatrixXf weights;';            layering 1 'storage is RowMatrix'
header core/lanes.hpp '// TO''DO: later';                    layering 1 'unfinished'
header kernel/linear.hpp;                                    layering 1 'belongs to no known layer'
header core/Lanes.hpp;                                       layering 1 'snake_case'
header core/lanes.hpp; edit '1d';                            layering 1 'not the SPDX line'
header core/lanes.hpp; edit '2s/lanes/lines/';               layering 1 'the second line does not begin'
header core/lanes.hpp; edit '/pragma/d';                     layering 1 'no #pragma once'
header core/lanes.hpp; edit 's/::inline KVDECODE_ABI//';     layering 1 'opens kvdecode without its inline namespace'
rm -rf "$work/tree/include"; mkdir "$work/tree/include";     layering 1 'no headers'

# ---- check_readme.sh ----

# readme BLOCK REGION: a README that shows one block, and an example with one region.
readme() {
  rm -rf "$work/tree"
  mkdir -p "$work"/tree/{examples,tests,bench}
  printf '%b' "$1" > "$work/tree/README.md"
  printf '%b' "$2" > "$work/tree/examples/first.cpp"
  shift 2
  expect "$@" "$tools/check_readme.sh" "$work/tree"
}
# shellcheck disable=SC2016 # backquotes are meant
block='<!-- [readme] examples/first.cpp -->\n```cpp\nif (a) {\n  b();\n}\n```\n'
region='  // [readme]\n  if (a) {\n    b();\n  }\n  // [readme]\n'
readme "$block" "$region"                       0 '1 blocks compared'
readme "$block" "${region/b()/c()}"             1 'is not region 1'
readme "$block" 'int main() {}\n'               1 'has no region 1'
readme "$block$block" "$region"                 1 'has no region 2'
readme '' "$region"                             1 'has 1 regions, 0 shown'
readme "${block#*\\n}" "$region"                1 'names no file'
readme "${block/first/second}" "$region"        1 'second.cpp does not exist'
readme "${block%%\`*}\n$block" "$region"        1 'no ```cpp block follows'

# page BLOCK: beside the README that the last case made, a page of the examples.
page() {
  printf '%b' "$1" > "$work/tree/examples/README.md"
  shift
  expect "$@" "$tools/check_readme.sh" "$work/tree"
}
readme '' "$region"                             1 'first.cpp has 1 regions, 0 shown'
page "$block"                                   0 '1 blocks compared'
page "${block/b()/c()}"                         1 'examples/README.md: block 1 is not region 1'
readme "$block$block" "$region$region"          0 '2 blocks compared'
page "$block$block"                             0 '4 blocks compared'
page "$block"                                   1 'examples/README.md: examples/first.cpp has 2 regions, 1 shown'

# ---- check_output.sh ----

# output PAGE PRINTED STATUS: a page, and a program that prints so and ends so.
output() {
  printf '%b' "$1" > "$work/page.md"
  printf '#!/bin/sh\nprintf "%%b" "%s"\nexit %s\n' "$2" "$3" > "$work/01_first"
  chmod +x "$work/01_first"
  shift 3
  expect "$@" "$tools/check_output.sh" "$work/01_first" "$work/page.md"
}
shows='<!-- [output] examples/01_first -->\n```text\nT = 3\n~ took  12.5 ms\n```\n'
output "$shows" 'T = 3\n~ took 1,234 ms\n' 0    0 ''
output "$shows" 'T = 4\n~ took 12.5 ms\n' 0     1 '\+T = 4'
output "$shows" 'T = 3\n~ took 12.5 us\n' 0     1 'is not what 01_first prints'
output "$shows" 'T = 3\n' 0                     1 'is not what 01_first prints'
output "$shows" 'T = 3\n~ took 12.5 ms\n' 1     1 'a claim is false'
output "${shows/01_first/02_second}" 'T = 3' 0  1 'no ```text block follows'

# ---- check_fails.sh ----

fails() {
  printf '%b' "$1" > "$work/case.cpp"
  expect "$2" "$3" "$tools/check_fails.sh" "$work/case.cpp" "$compiler" -std=c++20
}
fails '// error: static assertion\nstatic_assert(false);\n'  0 ''
fails '// error: static assertion\nstatic_assert(true);\n'   1 'compiles; expected'
fails '// error: static assertion\nint f( {\n'               1 'fails, but not with'
fails 'static_assert(false);\n'                              1 'the first line is not'

echo "$n_cases cases, $n_faults wrong"
((n_faults == 0))
