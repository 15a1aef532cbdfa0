/* convert_hf.c - a Hugging Face directory as a checkpoint: config.json, generation_config.json, safetensors or
 * PyTorch's files.
 *
 * Both spellings of the RoPE values are read the same way: rope_theta and rope_scaling at the top, or all of it in
 * rope_parameters, there perhaps once per type of layer.
 */
#include <math.h>
#include <string.h>

#include "checkpoint.h"
#include "json.h"
#include "packed.h"
#include "safetensors.h"

enum { CONFIG_LIMIT = 16 << 20, PATH_TEXT = 320 };

typedef struct hf_reader {
    safetensors st;
    packed_weights packed;
    const st_tensor **scales;   /* [st.n_tensors]: of blocks in MXFP4; NULL for other tensors */
    unsigned char *block_row;   /* room for a row of blocks and its scales */
    const source_dir *dir;
    const json *short_factor, *long_factor; /* of LongRoPE, if the config has them */
    int64_t *off_ids, n_off;                /* ids whose logits are as low as can be */
} hf_reader;

/* A JSON file of the directory: *out is NULL if it is absent. Its bytes count as part of the source. */
static int read_json(checkpoint *c, const source_dir *dir, const char *file, const json **out, tfm_error *err) {
    source src;
    char *text;
    size_t n;
    int code = dir->open(dir->user, file, &src, err);
    *out = NULL;
    if (code) return code < 0 ? code : TFM_OK;
    code = source_read_all(&src, CONFIG_LIMIT, c->mem, &text, &n, err);
    if (!code) {
        *out = json_parse(src.name, text, n, c->mem, err);
        code = *out ? TFM_OK : err ? err->code : TFM_ERR_FORMAT;
        tfm_hash_feed(&c->hash, text, n);
    }
    dir->close(dir->user, &src);
    if (!code && !json_is(*out, JSON_OBJECT))
        return tool_fail(err, TFM_ERR_FORMAT, "%s/%s: is not a JSON object", dir->name, file);
    return code;
}

/* 1: it is there (perhaps not readable; whoever opens it says so) */
static int has_file(const source_dir *dir, const char *file) {
    source src;
    const int status = dir->open(dir->user, file, &src, NULL);
    if (!status) dir->close(dir->user, &src);
    return status <= 0;
}

/* ---- VALUES ---------------------------------------------------------------------------------------------------- */

/* null, false, "", [] and {} say nothing. */
static int says_nothing(const json *v) {
    if (json_is_null(v)) return 1;
    if (v->type == JSON_BOOL) return !v->boolean;
    return v->type != JSON_NUMBER && v->count == 0;
}

static int read_name(const json *v, const rule *r, double *value, tfm_error *err) {
    const char *text = v->boolean ? "true" : "false", *name;
    char where[PATH_TEXT];
    int code = v->type == JSON_BOOL ? TFM_OK : json_as_string(v, &text, err);
    if (code) return code;
    for (const named_value *n = r->names; n->name; n++) {
        if (strcmp(n->name, text)) continue;
        *value = n->value;
        return TFM_OK;
    }
    for (int32_t i = 0; r->param == P_ACT && (name = tfm_field_value_name("ffn_act", i)) != NULL; i++) {
        if (strcmp(name, text) || i == TFM_ACT_XIELU) continue; /* what is called the same in the header */
        *value = i;
        return TFM_OK;
    }
    return tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: \"%s\" is not known", json_path(v, where, sizeof where), text);
}

/* A number of layers, or a word of as many letters whose last alone differs: "LLLG". */
static int read_period(const json *v, int64_t *n, tfm_error *err) {
    const char *word;
    if (!json_is(v, JSON_STRING)) return json_as_int(v, n, err);
    const int code = json_as_string(v, &word, err);
    if (code) return code;
    const size_t same = strspn(word, "L");
    char where[PATH_TEXT];
    if (strcmp(word + same, "G"))
        return tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: \"%s\" is not known", json_path(v, where, sizeof where), word);
    *n = (int64_t)same + 1;
    return TFM_OK;
}

static int read_plain(value_set *set, const rule *r, const json *v, tfm_error *err) {
    char where[PATH_TEXT];
    double value = 0;
    int64_t n = 0;
    int flag = 0, code;
    if (r->kind == RULE_NAME) {
        code = read_name(v, r, &value, err);
    } else if (r->kind == RULE_REAL) {
        code = json_as_real(v, &value, err);
    } else if (r->kind == RULE_INT) {
        code = r->param == P_WINDOW_PERIOD ? read_period(v, &n, err) : json_as_int(v, &n, err);
        value = (double)n;
    } else if (r->param == P_TEMPERATURE_ON && json_is(v, JSON_NUMBER)) { /* older files count something here */
        code = json_as_int(v, &n, err);
        value = n != 0;
    } else {
        code = json_as_bool(v, &flag, err);
        value = flag;
    }
    return code ? code : checkpoint_value(set, r, value, json_path(v, where, sizeof where), err);
}

