/* tiny.c - see tiny.h */
#include "tiny.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

/* ---- MEMORY ---------------------------------------------------------------------------------------------------- */

void *tiny_alloc(size_t n) {
    unsigned char *raw = (unsigned char *)malloc(n + 128), *p;
    if (!raw) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    p = raw + 128 - (uintptr_t)raw % 64; /* at least 64 bytes behind raw, which is noted there */
    memcpy(p - sizeof raw, &raw, sizeof raw);
    return p;
}

void tiny_free(void *p) {
    void *raw;
    if (!p) return;
    memcpy(&raw, (unsigned char *)p - sizeof raw, sizeof raw);
    free(raw);
}

static int file_write(void *user, uint64_t offset, const void *buf, size_t n) {
    tiny_file *f = (tiny_file *)user;
    const size_t end = (size_t)offset + n;
    if (end > f->room) {
        unsigned char *grown = (unsigned char *)tiny_alloc(2 * end);
        if (f->size) memcpy(grown, f->data, f->size);
        tiny_free(f->data);
        f->data = grown;
        f->room = 2 * end;
    }
    if (offset > f->size) memset(f->data + f->size, 0, (size_t)offset - f->size);
    if (n) memcpy(f->data + offset, buf, n);
    if (end > f->size) f->size = end;
    return 0;
}

sink tiny_sink(tiny_file *f) {
    sink s;
    s.user = f;
    s.write_at = file_write;
    return s;
}

tiny_file tiny_file_copy(const tiny_file *f) {
    tiny_file copy = { NULL, f->size, f->size };
    copy.data = (unsigned char *)tiny_alloc(f->size);
    memcpy(copy.data, f->data, f->size);
    return copy;
}

void tiny_file_free(tiny_file *f) {
    tiny_free(f->data);
    memset(f, 0, sizeof *f);
}

/* ---- WEIGHTS --------------------------------------------------------------------------------------------------- */

uint32_t tiny_hash(const char *name, uint32_t index) {
    uint32_t x = 0x811C9DC5u;
    for (; *name; name++) x = (x ^ (unsigned char)*name) * 0x01000193u;
    x ^= index * 0x9E3779B1u;
    x = (x ^ x >> 16) * 0x85EBCA6Bu;
    x = (x ^ x >> 13) * 0xC2B2AE35u;
    return x ^ x >> 16;
}

void tiny_fill(float *out, size_t n, const char *name, int e, float offset) {
    const float step = ldexpf(1.0f, -e);
    for (size_t i = 0; i < n; i++) out[i] = offset + (float)((int)(tiny_hash(name, (uint32_t)i) & 255) - 128) * step;
}

void tiny_fill_bytes(float *out, size_t n, const char *name, int e, float offset) {
    for (size_t i = 0; i < n; i++) out[i] = offset + (float)((tiny_hash(name, (uint32_t)i) & 255) >> e);
}

void tiny_ids(int32_t *ids, size_t n, int32_t n_vocab, const char *name) {
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)(tiny_hash(name, (uint32_t)i) % (uint32_t)n_vocab);
}

