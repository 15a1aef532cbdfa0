#!/bin/sh
# The programs from outside: exit codes, what goes to stdout and what to stderr, files that appear whole or not at all.
#
#     [RUN="valgrind ..."] sh tests/test_programs.sh BUILD [MODEL.tfm]
#
# BUILD holds the programs, RUN is put in front of them; without MODEL the checkpoint of examples/models is converted.
# Prints "name: ok" or "name: FAILED (why)" and at the end "N passed, N failed".

BUILD=${1:-build}
WORK=$BUILD/tests/programs
MODEL=${2:-$WORK/stories.tfm}
PASSED=0 FAILED=0 SKIPPED=0

rm -rf "$WORK"
mkdir -p "$WORK" || exit 1

# ---- checks ----------------------------------------------------------------------------------------------------------

# run EXIT PROGRAM ARGS...: runs it with stdout in $OUT and stderr in $ERR; notes a wrong exit status.
OUT=$WORK/out
ERR=$WORK/err
run() {
    want=$1 program=$2
    shift 2
    $RUN "$BUILD/$program" "$@" > "$OUT" 2> "$ERR" < "${INPUT:-/dev/null}"
    got=$?
    [ $got = "$want" ] || note "$program $*: exit status $got instead of $want: $(tail -n 1 "$ERR")"
}

# The test under way collects what is wrong with it.
WRONG=
note() { [ -n "$WRONG" ] || WRONG=$1; }
expect() { # expect WHY CONDITION...: the condition is a command
    why=$1
    shift
    "$@" > /dev/null 2>&1 || note "$why"
}
done_with() {
    if [ -z "$WRONG" ]; then PASSED=$((PASSED + 1)); echo "$1: ok"
    else FAILED=$((FAILED + 1)); echo "$1: FAILED ($WRONG)"; fi
    WRONG=
}
skip() { SKIPPED=$((SKIPPED + 1)); echo "$1: skipped ($2)"; }
finish() {
    if [ $SKIPPED -gt 0 ]; then echo "$PASSED passed, $FAILED failed, $SKIPPED skipped"
    else echo "$PASSED passed, $FAILED failed"; fi
    exit $((FAILED > 0))
}

# fails EXIT WORD PROGRAM ARGS...: it must fail in one line on stderr that begins with "error:" and has WORD in it.
fails() {
    status=$1 word=$2
    shift 2
    run "$status" "$@"
    expect "$*: stdout is not empty" test ! -s "$OUT"
    expect "$*: not one line on stderr" test "$(grep -v '^warning: ' "$ERR" | wc -l)" -eq 1
    expect "$*: '$word' is missing: $(tail -n 1 "$ERR")" grep -q "^error: .*$word" "$ERR"
}

size() { wc -c < "$1" | tr -d ' '; }
empty() { test ! -s "$1"; }
json() { sed -n "s/.*\"$1\": \"*\\([^,\"}]*\\).*/\\1/p" "$OUT" | head -n 1; } # the value of a key in $OUT

# ---- the command line, without a model -------------------------------------------------------------------------------

for p in generate chat tfm-convert tfm-quantize tfm-eval tfm-inspect tfm-bench tfm-tokenize; do
    run 0 $p --help
    expect "no usage on stdout" grep -q "^usage: $p " "$OUT"
    expect "--help writes to stderr" empty "$ERR"
    fails 2 "" $p
    fails 2 "unknown option" $p --no-such-option
    done_with "command line of $p"
done

printf 'this is no model' > "$WORK/text.tfm"
for p in generate tfm-inspect tfm-bench; do
    fails 1 "$WORK/none.tfm" $p "$WORK/none.tfm"
    fails 1 "$WORK/text.tfm" $p "$WORK/text.tfm"
    fails 1 "$WORK" $p "$WORK"
done
fails 1 "$WORK/none.tfm" tfm-eval "$WORK/none.tfm" --ids 1 --greedy 1
done_with "a model that is none"

for e in custom_block kernels_only; do
    run 0 $e
    expect "$e: $(tail -n 1 "$OUT")" grep -q "yes$" "$OUT"
done
run 1 minimal
expect "minimal without arguments shows no usage" grep -q usage "$ERR"
done_with "examples"

run 0 tfm-convert --families
sed -n '/^| family |/,/^$/p' README.md | sed '$d' > "$WORK/families.md"
expect "the README's table of families is not what tfm-convert --families prints" cmp -s "$OUT" "$WORK/families.md"
fails 2 "stands alone" tfm-convert --families examples/models/stories
done_with "table of families"

# ---- with the model --------------------------------------------------------------------------------------------------

if [ ! -f "$MODEL" ]; then
    if [ -f examples/models/stories/config.json ]; then
        run 0 tfm-convert examples/models/stories "$MODEL"
        done_with "conversion of the checkpoint that ships"
    fi
fi
if [ ! -f "$MODEL" ]; then
    skip "programs on a model" "there is none"
    finish
