/* llama2c.c - checkpoints of llama2.c and their tokenizers. */
#include "llama2c.h"

#include <string.h>

enum {
    HEADER_BYTES = 28,
    LATER_HEADER_BYTES = 256,
    MAGIC = 0x616b3432,      /* "24ka" in the file: the versions that came later */
    MAX_LAYERS = 4096,
    MAX_PIECES = 1 << 22,
    MAX_PIECE_BYTES = 65535
};

/* ---- checkpoint ------------------------------------------------------------------------------------------------ */

static int fail_field(const l2c_model *m, const char *field, int64_t value, const char *why, tfm_error *err)
{
    return tool_fail(err, TFM_ERR_FORMAT, "%s: header: %s = %lld %s", m->src.name, field, (long long)value, why);
}

static int check_header(const l2c_model *m, tfm_error *err)
{
    const struct {
        const char *field;
        int64_t value;
    } positive[] = {
        { "dim", m->dim },               { "hidden_dim", m->hidden_dim }, { "n_layers", m->n_layers },
        { "n_heads", m->n_heads },       { "n_kv_heads", m->n_kv_heads }, { "vocab_size", m->vocab_size },
        { "seq_len", m->seq_len },
    };
    size_t i;
    for (i = 0; i < sizeof positive / sizeof positive[0]; i++) {
        if (positive[i].value < 1) return fail_field(m, positive[i].field, positive[i].value, "is not positive", err);
    }
    if (m->n_layers > MAX_LAYERS) return fail_field(m, "n_layers", m->n_layers, "is too large", err);
    if (m->dim % m->n_heads != 0) return fail_field(m, "dim", m->dim, "is no multiple of n_heads", err);
    if (m->n_heads % m->n_kv_heads != 0) {
        return fail_field(m, "n_heads", m->n_heads, "is no multiple of n_kv_heads", err);
    }
    if (m->head_dim % 2 != 0) return fail_field(m, "dim / n_heads", m->head_dim, "is odd", err);
    return TFM_OK;
}

/* The 7 numbers; a negative vocab_size is how version 0 says that the classifier is no embedding. */
static void read_fields(l2c_model *m, const unsigned char *b)
{
    int64_t field[7];
    int i;
    for (i = 0; i < 7; i++) field[i] = (int32_t)load_u32(b + 4 * i);
    m->dim = field[0];
    m->hidden_dim = field[1];
    m->n_layers = field[2];
    m->n_heads = field[3];
    m->n_kv_heads = field[4];
    m->tied = field[5] > 0;
    m->vocab_size = field[5] < 0 && m->version == 0 ? -field[5] : field[5];
    m->seq_len = field[6];
    m->head_dim = m->n_heads > 0 ? m->dim / m->n_heads : 0;
}

/* What stands behind the magic: version, the 7 numbers, the flag, in version 2 the size of groups. */
static int read_later_header(l2c_model *m, tfm_error *err)
{
    unsigned char b[LATER_HEADER_BYTES];
    uint32_t version;
    int code = source_read(&m->src, 0, b, sizeof b, err);
    if (code != TFM_OK) return code;
    version = load_u32(b + 4);
    if (version != 1 && version != 2) {
        return tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: header: llama2.c version %lu is not known (0, 1 and 2 are)",
                         m->src.name, (unsigned long)version);
    }
    m->version = (int)version;
    read_fields(m, b + 8);
    if (b[36] > 1) return fail_field(m, "shared_classifier", b[36], "is neither 0 nor 1", err);
    m->tied = b[36];
    m->group = version == 2 ? (int32_t)load_u32(b + 37) : 0;
    if (version == 2 && m->group < 1) return fail_field(m, "group_size", m->group, "is not positive", err);
    return check_header(m, err);
}

static int read_header(l2c_model *m, tfm_error *err)
{
    unsigned char b[HEADER_BYTES];
    int code;
    memset(b, 0, sizeof b);
    if (m->src.size < HEADER_BYTES) {
        return tool_fail(err, TFM_ERR_FORMAT, "%s: %llu bytes are no llama2.c checkpoint", m->src.name,
                         (unsigned long long)m->src.size);
    }
    code = source_read(&m->src, 0, b, sizeof b, err);
    if (code != TFM_OK) return code;
    if (load_u32(b) == MAGIC) return read_later_header(m, err);
    read_fields(m, b);
    return check_header(m, err);
}

