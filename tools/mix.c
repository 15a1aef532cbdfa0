/* mix.c - the table of mixes, and the choice of a type for each matrix. */
#include "mix.h"

#include <stdio.h>
#include <string.h>

/* name, whose rules, type of the matrices that no rule names */
#define MIX_TABLE(X) \
    X("f32", "f32", F32) X("f16", "f16", F16) X("bf16", "bf16", BF16) X("q8_0", "q8_0", Q8_0) X("q4_0", "q4_0", Q4_0) \
    X("q4_1", "q4_1", Q4_1) X("q5_0", "q5_0", Q5_0) X("q5_1", "q5_1", Q5_1) X("q2_k", "q2_k", Q2_K) \
    X("q3_k", "q3_k_m", Q3_K) X("q3_k_s", "q3_k_s", Q3_K) X("q3_k_m", "q3_k_m", Q3_K) X("q3_k_l", "q3_k_l", Q3_K) \
    X("q4_k", "q4_k_m", Q4_K) X("q4_k_s", "q4_k_s", Q4_K) X("q4_k_m", "q4_k_m", Q4_K) X("q5_k", "q5_k_m", Q5_K) \
    X("q5_k_s", "q5_k_s", Q5_K) X("q5_k_m", "q5_k_m", Q5_K) X("q6_k", "q6_k", Q6_K) X("iq4_nl", "iq4_nl", IQ4_NL) \
    X("iq4_xs", "iq4_xs", IQ4_XS) X("mxfp4", "mxfp4", MXFP4)
#define MIX_ROW(name, rules, type) {name, rules, TFM_##type},
#define MIX_NAME(name, rules, type) name,

static const mix mixes[] = {MIX_TABLE(MIX_ROW)};
const char *const mix_names[] = {"source", MIX_TABLE(MIX_NAME) NULL};

const mix *mix_find(const char *name) {
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++)
        if (!strcmp(name, mixes[i].name)) return &mixes[i];
    return NULL;
}

/* ---- RULES ------------------------------------------------------------------------------------------------------ */

enum part { PART_OTHER, PART_HEAD, PART_K, PART_V, PART_O, PART_DOWN, PART_KEPT };

enum when {
    ALWAYS,
    SHARED_4,      /* at least 4 query heads share a key */
    EXPERTS_8,     /* eight experts */
    FIRST_2, FIRST_4, FIRST_8TH, FIRST_16TH, /* of the layers that have the part */
    MORE_BITS,     /* the first and the last eighth of the layers, and every third between */
    FIRST_8TH_BLIND, FIRST_8TH_SEEING /* without and with importance */
};

/* The first row that fits decides; "": every quantised type. */
typedef struct rule {
    const char *mix;
    enum part part;
    enum when when;
    int32_t type;
} rule;