/* ---- LISTS AND OBJECTS ----------------------------------------------------------------------------------------- */

/* An id or a list of ids; replaces what was there. */
static int read_eos(checkpoint *c, const json *v, tfm_error *err) {
    char where[PATH_TEXT];
    size_t n = json_is(v, JSON_ARRAY) ? json_count(v) : 1;
    c->arch.n_eos = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t id;
        int code = json_as_int(json_is(v, JSON_ARRAY) ? json_at(v, i) : v, &id, err);
        if (code) return code;
        if (id < 0 || id > INT32_MAX || arch_add_eos(&c->arch, id))
            return tool_fail(err, TFM_ERR_FORMAT, "%s: an id is out of range, or more than %d ids",
                             json_path(v, where, sizeof where), ARCH_MAX_EOS);
    }
    return TFM_OK;
}

/* Whether a type of layer has the window. */
static int read_layer_type(const json *v, unsigned char *window, tfm_error *err) {
    static const struct { const char *name; unsigned char window; } types[] = {
        {"full_attention", 0}, {"sliding_attention", 1}, {"chunked_attention", 1}, {"global", 0}, {"local", 1}};
    char where[PATH_TEXT];
    const char *text;
    int code = json_as_string(v, &text, err);
    if (code) return code;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(text, types[i].name)) continue;
        *window = types[i].window;
        return TFM_OK;
    }
    return tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: \"%s\" is not known", json_path(v, where, sizeof where), text);
}

/* [[types of layers, how often they repeat]...] */
static int read_layer_runs(checkpoint *c, const json *v, tfm_error *err) {
    enum { MOST = 4096 };
    char where[PATH_TEXT];
    c->arch.window_layer = arena_array(c->mem, MOST, 1);
    c->arch.n_listed = 0;
    if (!c->arch.window_layer) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < json_count(v); i++) {
        const json *run = json_at(v, i), *types = json_at(run, 0);
        int64_t repeats = 0, n = (int64_t)json_count(types);
        int code = json_item_int(run, 1, &repeats, err);
        if (code) return code;
        if (n < 1 || repeats < 0 || repeats > (MOST - c->arch.n_listed) / n)
            return tool_fail(err, TFM_ERR_FORMAT, "%s: no layers, or more than %d", json_path(run, where, sizeof where),
                             (int)MOST);
        for (int64_t k = 0; !code && k < repeats * n; k++)
            code = read_layer_type(json_at(types, (size_t)(k % n)), &c->arch.window_layer[c->arch.n_listed++], err);
        if (code) return code;
    }
    return TFM_OK;
}

static int read_layer_types(checkpoint *c, const json *v, tfm_error *err) {
    char where[PATH_TEXT];
    size_t n = json_count(v);
    if (!json_is(v, JSON_ARRAY))
        return tool_fail(err, TFM_ERR_FORMAT, "%s: expected a list", json_path(v, where, sizeof where));
    c->arch.window_layer = arena_array(c->mem, n + 1, 1);
    c->arch.n_listed = (int64_t)n;
    if (!c->arch.window_layer) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) {
        int code = read_layer_type(json_at(v, i), &c->arch.window_layer[i], err);
        if (code) return code;
    }
    return TFM_OK;
}

/* Which layers rotate: 1 or 0 each. */
static int read_rope_flags(checkpoint *c, const json *v, tfm_error *err) {
    char where[PATH_TEXT];
    size_t n = json_count(v);
    int64_t flag = 0;
    if (!json_is(v, JSON_ARRAY))
        return tool_fail(err, TFM_ERR_FORMAT, "%s: expected a list", json_path(v, where, sizeof where));
    if (!n) return TFM_OK; /* means that it is absent */
    c->arch.rope_layer = arena_array(c->mem, n + 1, 1);
    c->arch.n_rope_listed = (int64_t)n;
    if (!c->arch.rope_layer) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) {
        int code = json_as_int(json_at(v, i), &flag, err);
        if (code) return code;
        c->arch.rope_layer[i] = flag != 0;
    }
    return TFM_OK;
}

