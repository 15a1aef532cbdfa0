/* torch_file.c - finds the pickle and the storages of both forms; the tensors of the dict become a directory. */
#include "torch_file.h"

#include <stdlib.h>
#include <string.h>

#include "pickle.h"
#include "zip.h"

enum { PICKLE_LIMIT = 1 << 28, FIRST_PIECE = 1 << 20, LAST_PIECE = 1 << 26, MARK_BYTES = 15 };

/* Protocol 2, then a number of 10 bytes that stands for nothing else. */
static const unsigned char old_mark[MARK_BYTES] = {0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8,
                                                   0x50, 0x19, '.'};

/* A storage's bytes in the file. */
typedef struct place {
    const char *key;
    uint64_t offset, bytes;
} place;

typedef struct torch_reader {
    const source *src;
    int file;
    arena *a;
    tfm_error *err;
    zip z;
    const char *prefix;   /* of the archive's members: "archive" */
    place *places;        /* of the older form */
    size_t n_places;
    name_index place_index;
} torch_reader;

static int starts_with(const source *src, const void *bytes, size_t n) {
    unsigned char head[MARK_BYTES];
    return src->size >= n && !source_read(src, 0, head, n, NULL) && !memcmp(head, bytes, n);
}

int is_torch_file(const source *src) {
    return starts_with(src, "PK\x03\x04", 4) || starts_with(src, old_mark, MARK_BYTES);
}

static int fail(const torch_reader *r, const char *name, const char *what) {
    return tool_fail(r->err, TFM_ERR_FORMAT, "%s: %s: %s", r->src->name, name, what);
}

/* ---- TENSORS --------------------------------------------------------------------------------------------------- */

static const char *place_name(const void *table, uint32_t entry, size_t *length) {
    const place *p = (const place *)table + entry;
    *length = strlen(p->key);
    return p->key;
}

static int find_storage(const torch_reader *r, const char *key, place *out) {
    if (r->places) {
        const uint32_t i = name_index_find(&r->place_index, r->places, key, strlen(key));
        if (i != NAME_ABSENT) *out = r->places[i];
        return i != NAME_ABSENT;
    }
    char name[512];
    snprintf(name, sizeof name, "%s/data/%s", r->prefix, key);
    const zip_entry *e = zip_find(&r->z, name);
    if (!e) return 0;
    out->offset = e->offset;
    out->bytes = e->bytes;
    return 1;
}

/* Whether the elements stand one after the other, the last dimension innermost. */
static int in_rows(const pickle_tensor *t) {
    uint64_t expected = 1;
    for (int i = t->n_dims - 1; i >= 0; i--) {
        if (t->dims[i] == 0) return 1;
        if (t->dims[i] != 1 && (uint64_t)t->strides[i] != expected) return 0;
        if (checked_mul(expected, (uint64_t)t->dims[i], &expected)) return 0;
    }
    return 1;
}

static int read_tensor(const torch_reader *r, const char *name, const pickle_tensor *from, st_tensor *t) {
    const uint64_t size = st_dtype_bits((int)from->dtype) / 8;
    uint64_t elements = 1, bytes, skip;
    place at = {NULL, 0, 0};
    t->name = name;
    t->dtype = from->dtype;
    t->file = r->file;
    t->n_dims = from->n_dims;
    for (int i = 0; i < from->n_dims; i++) {
        t->dims[i] = from->dims[i];
        if (checked_mul(elements, (uint64_t)from->dims[i], &elements) || elements > INT64_MAX)
            return fail(r, name, "its shape has too many elements");
    }
    t->n_elements = (int64_t)elements;
    t->strided = !in_rows(from);
    if (t->strided) return TFM_OK; /* may be of no use to anyone; whoever uses it is told */
    if (checked_mul(elements, size, &bytes) || checked_mul(from->first, size, &skip))
        return fail(r, name, "its shape has too many elements");
    if (!find_storage(r, from->storage->key, &at)) return fail(r, name, "its storage is missing in the file");
    if (skip > at.bytes || bytes > at.bytes - skip) return fail(r, name, "is larger than its storage");
    t->offset = at.offset + skip;
    t->bytes = bytes;
    return TFM_OK;
}

static size_t count_tensors(const pickle_value *dict) {
    size_t n = 0;
    for (size_t i = 1; dict->kind == PICKLE_DICT && i < dict->u.list->n; i += 2)
        n += dict->u.list->items[i].kind == PICKLE_TENSOR && dict->u.list->items[i - 1].kind == PICKLE_TEXT;
    return n;
}