static const rule rules[] = {
    {"mxfp4", PART_HEAD, ALWAYS, TFM_Q8_0},
    {"q8_0", PART_HEAD, ALWAYS, TFM_Q8_0},
    {"", PART_HEAD, ALWAYS, TFM_Q6_K},
    {"", PART_K, EXPERTS_8, TFM_Q8_0},
    {"", PART_V, EXPERTS_8, TFM_Q8_0},
    {"q2_k", PART_O, EXPERTS_8, TFM_Q5_K},
    {"q3_k_s", PART_O, EXPERTS_8, TFM_Q5_K},
    {"q3_k_m", PART_O, EXPERTS_8, TFM_Q5_K},
    {"q3_k_l", PART_O, EXPERTS_8, TFM_Q3_K},
    {"q4_k_s", PART_O, EXPERTS_8, TFM_Q5_K},
    {"q4_k_m", PART_O, EXPERTS_8, TFM_Q5_K},
    {"iq4_nl", PART_O, EXPERTS_8, TFM_Q5_K},
    {"iq4_xs", PART_O, EXPERTS_8, TFM_Q5_K},
    {"q2_k", PART_V, SHARED_4, TFM_Q4_K},
    {"q2_k", PART_V, ALWAYS, TFM_Q3_K},
    {"q2_k", PART_O, ALWAYS, TFM_Q3_K},
    {"q2_k", PART_DOWN, ALWAYS, TFM_Q3_K},
    {"q3_k_m", PART_V, FIRST_2, TFM_Q5_K},
    {"q3_k_m", PART_V, ALWAYS, TFM_Q4_K},
    {"q3_k_m", PART_O, ALWAYS, TFM_Q4_K},
    {"q3_k_m", PART_DOWN, FIRST_16TH, TFM_Q5_K},
    {"q3_k_m", PART_DOWN, ALWAYS, TFM_Q4_K},
    {"q3_k_l", PART_V, ALWAYS, TFM_Q5_K},
    {"q3_k_l", PART_O, ALWAYS, TFM_Q5_K},
    {"q3_k_l", PART_DOWN, ALWAYS, TFM_Q5_K},
    {"q4_k_s", PART_V, FIRST_4, TFM_Q5_K},
    {"q4_k_s", PART_DOWN, FIRST_8TH, TFM_Q5_K},
    {"q4_k_m", PART_V, MORE_BITS, TFM_Q6_K},
    {"q4_k_m", PART_DOWN, MORE_BITS, TFM_Q6_K},
    {"q5_k_m", PART_V, MORE_BITS, TFM_Q6_K},
    {"q5_k_m", PART_DOWN, MORE_BITS, TFM_Q6_K},
    {"iq4_nl", PART_V, SHARED_4, TFM_Q5_K},
    {"iq4_nl", PART_DOWN, FIRST_8TH_BLIND, TFM_Q5_K},
    {"iq4_xs", PART_V, SHARED_4, TFM_Q5_K},
    {"iq4_xs", PART_DOWN, FIRST_8TH_BLIND, TFM_Q5_K},
    {"q4_0", PART_DOWN, FIRST_8TH_SEEING, TFM_Q4_1},
    {"q5_0", PART_DOWN, FIRST_8TH_SEEING, TFM_Q5_1}};

/* ---- THE CHOICE ------------------------------------------------------------------------------------------------- */

/* What a choice depends on beside the matrix. */
typedef struct facts {
    const mix *m;
    int tied, importance, shared;
    int32_t n_layers, n_experts;
    int64_t n_v;
} facts;

static enum part part_of(const facts *f, const tfm_weight *w) {
    if (w->t.layout != TFM_TILED) return PART_KEPT;
    switch (w->role) {
    case TFM_ROLE_POS_EMBED:
    case TFM_ROLE_ROUTER: return PART_KEPT;
    case TFM_ROLE_HEAD: return PART_HEAD;
    case TFM_ROLE_EMBED: return f->tied ? PART_HEAD : PART_OTHER;
    case TFM_ROLE_K: return PART_K;
    case TFM_ROLE_V: return PART_V;
    case TFM_ROLE_O: return PART_O;
    case TFM_ROLE_DOWN:
    case TFM_ROLE_EXPERT_DOWN: return PART_DOWN;
    default: return PART_OTHER;
    }
}

/* i: of n layers that have the part. */
static int holds(const facts *f, enum when when, int64_t i, int64_t n) {
    switch (when) {
    case ALWAYS: return 1;
    case SHARED_4: return f->shared >= 4;
    case EXPERTS_8: return f->n_experts == 8;
    case FIRST_2: return i < 2;
    case FIRST_4: return i < 4;
    case FIRST_8TH: return i < n / 8;
    case FIRST_16TH: return i < n / 16;
    case MORE_BITS: return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
    case FIRST_8TH_BLIND: return !f->importance && i < n / 8;
    case FIRST_8TH_SEEING: return f->importance && i < n / 8;
    }
    return 0;
}

static int32_t by_rules(const facts *f, enum part part, int64_t i, int64_t n) {
    for (size_t k = 0; k < sizeof rules / sizeof *rules; k++) {
        const rule *r = &rules[k];
        if (r->part == part && (!*r->mix || !strcmp(r->mix, f->m->rules)) && holds(f, r->when, i, n)) return r->type;
    }
    return f->m->type;
}