fi
run 0 tfm-inspect "$MODEL" --json
VOCAB=$(json n_vocab) WIDTH=$(json d_model) LIMIT=$(json n_ctx_model)
run 0 tfm-inspect "$MODEL" --json -c "$LIMIT"
expect "a warning although the model is made for it" test ! -s "$ERR"
run 0 tfm-inspect "$MODEL" --json -c $((LIMIT + 1))
expect "no warning of a context beyond the model's" grep -q "^warning: .*made for $LIMIT positions" "$ERR"
done_with "the model opens"
[ -n "$LIMIT" ] || finish

PROMPT="Once upon a time"
CTX=64

run 0 generate "$MODEL" -p "$PROMPT" -n 12 --seed 7 -c $CTX
cp "$OUT" "$WORK/text"
expect "no text" test -s "$WORK/text"
expect "no figures" grep -q "generated .* 12 tokens" "$ERR"
expect "the seed is not shown" grep -q "seed 7," "$ERR"
for more in "-t 1" "-t 2" "-t 5" "--batch 1" "--batch 3" "-c 100"; do
    run 0 generate $more "$MODEL" -p "$PROMPT" -n 12 --seed 7 -c $CTX
    [ "$more" != "-c 100" ] || run 0 generate "$MODEL" -p "$PROMPT" -n 12 --seed 7 $more
    expect "$more changes the text" cmp "$OUT" "$WORK/text"
done
done_with "generate: the same text for threads, batch and context"

run 0 generate "$MODEL" -p "$PROMPT" -n 12 --seed 7 -c $CTX --echo
printf '%s' "$PROMPT" | cat - "$WORK/text" > "$WORK/echoed"
expect "--echo" cmp "$OUT" "$WORK/echoed"
printf '%s' "$PROMPT" > "$WORK/prompt"
run 0 generate "$MODEL" -f "$WORK/prompt" -n 12 --seed 7 -c $CTX
expect "-f" cmp "$OUT" "$WORK/text"
INPUT=$WORK/prompt run 0 generate "$MODEL" -f - -n 12 --seed 7 -c $CTX
INPUT=
expect "-f -" cmp "$OUT" "$WORK/text"
run 0 generate "$MODEL" -p "$PROMPT" -n 0 -c $CTX
expect "-n 0 prints" empty "$OUT"
run 0 generate "$MODEL" -n 3 -c $CTX --seed 1
done_with "generate: prompts"

run 0 generate "$MODEL" -p "$PROMPT" -n 8 --seed -1 -c $CTX
cp "$OUT" "$WORK/a"
run 0 generate "$MODEL" -p "$PROMPT" -n 8 --seed 18446744073709551615 -c $CTX
expect "--seed -1" cmp "$OUT" "$WORK/a"
run 0 generate "$MODEL" -p "$PROMPT" -n 8 --temp 0 --seed 1 -c $CTX
cp "$OUT" "$WORK/a"
run 0 generate "$MODEL" -p "$PROMPT" -n 8 --top-k 1 --seed 2 -c $CTX
expect "--top-k 1 is not greedy" cmp "$OUT" "$WORK/a"
for option in "--repeat-penalty 0" "--repeat-penalty -1" "--temp -1" "--top-p 2" "--min-p x" "--top-k -1" "--seed 1.5" \
    "-n -5" "-c 0" "-c -1" "-t 0" "--batch 0" "--kv q4" "--act f16" "--isa none" "--logit-bias 5" "--logit-bias 99999999+1" \
    "--logit-bias 1+x" "--logit-bias 1+inf" "--logprobs 0" "--logprobs x" "--system s"; do
    fails 2 "${option%% *}" generate "$MODEL" -p "$PROMPT" $option
done
fails 2 "empty" generate "$MODEL" -p "$PROMPT" --stop ""
fails 2 scalar generate "$MODEL" --isa none
fails 2 "from 1 to 2147483647" generate "$MODEL" -p "$PROMPT" -c 2147483648
fails 2 "" generate "$MODEL" -p a -f b
fails 2 "too many" generate "$MODEL" "$MODEL"
done_with "generate: options"

run 0 generate "$MODEL" -p "$PROMPT" -c 16 --ignore-eos --seed 1
expect "no warning" test "$(grep -c '^warning: ' "$ERR")" -eq 1
i=0
: > "$WORK/long"
while [ $i -lt 40 ]; do printf '%s. ' "$PROMPT" >> "$WORK/long"; i=$((i + 1)); done
fails 1 "do not fit" generate "$MODEL" -f "$WORK/long" -c 16
fails 1 "$WORK/none" generate "$MODEL" -f "$WORK/none"
done_with "generate: the context's end"

if [ -c /dev/full ]; then
    $RUN "$BUILD/generate" "$MODEL" -p "$PROMPT" -n 4 > /dev/full 2> "$ERR"
    expect "a full disk goes unnoticed" test $? -eq 1
    expect "no error line" grep -q "^error: " "$ERR"
    done_with "generate: a full disk"
fi

run 0 generate "$MODEL" -p "$PROMPT" -n 12 --temp 0 -c $CTX --ignore-eos
cp "$OUT" "$WORK/whole"
for at in 1 5 9; do # a stop string that begins at byte `at` of the text and spans tokens
    stop=$(tail -c +$((at + 1)) "$WORK/whole" | head -c 9)
    head -c $at "$WORK/whole" > "$WORK/want"
    run 0 generate "$MODEL" -p "$PROMPT" -n 12 --temp 0 -c $CTX --ignore-eos --stop nowhere --stop "$stop"
    expect "--stop at byte $at" cmp "$OUT" "$WORK/want"
