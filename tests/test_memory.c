/* test_memory.c - the heap watched: nothing is allocated where the manual says so, and every allocation that fails, one
 * after the other, is an error with a message that leaves nothing behind.
 *
 *     test_memory DIR [MOST]      linked with heap.c; writes into DIR, ends with "N passed, N failed"
 *
 * MOST: beyond so many allocations not every one fails in turn, but so many spread evenly over them. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat_case.h"
#include "heap.h"
#define ALONE_NAME "memory"
#include "alone.h"
#include "tiny.h"
#include "tools/convert.h"
#include "tools/pool.h"
#include "tools/quantize.h"
#include "tools/tokenizer.h"
#include "tools/write_gguf.h"

static const char *folder;
static long most = 250;

/* Output that needs no heap. */
static struct { unsigned char *bytes; size_t n, room; } written;

static int write_at(void *user, uint64_t offset, const void *buf, size_t n) {
    (void)user;
    if (offset > written.room || n > written.room - (size_t)offset) return -1;
    memcpy(written.bytes + (size_t)offset, buf, n);
    if (written.n < (size_t)offset + n) written.n = (size_t)offset + n;
    return 0;
}

static sink to_memory(void) {
    const sink s = { NULL, write_at };
    written.n = 0;
    return s;
}

static void ignore_warning(void *user, const char *line) {
    (void)user;
    (void)line;
}

static convert_options quiet(void) {
    convert_options o;
    memset(&o, 0, sizeof o);
    o.warn = ignore_warning;
    return o;
}

/* ---- EVERY ALLOCATION FAILS ONCE --------------------------------------------------------------------------------- */

/* One try of something that allocates: 0, or an error code and its message. */
typedef int attempt(const void *what, tfm_error *err);

/* Lets call 1, 2, 3 ... fail, alone or with all behind it, until it succeeds. */
static void fail_each(const char *name, attempt *run, const void *what) {
    tfm_error err;
    run(what, &err); /* what is made once and kept is made now */
    heap_start(0, 0);
    const int code = run(what, &err);
    const long calls = heap_calls(), step = calls / most + 1;
    long survived = 0, refused = 0;
    check(!code && calls > 0, "%s: %s", name, code ? err.msg : "no allocation at all");
    for (long at = 1; !code && at <= calls; at += step)
        for (int for_good = 0; for_good < 2; for_good++) {
            const long live = heap_live();
            memset(&err, 0, sizeof err);
            heap_start(at, for_good);
            const int r = run(what, &err);
            check(heap_failed() > 0, "%s: call %ld did not come", name, at);
            heap_start(0, 0);
            check(heap_live() == live,
                  "%s: call %ld of %ld fails: %ld blocks are left (%s)", name, at, calls, heap_live() - live, err.msg);
            check(!r || (err.msg[0] && !strchr(err.msg, '\n')),
                  "%s: call %ld fails: result %d, message '%s'", name, at, r, err.msg);
            survived += !r;
            refused += r != 0;
        }
    check(refused > 0, "%s: no failure was noticed", name);
    fflush(stdout);
    printf("%-24s %ld allocations, %ld made to fail, %ld of these done without\n", name, calls,
           (calls + step - 1) / step, survived / 2);
}

static int convert_folder(const void *what, tfm_error *err) {
    const convert_options o = quiet();
    sink out = to_memory();
    source_dir dir;
    int r = dir_open_local(&dir, (const char *)what, err);
    if (r) return r;
    r = convert_directory(&dir, &out, &o, err);
    dir_close_local(&dir);
    return r;
}

static int convert_bytes(const void *what, tfm_error *err) {
    const convert_options o = quiet();
    sink out = to_memory();
    return convert_file((const source *)what, &out, &o, err);
}

static int convert_vocabulary(const void *what, tfm_error *err) {
    convert_options o = quiet();
    sink out = to_memory();
    o.vocab_only = 1;
    return convert_file((const source *)what, &out, &o, err);
}

static int convert_quantised(const void *what, tfm_error *err) {
    convert_options o = quiet();
    sink out = to_memory();
    o.mix = mix_find("q4_0");
    return convert_file((const source *)what, &out, &o, err);
}