/* What takes the place of a type whose block does not divide the rows. */
static int32_t for_columns(int32_t type, int64_t cols) {
    static const int32_t smaller[][2] = {{TFM_Q2_K, TFM_Q4_0}, {TFM_Q3_K, TFM_Q4_0}, {TFM_Q4_K, TFM_Q5_0},
                                         {TFM_Q5_K, TFM_Q5_1}, {TFM_Q6_K, TFM_Q8_0}, {TFM_IQ4_XS, TFM_IQ4_NL}};
    if (cols % tfm_type_get(type)->block == 0) return type;
    for (size_t i = 0; i < sizeof smaller / sizeof *smaller; i++)
        if (smaller[i][0] == type && cols % 32 == 0) return smaller[i][1];
    return TFM_F16;
}

/* v: how many matrices of values come before this one. */
static int32_t wanted(const facts *f, const tfm_weight *w, int64_t v) {
    const enum part part = part_of(f, w);
    const int64_t n = part == PART_V ? f->n_v : f->n_layers;
    const int block = tfm_type_get(f->m->type)->block;
    if (part == PART_KEPT) return w->t.type;
    if (block == 1) return f->m->type;
    if (part == PART_HEAD && w->t.cols % block) return TFM_Q8_0;
    if (f->m->type == TFM_MXFP4 && f->n_experts && w->expert < 0) return TFM_Q8_0;
    const int32_t type = by_rules(f, part, part == PART_V ? v : w->layer, n);
    /* the largest models of old had 80 layers, and so few values that more bits cost nothing */
    if (part == PART_V && f->n_layers == 80 && f->shared > 1 && (type == TFM_Q3_K || type == TFM_Q4_K)) return TFM_Q5_K;
    return type;
}

/* ---- REPORT ----------------------------------------------------------------------------------------------------- */

static const char *type_name(int32_t type) { return tfm_type_get(type)->name; }

typedef struct type_pair { int32_t want, got; } type_pair;

/* Counts the pairs of types, in the order in which they come. */
static void describe_fallbacks(mix_report *r, const type_pair *pairs, int64_t n) {
    size_t used = 0;
    for (int64_t i = 0; i < n && used < sizeof r->text; i++) {
        int64_t count = 0, first = 1;
        for (int64_t k = 0; k < n; k++) {
            const int same = pairs[k].want == pairs[i].want && pairs[k].got == pairs[i].got;
            count += same;
            if (same && k < i) first = 0;
        }
        if (!first) continue;
        used += (size_t)snprintf(r->text + used, sizeof r->text - used, "%s%lld %s -> %s", used ? ", " : "",
                                 (long long)count, type_name(pairs[i].want), type_name(pairs[i].got));
    }
}

static facts facts_of(const mix *m, const tfm_config *c, const tfm_weight *weights, int64_t n, int importance) {
    const tfm_block *b = &c->blocks[c->layer_block ? c->layer_block[0] : 0];
    facts f = {m, c->tied, importance, b->n_kv_heads > 0 ? b->n_heads / b->n_kv_heads : 1, c->n_layers, 0, 0};
    for (int64_t i = 0; i < n; i++) {
        f.n_v += weights[i].role == TFM_ROLE_V;
        if (weights[i].expert >= f.n_experts) f.n_experts = weights[i].expert + 1;
    }
    return f;
}

void mix_apply(const mix *m, const tfm_config *c, tfm_weight *weights, int64_t n, int importance, mix_report *report) {
    enum { SHOWN = 1024 }; /* fallbacks that are described */
    const facts f = facts_of(m, c, weights, n, importance);
    type_pair pairs[SHOWN];
    int64_t v = 0;
    memset(report, 0, sizeof *report);
    for (int64_t i = 0; i < n; i++) {
        tfm_weight *w = &weights[i];
        const int32_t before = w->t.type, want = wanted(&f, w, v), got = for_columns(want, w->t.cols);
        v += w->role == TFM_ROLE_V;
        if (w->t.layout != TFM_TILED) continue;
        w->t.type = got;
        if (tfm_type_get(before)->block > 1 && tfm_type_get(got)->block > 1 && before != got) report->n_again++;
        if (got == want) continue;
        if (!report->n_fallbacks) report->first_fallback = i;
        if (report->n_fallbacks < SHOWN) {
            pairs[report->n_fallbacks].want = want;
            pairs[report->n_fallbacks].got = got;
        }
        report->n_fallbacks++;
    }
    describe_fallbacks(report, pairs, report->n_fallbacks < SHOWN ? report->n_fallbacks : SHOWN);
}
