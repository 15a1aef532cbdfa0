/* fuzz_vocabulary.c - libFuzzer target for vocabularies that are not tokenizer.json: what a reader accepts can be
 * opened and encodes and decodes any text. The first byte says what follows a text of the length in the second: 0
 * tokenizer.model, 1 the metadata of a GGUF, anything else llama2.c's tokenizer.bin. */
#include <stdlib.h>
#include <string.h>

#include "tools/tokenizer.h"

enum { MAX_SCRATCH = 1 << 26 };

static void use(const tfm_tokenizer *t, const char *text, size_t n) {
    static char out[1 << 16];
    const size_t room = tfm_encode_size(t, n), most = tfm_decode_max(t);
    const int64_t max_ids = tfm_encode_max(t, n);
    int64_t n_ids = 0;
    tfm_decoder d;
    tfm_error err;
    void *scratch = room && room < MAX_SCRATCH ? malloc(room) : NULL;
    int32_t *ids = NULL;
    if (max_ids >= 0 && max_ids < MAX_SCRATCH) ids = (int32_t *)malloc(((size_t)max_ids + 1) * sizeof *ids);
    if (scratch && ids &&
        !tfm_encode(t, text, n, TFM_ENCODE_PARSE_SPECIAL, ids, max_ids, &n_ids, scratch, room, &err)) {
        tfm_decode_init(&d, t, 0);
        for (int64_t i = 0; i < n_ids; i++) {
            if (ids[i] < 0 || ids[i] >= tfm_vocab_size(t)) abort();
            if (most < sizeof out && tfm_decode(&d, ids[i], out, sizeof out) > most) abort();
        }
        tfm_decode_flush(&d, out, sizeof out);
        tfm_decode_text(t, ids, n_ids, TFM_DECODE_SKIP_SPECIAL, out, sizeof out);
    } else if (scratch && ids && !strstr(err.msg, "too long")) {
        abort(); /* a converted tokenizer never contradicts itself */
    }
    free(scratch);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint64_t mem[64];
    const tfm_tokenizer *t;
    tok_section section;
    tfm_error err;
    gguf g;
    arena a = {NULL, 0, 0, 0};
    int code;
    if (size < 2) return 0;
    const size_t n_text = data[1] < size - 2 ? data[1] : size - 2;
    source src = source_memory("fuzz", data + 2 + n_text, size - 2 - n_text);
    memset(&err, 0, sizeof err);
    if (data[0] == 0) {
        code = tokenizer_from_sentencepiece(&a, &src, NULL, 0, &section, &err);
    } else if (data[0] == 1) {
        code = gguf_open(&g, &src, &a, &err);
        if (!code) code = tokenizer_from_gguf(&a, &g, 0, &section, &err);
    } else {
        code = tokenizer_from_llama2c(&a, &src, 0, &section, &err);
    }
    if (!code && tfm_tokenizer_open(section.bytes, section.size, mem, sizeof mem, &t, &err)) abort();
    if (!code) use(t, (const char *)data + 2, n_text);
    else if (err.code >= 0 || !err.msg[0] || strchr(err.msg, '\n')) abort(); /* every refusal says why, in a line */
    arena_free(&a);
    return 0;
}
