/* test_imatrix.c - importance matrices: what is collected is the mean square of what the matrices meet, the file comes
 * back as it was, and damaged ones are refused.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "tiny.h"
#include "tools/imatrix.h"

enum { N_IDS = 24, BATCH = 7 };

/* The sums that a trace of its own adds up: of what goes into each output projection. */
typedef struct own_sums { double squares[4][256]; int64_t rows, cols; } own_sums;

typedef struct both { collector *c; own_sums own; } both;

static void add_both(void *user, const char *name, int32_t layer, const float *data, int64_t rows, int64_t cols) {
    both *b = user;
    collector_trace(b->c, name, layer, data, rows, cols);
    if (strcmp(name, "attn") || layer < 0 || layer > 3 || cols > 256) return;
    b->own.cols = cols;
    b->own.rows += layer == 0 ? rows : 0;
    for (int64_t i = 0; i < rows * cols; i++) b->own.squares[layer][i % cols] += (double)data[i] * (double)data[i];
}

static void collect(const tfm_model *m, both *b) {
    tfm_session_config cfg = tiny_exact(64, BATCH);
    int32_t ids[N_IDS];
    float *logits = malloc(N_IDS * 64 * sizeof *logits);
    if (!logits) exit(1);
    memset(b, 0, sizeof *b);
    b->c = collector_new(m);
    cfg.trace = add_both;
    cfg.trace_user = b;
    tiny_ids(ids, N_IDS, 64, "imatrix");
    check(b->c && tiny_logits(m, &cfg, ids, N_IDS, logits, "imatrix"), "evaluation");
    free(logits);
}

static tfm_weight asked(int32_t layer, int32_t role, int64_t cols) {
    tfm_weight w = {TFM_STACK_DECODER, layer, role, -1, {NULL, TFM_F32, TFM_TILED, 16, cols}};
    return w;
}

static void check_values(const imatrix *m, const both *b) {
    for (int32_t layer = 0; layer < 4; layer++) {
        tfm_weight w = asked(layer, TFM_ROLE_O, b->own.cols);
        const float *row = imatrix_of(m, &w);
        check(row != NULL, "layer %d has no row", (int)layer);
        for (int64_t i = 0; row && i < b->own.cols; i++) {
            const double mean = b->own.squares[layer][i] / (double)b->own.rows;
            check(fabs((double)row[i] - mean) <= 1e-5 * mean + 1e-9,
                  "layer %d input %d: %g, not %g", (int)layer, (int)i,
                  (double)row[i], mean);
        }
    }
    tfm_weight v = asked(2, TFM_ROLE_V, 64), head = asked(-1, TFM_ROLE_EMBED, 64), other = asked(2, TFM_ROLE_V, 32);
    check(imatrix_of(m, &v) != NULL, "values have a row");
    check(!imatrix_of(m, &head) && !imatrix_of(m, &other) && !imatrix_of(NULL, &v), "what has no row");
}

/* Of another model, in width or in number of experts; of none. */
static void check_model(const imatrix *m) {
    tfm_weight w[2] = {asked(2, TFM_ROLE_V, 64), asked(-1, TFM_ROLE_EMBED, 64)};
    tfm_error err;
    int64_t missing;
    w[0].t.type = TFM_Q4_0;
    w[1].t.type = TFM_Q4_0;
    check(imatrix_check(m, w, 2, &missing, &err) == 0 && missing == 0, "the model's own matrices");
    w[1] = asked(2, TFM_ROLE_EXPERT_UP, 64);
    w[1].t.type = TFM_Q4_0;
    check(imatrix_check(m, w, 2, &missing, &err) == 0 && missing == 1, "a matrix without a row is counted");
    check(imatrix_check(m, w + 1, 1, &missing, &err) == TFM_ERR_FORMAT && strstr(err.msg, "imatrix: has a row for no"),
          "a row for none of them");
    w[0].t.cols = 32;
    check(imatrix_check(m, w, 2, &missing, &err) == TFM_ERR_FORMAT && strstr(err.msg, "blk.2.attn_v.weight.in_sum2"),
          "another width: %s", err.msg);
    w[0].t.cols = 64;
    w[0].expert = 1;
    check(imatrix_check(m, w, 2, &missing, &err) == TFM_ERR_FORMAT, "more experts than rows");
    check(imatrix_check(NULL, w, 2, &missing, &err) == 0 && missing == 0, "no matrix of importance");
}

static int read_bytes(imatrix *m, const unsigned char *bytes, size_t n, arena *mem, tfm_error *err) {
    const source src = source_memory("imatrix", bytes, n);
    return imatrix_read(m, &src, mem, err);
}

/* The form before GGUF begins with the number of entries. */
static void check_older(void) {
    arena mem = {NULL, 0, 0, 0};
    imatrix m;
    tfm_error err;
    check(read_bytes(&m, (const unsigned char *)"\3\0\0\0\1\0\0\0a", 9, &mem, &err) == TFM_ERR_UNSUPPORTED &&
          strstr(err.msg, "--in-file"), "an older file: %s", err.msg);
    arena_free(&mem);
}

/* Cuts, but of the padding, are errors; changed bytes are an error or rows of positive numbers. */
static void check_damage(const tiny_file *f) {
    unsigned char *bytes = malloc(f->size);
    if (!bytes) exit(1);
    for (size_t n = 0; n + 32 < f->size; n += 97) {
        arena mem = {NULL, 0, 0, 0};
        imatrix m;
        tfm_error err;
        check(read_bytes(&m, f->data, n, &mem, &err) != 0, "cut at %zu of %zu", n, f->size);
        arena_free(&mem);
    }
    for (size_t at = 0; at < f->size; at += at < 4096 ? 5 : 331) {
        arena mem = {NULL, 0, 0, 0};
        imatrix m;
        tfm_error err;
        memcpy(bytes, f->data, f->size);
        bytes[at] ^= at % 2 ? 0xff : 0x10;
        int code = read_bytes(&m, bytes, f->size, &mem, &err), good = 1;
        for (size_t i = 0; !code && i < m.n; i++)
            for (int64_t k = 0; k < m.entries[i].n * m.entries[i].cols; k++) good &= m.entries[i].values[k] > 0;
        check(good, "byte %zu changed: a row that is not positive", at);
        arena_free(&mem);
    }
    free(bytes);
}

void test_imatrix(void) {
    static tiny_model t;
    tiny_file f = {NULL, 0, 0};
    arena mem = {NULL, 0, 0, 0};
    imatrix m;
    tfm_error err;
    both b;
    tiny_describe(&t);
    tiny_weights(&t, TFM_F32, TFM_TILED);
    tfm_model *model = tiny_open(&t);
    collect(model, &b);
    sink out = tiny_sink(&f);
    check(collector_write(b.c, &out, "ids", 1, N_IDS, &err) == 0, "written");
    const int code = read_bytes(&m, f.data, f.size, &mem, &err);
    check(!code, "read: %s", code ? err.msg : "");
    if (!code) {
        check_values(&m, &b);
        check_model(&m);
        check_damage(&f);
        check_older();
        unsigned char *seed = malloc(f.size + 1);
        if (!seed) exit(1);
        seed[0] = 2;
        memcpy(seed + 1, f.data, f.size);
        write_seed("convert", "imatrix", seed, f.size + 1);
        free(seed);
    }
    collector_free(b.c);
    tiny_file_free(&f);
    arena_free(&mem);
    tfm_model_close(model);
    tiny_weights_free(&t);
}
