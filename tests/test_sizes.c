/* test_sizes.c - sizes that are announced are the bytes that are used, on every host: one byte less is refused, nothing
 * behind them is touched, and the numbers are those of a table, whatever the width of an address. */
#include <string.h>

#include "test.h"
#include "tiny.h"
#include "tools/arena.h"
#include "tools/tokenizer.h"
#include "tools/writer.h"

enum { GUARD = 64, N_TEXT = 36 };

/* A text that grows when it is normalised. */
static const char text[] = "Hello  \xef\xac\x83 w\xc3\xb6rld, 1234567 \xff\xfe times.";

static const char document[] =
    "{\"added_tokens\":[],\"normalizer\":{\"type\":\"Sequence\","
    "\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Prepend\",\"prepend\":\"_\"}]},"
    "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{L}+|\\\\s+(?!\\\\S)|\\\\d{1,3}\"},"
    "\"behavior\":\"Isolated\",\"invert\":false},\"post_processor\":null,\"decoder\":null,\"model\":{\"type\":\"BPE\","
    "\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"H\":1,\"e\":2,\"l\":3,\"o\":4,\" \":5,\"el\":6,\"lo\":7},"
    "\"merges\":[\"e l\",\"l o\"]}}";

static unsigned char *guarded(size_t n) {
    unsigned char *p = (unsigned char *)tiny_alloc(n + 2 * GUARD);
    memset(p, 0xA5, n + 2 * GUARD);
    return p + GUARD;
}

static void check_guards(unsigned char *p, size_t n, const char *what) {
    for (int i = 1; i <= GUARD; i++)
        check(p[-i] == 0xA5 && p[n + (size_t)i - 1] == 0xA5, "%s: a byte %d outside was written", what, i);
    tiny_free(p - GUARD);
}

static int little_endian(void) {
    const uint16_t one = 1;
    return *(const unsigned char *)&one == 1;
}

/* The number itself, the same on every host. */
static void check_size(size_t n, size_t known, const char *what) {
    check(n == known, "%s: %lu bytes, elsewhere %lu", what, (unsigned long)n, (unsigned long)known);
}

static void encode_text(const tfm_tokenizer *t) {
    static const size_t known[] = { 64, 136, 2224 };
    const size_t lengths[] = { 0, 1, N_TEXT }, need = tfm_encode_size(t, N_TEXT);
    int32_t ids[256];
    int64_t n = 0;
    for (int i = 0; i < 3; i++) check_size(tfm_encode_size(t, lengths[i]), known[i], "tfm_encode_size");
    check(sizeof text == N_TEXT + 1 && tfm_encode_max(t, N_TEXT) <= 256, "%d bytes of text, at most %d ids",
          (int)sizeof text - 1, (int)tfm_encode_max(t, N_TEXT));
    unsigned char *scratch = guarded(need);
    tfm_error err;
    check(tfm_encode(t, text, N_TEXT, 0, ids, 256, &n, scratch, need - 1, &err) == TFM_ERR_MEMORY,
          "scratch of a byte too few");
    check(!tfm_encode(t, text, N_TEXT, 0, ids, 256, &n, scratch, need, &err) && n > 5, "tfm_encode: %s", err.msg);
    check_guards(scratch, need, "tfm_encode");
}

static void test_tokenizer_sizes(void) {
    arena a = { 0 };
    tok_section section;
    tfm_error err;
    const tfm_tokenizer *t = NULL;
    const size_t need = tfm_tokenizer_size();
    const source src = source_memory("tokenizer.json", document, sizeof document - 1);
    check_size(need, 312, "tfm_tokenizer_size");
    check_size(tfm_chat_size(), 72, "tfm_chat_size");
    const int r = tokenizer_from_json(&a, &src, NULL, 0, &section, &err);
    check(!r, "the tokenizer: %s", r ? err.msg : "");
    unsigned char *mem = guarded(need);
    if (!r) {
        check(tfm_tokenizer_open(section.bytes, section.size, mem, need - 1, &t, &err) == TFM_ERR_MEMORY && !t,
              "a byte too few");
        check(!tfm_tokenizer_open(section.bytes, section.size, mem, need, &t, &err) && t,
              "tfm_tokenizer_open: %s", err.msg);
    }
    if (t) encode_text(t);
    check_guards(mem, need, "tfm_tokenizer_open");
    arena_free(&a);
}

