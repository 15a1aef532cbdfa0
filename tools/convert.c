/* convert.c - the core of tfm-convert: settles the head, describes the model, finds every tensor its description asks
 * for, and streams them strip by strip.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"
#include "writer.h"

enum { CHUNK_BYTES = 1 << 20 };

/* ---- THE HEAD -------------------------------------------------------------------------------------------------- */

static int read_rows(const checkpoint *c, const ckpt_tensor *t, int64_t first, int64_t n, void *buf, tfm_error *err) {
    if (!t->data) return c->read_rows(c, t, first, n, buf, err);
    memcpy(buf, (const char *)t->data + (size_t)first * t->row_bytes, (size_t)((uint64_t)n * t->row_bytes));
    return TFM_OK;
}

/* *equal = 1 if two tensors of one type and shape hold the same bytes. */
static int compare(const checkpoint *c, const ckpt_tensor *a, const ckpt_tensor *b, int *equal, tfm_error *err) {
    *equal = a->type == b->type && a->rows == b->rows && a->cols == b->cols && a->type >= 0;
    if (!*equal || !a->row_bytes) return TFM_OK;
    int64_t step = (int64_t)(CHUNK_BYTES / a->row_bytes) + 1;
    arena mem = {NULL, 0, 0, 0};
    char *x = arena_array(&mem, (size_t)step, (size_t)a->row_bytes);
    char *y = arena_array(&mem, (size_t)step, (size_t)a->row_bytes);
    int code = x && y ? TFM_OK : tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    for (int64_t row = 0; !code && *equal && row < a->rows; row += step) {
        int64_t n = a->rows - row < step ? a->rows - row : step;
        code = read_rows(c, a, row, n, x, err);
        if (!code) code = read_rows(c, b, row, n, y, err);
        if (!code) *equal = !memcmp(x, y, (size_t)((uint64_t)n * a->row_bytes));
    }
    arena_free(&mem);
    return code;
}

/* Decides between one matrix and two from what the values say and what the tensors are. GGUF and llama2.c have no such
 * value: tied means that the head is absent. */
static int settle_tied(checkpoint *c, ckpt_tensor *embed, ckpt_tensor *head, tfm_error *err) {
    value_set *p = &c->arch.p;
    int tied = p->given[P_TIED] ? p->v[P_TIED] != 0 : !head, equal = 0;
    char missing[256];
    if (tied != (embed && head)) { /* tied and one, or untied and two */
        p->v[P_TIED] = tied;
        return TFM_OK;
    }
    if (!tied)
        return tool_fail(err, TFM_ERR_FORMAT, "%s: tensor %s is missing, though tie_word_embeddings is not set",
                         c->file, checkpoint_role_name(c, embed ? TFM_ROLE_HEAD : TFM_ROLE_EMBED, -1, -1, missing,
                                                       sizeof missing));
    int code = compare(c, embed, head, &equal, err);
    p->v[P_TIED] = equal;
    if (equal)
        head->used = 1;
    else if (!code)
        checkpoint_warn(c, "%s: tie_word_embeddings is set, but %s differs from the embedding and is used", c->file,
                        head->name);
    return code;
}

static int settle_head(checkpoint *c, tfm_error *err) {
    ckpt_tensor *embed = checkpoint_role(c, TFM_ROLE_EMBED, -1, NULL);
    ckpt_tensor *head = checkpoint_role(c, TFM_ROLE_HEAD, -1, NULL);
    const ckpt_tensor *matrix = embed ? embed : head;
    value_set *p = &c->arch.p;
    char missing[256];
    if (!matrix)
        return tool_fail(err, TFM_ERR_FORMAT, "%s: tensor %s is missing", c->file,
                         checkpoint_role_name(c, TFM_ROLE_EMBED, -1, -1, missing, sizeof missing));
    if (p->given[P_N_VOCAB] == GIVEN_FILE && p->v[P_N_VOCAB] != (double)matrix->rows)
        return tool_fail(err, TFM_ERR_FORMAT, "%s: vocab_size is %.0f, but tensor %s has %lld rows", c->file,
                         p->v[P_N_VOCAB], matrix->name, (long long)matrix->rows);
    if (matrix->rows > INT32_MAX)
        return tool_fail(err, TFM_ERR_FORMAT, "%s: tensor %s has %lld rows", c->file, matrix->name,
                         (long long)matrix->rows);
    p->v[P_N_VOCAB] = (double)matrix->rows;
    p->given[P_N_VOCAB] = GIVEN_FILE;
    int code = settle_tied(c, embed, head, err);
    p->given[P_TIED] = GIVEN_FILE;
    return code;
}