static int to_gguf(const void *what, tfm_error *err) {
    const convert_options o = quiet();
    sink out = to_memory();
    return write_gguf((const tfm_model *)what, "model", &out, &o, err);
}

static int open_read(const void *what, tfm_error *err) {
    tfm_model *m;
    tfm_session *s;
    tfm_model_config cfg;
    memset(&cfg, 0, sizeof cfg);
    cfg.size = sizeof cfg;
    cfg.no_mmap = 1;
    int r = tfm_model_open((const char *)what, &cfg, &m, err);
    if (r) return r;
    r = tfm_session_new(m, NULL, &s, err);
    if (!r) tfm_session_free(s);
    tfm_model_close(m);
    return r;
}

static int start_pool(const void *what, tfm_error *err) {
    pool *p = pool_new(4);
    (void)what;
    if (!p) return tool_fail(err, TFM_ERR_MEMORY, "no threads");
    pool_free(p);
    return 0;
}

/* The bytes just written, as a source or a file of their own. */
static void *keep(size_t *n) {
    void *copy = tiny_alloc(written.n);
    memcpy(copy, written.bytes, *n = written.n);
    return copy;
}

static void test_failing(const char *stories) {
    char path[512];
    size_t n_model = 0, n_gguf = 0;
    tfm_error err;
    tfm_model *m = NULL;
    fail_each("a directory", convert_folder, stories);
    check(!convert_folder(stories, &err), "%s: %s", stories, err.msg);
    void *model = keep(&n_model);
    snprintf(path, sizeof path, "%s/memory.tfm", folder);
    FILE *f = file_open(path, "wb");
    check(f && fwrite(model, 1, n_model, f) == n_model && !fclose(f), "%s cannot be written", path);
    fail_each("a model and a session", open_read, path);
    fail_each("a pool", start_pool, NULL);
    const int r = tfm_model_from_memory(model, n_model, NULL, &m, &err);
    check(!r, "%s", r ? err.msg : "");
    if (!r) {
        fail_each("to GGUF", to_gguf, m);
        check(!to_gguf(m, &err), "%s", err.msg);
        void *file = keep(&n_gguf);
        const source src = source_memory("model.gguf", file, n_gguf);
        fail_each("from GGUF", convert_bytes, &src);
        fail_each("quantising", convert_quantised, &src);
        fail_each("a GGUF's vocabulary", convert_vocabulary, &src);
        tiny_free(file);
    }
    tfm_model_close(m);
    tiny_free(model);
}

/* Tokenizers of every kind and a SentencePiece model. */
static void test_failing_tokenizers(const json *kinds) {
    char *data = NULL;
    size_t n = 0;
    tfm_error err;
    for (size_t i = 0; i < json_count(kinds); i++) {
        const json *kind = json_at(kinds, i), *document = json_get(kind, "document");
        const source src = source_memory("tokenizer.json", document->u.text, document->count);
        fail_each(json_get(kind, "name")->u.text, convert_vocabulary, &src);
    }
    check(!read_whole("tests/ref/tokenizers/dummy_prefix.model", 1 << 20, &data, &n, &err), "%s", err.msg);
    const source src = source_memory("tokenizer.model", data, n);
    fail_each("tokenizer.model", convert_vocabulary, &src);
    free(data);
}

/* ---- NOTHING IS ALLOCATED ---------------------------------------------------------------------------------------- */

/* Tokens, a conversation, evaluation on threads, sampling, decoding, moving: in memory that was had before. */
static void use_text(const tfm_tokenizer *t, const char *text, size_t n) {
    static int32_t ids[4096];
    static uint64_t scratch[1 << 17];
    static char out[1 << 15];
    int64_t n_ids = 0;
    tfm_error err;
    tfm_decoder d;
    if (tfm_encode_size(t, n) > sizeof scratch || tfm_encode_max(t, n) > 4096) return;
    heap_start(0, 0);
    check(!tfm_encode(t, text, n, TFM_ENCODE_PARSE_SPECIAL, ids, 4096, &n_ids, scratch, sizeof scratch, &err),
          "%s", err.msg);
    tfm_decode_text(t, ids, n_ids, 0, out, sizeof out);
    tfm_decode_init(&d, t, 0);
    for (int64_t i = 0; i < n_ids; i++) tfm_decode(&d, ids[i], out, sizeof out);
    tfm_decode_flush(&d, out, sizeof out);
    tfm_normalize(t, text, n, out, sizeof out, scratch, sizeof scratch);
    check(!heap_calls(), "tokenizing '%.20s' allocates %ld times", text, heap_calls());
}

