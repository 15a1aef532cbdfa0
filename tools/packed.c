/* packed.c - configuration, parts and values of packed matrices. */
#include "packed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- CONFIGURATION --------------------------------------------------------------------------------------------- */

static int refuse(const json *config, const char *what, const char *value, tfm_error *err) {
    char where[320];
    return tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: %s \"%s\" is not read: take the original checkpoint, or a GGUF",
                     json_path(config, where, sizeof where), what, value);
}

/* FP8: one scale for a block, or, if none is given, whatever the scales' shape says. */
static int read_fp8(packed_scheme *s, const json *config, tfm_error *err) {
    const json *block = json_get(config, "weight_block_size");
    s->kind = PACKED_BYTES;
    for (int i = 0; i < 2 && !json_is_null(block); i++) {
        char where[320];
        int code = json_item_int(block, (size_t)i, &s->block[i], err);
        if (code) return code;
        if (s->block[i] < 1 || s->block[i] > 1 << 20)
            return tool_fail(err, TFM_ERR_FORMAT, "%s: %lld is out of range", json_path(block, where, sizeof where),
                             (long long)s->block[i]);
    }
    return TFM_OK;
}

static int read_awq(packed_scheme *s, const json *config, tfm_error *err) {
    const char *version;
    int64_t bits;
    int code = json_string_or(config, "version", "gemm", &version, err);
    if (!code) code = json_int_or(config, "bits", 4, &bits, err);
    if (code) return code;
    if (bits != 4) return refuse(config, "AWQ of bits", bits == 8 ? "8" : "other than 4", err);
    if (strcmp(version, "gemm") && strcmp(version, "GEMM")) return refuse(config, "AWQ version", version, err);
    s->kind = PACKED_AWQ;
    s->bits = 4;
    return TFM_OK;
}

static int read_gptq(packed_scheme *s, const json *config, tfm_error *err) {
    const char *format;
    int64_t bits;
    int code = json_string_or(config, "checkpoint_format", "gptq", &format, err);
    if (!code) code = json_int_or(config, "bits", 4, &bits, err);
    if (code) return code;
    if (bits != 2 && bits != 4 && bits != 8) return refuse(config, "GPTQ of bits", bits == 3 ? "3" : "?", err);
    if (strcmp(format, "gptq") && strcmp(format, "gptq_v2"))
        return refuse(config, "GPTQ checkpoint_format", format, err);
    s->kind = PACKED_GPTQ;
    s->bits = (int)bits;
    s->zero_plus_one = !strcmp(format, "gptq");
    return TFM_OK;
}

static int read_compressed(packed_scheme *s, const json *config, tfm_error *err) {
    static const struct { const char *name; packed_kind kind; } formats[] = {
        {"float-quantized", PACKED_BYTES}, {"int-quantized", PACKED_BYTES}, {"naive-quantized", PACKED_BYTES},
        {"pack-quantized", PACKED_WORDS}};
    const char *format;
    int code = json_string_or(config, "format", "?", &format, err);
    for (size_t i = 0; !code && i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(format, formats[i].name)) s->kind = formats[i].kind;
    return code || s->kind ? code : refuse(config, "compressed-tensors format", format, err);
}

int packed_config(packed_scheme *s, const json *config, tfm_error *err) {
    static const struct {
        const char *method;
        int (*read)(packed_scheme *s, const json *config, tfm_error *err);
    } methods[] = {{"fp8", read_fp8}, {"fbgemm_fp8", read_fp8}, {"awq", read_awq}, {"gptq", read_gptq},
                   {"compressed-tensors", read_compressed}};
    memset(s, 0, sizeof *s);
    if (json_is_null(config)) return TFM_OK;
    if (json_string_or(config, "quant_method", "unknown", &s->method, NULL)) s->method = "unknown";
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (!strcmp(s->method, methods[i].method)) return methods[i].read(s, config, err);
    return refuse(config, "quant_method", s->method, err);
}

/* ---- PARTS ----------------------------------------------------------------------------------------------------- */