/* ---- THE PLAN -------------------------------------------------------------------------------------------------- */

static const char *shape_text(const ckpt_tensor *t, char *buf, size_t size) {
    size_t used = 0;
    buf[0] = 0;
    for (int i = 0; i < t->n_dims && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%lld", i ? ", " : "", (long long)t->dims[i]);
    return buf;
}

static int refuse_type(const checkpoint *c, const ckpt_tensor *t, tfm_error *err) {
    const ggml_type *type = c->form == FORM_GGUF ? ggml_type_by_name(t->type_name) : NULL;
    return tool_fail(err, TFM_ERR_UNSUPPORTED,
                     "%s: tensor %s has type %s, which is not supported%s%s", c->file, t->name,
                     t->type_name, type && type->nearest ? "; the nearest that is: " : "",
                     type && type->nearest ? type->nearest : "");
}

/* t must be [total][cols], [cols][total] if it is stored by columns, or, for a vector (cols 0), have total elements; so
 * many times as it holds experts. */
static int check_tensor(const checkpoint *c, const ckpt_tensor *t, int vector, const row_slice *s, int64_t cols,
                        tfm_error *err) {
    char shape[160];
    const int64_t parts = s->experts ? s->experts : 1, rows = (s->columns && !vector ? cols : s->total) * parts;
    if (s->columns && !vector) cols = s->total;
    if (t->type < 0) return refuse_type(c, t, err);
    if (vector && tfm_type_get(t->type)->block != 1)
        return tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: tensor %s is a vector of type %s", c->file, t->name,
                         t->type_name);
    if (s->unit && tfm_type_get(t->type)->block != 1)
        return tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: tensor %s would have to be scaled, but has type %s", c->file,
                         t->name, t->type_name);
    if (s->columns && !vector && tfm_type_get(t->type)->block != 1)
        return tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: tensor %s is stored by columns in type %s", c->file, t->name,
                         t->type_name);
    if (vector && s->experts ? t->rows == parts && t->cols == s->total
                             : vector ? t->rows * t->cols == rows : t->rows == rows && t->cols == cols) return TFM_OK;
    shape_text(t, shape, sizeof shape);
    if (vector)
        return tool_fail(err, TFM_ERR_FORMAT, "tensor %s is [%s], %s asks for [%lld]", t->name, shape, c->file,
                         (long long)rows);
    return tool_fail(err, TFM_ERR_FORMAT, "tensor %s is [%s], %s asks for [%lld, %lld]", t->name, shape, c->file,
                     (long long)rows, (long long)cols);
}

row_slice plan_slice(const tfm_config *cfg, int layer, int expert, int take, int64_t rows, int64_t cols) {
    const tfm_block *b = &cfg->blocks[layer >= 0 && cfg->layer_block ? cfg->layer_block[layer] : 0];
    const int64_t d = b->head_dim, q = b->n_heads * d, kv = b->n_kv_heads * d, group = b->n_heads / b->n_kv_heads * d;
    row_slice s = {0, rows, rows, rows, 0, 0, (take & TAKE_COLUMNS) != 0, 0, 0, 0};
    switch (take & ~(TAKE_COLUMNS | TAKE_EXPERTS)) {
    case TAKE_PAIRS_Q: s.pair_heads = b->n_heads; break;
    case TAKE_PAIRS_K: s.pair_heads = b->n_kv_heads; break;
    case TAKE_ALL_V: s.start += kv; /* fall through */
    case TAKE_ALL_K: s.start += q;  /* fall through */
    case TAKE_ALL_Q: s.total = q + 2 * kv; break;
    case TAKE_GROUPS_V: s.start += d;     /* fall through */
    case TAKE_GROUPS_K: s.start += group; /* fall through */
    case TAKE_GROUPS_Q:
        s.run = s.start ? d : group;
        s.period = group + 2 * d;
        s.total = q + 2 * kv;
        break;
    case TAKE_QUARTERS_K: s.start += rows / 4; /* fall through */
    case TAKE_QUARTERS_V: s.start += rows / 4; /* fall through */
    case TAKE_QUARTERS_Q:
        s.run = rows / 4;
        s.period = 3 * (rows / 4);
        s.total = 3 * rows;
        break;
    case TAKE_SECOND_HALF: s.start += rows; /* fall through */
    case TAKE_FIRST_HALF: s.total = 2 * rows; break;
    case TAKE_ODD: s.start++; /* fall through */
    case TAKE_EVEN:
        s.run = 1;
        s.period = 2;
        s.total = 2 * rows;
        break;
    case TAKE_SWAP_Q:
    case TAKE_SWAP_K: s.swap = d; break;
    default: break;
    }
    if (take & TAKE_EXPERTS) {
        s.experts = b->n_experts;
        s.part = expert * (s.columns ? cols : s.total);
    }
    return s;
}

