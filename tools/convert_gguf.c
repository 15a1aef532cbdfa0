/* convert_gguf.c - a GGUF file as a checkpoint, alone or in parts "...-00001-of-00003.gguf", of which the first has the
 * metadata and all have tensors. */
#include <string.h>

#include "checkpoint.h"

static int in_names(const rule *r, const char *name, double *value) {
    for (const named_value *n = r->names; n->name; n++) {
        if (strcmp(n->name, name)) continue;
        *value = n->value;
        return 1;
    }
    return 0;
}

/* A number; an array stands for one number if all its elements are equal. */
static int read_number(const gguf *g, const gguf_kv *kv, double *value, tfm_error *err) {
    if (kv->type != GGUF_ARRAY) return gguf_real(g, kv->key, value, err);
    const gguf_kv *array;
    int code = gguf_real_array(g, kv->key, &array, err);
    if (code) return code;
    if (!array->count) return tool_fail(err, TFM_ERR_FORMAT, "%s: %s is empty", g->src.name, kv->key);
    *value = gguf_real_at(array, 0);
    for (size_t i = 1; i < array->count; i++)
        if (gguf_real_at(array, i) != *value)
            return tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: %s differs from layer to layer", g->src.name, kv->key);
    return TFM_OK;
}

static int read_value(const gguf *g, const gguf_kv *kv, const rule *r, double *value, tfm_error *err) {
    const char *text;
    int flag, code;
    switch (r->kind) {
    case RULE_INT: {
        int64_t n;
        if (kv->type == GGUF_ARRAY) return read_number(g, kv, value, err);
        code = gguf_int(g, kv->key, &n, err);
        *value = code ? 0 : (double)n;
        return code;
    }
    case RULE_REAL:
        return read_number(g, kv, value, err);
    case RULE_NAME:
        if (kv->type == GGUF_BOOL) {
            code = gguf_bool(g, kv->key, &flag, err);
            text = flag ? "true" : "false";
        } else {
            code = gguf_str(g, kv->key, &text, err);
        }
        if (!code && !in_names(r, text, value))
            code = tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: %s \"%s\" is not known", g->src.name, kv->key, text);
        return code;
    default:
        code = gguf_bool(g, kv->key, &flag, err);
        *value = code ? 0 : flag;
        return code;
    }
}

/* Which layers have the window: a flag for each. */
static int read_layer_types(checkpoint *c, const gguf *g, const gguf_kv *kv, tfm_error *err) {
    const size_t n = kv->type == GGUF_ARRAY ? kv->count : 1;
    int *flags = arena_array(c->mem, n, sizeof *flags);
    c->arch.window_layer = arena_array(c->mem, n, 1);
    c->arch.n_listed = (int64_t)n;
    if (!flags || !c->arch.window_layer) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    int code = gguf_bools(g, kv->key, flags, n, err);
    for (size_t i = 0; !code && i < n; i++) c->arch.window_layer[i] = flags[i] != 0;
    return code;
}

/* Keys that say nothing: zero, an empty string, an empty list. A false may switch off what we would do. */
static int says_nothing(const gguf *g, const gguf_kv *kv) {
    int64_t n;
    if (kv->type == GGUF_ARRAY) return kv->count == 0;
    if (kv->type == GGUF_STRING) return kv->u.strings[0].length == 0;
    return kv->type != GGUF_BOOL && kv->type != GGUF_F32 && kv->type != GGUF_F64 &&
           !gguf_int(g, kv->key, &n, NULL) && n == 0;
}

/* All keys that begin with the architecture's name. */
static int read_keys(checkpoint *c, const gguf *g, const char *arch_name, tfm_error *err) {
    size_t n = strlen(arch_name);
    char where[320];
    for (size_t i = 0; i < g->n_kv; i++) {
        const gguf_kv *kv = &g->kv[i];
        double value = 0;
        int code = TFM_OK;
        if (strncmp(kv->key, arch_name, n) || kv->key[n] != '.') continue;
        const rule *r = family_rule(c->family, FORM_GGUF, kv->key + n, 0);
        snprintf(where, sizeof where, "%s: %s", c->file, kv->key);
        if (!r && !says_nothing(g, kv)) code = checkpoint_unknown(c, where, kv->key, err);
        if (!r || r->param == P_NONE) {
            if (code) return code;
            continue;
        }
        if (r->kind == RULE_SPECIAL) {
            if ((code = read_layer_types(c, g, kv, err)) != TFM_OK) return code;
            continue;
        }
        for (int k = 0; !code && (r = family_rule(c->family, FORM_GGUF, kv->key + n, k)) != NULL; k++) {
            code = read_value(g, kv, r, &value, err);
            if (!code) code = checkpoint_value(&c->arch.p, r, value, where, err);
        }
        if (code) return code;
    }
    const char *missing = family_missing(c->family, FORM_GGUF, &c->arch.p);
    if (missing) return tool_fail(err, TFM_ERR_FORMAT, "%s: %s%s is missing", c->file, arch_name, missing);
    return TFM_OK;
}

