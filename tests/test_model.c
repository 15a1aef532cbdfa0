/* test_model.c - models built in memory, and the rules of sessions: context, rewinding, moving, memory, errors. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "tiny.h"

enum { N_IDS = 40, N_VOCAB = 64 };

/* What most tests share: a tiny model and the logits of N_IDS ids in one piece. */
typedef struct fixture {
    tiny_model t;
    tfm_model *m;
    int32_t ids[N_IDS];
    float whole[N_IDS * N_VOCAB], out[N_IDS * N_VOCAB];
} fixture;

static int fixture_open(fixture *f) {
    const tfm_session_config cfg = tiny_exact(N_IDS, N_IDS);
    tiny_describe(&f->t);
    tiny_weights(&f->t, TFM_F32, TFM_ROWS);
    tiny_ids(f->ids, N_IDS, N_VOCAB, "prompt");
    f->m = tiny_open(&f->t);
    return f->m && tiny_logits(f->m, &cfg, f->ids, N_IDS, f->whole, "whole");
}

static void fixture_close(fixture *f) {
    tfm_model_close(f->m);
    tiny_weights_free(&f->t);
}

/* Rows [first, first + n) of f->out are those of the run in one piece. */
static int same_rows(const fixture *f, int first, int n) {
    return !memcmp(f->out + first * N_VOCAB, f->whole + first * N_VOCAB, (size_t)n * N_VOCAB * sizeof(float));
}

static tfm_session *new_session(const tfm_model *m, const tfm_session_config *cfg, const char *what) {
    tfm_session *s = NULL;
    tfm_error err;
    const tfm_result r = tfm_session_new(m, cfg, &s, &err);
    check(!r, "%s: no session: %s", what, r ? err.msg : "");
    return s;
}

/* One line, naming what is wrong. */
static void check_error(tfm_result r, const tfm_error *err, tfm_result want, const char *names, const char *what) {
    check(r == want, "%s: result %d, not %d", what, (int)r, (int)want);
    if (r != want || r == TFM_OK) return;
    check(err->code == r, "%s: the error's code is %d", what, (int)err->code);
    check(err->msg[0] && !strchr(err->msg, '\n') && strlen(err->msg) < sizeof err->msg,
          "%s: message '%s'", what, err->msg);
    check(strstr(err->msg, names) != NULL, "%s: '%s' does not name '%s'", what, err->msg, names);
}

/* ---- CONTEXT --------------------------------------------------------------------------------------------------- */

static void test_context_full(fixture *f) {
    const tfm_session_config cfg = tiny_exact(16, 16);
    tfm_session *s = new_session(f->m, &cfg, "context");
    tfm_error err;
    if (!s) return;
    check_error(tfm_eval(s, f->ids, 24, &err), &err, TFM_ERR_CONTEXT, "24", "a prompt longer than the context");
    check(tfm_session_length(s) == 0 && !tfm_logits(s, 0), "a refused prompt left something behind");
    if (tiny_continue(s, N_VOCAB, 12, f->ids, 12, f->out, "context")) {
        check_error(tfm_eval(s, f->ids + 12, 5, &err), &err, TFM_ERR_CONTEXT, "16", "five tokens where four fit");
        check(tfm_session_length(s) == 12, "the refused tokens count");
        tiny_continue(s, N_VOCAB, 1, f->ids + 12, 4, f->out + 12 * N_VOCAB, "context");
        check(same_rows(f, 0, 16), "the first 16 positions differ from those of a larger context");
        check_error(tfm_eval(s, f->ids + 16, 1, &err), &err, TFM_ERR_CONTEXT, "16", "a token past the end");
        check(tfm_session_length(s) == 16 && tfm_eval(s, NULL, 0, &err) == TFM_OK, "a full session is not usable");
        check(tfm_session_context(s) == 16, "tfm_session_context");
        check(!tfm_session_rewind(s, 0, &err) && !tfm_eval(s, f->ids, 16, &err), "a full session cannot start again");
    }
    tfm_session_free(s);
}

/* Numbers of the user must not become sizes unchecked. */
static void *refuse_large(void *user, size_t size, size_t align) {
    size_t *most = (size_t *)user;
    (void)align;
    if (size > *most) *most = size;
    return size > (size_t)1 << 28 ? NULL : tiny_alloc(size);
}

static void release_tiny(void *user, void *p, size_t size) {
    (void)user;
    (void)size;
    tiny_free(p);
}

static void test_context_numbers(fixture *f) {
    static const struct { int32_t n_ctx, n_batch, threads; tfm_result want; const char *names; } rows[] = {
        { -1, 0, 1, TFM_ERR_ARG, "n_ctx -1" },
        { INT32_MIN, 4, 1, TFM_ERR_ARG, "n_ctx -2147483648" },
        { 16, -1, 1, TFM_ERR_ARG, "n_batch -1" },
        { 16, 0, -1, TFM_ERR_ARG, "n_threads -1" },
        { 16, 0, 1 << 20, TFM_ERR_ARG, "n_threads 1048576" },
        { INT32_MAX, 0, 1, TFM_ERR_MEMORY, "memory" },
        { INT32_MAX, INT32_MAX, 1024, TFM_ERR_MEMORY, "memory" },
        { 0, 0, 0, TFM_OK, "" },
        { 1, INT32_MAX, 0, TFM_OK, "" },
    };
    size_t most = 0, bytes;
    tfm_allocator allocator;
    tfm_error err;
    allocator.user = &most;
    allocator.alloc = refuse_large;
    allocator.release = release_tiny;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tfm_session_config cfg = tiny_exact(rows[i].n_ctx, rows[i].n_batch);
        tfm_session *s = NULL;
        char what[64];
        cfg.n_threads = rows[i].threads;
        cfg.allocator = &allocator;
        snprintf(what, sizeof what, "n_ctx %d, n_batch %d", (int)cfg.n_ctx, (int)cfg.n_batch);
        check_error(tfm_session_new(f->m, &cfg, &s, &err), &err, rows[i].want, rows[i].names, what);
        if (rows[i].want == TFM_ERR_MEMORY && tfm_session_kv_bytes(f->m, &cfg, &bytes, NULL) == TFM_OK)
            check((uint64_t)bytes > (uint64_t)INT32_MAX * 64, "%s: the cache's size wrapped", what);
        check(!s == (rows[i].want != TFM_OK), "%s: a session came with the error", what);
        if (s && !cfg.n_ctx) check(tfm_session_context(s) == 128, "n_ctx 0 is not the model's context");
        tfm_session_free(s);
    }
}

