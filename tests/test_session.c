/* test_session.c - sessions saved, restored, forked, moved and rewound: the same bits as one that ran through, or an
 * error that says why not. */
#include <string.h>

#include "test.h"
#include "tiny.h"

/* The window of the tiny model's layers 1 and 3 is 8: with batches of 4 their caches have 12 slots. */
enum { N_IDS = 40, N_VOCAB = 64, N_CTX = N_IDS, N_BATCH = 4, WINDOW = 8, CUT = 21 };

static const struct { const char *name; int32_t kv, act; } settings[] = {
    { "f32", TFM_KV_F32, TFM_ACT_MODE_F32 },     { "f16", TFM_KV_F16, TFM_ACT_MODE_Q8 },
    { "bf16", TFM_KV_BF16, TFM_ACT_MODE_F32 },   { "q8_0", TFM_KV_Q8_0, TFM_ACT_MODE_Q8 },
};

/* A model, the setting under test, and the logits of the ids in one piece under it. */
typedef struct fixture {
    tiny_model t;
    tfm_model *m;
    tfm_session_config cfg;
    const char *name;
    int32_t ids[N_IDS], other[N_IDS];
    float whole[N_IDS * N_VOCAB], out[N_IDS * N_VOCAB];
    unsigned char *saved; /* of a session after CUT ids */
    size_t bytes;
} fixture;

static tfm_session *new_session(const fixture *f, const tfm_session_config *cfg) {
    tfm_session *s = NULL;
    tfm_error err;
    const tfm_result r = tfm_session_new(f->m, cfg, &s, &err);
    check(!r, "%s: no session: %s", f->name, r ? err.msg : "");
    return s;
}

static void go_on(fixture *f, tfm_session *s, const int32_t *ids, int from, int to, const char *what) {
    tiny_continue(s, N_VOCAB, N_BATCH, ids + from, to - from, f->out + from * N_VOCAB, what);
}

/* Evaluates the ids from where s stands to the end and compares with the run in one piece. */
static void finish(fixture *f, tfm_session *s, const char *what) {
    const int from = (int)tfm_session_length(s);
    go_on(f, s, f->ids, from, N_IDS, what);
    check(!memcmp(f->out + from * N_VOCAB, f->whole + from * N_VOCAB, (size_t)(N_IDS - from) * N_VOCAB * sizeof(float)),
          "kv %s: %s changed the bits from position %d on", f->name, what, from);
}

static void check_refused(const fixture *f, tfm_result r, tfm_result want, const tfm_error *err, const char *names) {
    check(r == want && strstr(err->msg, names),
          "kv %s: result %d, '%s', not %d and '%s'", f->name, (int)r, r ? err->msg : "",
          (int)want, names);
}

static void fixture_open(fixture *f, size_t i) {
    tfm_session_config whole;
    tfm_error err;
    f->name = settings[i].name;
    f->cfg = tiny_exact(N_CTX, N_BATCH);
    f->cfg.kv = settings[i].kv;
    f->cfg.act = settings[i].act;
    whole = f->cfg;
    whole.n_batch = N_IDS;
    tiny_logits(f->m, &whole, f->ids, N_IDS, f->whole, f->name);
    check(!tfm_session_size(f->m, &f->cfg, &f->bytes, &err), "size");
    f->saved = (unsigned char *)tiny_alloc(f->bytes);
    tfm_session *s = new_session(f, &f->cfg);
    if (s) go_on(f, s, f->ids, 0, CUT, "up to the cut");
    if (s) memcpy(f->saved, s, f->bytes);
    tfm_session_free(s);
}

/* ---- SAVING, FORKING, MOVING ------------------------------------------------------------------------------------- */

