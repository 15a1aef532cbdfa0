/* gguf.c - one cursor walks over header, metadata and tensor directory; every number is checked as it is read. */
#include "gguf.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_KV = 1 << 16,
    MAX_TENSORS = 1 << 20,
    MAX_ARRAY = 1 << 24,       /* elements */
    MAX_NAME = 65535,          /* bytes of a key or of a tensor's name */
    MAX_STRING = 1 << 26,      /* bytes of a value */
    MAX_ALIGNMENT = 1 << 20,
    WINDOW = 1 << 16           /* bytes of the file kept at a time */
};

/* ---- types of tensors ------------------------------------------------------------------------------------------ */

static const ggml_type types[] = {
    { 0, "F32", 1, 4, 1, NULL },          { 1, "F16", 1, 2, 1, NULL },          { 2, "Q4_0", 32, 18, 1, NULL },
    { 3, "Q4_1", 32, 20, 1, NULL },       { 6, "Q5_0", 32, 22, 1, NULL },       { 7, "Q5_1", 32, 24, 1, NULL },
    { 8, "Q8_0", 32, 34, 1, NULL },       { 9, "Q8_1", 32, 36, 0, "Q8_0" },     { 10, "Q2_K", 256, 84, 1, NULL },
    { 11, "Q3_K", 256, 110, 1, NULL },    { 12, "Q4_K", 256, 144, 1, NULL },    { 13, "Q5_K", 256, 176, 1, NULL },
    { 14, "Q6_K", 256, 210, 1, NULL },    { 15, "Q8_K", 256, 292, 0, "Q8_0" },  { 16, "IQ2_XXS", 256, 66, 0, "Q2_K" },
    { 17, "IQ2_XS", 256, 74, 0, "Q2_K" }, { 18, "IQ3_XXS", 256, 98, 0, "Q3_K" },{ 19, "IQ1_S", 256, 50, 0, "Q2_K" },
    { 20, "IQ4_NL", 32, 18, 1, NULL },    { 21, "IQ3_S", 256, 110, 0, "Q3_K" }, { 22, "IQ2_S", 256, 82, 0, "Q2_K" },
    { 23, "IQ4_XS", 256, 136, 1, NULL },  { 24, "I8", 1, 1, 0, NULL },          { 25, "I16", 1, 2, 0, NULL },
    { 26, "I32", 1, 4, 0, NULL },         { 27, "I64", 1, 8, 0, NULL },         { 28, "F64", 1, 8, 0, "F32" },
    { 29, "IQ1_M", 256, 56, 0, "Q2_K" },  { 30, "BF16", 1, 2, 1, NULL },        { 34, "TQ1_0", 256, 54, 0, "Q2_K" },
    { 35, "TQ2_0", 256, 66, 0, "Q2_K" },  { 39, "MXFP4", 32, 17, 1, NULL },     { 40, "NVFP4", 64, 36, 0, "MXFP4" },
    { 41, "Q1_0", 128, 18, 0, "Q2_K" },
};

const ggml_type *ggml_type_by_id(uint32_t id)
{
    size_t i;
    for (i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].id == id) return &types[i];
    return NULL;
}

static int same_ignoring_case(const char *a, const char *b)
{
    for (; *a != 0 && *b != 0; a++, b++) {
        int x = *a >= 'a' && *a <= 'z' ? *a - 'a' + 'A' : *a, y = *b >= 'a' && *b <= 'z' ? *b - 'a' + 'A' : *b;
        if (x != y) return 0;
    }
    return *a == *b;
}

const ggml_type *ggml_type_by_name(const char *name)
{
    size_t i;
    for (i = 0; i < sizeof types / sizeof types[0]; i++)
        if (same_ignoring_case(types[i].name, name)) return &types[i];
    return NULL;
}

/* ---- cursor ---------------------------------------------------------------------------------------------------- */

typedef struct cursor {
    const source *src;
    uint64_t at;            /* position in the file */
    uint64_t window_start;  /* the file's bytes [window_start, window_start + window_size) are in window */
    size_t window_size;
    unsigned char *window;
    const char *what;       /* what is being read, for messages: a key, a tensor's name, or a part of the header */
    arena *a;
    tfm_error *err;
} cursor;

static uint64_t bytes_left(const cursor *c)
{
    return c->src->size - c->at;
}