done
run 0 generate "$MODEL" -p "$PROMPT" -n 12 --temp 0 -c $CTX --ignore-eos --stop "$(tail -c 4 "$WORK/whole")no"
expect "what was held back is lost" cmp "$OUT" "$WORK/whole"
run 0 generate "$MODEL" -p "$PROMPT" -n 3 --temp 0 -c $CTX --logprobs 2
expect "not a line a token" test "$(grep -c '^{"id": [0-9]*, "logprob": -[0-9.]*, "top": \[{.*}, {.*}\]}$' "$ERR")" -eq 3
FIRST=$(sed -n 's/^{"id": \([0-9]*\),.*/\1/p' "$ERR" | head -n 1)
SECOND=$(sed -n 's/^.*}, {"id": \([0-9]*\),.*/\1/p' "$ERR" | head -n 1)
run 0 generate "$MODEL" -p "$PROMPT" -n 1 --temp 0 -c $CTX --logprobs 1 --logit-bias "$FIRST-inf"
expect "--logit-bias -inf does not take the second token" grep -q "^{\"id\": $SECOND," "$ERR"
run 0 generate "$MODEL" -p "$PROMPT" -n 3 --seed 3 -c $CTX --logprobs 1 --logit-bias "$SECOND+1000"
expect "--logit-bias +1000 is not always taken" test "$(grep -c "^{\"id\": $SECOND," "$ERR")" -eq 3
done_with "generate: stop strings, bias, log probabilities"

# ---- chat ------------------------------------------------------------------------------------------------------------

fails 1 "no chat template" generate "$MODEL" -p "$PROMPT" --chat
fails 1 "no chat template" chat "$MODEL"
if [ -d examples/models/stories ]; then
    cp -r examples/models/stories "$WORK/chatty"
    cat > "$WORK/chatty/chat_template.jinja" << 'END'
{% for m in messages %}{{ m.role }}: {{ m.content | trim }}
{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}
END
    run 0 tfm-convert "$WORK/chatty" "$WORK/chat.tfm"
    expect "a notice: $(cat "$ERR")" empty "$ERR"
    printf '[{"role": "system", "content": "S"}, {"role": "user", "content": " hi "}]' > "$WORK/messages"
    INPUT=$WORK/messages run 0 tfm-tokenize "$WORK/chat.tfm" --chat --text
    expect "the text: $(cat "$OUT")" test "$(cat "$OUT")" = "system: S
