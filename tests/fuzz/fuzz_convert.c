/* fuzz_convert.c - libFuzzer target for the whole way: a checkpoint becomes a model, which is opened, verified,
 * evaluated and written as a GGUF. The first byte says what follows: 0 a directory of config.json, tokenizer.json and
 * model.safetensors, 1 the same with pytorch_model.bin (16-bit lengths of the first two), 2 an importance matrix,
 * anything else a GGUF or llama2.c file. */
#define _POSIX_C_SOURCE 200809L /* posix_memalign */

#include <stdlib.h>
#include <string.h>

#include "tools/convert.h"
#include "tools/write_gguf.h"

enum { MAX_SESSION = 1 << 24, MAX_OUT = 1 << 20 };

static volatile double consumed; /* so that no read is optimised away */

static void no_warning(void *user, const char *line) { (void)user, consumed += (double)strlen(line); }

static void check_error(int code, const tfm_error *err) {
    if (code && (code >= 0 || err->code >= 0 || !err->msg[0] || strchr(err->msg, '\n'))) abort();
}

/* A file in memory that ends at MAX_OUT. */
typedef struct output { unsigned char *bytes; size_t n; } output;

static int put(void *user, uint64_t offset, const void *bytes, size_t n) {
    output *o = (output *)user;
    if (offset > MAX_OUT || n > MAX_OUT - offset) return -1;
    if (n) memcpy(o->bytes + offset, bytes, n);
    if (offset + n > o->n) o->n = (size_t)offset + n;
    return 0;
}

static void use_model(const output *o, const convert_options *options) {
    tfm_session_config cfg;
    tfm_session *s;
    tfm_model *m;
    tfm_error err;
    size_t bytes;
    if (tfm_model_from_memory(o->bytes, o->n, NULL, &m, &err) || tfm_model_verify(m, &err)) abort();
    const int32_t ids[2] = {0, tfm_model_config_of(m)->n_vocab - 1};
    memset(&cfg, 0, sizeof cfg);
    cfg.size = sizeof cfg;
    cfg.n_ctx = 4;
    cfg.n_batch = 2;
    if (!tfm_session_size(m, &cfg, &bytes, NULL) && bytes < MAX_SESSION && !tfm_session_new(m, &cfg, &s, NULL)) {
        if (!tfm_eval(s, ids, 2, NULL)) consumed += (double)tfm_logits(s, 0)[ids[1]];
        tfm_session_free(s);
    }
    output gguf = {(unsigned char *)calloc(1, MAX_OUT), 0};
    sink out = {&gguf, put};
    if (gguf.bytes) check_error(write_gguf(m, "fuzz.tfm", &out, options, &err), &err);
    free(gguf.bytes);
    tfm_model_close(m);
}

/* Files with a 16-bit length each but for the last. */
static void split(memory_file *files, size_t n, const uint8_t *data, size_t size) {
    for (size_t i = 0, at = 2 * (n - 1); i < n; i++) {
        const size_t given = i + 1 < n ? load_u16(data + 2 * i) : size, rest = size - at;
        files[i].data = data + at;
        files[i].size = given < rest ? given : rest;
        at += files[i].size;
    }
}

static void try_convert(int kind, const uint8_t *data, size_t size) {
    memory_file files[3] = {{"config.json", NULL, 0}, {"tokenizer.json", NULL, 0},
                            {kind == 1 ? "pytorch_model.bin" : "model.safetensors", NULL, 0}};
    memory_dir list = {files, 3};
    source_dir dir = dir_memory("fuzz", &list);
    source src = source_memory("fuzz.gguf", data, size);
    convert_options options;
    output o = {NULL, 0};
    tfm_error err;
    memset(&err, 0, sizeof err);
    memset(&options, 0, sizeof options);
    options.warn = no_warning;
    if ((kind < 2 && size < 4) || posix_memalign((void **)&o.bytes, 64, MAX_OUT)) return;
    memset(o.bytes, 0, MAX_OUT);
    sink out = {&o, put};
    if (kind < 2) split(files, 3, data, size);
    const int code = kind < 2 ? convert_directory(&dir, &out, &options, &err)
                              : convert_file(&src, &out, &options, &err);
    check_error(code, &err);
    if (!code) use_model(&o, &options);
    free(o.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    if (data[0] == 2) {
        arena mem = {NULL, 0, 0, 0};
        source src = source_memory("fuzz.imatrix", data + 1, size - 1);
        imatrix m;
        tfm_error err;
        memset(&err, 0, sizeof err);
        const int code = imatrix_read(&m, &src, &mem, &err);
        check_error(code, &err);
        for (size_t i = 0; !code && i < m.n; i++)
            for (int64_t k = 0; k < m.entries[i].n * m.entries[i].cols; k++)
                if (!(m.entries[i].values[k] > 0)) abort();
        arena_free(&mem);
    } else {
        try_convert(data[0] > 1 ? 3 : data[0], data + 1, size - 1);
    }
    return 0;
}
