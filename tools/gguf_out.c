/* gguf_out.c - see gguf_out.h */
#include "gguf_out.h"

#include <stdlib.h>
#include <string.h>

static void put(gguf_out *g, int info, const void *bytes, size_t n) {
    unsigned char **to = info ? &g->info : &g->kv;
    size_t *used = info ? &g->n_info_bytes : &g->n_kv_bytes;
    unsigned char *grown = NULL;
    if (!g->failed) grown = array_grow(*to, info ? &g->info_room : &g->kv_room, *used + n, 1);
    if (!grown) g->failed = 1;
    if (g->failed) return;
    *to = grown;
    if (n) memcpy(grown + *used, bytes, n);
    *used += n;
}

static void store(unsigned char *to, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) to[i] = (unsigned char)(value >> (8 * i));
}

static void put_number(gguf_out *g, int info, uint64_t value, int bytes) {
    unsigned char b[8];
    store(b, value, bytes);
    put(g, info, b, (size_t)bytes);
}

static void put_string(gguf_out *g, int info, const char *text, size_t n) {
    put_number(g, info, n, 8);
    put(g, info, text, n);
}

static void put_key(gguf_out *g, const char *key, gguf_value_type type) {
    put_string(g, 0, key, strlen(key));
    put_number(g, 0, (uint64_t)type, 4);
    g->n_kv++;
}

void gguf_out_free(gguf_out *g) {
    free(g->kv);
    free(g->info);
    memset(g, 0, sizeof *g);
}

void gguf_put_u32(gguf_out *g, const char *key, uint32_t value) {
    put_key(g, key, GGUF_U32);
    put_number(g, 0, value, 4);
}

void gguf_put_f32(gguf_out *g, const char *key, float value) {
    put_key(g, key, GGUF_F32);
    gguf_add_f32(g, value);
}

void gguf_put_bool(gguf_out *g, const char *key, int value) {
    put_key(g, key, GGUF_BOOL);
    gguf_add_bool(g, value);
}

void gguf_put_text(gguf_out *g, const char *key, const char *value) {
    put_key(g, key, GGUF_STRING);
    put_string(g, 0, value, strlen(value));
}

void gguf_put_array(gguf_out *g, const char *key, gguf_value_type type, uint64_t n) {
    put_key(g, key, GGUF_ARRAY);
    put_number(g, 0, (uint64_t)type, 4);
    put_number(g, 0, n, 8);
}

void gguf_add_u32(gguf_out *g, uint32_t value) { put_number(g, 0, value, 4); }

void gguf_add_bool(gguf_out *g, int value) { put_number(g, 0, value != 0, 1); }

void gguf_add_f32(gguf_out *g, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_number(g, 0, bits, 4);
}

void gguf_add_text(gguf_out *g, const char *text, size_t n) { put_string(g, 0, text, n); }

uint64_t gguf_put_tensor(gguf_out *g, const char *name, uint32_t type, const int64_t *dims, int n_dims,
                         uint64_t bytes) {
    const uint64_t at = g->data_bytes;
    put_string(g, 1, name, strlen(name));
    put_number(g, 1, (uint64_t)n_dims, 4);
    for (int i = 0; i < n_dims; i++) put_number(g, 1, (uint64_t)dims[i], 8);
    put_number(g, 1, type, 4);
    put_number(g, 1, at, 8);
    g->n_tensors++;
    g->data_bytes += (bytes + GGUF_OUT_ALIGNMENT - 1) / GGUF_OUT_ALIGNMENT * GGUF_OUT_ALIGNMENT;
    return at;
}

unsigned char *gguf_out_head(const gguf_out *g, arena *a, size_t *n) {
    const size_t used = 24 + g->n_kv_bytes + g->n_info_bytes;
    *n = (used + GGUF_OUT_ALIGNMENT - 1) / GGUF_OUT_ALIGNMENT * GGUF_OUT_ALIGNMENT;
    unsigned char *head = g->failed ? NULL : arena_alloc(a, *n);
    if (!head) return NULL;
    memcpy(head, "GGUF", 4);
    store(head + 4, 3, 4);
    store(head + 8, g->n_tensors, 8);
    store(head + 16, g->n_kv, 8);
    if (g->n_kv_bytes) memcpy(head + 24, g->kv, g->n_kv_bytes);
    if (g->n_info_bytes) memcpy(head + 24 + g->n_kv_bytes, g->info, g->n_info_bytes);
    return head;
}
