# WebAssembly, a part of the Makefile.
#
#   make wasm           build/wasm: the modules, the JavaScript wrapper and the page; serve that directory
#   make wasm-test      kernels under WASI; modules and wrapper in node; the page in headless Chromium
#   make wasm-bench     speed in the browser beside the native program, and beside wllama
#   make wasm-size      what switches of the header save
#
# Tests in the browser take playwright-core, and the benchmark @wllama/wllama, from build/npm:
#   npm install --prefix build/npm playwright-core @wllama/wllama@3.13
#
# The modules of the library need clang and lld alone: no Emscripten, no C library. The converter's module, which the page
# needs for .gguf files, is linked with wasi-libc; without that it is left out.

WASM := $(BUILD)/wasm
WASM_SRC := examples/wasm
WASM_JS := $(notdir $(wildcard $(WASM_SRC)/*.mjs $(WASM_SRC)/*.mts $(WASM_SRC)/*.html $(WASM_SRC)/*.css))

WASM_FLAGS = -std=c99 -Oz -ffreestanding -nostdlib -Wall -Wextra -Wpedantic -Wconversion -Wno-shorten-64-to-32 -Wno-pass-failed -Wshadow -I$(WASM_SRC)/include -I.
WASM_LINK = -nostdlib -Wl,--no-entry,--strip-all,--stack-first,-z,stack-size=262144
WASM_SIMD = -msimd128 -mbulk-memory -msign-ext -mnontrapping-fptoint
WASM_DOT = -mrelaxed-simd -DTFM_WASM_DOT
WASM_SHARED = -matomics -mmutable-globals
WASM_SHARE = -Wl,--import-memory,--shared-memory,--initial-memory=4194304,--max-memory=4294967296,--export=__stack_pointer

# name, target, flags, flags of the linker, compiler
define WASM_MODULE
$(WASM)/$(1).wasm: $(WASM_SRC)/tfm_wasm.c $(WASM_SRC)/libc.c tfm.h $(wildcard $(WASM_SRC)/include/*.h) $(WASM_SRC)/wasm.mk
	@mkdir -p $(WASM)/$(1)
	$(5) --target=$(2) $(WASM_FLAGS) $(3) -c -o $(WASM)/$(1)/tfm.o $(WASM_SRC)/tfm_wasm.c
	$(5) --target=$(2) $(WASM_FLAGS) $(3) -fno-builtin -c -o $(WASM)/$(1)/libc.o $(WASM_SRC)/libc.c
	$(5) --target=$(2) $(WASM_LINK) $(4) -o $$@ $(WASM)/$(1)/tfm.o $(WASM)/$(1)/libc.o
endef
$(eval $(call WASM_MODULE,tfm-scalar,wasm32,-mno-bulk-memory,,$(CLANG)))
$(eval $(call WASM_MODULE,tfm-simd,wasm32,$(WASM_SIMD),,$(CLANG)))
$(eval $(call WASM_MODULE,tfm-relaxed,wasm32,$(WASM_SIMD) -mrelaxed-simd,,$(CLANG)))
$(eval $(call WASM_MODULE,tfm-dot,wasm32,$(WASM_SIMD) $(WASM_DOT),,$(CLANG)))
$(eval $(call WASM_MODULE,tfm-simd-threads,wasm32,$(WASM_SIMD) $(WASM_SHARED),$(WASM_SHARE),$(CLANG)))
$(eval $(call WASM_MODULE,tfm-relaxed-threads,wasm32,$(WASM_SIMD) -mrelaxed-simd $(WASM_SHARED),$(WASM_SHARE),$(CLANG)))
$(eval $(call WASM_MODULE,tfm-dot-threads,wasm32,$(WASM_SIMD) $(WASM_DOT) $(WASM_SHARED),$(WASM_SHARE),$(CLANG)))
# clang 16 miscompiles vectors with 64-bit addresses, so without a newer one this module is scalar.
CLANG64 := $(shell command -v clang-19 || command -v clang-20 || command -v clang-21)
$(eval $(if $(CLANG64),$(call WASM_MODULE,tfm-memory64,wasm64,$(WASM_SIMD),,$(CLANG64)),$(call WASM_MODULE,tfm-memory64,wasm64,,,$(CLANG))))

WASM_SMALL = tfm-scalar tfm-simd tfm-relaxed tfm-dot
WASM_MODULES = $(WASM_SMALL) tfm-simd-threads tfm-relaxed-threads tfm-dot-threads tfm-memory64

# The converter's core; what runs on files and systems alone stays out.
WASM_TOOLS := $(filter-out tools/tfm% tools/os.c tools/pool.c tools/run.c tools/isa.c tools/plot.c,$(wildcard tools/*.c))
$(WASM)/convert/%.o: %.c
	@mkdir -p $(@D)
	$(CLANG) --target=wasm32-wasi -D_WASI_EMULATED_SIGNAL -Os -mbulk-memory -ffunction-sections -MMD -MP -I. -Itools -c -o $@ $<
$(WASM)/tfm-convert.wasm: $(WASM_TOOLS:%.c=$(WASM)/convert/%.o) $(WASM)/convert/tools/tfm_impl.o $(WASM)/convert/$(WASM_SRC)/convert_wasm.o
	$(CLANG) --target=wasm32-wasi -nostartfiles -Wl,--no-entry,--strip-all,--stack-first,-z,stack-size=262144 \
	    -o $@ $^ -lwasi-emulated-signal
-include $(wildcard $(WASM)/convert/*/*.d)

# Everything included, a module is to be smaller than 200,000 bytes, and 80,000 compressed.
wasm: $(WASM_MODULES:%=$(WASM)/%.wasm)
	@if [ -d /usr/include/wasm32-wasi ] || [ -n "$(WASI)" ]; then $(MAKE) --no-print-directory $(WASM)/tfm-convert.wasm; \
	    else echo "no wasi-libc: the page will not convert .gguf files"; fi
	@cp $(addprefix $(WASM_SRC)/,$(WASM_JS)) $(WASM)/
	@for m in $(WASM_MODULES) tfm-convert; do f=$(WASM)/$$m.wasm; [ ! -f $$f ] || \
	    printf '%-22s %7d bytes, %6d compressed\n' $$m.wasm $$(wc -c < $$f) $$(gzip -9 < $$f | wc -c); done
	@for m in $(WASM_SMALL); do f=$(WASM)/$$m.wasm; \
	    [ $$(wc -c < $$f) -lt 200000 ] && [ $$(gzip -9 < $$f | wc -c) -lt 80000 ] || \
	    { echo "$$m.wasm is larger than 200,000 bytes, or 80,000 compressed"; exit 1; }; done

# What each switch saves in the module with SIMD.
WASM_SWITCHES = TFM_NO_NFC TFM_NO_MESSAGES
wasm-size: $(WASM)/tfm-simd.wasm
	@for s in $(WASM_SWITCHES); do mkdir -p $(WASM)/size; \
	    $(CLANG) --target=wasm32 $(WASM_FLAGS) $(WASM_SIMD) -D$$s -c -o $(WASM)/size/tfm.o $(WASM_SRC)/tfm_wasm.c && \
	    $(CLANG) --target=wasm32 $(WASM_LINK) -o $(WASM)/size/tfm.wasm $(WASM)/size/tfm.o $(WASM)/tfm-simd/libc.o && \
	    printf '%-14s saves %6d bytes, %6d compressed\n' $$s \
	        $$(($$(wc -c < $(WASM)/tfm-simd.wasm) - $$(wc -c < $(WASM)/size/tfm.wasm))) \
	        $$(($$(gzip -9 < $(WASM)/tfm-simd.wasm | wc -c) - $$(gzip -9 < $(WASM)/size/tfm.wasm | wc -c))); done

# The tests of kernels need no files and no threads. One thread in node too: it may crash when it ends while its compiler
# threads are at work. What this node does not run, the browser's test does.
WASM_CC = $(CLANG) --target=wasm32-wasi -O2 -I.
WASM_RUN = node --no-warnings --single-threaded -e 'const { WASI } = require("wasi"), fs = require("fs"); \
    const wasi = new WASI({ version: "preview1" }), bytes = fs.readFileSync(process.argv[1]); \
    if (!WebAssembly.validate(bytes)) console.log("skipped " + process.argv[1] + "\n0 passed, 0 failed, 1 skipped"); \
    else process.exit(wasi.start(new WebAssembly.Instance(new WebAssembly.Module(bytes), { wasi_snapshot_preview1: wasi.wasiImport })))'
# name, flags
define WASM_KERNELS
$(WASM)/kernels/$(1).wasm: tools/tfm_impl.c tests/test_kernels.c tfm.h
	@mkdir -p $(WASM)/kernels/$(1)
	$(WASM_CC) $(2) -c -o $(WASM)/kernels/$(1)/tfm.o tools/tfm_impl.c
	$(WASM_CC) $(2) -DTEST_KERNELS_ALONE -c -o $(WASM)/kernels/$(1)/tests.o tests/test_kernels.c
	$(CLANG) --target=wasm32-wasi -o $$@ $(WASM)/kernels/$(1)/tfm.o $(WASM)/kernels/$(1)/tests.o -lm
endef
$(eval $(call WASM_KERNELS,scalar,-mno-simd128))
$(eval $(call WASM_KERNELS,simd,-msimd128))
$(eval $(call WASM_KERNELS,relaxed,-msimd128 -mrelaxed-simd))
$(eval $(call WASM_KERNELS,dot,-msimd128 $(WASM_DOT)))
wasm-kernels: $(patsubst %,$(WASM)/kernels/%.wasm,scalar simd relaxed dot)
	@for f in $^; do $(WASM_RUN) $$f || exit 1; done

wasm-test: all wasm $(BUILD)/stories.tfm
	@{ $(MAKE) --no-print-directory wasm-kernels; echo "exit status $$?"; \
	   node tests/wasm/node_test.mjs $(BUILD); echo "exit status $$?"; \
	   node tests/wasm/browser_test.mjs $(BUILD); echo "exit status $$?"; \
	   sh tests/wasm/builds.sh $(BUILD) $(CLANG); echo "exit status $$?"; } 2>&1 | $(SUM)

wasm-bench: all wasm
	node tests/wasm/bench.mjs $(BUILD) $(WASM_BENCH_MODEL)
