#!/bin/sh
# The programs of `make embedded` in the emulator: on every board the same ids and text as on this machine. And the header
# compiled for such boards: its size, and that nothing in tfm_eval needs double arithmetic or 64-bit division.
#
#   sh tests/test_embedded.sh [BUILD]        from the top directory; ends with "N passed, N failed[, N skipped]"

out=${1:-build/embedded}
limit=40960 # bytes of Thumb-2 code of kernels and blocks with one weight type: the smallest build of size_embedded.sh
passed=0 failed=0 skipped=0
mkdir -p "$out" || exit 1

have() { command -v "$1" > /dev/null 2>&1; }
pass() { passed=$((passed + 1)); echo "ok       $1"; }
fail() { failed=$((failed + 1)); echo "FAILED   $1"; }
skip() { skipped=$((skipped + 1)); echo "skipped  $1"; }
figure() { sed -n "s/^$1 //p" "$2"; }

# BOARD SIZE-TOOL INSTRUCTIONS-PER-1000-TICKS EMULATOR MACHINE...
board() {
    name=$1 size=$2 rate=$3 emulator=$4 machine=$5
    shift 5
    log=$out/$name.log
    if [ ! -f "$out/$name.elf" ] || ! have "$emulator"; then skip "$name: no compiler or no emulator"; return; fi
    timeout 300 "$emulator" -M "$machine" "$@" -icount shift=0 -display none -nographic -monitor none -serial null \
        -semihosting-config enable=on,target=native -kernel "$out/$name.elf" > "$log" 2>&1 < /dev/null
    status=$?
    if [ $status != 0 ]; then fail "$name: exit status $status"; tail -n 3 "$log"; return; fi
    grep -v '^ticks\|^stack' "$log" > "$log.text"
    if cmp -s "$log.text" "$out/host.text"; then pass "$name: the text and ids of this machine"
    else fail "$name: other text than on this machine"; fi
    stack=$(figure stack "$log") ticks=$(figure ticks "$log") tokens=$(figure evaluated "$log")
    if [ "$stack" -gt 0 ] && [ "$stack" -le 32768 ]; then pass "$name: stack within 32 KB"
    else fail "$name: $stack bytes of stack"; fi
    $size "$out/$name.elf" | awk -v n="$name" -v model="$(wc -c < "$out/model.tfm")" -v stack="$stack" \
        -v each="$(awk -v t="$ticks" -v r="$rate" -v n="$tokens" 'BEGIN { printf "%.1f", t * r / 1000 / n / 1e6 }')" \
        'NR == 2 { printf "         %s: flash %d bytes (model %d, code %d), RAM %d + %d of stack, %s M instructions a token\n",
                   n, $1 + $2, model, $1 + $2 - model, $2 + $3, stack, each }'
}

"$out/host" > "$out/host.log" 2>&1 || fail "host: exit status $?"
grep -v '^ticks\|^stack' "$out/host.log" > "$out/host.text"
if [ "$(figure tokens "$out/host.log")" = 64 ]; then pass "host: 64 tokens"; else fail "host"; cat "$out/host.log"; fi

# 1 instruction takes 1 ns of the emulator's time; its clocks run at 168 MHz, 32 MHz and 1 GHz.
board m4 arm-none-eabi-size 5952 qemu-system-arm netduinoplus2
board trap arm-none-eabi-size 5952 qemu-system-arm netduinoplus2
board m55 arm-none-eabi-size 31250 qemu-system-arm mps3-an547
board rv32 riscv64-unknown-elf-size 1000 qemu-system-riscv32 virt -bios none
board rv32f riscv64-unknown-elf-size 1000 qemu-system-riscv32 virt -bios none

# ---- the tests of the kernels: every pass of that CPU

