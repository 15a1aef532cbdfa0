#!/bin/sh
# The header with every compiler, standard, optimisation level and switch within reach; and all other sources without a
# warning. What a machine has not is skipped and counted.
#
#   sh tests/test_dropin.sh [BUILD]        from the top directory; ends with "N passed, N failed, N skipped"

out=${1:-build/dropin}
strict="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror"
none="-DTFM_NO_SIMD -DTFM_NO_TEXT -DTFM_NO_MALLOC -DTFM_NO_STDIO -DTFM_NO_MMAP -DTFM_NO_THREADS -DTFM_NO_MESSAGES -DTFM_NO_EXPERTS"
skipped=0 running=0 most=$(getconf _NPROCESSORS_ONLN || echo 1)
mkdir -p "$out" && rm -rf "$out"/job.* || exit 1

have() { command -v "$1" > /dev/null 2>&1; }

# COMMAND...: runs beside the others, as many as there are processors, in a folder of its own, $dir.
number=0
beside() {
    number=$((number + 1)) running=$((running + 1))
    ( dir=$out/job.$number && mkdir -p "$dir" && "$@" ) &
    if [ $running -ge "$most" ]; then wait; running=0; fi
}

report() { # NAME STATUS: says it, and what was said if it failed; the sum counts the files
    if [ "$2" = 0 ]; then echo "ok       $1" | tee "$dir/passed"
    else { echo "FAILED   $1"; sed -n '1,12p' "$dir/log"; } | tee "$dir/failed"; fi
}

skip() { skipped=$((skipped + 1)); echo "skipped  $1"; }

# NAME "COMPILER FLAGS" ["LINKER FLAGS"] ["RUNNER"] [SOURCE]: both units become a program, and it runs.
program() { beside program_now "$@"; }
program_now() {
    file=${5:-tests/test_dropin.c}
    { $2 -I. -DUNIT=1 -c "$file" -o "$dir/one.o" && $2 -I. -DUNIT=2 -c "$file" -o "$dir/two.o" &&
      $2 "$dir/one.o" "$dir/two.o" -o "$dir/program" $3 && $4 "$dir/program"; } > "$dir/log" 2>&1
    report "$1" $?
    sed -n '$s/^bits //p' "$dir/log" > "$dir/bits"
}

# NAME COMMAND...: it succeeds without a word.
silent() { beside silent_now "$@"; }
silent_now() {
    name=$1
    shift
    "$@" > "$dir/log" 2>&1 && test ! -s "$dir/log"
    report "$name" $?
}

# NAME "COMPILER FLAGS": the compiler's front end alone.
syntax() { beside syntax_now "$@"; }
syntax_now() {
    { $2 -fsyntax-only -I. -DUNIT=1 tests/test_dropin.c && $2 -fsyntax-only -I. -DUNIT=2 -DTFM_STATIC tests/test_dropin.c
    } > "$dir/log" 2>&1
    report "$1" $?
}

first() { for tool in "$@"; do if have "$tool"; then echo "$tool"; return; fi; done; }
clang=$(first clang-16 clang-19 clang)
clangxx=$(first clang++-16 clang++-19 clang++)

# ---- C: standards by the front end, levels of optimisation and switches as programs

for cc in gcc $clang; do
    have "$cc" || { skip "$cc"; continue; }
    for std in c99 c11 c17; do syntax "$cc -std=$std" "$cc -std=$std $strict"; done
    program "$cc -O0, TFM_STATIC in both units" "$cc -std=c99 -O0 $strict -DTFM_STATIC"
    program "$cc -O2" "$cc -std=c99 -O2 $strict"
    program "$cc -O1, all switches" "$cc -std=c99 -O1 $strict $none"
    program "$cc -O1 -fopenmp" "$cc -std=c99 -O1 $strict -fopenmp -DTFM_NO_SIMD"
done
[ -n "$clang" ] || skip "clang"

