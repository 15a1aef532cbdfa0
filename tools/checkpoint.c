/* checkpoint.c - what the three kinds of sources share: values by rule, tensors by name and role, warnings. */
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "checkpoint.h"

/* ---- VALUES ---------------------------------------------------------------------------------------------------- */

int checkpoint_begin(checkpoint *c, source_form form, const char *file, const char *family_name, family_asks *ask,
                     const void *user, tfm_error *err) {
    char known[1024];
    c->form = form;
    c->file = file;
    c->prefix = "";
    c->family = family_find(form, family_name, ask, user);
    if (!c->family)
        return tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: %s \"%s\" is not known (known: %s)", file,
                         form == FORM_HF ? "model_type" : "general.architecture", family_name,
                         family_list(form, known, sizeof known));
    family_defaults(c->family, form, &c->arch.p);
    return TFM_OK;
}

int checkpoint_value(value_set *set, const rule *r, double value, const char *where, tfm_error *err) {
    if (r->kind == RULE_INT && !(value >= -1 && value <= 2147483647.0))
        return tool_fail(err, TFM_ERR_FORMAT, "%s: %.0f is out of range", where, value);
    if (r->param == P_ZERO && value != 0)
        return tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: %g: this part is not supported, only 0 is", where, value);
    if (r->kind == RULE_REAL && !(fabs(value) < 1e30))
        return tool_fail(err, TFM_ERR_FORMAT, "%s: %g is out of range", where, value);
    if (r->flags & RULE_NOT_ZERO && value == 0) return tool_fail(err, TFM_ERR_FORMAT, "%s: must not be 0", where);
    if (r->kind == RULE_BITS) {
        int others = (int)set->v[r->param] & ~(int)r->value;
        value = (double)(value != 0 ? others | (int)r->value : others);
    }
    set->v[r->param] = value;
    set->given[r->param] = GIVEN_FILE;
    return TFM_OK;
}

int checkpoint_unknown(const checkpoint *c, const char *where, const char *key, tfm_error *err) {
    for (size_t i = 0; i < c->options->n_allow_unknown; i++)
        if (!strcmp(c->options->allow_unknown[i], key)) return TFM_OK;
    return tool_fail(err, TFM_ERR_UNSUPPORTED,
                     "%s: this key of a %s model is not known (--allow-unknown %s ignores it)", where, c->family->name,
                     key);
}

void checkpoint_warn(const checkpoint *c, const char *format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    tool_clean_line(line);
    if (c->options->warn) c->options->warn(c->options->user, line);
    else tool_warn("%s", line);
}

/* ---- TENSORS --------------------------------------------------------------------------------------------------- */

static const char *tensor_name(const void *table, uint32_t entry, size_t *length) {
    const ckpt_tensor *t = (const ckpt_tensor *)table + entry;
    *length = strlen(t->name);
    return t->name;
}

int checkpoint_room(checkpoint *c, size_t n, tfm_error *err) {
    c->tensors = arena_array(c->mem, n + 1, sizeof *c->tensors);
    if (!c->tensors || name_index_init(&c->index, c->mem, n + 1, tensor_name))
        return tool_fail(err, TFM_ERR_MEMORY, "%s: out of memory for %zu tensors", c->file, n);
    return TFM_OK;
}

int checkpoint_add(checkpoint *c, const ckpt_tensor *t, tfm_error *err) {
    ckpt_tensor *to = &c->tensors[c->n_tensors];
    uint32_t present;
    *to = *t;
    to->cols = t->n_dims ? t->dims[t->n_dims - 1] : 1;
    to->rows = 1;
    for (int i = 0; i + 1 < t->n_dims; i++) to->rows *= t->dims[i]; /* the readers checked the product */
    const tfm_type_info *type = tfm_type_get(t->type);
    if (type) to->row_bytes = (uint64_t)(to->cols / type->block) * (uint64_t)type->block_bytes;
    int code = name_index_add(&c->index, c->tensors, (uint32_t)c->n_tensors, &present);
    if (code) return tool_fail(err, TFM_ERR_FORMAT, "%s: tensor %s appears twice", c->file, t->name);
    c->n_tensors++;
    return TFM_OK;
}

