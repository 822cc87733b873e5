#!/bin/bash
# SPDX-License-Identifier: MIT
# Holds conversations with `chat`: what goes to standard output and what does not, every command, Ctrl-C, exit statuses.
# usage: check_chat.sh CHAT MODEL    MODEL has no chat template of its own
set -uo pipefail
chat=$1 model=$2
work=$(mktemp -d)
pid=
trap '' PIPE  # a program that is gone is a fault to report
trap '[[ -z $pid ]] || kill -KILL "$pid" 2> "$work/kill"; rm -rf "$work"' EXIT
checked=0 faults=0

fault() {
  echo "$*"
  echo "  standard error: $(head -c 400 "$work/err")"
  faults=$((faults + 1))
}
check() {  # SENTENCE COMMAND…
  local sentence=$1
  shift
  checked=$((checked + 1))
  "$@" || fault "not so: $sentence"
}

cat > "$work/scene" <<'TEMPLATE'
{%- if messages[-1].content == 'steer' %}{{ raise_exception('ESC[7Dto the left') }}{% endif -%}
{%- for m in messages -%}
{%- if m.role == 'system' %}{{ m.content + '\n\n' }}
{%- elif m.role == 'user' %}{{ 'ROMEO:\n' + m.content + '\n\n' }}
{%- else %}{{ 'JULIET:\n' + m.content + '\n\n' }}{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ 'JULIET:\n' }}{% endif -%}
TEMPLATE
sed -i $'s/ESC/\033/' "$work/scene"

# Runs chat on the lines of $1; its output is then $work/out, its errors $work/err. Exit status 0 is expected.
converse() {  # LINES ARGUMENT…
  local lines=$1 status=0
  shift
  printf "$lines" | "$chat" "$model" --template "$work/scene" --temperature 0 --max-new-tokens 24 "$@" \
    > "$work/out" 2> "$work/err" || status=$?
  checked=$((checked + 1))
  ((status == 0)) || fault "$lines: exit status $status, expected 0"
}
answers() {  # NAME… : the output is these answers, one after another
  local name files=()
  for name in "$@"; do files+=("$work/answer.$name"); done
  cmp -s "$work/out" <(cat "${files[@]}")
}
says() { grep -qF -- "$1" "$work/err"; }  # TEXT
n_lines() { (($(wc -l < "$work/err") == $1)); }

# ---- A conversation ---------------------------------------------------------------------------------------

converse 'Good morrow.\n'
cp "$work/out" "$work/answer.first"
check "an answer is written" test -s "$work/out"
check "an answer that is cut is said to be" says "(cut after 24 tokens"
converse 'Good morrow.\nWhat is love?\n'
tail -c +$(($(wc -c < "$work/answer.first") + 1)) "$work/out" > "$work/answer.second"
check "the second answer follows the first" answers first second
check "the second answer is another one" test -s "$work/answer.second"
check "nothing steers a terminal" test -z "$(tr -cd '\033\r' < "$work/out" | cat - <(tr -cd '\033\r' < "$work/err"))"
check "there is no prompt" test -z "$(grep '^> ' "$work/out" "$work/err")"
converse 'Good morrow.\nWhat is love?' --strategy recompute
check "without the cache the answers are the same" answers first second
converse 'Good morrow.\r\n\n  \nWhat is love?\r\n' --threads 2
check "line ends, empty lines and threads change nothing" answers first second
converse 'Good morrow.\nWhat is love?\n' --system 'Verona. A public place.'
check "the system text is heard" test "$(cmp -s "$work/out" "$work/answer.first"; echo $?)" = 1
cp "$work/out" "$work/answer.in_verona"
converse ''
check "of nothing comes nothing" test ! -s "$work/out" -a ! -s "$work/err"

# ---- Commands ---------------------------------------------------------------------------------------------

converse 'Good morrow.\n/stats\n/help\n/nonsense\nWhat is love?\n/quit\nGood morrow.\n'
check "commands write to standard error alone, and /quit leaves" answers first second
check "/stats tells positions" says "of 512 used"
check "/stats tells the speed" says "tokens/s"
check "/help lists commands" says "/regenerate"
check "an unknown command has a line" says "there is no command /nonsense"
converse 'Good morrow.\n/undo\nGood morrow.\nWhat is love?\n/regenerate\n'
check "/undo takes back, /regenerate answers anew" answers first first second second
converse 'Good morrow.\nWhat is love?\n/clear\nGood morrow.\nWhat is love?\n'
check "/clear begins anew" answers first second first second
converse '/system Verona. A public place.\nGood morrow.\nWhat is love?\n/clear\n/system\nGood morrow.\n'
check "/system sets and empties the system text" answers in_verona first
converse '/undo\n/regenerate\n/save\n/load\n'
check "commands without what they need have a line each" n_lines 4
converse 'What is \\\nlove?\n'
check "a line that goes on is one question" test -s "$work/out" -a "$(grep -cF '(cut' "$work/err")" -le 1
cp "$work/out" "$work/answer.lines"
converse 'What is\nlove?\n'
check "other than two lines" test "$(cmp -s "$work/out" "$work/answer.lines"; echo $?)" = 1
converse '//help\n'
check "a message may begin with /" test -s "$work/out" -a "$(grep -cF /regenerate "$work/err")" = 0