# Whatever an optimiser may assume, and whether it may fuse a product and a sum or not; of clang's see FLAGS of the manual.
[ -z "$clang" ] || program "$clang -O2 -march=native -ffp-contract=on" "$clang -O2 -march=native -ffp-contract=on $strict"
[ -z "$clang" ] || program "$clang -Os -ffp-contract=off" "$clang -Os -ffp-contract=off $strict"
if have gcc; then
    program "gcc -O0" "gcc -std=c99 -O0 $strict"
    program "gcc -O3 -march=native -ffp-contract=fast, strict aliasing" \
        "gcc -O3 -march=native -ffp-contract=fast -fstrict-aliasing -Wstrict-aliasing $strict"
    program "gcc -Os -ffp-contract=off" "gcc -std=c99 -Os -ffp-contract=off $strict"
    program "gcc -O1 -flto, TFM_STATIC in both units" "gcc -std=c99 -O1 -flto -DTFM_STATIC $strict"
    program "gcc -O1 -fno-strict-aliasing -funsigned-char" "gcc -std=c99 -O1 -fno-strict-aliasing -funsigned-char $strict"
    program "gcc -O0, TFM_TYPES of none but F32" "gcc -std=c99 -O0 $strict -DTFM_TYPES=0"
    program "gcc -O0, TFM_DEBUG" "gcc -std=c99 -O0 $strict -DTFM_DEBUG"
    for switch in SIMD AVX2 AVX512 AMX TEXT MALLOC STDIO MMAP THREADS MESSAGES EXPERTS NFC; do
        syntax "gcc, TFM_NO_$switch" "gcc -std=c99 $strict -DTFM_NO_$switch"
    done
    # Programs of several; each is in one.
    for switches in "STDIO MMAP" "STDIO MMAP MALLOC THREADS" "STDIO MMAP MALLOC THREADS TEXT EXPERTS SIMD" "AVX2 AVX512" \
        "AVX512 AMX" "TEXT NFC" "NFC MESSAGES EXPERTS"; do
        program "gcc -O0, TFM_NO_ $switches" "gcc -std=c99 -O0 $strict $(printf ' -DTFM_NO_%s' $switches)"
    done
    mkdir -p "$out/renamed"
    cp tfm.h "$out/renamed/other.h"
    sed 's/"tfm\.h"/"other.h"/' tests/test_dropin.c > "$out/renamed/test_dropin.c"
    program "gcc -O0, another name of the file, TFM_API" \
        "gcc -std=c99 -O0 $strict -I$out/renamed -DTFM_SELF=\"other.h\" -DTFM_API=__attribute__((used))" "" "" \
        "$out/renamed/test_dropin.c"
fi

# ---- C++

for cxx in g++ $clangxx; do
    have "$cxx" || { skip "$cxx"; continue; }
    for std in c++11 c++14 c++17 c++20; do syntax "$cxx -std=$std" "$cxx -x c++ -std=$std $strict"; done
    cp tests/test_dropin.c "$out/test_dropin.cc"
    for level in -O0 -O2; do program "$cxx $level" "$cxx -std=c++17 $level $strict" "" "" "$out/test_dropin.cc"; done
done

# ---- other compilers and machines

if have tcc; then
    program "tcc" "tcc -Wall"
    program "tcc TFM_STATIC in both units" "tcc -Wall -DTFM_STATIC"
else skip "tcc"; fi

echo 'int main(void) { return sizeof(void *) != 4; }' > "$out/tiny.c"
if gcc -m32 "$out/tiny.c" -o "$out/tiny" 2> /dev/null && "$out/tiny"; then program "gcc -m32" "gcc -m32 -std=c99 -O1 $strict"
elif have i686-linux-gnu-gcc; then program "i686" "i686-linux-gnu-gcc -std=c99 -O1 $strict" "-static"
else skip "32-bit x86"; fi

if have aarch64-linux-gnu-gcc && have qemu-aarch64; then
    program "aarch64" "aarch64-linux-gnu-gcc -std=c99 -O1 $strict" "-static" "qemu-aarch64"
else skip "aarch64"; fi

if have s390x-linux-gnu-gcc && have qemu-s390x; then # big-endian; gnu99: see FLAGS of the manual
    program "s390x" "s390x-linux-gnu-gcc -std=gnu99 -O1 $strict" "-static" "qemu-s390x"