/* Bytes of the source that are read for a tensor. */
static uint64_t item_bytes(const tfm_tensor *t, const ckpt_tensor *from, const row_slice *slice) {
    const tfm_type_info *type = tfm_type_get(from->type);
    if (t->layout == TFM_ROWS) return (uint64_t)(slice->experts ? 1 : from->rows) * from->row_bytes;
    return (uint64_t)t->rows * (uint64_t)(t->cols / type->block) * (uint64_t)type->block_bytes;
}

static int has_unit_head(const checkpoint *c) {
    return c->arch.p.given[P_UNIT_HEAD] || (c->arch.p.given[P_UNIT_HEAD_VOCAB] &&
                                            arch_int(&c->arch, P_UNIT_HEAD_VOCAB) == arch_int(&c->arch, P_N_VOCAB));
}

/* Room for one more tensor. */
static int grow_plan(checkpoint *c, plan *p, tfm_error *err) {
    if (p->n < p->room) return TFM_OK;
    const size_t room = p->room ? 2 * (size_t)p->room : 256;
    tfm_weight *weights = arena_array(c->mem, room, sizeof *weights);
    plan_item *items = arena_array(c->mem, room, sizeof *items);
    if (!weights || !items) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    if (p->n) {
        memcpy(weights, p->weights, (size_t)p->n * sizeof *weights);
        memcpy(items, p->items, (size_t)p->n * sizeof *items);
    }
    p->weights = weights;
    p->items = items;
    p->room = (int64_t)room;
    return TFM_OK;
}

/* The type of a tensor before a mix is applied: vectors are F32, routers stay what they are as long as that is a float
 * type. */
static int32_t type_of_role(const ckpt_tensor *t, int role, int vector) {
    if (vector) return TFM_F32;
    return role == TFM_ROLE_ROUTER && tfm_type_get(t->type)->block > 1 ? TFM_F32 : t->type;
}

/* Adds the tensor of a role, if the description has that role; of an expert, or of none (-1). */
static int plan_tensor(checkpoint *c, plan *p, int layer, int role, int expert, tfm_error *err) {
    int64_t rows, cols;
    int optional = 0;
    const name_row *name = NULL;
    char missing[256];
    if (!tfm_role_shape(&p->config, layer, role, &rows, &cols, &optional)) return TFM_OK;
    ckpt_tensor *t = checkpoint_expert(c, role, layer, expert, &name);
    if (!t && role == TFM_ROLE_EMBED) t = checkpoint_role(c, TFM_ROLE_HEAD, layer, &name); /* tied, stored as head */
    if (!t && optional) return TFM_OK;
    if (!t)
        return tool_fail(err, TFM_ERR_FORMAT, "%s: tensor %s is missing, expected [%lld, %lld]", c->file,
                         checkpoint_role_name(c, role, layer, expert, missing, sizeof missing), (long long)rows,
                         (long long)cols);
    const int vector = rows == 1;
    row_slice slice = plan_slice(&p->config, layer, expert, name->take, vector ? cols : rows, vector ? 1 : cols);
    slice.unit = role == TFM_ROLE_HEAD && has_unit_head(c);
    int code = check_tensor(c, t, vector, &slice, cols, err);
    if (!code) code = grow_plan(c, p, err);
    if (code) return code;
    t->used = 1;
    tfm_weight *w = &p->weights[p->n];
    w->stack = TFM_STACK_DECODER;
    w->layer = layer;
    w->role = role;
    w->expert = expert;
    w->t.rows = rows;
    w->t.cols = cols;
    w->t.type = type_of_role(t, role, vector);
    w->t.layout = vector ? TFM_ROWS : TFM_TILED;
    p->items[p->n].from = t;
    p->items[p->n].slice = slice;
    p->bytes += item_bytes(&w->t, t, &slice);
    p->n++;
    return TFM_OK;
}

