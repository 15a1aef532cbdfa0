/* test_moe.c - mixtures of experts: each way of routing against a plain one in double; what is refused; the bytes that
 * a token reads; sinks and chunks of attention.
 */
#include <math.h>
#include <string.h>

#include "test.h"
#include "tiny.h"
#include "tools/isa.h"
#include "tools/run.h"

enum { IDS = 24, D = 64, E = 8, K = 3, WIDTH = 24, SHARED = 40 };

/* ---- A MODEL --------------------------------------------------------------------------------------------------- */

/* One layer, one mixture. */
static void describe(tiny_model *t, const tfm_block *changes) {
    tiny_describe(t);
    tfm_block *b = &t->blocks[0];
    const tfm_block dense = *b;
    *b = *changes;
    b->norm_kind = dense.norm_kind;
    b->norm_eps = dense.norm_eps;
    b->n_heads = dense.n_heads;
    b->n_kv_heads = dense.n_kv_heads;
    b->head_dim = dense.head_dim;
    b->rope_style = dense.rope_style;
    b->rope_theta = dense.rope_theta;
    b->ffn_kind = TFM_FFN_EXPERTS;
    b->ffn_act = TFM_ACT_SILU;
    b->ffn_gated = 1;
    b->n_experts = E;
    b->n_experts_used = changes->n_experts_used ? changes->n_experts_used : K;
    b->d_expert = WIDTH;
    t->config.n_layers = 1;
    t->config.n_blocks = 1;
    t->config.layer_block = NULL;
}

/* ---- THE SAME IN DOUBLE ------------------------------------------------------------------------------------------ */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static void softmax(double *x, int n) {
    double m = x[0], sum = 0;
    for (int i = 1; i < n; i++) m = x[i] > m ? x[i] : m;
    for (int i = 0; i < n; i++) sum += x[i] = exp(x[i] - m);
    for (int i = 0; i < n; i++) x[i] /= sum;
}

/* y = W x + b; W by role and expert. */
static void apply(const tfm_model *m, int role, int role_b, int expert, const double *x, double *y) {
    const tfm_tensor w = expert < 0 ? tfm_model_tensor(m, 0, role) : tfm_model_expert(m, 0, role, expert);
    const tfm_tensor bias = expert < 0 ? tfm_model_tensor(m, 0, role_b) : tfm_model_expert(m, 0, role_b, expert);
    float row[D];
    for (int64_t r = 0; r < w.rows; r++) {
        tfm_tensor_row(&w, r, row);
        y[r] = bias.data ? (double)((const float *)bias.data)[r] : 0;
        for (int64_t c = 0; c < w.cols; c++) y[r] += (double)row[c] * x[c];
    }
}

static void feed(const tfm_model *m, const tfm_block *b, int expert, int width, const double *x, double *y) {
    const int first = expert < 0 ? TFM_ROLE_GATE : TFM_ROLE_EXPERT_GATE;
    const int bias = expert < 0 ? TFM_ROLE_GATE_B : TFM_ROLE_EXPERT_GATE_B;
    double gate[D], up[D];
    apply(m, first, bias, expert, x, gate);
    apply(m, first + 1, bias + 1, expert, x, up);
    for (int i = 0; i < width; i++) {
        if (b->ffn_limit > 0) {
            gate[i] = fmin(gate[i], (double)b->ffn_limit);
            up[i] = fmax(-(double)b->ffn_limit, fmin(up[i], (double)b->ffn_limit));
        }
        gate[i] *= sigmoid(gate[i]) * (up[i] + (double)b->ffn_up_offset);
    }
    apply(m, first + 2, bias + 2, expert, gate, y);
}

/* The experts of the best groups: the others become -infinity. */
static void keep_groups(const tfm_block *b, double *rank) {
    const int size = E / b->n_groups;
    double score[E];
    for (int g = 0; g < b->n_groups; g++) {
        double one = -INFINITY, two = -INFINITY;
        for (int j = g * size; j < (g + 1) * size; j++) {
            if (rank[j] > one) two = one, one = rank[j];
            else if (rank[j] > two) two = rank[j];
        }
        score[g] = b->group_score == TFM_GROUP_TWO ? one + two : one;
    }
    for (int g = 0; g < b->n_groups; g++) {
        int better = 0;
        for (int h = 0; h < b->n_groups; h++) better += score[h] > score[g];
        for (int j = g * size; better >= b->n_groups_used && j < (g + 1) * size; j++) rank[j] = -INFINITY;
    }
}