/* Into a new session, a used one, a full one and the very same one, from bytes at an odd address. */
static void test_restore(fixture *f) {
    unsigned char *odd = (unsigned char *)tiny_alloc(f->bytes + 1) + 1;
    tfm_error err;
    memcpy(odd, f->saved, f->bytes);
    for (int used = 0; used <= N_IDS; used += N_IDS / 2) {
        tfm_session_config cfg = f->cfg;
        cfg.n_threads = 3;
        cfg.parallel.run = tiny_backwards;
        tfm_session *s = new_session(f, &cfg);
        if (!s) break;
        go_on(f, s, f->other, 0, used, "another text");
        const tfm_result r = tfm_session_restore(s, odd, f->bytes, &err);
        check(!r && tfm_session_length(s) == CUT, "kv %s: restored: %s", f->name, r ? err.msg : "");
        check(tfm_logits(s, 0) && !memcmp(tfm_logits(s, 0), f->whole + (CUT - 1) * N_VOCAB, N_VOCAB * sizeof(float)),
              "kv %s: the logits of the last token were not restored", f->name);
        finish(f, s, "restoring");
        check(!tfm_session_restore(s, s, f->bytes, &err) && tfm_session_length(s) == N_IDS,
              "kv %s: a session from itself", f->name);
        tfm_session_free(s);
    }
    tiny_free(odd - 1);
}

/* One beginning, three continuations, each undisturbed by the others. */
static void test_fork(fixture *f) {
    tfm_session *s[3] = { new_session(f, &f->cfg), new_session(f, &f->cfg), new_session(f, &f->cfg) };
    tfm_error err;
    if (!s[0] || !s[1] || !s[2]) return;
    go_on(f, s[0], f->ids, 0, CUT, "fork");
    for (int i = 1; i < 3; i++) check(!tfm_session_restore(s[i], s[0], f->bytes, &err), "kv %s: fork", f->name);
    go_on(f, s[1], f->other, CUT, N_IDS, "the branch");
    check(memcmp(f->out + CUT * N_VOCAB, f->whole + CUT * N_VOCAB, N_VOCAB * sizeof(float)) != 0,
          "the branch is no other text");
    finish(f, s[0], "forking");
    finish(f, s[2], "being forked");
    for (int i = 0; i < 3; i++) tfm_session_free(s[i]);
}

/* The bytes become a session where they lie. */
static void test_attach(fixture *f) {
    tfm_error err;
    unsigned char *mem = (unsigned char *)tiny_alloc(f->bytes);
    memcpy(mem, f->saved, f->bytes);
    tfm_session *s = (tfm_session *)(void *)mem;
    const tfm_result r = tfm_session_attach(s, f->bytes, f->m, &f->cfg, &err);
    check(!r, "kv %s: attach: %s", f->name, r ? err.msg : "");
    if (!r) finish(f, s, "moving");
    tiny_free(mem);
}

/* ---- FORGED BYTES ------------------------------------------------------------------------------------------------ */

/* Offsets in the head of a session: see struct tfm_session. */
enum { AT_MAGIC = 0, AT_IDENTITY = 8, AT_LAYOUT = 16, AT_LENGTH = 152, AT_HIGH = 160, AT_ROWS = 168, AT_ROPE_LEN = 176,
       AT_N_CTX = 184, AT_N_BATCH = 188, AT_KV = 192, AT_Q8 = 196, AT_WANT = 200, AT_VERSION = 220 };

