/* The test runner: a table of named functions, two counters.
 *
 *     build/run_tests [--list] [--dir DIR] [--data DIR] [NAME...]
 *
 * runs the tests whose names contain one of the NAMEs (default: all but the long ones, which are named in full). --dir
 * is where they may write (default: build/tests), --data where the committed files lie (default: tests). A new test is
 * a function `void test_xxx(void)` and its two lines below: the declaration and the row.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "tools/base.h"

#define TEST_TABLE(ROW) \
    ROW(json) \
    ROW(safetensors) \
    ROW(gguf) \
    ROW(llama2c) \
    ROW(reader_seeds) \
    ROW(errors) \
    ROW(arena) \
    ROW(numbers) \
    ROW(sinks) \
    ROW(cli) \
    ROW(child) /* before there are threads, see os_try */ \
    ROW(pool) \
    ROW(math) \
    ROW(kernel_formats) \
    ROW(kernel_matmul) \
    ROW(kernel_quantize) \
    ROW(kernel_vectors) \
    ROW(kernel_same_bits) \
    ROW(kernel_rope) \
    ROW(kernel_attention) \
    ROW(kernel_store) \
    ROW(kernel_isa) \
    ROW(kernel_plain) \
    ROW(tokenizer_json) \
    ROW(tokenizer_kinds) \
    ROW(tokenizer_sentencepiece) \
    ROW(tokenizer_model_config) \
    ROW(tokenizer_refused) \
    ROW(tokenizer_patience) \
    ROW(tokenizer_slow) \
    ROW(tokenizer_strip) \
    ROW(tokenizer_gguf) \
    ROW(tokenizer_rows) \
    ROW(tokenizer_merges) \
    ROW(tokenizer_stream) \
    ROW(tokenizer_text) \
    ROW(tokenizer_long) \
    ROW(tokenizer_damage) \
    ROW(chat_templates) \
    ROW(chat_formats) \
    ROW(chat_limits) \
    ROW(chat_damage) \
    ROW(chat_marks) \
    ROW(chat_words) \
    ROW(chat_stops) \
    ROW(chat_seeds) \
    ROW(sampler) \
    ROW(quantize) \
    ROW(mix) \
    ROW(imatrix) \
    ROW(convert_config) \
    ROW(convert_absurd) \
    ROW(convert_head) \
    ROW(convert_directory) \
    ROW(convert_gguf) \
    ROW(convert_split) \
    ROW(convert_llama2c) \
    ROW(write_gguf) \
    ROW(figures) \
    ROW(sources) \
    ROW(sources_damage) \
    ROW(model) \
    ROW(session) \
    ROW(bits) \
    ROW(sizes) \
    ROW(families) \
    ROW(gguf_families) \
    ROW(moe_routing) \
    ROW(moe_session) \
    ROW(moe_not_finite) \
    ROW(moe_bytes_per_token) \
    ROW(moe_refused) \
    ROW(moe_attention) \
    ROW(words) \
    ROW(file)

/* Run only when named in full: minutes. */
#define LONG_TABLE(ROW) \
    ROW(bits_whole)

#define TEST_DECLARE(name) void test_##name(void);
#define TEST_ROW(name) { #name, test_##name, 0 },
#define LONG_ROW(name) { #name, test_##name, 1 },
TEST_TABLE(TEST_DECLARE)
LONG_TABLE(TEST_DECLARE)

typedef struct test {
    const char *name;
    void (*run)(void);
    int is_long;
} test;

static const test tests[] = { TEST_TABLE(TEST_ROW) LONG_TABLE(LONG_ROW) { NULL, NULL, 0 } };

enum { MAX_SHOWN = 20 }; /* failures printed per test; all are counted */

static struct {
    const char *name, *dir, *data;
    int passed, failed, skipped; /* of all tests so far */
    int shown;                   /* failures printed of this one */
} state = { "", "build/tests", "tests", 0, 0, 0, 0 };

void check(int ok, const char *format, ...) {
    va_list args;
    if (ok) {
        state.passed++;
        return;
    }
    state.failed++;
    if (state.shown++ >= MAX_SHOWN) return;
    printf("FAILED %s: ", state.name);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("%s\n", state.shown == MAX_SHOWN ? " (further failures of this test are only counted)" : "");
    fflush(stdout);
}

void skip(const char *format, ...) {
    va_list args;
    state.skipped++;
    printf("skipped %s: ", state.name);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
}

const char *test_dir(void) { return state.dir; }
const char *test_data(void) { return state.data; }

void write_seed(const char *kind, const char *name, const void *bytes, size_t n) {
    char path[512];
    tfm_error err;
    sink out;
    err.msg[0] = 0;
    snprintf(path, sizeof path, "%s/seeds_%s", test_dir(), kind);
    int code = make_directory(path, &err);
    snprintf(path, sizeof path, "%s/seeds_%s/%s", test_dir(), kind, name);
    if (!code) code = sink_open_file(&out, path, &err);
    if (!code && (code = sink_write(&out, 0, bytes, n, &err)) != 0) sink_discard(&out);
    if (!code) code = sink_commit(&out, &err);
    check(!code, "%s", err.msg);
}

static void run_test(const test *t) {
    const int passed = state.passed, failed = state.failed;
    const double start = time_now();
    state.name = t->name;
    state.shown = 0;
    t->run();
    if (state.failed == failed) printf("%-24s %7d ok", t->name, state.passed - passed);
    else printf("%-24s %7d ok, %d FAILED", t->name, state.passed - passed, state.failed - failed);
    printf("  %5.2f s\n", time_now() - start);
    fflush(stdout);
}

/* Whether one of the n filters is part of the name (of a long test: is the name); no filters: all that are not long. */
static int selected(const test *t, char **filters, int n) {
    for (int i = 0; i < n; i++)
        if (t->is_long ? !strcmp(t->name, filters[i]) : strstr(t->name, filters[i]) != NULL) return 1;
    return n == 0 && !t->is_long;
}

static int usage(const char *program) {
    fprintf(stderr, "usage: %s [--list] [--dir DIR] [--data DIR] [NAME...]\n", program);
    return 2;
}

int main(int argc, char **argv) {
    tfm_error err;
    int first = 1, list = 0, ran = 0;
    for (; first < argc && argv[first][0] == '-'; first++) {
        const char *option = argv[first];
        if (!strcmp(option, "--list")) list = 1;
        else if (!strcmp(option, "--dir") && first + 1 < argc) state.dir = argv[++first];
        else if (!strcmp(option, "--data") && first + 1 < argc) state.data = argv[++first];
        else return usage(argv[0]);
    }
    if (!list && make_directory(state.dir, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    for (const test *t = tests; t->name; t++) {
        if (!selected(t, argv + first, argc - first)) continue;
        ran++;
        if (list) printf("%s\n", t->name);
        else run_test(t);
    }
    if (!ran) {
        fprintf(stderr, "no test has such a name; --list shows them\n");
        return 2;
    }
    if (list) return 0;
    printf("%d passed, %d failed", state.passed, state.failed);
    if (state.skipped) printf(", %d skipped", state.skipped);
    printf("\n");
    return state.failed != 0;
}
