/* describe.c - values of a checkpoint become the description of a model. */
#include <math.h>
#include <string.h>

#include "describe.h"

enum { MAX_BLOCKS = 255, MAX_LAYERS = ARCH_MAX_LAYERS }; /* of tfm.h */

typedef struct describer {
    const arch *a;
    const char *file;
    tfm_error *err;
} describer;

double arch_value(const arch *a, param p) { return a->p.given[p] ? a->p.v[p] : 0; }

int arch_int(const arch *a, param p) { return (int)arch_value(a, p); }

int arch_add_eos(arch *a, int64_t id) {
    for (int i = 0; i < a->n_eos; i++)
        if (a->eos[i] == id) return 0;
    if (a->n_eos == ARCH_MAX_EOS) return -1;
    a->eos[a->n_eos++] = (int32_t)id;
    return 0;
}

/* x^-1/2 as a float, the same on every host: both operations are exactly rounded. */
static float inverse_sqrt(double x) { return (float)(1 / sqrt(x)); }

/* ---- RoPE ------------------------------------------------------------------------------------------------------ */

typedef struct rope_need { int scaling; param p; const char *key; } rope_need;

/* What a kind of scaling cannot do without. */
static const rope_need rope_needs[] = {
    {TFM_ROPE_LINEAR, P_ROPE_FACTOR, "factor"},
    {TFM_ROPE_DYNAMIC, P_ROPE_FACTOR, "factor"},
    {TFM_ROPE_BANDS, P_ROPE_FACTOR, "factor"},
    {TFM_ROPE_BANDS, P_ROPE_LOW, "low_freq_factor"},
    {TFM_ROPE_BANDS, P_ROPE_HIGH, "high_freq_factor"},
    {TFM_ROPE_LONG, P_ROPE_SHORT, "short_factor"},
    {TFM_ROPE_LONG, P_ROPE_LONG, "long_factor"}};

static int rope_scaling_of(const value_set *set) {
    int scaling = set->given[P_ROPE_SCALING] ? (int)set->v[P_ROPE_SCALING] : TFM_ROPE_PLAIN;
    if (scaling == TFM_ROPE_LINEAR && set->given[P_ROPE_SCALING] == GIVEN_DEFAULT && !set->given[P_ROPE_FACTOR])
        return TFM_ROPE_PLAIN; /* GGUF: linear unless it says otherwise, but there is nothing to scale by */
    return scaling;
}

static double rope_or(const value_set *set, param p, double otherwise) {
    return set->given[p] && set->v[p] != 0 ? set->v[p] : otherwise;
}

/* The fields that a scaling reads; all others stay 0, so that equal layers have equal blocks. */
static void set_rope_scaling(tfm_block *b, const value_set *set, const value_set *model) {
    double n_ctx = model->v[P_N_CTX];
    double orig = model->given[P_CTX_ORIG] ? model->v[P_CTX_ORIG] : rope_or(set, P_ROPE_CTX_ORIG, n_ctx);
    double factor = rope_or(set, P_ROPE_FACTOR, orig > 0 ? n_ctx / orig : 1);
    b->rope_factor = (float)factor;
    switch (b->rope_scaling) {
    case TFM_ROPE_DYNAMIC:
        b->rope_ctx_max = (int32_t)n_ctx;
        break;
    case TFM_ROPE_STEPS:
        b->rope_factor = 0;
        b->rope_ctx_max = (int32_t)orig;
        break;
    case TFM_ROPE_BANDS:
        b->rope_low = (float)set->v[P_ROPE_LOW];
        b->rope_high = (float)set->v[P_ROPE_HIGH];
        b->rope_ctx_orig = (int32_t)orig;
        break;
    case TFM_ROPE_YARN:
        b->rope_low = (float)rope_or(set, P_ROPE_SLOW, 1);
        b->rope_high = (float)rope_or(set, P_ROPE_FAST, 32);
        b->rope_mscale = (float)rope_or(set, P_ROPE_MSCALE, 0);
        b->rope_mscale_all = (float)rope_or(set, P_ROPE_MSCALE_ALL, 0);
        b->rope_no_truncate = set->given[P_ROPE_TRUNCATE] && set->v[P_ROPE_TRUNCATE] == 0;
        b->rope_ctx_orig = (int32_t)orig;
        b->rope_attn_factor = (float)rope_or(set, P_ROPE_ATTN_FACTOR, 0);
        break;
    case TFM_ROPE_LONG:
        b->rope_ctx_orig = (int32_t)orig;
        b->rope_attn_factor = (float)rope_or(set, P_ROPE_ATTN_FACTOR, 0);
        b->rope_mscale = (float)rope_or(set, P_ROPE_MSCALE, 0);
        b->rope_mscale_all = (float)rope_or(set, P_ROPE_MSCALE_ALL, 0);
        break;
    default:
        break;
    }
}

