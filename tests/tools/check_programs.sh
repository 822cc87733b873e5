#!/bin/bash
# SPDX-License-Identifier: MIT
# How the programs fail: bad arguments give exit status 2, what cannot be done gives 1, each with one line on standard error
# and nothing on standard output. What is said of arguments is short enough to be read. Nor does any file that lies make them do otherwise.
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
  if ((status != wanted || lines != 1 || wanted == 2 && $(wc -c < "$work/err") > 300)) || [[ -s $work/out ]]; then
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
expect 1 logits --tokens 1,2 "$work/nowhere" --output "$out"
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
expect 2 generate "$model" --prompt x --cache-format int5
expect 2 generate "$model" --prompt x --cache-format int8,had_int4
expect 1 generate "$work/nowhere" --prompt x
expect 2 cache_formats --windows -1
expect 1 cache_formats "$work/nowhere"
expect 1 cache_formats "$model" --text "$work/nowhere"
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

# ---- Files that lie ---------------------------------------------------------------------------------------

# A folder or file that no program can run. None of them may ask for much memory, or wait.
refuse() {  # MODEL
  local logits=(logits "$1" --tokens 1 --output "$out") generate=(generate "$1" --prompt x) compare=(compare "$1")
  ulimit -S -v 2000000
  expect 1 "${logits[@]}"
  ! grep -q "not enough memory" "$work/err" || { echo "logits $1: $(< "$work/err")"; faults=$((faults + 1)); }
  expect 1 "${generate[@]}"
  expect 1 "${compare[@]}"
  ulimit -S -v unlimited
}

# A copy of the model, in a folder of its own, whose files are the model's until they are changed.
n_copies=0
copy() {
  n_copies=$((n_copies + 1))
  folder=$work/copy-$n_copies
  mkdir "$folder"
  ln -s "$(realpath "$model")"/{config.json,tokenizer.json,model.safetensors} "$folder"
}
truncated() {  # FILE BYTES
  copy
  rm "$folder/$1"
  head -c "$2" "$model/$1" > "$folder/$1"
}
edited() {  # FILE SED_COMMAND
  copy
  rm "$folder/$1"
  sed -e "$2" "$model/$1" > "$folder/$1"
  ! cmp -s "$model/$1" "$folder/$1" || { echo "sed $2 changes nothing in $1"; faults=$((faults + 1)); }
}

copy
expect_works() { "$programs/logits" "$folder" --tokens 1 --output "$out" || faults=$((faults + 1)); }
expect_works

n=$(stat -c %s "$model/model.safetensors")
for size in 0 1 7 8 9 100 1000 10000 $((n / 2)) $((n - 1)); do
  truncated model.safetensors "$size"
  refuse "$folder"
done
truncated model.safetensors "$n"
printf x >> "$folder/model.safetensors"
refuse "$folder"
for length in '\xff\xff\xff\xff\xff\xff\xff\xff' '\0\0\0\0\1\0\0\0' '\xff\xe0\xf5\5\0\0\0\0' '\0\0\0\0\0\0\0\0'; do
  truncated model.safetensors "$n"
  printf "$length" | dd of="$folder/model.safetensors" conv=notrunc status=none
  refuse "$folder"
done

n=$(stat -c %s "$model/config.json")
for size in 0 1 2 50 $((n / 2)) $((n - 3)); do
  truncated config.json "$size"
  refuse "$folder"
done
for size in 0 -1 0.5 '"6"' null '[]' 7 4096 1073741824 4294967296 9223372036854775807 18446744073709551616 1e999 NaN Infinity; do
  edited config.json "s/\"num_hidden_layers\": 6/\"num_hidden_layers\": $size/"
  refuse "$folder"
done
for field in vocab_size hidden_size intermediate_size num_attention_heads num_key_value_heads head_dim; do
  for size in 0 1073741824 4611686018427387904; do
    edited config.json "s/\"$field\": [0-9]*/\"$field\": $size/"
    refuse "$folder"
  done
