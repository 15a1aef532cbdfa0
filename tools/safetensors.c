/* safetensors.c - headers of .safetensors files, alone or as the shards of an index. */
#include "safetensors.h"
#include "torch_file.h"

#include <stdlib.h>
#include <string.h>

enum {
    HEADER_LIMIT = 100 * 1000 * 1000, /* bytes; what the format's own reader accepts */
    INDEX_LIMIT = 256 * 1000 * 1000,
    MAX_FILES = 4096
};

static const struct {
    const char *name;
    unsigned bits;
} dtypes[ST_N_DTYPES] = { /* in the order of st_dtype */
    { "F64", 64 }, { "F32", 32 }, { "F16", 16 }, { "BF16", 16 }, { "I64", 64 }, { "I32", 32 }, { "I16", 16 },
    { "I8", 8 }, { "U64", 64 }, { "U32", 32 }, { "U16", 16 }, { "U8", 8 }, { "BOOL", 8 }, { "C64", 64 },
    { "F8_E4M3", 8 }, { "F8_E5M2", 8 }, { "F8_E8M0", 8 }, { "F8_E4M3FNUZ", 8 }, { "F8_E5M2FNUZ", 8 },
    { "F6_E2M3", 6 }, { "F6_E3M2", 6 }, { "F4", 4 },
};

const char *st_dtype_name(int dtype)
{
    return dtype >= 0 && dtype < ST_N_DTYPES ? dtypes[dtype].name : "?";
}

unsigned st_dtype_bits(int dtype)
{
    return dtypes[dtype].bits;
}

static const char *tensor_name(const void *table, uint32_t entry, size_t *length)
{
    const st_tensor *t = (const st_tensor *)table + entry;
    *length = strlen(t->name);
    return t->name;
}

/* ---- one tensor of a header ------------------------------------------------------------------------------------ */

static int read_dtype(const json *v, st_tensor *t, tfm_error *err)
{
    const char *name;
    char path[512];
    int i, code = json_string(v, "dtype", &name, err);
    if (code != TFM_OK) return code;
    for (i = 0; i < ST_N_DTYPES; i++) {
        if (strcmp(dtypes[i].name, name) != 0) continue;
        t->dtype = (st_dtype)i;
        return TFM_OK;
    }
    return tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: unknown dtype '%s'", json_path(v, path, sizeof path), name);
}

/* The dimensions, their product and the bytes they ask for. */
static int read_shape(const json *v, st_tensor *t, uint64_t *bytes, tfm_error *err)
{
    const json *shape;
    uint64_t elements = 1, bits;
    char path[512];
    size_t i;
    int code = json_array(v, "shape", &shape, err);
    if (code != TFM_OK) return code;
    json_path(v, path, sizeof path);
    if (json_count(shape) > ST_MAX_DIMS) {
        return tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: %zu dimensions, more than %d", path, json_count(shape),
                         (int)ST_MAX_DIMS);
    }
    t->n_dims = (int)json_count(shape);
    for (i = 0; i < json_count(shape); i++) {
        code = json_as_int(json_at(shape, i), &t->dims[i], err);
        if (code != TFM_OK) return code;
        if (t->dims[i] < 0) return tool_fail(err, TFM_ERR_FORMAT, "%s: shape has a negative dimension", path);
        if (checked_mul(elements, (uint64_t)t->dims[i], &elements) != 0 || elements > INT64_MAX) {
            return tool_fail(err, TFM_ERR_FORMAT, "%s: shape has too many elements", path);
        }
    }
    t->n_elements = (int64_t)elements;
    if (checked_mul(elements, dtypes[t->dtype].bits, &bits) != 0 || bits % 8 != 0) {
        return tool_fail(err, TFM_ERR_FORMAT, "%s: shape does not fill whole bytes of %s", path, dtypes[t->dtype].name);
    }
    *bytes = bits / 8;
    return TFM_OK;
}

