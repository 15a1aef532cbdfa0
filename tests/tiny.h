/* tiny.h - tiny models for tests: hashed weights, files in memory, models from a description without any file. */
#ifndef TEST_TINY_H
#define TEST_TINY_H

#include "tools/base.h"

/* Memory aligned to 64 bytes, not cleared; the program ends without it. */
void *tiny_alloc(size_t n);
void tiny_free(void *p);

/* The weights of tests/ref_families.py: a hash of (name, index), in steps of 2^-e around offset; exact in float32. */
uint32_t tiny_hash(const char *name, uint32_t index);
void tiny_fill(float *out, size_t n, const char *name, int e, float offset);
/* Its bytes: offset + (hash & 255) >> e. */
void tiny_fill_bytes(float *out, size_t n, const char *name, int e, float offset);
/* n ids below n_vocab, hashed. */
void tiny_ids(int32_t *ids, size_t n, int32_t n_vocab, const char *name);

/* Nearest even. f16: for zero and normal results, which is all that these weights are. */
uint16_t tiny_bf16(float x);
uint16_t tiny_f16(float x);

/* A file in memory. Zero is an empty one; writing through the sink makes it grow. */
typedef struct tiny_file {
    unsigned char *data; /* 64-byte aligned */
    size_t size, room;
} tiny_file;
sink tiny_sink(tiny_file *f);
tiny_file tiny_file_copy(const tiny_file *f);
void tiny_file_free(tiny_file *f);

/* A model in memory: describe it, then give it weights. */
enum { TINY_MAX_WEIGHTS = 512 };
typedef struct tiny_model {
    tfm_config config;
    tfm_block blocks[2];     /* 0: attention to everything, 1: a window of 8 */
    uint8_t layer_block[8];
    tfm_weight weights[TINY_MAX_WEIGHTS];
    int64_t n_weights;
} tiny_model;

/* Four layers, two of them with a window, grouped heads, tied: d_model 64, 64 ids, context 128. */
void tiny_describe(tiny_model *t);
/* Mixtures of 8 experts, 3 of them used, in both blocks, the second masked in chunks. */
void tiny_experts(tiny_model *t);
/* Fills t->weights with a hashed weight for every role that the description asks for; matrices have this type and
 * layout. */
void tiny_weights(tiny_model *t, int32_t type, int32_t layout);
void tiny_weights_free(tiny_model *t);
tfm_weight *tiny_find(tiny_model *t, int32_t layer, int32_t role); /* NULL: no such weight */
/* The model; NULL after a failed check. */
tfm_model *tiny_open(const tiny_model *t);

/* Exact settings (float32 everywhere, all logits wanted) for a context of n_ctx, n_batch tokens at a time. */
tfm_session_config tiny_exact(int32_t n_ctx, int32_t n_batch);
/* A new session evaluates ids in pieces of n_batch: out [n][n_vocab], cfg->want must be TFM_WANT_ALL. A failure counts
 * as a failed check, named by `what`; returns 1 if all went well. */
int tiny_logits(const tfm_model *m, const tfm_session_config *cfg, const int32_t *ids, int64_t n, float *out,
                const char *what);
/* The same in a session that exists, from where it stands. */
int tiny_continue(tfm_session *s, int32_t n_vocab, int32_t n_batch, const int32_t *ids, int64_t n, float *out,
                  const char *what);

float tiny_max_abs(const float *a, size_t n);
float tiny_max_diff(const float *a, const float *b, size_t n); /* infinite if anything is not finite */
double tiny_mean_diff(const float *a, const float *ref, size_t n); /* rms of a - ref over rms of ref */
int tiny_argmax(const float *a, int n);                        /* the lowest of equals */

/* A thread hook that runs everything in the caller's thread, last part first. */
void tiny_backwards(void *user, void (*fn)(void *arg, int index), void *arg, int n);

/* *most = x if that is larger; a NaN is larger than everything, and stays. */
void tiny_keep_largest(double *most, double x);

#endif
