#!/bin/sh
# The programs where memory ends: every allocation of theirs fails in turn. Each time they end with 1, one line that
# says why, and no file left behind; or do without and make the same file as ever.
#
#     sh tests/test_failing.sh BUILD
#
# BUILD/failing holds programs linked with tests/heap.c. Ends with "N passed, N failed".

BUILD=${1:-build}
WORK=$BUILD/tests/failing
PASSED=0 FAILED=0
rm -rf "$WORK"
mkdir -p "$WORK/out" || exit 1
ok() { PASSED=$((PASSED + 1)); }
bad() { FAILED=$((FAILED + 1)); echo "FAILED $*"; }

# each PROGRAM ARGS...: what it writes is the file $WORK/out/model, or files in a directory of this name. Beyond 400
# allocations not every one fails, but one in forty of those before it.
each() {
    "$BUILD/failing/$1" "$2" "$3" $4 > "$WORK/stdout" 2> "$WORK/err" || { bad "$*: $(tail -n 1 "$WORK/err")"; return; }
    rm -rf "$WORK/whole"
    mv "$WORK/out/model" "$WORK/whole"
    n=1 refused=0 without=0
    while [ $n -lt 50000 ] && [ $without -le 20 ]; do # none of the last 20 mattered: past the end
        TFM_FAIL_ALLOC=$n "$BUILD/failing/$1" "$2" "$3" $4 > "$WORK/stdout" 2> "$WORK/err"
        status=$?
        if [ $status = 0 ]; then
            diff -r "$WORK/whole" "$WORK/out/model" > "$WORK/stdout" || bad "$*: call $n fails: another file"
            rm -rf "$WORK/out/model"
            without=$((without + 1))
        else
            refused=$((refused + 1)) without=0
            [ $status = 1 ] || bad "$*: call $n fails: exit status $status"
            [ "$(grep -cv '^warning: ' "$WORK/err")" = 1 ] || bad "$*: call $n fails: not one line: $(cat "$WORK/err")"
            grep -q '^error: ' "$WORK/err" || bad "$*: call $n fails: no error line: $(tail -n 1 "$WORK/err")"
            [ -z "$(ls -A "$WORK/out")" ] || bad "$*: call $n fails: left behind: $(ls -A "$WORK/out")"
            rm -rf "$WORK/out"/*
        fi
        ok
        n=$((n + 1 + (n > 400) * n / 40))
    done
    echo "$1 ${2##*/} ${3##*/} $4: $refused of those up to $n are needed"
    [ $refused -gt 3 ] || bad "$*: hardly a failure was noticed"
}

each tfm-convert examples/models/stories "$WORK/out/model" ""
cp "$WORK/whole" "$WORK/stories.tfm"
"$BUILD/failing/tfm-convert" --to-gguf "$WORK/stories.tfm" "$WORK/stories.gguf" 2> /dev/null || bad "to GGUF"
each tfm-convert "$WORK/stories.gguf" "$WORK/out/model" ""
each tfm-convert "$WORK/stories.gguf" "$WORK/out/model" "--type q8_0"
each tfm-convert examples/models/stories "$WORK/out/model" "--vocab-only"
each tfm-quantize "$WORK/stories.tfm" "$WORK/out/model" "--type q4_0"
for source in torch torch_old torch_shards gptq fp8; do each tfm-convert tests/data/sources/$source "$WORK/out/model" ""; done
each tfm-convert "$WORK/stories.tfm" "$WORK/out/model" "--to-gguf"
each tfm-convert "$WORK/stories.tfm" "$WORK/out/model" "--c-array story"
each tfm-inspect "$WORK/stories.tfm" --tensor=output_norm.weight "--out $WORK/out/model"
each tfm-eval "$WORK/stories.tfm" "--trace=$WORK/out/model" "--ids 1,2,3 -t 1"
each tfm-eval "$WORK/stories.tfm" --ppl=README.md "--imatrix $WORK/out/model -c 32 --chunks 1 -t 1"
cp -r "$WORK/whole" "$WORK/importance"
each tfm-quantize "$WORK/stories.tfm" "$WORK/out/model" "--type q4_0 --imatrix $WORK/importance -t 2"

# Programs that write no file.
quiet() { # PROGRAM ARGS...: with $INPUT as stdin
    program=$1
    shift
    n=1 refused=0 last=0
    while [ $n -lt 2000 ] && [ $((n - last)) -le 20 ]; do
        TFM_FAIL_ALLOC=$n "$BUILD/failing/$program" "$@" > "$WORK/stdout" 2> "$WORK/err" < "${INPUT:-/dev/null}"
        status=$?
        if [ $status != 0 ]; then
            refused=$((refused + 1)) last=$n
            [ $status = 1 ] && grep '^error: ' "$WORK/err" | wc -l | grep -qx 1 && tail -n 1 "$WORK/err" | grep -q '^error: ' ||
                bad "$program $*: call $n fails: exit status $status, $(tail -n 1 "$WORK/err")"
        fi
        ok
        n=$((n + 1))
    done
    echo "$program $*: $refused of $n allocations are needed"
}
quiet tfm-inspect "$WORK/stories.tfm"
quiet tfm-inspect "$WORK/stories.tfm" --stats --json
quiet tfm-inspect --diff "$WORK/stories.tfm" "$WORK/stories.tfm"
quiet tfm-inspect "$WORK/stories.tfm" --plan story
quiet tfm-eval "$WORK/stories.tfm" --ids 1,2,3 --greedy 2 -t 2
quiet tfm-tokenize "$WORK/stories.tfm"
quiet tfm-bench "$WORK/stories.tfm" -p 2 -n 1 -r 1 -t 2
quiet generate "$WORK/stories.tfm" -p Hi -n 3 --seed 1 -t 2 --stop x

# Conversations, of a format and of a template that is interpreted.
cp -r examples/models/stories "$WORK/chatty"
printf 'hi\nand\n' > "$WORK/turns"
printf '[{"role": "user", "content": "hi"}]' > "$WORK/messages"
for text in '{{ m.content.split("</think>")[-1] | trim }}' '{{ loop.index ~ m.content }}'; do
    printf '%s' "{% for m in messages %}{{ m.role }}: $text
{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}" > "$WORK/chatty/chat_template.jinja"
    "$BUILD/failing/tfm-convert" "$WORK/chatty" "$WORK/chatty.tfm" 2> "$WORK/err" || bad "$(cat "$WORK/err")"
    INPUT=$WORK/turns quiet chat "$WORK/chatty.tfm" --temp 0 -n 3 -c 60 -t 1
    INPUT=$WORK/messages quiet tfm-tokenize "$WORK/chatty.tfm" --chat
    each tfm-convert "$WORK/chatty" "$WORK/out/model" "--vocab-only"
done

echo "$PASSED passed, $FAILED failed"
[ $FAILED = 0 ]