/* Names of the parts behind "....": the codes, the scales, the zeros, the group of each input, and more that says
 * nothing about the weights' values. */
typedef struct part_names {
    packed_kind kind;
    const char *codes, *scales[2], *zeros, *groups, *others[3];
} part_names;

static const part_names names[] = {
    {PACKED_BYTES, "weight", {"weight_scale_inv", "weight_scale"}, "weight_zero_point", NULL,
     {"input_scale", "input_zero_point", "activation_scale"}},
    {PACKED_AWQ, "qweight", {"scales", NULL}, "qzeros", NULL, {NULL, NULL, NULL}},
    {PACKED_GPTQ, "qweight", {"scales", NULL}, "qzeros", "g_idx", {NULL, NULL, NULL}},
    {PACKED_WORDS, "weight_packed", {"weight_scale", NULL}, "weight_zero_point", "weight_g_idx",
     {"weight_shape", "input_scale", "input_zero_point"}}};

static const part_names *names_of(packed_kind kind) {
    size_t i = 0;
    while (names[i].kind != kind) i++;
    return &names[i];
}

static int fail(const packed_weights *p, const st_tensor *t, const char *what, tfm_error *err) {
    return tool_fail(err, TFM_ERR_FORMAT, "%s: tensor %s: %s", p->st->files[t->file].src.name, t->name, what);
}

/* The part `last` of the matrix whose name begins with the first n bytes of `name`; marks it as used. */
static const st_tensor *find_part(const packed_weights *p, const char *name, size_t n, const char *last,
                                  unsigned char *used) {
    char full[512];
    if (!last || n + strlen(last) >= sizeof full) return NULL;
    snprintf(full, sizeof full, "%.*s%s", (int)n, name, last);
    const st_tensor *t = st_find(p->st, full);
    if (t) used[t - p->st->tensors] = 1;
    return t;
}

static int is_words(const st_tensor *t) { return t->dtype == ST_I32 || t->dtype == ST_U32; }

static int is_scale(const st_tensor *t) {
    return t->dtype == ST_F32 || t->dtype == ST_F16 || t->dtype == ST_BF16 || t->dtype == ST_F8_E8M0;
}

/* The scales' shape as rows and columns: [] and [n] have one of the two. */
static void scale_shape(const st_tensor *t, int64_t *rows, int64_t *cols) {
    *rows = t->n_dims ? t->dims[0] : 1;
    *cols = t->n_dims > 1 ? t->dims[1] : 1;
}

static int64_t parts_of(int64_t n, int64_t block) { return n / block + (n % block != 0); }

/* FP8 and integers of 8 bits: scales for blocks, rows or all. */
static int check_bytes(packed_weights *p, packed_matrix *m, tfm_error *err) {
    int64_t rows, cols;
    m->rows = m->codes->dims[0];
    m->cols = m->codes->dims[1];
    scale_shape(m->scales, &rows, &cols);
    if (m->zeros) return fail(p, m->zeros, "zero points beside bytes are not read", err);
    const int by_block = p->scheme.block[0] && rows == parts_of(m->rows, p->scheme.block[0]) &&
                         cols == parts_of(m->cols, p->scheme.block[1]);
    if (by_block || (cols == 1 && (rows == 1 || rows == m->rows))) return TFM_OK;
    return fail(p, m->scales, "its shape does not go with the matrix", err);
}