/* The place in a file whose data starts at `base`. */
static int read_offsets(const json *v, st_tensor *t, uint64_t base, uint64_t file_size, uint64_t bytes, tfm_error *err)
{
    const json *offsets;
    char path[512];
    int64_t begin, end;
    int code = json_array(v, "data_offsets", &offsets, err);
    if (code != TFM_OK) return code;
    json_path(v, path, sizeof path);
    if (json_count(offsets) != 2) return tool_fail(err, TFM_ERR_FORMAT, "%s: data_offsets are not two numbers", path);
    code = json_as_int(json_at(offsets, 0), &begin, err);
    if (code == TFM_OK) code = json_as_int(json_at(offsets, 1), &end, err);
    if (code != TFM_OK) return code;
    if (begin < 0 || end < begin || (uint64_t)end > file_size - base) {
        return tool_fail(err, TFM_ERR_FORMAT, "%s: data_offsets %lld to %lld are outside the %llu bytes of data", path,
                         (long long)begin, (long long)end, (unsigned long long)(file_size - base));
    }
    if ((uint64_t)(end - begin) != bytes) {
        return tool_fail(err, TFM_ERR_FORMAT, "%s: data_offsets give %lld bytes, dtype and shape %llu", path,
                         (long long)(end - begin), (unsigned long long)bytes);
    }
    t->offset = base + (uint64_t)begin;
    t->bytes = bytes;
    return TFM_OK;
}

/* ---- one file -------------------------------------------------------------------------------------------------- */