/* weight[e] of each expert, 0 for those not picked. */
static void route(const tfm_model *m, const tfm_block *b, const double *x, double *weight) {
    const tfm_tensor select = tfm_model_tensor(m, 0, TFM_ROLE_ROUTER_SELECT_B);
    const int k = b->n_experts_used;
    const int biased = !(b->bias & TFM_BIAS_SELECT); /* a wrong reading, if there is such a bias */
    const double jitter = 2 * (double)b->router_jitter, p = b->router_norm > 0 ? (double)b->router_norm : 1;
    double score[E], rank[E], w[E], norm = 0;
    int pick[E];
    apply(m, TFM_ROLE_ROUTER, TFM_ROLE_ROUTER_B, -1, x, score);
    if (b->router_score == TFM_SCORE_SOFTMAX) softmax(score, E);
    for (int e = 0; e < E; e++) {
        if (b->router_score == TFM_SCORE_SIGMOID) score[e] = sigmoid(score[e]);
        rank[e] = score[e] + (select.data ? (double)((const float *)select.data)[e] : 0);
        weight[e] = 0;
    }
    if (b->n_groups) keep_groups(b, rank);
    for (int i = 0; i < k; i++) {
        int best = 0;
        for (int e = 1; e < E; e++) best = rank[e] > rank[best] ? e : best;
        if (b->router_pick == TFM_PICK_SPARSE_MIXER) { /* softmax over those near the largest, by the original scores */
            double sum = 0;
            for (int e = 0; e < E; e++)
                if (rank[e] > -1e300 && (score[best] - score[e]) / fmax(fabs(score[e]), score[best]) <= jitter)
                    sum += exp(score[e] - score[best]);
            w[i] = 1 / sum;
        } else {
            w[i] = biased ? rank[best] : score[best];
        }
        pick[i] = best;
        rank[best] = -INFINITY;
    }
    if (b->router_weight == TFM_WEIGH_SOFTMAX) softmax(w, k);
    for (int i = 0; i < k; i++) {
        if (b->router_weight == TFM_WEIGH_SIGMOID) w[i] = sigmoid(w[i]);
        norm += pow(fabs(w[i]), p);
    }
    norm = fmax(pow(norm, 1 / p) + (double)b->router_norm_eps, (double)b->router_norm_floor);
    for (int i = 0; i < k; i++)
        weight[pick[i]] = w[i] / (b->router_norm > 0 ? norm : 1) * (b->router_scale != 0 ? (double)b->router_scale : 1);
}

static void mix(const tfm_model *m, const tfm_block *b, const float *in, double *y) {
    double x[D], weight[E], scaled[D], out[D], gate[1];
    for (int i = 0; i < D; i++) x[i] = (double)in[i], y[i] = 0;
    route(m, b, x, weight);
    for (int e = 0; e < E; e++) {
        if (weight[e] == 0) continue;
        for (int i = 0; i < D; i++) scaled[i] = b->router_on_input ? weight[e] * x[i] : x[i];
        feed(m, b, e, WIDTH, scaled, out);
        for (int i = 0; i < D; i++) y[i] += b->router_on_input ? out[i] : weight[e] * out[i];
    }
    if (!b->d_ff) return;
    feed(m, b, -1, b->d_ff, x, out);
    gate[0] = 1;
    if (b->shared_gate) {
        apply(m, TFM_ROLE_SHARED_GATE, 0, -1, x, gate);
        gate[0] = sigmoid(gate[0]);
    }
    for (int i = 0; i < D; i++) y[i] += gate[0] * out[i];
}

/* ---- ROUTING ----------------------------------------------------------------------------------------------------- */

/* What a run shows of its only layer. */
typedef struct seen { float in[IDS * D], out[IDS * D]; } seen;

