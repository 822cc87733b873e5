#!/bin/bash
# SPDX-License-Identifier: MIT
# Proves that the C++ of the README is code that is compiled and run. Each ```cpp block of the README follows a line
#   <!-- [readme] FILE -->
# and equals, without common indentation, a region of FILE between two lines `// [readme]`: the first block that
# names a file shows its first region, the next one its next region, and no region is left out.
# usage: check_readme.sh [REPOSITORY]
set -euo pipefail
cd "${1:-$(dirname "$0")/../..}"
[[ -f README.md ]] || { echo "no README.md in $PWD"; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
faults=0
fault() {
  echo "README.md: $*"
  faults=1
}

# Writes block i of the README to $work/block.i and prints the file that each block names.
mapfile -t named < <(awk -v work="$work" '
  in_block && /^```/ { in_block = 0; close(out); next }
  in_block { print > out; next }
  /^```cpp[ \t]*$/ {
    out = work "/block." n++
    printf "" > out
    print (source == "" ? "-" : source)
    in_block = 1
    source = ""
    next
  }
  /^<!-- \[readme\] .* -->$/ { source = $3; next }
  { if (source != "") { print "!" source; source = "" } }
' README.md)

# Prints region number $2 of file $1, without its common indentation.
region() {
  awk -v wanted="$2" '
    /^[ \t]*\/\/ \[readme\][ \t]*$/ { if (inside) n++; inside = !inside; next }
    inside && n == wanted {
      lines[count++] = $0
      if ($0 ~ /[^ ]/) { match($0, /^ */); if (count == 1 || RLENGTH < indent) indent = RLENGTH }
    }
    END { for (i = 0; i < count; i++) print substr(lines[i], indent + 1) }
  ' "$1"
}

declare -A shown=()
block=0
for source in "${named[@]}"; do
  if [[ $source == "!"* ]]; then
    fault "no \`\`\`cpp block follows <!-- [readme] ${source#!} -->"
    continue
  fi
  if [[ $source == "-" ]]; then
    fault "\`\`\`cpp block $((block + 1)) names no file"
  elif [[ ! -f $source ]]; then
    fault "$source does not exist"
  else
    index=${shown[$source]:-0}
    shown[$source]=$((index + 1))
    region "$source" "$index" > "$work/region"
    if [[ ! -s $work/region ]]; then
      fault "$source has no region $((index + 1))"
    elif ! diff -u --label README.md --label "$source" "$work/block.$block" "$work/region"; then
      fault "block $((block + 1)) is not region $((index + 1)) of $source"
    fi
  fi
  block=$((block + 1))
done

while IFS=: read -r source marks; do
  ((marks % 2 == 0)) || fault "$source: a region is not closed"
  ((marks / 2 == ${shown[$source]:-0})) || fault "$source has $((marks / 2)) regions, ${shown[$source]:-0} shown"
done < <(grep -rcE --include='*.cpp' --include='*.hpp' '^[[:space:]]*// \[readme\][[:space:]]*$' examples tests bench | grep -v ':0$' || true)

echo "$block blocks compared"
exit "$faults"
