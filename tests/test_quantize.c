/* test_quantize.c - the quantiser: values against gguf-py's, errors and mixes against llama.cpp's
 * (tests/ref/quantize.h), rows that are zero, tiny, huge or no numbers, the same bytes for all threads and hosts.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "ref/quantize.h"
#include "tools/mix.h"
#include "tools/pool.h"
#include "tools/quantize.h"
#include "tools/strips.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

enum { ROWS = 16, COLS = 512 };

/* The numbers of tests/ref_quantize.py. */
static int hashed(uint32_t seed, uint32_t i) {
    uint32_t h = i * 2654435761u + seed * 40503u;
    h ^= h >> 15;
    h *= 0x85ebca6bu;
    h ^= h >> 13;
    return (int)(h >> 8 & 0xffff);
}

static float bell(uint32_t seed, uint32_t i) {
    int sum = 0;
    for (uint32_t k = 0; k < 4; k++) sum += hashed(seed + k, i) - 32768;
    return (float)sum / 262144.0f;
}

static float *bells(uint32_t seed, int64_t n) {
    float *x = malloc((size_t)n * sizeof *x);
    if (!x) exit(1);
    for (int64_t i = 0; i < n; i++) x[i] = bell(seed, (uint32_t)i);
    return x;
}

/* A strip of a type; its values in out [rows][cols]. */
static int quantize(int32_t type, const float *x, int rows, int64_t cols, const float *importance, float *out) {
    void *room = malloc(tfm_strip_bytes(type, cols) + 64);
    if (!room) exit(1);
    void *strip = (char *)room + (64 - (uintptr_t)room % 64) % 64;
    const tfm_tensor t = {strip, type, TFM_TILED, ROWS, cols};
    const int code = quantize_strip(type, strip, x, rows, cols, importance);
    for (int r = 0; !code && r < rows; r++) tfm_tensor_row(&t, r, out + r * cols);
    free(room);
    return code;
}

static uint64_t hash_of(const void *bytes, size_t n, uint64_t hash) {
    for (size_t i = 0; i < n; i++) hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t hash_values(const float *x, int64_t n) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;
        unsigned char b[4];
        memcpy(&u, x + i, 4);
        for (int k = 0; k < 4; k++) b[k] = (unsigned char)(u >> 8 * k);
        hash = hash_of(b, 4, hash);
    }
    return hash;
}

static void test_values(void) {
    float *x = bells(1, ROWS * COLS), *y = malloc(ROWS * COLS * sizeof *y);
    if (!y) exit(1);
    for (int i = 0; i < COUNT(ref_quantized); i++) {
        const int code = quantize(tfm_type_find(ref_quantized[i].type)->type, x, ROWS, COLS, NULL, y);
        check(!code && hash_values(y, ROWS * COLS) == ref_quantized[i].hash, "%s differs from gguf-py's",
              ref_quantized[i].type);
    }
    free(x);
    free(y);
}

/* The root of the mean of weight * error^2 over that of weight * value^2. */
static double error_of(const float *x, const float *y, const float *weight) {
    double miss = 0, all = 0;
    for (int i = 0; i < ROWS * COLS; i++) {
        const double w = weight ? (double)weight[i % COLS] : 1, d = (double)y[i] - (double)x[i];
        miss += w * d * d;
        all += w * (double)x[i] * (double)x[i];
    }
    return sqrt(miss / all);
}

/* No worse than the other quantiser by more than rounding. */
static void test_errors(void) {
    float *x = bells(1, ROWS * COLS), *y = malloc(ROWS * COLS * sizeof *y), weight[COLS];
    if (!y) exit(1);
    for (int i = 0; i < COLS; i++) weight[i] = (float)(hashed(9, (uint32_t)i) % 1000 + 1) / 250.0f;
    for (int i = 0; i < COUNT(ref_errors); i++) {
        const int32_t type = tfm_type_find(ref_errors[i].type)->type;
        int code = quantize(type, x, ROWS, COLS, NULL, y);
        const double plain = error_of(x, y, NULL);
        check(!code && plain <= 1.001 * ref_errors[i].plain,
              "%s: error %.6f, reference %.6f", ref_errors[i].type, plain,
              ref_errors[i].plain);
        code = quantize(type, x, ROWS, COLS, weight, y);
        const double weighted = error_of(x, y, weight);
        check(!code && weighted <= 1.001 * ref_errors[i].weighted, "%s with importance: error %.6f, reference %.6f",
              ref_errors[i].type, weighted, ref_errors[i].weighted);
    }
    free(x);
    free(y);
}