static void test_bad_ids(fixture *f) {
    static const int32_t bad[] = { -1, N_VOCAB, INT32_MAX, INT32_MIN };
    const tfm_session_config cfg = tiny_exact(N_IDS, N_IDS);
    tfm_session *s = new_session(f->m, &cfg, "ids");
    tfm_error err;
    if (!s) return;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int32_t ids[3] = { 1, 2, 0 };
        char number[16];
        ids[2] = bad[i];
        snprintf(number, sizeof number, "%d", (int)bad[i]);
        check_error(tfm_eval(s, ids, 3, &err), &err, TFM_ERR_ARG, number, "an id out of range");
        check(tfm_session_length(s) == 0, "ids before a bad one were evaluated");
    }
    check_error(tfm_eval(s, f->ids, -1, &err), &err, TFM_ERR_ARG, "-1", "a negative count");
    check_error(tfm_eval(s, NULL, 1, &err), &err, TFM_ERR_ARG, "", "no ids");
    check(tfm_eval(s, f->ids, -1, NULL) == TFM_ERR_ARG, "an error nobody wants to read");
    tfm_session_free(s);
}

/* ---- WANTED RESULTS -------------------------------------------------------------------------------------------- */

static void test_wanted(fixture *f) {
    tfm_session_config cfg = tiny_exact(N_IDS, 8);
    tfm_error err;
    for (int32_t want = TFM_WANT_LAST; want <= TFM_WANT_NONE; want++) {
        const int rows = want == TFM_WANT_ALL || want == TFM_WANT_HIDDEN;
        cfg.want = want;
        tfm_session *s = new_session(f->m, &cfg, "want");
        if (!s) return;
        check(!tfm_logits(s, 0) && !tfm_hidden(s, 0), "want %d: results before any eval", (int)want);
        check_error(tfm_eval(s, f->ids, 20, &err), &err, rows ? TFM_ERR_ARG : TFM_OK, "n_batch",
                    "more rows than n_batch");
        if (rows) check(!tfm_eval(s, f->ids, 8, &err) && !tfm_eval(s, f->ids + 8, 5, &err), "want %d: eval", (int)want);
        check(!tfm_logits(s, 5) == (want != TFM_WANT_LAST), "want %d: logits of a row that is not there", (int)want);
        check(!tfm_logits(s, 0) == (want == TFM_WANT_HIDDEN || want == TFM_WANT_NONE), "want %d: logits", (int)want);
        check(!tfm_hidden(s, 0) == (want == TFM_WANT_NONE), "want %d: hidden rows", (int)want);
        if (want == TFM_WANT_LAST)
            check(!memcmp(tfm_logits(s, 0), f->whole + 19 * N_VOCAB, N_VOCAB * 4), "want last: other bits");
        if (want == TFM_WANT_ALL)
            check(!memcmp(tfm_logits(s, 4), f->whole + 12 * N_VOCAB, N_VOCAB * 4), "want all: other bits");
        tfm_session_free(s);
    }
}

/* ---- REWINDING ------------------------------------------------------------------------------------------------- */

/* Evaluates other ids up to `high` and goes back to `to`. */
static void check_rewind(tfm_session *s, int high, int to) {
    tfm_error err;
    const int64_t at = tfm_session_length(s);
    static float ignored[N_IDS * N_VOCAB];
    int32_t other[N_IDS];
    tiny_ids(other, N_IDS, N_VOCAB, "detour");
    if (high > at) tiny_continue(s, N_VOCAB, 4, other, high - at, ignored, "detour");
    check(!tfm_session_rewind(s, to, &err), "rewind from %d to %d", high, to);
    check(tfm_session_length(s) == to && !tfm_logits(s, 0),
          "rewind to %d: the length is %d", to, (int)tfm_session_length(s));
}

static void test_rewind(fixture *f) {
    const tfm_session_config cfg = tiny_exact(N_IDS, 4); /* window layers keep 8 + 4 positions */
    tfm_session *s = new_session(f->m, &cfg, "rewind");
    tfm_error err;
    if (!s) return;
    check_error(tfm_session_rewind(s, 1, &err), &err, TFM_ERR_ARG, "1", "rewind forward");
    check_error(tfm_session_rewind(s, -1, &err), &err, TFM_ERR_ARG, "-1", "rewind below zero");
    tiny_continue(s, N_VOCAB, 4, f->ids, 26, f->out, "rewind");
    check_rewind(s, 30, 28); /* twice, down to the slack below the furthest position */
    check_rewind(s, 28, 26);
    tiny_continue(s, N_VOCAB, 4, f->ids + 26, 2, f->out + 26 * N_VOCAB, "rewind");
    check_error(tfm_session_rewind(s, 25, &err), &err, TFM_ERR_CONTEXT, "25", "rewind beyond the slack");
    check(tfm_session_length(s) == 28, "a refused rewind changed the length");
    tiny_continue(s, N_VOCAB, 4, f->ids + 28, N_IDS - 28, f->out + 28 * N_VOCAB, "rewind");
    check(same_rows(f, 0, N_IDS), "rewinding within the slack changed the bits");
    check(!tfm_session_rewind(s, 0, &err) || err.code == TFM_ERR_CONTEXT, "rewind to the start");
    tfm_session_free(s);
}

/* Without a window, or before it is full, every length can be returned to. */
static void test_rewind_far(fixture *f) {
    const tfm_session_config cfg = tiny_exact(N_IDS, 32);
    tfm_session *s = new_session(f->m, &cfg, "rewind far");
    if (!s) return;
    tiny_continue(s, N_VOCAB, 4, f->ids, 5, f->out, "rewind far");
    check_rewind(s, 36, 5); /* 31 below the furthest: within the slack of 32 */
    tiny_continue(s, N_VOCAB, 32, f->ids + 5, N_IDS - 5, f->out + 5 * N_VOCAB, "rewind far");
    check(same_rows(f, 0, N_IDS), "a long rewind changed the bits");
    tfm_session_free(s);
}