static void keep_trace(void *user, const char *name, int32_t layer, const float *data, int64_t rows, int64_t cols) {
    seen *s = (seen *)user;
    if (layer == 0 && !strcmp(name, "ffn_norm")) memcpy(s->in, data, (size_t)(rows * cols) * sizeof(float));
    if (layer == 0 && !strcmp(name, "ffn_out")) memcpy(s->out, data, (size_t)(rows * cols) * sizeof(float));
}

typedef struct routing { const char *what; tfm_block b, wrong; } routing;

/* The ways to route, each with a wrong reading that must give something else. */
static size_t routings(routing *out) {
    size_t n = 0;
    memset(out, 0, 16 * sizeof *out);
#define ROUTING(text) n++; out[n - 1].what = text
#define SET(field, right, other) (out[n - 1].b.field = right, out[n - 1].wrong.field = other)
    ROUTING("softmax over all, as it is"), SET(router_score, TFM_SCORE_SOFTMAX, TFM_SCORE_SOFTMAX),
        SET(router_norm, 0, 1);
    ROUTING("normalised before the selection"), SET(router_score, TFM_SCORE_SOFTMAX, TFM_SCORE_LOGIT),
        SET(router_norm, 1, 1);
    ROUTING("softmax over those picked"), SET(router_weight, TFM_WEIGH_SOFTMAX, TFM_WEIGH_SCORE);
    ROUTING("weights without the bias"), SET(router_score, TFM_SCORE_SIGMOID, TFM_SCORE_SIGMOID),
        SET(bias, TFM_BIAS_SELECT, TFM_BIAS_ROUTER), SET(router_norm, 1, 1), SET(router_scale, 1.5f, 1.5f);
    ROUTING("groups by their largest"), SET(router_score, TFM_SCORE_SOFTMAX, TFM_SCORE_SOFTMAX), SET(n_groups, 4, 4),
        SET(n_groups_used, 2, 2), SET(group_score, TFM_GROUP_MAX, TFM_GROUP_TWO);
    ROUTING("groups by their two largest"), SET(router_score, TFM_SCORE_SIGMOID, TFM_SCORE_SIGMOID),
        SET(n_groups, 2, 2), SET(n_groups_used, 1, 1), SET(group_score, TFM_GROUP_TWO, TFM_GROUP_MAX),
        SET(router_norm, 1, 1), SET(router_norm_eps, 1e-20f, 1e-20f);
    ROUTING("the L2 norm"), SET(router_score, TFM_SCORE_SOFTMAX, TFM_SCORE_SOFTMAX), SET(router_norm, 2, 1);
    ROUTING("the L3 norm"), SET(router_score, TFM_SCORE_SOFTMAX, TFM_SCORE_SOFTMAX), SET(router_norm, 3, 2);
    ROUTING("a floor under the sum"), SET(router_score, TFM_SCORE_SOFTMAX, TFM_SCORE_SOFTMAX), SET(router_norm, 1, 1),
        SET(router_norm_floor, 0.95f, 0);
    ROUTING("sparse mixer"), SET(router_pick, TFM_PICK_SPARSE_MIXER, TFM_PICK_SPARSE_MIXER), SET(n_experts_used, 2, 2),
        SET(router_jitter, 0.3f, 0.05f);
    ROUTING("the weight on the input"), SET(router_weight, TFM_WEIGH_SIGMOID, TFM_WEIGH_SIGMOID),
        SET(router_on_input, 1, 0);
    ROUTING("clamped, up + 1, biases"), SET(router_weight, TFM_WEIGH_SOFTMAX, TFM_WEIGH_SOFTMAX),
        SET(ffn_limit, 0.7f, 0.9f), SET(ffn_up_offset, 1, 1),
        SET(bias, TFM_BIAS_ROUTER | TFM_BIAS_EXPERTS, TFM_BIAS_ROUTER | TFM_BIAS_EXPERTS);
    ROUTING("a shared expert with a gate"), SET(router_score, TFM_SCORE_SOFTMAX, TFM_SCORE_SOFTMAX),
        SET(d_ff, SHARED, SHARED), SET(shared_gate, 1, 0);
    ROUTING("every expert"), SET(router_score, TFM_SCORE_SOFTMAX, TFM_SCORE_SOFTMAX), SET(n_experts_used, E, K);
#undef ROUTING
#undef SET
    return n;
}