else skip "s390x"; fi

# Windows: by mingw, and the dialect of its own compiler by clang, with the little of its C library that tfm.h takes.
if have x86_64-w64-mingw32-gcc; then
    silent "mingw" x86_64-w64-mingw32-gcc -std=c99 $strict -DUNIT=1 -I. -fsyntax-only tests/test_dropin.c
    printf '#include <windows.h>\n#define TFM_IMPLEMENTATION\n#include "tfm.h"\n' > "$out/windows.c"
    printf '#define TFM_IMPLEMENTATION\n#include "tfm.h"\n#include <windows.h>\n' > "$out/windows_after.c"
    for f in windows windows_after; do
        silent "mingw, $f.h" x86_64-w64-mingw32-gcc -std=c11 $strict -I. -fsyntax-only "$out/$f.c"
    done
else skip "mingw"; fi

if have clang-19; then
    msvc="-fms-compatibility-version=19.38 -I. -DUNIT=1"
    for machine in x86_64 i686 aarch64; do
        for language in "c -std=c11" "c++ -std=c++17"; do
            silent "MSVC's dialect, $machine, $language" clang-19 --target=$machine-pc-windows-msvc $msvc -nostdlibinc \
                -isystem tests/msvc -x $language $strict -fsyntax-only tests/test_dropin.c
        done
    done
    silent "clang-cl /W4" clang-19 --driver-mode=cl --target=x86_64-pc-windows-msvc $msvc -imsvc tests/msvc /W4 /WX /Zs \
        tests/test_dropin.c
    silent "clang-cl /Od" clang-19 --driver-mode=cl --target=x86_64-pc-windows-msvc $msvc -imsvc tests/msvc /Od /c \
        "/Fo$out/cl.obj" tests/test_dropin.c
else skip "MSVC's dialect: no clang-19"; fi

# ---- everything else in the repository, without a warning

source_now() { # COMPILER SOURCE
    case $2 in tests/test_recipes.c) parts="-DTFM__TEST_PARTS -DTFM_NO_SIMD";; *) parts=;; esac
    $1 -std=c99 $strict $parts -I. -fsyntax-only "$2" > "$dir/log" 2>&1
    report "$1 $2" $?
}
for cc in gcc $clang; do
    have "$cc" || continue
    for f in tools/*.c tests/*.c examples/*.c; do
        case $f in tools/tfm_impl.c|tests/test_dropin.c|tests/test_kernels.c) continue;; esac
        beside source_now "$cc" "$f"
    done
done

# The macro is spelled one way, or the implementation is missing without a word.
spelling_now() {
    ! grep -rnE 'define +TFM_IMPL' tools tests examples tfm.h README.md | grep -v 'TFM_IMPLEMENTATION' > "$dir/log"
    report "spelling of TFM_IMPLEMENTATION" $?
}
beside spelling_now

# Lines have at most 120 columns; what scripts write to tests/ref may have more.
columns_now() {
    find tfm.h tools tests examples -name '*.[ch]' ! -path 'tests/ref/*' -exec env LC_ALL=C awk '
        { gsub(/[\200-\277]/, "") } # of a character in UTF-8 the first byte counts
        length($0) > 120 { print FILENAME ":" FNR ": " length($0) " columns" }' {} + > "$dir/log"
    [ ! -s "$dir/log" ]
    report "lines of at most 120 columns" $?
}
beside columns_now

wait

# One sequence of operations in the scalar pass, and one in those with fused sums, whatever made them.
bits_now() {
    cat "$out"/job.*/bits | tr ' ' '\n' | sort -u > "$dir/log"
    [ "$(cat "$out"/job.*/bits | cut -d ' ' -f 2 | sort -u | wc -l)" -eq 1 ] && [ "$(wc -l < "$dir/log")" -le 2 ]
    report "the same bits from all of these programs" $?
}
beside bits_now
wait
passed=$(find "$out"/job.* -name passed | wc -l)
echo "$((passed)) passed, $((number - passed)) failed, $skipped skipped"
[ "$passed" -eq "$number" ]