static int fail_at(const cursor *c, const char *what)
{
    return tool_fail(c->err, TFM_ERR_FORMAT, "%s: %s: %s", c->src->name, c->what, what);
}

static int fail_memory(const cursor *c)
{
    return tool_fail(c->err, TFM_ERR_MEMORY, "%s: %s: no memory", c->src->name, c->what);
}

static int read_bytes(cursor *c, void *to, uint64_t n)
{
    unsigned char *out = (unsigned char *)to;
    if (n > bytes_left(c)) return fail_at(c, "the file ends in the middle of it");
    while (n > 0) {
        uint64_t skip = c->at - c->window_start, have = 0;
        if (c->at >= c->window_start && skip < c->window_size) have = c->window_size - skip;
        if (have == 0 && n >= WINDOW) { /* large pieces go straight to their place */
            int code = source_read(c->src, c->at, out, (size_t)n, c->err);
            c->at += n;
            return code;
        }
        if (have == 0) {
            size_t size = bytes_left(c) < WINDOW ? (size_t)bytes_left(c) : WINDOW;
            int code = source_read(c->src, c->at, c->window, size, c->err);
            if (code != TFM_OK) return code;
            c->window_start = c->at;
            c->window_size = size;
            continue;
        }
        if (have > n) have = n;
        memcpy(out, c->window + skip, (size_t)have);
        out += have;
        c->at += have;
        n -= have;
    }
    return TFM_OK;
}

static int read_u32(cursor *c, uint32_t *value)
{
    unsigned char b[4] = { 0, 0, 0, 0 };
    int code = read_bytes(c, b, 4);
    *value = load_u32(b);
    return code;
}