static int plan_role(checkpoint *c, plan *p, int layer, int role, tfm_error *err) {
    const int experts = tfm_role_experts(&p->config, layer, role);
    int code = TFM_OK;
    if (!experts) return plan_tensor(c, p, layer, role, -1, err);
    for (int e = 0; !code && e < experts; e++) code = plan_tensor(c, p, layer, role, e, err);
    return code;
}

/* Whether a tensor belongs to a layer past the model's: those that predict further tokens stand there. */
static int past_layers(const checkpoint *c, const plan *p, const char *name) {
    const char *at = strstr(name, "layers."), *blk = strstr(name, "blk.");
    char *end;
    at = at ? at + 7 : blk == name ? blk + 4 : NULL;
    if (!at || *at < '0' || *at > '9') return 0;
    const long layer = strtol(at, &end, 10) - p->config.n_layers;
    return layer >= 0 && layer < arch_int(&c->arch, P_N_EXTRA_LAYERS) && *end == '.';
}

/* Tensors that no role asked for: the model's own are an error, others are named in one warning. */
static int check_leftover(const checkpoint *c, const plan *p, tfm_error *err) {
    char names[320];
    size_t used = 0, n = 0;
    for (size_t i = 0; i < c->n_tensors; i++) {
        const char *name = c->tensors[i].name;
        if (c->tensors[i].used) continue;
        int harmless = family_skips(c->family, c->form, name) || past_layers(c, p, name);
        if (!harmless && family_owns(c->family, c->form, c->prefix, name))
            return tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: tensor %s: the model as described has no such part",
                             c->file, name);
        if (n++ < 4 && used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%.70s", used ? ", " : "", name);
    }
    if (n)
        checkpoint_warn(c, "skipped %zu tensor%s that the model does not use: %s%s", n, n > 1 ? "s" : "", names,
                        n > 4 ? ", ..." : "");
    return TFM_OK;
}

/* Gives each matrix its type, and says what that costs. */
static int choose_types(const checkpoint *c, plan *p, tfm_error *err) {
    mix_report report;
    int64_t missing;
    if (!c->options->mix) return TFM_OK;
    mix_apply(c->options->mix, &p->config, p->weights, p->n, c->options->importance != NULL, &report);
    if (report.n_fallbacks)
        checkpoint_warn(c, "%lld tensors have rows that a block of their type does not divide: %s; the first is %s",
                        (long long)report.n_fallbacks, report.text, p->items[report.first_fallback].from->name);
    if (report.n_again)
        checkpoint_warn(c, "%lld tensors are quantised in the source already and lose once more",
                        (long long)report.n_again);
    const int code = imatrix_check(c->options->importance, p->weights, p->n, &missing, err);
    if (missing) checkpoint_warn(c, "%lld quantised matrices have no row in the importance matrix", (long long)missing);
    return code;
}

/* Where the configuration does not say how wide the feed-forward is, its last matrix does. */
static void settle_width(checkpoint *c) {
    const name_row *row = NULL;
    const ckpt_tensor *down = checkpoint_role(c, TFM_ROLE_DOWN, 0, &row);
    value_set *p = &c->arch.p;
    if (p->given[P_D_FF] == GIVEN_FILE || !down) return;
    p->v[P_D_FF] = (double)(row->take & TAKE_COLUMNS ? down->rows : down->cols);
    p->given[P_D_FF] = GIVEN_FILE;
}

int make_plan(checkpoint *c, plan *p, tfm_error *err) {
    memset(p, 0, sizeof *p);
    int code = settle_head(c, err);
    if (!code) settle_width(c);
    if (!code) code = describe(&c->arch, c->file, c->mem, &p->config, err);
    if (code) return code;
    for (int layer = -1; layer < p->config.n_layers; layer++)
        for (int role = 1; role < TFM_ROLE_LIMIT; role++)
            if ((code = plan_role(c, p, layer, role, err)) != TFM_OK) return code;
    code = choose_types(c, p, err);
    return code ? code : check_leftover(c, p, err);
}

/* ---- STREAMING ------------------------------------------------------------------------------------------------- */

typedef struct stream {
    checkpoint *c;
    tfm_file_writer *w;
    const plan *p;
    uint64_t done;
    tfm_error *err;
} stream;