/* How many dimensions of a head rotate: said, or a part of them (cut down to a whole number), else all (0). */
static int rope_dims(const arch *a, const value_set *set) {
    const int head_dim = arch_int(a, P_HEAD_DIM);
    const value_set *from = set->given[P_ROPE_PART] ? set : &a->p;
    int dims = head_dim;
    if (a->p.given[P_ROPE_DIMS]) dims = arch_int(a, P_ROPE_DIMS);
    else if (from->given[P_ROPE_PART]) dims = (int)((double)head_dim * from->v[P_ROPE_PART]);
    return dims == head_dim ? 0 : dims;
}

static void set_temperature(const arch *a, tfm_block *b, const value_set *set) {
    if (!set->given[P_TEMPERATURE] || (a->p.given[P_TEMPERATURE_ON] && a->p.v[P_TEMPERATURE_ON] == 0)) return;
    b->temperature = (float)set->v[P_TEMPERATURE];
    b->temperature_ctx = (int32_t)rope_or(&a->p, P_TEMPERATURE_CTX, rope_or(set, P_ROPE_CTX_ORIG, a->p.v[P_N_CTX]));
    b->temperature_offset = arch_int(a, P_TEMPERATURE_OFFSET);
}

static int set_rope(const describer *d, tfm_block *b, const value_set *set) {
    int scaling = rope_scaling_of(set);
    double theta = set->v[P_ROPE_THETA];
    if (set->given[P_ROPE_ALPHA] && set->v[P_ROPE_ALPHA] != 0) {
        const int dims = rope_dims(d->a, set) ? rope_dims(d->a, set) : arch_int(d->a, P_HEAD_DIM);
        if (!arch_int(d->a, P_ROPE_BY_ALPHA))
            return tool_fail(d->err, TFM_ERR_UNSUPPORTED, "%s: rope scaling: alpha is not known", d->file);
        if (scaling == TFM_ROPE_DYNAMIC && dims > 2) {
            theta *= pow(set->v[P_ROPE_ALPHA], (double)dims / (dims - 2));
            scaling = TFM_ROPE_PLAIN;
        }
    }
    for (size_t i = 0; i < sizeof rope_needs / sizeof *rope_needs; i++)
        if (rope_needs[i].scaling == scaling && !set->given[rope_needs[i].p])
            return tool_fail(d->err, TFM_ERR_FORMAT, "%s: rope scaling: %s is missing", d->file, rope_needs[i].key);
    if (!(theta > 0 && theta < 1e30))
        return tool_fail(d->err, TFM_ERR_FORMAT, "%s: rope_theta %g is not a positive number", d->file, theta);
    b->rope_theta = (float)theta;
    b->rope_dims = rope_dims(d->a, set);
    b->rope_scaling = scaling;
    if (!arch_int(d->a, P_TEMPERATURE_NO_ROPE)) set_temperature(d->a, b, set);
    if (scaling != TFM_ROPE_PLAIN) {
        set_rope_scaling(b, set, &d->a->p);
        if (!(b->rope_factor > 0) && scaling != TFM_ROPE_STEPS)
            return tool_fail(d->err, TFM_ERR_FORMAT, "%s: rope scaling: factor %g is not positive", d->file,
                             (double)b->rope_factor);
    }
    if (d->a->rope_factors && scaling == TFM_ROPE_PLAIN) b->rope_scaling = TFM_ROPE_FACTORS;
    if (!d->a->rope_factors || b->rope_scaling == TFM_ROPE_FACTORS || scaling == TFM_ROPE_LONG) return TFM_OK;
    return tool_fail(d->err, TFM_ERR_UNSUPPORTED, "%s: RoPE scaling and a tensor of RoPE factors at once", d->file);
}

