#!/bin/bash
# SPDX-License-Identifier: MIT
# Proves that a file does not compile, and for the reason it names: its first line is `// error: REGEX` (extended),
# and the compiler's output must match it.
# usage: check_fails.sh FILE COMPILER [FLAGS…]
set -euo pipefail
file=$1
shift

first=$(head -n 1 "$file")
if [[ $first != "// error: "?* ]]; then
  echo "$file: the first line is not // error: REGEX"
  exit 1
fi
expected=${first#// error: }

if output=$("$@" -fsyntax-only "$file" 2>&1); then
  echo "$file compiles; expected an error like: $expected"
  exit 1
fi
if ! grep -qE -- "$expected" <<< "$output"; then
  printf '%s fails, but not with: %s\n%s\n' "$file" "$expected" "$(head -n 40 <<< "$output")"
  exit 1
fi