user: hi
assistant:"
    INPUT=$WORK/messages run 0 tfm-tokenize "$WORK/chat.tfm" --chat
    cp "$OUT" "$WORK/a"
    printf 'system: S\nuser: hi\nassistant:' > "$WORK/text"
    INPUT=$WORK/text run 0 tfm-tokenize "$WORK/chat.tfm" --no-special
    expect "the ids" cmp "$OUT" "$WORK/a"
    run 0 generate "$WORK/chat.tfm" --chat --system S -p " hi " --temp 0 -n 8 -c $CTX
    cp "$OUT" "$WORK/answer"
    expect "no answer" test -s "$WORK/answer"
    printf 'hi\n' > "$WORK/one"
    INPUT=$WORK/one run 0 chat "$WORK/chat.tfm" --system S --temp 0 -n 8 -c $CTX
    expect "chat and generate --chat differ" test "$(cat "$OUT")" = "$(cat "$WORK/answer")"
    printf 'hi\nwho are\\\nyou?\nyes\n' > "$WORK/three"
    INPUT=$WORK/three run 0 chat "$WORK/chat.tfm" --temp 0 -n 8 -c 200 --figures
    expect "not three answers" test "$(grep -c '^reused' "$ERR")" -eq 3
    expect "nothing is reused" test "$(sed -n 's/^reused \([0-9]*\),.*/\1/p' "$ERR" | tail -n 1)" -gt 20
    INPUT=$WORK/three run 0 chat "$WORK/chat.tfm" --temp 0 -n 8 -c 30
    expect "no warning that the context is full" grep -q "^warning: the context" "$ERR"
    INPUT=
    sed 's/m.content/loop.index ~ m.content/' "$WORK/chatty/chat_template.jinja" > "$WORK/t" && mv "$WORK/t" "$WORK/chatty/chat_template.jinja"
    run 0 tfm-convert "$WORK/chatty" "$WORK/chat2.tfm"
    expect "no notice" grep -q "^warning: chat_template.jinja: the chat template is kept as text" "$ERR"
    INPUT=$WORK/messages run 0 tfm-tokenize "$WORK/chat2.tfm" --chat --text
    expect "the text of a template that is interpreted" grep -q "user: 2hi" "$OUT"
    run 0 tfm-quantize "$WORK/chat.tfm" "$WORK/chat3.tfm" --type q8_0
    INPUT=$WORK/messages run 0 tfm-tokenize "$WORK/chat3.tfm" --chat
    expect "tfm-quantize loses the format" cmp "$OUT" "$WORK/a"
    run 0 tfm-convert --to-gguf "$WORK/chat.tfm" "$WORK/chat.gguf"
    run 0 tfm-convert --vocab-only "$WORK/chat.gguf" "$WORK/chat3.tfm"
    INPUT=$WORK/messages run 0 tfm-tokenize "$WORK/chat3.tfm" --chat
    expect "--to-gguf loses the template" cmp "$OUT" "$WORK/a"
    printf '[{"role": "tool", "content": ""}]' > "$WORK/messages"
    INPUT=$WORK/messages fails 1 "role must be" tfm-tokenize "$WORK/chat.tfm" --chat
    printf '[{"role": "user", "content": "a", "tool_calls": [], "name": null}]' > "$WORK/messages"
    INPUT=$WORK/messages run 0 tfm-tokenize "$WORK/chat.tfm" --chat
    printf '[{"role": "user", "content": "a", "name": "x"}]' > "$WORK/messages"
    INPUT=$WORK/messages fails 1 "stdin\[0\].name: " tfm-tokenize "$WORK/chat.tfm" --chat
    INPUT=
    printf '{"unk_token": "<unk>"}' > "$WORK/chatty/special_tokens_map.json"
    run 0 tfm-convert "$WORK/chatty" "$WORK/chat2.tfm"
    run 0 tfm-convert --to-gguf "$WORK/chat2.tfm" "$WORK/chat.gguf"
    expect "a notice of a variable that is not used" sh -c "! grep -q unk_token '$ERR'"
    printf '{{ unk_token }}' >> "$WORK/chatty/chat_template.jinja"
    run 0 tfm-convert "$WORK/chatty" "$WORK/chat2.tfm"
    run 0 tfm-convert --to-gguf "$WORK/chat2.tfm" "$WORK/chat.gguf"
    expect "no notice of a lost variable" grep -q "what the chat template calls unk_token" "$ERR"
    printf '{%% for m in messages %%}<\302\2331m\033\177{{ m.role }}>{{ m.content }}{%% endfor %%}<assistant>' > "$WORK/chatty/chat_template.jinja"
    run 0 tfm-convert "$WORK/chatty" "$WORK/chat2.tfm"
    run 0 tfm-inspect "$WORK/chat2.tfm"
    expect "text of a file commands the terminal" grep -q '^chat  *<?1m??system>SYSTEM<?1m??user>USER<' "$OUT"
    printf '{%% for %%}' > "$WORK/chatty/chat_template.jinja"
    run 0 tfm-convert "$WORK/chatty" "$WORK/chat2.tfm"
    expect "no notice of a broken template" grep -q "chat_template.jinja: line 1: " "$ERR"
    fails 1 "line 1" generate "$WORK/chat2.tfm" --chat -p hi
    fails 2 "vocab-only" tfm-convert --vocab-only --type f16 "$WORK/chatty" "$WORK/never"
    fails 2 "stdout" tfm-convert "$WORK/chatty" -
    fails 2 "stdout" tfm-quantize "$WORK/chat.tfm" - --type f16
    expect "a file named -" test ! -e -
    done_with "chat"
fi

# ---- tfm-eval --------------------------------------------------------------------------------------------------------

IDS="3, 14 15,9,26,5,35,8,9,7"

run 0 tfm-eval "$MODEL" --ids "$IDS" --logits "$WORK/logits"
expect "stdout is not empty" empty "$OUT"
expect "size of --logits" test "$(size "$WORK/logits")" -eq $((10 * VOCAB * 4))
run 0 tfm-eval "$MODEL" --ids "$IDS" --hidden "$WORK/hidden"
expect "size of --hidden" test "$(size "$WORK/hidden")" -eq $((10 * WIDTH * 4))
for more in "--chunk 1" "--chunk 3" "-t 1" "-t 3" "-c 100"; do
    run 0 tfm-eval "$MODEL" --ids "$IDS" --logits "$WORK/logits2" --hidden "$WORK/hidden2" $more
    expect "$more changes the logits" cmp "$WORK/logits" "$WORK/logits2"
    expect "$more changes the hidden states" cmp "$WORK/hidden" "$WORK/hidden2"
done
printf '%s\n' "$IDS" > "$WORK/ids"
INPUT=$WORK/ids run 0 tfm-eval "$MODEL" --ids - --logits "$WORK/logits2"
INPUT=
expect "--ids -" cmp "$WORK/logits" "$WORK/logits2"
done_with "tfm-eval: logits and hidden states"

run 0 tfm-eval "$MODEL" --ids "$IDS" --greedy 5
expect "not 5 ids" grep -Eqx '[0-9]+(,[0-9]+){4}' "$OUT"
cp "$OUT" "$WORK/a"
run 0 tfm-eval "$MODEL" --ids "$IDS" --greedy 5 --logits "$WORK/logits2" --hidden "$WORK/hidden2"
expect "--logits changes --greedy" cmp "$OUT" "$WORK/a"
expect "--greedy changes the logits" cmp "$WORK/logits" "$WORK/logits2"
run 0 tfm-eval "$MODEL" --ids "$IDS" --greedy 8 -c 12
expect "not 3 ids until the context is full" grep -Eqx '[0-9]+(,[0-9]+){2}' "$OUT"
expect "no warning" test "$(grep -c '^warning: ' "$ERR")" -eq 1
done_with "tfm-eval: greedy"