/* The wrong description on the right one's weights; what the weights lack is not looked at. */
static void as_described(tfm_block *b, const tfm_block *changes) {
    b->n_experts_used = changes->n_experts_used ? changes->n_experts_used : K;
}

static void check_routing(const routing *r) {
    static seen s;
    tiny_model t;
    tfm_session *session = NULL;
    tfm_error err;
    int32_t ids[IDS];
    double want[D], other[D], off = 0, largest = 0, apart = 0;
    describe(&t, &r->b);
    tiny_weights(&t, TFM_F32, TFM_TILED);
    tiny_ids(ids, IDS, t.config.n_vocab, r->what);
    tfm_model *m = tiny_open(&t);
    tfm_session_config cfg = tiny_exact(IDS, IDS);
    cfg.trace = keep_trace;
    cfg.trace_user = &s;
    const int code = m ? tfm_session_new(m, &cfg, &session, &err) || tfm_eval(session, ids, IDS, &err) : -1;
    check(!code, "%s: %s", r->what, code && m ? err.msg : "");
    tfm_block wrong = r->wrong;
    as_described(&wrong, &r->wrong);
    for (int i = 0; !code && i < IDS; i++) {
        mix(m, tfm_model_block(m, 0), s.in + i * D, want);
        mix(m, &wrong, s.in + i * D, other);
        for (int k = 0; k < D; k++) {
            tiny_keep_largest(&off, fabs(want[k] - (double)s.out[i * D + k]));
            tiny_keep_largest(&apart, fabs(want[k] - other[k]));
            tiny_keep_largest(&largest, fabs(want[k]));
        }
    }
    check(off <= 2e-6 * largest, "%s: off by %g of %g", r->what, off, largest);
    check(apart > 1e-2 * largest, "%s: the wrong reading differs by %g of %g only", r->what, apart, largest);
    tfm_session_free(session);
    tfm_model_close(m);
    tiny_weights_free(&t);
}

void test_moe_routing(void) {
    routing r[16];
    const size_t n = routings(r);
    for (size_t i = 0; i < n; i++) check_routing(&r[i]);
}

/* ---- MEMORY AND BITS --------------------------------------------------------------------------------------------- */

/* A session of the size that was announced, with guards behind it: more experts a token than tokens in a batch, waves.
 * Chunks and parts give the same bits. */
static void check_sessions(const tiny_model *t, const char *what) {
    enum { GUARD = 64 };
    static const int32_t batches[] = {1, 2, 5, IDS};
    static float whole[IDS * 64], out[IDS * 64];
    tfm_error err;
    int32_t ids[IDS];
    tiny_ids(ids, IDS, t->config.n_vocab, "moe");
    tfm_model *m = tiny_open(t);
    for (int i = 3; m && i >= 0; i--) {
        tfm_session_config cfg = tiny_exact(IDS, batches[i]);
        tfm_session *s;
        size_t bytes = 0;
        cfg.n_threads = 1 + i % 3;
        cfg.parallel.run = tiny_backwards;
        cfg.act = TFM_ACT_MODE_Q8;
        check(!tfm_session_size(m, &cfg, &bytes, &err), "size: %s", err.msg);
        unsigned char *mem = (unsigned char *)tiny_alloc(bytes + GUARD);
        memset(mem + bytes, 0xa5, GUARD);
        const int r = tfm_session_init(m, &cfg, mem, bytes, &s, &err);
        check(!r, "init: %s", r ? err.msg : "");
        if (!r && tiny_continue(s, 64, batches[i], ids, IDS, i == 3 ? whole : out, what) && i < 3)
            check(!memcmp(whole, out, sizeof whole), "%s: batches of %d give other bits", what, (int)batches[i]);
        for (int k = 0; k < GUARD; k++) check(mem[bytes + (size_t)k] == 0xa5, "byte %d behind the session", k);
        tiny_free(mem);
    }
    tfm_model_close(m);
}