/* Which norms q and k have: one weight for all heads, one for each, or one over the whole width. */
static int qk_norm_of(const checkpoint *c) {
    const ckpt_tensor *norm = checkpoint_role(c, TFM_ROLE_Q_NORM, 0, NULL);
    const ckpt_tensor *q = checkpoint_role(c, TFM_ROLE_Q, 0, NULL);
    const int heads = arch_int(&c->arch, P_N_HEADS);
    if (!norm || !q) return TFM_QKNORM_NONE;
    if (norm->rows > 1) return TFM_QKNORM_HEADS;
    return heads > 1 && norm->cols == q->rows ? TFM_QKNORM_FULL : TFM_QKNORM_HEAD;
}

static void set_value(checkpoint *c, param p, double value) {
    c->arch.p.v[p] = value;
    c->arch.p.given[p] = GIVEN_FILE;
}

/* No key announces biases, norms of q and k, or divisors of the RoPE frequencies: their tensors do. */
static void read_parts(checkpoint *c) {
    static const struct { int role, bit; } biases[] = {
        {TFM_ROLE_ATTN_NORM_B, TFM_BIAS_NORM}, {TFM_ROLE_Q_NORM_B, TFM_BIAS_QK_NORM},
        {TFM_ROLE_Q_B, TFM_BIAS_Q}, {TFM_ROLE_K_B, TFM_BIAS_K}, {TFM_ROLE_V_B, TFM_BIAS_V}, {TFM_ROLE_O_B, TFM_BIAS_O},
        {TFM_ROLE_GATE_B, TFM_BIAS_GATE}, {TFM_ROLE_UP_B, TFM_BIAS_UP}, {TFM_ROLE_DOWN_B, TFM_BIAS_DOWN},
        {TFM_ROLE_ROUTER_B, TFM_BIAS_ROUTER},
        {TFM_ROLE_ROUTER_SELECT_B, TFM_BIAS_SELECT}, {TFM_ROLE_EXPERT_DOWN_B, TFM_BIAS_EXPERTS}};
    const int layers = arch_int(&c->arch, P_N_LAYERS);
    int bits = 0;
    for (size_t i = 0; i < sizeof biases / sizeof *biases; i++)
        for (int layer = 0; layer < layers && layer < ARCH_MAX_LAYERS; layer++)
            if (checkpoint_role(c, biases[i].role, layer, NULL)) bits |= biases[i].bit;
    set_value(c, P_BIAS, bits);
    set_value(c, P_HEAD_BIAS, checkpoint_role(c, TFM_ROLE_HEAD_B, -1, NULL) != NULL);
    if (!c->arch.p.given[P_QK_NORM]) set_value(c, P_QK_NORM, qk_norm_of(c));
    if (c->arch.p.given[P_ALIBI_LAYERS] && arch_int(&c->arch, P_ALIBI_LAYERS) == arch_int(&c->arch, P_N_LAYERS)) {
        set_value(c, P_ALIBI, TFM_ALIBI_SLOPES);
        set_value(c, P_ROPE_STYLE, TFM_ROPE_NONE);
    }
    c->arch.rope_factors = checkpoint_role(c, TFM_ROLE_ROPE_FACTORS, -1, NULL) != NULL;
    if (!checkpoint_role(c, TFM_ROLE_ROPE_FACTORS_LONG, -1, NULL)) return;
    c->arch.p.given[P_ROPE_SHORT] = c->arch.p.given[P_ROPE_LONG] = GIVEN_FILE;
    set_value(c, P_ROPE_SCALING, TFM_ROPE_LONG);
}

/* A layer with a router is a mixture of experts. */
static int read_routers(checkpoint *c, tfm_error *err) {
    if (arch_int(&c->arch, P_N_EXPERTS) < 1) return TFM_OK;
    c->arch.moe_layer = arena_array(c->mem, ARCH_MAX_LAYERS, 1);
    if (!c->arch.moe_layer) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    c->arch.moe_list = P_MOE_LAYERS;
    for (int i = 0; i < ARCH_MAX_LAYERS; i++)
        c->arch.moe_layer[i] = checkpoint_role(c, TFM_ROLE_ROUTER, i, NULL) != NULL;
    return TFM_OK;
}