/* Words with 32 / bits codes each, along outputs (AWQ) or inputs. */
static int check_groups(packed_weights *p, packed_matrix *m, tfm_error *err) {
    const int per_word = 32 / p->scheme.bits, awq = p->scheme.kind == PACKED_AWQ;
    if (!m->zeros) return fail(p, m->codes, "its qzeros are missing", err);
    if (m->scales->n_dims != 2 || m->zeros->n_dims != 2 || !is_words(m->zeros))
        return fail(p, m->scales, "scales and qzeros are no matrices", err);
    if (m->codes->dims[0] > INT32_MAX || m->codes->dims[1] > INT32_MAX)
        return fail(p, m->codes, "its shape is too large", err);
    m->rows = awq ? m->codes->dims[1] * per_word : m->codes->dims[1];
    m->cols = awq ? m->codes->dims[0] : m->codes->dims[0] * per_word;
    m->n_groups = m->scales->dims[0];
    if (m->scales->dims[1] != m->rows || m->n_groups < 1 || m->cols < 1 || m->n_groups > m->cols)
        return fail(p, m->scales, "its shape does not go with the matrix", err);
    if (m->zeros->dims[0] != m->n_groups || m->rows % per_word || m->zeros->dims[1] != m->rows / per_word)
        return fail(p, m->zeros, "its shape does not go with the matrix", err);
    if (!m->groups) return m->cols % m->n_groups ? fail(p, m->scales, "groups do not divide the inputs", err) : TFM_OK;
    if (m->groups->n_elements != m->cols || !is_words(m->groups))
        return fail(p, m->groups, "is not one number for each input", err);
    return TFM_OK;
}

/* The true shape stands in a tensor of its own, as a row of words may be padded. */
static int check_words(packed_weights *p, packed_matrix *m, const st_tensor *shape, tfm_error *err) {
    unsigned char b[16];
    int64_t rows, cols;
    if (m->zeros) return fail(p, m->zeros, "zero points of this format are not read", err);
    if (m->groups) return fail(p, m->groups, "an order of groups in this format is not read", err);
    if (!shape || shape->n_elements != 2 || (shape->dtype != ST_I64 && shape->dtype != ST_I32))
        return fail(p, m->codes, "its weight_shape is missing", err);
    int code = st_read(p->st, shape, 0, 2, b, err);
    if (code) return code;
    const int wide = shape->dtype == ST_I64;
    m->rows = wide ? (int64_t)load_u64(b) : (int32_t)load_u32(b);
    m->cols = wide ? (int64_t)load_u64(b + 8) : (int32_t)load_u32(b + 4);
    if (m->rows != m->codes->dims[0] || m->cols < 1 || m->cols > INT32_MAX || m->codes->dims[1] < 1)
        return fail(p, shape, "does not go with the matrix", err);
    const int bits = m->codes->dims[1] == parts_of(m->cols, 8) ? 4 : m->codes->dims[1] == parts_of(m->cols, 4) ? 8 : 0;
    if (!bits || (p->scheme.bits && p->scheme.bits != bits))
        return fail(p, m->codes, "has not 4 or 8 bits for each number", err);
    p->scheme.bits = bits;
    scale_shape(m->scales, &rows, &cols);
    m->n_groups = cols;
    if (rows != m->rows || cols < 1 || m->cols % cols)
        return fail(p, m->scales, "its shape does not go with the matrix", err);
    return TFM_OK;
}

/* The matrix whose codes are `codes`; *is_one = 0: it is an ordinary tensor. */
static int read_matrix(packed_weights *p, const st_tensor *codes, unsigned char *used, arena *a, int *is_one,
                       tfm_error *err) {
    const part_names *part = names_of(p->scheme.kind);
    const size_t n = strlen(codes->name), tail = strlen(part->codes);
    packed_matrix *m = &p->list[p->n];
    *is_one = 0;
    if (n < tail || strcmp(codes->name + n - tail, part->codes)) return TFM_OK;
    if (tail < n && codes->name[n - tail - 1] != '.') return TFM_OK;
    const int bytes = codes->dtype == ST_F8_E4M3 || codes->dtype == ST_F8_E5M2 || codes->dtype == ST_I8;
    if (p->scheme.kind == PACKED_BYTES ? !bytes : !is_words(codes)) return TFM_OK;
    *is_one = 1;
    m->codes = codes;
    m->scales = find_part(p, codes->name, n - tail, part->scales[0], used);
    if (!m->scales) m->scales = find_part(p, codes->name, n - tail, part->scales[1], used);
    m->zeros = find_part(p, codes->name, n - tail, part->zeros, used);
    m->groups = find_part(p, codes->name, n - tail, part->groups, used);
    const st_tensor *other = find_part(p, codes->name, n - tail, part->others[0], used);
    find_part(p, codes->name, n - tail, part->others[1], used);
    find_part(p, codes->name, n - tail, part->others[2], used);
    used[codes - p->st->tensors] = 1;
    m->name = arena_printf(a, "%.*sweight", (int)(n - tail), codes->name);
    if (!m->name) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    if (!m->scales) return fail(p, codes, "its scales are missing", err);
    if (codes->n_dims != 2 || codes->strided || !is_scale(m->scales) || m->scales->strided || m->scales->n_dims > 2)
        return fail(p, codes, "codes or scales have a shape or type that is not read", err);
    switch (p->scheme.kind) {
    case PACKED_BYTES: return check_bytes(p, m, err);
    case PACKED_WORDS: return check_words(p, m, other, err);
    default: return check_groups(p, m, err);
    }
}