/* The RoPE of window layers, where it is another one. */
static const value_set *local_rope(const arch *a, value_set *buf) {
    if (!a->has_local && !a->p.given[P_ROPE_LOCAL_THETA] && !arch_int(a, P_ROPE_LOCAL_PLAIN)) return &a->p;
    memset(buf, 0, sizeof *buf);
    if (a->has_local) *buf = a->local;
    if (!buf->given[P_ROPE_THETA]) {
        param from = a->p.given[P_ROPE_LOCAL_THETA] ? P_ROPE_LOCAL_THETA : P_ROPE_THETA;
        buf->v[P_ROPE_THETA] = a->p.v[from];
        buf->given[P_ROPE_THETA] = a->p.given[from];
    }
    return buf;
}

/* ---- LAYERS ---------------------------------------------------------------------------------------------------- */

static int is_rope_layer(const arch *a, int64_t i);

/* Whether layer i is one of those that may have a window. */
static int is_window_layer(const arch *a, int64_t i) {
    if (a->window_layer) return a->window_layer[i];
    switch (arch_int(a, P_WINDOW_RULE)) {
    case WINDOW_ALL: return 1;
    case WINDOW_PERIOD: return (i + 1) % arch_int(a, P_WINDOW_PERIOD) != 0;
    case WINDOW_FROM: return i >= arch_int(a, P_WINDOW_FIRST);
    case WINDOW_EVEN_BELOW: return i % 2 == 0 && i < arch_int(a, P_WINDOW_FIRST);
    case WINDOW_WITH_ROPE: return is_rope_layer(a, i);
    default: return 0;
    }
}

static int window_size(const arch *a) {
    if (a->p.given[P_WINDOW_ON] && a->p.v[P_WINDOW_ON] == 0) return 0;
    return arch_int(a, P_WINDOW);
}

/* Whether layer i rotates its queries and keys. */
static int is_rope_layer(const arch *a, int64_t i) {
    if (a->rope_layer) return a->rope_layer[i];
    switch (arch_int(a, P_ROPE_LAYERS)) {
    case ROPE_IN_WINDOWS: return !window_size(a) || is_window_layer(a, i);
    case ROPE_IN_PERIOD: return (i + 1) % arch_int(a, P_ROPE_PERIOD) != 0;
    default: return 1;
    }
}

static float query_scale(const arch *a, int64_t layer) {
    double head_dim = arch_value(a, P_HEAD_DIM), scalar = head_dim;
    if (a->p.given[P_ATTN_SCALE]) return (float)a->p.v[P_ATTN_SCALE];
    if (arch_int(a, P_SCALE_BY_LAYER)) return (float)(1 / sqrt(head_dim) / (double)(layer + 1));
    if (a->p.given[P_QUERY_SCALAR]) scalar = a->p.v[P_QUERY_SCALAR];
    if (a->p.given[P_QUERY_WIDE_LAYERS] && arch_int(a, P_QUERY_WIDE_LAYERS) == arch_int(a, P_N_LAYERS))
        scalar = floor(arch_value(a, P_D_MODEL) / arch_value(a, P_N_HEADS));
    return scalar == head_dim || !(scalar > 0) ? 0 : inverse_sqrt(scalar);
}

/* What the layer sees of a pattern. */
static void set_mask(const arch *a, int64_t layer, tfm_block *b) {
    const int part = a->n_mask_layers ? a->mask_layers[layer % a->n_mask_layers] : TFM_PART_BOTH;
    if (!arch_int(a, P_MASK) || part == ARCH_DENSE) return;
    b->mask = arch_int(a, P_MASK);
    b->mask_part = part;
    b->mask_stride = arch_int(a, P_MASK_STRIDE);
    if (b->mask == TFM_MASK_FIXED && part != TFM_PART_NEAR) {
        b->mask_columns = a->p.given[P_MASK_COLUMNS] ? arch_int(a, P_MASK_COLUMNS) : 1;
        b->mask_groups = arch_int(a, P_MASK_GROUPS) > 1 ? arch_int(a, P_MASK_GROUPS) : 0;
    }
}