static void use_tokenizers(const json *root) {
    const json *kinds = json_get(root, "json"), *texts = json_get(root, "texts");
    for (size_t i = 0; i < json_count(kinds); i++) {
        const json *document = json_get(json_at(kinds, i), "document");
        const source src = source_memory("tokenizer.json", document->u.text, document->count);
        arena a = { 0 };
        tok_section section;
        uint64_t mem[64];
        const tfm_tokenizer *t = NULL;
        tfm_error err;
        int r = tokenizer_from_json(&a, &src, NULL, 0, &section, &err);
        heap_start(0, 0);
        if (!r) r = tfm_tokenizer_open(section.bytes, section.size, mem, sizeof mem, &t, &err);
        check(!r && !heap_calls(), "a tokenizer: %s, %ld allocations", r ? err.msg : "", heap_calls());
        for (size_t k = 0; !r && k < json_count(texts); k++)
            use_text(t, json_at(texts, k)->u.text, json_at(texts, k)->count);
        arena_free(&a);
    }
}

static void use_chats(void) {
    static const tfm_turn turns[] = { { TFM_CHAT_USER, "Hello!", 6 }, { TFM_CHAT_ASSISTANT, "Hi.", 3 },
                                      { TFM_CHAT_USER, "And?", 4 } };
    arena a = { 0 };
    tfm_error err;
    source src;
    int known = 0;
    if (source_open_file(&src, "tests/ref/chat.json", &err)) {
        check(0, "%s", err.msg);
        return;
    }
    const json *formats = json_get(json_read(&src, 4 << 20, &a, &err), "formats");
    source_close_file(&src);
    for (size_t i = 0; i < json_count(formats); i++) {
        static char text[1 << 16];
        static uint8_t marks[1 << 16];
        const tfm_chat *c = NULL;
        chat_section section;
        uint64_t mem[16];
        size_t n = 0;
        int r = chat_case_build(&a, json_at(formats, i), &section, &err);
        heap_start(0, 0);
        if (!r) r = tfm_chat_open(section.bytes, section.size, mem, sizeof mem, &c, &err);
        check(!r, "format %d: %s", (int)i, err.msg);
        if (!r && tfm_chat_known(c)) {
            r = tfm_chat_render(c, turns, 3, TFM_CHAT_PROMPT, "1 January 2026", text, marks, sizeof text, &n, &err);
            known += !r;
        }
        check(!heap_calls(), "rendering a conversation allocates %ld times", heap_calls());
    }
    check(known >= 5, "only %d conversations were rendered", known);
    arena_free(&a);
}

static void sample_some(const tfm_session *s, int32_t n_vocab) {
    static uint64_t mem[1 << 15];
    static const float temps[] = { 0, 0.8f };
    const int32_t history[] = { 1, 2, 3, 2 };
    for (int i = 0; i < 2; i++) {
        tfm_sampler_config cfg;
        tfm_sampler *sampler;
        size_t bytes = 0;
        int32_t id;
        tfm_error err;
        memset(&cfg, 0, sizeof cfg);
        cfg.size = sizeof cfg;
        cfg.temp = temps[i];
        cfg.top_k = 5;
        cfg.top_p = 0.9f;
        cfg.min_p = 0.05f;
        cfg.repeat_penalty = 1.1f;
        check(!tfm_sampler_size(n_vocab, &bytes) && bytes + 64 <= sizeof mem, "sampler: %d bytes", (int)bytes);
        void *at = (void *)(((uintptr_t)mem + 63) & ~(uintptr_t)63);
        check(!tfm_sampler_init(&cfg, n_vocab, at, bytes, &sampler, &err) &&
              !tfm_sample(sampler, tfm_logits(s, 0), history, 4, &id, &err), "sampling: %s", err.msg);
    }
}

