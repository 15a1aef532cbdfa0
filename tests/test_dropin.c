/* test_dropin.c - the header as a stranger drops it in: two source files of one program, C or C++, any switch.
 *
 * Compiled twice by test_dropin.sh, with UNIT=1 and UNIT=2. Unit 1 always holds the implementation; unit 2 holds none
 * and uses that of unit 1, or, under TFM_STATIC, one of its own. Each builds a model in memory and runs it. The last
 * line on stdout holds a hash of the logits' bits, of the widest pass and of the scalar one: no compiler, flag or
 * machine may change the second.
 */
#include "tfm.h" /* the declarations alone may come first, and twice */
#include "tfm.h"
#if UNIT == 1 || defined(TFM_STATIC)
#define TFM_IMPLEMENTATION
#include "tfm.h"
#include "tfm.h"
#endif

#include <stdio.h>
#include <string.h>

enum { D_MODEL = 8, N_VOCAB = 5, N_CTX = 4, MEMORY = 1 << 20 };

#ifdef __cplusplus
extern "C" {
#endif
int use_tfm(uint32_t *bits);
int use_tfm_too(uint32_t *bits);
#ifdef __cplusplus
}
#endif

static float numbers[1024];

static void describe(tfm_config *c, tfm_block *b) {
    memset(c, 0, sizeof *c);
    memset(b, 0, sizeof *b);
    b->norm_kind = TFM_NORM_RMS;
    b->norm_eps = 1e-5f;
    b->n_heads = 2;
    b->n_kv_heads = 1;
    b->head_dim = 4;
    b->rope_style = TFM_ROPE_HALF;
    b->rope_theta = 10000.0f;
    b->ffn_act = TFM_ACT_SILU;
    b->ffn_gated = 1;
    b->d_ff = 12;
    c->size = sizeof *c;
    c->n_layers = 1;
    c->d_model = D_MODEL;
    c->n_vocab = N_VOCAB;
    c->n_ctx = N_CTX;
    c->n_blocks = 1;
    c->blocks = b;
    c->norm_kind = TFM_NORM_RMS;
    c->norm_eps = 1e-5f;
    c->tied = 1;
    c->bos = -1;
}

static int bind_all(const tfm_config *c, tfm_weight *w) {
    int n = 0, optional;
    int64_t rows, cols;
    for (int32_t layer = -1; layer < c->n_layers; layer++)
        for (int32_t role = 1; role < TFM_ROLE_LIMIT; role++) {
            if (!tfm_role_shape(c, layer, role, &rows, &cols, &optional)) continue;
            memset(&w[n], 0, sizeof w[n]);
            w[n].layer = layer;
            w[n].role = role;
            w[n].expert = -1;
            w[n].t.rows = rows;
            w[n].t.cols = cols;
            w[n].t.type = TFM_F32;
            w[n].t.layout = TFM_ROWS;
            w[n].t.data = numbers + role; /* any numbers will do */
            n++;
        }
    return n;
}

static int run_session(const tfm_model *m, int32_t isa, uint32_t *bits) {
    static union { unsigned char bytes[MEMORY]; uint64_t align; } room;
    static const int32_t ids[3] = {1, 4, 2};
    tfm_session *s = NULL;
    tfm_session_config cfg;
    tfm_error err;
    memset(&cfg, 0, sizeof cfg);
    cfg.size = sizeof cfg;
    cfg.isa = isa;
    if (tfm_session_init(m, &cfg, room.bytes + (64 - (uintptr_t)room.bytes % 64) % 64, MEMORY - 64, &s, &err)) return 3;
    if (tfm_eval(s, ids, 3, &err)) return 4;
    const float *logits = tfm_logits(s, 0);
    if (!logits || !(logits[0] > -1e4f && logits[0] < 1e4f)) return 5;
    *bits = 0;
    for (int i = 0; i < N_VOCAB; i++) {
        uint32_t word;
        memcpy(&word, &logits[i], sizeof word);
        *bits = (*bits ^ word) * 0x01000193u;
    }
    return logits[0] < logits[1] || logits[0] > logits[1] ? 0 : 6;
}

/* An allocator, so that it works without malloc too. */
static void *from_buffer(void *user, size_t size, size_t align) {
    static union { unsigned char bytes[MEMORY]; uint64_t align; } room;
    (void)user;
    return size <= MEMORY - align ? room.bytes + (align - (uintptr_t)room.bytes % align) % align : NULL;
}

/* What this build lacks is not damage. */
static int run_refused(const tfm_config *c, tfm_block *b, const tfm_model_config *cfg, tfm_weight *w) {
    const int n = bind_all(c, w);
    tfm_model *m = NULL;
    tfm_error err;
    (void)n;
    (void)m;
    (void)cfg;
#ifdef TFM_TYPES /* of none but F32 */
    w[0].t.type = TFM_F16;
    if (tfm_model_from_weights(c, w, n, cfg, &m, &err) != TFM_ERR_UNSUPPORTED) return 7;
#endif
    b->ffn_kind = TFM_FFN_EXPERTS;
    b->n_experts = b->n_experts_used = b->d_expert = 1;
#ifdef TFM_NO_EXPERTS
    return tfm_config_check(c, &err) == TFM_ERR_UNSUPPORTED ? 0 : 8;
#else
    return tfm_config_check(c, &err) ? 9 : 0;
#endif
}

static int run(uint32_t *bits) { /* of the widest pass and of the scalar one */
    tfm_config c;
    tfm_block b;
    tfm_weight w[32];
    tfm_model *m = NULL;
    tfm_allocator allocator;
    tfm_model_config cfg;
    tfm_error err;
    for (int i = 0; i < 1024; i++) numbers[i] = (float)(i * 37 % 101 - 50) / 64.0f;
    describe(&c, &b);
    if (strcmp(tfm_version(), TFM_VERSION)) return 1;
    memset(&allocator, 0, sizeof allocator);
    allocator.alloc = from_buffer;
    memset(&cfg, 0, sizeof cfg);
    cfg.size = sizeof cfg;
    cfg.allocator = &allocator;
    if (tfm_model_from_weights(&c, w, bind_all(&c, w), &cfg, &m, &err)) return 2;
    int r = run_session(m, TFM_ISA_AUTO, &bits[0]);
    if (!r) r = run_session(m, TFM_ISA_SCALAR, &bits[1]);
    tfm_model_close(m);
    return r ? r : run_refused(&c, &b, &cfg, w);
}

#if UNIT == 2
int use_tfm_too(uint32_t *bits) { return run(bits); }
#else
int use_tfm(uint32_t *bits) { return run(bits); }

int main(void) {
    uint32_t bits[2] = {0, 0}, too[2] = {0, 0};
    const int one = use_tfm(bits), two = use_tfm_too(too);
    if (one || two) printf("unit 1: %d, unit 2: %d\n", one, two);
    printf("bits %08lx %08lx\n", (unsigned long)bits[0], (unsigned long)bits[1]);
    return one || two || memcmp(bits, too, sizeof bits) != 0;
}
#endif