static void test_forged(fixture *f) {
    static const struct { size_t at, size; int64_t value; tfm_result want; const char *names; } rows[] = {
        { AT_MAGIC, 8, 0, TFM_ERR_FORMAT, "hold none" },   { AT_VERSION, 4, 77, TFM_ERR_UNSUPPORTED, "version 77" },
        { AT_IDENTITY, 8, 1, TFM_ERR_FORMAT, "another model" }, { AT_LAYOUT + 8, 8, 1, TFM_ERR_FORMAT, "context" },
        { AT_LENGTH, 8, 41, TFM_ERR_FORMAT, "length" },    { AT_LENGTH, 8, -1, TFM_ERR_FORMAT, "length" },
        { AT_HIGH, 8, 41, TFM_ERR_FORMAT, "length" },      { AT_HIGH, 8, 20, TFM_ERR_FORMAT, "length" },
        { AT_ROWS, 8, 5, TFM_ERR_FORMAT, "length" },       { AT_ROWS, 8, INT64_MIN, TFM_ERR_FORMAT, "length" },
        { AT_ROPE_LEN, 8, 1, TFM_ERR_FORMAT, "rope_len" }, { AT_N_CTX, 4, 41, TFM_ERR_FORMAT, "context" },
        { AT_N_BATCH, 4, 5, TFM_ERR_FORMAT, "batch" },     { AT_KV, 4, 9, TFM_ERR_FORMAT, "kv" },
        { AT_Q8, 4, 7, TFM_ERR_FORMAT, "act" },            { AT_WANT, 4, 0, TFM_ERR_FORMAT, "want" },
    };
    tfm_session *s = new_session(f, &f->cfg);
    unsigned char *forged = (unsigned char *)tiny_alloc(f->bytes);
    tfm_error err;
    if (!s) return;
    go_on(f, s, f->ids, 0, 10, "before forgeries");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        memcpy(forged, f->saved, f->bytes);
        const int32_t narrow = (int32_t)rows[i].value;
        memcpy(forged + rows[i].at, rows[i].size == 4 ? (const void *)&narrow : (const void *)&rows[i].value,
               rows[i].size);
        check(memcmp(forged + rows[i].at, f->saved + rows[i].at, rows[i].size) != 0, "row %d forges nothing", (int)i);
        check_refused(f, tfm_session_restore(s, forged, f->bytes, &err), rows[i].want, &err, rows[i].names);
        err.msg[0] = 0;
        if (rows[i].at == AT_ROPE_LEN) continue; /* it stands for the tables of angles, which lie in the bytes, too */
        check(tfm_session_attach((tfm_session *)(void *)forged, f->bytes, f->m, NULL, &err) && err.msg[0],
              "kv %s: row %d was attached", f->name, (int)i);
    }
    check_refused(f, tfm_session_restore(s, f->saved, f->bytes - 64, &err), TFM_ERR_FORMAT, &err, "hold none");
    check_refused(f, tfm_session_restore(s, f->saved, 10, &err), TFM_ERR_ARG, &err, "10 bytes");
    check_refused(f, tfm_session_restore(s, NULL, f->bytes, &err), TFM_ERR_ARG, &err, "");
    check(tfm_session_length(s) == 10, "kv %s: a refused session changed the length", f->name);
    finish(f, s, "refusing forgeries");
    tfm_session_free(s);
    tiny_free(forged);
}

/* Any byte anywhere: refused, or something that runs and can only be wrong. The sanitizers watch. */
static void test_damaged(fixture *f) {
    tfm_session *s = new_session(f, &f->cfg);
    unsigned char *forged = (unsigned char *)tiny_alloc(f->bytes);
    tfm_error err;
    if (!s) return;
    for (size_t at = 0; at < f->bytes; at += at < 256 ? 5 : 4999) {
        memcpy(forged, f->saved, f->bytes);
        memset(forged + at, 0xff, f->bytes - at < 4 ? f->bytes - at : 4); /* a NaN, if it is a float */
        if (tfm_session_restore(s, forged, f->bytes, &err)) continue;
        const tfm_result r = tfm_eval(s, f->ids, 1, &err);
        check(r == TFM_OK || r == TFM_ERR_NUMERIC || r == TFM_ERR_CONTEXT,
              "kv %s: damage at %d: result %d", f->name, (int)at, (int)r);
    }
    tfm_session_free(s);
    tiny_free(forged);
}

/* A session of other settings, or of another model with a session of the same size. */
static void test_foreign(fixture *f) {
    tfm_session_config cfg = f->cfg;
    tfm_error err;
    tiny_model other;
    cfg.n_batch = N_BATCH + 1;
    tfm_session *s = new_session(f, &cfg);
    if (s) check(tfm_session_restore(s, f->saved, f->bytes, &err) == TFM_ERR_FORMAT, "a session of another batch");
    tfm_session_free(s);
    tiny_describe(&other);
    other.blocks[0].rope_theta *= 2;
    tiny_weights(&other, TFM_Q8_0, TFM_TILED);
    tfm_model *m = tiny_open(&other);
    s = NULL;
    if (m && !tfm_session_new(m, &f->cfg, &s, &err))
        check_refused(f, tfm_session_restore(s, f->saved, f->bytes, &err), TFM_ERR_FORMAT, &err, "another model");
    tfm_session_free(s);
    tfm_model_close(m);
    tiny_weights_free(&other);
}

/* ---- REWINDING --------------------------------------------------------------------------------------------------- */

/* From `high` by every distance: to the slack and no further once the caches of window layers have gone round, anywhere
 * before that. A refused one changes nothing. */