/* Whether layer i is a mixture of experts. */
static int is_moe_layer(const arch *a, int64_t i) {
    if (arch_int(a, P_N_EXPERTS) < 1) return 0;
    if (a->moe_list == P_MOE_LAYERS) return a->moe_layer[i];
    if (a->moe_list == P_DENSE_LAYERS && a->moe_layer[i]) return 0;
    const int last = a->p.given[P_MOE_LAST] ? arch_int(a, P_MOE_LAST) : -1;
    const int step = a->p.given[P_MOE_STEP] ? arch_int(a, P_MOE_STEP) : 1;
    return i >= arch_int(a, P_MOE_FIRST) && (last < 0 || i <= last) && step > 0 && (i + 1) % step == 0;
}

static void set_gating(tfm_block *b, int gating) {
    if (gating == 1) b->router_score = TFM_SCORE_SOFTMAX;
    if (gating == 2) b->router_score = TFM_SCORE_SIGMOID;
    if (gating == 3) {
        b->router_score = TFM_SCORE_LOGIT;
        b->router_weight = TFM_WEIGH_SOFTMAX;
    }
}

/* Whether q and k of layer i are normed, and how. */
static int qk_norm_of(const arch *a, int64_t i) {
    if (arch_int(a, P_QK_WITH_ROPE) && !is_rope_layer(a, i)) return TFM_QKNORM_NONE;
    if (a->p.given[P_QK_NOT_EXPERTS] && arch_int(a, P_QK_NOT_EXPERTS) == arch_int(a, P_N_EXPERTS))
        return TFM_QKNORM_NONE;
    return arch_int(a, P_QK_NORM);
}

static void describe_experts(const arch *a, tfm_block *b) {
    const int groups = arch_int(a, P_N_GROUPS);
    b->ffn_kind = TFM_FFN_EXPERTS;
    b->d_expert = arch_int(a, a->p.given[P_D_EXPERT] ? P_D_EXPERT : P_D_FF);
    b->d_ff = a->p.given[P_D_SHARED] ? arch_int(a, P_D_SHARED) : arch_int(a, P_N_SHARED) * b->d_expert;
    b->shared_gate = b->d_ff > 0 && arch_int(a, P_SHARED_GATE);
    b->n_experts = arch_int(a, P_N_EXPERTS);
    b->n_experts_used = arch_int(a, P_N_EXPERTS_USED);
    b->router_score = arch_int(a, P_ROUTER_SCORE);
    b->router_pick = arch_int(a, P_ROUTER_PICK);
    b->router_weight = arch_int(a, P_ROUTER_WEIGHT);
    set_gating(b, arch_int(a, P_ROUTER_GATING));
    b->router_norm = (float)arch_value(a, P_ROUTER_NORM);
    if (b->router_norm > 0) {
        b->router_norm_eps = (float)arch_value(a, P_ROUTER_NORM_EPS);
        b->router_norm_floor = (float)arch_value(a, P_ROUTER_NORM_FLOOR);
    }
    b->router_scale = (float)arch_value(a, P_ROUTER_SCALE);
    if (b->router_pick == TFM_PICK_SPARSE_MIXER) b->router_jitter = (float)arch_value(a, P_ROUTER_JITTER);
    b->router_on_input = arch_int(a, P_ROUTER_ON_INPUT);
    if (groups < 2 || arch_int(a, P_N_GROUPS_USED) == groups) return; /* one group, or all of them: no choice */
    b->n_groups = groups;
    b->n_groups_used = arch_int(a, P_N_GROUPS_USED);
    b->group_score = arch_int(a, P_GROUP_SCORE);
}

