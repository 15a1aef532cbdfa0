/* imatrix.c - see imatrix.h. In the file NAME.in_sum2 holds sums of squares, NAME.counts how many rows were added. */
#include "imatrix.h"

#include <stdlib.h>
#include <string.h>

#include "gguf_out.h"

static const char sums_suffix[] = ".in_sum2", counts_suffix[] = ".counts";

/* ---- READING ---------------------------------------------------------------------------------------------------- */

static int fail(const gguf *g, const char *tensor, const char *why, tfm_error *err) {
    return tool_fail(err, TFM_ERR_FORMAT, "%s: %s: %s", g->src.name, tensor, why);
}

/* All of a tensor of F32. */
static int read_floats(const gguf *g, const gguf_tensor *t, float *out, tfm_error *err) {
    const int code = gguf_read_rows(g, t, 0, (size_t)gguf_n_rows(t), out, err);
    for (int64_t i = 0; !code && i < t->n_elements; i++) out[i] = load_f32(out + i);
    return code;
}

/* Sums become means. Inputs that never were active still count a little: another text may use them. */
static int finish_row(float *row, int64_t cols, float count) {
    double total = 0;
    for (int64_t i = 0; i < cols; i++) {
        row[i] = count > 0 ? row[i] / count : 1;
        if (!(row[i] >= 0 && row[i] < 1e30f)) return -1;
        total += (double)row[i];
    }
    const float least = total > 0 ? (float)(total / (double)cols * 1e-6) : 1;
    for (int64_t i = 0; i < cols; i++) row[i] = row[i] > least ? row[i] : least;
    return 0;
}

static int read_entry(const gguf *g, const gguf_tensor *sums, imatrix_entry *e, arena *mem, tfm_error *err) {
    const size_t n_name = strlen(sums->name) - (sizeof sums_suffix - 1);
    const char *name = arena_strndup(mem, sums->name, n_name);
    const char *counts_name = arena_printf(mem, "%.*s%s", (int)n_name, sums->name, counts_suffix);
    const gguf_tensor *counts = counts_name ? gguf_find_tensor(g, counts_name) : NULL;
    if (!name || !counts_name) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    e->name = name;
    e->cols = sums->dims[0];
    e->n = sums->n_elements / sums->dims[0];
    if (sums->type->id != GGML_F32) return fail(g, sums->name, "is not F32", err);
    if (!counts || counts->type->id != GGML_F32 || counts->n_elements != e->n)
        return fail(g, counts_name, "is missing or has another shape", err);
    float *count = arena_array(mem, (size_t)e->n, sizeof *count);
    e->values = arena_array(mem, (size_t)sums->n_elements, sizeof *e->values);
    if (!e->values || !count) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    int code = read_floats(g, sums, e->values, err);
    if (!code) code = read_floats(g, counts, count, err);
    for (int64_t i = 0; !code && i < e->n; i++)
        if (finish_row(e->values + i * e->cols, e->cols, count[i]))
            code = fail(g, sums->name, "is no sum of squares", err);
    return code;
}

int imatrix_read(imatrix *m, const source *src, arena *mem, tfm_error *err) {
    gguf *g = arena_alloc(mem, sizeof *g);
    unsigned char magic[4];
    if (!g) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    if (src->size >= 8 && !source_read(src, 0, magic, 4, NULL) && memcmp(magic, "GGUF", 4))
        return tool_fail(err, TFM_ERR_UNSUPPORTED,
                         "%s: is no GGUF file (of an older .dat file llama-imatrix --in-file OLD.dat "
                         "-o NEW.gguf makes one)", src->name);
    int code = gguf_open(g, src, mem, err);
    m->file = arena_strdup(mem, src->name);
    m->n = 0;
    m->entries = code ? NULL : arena_array(mem, g->n_tensors + 1, sizeof *m->entries);
    if (!code && !m->entries) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    for (size_t i = 0; !code && i < g->n_tensors; i++) {
        const size_t n = strlen(g->tensors[i].name), suffix = sizeof sums_suffix - 1;
        if (n <= suffix || strcmp(g->tensors[i].name + n - suffix, sums_suffix)) continue;
        code = read_entry(g, &g->tensors[i], &m->entries[m->n++], mem, err);
    }
    if (!code && !m->n) code = tool_fail(err, TFM_ERR_FORMAT, "%s: holds no importance matrix", src->name);
    return code;
}