static void test_sampler_sizes(void) {
    static const struct { int32_t n_vocab; size_t bytes; } rows[] = { { 1, 320 }, { 17, 576 }, { 50257, 804416 } };
    for (int i = 0; i < 3; i++) {
        const int32_t n = rows[i].n_vocab;
        static float logits[50257];
        static const int32_t history[] = { 0, 0 };
        tfm_sampler_config cfg;
        tfm_sampler *s = NULL;
        tfm_error err;
        size_t need = 0;
        int32_t id = -1;
        memset(&cfg, 0, sizeof cfg);
        cfg.size = sizeof cfg;
        cfg.temp = 1;
        cfg.top_p = 0.9f;
        cfg.repeat_penalty = 1.1f;
        tiny_fill(logits, (size_t)n, "logits", 5, 0);
        check(!tfm_sampler_size(n, &need), "tfm_sampler_size");
        check_size(need, rows[i].bytes, "tfm_sampler_size");
        unsigned char *mem = guarded(need);
        check(tfm_sampler_init(&cfg, n, mem, need - 1, &s, &err) == TFM_ERR_MEMORY, "a sampler of a byte too few");
        check(!tfm_sampler_init(&cfg, n, mem, need, &s, &err), "tfm_sampler_init: %s", err.msg);
        check(s && !tfm_sample(s, logits, history, 2, &id, &err) && id >= 0 && id < n, "tfm_sample gives %d", (int)id);
        check_guards(mem, need, "tfm_sample");
    }
}

/* ---- MODELS AND SESSIONS ----------------------------------------------------------------------------------------- */

static void dense(tiny_model *t) { (void)t; }

static void parallel(tiny_model *t) {
    t->blocks[0].residual = t->blocks[1].residual = TFM_RESIDUAL_PARALLEL_2;
    t->blocks[0].mask = TFM_MASK_STRIDED; /* of which one layer keeps what is near */
    t->blocks[0].mask_stride = 6;
    t->blocks[0].mask_part = TFM_PART_NEAR;
}

/* Bytes of the model's tables, and of sessions of 40 positions in the four settings of `settings`. reach: the most
 * positions that a layer of block 0, 1 sees, 0 = all. */
static const struct {
    const char *name;
    void (*edit)(tiny_model *);
    int reach[2];
    size_t model, session[4];
} models[] = {
    { "dense", dense, { 0, 8 }, 4864, { 54016, 51776, 78592, 132608 } },
    { "experts", tiny_experts, { 0, 8 }, 10432, { 54336, 52096, 79232, 134144 } },
    { "parallel", parallel, { 6, 8 }, 4864, { 20480, 39744, 73472, 142848 } },
};

static const struct { int32_t batch, kv, act, want, threads; size_t bytes_of_32; } settings[4] = {
    { 1, TFM_KV_F32, TFM_ACT_MODE_F32, TFM_WANT_LAST, 1, 128 }, { 7, TFM_KV_F16, TFM_ACT_MODE_Q8, TFM_WANT_ALL, 2, 64 },
    { 16, TFM_KV_BF16, TFM_ACT_MODE_F32, TFM_WANT_HIDDEN, 3, 64 },
    { 40, TFM_KV_Q8_0, TFM_ACT_MODE_Q8, TFM_WANT_NONE, 7, 34 },
};