/* xIELU's four values of each layer, which stand in four lists over all layers, as a tensor a layer. */
static int add_xielu(checkpoint *c, const gguf *g, tfm_error *err) {
    static const char *const keys[] = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"};
    const int layers = arch_int(&c->arch, P_N_LAYERS);
    if (arch_int(&c->arch, P_ACT) != TFM_ACT_XIELU || layers < 1 || layers > 4096) return TFM_OK;
    float *values = arena_array(c->mem, 4 * (size_t)layers, sizeof *values);
    if (!values) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    for (int k = 0; k < 4; k++) {
        const gguf_kv *list;
        int code = gguf_real_array(g, keys[k], &list, err);
        if (code) return code;
        if (list->count != (size_t)layers)
            return tool_fail(err, TFM_ERR_FORMAT, "%s: %s has %zu values for %d layers", c->file, keys[k], list->count,
                             layers);
        for (int i = 0; i < layers; i++) values[4 * i + k] = (float)gguf_real_at(list, (size_t)i);
    }
    for (int i = 0; i < layers; i++) {
        const char *name = arena_printf(c->mem, "blk.%d.xielu", i);
        int code = name ? checkpoint_add_floats(c, name, values + 4 * i, 4, err) : TFM_ERR_MEMORY;
        if (code) return code;
    }
    return TFM_OK;
}

/* Ids that the family never lets come next, if the vocabulary has them all. */
static int add_logits_off(checkpoint *c, tfm_error *err) {
    const int first = arch_int(&c->arch, P_LOGITS_OFF_FIRST), n = arch_int(&c->arch, P_LOGITS_OFF_END) - first;
    const ckpt_tensor *embed = checkpoint_role(c, TFM_ROLE_EMBED, -1, NULL);
    if (n < 1 || !embed || embed->rows < first + n) return TFM_OK;
    int64_t *ids = arena_array(c->mem, (size_t)n, sizeof *ids);
    if (!ids) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    for (int i = 0; i < n; i++) ids[i] = first + i;
    return checkpoint_add_logits_off(c, "output.bias", embed->rows, ids, n, err);
}

static int read_tokens(checkpoint *c, const gguf *g, tfm_error *err) {
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    int64_t id;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        int code = gguf_int_or(g, ends[i], -1, &id, err);
        if (code) return code;
        if (id < -1 || id > INT32_MAX)
            return tool_fail(err, TFM_ERR_FORMAT, "%s: %s is out of range", c->file, ends[i]);
        if (id >= 0) arch_add_eos(&c->arch, id);
    }
    int code = gguf_int_or(g, "tokenizer.ggml.bos_token_id", -1, &id, err);
    if (code || id < 0) return code;
    if (id > INT32_MAX)
        return tool_fail(err, TFM_ERR_FORMAT, "%s: tokenizer.ggml.bos_token_id is out of range", c->file);
    c->arch.p.v[P_BOS] = (double)id;
    c->arch.p.given[P_BOS] = GIVEN_FILE;
    return TFM_OK;
}

typedef struct gguf_reader {
    gguf *parts;
    int n_parts;            /* as many as are open */
    size_t *first;          /* [n_parts]: of a part's tensors in the checkpoint */
    int64_t n_tensors;      /* of all parts, as the first says; -1: it does not */
    const source_dir *dir;  /* to close all but the first with */
} gguf_reader;

static int add_tensor(checkpoint *c, const gguf *part, const gguf_tensor *from, tfm_error *err) {
    ckpt_tensor t;
    memset(&t, 0, sizeof t);
    t.name = from->name;
    t.type = from->type->supported && tfm_type_get((int32_t)from->type->id) ? (int32_t)from->type->id : -1;
    t.type_name = from->type->name;
    t.n_dims = from->n_dims;
    for (int k = 0; k < from->n_dims; k++) t.dims[k] = from->dims[from->n_dims - 1 - k];
    t.index = c->n_tensors;
    if (checkpoint_find(c, t.name))
        return tool_fail(err, TFM_ERR_FORMAT, "%s: tensor %s stands in an earlier part, too", part->src.name, t.name);
    return checkpoint_add(c, &t, err);
}