/* Where row (or element) r of a model in half-split order stands in a source of pairs. */
static int64_t pair_row(int64_t r, int64_t rows, int heads) {
    int64_t d = rows / heads, in_head = r % d, half = d / 2;
    return r - in_head + 2 * (in_head % half) + in_head / half;
}

/* Where row r of the model stands in the source, or in the expert's part of it. */
int64_t plan_source_row(const row_slice *s, int64_t r) {
    if (s->pair_heads) r = pair_row(r, s->total, s->pair_heads);
    if (s->swap) r += r % s->swap < s->swap / 2 ? s->swap / 2 : -(s->swap / 2);
    return s->start + r / s->run * s->period + r % s->run;
}

/* Rows [first, first + n) of the tensor in the model's order; as many at once as stand together. */
static int gather(const stream *s, const plan_item *item, int64_t first, int64_t n, char *buf) {
    const ckpt_tensor *t = item->from;
    int code = TFM_OK;
    for (int64_t i = 0, run; !code && i < n; i += run) {
        const int64_t from = plan_source_row(&item->slice, first + i);
        for (run = 1; i + run < n && plan_source_row(&item->slice, first + i + run) == from + run; run++) {}
        code = read_rows(s->c, t, item->slice.part + from, run, buf + (size_t)i * t->row_bytes, s->err);
    }
    return code;
}

/* The same rows where they are the source's columns; all of it is in memory. */
static void gather_columns(const plan_item *item, int64_t cols, const char *whole, int64_t first, int64_t n,
                           char *buf) {
    const ckpt_tensor *t = item->from;
    const size_t element = (size_t)tfm_type_get(t->type)->block_bytes;
    for (int64_t i = 0; i < n; i++) {
        const char *column = whole + (size_t)plan_source_row(&item->slice, first + i) * element;
        for (int64_t k = 0; k < cols; k++, buf += element) memcpy(buf, column + (size_t)k * t->row_bytes, element);
    }
}

/* The hash is of the source's bytes: floats are little-endian there. */
static void advance(stream *s, int32_t type, void *rows, int64_t elements, uint64_t n) {
    file_order(type, rows, elements);
    tfm_hash_feed(&s->c->hash, rows, (size_t)n);
    file_order(type, rows, elements);
    s->done += n;
    if (s->c->options->progress) s->c->options->progress(s->c->options->user, s->done, s->p->bytes);
}

/* Norms and biases: float32. */
static int stream_vector(stream *s, const plan_item *item, const tfm_tensor *t, arena *mem) {
    const ckpt_tensor *from = item->from;
    const row_slice *slice = &item->slice;
    const int64_t rows = slice->experts ? 1 : from->rows, count = rows * from->cols; /* a row an expert */
    char *raw = arena_array(mem, (size_t)rows, (size_t)from->row_bytes);
    float *values = arena_array(mem, (size_t)count, sizeof *values);
    float *out = arena_array(mem, (size_t)t->cols, sizeof *out);
    if (!raw || !values || !out) return tool_fail(s->err, TFM_ERR_MEMORY, "out of memory");
    int code = read_rows(s->c, from, slice->experts ? slice->part / slice->total : 0, rows, raw, s->err);
    if (code) return code;
    advance(s, from->type, raw, count, (uint64_t)rows * from->row_bytes);
    tfm_tensor as_stored = {raw, from->type, TFM_ROWS, 1, count};
    tfm_tensor_row(&as_stored, 0, values);
    for (int64_t i = 0; i < t->cols; i++) out[i] = values[plan_source_row(slice, i)];
    const tfm_tensor vector = {out, TFM_F32, TFM_ROWS, 1, t->cols};
    return writer_rows(s->w, &vector, s->err);
}

/* n rows of a float type become float32 rows of length 1. */
static void unit_rows(float *out, const char *raw, int32_t type, int64_t n, int64_t cols) {
    tfm_tensor rows = {raw, type, TFM_ROWS, n, cols};
    for (int64_t r = 0; r < n; r++, out += cols) {
        double sum = 0;
        tfm_tensor_row(&rows, r, out);
        for (int64_t i = 0; i < cols; i++) sum += (double)out[i] * (double)out[i];
        for (int64_t i = 0; sum > 0 && i < cols; i++) out[i] = (float)((double)out[i] / sqrt(sum));
    }
}

