/* write_gguf.c - description to keys, roles to names, tiles to blocks.
 *
 * For each family with a GGUF architecture (the one that the provenance names goes first) the head of a file is
 * made: keys from the family's rules, tensors from its names. It is then opened as any GGUF file is; what comes out
 * is either the description that went in, or the next family is tried. The plan of that reading also says where each
 * row belongs.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_out.h"
#include "plan.h"
#include "tokenizer_back.h"
#include "write_gguf.h"

typedef struct job {
    const tfm_model *model;
    const char *file;
    tfm_config wanted;      /* the description, as far as folding changes nothing */
    tfm_block *blocks;      /* of wanted */
    tfm_weight *weights;    /* of the model, by layer, role and expert */
    int64_t n_weights;
    float fold;             /* added to the weights of norms */
    int as_pairs;           /* RoPE of pairs: rows stand as pairs already */
    const family *family;
    gguf_out out;
    unsigned char *head;
    size_t n_head;
    source src;             /* the head, and zeros where the data will be */
    checkpoint c;
    plan p;
    arena *mem;
    const convert_options *options;
    tfm_error *err;
} job;

/* ---- FROM THE DESCRIPTION TO VALUES ---------------------------------------------------------------------------- */

/* Values that are fields: of the model, of the layers that see everything, of layers that rotate q and k, of those that
 * are mixtures of experts. */
enum { OF_MODEL, OF_BLOCK, OF_ROPE, OF_MIXTURE };
static const struct { unsigned char param, of; const char *field; } value_fields[] = {
    {P_N_LAYERS, OF_MODEL, "n_layers"}, {P_D_MODEL, OF_MODEL, "d_model"}, {P_N_VOCAB, OF_MODEL, "n_vocab"},
    {P_N_CTX, OF_MODEL, "n_ctx"}, {P_EMBED_SCALE, OF_MODEL, "embed_scale"}, {P_LOGIT_SCALE, OF_MODEL, "logit_scale"},
    {P_LOGIT_SOFTCAP, OF_MODEL, "logit_softcap"}, {P_POS_KIND, OF_MODEL, "pos_kind"},
    {P_POS_OFFSET, OF_MODEL, "pos_offset"}, {P_EMBED_NORM, OF_MODEL, "embed_norm"}, {P_NORM_EPS, OF_BLOCK, "norm_eps"},
    {P_NORM_KIND, OF_BLOCK, "norm_kind"}, {P_NORM_PLACE, OF_BLOCK, "norm_place"}, {P_RESIDUAL, OF_BLOCK, "residual"},
    {P_RESIDUAL_SCALE, OF_BLOCK, "residual_scale"}, {P_N_HEADS, OF_BLOCK, "n_heads"},
    {P_N_KV_HEADS, OF_BLOCK, "n_kv_heads"}, {P_HEAD_DIM, OF_BLOCK, "head_dim"}, {P_VALUE_DIM, OF_BLOCK, "head_dim"},
    {P_ATTN_SCALE, OF_BLOCK, "attn_scale"}, {P_ATTN_SOFTCAP, OF_BLOCK, "attn_softcap"},
    {P_QKV_CLAMP, OF_BLOCK, "qkv_clamp"}, {P_QK_NORM, OF_BLOCK, "qk_norm"}, {P_ACT, OF_BLOCK, "ffn_act"},
    {P_ROPE_DIMS, OF_ROPE, "rope_dims"}, {P_ROPE_THETA, OF_ROPE, "rope_theta"}, {P_ROPE_STYLE, OF_ROPE, "rope_style"},
    {P_ROPE_SCALING, OF_ROPE, "rope_scaling"}, {P_ROPE_FACTOR, OF_ROPE, "rope_factor"},
    {P_ROPE_CTX_ORIG, OF_ROPE, "rope_ctx_orig"}, {P_ROPE_SLOW, OF_ROPE, "rope_low"},
    {P_ROPE_FAST, OF_ROPE, "rope_high"}, {P_ROPE_ATTN_FACTOR, OF_ROPE, "rope_attn_factor"},
    {P_ROPE_MSCALE, OF_ROPE, "rope_mscale"}, {P_ROPE_MSCALE_ALL, OF_ROPE, "rope_mscale_all"},
    {P_TEMPERATURE, OF_ROPE, "temperature"}, {P_N_EXPERTS, OF_MIXTURE, "n_experts"},
    {P_N_EXPERTS_USED, OF_MIXTURE, "n_experts_used"}, {P_D_EXPERT, OF_MIXTURE, "d_expert"},
    {P_ROUTER_NORM, OF_MIXTURE, "router_norm"}, {P_ROUTER_SCALE, OF_MIXTURE, "router_scale"},
    {P_N_GROUPS, OF_MIXTURE, "n_groups"}, {P_N_GROUPS_USED, OF_MIXTURE, "n_groups_used"}};

static double field_value(const void *base, const tfm_field *fields, int n, const char *name) {
    for (int i = 0; i < n; i++) {
        const char *at = (const char *)base + fields[i].offset;
        int32_t whole;
        float real;
        if (strcmp(fields[i].name, name)) continue;
        memcpy(&whole, at, sizeof whole);
        memcpy(&real, at, sizeof real);
        return fields[i].kind == 2 ? (double)real : (double)whole;
    }
    return 0;
}