converse "Good morrow.\n/save $work/saved.json\n"
check "/save says so" says "1 exchange in $work/saved.json"
converse "/load $work/saved.json\nWhat is love?\n"
check "a loaded conversation goes on" answers second
for broken in '{' '{"format": "kvdecode conversation", "version": 1, "messages": [{"role": "user", "content": "x"}]}' \
  '{"format": "kvdecode conversation", "version": 1, "messages": 3}'; do
  printf '%s' "$broken" > "$work/broken.json"
  converse "Good morrow.\n/load $work/broken.json\nWhat is love?\n"
  check "a malformed file changes nothing: $broken" answers first second
  check "a malformed file has one line: $broken" test "$(grep -cF "$work/broken.json" "$work/err")" = 1
  check "no line more: $broken" n_lines 3
done
echo precious > "$work/letter"
converse "Good morrow.\n/save $work/letter\n/save $work/nowhere/x\n/save $work/saved.json\n"
check "/save replaces no other file" test "$(cat "$work/letter")" = precious
check "/save replaces a conversation, and fails in one line" n_lines 4

# ---- What goes wrong --------------------------------------------------------------------------------------

converse 'Good morrow.\n\xff\xfe\nWhat is love?\n'
check "invalid UTF-8 is not sent" answers first second
check "invalid UTF-8 has a line" says "not valid UTF-8"
converse "$(head -c 3000000 /dev/zero | tr '\0' a)"'\nGood morrow.\n'
check "an endless line is not sent" answers first
check "an endless line has a line" says "more than 1 MiB"
converse 'Good morrow.\nWhat is love? And what is it not? Speak, and speak at length of all of this.\n/clear\nGood morrow.\n' \
  --max-seq-len 48
check "a full context refuses the question only" answers first first
check "a full context names the way out" says "/clear"
converse 'Good morrow.\n' --max-seq-len 24
check "a context that fills ends the answer" says "(cut: all 24 positions are used; /undo"
converse "Good morrow.\nWhat is love?\n/save $work/two.json\n"
converse "Good morrow.\n/load $work/two.json\n/regenerate\n" --max-seq-len 60
check "a conversation that does not fit is not loaded" answers first first
check "and that has a line" says "more than max_seq_len 60"

fails() {  # STATUS ARGUMENT…
  local wanted=$1 status=0
  shift
  "$chat" "$@" > "$work/out" 2> "$work/err" < /dev/null || status=$?
  checked=$((checked + 1))
  if ((status != wanted)) || [[ -s $work/out ]] || ! n_lines 1; then
    fault "chat $*: exit status $status, expected $wanted with one line on standard error alone"
  fi
}
echo '{% if %}' > "$work/no_template"
echo "{{ raise_exception('ask somebody else') }}" > "$work/no_answer"
echo "{% if messages[0].role == 'system' %}{{ raise_exception('no system text') }}{% endif %}x" > "$work/no_system"
fails 2
fails 2 "$model" --template "$work/scene" --threads 0
fails 2 "$model" --template "$work/scene" --temperature -1
fails 2 "$model" --template "$work/scene" --top-p 0
fails 2 "$model" --template "$work/scene" --top-k -1
fails 2 "$model" --template "$work/scene" --seed x
fails 2 "$model" --template "$work/scene" --strategy other
fails 2 "$model" --template "$work/scene" --scalar f16
fails 2 "$model" --template "$work/scene" --max-new-tokens 0
fails 2 "$model" --template "$work/scene" --max-seq-len -1
fails 2 "$model" --template "$work/scene" --unknown
fails 1 "$model"
check "it is said that the model has no template" says "has no chat template"
fails 1 "$work/nowhere"
fails 1 "$model" --template "$work/nowhere"
fails 1 "$model" --template "$work/no_template"
fails 1 "$model" --template "$work/no_system" --system x
check "the option is named" says "--system: no system text"
fails 1 "$model" --template "$work/no_answer"
fails 1 "$model" --template "$work/scene" --max-seq-len 8 --system 'More than eight tokens, be they never so long.'
fails 1 "$model" --template "$work/scene" --system $'\xff'
printf 'Good morrow.\nO!\n' | "$chat" "$model" --template "$work/scene" > /dev/full 2> "$work/err"
check "an answer that cannot be written ends the program" test "${PIPESTATUS[1]}" = 1