void test_moe_session(void) {
    static tiny_model floats, blocks, mixed;
    tfm_block changes;
    memset(&changes, 0, sizeof changes);
    changes.router_score = TFM_SCORE_SOFTMAX;
    changes.d_ff = 32;
    describe(&floats, &changes);
    floats.blocks[0].d_expert = 64;
    blocks = floats;
    blocks.config.blocks = blocks.blocks;
    tiny_weights(&floats, TFM_F32, TFM_TILED);
    tiny_weights(&blocks, TFM_Q8_0, TFM_TILED);
    mixed = blocks; /* experts of one role of different types */
    mixed.config.blocks = mixed.blocks;
    for (int64_t i = 0; i < mixed.n_weights; i++)
        if (mixed.weights[i].expert % 2 == 1) mixed.weights[i] = floats.weights[i];
    check_sessions(&floats, "floats");
    check_sessions(&blocks, "blocks");
    check_sessions(&mixed, "mixed");
    tiny_weights_free(&floats);
    tiny_weights_free(&blocks);
}

/* Routers of NaN and infinities: experts are picked all the same, and the result is an error, not a wild read. */
void test_moe_not_finite(void) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 9; i++) {
        tiny_model t;
        tfm_block changes;
        tfm_session *s = NULL;
        tfm_error err;
        const int32_t ids[] = {1, 2, 3, 4};
        memset(&changes, 0, sizeof changes);
        changes.router_score = i / 3 == 1 ? TFM_SCORE_SIGMOID : TFM_SCORE_LOGIT;
        changes.router_pick = i / 3 == 2 ? TFM_PICK_SPARSE_MIXER : TFM_PICK_TOP;
        changes.n_groups = i / 3 == 1 ? 4 : 0;
        changes.n_groups_used = 2;
        describe(&t, &changes);
        tiny_weights(&t, TFM_F32, TFM_ROWS);
        float *router = (float *)(uintptr_t)tiny_find(&t, 0, TFM_ROLE_ROUTER)->t.data;
        for (int k = 0; k < E * D; k++) router[k] = bad[i % 3];
        tfm_model *m = tiny_open(&t);
        const tfm_session_config cfg = tiny_exact(8, 4);
        int r = m ? tfm_session_new(m, &cfg, &s, &err) : -1;
        check(!r, "a session: %d", r);
        if (!r) r = tfm_eval(s, ids, 4, &err);
        check(r == TFM_ERR_NUMERIC || r == TFM_OK, "router %d: result %d", i, r);
        check(i % 3 || r == TFM_ERR_NUMERIC, "a router of NaN: result %d", r);
        tfm_session_free(s);
        tfm_model_close(m);
        tiny_weights_free(&t);
    }
}

/* A token reads the experts it picks, no others. */
void test_moe_bytes_per_token(void) {
    tfm_block changes;
    tiny_model t;
    uint64_t all = 0, experts = 0;
    memset(&changes, 0, sizeof changes);
    changes.router_score = TFM_SCORE_SOFTMAX;
    describe(&t, &changes);
    tiny_weights(&t, TFM_F32, TFM_TILED);
    for (int64_t i = 0; i < t.n_weights; i++) {
        all += weight_source_bytes(&t.weights[i]);
        if (t.weights[i].expert >= 0) experts += weight_source_bytes(&t.weights[i]);
    }
    tfm_model *m = tiny_open(&t);
    check(experts == (uint64_t)E * 3 * WIDTH * D * 4, "experts have %llu bytes", (unsigned long long)experts);
    if (m) check(model_bytes_per_token(m) == all - experts + experts / E * K, "a token reads %llu of %llu bytes",
                 (unsigned long long)model_bytes_per_token(m), (unsigned long long)all);
    tfm_model_close(m);
    tiny_weights_free(&t);
}

/* ---- REFUSED ----------------------------------------------------------------------------------------------------- */

