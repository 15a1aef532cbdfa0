#!/bin/sh
# builds.sh BUILD CLANG - examples/minimal.c as the README builds it with WASI and with Emscripten; the text is that of
# the native scalar build, whose bits WebAssembly has.
build=$1 clang=$2 out=$1/wasm/builds passed=0 failed=0 skipped=0
mkdir -p "$out"
prompt="Once upon a time"
${CC:-cc} -O1 -DTFM_NO_SIMD -I. examples/minimal.c -o "$out/native" -lm && "$out/native" "$build/stories.tfm" "$prompt" > "$out/native.txt" || exit 1
[ "$(wc -c < "$out/native.txt")" -gt 100 ] || { echo "FAILED: the native program wrote nothing"; exit 1; }

same() { # NAME: its text against the native one
    if cmp -s "$out/native.txt" "$out/$1.txt"; then passed=$((passed + 1))
    else failed=$((failed + 1)); echo "FAILED: $1 wrote $(head -c 200 "$out/$1.txt")"; fi
}
skip() { skipped=$((skipped + 1)); echo "skipped $1"; }

cat > "$out/wasi.mjs" <<'END'
import { WASI } from 'node:wasi'; import fs from 'node:fs';
const [, , module, ...args] = process.argv;
const wasi = new WASI({ version: 'preview1', args: [module, ...args], preopens: { '/': '/' } });
const m = new WebAssembly.Module(fs.readFileSync(module));
process.exit(wasi.start(new WebAssembly.Instance(m, { wasi_snapshot_preview1: wasi.wasiImport })));
END
model=$(realpath "$build/stories.tfm")
for flag in "" -msimd128; do
    if [ ! -d /usr/include/wasm32-wasi ] && [ -z "$WASI" ]; then skip "WASI $flag: no wasi-libc"; continue; fi
    "$clang" --target=wasm32-wasi -O2 $flag -I. examples/minimal.c -o "$out/wasi.wasm" -lm &&
        node --no-warnings --single-threaded "$out/wasi.mjs" "$out/wasi.wasm" "$model" "$prompt" > "$out/wasi$flag.txt"
    same "wasi$flag"
done
for flag in "" -msimd128; do
    if ! command -v emcc > /dev/null; then skip "Emscripten $flag: no emcc"; continue; fi
    # Debian's emcc looks for acorn beside other packages, and its output wants node without fetch.
    NODE_PATH=/usr/share/nodejs emcc -O2 $flag -s ALLOW_MEMORY_GROWTH=1 -s EXIT_RUNTIME=1 -s SINGLE_FILE=1 -s NODERAWFS=1 \
        -I. examples/minimal.c -o "$out/em.js" > "$out/emcc.log" 2>&1 || tail -n 3 "$out/emcc.log"
    node --no-experimental-fetch "$out/em.js" "$model" "$prompt" > "$out/em$flag.txt"
    same "em$flag"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
