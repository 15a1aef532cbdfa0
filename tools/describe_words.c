/* describe_words.c - what each field of a description means, in words and in the order of computation. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "describe_words.h"

typedef struct words { char *buf; size_t size, n; } words;

static void add(words *w, const char *format, va_list args) {
    const size_t room = w->n < w->size ? w->size - w->n : 0;
    const int n = vsnprintf(room ? w->buf + w->n : NULL, room, format, args);
    w->n += n > 0 ? (size_t)n : 0;
}

static void more(words *w, const char *format, ...) TOOL_PRINTF(2, 3);
static void more(words *w, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add(w, format, args);
    va_end(args);
}

/* Begins a line of a layer; `what` may be empty where the line goes on with the one before. */
static void line(words *w, const char *what, const char *format, ...) TOOL_PRINTF(3, 4);
static void line(words *w, const char *what, const char *format, ...) {
    va_list args;
    more(w, "\n    %-22s", what);
    va_start(args, format);
    add(w, format, args);
    va_end(args);
}

static const char *value_name(const char *field, int32_t value) {
    const char *name = tfm_field_value_name(field, value);
    return name ? name : "?";
}

static int is_factor(float x) { return x != 0 && x != 1; }

/* ---- NORMS ----------------------------------------------------------------------------------------------------- */

typedef struct norm_words { int32_t kind; float eps, offset; int no_weight, bias; } norm_words;

static void add_norm(words *w, const char *what, const norm_words *n) {
    if (n->kind == TFM_NORM_NONE) return;
    line(w, what, "%s norm, eps %g", value_name("norm_kind", n->kind), (double)n->eps);
    if (n->no_weight) more(w, ", no weight");
    else if (n->offset != 0) more(w, ", weight %g + w", (double)n->offset);
    if (n->bias) more(w, ", bias");
}

static norm_words block_norm(const tfm_block *b) {
    const norm_words n = {b->norm_kind, b->norm_eps, b->norm_offset, b->norm_no_weight, b->bias & TFM_BIAS_NORM};
    return n;
}

static void add_qk_norm(words *w, const tfm_block *b) {
    const norm_words n = {b->qk_norm_kind, b->qk_norm_eps, b->qk_norm_offset, b->norm_no_weight || b->qk_norm_no_weight,
                          b->bias & TFM_BIAS_QK_NORM};
    char what[40];
    snprintf(what, sizeof what, "q, k %s", value_name("qk_norm", b->qk_norm));
    add_norm(w, what, &n);
}

/* ---- POSITIONS ------------------------------------------------------------------------------------------------- */

static void add_scaling(words *w, const tfm_block *b) {
    switch (b->rope_scaling) {
    case TFM_ROPE_PLAIN: return;
    case TFM_ROPE_LINEAR: more(w, ", frequencies / %g", (double)b->rope_factor); return;
    case TFM_ROPE_DYNAMIC:
        more(w, ", dynamic: theta grows past %d positions, factor %g", (int)b->rope_ctx_max, (double)b->rope_factor);
        return;
    case TFM_ROPE_STEPS: more(w, ", theta grows in steps past %d positions", (int)b->rope_ctx_max); return;
    case TFM_ROPE_FACTORS: more(w, ", frequencies / factors of the file"); return;
    case TFM_ROPE_BANDS:
        more(w, ", low frequencies / %g (bands %g to %g of %d positions)", (double)b->rope_factor, (double)b->rope_low,
             (double)b->rope_high, (int)b->rope_ctx_orig);
        return;
    default: break;
    }
    more(w, ", %s x %g from %d positions", value_name("rope_scaling", b->rope_scaling), (double)b->rope_factor,
         (int)b->rope_ctx_orig);
    if (b->rope_attn_factor != 0) more(w, ", cos and sin times %g", (double)b->rope_attn_factor);
    if (b->rope_scaling == TFM_ROPE_YARN) {
        line(w, "", "beta %g to %g", (double)b->rope_low, (double)b->rope_high);
        if (b->rope_no_truncate) more(w, ", not rounded");
    }
    if (b->rope_mscale != 0 || b->rope_mscale_all != 0)
        more(w, ", mscale %g / %g", (double)b->rope_mscale, (double)b->rope_mscale_all);
}