/* A file of a training run has the state_dict inside. */
static const pickle_value *find_dict(const pickle_value *root) {
    static const char *const keys[] = {"state_dict", "model", "module"};
    if (count_tensors(root)) return root;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const pickle_value *v = pickle_get(root, keys[i]);
        if (v && count_tensors(v)) return v;
    }
    return NULL;
}

static int read_tensors(const torch_reader *r, const pickle_value *root, st_tensor **out, size_t *n) {
    const pickle_value *dict = find_dict(root);
    *n = 0;
    if (!dict)
        return tool_fail(r->err, TFM_ERR_FORMAT, "%s: holds no dict of tensors", r->src->name);
    *out = arena_array(r->a, count_tensors(dict), sizeof **out);
    if (!*out) return tool_fail(r->err, TFM_ERR_MEMORY, "%s: out of memory for its tensors", r->src->name);
    int code = TFM_OK;
    for (size_t i = 0; !code && i + 1 < dict->u.list->n; i += 2) {
        const pickle_value *key = &dict->u.list->items[i], *v = key + 1;
        if (key->kind != PICKLE_TEXT || v->kind != PICKLE_TENSOR) continue;
        code = read_tensor(r, key->u.text, v->u.tensor, &(*out)[(*n)++]);
    }
    return code;
}

/* ---- THE ARCHIVE ----------------------------------------------------------------------------------------------- */

/* "<prefix>/data.pkl" */
static const zip_entry *find_pickle(torch_reader *r) {
    static const char tail[] = "/data.pkl";
    for (size_t i = 0; i < r->z.n; i++) {
        const char *name = r->z.entries[i].name, *slash = strchr(name, '/');
        if (!slash || strcmp(slash, tail)) continue;
        r->prefix = arena_strndup(r->a, name, (size_t)(slash - name));
        return r->prefix ? &r->z.entries[i] : NULL;
    }
    return NULL;
}

/* The member that says in which order the bytes of a number are. */
static int read_byte_order(torch_reader *r, int *big_endian) {
    char name[512], text[4] = "";
    snprintf(name, sizeof name, "%s/byteorder", r->prefix);
    const zip_entry *e = zip_find(&r->z, name);
    *big_endian = 0;
    if (!e) return TFM_OK;
    int code = source_read(r->src, e->offset, text, e->bytes < 3 ? (size_t)e->bytes : 3, r->err);
    *big_endian = !strcmp(text, "big");
    return code;
}

/* A TorchScript archive has its code beside it: its pickle names classes of its own. */
static int read_archive(torch_reader *r, st_tensor **out, size_t *n, int *big_endian) {
    pickle p;
    int code = zip_open(&r->z, r->src, r->a, r->err);
    const zip_entry *e = code ? NULL : find_pickle(r);
    if (code) return code;
    if (!e) return tool_fail(r->err, TFM_ERR_FORMAT, "%s: is a zip archive without a data.pkl", r->src->name);
    if (e->bytes > PICKLE_LIMIT) return fail(r, e->name, "is too large");
    char *text = malloc((size_t)e->bytes + 1);
    if (!text) return tool_fail(r->err, TFM_ERR_MEMORY, "%s: out of memory for its pickle", r->src->name);
    code = source_read(r->src, e->offset, text, (size_t)e->bytes, r->err);
    if (!code) code = pickle_read(&p, r->src->name, text, (size_t)e->bytes, r->a, r->err);
    free(text);
    if (!code) code = read_byte_order(r, big_endian);
    return code ? code : read_tensors(r, &p.value, out, n);
}

/* ---- THE OLDER FORM -------------------------------------------------------------------------------------------- */

/* The pickles: mark, protocol, a dict about the machine, the state_dict, the keys of storages. */
enum { N_PICKLES = 5, MACHINE = 2, ROOT = 3, KEYS = 4 };

/* All pickles from the file's first bytes; *at is where the storages begin. Too few bytes: TFM_ERR_FORMAT. */
static int read_pickles(torch_reader *r, const char *bytes, size_t n, pickle out[N_PICKLES], size_t *at) {
    int code = TFM_OK;
    *at = 0;
    for (int i = 0; !code && i < N_PICKLES; i++) {
        code = pickle_read(&out[i], r->src->name, bytes + *at, n - *at, r->a, r->err);
        *at += out[i].length;
    }
    return code;
}

/* How large they are is known when they end: more and more of the file is read until they do. */
static int find_pickles(torch_reader *r, pickle out[N_PICKLES], size_t *at) {
    int code = TFM_ERR_FORMAT;
    for (uint64_t n = FIRST_PIECE; code == TFM_ERR_FORMAT && n <= LAST_PIECE; n *= 4) {
        const size_t size = (size_t)(n < r->src->size ? n : r->src->size);
        char *bytes = malloc(size + 1);
        if (!bytes) return tool_fail(r->err, TFM_ERR_MEMORY, "%s: out of memory", r->src->name);
        code = source_read(r->src, 0, bytes, size, r->err);
        if (!code) code = read_pickles(r, bytes, size, out, at);
        free(bytes);
        if (size == r->src->size) break;
    }
    return code;
}