static const imatrix_entry *entry_of(const imatrix *m, const tfm_weight *w) {
    char name[64];
    tfm_weight_name(w->stack, w->layer, w->role, -1, name, sizeof name);
    for (size_t i = 0; m && i < m->n; i++)
        if (!strcmp(m->entries[i].name, name)) return &m->entries[i];
    return NULL;
}

static int64_t row_of(const tfm_weight *w) { return w->expert < 0 ? 0 : w->expert; }

const float *imatrix_of(const imatrix *m, const tfm_weight *w) {
    const imatrix_entry *e = entry_of(m, w);
    return e && e->cols == w->t.cols && row_of(w) < e->n ? e->values + row_of(w) * e->cols : NULL;
}

int imatrix_check(const imatrix *m, const tfm_weight *weights, int64_t n, int64_t *missing, tfm_error *err) {
    int64_t found = 0;
    *missing = 0;
    for (int64_t i = 0; m && i < n; i++) {
        const tfm_weight *w = &weights[i];
        const imatrix_entry *e = w->t.layout == TFM_TILED ? entry_of(m, w) : NULL;
        if (e && (e->cols != w->t.cols || row_of(w) >= e->n))
            return tool_fail(err, TFM_ERR_FORMAT, "%s: %s%s: %lld x %lld, the model's matrices have %lld columns%s",
                             m->file, e->name, sums_suffix, (long long)e->n, (long long)e->cols,
                             (long long)w->t.cols, row_of(w) < e->n ? "" : " and are more");
        found += e != NULL;
        *missing += !e && tfm_type_get(w->t.type)->block > 1 && w->role != TFM_ROLE_EMBED && w->role != TFM_ROLE_HEAD;
    }
    if (m && !found) return tool_fail(err, TFM_ERR_FORMAT, "%s: has a row for no matrix of the model", m->file);
    return TFM_OK;
}

/* ---- COLLECTING ------------------------------------------------------------------------------------------------- */

/* What the trace calls the inputs, and the matrices that take them. */
enum { MOST_TAKERS = 3 };
static const struct { const char *name; int32_t takers[MOST_TAKERS]; } inputs[] = {
    {"attn_norm", {TFM_ROLE_Q, TFM_ROLE_K, TFM_ROLE_V}},
    {"attn", {TFM_ROLE_O, 0, 0}},
    {"ffn_norm", {TFM_ROLE_GATE, TFM_ROLE_UP, 0}},
    {"ffn_act", {TFM_ROLE_DOWN, 0, 0}}};
enum { N_INPUTS = sizeof inputs / sizeof *inputs };

typedef struct input_sum { float *squares; int64_t cols, count; } input_sum;

struct collector {
    const tfm_model *model;
    int32_t n_layers;
    input_sum *sums; /* [n_layers][N_INPUTS] */
    int failed;
};

collector *collector_new(const tfm_model *model) {
    collector *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->model = model;
    c->n_layers = tfm_model_config_of(model)->n_layers;
    c->sums = calloc((size_t)c->n_layers * N_INPUTS + 1, sizeof *c->sums);
    if (c->sums) return c;
    free(c);
    return NULL;
}

void collector_free(collector *c) {
    if (!c) return;
    for (int32_t i = 0; i < c->n_layers * (int32_t)N_INPUTS; i++) free(c->sums[i].squares);
    free(c->sums);
    free(c);
}

void collector_trace(void *user, const char *name, int32_t layer, const float *data, int64_t rows, int64_t cols) {
    collector *c = user;
    for (size_t k = 0; layer >= 0 && layer < c->n_layers && k < N_INPUTS; k++) {
        input_sum *s = &c->sums[(size_t)layer * N_INPUTS + k];
        if (strcmp(name, inputs[k].name)) continue;
        if (!s->squares) s->squares = calloc((size_t)cols, sizeof *s->squares);
        if (!s->squares || (s->cols && s->cols != cols)) {
            c->failed = 1;
            return;
        }
        s->cols = cols;
        s->count += rows;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < cols; i++) s->squares[i] += data[r * cols + i] * data[r * cols + i];
    }
}