static int describe_block(const describer *d, int64_t layer, tfm_block *b) {
    const arch *a = d->a;
    value_set local;
    int in_window = is_window_layer(a, layer);
    memset(b, 0, sizeof *b);
    b->norm_kind = arch_int(a, P_NORM_KIND);
    b->norm_place = arch_int(a, P_NORM_PLACE);
    b->norm_eps = (float)arch_value(a, P_NORM_EPS);
    b->norm_offset = (float)arch_value(a, P_NORM_OFFSET);
    b->norm_no_weight = arch_int(a, P_NORM_NO_WEIGHT);
    b->residual = arch_int(a, P_RESIDUAL);
    b->residual_scale = (float)arch_value(a, P_RESIDUAL_SCALE);
    b->bias = arch_int(a, P_BIAS);
    b->n_heads = arch_int(a, P_N_HEADS);
    b->n_kv_heads = arch_int(a, P_N_KV_HEADS);
    b->head_dim = arch_int(a, P_HEAD_DIM);
    b->attn_scale = query_scale(a, layer);
    b->attn_softcap = (float)arch_value(a, P_ATTN_SOFTCAP);
    b->window = in_window ? window_size(a) : 0;
    if (b->window && arch_int(a, P_CHUNKED)) b->mask = TFM_MASK_CHUNKED;
    b->sinks = arch_int(a, P_SINKS);
    b->qk_norm = qk_norm_of(a, layer);
    if (b->qk_norm) {
        b->qk_norm_no_weight = arch_int(a, P_QK_NO_WEIGHT);
        b->qk_norm_kind = a->p.given[P_QK_NORM_KIND] ? arch_int(a, P_QK_NORM_KIND) : b->norm_kind;
        b->qk_norm_eps = a->p.given[P_QK_NORM_EPS] ? (float)arch_value(a, P_QK_NORM_EPS) : b->norm_eps;
        b->qk_norm_offset = b->norm_offset;
        b->qk_norm_late = arch_int(a, P_QK_AFTER_ROPE);
    }
    b->qkv_clamp = (float)arch_value(a, P_QKV_CLAMP);
    b->alibi = arch_int(a, P_ALIBI);
    b->log_ctx = arch_int(a, P_LOG_SCALE) ? arch_int(a, a->p.given[P_CTX_ORIG] ? P_CTX_ORIG : P_N_CTX) : 0;
    set_mask(a, layer, b);
    b->ffn_act = arch_int(a, P_ACT);
    b->ffn_gated = arch_int(a, P_GATED);
    if (!b->ffn_gated) b->bias &= ~TFM_BIAS_GATE;
    b->d_ff = arch_int(a, P_D_FF);
    b->ffn_limit = (float)arch_value(a, P_FFN_LIMIT);
    b->ffn_up_offset = (float)arch_value(a, P_UP_OFFSET);
    if (is_moe_layer(a, layer)) describe_experts(a, b);
    else b->bias &= ~(TFM_BIAS_ROUTER | TFM_BIAS_SELECT | TFM_BIAS_EXPERTS);
    const value_set *rope = in_window ? local_rope(a, &local) : &a->p;
    if (!is_rope_layer(a, layer)) {
        if (arch_int(a, P_TEMPERATURE_NO_ROPE)) set_temperature(a, b, rope);
        return TFM_OK;
    }
    b->rope_style = arch_int(a, P_ROPE_STYLE);
    return b->rope_style ? set_rope(d, b, rope) : TFM_OK;
}

/* Blocks are shared by equal layers. */
static int describe_layers(const describer *d, arena *mem, tfm_config *c) {
    tfm_block *blocks = arena_array(mem, MAX_BLOCKS, sizeof *blocks);
    uint8_t *layer_block = arena_array(mem, (size_t)c->n_layers, 1);
    if (!blocks || !layer_block) return tool_fail(d->err, TFM_ERR_MEMORY, "%s: out of memory", d->file);
    for (int32_t i = 0; i < c->n_layers; i++) {
        tfm_block b;
        int k = 0, code = describe_block(d, i, &b);
        if (code) return code;
        while (k < c->n_blocks && memcmp(&blocks[k], &b, sizeof b)) k++;
        if (k == MAX_BLOCKS)
            return tool_fail(d->err, TFM_ERR_UNSUPPORTED, "%s: more than %d kinds of layers", d->file, MAX_BLOCKS);
        if (k == c->n_blocks) blocks[c->n_blocks++] = b;
        layer_block[i] = (uint8_t)k;
    }
    c->blocks = blocks;
    c->layer_block = c->n_blocks > 1 ? layer_block : NULL;
    return TFM_OK;
}

/* ---- THE MODEL ------------------------------------------------------------------------------------------------- */

static int need_positive(const describer *d, param p, const char *what) {
    if (arch_value(d->a, p) >= 1) return TFM_OK;
    return tool_fail(d->err, TFM_ERR_FORMAT, "%s: %s is %.0f, expected at least 1", d->file, what, arch_value(d->a, p));
}