static int add_tensors(checkpoint *c, gguf_reader *r, tfm_error *err) {
    const int layers = arch_int(&c->arch, P_N_LAYERS);
    /* add_xielu, checkpoint_add_slopes, add_logits_off */
    size_t n = 0, made = layers > 0 && layers <= 4096 ? (size_t)layers + 2 : 2;
    for (int k = 0; k < r->n_parts; k++) n += r->parts[k].n_tensors;
    int code = checkpoint_room(c, n + made, err);
    for (int k = 0; !code && k < r->n_parts; k++) {
        const gguf *part = &r->parts[k];
        r->first[k] = c->n_tensors;
        for (size_t i = 0; !code && i < part->n_tensors; i++) code = add_tensor(c, part, &part->tensors[i], err);
    }
    if (!code && r->n_tensors >= 0 && n != (uint64_t)r->n_tensors)
        return tool_fail(err, TFM_ERR_FORMAT, "%s: split.tensors.count is %lld, but the parts hold %zu tensors",
                         c->file, (long long)r->n_tensors, n);
    return code;
}

static int read_gguf_rows(const checkpoint *c, const ckpt_tensor *t, int64_t first, int64_t n, void *buf,
                          tfm_error *err) {
    const gguf_reader *r = c->reader;
    int k = r->n_parts - 1;
    while (k > 0 && t->index < r->first[k]) k--;
    const gguf *g = &r->parts[k];
    const int code = gguf_read_rows(g, &g->tensors[t->index - r->first[k]], (uint64_t)first, (size_t)n, buf, err);
    if (!code) file_order(t->type, buf, n * t->cols);
    return code;
}

/* ---- PARTS ----------------------------------------------------------------------------------------------------- */

enum { MAX_PARTS = 99999 };

/* The keys that every part has: how many there are, which one this is, and the tensors of all. */
typedef struct split_keys { int64_t count, no, n_tensors; } split_keys;

static int read_split(const gguf *g, split_keys *s, tfm_error *err) {
    int code = gguf_int_or(g, "split.count", 1, &s->count, err);
    if (!code) code = gguf_int_or(g, "split.no", 0, &s->no, err);
    if (!code) code = gguf_int_or(g, "split.tensors.count", -1, &s->n_tensors, err);
    if (code) return code;
    if (s->count < 0 || s->count > MAX_PARTS)
        return tool_fail(err, TFM_ERR_FORMAT, "%s: split.count is %lld", g->src.name, (long long)s->count);
    if (!s->count) s->count = 1;
    return TFM_OK;
}

/* The name of part `no`, counted from 0, beside the first: the number in its name is changed. NULL: it has none. */
static const char *part_name(const checkpoint *c, const char *first, int64_t no, int64_t count) {
    const char *slash = strrchr(first, '/'), *name = slash ? slash + 1 : first;
    const char *tail = arena_printf(c->mem, "-00001-of-%05d.gguf", (int)count);
    size_t n = strlen(name), cut = tail ? strlen(tail) : 0;
    if (!tail || n <= cut || strcmp(name + n - cut, tail)) return NULL;
    return arena_printf(c->mem, "%.*s-%05d-of-%05d.gguf", (int)(n - cut), name, (int)no + 1, (int)count);
}

static int open_part(checkpoint *c, gguf_reader *r, const char *name, int64_t no, const split_keys *whole,
                     tfm_error *err) {
    gguf *g = &r->parts[no];
    source src;
    split_keys own;
    int code = r->dir->open(r->dir->user, name, &src, err);
    if (code > 0)
        return tool_fail(err, TFM_ERR_IO, "%s: part %s is missing", r->parts[0].src.name, name);
    if (code) return code;
    g->src = src; /* to be closed, whatever happens */
    r->n_parts = (int)no + 1;
    code = gguf_open(g, &src, c->mem, err);
    if (!code) code = read_split(g, &own, err);
    if (code) return code;
    if (own.count != whole->count || own.n_tensors != whole->n_tensors)
        return tool_fail(err, TFM_ERR_FORMAT, "%s: is a part of another model (split.count %lld, split.tensors.count "
                         "%lld; the first part says %lld and %lld)", src.name, (long long)own.count,
                         (long long)own.n_tensors, (long long)whole->count, (long long)whole->n_tensors);
    if (own.no != no)
        return tool_fail(err, TFM_ERR_FORMAT, "%s: split.no is %lld, but its name says part %lld", src.name,
                         (long long)own.no + 1, (long long)no + 1);
    return TFM_OK;
}

