/* test_bits.c - logits are the same bits whatever the threads, the chunks and the neighbours: every part of the forward
 * pass, every instruction set of this machine, every type of cache, exact and fast; and from machine to machine. */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "tiny.h"
#include "tools/isa.h"
#include "tools/pool.h"
#include "tools/quantize.h"

enum { N_VOCAB = 64, N_IDS = 104, N_MOST = N_IDS * N_VOCAB, N_NEIGHBOURS = 3 };
#ifdef _OPENMP
enum { OWN_LOOP = 1 }; /* the header's own loop is under test, not the pool */
#else
enum { OWN_LOOP = 0 };
#endif
enum { N_FEW = 70 }; /* positions that the quick test looks at: more than a block of keys */

/* ---- MODELS ---------------------------------------------------------------------------------------------------- */

/* Layers 0 and 2 see everything, 1 and 3 a window of 8. */
static void plain(tiny_model *t) { (void)t; }

static void experts(tiny_model *t) {
    tiny_experts(t);
    t->blocks[0].router_norm = t->blocks[1].router_norm = 1;
    t->blocks[1].sinks = 1;
    t->blocks[1].shared_gate = 1;
    t->blocks[0].d_ff = 0;
}

static void parallel(tiny_model *t) {
    for (int i = 0; i < 2; i++) {
        t->blocks[i].residual = i ? TFM_RESIDUAL_PARALLEL_1 : TFM_RESIDUAL_PARALLEL_2;
        t->blocks[i].rope_style = TFM_ROPE_INTERLEAVED;
        t->blocks[i].rope_dims = 8;
        t->blocks[i].norm_kind = TFM_NORM_LAYER;
        t->blocks[i].bias = TFM_BIAS_NORM | TFM_BIAS_Q | TFM_BIAS_UP;
    }
    t->config.tied = 0;
    t->config.head_bias = 1;
    t->config.norm_kind = TFM_NORM_LAYER;
}

static void slopes(tiny_model *t) {
    for (int i = 0; i < 2; i++) {
        t->blocks[i].rope_style = TFM_ROPE_NONE;
        t->blocks[i].alibi = i ? TFM_ALIBI_BF16 : TFM_ALIBI_SLOPES;
        t->blocks[i].ffn_gated = 0;
        t->blocks[i].ffn_act = i ? TFM_ACT_GELU_ERF : TFM_ACT_GELU_TANH;
    }
}

static void capped(tiny_model *t) {
    for (int i = 0; i < 2; i++) {
        t->blocks[i].norm_place = TFM_PLACE_SANDWICH;
        t->blocks[i].norm_offset = 1;
        t->blocks[i].attn_softcap = 20;
        t->blocks[i].rope_dims = 16;
        t->blocks[i].qk_norm = TFM_QKNORM_HEAD;
        t->blocks[i].qk_norm_kind = TFM_NORM_RMS;
        t->blocks[i].ffn_act = TFM_ACT_GELU_TANH;
    }
    t->config.logit_softcap = 30;
    t->config.embed_scale = 8;
}

/* Hashes of the logits in exact mode with a float32 cache, and in fast mode with an f16 one: of the passes whose madd
 * is fused, and of those that round twice. No truth (that is test_families'), but the same on every machine. */
static const struct { const char *name; void (*edit)(tiny_model *); uint64_t known[2][2]; } models[] = {
    { "plain and window", plain,
      { { 0xef4a36f0c00867bau, 0x6a3e206562f4f9b8u },
        { 0xfb219b100ccc7841u, 0xc721062505ea22feu } } },
    { "experts, sinks, chunks", experts,
      { { 0x74f70d8303302901u, 0x23f4200c6139bb94u },
        { 0x42cf74be02d62b3cu, 0x753968c83424f314u } } },
    { "parallel blocks", parallel,
      { { 0xf5a182bf13443126u, 0xdd6c3a17fccf08e1u },
        { 0x1b9b3980fdb1693du, 0x95df9a594ae7d4c6u } } },
    { "ALiBi", slopes,
      { { 0xa4548e782b99ed3fu, 0x44a61208dd9c59bbu },
        { 0x5eb55da3f24ac55fu, 0x7efc4557f05b9577u } } },
    { "soft-caps, partial RoPE, norms of q and k", capped,
      { { 0xc457436dbd2a4ca8u, 0x79e02e8acf097230u },
        { 0xfe10c44f65f4fb1eu, 0x0ea2fcf63509aff3u } } },
};
enum { N_MODELS = sizeof models / sizeof models[0] };