static int out_of_memory(const torch_reader *r) {
    return tool_fail(r->err, TFM_ERR_MEMORY, "%s: out of memory for its storages", r->src->name);
}

/* Types of elements, by key: the storages as the state_dict names them. */
typedef struct known_storages {
    const pickle_storage **list;
    size_t n;
    name_index index;
} known_storages;

static const char *storage_name(const void *table, uint32_t entry, size_t *length) {
    const pickle_storage *s = ((const pickle_storage *const *)table)[entry];
    *length = strlen(s->key);
    return s->key;
}

static int list_storages(torch_reader *r, const pickle *root, known_storages *k) {
    k->n = 0;
    k->list = arena_array(r->a, root->n_storages + 1, sizeof *k->list);
    if (!k->list || name_index_init(&k->index, r->a, root->n_storages + 1, storage_name)) return out_of_memory(r);
    for (const pickle_storage *s = root->storages; s; s = s->next) {
        k->list[k->n] = s;
        const int code = name_index_add(&k->index, k->list, (uint32_t)k->n, NULL);
        if (code < 0) return fail(r, s->key, "the names of storages all collide");
        k->n += code == TFM_OK;
    }
    return TFM_OK;
}

/* One storage: the number of its elements, the elements. *at goes on behind it. */
static int place_storage(torch_reader *r, const known_storages *known, const pickle_value *key, uint64_t *at) {
    place *p = &r->places[r->n_places];
    unsigned char count[8];
    if (key->kind != PICKLE_TEXT) return fail(r, "storages", "a key is no text");
    p->key = key->u.text;
    const uint32_t i = name_index_find(&known->index, known->list, p->key, strlen(p->key));
    const int dtype = i == NAME_ABSENT ? -1 : known->list[i]->dtype;
    if (dtype < 0) return fail(r, p->key, "the type of this storage cannot be told");
    if (*at > r->src->size || r->src->size - *at < sizeof count) return fail(r, p->key, "the file ends before it");
    int code = source_read(r->src, *at, count, sizeof count, r->err);
    if (code) return code;
    p->offset = *at + sizeof count;
    if (checked_mul(load_u64(count), st_dtype_bits(dtype) / 8, &p->bytes) || p->bytes > r->src->size - p->offset)
        return fail(r, p->key, "the file ends in the middle of it");
    *at = p->offset + p->bytes;
    if (name_index_add(&r->place_index, r->places, (uint32_t)r->n_places++, NULL))
        return fail(r, p->key, "this storage stands twice");
    return TFM_OK;
}

/* The storages follow in the order of the keys. */
static int place_storages(torch_reader *r, const pickle *root, const pickle_value *keys, uint64_t at) {
    known_storages known;
    if (keys->kind != PICKLE_LIST) return fail(r, "storages", "their keys are no list");
    const size_t n = keys->u.list->n;
    r->places = arena_array(r->a, n + 1, sizeof *r->places);
    if (!r->places || name_index_init(&r->place_index, r->a, n + 1, place_name)) return out_of_memory(r);
    int code = list_storages(r, root, &known);
    for (size_t i = 0; !code && i < n; i++) code = place_storage(r, &known, &keys->u.list->items[i], &at);
    return code;
}

static int read_old(torch_reader *r, st_tensor **out, size_t *n) {
    pickle p[N_PICKLES];
    size_t at = 0;
    int code = find_pickles(r, p, &at);
    if (code) return code;
    const pickle_value *little = pickle_get(&p[MACHINE].value, "little_endian");
    if (little && little->kind == PICKLE_BOOL && !little->u.integer)
        return fail(r, "little_endian", "the older form is not read from big-endian machines");
    code = place_storages(r, &p[ROOT], &p[KEYS].value, at);
    return code ? code : read_tensors(r, &p[ROOT].value, out, n);
}

int torch_read(const source *src, int file, arena *a, st_tensor **out, size_t *n, int *big_endian, tfm_error *err) {
    torch_reader r;
    memset(&r, 0, sizeof r);
    r.src = src;
    r.file = file;
    r.a = a;
    r.err = err;
    *big_endian = 0;
    if (starts_with(src, old_mark, MARK_BYTES)) return read_old(&r, out, n);
    return read_archive(&r, out, n, big_endian);
}
