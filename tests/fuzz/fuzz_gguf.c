/* fuzz_gguf.c - libFuzzer target for the GGUF reader. `make fuzz` builds and runs it on seeds that the tests write. */
#include <string.h>

#include "tools/gguf.h"

static volatile double consumed; /* so that no read is optimised away */

static void use_value(const gguf *g, const gguf_kv *kv)
{
    const gguf_kv *array;
    const char *text;
    int64_t whole[4];
    double real;
    int flags[4];
    tfm_error err;
    size_t i;
    consumed += gguf_int(g, kv->key, whole, &err);
    consumed += gguf_real(g, kv->key, &real, &err);
    consumed += gguf_bool(g, kv->key, flags, &err);
    consumed += gguf_ints(g, kv->key, whole, 4, &err);
    consumed += gguf_bools(g, kv->key, flags, 4, &err);
    if (gguf_str(g, kv->key, &text, &err) == TFM_OK) consumed += (double)strlen(text);
    if (gguf_real_array(g, kv->key, &array, &err) == TFM_OK) {
        for (i = 0; i < array->count; i++) consumed += gguf_real_at(array, i);
    }
    if (gguf_int_array(g, kv->key, &array, &err) == TFM_OK) {
        for (i = 0; i < array->count; i++) consumed += (double)gguf_int_at(array, i);
    }
    if (gguf_string_array(g, kv->key, &array, &err) == TFM_OK) {
        for (i = 0; i < array->count; i++) consumed += (double)strlen(array->u.strings[i].text);
    }
}

static void use_tensor(const gguf *g, const gguf_tensor *t, arena *a)
{
    uint64_t bytes = gguf_row_bytes(t), rows = gguf_n_rows(t);
    void *row = arena_alloc(a, (size_t)bytes);
    if (row == NULL || bytes * rows != t->bytes) __builtin_trap();
    if (gguf_read_rows(g, t, rows - 1, 1, row, NULL) != TFM_OK) __builtin_trap();
    if (gguf_read_rows(g, t, rows, 1, row, NULL) == TFM_OK) __builtin_trap();
    if (gguf_find_tensor(g, t->name) != t) __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    source src = source_memory("fuzz.gguf", data, size);
    arena a = { NULL, 0, 0, 0 };
    tfm_error err;
    gguf g;
    size_t i;
    memset(&err, 0, sizeof err);
    if (gguf_open(&g, &src, &a, &err) == TFM_OK) {
        for (i = 0; i < g.n_kv; i++) use_value(&g, &g.kv[i]);
        for (i = 0; i < g.n_tensors; i++) use_tensor(&g, &g.tensors[i], &a);
    } else if (err.code >= 0 || err.msg[0] == 0 || strlen(err.msg) >= sizeof err.msg) {
        __builtin_trap(); /* every refusal says why */
    }
    arena_free(&a);
    return 0;
}