static void check_refused(const tiny_model *t, const char *names) {
    tfm_model *m = NULL;
    tfm_error err;
    const tfm_result r = tfm_model_from_weights(&t->config, t->weights, t->n_weights, NULL, &m, &err);
    check(r == TFM_ERR_FORMAT || r == TFM_ERR_UNSUPPORTED, "%s: result %d", names, (int)r);
    if (r) check(strstr(err.msg, names) != NULL, "'%s' does not name '%s'", err.msg, names);
    tfm_model_close(m);
}

static void refuse_fields(const tiny_model *good) {
    static const struct { size_t offset; int32_t value; const char *names; } rows[] = {
#define ROW(field, value) { offsetof(tfm_block, field), value, #field }
        ROW(n_experts, 0), ROW(n_experts, -1), ROW(n_experts, 5000), ROW(n_experts_used, 0), ROW(n_experts_used, E + 1),
        ROW(d_expert, 0), ROW(d_expert, INT32_MAX), ROW(d_ff, -1), ROW(shared_gate, 1), ROW(shared_gate, 2),
        ROW(router_score, 9), ROW(router_pick, 9), ROW(router_weight, 9), ROW(router_pick, TFM_PICK_SPARSE_MIXER),
        ROW(router_norm, (int32_t)0xbf800000u), ROW(router_norm, 0x42c80000), ROW(router_norm, 0x7fc00000),
        ROW(router_norm_eps, (int32_t)0xbf800000u), ROW(router_norm_floor, (int32_t)0xbf800000u),
        ROW(router_jitter, (int32_t)0xbf800000u), ROW(router_scale, 0x7f800000), ROW(router_on_input, 2),
        ROW(n_groups, 3),
        ROW(n_groups, 2), ROW(group_score, 7), ROW(ffn_limit, (int32_t)0xbf800000u), ROW(ffn_kind, 7), ROW(ffn_kind, 0),
        ROW(mask, TFM_MASK_CHUNKED), ROW(sinks, 3), ROW(qk_norm_no_weight, 3), ROW(temperature_offset, -1),
        ROW(ffn_act, TFM_ACT_XIELU), ROW(bias, 1 << 20),
#undef ROW
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tiny_model t = *good;
        t.config.blocks = t.blocks;
        memcpy((unsigned char *)&t.blocks[0] + rows[i].offset, &rows[i].value, 4);
        if (rows[i].offset == offsetof(tfm_block, ffn_kind) && !rows[i].value) t.blocks[0].bias = TFM_BIAS_SELECT;
        check_refused(&t, t.blocks[0].ffn_kind ? rows[i].names : "d_ff");
    }
    tiny_model t = *good;
    t.config.blocks = t.blocks;
    t.blocks[0].n_groups = 4;
    t.blocks[0].n_groups_used = 1;
    check_refused(&t, "n_experts_used"); /* three of a group of two */
    t.blocks[0].n_groups = 8;
    t.blocks[0].n_groups_used = 8;
    t.blocks[0].group_score = TFM_GROUP_TWO;
    check_refused(&t, "group_score");
    t.blocks[0] = good->blocks[0];
    t.blocks[0].ffn_gated = 0;
    t.blocks[0].ffn_up_offset = 1;
    check_refused(&t, "ffn_up_offset");
}

static void refuse_weights(const tiny_model *good) {
    tiny_model t = *good;
    t.config.blocks = t.blocks;
    int64_t first = 0, router = 0;
    while (t.weights[first].role != TFM_ROLE_EXPERT_UP) first++;
    while (t.weights[router].role != TFM_ROLE_ROUTER) router++;
    t.weights[first + 2].expert = 3;
    check_refused(&t, "ffn_up_exps.weight.3"); /* after 1 */
    t = *good;
    t.weights[first].expert = E;
    check_refused(&t, "ffn_up_exps.weight.8");
    t = *good;
    t.weights[first].expert = -1;
    check_refused(&t, "ffn_up_exps.weight");
    t = *good;
    t.weights[router].expert = 0;
    check_refused(&t, "ffn_gate_inp.weight");
    t = *good;
    t.weights[router].t.type = TFM_Q8_0;
    check_refused(&t, "ffn_gate_inp.weight");
    t = *good;
    t.weights[first + 4].t.rows++;
    check_refused(&t, "ffn_up_exps.weight.4");
    t = *good; /* the last expert is missing */
    memmove(&t.weights[first + E - 1], &t.weights[first + E], (size_t)(t.n_weights - first - E) * sizeof t.weights[0]);
    t.n_weights--;
    check_refused(&t, "ffn_up_exps.weight.7");
}

