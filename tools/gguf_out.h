/* gguf_out.h - the head of a GGUF file, built in memory: metadata by key, then the directory of tensors. */
#ifndef TOOLS_GGUF_OUT_H
#define TOOLS_GGUF_OUT_H

#include "gguf.h"

enum { GGUF_OUT_ALIGNMENT = 32 };

typedef struct gguf_out {
    unsigned char *kv, *info;  /* from malloc */
    size_t n_kv_bytes, kv_room, n_info_bytes, info_room;
    uint64_t n_kv, n_tensors;
    uint64_t data_bytes;       /* of all tensors so far, padded */
    int failed;                /* out of memory: found out in gguf_out_head */
} gguf_out;

void gguf_out_free(gguf_out *g);
void gguf_put_u32(gguf_out *g, const char *key, uint32_t value);
void gguf_put_f32(gguf_out *g, const char *key, float value);
void gguf_put_bool(gguf_out *g, const char *key, int value);
void gguf_put_text(gguf_out *g, const char *key, const char *value);
/* An array of n; then n values with the functions below. */
void gguf_put_array(gguf_out *g, const char *key, gguf_value_type type, uint64_t n);
void gguf_add_u32(gguf_out *g, uint32_t value); /* also of an i32 */
void gguf_add_bool(gguf_out *g, int value);
void gguf_add_f32(gguf_out *g, float value);
void gguf_add_text(gguf_out *g, const char *text, size_t n);
/* dims: innermost first. Returns where its data begins behind the head. */
uint64_t gguf_put_tensor(gguf_out *g, const char *name, uint32_t type, const int64_t *dims, int n_dims, uint64_t bytes);
/* The whole head, padded, in the arena; NULL: out of memory. */
unsigned char *gguf_out_head(const gguf_out *g, arena *a, size_t *n);

#endif