/* Shapes by role. All numbers are below 2^31, so a product of two fits. */
static void set_shapes(l2c_model *m)
{
    static const struct {
        const char *name;
        int per_layer;
    } kinds[L2C_N_ROLES] = { /* in the order of l2c_role */
        { "token_embedding", 0 }, { "attn_norm", 1 }, { "wq", 1 }, { "wk", 1 }, { "wv", 1 }, { "wo", 1 },
        { "ffn_norm", 1 }, { "w1", 1 }, { "w2", 1 }, { "w3", 1 }, { "final_norm", 0 },
        { "rope_cos", 0 }, { "rope_sin", 0 }, { "classifier", 0 },
    };
    const int64_t kv_dim = m->n_kv_heads * m->head_dim, half = m->head_dim / 2;
    const int64_t shapes[L2C_N_ROLES][2] = {
        { m->vocab_size, m->dim }, { 1, m->dim }, { m->dim, m->dim }, { kv_dim, m->dim }, { kv_dim, m->dim },
        { m->dim, m->dim }, { 1, m->dim }, { m->hidden_dim, m->dim }, { m->dim, m->hidden_dim },
        { m->hidden_dim, m->dim }, { 1, m->dim }, { m->seq_len, half }, { m->seq_len, half },
        { m->tied ? 0 : m->vocab_size, m->dim },
    };
    const int later = m->version > 0; /* without tables of RoPE */
    int i;
    for (i = 0; i < L2C_N_ROLES; i++) {
        m->tensors[i].name = kinds[i].name;
        m->tensors[i].per_layer = kinds[i].per_layer;
        m->tensors[i].rows = later && (i == L2C_ROPE_COS || i == L2C_ROPE_SIN) ? 0 : shapes[i][0];
        m->tensors[i].grouped = m->version == 2 && i != L2C_ATTN_NORM && i != L2C_FFN_NORM && i != L2C_FINAL_NORM;
        m->tensors[i].cols = shapes[i][1];
    }
}

/* The bytes of one layer's tensor; -1 if they do not fit in 64 bits. */
static int tensor_bytes(const l2c_model *m, l2c_tensor *t)
{
    t->elements = (uint64_t)t->rows * (uint64_t)t->cols;
    if (!t->grouped) return checked_mul(t->elements, sizeof(float), &t->layer_bytes);
    t->layer_bytes = t->elements / (uint64_t)m->group * sizeof(float);
    if (t->layer_bytes > UINT64_MAX - t->elements) return -1;
    t->layer_bytes += t->elements;
    return 0;
}

/* Offsets one after the other; the last must end the file exactly. */
static int place_tensors(l2c_model *m, tfm_error *err)
{
    static const l2c_role later_order[L2C_N_ROLES] = { /* norms first; the tables of RoPE have no rows */
        L2C_ATTN_NORM, L2C_FFN_NORM, L2C_FINAL_NORM, L2C_TOKEN_EMBEDDING, L2C_WQ, L2C_WK, L2C_WV, L2C_WO, L2C_W1,
        L2C_W2, L2C_W3, L2C_ROPE_COS, L2C_ROPE_SIN, L2C_CLASSIFIER
    };
    uint64_t at = m->version ? LATER_HEADER_BYTES : HEADER_BYTES, bytes;
    int i;
    for (i = 0; i < L2C_N_ROLES; i++) {
        l2c_tensor *t = &m->tensors[m->version ? later_order[i] : (l2c_role)i];
        t->offset = at;
        if (t->grouped && t->rows * t->cols % m->group != 0) {
            return fail_field(m, "group_size", m->group, "does not divide its matrices", err);
        }
        if (tensor_bytes(m, t) != 0 ||
            checked_mul(t->layer_bytes, t->per_layer ? (uint64_t)m->n_layers : 1, &bytes) != 0 ||
            bytes > m->src.size - at) {
            return tool_fail(err, TFM_ERR_FORMAT, "%s: %s: its %lld x %lld numbers do not fit into %llu bytes",
                             m->src.name, t->name, (long long)t->rows, (long long)t->cols,
                             (unsigned long long)m->src.size);
        }
        at += bytes;
    }
    if (at == m->src.size) return TFM_OK;
    return tool_fail(err, TFM_ERR_FORMAT, "%s: has %llu bytes, but its header describes %llu (no llama2.c checkpoint?)",
                     m->src.name, (unsigned long long)m->src.size, (unsigned long long)at);
}

int l2c_open(l2c_model *m, const source *src, tfm_error *err)
{
    int code;
    memset(m, 0, sizeof *m);
    m->src = *src;
    code = read_header(m, err);
    if (code != TFM_OK) return code;
    set_shapes(m);
    return place_tensors(m, err);
}

/* Elements of a grouped tensor whose layer starts at `at`: a stretch and the scales of its groups at a time. */
static int read_groups(const l2c_model *m, const l2c_tensor *t, uint64_t at, uint64_t first, size_t n, float *buf,
                       tfm_error *err)
{
    enum { STRETCH = 4096 };
    signed char q[STRETCH];
    unsigned char scales[STRETCH + 1][sizeof(float)];
    const uint64_t group = (uint64_t)m->group;
    size_t done, run, i;
    for (done = 0; done < n; done += run) {
        const uint64_t from = first + done, g = from / group;
        size_t n_groups;
        int code;
        run = n - done < STRETCH ? n - done : STRETCH;
        n_groups = (size_t)((from + run - 1) / group - g) + 1;
        code = source_read(&m->src, at + t->elements + g * sizeof(float), scales, n_groups * sizeof(float), err);
        if (code == TFM_OK) code = source_read(&m->src, at + from, q, run, err);
        if (code != TFM_OK) return code;
        for (i = 0; i < run; i++) buf[done + i] = (float)q[i] * load_f32(scales[(from + i) / group - g]);
    }
    return TFM_OK;
}