/* ---- MEMORY ---------------------------------------------------------------------------------------------------- */

enum { GUARD = 256 };

static int untouched(const unsigned char *p, unsigned char byte) {
    for (int i = 0; i < GUARD; i++)
        if (p[i] != byte) return 0;
    return 1;
}

/* The size is exact from below (one byte less is refused) and from above (nothing behind it is touched), in any
 * mode; memory need not be clean. */
static void test_session_size(fixture *f) {
    static const struct { int32_t batch, kv, act, want, threads; } rows[] = {
        { 1, TFM_KV_F32, TFM_ACT_MODE_F32, TFM_WANT_ALL, 1 },  { 3, TFM_KV_F16, TFM_ACT_MODE_Q8, TFM_WANT_LAST, 2 },
        { 16, TFM_KV_BF16, TFM_ACT_MODE_Q8, TFM_WANT_ALL, 3 },
        { 40, TFM_KV_Q8_0, TFM_ACT_MODE_F32, TFM_WANT_HIDDEN, 7 },
        { 7, TFM_KV_DEFAULT, TFM_ACT_MODE_DEFAULT, TFM_WANT_NONE, 0 },
    };
    tfm_error err;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tfm_session_config cfg = tiny_exact(N_IDS, rows[i].batch);
        tfm_session *s = NULL;
        size_t bytes = 0, again = 0;
        cfg.kv = rows[i].kv;
        cfg.act = rows[i].act;
        cfg.want = rows[i].want;
        cfg.n_threads = rows[i].threads;
        cfg.parallel.run = tiny_backwards;
        check(!tfm_session_size(f->m, &cfg, &bytes, &err) && !tfm_session_size(f->m, &cfg, &again, &err) &&
              bytes == again,
              "tfm_session_size, row %d", (int)i);
        unsigned char *mem = (unsigned char *)tiny_alloc(bytes + GUARD);
        memset(mem, 0xA5, bytes + GUARD);
        check_error(tfm_session_init(f->m, &cfg, mem, bytes - 1, &s, &err), &err, TFM_ERR_MEMORY, "bytes",
                    "a byte too few");
        check_error(tfm_session_init(f->m, &cfg, mem + 16, bytes, &s, &err), &err, TFM_ERR_MEMORY, "64",
                    "memory not aligned");
        check(!tfm_session_init(f->m, &cfg, mem, bytes, &s, &err), "tfm_session_init, row %d", (int)i);
        for (int64_t at = 0; s && at < N_IDS; at += rows[i].batch) {
            const int64_t n = N_IDS - at < rows[i].batch ? N_IDS - at : rows[i].batch;
            check(!tfm_eval(s, f->ids + at, n, &err), "eval in the caller's memory");
        }
        check(untouched(mem + bytes, 0xA5), "row %d: bytes behind the session were written", (int)i);
        tiny_free(mem);
    }
}

static void test_kv_formula(fixture *f) {
    static const struct { int32_t kv; size_t bytes_of_32; } types[] = {
        { TFM_KV_F32, 128 }, { TFM_KV_F16, 64 }, { TFM_KV_BF16, 64 }, { TFM_KV_Q8_0, 34 }, { TFM_KV_DEFAULT, 64 } };
    const size_t n_kv_heads = 2, window = 8;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        for (int32_t n_batch = 1; n_batch <= 64; n_batch *= 4) {
            tfm_session_config cfg = tiny_exact(40, n_batch), without = tiny_exact(1, 1);
            const size_t batch = n_batch < 40 ? (size_t)n_batch : 40;
            const size_t slots = window + batch < 40 ? window + batch : 40; /* head_dim 32: one block a head */
            const size_t want = 2 * n_kv_heads * types[i].bytes_of_32 * (2 * 40 + 2 * slots);
            size_t bytes = 0;
            cfg.kv = without.kv = types[i].kv;
            check(!tfm_session_kv_bytes(f->m, &cfg, &bytes, NULL) && bytes == want,
                  "kv %d, n_batch %d: %d bytes, not %d",
                  (int)types[i].kv, (int)n_batch, (int)bytes, (int)want);
        }
}

typedef struct counter {
    int allocs, releases, fail_at; /* fail_at: the number of the allocation that fails, -1 = none */
    size_t bytes;
} counter;

static void *count_alloc(void *user, size_t size, size_t align) {
    counter *c = (counter *)user;
    void *p = c->allocs++ == c->fail_at ? NULL : tiny_alloc(size);
    check(align && !(align & (align - 1)) && align <= 64, "alignment %d was asked for", (int)align);
    if (p) c->bytes += size;
    return p;
}

static void count_release(void *user, void *p, size_t size) {
    counter *c = (counter *)user;
    c->releases++;
    c->bytes -= size;
    tiny_free(p);
}

/* Two allocations in all, none during evaluation; every one that fails is an error and leaves nothing behind. */
static void test_allocations(fixture *f) {
    tfm_error err;
    for (int fail_at = -1; fail_at < 2; fail_at++) {
        counter c = { 0, 0, 0, 0 };
        tfm_allocator allocator;
        tfm_model_config mc;
        tfm_session_config cfg = tiny_exact(N_IDS, 4);
        tfm_model *m = NULL;
        tfm_session *s = NULL;
        c.fail_at = fail_at;
        allocator.user = &c;
        allocator.alloc = count_alloc;
        allocator.release = count_release;
        memset(&mc, 0, sizeof mc);
        mc.size = sizeof mc;
        mc.allocator = cfg.allocator = &allocator;
        tfm_result r = tfm_model_from_weights(&f->t.config, f->t.weights, f->t.n_weights, &mc, &m, &err);
        if (!r) r = tfm_session_new(m, &cfg, &s, &err);
        check_error(r, &err, fail_at < 0 ? TFM_OK : TFM_ERR_MEMORY, "memory", "a failing allocation");
        if (s) {
            tiny_continue(s, N_VOCAB, 4, f->ids, N_IDS, f->out, "counted");
            check(!tfm_session_rewind(s, N_IDS - 2, &err), "rewind");
            check(c.allocs == 2, "%d allocations for a model and a session", c.allocs);
        }
        tfm_session_free(s);
        tfm_model_close(m);
        check(c.bytes == 0 && c.allocs - c.releases == (fail_at >= 0),
              "%d allocations, %d releases, %d bytes left", c.allocs,
              c.releases, (int)c.bytes);
    }
    tfm_session_free(NULL);
    tfm_model_close(NULL);
}