/* Which layers are mixtures of experts: a list of those that are, or are not (arch.moe_list), or a word for each. */
static int read_moe_layers(checkpoint *c, int which, const json *v, tfm_error *err) {
    char where[PATH_TEXT];
    const size_t n = json_count(v);
    const int words = which == P_FFN_TYPES;
    if (!json_is(v, JSON_ARRAY) || n > ARCH_MAX_LAYERS)
        return tool_fail(err, TFM_ERR_FORMAT, "%s: expected a list of layers", json_path(v, where, sizeof where));
    c->arch.moe_layer = arena_array(c->mem, ARCH_MAX_LAYERS, 1);
    if (!c->arch.moe_layer) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    memset(c->arch.moe_layer, 0, ARCH_MAX_LAYERS);
    c->arch.moe_list = words ? P_MOE_LAYERS : which;
    c->arch.n_moe_listed = words ? (int64_t)n : 0;
    for (size_t i = 0; i < n; i++) {
        const json *entry = json_at(v, i);
        const char *word = "";
        int64_t layer = 0;
        const int code = words ? json_as_string(entry, &word, err) : json_as_int(entry, &layer, err);
        if (code) return code;
        if (words ? strcmp(word, "dense") && strcmp(word, "sparse") : layer < 0 || layer >= ARCH_MAX_LAYERS)
            return tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: not a layer of a kind that is known",
                             json_path(entry, where, sizeof where));
        c->arch.moe_layer[words ? (int64_t)i : layer] = !words || !strcmp(word, "sparse");
    }
    return TFM_OK;
}

/* A list of RoPE divisors; it becomes a tensor once the tensors are known. */
static int read_factors(checkpoint *c, value_set *set, const rule *r, const json *v, tfm_error *err) {
    hf_reader *reader = c->reader;
    char where[PATH_TEXT];
    double factor;
    for (size_t i = 0; i < json_count(v); i++) {
        int code = json_as_real(json_at(v, i), &factor, err);
        if (code) return code;
        if (!(factor > 0 && factor < 1e30))
            return tool_fail(err, TFM_ERR_FORMAT, "%s: %g is no divisor",
                             json_path(json_at(v, i), where, sizeof where), factor);
    }
    if (!json_is(v, JSON_ARRAY))
        return tool_fail(err, TFM_ERR_FORMAT, "%s: expected a list", json_path(v, where, sizeof where));
    if (r->param == P_ROPE_SHORT) reader->short_factor = v;
    else reader->long_factor = v;
    set->given[r->param] = GIVEN_FILE;
    return TFM_OK;
}

/* What the layers see of a sparse pattern, in turn. */
static int read_mask_layers(checkpoint *c, const json *v, tfm_error *err) {
    static const named_value parts[] = {{"both", TFM_PART_BOTH}, {"near", TFM_PART_NEAR}, {"far", TFM_PART_FAR},
                                        {"heads", TFM_PART_HEADS}, {"dense", ARCH_DENSE}, {NULL, 0}};
    static const rule part = {NULL, P_MASK_LAYERS, RULE_NAME, 0, 0, parts};
    char where[PATH_TEXT];
    if (!json_is(v, JSON_ARRAY) || !json_count(v))
        return tool_fail(err, TFM_ERR_FORMAT, "%s: expected a list", json_path(v, where, sizeof where));
    c->arch.n_mask_layers = (int64_t)json_count(v);
    c->arch.mask_layers = arena_array(c->mem, json_count(v), 1);
    if (!c->arch.mask_layers) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < json_count(v); i++) {
        double value = 0;
        int code = read_name(json_at(v, i), &part, &value, err);
        if (code) return code;
        c->arch.mask_layers[i] = (unsigned char)value;
    }
    return TFM_OK;
}

/* Ids that can never come next: the values of the names that begin with IMGIMG. */
static int read_logits_off(checkpoint *c, const json *v, tfm_error *err) {
    hf_reader *reader = c->reader;
    if (json_count(v)) reader->off_ids = arena_array(c->mem, json_count(v), sizeof *reader->off_ids);
    if (json_count(v) && !reader->off_ids) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < json_count(v); i++) {
        const json *member = json_at(v, i);
        int64_t id = 0;
        int code = member->key && !strncmp(member->key, "IMGIMG", 6) ? json_as_int(member, &id, err) : TFM_OK;
        if (code) return code;
        if (member->key && !strncmp(member->key, "IMGIMG", 6)) reader->off_ids[reader->n_off++] = id;
    }
    if (!reader->n_off) return TFM_OK;
    c->arch.p.v[P_HEAD_BIAS] = 1;
    c->arch.p.given[P_HEAD_BIAS] = GIVEN_FILE;
    return TFM_OK;
}

static const rule *rule_of(const rule *rules, const char *key) {
    for (const rule *r = rules; r->key; r++)
        if (!strcmp(r->key, key)) return r;
    return NULL;
}

