/* llama2c.h - the .bin checkpoints of llama2.c, versions 0 to 2, and their tokenizer.bin.
 *
 * Version 0 is 7 int32 and then float32 tensors one after the other; it has no magic, so the exact size of the file is
 * what tells that the 7 numbers are meant. Versions 1 and 2 begin with "24ka", the version, the same 7 numbers and a
 * byte that says whether the classifier is the embedding, in 256 bytes; norms come first. Version 1 is float32, too. In
 * version 2 matrices are int8 with a float32 scale for each group of elements, the scales behind a matrix's elements.
 */
#ifndef TOOLS_LLAMA2C_H
#define TOOLS_LLAMA2C_H

#include "base.h"

/* The tensors in the order of the file. */
typedef enum l2c_role {
    L2C_TOKEN_EMBEDDING, L2C_ATTN_NORM, L2C_WQ, L2C_WK, L2C_WV, L2C_WO, L2C_FFN_NORM, L2C_W1, L2C_W2, L2C_W3,
    L2C_FINAL_NORM, L2C_ROPE_COS, L2C_ROPE_SIN, L2C_CLASSIFIER, L2C_N_ROLES
} l2c_role;

typedef struct l2c_tensor {
    const char *name;
    int per_layer;         /* n_layers of them, one after the other */
    int64_t rows, cols;    /* of one layer's matrix; a vector has one row */
    uint64_t offset;       /* of the first layer, from the start of the file */
    uint64_t elements;     /* rows * cols */
    uint64_t layer_bytes;  /* in the file, of one layer; scales included */
    int grouped;           /* int8 and scales, else float32 */
} l2c_tensor;

typedef struct l2c_model {
    source src;
    int version;
    int64_t group; /* elements that share a scale, in version 2 */
    int64_t dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len;
    int64_t head_dim;
    int tied; /* the classifier is the embedding; tensors[L2C_CLASSIFIER] then has no rows */
    l2c_tensor tensors[L2C_N_ROLES]; /* q and k rows are in pairs (interleaved RoPE) */
} l2c_model;

int l2c_open(l2c_model *m, const source *src, tfm_error *err);
/* n floats from element `first` of a layer (0 if not per layer) on, in host order; int8 times its scale, as the program
 * that the format belongs to takes it. */
int l2c_read(const l2c_model *m, l2c_role role, int64_t layer, uint64_t first, size_t n, float *buf, tfm_error *err);

typedef struct l2c_piece {
    const char *text; /* zero-terminated, as in the file: "<0x0A>" for bytes, leading blanks plain */
    uint32_t length;
    float score;
} l2c_piece;

typedef struct l2c_tokenizer {
    l2c_piece *pieces;
    size_t n_pieces;
    int32_t max_length;
} l2c_tokenizer;

/* The file does not hold its number of pieces; `vocab_size` is the model's, or 0 to read to the end of the file. */
int l2c_read_tokenizer(l2c_tokenizer *t, const source *src, int64_t vocab_size, arena *a, tfm_error *err);

#endif