/* Every byte of a session's head forged in turn: refused with a message, or something that can be run. */
static void test_forged_head(fixture *f, unsigned char *spare, unsigned char *b, size_t bytes) {
    enum { HEAD = 232 }; /* what stands before the pointers, which attaching sets */
    tfm_session *s = (tfm_session *)(void *)b;
    int refused = 0;
    memcpy(spare, b, bytes);
    for (size_t i = 0; i < HEAD; i++) {
        tfm_error err;
        err.msg[0] = 0;
        b[i] ^= 0x40;
        const tfm_result r = tfm_session_attach(s, bytes, f->m, NULL, &err);
        check(!r || err.msg[0], "a forged byte %d: refused without a message", (int)i);
        if (!r) tfm_eval(s, f->ids, 1, NULL);
        refused += r != 0;
        memcpy(b, spare, bytes);
    }
    check(refused > HEAD / 2, "only %d forged bytes were refused", refused);
}

/* A session is bytes: copied elsewhere and attached, it goes on with the same bits. */
static void test_moving(fixture *f) {
    tfm_session_config cfg = tiny_exact(N_IDS, 4);
    tfm_session *s = NULL, *moved;
    tiny_model other;
    tfm_error err;
    size_t bytes = 0;
    check(!tfm_session_size(f->m, &cfg, &bytes, &err), "tfm_session_size");
    unsigned char *a = (unsigned char *)tiny_alloc(bytes), *b = (unsigned char *)tiny_alloc(bytes + 64);
    check(!tfm_session_init(f->m, &cfg, a, bytes, &s, &err), "tfm_session_init");
    if (!s) return;
    tiny_continue(s, N_VOCAB, 4, f->ids, 21, f->out, "before the move");
    memcpy(b, a, bytes);
    memset(a, 0xEE, bytes);
    moved = (tfm_session *)(void *)b;
    check_error(tfm_session_attach(moved, bytes - 64, f->m, NULL, &err), &err, TFM_ERR_FORMAT, "session",
                "a part of a session");
    check_error(tfm_session_attach((tfm_session *)(void *)(b + 8), bytes, f->m, NULL, &err), &err, TFM_ERR_ARG, "64",
                "not aligned");
    tiny_describe(&other);
    other.blocks[1].window = 9;
    tiny_weights(&other, TFM_F32, TFM_ROWS);
    tfm_model *m = tiny_open(&other);
    if (m) check_error(tfm_session_attach(moved, bytes, m, NULL, &err), &err, TFM_ERR_FORMAT, "another model",
                       "another model");
    tfm_model_close(m);
    tiny_weights_free(&other);
    for (size_t i = 16; i < 16 + 15 * 8; i++) { /* the layout stands behind magic and identity */
        b[i] ^= 0x40;
        check_error(tfm_session_attach(moved, bytes, f->m, NULL, &err), &err, TFM_ERR_FORMAT, "session",
                    "a forged layout");
        b[i] ^= 0x40;
    }
    test_forged_head(f, a, b, bytes);
    check(!tfm_session_attach(moved, bytes, f->m, &cfg, &err), "attach: %s", err.msg);
    check(tfm_session_length(moved) == 21, "the length moved is %d", (int)tfm_session_length(moved));
    tiny_continue(moved, N_VOCAB, 4, f->ids + 21, N_IDS - 21, f->out + 21 * N_VOCAB, "after the move");
    check(same_rows(f, 0, N_IDS), "moving a session changed the bits");
    memset(b, 0, bytes);
    check_error(tfm_session_attach(moved, bytes, f->m, NULL, &err), &err, TFM_ERR_FORMAT, "session",
                "zeros as a session");
    if ((s = new_session(f->m, &cfg, "hooks in place")) != NULL) /* still owned afterwards: leak checkers would tell */
        check(!tfm_session_attach(s, bytes, f->m, NULL, &err), "attach in place: %s", err.msg);
    tfm_session_free(s);
    tiny_free(a);
    tiny_free(b);
}

/* ---- THE BUILDER ----------------------------------------------------------------------------------------------- */

static void check_refused(const tiny_model *t, tfm_result want, const char *names, const char *what) {
    tfm_model *m = NULL;
    tfm_error err;
    check_error(tfm_model_from_weights(&t->config, t->weights, t->n_weights, NULL, &m, &err), &err, want, names, what);
    check(m == NULL, "%s: a model came with the error", what);
    tfm_model_close(m);
}

static void test_weights_refused(fixture *f) {
    tiny_model t = f->t;
    tfm_weight *down, *norm;
    t.config.blocks = t.blocks;
    t.config.layer_block = t.layer_block;
    down = tiny_find(&t, 2, TFM_ROLE_DOWN);
    norm = tiny_find(&t, 1, TFM_ROLE_FFN_NORM);
    if (!down || !norm) {
        check(0, "the tiny model lacks ffn_down or ffn_norm");
        return;
    }
    const tfm_weight good_down = *down, good_norm = *norm;

    down->t.rows = 63;
    check_refused(&t, TFM_ERR_FORMAT, "blk.2.ffn_down", "wrong rows");
    *down = good_down;
    down->t.cols = 64;
    check_refused(&t, TFM_ERR_FORMAT, "blk.2.ffn_down", "wrong columns");
    *down = good_down;
    down->t.data = NULL;
    check_refused(&t, TFM_ERR_ARG, "blk.2.ffn_down", "no data");
    *down = good_down;
    down->t.type = TFM_Q8_0; /* quantised types have no row layout */
    check_refused(&t, TFM_ERR_ARG, "blk.2.ffn_down", "type and layout");
    *down = good_down;
    down->t.layout = TFM_TILED;
    down->t.data = (const unsigned char *)good_down.t.data + 4;
    check_refused(&t, TFM_ERR_ARG, "blk.2.ffn_down", "tiles not aligned");
    *down = good_down;
    down->layer = 4;
    check_refused(&t, TFM_ERR_FORMAT, "blk.4.ffn_down", "a layer too many");
    *down = good_down;
    down->layer = 3;
    check_refused(&t, TFM_ERR_FORMAT, "blk.3.ffn_down", "a tensor twice");
    *down = good_down;
    down->role = 63;
    check_refused(&t, TFM_ERR_UNSUPPORTED, "63", "an unknown role");
    *down = good_down;
    down->expert = 1;
    check_refused(&t, TFM_ERR_UNSUPPORTED, "blk.2.ffn_down", "an expert in a dense layer");
    *down = good_down;
    norm->t.type = TFM_F16;
    check_refused(&t, TFM_ERR_FORMAT, "blk.1.ffn_norm", "a vector that is not F32");
    *norm = good_norm;
    *norm = t.weights[t.n_weights - 1];
    t.n_weights--;
    check_refused(&t, TFM_ERR_FORMAT, "blk.1.ffn_norm", "a missing tensor");
}