/* An object whose keys are those of a table. */
static int read_values(checkpoint *c, value_set *set, const rule *rules, const json *object, tfm_error *err) {
    char where[PATH_TEXT];
    int code = TFM_OK;
    for (size_t i = 0; !code && i < json_count(object); i++) {
        const json *v = json_at(object, i);
        const rule *r = rule_of(rules, v->key);
        if (says_nothing(v) && !json_is(v, JSON_BOOL)) continue;
        if (!r && says_nothing(v)) continue;
        if (!r) code = checkpoint_unknown(c, json_path(v, where, sizeof where), v->key, err);
        else if (r->param == P_ROPE_SHORT || r->param == P_ROPE_LONG) code = read_factors(c, set, r, v, err);
        else if (r->param == P_MASK_LAYERS) code = read_mask_layers(c, v, err);
        else if (r->param != P_NONE) code = read_plain(set, r, v, err);
    }
    return code;
}

/* rope_scaling or rope_parameters. rope_type goes before type, so it is read last. */
static int read_rope_values(checkpoint *c, value_set *set, const json *object, tfm_error *err) {
    int code = read_values(c, set, rope_rules, object, err);
    const json *type = json_get(object, "rope_type");
    if (!code && !json_is_null(type)) code = read_plain(set, rule_of(rope_rules, "rope_type"), type, err);
    return code;
}

static int read_rope(checkpoint *c, const json *v, tfm_error *err) {
    const json *full = json_get(v, "full_attention"), *local = json_get(v, "sliding_attention");
    char where[PATH_TEXT];
    if (!json_is(v, JSON_OBJECT))
        return tool_fail(err, TFM_ERR_FORMAT, "%s: expected an object", json_path(v, where, sizeof where));
    if (!full && !local) return read_rope_values(c, &c->arch.p, v, err);
    for (size_t i = 0; i < json_count(v); i++) {
        const json *member = json_at(v, i);
        if (member != full && member != local && !says_nothing(member))
            return tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: this type of layer is not known",
                             json_path(member, where, sizeof where));
    }
    int code = read_rope_values(c, &c->arch.p, full, err);
    if (code || !json_count(local)) return code;
    c->arch.has_local = 1;
    return read_rope_values(c, &c->arch.local, local, err);
}

static int read_members(checkpoint *c, const json *object, tfm_error *err);

static int read_special(checkpoint *c, const rule *r, const json *v, tfm_error *err) {
    switch (r->param) {
    case P_EOS: return read_eos(c, v, err);
    case P_LAYER_TYPES: return read_layer_types(c, v, err);
    case P_LAYER_RUNS: return read_layer_runs(c, v, err);
    case P_ROPE_FLAGS: return read_rope_flags(c, v, err);
    case P_MOE_LAYERS:
    case P_DENSE_LAYERS:
    case P_FFN_TYPES: return read_moe_layers(c, r->param, v, err);
    case P_ROPE_OBJECT: return read_rope(c, v, err);
    case P_SPARSE: return read_values(c, &c->arch.p, sparse_rules, v, err);
    case P_LOGITS_OFF: return read_logits_off(c, v, err);
    case P_NESTED: return read_members(c, v, err);
    default: return TFM_OK;
    }
}

/* ---- THE CONFIGURATION ----------------------------------------------------------------------------------------- */

static int read_member(checkpoint *c, const json *v, tfm_error *err) {
    char where[PATH_TEXT];
    const rule *r = family_rule(c->family, FORM_HF, v->key, 0);
    int code = TFM_OK;
    if (!r) return says_nothing(v) ? TFM_OK : checkpoint_unknown(c, json_path(v, where, sizeof where), v->key, err);
    for (int i = 0; !code && (r = family_rule(c->family, FORM_HF, v->key, i)) != NULL; i++) {
        if (!json_is_null(v)) {
            code = r->kind == RULE_SPECIAL ? read_special(c, r, v, err) : read_plain(&c->arch.p, r, v, err);
        } else if (r->flags & RULE_NULL_IS_OFF) {
            c->arch.p.v[r->param] = 0;
            c->arch.p.given[r->param] = GIVEN_FILE;
        }
    }
    return code;
}

static int read_members(checkpoint *c, const json *object, tfm_error *err) {
    int code = TFM_OK;
    for (size_t i = 0; !code && i < json_count(object); i++) code = read_member(c, json_at(object, i), err);
    return code;
}

/* family_asks */
static int has_key(const void *user, const char *key) {
    const json *v = json_get(user, key);
    return !json_is_null(v) && !(v->type == JSON_BOOL && !v->boolean);
}