static int open_parts(checkpoint *c, gguf_reader *r, tfm_error *err) {
    split_keys s = {1, 0, -1};
    const char *first = r->parts[0].src.name;
    int code = read_split(&r->parts[0], &s, err);
    if (code) return code;
    if (s.no != 0)
        return tool_fail(err, TFM_ERR_ARG, "%s: is part %lld of %lld, give the first", first, (long long)s.no + 1,
                         (long long)s.count);
    gguf *parts = arena_array(c->mem, (size_t)s.count, sizeof *parts);
    r->first = arena_array(c->mem, (size_t)s.count, sizeof *r->first);
    if (!parts || !r->first) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    parts[0] = r->parts[0];
    r->parts = parts;
    if (s.count > 1 && !r->dir)
        return tool_fail(err, TFM_ERR_UNSUPPORTED,
                         "%s: split.count: one of %lld parts, and the others are not at hand", first,
                         (long long)s.count);
    for (int64_t no = 1; no < s.count; no++) {
        const char *name = part_name(c, first, no, s.count);
        if (!name)
            return tool_fail(err, TFM_ERR_FORMAT, "%s: is the first of %lld parts, but its name does not end in "
                             "-00001-of-%05lld.gguf", first, (long long)s.count, (long long)s.count);
        code = open_part(c, r, name, no, &s, err);
        if (code) return code;
    }
    r->n_tensors = s.count > 1 ? s.n_tensors : -1;
    return TFM_OK;
}

static void gguf_close(checkpoint *c) {
    gguf_reader *r = c->reader;
    for (int k = 1; k < r->n_parts; k++) r->dir->close(r->dir->user, &r->parts[k].src);
}

/* ---- OPENING --------------------------------------------------------------------------------------------------- */

static int gguf_tokenizer(const checkpoint *c, arena *mem, int64_t n_rows, tok_section *out, tfm_error *err) {
    const gguf_reader *r = c->reader;
    if (!gguf_find(&r->parts[0], "tokenizer.ggml.model")) return TFM_OK;
    return tokenizer_from_gguf(mem, &r->parts[0], n_rows, out, err);
}

static int gguf_chat(const checkpoint *c, arena *mem, chat_source *out, tfm_error *err) {
    const gguf_reader *r = c->reader;
    return chat_from_gguf(mem, &r->parts[0], out, err);
}

/* The part before the tensors' data, as it stands. */
static int hash_header(checkpoint *c, const gguf *g, tfm_error *err) {
    char buf[4096];
    int code = TFM_OK;
    for (uint64_t at = 0; !code && at < g->data_offset && at < g->src.size; at += sizeof buf) {
        uint64_t left = (g->data_offset < g->src.size ? g->data_offset : g->src.size) - at;
        size_t n = left < sizeof buf ? (size_t)left : sizeof buf;
        code = source_read(&g->src, at, buf, n, err);
        if (!code) tfm_hash_feed(&c->hash, buf, n);
    }
    return code;
}

/* family_asks: whether there is such a tensor. */
static int has_tensor(const void *user, const char *name) {
    const gguf_reader *r = user;
    for (int k = 0; k < r->n_parts; k++)
        if (gguf_find_tensor(&r->parts[k], name)) return 1;
    return 0;
}

int checkpoint_open_gguf(checkpoint *c, const source *src, tfm_error *err) {
    const char *arch_name = NULL;
    gguf_reader *r = arena_alloc(c->mem, sizeof *r);
    gguf *g = arena_alloc(c->mem, sizeof *g);
    if (!r || !g) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    int code = gguf_open(g, src, c->mem, err);
    if (code) return code;
    r->parts = g;
    r->n_parts = 1;
    r->dir = c->options->beside;
    c->reader = r;
    c->close = gguf_close;
    c->read_rows = read_gguf_rows;
    c->tokenizer = gguf_tokenizer;
    c->chat = gguf_chat;
    code = open_parts(c, r, err);
    if (!code) code = gguf_str(g, "general.architecture", &arch_name, err);
    if (!code) code = checkpoint_begin(c, FORM_GGUF, src->name, arch_name, has_tensor, r, err);
    if (!code) code = read_keys(c, g, arch_name, err);
    if (!code) code = add_tensors(c, r, err);
    if (!code) code = add_logits_off(c, err);
    if (!code) read_parts(c);
    if (!code) code = add_xielu(c, g, err);
    if (!code) code = checkpoint_add_slopes(c, err);
    if (!code) code = read_routers(c, err);
    if (!code) code = read_tokens(c, g, err);
    for (int k = 0; !code && k < r->n_parts; k++) code = hash_header(c, &r->parts[k], err);
    return code;
}