static void test_descriptions_refused(fixture *f) {
    static const struct { size_t offset; int32_t value; const char *names; } rows[] = {
#define BLOCK_ROW(field, value) { offsetof(tfm_block, field), value, #field }
        BLOCK_ROW(n_heads, 0), BLOCK_ROW(n_heads, -4), BLOCK_ROW(n_heads, 5), BLOCK_ROW(n_kv_heads, 0),
        BLOCK_ROW(head_dim, 0),
        BLOCK_ROW(head_dim, 1 << 30), BLOCK_ROW(d_ff, 0), BLOCK_ROW(d_ff, INT32_MAX), BLOCK_ROW(window, -1),
        BLOCK_ROW(norm_kind, 99), BLOCK_ROW(ffn_act, 99), BLOCK_ROW(rope_style, 99), BLOCK_ROW(rope_scaling, 99),
        BLOCK_ROW(rope_dims, 34), BLOCK_ROW(rope_dims, 3), BLOCK_ROW(norm_place, 99), BLOCK_ROW(residual, 99),
        BLOCK_ROW(attn_kind, 1), BLOCK_ROW(mask, 99), BLOCK_ROW(qk_norm, 99), BLOCK_ROW(norm_eps, (int32_t)0x7fc00000),
        BLOCK_ROW(rope_theta, (int32_t)0x7f800000), BLOCK_ROW(attn_softcap, (int32_t)0xbf800000u), BLOCK_ROW(bias, 512),
        BLOCK_ROW(bias, TFM_BIAS_QK_NORM),
        BLOCK_ROW(bias, TFM_BIAS_NORM), BLOCK_ROW(ffn_gated, 7), BLOCK_ROW(norm_no_weight, 9),
        BLOCK_ROW(rope_no_truncate, 77),
        BLOCK_ROW(rope_scaling, TFM_ROPE_LONG), BLOCK_ROW(rope_scaling, TFM_ROPE_DYNAMIC),
#undef BLOCK_ROW
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tiny_model t = f->t;
        t.config.blocks = t.blocks;
        t.config.layer_block = t.layer_block;
        memcpy((unsigned char *)&t.blocks[1] + rows[i].offset, &rows[i].value, 4);
        tfm_model *m = NULL;
        tfm_error err;
        const tfm_result r = tfm_model_from_weights(&t.config, t.weights, t.n_weights, NULL, &m, &err);
        check(r == TFM_ERR_FORMAT || r == TFM_ERR_UNSUPPORTED,
              "%s %d: result %d", rows[i].names, (int)rows[i].value, (int)r);
        if (r)
            check(strstr(err.msg, "block 1") && strlen(err.msg) > 10, "%s %d: '%s'", rows[i].names, (int)rows[i].value,
                  err.msg);
        tfm_model_close(m);
    }
}