static void test_rewind(fixture *f) {
    const int slots = WINDOW + N_BATCH;
    tfm_error err;
    for (int high = slots - 1; high <= 30; high += high < slots + 1 ? 1 : 9) {
        for (int back = 0; back <= high; back += back < N_BATCH + 3 ? 1 : 5) {
            const int may = high <= slots || back <= N_BATCH || back == high;
            tfm_session *s = new_session(f, &f->cfg);
            if (!s) return;
            go_on(f, s, f->ids, 0, high - back, "rewind");
            go_on(f, s, back < N_BATCH ? f->other : f->ids, high - back, high, "rewind");
            err.msg[0] = 0;
            const tfm_result r = tfm_session_rewind(s, high - back, &err);
            check(r == (may ? TFM_OK : TFM_ERR_CONTEXT),
                  "kv %s: from %d by %d: result %d", f->name, high, back, (int)r);
            if (r) check(strstr(err.msg, "window") && tfm_session_length(s) == high, "kv %s: '%s'", f->name, err.msg);
            else check(tfm_session_length(s) == high - back && !tfm_logits(s, 0),
                       "kv %s: the length after rewinding", f->name);
            finish(f, s, r ? "a refused rewind" : "rewinding");
            tfm_session_free(s);
        }
    }
}

/* A second turn that shares a prefix with the first; and a saved session remembers how far it once was. */
static void test_prefix(fixture *f) {
    tfm_session_config cfg = f->cfg;
    tfm_error err;
    tfm_session *s;
    cfg.n_batch = 20;
    if ((s = new_session(f, &cfg)) == NULL) return;
    tiny_continue(s, N_VOCAB, 20, f->ids, 18, f->out, "prefix");
    tiny_continue(s, N_VOCAB, 20, f->other + 18, 20, f->out, "prefix");
    check(!tfm_session_rewind(s, 18, &err), "kv %s: back to the shared prefix", f->name);
    finish(f, s, "going back to a shared prefix");
    tfm_session_free(s);

    if ((s = new_session(f, &f->cfg)) == NULL || tfm_session_restore(s, f->saved, f->bytes, &err)) return;
    check(!tfm_session_rewind(s, CUT - 2, &err), "kv %s: rewinding a restored session", f->name);
    tfm_session *copy = new_session(f, &f->cfg);
    if (copy) {
        check(!tfm_session_restore(copy, s, f->bytes, &err), "kv %s: a copy of one that was rewound", f->name);
        check(tfm_session_rewind(copy, CUT - N_BATCH - 1, &err) == TFM_ERR_CONTEXT,
              "kv %s: the copy forgot how far it was", f->name);
        check(!tfm_session_rewind(copy, CUT - N_BATCH, &err), "kv %s: the copy's slack", f->name);
        finish(f, copy, "copying and rewinding");
    }
    finish(f, s, "restoring and rewinding");
    tfm_session_free(copy);
    tfm_session_free(s);
}

/* The end of the context is an error, never a shift; nothing is lost by it. */
static void test_full(fixture *f) {
    tfm_session *s = new_session(f, &f->cfg);
    tfm_error err;
    if (!s) return;
    go_on(f, s, f->ids, 0, N_IDS - 2, "full");
    check_refused(f, tfm_eval(s, f->other, 3, &err), TFM_ERR_CONTEXT, &err, "40 positions");
    finish(f, s, "a refused eval");
    check_refused(f, tfm_eval(s, f->other, 1, &err), TFM_ERR_CONTEXT, &err, "40 positions");
    check(tfm_session_length(s) == N_IDS, "kv %s: the length past the end", f->name);
    tfm_session_free(s);
}

void test_session(void) {
    static fixture f;
    tiny_describe(&f.t);
    tiny_weights(&f.t, TFM_Q8_0, TFM_TILED);
    tiny_ids(f.ids, N_IDS, N_VOCAB, "prompt");
    tiny_ids(f.other, N_IDS, N_VOCAB, "detour");
    f.m = tiny_open(&f.t);
    for (size_t i = 0; f.m && i < sizeof settings / sizeof settings[0]; i++) {
        fixture_open(&f, i);
        test_restore(&f);
        test_fork(&f);
        test_attach(&f);
        test_forged(&f);
        test_damaged(&f);
        test_foreign(&f);
        test_rewind(&f);
        test_prefix(&f);
        test_full(&f);
        tiny_free(f.saved);
    }
    tfm_model_close(f.m);
    tiny_weights_free(&f.t);
}