done
edited config.json 's/"rope_theta": 10000.0/"rope_theta": 1e-320/'
refuse "$folder"
edited config.json 's/LlamaForCausalLM/Llama\\nForCausalLM/'
refuse "$folder"
edited config.json 's/"mlp_bias"/"vocab_size": 1024, "mlp_bias"/'
refuse "$folder"
edited config.json "s/\"mlp_bias\": false/\"mlp_bias\": $(printf '[%.0s' {1..5000})/"
refuse "$folder"

index=model.safetensors.index.json
for place in '"../model.safetensors"' '"/etc/passwd"' '"other.safetensors"' '"model.safetensors\u0000"' 1 null '[]'; do
  copy
  mv "$folder/model.safetensors" "$folder/whole.safetensors"
  printf '{"weight_map": {"model.norm.weight": %s}}' "$place" > "$folder/$index"
  refuse "$folder"
done
for text in '' '{' '[]' '{}' '{"weight_map": {}}' '{"weight_map": {"a": "whole.safetensors"}}'; do
  copy
  mv "$folder/model.safetensors" "$folder/whole.safetensors"
  printf '%s' "$text" > "$folder/$index"
  refuse "$folder"
done

# The weights alone are in order, and logits has no use for a tokenizer.
n=$(stat -c %s "$model/tokenizer.json")
for size in 0 1 100 10000 $((n / 2)) $((n - 3)); do
  truncated tokenizer.json "$size"
  expect 1 generate "$folder" --prompt x
done
copy
rm "$folder/tokenizer.json"
expect 1 generate "$folder" --prompt x
for text in '[]' '{"model":{"type":"BPE","vocab":{"\n":2147483647},"merges":[]}}' \
            '{"model":{"type":"BPE","vocab":{"a":0},"merges":["\n a"]}}' \
            '{"model":{"type":"Uni\ngram","vocab":[]}}' '{"model":{"type":"BPE","vocab":{"a":0},"merges":[]}} x'; do
  copy
  rm "$folder/tokenizer.json"
  printf '%s' "$text" > "$folder/tokenizer.json"
  expect 1 generate "$folder" --prompt x
done

for name in config.json model.safetensors; do
  copy
  rm "$folder/$name"
  refuse "$folder"
  mkdir "$folder/$name"
  refuse "$folder"
  rmdir "$folder/$name"
  mkfifo "$folder/$name"
  refuse "$folder"
done
refuse "$work/no"$'\n'"where"

gguf() {  # BYTES_FOR_PRINTF
  printf "$1" > "$work/model.gguf"
  refuse "$work/model.gguf"
}
version='GGUF\3\0\0\0' none='\0\0\0\0\0\0\0\0' huge='\0\0\0\0\0\1\0\0' endless='\xff\xff\xff\xff\xff\xff\xff\xff'
gguf ''
gguf GGUF
gguf 'FUGG\3\0\0\0'
gguf "$version"
gguf "$version$none"
gguf "$version$none$none"
gguf "$version$huge$none"
gguf "$version$none$huge"
gguf "$version$none$endless"
gguf "$version$endless$endless"
gguf "$version$none"'\1\0\0\0\0\0\0\0'"$endless"
gguf "$version$none"'\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0k\x9\0\0\0\4\0\0\0'"$huge"
gguf 'GGUF\4\0\0\0'"$none$none"
gguf 'GGUF\0\0\0\3'"$none$none"
refuse "$model/model.safetensors"
refuse "$model/config.json"

# Where every token ends a text, nothing is written, unless that is to be ignored.
edited config.json "s/\"eos_token_id\": 0/\"eos_token_id\": [$(seq -s ', ' 0 1023)]/"
text_of() { "$programs/generate" "$@" --prompt ROMEO: --max-new-tokens 8 2> /dev/null; }
text=$(text_of "$model")
if [[ -z $text || -n $(text_of "$folder") || $(text_of "$folder" --ignore-eos) != "$text" ]]; then
  echo "generate --ignore-eos: \"$(text_of "$folder" --ignore-eos)\", expected \"$text\""
  faults=$((faults + 1))
fi
checked=$((checked + 1))

echo "$checked calls, $faults not as expected"
((faults == 0))