static int by_offset(const void *a, const void *b)
{
    const st_tensor *x = *(const st_tensor *const *)a, *y = *(const st_tensor *const *)b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* The tensors must fill the data without gap or overlap, as the format asks. */
static int check_layout(const st_tensor *tensors, size_t n, uint64_t base, const source *src, tfm_error *err)
{
    const st_tensor **sorted = (const st_tensor **)calloc(n + 1, sizeof *sorted);
    uint64_t end = base;
    size_t i;
    int code = TFM_OK;
    if (sorted == NULL) return tool_fail(err, TFM_ERR_MEMORY, "%s: no memory for %zu tensors", src->name, n);
    for (i = 0; i < n; i++) sorted[i] = &tensors[i];
    qsort(sorted, n, sizeof *sorted, by_offset);
    for (i = 0; i < n && code == TFM_OK; i++) {
        if (sorted[i]->offset != end) {
            code = tool_fail(err, TFM_ERR_FORMAT, "%s: %s: data_offsets %s", src->name, sorted[i]->name,
                             sorted[i]->offset < end ? "overlap another tensor's" : "leave a gap before it");
        }
        end = sorted[i]->offset + sorted[i]->bytes;
    }
    if (code == TFM_OK && end != src->size) {
        code = tool_fail(err, TFM_ERR_FORMAT, "%s: has %llu bytes, but its tensors end at %llu", src->name,
                         (unsigned long long)src->size, (unsigned long long)end);
    }
    free((void *)sorted);
    return code;
}

/* Parses the header; *base is where the data starts. */
static int read_header(const source *src, arena *a, const json **header, uint64_t *base, tfm_error *err)
{
    unsigned char length[8];
    char *text;
    uint64_t n;
    int code;
    if (src->size < sizeof length) {
        return tool_fail(err, TFM_ERR_FORMAT, "%s: %llu bytes are no safetensors file", src->name,
                         (unsigned long long)src->size);
    }
    code = source_read(src, 0, length, sizeof length, err);
    if (code != TFM_OK) return code;
    n = load_u64(length);
    *base = sizeof length + n;
    if (n > HEADER_LIMIT || n > src->size - sizeof length) {
        return tool_fail(err, TFM_ERR_FORMAT, "%s: header length %llu does not fit (file of %llu bytes, limit %d)",
                         src->name, (unsigned long long)n, (unsigned long long)src->size, (int)HEADER_LIMIT);
    }
    text = arena_text(a, (size_t)n);
    if (text == NULL) return tool_fail(err, TFM_ERR_MEMORY, "%s: no memory for the header", src->name);
    code = source_read(src, sizeof length, text, (size_t)n, err);
    if (code != TFM_OK) return code;
    *header = json_parse_in_place(src->name, text, (size_t)n, a, err);
    if (*header == NULL) return TFM_ERR_FORMAT;
    if (!json_is(*header, JSON_OBJECT)) {
        return tool_fail(err, TFM_ERR_FORMAT, "%s: the header is %s, not an object", src->name,
                         json_type_name((*header)->type));
    }
    if ((*header)->has_duplicates) {
        return tool_fail(err, TFM_ERR_FORMAT, "%s: the header has two tensors of one name", src->name);
    }
    return TFM_OK;
}

/* All tensors of one file of this format into a new array of the arena. */
static int read_safetensors(const source *src, int file, arena *a, st_tensor **out, size_t *n_out,
                            const json **metadata, tfm_error *err)
{
    const json *header = NULL;
    uint64_t base = 0, bytes;
    size_t i, n = 0;
    st_tensor *tensors;
    int code = read_header(src, a, &header, &base, err);
    if (code != TFM_OK) return code;
    tensors = (st_tensor *)arena_array(a, json_count(header), sizeof *tensors);
    if (tensors == NULL) return tool_fail(err, TFM_ERR_MEMORY, "%s: no memory for its tensors", src->name);
    *metadata = json_get(header, "__metadata__");
    for (i = 0; i < json_count(header); i++) {
        const json *v = json_at(header, i);
        st_tensor *t = &tensors[n];
        if (v == *metadata) continue;
        if (strlen(v->key) != v->key_length) {
            return tool_fail(err, TFM_ERR_FORMAT, "%s: %s: name with a zero byte", src->name, v->key);
        }
        t->name = v->key;
        t->file = file;
        code = read_dtype(v, t, err);
        if (code == TFM_OK) code = read_shape(v, t, &bytes, err);
        if (code == TFM_OK) code = read_offsets(v, t, base, src->size, bytes, err);
        if (code != TFM_OK) return code;
        n++;
    }
    *out = tensors;
    *n_out = n;
    return check_layout(tensors, n, base, src, err);
}

/* All tensors of st->files[file], whose format its first bytes tell. */
static int read_tensors(safetensors *st, int file, arena *a, st_tensor **out, size_t *n_out, tfm_error *err)
{
    st_file *f = &st->files[file];
    if (is_torch_file(&f->src)) return torch_read(&f->src, file, a, out, n_out, &f->big_endian, err);
    return read_safetensors(&f->src, file, a, out, n_out, &f->metadata, err);
}

/* `file` is the one to name in messages. */
static int index_names(name_index *index, const st_tensor *tensors, size_t n, arena *a, const char *file,
                       tfm_error *err)
{
    size_t i;
    if (name_index_init(index, a, n, tensor_name) != TFM_OK) {
        return tool_fail(err, TFM_ERR_MEMORY, "%s: no memory for %zu names", file, n);
    }
    for (i = 0; i < n; i++) {
        int result = name_index_add(index, tensors, (uint32_t)i, NULL);
        if (result == TFM_OK) continue;
        return tool_fail(err, TFM_ERR_FORMAT, "%s: %s: %s", file, tensors[i].name,
                         result == 1 ? "two tensors have this name" : "the tensors' names all collide");
    }
    return TFM_OK;
}

int st_open_file(safetensors *st, const source *src, arena *a, tfm_error *err)
{
    int code;
    memset(st, 0, sizeof *st);
    st->files = (st_file *)arena_alloc(a, sizeof *st->files);
    if (st->files == NULL) return tool_fail(err, TFM_ERR_MEMORY, "%s: no memory", src->name);
    st->files[0].src = *src;
    st->n_files = 1;
    code = read_tensors(st, 0, a, &st->tensors, &st->n_tensors, err);
    return code == TFM_OK ? index_names(&st->index, st->tensors, st->n_tensors, a, src->name, err) : code;
}

/* ---- a directory ----------------------------------------------------------------------------------------------- */

typedef struct shard {
    const char *name;
    st_tensor *tensors;
    size_t n_tensors;
    name_index index;
} shard;

typedef struct shards {
    shard list[MAX_FILES];
    uint32_t n;
    name_index index; /* by name of the file */
} shards;

static const char *shard_name(const void *table, uint32_t entry, size_t *length)
{
    const shard *s = (const shard *)table + entry;
    *length = strlen(s->name);
    return s->name;
}

/* The number of a file, which is added if it is new; negative on error. */
static int find_shard(shards *all, const char *name, const char *index_name, tfm_error *err)
{
    uint32_t at = name_index_find(&all->index, all->list, name, strlen(name));
    if (at != NAME_ABSENT) return (int)at;
    if (all->n == MAX_FILES) {
        return tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: names more than %d files", index_name, (int)MAX_FILES);
    }
    all->list[all->n].name = name;
    if (name_index_add(&all->index, all->list, all->n, NULL) != TFM_OK) {
        return tool_fail(err, TFM_ERR_FORMAT, "%s: the files' names all collide", index_name);
    }
    return (int)all->n++;
}

/* Collects the files that weight_map names, in order of appearance. */
static int list_shards(const json *map, const char *index_name, arena *a, shards *all, tfm_error *err)
{
    size_t i;
    if (name_index_init(&all->index, a, MAX_FILES, shard_name) != TFM_OK) {
        return tool_fail(err, TFM_ERR_MEMORY, "%s: no memory", index_name);
    }
    for (i = 0; i < json_count(map); i++) {
        const char *name;
        int code = json_as_string(json_at(map, i), &name, err);
        if (code != TFM_OK) return code;
        code = find_shard(all, name, index_name, err);
        if (code < 0) return code;
    }
    return TFM_OK;
}

static int open_shard(safetensors *st, uint32_t at, shard *s, arena *a, tfm_error *err)
{
    source *src = &st->files[at].src;
    int code = st->dir.open(st->dir.user, s->name, src, err);
    if (code > 0) {
        return tool_fail(err, TFM_ERR_IO, "%s: the index of its weights names %s, which is absent", st->dir.name,
                         s->name);
    }
    if (code < 0) return code;
    st->n_files = (int)at + 1;
    code = read_tensors(st, (int)at, a, &s->tensors, &s->n_tensors, err);
    return code == TFM_OK ? index_names(&s->index, s->tensors, s->n_tensors, a, src->name, err) : code;
}

/* Takes from each file the tensors that the index says are there. */
static int collect_tensors(safetensors *st, const json *map, const shards *all, tfm_error *err)
{
    size_t i;
    for (i = 0; i < json_count(map); i++) {
        const json *v = json_at(map, i);
        uint32_t file = name_index_find(&all->index, all->list, v->u.text, v->count);
        const shard *s = &all->list[file];
        uint32_t at = name_index_find(&s->index, s->tensors, v->key, v->key_length);
        if (at == NAME_ABSENT) {
            return tool_fail(err, TFM_ERR_FORMAT, "%s: the index says it holds %s, but it does not",
                             st->files[file].src.name, v->key);
        }
        st->tensors[st->n_tensors++] = s->tensors[at];
    }
    return TFM_OK;
}

static int open_shards(safetensors *st, const source *index_file, arena *a, shards *all, tfm_error *err)
{
    const json *map, *root = json_read(index_file, INDEX_LIMIT, a, err);
    uint32_t i;
    int code = root != NULL ? json_object(root, "weight_map", &map, err) : TFM_ERR_FORMAT;
    if (code == TFM_OK) code = list_shards(map, index_file->name, a, all, err);
    if (code != TFM_OK) return code;
    st->files = (st_file *)arena_array(a, all->n, sizeof *st->files);
    st->tensors = (st_tensor *)arena_array(a, json_count(map), sizeof *st->tensors);
    if (st->files == NULL || st->tensors == NULL) {
        return tool_fail(err, TFM_ERR_MEMORY, "%s: no memory for %zu tensors", index_file->name, json_count(map));
    }
    for (i = 0; i < all->n && code == TFM_OK; i++) code = open_shard(st, i, &all->list[i], a, err);
    if (code == TFM_OK) code = collect_tensors(st, map, all, err);
    return code == TFM_OK ? index_names(&st->index, st->tensors, st->n_tensors, a, index_file->name, err) : code;
}

static int open_single(safetensors *st, const char *file, arena *a, tfm_error *err)
{
    source_dir dir = st->dir;
    source src;
    int code = dir.open(dir.user, file, &src, err);
    if (code > 0) return tool_fail(err, TFM_ERR_IO, "%s: has no %s", dir.name, file);
    if (code < 0) return code;
    code = st_open_file(st, &src, a, err);
    if (st->n_files == 0) dir.close(dir.user, &src);
    else st->dir = dir;
    return code;
}

const char *st_weights_name(const source_dir *dir)
{
    static const char *const names[] = {
        "model.safetensors.index.json", "model.safetensors", "pytorch_model.bin.index.json", "pytorch_model.bin",
        "model.pth", "model.pt"
    };
    size_t i;
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        source src;
        const int code = dir->open(dir->user, names[i], &src, NULL);
        if (code == 0) dir->close(dir->user, &src);
        if (code <= 0) return names[i]; /* also if it cannot be read: whoever opens it says so */
    }
    return NULL;
}