static const tfm_block *block_of(const tfm_config *c, int32_t layer) {
    return &c->blocks[c->layer_block ? c->layer_block[layer] : 0];
}

/* The first layer with a window, or without; -1: there is none. */
static int32_t first_layer(const tfm_config *c, int window) {
    for (int32_t i = 0; i < c->n_layers; i++)
        if ((block_of(c, i)->window != 0) == window) return i;
    return -1;
}

/* Every how many layers one has no window; 0: there is no such number. */
static int32_t window_period(const tfm_config *c) {
    for (int32_t period = 1; period <= c->n_layers + 1; period++) {
        int32_t i = 0;
        while (i < c->n_layers && (block_of(c, i)->window != 0) == ((i + 1) % period != 0)) i++;
        if (i == c->n_layers) return period;
    }
    return 0;
}

static void give(value_set *set, param p, double value) {
    set->v[p] = value;
    set->given[p] = value != 0 ? GIVEN_FILE : 0;
}

/* The block of the first layer that rotates, one without a window if there is such a layer; else of the first. */
static const tfm_block *rope_block(const tfm_config *c) {
    const tfm_block *found = NULL;
    for (int32_t i = 0; i < c->n_layers; i++) {
        const tfm_block *b = block_of(c, i);
        if (b->rope_style && (!found || (found->window && !b->window))) found = b;
    }
    return found ? found : block_of(c, 0);
}

/* The first layer that is a mixture of experts, or is none; NULL: there is no such layer. */
static const tfm_block *first_mixture(const tfm_config *c, int mixture) {
    for (int32_t i = 0; i < c->n_layers; i++)
        if ((block_of(c, i)->n_experts != 0) == mixture) return block_of(c, i);
    return NULL;
}

/* GGUF's number for how scores become probabilities and weights; 0: it has none. */
static int gating_of(const tfm_block *b) {
    if (b->router_score == TFM_SCORE_LOGIT) return b->router_weight == TFM_WEIGH_SOFTMAX ? 3 : 0;
    return b->router_weight == TFM_WEIGH_SOFTMAX ? 0 : b->router_score == TFM_SCORE_SIGMOID ? 2 : 1;
}

/* Widths of feed-forwards: of dense layers, of shared experts, of which there may be several side by side. */
static void values_of_widths(const tfm_config *c, value_set *set) {
    const tfm_block *mixture = first_mixture(c, 1), *dense = first_mixture(c, 0);
    give(set, P_D_FF, dense ? dense->d_ff : mixture->d_expert);
    if (!mixture) return;
    give(set, P_D_SHARED, mixture->d_ff);
    if (mixture->d_ff % mixture->d_expert == 0) give(set, P_N_SHARED, mixture->d_ff / mixture->d_expert);
    give(set, P_ROUTER_GATING, gating_of(mixture));
}

/* Whether those layers are mixtures that are not before `first` and whose number, from 1 on, `step` divides. */
static int are_mixtures(const tfm_config *c, int32_t first, int32_t step) {
    int32_t i = 0;
    while (i < c->n_layers && (block_of(c, i)->n_experts != 0) == (i >= first && (i + 1) % step == 0)) i++;
    return i == c->n_layers;
}

/* Which layers are mixtures, where a rule can say it; steps: whether the family knows any but 1. */
static void values_of_places(const tfm_config *c, int steps, value_set *set) {
    if (!first_mixture(c, 1)) return;
    for (int32_t first = 0; first < c->n_layers; first++)
        for (int32_t step = 1; step <= (steps ? c->n_layers : 1); step++) {
            if (!are_mixtures(c, first, step)) continue;
            give(set, P_MOE_FIRST, first);
            give(set, P_MOE_STEP, step);
            return;
        }
}

static void values_of(const tfm_config *c, value_set *set) {
    int n_config, n_block;
    const tfm_field *of_config = tfm_config_fields(&n_config), *of_block = tfm_block_fields(&n_block);
    const int32_t full = first_layer(c, 0), local = first_layer(c, 1);
    const tfm_block *b = block_of(c, full < 0 ? 0 : full), *w = local < 0 ? NULL : block_of(c, local);
    const tfm_block *rope = rope_block(c), *mixture = first_mixture(c, 1);
    const tfm_block *blocks[] = {NULL, b, rope, mixture ? mixture : b};
    memset(set, 0, sizeof *set);
    for (size_t i = 0; i < sizeof value_fields / sizeof *value_fields; i++) {
        const tfm_block *of = blocks[value_fields[i].of];
        const char *field = value_fields[i].field;
        give(set, (param)value_fields[i].param, of ? field_value(of, of_block, n_block, field)
                                                   : field_value(c, of_config, n_config, field));
    }
    values_of_widths(c, set);
    if (!rope->rope_dims && rope->rope_style) give(set, P_ROPE_DIMS, rope->head_dim);
    if (c->logit_scale != 0) give(set, P_LOGIT_DIVISOR, 1 / (double)c->logit_scale);
    if (rope->rope_scaling == TFM_ROPE_FACTORS) give(set, P_ROPE_SCALING, TFM_ROPE_PLAIN); /* a tensor says it */
    if (!w) return;
    give(set, P_LAYER_TYPES, 1);
    give(set, P_WINDOW, w->window);
    give(set, P_WINDOW_PERIOD, full < 0 ? 0 : window_period(c));
    give(set, P_ROPE_LOCAL_THETA, (double)w->rope_theta);
}

