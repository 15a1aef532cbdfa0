/* writer.c - header · section table · description · directory · tokenizer · data · provenance. */
#include <stdlib.h>
#include <string.h>

#include "writer.h"

static void put_u32(unsigned char *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(v >> (8 * i));
}

static void put_u64(unsigned char *p, uint64_t v) {
    for (int i = 0; i < 8; i++) p[i] = (unsigned char)(v >> (8 * i));
}

static uint64_t hash_of(const void *bytes, size_t n) {
    tfm_hash h;
    memset(&h, 0, sizeof h);
    tfm_hash_feed(&h, bytes, n);
    return tfm_hash_finish(&h);
}

/* Appends; what lies between the end and the next multiple of 64 becomes zeros. */
static int pad64(tfm_file_writer *w, tfm_error *err) {
    static const unsigned char zeros[64];
    size_t n = (size_t)((0 - w->end) & 63);
    uint64_t at = w->end;
    w->end += n;
    return n ? sink_write(w->out, at, zeros, n, err) : TFM_OK;
}

static int append(tfm_file_writer *w, const void *bytes, size_t n, tfm_error *err) {
    uint64_t at = w->end;
    w->end += n;
    return n ? sink_write(w->out, at, bytes, n, err) : TFM_OK;
}

static unsigned char *add_section(tfm_file_writer *w, uint32_t id, uint64_t offset, uint64_t bytes, uint64_t hash) {
    unsigned char *row = w->head + TFM_FILE_HEADER_BYTES + w->n_sections++ * TFM_FILE_SECTION_BYTES;
    put_u32(row, id);
    put_u64(row + 8, offset);
    put_u64(row + 16, bytes);
    put_u64(row + 24, hash);
    return row;
}

static int append_section(tfm_file_writer *w, uint32_t id, const void *bytes, size_t n, tfm_error *err) {
    int code = pad64(w, err);
    if (code) return code;
    add_section(w, id, w->end, n, hash_of(bytes, n));
    return append(w, bytes, n, err);
}

static int write_description(tfm_file_writer *w, arena *mem, const tfm_config *c, tfm_error *err) {
    size_t n = tfm_config_encode(c, NULL, 0);
    unsigned char *bytes = arena_alloc(mem, n);
    if (!bytes) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    tfm_config_encode(c, bytes, n);
    return append_section(w, TFM_SECTION_DESCRIPTION, bytes, n, err);
}

static void put_entry(unsigned char *row, const tfm_weight *t, uint64_t offset, uint64_t bytes) {
    row[0] = (unsigned char)t->stack;
    row[2] = (unsigned char)t->t.layout;
    put_u32(row + 4, (uint32_t)t->layer);
    put_u32(row + 8, (uint32_t)t->role);
    put_u32(row + 12, (uint32_t)t->expert);
    put_u32(row + 16, (uint32_t)t->t.type);
    put_u64(row + 24, (uint64_t)t->t.rows);
    put_u64(row + 32, (uint64_t)t->t.cols);
    put_u64(row + 40, offset);
    put_u64(row + 48, bytes);
}

/* Gives every tensor its place after `start`; *bytes becomes the size of the data section. */
static int place_tensors(tfm_file_writer *w, const tfm_weight *tensors, uint64_t start, uint64_t *bytes,
                         tfm_error *err) {
    uint64_t at = start;
    for (int64_t i = 0; i < w->n_tensors; i++) {
        const tfm_tensor *t = &tensors[i].t;
        uint64_t size = tfm_tensor_bytes(t->type, t->layout, t->rows, t->cols);
        at = (at + 63) & ~(uint64_t)63;
        if (!size || size > UINT64_MAX / 2 - at)
            return tool_fail(err, TFM_ERR_FORMAT, "tensor %lld: type %d and %lld x %lld do not go together",
                             (long long)i, (int)t->type, (long long)t->rows, (long long)t->cols);
        put_entry(w->directory + i * TFM_FILE_ENTRY_BYTES, &tensors[i], at, size);
        at += size;
    }
    *bytes = at - start;
    return TFM_OK;
}

/* Leaves room for the directory, whose hashes are not known yet, and continues behind it. */
static int write_body(tfm_file_writer *w, const tfm_weight *tensors, const void *tokenizer, size_t tokenizer_bytes,
                      tfm_error *err) {
    uint64_t data_bytes = 0;
    size_t directory_bytes = (size_t)w->n_tensors * TFM_FILE_ENTRY_BYTES;
    int code = TFM_OK;
    if (w->directory) {
        code = pad64(w, err);
        w->directory_at = w->end;
        add_section(w, TFM_SECTION_DIRECTORY, w->end, directory_bytes, 0);
        if (!code) code = append(w, w->directory, directory_bytes, err);
    }
    if (!code && tokenizer) code = append_section(w, TFM_SECTION_TOKENIZER, tokenizer, tokenizer_bytes, err);
    if (!code) code = pad64(w, err);
    if (code || !w->directory) return code;
    code = place_tensors(w, tensors, w->end, &data_bytes, err);
    add_section(w, TFM_SECTION_DATA, w->end, data_bytes, 0);
    return code;
}

