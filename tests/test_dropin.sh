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

if have gcc; then
    program "gcc -O0" "gcc -std=c99 -O0 $strict"
    program "gcc -O3 -march=native" "gcc -std=c99 -O3 -march=native $strict"
    program "gcc -O0, TFM_TYPES of none but F32" "gcc -std=c99 -O0 $strict -DTFM_TYPES=0"
    program "gcc -O0, TFM_DEBUG" "gcc -std=c99 -O0 $strict -DTFM_DEBUG"
    for switch in SIMD AVX2 AVX512 AMX TEXT MALLOC STDIO MMAP THREADS MESSAGES EXPERTS NFC; do
        program "gcc -O0, TFM_NO_$switch" "gcc -std=c99 -O0 $strict -DTFM_NO_$switch"
    done
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

if have s390x-linux-gnu-gcc; then # big-endian: models in memory run, files are refused
    program "s390x" "s390x-linux-gnu-gcc -std=c99 -O1 $strict" "-static" "$(first qemu-s390x true)"
else skip "s390x"; fi

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

wait
passed=$(find "$out"/job.* -name passed | wc -l)
echo "$((passed)) passed, $((number - passed)) failed, $skipped skipped"
[ "$passed" -eq "$number" ]
