/* convert_llama2c.c - a llama2.c .bin as a checkpoint. Its layers stand side by side: "wq.0", "wq.1" ... */
#include <string.h>

#include "checkpoint.h"
#include "llama2c.h"

static int add_tensor(checkpoint *c, const l2c_model *m, int role, int64_t layer, tfm_error *err) {
    const l2c_tensor *from = &m->tensors[role];
    ckpt_tensor t;
    memset(&t, 0, sizeof t);
    t.name = from->per_layer ? arena_printf(c->mem, "%s.%lld", from->name, (long long)layer) : from->name;
    if (!t.name) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    t.type = TFM_F32;
    t.type_name = "F32";
    t.n_dims = 2;
    t.dims[0] = from->rows;
    t.dims[1] = from->cols;
    t.index = (size_t)role * (size_t)m->n_layers + (size_t)layer;
    return checkpoint_add(c, &t, err);
}

static int add_tensors(checkpoint *c, const l2c_model *m, tfm_error *err) {
    int code = checkpoint_room(c, (size_t)(L2C_N_ROLES * m->n_layers), err);
    for (int role = 0; role < L2C_N_ROLES; role++) {
        if (role == L2C_ROPE_COS || role == L2C_ROPE_SIN) continue; /* tables of what is computed here */
        int64_t n = !m->tensors[role].rows ? 0 : m->tensors[role].per_layer ? m->n_layers : 1;
        for (int64_t layer = 0; !code && layer < n; layer++) code = add_tensor(c, m, role, layer, err);
    }
    return code;
}

static void set_values(checkpoint *c, const l2c_model *m) {
    const struct { param p; int64_t value; } values[] = {
        {P_D_MODEL, m->dim}, {P_D_FF, m->hidden_dim}, {P_N_LAYERS, m->n_layers}, {P_N_HEADS, m->n_heads},
        {P_N_KV_HEADS, m->n_kv_heads}, {P_N_VOCAB, m->vocab_size}, {P_N_CTX, m->seq_len}, {P_HEAD_DIM, m->head_dim}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        c->arch.p.v[values[i].p] = (double)values[i].value;
        c->arch.p.given[values[i].p] = GIVEN_FILE;
    }
    arch_add_eos(&c->arch, 1); /* the next text begins where this one ends; 2 is the tokenizer's own end */
    arch_add_eos(&c->arch, 2);
}

/* A layer's matrix as float32, which l2c_read gives in the host's byte order. */
static int read_l2c_rows(const checkpoint *c, const ckpt_tensor *t, int64_t first, int64_t n, void *buf,
                         tfm_error *err) {
    const l2c_model *m = c->reader;
    l2c_role role = (l2c_role)(t->index / (size_t)m->n_layers);
    int64_t layer = (int64_t)(t->index % (size_t)m->n_layers);
    return l2c_read(m, role, layer, (uint64_t)(first * t->cols), (size_t)(n * t->cols), buf, err);
}

/* The file has none: --tokenizer brings it. */
static int no_tokenizer(const checkpoint *c, arena *mem, int64_t n_rows, tok_section *out, tfm_error *err) {
    (void)c, (void)mem, (void)n_rows, (void)out, (void)err;
    return TFM_OK;
}

int checkpoint_open_llama2c(checkpoint *c, const source *src, tfm_error *err) {
    l2c_model *m = arena_alloc(c->mem, sizeof *m);
    char header[256];
    if (!m) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    int code = l2c_open(m, src, err);
    if (code) return code;
    c->reader = m;
    c->read_rows = read_l2c_rows;
    c->tokenizer = no_tokenizer;
    code = checkpoint_begin(c, FORM_LLAMA2C, src->name, "llama2c", NULL, NULL, err);
    if (!code) set_values(c, m);
    if (!code) code = add_tensors(c, m, err);
    const size_t n = m->version ? sizeof header : 28;
    if (!code) code = source_read(src, 0, header, n, err);
    if (code) return code;
    tfm_hash_feed(&c->hash, header, n);
    if (m->version == 2 && !c->options->mix)
        checkpoint_warn(c, "%s: int8 with a float32 scale for every %lld becomes F32 (--type q8_0 keeps it small, with "
                        "scales of its own)", src->name, (long long)m->group);
    return TFM_OK;
}
