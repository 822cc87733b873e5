#!/bin/bash
# SPDX-License-Identifier: MIT
# Runs bench_model for an instant: what it prints, what its JSON has, how it fails; and, where there is Python, whether
# compare_llama_cpp.py understands it beside a program that answers as llama-bench does. No time is judged.
# usage: check_bench_model.sh PROGRAM MODEL CMAKE        MODEL is the one that ships
set -euo pipefail
program=$1 model=$2 cmake=$3
compare=$(cd "$(dirname "$0")/../../bench" && pwd)/compare_llama_cpp.py
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
checked=0 faults=0
fault() {
  echo "$*"
  faults=$((faults + 1))
}

# ---- What it measures -------------------------------------------------------------------------------------

measures() {  # NUMBER_OF_RESULTS ARGUMENT…
  local wanted=$1 status=0 lines
  shift
  checked=$((checked + 1))
  "$program" "$model" --repetitions 2 "$@" > "$work/out" 2> "$work/err" || status=$?
  if ((status != 0)) || [[ -s $work/err ]]; then
    fault "$*: exit status $status, on standard error: $(head -c 300 "$work/err")"
  fi
  lines=$(grep -cE '^(prefill|decode) [0-9]+ .* \[.* \.\. .*\] ' "$work/out") || true
  ((lines == wanted)) || fault "$*: $lines results, expected $wanted: $(< "$work/out")"
}
says() { grep -qE -- "$1" "$work/out" || fault "the output has no /$1/: $(< "$work/out")"; }

measures 24 --prompt 9 --gen 3 --depth 5,0 --batch 3,1 --threads 1,2 --cache-format f32,f16 --json "$work/results.json"
says '^prefill 9 +exact +f16 +mapped +5 +1 +2 '
says '^decode 3 +exact +f32 +mapped +0 +3 +1 '
# Columns end where their titles do: all but the names are to the right.
[[ $(grep -E '^(test|prefill|decode) ' "$work/out" | awk '{ print length($0) }' | sort -u | wc -l) == 1 ]] ||
  fault "the table is not aligned: $(< "$work/out")"
measures 4 --prompt 9 --gen 3 --threads 2 --activations exact,int8
says '^decode 3 +int8 +f32 +mapped +0 +1 +2 '
measures 2 --prompt 0 --gen 3 --threads 2 --weights mapped,huge-pages
says '^decode 3 +exact +f32 +huge-pages +0 +1 +2 '
measures 2 --prompt 0 --gen 3 --threads 2 --weights q8_0,q4_0 --activations int8
says '^decode 3 +int8 +f32 +q4_0 +0 +1 +2 '
measures 1 --prompt 512 --gen 0 --threads 1
measures 1 --threads 1 --prompt 0 --gen 1 --depth 511
measures 1 --prompt 1 --gen 0 --threads 1 --depth 511,512
says '^prefill 1 at depth 512 is skipped: the model ends at 512 positions$'

cat > "$work/fields.cmake" <<'END'
file(READ "${FILE}" json)
function(expect wanted)
  string(JSON value GET "${json}" ${ARGN})
  if(NOT value MATCHES "^(${wanted})$")
    message(FATAL_ERROR "${ARGN}: ${value}, expected ${wanted}")
  endif()
endfunction()
set(number "[0-9.]+(e[-+]?[0-9]+)?")
expect("LlamaForCausalLM" model architecture)
expect("2474240(\\.0)?" model weight_bytes_per_token)  # bf16: 6 layers of 184320, 1024 x 128, and a row of 128
expect("2473984(\\.0)?" model weight_flops_per_token)
expect("2477312" model formats bf16)
string(JSON n_machines LENGTH "${json}" machine)
string(JSON n_results LENGTH "${json}" results)
string(JSON n_skipped LENGTH "${json}" skipped)
if(NOT "${n_machines} ${n_results} ${n_skipped}" STREQUAL "2 24 0")
  message(FATAL_ERROR "machines, results, skipped: ${n_machines} ${n_results} ${n_skipped}, expected 2 24 0")