/* One chunk of whole strips at a time: read, pack, write. */
static int stream_matrix(stream *s, const plan_item *item, const tfm_weight *w, arena *mem) {
    const ckpt_tensor *from = item->from;
    const tfm_tensor *t = &w->t;
    const strip_threads *threads = &s->c->options->threads;
    const float *importance = imatrix_of(s->c->options->importance, w);
    const tfm_type_info *type = tfm_type_get(from->type);
    size_t stride = (size_t)(t->cols / type->block) * (size_t)type->block_bytes;
    size_t strip = tfm_strip_bytes(t->type, t->cols);
    int64_t step = (int64_t)(CHUNK_BYTES / (stride * STRIP) + 1) * STRIP;
    if (step > t->rows) step = (t->rows + STRIP - 1) / STRIP * STRIP;
    char *raw = arena_array(mem, (size_t)step, stride);
    char *packed = strip_memory(mem, (size_t)(step / STRIP) * strip);
    char *whole = item->slice.columns ? arena_array(mem, (size_t)t->cols, (size_t)from->row_bytes) : raw;
    const int unit = item->slice.unit;
    float *scaled = unit ? arena_array(mem, (size_t)step, (size_t)t->cols * sizeof(float)) : (float *)(void *)raw;
    const int32_t type_now = unit ? TFM_F32 : from->type;
    char *work = strip_memory(mem, strip_work_bytes(type_now, t->cols, threads));
    const size_t stride_now = unit ? (size_t)t->cols * sizeof(float) : stride;
    if (!raw || !packed || !work || !whole || !scaled) return tool_fail(s->err, TFM_ERR_MEMORY, "out of memory");
    if (item->slice.columns) {
        int code = read_rows(s->c, from, item->slice.part, t->cols, whole, s->err);
        if (code) return code;
    }
    for (int64_t row = 0; row < t->rows; row += step) {
        int64_t n = t->rows - row < step ? t->rows - row : step;
        int code = TFM_OK;
        if (item->slice.columns) gather_columns(item, t->cols, whole, row, n, raw);
        else code = gather(s, item, row, n, raw);
        if (code) return code;
        advance(s, from->type, raw, n * t->cols, (uint64_t)n * stride);
        if (unit) unit_rows(scaled, raw, from->type, n, t->cols);
        const strip_job job = {type_now, t->type, n, t->cols, (const char *)(const void *)scaled, stride_now, NULL, 0,
                               importance, packed, work};
        code = strips_convert(&job, threads);
        if (code)
            return tool_fail(s->err, code, "%s: tensor %s: %s", s->c->file, from->name, strip_error(code, t->type));
        const tfm_tensor strips = {packed, t->type, TFM_TILED, n, t->cols};
        code = writer_rows(s->w, &strips, s->err);
        if (code) return code;
    }
    return TFM_OK;
}

static int stream_tensors(stream *s) {
    int code = TFM_OK;
    for (int64_t i = 0; !code && i < s->p->n; i++) {
        const tfm_tensor *t = &s->p->weights[i].t;
        const plan_item *item = &s->p->items[i];
        arena mem = {NULL, 0, 0, 0};
        tfm_hash_feed(&s->c->hash, item->from->name, strlen(item->from->name));
        code = t->layout == TFM_ROWS ? stream_vector(s, item, t, &mem)
                                     : stream_matrix(s, item, &s->p->weights[i], &mem);
        arena_free(&mem);
    }
    return code;
}

/* ---- THE FILE -------------------------------------------------------------------------------------------------- */

static const char *form_name(const checkpoint *c) {
    static const char *const names[FORM_COUNT] = {"huggingface", "gguf", "llama2c"};
    return names[c->form];
}

/* Lines "name value": where the file comes from; the same for the same input. */
static const char *provenance(const checkpoint *c) {
    const convert_options *o = c->options;
    return arena_printf(c->mem, "source %s\nfamily %s\nsource_hash %016llx\ntool tfm-convert %s\ntype %s\n%s%s",
                        form_name(c), c->family->name, (unsigned long long)tfm_hash_finish(&c->hash), TFM_VERSION,
                        o->mix ? o->mix->rules : "source",
                        o->tokenizer ? "tokenizer given\n" : "", o->importance ? "imatrix used\n" : "");
}

