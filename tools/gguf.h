/* gguf.h - the metadata and the directory of tensors of a GGUF file, versions 2 and 3, little-endian.
 *
 * Every number of the file is checked before it is used: counts against the bytes that are left, products of
 * dimensions against overflow, offsets against the file and each other. Nothing of the tensors' data is read here.
 */
#ifndef TOOLS_GGUF_H
#define TOOLS_GGUF_H

#include "base.h"

enum { GGUF_MAX_DIMS = 4 };

/* Types of tensors, by the numbers the file uses. */
typedef enum ggml_type_id {
    GGML_F32 = 0, GGML_F16 = 1, GGML_Q4_0 = 2, GGML_Q4_1 = 3, GGML_Q5_0 = 6, GGML_Q5_1 = 7, GGML_Q8_0 = 8,
    GGML_Q8_1 = 9, GGML_Q2_K = 10, GGML_Q3_K = 11, GGML_Q4_K = 12, GGML_Q5_K = 13, GGML_Q6_K = 14, GGML_Q8_K = 15,
    GGML_BF16 = 30
} ggml_type_id;

typedef struct ggml_type {
    uint32_t id;
    const char *name;
    uint32_t block_elements, block_bytes;
    int supported;       /* the converter can read it */
    const char *nearest; /* if not: the supported type that comes nearest, or NULL */
} ggml_type;

const ggml_type *ggml_type_by_id(uint32_t id);          /* NULL: unknown */
const ggml_type *ggml_type_by_name(const char *name);   /* upper or lower case; NULL: unknown */

/* Types of metadata values, by the numbers the file uses. */
typedef enum gguf_value_type {
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING, GGUF_ARRAY,
    GGUF_U64, GGUF_I64, GGUF_F64, GGUF_N_VALUE_TYPES
} gguf_value_type;

size_t gguf_value_bytes(gguf_value_type type); /* of one value in the file; 0: it varies */

typedef struct gguf_string {
    const char *text; /* zero-terminated; may hold zeros and need not be UTF-8 */
    size_t length;
} gguf_string;

typedef struct gguf_kv {
    const char *key;
    gguf_value_type type;
    gguf_value_type element; /* of an array */
    size_t count;            /* elements of an array, else 1 */
    union {
        const unsigned char *raw;   /* count values, little-endian, as in the file */
        const gguf_string *strings; /* where the (element) type is GGUF_STRING */
    } u;
} gguf_kv;

typedef struct gguf_tensor {
    const char *name;
    const ggml_type *type;
    int n_dims;                  /* 1..4 */
    int64_t dims[GGUF_MAX_DIMS]; /* innermost (contiguous) first, as in the file; 1 beyond n_dims */
    int64_t n_elements;
    uint64_t offset, bytes;      /* in the file, from its start */
} gguf_tensor;

typedef struct gguf {
    source src;
    uint32_t version;
    uint64_t alignment, data_offset;
    gguf_kv *kv;
    size_t n_kv;
    gguf_tensor *tensors;
    size_t n_tensors;
    name_index kv_index, tensor_index;
} gguf;

/* Reads everything but the data into the arena. The source stays the caller's and must outlive g. Every known type of
 * tensor is accepted here; the converter refuses those that are not `supported`. */
int gguf_open(gguf *g, const source *src, arena *a, tfm_error *err);

const gguf_tensor *gguf_find_tensor(const gguf *g, const char *name);
const gguf_kv *gguf_find(const gguf *g, const char *key);

/* n_rows rows (of dims[0] elements) from row `first` on, as they stand in the file. */
int gguf_read_rows(const gguf *g, const gguf_tensor *t, uint64_t first, size_t n_rows, void *buf, tfm_error *err);
uint64_t gguf_row_bytes(const gguf_tensor *t);
uint64_t gguf_n_rows(const gguf_tensor *t);

/* A value as a type; absent or of another type is an error that names file and key. Every integer type is an int,
 * every number a real. */
int gguf_int(const gguf *g, const char *key, int64_t *out, tfm_error *err);
int gguf_real(const gguf *g, const char *key, double *out, tfm_error *err);
int gguf_bool(const gguf *g, const char *key, int *out, tfm_error *err);
int gguf_str(const gguf *g, const char *key, const char **out, tfm_error *err); /* refuses zeros inside */

/* The same where absent means a default. */
int gguf_int_or(const gguf *g, const char *key, int64_t otherwise, int64_t *out, tfm_error *err);
int gguf_bool_or(const gguf *g, const char *key, int otherwise, int *out, tfm_error *err);
int gguf_str_or(const gguf *g, const char *key, const char *otherwise, const char **out, tfm_error *err);

/* One number for each of n layers: an array of n, or one value that holds for all. */
int gguf_ints(const gguf *g, const char *key, int64_t *out, size_t n, tfm_error *err);
int gguf_bools(const gguf *g, const char *key, int *out, size_t n, tfm_error *err);

/* Arrays: the kv whose elements are strings, integers or numbers of any size; then element by element. */
int gguf_string_array(const gguf *g, const char *key, const gguf_kv **out, tfm_error *err);
int gguf_int_array(const gguf *g, const char *key, const gguf_kv **out, tfm_error *err);
int gguf_real_array(const gguf *g, const char *key, const gguf_kv **out, tfm_error *err);
int64_t gguf_int_at(const gguf_kv *kv, size_t i);  /* i < kv->count; saturates a u64 */
double gguf_real_at(const gguf_kv *kv, size_t i);

#endif