kernels() { # NAME EMULATOR MACHINE...
    name=$1
    shift
    if [ ! -f "$out/$name.elf" ] || ! have "$1"; then skip "$name: no compiler or no emulator"; return; fi
    timeout 500 "$1" -M "$2" $3 $4 -display none -nographic -monitor none -serial null \
        -semihosting-config enable=on,target=native -kernel "$out/$name.elf" > "$out/$name.log" 2>&1 < /dev/null
    status=$?
    line="$(tail -n 2 "$out/$name.log" | tr '\n' ' ')"
    if [ $status = 0 ]; then pass "$name: $line"; else fail "$name: exit status $status: $line"; head -n 20 "$out/$name.log"; fi
}
kernels kernels_m55 qemu-system-arm mps3-an547
kernels kernels_rv32 qemu-system-riscv32 virt -bios none

# ---- the header alone

# What tfm_eval can reach in an object with a section for each function: relocations from function to function.
reached() {
    $1-objdump -r "$2" | awk '
        /^RELOCATION RECORDS FOR/ { from = name($4); next }
        NF == 3 && $2 != "TYPE" { edge[from] = edge[from] " " name($3) }
        function name(s) { gsub(/\[/, "", s); gsub(/\]/, "", s); sub(/:$/, "", s); sub(/[+-]0x[0-9a-f]*$/, "", s); sub(/^\.(text|rodata)\./, "", s); return s }
        function visit(to, by) { if (!(to in seen)) { seen[to] = by; queue[++last] = to } }
        END {
            visit("tfm_eval", "-"); n = split(edge["tfm__kernels_scalar"], list, " ")
            for (i = 1; i <= n; i++) if (list[i] !~ /logsumexp/) visit(list[i], "the kernels") # of probabilities, not of eval
            for (at = 1; at <= last; at++) { n = split(edge[queue[at]], list, " ")
                                             for (i = 1; i <= n; i++) visit(list[i], queue[at]) }
            for (to in seen) print to, "from", seen[to] }'
}

# PREFIX NAMES-OF-BAD-SYMBOLS FLAGS
arithmetic() {
    prefix=$1 bad=$2
    shift 2
    if ! have "$prefix-gcc"; then skip "$prefix: arithmetic"; return; fi
    "$prefix-gcc" -std=c99 -Os "$@" -ffunction-sections -fdata-sections -DTFM_NO_STDIO -DTFM_NO_MALLOC -DTFM_NO_SIMD \
        -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wdouble-promotion -Werror -I. -c tools/tfm_impl.c -o "$out/$prefix.o" \
        > "$out/log" 2>&1 || { fail "$prefix: the header does not compile without a warning"; head -n 5 "$out/log"; return; }
    pass "$prefix: the header without a warning"
    reached "$prefix" "$out/$prefix.o" > "$out/reached"
    if [ "$(wc -l < "$out/reached")" -lt 60 ]; then fail "$prefix: tfm_eval reaches too little to be true"
    elif grep -E "^($bad) " "$out/reached" > "$out/log"; then fail "$prefix: tfm_eval reaches"; cat "$out/log"
    else pass "$prefix: no double arithmetic and no 64-bit division in tfm_eval"; fi
}
arithmetic arm-none-eabi '__aeabi_(d.*|.*2d|u?l2f|u?ldivmod)' -mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16
arithmetic riscv64-unknown-elf '__([a-z]*df[23]|[a-z]*df[a-z]*|u?(div|mod|divmod)di[34]|float(un)?di.f)' -march=rv32imac -mabi=ilp32 --specs=picolibc.specs

# Kernels and blocks alone: no file, no tokenizer, no sampler, one type of weights.
if have arm-none-eabi-gcc; then
    sh tests/size_embedded.sh "$out" > "$out/sizes"
    sed 's/^/         /' "$out/sizes"
    code=$(sed -n 's/.*: \([0-9]*\) bytes of code.*/\1/p' "$out/sizes" | tail -n 1)
    if [ "$code" -le $limit ]; then pass "kernels and blocks: $code bytes of code, at most $limit"
    else fail "kernels and blocks: $code bytes of code, more than $limit"; fi
else skip "size of kernels and blocks"; fi

if [ $skipped -gt 0 ]; then echo "$passed passed, $failed failed, $skipped skipped"
else echo "$passed passed, $failed failed"; fi
[ $failed = 0 ]