static void add_rope(words *w, const tfm_block *b) {
    const int32_t dims = b->rope_dims ? b->rope_dims : b->head_dim;
    if (b->rope_style == TFM_ROPE_NONE) return;
    line(w, "rotate q, k", "RoPE %s, theta %g", value_name("rope_style", b->rope_style), (double)b->rope_theta);
    if (dims < b->head_dim) more(w, ", %d of %d dimensions", (int)dims, (int)b->head_dim);
    add_scaling(w, b);
}

static void add_query_scale(words *w, const tfm_block *b) {
    if (b->temperature != 0)
        line(w, "temperature", "q times 1 + %g ln(1 + floor((position + %d) / %d))", (double)b->temperature,
             (int)b->temperature_offset, (int)b->temperature_ctx);
    if (b->log_ctx)
        line(w, "temperature", "q times ln(position + 1) / ln(%d) where that is above 1", (int)b->log_ctx);
}

/* ---- ATTENTION ------------------------------------------------------------------------------------------------- */

static void add_mask(words *w, const tfm_block *b) {
    more(w, "%s", value_name("mask", b->mask));
    if (b->mask == TFM_MASK_CHUNKED) more(w, ", chunks of %d", (int)b->window);
    else if (b->window) more(w, ", window %d", (int)b->window);
    if (b->mask < TFM_MASK_STRIDED) return;
    more(w, " by %d, %s", (int)b->mask_stride,
         b->mask_part == TFM_PART_HEADS ? "near and far heads in turn" : value_name("mask_part", b->mask_part));
    if (b->mask == TFM_MASK_FIXED && b->mask_part != TFM_PART_NEAR)
        more(w, ", last %d columns, %d groups of them", (int)b->mask_columns,
             (int)(b->mask_groups ? b->mask_groups : 1));
}

/* ", bias on q, k" of those of the linear maps that have one. */
static void add_biases(words *w, int32_t bias, const char *const *names, const int32_t *bits, int n) {
    int shown = 0;
    for (int i = 0; i < n; i++)
        if (bias & bits[i]) more(w, "%s%s", shown++ ? ", " : ", bias on ", names[i]);
}

static void add_attention(words *w, const tfm_block *b, int32_t d_model) {
    static const char *const names[] = {"q", "k", "v"};
    static const int32_t bits[] = {TFM_BIAS_Q, TFM_BIAS_K, TFM_BIAS_V};
    const double scale = b->attn_scale != 0 ? (double)b->attn_scale : 1 / sqrt((double)b->head_dim);
    line(w, "q, k, v", "%d -> %d heads, %d key-value head%s of %d", (int)d_model, (int)b->n_heads, (int)b->n_kv_heads,
         b->n_kv_heads == 1 ? "" : "s", (int)b->head_dim);
    add_biases(w, b->bias, names, bits, 3);
    if (b->qk_norm && !b->qk_norm_late) add_qk_norm(w, b);
    if (b->qkv_clamp != 0) line(w, "clamp q, k, v", "to +-%g", (double)b->qkv_clamp);
    add_rope(w, b);
    if (b->qk_norm && b->qk_norm_late) add_qk_norm(w, b);
    add_query_scale(w, b);
    line(w, b->attn_kind == TFM_ATTN_PLAIN ? "attention" : value_name("attn_kind", b->attn_kind), "%s", "");
    add_mask(w, b);
    more(w, ", scale %.6g", scale);
    if (b->attn_softcap != 0) more(w, ", soft-cap %g", (double)b->attn_softcap);
    if (b->alibi == TFM_ALIBI_SLOPES) more(w, ", plus slope x distance (ALiBi)");
    if (b->alibi == TFM_ALIBI_BF16) more(w, ", plus slope x position in bfloat16 (ALiBi)");
    if (b->sinks) more(w, ", a sink per head");
    line(w, "out", "%d -> %d%s", (int)(b->n_heads * b->head_dim), (int)d_model, b->bias & TFM_BIAS_O ? ", bias" : "");
}