static int read_u64(cursor *c, uint64_t *value)
{
    unsigned char b[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
    int code = read_bytes(c, b, 8);
    *value = load_u64(b);
    return code;
}

/* A length and that many bytes. */
static int read_string(cursor *c, gguf_string *out, uint64_t limit)
{
    uint64_t n;
    char *text;
    int code = read_u64(c, &n);
    if (code != TFM_OK) return code;
    if (n > bytes_left(c)) return fail_at(c, "string length is beyond the end of the file");
    if (n > limit) return fail_at(c, "string is too long");
    text = arena_text(c->a, (size_t)n);
    if (text == NULL) return fail_memory(c);
    out->text = text;
    out->length = (size_t)n;
    return read_bytes(c, text, n);
}

/* A string that becomes the name of something: c->what from here on. */
static int read_name(cursor *c, const char **name)
{
    gguf_string s;
    int code = read_string(c, &s, MAX_NAME);
    if (code != TFM_OK) return code;
    if (memchr(s.text, 0, s.length) != NULL) return fail_at(c, "name with a zero byte");
    *name = c->what = s.text;
    return TFM_OK;
}

/* ---- metadata -------------------------------------------------------------------------------------------------- */

/* count values, little-endian as in the file; strings become a table. */
static int read_values(cursor *c, gguf_value_type type, uint64_t count, gguf_kv *kv)
{
    size_t size = gguf_value_bytes(type);
    gguf_string *strings;
    unsigned char *raw;
    uint64_t i;
    if (count > MAX_ARRAY || count > bytes_left(c) / (size == 0 ? 8 : size) /* a string has its length at least */) {
        return tool_fail(c->err, TFM_ERR_FORMAT, "%s: %s: %llu elements do not fit", c->src->name, c->what,
                         (unsigned long long)count);
    }
    kv->count = (size_t)count;
    if (type != GGUF_STRING) {
        raw = (unsigned char *)arena_array(c->a, (size_t)count, size);
        if (raw == NULL) return fail_memory(c);
        kv->u.raw = raw;
        return read_bytes(c, raw, count * size);
    }
    strings = (gguf_string *)arena_array(c->a, (size_t)count, sizeof *strings);
    if (strings == NULL) return fail_memory(c);
    kv->u.strings = strings;
    for (i = 0; i < count; i++) {
        int code = read_string(c, &strings[i], MAX_STRING);
        if (code != TFM_OK) return code;
    }
    return TFM_OK;
}

static int check_bools(const cursor *c, const gguf_kv *kv)
{
    size_t i;
    for (i = 0; i < kv->count; i++)
        if (kv->u.raw[i] > 1) return fail_at(c, "boolean that is neither 0 nor 1");
    return TFM_OK;
}

static int read_type(cursor *c, gguf_value_type *type)
{
    uint32_t id;
    int code = read_u32(c, &id);
    if (code != TFM_OK) return code;
    if (id >= GGUF_N_VALUE_TYPES) {
        return tool_fail(c->err, TFM_ERR_FORMAT, "%s: %s: unknown value type %lu", c->src->name, c->what,
                         (unsigned long)id);
    }
    *type = (gguf_value_type)id;
    return TFM_OK;
}

static int read_kv(cursor *c, gguf_kv *kv)
{
    gguf_value_type type;
    uint64_t count = 1;
    int code = read_name(c, &kv->key);
    if (code == TFM_OK) code = read_type(c, &kv->type);
    if (code != TFM_OK) return code;
    type = kv->type;
    if (kv->type == GGUF_ARRAY) {
        code = read_type(c, &kv->element);
        if (code == TFM_OK) code = read_u64(c, &count);
        if (code != TFM_OK) return code;
        if (kv->element == GGUF_ARRAY) return fail_at(c, "an array of arrays is not supported");
        type = kv->element;
    }
    code = read_values(c, type, count, kv);
    return code == TFM_OK && type == GGUF_BOOL ? check_bools(c, kv) : code;
}

static const char *kv_name(const void *table, uint32_t entry, size_t *length)
{
    const gguf_kv *kv = (const gguf_kv *)table + entry;
    *length = strlen(kv->key);
    return kv->key;
}

/* Says which name an index refused, and why. */
static int fail_name(const cursor *c, int result)
{
    return fail_at(c, result == 1 ? "this name stands twice" : "the names all collide");
}

static int read_metadata(cursor *c, gguf *g, uint64_t n)
{
    size_t i;
    c->what = "metadata count";
    if (n > MAX_KV || n > bytes_left(c) / 13) return fail_at(c, "more entries than the file can hold");
    g->kv = (gguf_kv *)arena_array(c->a, (size_t)n, sizeof *g->kv);
    if (g->kv == NULL || name_index_init(&g->kv_index, c->a, (size_t)n, kv_name) != TFM_OK) return fail_memory(c);
    for (i = 0; i < n; i++) {
        int code;
        c->what = "metadata";
        code = read_kv(c, &g->kv[i]);
        if (code != TFM_OK) return code;
        code = name_index_add(&g->kv_index, g->kv, (uint32_t)i, NULL);
        if (code != TFM_OK) return fail_name(c, code);
        g->n_kv++;
    }
    return TFM_OK;
}

/* ---- tensors --------------------------------------------------------------------------------------------------- */

/* Elements and bytes from type and dimensions. */
static int measure_tensor(const cursor *c, gguf_tensor *t)
{
    uint64_t elements = 1;
    int i;
    for (i = 0; i < t->n_dims; i++) {
        if (t->dims[i] < 1) {
            return tool_fail(c->err, TFM_ERR_FORMAT, "%s: %s: dimension %d is %lld", c->src->name, c->what, i,
                             (long long)t->dims[i]);
        }
        if (checked_mul(elements, (uint64_t)t->dims[i], &elements) != 0 || elements > INT64_MAX) {
            return fail_at(c, "the product of the dimensions is too large");
        }
    }
    if (t->dims[0] % t->type->block_elements != 0) {
        return tool_fail(c->err, TFM_ERR_FORMAT, "%s: %s: rows of %lld are no multiple of the %lu of %s", c->src->name,
                         c->what, (long long)t->dims[0], (unsigned long)t->type->block_elements, t->type->name);
    }
    t->n_elements = (int64_t)elements;
    if (checked_mul(elements / t->type->block_elements, t->type->block_bytes, &t->bytes) != 0) {
        return fail_at(c, "the product of the dimensions is too large");
    }
    return TFM_OK;
}

/* One entry of the directory; t->offset is still relative to the data. */
static int read_tensor(cursor *c, gguf_tensor *t)
{
    uint32_t n_dims, type, i;
    int code = read_name(c, &t->name);
    if (code == TFM_OK) code = read_u32(c, &n_dims);
    if (code != TFM_OK) return code;
    if (n_dims < 1 || n_dims > GGUF_MAX_DIMS) {
        return tool_fail(c->err, TFM_ERR_FORMAT, "%s: %s: %lu dimensions, not 1 to %d", c->src->name, c->what,
                         (unsigned long)n_dims, (int)GGUF_MAX_DIMS);
    }
    t->n_dims = (int)n_dims;
    for (i = 0; i < GGUF_MAX_DIMS; i++) {
        uint64_t dim = 1;
        if (i < n_dims) code = read_u64(c, &dim);
        if (code != TFM_OK) return code;
        if (dim > INT64_MAX) return fail_at(c, "a dimension is negative or too large");
        t->dims[i] = (int64_t)dim;
    }
    code = read_u32(c, &type);
    if (code == TFM_OK) code = read_u64(c, &t->offset);
    if (code != TFM_OK) return code;
    t->type = ggml_type_by_id(type);
    if (t->type == NULL) {
        return tool_fail(c->err, TFM_ERR_UNSUPPORTED, "%s: %s: unknown tensor type %lu", c->src->name, c->what,
                         (unsigned long)type);
    }
    return measure_tensor(c, t);
}

static const char *tensor_name(const void *table, uint32_t entry, size_t *length)
{
    const gguf_tensor *t = (const gguf_tensor *)table + entry;
    *length = strlen(t->name);
    return t->name;
}

static int read_directory(cursor *c, gguf *g, uint64_t n)
{
    size_t i;
    c->what = "tensor count";
    if (n > MAX_TENSORS || n > bytes_left(c) / 32) return fail_at(c, "more tensors than the file can hold");
    g->tensors = (gguf_tensor *)arena_array(c->a, (size_t)n, sizeof *g->tensors);
    if (g->tensors == NULL || name_index_init(&g->tensor_index, c->a, (size_t)n, tensor_name) != TFM_OK) {
        return fail_memory(c);
    }
    for (i = 0; i < n; i++) {
        int code;
        c->what = "tensor directory";
        code = read_tensor(c, &g->tensors[i]);
        if (code != TFM_OK) return code;
        code = name_index_add(&g->tensor_index, g->tensors, (uint32_t)i, NULL);
        if (code != TFM_OK) return fail_name(c, code);
        g->n_tensors++;
    }
    return TFM_OK;
}

static int read_alignment(const cursor *c, gguf *g)
{
    int64_t alignment;
    int code = gguf_int_or(g, "general.alignment", 32, &alignment, c->err);
    if (code != TFM_OK) return code;
    if (alignment < 1 || alignment > MAX_ALIGNMENT || (alignment & (alignment - 1)) != 0) {
        return tool_fail(c->err, TFM_ERR_FORMAT, "%s: general.alignment: %lld is no power of two up to %d",
                         c->src->name, (long long)alignment, (int)MAX_ALIGNMENT);
    }
    g->alignment = (uint64_t)alignment;
    return TFM_OK;
}

static int by_offset(const void *a, const void *b)
{
    const gguf_tensor *x = *(const gguf_tensor *const *)a, *y = *(const gguf_tensor *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int check_overlap(cursor *c, const gguf *g)
{
    const gguf_tensor **sorted = (const gguf_tensor **)calloc(g->n_tensors + 1, sizeof *sorted);
    size_t i;
    int code = TFM_OK;
    if (sorted == NULL) return fail_memory(c);
    for (i = 0; i < g->n_tensors; i++) sorted[i] = &g->tensors[i];
    qsort(sorted, g->n_tensors, sizeof *sorted, by_offset);
    for (i = 1; i < g->n_tensors && code == TFM_OK; i++) {
        if (sorted[i]->offset - sorted[i - 1]->offset >= sorted[i - 1]->bytes) continue;
        c->what = sorted[i]->name;
        code = tool_fail(c->err, TFM_ERR_FORMAT, "%s: %s: its data overlaps that of %s", c->src->name, c->what,
                         sorted[i - 1]->name);
    }
    free((void *)sorted);
    return code;
}

/* Offsets become absolute and are checked against the file and each other. */
static int place_tensors(cursor *c, gguf *g)
{
    uint64_t data = c->at + (g->alignment - c->at % g->alignment) % g->alignment, room;
    size_t i;
    if (data > c->src->size) data = c->src->size; /* a file without tensors may end at its directory */
    room = c->src->size - data;
    g->data_offset = data;
    for (i = 0; i < g->n_tensors; i++) {
        gguf_tensor *t = &g->tensors[i];
        c->what = t->name;
        if (t->offset % g->alignment != 0) {
            return tool_fail(c->err, TFM_ERR_FORMAT, "%s: %s: offset %llu is no multiple of the alignment %llu",
                             c->src->name, t->name, (unsigned long long)t->offset, (unsigned long long)g->alignment);
        }
        if (t->offset > room || t->bytes > room - t->offset) {
            return tool_fail(c->err, TFM_ERR_FORMAT, "%s: %s: %llu bytes at offset %llu of %llu bytes of data",
                             c->src->name, t->name, (unsigned long long)t->bytes, (unsigned long long)t->offset,
                             (unsigned long long)room);
        }
        t->offset += data;
    }
    return check_overlap(c, g);
}

/* ---- opening --------------------------------------------------------------------------------------------------- */

static int read_header(cursor *c, gguf *g, uint64_t *n_tensors, uint64_t *n_kv)
{
    unsigned char magic[4] = { 0, 0, 0, 0 };
    int code;
    *n_tensors = *n_kv = 0;
    c->what = "header";
    code = read_bytes(c, magic, 4);
    if (code != TFM_OK) return code;
    if (memcmp(magic, "GGUF", 4) != 0) return fail_at(c, "no GGUF file (the first four bytes differ)");
    code = read_u32(c, &g->version);
    if (code != TFM_OK) return code;
    if (g->version == 1) return fail_at(c, "version 1 is not supported; convert the model to GGUF again");
    if (g->version == 0x02000000 || g->version == 0x03000000) return fail_at(c, "big-endian GGUF is not supported");
    if (g->version != 2 && g->version != 3) {
        return tool_fail(c->err, TFM_ERR_UNSUPPORTED, "%s: header: version %lu is unknown (2 and 3 are known)",
                         c->src->name, (unsigned long)g->version);
    }
    code = read_u64(c, n_tensors);
    return code == TFM_OK ? read_u64(c, n_kv) : code;
}

static int read_all(cursor *c, gguf *g)
{
    uint64_t n_tensors, n_kv;
    int code = read_header(c, g, &n_tensors, &n_kv);
    if (code == TFM_OK) code = read_metadata(c, g, n_kv);
    if (code == TFM_OK) code = read_alignment(c, g);
    if (code == TFM_OK) code = read_directory(c, g, n_tensors);
    return code == TFM_OK ? place_tensors(c, g) : code;
}

int gguf_open(gguf *g, const source *src, arena *a, tfm_error *err)
{
    cursor c;
    int code;
    memset(g, 0, sizeof *g);
    g->src = *src;
    memset(&c, 0, sizeof c);
    c.src = src;
    c.a = a;
    c.err = err;
    c.window = (unsigned char *)malloc(WINDOW);
    if (c.window == NULL) return tool_fail(err, TFM_ERR_MEMORY, "%s: no memory", src->name);
    code = read_all(&c, g);
    free(c.window);
    return code;
}

/* ---- tensors: use ---------------------------------------------------------------------------------------------- */

const gguf_tensor *gguf_find_tensor(const gguf *g, const char *name)
{
    uint32_t at = name_index_find(&g->tensor_index, g->tensors, name, strlen(name));
    return at == NAME_ABSENT ? NULL : &g->tensors[at];
}

uint64_t gguf_row_bytes(const gguf_tensor *t)
{
    return (uint64_t)t->dims[0] / t->type->block_elements * t->type->block_bytes;
}

uint64_t gguf_n_rows(const gguf_tensor *t)
{
    return (uint64_t)(t->n_elements / t->dims[0]);
}

int gguf_read_rows(const gguf *g, const gguf_tensor *t, uint64_t first, size_t n_rows, void *buf, tfm_error *err)
{
    uint64_t bytes = gguf_row_bytes(t), count = gguf_n_rows(t);
    if (first > count || n_rows > count - first || (n_rows > 0 && bytes > SIZE_MAX / n_rows)) {
        return tool_fail(err, TFM_ERR_ARG, "%s: %s: rows %llu to %llu of %llu", g->src.name, t->name,
                         (unsigned long long)first, (unsigned long long)(first + n_rows), (unsigned long long)count);
    }
    return source_read(&g->src, t->offset + first * bytes, buf, (size_t)(bytes * n_rows), err);
}