/* Numbers of the whole model: none, negative, too large, no number. */
static void test_configs_refused(fixture *f) {
    static const struct { size_t offset; int32_t value; const char *names; } rows[] = {
#define ROW(field, value) { offsetof(tfm_config, field), value, #field }
        ROW(n_layers, 0), ROW(n_layers, -1), ROW(n_layers, 4097), ROW(n_layers, INT32_MAX), ROW(d_model, 0),
        ROW(d_model, -64),
        ROW(d_model, (1 << 20) + 1), ROW(n_vocab, 0), ROW(n_vocab, -1), ROW(n_vocab, (1 << 26) + 1), ROW(n_ctx, 0),
        ROW(n_ctx, -1), ROW(n_ctx, INT32_MIN), ROW(n_blocks, 0), ROW(n_blocks, 256), ROW(d_embed, 65),
        ROW(pos_kind, 99), ROW(pos_offset, (1 << 20) + 1), ROW(norm_kind, 99), ROW(norm_bias, 1), ROW(bos, 64),
        ROW(n_eos, 17),
        ROW(n_eos, -1), ROW(eos, 64), ROW(eos, -1), ROW(norm_eps, (int32_t)0xbf800000u), ROW(norm_eps, 0x7fc00000),
        ROW(norm_eps, 0x7f800000), ROW(logit_softcap, (int32_t)0xbf800000u), ROW(embed_scale, 0x7fc00000),
#undef ROW
        { offsetof(tfm_config, n_blocks), 1, "layer 1 names block 1 of 1" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tiny_model t = f->t;
        tfm_error err;
        t.config.blocks = t.blocks;
        t.config.layer_block = t.layer_block;
        t.config.n_eos = 1;
        memcpy((unsigned char *)&t.config + rows[i].offset, &rows[i].value, 4);
        const tfm_result r = tfm_config_check(&t.config, &err);
        check(r == TFM_ERR_FORMAT || r == TFM_ERR_UNSUPPORTED,
              "%s %d: result %d", rows[i].names, (int)rows[i].value, (int)r);
        if (r) check(strstr(err.msg, rows[i].names) != NULL, "%s %d: '%s'", rows[i].names, (int)rows[i].value, err.msg);
    }
}

/* A description may promise any context: a session of it that cannot be is an error, not a wrapped size. */
static void test_promised_context(fixture *f) {
    tiny_model t = f->t;
    tfm_model *m = NULL;
    tfm_session *s = NULL;
    tfm_allocator allocator;
    tfm_error err;
    size_t most = 0;
    tfm_session_config cfg = tiny_exact(0, 0);
    t.config.blocks = t.blocks;
    t.config.layer_block = t.layer_block;
    t.config.n_ctx = INT32_MAX;
    allocator.user = &most;
    allocator.alloc = refuse_large;
    allocator.release = release_tiny;
    cfg.allocator = &allocator;
    const tfm_result r = tfm_model_from_weights(&t.config, t.weights, t.n_weights, NULL, &m, &err);
    check(!r, "a model for 2^31 - 1 positions: %s", r ? err.msg : "");
    if (!r) check_error(tfm_session_new(m, &cfg, &s, &err), &err, TFM_ERR_MEMORY, "memory",
                        "a session of 2^31 - 1 positions");
    cfg.n_ctx = 8;
    if (!r) check(!tfm_session_new(m, &cfg, &s, &err), "a session of 8 of 2^31 - 1 positions");
    tfm_session_free(s);
    tfm_model_close(m);
}

/* The factor vectors of RoPE are shared: blocks of another rotary width must not read past their end. */
static void test_shared_factors(fixture *f) {
    tiny_model t = f->t;
    tfm_model *m = NULL;
    tfm_error err;
    t.config.blocks = t.blocks;
    t.config.layer_block = t.layer_block;
    for (int i = 0; i < 2; i++) {
        t.blocks[i].rope_style = TFM_ROPE_HALF;
        t.blocks[i].rope_theta = 1e4f;
        t.blocks[i].rope_scaling = TFM_ROPE_FACTORS;
        t.blocks[i].rope_dims = 2 + 2 * i;
    }
    const tfm_result r = tfm_model_from_weights(&t.config, t.weights, t.n_weights, NULL, &m, &err);
    check_error(r, &err, TFM_ERR_FORMAT, "block 1: rope_dims", "factor vectors of two widths");
    tfm_model_close(m);
    for (int i = 0; i < 2; i++) {
        t.blocks[i] = f->t.blocks[i];
        t.blocks[i].alibi = TFM_ALIBI_SLOPES;
    }
    t.blocks[1].n_heads *= 2;
    check_error(tfm_model_from_weights(&t.config, t.weights, t.n_weights, NULL, &m, &err), &err, TFM_ERR_FORMAT,
                "block 1: n_heads", "slopes of two widths");
    tfm_model_close(m);
}

/* A tied head is the embedding: one tensor, one pointer. An untied one is its own. */
static void test_tied(fixture *f) {
    tiny_model t;
    const tfm_tensor head = tfm_model_tensor(f->m, -1, TFM_ROLE_HEAD);
    const tfm_tensor embed = tfm_model_tensor(f->m, -1, TFM_ROLE_EMBED);
    check(head.data && head.data == embed.data && head.rows == embed.rows && head.type == embed.type,
          "a tied head is no alias");
    check(embed.data == tiny_find(&f->t, -1, TFM_ROLE_EMBED)->t.data, "the embedding was copied");
    check(tfm_model_weight_count(f->m) == f->t.n_weights, "a tied model counts its head");
    tiny_describe(&t);
    t.config.tied = 0;
    tiny_weights(&t, TFM_F32, TFM_ROWS);
    tfm_model *m = tiny_open(&t);
    if (m) {
        check(tfm_model_tensor(m, -1, TFM_ROLE_HEAD).data != tfm_model_tensor(m, -1, TFM_ROLE_EMBED).data,
              "an untied head is the embedding");
        check(!tfm_model_tensor(m, 0, TFM_ROLE_Q_NORM).data, "a tensor that is not there");
        check(!tfm_model_tensor(m, 4, TFM_ROLE_Q).data && !tfm_model_tensor(m, -2, TFM_ROLE_Q).data &&
              !tfm_model_tensor(m, 0, 9999).data && !tfm_model_tensor(m, -1, -1).data, "roles and layers out of range");
    }
    tfm_model_close(m);
    tiny_weights_free(&t);
}

/* Row-major weights and tiles of the same type give the same bits. */
static void test_layouts(fixture *f) {
    static const int32_t types[] = { TFM_F32, TFM_F16, TFM_BF16 };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        float *logits[2] = { f->whole, f->out };
        static float rows[N_IDS * N_VOCAB];
        logits[0] = rows;
        for (int32_t layout = TFM_ROWS; layout <= TFM_TILED; layout++) {
            const tfm_session_config cfg = tiny_exact(N_IDS, 10);
            tiny_model t;
            tiny_describe(&t);
            t.config.n_vocab = N_VOCAB - 7; /* padded tiles */
            tiny_weights(&t, types[i], layout);
            tfm_model *m = tiny_open(&t);
            int32_t ids[N_IDS];
            tiny_ids(ids, N_IDS, N_VOCAB - 7, "layouts");
            if (m) tiny_logits(m, &cfg, ids, N_IDS, logits[layout], "layouts");
            tfm_model_close(m);
            tiny_weights_free(&t);
        }
        check(!memcmp(rows, f->out, N_IDS * (N_VOCAB - 7) * sizeof(float)), "%s: rows and tiles differ by %g",
              tfm_type_get(types[i])->name, (double)tiny_max_diff(rows, f->out, N_IDS * (N_VOCAB - 7)));
    }
}

/* ---- PARTS OF THE DESCRIPTION ---------------------------------------------------------------------------------- */

static void edit_layernorm(tiny_model *t) {
    for (int i = 0; i < 2; i++) {
        t->blocks[i].norm_kind = TFM_NORM_LAYER;
        t->blocks[i].bias = TFM_BIAS_NORM | TFM_BIAS_Q | TFM_BIAS_K | TFM_BIAS_V | TFM_BIAS_O | TFM_BIAS_UP |
                            TFM_BIAS_DOWN;
        t->blocks[i].ffn_gated = 0;
        t->blocks[i].ffn_act = TFM_ACT_GELU_ERF;
        t->blocks[i].rope_style = TFM_ROPE_NONE;
    }
    t->config.norm_kind = TFM_NORM_LAYER;
    t->config.norm_bias = 1;
    t->config.pos_kind = TFM_POS_LEARNED;
    t->config.pos_offset = 2;
}