int st_open_dir(safetensors *st, const source_dir *dir, const char *weights, arena *a, tfm_error *err)
{
    source index_file;
    shards *all;
    size_t n = strlen(weights);
    int code;
    memset(st, 0, sizeof *st);
    st->dir = *dir;
    if (n < 5 || strcmp(weights + n - 5, ".json") != 0) return open_single(st, weights, a, err);
    code = dir->open(dir->user, weights, &index_file, err);
    if (code > 0) return tool_fail(err, TFM_ERR_IO, "%s: has no %s", dir->name, weights);
    if (code < 0) return code;
    all = (shards *)calloc(1, sizeof *all);
    if (all != NULL) code = open_shards(st, &index_file, a, all, err);
    else code = tool_fail(err, TFM_ERR_MEMORY, "%s: no memory", dir->name);
    free(all);
    dir->close(dir->user, &index_file);
    return code;
}

void st_close(safetensors *st)
{
    int i;
    for (i = 0; i < st->n_files && st->dir.close != NULL; i++) st->dir.close(st->dir.user, &st->files[i].src);
    memset(st, 0, sizeof *st);
}

/* ---- use ------------------------------------------------------------------------------------------------------- */

const st_tensor *st_find(const safetensors *st, const char *name)
{
    uint32_t at = name_index_find(&st->index, st->tensors, name, strlen(name));
    return at == NAME_ABSENT ? NULL : &st->tensors[at];
}