void test_moe_refused(void) {
    tfm_block changes;
    static tiny_model t;
    memset(&changes, 0, sizeof changes);
    changes.router_score = TFM_SCORE_SOFTMAX;
    describe(&t, &changes);
    tiny_weights(&t, TFM_F32, TFM_TILED);
    tfm_model *m = tiny_open(&t);
    check(m != NULL, "the model that the others differ from");
    tfm_model_close(m);
    refuse_fields(&t);
    refuse_weights(&t);
    tiny_weights_free(&t);
}

/* ---- ATTENTION --------------------------------------------------------------------------------------------------- */

enum { HEADS = 4, KV = 2, HD = 20, LENGTH = 200 };

/* One query over its positions in double. */
static void attend(const tfm_attention_args *a, int t, int head, double *out) {
    const int64_t pos = a->pos + t, begin = a->chunk ? pos / a->chunk * a->chunk : 0;
    const float *q = a->q + (t * HEADS + head) * HD, *k = (const float *)a->k, *v = (const float *)a->v;
    const int64_t plane = head / (HEADS / KV) * a->length;
    double sum = a->sinks ? exp((double)a->sinks[head]) : 0;
    for (int c = 0; c < HD; c++) out[c] = 0;
    for (int64_t j = begin; j <= pos; j++) {
        const int64_t row = (plane + j % a->length) * HD;
        double s = 0;
        for (int c = 0; c < HD; c++) s += (double)q[c] * (double)k[row + c];
        s = exp(s * (double)a->scale);
        sum += s;
        for (int c = 0; c < HD; c++) out[c] += s * (double)v[row + c];
    }
    for (int c = 0; c < HD; c++) out[c] /= sum;
}

/* Sinks far below, among and far above the scores; chunks that end inside, at and across blocks of 64. */
void test_moe_attention(void) {
    static const float sinks[HEADS] = {-30.0f, 0.0f, 3.0f, 40.0f};
    static const int64_t chunks[] = {0, 1, 7, 64, 100};
    static float q[5 * HEADS * HD], k[KV * LENGTH * HD], v[KV * LENGTH * HD], out[5 * HEADS * HD];
    tiny_fill(q, sizeof q / sizeof *q, "q", 6, 0);
    tiny_fill(k, sizeof k / sizeof *k, "k", 7, 0);
    tiny_fill(v, sizeof v / sizeof *v, "v", 7, 0);
    for (int i = 0; tfm_isa_list(i); i++) {
        const tfm_kernels *kernels = isa_works(tfm_isa_list(i)) ? tfm_kernels_for(tfm_isa_list(i)) : NULL;
        for (int n = 0; kernels && n < 10; n++) {
            tfm_attention_args a;
            double want[HD], off = 0;
            memset(&a, 0, sizeof a);
            a.out = out;
            a.q = q;
            a.k = k;
            a.v = v;
            a.kv_type = TFM_F32;
            a.n = 5;
            a.n_heads = HEADS;
            a.n_kv_heads = KV;
            a.head_dim = HD;
            a.pos = 130;
            a.length = LENGTH;
            a.scale = 0.3f;
            a.chunk = chunks[n / 2];
            a.sinks = n % 2 ? sinks : NULL;
            kernels->attention(&a, 0, 5 * HEADS);
            for (int t = 0; t < 5; t++)
                for (int h = 0; h < HEADS; h++) {
                    attend(&a, t, h, want);
                    for (int c = 0; c < HD; c++)
                        tiny_keep_largest(&off, fabs(want[c] - (double)out[(t * HEADS + h) * HD + c]));
                }
            check(off < 2e-6, "%s, chunk %d%s: off by %g", kernels->name, (int)a.chunk, a.sinks ? ", sinks" : "", off);
        }
    }
}
