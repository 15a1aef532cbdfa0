/* pickle.h - the part of Python's pickle format in which PyTorch describes tensors. Nothing is executed: of all that a
 * pickle can name, only what tensors are made of is known (pickle_names in pickle.c), and it is read as data. Any other
 * name is an error that says which. Memory grows with the pickle's bytes, time too.
 */
#ifndef TOOLS_PICKLE_H
#define TOOLS_PICKLE_H

#include "base.h"
#include "safetensors.h"

typedef enum pickle_kind {
    PICKLE_NONE, PICKLE_BOOL, PICKLE_INT, PICKLE_REAL, PICKLE_TEXT, PICKLE_TUPLE, PICKLE_LIST, PICKLE_DICT, PICKLE_NAME,
    PICKLE_STORAGE, PICKLE_TENSOR, PICKLE_MARK
} pickle_kind;

typedef struct pickle_value {
    pickle_kind kind;
    union {
        int64_t integer;             /* also of a bool */
        double real;
        const char *text;            /* zero-terminated; a zero inside is refused */
        struct pickle_list *list;    /* tuple, list; dict: key, value, key, value ... */
        const struct pickle_name *name;
        struct pickle_storage *storage;
        struct pickle_tensor *tensor;
    } u;
} pickle_value;

typedef struct pickle_list {
    pickle_value *items;
    size_t n, room;
} pickle_list;

/* Numbers of one type in a place of their own, which tensors look at. */
typedef struct pickle_storage {
    const char *key;
    int dtype;          /* ST_..., or -1: of bytes */
    uint64_t n;         /* elements, or bytes */
    const struct pickle_storage *next; /* the one before it in the pickle; NULL at the first */
} pickle_storage;

typedef struct pickle_tensor {
    const pickle_storage *storage;
    st_dtype dtype;
    int n_dims;
    int64_t dims[ST_MAX_DIMS], strides[ST_MAX_DIMS];
    uint64_t first;     /* element of the storage */
} pickle_tensor;

typedef struct pickle {
    pickle_value value;
    size_t length;                     /* of the pickle in bytes */
    const pickle_storage *storages;    /* the last that it names; the same one may stand here several times */
    size_t n_storages;
} pickle;

/* One pickle at the start of n bytes. `file` is for messages. */
int pickle_read(pickle *p, const char *file, const void *bytes, size_t n, arena *a, tfm_error *err);
/* The value of a text key; NULL: it has none, or is no dict. */
const pickle_value *pickle_get(const pickle_value *dict, const char *key);

#endif