int writer_begin(tfm_file_writer *w, sink *out, arena *mem, const tfm_config *c, const tfm_weight *tensors,
                 int64_t n_tensors, const void *tokenizer, size_t tokenizer_bytes, tfm_error *err) {
    int n_sections = (c ? 3 : 0) + (tokenizer != NULL) + 2, code; /* provenance, and one of writer_section's */
    memset(w, 0, sizeof *w);
    w->out = out;
    w->n_tensors = n_tensors;
    w->current = -1;
    code = append(w, w->head, (size_t)(TFM_FILE_HEADER_BYTES + n_sections * TFM_FILE_SECTION_BYTES), err);
    if (!code && c) {
        w->directory = arena_array(mem, (size_t)n_tensors, TFM_FILE_ENTRY_BYTES);
        if (!w->directory) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
        code = write_description(w, mem, c, err);
    }
    return code ? code : write_body(w, tensors, tokenizer, tokenizer_bytes, err);
}

/* Ends the tensor that is complete and goes on to the next. */
static int next_tensor(tfm_file_writer *w, tfm_error *err) {
    unsigned char *row = w->directory + w->current * TFM_FILE_ENTRY_BYTES;
    if (w->current >= 0) put_u64(row + 56, tfm_hash_finish(&w->hash));
    memset(&w->hash, 0, sizeof w->hash);
    if (++w->current >= w->n_tensors) return TFM_OK;
    w->left = load_u64(w->directory + w->current * TFM_FILE_ENTRY_BYTES + 48);
    return pad64(w, err);
}

static int append_data(tfm_file_writer *w, const void *bytes, size_t n, tfm_error *err) {
    int code = w->left ? TFM_OK : next_tensor(w, err);
    if (code) return code;
    if (n > w->left)
        return tool_fail(err, TFM_ERR_ARG, "tensor %lld gets more bytes than it has", (long long)w->current);
    tfm_hash_feed(&w->hash, bytes, n);
    w->left -= n;
    return append(w, bytes, n, err);
}

/* Strip by strip through a buffer, in which they get the file's byte order. */
int writer_rows(tfm_file_writer *w, const tfm_tensor *rows, tfm_error *err) {
    tfm_tensor part = *rows;
    const int64_t step = rows->layout == TFM_TILED ? 16 : 1;
    size_t bytes = tfm_tensor_bytes(part.type, part.layout, step, part.cols);
    void *buffer = bytes ? malloc(bytes) : NULL;
    int code = buffer ? TFM_OK : tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    part.rows = step;
    for (int64_t row = 0; !code && row < rows->rows; row += step) {
        part.data = (const char *)rows->data + (size_t)(row / step) * bytes;
        tfm_file_order(&part, buffer);
        code = append_data(w, buffer, bytes, err);
    }
    free(buffer);
    return code;
}

int writer_section(tfm_file_writer *w, uint32_t id, const void *bytes, size_t n, tfm_error *err) {
    return append_section(w, id, bytes, n, err);
}

/* The row of a section in the table; NULL if the file has none. */
static unsigned char *find_section(tfm_file_writer *w, uint32_t id) {
    for (int i = 0; i < w->n_sections; i++) {
        unsigned char *row = w->head + TFM_FILE_HEADER_BYTES + i * TFM_FILE_SECTION_BYTES;
        if (load_u32(row) == id) return row;
    }
    return NULL;
}

static int finish_directory(tfm_file_writer *w, tfm_error *err) {
    size_t n = (size_t)w->n_tensors * TFM_FILE_ENTRY_BYTES;
    int code = w->left ? TFM_ERR_ARG : next_tensor(w, err);
    if (code || w->current < w->n_tensors)
        return tool_fail(err, TFM_ERR_ARG, "tensor %lld is not complete", (long long)w->current);
    put_u64(find_section(w, TFM_SECTION_DIRECTORY) + 24, hash_of(w->directory, n));
    return sink_write(w->out, w->directory_at, w->directory, n, err);
}

int writer_end(tfm_file_writer *w, const char *provenance, size_t n, tfm_error *err) {
    int code = w->directory ? finish_directory(w, err) : TFM_OK;
    if (!code) code = append_section(w, TFM_SECTION_PROVENANCE, provenance, n, err);
    if (code) return code;
    size_t table = (size_t)(w->n_sections * TFM_FILE_SECTION_BYTES);
    put_u32(w->head, TFM_FILE_MAGIC);
    put_u32(w->head + 4, TFM_FILE_VERSION);
    put_u64(w->head + 8, w->end);
    put_u32(w->head + 16, (uint32_t)w->n_sections);
    put_u64(w->head + 24, hash_of(w->head + TFM_FILE_HEADER_BYTES, table));
    put_u64(w->head + 32, hash_of(w->head, 32));
    return sink_write(w->out, 0, w->head, TFM_FILE_HEADER_BYTES + table, err);
}
