#!/bin/bash
# SPDX-License-Identifier: MIT
# Proves that a page shows what a program prints. The ```text block after a line
#   <!-- [output] examples/NAME -->
# equals the program's output. Lines that begin with "~" tell what one machine measured (times): of those every number
# and the blanks between are left out of the comparison, the words are not.
# usage: check_output.sh [--write] PROGRAM PAGE…     --write: puts the output into the pages instead
set -euo pipefail
write=false
if [[ ${1:-} == --write ]]; then
  write=true
  shift
fi
program=$1 name=$(basename "$1")
shift

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
"$program" > "$work/output" || status=$?
if ((status != 0)); then
  cat "$work/output"
  echo "$name: exit status $status: a claim is false"
  exit 1
fi

masked() { sed -E '/^~/ { s/[0-9][0-9.,]*/#/g; s/ +/ /g }' "$1"; }

faults=0
for page in "$@"; do
  if $write; then
    awk -v mark="<!-- [output] examples/$name -->" -v output="$work/output" '
      in_block && /^```$/ { in_block = 0; while ((getline line < output) > 0) print line; close(output) }
      !in_block { print }
      marked && /^```text$/ { in_block = 1 }
      { marked = $0 == mark }
    ' "$page" > "$work/page"
    cat "$work/page" > "$page"
    continue
  fi
  awk -v mark="<!-- [output] examples/$name -->" '
    in_block && /^```$/ { exit }
    in_block { print }
    marked && /^```text$/ { in_block = 1; n++ }
    { marked = $0 == mark }
  ' "$page" > "$work/block"
  if [[ ! -s $work/block ]]; then
    echo "$page: no \`\`\`text block follows <!-- [output] examples/$name -->"
    faults=1
  elif ! diff -u --label "$page" --label "$name" <(masked "$work/block") <(masked "$work/output"); then
    echo "$page: is not what $name prints (tests/tools/check_output.sh --write puts it there)"
    faults=1
  fi
done
exit "$faults"