/* tokenizer.json, tokenizer.model, tokenizer.bin or a GGUF, by the first bytes. */
static int tokenizer_of_file(const source *src, arena *mem, int64_t n_rows, tok_section *out, tfm_error *err) {
    unsigned char b[4] = {0, 0, 0, 0};
    gguf g;
    int code = source_read(src, 0, b, src->size < 4 ? (size_t)src->size : 4, err);
    if (code) return code;
    if (!memcmp(b, "GGUF", 4)) {
        code = gguf_open(&g, src, mem, err);
        return code ? code : tokenizer_from_gguf(mem, &g, n_rows, out, err);
    }
    if (b[0] == '{' || (b[0] == 0xef && b[1] == 0xbb)) return tokenizer_from_json(mem, src, NULL, n_rows, out, err);
    if (b[0] == 0x0a && b[1] != 0) return tokenizer_from_sentencepiece(mem, src, NULL, n_rows, out, err);
    return tokenizer_from_llama2c(mem, src, n_rows, out, err);
}

static int make_tokenizer(const checkpoint *c, int64_t n_rows, tok_section *out, tfm_error *err) {
    memset(out, 0, sizeof *out);
    out->bos = out->eos = -1;
    int code = c->options->tokenizer ? tokenizer_of_file(c->options->tokenizer, c->mem, n_rows, out, err)
                                     : c->tokenizer(c, c->mem, n_rows, out, err);
    for (int i = 0; !code && i < out->n_warnings; i++) checkpoint_warn(c, "%s", out->warnings[i]);
    if (!code && !out->bytes)
        checkpoint_warn(c, "%s: no tokenizer found: the model can be run on token ids only", c->file);
    return code;
}

/* The chat section of what `from` says; no bytes if it has no template. */
static int make_chat(const checkpoint *c, const chat_source *from, const tok_section *tok, chat_section *out,
                     tfm_error *err) {
    const tfm_tokenizer *t = NULL;
    void *object = arena_alloc(c->mem, tfm_tokenizer_size());
    memset(out, 0, sizeof *out);
    if (!from->text) return TFM_OK;
    if (!object) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    if (tok->bytes) tfm_tokenizer_open(tok->bytes, tok->size, object, tfm_tokenizer_size(), &t, NULL);
    int code = chat_build(c->mem, from, t, out, err);
    if (!code && out->notice) checkpoint_warn(c, "%s", out->notice);
    return code;
}

static int convert_checkpoint(checkpoint *c, sink *out, tfm_error *err) {
    plan p;
    tok_section tok;
    chat_source template;
    chat_section chat;
    tfm_file_writer w;
    memset(&template, 0, sizeof template);
    int code = make_plan(c, &p, err);
    if (!code) code = make_tokenizer(c, p.config.n_vocab, &tok, err);
    if (!code && c->chat) code = c->chat(c, c->mem, &template, err);
    if (!code) code = make_chat(c, &template, &tok, &chat, err);
    if (code) return code;
    if (p.config.bos < 0) p.config.bos = tok.bos;
    if (!p.config.n_eos && tok.eos >= 0) p.config.eos[p.config.n_eos++] = tok.eos;
    code = writer_begin(&w, out, c->mem, &p.config, p.weights, p.n, tok.bytes, tok.size, err);
    stream s = {c, &w, &p, 0, err};
    if (!code) code = stream_tensors(&s);
    if (!code && chat.bytes) code = writer_section(&w, TFM_SECTION_CHAT, chat.bytes, chat.size, err);
    if (code) return code;
    const char *text = provenance(c);
    if (!text) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    return writer_end(&w, text, strlen(text), err);
}

/* --vocab-only: a file that holds the tokenizer alone. */
static int write_vocab(const checkpoint *c, const tok_section *tok, const chat_section *chat, sink *out,
                       tfm_error *err) {
    tfm_file_writer w;
    tfm_hash hash;
    memset(&hash, 0, sizeof hash);
    tfm_hash_feed(&hash, tok->bytes, tok->size);
    tfm_hash_feed(&hash, chat->bytes, chat->size);
    const char *text = arena_printf(c->mem, "source tokenizer\nsource_hash %016llx\ntool tfm-convert %s\n",
                                    (unsigned long long)tfm_hash_finish(&hash), TFM_VERSION);
    int code = text ? writer_begin(&w, out, c->mem, NULL, NULL, 0, tok->bytes, tok->size, err) : TFM_ERR_MEMORY;
    if (!code && chat->bytes) code = writer_section(&w, TFM_SECTION_CHAT, chat->bytes, chat->size, err);
    return code ? code : writer_end(&w, text, strlen(text), err);
}