/* Every matrix of its own type, by turns; the router and vectors stay float32. */
static void mix_types(tiny_model *t) {
    static const int32_t types[] = { TFM_Q8_0, TFM_Q4_0, TFM_BF16, TFM_Q5_1, TFM_F16, TFM_IQ4_NL, TFM_F32 };
    for (int64_t i = 0, turn = 0; i < t->n_weights; i++) {
        tfm_tensor *w = &t->weights[i].t;
        const int32_t type = types[turn % (int64_t)(sizeof types / sizeof types[0])];
        if (w->rows == 1 || t->weights[i].role == TFM_ROLE_ROUTER || type == TFM_F32) {
            turn += w->rows > 1;
            continue;
        }
        turn++;
        const float *from = (const float *)w->data;
        unsigned char *to = (unsigned char *)tiny_alloc(tfm_tensor_bytes(type, TFM_TILED, w->rows, w->cols));
        for (int64_t row = 0; row < w->rows && quantize_knows(type); row += 16)
            quantize_strip(type, to + (size_t)(row / 16) * tfm_strip_bytes(type, w->cols), from + row * w->cols,
                           (int)(w->rows - row < 16 ? w->rows - row : 16), w->cols, NULL);
        if (!quantize_knows(type)) check(!tfm_pack(type, to, TFM_F32, from, w->rows, w->cols), "type %d", (int)type);
        tiny_free((void *)(uintptr_t)w->data);
        w->data = to;
        w->type = type;
        w->layout = TFM_TILED;
    }
}

/* ---- RUNS ------------------------------------------------------------------------------------------------------- */

/* One session's work, without a check: several run at once. */
typedef struct job {
    const tfm_model *m;
    tfm_session_config cfg;
    const int32_t *ids;
    int n_ids;
    float *out; /* [n_ids][N_VOCAB] */
    int result;
} job;

static void run_job(void *arg, int index) {
    job *j = (job *)arg + index;
    tfm_session *s = NULL;
    pool *threads = OWN_LOOP ? NULL : pool_new(j->cfg.n_threads);
    j->cfg.parallel.user = threads;
    j->cfg.parallel.run = OWN_LOOP ? NULL : pool_run;
    j->result = tfm_session_new(j->m, &j->cfg, &s, NULL);
    for (int first = 0; !j->result && first < j->n_ids; first += j->cfg.n_batch) {
        const int n = j->n_ids - first < j->cfg.n_batch ? j->n_ids - first : j->cfg.n_batch;
        j->result = tfm_eval(s, j->ids + first, n, NULL);
        for (int i = 0; !j->result && i < n; i++)
            memcpy(j->out + (first + i) * N_VOCAB, tfm_logits(s, i), N_VOCAB * sizeof(float));
    }
    tfm_session_free(s);
    pool_free(threads);
}

/* What is under test: a model, an instruction set, a setting, and the logits of one thread and one chunk. */
typedef struct setting {
    const char *model;
    job plain;
    float *out;  /* [N_NEIGHBOURS][N_MOST] */
    pool *outer;
} setting;

static const int32_t threads[] = { 1, 2, 3, 4, 7 }, chunks[] = { 1, 3, 16, 100, N_IDS };
enum { N_COMBINATIONS = 25 };

static job combination(const setting *s, int i) {
    job j = s->plain;
    j.cfg.n_threads = threads[i % N_COMBINATIONS / 5];
    j.cfg.n_batch = chunks[i % 5] < j.n_ids ? chunks[i % 5] : j.n_ids;
    return j;
}

/* Combination i, with n - 1 others at the same time in threads of their own. */
static void check_combination(const setting *s, int i, int n) {
    job j[N_NEIGHBOURS];
    for (int k = 0; k < n; k++) {
        j[k] = combination(s, i + 8 * k);
        j[k].out = s->out + k * N_MOST;
    }
    if (n == 1) run_job(j, 0);
    else pool_run(s->outer, run_job, j, n);
    for (int k = 0; k < n; k++)
        check(!j[k].result && !memcmp(j[k].out, s->plain.out, (size_t)j[k].n_ids * N_VOCAB * sizeof(float)),
              "%s, %s, kv %d, act %d: %d threads, chunks of %d, %d at once: result %d, off by %g", s->model,
              tfm_isa_name(j[k].cfg.isa), (int)j[k].cfg.kv, (int)j[k].cfg.act, (int)j[k].cfg.n_threads,
              (int)j[k].cfg.n_batch, n, j[k].result,
              (double)tiny_max_diff(j[k].out, s->plain.out, (size_t)j[k].n_ids * N_VOCAB));
}

static int fuses(int32_t isa) { return isa != TFM_ISA_SCALAR && isa != TFM_ISA_WASM; }

static uint64_t hash_of(const float *x, size_t n) {
    tfm_hash h;
    memset(&h, 0, sizeof h);
    for (size_t i = 0; i < n; i++) { /* bytes as on a little-endian host */
        uint32_t u;
        memcpy(&u, x + i, 4);
        const unsigned char b[4] = { (unsigned char)u, (unsigned char)(u >> 8), (unsigned char)(u >> 16),
                                     (unsigned char)(u >> 24) };
        tfm_hash_feed(&h, b, 4);
    }
    return tfm_hash_finish(&h);
}