static void edit_parallel(tiny_model *t) {
    for (int i = 0; i < 2; i++) {
        t->blocks[i].residual = i ? TFM_RESIDUAL_PARALLEL_1 : TFM_RESIDUAL_PARALLEL_2;
        t->blocks[i].rope_style = TFM_ROPE_INTERLEAVED;
        t->blocks[i].rope_dims = 8;
        t->blocks[i].residual_scale = 0.5f;
    }
    t->config.tied = 0;
    t->config.head_bias = 1;
    t->config.logit_scale = 0.25f;
}

static void edit_places(tiny_model *t) {
    t->blocks[0].norm_place = TFM_PLACE_POST_BRANCH;
    t->blocks[1].norm_place = TFM_PLACE_POST_ADD;
    t->blocks[0].qk_norm = TFM_QKNORM_FULL;
    t->blocks[0].qk_norm_kind = TFM_NORM_RMS;
    t->blocks[1].qk_norm = TFM_QKNORM_HEAD;
    t->blocks[1].qk_norm_kind = TFM_NORM_LAYER;
    t->blocks[1].n_kv_heads = 1;
    t->blocks[1].d_ff = 33;
    t->blocks[1].norm_no_weight = 1;
    t->config.logit_softcap = 5.0f;
    t->config.norm_kind = TFM_NORM_NONE;
}

/* Parts that no family of test_families.c has: they run, every part matters to the result, and cutting the prompt or
 * the work changes nothing. */
static void test_parts(fixture *f) {
    static const struct { const char *name; void (*edit)(tiny_model *); } rows[] = {
        { "layernorm, learned positions, biases", edit_layernorm },
        { "parallel residuals, partial interleaved RoPE, head bias", edit_parallel },
        { "norms behind, QK-norms", edit_places },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        static float first[N_IDS * N_VOCAB];
        tfm_session_config cfg = tiny_exact(N_IDS, N_IDS);
        tiny_model t;
        tiny_describe(&t);
        rows[i].edit(&t);
        tiny_weights(&t, TFM_F32, TFM_TILED);
        tfm_model *m = tiny_open(&t);
        if (m && tiny_logits(m, &cfg, f->ids, N_IDS, first, rows[i].name)) {
            check(tiny_max_diff(first, f->whole, N_IDS * N_VOCAB) > 0.1f, "%s: the parts change nothing", rows[i].name);
            cfg.n_batch = 3;
            cfg.n_threads = 3;
            cfg.parallel.run = tiny_backwards;
            tiny_logits(m, &cfg, f->ids, N_IDS, f->out, rows[i].name);
            check(!memcmp(first, f->out, sizeof first), "%s: chunks and threads change the bits", rows[i].name);
        }
        tfm_model_close(m);
        tiny_weights_free(&t);
    }
}

/* Cache types against the float32 cache. The weights are noise, which makes sharp scores and carries errors far: the
 * bounds are twice what is seen. */
static void test_kv_types(fixture *f) {
    static const struct { int32_t kv; float bound; } rows[] = {
        { TFM_KV_F16, 1e-2f }, { TFM_KV_BF16, 5e-2f }, { TFM_KV_Q8_0, 0.2f } };
    const float largest = tiny_max_abs(f->whole, N_IDS * N_VOCAB);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tfm_session_config cfg = tiny_exact(N_IDS, N_IDS);
        float diff;
        cfg.kv = rows[i].kv;
        if (!tiny_logits(f->m, &cfg, f->ids, N_IDS, f->out, "kv types")) continue;
        diff = tiny_max_diff(f->out, f->whole, N_IDS * N_VOCAB) / largest;
        check(diff > 0 && diff <= rows[i].bound,
              "kv type %d: off by %g of the largest logit", (int)rows[i].kv, (double)diff);
    }
    tfm_session_config cfg = tiny_exact(N_IDS, N_IDS);
    tfm_session *s = NULL;
    tfm_error err;
    tiny_model t;
    tiny_describe(&t);
    t.blocks[0].head_dim = t.blocks[1].head_dim = 24;
    tiny_weights(&t, TFM_F32, TFM_ROWS);
    tfm_model *m = tiny_open(&t);
    cfg.kv = TFM_KV_Q8_0;
    if (m) check_error(tfm_session_new(m, &cfg, &s, &err), &err, TFM_ERR_ARG, "head_dim", "q8_0 cache and head_dim 24");
    cfg.size = 8;
    if (m) check_error(tfm_session_new(m, &cfg, &s, &err), &err, TFM_ERR_ARG, "size", "a config of another size");
    tfm_model_close(m);
    tiny_weights_free(&t);
}

/* ---- HOOKS AND NUMERIC ERRORS ---------------------------------------------------------------------------------- */

typedef struct watcher {
    int64_t calls, cancel_at, done, total;
} watcher;

static int watch(void *user, int64_t done, int64_t total) {
    watcher *w = (watcher *)user;
    check(done >= w->done && done < total, "progress goes from %d to %d of %d", (int)w->done, (int)done, (int)total);
    w->done = done;
    w->total = total;
    return w->calls++ == w->cancel_at;
}

/* Cancelled at every call there is: the session stands behind a whole chunk and goes on there with the same bits. */
static void test_cancel(fixture *f) {
    tfm_error err;
    for (int64_t at = 0; at <= 12; at++) {
        tfm_session_config cfg = tiny_exact(N_IDS, 8);
        watcher w = { 0, 0, 0, 0 };
        w.cancel_at = at;
        cfg.want = TFM_WANT_LAST;
        cfg.progress = watch;
        cfg.progress_user = &w;
        tfm_session *s = new_session(f->m, &cfg, "cancel");
        if (!s) return;
        tfm_result r = tfm_eval(s, f->ids, 24, &err); /* three chunks of four layers: 12 calls */
        check_error(r, &err, at < 12 ? TFM_ERR_CANCELLED : TFM_OK, "cancelled", "cancel");
        check(tfm_session_length(s) == at / 4 * 8,
              "cancelled at call %d the length is %d", (int)at, (int)tfm_session_length(s));
        check(w.total == 12 && w.calls == (at < 12 ? at + 1 : 12), "%d calls for %d steps", (int)w.calls, (int)w.total);
        w.cancel_at = -1;
        w.done = 0;
        r = tfm_eval(s, f->ids + tfm_session_length(s), N_IDS - tfm_session_length(s), &err);
        check(!r && !memcmp(tfm_logits(s, 0), f->whole + (N_IDS - 1) * N_VOCAB, N_VOCAB * sizeof(float)),
              "after a cancel at call %d the bits differ", (int)at);
        tfm_session_free(s);
    }
}

