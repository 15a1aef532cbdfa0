/* fuzz_safetensors.c - libFuzzer target for the safetensors reader. `make fuzz` builds and runs it on seeds that the
 * tests write. The first byte says what the rest is: 1 a directory (three 16-bit lengths, then its index and two
 * shards), anything else a .safetensors file.
 */
#include <string.h>

#include "tools/safetensors.h"

static void use_tensors(const safetensors *st, arena *a)
{
    size_t i;
    for (i = 0; i < st->n_tensors; i++) {
        const st_tensor *t = &st->tensors[i];
        void *data = arena_alloc(a, (size_t)t->bytes);
        if (t->strided) continue; /* a PyTorch file: its elements cannot be read */
        if (data == NULL || st_read(st, t, 0, (size_t)t->n_elements, data, NULL) != TFM_OK) __builtin_trap();
        if (st_read(st, t, (uint64_t)t->n_elements, 1, data, NULL) == TFM_OK) __builtin_trap();
        if (st_find(st, t->name) != t) __builtin_trap();
    }
}

static int open_directory(safetensors *st, const uint8_t *data, size_t size, arena *a, tfm_error *err)
{
    static const char *const names[3] = { "model.safetensors.index.json", "a.safetensors", "b.safetensors" };
    memory_file files[3];
    memory_dir list;
    source_dir dir;
    size_t i, at = 6;
    list.files = files;
    list.n_files = 0;
    for (i = 0; i < 3 && size >= 6; i++) {
        size_t n = load_u16(data + 2 * i);
        if (n > size - at) n = size - at;
        files[i].name = names[i];
        files[i].data = data + at;
        files[i].size = n;
        list.n_files++;
        at += n;
    }
    dir = dir_memory("fuzz", &list);
    return st_open_dir(st, &dir, names[0], a, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena a = { NULL, 0, 0, 0 };
    tfm_error err;
    safetensors st;
    source src;
    int code;
    if (size == 0) return 0;
    memset(&err, 0, sizeof err);
    memset(&st, 0, sizeof st);
    src = source_memory("fuzz.safetensors", data + 1, size - 1);
    if (data[0] == 1) code = open_directory(&st, data + 1, size - 1, &a, &err);
    else code = st_open_file(&st, &src, &a, &err);
    if (code == TFM_OK) use_tensors(&st, &a);
    if (code != TFM_OK && (err.code >= 0 || err.msg[0] == 0)) __builtin_trap(); /* every refusal says why */
    st_close(&st);
    arena_free(&a);
    return 0;
}