int packed_find(packed_weights *p, const safetensors *st, unsigned char *used, arena *a, tfm_error *err) {
    int code = TFM_OK;
    p->st = st;
    p->n = 0;
    if (!p->scheme.kind) return TFM_OK;
    p->list = arena_array(a, st->n_tensors + 1, sizeof *p->list);
    if (!p->list) return tool_fail(err, TFM_ERR_MEMORY, "out of memory for %zu tensors", st->n_tensors);
    for (size_t i = 0; !code && i < st->n_tensors; i++) {
        int is_one;
        code = read_matrix(p, &st->tensors[i], used, a, &is_one, err);
        p->n += (size_t)is_one;
    }
    return code;
}

/* ---- VALUES ---------------------------------------------------------------------------------------------------- */

/* E4M3 has no infinity and one NaN of each sign, E5M2 is the upper half of an F16. */
static float fp8_value(int dtype, unsigned b) {
    const int mantissa_bits = dtype == ST_F8_E4M3 ? 3 : 2, bias = dtype == ST_F8_E4M3 ? 7 : 15;
    const int mantissa = (int)b & ((1 << mantissa_bits) - 1), exponent = (int)(b & 0x7f) >> mantissa_bits;
    const int top = 0x7f >> mantissa_bits;
    double v = exponent ? ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits)
                        : ldexp(mantissa, 1 - bias - mantissa_bits);
    if (dtype == ST_F8_E4M3 && (b & 0x7f) == 0x7f) v = NAN;
    if (dtype == ST_F8_E5M2 && exponent == top) v = mantissa ? NAN : INFINITY;
    return (float)(b & 0x80 ? -v : v);
}

static float byte_value(int dtype, unsigned b) {
    return dtype == ST_I8 ? (float)(b < 128 ? (int)b : (int)b - 256) : fp8_value(dtype, b);
}

/* A power of two; 255 is NaN. */
static float e8m0_value(unsigned b) { return b == 255 ? NAN : (float)ldexp(1, (int)b - 127); }

static void *part_bytes(const packed_weights *p, const st_tensor *t, tfm_error *err) {
    void *bytes = malloc((size_t)t->bytes + 1);
    if (!bytes) tool_fail(err, TFM_ERR_MEMORY, "tensor %s: out of memory", t->name);
    if (bytes && st_read(p->st, t, 0, (size_t)t->n_elements, bytes, err)) {
        free(bytes);
        return NULL;
    }
    return bytes;
}

/* All scales as float32. */
static float *read_scales(const packed_weights *p, const st_tensor *t, tfm_error *err) {
    unsigned char *raw = part_bytes(p, t, err);
    const size_t n = (size_t)t->n_elements;
    float *out = raw && n < SIZE_MAX / sizeof *out ? malloc(n * sizeof *out + 1) : NULL;
    const int32_t type = t->dtype == ST_F16 ? TFM_F16 : t->dtype == ST_BF16 ? TFM_BF16 : TFM_F32;
    tfm_tensor as_stored = {raw, type, TFM_ROWS, 1, (int64_t)n};
    if (raw && !out) tool_fail(err, TFM_ERR_MEMORY, "tensor %s: out of memory", t->name);
    for (size_t i = 0; out && t->dtype == ST_F8_E8M0 && i < n; i++) out[i] = e8m0_value(raw[i]);
    if (out && t->dtype != ST_F8_E8M0 && n) {
        file_order(type, raw, as_stored.cols);
        tfm_tensor_row(&as_stored, 0, out);
    }
    free(raw);
    return out;
}

