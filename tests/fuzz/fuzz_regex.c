/* fuzz_regex.c - libFuzzer target for expressions: whatever compiles splits any text into pieces that make it up again,
 * in bounded time. Input: the expression, a zero byte, a text. The vocabulary is that of bytes, so that the ids spell
 * the text. */
#include <stdlib.h>
#include <string.h>

#include "tools/tokenizer_build.h"

enum { MAX_PATTERN = 256, MAX_TEXT = 2048 };

/* A byte-level vocabulary that has every byte. */
static int make(tokenizer_build *b, const char *pattern, size_t n) {
    int code = build_ids(b, 256, 256);
    for (int i = 0; !code && i < 256; i++) {
        const char byte = (char)i;
        code = build_piece(b, i, arena_strndup(b->a, &byte, 1), 1);
        if (!code) b->pieces[i].reachable = 1;
        b->byte_ids[i] = (uint32_t)i;
    }
    b->flags |= TFM_TOK_BYTE_LEVEL;
    return code ? code : build_split(b, "fuzz", pattern, n, 1, TFM_TOK_ISOLATED);
}

static void check(const tok_section *section, const char *text, size_t n) {
    static int32_t ids[3 * MAX_TEXT];
    static char out[3 * MAX_TEXT];
    uint64_t mem[64];
    const tfm_tokenizer *t;
    tfm_error err;
    int64_t n_ids = 0;
    memset(&err, 0, sizeof err);
    if (tfm_tokenizer_open(section->bytes, section->size, mem, sizeof mem, &t, &err)) abort();
    const size_t room = tfm_encode_size(t, n);
    void *scratch = malloc(room);
    const int code = scratch ? tfm_encode(t, text, n, 0, ids, 3 * MAX_TEXT, &n_ids, scratch, room, &err)
                             : TFM_ERR_MEMORY;
    if (code && !strstr(err.msg, "too long")) abort();
    const size_t m = tfm_decode_text(t, ids, n_ids, 0, out, sizeof out);
    if (!code && (m < n || m > sizeof out)) abort(); /* bad bytes became U+FFFD, nothing is lost */
    free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *zero = size ? (const uint8_t *)memchr(data, 0, size) : NULL;
    const size_t n_pattern = zero ? (size_t)(zero - data) : size;
    size_t n = zero ? size - n_pattern - 1 : 0;
    tokenizer_build b;
    tok_section section;
    tfm_error err;
    arena a = {NULL, 0, 0, 0};
    if (n_pattern > MAX_PATTERN) return 0;
    if (n > MAX_TEXT) n = MAX_TEXT;
    memset(&err, 0, sizeof err);
    build_begin(&b, &a, "fuzz", 0, &section, &err);
    int code = make(&b, (const char *)data, n_pattern);
    if (!code) code = build_finish(&b);
    else build_abandon(&b, code);
    if (!code) check(&section, (const char *)(zero ? zero + 1 : data), n);
    else if (err.code >= 0 || !err.msg[0]) abort();
    arena_free(&a);
    return 0;
}