/* Elements of `size` bytes the other way round; of complex numbers both halves. */
static void swap_elements(unsigned char *p, size_t n, size_t size)
{
    size_t i, k;
    for (i = 0; i < n; i++, p += size) {
        for (k = 0; k < size / 2; k++) {
            unsigned char c = p[k];
            p[k] = p[size - 1 - k];
            p[size - 1 - k] = c;
        }
    }
}

int st_read(const safetensors *st, const st_tensor *t, uint64_t first, size_t n, void *buf, tfm_error *err)
{
    const source *src = &st->files[t->file].src;
    unsigned bits = dtypes[t->dtype].bits;
    uint64_t count = (uint64_t)t->n_elements;
    int code;
    if (first > count || n > count - first) {
        return tool_fail(err, TFM_ERR_ARG, "%s: %s: elements %llu to %llu of %llu", src->name, t->name,
                         (unsigned long long)first, (unsigned long long)(first + n), (unsigned long long)count);
    }
    if (t->strided) return tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: %s: does not stand in rows", src->name, t->name);
    if (bits < 8 && n != count) {
        return tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: %s: a part of a %s tensor", src->name, t->name,
                         dtypes[t->dtype].name);
    }
    if (bits < 8) return source_read(src, t->offset, buf, (size_t)t->bytes, err);
    if (n > SIZE_MAX / (bits / 8)) return tool_fail(err, TFM_ERR_ARG, "%s: %s: too large to read", src->name, t->name);
    code = source_read(src, t->offset + first * (bits / 8), buf, n * (bits / 8), err);
    if (code == TFM_OK && st->files[t->file].big_endian) {
        size_t parts = t->dtype == ST_C64 ? 2 : 1;
        swap_elements((unsigned char *)buf, n * parts, bits / 8 / parts);
    }
    return code;
}
