/* llama2c.c - legacy checkpoints of llama2.c and their tokenizers. */
#include "llama2c.h"

#include <string.h>

enum {
    HEADER_BYTES = 28,
    MAGIC = 0x616b3432,      /* "ak42": the formats that came later */
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

static int read_header(l2c_model *m, tfm_error *err)
{
    unsigned char b[HEADER_BYTES];
    int64_t field[7];
    int i, code;
    memset(b, 0, sizeof b);
    if (m->src.size < HEADER_BYTES) {
        return tool_fail(err, TFM_ERR_FORMAT, "%s: %llu bytes are no llama2.c checkpoint", m->src.name,
                         (unsigned long long)m->src.size);
    }
    code = source_read(&m->src, 0, b, sizeof b, err);
    if (code != TFM_OK) return code;
    if (load_u32(b) == MAGIC) {
        return tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: header: llama2.c version %lu is not supported, only the legacy "
                         "export (version 0)", m->src.name, (unsigned long)load_u32(b + 4));
    }
    for (i = 0; i < 7; i++) field[i] = (int32_t)load_u32(b + 4 * i);
    m->dim = field[0];
    m->hidden_dim = field[1];
    m->n_layers = field[2];
    m->n_heads = field[3];
    m->n_kv_heads = field[4];
    m->tied = field[5] > 0;
    m->vocab_size = field[5] < 0 ? -field[5] : field[5];
    m->seq_len = field[6];
    m->head_dim = m->n_heads > 0 ? m->dim / m->n_heads : 0;
    return check_header(m, err);
}

/* Shapes in the order of the file. All numbers are below 2^31, so a product of two fits. */
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
    int i;
    for (i = 0; i < L2C_N_ROLES; i++) {
        m->tensors[i].name = kinds[i].name;
        m->tensors[i].per_layer = kinds[i].per_layer;
        m->tensors[i].rows = shapes[i][0];
        m->tensors[i].cols = shapes[i][1];
    }
}

/* Offsets one after the other; the last must end the file exactly. */
static int place_tensors(l2c_model *m, tfm_error *err)
{
    uint64_t at = HEADER_BYTES, bytes;
    int i;
    for (i = 0; i < L2C_N_ROLES; i++) {
        l2c_tensor *t = &m->tensors[i];
        t->offset = at;
        t->layer_bytes = 0;
        if (checked_mul((uint64_t)t->rows * (uint64_t)t->cols, sizeof(float), &t->layer_bytes) != 0 ||
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

int l2c_read(const l2c_model *m, l2c_role role, int64_t layer, uint64_t first, size_t n, float *buf, tfm_error *err)
{
    const l2c_tensor *t = &m->tensors[role];
    uint64_t count = t->layer_bytes / sizeof(float);
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
    code = source_read(&m->src, t->offset + (uint64_t)layer * t->layer_bytes + first * sizeof(float), buf,
                       n * sizeof(float), err);
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