endif()
expect("2" machine 1 threads)
expect("${number}" machine 1 read_bytes_per_second)
expect("${number}" machine 1 flops_per_second)
foreach(i RANGE 23)
  expect("prefill|decode" results ${i} test)
  expect("9|3" results ${i} n_tokens)
  expect("exact" results ${i} activations)
  expect("f32|f16" results ${i} cache_format)
  expect("1|2" results ${i} threads)
  expect("1|3" results ${i} batch)
  expect("0|5" results ${i} depth)
  foreach(field IN ITEMS median min max)
    expect("${number}" results ${i} tokens_per_second ${field})
    string(JSON ${field} GET "${json}" results ${i} tokens_per_second ${field})
  endforeach()
  if(min GREATER median OR median GREATER max)
    message(FATAL_ERROR "results ${i} tokens_per_second: ${median} [${min} .. ${max}]")
  endif()
  string(JSON n_seconds LENGTH "${json}" results ${i} seconds)
  if(NOT n_seconds EQUAL 2)
    message(FATAL_ERROR "results ${i} seconds: ${n_seconds} of them, expected 2")
  endif()
  expect("${number}" results ${i} share_of_fma_peak)
  string(JSON test GET "${json}" results ${i} test)
  string(JSON read_type TYPE "${json}" results ${i} share_of_read_bandwidth)
  if(NOT "${test} ${read_type}" MATCHES "^(prefill NULL|decode NUMBER)$")
    message(FATAL_ERROR "results ${i} share_of_read_bandwidth: ${test} ${read_type}")
  endif()
  string(JSON memory_type TYPE "${json}" results ${i} peak_memory_bytes)
  if(NOT memory_type MATCHES "^(NULL|NUMBER)$")
    message(FATAL_ERROR "results ${i} peak_memory_bytes: ${memory_type}")
  endif()
endforeach()
END
checked=$((checked + 1))
"$cmake" "-DFILE=$work/results.json" -P "$work/fields.cmake" || faults=$((faults + 1))

# ---- How it fails: one line on standard error, and nothing is measured -------------------------------------

fails() {  # STATUS REGEX COMMAND…
  local wanted=$1 regex=$2 status=0
  shift 2
  checked=$((checked + 1))
  "$@" > "$work/out" 2> "$work/err" || status=$?
  if ((status != wanted || $(wc -l < "$work/err") != 1)) || [[ -s $work/out ]] || ! grep -qE -- "$regex" "$work/err"; then
    fault "$*: exit status $status, expected $wanted and /$regex/: $(head -c 300 "$work/out" "$work/err")"
  fi
}
bench=("$program" "$model")

fails 2 'MODEL is required' "$program"
fails 2 'threads.* 0 ' "${bench[@]}" --threads 0
fails 2 'threads.* x ' "${bench[@]}" --threads 1,x
fails 2 'batch.* 0 ' "${bench[@]}" --batch 1,0
fails 2 'depth.* -1 ' "${bench[@]}" --depth -1
fails 2 'depth.* 99999999999999999999 ' "${bench[@]}" --depth 99999999999999999999
fails 2 'prompt.* -1 ' "${bench[@]}" --prompt -1
fails 2 'gen.* many ' "${bench[@]}" --gen many
fails 2 'repetitions.* 0 ' "${bench[@]}" --repetitions 0
fails 2 'activations: int4 ' "${bench[@]}" --activations exact,int4
fails 2 'cache-format: f64 ' "${bench[@]}" --cache-format f64
fails 2 'not expected: 2' "${bench[@]}" --threads 1 2
fails 2 'nothing to measure' "${bench[@]}" --prompt 0 --gen 0
fails 2 'unknown' "${bench[@]}" --unknown
fails 1 'nothing to measure.* 512 positions' "${bench[@]}" --depth 512
fails 1 'does not exist' "$program" "$work/nowhere"
fails 1 'cannot be created' "${bench[@]}" --json "$work/nowhere/results.json"
mkdir "$work/broken"
cp "$model/config.json" "$work/broken"
head -c 1000 "$model/model.safetensors" > "$work/broken/model.safetensors"
fails 1 'model.safetensors' "$program" "$work/broken"