/* ---- FEED-FORWARD ---------------------------------------------------------------------------------------------- */

static void add_width(words *w, const char *what, const tfm_block *b, int32_t d_model, int32_t width) {
    const char *act = value_name("ffn_act", b->ffn_act);
    line(w, what, "%d -> %d -> %d, ", (int)d_model, (int)width, (int)d_model);
    if (!b->ffn_gated) more(w, "down(%s(up x))", act);
    else if (b->ffn_up_offset == 0) more(w, "down(%s(gate x) * up x)", act);
    else more(w, "down(%s(gate x) * (up x + %g))", act, (double)b->ffn_up_offset);
    if (b->ffn_limit != 0) more(w, ", gate cut at %g, up at +-%g", (double)b->ffn_limit, (double)b->ffn_limit);
}

/* How experts are chosen ... */
static void add_router(words *w, const tfm_block *b) {
    line(w, "router", "scores = %s of x%s", value_name("router_score", b->router_score),
         b->bias & TFM_BIAS_ROUTER ? ", bias" : "");
    if (b->n_groups)
        more(w, "; %d of %d groups by their %s", (int)b->n_groups_used, (int)b->n_groups,
             b->group_score == TFM_GROUP_TWO ? "two largest" : "largest");
    more(w, "; the %d largest", (int)b->n_experts_used);
    if (b->router_pick == TFM_PICK_SPARSE_MIXER)
        more(w, " one by one (sparse mixer, jitter %g)", (double)b->router_jitter);
    if (b->bias & TFM_BIAS_SELECT) more(w, " of score + bias");
}

/* ... and weighed. */
static void add_weights(words *w, const tfm_block *b) {
    if (b->router_weight != TFM_WEIGH_SCORE)
        line(w, "", "weight = %s of their scores", value_name("router_weight", b->router_weight));
    else
        line(w, "", "weight = %s",
             b->router_pick == TFM_PICK_SPARSE_MIXER ? "softmax over those near the largest" : "score");
    if (b->router_norm == 1) more(w, ", divided by the sum");
    else if (b->router_norm != 0) more(w, ", divided by the L%g norm", (double)b->router_norm);
    if (b->router_norm != 0 && b->router_norm_eps != 0) more(w, " + %g", (double)b->router_norm_eps);
    if (b->router_norm != 0 && b->router_norm_floor != 0) more(w, " (at least %g)", (double)b->router_norm_floor);
    if (is_factor(b->router_scale)) more(w, ", times %g", (double)b->router_scale);
    if (b->router_on_input) more(w, "; it multiplies the expert's input");
}

static void add_feed_forward(words *w, const tfm_block *b, int32_t d_model) {
    static const char *const names[] = {"gate", "up", "down"};
    static const int32_t bits[] = {TFM_BIAS_GATE, TFM_BIAS_UP, TFM_BIAS_DOWN};
    char what[40];
    if (b->ffn_kind == TFM_FFN_EXPERTS) {
        snprintf(what, sizeof what, "%d of %d experts", (int)b->n_experts_used, (int)b->n_experts);
        add_router(w, b);
        add_weights(w, b);
        add_width(w, what, b, d_model, b->d_expert);
        if (b->bias & TFM_BIAS_EXPERTS) more(w, ", bias");
        if (!b->d_ff) return;
    }
    add_width(w, b->ffn_kind == TFM_FFN_EXPERTS ? "plus a shared one" : "feed-forward", b, d_model, b->d_ff);
    add_biases(w, b->bias, names, bits, 3);
    if (b->shared_gate) line(w, "", "times sigmoid(gate . x)");
}

/* ---- THE PATH -------------------------------------------------------------------------------------------------- */

static void add_sum(words *w, const tfm_block *b) {
    line(w, "", "x += branch");
    if (is_factor(b->residual_scale)) more(w, " * %g", (double)b->residual_scale);
}