/* ---- FROM VALUES TO KEYS --------------------------------------------------------------------------------------- */

/* The rule of this table that is in force, and the last that says its value. */
static int is_in_force(const family *f, const rule *table, const rule *r) {
    if (!r->key || r->param == P_NONE || family_rule(f, FORM_GGUF, r->key, 0) != r) return 0;
    for (const rule *later = r + 1; later->key || later->kind == RULE_FIXED; later++)
        if (later->key && later->param == r->param) return 0;
    return table != NULL;
}

static void put_rule(job *j, const char *key, const rule *r, const value_set *set) {
    const double value = set->v[r->param];
    switch (r->kind) {
    case RULE_INT:
        if (value >= 0 && value <= INT32_MAX) gguf_put_u32(&j->out, key, (uint32_t)value);
        break;
    case RULE_REAL: gguf_put_f32(&j->out, key, (float)value); break;
    case RULE_BOOL: gguf_put_bool(&j->out, key, value != 0); break;
    case RULE_BITS: gguf_put_bool(&j->out, key, ((int)value & (int)r->value) != 0); break;
    case RULE_NAME:
        for (const named_value *n = r->names; n->name; n++) {
            if (n->value != (int)value) continue;
            if (!strcmp(n->name, "true") || !strcmp(n->name, "false")) gguf_put_bool(&j->out, key, n->name[0] == 't');
            else gguf_put_text(&j->out, key, n->name);
            break;
        }
        break;
    default:
        if (r->param != P_LAYER_TYPES) break;
        gguf_put_array(&j->out, key, GGUF_BOOL, (uint64_t)j->wanted.n_layers);
        for (int32_t i = 0; i < j->wanted.n_layers; i++) gguf_add_bool(&j->out, block_of(&j->wanted, i)->window != 0);
        break;
    }
}

/* Keys whose value is not 0, or whose absence would mean something else. */
static void put_keys(job *j, const char *arch_name, const value_set *set) {
    char key[160];
    for (const family *f = j->family; f; f = family_base(f))
        for (const rule *r = f->form[FORM_GGUF].rules; r && (r->key || r->kind == RULE_FIXED); r++) {
            if (!is_in_force(j->family, f->form[FORM_GGUF].rules, r)) continue;
            if (!set->given[r->param] && !(r->flags & (RULE_REQUIRED | RULE_DEFAULT))) continue;
            snprintf(key, sizeof key, "%s%s", arch_name, r->key);
            put_rule(j, key, r, set);
        }
}

/* ---- THE MODEL'S WEIGHTS --------------------------------------------------------------------------------------- */

static int by_identity(const void *a, const void *b) {
    const tfm_weight *x = a, *y = b;
    if (x->layer != y->layer) return x->layer < y->layer ? -1 : 1;
    if (x->role != y->role) return x->role < y->role ? -1 : 1;
    return x->expert < y->expert ? -1 : x->expert > y->expert;
}

/* The block whose frequencies are scaled in bands; NULL: there is none. */
static const tfm_block *bands_block(const tfm_config *c) {
    for (int i = 0; i < c->n_blocks; i++)
        if (c->blocks[i].rope_style && c->blocks[i].rope_scaling == TFM_ROPE_BANDS) return &c->blocks[i];
    return NULL;
}

/* What GGUF has for frequencies scaled in bands: a divisor for each of them. */
static int add_rope_factors(job *j, const tfm_block *b) {
    const int dims = b->rope_dims ? b->rope_dims : b->head_dim;
    float *plain = arena_array(j->mem, (size_t)dims, sizeof *plain), *factors = plain ? plain + dims / 2 : NULL, mscale;
    tfm_rope_params p;
    tfm_weight w;
    if (!plain) return tool_fail(j->err, TFM_ERR_MEMORY, "%s: out of memory", j->file);
    memset(&p, 0, sizeof p);
    p.dims = dims;
    p.theta = b->rope_theta;
    tfm_rope_freqs(&p, 0, plain, &mscale);
    p.scaling = b->rope_scaling;
    p.factor = b->rope_factor;
    p.low = b->rope_low;
    p.high = b->rope_high;
    p.ctx_orig = b->rope_ctx_orig;
    tfm_rope_freqs(&p, 0, factors, &mscale);
    for (int i = 0; i < dims / 2; i++) factors[i] = plain[i] / factors[i];
    memset(&w, 0, sizeof w);
    w.stack = TFM_STACK_DECODER;
    w.layer = w.expert = -1;
    w.role = TFM_ROLE_ROPE_FACTORS;
    w.t.data = factors;
    w.t.type = TFM_F32;
    w.t.layout = TFM_ROWS;
    w.t.rows = 1;
    w.t.cols = dims / 2;
    j->weights[j->n_weights++] = w;
    return TFM_OK;
}

static int list_weights(job *j) {
    const tfm_block *bands = bands_block(tfm_model_config_of(j->model));
    j->n_weights = tfm_model_weight_count(j->model);
    j->weights = arena_array(j->mem, (size_t)j->n_weights + 1, sizeof *j->weights);
    if (!j->weights) return tool_fail(j->err, TFM_ERR_MEMORY, "%s: out of memory", j->file);
    for (int64_t i = 0; i < j->n_weights; i++) tfm_model_weight(j->model, i, &j->weights[i]);
    const int code = bands ? add_rope_factors(j, bands) : TFM_OK;
    if (code) return code;
    qsort(j->weights, (size_t)j->n_weights, sizeof *j->weights, by_identity);
    return TFM_OK;
}