/* Sizes that follow from others where the checkpoint leaves them out. */
static int settle_sizes(const describer *d, arch *a) {
    static const struct { param p; const char *what; } sizes[] = {
        {P_N_LAYERS, "number of layers"}, {P_D_MODEL, "hidden size"}, {P_N_HEADS, "number of heads"},
        {P_D_FF, "feed-forward size"}, {P_N_CTX, "context length"}};
    if (arch_int(a, P_EXTRA_COUNTED) && arch_int(a, P_N_EXTRA_LAYERS) > 0)
        a->p.v[P_N_LAYERS] -= arch_value(a, P_N_EXTRA_LAYERS);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i].p == P_D_FF && a->p.given[P_D_FF] != GIVEN_FILE) { /* where the family lets it be absent */
            a->p.v[P_D_FF] = 4 * arch_value(a, P_D_MODEL);
            a->p.given[P_D_FF] = GIVEN_DEFAULT;
        }
        int code = need_positive(d, sizes[i].p, sizes[i].what);
        if (code) return code;
    }
    if (arch_int(a, P_N_LAYERS) > MAX_LAYERS)
        return tool_fail(d->err, TFM_ERR_UNSUPPORTED, "%s: %d layers, at most %d are supported", d->file,
                         arch_int(a, P_N_LAYERS), MAX_LAYERS);
    if (!a->p.given[P_N_KV_HEADS] || a->p.v[P_N_KV_HEADS] == -1) a->p.v[P_N_KV_HEADS] = a->p.v[P_N_HEADS];
    if (!a->p.given[P_HEAD_DIM]) {
        if (arch_int(a, P_D_MODEL) % arch_int(a, P_N_HEADS))
            return tool_fail(d->err, TFM_ERR_FORMAT, "%s: hidden size %d is no multiple of %d heads, and no head_dim",
                             d->file, arch_int(a, P_D_MODEL), arch_int(a, P_N_HEADS));
        a->p.v[P_HEAD_DIM] = (double)(arch_int(a, P_D_MODEL) / arch_int(a, P_N_HEADS));
    }
    a->p.given[P_N_KV_HEADS] = a->p.given[P_HEAD_DIM] = GIVEN_FILE;
    if (a->p.given[P_VALUE_DIM] && a->p.v[P_VALUE_DIM] != a->p.v[P_HEAD_DIM])
        return tool_fail(d->err, TFM_ERR_UNSUPPORTED, "%s: keys of %d and values of %d per head", d->file,
                         arch_int(a, P_HEAD_DIM), arch_int(a, P_VALUE_DIM));
    if (arch_int(a, P_N_KV_HEADS) < 1 || arch_int(a, P_N_HEADS) % arch_int(a, P_N_KV_HEADS))
        return tool_fail(d->err, TFM_ERR_FORMAT, "%s: %d heads do not divide among %d key/value heads", d->file,
                         arch_int(a, P_N_HEADS), arch_int(a, P_N_KV_HEADS));
    if (arch_int(a, P_WINDOW_RULE) == WINDOW_PERIOD && arch_int(a, P_WINDOW_PERIOD) < 1)
        return tool_fail(d->err, TFM_ERR_FORMAT, "%s: sliding window pattern %d, expected at least 1", d->file,
                         arch_int(a, P_WINDOW_PERIOD));
    if (arch_int(a, P_ROPE_LAYERS) == ROPE_IN_PERIOD && arch_int(a, P_ROPE_PERIOD) < 1)
        return tool_fail(d->err, TFM_ERR_FORMAT, "%s: interval of layers without RoPE %d, expected at least 1", d->file,
                         arch_int(a, P_ROPE_PERIOD));
    if (a->rope_layer && a->n_rope_listed != arch_int(a, P_N_LAYERS))
        return tool_fail(d->err, TFM_ERR_FORMAT, "%s: the list of layers with RoPE has %lld entries, the model %d "
                         "layers", d->file, (long long)a->n_rope_listed, arch_int(a, P_N_LAYERS));
    if (a->p.given[P_GLU_ALPHA] && fabs(a->p.v[P_GLU_ALPHA] - 1.702) > 1e-6)
        return tool_fail(d->err, TFM_ERR_UNSUPPORTED, "%s: swiglu_alpha %g, only 1.702 is built", d->file,
                         a->p.v[P_GLU_ALPHA]);
    if (arch_int(a, P_ROUTER_GATING) > 3)
        return tool_fail(d->err, TFM_ERR_UNSUPPORTED, "%s: expert_gating_func %d is not known", d->file,
                         arch_int(a, P_ROUTER_GATING));
    if (a->n_moe_listed && a->n_moe_listed != arch_int(a, P_N_LAYERS))
        return tool_fail(d->err, TFM_ERR_FORMAT, "%s: the list of dense and sparse layers has %lld entries, the model "
                         "%d layers", d->file, (long long)a->n_moe_listed, arch_int(a, P_N_LAYERS));
    if (a->window_layer && a->n_listed != arch_int(a, P_N_LAYERS))
        return tool_fail(d->err, TFM_ERR_FORMAT, "%s: layer_types has %lld entries, the model %d layers", d->file,
                         (long long)a->n_listed, arch_int(a, P_N_LAYERS));
    return TFM_OK;
}