/* ---- WRITING ---------------------------------------------------------------------------------------------------- */

/* One tensor on its way into the file, F32 [cols]: first its entry in the directory, then its data. */
typedef void (*visit_fn)(void *user, const char *name, const float *values, int64_t cols);

/* Both tensors of every matrix that took an input. */
static void visit_tensors(const collector *c, visit_fn visit, void *user) {
    for (int32_t i = 0; i < c->n_layers * (int32_t)N_INPUTS; i++) {
        const input_sum *s = &c->sums[i];
        const float count = (float)s->count;
        for (int k = 0; s->count && k < MOST_TAKERS; k++) {
            const int32_t role = inputs[i % (int32_t)N_INPUTS].takers[k], layer = i / (int32_t)N_INPUTS;
            char name[64], full[96];
            if (!role) continue;
            const tfm_tensor t = tfm_model_tensor(c->model, layer, role);
            if (!t.data || t.cols != s->cols) continue;
            tfm_weight_name(TFM_STACK_DECODER, layer, role, -1, name, sizeof name);
            snprintf(full, sizeof full, "%s%s", name, sums_suffix);
            visit(user, full, s->squares, s->cols);
            snprintf(full, sizeof full, "%s%s", name, counts_suffix);
            visit(user, full, &count, 1);
        }
    }
}

static void put_entry(void *user, const char *name, const float *values, int64_t cols) {
    const int64_t dims[2] = {cols, 1};
    (void)values;
    gguf_put_tensor(user, name, GGML_F32, dims, 2, (uint64_t)cols * 4);
}

/* The data, each tensor padded. */
typedef struct data_out {
    sink *out;
    uint64_t at;
    int code;
    tfm_error *err;
} data_out;

static void put_data(void *user, const char *name, const float *values, int64_t cols) {
    data_out *d = user;
    arena mem = {NULL, 0, 0, 0};
    const size_t padded = ((size_t)cols * 4 + GGUF_OUT_ALIGNMENT - 1) / GGUF_OUT_ALIGNMENT * GGUF_OUT_ALIGNMENT;
    unsigned char *row = arena_alloc(&mem, padded);
    (void)name;
    if (!row) d->code = tool_fail(d->err, TFM_ERR_MEMORY, "out of memory");
    for (int64_t i = 0; row && i < cols; i++) {
        uint32_t bits;
        memcpy(&bits, values + i, 4);
        for (int k = 0; k < 4; k++) row[4 * i + k] = (unsigned char)(bits >> (8 * k));
    }
    if (!d->code) d->code = sink_write(d->out, d->at, row, padded, d->err);
    d->at += padded;
    arena_free(&mem);
}

int collector_write(const collector *c, sink *out, const char *dataset, int64_t chunks, int64_t size, tfm_error *err) {
    gguf_out g;
    arena mem = {NULL, 0, 0, 0};
    data_out data = {out, 0, TFM_OK, err};
    size_t n = 0;
    memset(&g, 0, sizeof g);
    gguf_put_text(&g, "general.type", "imatrix");
    gguf_put_array(&g, "imatrix.datasets", GGUF_STRING, 1);
    gguf_add_text(&g, dataset, strlen(dataset));
    gguf_put_u32(&g, "imatrix.chunk_count", (uint32_t)chunks);
    gguf_put_u32(&g, "imatrix.chunk_size", (uint32_t)size);
    visit_tensors(c, put_entry, &g);
    const unsigned char *head = gguf_out_head(&g, &mem, &n);
    if (c->failed || !head) data.code = tool_fail(err, TFM_ERR_MEMORY, "no memory for the sums");
    else if (!g.n_tensors) data.code = tool_fail(err, TFM_ERR_UNSUPPORTED, "no input of the model can be observed");
    else data.code = sink_write(out, 0, head, n, err);
    data.at = n;
    if (!data.code) visit_tensors(c, put_data, &data);
    gguf_out_free(&g);
    arena_free(&mem);
    return data.code;
}