/* The model's tensor of an identity; NULL: it has none. */
static const tfm_tensor *tensor_of(const job *j, const tfm_weight *w) {
    const tfm_weight *found = bsearch(w, j->weights, (size_t)j->n_weights, sizeof *found, by_identity);
    return found ? &found->t : NULL;
}

/* ---- TENSORS --------------------------------------------------------------------------------------------------- */

/* Whether q, k and v of a layer have one type, so that they can be one tensor. */
static int have_one_type(const job *j, int layer) {
    const int32_t q = tfm_model_tensor(j->model, layer, TFM_ROLE_Q).type;
    return q == tfm_model_tensor(j->model, layer, TFM_ROLE_K).type &&
           q == tfm_model_tensor(j->model, layer, TFM_ROLE_V).type;
}

/* The name that a role has in this family: of divisors of RoPE there are two kinds, and beside experts that of a
 * feed-forward is that of the shared expert. */
static const name_row *name_of(const job *j, const tfm_weight *w) {
    const int is_long = w->role == TFM_ROLE_ROPE_FACTORS && j->wanted.blocks[0].rope_scaling == TFM_ROPE_LONG;
    const name_row *n = family_name(j->family, FORM_GGUF, w->role, is_long ? 1 : 0);
    if (w->layer >= 0 && block_of(&j->wanted, w->layer)->n_experts)
        for (int i = 0; (n = family_name(j->family, FORM_GGUF, w->role, i)) != NULL; i++)
            if (strstr(n->pattern, "_shexp")) return n;
    if (n && n->take >= TAKE_ALL_Q && n->take <= TAKE_ALL_V && !have_one_type(j, w->layer))
        for (int i = 0; (n = family_name(j->family, FORM_GGUF, w->role, i)) != NULL; i++)
            if (n->take == TAKE_ROWS) return n;
    return n ? n : family_name(j->family, FORM_GGUF, w->role, 0);
}

/* Whether a tensor of this name is declared already: a fused one is met a few roles ago. */
static int is_declared(const char *const *names, int64_t n, const char *name) {
    enum { ROLES_OF_A_TENSOR = 16 };
    for (int64_t i = n < ROLES_OF_A_TENSOR ? 0 : n - ROLES_OF_A_TENSOR; i < n; i++)
        if (!strcmp(names[i], name)) return 1;
    return 0;
}

/* xIELU's four values of each layer are lists of the metadata. */
static int put_activations(job *j) {
    static const char *const keys[] = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"};
    if (block_of(&j->wanted, 0)->ffn_act != TFM_ACT_XIELU) return TFM_OK;
    for (int k = 0; k < 4; k++) {
        gguf_put_array(&j->out, keys[k], GGUF_F32, (uint64_t)j->wanted.n_layers);
        for (int32_t i = 0; i < j->wanted.n_layers; i++) {
            const tfm_tensor t = tfm_model_tensor(j->model, i, TFM_ROLE_ACT);
            if (!t.data || t.cols != 4)
                return tool_fail(j->err, TFM_ERR_UNSUPPORTED, "%s: layer %d has another activation", j->file, (int)i);
            gguf_add_f32(&j->out, ((const float *)t.data)[k]);
        }
    }
    return TFM_OK;
}

/* Tensors that GGUF has in its metadata, or that whoever reads it computes. */
static int is_no_tensor(const job *j, int role) {
    value_set set;
    if (role != TFM_ROLE_HEAD_B) return role == TFM_ROLE_ACT || role == TFM_ROLE_SLOPES;
    memset(&set, 0, sizeof set);
    family_defaults(j->family, FORM_GGUF, &set);
    return set.v[P_LOGITS_OFF_END] > 0;
}

/* The dimensions of a tensor, innermost first; returns how many. Norms of q and k for each head are a matrix. */
static int shape_of(const job *j, const tfm_weight *w, const row_slice *s, int64_t dims[3]) {
    const tfm_block *b = block_of(&j->wanted, w->layer < 0 ? 0 : w->layer);
    const int of_norm = w->role == TFM_ROLE_Q_NORM || w->role == TFM_ROLE_K_NORM || w->role == TFM_ROLE_Q_NORM_B ||
                        w->role == TFM_ROLE_K_NORM_B;
    int n = 0;
    if (w->t.rows == 1 && of_norm && b->qk_norm == TFM_QKNORM_HEADS) {
        dims[n++] = b->head_dim;
        dims[n++] = s->total / b->head_dim;
        return n;
    }
    if (w->t.rows > 1) dims[n++] = w->t.cols;
    dims[n++] = s->total;
    if (s->experts) dims[n++] = s->experts;
    return n;
}

