/* convert.h - checkpoints become .tfm files. The core of tfm-convert: reads and writes through callbacks only, so that
 * it runs wherever bytes can be had. Peak memory is a few MB beside the directory of tensors and the tokenizer.
 */
#ifndef TOOLS_CONVERT_H
#define TOOLS_CONVERT_H

#include "base.h"

typedef struct convert_options {
    int32_t type;                       /* TFM_ type of the matrices, or CONVERT_SOURCE */
    int vocab_only;                     /* the tokenizer alone */
    const char *const *allow_unknown;   /* keys of the configuration that may be ignored */
    size_t n_allow_unknown;
    const source *tokenizer;            /* instead of the checkpoint's own files: tokenizer.json, tokenizer.model or
                                           tokenizer.bin, told apart by their content; or NULL */
    const char *weights;                /* a directory's file of weights, or its index; NULL: by its usual name */
    const source_dir *beside;           /* where the other parts of a split file are; NULL: nowhere */
    void *user;
    void (*warn)(void *user, const char *line);                    /* NULL: stderr */
    void (*progress)(void *user, uint64_t done, uint64_t total);   /* bytes of the source; may be NULL */
} convert_options;

enum { CONVERT_SOURCE = -1 };

/* The type that --type names: one of the list, else -2. */
int32_t convert_type(const char *name);
/* "source f32 f16 bf16 q8_0" */
const char *convert_type_list(void);

/* A directory as save_pretrained writes it. */
int convert_directory(const source_dir *dir, sink *out, const convert_options *options, tfm_error *err);
/* A file: GGUF or llama2.c; with vocab_only also tokenizer.json, tokenizer.model, tokenizer.bin. */
int convert_file(const source *src, sink *out, const convert_options *options, tfm_error *err);

/* Rows in the source's form become one strip of 16 rows of type `to`; the shared step of tfm-convert and tfm-quantize.
 * work: strip_work_bytes() bytes, aligned to 64. dst: tfm_strip_bytes(to, cols). */
size_t strip_work_bytes(int32_t from, int64_t cols);
int convert_strip(int32_t to, void *dst, int32_t from, const void *rows, size_t stride, int n_rows, int64_t cols,
                  void *work);
const char *strip_error(int code); /* why it failed; TFM_ERR_NUMERIC: a weight became infinite */
/* The type a matrix gets where `wanted` does not divide its rows: F16, as llama.cpp does. */
int32_t type_for_columns(int32_t wanted, int64_t cols);

#endif