/* A model with other towers keeps its language model's values in text_config, and few of them beside it. */
static int read_wrapper(checkpoint *c, const json *config, tfm_error *err) {
    static const char *const shared[] = {"bos_token_id", "eos_token_id", "tie_word_embeddings"};
    int code = TFM_OK;
    for (size_t i = 0; !code && i < sizeof shared / sizeof *shared; i++) {
        const json *v = json_get(config, shared[i]);
        if (!json_is_null(v)) code = read_member(c, v, err);
    }
    return code;
}

/* A wrapper may say it at the top or in its language model's part. */
static int read_quantization(checkpoint *c, const json *config, tfm_error *err) {
    hf_reader *r = c->reader;
    if (r->packed.scheme.kind) return TFM_OK;
    const json *q = json_get(config, "quantization_config");
    const char *method;
    if (!json_string_or(q, "quant_method", "", &method, NULL) && !strcmp(method, "mxfp4"))
        return TFM_OK; /* kept: see add_blocks */
    return packed_config(&r->packed.scheme, json_is_null(q) ? json_get(config, "compression_config") : q, err);
}

/* A directory without what is missing: a hint if its weights are of another form. */
static int refuse_other_forms(const source_dir *dir, const char *missing, tfm_error *err) {
    static const char *const original[] = {"consolidated.00.pth", "consolidated.safetensors"};
    for (size_t i = 0; i < sizeof original / sizeof *original; i++)
        if (has_file(dir, original[i]))
            return tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: %s: weights in their publisher's own form are not read, "
                             "take the Hugging Face form", dir->name, original[i]);
    return tool_fail(err, TFM_ERR_IO, "%s: %s", dir->name, missing);
}

static int read_config(checkpoint *c, const source_dir *dir, tfm_error *err) {
    const json *config, *text;
    const char *model_type;
    char file[PATH_TEXT];
    int code = read_json(c, dir, "config.json", &config, err);
    if (code) return code;
    if (!config)
        return refuse_other_forms(dir, "config.json is missing (is this a Hugging Face directory?)", err);
    code = read_quantization(c, config, err);
    if (code) return code;
    text = json_get(config, "text_config");
    if (!json_is(text, JSON_OBJECT)) text = config;
    code = json_string(json_is_null(json_get(text, "model_type")) ? config : text, "model_type", &model_type, err);
    if (!code) code = read_quantization(c, text, err);
    if (!code)
        code = checkpoint_begin(c, FORM_HF, arena_strdup(c->mem, json_path(config, file, sizeof file)), model_type,
                                has_key, text, err);
    if (!code) code = read_members(c, text, err);
    if (!code && text != config) code = read_wrapper(c, config, err);
    if (code) return code;
    const char *missing = family_missing(c->family, FORM_HF, &c->arch.p);
    return missing ? tool_fail(err, TFM_ERR_FORMAT, "%s: %s is missing", c->file, missing) : TFM_OK;
}

/* Its ids go before those of config.json. */
static int read_generation_config(checkpoint *c, const source_dir *dir, tfm_error *err) {
    const json *config;
    char where[PATH_TEXT];
    int code = read_json(c, dir, "generation_config.json", &config, err);
    const json *eos = json_get(config, "eos_token_id"), *bos = json_get(config, "bos_token_id");
    const char *file = config ? arena_strdup(c->mem, json_path(config, where, sizeof where)) : NULL;
    if (!code && config && !file) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    if (!code && !says_nothing(eos)) {
        c->arch.eos_file = file;
        code = read_eos(c, eos, err);
    }
    if (!code && !json_is_null(bos)) {
        c->arch.bos_file = file;
        code = read_plain(&c->arch.p, family_rule(c->family, FORM_HF, "bos_token_id", 0), bos, err);
    }
    return code;
}

/* ---- TENSORS --------------------------------------------------------------------------------------------------- */

static int32_t type_of(st_dtype dtype) {
    switch (dtype) {
    case ST_F32: return TFM_F32;
    case ST_F16: return TFM_F16;
    case ST_BF16: return TFM_BF16;
    default: return -1;
    }
}

/* The prefix under which layer 0 is found. */
static void find_prefix(checkpoint *c) {
    for (const char *const *prefix = family_prefixes(c->family, FORM_HF); *prefix; prefix++) {
        c->prefix = *prefix;
        for (int role = TFM_ROLE_ATTN_NORM; role < TFM_ROLE_LIMIT; role++)
            if (checkpoint_role(c, role, 0, NULL)) return;
    }
    c->prefix = *family_prefixes(c->family, FORM_HF);
}