/* Several roles may share a tensor: it is declared with the first of them. */
static int put_tensor(job *j, const tfm_weight *w, const char **names, int64_t *n) {
    char own[64], name[128];
    const name_row *row = name_of(j, w);
    tfm_weight_name(w->stack, w->layer, w->role, w->expert, own, sizeof own);
    const int vector = w->t.rows == 1;
    if (is_no_tensor(j, w->role)) return TFM_OK;
    if (!row || w->stack != TFM_STACK_DECODER || (w->expert >= 0 && !(row->take & TAKE_EXPERTS)))
        return tool_fail(j->err, TFM_ERR_UNSUPPORTED, "%s: tensor %s: the GGUF architecture of %s has no such part",
                         j->file, own, j->family->name);
    family_format(row->pattern, "", w->layer, w->expert, name, sizeof name);
    if (is_declared(names, *n, name)) return TFM_OK;
    names[*n] = arena_strdup(j->mem, name);
    if (!names[*n]) return tool_fail(j->err, TFM_ERR_MEMORY, "%s: out of memory", j->file);
    ++*n;
    const int64_t rows = vector ? w->t.cols : w->t.rows;
    const row_slice s = plan_slice(&j->wanted, w->layer, w->expert, row->take, rows, vector ? 1 : w->t.cols);
    const tfm_type_info *type = tfm_type_get(w->t.type);
    int64_t dims[3];
    const int n_dims = shape_of(j, w, &s, dims);
    uint64_t bytes = (uint64_t)(dims[0] / type->block) * (uint64_t)type->block_bytes;
    for (int i = 1; i < n_dims; i++) bytes *= (uint64_t)dims[i]; /* no more than the tiles, which fit in memory */
    gguf_put_tensor(&j->out, name, (uint32_t)w->t.type, dims, n_dims, bytes);
    return TFM_OK;
}

static int put_tensors(job *j) {
    const char **names = arena_array(j->mem, (size_t)j->n_weights + 1, sizeof *names);
    int64_t n_names = 0;
    int code = names ? TFM_OK : tool_fail(j->err, TFM_ERR_MEMORY, "%s: out of memory", j->file);
    for (int64_t i = 0; !code && i < j->n_weights; i++) code = put_tensor(j, &j->weights[i], names, &n_names);
    return code;
}

/* ---- READING IT BACK ------------------------------------------------------------------------------------------- */

static int read_head(void *user, uint64_t offset, void *buf, size_t n) {
    const job *j = user;
    const size_t have = offset < j->n_head ? j->n_head - (size_t)offset : 0, head = have < n ? have : n;
    if (head) memcpy(buf, j->head + offset, head);
    memset((char *)buf + head, 0, n - head);
    return 0;
}

static void no_warning(void *user, const char *line) { (void)user, (void)line; }

/* The name of the first field in which two descriptions differ, with both values; NULL: none. */
static const char *differing(const job *j, const void *a, const void *b, const tfm_field *fields, int n) {
    for (int i = 0; i < n; i++) {
        const char *x = (const char *)a + fields[i].offset, *y = (const char *)b + fields[i].offset;
        if (!memcmp(x, y, 4 * (size_t)fields[i].count)) continue;
        return arena_printf(j->mem, "%s is %g, and would be read as %g", fields[i].name,
                            field_value(a, fields, n, fields[i].name), field_value(b, fields, n, fields[i].name));
    }
    return NULL;
}

static int compare_descriptions(const job *j) {
    int n;
    const tfm_field *fields = tfm_config_fields(&n);
    const tfm_config *want = &j->wanted, *got = &j->p.config;
    const char *why = differing(j, want, got, fields, n);
    fields = tfm_block_fields(&n);
    for (int32_t i = 0; !why && i < want->n_layers; i++)
        why = differing(j, block_of(want, i), block_of(got, i), fields, n);
    if (!why) return TFM_OK;
    return tool_fail(j->err, TFM_ERR_UNSUPPORTED, "%s: no GGUF architecture says this model: as %s, %s", j->file,
                     j->family->name, why);
}

static int compare_tensors(const job *j) {
    for (int64_t i = 0; i < j->p.n; i++) {
        const tfm_weight *w = &j->p.weights[i];
        const tfm_tensor *t = tensor_of(j, w);
        const void *made = j->p.items[i].from->data; /* from the metadata, not from the file's data */
        const int same = t && t->type == w->t.type && t->rows == w->t.rows && t->cols == w->t.cols;
        if (same && (!made || !memcmp(made, t->data, (size_t)t->cols * sizeof(float)))) continue;
        return tool_fail(j->err, TFM_ERR_UNSUPPORTED, "%s: tensor %s: parts of different types, sizes or values",
                         j->file, j->p.items[i].from->name);
    }
    if (j->p.n == j->n_weights) return TFM_OK;
    return tool_fail(j->err, TFM_ERR_UNSUPPORTED, "%s: a tensor has no place in GGUF", j->file);
}

static int read_back(job *j) {
    static const convert_options quiet = {.warn = no_warning};
    j->head = gguf_out_head(&j->out, j->mem, &j->n_head);
    if (!j->head) return tool_fail(j->err, TFM_ERR_MEMORY, "%s: out of memory", j->file);
    const source src = {j, j->file, j->n_head + j->out.data_bytes, read_head};
    j->src = src;
    memset(&j->c, 0, sizeof j->c);
    j->c.mem = j->mem;
    j->c.options = &quiet;
    int code = checkpoint_open_gguf(&j->c, &j->src, j->err);
    if (!code) code = make_plan(&j->c, &j->p, j->err);
    if (!code) code = compare_descriptions(j);
    return code ? code : compare_tensors(j);
}

