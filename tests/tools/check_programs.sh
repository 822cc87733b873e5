#!/bin/bash
# SPDX-License-Identifier: MIT
# How the programs fail: bad arguments give exit status 2, what cannot be done gives 1, each with one line on standard error
# and nothing on standard output.
# usage: check_programs.sh FOLDER_OF_PROGRAMS MODEL
set -euo pipefail
programs=$1 model=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
checked=0 faults=0

expect() {  # STATUS PROGRAM ARGUMENT…
  local wanted=$1 program=$2 status=0
  shift 2
  "$programs/$program" "$@" > "$work/out" 2> "$work/err" || status=$?
  checked=$((checked + 1))
  local lines
  lines=$(wc -l < "$work/err")
  if ((status != wanted || lines != 1)) || [[ -s $work/out ]]; then
    echo "$program $*: exit status $status, expected $wanted; $lines lines on standard error: $(head -c 300 "$work/err")"
    faults=$((faults + 1))
  fi
}

mkdir "$work/empty" "$work/broken"
cp "$model/config.json" "$model/tokenizer.json" "$work/broken"
head -c 1000 "$model/model.safetensors" > "$work/broken/model.safetensors"
out=$work/out.safetensors

expect 2 logits
expect 2 logits "$model"
expect 2 logits "$model" --tokens 1,2
expect 2 logits "$model" --tokens 1,x --output "$out"
expect 2 logits "$model" --tokens 1 --output "$out" --strategy other
expect 2 logits "$model" --tokens 1 --output "$out" --chunk 0
expect 2 logits "$model" --tokens 1 --output "$out" --threads 0
expect 2 logits "$model" --tokens 1 --output "$out" --scalar f16
expect 2 logits "$model" --tokens 1 --output "$out" --greedy -1
expect 2 logits "$model" --tokens 1 --output "$out" --unknown
expect 1 logits "$work/nowhere" --tokens 1 --output "$out"
expect 1 logits "$work/empty" --tokens 1 --output "$out"
expect 1 logits "$work/broken" --tokens 1 --output "$out"
expect 1 logits "$model" --tokens 1,1024 --output "$out"
expect 1 logits "$model" --tokens=-1 --output "$out"
expect 1 logits "$model" --tokens 1 --output "$work/nowhere/out.safetensors"
expect 2 generate "$model"
expect 2 generate --prompt x
expect 2 generate "$model" --prompt x --temperature -1
expect 2 generate "$model" --prompt x --top-p 0
expect 2 generate "$model" --prompt x --top-k -1
expect 2 generate "$model" --prompt x --max-new-tokens many
expect 1 generate "$work/nowhere" --prompt x
expect 1 generate "$work/broken" --prompt x
expect 1 generate "$model" --prompt ""
expect 1 generate "$model" --prompt $'a\xff'
expect 2 compare --max-new-tokens 0
expect 2 compare --threads x
expect 1 compare "$work/nowhere"
expect 1 compare "$work/broken"
expect 2 inspect
expect 2 inspect "$model" --measure 0
expect 2 inspect "$model" --max-seq-len none
expect 1 inspect "$work/nowhere"
expect 1 inspect "$work/broken"
expect 1 inspect "$work/broken" --measure

echo "$checked calls, $faults not as expected"
((faults == 0))