int l2c_read(const l2c_model *m, l2c_role role, int64_t layer, uint64_t first, size_t n, float *buf, tfm_error *err)
{
    const l2c_tensor *t = &m->tensors[role];
    const uint64_t count = t->elements, at = t->offset + (uint64_t)layer * t->layer_bytes;
    size_t i;
    int code;
    if (layer < 0 || layer >= (t->per_layer ? m->n_layers : 1) || first > count || n > count - first) {
        return tool_fail(err, TFM_ERR_ARG, "%s: %s: layer %lld, elements %llu to %llu of %llu", m->src.name, t->name,
                         (long long)layer, (unsigned long long)first, (unsigned long long)(first + n),
                         (unsigned long long)count);
    }
    if (n > SIZE_MAX / sizeof(float)) {
        return tool_fail(err, TFM_ERR_ARG, "%s: %s: too large to read", m->src.name, t->name);
    }
    if (t->grouped) return read_groups(m, t, at, first, n, buf, err);
    code = source_read(&m->src, at + first * sizeof(float), buf, n * sizeof(float), err);
    for (i = 0; code == TFM_OK && i < n; i++) buf[i] = load_f32(&buf[i]);
    return code;
}

/* ---- tokenizer ------------------------------------------------------------------------------------------------- */

/* One piece at *at, which moves behind it. */
static int read_piece(const source *src, uint64_t *at, size_t number, l2c_piece *piece, arena *a, tfm_error *err)
{
    unsigned char b[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
    char *text;
    uint32_t n;
    int code = source_read(src, *at, b, sizeof b, err);
    if (code != TFM_OK) return code;
    piece->score = load_f32(b);
    n = load_u32(b + 4);
    *at += sizeof b;
    if (n > MAX_PIECE_BYTES || n > src->size - *at) {
        return tool_fail(err, TFM_ERR_FORMAT, "%s: piece %zu: its length %ld does not fit", src->name, number,
                         (long)(int32_t)n);
    }
    text = arena_text(a, n);
    if (text == NULL) return tool_fail(err, TFM_ERR_MEMORY, "%s: piece %zu: no memory", src->name, number);
    piece->text = text;
    piece->length = n;
    code = source_read(src, *at, text, n, err);
    *at += n;
    return code;
}

/* All pieces of a file that is in memory. */
static int read_pieces(l2c_tokenizer *t, const source *src, int64_t vocab_size, arena *a, tfm_error *err)
{
    unsigned char b[4];
    uint64_t at = sizeof b, room = src->size / 8; /* no piece is shorter than its score and length */
    int code = source_read(src, 0, b, sizeof b, err);
    if (code != TFM_OK) return code;
    t->max_length = (int32_t)load_u32(b);
    if (t->max_length < 0) {
        return tool_fail(err, TFM_ERR_FORMAT, "%s: max_token_length is %ld", src->name, (long)t->max_length);
    }
    if (vocab_size > 0 && (uint64_t)vocab_size < room) room = (uint64_t)vocab_size;
    if (room > MAX_PIECES) return tool_fail(err, TFM_ERR_FORMAT, "%s: is too large for a tokenizer.bin", src->name);
    t->pieces = (l2c_piece *)arena_array(a, (size_t)room, sizeof *t->pieces);
    if (t->pieces == NULL) return tool_fail(err, TFM_ERR_MEMORY, "%s: no memory", src->name);
    for (; at < src->size && t->n_pieces < room; t->n_pieces++) {
        code = read_piece(src, &at, t->n_pieces, &t->pieces[t->n_pieces], a, err);
        if (code != TFM_OK) return code;
    }
    if (vocab_size > 0 && t->n_pieces < (uint64_t)vocab_size) {
        return tool_fail(err, TFM_ERR_FORMAT, "%s: has %zu pieces, the model %lld", src->name, t->n_pieces,
                         (long long)vocab_size);
    }
    if (at == src->size) return TFM_OK;
    return tool_fail(err, TFM_ERR_FORMAT, "%s: goes on after piece %zu", src->name, t->n_pieces);
}

int l2c_read_tokenizer(l2c_tokenizer *t, const source *src, int64_t vocab_size, arena *a, tfm_error *err)
{
    arena scratch = { NULL, 0, 0, 0 };
    source memory;
    char *bytes;
    size_t n;
    int code = source_read_all(src, (uint64_t)1 << 30, &scratch, &bytes, &n, err);
    memset(t, 0, sizeof *t);
    if (code == TFM_OK) {
        memory = source_memory(src->name, bytes, n); /* its pieces are small: no reading one by one from the file */
        code = read_pieces(t, &memory, vocab_size, a, err);
    }
    arena_free(&scratch);
    return code;
}