static int check_eos(const describer *d, const tfm_config *c) {
    for (int i = -1; i < c->n_eos; i++) {
        const int32_t id = i < 0 ? c->bos : c->eos[i];
        const char *file = i < 0 ? d->a->bos_file : d->a->eos_file;
        if (id >= c->n_vocab)
            return tool_fail(d->err, TFM_ERR_FORMAT, "%s: %s token id %d, but the embedding has %d rows",
                             file ? file : d->file, i < 0 ? "bos" : "eos", (int)id, (int)c->n_vocab);
    }
    return TFM_OK;
}

int describe(const arch *given, const char *file, arena *mem, tfm_config *c, tfm_error *err) {
    arch a = *given;
    describer d = {&a, file, err};
    int code = settle_sizes(&d, &a);
    if (code) return code;
    memset(c, 0, sizeof *c);
    c->size = sizeof *c;
    c->n_layers = arch_int(&a, P_N_LAYERS);
    c->d_model = arch_int(&a, P_D_MODEL);
    c->n_vocab = arch_int(&a, P_N_VOCAB);
    c->n_ctx = arch_int(&a, P_N_CTX);
    c->embed_scale = arch_int(&a, P_EMBED_SQRT) ? (float)sqrt((double)c->d_model)
                                                : (float)arch_value(&a, P_EMBED_SCALE);
    c->d_embed = arch_int(&a, P_D_EMBED) != c->d_model ? arch_int(&a, P_D_EMBED) : 0;
    c->pos_kind = arch_int(&a, P_POS_KIND);
    c->pos_offset = arch_int(&a, P_POS_OFFSET);
    c->embed_norm = arch_int(&a, P_EMBED_NORM);
    c->norm_kind = arch_int(&a, P_OUT_NORM) && !arch_int(&a, P_OUT_NORM_DROPPED) ? arch_int(&a, P_NORM_KIND)
                                                                                 : TFM_NORM_NONE;
    c->norm_bias = c->norm_kind == TFM_NORM_LAYER && (arch_int(&a, P_BIAS) & TFM_BIAS_NORM);
    c->norm_no_weight = arch_int(&a, P_NORM_NO_WEIGHT);
    c->head_bias = arch_int(&a, P_HEAD_BIAS);
    c->logit_scale = (float)arch_value(&a, P_LOGIT_SCALE);
    if (a.p.given[P_LOGIT_DIVISOR] && a.p.v[P_LOGIT_DIVISOR] > 0) c->logit_scale = (float)(1 / a.p.v[P_LOGIT_DIVISOR]);
    c->norm_eps = (float)arch_value(&a, P_NORM_EPS);
    c->norm_offset = (float)arch_value(&a, P_NORM_OFFSET);
    c->tied = arch_int(&a, P_TIED);
    c->logit_softcap = (float)arch_value(&a, P_LOGIT_SOFTCAP);
    c->bos = a.p.given[P_BOS] ? arch_int(&a, P_BOS) : -1;
    c->n_eos = a.n_eos;
    memcpy(c->eos, a.eos, (size_t)a.n_eos * sizeof *a.eos);
    code = describe_layers(&d, mem, c);
    if (!code) code = check_eos(&d, c);
    if (code) return code;
    tfm_error why;
    code = tfm_config_check(c, &why);
    return code ? tool_fail(err, code, "%s: %s", file, why.msg) : TFM_OK;
}