/* A list of config.json as a tensor. */
static int add_factors(checkpoint *c, const char *name, const json *list, tfm_error *err) {
    size_t n = json_count(list);
    if (!n) return TFM_OK;
    float *values = arena_array(c->mem, n, sizeof *values);
    if (!values) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) values[i] = (float)json_at(list, i)->v.number;
    return checkpoint_add_floats(c, name, values, n, err);
}

/* Appends the values of a tensor to a joined vector of at most `room`; *n stays if there is no such tensor. */
static int join_tensor(checkpoint *c, const char *name, float *values, size_t room, size_t *n, tfm_error *err) {
    ckpt_tensor *t = checkpoint_find(c, name);
    const tfm_type_info *type = t ? tfm_type_get(t->type) : NULL;
    if (!type || type->block != 1 || t->rows != 1 || t->cols < 0 || (uint64_t)t->cols > room - *n) return TFM_OK;
    char *raw = arena_alloc(c->mem, (size_t)t->row_bytes + 1);
    if (!raw) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    int code = c->read_rows(c, t, 0, 1, raw, err);
    tfm_tensor row = {raw, t->type, TFM_ROWS, 1, t->cols};
    if (!code && t->cols) tfm_tensor_row(&row, 0, values + *n);
    *n += (size_t)t->cols;
    t->used = 1;
    return code;
}

/* Makes the vector of a pattern with '|' and '%' (see name_row), under the pattern as its name. */
static int join_pattern(checkpoint *c, const char *pattern, float *values, size_t room, tfm_error *err) {
    char part[256], index[16];
    size_t n = 0, before;
    int code = TFM_OK;
    for (const char *at = pattern, *end; !code && at; at = end ? end + 1 : NULL) {
        end = strchr(at, '|');
        const size_t length = end ? (size_t)(end - at) : strlen(at), head = strcspn(at, "%");
        int i = 0;
        do {
            before = n;
            snprintf(index, sizeof index, "%d", i++);
            if (head < length)
                snprintf(part, sizeof part, "%.*s%s%.*s", (int)head, at, index, (int)(length - head - 1),
                         at + head + 1);
            else
                snprintf(part, sizeof part, "%.*s", (int)length, at);
            code = join_tensor(c, part, values, room, &n, err);
        } while (!code && head < length && n > before);
    }
    if (code || !n) return code;
    float *copy = arena_array(c->mem, n, sizeof *copy);
    if (!copy) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    memcpy(copy, values, n * sizeof *copy);
    return checkpoint_add_floats(c, arena_strdup(c->mem, pattern), copy, n, err);
}

/* How many vectors of layers are joined. */
static size_t count_joined(const checkpoint *c) {
    const int layers = arch_int(&c->arch, P_N_LAYERS);
    size_t n = 0;
    while (family_joined(c->family, FORM_HF, (int)n)) n++;
    return layers > 0 && layers <= 4096 ? n * (size_t)layers : 0;
}

static int add_joined(checkpoint *c, tfm_error *err) {
    enum { ROOM = 1 << 16 };
    char pattern[320];
    const size_t total = count_joined(c);
    const int layers = arch_int(&c->arch, P_N_LAYERS);
    float *values = total ? arena_array(c->mem, ROOM, sizeof *values) : NULL;
    if (total && !values) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    int code = TFM_OK;
    for (size_t i = 0; !code && i < total; i++) {
        const name_row *row = family_joined(c->family, FORM_HF, (int)(i / (size_t)layers));
        family_format(row->pattern, c->prefix, (int)(i % (size_t)layers), 0, pattern, sizeof pattern);
        code = join_pattern(c, pattern, values, ROOM, err);
    }
    return code;
}

static int add_logits_off(checkpoint *c, const hf_reader *r, tfm_error *err) {
    const int n_vocab = arch_int(&c->arch, P_N_VOCAB);
    for (int64_t i = 0; i < r->n_off; i++)
        if (r->off_ids[i] < 0 || r->off_ids[i] >= n_vocab)
            return tool_fail(err, TFM_ERR_FORMAT, "%s: vocabulary_map: id %lld is out of range (vocab_size %d)",
                             c->file, (long long)r->off_ids[i], n_vocab);
    return r->n_off ? checkpoint_add_logits_off(c, "lm_head.bias", n_vocab, r->off_ids, r->n_off, err) : TFM_OK;
}

static int add_stored(checkpoint *c, const st_tensor *from, size_t index, tfm_error *err) {
    ckpt_tensor t;
    memset(&t, 0, sizeof t);
    t.name = from->name;
    t.type = from->strided ? -1 : type_of(from->dtype);
    t.type_name = from->strided ? "(elements not in rows)" : st_dtype_name((int)from->dtype);
    t.n_dims = from->n_dims;
    memcpy(t.dims, from->dims, sizeof t.dims);
    t.index = index;
    return checkpoint_add(c, &t, err);
}