run 0 tfm-eval "$MODEL" --ids "$IDS" --trace "$WORK/trace" --chunk 4
expect "embed is not the first" test "$(head -n 1 "$WORK/trace/index.txt")" = embed.npy
expect "logits are not the last" test "$(tail -n 1 "$WORK/trace/index.txt")" = logits.npy
while read -r name; do expect "$name is missing" test -s "$WORK/trace/$name"; done < "$WORK/trace/index.txt"
expect "L00.attn_out.npy is missing" test -s "$WORK/trace/L00.attn_out.npy"
expect "shape of the logits" grep -aq "'shape': (10, $VOCAB)" "$WORK/trace/logits.npy"
tail -c $((10 * VOCAB * 4)) "$WORK/trace/logits.npy" > "$WORK/logits2"
expect "the logits of the trace" cmp "$WORK/logits" "$WORK/logits2"
done_with "tfm-eval: trace"

# A trace that fails leaves no file, wherever it ends: at the first file, at the last, in the middle of one.
for file in index.txt logits.npy; do
    mkdir -p "$WORK/broken/$file"
    fails 1 "$WORK/broken/$file: is a directory" tfm-eval "$MODEL" --ids "$IDS" --trace "$WORK/broken" --chunk 4 --logits "$WORK/never"
    expect "files of a failed trace: $(ls "$WORK/broken")" test "$(ls "$WORK/broken")" = "$file"
    rmdir "$WORK/broken/$file" "$WORK/broken" 2> "$ERR"
done
fails 1 "none/trace" tfm-eval "$MODEL" --ids "$IDS" --trace "$WORK/none/trace"
for wrong in "--ids 1,$VOCAB" "--ids 1,2,3,4 -c 3"; do fails 1 "ids" tfm-eval "$MODEL" $wrong --trace "$WORK/broken"; done
(trap '' XFSZ; ulimit -f 4; $RUN "$BUILD/tfm-eval" "$MODEL" --ids "$IDS" --trace "$WORK/broken" > "$OUT" 2> "$ERR")
expect "files beyond 2 KB: exit status $?" test $? = 1
expect "files beyond 2 KB: $(head -n 1 "$ERR")" grep -q "^error: $WORK/broken/.*: cannot be written: " "$ERR"
expect "a directory of a failed trace" test ! -e "$WORK/broken"
expect "a file of a failed run" test ! -e "$WORK/never"
done_with "tfm-eval: a trace that fails"

fails 2 "'x'" tfm-eval "$MODEL" --ids 1,x --greedy 1
fails 2 "chunks" tfm-eval "$MODEL" --ids 1 --greedy 1 --chunks 2
fails 1 "stdout" tfm-eval "$MODEL" --ids 1 --logits -
fails 2 "empty" tfm-eval "$MODEL" --ids "" --greedy 1
fails 2 "" tfm-eval "$MODEL" --ids 1
fails 2 "" tfm-eval "$MODEL" --ids 1 --ppl "$WORK/long"
fails 1 "$VOCAB" tfm-eval "$MODEL" --ids "1,$VOCAB" --greedy 1
fails 1 "do not fit" tfm-eval "$MODEL" --ids "$IDS" --greedy 1 -c 8
i=0 many=
while [ $i -le "$LIMIT" ]; do many="$many 1"; i=$((i + 1)); done
printf '%s' "$many" > "$WORK/ids"
INPUT=$WORK/ids fails 1 "do not fit" tfm-eval "$MODEL" --ids - --greedy 1
INPUT=
fails 1 "$WORK/none/logits" tfm-eval "$MODEL" --ids 1 --logits "$WORK/none/logits"
fails 1 "the model itself" tfm-eval "$MODEL" --ids 1 --logits "$MODEL"
fails 2 "two files" tfm-eval "$MODEL" --ids 1 --logits "$WORK/never" --hidden "$WORK/never"
fails 1 "$WORK/text.tfm" tfm-eval "$WORK/text.tfm" --ids 1 --logits "$WORK/never"
expect "a file of a failed run" test ! -e "$WORK/never"
done_with "tfm-eval: errors"

run 0 tfm-eval "$MODEL" --ppl "$WORK/long" -c 32 --chunks 2
expect "first line: $(head -n 1 "$OUT")" sh -c "head -n 1 '$OUT' | grep -Eqx 'ppl [0-9]+\.[0-9]{4}'"
expect "chunks" grep -qx "chunks 2" "$OUT"
expect "tokens" grep -qx "tokens 30" "$OUT"
close_to() { awk -v name="$1" -v want="$2" '$1 == name { d = $2 - want; ok = d < 1e-4 && d > -1e-4 } END { exit !ok }' "$OUT"; }
if [ -f examples/models/stories/config.json ] && [ -z "$2" ]; then # by transformers: tests/ref_logz.py
    expect "nll: $(grep '^nll' "$OUT")" close_to nll 8.451156
    expect "mean log Z: $(grep '^log_z' "$OUT")" close_to log_z_mean 12.219012
    expect "max log Z: $(grep '^log_z' "$OUT")" close_to log_z_max 17.709896