typedef struct trace_log {
    char names[2048]; /* "embed attn_norm q ..." */
    int calls, bad;
    int32_t layer;    /* of the last call */
} trace_log;

static void trace(void *user, const char *name, int32_t layer, const float *data, int64_t rows, int64_t cols) {
    trace_log *t = (trace_log *)user;
    const size_t n = strlen(t->names);
    t->calls++;
    if (layer <= 0) snprintf(t->names + n, sizeof t->names - n, "%s%s", n ? " " : "", name);
    if (rows < 1 || cols < 1 || !(tiny_max_abs(data, (size_t)(rows * cols)) < 1e30f)) t->bad++;
    if (layer >= 0 && layer < t->layer) t->bad++;
    if (layer >= 0) t->layer = layer;
}

static void test_trace(fixture *f) {
    static const char *const want =
        "embed attn_norm q k v attn attn_out ffn_norm ffn_act ffn_out out final_norm logits";
    tfm_session_config cfg = tiny_exact(N_IDS, N_IDS);
    trace_log t;
    memset(&t, 0, sizeof t);
    cfg.trace = trace;
    cfg.trace_user = &t;
    tiny_logits(f->m, &cfg, f->ids, N_IDS, f->out, "trace");
    check(!strcmp(t.names, want), "traced '%s', not '%s'", t.names, want);
    check(t.calls == 3 + 4 * 10 && !t.bad, "%d intermediates, %d bad", t.calls, t.bad);
    check(same_rows(f, 0, N_IDS), "tracing changed the bits");
}

/* A logit that is not a number is an error that says where, and never reaches the caller. */
static void test_nan(fixture *f) {
    static const int32_t roles[] = { TFM_ROLE_EMBED, TFM_ROLE_OUT_NORM, TFM_ROLE_DOWN, TFM_ROLE_K };
    static const float bad[] = { NAN, INFINITY };
    tfm_error err;
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        for (size_t k = 0; k < 2; k++) {
            const tfm_session_config cfg = tiny_exact(N_IDS, N_IDS);
            const tfm_weight *w = tiny_find(&f->t, roles[i] < TFM_ROLE_ATTN_NORM ? -1 : 1, roles[i]);
            float *data = (float *)(uintptr_t)w->t.data;
            const float good = data[5];
            tfm_session *s = new_session(f->m, &cfg, "not a number");
            if (!s) return;
            data[5] = bad[k];
            const tfm_result r = tfm_eval(s, f->ids, N_IDS, &err);
            check_error(r, &err, TFM_ERR_NUMERIC, "not finite", tfm_role_name(roles[i]));
            check(!tfm_logits(s, 0), "logits after a numeric error");
            data[5] = good;
            tfm_session_free(s);
        }
}

/* The same in the caller's memory, without any allocation by the library. */
static void count_calls(void *user, void (*fn)(void *arg, int index), void *arg, int n) {
    (*(int *)user)++;
    tiny_backwards(NULL, fn, arg, n);
}

/* Work below the grain stays with the caller. */
static void test_grain(fixture *f) {
    static const struct { int32_t grain; int calls; } rows[] = { { 1, 1 }, { 0, 0 }, { INT32_MAX, 0 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tfm_session_config cfg = tiny_exact(N_IDS, 1);
        int calls = 0;
        cfg.grain = rows[i].grain;
        cfg.n_threads = 2;
        cfg.parallel.user = &calls;
        cfg.parallel.run = count_calls;
        tiny_logits(f->m, &cfg, f->ids, N_IDS, f->out, "grain");
        check(!memcmp(f->whole, f->out, sizeof f->out), "grain %d changes the bits", (int)cfg.grain);
        check((calls > 0) == rows[i].calls, "grain %d: %d pieces of work were cut", (int)cfg.grain, calls);
    }
}

static void test_isa_choice(fixture *f) {
    tfm_session_config cfg = tiny_exact(N_IDS, N_IDS);
    tfm_session *s = NULL;
    tfm_error err;
    int n = 0;
    cfg.isa = 12345;
    check_error(tfm_session_new(f->m, &cfg, &s, &err), &err, TFM_ERR_ARG, "12345", "an unknown instruction set");
    for (; tfm_isa_list(n); n++) {
        const int32_t isa = tfm_isa_list(n);
        check(tfm_isa_name(isa) != NULL, "instruction set %d has no name", (int)isa);
        if (!tfm_kernels_for(isa)) {
            skip("%s: this machine has it not", tfm_isa_name(isa));
            continue;
        }
        check(tfm_kernels_for(isa)->isa == isa && !strcmp(tfm_kernels_for(isa)->name, tfm_isa_name(isa)),
              "kernels of %s", tfm_isa_name(isa));
        cfg.isa = isa;
        s = new_session(f->m, &cfg, "instruction sets");
        if (s) check(tfm_session_isa(s) == isa,
                     "%s was asked for, the session has %s", tfm_isa_name(isa), tfm_isa_name(tfm_session_isa(s)));
        tfm_session_free(s);
    }
    check(n >= 1 && tfm_kernels_for(TFM_ISA_SCALAR) && tfm_kernels_for(TFM_ISA_AUTO), "no scalar kernels");
}

void test_model(void) {
    static fixture f;
    if (!fixture_open(&f)) return;
    test_context_full(&f);
    test_context_numbers(&f);
    test_bad_ids(&f);
    test_wanted(&f);
    test_rewind(&f);
    test_rewind_far(&f);
    test_session_size(&f);
    test_kv_formula(&f);
    test_allocations(&f);
    test_moving(&f);
    test_weights_refused(&f);
    test_descriptions_refused(&f);
    test_configs_refused(&f);
    test_promised_context(&f);
    test_shared_factors(&f);
    test_tied(&f);
    test_layouts(&f);
    test_parts(&f);
    test_kv_types(&f);
    test_cancel(&f);
    test_trace(&f);
    test_nan(&f);
    test_grain(&f);
    test_isa_choice(&f);
    fixture_close(&f);
}