/* ---- MIXES ------------------------------------------------------------------------------------------------------ */

static const int32_t roles[] = {TFM_ROLE_Q, TFM_ROLE_K, TFM_ROLE_V, TFM_ROLE_O, TFM_ROLE_GATE, TFM_ROLE_UP,
                                TFM_ROLE_DOWN};

static char letter_of(int32_t type) {
    static const struct { int32_t type; char letter; } letters[] = {
        {TFM_F16, 'h'}, {TFM_Q8_0, '8'}, {TFM_Q4_0, '4'}, {TFM_Q4_1, 'f'}, {TFM_Q5_0, '5'}, {TFM_Q5_1, 'v'},
        {TFM_Q2_K, 'B'}, {TFM_Q3_K, 'C'}, {TFM_Q4_K, 'D'}, {TFM_Q5_K, 'E'}, {TFM_Q6_K, 'F'}, {TFM_IQ4_NL, 'n'},
        {TFM_IQ4_XS, 'x'}};
    for (int i = 0; i < COUNT(letters); i++)
        if (letters[i].type == type) return letters[i].letter;
    return '?';
}

static tfm_weight weight_of(int32_t layer, int32_t role, int32_t expert, int64_t cols) {
    tfm_weight w = {TFM_STACK_DECODER, layer, role, expert, {NULL, TFM_F16, TFM_TILED, 16, cols}};
    return w;
}

/* All matrices of a model of the reference, layer by layer; returns their number. */
static int64_t weights_of(int model, tfm_weight *w) {
    const int d = ref_models[model].model, ff = ref_models[model].ff, experts = ref_models[model].experts;
    int64_t n = 0;
    w[n++] = weight_of(-1, TFM_ROLE_EMBED, -1, d);
    if (!ref_models[model].tied) w[n++] = weight_of(-1, TFM_ROLE_HEAD, -1, d);
    for (int layer = 0; layer < ref_models[model].layers; layer++)
        for (int k = 0; k < COUNT(roles); k++) {
            const int64_t cols = roles[k] == TFM_ROLE_DOWN ? ff : d;
            const int copies = experts && k >= 4 ? experts : 1;
            for (int e = 0; e < copies; e++) w[n++] = weight_of(layer, roles[k], copies > 1 ? e : -1, cols);
        }
    return n;
}

static void check_mix(int model, const mix *m, const char *types, tfm_weight *w) {
    tfm_block block;
    tfm_config c;
    mix_report report;
    char expected[2048] = "", got[2048] = "";
    size_t used = 2;
    memset(&block, 0, sizeof block);
    memset(&c, 0, sizeof c);
    block.n_heads = ref_models[model].heads;
    block.n_kv_heads = ref_models[model].kv;
    c.blocks = &block;
    c.n_layers = ref_models[model].layers;
    c.tied = ref_models[model].tied;
    const int64_t n = weights_of(model, w);
    mix_apply(m, &c, w, n, 0, &report);
    memcpy(expected, types, 2);
    for (const char *at = types + 2; *at == ' ';) { /* " 12:DDDDEED" */
        char *letters;
        for (long i = strtol(at, &letters, 10); i > 0; i--, used += 7) memcpy(expected + used, letters + 1, 7);
        at = letters + 8;
    }
    used = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i == 1 && c.tied) got[used++] = '-';
        if (w[i].expert < 1) got[used++] = letter_of(w[i].t.type);
    }
    check(!strcmp(expected, got), "%s %s: %s", ref_models[model].name, m->name, got);
}