fi
head -n 1 "$OUT" > "$WORK/a"
run 0 tfm-eval "$MODEL" --ppl "$WORK/long" --ctx 32 --chunks 2 --chunk 5 -t 1
head -n 1 "$OUT" > "$WORK/b"
expect "--chunk changes the perplexity" cmp "$WORK/a" "$WORK/b"
fails 1 "$WORK/prompt" tfm-eval "$MODEL" --ppl "$WORK/prompt"
done_with "tfm-eval: perplexity"

# ---- tfm-quantize ----------------------------------------------------------------------------------------------------

run 0 tfm-quantize "$MODEL" "$WORK/q1.tfm" --type q4_k_m -t 1
run 0 tfm-quantize "$MODEL" "$WORK/q4.tfm" --type q4_k -t 4
expect "the number of threads changes bytes" cmp "$WORK/q1.tfm" "$WORK/q4.tfm"
run 0 tfm-inspect "$WORK/q1.tfm" --verify
run 0 tfm-eval "$WORK/q1.tfm" --ppl "$WORK/long" -c 32 --chunks 2
head -n 1 "$OUT" > "$WORK/a"
run 0 tfm-eval "$MODEL" --ppl "$WORK/long" -c 32 --chunks 2 --imatrix "$WORK/imatrix"
expect "no GGUF" test "$(head -c 4 "$WORK/imatrix")" = GGUF
run 0 tfm-quantize "$MODEL" "$WORK/q4.tfm" --type q4_k_m --imatrix "$WORK/imatrix"
run 0 tfm-eval "$WORK/q4.tfm" --ppl "$WORK/long" -c 32 --chunks 2
head -n 1 "$OUT" > "$WORK/b"
expect "an importance matrix changes nothing" sh -c "! cmp -s '$WORK/a' '$WORK/b'"
run 0 tfm-quantize "$MODEL" "$WORK/f32.tfm" --type f32
run 0 tfm-eval "$MODEL" --ids "$IDS" --logits "$WORK/logits"
run 0 tfm-eval "$WORK/f32.tfm" --ids "$IDS" --logits "$WORK/logits2"
expect "float32 changes logits" cmp "$WORK/logits" "$WORK/logits2"
done_with "tfm-quantize: mixes, importance"

fails 2 "missing" tfm-quantize "$MODEL" "$WORK/never"
fails 2 "q9_k" tfm-quantize "$MODEL" "$WORK/never" --type q9_k
fails 2 "source" tfm-quantize "$MODEL" "$WORK/never" --type source
fails 1 "the source itself" tfm-quantize "$MODEL" "$MODEL" --type q8_0
fails 1 "$WORK/text.tfm" tfm-quantize "$WORK/text.tfm" "$WORK/never" --type q8_0
fails 1 "$WORK/text.tfm" tfm-quantize "$MODEL" "$WORK/never" --type q8_0 --imatrix "$WORK/text.tfm"
cp "$WORK/f32.tfm" "$WORK/nan.tfm"
printf '\377\377\377\377' | dd of="$WORK/nan.tfm" bs=4 seek=$(($(size "$WORK/nan.tfm") / 8)) conv=notrunc 2> /dev/null
fails 1 "$WORK/nan.tfm: tensor .*not a number" tfm-quantize "$WORK/nan.tfm" "$WORK/never" --type q8_0
fails 2 "a --type that quantises" tfm-quantize "$MODEL" "$WORK/never" --type bf16 --imatrix "$WORK/imatrix"
fails 2 "a --type that quantises" tfm-convert examples/models/stories "$WORK/never" --imatrix "$WORK/imatrix"
fails 2 "goes with --ppl" tfm-eval "$MODEL" --ids 1 --greedy 1 --imatrix "$WORK/never"
fails 1 "$WORK/none/x" tfm-eval "$MODEL" --ppl "$WORK/long" -c 32 --chunks 1 --imatrix "$WORK/none/x"
fails 1 "one of the files read" tfm-eval "$MODEL" --ppl "$WORK/long" -c 32 --chunks 1 --imatrix "$WORK/long"
printf "1 2" > "$WORK/ids"
INPUT=$WORK/ids fails 1 "one of the files read" tfm-eval "$MODEL" --ids - --logits "$WORK/ids"
INPUT=
fails 1 "no name" tfm-quantize "$MODEL" "" --type q8_0
expect "a file of a failed run" test ! -e "$WORK/never"
done_with "tfm-quantize: errors"

# ---- tfm-convert, there and back ---------------------------------------------------------------------------------------

run 0 tfm-convert --to-gguf "$MODEL" "$WORK/back.gguf"
expect "no notice of what is lost" grep -q "^warning: .*lacks name, author and licence.*the provenance" "$ERR"
expect "more than one notice" test "$(wc -l < "$ERR")" -eq 1
run 0 tfm-convert "$WORK/back.gguf" "$WORK/back.tfm"
for t in token_embd.weight blk.0.attn_q.weight blk.1.ffn_down.weight output_norm.weight; do
    run 0 tfm-inspect "$MODEL" --tensor $t --out "$WORK/tensor"
    run 0 tfm-inspect "$WORK/back.tfm" --tensor $t --out "$WORK/tensor.back"
    expect "$t differs" cmp "$WORK/tensor" "$WORK/tensor.back"