# ---- Beside another program -------------------------------------------------------------------------------

if command -v python3 > /dev/null; then
  mkdir -p "$work/build/bin" "$work/failing/bin"
  # Twice as slow at the first call as at the others.
  cat > "$work/build/bin/llama-bench" <<END
#!/bin/bash
echo "\$*" >> "$work/calls"
[[ \$(wc -l < "$work/calls") == 1 ]] && rate=1.0 || rate=2.0
echo '[{"n_prompt": 9, "n_gen": 0, "avg_ts": '\$rate'}, {"n_prompt": 0, "n_gen": 3, "avg_ts": 4.0}]'
END
  printf '#!/bin/bash\necho "no such model" >&2\nexit 3\n' > "$work/failing/bin/llama-bench"
  chmod +x "$work"/{build,failing}/bin/llama-bench
  # A file of any kind: the program in bench_model's place measures the model that ships instead.
  printf '#!/bin/bash\nshift\nexec "%s" "%s" "$@"\n' "$program" "$model" > "$work/bench_model"
  chmod +x "$work/bench_model"
  touch "$work/some.gguf"
  ours=(--bench-model "$work/bench_model" --prompt 9 --gen 3)

  checked=$((checked + 1))
  "$compare" "$work/build" "$work/some.gguf" "${ours[@]}" --threads 1,2 --repetitions 3 --json "$work/compared.json" \
    > "$work/out" 2> "$work/err" || fault "compare_llama_cpp.py: $(head -c 300 "$work/err")"
  says '^some.gguf +1 +prefill 9 +exact +2\.0 +[0-9,.]+ +[0-9.]+ +-$'
  says '^some.gguf +2 +decode 3 +exact +4\.0 +[0-9,.]+ +[0-9.]+ +[0-9]+%$'
  [[ $(sort "$work/calls" | uniq -c | awk '{ print $1 }' | paste -sd ' ') == "3 3" ]] || fault "$(< "$work/calls")"
  grep -q -- "-m $work/some.gguf -p 9 -n 3 -t 2 " "$work/calls" || fault "$(< "$work/calls")"
  python3 - "$work/compared.json" <<'END' || faults=$((faults + 1))
import json, statistics, sys
rows = json.load(open(sys.argv[1]))
assert [(row["threads"], row["test"]) for row in rows] == [(n, test) for n in (1, 2) for test in ("prefill", "decode")], rows
for row in rows:
    assert len(row["llama_cpp"]["samples"]) == len(row["kvdecode"]["samples"]) == 3, row
    assert row["kvdecode"]["median"] == statistics.median(row["kvdecode"]["samples"]), row
    assert row["ratio"] == row["kvdecode"]["median"] / row["llama_cpp"]["median"], row
END

  fails 2 'threads.*x' "$compare" "$work/build" "$work/some.gguf" "${ours[@]}" --threads x
  fails 2 'required' "$compare" "$work/build"
  fails 2 'nothing to measure' "$compare" "$work/build" "$work/some.gguf" --prompt 0 --gen 0
  fails 1 'bin/llama-bench: does not exist' "$compare" "$work/nowhere" "$work/some.gguf" "${ours[@]}"
  fails 1 'other: does not exist' "$compare" "$work/build" "$work/some.gguf" --bench-model "$work/other"
  fails 1 'other.gguf: is not a file' "$compare" "$work/build" "$work/other.gguf" "${ours[@]}"
  # What the program said stands below.
  "$compare" "$work/failing" "$work/some.gguf" "${ours[@]}" > "$work/out" 2> "$work/err" && fault "a failing llama-bench is not noticed"
  [[ $(< "$work/err") == *"exit status 3"$'\n'"  no such model" ]] || fault "$(< "$work/err")"
fi

echo "$checked runs, $faults wrong"
((faults == 0))
