/* packed.h - matrices that a Hugging Face checkpoint keeps in 8 bits or fewer, with scales in tensors beside them: FP8
 * with a scale per block, row or tensor ("fp8", "fbgemm_fp8"), AWQ, GPTQ, and what "compressed-tensors" says with the
 * same parts. To the converter each is one matrix of float32.
 *
 * A number is (code - zero) * scale; the product of an integer of 8 bits and a scale of 16 is exact in float32.
 */
#ifndef TOOLS_PACKED_H
#define TOOLS_PACKED_H

#include "json.h"
#include "safetensors.h"

typedef enum packed_kind {
    PACKED_NONE,
    PACKED_BYTES,       /* codes [out][in] of 8 bits, FP8 or integers */
    PACKED_AWQ,         /* codes [in][out / 8] words */
    PACKED_GPTQ,        /* codes [in * bits / 32][out] words */
    PACKED_WORDS        /* codes [out][in * bits / 32] words */
} packed_kind;

/* What quantization_config says. */
typedef struct packed_scheme {
    packed_kind kind;
    const char *method;         /* "awq" */
    int bits;
    int zero_plus_one;          /* GPTQ's first format keeps zeros less one */
    int64_t block[2];           /* outputs and inputs of a scale's block; 0: the scales' shape tells */
} packed_scheme;

typedef struct packed_matrix {
    const char *name;           /* "....weight" */
    const st_tensor *codes, *scales, *zeros, *groups; /* the last two may be NULL */
    int64_t rows, cols;         /* outputs, inputs */
    int64_t n_groups;           /* of inputs, rows of AWQ's and GPTQ's scales */
} packed_matrix;

typedef struct packed_weights {
    packed_scheme scheme;
    const safetensors *st;
    packed_matrix *list;
    size_t n;
    const packed_matrix *held;  /* whose parts are in memory */
    unsigned char *codes, *zeros;
    float *scales;
    uint32_t *group_of;         /* [cols] */
} packed_weights;

/* config: quantization_config; NULL or null: kind is PACKED_NONE. A method or variant that is not read is an error. */
int packed_config(packed_scheme *s, const json *config, tfm_error *err);
/* Finds the matrices among the tensors. *used[i] = 1 for tensors that are parts of one. */
int packed_find(packed_weights *p, const safetensors *st, unsigned char *used, arena *a, tfm_error *err);
/* n rows from `first` on, in host order. The parts of one matrix at a time are kept in memory. */
int packed_rows(packed_weights *p, const packed_matrix *m, int64_t first, int64_t n, float *out, tfm_error *err);
void packed_close(packed_weights *p);

#endif