/* The largest difference between passes that fuse and passes that do not, in units of the largest logit: twice what was
 * seen. The fast mode's is large because these weights are noise and a rounding of x can turn an activation's code. */
static const float apart[2] = { 1.5e-5f, 0.05f };

/* Against the other machines, and against the pass that came first (scalar). */
static void check_machines(const setting *s, int model, int fast, float *scalar) {
    const int32_t isa = s->plain.cfg.isa;
    const size_t n = (size_t)N_FEW * N_VOCAB;
    const uint64_t hash = hash_of(s->plain.out, n), known = models[model].known[fast][!fuses(isa)];
#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD == 0
    check(hash == known, "%s by %s, %s: bits 0x%016llxu", s->model, tfm_isa_name(isa), fast ? "fast" : "exact",
          (unsigned long long)hash);
#endif
    if (isa == TFM_ISA_SCALAR) memcpy(scalar, s->plain.out, n * sizeof(float));
    const float off = tiny_max_diff(s->plain.out, scalar, n) / tiny_max_abs(scalar, n);
    check(off <= apart[fast], "%s by %s, %s: off by %g of the largest logit", s->model, tfm_isa_name(isa),
          fast ? "fast" : "exact", (double)off);
    if (getenv("TFM_BITS"))
        printf("%s %s %d: 0x%016llxu apart %g\n", s->model, tfm_isa_name(isa), fast, (unsigned long long)hash,
               (double)off);
}

/* One model under every instruction set. whole: every type of cache in both modes, alone and in company, every
 * combination in the two usual settings and a third of them in each other; else the usual ones, and once in company. */
static void check_model(int model, int whole, pool *outer) {
    static float first[N_MOST], scalar[2][N_MOST], out[N_NEIGHBOURS * N_MOST];
    static const int32_t kv[] = { TFM_KV_F32, TFM_KV_F16, TFM_KV_BF16, TFM_KV_Q8_0 };
    int32_t ids[N_IDS];
    tiny_model t;
    setting s;
    tiny_describe(&t);
    models[model].edit(&t);
    tiny_weights(&t, TFM_F32, TFM_ROWS);
    mix_types(&t);
    tiny_ids(ids, N_IDS, N_VOCAB, "bits");
    memset(&s, 0, sizeof s);
    s.model = models[model].name;
    s.outer = outer;
    s.out = out;
    s.plain.m = tiny_open(&t);
    s.plain.ids = ids;
    s.plain.n_ids = whole ? N_IDS : N_FEW;
    s.plain.out = first;
    for (int i = 0; s.plain.m && tfm_isa_list(i); i++) {
        if (!isa_works(tfm_isa_list(i))) continue;
        for (int k = 0; k < (whole ? 8 : 2); k++) {
            const int fast = whole ? k / 4 : k, usual = !whole || k % 4 == fast;
            s.plain.cfg = tiny_exact(N_IDS, N_IDS);
            s.plain.cfg.n_threads = 1;
            s.plain.cfg.isa = tfm_isa_list(i);
            s.plain.cfg.kv = whole ? kv[k % 4] : kv[fast];
            s.plain.cfg.act = fast ? TFM_ACT_MODE_Q8 : TFM_ACT_MODE_F32;
            run_job(&s.plain, 0);
            check(!s.plain.result, "%s: result %d", s.model, s.plain.result);
            if (usual) check_machines(&s, model, fast, scalar[fast]);
            if (!whole && s.plain.cfg.isa == isa_best() && fast == model % 2)
                check_combination(&s, 11 + model % 3, N_NEIGHBOURS);
            for (int c = 0; OWN_LOOP && !whole && s.plain.cfg.isa == isa_best() && c < N_COMBINATIONS; c++)
                check_combination(&s, c, 1);
            for (int c = 0; whole && c < N_COMBINATIONS; c++) {
                if (usual || c % 3 == k % 3) check_combination(&s, c, 1);
                if (c % (usual ? 4 : 12) == k % 4) check_combination(&s, c, N_NEIGHBOURS);
            }
        }
    }
    tfm_model_close((tfm_model *)(uintptr_t)s.plain.m);
    tiny_weights_free(&t);
}

static void check_models(int whole) {
    for (int i = 0; tfm_isa_list(i); i++) isa_works(tfm_isa_list(i)); /* asked before threads start */
    pool *outer = pool_new(N_NEIGHBOURS);
    check(outer != NULL, "no threads");
    for (int i = 0; outer && i < N_MODELS; i++) check_model(i, whole, outer);
    pool_free(outer);
}

void test_bits(void) { check_models(0); }
void test_bits_whole(void) { check_models(1); }