/* One layer in the order of computation. */
static void add_block(words *w, const tfm_block *b, int32_t d_model) {
    const int stream = b->norm_place == TFM_PLACE_PRE_STREAM;
    const int before = b->norm_place == TFM_PLACE_PRE || b->norm_place == TFM_PLACE_SANDWICH || stream;
    const int inside = b->norm_place == TFM_PLACE_POST_BRANCH || b->norm_place == TFM_PLACE_SANDWICH;
    const int after = b->norm_place == TFM_PLACE_POST_ADD, parallel = b->residual != TFM_RESIDUAL_SEQUENTIAL;
    const norm_words norm = block_norm(b);
    for (int half = 0; half < 2; half++) {
        const int own_norm = half == 0 || b->residual != TFM_RESIDUAL_PARALLEL_1;
        if (before && own_norm) add_norm(w, stream ? "x becomes its norm" : "norm", &norm);
        if (half == 0) add_attention(w, b, d_model);
        else add_feed_forward(w, b, d_model);
        if (inside) add_norm(w, "norm of the branch", &norm);
        if (half == 1 || !parallel) add_sum(w, b);
        if (after) add_norm(w, "norm of the sum", &norm);
    }
    if (parallel) line(w, "", "attention and feed-forward read the same x");
}

/* "0-4, 6-10": the layers that are of a block. */
static void add_layers(words *w, const tfm_config *c, int block) {
    int32_t first = 0, shown = 0;
    for (int32_t i = 0; i <= c->n_layers; i++) {
        const int in = i < c->n_layers && (c->layer_block ? c->layer_block[i] : 0) == block;
        if (in) continue;
        if (i - first == 1) more(w, "%s%d", shown++ ? ", " : "", (int)first);
        else if (i > first) more(w, "%s%d-%d", shown++ ? ", " : "", (int)first, (int)(i - 1));
        first = i + 1;
    }
}

static void add_end(words *w, const tfm_config *c, const norm_words *norm) {
    if (c->norm_kind) {
        more(w, "\n  end");
        add_norm(w, "norm", norm);
    }
    if (c->d_embed) more(w, "\n  projection            %d -> %d", (int)c->d_model, (int)c->d_embed);
    more(w, "\n  logits                %d -> %d, %s", (int)(c->d_embed ? c->d_embed : c->d_model), (int)c->n_vocab,
         c->tied ? "the embedding's own matrix" : "a matrix of their own");
    if (c->head_bias) more(w, ", bias");
    if (is_factor(c->logit_scale)) more(w, ", times %g", (double)c->logit_scale);
    if (c->logit_softcap != 0) more(w, ", soft-cap %g", (double)c->logit_softcap);
    if (c->bos >= 0 || c->n_eos) more(w, "\n  ids                  ");
    if (c->bos >= 0) more(w, " begin %d%s", (int)c->bos, c->n_eos ? "," : "");
    for (int i = 0; i < c->n_eos; i++) more(w, "%s%d", i ? ", " : " end ", (int)c->eos[i]);
    more(w, "\n");
}

size_t describe_words(const tfm_config *c, char *buf, size_t size) {
    words w = {buf, size, 0};
    const norm_words norm = {c->norm_kind, c->norm_eps, c->norm_offset, c->norm_no_weight, c->norm_bias};
    more(&w, "the path of a token, at most %d of them", (int)c->n_ctx);
    more(&w, "\n  embedding             %d x %d", (int)c->n_vocab, (int)(c->d_embed ? c->d_embed : c->d_model));
    if (is_factor(c->embed_scale)) more(&w, ", times %g", (double)c->embed_scale);
    if (c->d_embed) more(&w, ", projected to %d", (int)c->d_model);
    if (c->pos_kind) more(&w, ", plus %s positions", value_name("pos_kind", c->pos_kind));
    if (c->pos_kind && c->pos_offset) more(&w, " from row %d on", (int)c->pos_offset);
    if (c->embed_norm) add_norm(&w, "norm", &norm);
    for (int i = 0; i < c->n_blocks; i++) {
        more(&w, "\n  layers ");
        add_layers(&w, c, i);
        add_block(&w, &c->blocks[i], c->d_model);
    }
    add_end(&w, c, &norm);
    return w.n;
}
