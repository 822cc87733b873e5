#!/bin/bash
# SPDX-License-Identifier: MIT
# Checks the form of every header under include/: which layers and which outside headers it includes, that
# intrinsics and macros stay in their places, and the house rules that a pattern can see.
# usage: check_layering.sh [REPOSITORY]; prints one line per fault, exits 1 if there is any
set -euo pipefail
cd "${1:-$(dirname "$0")/../..}"

mapfile -t files < <(find include -name '*.hpp' -o -name '*.cpp' | LC_ALL=C sort)
if [[ ${#files[@]} == 0 ]]; then
  echo "no headers in $PWD/include"
  exit 1
fi

awk '
BEGIN {
  # The allow-list: a layer, and the layers it may include.
  allow["core"] = "core"
  allow["kernels"] = "core kernels"
  allow["cache"] = "core cache"
  allow["layers"] = "core kernels cache layers"
  allow["model"] = "core kernels cache layers model"
  allow["decode"] = "core kernels cache layers model decode"
  allow["io"] = "core kernels cache layers model decode io"
  allow["text"] = "core text"
  allow["pipeline"] = "core kernels cache layers model decode io text pipeline"
  # Umbrellas lie beside the layers and may include what their most demanding layer may.
  umbrella["kvdecode.hpp"] = "decode"
  umbrella["compiled.hpp"] = "decode"
  umbrella["io.hpp"] = "io"
  umbrella["text.hpp"] = "text"
  umbrella["pipeline.hpp"] = "pipeline"
  # Outside headers by layer. Everybody may include Eigen and the standard library.
  outside["io"] = "^nlohmann/|^sys/(mman|stat|types)\\.h$|^(fcntl|unistd)\\.h$"
  outside["text"] = "^nlohmann/|^pcre2\\.h$|^utf8proc\\.h$"
  outside["pipeline"] = "^nlohmann/"
  intrinsics = "(^|[^A-Za-z0-9_])(_mm[0-9]*_|__m(128|256|512)|__builtin_ia32_|v[a-z]+[0-9]*q_[a-z]+[0-9]+|(float|int|uint)[0-9]+x[0-9]+_t)"
  isa = "^#(el)?if.*(__AVX|__SSE|__FMA__|__F16C__|__ARM|__aarch64__|__x86_64__|__i386__|EIGEN_VECTORIZE|KVDECODE_ISA)"
  unfinished = "TO" "DO|FIX" "ME|XX" "X|HA" "CK"
}

function fault(text) { printf "%s:%d: %s\n", FILENAME, FNR, text; faults++ }

function finish_file() {
  if (name == "") return
  if (!once && !is_source) { printf "%s: no #pragma once\n", name; faults++ }
  if (needs_namespace && !has_namespace) {
    printf "%s: declares something outside namespace kvdecode::inline KVDECODE_ABI { … }  // namespace kvdecode\n", name
    faults++
  }
}

FNR == 1 {
  finish_file()
  name = FILENAME
  path = FILENAME
  sub(/^include\//, "", path)
  if (path !~ /^kvdecode\//) fault("lies outside include/kvdecode/")
  local_path = path
  sub(/^kvdecode\//, "", local_path)
  layer = local_path
  is_compiled = local_path ~ /^compiled(_[a-z0-9_]+\.c|\.h)pp$/  # lists of instantiations
  if (!sub(/\/.*/, "", layer)) layer = umbrella[is_compiled ? "compiled.hpp" : local_path]
  if (!(layer in allow)) { fault("belongs to no known layer"); layer = "core" }
  if (local_path !~ /^[a-z0-9_\/]+\.(hpp|cpp)$/) fault("file names are snake_case")
  in_simd = local_path ~ /^core\/simd\//
  is_config = local_path == "core/config.hpp"
  may_define = is_compiled || in_simd || is_config || local_path == "core/version.hpp"
  is_source = local_path ~ /\.cpp$/
  once = needs_namespace = has_namespace = continues = 0
  if ($0 !~ /^\/\/ SPDX-License-Identifier: MIT$/) fault("the first line is not the SPDX line")
}
FNR == 2 && !is_source && index($0, "// <" path "> - ") != 1 { fault("the second line does not begin with \"// <" path "> - \"") }

$0 ~ unfinished { fault("unfinished: " $0) }

{
  code = $0
  sub(/\/\/.*/, "", code)
  sub(/[ \t]+$/, "", code)
}
code == "" { next }
continues { continues = code ~ /\\$/; next }
code ~ /^[ \t]*#/ { continues = code ~ /\\$/ }
code == "#pragma once" { once = 1; next }

code ~ /^[ \t]*#[ \t]*include/ {
  if (code !~ /^#include <[^>]+>$/) { fault("includes are written #include <…>"); next }
  header = code
  gsub(/^#include <|>$/, "", header)
  if (header ~ /^kvdecode\//) {
    sub(/^kvdecode\//, "", header)
    target = header
    if (sub(/\/.*/, "", target)) {
      if (index(" " allow[layer] " ", " " target " ") == 0) fault(layer " may not include " target)
    } else if (local_path ~ /\//) {
      fault("a layer includes headers of layers, not " header)
    } else if (!(header in umbrella) || index(" " allow[layer] " ", " " umbrella[header] " ") == 0) {
      fault(local_path " may not include " header)
    }
  } else if (header ~ /^(Eigen|unsupported\/Eigen)\//) {
    if (header == "Eigen/Dense") fault("Eigen/Dense costs half as much again to parse: include what is used")
  } else if (header ~ /^[a-z0-9_]+$/) {
    if (header ~ /^(format|expected|iostream|regex|print)$/) fault("<" header "> is not used in this library")
  } else if (in_simd && header ~ /^([a-z0-9]*intrin|arm_neon)\.h$/) {
  } else if (!(layer in outside) || header !~ outside[layer]) {
    fault(layer " may not include <" header ">")
  }
  next
}

layer == "text" && code == "#define PCRE2_CODE_UNIT_WIDTH 8" { next }  # <pcre2.h> asks for it
code ~ /^[ \t]*#[ \t]*(define|undef)/ {
  if (!may_define) fault("macros stay in core/simd/, core/version.hpp, core/config.hpp and compiled.hpp")
  else if (code !~ /(define|undef)[ \t]+KVDECODE_/) fault("macros begin with KVDECODE_")
  next
}
!in_simd && !is_config && code ~ isa { fault("instruction sets are known to core/simd/ and core/config.hpp only") }
code ~ /^[ \t]*#/ { next }

!in_simd && code ~ intrinsics { fault("intrinsics stay in core/simd/: " code) }
code ~ /using[ \t]+namespace/ { fault("no using-directives") }
code ~ /std::(ranges::)?views::|std::ranges::[a-z_]+_view/ { fault("clang 14 does not compile the views of libstdc++") }
code ~ /^[ \t]*namespace[ \t]*\{/ { fault("no anonymous namespaces") }
code ~ /(^|[^A-Za-z0-9_])thread_local[ \t]/ && local_path !~ /^core\/(counting|memory)\.hpp$/ {
  fault("no static storage outside core/counting.hpp and core/memory.hpp")
}
code ~ /std::(cout|cerr|clog|printf|puts|abort|exit|terminate|getenv|random_device)([^A-Za-z0-9_]|$)|(^|[^A-Za-z0-9_:.>])(printf|fprintf|puts|abort|exit|getenv)\(/ {
  fault("the library does not print, end the program, read the environment or draw its own seed")
}
code ~ /Eigen::(Matrix|Vector|RowVector)[X1-4][fdi]([^A-Za-z0-9_]|$)/ { fault("storage is RowMatrix<T> or a view, not " code) }

code ~ /^namespace/ {
  if (code ~ /^namespace kvdecode::inline KVDECODE_ABI(::[a-z0-9_]+)* \{/) has_namespace = 1
  else if (code ~ /^namespace kvdecode([^A-Za-z0-9_]|$)/) fault("opens kvdecode without its inline namespace")
}
{ needs_namespace = 1 }

END {
  finish_file()
  if (faults) { printf "%d faults\n", faults; exit 1 }
}
' "${files[@]}"
echo "${#files[@]} headers in order"