uint16_t tiny_bf16(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

uint16_t tiny_f16(float x) {
    uint32_t u, sign;
    memcpy(&u, &x, 4);
    sign = u >> 16 & 0x8000;
    u &= 0x7fffffffu;
    if (!u) return (uint16_t)sign;
    u += 0xfffu + (u >> 13 & 1);
    return (uint16_t)(sign | ((u >> 13) - (112u << 10)));
}

/* ---- MODELS ---------------------------------------------------------------------------------------------------- */

void tiny_describe(tiny_model *t) {
    tfm_block *b = &t->blocks[0];
    memset(t, 0, sizeof *t);
    b->norm_kind = TFM_NORM_RMS;
    b->norm_eps = 1e-5f;
    b->n_heads = 4;
    b->n_kv_heads = 2;
    b->head_dim = 32;
    b->rope_style = TFM_ROPE_HALF;
    b->rope_theta = 10000.0f;
    b->ffn_act = TFM_ACT_SILU;
    b->ffn_gated = 1;
    b->d_ff = 96;
    t->blocks[1] = *b;
    t->blocks[1].window = 8;
    for (int i = 0; i < 4; i++) t->layer_block[i] = (uint8_t)(i % 2);

    t->config.size = sizeof t->config;
    t->config.n_layers = 4;
    t->config.d_model = 64;
    t->config.n_vocab = 64;
    t->config.n_ctx = 128;
    t->config.n_blocks = 2;
    t->config.blocks = t->blocks;
    t->config.layer_block = t->layer_block;
    t->config.norm_kind = TFM_NORM_RMS;
    t->config.norm_eps = 1e-5f;
    t->config.tied = 1;
    t->config.bos = -1;
}

void tiny_experts(tiny_model *t) {
    for (int i = 0; i < 2; i++) {
        t->blocks[i].ffn_kind = TFM_FFN_EXPERTS;
        t->blocks[i].n_experts = 8;
        t->blocks[i].n_experts_used = 3;
        t->blocks[i].d_expert = 32;
        t->blocks[i].router_score = TFM_SCORE_SOFTMAX;
    }
    t->blocks[1].mask = TFM_MASK_CHUNKED;
}

/* Spread and centre, so that no part of the model drowns another; the same idea as in tests/ref_families.py. */
static void fill_role(float *out, const char *name, int32_t role, int64_t rows, int64_t cols) {
    const size_t n = (size_t)(rows * cols);
    if (rows > 1) tiny_fill(out, n, name, role == TFM_ROLE_EMBED ? 7 : 8, 0);
    else if (strstr(name, "norm") && !strstr(name, "bias")) tiny_fill(out, n, name, 8, 1);
    else tiny_fill(out, n, name, 7, 0);
}

/* ROWS: a float type; TILED: what tfm_pack makes of float32. */
static void add_weight(tiny_model *t, int32_t layer, int32_t role, int32_t expert, int64_t rows, int64_t cols,
                       int32_t type, int32_t layout) {
    char name[64];
    tfm_weight *w = &t->weights[t->n_weights++];
    float *plain = (float *)tiny_alloc((size_t)(rows * cols) * sizeof(float));
    w->layer = layer;
    w->role = role;
    w->expert = expert;
    w->t.rows = rows;
    w->t.cols = cols;
    w->t.type = rows > 1 ? type : TFM_F32;
    w->t.layout = rows > 1 ? layout : TFM_ROWS;
    w->t.data = plain;
    fill_role(plain, tfm_weight_name(0, layer, role, expert, name, sizeof name), role, rows, cols);
    if (w->t.layout == TFM_ROWS && w->t.type != TFM_F32) {
        uint16_t *half = (uint16_t *)tiny_alloc((size_t)(rows * cols) * sizeof(uint16_t));
        for (int64_t i = 0; i < rows * cols; i++) half[i] = type == TFM_F16 ? tiny_f16(plain[i]) : tiny_bf16(plain[i]);
        tiny_free(plain);
        w->t.data = half;
    }
    if (w->t.layout == TFM_TILED) {
        void *tiled = tiny_alloc(tfm_tensor_bytes(type, TFM_TILED, rows, cols));
        check(tfm_pack(type, tiled, TFM_F32, plain, rows, cols) == TFM_OK, "%s cannot be packed", name);
        tiny_free(plain);
        w->t.data = tiled;
    }
}

void tiny_weights(tiny_model *t, int32_t type, int32_t layout) {
    int64_t rows, cols;
    int optional;
    t->n_weights = 0;
    for (int32_t layer = -1; layer < t->config.n_layers; layer++)
        for (int32_t role = 1; role < TFM_ROLE_LIMIT; role++) {
            const int32_t experts = tfm_role_experts(&t->config, layer, role);
            if (!tfm_role_shape(&t->config, layer, role, &rows, &cols, &optional)) continue;
            for (int32_t e = 0; e < (experts ? experts : 1) && t->n_weights < TINY_MAX_WEIGHTS; e++)
                add_weight(t, layer, role, experts ? e : -1, rows, cols, role == TFM_ROLE_ROUTER ? TFM_F32 : type,
                           layout);
        }
}

void tiny_weights_free(tiny_model *t) {
    for (int64_t i = 0; i < t->n_weights; i++) tiny_free((void *)(uintptr_t)t->weights[i].t.data);
    t->n_weights = 0;
}

tfm_weight *tiny_find(tiny_model *t, int32_t layer, int32_t role) {
    for (int64_t i = 0; i < t->n_weights; i++)
        if (t->weights[i].layer == layer && t->weights[i].role == role) return &t->weights[i];
    return NULL;
}

tfm_model *tiny_open(const tiny_model *t) {
    tfm_model *m = NULL;
    tfm_error err;
    const tfm_result r = tfm_model_from_weights(&t->config, t->weights, t->n_weights, NULL, &m, &err);
    check(r == TFM_OK, "the tiny model does not open: %s", r ? err.msg : "");
    return m;
}

/* ---- RUNNING --------------------------------------------------------------------------------------------------- */

tfm_session_config tiny_exact(int32_t n_ctx, int32_t n_batch) {
    tfm_session_config cfg;
    memset(&cfg, 0, sizeof cfg);
    cfg.size = sizeof cfg;
    cfg.n_ctx = n_ctx;
    cfg.n_batch = n_batch;
    cfg.kv = TFM_KV_F32;
    cfg.act = TFM_ACT_MODE_F32;
    cfg.want = TFM_WANT_ALL;
    cfg.grain = 1; /* tiny models too are cut into parts */
    return cfg;
}

int tiny_continue(tfm_session *s, int32_t n_vocab, int32_t n_batch, const int32_t *ids, int64_t n, float *out,
                  const char *what) {
    tfm_error err;
    for (int64_t first = 0; first < n; first += n_batch) {
        const int64_t count = n - first < n_batch ? n - first : n_batch;
        const tfm_result r = tfm_eval(s, ids + first, count, &err);
        check(r == TFM_OK, "%s: eval at %d: %s", what, (int)first, r ? err.msg : "");
        if (r) return 0;
        for (int64_t i = 0; i < count; i++)
            memcpy(out + (first + i) * n_vocab, tfm_logits(s, i), (size_t)n_vocab * sizeof(float));
    }
    return 1;
}

int tiny_logits(const tfm_model *m, const tfm_session_config *cfg, const int32_t *ids, int64_t n, float *out,
                const char *what) {
    tfm_session *s;
    tfm_error err;
    const tfm_result r = tfm_session_new(m, cfg, &s, &err);
    int ok;
    check(r == TFM_OK, "%s: no session: %s", what, r ? err.msg : "");
    if (r) return 0;
    ok = tiny_continue(s, tfm_model_config_of(m)->n_vocab, cfg->n_batch, ids, n, out, what);
    tfm_session_free(s);
    return ok;
}

float tiny_max_abs(const float *a, size_t n) {
    float most = 0;
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(a[i]) <= most)) most = fabsf(a[i]);
    return most;
}

float tiny_max_diff(const float *a, const float *b, size_t n) {
    float most = 0;
    for (size_t i = 0; i < n; i++) {
        const float d = fabsf(a[i] - b[i]);
        if (!(d <= 1e30f)) return HUGE_VALF;
        if (d > most) most = d;
    }
    return most;
}

double tiny_mean_diff(const float *a, const float *ref, size_t n) {
    double off = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)a[i] - (double)ref[i];
        if (ref[i] < -1e30f && a[i] == ref[i]) continue; /* switched off: it would drown the others */
        off += d * d;
        all += (double)ref[i] * (double)ref[i];
    }
    return sqrt(off / all);
}

int tiny_argmax(const float *a, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (a[i] > a[best]) best = i;
    return best;
}

void tiny_backwards(void *user, void (*fn)(void *arg, int index), void *arg, int n) {
    (void)user;
    while (n-- > 0) fn(arg, n);
}

void tiny_keep_largest(double *most, double x) {
    if (!(x <= *most)) *most = x;
}