static void release(packed_weights *p) {
    free(p->codes);
    free(p->zeros);
    free(p->scales);
    free(p->group_of);
    p->codes = p->zeros = NULL;
    p->scales = NULL;
    p->group_of = NULL;
    p->held = NULL;
}

void packed_close(packed_weights *p) { release(p); }

/* The group of each input: as the checkpoint lists them, or one after the other. */
static int read_group_of(packed_weights *p, const packed_matrix *m, tfm_error *err) {
    p->group_of = malloc((size_t)m->cols * sizeof *p->group_of + 1);
    if (!p->group_of) return tool_fail(err, TFM_ERR_MEMORY, "tensor %s: out of memory", m->name);
    if (m->groups) {
        int code = st_read(p->st, m->groups, 0, (size_t)m->cols, p->group_of, err);
        if (code) return code;
    }
    for (int64_t i = 0; i < m->cols; i++) {
        p->group_of[i] = m->groups ? load_u32(&p->group_of[i]) : (uint32_t)(i / (m->cols / m->n_groups));
        if (p->group_of[i] >= (uint64_t)m->n_groups) return fail(p, m->groups, "names a group that is not there", err);
    }
    return TFM_OK;
}

/* Codes of matrices by groups are needed as a whole, as a row of the model is a column there. */
static int hold(packed_weights *p, const packed_matrix *m, tfm_error *err) {
    const int whole = p->scheme.kind == PACKED_AWQ || p->scheme.kind == PACKED_GPTQ;
    int code = TFM_OK;
    if (p->held == m) return TFM_OK;
    release(p);
    p->scales = read_scales(p, m->scales, err);
    if (whole) p->codes = part_bytes(p, m->codes, err);
    if (whole) p->zeros = part_bytes(p, m->zeros, err);
    if (!p->scales || (whole && (!p->codes || !p->zeros))) code = err && err->code ? err->code : TFM_ERR_MEMORY;
    if (!code && whole) code = read_group_of(p, m, err);
    if (code) release(p);
    else p->held = m;
    return code;
}

static int rows_of_bytes(const packed_weights *p, const packed_matrix *m, int64_t first, int64_t n, float *out,
                         tfm_error *err) {
    const int64_t cols = m->cols;
    float values[256];
    int64_t scale_rows, scale_cols;
    unsigned char *raw = malloc((size_t)cols + 1);
    int code = raw ? TFM_OK : tool_fail(err, TFM_ERR_MEMORY, "tensor %s: out of memory", m->name);
    scale_shape(m->scales, &scale_rows, &scale_cols);
    const int by_block = p->scheme.block[0] && scale_cols == parts_of(cols, p->scheme.block[1]) &&
                         scale_rows == parts_of(m->rows, p->scheme.block[0]);
    for (unsigned b = 0; b < 256; b++) values[b] = byte_value((int)m->codes->dtype, b);
    for (int64_t r = first; !code && r < first + n; r++, out += cols) {
        const float *scale = p->scales + (by_block ? r / p->scheme.block[0] * scale_cols : scale_rows > 1 ? r : 0);
        code = st_read(p->st, m->codes, (uint64_t)(r * cols), (size_t)cols, raw, err);
        for (int64_t i = 0; !code && i < cols; i++)
            out[i] = values[raw[i]] * scale[by_block ? i / p->scheme.block[1] : 0];
    }
    free(raw);
    return code;
}

