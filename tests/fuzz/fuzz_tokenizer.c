/* fuzz_tokenizer.c - libFuzzer target for tokenizer.json: what the converter accepts can be opened and
 * encodes and decodes any text. The text follows the document after a zero byte; without one, the document itself is
 * the text. */
#include <stdlib.h>
#include <string.h>

#include "tools/tokenizer.h"

enum { MAX_TEXT = 512, MAX_IDS = 1 << 16, MAX_SCRATCH = 1 << 26 };

static void use(const tfm_tokenizer *t, const char *text, size_t n, int32_t flags) {
    static int32_t ids[MAX_IDS];
    static char out[1 << 16];
    const size_t room = tfm_encode_size(t, n), most = tfm_decode_max(t);
    void *scratch = room && room < MAX_SCRATCH ? malloc(room) : NULL;
    int64_t n_ids = 0;
    tfm_decoder d;
    tfm_error err;
    if (!scratch) return;
    int code = tfm_encode(t, text, n, flags, ids, MAX_IDS, &n_ids, scratch, room, &err);
    /* it never contradicts itself */
    if (code != TFM_OK && code != TFM_ERR_MEMORY && !strstr(err.msg, "too long")) abort();
    if (n_ids > tfm_encode_max(t, n)) abort();
    if (n_ids > MAX_IDS) n_ids = MAX_IDS;
    tfm_decode_init(&d, t, 0);
    for (int64_t i = 0; i < n_ids && most < sizeof out; i++) {
        if (ids[i] < 0 || ids[i] >= tfm_vocab_size(t) || tfm_decode(&d, ids[i], out, sizeof out) > most) abort();
    }
    tfm_decode_flush(&d, out, sizeof out);
    tfm_decode_text(t, ids, n_ids, TFM_DECODE_SKIP_SPECIAL, out, sizeof out);
    free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *zero = size ? (const uint8_t *)memchr(data, 0, size) : NULL;
    const size_t n_document = zero ? (size_t)(zero - data) : size;
    const char *text = zero ? (const char *)zero + 1 : (const char *)data;
    size_t n = zero ? size - n_document - 1 : size;
    source src = source_memory("tokenizer.json", data, n_document);
    uint64_t mem[64];
    const tfm_tokenizer *t;
    tok_section section;
    tfm_error err;
    arena a = {NULL, 0, 0, 0};
    if (n > MAX_TEXT) n = MAX_TEXT;
    memset(&err, 0, sizeof err);
    int code = tokenizer_from_json(&a, &src, NULL, 0, &section, &err);
    if (!code && tfm_tokenizer_open(section.bytes, section.size, mem, sizeof mem, &t, &err)) abort();
    if (!code) {
        use(t, text, n, 0);
        use(t, text, n, TFM_ENCODE_PARSE_SPECIAL);
    } else if (err.code >= 0 || !err.msg[0]) {
        abort(); /* every refusal says why */
    }
    arena_free(&a);
    return 0;
}