enum { MX_BLOCK = 32, MX_CODES = 16 }; /* inputs of a block, bytes of its codes; with a byte of scale it is GGUF's */

/* "X_blocks" [..][rows][blocks][16] and "X_scales" [..][rows][blocks] as one matrix of MXFP4 under the first's name. */
static int add_blocks(checkpoint *c, const st_tensor *blocks, size_t index, const st_tensor *scales, tfm_error *err) {
    hf_reader *r = c->reader;
    const int n = blocks->n_dims;
    ckpt_tensor t;
    memset(&t, 0, sizeof t);
    int fits = n >= 3 && scales->n_dims == n - 1 && blocks->dims[n - 1] == MX_CODES && !blocks->strided &&
               !scales->strided;
    for (int i = 0; fits && i < n - 1; i++) fits = blocks->dims[i] == scales->dims[i];
    if (!fits || blocks->dims[n - 2] > INT32_MAX / MX_BLOCK)
        return tool_fail(err, TFM_ERR_FORMAT, "%s: tensors %s and %s do not go together", c->file, blocks->name,
                         scales->name);
    t.name = blocks->name;
    t.type = TFM_MXFP4;
    t.type_name = "MXFP4";
    t.n_dims = n - 1;
    memcpy(t.dims, blocks->dims, (size_t)(n - 2) * sizeof *t.dims);
    t.dims[n - 2] = blocks->dims[n - 2] * MX_BLOCK;
    t.index = index;
    r->scales[index] = scales;
    return checkpoint_add(c, &t, err);
}

/* The scales of blocks, by their names; NULL: these are no blocks. */
static const st_tensor *scales_of(const safetensors *st, const st_tensor *blocks, arena *mem) {
    const size_t n = strlen(blocks->name), cut = strlen("blocks");
    if (blocks->dtype != ST_U8 || n < cut || strcmp(blocks->name + n - cut, "blocks")) return NULL;
    const char *name = arena_printf(mem, "%.*sscales", (int)(n - cut), blocks->name);
    const st_tensor *scales = name ? st_find(st, name) : NULL;
    return scales && scales->dtype == ST_U8 ? scales : NULL;
}

/* Finds blocks and their scales; *used[i] = 1 for the scales. */
static int find_blocks(checkpoint *c, hf_reader *r, unsigned char *used, tfm_error *err) {
    const safetensors *st = &r->st;
    size_t widest = 0;
    r->scales = arena_array(c->mem, st->n_tensors + 1, sizeof *r->scales);
    if (!r->scales) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    memset(r->scales, 0, (st->n_tensors + 1) * sizeof *r->scales);
    for (size_t i = 0; i < st->n_tensors; i++) {
        const st_tensor *t = &st->tensors[i], *scales = scales_of(st, t, c->mem);
        if (!scales) continue;
        const size_t width = t->n_dims >= 2 ? (size_t)t->dims[t->n_dims - 2] : 0;
        r->scales[i] = scales;
        used[scales - st->tensors] = 1;
        if (width > widest) widest = width;
    }
    r->block_row = arena_array(c->mem, widest + 1, MX_CODES + 1);
    return r->block_row ? TFM_OK : tool_fail(err, TFM_ERR_MEMORY, "out of memory");
}

/* Rows of MXFP4 as GGUF has them: each block its scale, then input i in the low half of byte i, i + 16 in the high one.
 * In the source two inputs that follow each other share a byte. */
static int read_block_rows(hf_reader *r, const ckpt_tensor *t, int64_t first, int64_t n, unsigned char *out,
                           tfm_error *err) {
    const st_tensor *blocks = &r->st.tensors[t->index], *scales = r->scales[t->index];
    const int64_t width = t->cols / MX_BLOCK, bytes = width * MX_CODES;
    unsigned char *scale = r->block_row + bytes;
    for (int64_t row = first; row < first + n; row++) {
        int code = st_read(&r->st, blocks, (uint64_t)(row * bytes), (size_t)bytes, r->block_row, err);
        if (!code) code = st_read(&r->st, scales, (uint64_t)(row * width), (size_t)width, scale, err);
        if (code) return code;
        for (int64_t b = 0; b < width; b++, out += MX_CODES + 1) {
            const unsigned char *codes = r->block_row + b * MX_CODES;
            out[0] = scale[b];
            for (int i = 0; i < MX_CODES; i++) {
                const int shift = i % 2 * 4, low = codes[i / 2] >> shift & 15, high = codes[8 + i / 2] >> shift & 15;
                out[1 + i] = (unsigned char)(low | high << 4);
            }
        }
    }
    return TFM_OK;
}