/* ---- WHICH FAMILY ---------------------------------------------------------------------------------------------- */

/* The first of the names that GGUF has for a family (past what tells it from others of that name); NULL: none. */
static const char *gguf_name(const family *f, char *buf, size_t size) {
    const char *names = f->form[FORM_GGUF].names_of, *condition = names ? strstr(names, "= ") : NULL;
    if (!names) return NULL;
    if (condition) names = condition + 2;
    snprintf(buf, size, "%.*s", (int)strcspn(names, " "), names);
    return buf;
}

/* llama.cpp's number for a file whose matrices are mostly of a type. */
static uint32_t file_type(const tfm_model *model) {
    static const struct { int32_t type; uint32_t number; } numbers[] = {
        {TFM_F32, 0}, {TFM_F16, 1}, {TFM_Q4_0, 2}, {TFM_Q4_1, 3}, {TFM_Q8_0, 7}, {TFM_Q5_0, 8}, {TFM_Q5_1, 9},
        {TFM_Q2_K, 10}, {TFM_Q3_K, 12}, {TFM_Q4_K, 15}, {TFM_Q5_K, 17}, {TFM_Q6_K, 18}, {TFM_IQ4_NL, 25},
        {TFM_IQ4_XS, 30}, {TFM_BF16, 32}, {TFM_MXFP4, 38}};
    enum { N = sizeof numbers / sizeof *numbers };
    double elements[N] = {0};
    tfm_weight w;
    int most = 0;
    for (int64_t i = 0; tfm_model_weight(model, i, &w); i++)
        for (int k = 0; w.t.rows > 1 && k < N; k++)
            if (numbers[k].type == w.t.type) elements[k] += (double)w.t.rows * (double)w.t.cols;
    for (int k = 1; k < N; k++)
        if (elements[k] > elements[most]) most = k;
    return numbers[most].number;
}

/* Frequencies scaled in bands become divisors, if all layers that rotate have the same. */
static int want_factors(const job *j, tfm_block *b) {
    const tfm_block *bands = bands_block(tfm_model_config_of(j->model));
    if (!bands || !b->rope_style) return TFM_OK;
    if (b->rope_scaling != bands->rope_scaling || b->rope_theta != bands->rope_theta ||
        b->rope_factor != bands->rope_factor || b->rope_low != bands->rope_low || b->rope_high != bands->rope_high ||
        b->rope_ctx_orig != bands->rope_ctx_orig)
        return tool_fail(j->err, TFM_ERR_UNSUPPORTED, "%s: rope_scaling: no GGUF architecture has it in some layers "
                         "alone", j->file);
    b->rope_scaling = TFM_ROPE_FACTORS;
    b->rope_factor = b->rope_low = b->rope_high = 0;
    b->rope_ctx_orig = 0;
    return TFM_OK;
}

/* The description with everything in it that is said otherwise in GGUF: norms have their 1 folded in, frequencies are
 * scaled by divisors, and where the family keeps the rows of q and k as pairs, RoPE of pairs is RoPE of halves. */
static int want(job *j) {
    const tfm_config *c = tfm_model_config_of(j->model);
    const name_row *q = family_name(j->family, FORM_GGUF, TFM_ROLE_Q, 0);
    const int pairs = q && q->take == TAKE_PAIRS_Q;
    j->wanted = *c;
    j->wanted.norm_offset = 0;
    j->fold = c->norm_offset;
    j->as_pairs = 0;
    for (int i = 0; i < c->n_blocks; i++) {
        tfm_block *b = &j->blocks[i];
        *b = c->blocks[i];
        if (b->norm_offset != j->fold || (b->qk_norm && b->qk_norm_offset != j->fold))
            return tool_fail(j->err, TFM_ERR_UNSUPPORTED, "%s: norm_offset differs from norm to norm", j->file);
        b->norm_offset = b->qk_norm_offset = 0;
        const int code = want_factors(j, b);
        if (code) return code;
        if (!pairs || b->rope_style != TFM_ROPE_INTERLEAVED) continue;
        b->rope_style = TFM_ROPE_HALF;
        j->as_pairs = 1;
    }
    j->wanted.blocks = j->blocks;
    return TFM_OK;
}

/* The head as this family says it, without the tokenizer, and what comes out of it. */
static int try_family(job *j, const family *f) {
    char arch_name[64];
    value_set set;
    gguf_out_free(&j->out);
    j->family = f;
    gguf_name(f, arch_name, sizeof arch_name);
    int code = want(j);
    if (code) return code;
    values_of(&j->wanted, &set);
    values_of_places(&j->wanted, family_rule(f, FORM_GGUF, ".interleave_moe_layer_step", 0) != NULL, &set);
    gguf_put_text(&j->out, "general.architecture", arch_name);
    gguf_put_u32(&j->out, "general.file_type", file_type(j->model));
    gguf_put_u32(&j->out, "general.quantization_version", 2);
    put_keys(j, arch_name, &set);
    code = tokenizer_put_ids(&j->out, j->file, &j->wanted, j->err);
    if (!code) code = put_activations(j);
    if (!code) code = put_tensors(j);
    return code ? code : read_back(j);
}

