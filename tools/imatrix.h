/* imatrix.h - importance matrices: for each matrix of a model the mean square of every input that it met on a text,
 * which says how much an error in that column of weights costs.
 *
 * The file is a GGUF as llama-imatrix writes it, so that each of the two can be read by the programs of the other.
 * Collected are the inputs of attention and of the dense feed-forward where a norm stands before them; matrices of
 * experts get their rows from llama-imatrix's files alone.
 */
#ifndef TOOLS_IMATRIX_H
#define TOOLS_IMATRIX_H

#include "base.h"

typedef struct imatrix_entry {
    const char *name; /* "blk.0.attn_q.weight" */
    int64_t cols, n;  /* n matrices: experts, else 1 */
    float *values;    /* [n][cols], all above 0 */
} imatrix_entry;

typedef struct imatrix {
    const char *file;
    imatrix_entry *entries;
    size_t n;
} imatrix;

int imatrix_read(imatrix *m, const source *src, arena *mem, tfm_error *err);
/* The row [cols] for a weight; NULL if m is NULL or has none that fits. */
const float *imatrix_of(const imatrix *m, const tfm_weight *w);

/* Whether m is of the model whose matrices are `weights`, with the types they will have: an error if a row has another
 * length than the matrix's, or if there is a row for none of them. missing: quantised matrices without a row, but
 * embedding and head. */
int imatrix_check(const imatrix *m, const tfm_weight *weights, int64_t n, int64_t *missing, tfm_error *err);

/* Collecting: the trace hook of a session adds up what its matrices meet. */
typedef struct collector collector;

collector *collector_new(const tfm_model *model); /* NULL: out of memory */
void collector_free(collector *c);
/* The hook (tfm_session_config.trace); user is a collector. */
void collector_trace(void *user, const char *name, int32_t layer, const float *data, int64_t rows, int64_t cols);
/* chunks of `size` tokens of the text called `dataset` were evaluated. */
int collector_write(const collector *c, sink *out, const char *dataset, int64_t chunks, int64_t size, tfm_error *err);

#endif
