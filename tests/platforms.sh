#!/bin/sh
# The library, the programs and the tests on other machines: built by a cross compiler, run natively, by an emulator or
# by wine. What a machine has not is skipped and counted.
#
#     sh tests/platforms.sh BUILD NAME       one row of the table below; ends with "N passed, N failed, N skipped"
#     sh tests/platforms.sh BUILD --names    their names
#     CC=... RUN=... CROSS_FLAGS=... sh tests/platforms.sh BUILD custom
#
# BUILD holds this machine's programs. On each platform: run_tests (where an emulator has no SIMD to test, without the
# families, which take minutes: gguf_families has each of them once; sessions, as long, on one of these), and the exchange
# of files:
#   the shipped checkpoint converted there, and quantised there, has the bytes that it has here;
#   the file converted here is opened there, and the scalar pass gives the same logits, bit for bit, exact and fast;
#   the same text is drawn there from the same seed.

names="musl i686 haswell nehalem aarch64 arm riscv64 s390x ppc64 windows"
build=$1 name=$2 there=$1/$2
cc= exe= run= flags= link=-static skip= groups= programs="tfm-convert tfm-quantize tfm-eval generate"
kernels="kernel_formats kernel_matmul kernel_vectors kernel_same_bits kernel_rope kernel_isa kernel_plain model"
case $name in
musl)    cc=musl-gcc ;;
i686)    cc=i686-linux-gnu-gcc flags="-msse2 -mfpmath=sse" ;;
haswell) there=$build run="qemu-x86_64 -cpu Haswell" groups=$kernels ;; # this machine's programs on CPUs without AVX-512
nehalem) there=$build run="qemu-x86_64 -cpu Nehalem" groups=$kernels ;; # and without AVX
aarch64) cc=aarch64-linux-gnu-gcc run="qemu-aarch64 -cpu max" ;;      # NEON, its dot product, its product of matrices
neoverse) cc=aarch64-linux-gnu-gcc run="qemu-aarch64 -cpu neoverse-n1" groups=$kernels ;; # without the last of them; by its name only
aarch64-asan) # NEON's passes under the sanitizers; by its name only: minutes
         cc=aarch64-linux-gnu-gcc run="qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu" link="-static-libasan -static-libubsan"
         flags="-O0 -fsanitize=address,undefined -fno-sanitize-recover=all" groups="$kernels kernel_attention kernel_store"
         export ASAN_OPTIONS=detect_leaks=0 ;; # it cannot look for leaks in the emulator
arm)     cc=arm-linux-gnueabihf-gcc run=qemu-arm skip="families|session" ;; # ARMv7: the scalar pass
riscv64) cc=riscv64-linux-gnu-gcc run=qemu-riscv64 skip="families|session" ;;
s390x)   cc=s390x-linux-gnu-gcc run=qemu-s390x skip=families ;;             # big-endian
ppc64)   cc=powerpc64-linux-gnu-gcc run=qemu-ppc64 skip="families|session" ;; # big-endian
windows) # 64 bits; wine makes its folders in BUILD
         cc=x86_64-w64-mingw32-gcc exe=.exe run=$(command -v wine64 || echo /usr/lib/wine/wine64)
         export WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml=" WINEPREFIX="${WINEPREFIX:-$(realpath "$build")/wine}"
         unset DISPLAY ;;
custom)  cc=$CC run=$RUN flags=$CROSS_FLAGS ;;
--names) echo "$names"; exit 0 ;;
*)       echo "platforms: $names" >&2; exit 2 ;;
esac

passed=0 failed=0 skipped=0
finish() { echo "$passed passed, $failed failed, $skipped skipped"; exit $((failed > 0)); }
have() { command -v "$1" > /dev/null 2>&1; }
for tool in $cc ${run%% *}; do
    have "$tool" || { echo "skipped $name: no $tool"; skipped=1; finish; }
done

check() { # WHAT COMMAND...: it succeeds
    what=$1
    shift
    if "$@" > "$log" 2>&1; then passed=$((passed + 1))
    else failed=$((failed + 1)); echo "FAILED $name: $what"; sed -n 1,5p "$log"; fi
}

files=$build/$name/files log=$build/$name/log
mkdir -p "$files" || exit 1
targets=$there/run_tests
for p in $programs; do targets="$targets $there/$p"; done
if [ -n "$cc" ] && ! ${MAKE:-make} --no-print-directory -s $targets BUILD="$there" CC="${CCACHE:-} $cc" CFLAGS="-O2 $flags" \
     LDFLAGS="$link" > "$there/build.log" 2>&1; then
    sed -n 1,20p "$there/build.log"
    failed=1
    echo "FAILED $name: it does not build"
    finish
fi

# ---- files go both ways

here=$files/here
ids=1,20,300,7,41,99,5,250,17,63
program() { p=$1; shift; $run "$there/$p$exe" "$@"; }
"$build/tfm-quantize" --type q4_k_m "$build/stories.tfm" "$here.q4.tfm" 2> "$log" &&
"$build/tfm-quantize" --type f16 "$build/stories.tfm" "$here.f16.tfm" || exit 1

check "conversion" program tfm-convert examples/models/stories "$files/stories.tfm"
check "conversion: the same bytes" cmp "$files/stories.tfm" "$build/stories.tfm"
for type in q4_k_m f16; do
    check "--type $type" program tfm-quantize --type $type "$build/stories.tfm" "$files/$type.tfm"
done
check "q4_k_m: the same bytes" cmp "$files/q4_k_m.tfm" "$here.q4.tfm"
check "f16: the same bytes" cmp "$files/f16.tfm" "$here.f16.tfm"
check "GGUF" program tfm-convert --to-gguf "$here.q4.tfm" "$files/q4.gguf"
check "GGUF, here" "$build/tfm-convert" --to-gguf "$here.q4.tfm" "$here.gguf"
check "GGUF: the same bytes" cmp "$files/q4.gguf" "$here.gguf"

for mode in "" --fast; do
    for model in "$build/stories.tfm" "$here.q4.tfm" "$here.f16.tfm"; do
        check "logits, here" "$build/tfm-eval" "$model" --ids $ids --isa scalar $mode --logits "$here.logits"
        check "logits of $model $mode" program tfm-eval "$model" --ids $ids --isa scalar $mode --logits "$files/logits"
        check "logits of $model $mode: the same bits" cmp "$files/logits" "$here.logits"
    done
done
story="$build/stories.tfm -p Once -n 40 --seed 7 --isa scalar"
"$build/generate" $story > "$here.text" 2> "$log"
program generate $story > "$files/text" 2> "$log"
check "the same text from the same seed" cmp "$files/text" "$here.text"

# ---- the tests

[ -z "$skip" ] || groups=$(program run_tests --list | grep -vxE "$skip")
timeout 1500 $run "$there/run_tests$exe" --dir "$build/$name/tests" $groups > "$build/$name/tests.log" 2>&1
status=$?
grep -E '^(FAILED|skipped)| FAILED|signal' "$build/$name/tests.log"
sums=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$build/$name/tests.log" | tr -dc '0-9 ')
set -- $sums
if [ -z "$sums" ]; then failed=$((failed + 1)); echo "FAILED $name: run_tests ended with exit status $status"; finish; fi
passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + ${3:-0}))
finish