static void check_session(const tfm_model *m, int model, int k) {
    enum { N_CTX = 40 };
    tfm_session_config cfg = tiny_exact(N_CTX, settings[k].batch);
    const char *name = models[model].name;
    tfm_session *s = NULL;
    tfm_error err;
    size_t need = 0, kv = 0, slots = 0;
    int32_t ids[N_CTX];
    cfg.kv = settings[k].kv;
    cfg.act = settings[k].act;
    cfg.want = settings[k].want;
    cfg.n_threads = settings[k].threads;
    cfg.parallel.run = tiny_backwards;
    check(!tfm_session_size(m, &cfg, &need, &err) && !tfm_session_kv_bytes(m, &cfg, &kv, &err), "%s: size", name);
    check_size(need, models[model].session[k], name);
    for (int layer = 0; layer < 4; layer++) { /* min(context, window + batch), or the context */
        const int reach = models[model].reach[layer % 2], most = reach + settings[k].batch;
        slots += (size_t)(reach && most < N_CTX ? most : N_CTX);
    }
    check(kv == 2 * 2 * slots * settings[k].bytes_of_32,
          "%s: a cache of %lu bytes for %lu slots", name, (unsigned long)kv,
          (unsigned long)slots); /* 2 kv heads of 32 */
    unsigned char *mem = guarded(need);
    check(tfm_session_init(m, &cfg, mem, need - 1, &s, &err) == TFM_ERR_MEMORY, "%s: a byte too few", name);
    check(!tfm_session_init(m, &cfg, mem, need, &s, &err), "%s: %s", name, err.msg);
    tiny_ids(ids, N_CTX, 64, "sizes");
    for (int at = 0; s && at < N_CTX; at += settings[k].batch)
        check(!tfm_eval(s, ids + at, N_CTX - at < settings[k].batch ? N_CTX - at : settings[k].batch, &err),
              "%s: %s", name, err.msg);
    check_guards(mem, need, name);
}

static void check_file(const tiny_model *t, const tiny_file *f, int model) {
    tfm_model *m = NULL;
    tfm_error err;
    size_t need = 0;
    check(!tfm_model_size(f->data, f->size, &need, &err), "%s: %s", models[model].name, err.msg);
    if (little_endian()) check_size(need, models[model].model, models[model].name);
    else check(need > models[model].model, "%s: no room for the weights the other way round", models[model].name);
    unsigned char *mem = guarded(need);
    check(tfm_model_init(f->data, f->size, mem, need - 1, &m, &err) == TFM_ERR_MEMORY,
          "%s: a byte too few", models[model].name);
    check(!tfm_model_init(f->data, f->size, mem, need, &m, &err), "%s: %s", models[model].name, err.msg);
    check(m && tfm_model_weight_count(m) == t->n_weights, "%s: weights", models[model].name);
    for (int k = 0; m && k < 4; k++) check_session(m, model, k);
    check_guards(mem, need, "tfm_model_init");
}

static void test_model_sizes(int model) {
    tiny_model t;
    tiny_file f = { NULL, 0, 0 };
    arena mem = { 0 };
    tfm_file_writer w;
    tfm_error err;
    sink out = tiny_sink(&f);
    tiny_describe(&t);
    models[model].edit(&t);
    tiny_weights(&t, TFM_Q8_0, TFM_TILED);
    int r = writer_begin(&w, &out, &mem, &t.config, t.weights, t.n_weights, NULL, 0, &err);
    for (int64_t i = 0; !r && i < t.n_weights; i++) r = writer_rows(&w, &t.weights[i].t, &err);
    if (!r) r = writer_end(&w, "", 0, &err);
    check(!r, "%s: the file: %s", models[model].name, r ? err.msg : "");
    if (!r) check_file(&t, &f, model);
    tiny_file_free(&f);
    arena_free(&mem);
    tiny_weights_free(&t);
}

void test_sizes(void) {
    test_tokenizer_sizes();
    test_sampler_sizes();
    for (int i = 0; i < (int)(sizeof models / sizeof models[0]); i++) test_model_sizes(i);
}
