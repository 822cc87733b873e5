#!/bin/bash
# SPDX-License-Identifier: MIT
# Proves that the C++ of the pages is code that is compiled and run: of README.md and of examples/README*.md. Each
# ```cpp block of a page follows a line
#   <!-- [readme] FILE -->
# and equals, without common indentation, a region of FILE between two lines `// [readme]`: the first block of a page
# that names a file shows its first region, the next one its next region. A page that shows a region of a file shows
# all of them, and no file has regions that no page shows.
# usage: check_readme.sh [REPOSITORY]
set -euo pipefail
cd "${1:-$(dirname "$0")/../..}"
[[ -f README.md ]] || { echo "no README.md in $PWD"; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
faults=0
blocks=0
page=README.md
fault() {
  echo "$page: $*"
  faults=1
}

# Writes block i of the page to $work/block.i and prints the file that each block names.
named_files() {
  awk -v work="$work" '
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
  ' "$page"
}

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

declare -A shown=()  # "PAGE FILE" -> regions
compare_blocks() {
  local block=0 source index
  local -a named
  mapfile -t named < <(named_files)
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
      index=${shown["$page $source"]:-0}
      shown["$page $source"]=$((index + 1))
      region "$source" "$index" > "$work/region"
      if [[ ! -s $work/region ]]; then
        fault "$source has no region $((index + 1))"
      elif ! diff -u --label "$page" --label "$source" "$work/block.$block" "$work/region"; then
        fault "block $((block + 1)) is not region $((index + 1)) of $source"
      fi
    fi
    block=$((block + 1))
  done
  blocks=$((blocks + block))
}

pages=(README.md)
for page in examples/README*.md; do
  [[ ! -f $page ]] || pages+=("$page")
done
for page in "${pages[@]}"; do
  compare_blocks
done

while IFS=: read -r source marks; do
  page=$source
  ((marks % 2 == 0)) || fault "a region is not closed"
  most=0
  for page in "${pages[@]}"; do
    n=${shown["$page $source"]:-0}
    ((n == 0 || n == marks / 2)) || fault "$source has $((marks / 2)) regions, $n shown"
    ((n <= most)) || most=$n
  done
  page=$source
  ((most > 0)) || fault "$source has $((marks / 2)) regions, 0 shown"
done < <(grep -rcE --include='*.cpp' --include='*.hpp' '^[[:space:]]*// \[readme\][[:space:]]*$' examples tests bench | grep -v ':0$' || true)

echo "$blocks blocks compared"
exit "$faults"