static void test_mixes(void) {
    tfm_weight *w = malloc(8192 * sizeof *w);
    if (!w) exit(1);
    for (int i = 0; i < COUNT(ref_mixes); i++) {
        const mix *m = mix_find(ref_mixes[i].mix);
        int model = 0;
        while (strcmp(ref_models[model].name, ref_mixes[i].model)) model++;
        check(m != NULL, "no mix %s", ref_mixes[i].mix);
        if (m) check_mix(model, m, ref_mixes[i].types, w);
    }
    free(w);
    for (int i = 0; mix_names[i]; i++) check(!i == !mix_find(mix_names[i]), "mix %s", mix_names[i]);
    check(!mix_find("q9_0") && !mix_find(""), "unknown mixes");
}

/* What is no matrix of the mix, what falls back, what was quantised before. */
static void test_mix_report(void) {
    tfm_block block;
    tfm_config c;
    mix_report r;
    tfm_weight w[5] = {weight_of(-1, TFM_ROLE_EMBED, -1, 512), weight_of(-1, TFM_ROLE_POS_EMBED, -1, 512),
                       weight_of(0, TFM_ROLE_ATTN_NORM, -1, 512), weight_of(0, TFM_ROLE_Q, -1, 96),
                       weight_of(0, TFM_ROLE_DOWN, -1, 100)};
    memset(&block, 0, sizeof block);
    memset(&c, 0, sizeof c);
    block.n_heads = block.n_kv_heads = 4;
    c.blocks = &block;
    c.n_layers = 1;
    w[0].t.type = TFM_Q8_0;
    w[2].t.layout = TFM_ROWS;
    w[2].t.type = TFM_F32;
    mix_apply(mix_find("q4_k_s"), &c, w, 5, 0, &r);
    check(w[0].t.type == TFM_Q4_K && w[1].t.type == TFM_F16 && w[2].t.type == TFM_F32, "kept: %d %d %d", w[0].t.type,
          w[1].t.type, w[2].t.type);
    check(w[3].t.type == TFM_Q5_0 && w[4].t.type == TFM_F16, "fallbacks: %d %d", w[3].t.type, w[4].t.type);
    check(r.n_fallbacks == 2 && r.first_fallback == 3 && r.n_again == 1, "report: %d of %d, again %d",
          (int)r.n_fallbacks, (int)r.first_fallback, (int)r.n_again);
    check(!strcmp(r.text, "1 Q4_K -> Q5_0, 1 Q4_K -> F16"), "report: %s", r.text);
}

/* ---- ROWS THAT ARE NO WEIGHTS ----------------------------------------------------------------------------------- */

static const int32_t types[] = {TFM_Q8_0, TFM_Q4_0, TFM_Q4_1, TFM_Q5_0, TFM_Q5_1, TFM_Q2_K, TFM_Q3_K,
                                TFM_Q4_K, TFM_Q5_K, TFM_Q6_K, TFM_IQ4_NL, TFM_IQ4_XS, TFM_MXFP4};

static void check_row(int32_t type, const char *what, const float *x, const float *importance, double allowed) {
    const char *name = tfm_type_get(type)->name;
    float y[COLS];
    double worst = 0;
    const int code = quantize(type, x, 1, COLS, importance, y);
    check(!code, "%s: %s: error %d", name, what, code);
    for (int i = 0; !code && i < COLS; i++) {
        const double miss = fabs((double)y[i] - (double)x[i]);
        if (!(miss <= worst)) worst = miss;
    }
    check(worst <= allowed, "%s: %s: off by %g, allowed %g", name, what, worst, allowed);
}

static void check_refused(int32_t type, float bad) {
    float x[COLS], y[COLS];
    for (int i = 0; i < COLS; i++) x[i] = bell(3, (uint32_t)i);
    x[77] = bad;
    const int code = quantize(type, x, 1, COLS, NULL, y);
    check(code == TFM_ERR_NUMERIC, "%s: a weight of %g: %d", tfm_type_get(type)->name, (double)bad, code);
}