done
INPUT=README.md run 0 tfm-tokenize "$MODEL"
cp "$OUT" "$WORK/ids"
INPUT=README.md run 0 tfm-tokenize "$WORK/back.tfm"
expect "the tokenizer gives other ids" cmp "$OUT" "$WORK/ids"
fails 1 "no.tfm" tfm-convert --to-gguf "$WORK/no.tfm" "$WORK/never"
fails 2 "no other option" tfm-convert --to-gguf --type f16 "$MODEL" "$WORK/never"
expect "a file is left" test ! -e "$WORK/never"
done_with "tfm-convert: to GGUF and back"

# ---- tfm-inspect, tfm-bench ------------------------------------------------------------------------------------------

run 0 tfm-inspect "$MODEL" --bandwidth 20 --verify
expect "no verdict" grep -q "every hash agrees" "$OUT"
expect "no path in words" grep -q "^  layers 0-" "$OUT"
expect "no attention in words" grep -Eq "^    q, k, v  +[0-9]+ -> [0-9]+ heads, [0-9]+ key-value heads? of [0-9]+" "$OUT"
run 0 tfm-inspect "$MODEL" --json -c $CTX --kv f32 --bandwidth 20
for key in n_params n_layers d_model n_vocab file_bytes weight_bytes_per_token kv_bytes session_bytes tied \
    tied_bytes_saved tensors tokens_per_s; do
    expect "$key is missing" grep -q "\"$key\": " "$OUT"
done
expect "file_bytes" test "$(json file_bytes)" = "$(size "$MODEL")"
KV=$(json kv_bytes)
run 0 tfm-inspect "$MODEL" --json -c $CTX --kv f16
expect "an f32 cache is not twice an f16 cache" test "$KV" -eq $((2 * $(json kv_bytes)))
# formula MODEL ARGS...: the products that are printed add up to the library's bytes.
formula() {
    run 0 tfm-inspect "$@" --json
    KV=$(json kv_bytes)
    run 0 tfm-inspect "$@"
    expect "$*: the formula printed does not give a cache of $KV bytes" \
        awk -v kv="$KV" '/ layers? x 2 x / { sum += $1 * 2 * $6 * $9 * $11 * $14 } END { exit sum != kv }' "$OUT"
}
for kv in f32 f16 bf16 q8_0; do formula "$MODEL" -c $CTX --kv $kv; done
for m in gemma3 llama4 sparse_fixed_near; do # windows, chunks, strides: the tests of families leave these
    [ ! -f "$BUILD/tests/$m.tfm" ] || formula "$BUILD/tests/$m.tfm" -c 40 --batch 3
done
done_with "tfm-inspect: description"

run 0 tfm-inspect "$MODEL" --tensor output_norm.weight --out "$WORK/tensor"
expect "size of output_norm.weight" test "$(size "$WORK/tensor")" -eq $((WIDTH * 4))
run 0 tfm-inspect "$MODEL" --tensor token_embd.weight --out "$WORK/tensor"
expect "size of token_embd.weight" test "$(size "$WORK/tensor")" -eq $((VOCAB * WIDTH * 4))
fails 1 "the model itself" tfm-inspect "$MODEL" --tensor output_norm.weight --out "$MODEL"
fails 1 "no.such" tfm-inspect "$MODEL" --tensor no.such --out "$WORK/never"
fails 2 "--out" tfm-inspect "$MODEL" --tensor output_norm.weight
expect "a file of a failed run" test ! -e "$WORK/never"
done_with "tfm-inspect: tensors"

run 0 tfm-inspect "$MODEL" --stats
expect "no figures" grep -q "^output_norm.weight .* F32 " "$OUT"
expect "colour in a pipe" sh -c "! grep -q '$(printf '\033')' '$OUT'"
run 0 tfm-inspect "$MODEL" --stats --json
expect "no rms in JSON" test "$(json rms)" != ""
expect "no operations in JSON" test "$(json flops_per_token)" -gt 1000
run 0 tfm-quantize "$MODEL" "$WORK/q8.tfm" --type q8_0
run 0 tfm-inspect --diff "$MODEL" "$MODEL"
expect "a file differs from itself" grep -q "^no difference$" "$OUT"
run 3 tfm-inspect --diff "$MODEL" "$WORK/q8.tfm"
expect "no largest difference" grep -q "^token_embd.weight .*and Q8_0, largest difference 0" "$OUT"
run 3 tfm-inspect --diff "$MODEL" "$WORK/q8.tfm" --json
expect "no differences in JSON" test "$(json differences)" -gt 1
fails 1 "no.tfm" tfm-inspect --diff "$MODEL" "$WORK/no.tfm"
fails 2 "two files" tfm-inspect --diff "$MODEL"
fails 2 "too many" tfm-inspect "$MODEL" "$MODEL"
done_with "tfm-inspect: figures and differences"

# ---- models as part of a program -------------------------------------------------------------------------------------