static int rows_of_words(const packed_weights *p, const packed_matrix *m, int64_t first, int64_t n, float *out,
                         tfm_error *err) {
    const int bits = p->scheme.bits, per_word = 32 / bits, zero = 1 << (bits - 1);
    const int64_t words = m->codes->dims[1], group = m->cols / m->n_groups;
    unsigned char *raw = malloc((size_t)words * 4 + 1);
    int code = raw ? TFM_OK : tool_fail(err, TFM_ERR_MEMORY, "tensor %s: out of memory", m->name);
    for (int64_t r = first; !code && r < first + n; r++, out += m->cols) {
        code = st_read(p->st, m->codes, (uint64_t)(r * words), (size_t)words, raw, err);
        for (int64_t i = 0; !code && i < m->cols; i++) {
            const uint32_t word = load_u32(raw + 4 * (i / per_word));
            const int q = (int)(word >> (unsigned)(bits * (int)(i % per_word)) & ((1u << bits) - 1));
            out[i] = (float)(q - zero) * p->scales[r * m->n_groups + i / group];
        }
    }
    free(raw);
    return code;
}

/* Where output o of 8 stands in an AWQ word: words hold 0 2 4 6 1 3 5 7. */
static const unsigned char awq_place[8] = {0, 4, 1, 5, 2, 6, 3, 7};

/* The zero of an output in a group. GPTQ's first format added 1 to whole words when it was read, so that what a
 * subtraction of 1 had borrowed from the next zero is given back. */
static int zero_of(const packed_weights *p, const packed_matrix *m, int64_t group, int64_t row) {
    const int bits = p->scheme.bits, per_word = 32 / bits, in_word = (int)(row % per_word);
    uint32_t word = load_u32(p->zeros + 4 * (group * (m->rows / per_word) + row / per_word)), ones = 0;
    for (int i = 0; i < per_word; i++) ones |= 1u << (bits * i);
    if (p->scheme.zero_plus_one) word += ones;
    const int place = p->scheme.kind == PACKED_AWQ ? awq_place[in_word] : in_word;
    return (int)(word >> (unsigned)(bits * place) & ((1u << bits) - 1));
}

/* Row by row of the packed matrix, which is an input (AWQ) or 32 / bits of them (GPTQ). */
static int rows_of_groups(const packed_weights *p, const packed_matrix *m, int64_t first, int64_t n, float *out,
                          tfm_error *err) {
    const int bits = p->scheme.bits, per_word = 32 / bits, awq = p->scheme.kind == PACKED_AWQ;
    const int64_t words = m->codes->dims[1];
    unsigned char *zeros = malloc((size_t)(m->n_groups * n) + 1); /* [n_groups][n] */
    if (!zeros) return tool_fail(err, TFM_ERR_MEMORY, "tensor %s: out of memory", m->name);
    for (int64_t g = 0; g < m->n_groups; g++)
        for (int64_t r = 0; r < n; r++) zeros[g * n + r] = (unsigned char)zero_of(p, m, g, first + r);
    for (int64_t i = 0; i < m->cols; i++) {
        const int64_t group = p->group_of[i];
        const unsigned char *row = p->codes + 4 * words * (awq ? i : i / per_word);
        const float *scales = p->scales + group * m->rows + first;
        for (int64_t r = 0; r < n; r++) {
            const int64_t o = first + r;
            const uint32_t word = load_u32(row + 4 * (awq ? o / per_word : o));
            const int place = awq ? awq_place[o % per_word] : (int)(i % per_word);
            const int q = (int)(word >> (unsigned)(bits * place) & ((1u << bits) - 1));
            out[r * m->cols + i] = (float)(q - zeros[group * n + r]) * scales[r];
        }
    }
    free(zeros);
    return TFM_OK;
}

int packed_rows(packed_weights *p, const packed_matrix *m, int64_t first, int64_t n, float *out, tfm_error *err) {
    const int code = hold(p, m, err);
    if (code) return code;
    switch (p->scheme.kind) {
    case PACKED_BYTES: return rows_of_bytes(p, m, first, n, out, err);
    case PACKED_WORDS: return rows_of_words(p, m, first, n, out, err);
    default: return rows_of_groups(p, m, first, n, out, err);
    }
}