static int is_gguf(const source *src) {
    char magic[4];
    return src->size >= 4 && !source_read(src, 0, magic, 4, NULL) && !memcmp(magic, "GGUF", 4);
}

/* The chat template beside a tokenizer: of a directory, or in a GGUF. */
static int chat_beside(arena *mem, const source_dir *dir, const source *file, chat_source *out, tfm_error *err) {
    gguf g;
    memset(out, 0, sizeof *out);
    if (!file) return chat_from_hf(mem, dir, out, err);
    if (!is_gguf(file)) return TFM_OK;
    int code = gguf_open(&g, file, mem, err);
    return code ? code : chat_from_gguf(mem, &g, out, err);
}

/* The tokenizer of a directory or of a file, whichever is given. */
static int convert_vocab(checkpoint *c, const source_dir *dir, const source *src, sink *out, tfm_error *err) {
    tok_section tok;
    chat_source template;
    chat_section chat;
    const source *file = c->options->tokenizer ? c->options->tokenizer : src;
    memset(&tok, 0, sizeof tok);
    int code = file ? tokenizer_of_file(file, c->mem, 0, &tok, err) : tokenizer_from_hf(c->mem, dir, 0, &tok, err);
    for (int i = 0; !code && i < tok.n_warnings; i++) checkpoint_warn(c, "%s", tok.warnings[i]);
    if (!code) code = chat_beside(c->mem, dir, file, &template, err);
    if (!code) code = make_chat(c, &template, &tok, &chat, err);
    return code ? code : write_vocab(c, &tok, &chat, out, err);
}

/* Files that people try, by their first bytes, and what to do instead. TFM_OK: nothing that is known. */
static int refuse_by_content(const source *src, tfm_error *err) {
    static const struct { unsigned at, n; const char *bytes, *hint; } kinds[] = {
        {0, 4, "tfm\x1a", "is a .tfm file already (tfm-quantize changes its type)"},
        {0, 4, "PK\x03\x04", "is a PyTorch file: config.json must lie beside it"},
        {0, 2, "\x80\x02", "is a PyTorch file: config.json must lie beside it"},
        {8, 2, "{\"", "is a safetensors file: config.json must lie beside it"},
        {0, 1, "{", "is a JSON file: give its directory, or --vocab-only for a tokenizer.json alone"},
        {2, 1, "\n", "is a tokenizer.model: --vocab-only converts it alone"}};
    char head[16];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (src->size < kinds[i].at + kinds[i].n || source_read(src, kinds[i].at, head, kinds[i].n, NULL)) continue;
        if (!memcmp(head, kinds[i].bytes, kinds[i].n))
            return tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: %s", src->name, kinds[i].hint);
    }
    return TFM_OK;
}

static int open_file(checkpoint *c, const source *src, tfm_error *err) {
    if (is_gguf(src)) return checkpoint_open_gguf(c, src, err);
    int code = checkpoint_open_llama2c(c, src, err), hint = code ? refuse_by_content(src, err) : TFM_OK;
    return hint ? hint : code;
}

/* Every message names the source: those about a description by itself do not know it. */
static int name_source(int code, const char *name, tfm_error *err) {
    tfm_error why;
    if (!code || !err || strstr(err->msg, name)) return code;
    why = *err;
    return tool_fail(err, code, "%s: %s", name, why.msg);
}

static int convert(const source_dir *dir, const source *src, sink *out, const convert_options *options,
                   tfm_error *err) {
    arena mem = {NULL, 0, 0, 0};
    checkpoint c;
    int code;
    memset(&c, 0, sizeof c);
    c.mem = &mem;
    c.options = options;
    if (options->vocab_only) {
        code = convert_vocab(&c, dir, src, out, err);
    } else {
        code = dir ? checkpoint_open_hf(&c, dir, err) : open_file(&c, src, err);
        if (!code) code = convert_checkpoint(&c, out, err);
        if (c.close) c.close(&c);
    }
    arena_free(&mem);
    return name_source(code, dir ? dir->name : src->name, err);
}

int convert_directory(const source_dir *dir, sink *out, const convert_options *options, tfm_error *err) {
    return convert(dir, NULL, out, options, err);
}

int convert_file(const source *src, sink *out, const convert_options *options, tfm_error *err) {
    return convert(NULL, src, out, options, err);
}
