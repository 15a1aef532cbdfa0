/* fuzz_checkpoint.c - libFuzzer target for whole checkpoints: a Hugging Face directory with packed weights, PyTorch
 * files, a split GGUF. `make fuzz` builds and runs it on seeds that the tests write.
 * The first byte says what follows: 0 config.json and model.safetensors, 1 config.json and pytorch_model.bin, 2 two
 * parts of a GGUF (a 16-bit length of the first each time); 3 a pickle, anything else a zip archive.
 */
#include <string.h>

#include "tools/checkpoint.h"
#include "tools/pickle.h"
#include "tools/zip.h"

static volatile double consumed; /* so that no read is optimised away */

static void no_warning(void *user, const char *line) { (void)user, consumed += (double)strlen(line); }

/* Every row of every small tensor, in steps that do not divide them. */
static void use_tensors(const checkpoint *c) {
    enum { LARGEST = 1 << 16, STEP = 3 };
    for (size_t i = 0; i < c->n_tensors; i++) {
        const ckpt_tensor *t = &c->tensors[i];
        arena mem = {NULL, 0, 0, 0};
        if (t->type < 0 || t->data || t->row_bytes > LARGEST || t->rows > LARGEST) continue;
        unsigned char *rows = arena_array(&mem, STEP, (size_t)t->row_bytes + 1);
        for (int64_t r = 0; rows && r < t->rows; r += STEP) {
            const int64_t n = t->rows - r < STEP ? t->rows - r : STEP;
            tfm_error err;
            memset(&err, 0, sizeof err);
            const int code = c->read_rows(c, t, r, n, rows, &err);
            if (code && !err.msg[0]) __builtin_trap();
            if (code) break;
            for (uint64_t k = 0; k < (uint64_t)n * t->row_bytes; k++) consumed += rows[k];
        }
        arena_free(&mem);
    }
}

static void try_checkpoint(int kind, const uint8_t *data, size_t size, arena *mem, tfm_error *err) {
    static const char *const names[3][2] = {{"config.json", "model.safetensors"}, {"config.json", "pytorch_model.bin"},
                                            {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}};
    const size_t given = size < 2 ? 0 : load_u16(data), n = size < 2 ? 0 : given < size - 2 ? given : size - 2;
    const memory_file files[2] = {{names[kind][0], data + 2, n}, {names[kind][1], data + 2 + n, size - 2 - n}};
    memory_dir list = {files, 2};
    source_dir dir = dir_memory("fuzz", &list);
    source first = source_memory(names[kind][0], data + 2, n);
    convert_options options;
    checkpoint c;
    if (size < 2) return;
    memset(&options, 0, sizeof options);
    memset(&c, 0, sizeof c);
    options.warn = no_warning;
    options.beside = &dir;
    c.mem = mem;
    c.options = &options;
    const int code = kind == 2 ? checkpoint_open_gguf(&c, &first, err) : checkpoint_open_hf(&c, &dir, err);
    if (!code) use_tensors(&c);
    if (code && !err->msg[0]) __builtin_trap(); /* every refusal says why */
    if (c.close) c.close(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    arena mem = {NULL, 0, 0, 0};
    tfm_error err;
    memset(&err, 0, sizeof err);
    if (!size) return 0;
    if (data[0] < 3) {
        try_checkpoint(data[0], data + 1, size - 1, &mem, &err);
    } else if (data[0] == 3) {
        pickle p;
        if (pickle_read(&p, "fuzz.pkl", data + 1, size - 1, &mem, &err) && !err.msg[0]) __builtin_trap();
        if (p.length > size - 1) __builtin_trap();
    } else {
        source src = source_memory("fuzz.zip", data + 1, size - 1);
        zip z;
        if (zip_open(&z, &src, &mem, &err)) {
            if (!err.msg[0]) __builtin_trap();
        } else {
            for (size_t i = 0; i < z.n; i++)
                if (z.entries[i].offset > src.size || z.entries[i].bytes > src.size - z.entries[i].offset)
                    __builtin_trap();
        }
    }
    arena_free(&mem);
    return 0;
}