int checkpoint_add_floats(checkpoint *c, const char *name, const float *values, size_t n, tfm_error *err) {
    ckpt_tensor t;
    memset(&t, 0, sizeof t);
    t.name = name;
    t.type = TFM_F32;
    t.type_name = "F32";
    t.n_dims = 1;
    t.dims[0] = (int64_t)n;
    t.data = values;
    return checkpoint_add(c, &t, err);
}

static void round_to_bf16(float *x) {
    unsigned char strip[64]; /* a strip of one input: 16 rows, padded */
    tfm_tensor t = {strip, TFM_BF16, TFM_TILED, 1, 1};
    if (!tfm_pack(TFM_BF16, strip, TFM_F32, x, 1, 1)) tfm_tensor_row(&t, 0, x);
}

/* Powers of 2^(-8/n) for n heads, a power of two; see SLOPES_BELOW and SLOPES_ABOVE for other numbers. */
int checkpoint_add_slopes(checkpoint *c, tfm_error *err) {
    const int heads = arch_int(&c->arch, P_N_HEADS), above = arch_int(&c->arch, P_SLOPE_RULE) == SLOPES_ABOVE;
    if (!arch_int(&c->arch, P_ALIBI) || heads < 1 || heads > 4096) return TFM_OK; /* describe() refuses such numbers */
    float *slopes = arena_array(c->mem, (size_t)heads, sizeof *slopes);
    int n = 1;
    if (!slopes) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    while (above ? n < heads : 2 * n <= heads) n *= 2;
    for (int i = 0; i < heads; i++) {
        double exponent = i < n ? i + 1 : i - n + 0.5;                       /* 1, 2 .. n, then halves between them */
        if (above && n != heads) exponent = i < n / 2 ? 2 * (i + 1) : 2 * (i - n / 2) + 1; /* 2, 4 .. n, then 1, 3 .. */
        slopes[i] = (float)exp2(-8 * exponent / n);
        if (arch_int(&c->arch, P_ALIBI) == TFM_ALIBI_BF16) round_to_bf16(&slopes[i]);
    }
    return checkpoint_add_floats(c, "alibi.slopes", slopes, (size_t)heads, err);
}

int checkpoint_add_logits_off(checkpoint *c, const char *name, int64_t n_vocab, const int64_t *ids, int64_t n_ids,
                              tfm_error *err) {
    float *bias = n_vocab > 0 ? arena_array(c->mem, (size_t)n_vocab, sizeof *bias) : NULL;
    if (!bias) return tool_fail(err, TFM_ERR_MEMORY, "%s: out of memory for %lld ids", c->file, (long long)n_vocab);
    memset(bias, 0, (size_t)n_vocab * sizeof *bias);
    for (int64_t i = 0; i < n_ids; i++) bias[ids[i]] = -FLT_MAX;
    return checkpoint_add_floats(c, name, bias, (size_t)n_vocab, err);
}

ckpt_tensor *checkpoint_find(const checkpoint *c, const char *name) {
    uint32_t i = name_index_find(&c->index, c->tensors, name, strlen(name));
    return i == NAME_ABSENT ? NULL : &c->tensors[i];
}

ckpt_tensor *checkpoint_expert(const checkpoint *c, int role, int layer, int expert, const name_row **row) {
    char name[320];
    const name_row *n;
    for (int i = 0; (n = family_name(c->family, c->form, role, i)) != NULL; i++) {
        ckpt_tensor *t = checkpoint_find(c, family_format(n->pattern, c->prefix, layer, expert, name, sizeof name));
        if (!t) continue;
        if (row) *row = n;
        return t;
    }
    return NULL;
}

ckpt_tensor *checkpoint_role(const checkpoint *c, int role, int layer, const name_row **row) {
    return checkpoint_expert(c, role, layer, 0, row);
}

const char *checkpoint_role_name(const checkpoint *c, int role, int layer, int expert, char *buf, size_t size) {
    const name_row *n = family_name(c->family, c->form, role, 0);
    if (n) return family_format(n->pattern, c->prefix, layer, expert, buf, size);
    return tfm_weight_name(TFM_STACK_DECODER, layer, role, expert, buf, size);
}
