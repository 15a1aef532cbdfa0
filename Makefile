# tfm.h: everything is built into build/; `make help` lists what there is.
#
#   make CC=clang CFLAGS="-O3 -g"    another compiler, other flags; neither is ever needed for speed or correctness:
#                                    the header chooses the instruction set at run time
#   make BUILD=/tmp/b                another place

CC      = cc
CFLAGS  = -O2
LDLIBS  = -lm
AR      = ar
PYTHON  = python3
BUILD   = build
T       = 60
FLAGS   = $(CPPFLAGS) -I. $(CFLAGS) -MMD -MP

# One program a file, but for the pieces in tools/ that programs share. Pieces and the implementation of tfm.h, which is
# compiled once, go into one archive; programs take from it what they need.
PIECES   := $(patsubst %.c,$(BUILD)/%.o,$(filter-out tools/tfm%,$(wildcard tools/*.c)))
PROGRAMS := $(patsubst %.c,$(BUILD)/%,$(notdir $(wildcard tools/tfm-*.c examples/*.c)))
# Tests that are programs of their own, or a part of one.
ALONE    := tests/test_dropin.c tests/test_recipes.c tests/size_embedded.c tests/test_memory.c tests/heap.c tests/embedded_newlib.c
TESTS    := $(patsubst %.c,$(BUILD)/%.o,$(filter-out $(ALONE),$(wildcard tests/*.c)))
ARCHIVE  := $(BUILD)/libtools.a

.PHONY: all help run test sanitize tsan msan valgrind valgrind-tests valgrind-programs memory bits format platforms wasm wasm-test wasm-kernels wasm-size wasm-bench compilers embedded embedded-test fuzz text large real quality size bench bench-kernels bench-text bench-rivals clean
.PRECIOUS: $(BUILD)/%.o

all: $(PROGRAMS)

help:
	@echo "make              all programs: $(notdir $(PROGRAMS))"
	@echo "make run          convert the small checkpoint of examples/models and generate text from it"
	@echo "make test         the tests; seconds, no network, nothing but make and a C compiler"
	@echo "make clean        remove $(BUILD)/"
	@echo
	@echo "Long suites, each alone:"
	@echo "make sanitize     make test under address and undefined-behaviour sanitizers (CC, default gcc)"
	@echo "make tsan         the tests of threads under the thread sanitizer (gcc)"
	@echo "make msan         make test under the memory sanitizer (clang; the scalar pass)"
	@echo "make valgrind     make test under valgrind (AVX2 and the scalar pass; ten minutes, five with -j2)"
	@echo "make memory       nothing is allocated where it must not be; every allocation fails in turn"
	@echo "make format       files read by a reader made from the specification alone (python)"
	@echo "make bits         the same logits whatever the threads, chunks and neighbours; pool and OpenMP (gcc)"
	@echo "make platforms    files and tests on other machines by cross compilers and emulators (make cross-NAME: one):"
	@echo "                  $(PLATFORMS)"
	@echo "make wasm         $(BUILD)/wasm: WebAssembly modules and a page to try them (clang, lld)"
	@echo "make wasm-test    their tests in node and in headless Chromium (node, playwright-core)"
	@echo "make embedded     the story model as a program for microcontrollers (gcc-arm-none-eabi, gcc-riscv64-unknown-elf)"
	@echo "make embedded-test  those programs in an emulator (qemu), and what they may weigh"
	@echo "make compilers    the header and all sources with gcc, clang and tcc, C99 to C++20, every TFM_NO_ switch"
	@echo "make fuzz T=60    libFuzzer on .tfm files and every kind of checkpoint, T seconds each (clang)"
	@echo "make text N=1000  N random texts through every kind of tokenizer and the references (python, network)"
	@echo "make large        converting 1.1 GB: memory, offsets beyond 4 GiB (Linux, python, 1.2 GB of disk)"
	@echo "make real         real models: perplexity, text and weights against recorded references (python, network)"
	@echo "make quality      the quantiser against llama.cpp's on real models (LLAMA=folder of its programs; python, network)"
	@echo "make chat         published chat templates against transformers (python, network)"
	@echo "make size         bytes of code and stack of the implementation"
	@echo "make bench-text   speed of tfm-tokenize against the tokenizers package (python)"
	@echo "make bench        speed of the models in $(BUILD)/ (BENCH_MODELS=...)"
	@echo "make bench-kernels  each matmul kernel beside the processor's peaks (Linux, x86-64; KERNELS=\"--isa avx2 ...\")"
	@echo "make bench-rivals real models beside llama.cpp, in turn (python, network, cmake; RIVALS=\"--help\")"

# ---- building -------------------------------------------------------------------------------------------------------

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -c -o $@ $<

# The examples hold the implementation, as a program of one file does; here it is compiled already. `make compilers`
# builds them as they stand.
$(BUILD)/examples/%.o: FLAGS += -DTFM__IMPLEMENTED

$(BUILD)/tfm.o: tools/tfm_impl.c
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -c -o $@ $<

$(ARCHIVE): $(PIECES) $(BUILD)/tfm.o
	@rm -f $@
	$(AR) rcs $@ $^

$(BUILD)/tfm-%: $(BUILD)/tools/tfm-%.o $(ARCHIVE)
	$(CC) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $^ $(LDLIBS)

$(BUILD)/%: $(BUILD)/examples/%.o $(ARCHIVE)
	$(CC) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $^ $(LDLIBS)

$(BUILD)/chat_cli: $(BUILD)/tests/chat/chat_cli.o $(BUILD)/tests/chat_case.o $(ARCHIVE)
	$(CC) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $^ $(LDLIBS)

$(BUILD)/run_tests: $(TESTS) $(ARCHIVE)
	$(CC) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $^ $(LDLIBS)

# The recipes of the manual, followed: what they add stands behind TFM__TEST_PARTS.
RECIPES := $(BUILD)/recipes/tests/test_recipes.o $(BUILD)/recipes/tools/families_llama.o
$(BUILD)/recipes/%.o: FLAGS += -DTFM__TEST_PARTS -DTFM_NO_SIMD
$(BUILD)/recipes/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -c -o $@ $<

$(BUILD)/test_recipes: $(RECIPES) $(BUILD)/tests/tiny.o $(ARCHIVE)
	$(CC) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $^ $(LDLIBS)

# Programs whose malloc is counted and fails when told: see tests/heap.h.
WRAP := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free
$(BUILD)/test_memory: $(BUILD)/tests/test_memory.o $(BUILD)/tests/heap.o $(BUILD)/tests/tiny.o $(BUILD)/tests/chat_case.o $(ARCHIVE)
	$(CC) $(CFLAGS) $(LDFLAGS) $(WRAP) -pthread -o $@ $^ $(LDLIBS)

$(BUILD)/failing/tfm-%: $(BUILD)/tools/tfm-%.o $(BUILD)/tests/heap.o $(ARCHIVE)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) $(WRAP) -pthread -o $@ $^ $(LDLIBS)

$(BUILD)/failing/%: $(BUILD)/examples/%.o $(BUILD)/tests/heap.o $(ARCHIVE)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) $(WRAP) -pthread -o $@ $^ $(LDLIBS)

clean:
	rm -rf $(BUILD)

-include $(wildcard $(BUILD)/*.d $(BUILD)/*/*.d $(BUILD)/*/*/*.d)

# ---- use ------------------------------------------------------------------------------------------------------------

$(BUILD)/stories.tfm: examples/models/stories $(wildcard examples/models/stories/*) $(BUILD)/tfm-convert
	$(BUILD)/tfm-convert examples/models/stories $@

run: $(BUILD)/stories.tfm $(BUILD)/generate
	@echo
	@$(BUILD)/generate $(BUILD)/stories.tfm -p "Once upon a time" -n 300 --echo
	@echo
	@echo "More: $(BUILD)/generate $(BUILD)/stories.tfm --help"

# Each suite ends with "N passed, N failed, N skipped"; SUM adds the lines up, and a suite that dies counts as failed.
SUM = awk ' \
    /^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$$/ { p += $$1; f += $$3; s += $$5; sums++; next } \
    /^exit status / { if ($$3 != 0 && f == 0) { f++; print "FAILED: a suite ended with exit status " $$3 } ends++; next } \
    { print } \
    END { if (sums < ends) { f++; print "FAILED: a suite ended without its sum" } \
          printf "%d passed, %d failed", p, f; if (s) printf ", %d skipped", s; print ""; exit f > 0 }'

test: all $(BUILD)/run_tests $(BUILD)/test_recipes
	@{ $(BUILD)/run_tests --dir $(BUILD)/tests; echo "exit status $$?"; \
	   $(BUILD)/test_recipes $(BUILD)/tests; echo "exit status $$?"; \
	   sh tests/test_programs.sh $(BUILD); echo "exit status $$?"; } 2>&1 | $(SUM)

# ---- long suites ----------------------------------------------------------------------------------------------------

SANITIZE = -g -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all

sanitize:
	@$(MAKE) --no-print-directory test BUILD=$(BUILD)/sanitize CC="$(if $(filter cc,$(CC)),gcc,$(CC))" CFLAGS="$(SANITIZE)"

tsan:
	@$(MAKE) --no-print-directory $(BUILD)/tsan/run_tests BUILD=$(BUILD)/tsan CC=gcc \
	    CFLAGS="-g -O1 -fsanitize=thread"
	$(BUILD)/tsan/run_tests --dir $(BUILD)/tsan/tests pool families model bits quantize

# Clang's: the first use of memory that nobody wrote. The scalar pass: intrinsics of the others are seen through, but
# take clang minutes.
msan:
	@$(MAKE) --no-print-directory test BUILD=$(BUILD)/msan CC="$(CLANG)" \
	    CFLAGS="-g -O1 -fno-omit-frame-pointer -fsanitize=memory -fno-sanitize-recover=all -DTFM_NO_SIMD"

# All of `make test` under valgrind, which knows no AVX-512 and no AVX-VNNI: AVX2 and the scalar pass. Ten minutes, five
# with make -j2: tests and programs are two jobs.
VALGRIND = valgrind -q --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite,possible
valgrind: valgrind-tests valgrind-programs
	@cat $(BUILD)/valgrind/tests.log $(BUILD)/valgrind/programs.log | $(SUM)

valgrind-tests: $(BUILD)/run_tests $(BUILD)/test_recipes
	@mkdir -p $(BUILD)/valgrind
	@{ $(VALGRIND) $(BUILD)/run_tests --dir $(BUILD)/valgrind; echo "exit status $$?"; \
	   $(VALGRIND) $(BUILD)/test_recipes $(BUILD)/valgrind; echo "exit status $$?"; } > $(BUILD)/valgrind/tests.log 2>&1

valgrind-programs: all
	@mkdir -p $(BUILD)/valgrind
	@{ RUN="$(VALGRIND)" sh tests/test_programs.sh $(BUILD); echo "exit status $$?"; } > $(BUILD)/valgrind/programs.log 2>&1

# The heap watched: what allocates nothing, and every allocation failing in turn; the same with a block for each piece of
# memory under the sanitizers.
memory: $(BUILD)/test_memory $(patsubst %,$(BUILD)/failing/%,tfm-convert tfm-quantize tfm-inspect tfm-eval tfm-tokenize tfm-bench generate chat)
	@$(MAKE) --no-print-directory $(BUILD)/memory/test_memory BUILD=$(BUILD)/memory CC="$(if $(filter cc,$(CC)),gcc,$(CC))" \
	    CFLAGS="$(SANITIZE) -DTFM_NO_SIMD -DTFM_FUZZING"
	@{ $(BUILD)/test_memory $(BUILD)/tests; echo "exit status $$?"; \
	   $(BUILD)/memory/test_memory $(BUILD)/memory/tests 40; echo "exit status $$?"; \
	   sh tests/test_failing.sh $(BUILD); echo "exit status $$?"; } 2>&1 | $(SUM)

# Threads, chunks, neighbours, caches, modes, on every instruction set; with the pool, and the header's loop with OpenMP.
# Waiting threads sleep: there are more than processors.
bits: $(BUILD)/run_tests
	@$(MAKE) --no-print-directory $(BUILD)/openmp/run_tests $(BUILD)/openmp/test_memory BUILD=$(BUILD)/openmp CC="$(if $(filter cc,$(CC)),gcc,$(CC))" CFLAGS="-O2 -fopenmp"
	@{ $(BUILD)/run_tests --dir $(BUILD)/tests bits_whole; echo "exit status $$?"; \
	   OMP_WAIT_POLICY=passive $(BUILD)/openmp/run_tests --dir $(BUILD)/openmp/tests bits; echo "exit status $$?"; \
	   $(BUILD)/openmp/test_memory $(BUILD)/openmp/tests 1; echo "exit status $$?"; } 2>&1 | $(SUM)

# Other machines, emulated: the table stands in tests/platforms.sh. All of them, as many at a time as there are processors;
# or one: make cross-s390x. All of run_tests runs on each.
PLATFORMS = $(shell sh tests/platforms.sh . --names)
PLATFORM_ONE = log=$$0/$$1.log; sh tests/platforms.sh $$0 $$1 > $$log 2>&1; status=$$?; \
    echo "$$1: $$(tail -n 1 $$log)"; echo "exit status $$status" >> $$log

platforms: all $(BUILD)/stories.tfm $(BUILD)/run_tests
	@printf '%s\n' $(PLATFORMS) | xargs -n 1 -P $(JOBS) sh -c '$(PLATFORM_ONE)' $(BUILD)
	@cat $(PLATFORMS:%=$(BUILD)/%.log) | $(SUM)

cross-%: all $(BUILD)/stories.tfm $(BUILD)/run_tests
	@sh tests/platforms.sh $(BUILD) $*

# The story model for microcontrollers, see examples/embedded; `trap` is the Cortex-M4 with a fault where memory is read
# unaligned.
embedded: $(BUILD)/tfm-convert $(BUILD)/tfm-inspect
	@$(MAKE) --no-print-directory -f examples/embedded/Makefile BUILD=$(BUILD)/embedded TOOLS=$(BUILD)

embedded-test: $(BUILD)/tfm-convert $(BUILD)/tfm-inspect
	@$(MAKE) --no-print-directory -f examples/embedded/Makefile BUILD=$(BUILD)/embedded TOOLS=$(BUILD) \
	    BOARDS="m4 trap m55 rv32 rv32f" all kernels
	@sh tests/test_embedded.sh $(BUILD)/embedded

compilers:
	@sh tests/test_dropin.sh $(BUILD)/dropin

CLANG = clang-16
FUZZERS = tfm gguf safetensors checkpoint chat tokenizer regex json vocabulary convert
# The scalar pass: the others read the same places, and clang needs minutes for them under these flags.
FUZZ_CFLAGS = -g -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -DTFM_FUZZING -DTFM_NO_SIMD

$(BUILD)/fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(ARCHIVE)
	$(CC) $(CFLAGS) -fsanitize=fuzzer -pthread -o $@ $^ $(LDLIBS)

# One target, as many at a time as there are processors: sh -c FUZZ_ONE BUILD TARGET. An input that takes 10 s counts as one
# that never ends.
JOBS = $(shell getconf _NPROCESSORS_ONLN)
FUZZ_ONE = d=$$0/fuzz f=$$1; mkdir -p $$d/corpus_$$f $$0/tests/seeds_$$f; \
    if $$d/fuzz_$$f -max_total_time=$(T) -timeout=30 -dict=tests/fuzz/$$f.dict -rss_limit_mb=4096 -verbosity=1 -print_final_stats=0 \
        -artifact_prefix=$$d/$$f- $$d/corpus_$$f $$0/tests/seeds_$$f > $$d/$$f.log 2>&1; \
    then echo ok > $$d/$$f.result; echo "fuzz_$$f: $$(tail -n 1 $$d/$$f.log)"; \
    else echo "FAILED fuzz_$$f:"; tail -n 40 $$d/$$f.log; fi

fuzz: $(BUILD)/run_tests
	@$(BUILD)/run_tests --dir $(BUILD)/tests seeds file convert imatrix llama2c sources tokenizer_kinds tokenizer_sent tokenizer_gguf > /dev/null || echo "the tests fail: make test"
	@$(MAKE) --no-print-directory $(FUZZERS:%=$(BUILD)/fuzz/fuzz_%) BUILD=$(BUILD)/fuzz CC="$(CLANG)" CFLAGS="$(FUZZ_CFLAGS)"
	@rm -f $(BUILD)/fuzz/*.result; printf '%s\n' $(FUZZERS) | xargs -n 1 -P $(JOBS) sh -c '$(FUZZ_ONE)' $(BUILD); \
	    passed=$$(cat $(BUILD)/fuzz/*.result | grep -c ok); \
	    echo "$$passed passed, $$(($(words $(FUZZERS)) - passed)) failed"; test $$passed = $(words $(FUZZERS))

# Against llama.cpp's quantiser: make quality LLAMA=folder of llama-quantize
LLAMA =
quality: all
	$(PYTHON) tests/real_quantize.py --build $(BUILD) --llama "$(LLAMA)" --table

N = 100000
text: all
	$(PYTHON) tests/text_suite.py $(BUILD) $(N)

bench-text: all
	$(PYTHON) tests/bench_tokenizers.py $(BUILD)
large: all
	@$(PYTHON) tests/test_large.py $(BUILD)

# The format by its specification alone: the story model, every type, what the tests of families left.
format: all $(BUILD)/stories.tfm $(BUILD)/run_tests
	@$(BUILD)/run_tests --dir $(BUILD)/tests families > /dev/null || echo "the tests fail: make test"
	@$(PYTHON) tests/test_format.py --build $(BUILD)

real: all
	$(PYTHON) tests/real_models.py --build $(BUILD)

.PHONY: chat
chat: all $(BUILD)/chat_cli
	$(PYTHON) tests/chat_templates.py --build $(BUILD)

size: tools/tfm_impl.c
	@mkdir -p $(BUILD)/size
	$(CC) $(FLAGS) -fstack-usage -c -o $(BUILD)/size/tfm.o $<
	@size $(BUILD)/size/tfm.o
	@echo "largest stack frames, bytes:"
	@sort -k 2 -n -r $(BUILD)/size/tfm.su | head -n 5 | awk '{ n = split($$1, a, ":"); print "  " a[n], $$2 }'
	@if command -v arm-none-eabi-gcc > /dev/null; then echo; sh tests/size_embedded.sh $(BUILD)/size; fi

BENCH_MODELS = $(BUILD)/stories.tfm
bench: $(BUILD)/tfm-bench $(BUILD)/stories.tfm
	@for m in $(BENCH_MODELS); do $(BUILD)/tfm-bench $$m || exit 1; done

# Each kernel on one thread beside the peaks of the processor; KERNELS="--isa avx2 --blas libopenblas.so.0 8960 1536".
bench-kernels: $(BUILD)/bench_kernels
	@$(BUILD)/bench_kernels $(KERNELS)

$(BUILD)/bench_kernels: tests/bench/bench_kernels.c $(ARCHIVE)
	$(CC) $(FLAGS) -std=gnu11 $(LDFLAGS) -o $@ $< $(ARCHIVE) $(LDLIBS) -ldl -pthread

# Beside llama.cpp, built from its source package: minutes, network, cmake; an idle machine for figures that mean something.
bench-rivals: $(BUILD)/tfm-bench $(BUILD)/tfm-convert
	@$(PYTHON) tests/bench_rivals.py --build $(BUILD) $(RIVALS)

include examples/wasm/wasm.mk
