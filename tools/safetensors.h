/* safetensors.h - the directory of tensors in one .safetensors file or in the shards of a Hugging Face directory.
 *
 * A file is: uint64 length of the header, the header (JSON: name -> {dtype, shape, data_offsets}), the data. Every
 * number is checked here: shapes against byte lengths, offsets against the file and each other. Files of PyTorch
 * (torch_file.c) come into the same directory: their tensors lie in the file as plainly.
 */
#ifndef TOOLS_SAFETENSORS_H
#define TOOLS_SAFETENSORS_H

#include "base.h"
#include "json.h"

enum { ST_MAX_DIMS = 8 };

typedef enum st_dtype {
    ST_F64, ST_F32, ST_F16, ST_BF16, ST_I64, ST_I32, ST_I16, ST_I8, ST_U64, ST_U32, ST_U16, ST_U8, ST_BOOL, ST_C64,
    ST_F8_E4M3, ST_F8_E5M2, ST_F8_E8M0, ST_F8_E4M3FNUZ, ST_F8_E5M2FNUZ, ST_F6_E2M3, ST_F6_E3M2, ST_F4,
    ST_N_DTYPES
} st_dtype;

typedef struct st_tensor {
    const char *name;
    st_dtype dtype;
    int n_dims;                /* 0 for a scalar */
    int64_t dims[ST_MAX_DIMS]; /* outermost first; a dimension may be 0 */
    int64_t n_elements;        /* their product */
    int file;                  /* which of safetensors.files */
    uint64_t offset, bytes;    /* in that file, from its start */
    int strided;               /* of a PyTorch file: the elements do not stand in rows; they cannot be read */
} st_tensor;

typedef struct st_file {
    source src;
    const json *metadata; /* "__metadata__" of the header, or NULL */
    int big_endian;       /* a PyTorch file may say so */
} st_file;

typedef struct safetensors {
    st_file *files;
    int n_files;
    st_tensor *tensors; /* in the order of the header, or of the index */
    size_t n_tensors;
    name_index index;
    source_dir dir; /* what to close; .close is NULL if the caller keeps the source */
} safetensors;

/* One file. The source stays the caller's and must outlive st. Memory comes from the arena. */
int st_open_file(safetensors *st, const source *src, arena *a, tfm_error *err);
/* The name under which a directory keeps its weights: of an index, or of the one file; NULL: none that is known. */
const char *st_weights_name(const source_dir *dir);
/* A directory's weights by that name, or another file of safetensors or PyTorch. An index (.json) decides which file
 * holds a tensor; tensors of a shard that the index does not list are left out. */
int st_open_dir(safetensors *st, const source_dir *dir, const char *weights, arena *a, tfm_error *err);
void st_close(safetensors *st); /* closes what st_open_dir opened; also after an error */

const st_tensor *st_find(const safetensors *st, const char *name); /* NULL: absent */
/* n elements from `first` on, little-endian. Types of less than a byte only as a whole. */
int st_read(const safetensors *st, const st_tensor *t, uint64_t first, size_t n, void *buf, tfm_error *err);

const char *st_dtype_name(int dtype);  /* "BF16" */
unsigned st_dtype_bits(int dtype);

#endif