/* The family that the provenance names; NULL: none, or GGUF has no name for it. */
static const family *provenance_family(const tfm_model *model) {
    size_t n;
    char buf[64];
    const char *text = tfm_model_section(model, TFM_SECTION_PROVENANCE, &n);
    for (int i = 0; family_at(i); i++) {
        const family *f = family_at(i);
        char line[96];
        const int length = snprintf(line, sizeof line, "\nfamily %s\n", f->name);
        for (size_t at = 0; text && gguf_name(f, buf, sizeof buf) && at + (size_t)length <= n; at++)
            if (!memcmp(text + at, line, (size_t)length)) return f;
    }
    return NULL;
}

/* The first family whose words say the model. If none does, the error is that of the first one tried. */
static int find_family(job *j) {
    const family *first = provenance_family(j->model);
    char buf[64];
    tfm_error why = {0}, *err = j->err;
    int code = first ? try_family(j, first) : TFM_ERR_UNSUPPORTED, tried = first != NULL;
    if (code && first) why = *err;
    for (int i = 0; code && family_at(i); i++) {
        const family *f = family_at(i);
        if (f == first || !gguf_name(f, buf, sizeof buf)) continue;
        code = try_family(j, f);
        if (code && !tried++) why = *err;
    }
    if (code) *err = why;
    return code;
}

/* ---- DATA ------------------------------------------------------------------------------------------------------ */

/* Where row (or element) i of a tensor of the file comes from. */
typedef struct row_origin { int64_t item, row; } row_origin;

static int is_norm(int role) {
    static const int norms[] = {TFM_ROLE_OUT_NORM, TFM_ROLE_ATTN_NORM, TFM_ROLE_FFN_NORM, TFM_ROLE_ATTN_POST_NORM,
                                TFM_ROLE_FFN_POST_NORM, TFM_ROLE_Q_NORM, TFM_ROLE_K_NORM, TFM_ROLE_EMBED_NORM};
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        if (norms[i] == role) return 1;
    return 0;
}

/* The plan read the other way round. */
static int find_origins(const job *j, const ckpt_tensor *t, row_origin *origin, int64_t n) {
    for (int64_t i = 0; i < n; i++) origin[i].item = -1;
    for (int64_t i = 0; i < j->p.n; i++) {
        row_slice s = j->p.items[i].slice;
        const tfm_weight *w = &j->p.weights[i];
        if (j->p.items[i].from != t) continue;
        if (j->as_pairs) s.pair_heads = 0;
        const int64_t rows = w->t.rows == 1 ? w->t.cols : w->t.rows;
        for (int64_t r = 0; r < rows; r++) {
            const int64_t at = s.part + plan_source_row(&s, r);
            if (at < 0 || at >= n) continue;
            origin[at].item = i;
            origin[at].row = r;
        }
    }
    for (int64_t i = 0; i < n; i++)
        if (origin[i].item < 0)
            return tool_fail(j->err, TFM_ERR_UNSUPPORTED, "%s: tensor %s: a part of it is missing", j->file, t->name);
    return TFM_OK;
}

static void advance(const job *j, uint64_t done) {
    if (j->options->progress) j->options->progress(j->options->user, done, j->out.data_bytes);
}

/* Element by element, as norms have something to add. */
static int write_vector(const job *j, int64_t n, const row_origin *origin, uint64_t at, sink *out) {
    float *values = malloc((size_t)n * sizeof *values);
    int code = values ? TFM_OK : tool_fail(j->err, TFM_ERR_MEMORY, "%s: out of memory", j->file);
    for (int64_t i = 0; !code && i < n; i++) {
        const tfm_weight *w = &j->p.weights[origin[i].item];
        memcpy(&values[i], (const float *)tensor_of(j, w)->data + origin[i].row, sizeof *values);
        if (is_norm(w->role)) values[i] += j->fold;
    }
    if (!code) file_order(TFM_F32, values, n);
    if (!code) code = sink_write(out, at, values, (size_t)n * sizeof *values, j->err);
    free(values);
    return code;
}

static int write_matrix(const job *j, const ckpt_tensor *t, const row_origin *origin, uint64_t at, sink *out) {
    enum { CHUNK = 1 << 20 };
    const size_t row_bytes = (size_t)t->row_bytes, step = CHUNK / row_bytes + 1;
    unsigned char *rows = malloc(step * row_bytes);
    int code = rows ? TFM_OK : tool_fail(j->err, TFM_ERR_MEMORY, "%s: out of memory", j->file);
    for (int64_t r = 0; !code && r < t->rows; r += (int64_t)step) {
        const int64_t n = t->rows - r < (int64_t)step ? t->rows - r : (int64_t)step;
        for (int64_t i = 0; i < n; i++) {
            const tfm_weight *w = &j->p.weights[origin[r + i].item];
            tfm_source_row(tensor_of(j, w), origin[r + i].row, rows + (size_t)i * row_bytes);
        }
        file_order(t->type, rows, n * t->cols);
        code = sink_write(out, at + (uint64_t)r * row_bytes, rows, (size_t)n * row_bytes, j->err);
        advance(j, at - j->n_head + (uint64_t)(r + n) * row_bytes);
    }
    free(rows);
    return code;
}

/* Whether a tensor holds vectors of the model: of experts, one after the other. */
static int is_vector(const job *j, const ckpt_tensor *t) {
    for (int64_t i = 0; i < j->p.n; i++)
        if (j->p.items[i].from == t) return j->p.weights[i].t.rows == 1;
    return 0;
}