static void test_odd_rows(void) {
    float x[COLS], importance[COLS];
    for (int i = 0; i < COLS; i++) importance[i] = (float)(1 + i % 7);
    for (int t = 0; t < COUNT(types); t++) {
        for (int seeing = 0; seeing < 2; seeing++) {
            const float *w = seeing ? importance : NULL;
            memset(x, 0, sizeof x);
            check_row(types[t], "zeros", x, w, types[t] == TFM_IQ4_XS ? 1e-7 : 0);
            for (int i = 0; i < COLS; i++) x[i] = -0.0f;
            check_row(types[t], "negative zeros", x, w, 0);
            for (int i = 0; i < COLS; i++) x[i] = ldexpf(bell(5, (uint32_t)i), -130);
            check_row(types[t], "subnormal", x, w, ldexp(1, -128));
            for (int i = 0; i < COLS; i++) x[i] = ldexpf(bell(5, (uint32_t)i), -30);
            check_row(types[t], "below F16", x, w, ldexp(1, -29));
            for (int i = 0; i < COLS; i++) x[i] = 0.25f;
            check_row(types[t], "constant", x, w, 0.05);
            for (int i = 0; i < COLS; i++) x[i] = 3 + bell(6, (uint32_t)i);
            check_row(types[t], "positive", x, w, 1);
            for (int i = 0; i < COLS; i++) x[i] = -3 - bell(6, (uint32_t)i);
            check_row(types[t], "negative", x, w, 1);
            for (int i = 0; i < COLS; i++) x[i] = 16384 * bell(7, (uint32_t)i);
            check_row(types[t], "large", x, w, 8000);
        }
        check_refused(types[t], INFINITY);
        check_refused(types[t], -INFINITY);
        check_refused(types[t], NAN);
        if (types[t] != TFM_MXFP4) check_refused(types[t], 66000.0f);
    }
    check(quantize(TFM_F16, x, 1, COLS, NULL, x) == TFM_ERR_UNSUPPORTED, "F16 is no type of blocks");
    check(quantize_strip(TFM_Q4_K, x, x, 1, 300, NULL) == TFM_ERR_ARG, "a cut block");
}

/* ---- THE SAME BYTES --------------------------------------------------------------------------------------------- */

/* 70 rows of a type on so many threads: a hash of the strips. */
static uint64_t hash_strips(int32_t type, const float *x, const float *importance, int threads) {
    enum { MANY = 70 };
    pool *p = pool_new(threads);
    strip_threads t = {{p, pool_run}, threads};
    arena mem = {NULL, 0, 0, 0};
    const size_t bytes = (MANY + STRIP - 1) / STRIP * tfm_strip_bytes(type, COLS);
    strip_job job = {TFM_F32, type, MANY, COLS, (const char *)x, COLS * sizeof *x, NULL, 0, importance,
                     strip_memory(&mem, bytes), strip_memory(&mem, strip_work_bytes(TFM_F32, COLS, &t))};
    if (!p || !job.out || !job.work) exit(1);
    check(strips_convert(&job, &t) == TFM_OK, "%s on %d threads", tfm_type_get(type)->name, threads);
    const tfm_tensor strips = {job.out, type, TFM_TILED, MANY, COLS};
    tfm_file_order(&strips, job.out);
    const uint64_t hash = hash_of(job.out, bytes, 0xcbf29ce484222325u);
    pool_free(p);
    arena_free(&mem);
    return hash;
}

/* The hash of everything is written down here, so that each host this runs on is held to the same bytes. */
static void test_same_bytes(void) {
    float *x = bells(11, 70 * COLS), *importance = bells(12, COLS);
    uint64_t all = 0;
    for (int i = 0; i < COLS; i++) importance[i] = importance[i] * importance[i];
    for (int t = 0; t < COUNT(types); t++) {
        const uint64_t plain = hash_strips(types[t], x, NULL, 1), weighted = hash_strips(types[t], x, importance, 1);
        for (int n = 2; n <= 4; n += 2) {
            check(hash_strips(types[t], x, NULL, n) == plain, "%s on %d threads", tfm_type_get(types[t])->name, n);
            check(hash_strips(types[t], x, importance, n) == weighted, "%s on %d threads, importance",
                  tfm_type_get(types[t])->name, n);
        }
        all = (all ^ plain) * 0x100000001b3u + weighted;
    }
    check(all == 0x1ecd41ce15dd4233u, "the bytes differ from those of other hosts: 0x%016llx", (unsigned long long)all);
    free(x);
    free(importance);
}

void test_quantize(void) {
    test_values();
    test_errors();
    test_odd_rows();
    test_same_bytes();
}

void test_mix(void) {
    test_mixes();
    test_mix_report();
}