static int add_packed(checkpoint *c, const packed_matrix *from, size_t index, tfm_error *err) {
    ckpt_tensor t;
    memset(&t, 0, sizeof t);
    t.name = from->name;
    t.type = TFM_F32;
    t.type_name = "F32";
    t.n_dims = 2;
    t.dims[0] = from->rows;
    t.dims[1] = from->cols;
    t.index = index;
    return checkpoint_add(c, &t, err);
}

/* The matrices first; what is a part of one is no tensor of its own. */
static int add_tensors(checkpoint *c, hf_reader *r, tfm_error *err) {
    const safetensors *st = &r->st;
    unsigned char *used = arena_alloc(c->mem, st->n_tensors + 1);
    int code = used ? TFM_OK : tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    if (!code) code = packed_find(&r->packed, st, used, c->mem, err);
    if (!code) code = find_blocks(c, r, used, err);
    if (!code) /* two lists of factors, slopes, a bias */
        code = checkpoint_room(c, r->packed.n + st->n_tensors + 4 + count_joined(c), err);
    for (size_t i = 0; !code && i < r->packed.n; i++) code = add_packed(c, &r->packed.list[i], st->n_tensors + i, err);
    for (size_t i = 0; !code && i < st->n_tensors; i++) {
        if (used[i]) continue;
        code = r->scales[i] ? add_blocks(c, &st->tensors[i], i, r->scales[i], err)
                            : add_stored(c, &st->tensors[i], i, err);
    }
    const mix *types = c->options->mix;
    if (!code && r->packed.n)
        checkpoint_warn(c, "%s: %zu matrices of \"%s\" become float32%s", c->file, r->packed.n, r->packed.scheme.method,
                        !types || types->type == TFM_F32
                            ? ", the same values in more bytes (another --type makes them small)"
                            : " and then what --type says: its loss comes on top of theirs");
    return code;
}

static int read_hf_rows(const checkpoint *c, const ckpt_tensor *t, int64_t first, int64_t n, void *buf,
                        tfm_error *err) {
    hf_reader *r = c->reader;
    if (t->index >= r->st.n_tensors)
        return packed_rows(&r->packed, &r->packed.list[t->index - r->st.n_tensors], first, n, buf, err);
    if (r->scales[t->index]) return read_block_rows(r, t, first, n, buf, err);
    const st_tensor *from = &r->st.tensors[t->index];
    const int code = st_read(&r->st, from, (uint64_t)(first * t->cols), (size_t)(n * t->cols), buf, err);
    if (!code) file_order(t->type, buf, n * t->cols);
    return code;
}

static int hf_tokenizer(const checkpoint *c, arena *mem, int64_t n_rows, tok_section *out, tfm_error *err) {
    const hf_reader *r = c->reader;
    if (!has_file(r->dir, "tokenizer.json") && !has_file(r->dir, "tokenizer.model")) return TFM_OK;
    return tokenizer_from_hf(mem, r->dir, n_rows, out, err);
}

static int hf_chat(const checkpoint *c, arena *mem, chat_source *out, tfm_error *err) {
    const hf_reader *r = c->reader;
    return chat_from_hf(mem, r->dir, out, err);
}

static void hf_close(checkpoint *c) {
    hf_reader *r = c->reader;
    packed_close(&r->packed);
    st_close(&r->st);
}

int checkpoint_open_hf(checkpoint *c, const source_dir *dir, tfm_error *err) {
    hf_reader *r = arena_alloc(c->mem, sizeof *r);
    if (!r) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    r->dir = dir;
    c->reader = r;
    c->read_rows = read_hf_rows;
    c->tokenizer = hf_tokenizer;
    c->chat = hf_chat;
    int code = read_config(c, dir, err);
    if (!code) code = read_generation_config(c, dir, err);
    if (code) return code;
    const char *weights = c->options->weights ? c->options->weights : st_weights_name(dir);
    if (!weights)
        return refuse_other_forms(dir, "neither model.safetensors nor pytorch_model.bin, nor an index of either", err);
    c->close = hf_close;
    code = st_open_dir(&r->st, dir, weights, c->mem, err);
    if (!code) code = add_tensors(c, r, err);
    if (!code) code = add_factors(c, "rope_scaling.short_factor", r->short_factor, err);
    if (!code) code = add_factors(c, "rope_scaling.long_factor", r->long_factor, err);
    if (!code) code = checkpoint_add_slopes(c, err);
    if (!code) code = add_logits_off(c, r, err);
    if (!code) find_prefix(c);
    if (!code) code = add_joined(c, err);
    return code;
}