/* By the pool, and by OpenMP if the header was compiled with it: that may allocate once, when its threads start. */
static void use_session(const tfm_model *m, tfm_session *s, tfm_session *copy, size_t bytes) {
    const int32_t n_vocab = tfm_model_config_of(m)->n_vocab, ids[] = { 1, 2, 3, 4, 5, 6, 7 };
    tfm_error err;
    check(!tfm_eval(s, ids, 7, &err), "%s", err.msg);
    heap_start(0, 0);
    check(!tfm_eval(s, ids, 7, &err) && !tfm_eval(s, ids, 1, &err), "%s", err.msg);
    sample_some(s, n_vocab);
    check(!tfm_session_rewind(s, 12, &err) && !tfm_session_restore(copy, s, bytes, &err) &&
          !tfm_eval(copy, ids, 2, &err), "%s", err.msg);
    check(!tfm_session_attach(s, bytes, m, NULL, &err), "%s", err.msg);
    check(!heap_calls(), "evaluating, sampling and copying allocates %ld times", heap_calls());
}

/* In exact and fast mode, with every type of cache. */
static void use_model(const tfm_model *m) {
    tfm_error err;
    pool *threads = pool_new(3);
    for (int i = 0; m && i < 4; i++) {
        tfm_session_config cfg = tiny_exact(32, 5);
        tfm_session *s = NULL, *copy = NULL;
        size_t bytes = 0;
        cfg.want = TFM_WANT_LAST;
        cfg.act = i % 2 ? TFM_ACT_MODE_Q8 : TFM_ACT_MODE_F32;
        cfg.kv = TFM_KV_F32 + i;
        cfg.n_threads = 3;
        if (i < 2) cfg.parallel.user = threads, cfg.parallel.run = pool_run;
        heap_start(0, 0);
        check(!tfm_session_size(m, &cfg, &bytes, &err) && !heap_calls(), "tfm_session_size");
        void *mem = tiny_alloc(bytes), *other = tiny_alloc(bytes);
        heap_start(0, 0);
        check(!tfm_session_init(m, &cfg, mem, bytes, &s, &err) &&
              !tfm_session_init(m, &cfg, other, bytes, &copy, &err) &&
              !heap_calls(), "tfm_session_init: %ld allocations", heap_calls());
        if (s && copy) use_session(m, s, copy, bytes);
        tiny_free(mem);
        tiny_free(other);
    }
    pool_free(threads);
}

/* The checkpoint that ships, and mixtures of experts with windows. */
static void use_models(const char *stories) {
    tfm_error err;
    tfm_model *m = NULL;
    tiny_model t;
    size_t n = 0;
    int r = convert_folder(stories, &err);
    void *model = keep(&n);
    if (!r) r = tfm_model_from_memory(model, n, NULL, &m, &err);
    check(!r, "%s", r ? err.msg : "");
    use_model(m);
    tfm_model_close(m);
    tiny_free(model);
    tiny_describe(&t);
    tiny_experts(&t);
    tiny_weights(&t, TFM_Q8_0, TFM_TILED);
    m = tiny_open(&t);
    use_model(m);
    tfm_model_close(m);
    tiny_weights_free(&t);
}

int main(int argc, char **argv) {
    static const char stories[] = "examples/models/stories";
    arena a = { 0 };
    tfm_error err;
    source src;
    if (argc < 2 || argc > 3) return 2;
    if (argc == 3) most = atol(argv[2]);
    if (most < 1) return 2;
    folder = argv[1];
    written.room = 8 << 20;
    written.bytes = (unsigned char *)tiny_alloc(written.room);
    check(!make_directory(folder, &err), "%s", err.msg);
    int r = source_open_file(&src, "tests/ref/tokenizers/kinds.json", &err);
    const json *root = r ? NULL : json_read(&src, 4 << 20, &a, &err);
    check(root != NULL, "%s", err.msg);
    if (!r) source_close_file(&src);
    use_models(stories);
    use_chats();
    if (root) use_tokenizers(root);
    test_failing(stories);
    if (root) test_failing_tokenizers(json_get(root, "json"));
    arena_free(&a);
    tiny_free(written.bytes);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