# The numbers of an array, one a line.
array_bytes() { sed -n '/{$/,/^}/p' "$1" | grep -v '[{}]' | tr ',' '\n' | grep .; }
run 0 tfm-convert --c-array story_model "$MODEL" "$WORK/array.h"
array_bytes "$WORK/array.h" > "$WORK/array.txt"
od -An -v -tu1 "$MODEL" | tr -s ' ' '\n' | grep . > "$WORK/model.txt"
expect "the array is not the file" cmp "$WORK/array.txt" "$WORK/model.txt"
expect "its length" grep -q "^#define STORY_MODEL_BYTES $(size "$MODEL")$" "$WORK/array.h"
run 0 tfm-convert --c-array story_model --type q8_0 "examples/models/stories" "$WORK/again.h"
run 0 tfm-convert --type q8_0 "examples/models/stories" "$WORK/again.tfm"
run 0 tfm-convert --c-array story_model "$WORK/again.tfm" "$WORK/array.h"
expect "an array of a checkpoint is not that of its .tfm" cmp "$WORK/array.h" "$WORK/again.h"
fails 2 "9lives" tfm-convert --c-array 9lives "$MODEL" "$WORK/never"
head -c 1000 "$MODEL" > "$WORK/short.tfm"
fails 1 "file" tfm-convert --c-array x "$WORK/short.tfm" "$WORK/never"
expect "a file of a failed run" test ! -e "$WORK/never"
rm -f "$WORK"/array.* "$WORK"/again.* "$WORK/model.txt"
done_with "tfm-convert --c-array"

run 0 tfm-inspect "$MODEL" --plan story -c 100 --batch 1 --kv q8_0
plan() { sed -n "s/^#define STORY_$1 *\([0-9]*\) .*/\1/p" "$WORK/plan"; }
cp "$OUT" "$WORK/plan"
run 0 tfm-inspect "$MODEL" --json -c 100 --batch 1 --kv q8_0 -t 1
expect "the session's bytes" test "$(plan SESSION_BYTES)" -eq "$(json session_bytes)"
expect "the sum" test "$(plan MEMORY_BYTES)" -eq $(($(plan SESSION_BYTES) + $(plan TABLES_BYTES)))
expect "the settings" test "$(plan BYTES) $(plan CTX) $(plan BATCH) $(plan KV)" = "$(size "$MODEL") 100 1 4"
fails 2 "no other output" tfm-inspect "$MODEL" --plan story --json
fails 2 "no other output" tfm-inspect "$MODEL" --tensor output_norm.weight --out "$WORK/never" --verify
done_with "tfm-inspect --plan"

BYTES=$(size "$MODEL")
head -c $((BYTES - 100)) "$MODEL" > "$WORK/cut.tfm"
fails 1 "$WORK/cut.tfm" tfm-inspect "$WORK/cut.tfm"
{ head -c $((BYTES - 1)) "$MODEL"; printf '\377'; } > "$WORK/flipped.tfm"
cmp -s "$MODEL" "$WORK/flipped.tfm" && { head -c $((BYTES - 1)) "$MODEL"; printf '\000'; } > "$WORK/flipped.tfm"
fails 1 "damaged" tfm-inspect "$WORK/flipped.tfm" --verify
done_with "tfm-inspect: damaged files"

run 0 tfm-bench "$MODEL" -p 8 -n 3 -r 2 --json
for key in prefill_tokens_per_s decode_tokens_per_s prefill_spread decode_spread n_prompt n_gen threads isa \
    bytes_per_token decode_gb_per_s bandwidth_gb_per_s bandwidth_share load_ms load_private_bytes fork_join_us; do
    expect "$key is missing" grep -q "\"$key\": " "$OUT"
done
expect "not one line" test "$(wc -l < "$OUT")" -eq 1
run 0 tfm-bench "$MODEL" -p 4 -n 0 -r 1
fails 2 "nothing" tfm-bench "$MODEL" -p 0 -n 0
fails 2 "no room" tfm-bench "$MODEL" -p 20 -n 1 -c 10
run 0 tfm-bench "$MODEL" -p 4 -n 2 -r 2 -d 0,8,24 --json --svg "$WORK/depth.svg"
expect "three depths" test "$(tr ',' '\n' < "$OUT" | grep -c '"depth": ')" -eq 3
expect "the bound falls with the depth" awk -F'"bound_tokens_per_s": ' '{ exit !($2 + 0 > $3 + 0 && $3 + 0 > $4 + 0) }' "$OUT"
expect "a picture" grep -q '^</svg>$' "$WORK/depth.svg"
expect "a mark for each depth of each panel" test "$(grep -c '<circle' "$WORK/depth.svg")" -eq 6
fails 2 "rise" tfm-bench "$MODEL" -d 8,8
fails 2 "not a list" tfm-bench "$MODEL" -d 8,x
fails 2 "no room" tfm-bench "$MODEL" -d 8 -p 4 -n 4 -c 10
fails 1 "the model itself" tfm-bench "$MODEL" -p 1 -n 1 -r 1 --svg "$MODEL"
done_with "tfm-bench"

run 0 minimal "$MODEL" "$PROMPT"
expect "no text" test -s "$OUT"
done_with "minimal"

finish