static int write_tensor(const job *j, const ckpt_tensor *t, uint64_t at, sink *out) {
    static const unsigned char zeros[GGUF_OUT_ALIGNMENT];
    const int vector = is_vector(j, t);
    const int64_t n = vector ? t->rows * t->cols : t->rows;
    const uint64_t end = at + (uint64_t)t->rows * t->row_bytes;
    row_origin *origin = malloc((size_t)n * sizeof *origin + 1);
    int code = origin ? find_origins(j, t, origin, n) : tool_fail(j->err, TFM_ERR_MEMORY, "%s: out of memory", j->file);
    if (!code) code = vector ? write_vector(j, n, origin, at, out) : write_matrix(j, t, origin, at, out);
    free(origin);
    const size_t rest = (size_t)(end % GGUF_OUT_ALIGNMENT);
    return code || !rest ? code : sink_write(out, end, zeros, GGUF_OUT_ALIGNMENT - rest, j->err);
}

static int put_chat(job *j) {
    const tfm_chat *chat = tfm_model_chat(j->model);
    size_t n = 0;
    const char *text = chat ? tfm_chat_template(chat, &n) : NULL;
    if (!text) return TFM_OK;
    text = arena_strndup(j->mem, text, n);
    if (!text) return tool_fail(j->err, TFM_ERR_MEMORY, "%s: out of memory", j->file);
    gguf_put_text(&j->out, "tokenizer.chat_template", text);
    return TFM_OK;
}

/* A variable that the template uses and the file does not give it: it gives beginning and end of text. NULL: none. */
static const char *lost_variable(const job *j, const tfm_chat *chat) {
    const char *name, *value;
    size_t n = 0;
    const char *text = chat ? tfm_chat_template(chat, &n) : NULL;
    text = text ? arena_strndup(j->mem, text, n) : NULL;
    for (int32_t i = 0; text && (name = tfm_chat_variable(chat, i, &value)) != NULL; i++)
        if (strcmp(name, "bos_token") && strcmp(name, "eos_token") && strstr(text, name)) return name;
    return NULL;
}

/* One line about what the file does not hold of the model, or holds in other words. */
static void tell_loss(job *j, const char *of_tokenizer) {
    size_t n;
    const int scaled = bands_block(tfm_model_config_of(j->model)) != NULL;
    const char *origin = tfm_model_section(j->model, TFM_SECTION_PROVENANCE, &n);
    const void *selftest = tfm_model_section(j->model, TFM_SECTION_SELFTEST, &n);
    const tfm_chat *chat = tfm_model_chat(j->model);
    const char *lost = lost_variable(j, chat);
    const char *no_template = chat && !tfm_chat_template(chat, &n) ? ", the chat format" : "";
    checkpoint_warn(&j->c, "%s: the GGUF file lacks name, author and licence, which a .tfm does not hold"
                    "%s%s%s%s%s%s%s%s%s", j->file,
                    origin ? ", the provenance" : "", selftest ? ", the self-test" : "", no_template,
                    lost ? ", what the chat template calls " : "", lost ? lost : "",
                    j->fold != 0 ? "; 1 is added to weights of norms, which rounds" : "",
                    scaled ? "; divisors of frequencies stand for rope_scaling" : "", of_tokenizer ? "; " : "",
                    of_tokenizer ? of_tokenizer : "");
}

static int write_file(job *j, sink *out) {
    const char *warning = NULL;
    int code = list_weights(j);
    if (!code) code = find_family(j);
    if (!code) code = tokenizer_to_gguf(&j->out, j->file, j->model, j->wanted.n_vocab, j->mem, &warning, j->err);
    if (!code) code = put_chat(j);
    if (!code) code = read_back(j);
    if (code) return code;
    j->c.options = j->options;
    tell_loss(j, warning);
    code = sink_write(out, 0, j->head, j->n_head, j->err);
    uint64_t at = j->n_head;
    for (size_t i = 0; !code && i < j->c.n_tensors; i++) {
        const ckpt_tensor *t = &j->c.tensors[i];
        if (t->data) continue;
        code = write_tensor(j, t, at, out);
        at += ((uint64_t)t->rows * t->row_bytes + GGUF_OUT_ALIGNMENT - 1) / GGUF_OUT_ALIGNMENT * GGUF_OUT_ALIGNMENT;
    }
    return code;
}

int write_gguf(const tfm_model *model, const char *file, sink *out, const convert_options *options, tfm_error *err) {
    arena mem = {NULL, 0, 0, 0};
    job *j = arena_alloc(&mem, sizeof *j);
    const tfm_config *c = tfm_model_config_of(model);
    int code = TFM_OK;
    if (!c || !c->n_layers) code = tool_fail(err, TFM_ERR_ARG, "%s: holds a tokenizer alone", file);
    if (!code && (!j || !(j->blocks = arena_array(&mem, (size_t)c->n_blocks, sizeof *j->blocks))))
        code = tool_fail(err, TFM_ERR_MEMORY, "%s: out of memory", file);
    if (!code) {
        j->model = model;
        j->file = file;
        j->mem = &mem;
        j->options = options;
        j->err = err;
        code = write_file(j, out);
        gguf_out_free(&j->out);
    }
    arena_free(&mem);
    return code;
}