# ---- Ctrl-C -----------------------------------------------------------------------------------------------

is_gone() { ! kill -0 "$pid" 2> "$work/kill"; }
until_true() {  # COMMAND… within 30 s, or before the program is gone
  local i
  for ((i = 0; i < 600; ++i)); do
    "$@" && return 0
    if is_gone; then
      "$@"
      return
    fi
    sleep 0.05
  done
  return 1
}
leaves() {  # STATUS
  local status=0
  until_true is_gone || return 1
  wait "$pid" || status=$?
  pid=
  ((status == $1))
}

answer_without_end() {  # FILE : a conversation in the background; it reads what comes on descriptor 3
  "$chat" "$model" --template "$work/scene" --temperature 0 --max-new-tokens 1000000 --max-seq-len 1000000 \
    < "$work/in" > "$1" 2> "$work/err" &
  pid=$!
  exec 3> "$work/in"
}

mkfifo "$work/in"
: > "$work/out"
answer_without_end "$work/out"
echo 'Good morrow.' >&3
check "an answer begins" until_true test -s "$work/out"
kill -INT "$pid"
check "Ctrl-C stops the answer" until_true says "(stopped)"
echo "/save $work/stopped.json" >&3
check "and not the program" until_true says "1 exchange in $work/stopped.json"
check "what was written is kept" grep -qF "$(head -n 1 "$work/answer.first" | head -c 20)" "$work/stopped.json"
size=$(wc -c < "$work/out")
has_grown() { (($(wc -c < "$work/out") > size)); }
was_stopped_twice() { (($(grep -cF '(stopped)' "$work/err") == 2)); }
echo 'O!' >&3
check "the next question is answered" until_true has_grown
kill -INT "$pid"
check "and that answer is stopped" until_true was_stopped_twice
echo '/undo' >&3
check "one exchange is left" until_true says "1 exchange left"
kill -INT "$pid"
check "Ctrl-C between answers leaves" leaves 0
exec 3>&-

# A reader that lets the program wait: once an answer has begun, its pipe is filled, and Ctrl-C meets a write that is under
# way.
mkfifo "$work/pipe"
exec 4<> "$work/pipe"
answer_without_end "$work/pipe"
echo 'Good morrow.' >&3
timeout 30 head -c 1 <&4 > "$work/begun"
timeout 0.5 head -c 1000000 /dev/zero >&4
kill -INT "$pid"
sleep 0.1
cat <&4 > "$work/out" &
reader=$!
check "Ctrl-C stops an answer that nobody reads" until_true says "(stopped)"
echo "/save $work/stopped.json" >&3
check "and not the program that waits for its reader" until_true says "1 exchange in $work/stopped.json"
kill -INT "$pid"
check "which leaves as it should" leaves 0
exec 3>&- 4>&-
kill "$reader"

# On a terminal; `script` makes one, where it is there and the system has terminals to give (a bare chroot has none).
if script -qfec true "$work/screen" < /dev/null > "$work/which" 2>&1; then
  screen_has() { (($(grep -oF -- "$2" "$work/screen" | wc -l) == $1)); }  # TIMES TEXT
  mkfifo "$work/keys"
  : > "$work/screen"
  arguments="--template '$work/scene' --temperature 0 --max-new-tokens 1000000 --max-seq-len 1000000"
  TERM=xterm NO_COLOR='' script -qfec "'$chat' '$model' $arguments" "$work/screen" < "$work/keys" > "$work/err" 2>&1 &
  pid=$!
  exec 3> "$work/keys"
  check "a terminal has a hint" until_true screen_has 1 '/help lists the commands'
  check "in dim letters" screen_has 1 $'\033[2m'
  printf 'Good morrow.\n' >&3
  check "an answer begins on the terminal" until_true screen_has 1 "$(head -n 1 "$work/answer.first")"
  printf '\003' >&3
  check "Ctrl-C stops it" until_true screen_has 1 '(stopped)'
  printf '\003' >&3
  check "at the prompt it first asks" until_true screen_has 1 '(Ctrl-C again'
  printf '/stats\n' >&3
  check "and is forgotten when a line comes" until_true screen_has 1 'positions:'
  printf '\003' >&3
  check "so that it asks again" until_true screen_has 2 '(Ctrl-C again'
  printf 'steer\n' >&3
  check "a line comes again" until_true screen_has 1 'to the left'
  check "what strangers write steers no terminal" screen_has 0 $'\033[7D'
  printf '\003' >&3
  check "it asks once more" until_true screen_has 3 '(Ctrl-C again'
  printf '\003' >&3
  check "a second one leaves" leaves 0
  check "there was a prompt for each line" screen_has 7 '> '
  exec 3>&-
else
  echo "not tried on a terminal: $(head -n 1 "$work/which")"
fi

echo "$checked checks, $faults not as expected"
((faults == 0))
