/* fuzz_tfm.c - libFuzzer target for .tfm files. `make fuzz` builds it with TFM_FUZZING, which lets damaged checksums
 * pass, and runs it on files that the tests write. Whatever the bytes: the file is refused, or it can be evaluated, its
 * tokenizer used, its hashes verified and a GGUF written of it without touching anything outside.
 */
#define _POSIX_C_SOURCE 200809L /* posix_memalign: the allocation ends where the file does */

#include <stdlib.h>
#include <string.h>

#include "tools/write_gguf.h"

enum { MAX_FILE = 1 << 20, MAX_SESSION = 1 << 24, N_CTX = 6, MAX_TEXT = 64 };

static volatile float consumed; /* so that no read is optimised away */

static void run_session(const tfm_model *m, int32_t act, int32_t kv) {
    tfm_session_config cfg;
    tfm_session *s;
    size_t bytes = 0;
    const int32_t last = tfm_model_config_of(m)->n_vocab - 1;
    const int32_t ids[3] = { 0, last, last / 2 };
    memset(&cfg, 0, sizeof cfg);
    cfg.size = sizeof cfg;
    cfg.n_ctx = N_CTX;
    cfg.n_batch = 2;
    cfg.act = act;
    cfg.kv = kv;
    if (tfm_session_size(m, &cfg, &bytes, NULL) || bytes > MAX_SESSION || tfm_session_new(m, &cfg, &s, NULL)) return;
    if (!tfm_eval(s, ids, 3, NULL)) consumed = tfm_logits(s, 0)[last];
    if (!tfm_session_rewind(s, 2, NULL)) tfm_eval(s, ids, 1, NULL);
    tfm_session_free(s);
}

/* The work of an eval is bounded by the weights, which are bounded by the file, and by the layers. */
static int is_modest(const tfm_model *m) {
    const tfm_config *c = tfm_model_config_of(m);
    return c->n_layers > 0 && c->n_layers <= 64 && c->n_vocab <= 1 << 16;
}

static void use_tokenizer(const tfm_tokenizer *t, const char *text, size_t n) {
    static int32_t ids[4096];
    static char out[4096];
    const size_t scratch_bytes = tfm_encode_size(t, n);
    int64_t n_ids = 0;
    tfm_decoder d;
    void *scratch = scratch_bytes < 1 << 24 ? malloc(scratch_bytes + 1) : NULL;
    if (!scratch) return;
    if (!tfm_encode(t, text, n, TFM_ENCODE_PARSE_SPECIAL, ids, 4096, &n_ids, scratch, scratch_bytes, NULL)) {
        tfm_decode_init(&d, t, TFM_DECODE_SKIP_SPECIAL);
        for (int64_t i = 0; i < n_ids; i++) {
            if (ids[i] < 0 || ids[i] >= tfm_vocab_size(t)) abort();
            tfm_decode(&d, ids[i], out, sizeof out);
        }
        tfm_decode_flush(&d, out, sizeof out);
        tfm_decode_text(t, ids, n_ids, 0, out, sizeof out);
    }
    tfm_encode(t, text, n, 0, ids, 4, &n_ids, scratch, scratch_bytes, NULL);
    free(scratch);
    for (int32_t id = -1; id < 300; id += 7) {
        size_t bytes = 0;
        const char *piece = tfm_token_piece(t, id, &bytes);
        if (piece && bytes) consumed = (float)piece[bytes - 1];
        consumed = (float)(tfm_token_flags(t, id) + tfm_token_prefix(t, id));
        if (piece) consumed = (float)tfm_token_find(t, piece, bytes);
    }
}

static void no_warning(void *user, const char *line) { (void)user, consumed = (float)strlen(line); }

/* Nothing is kept of what is written. */
static int put(void *user, uint64_t offset, const void *bytes, size_t n) {
    (void)user, (void)offset;
    if (n) consumed = (float)((const uint8_t *)bytes)[n - 1];
    return 0;
}

static void use_writer(const tfm_model *m) {
    sink out = { NULL, put };
    convert_options options;
    tfm_error err;
    memset(&options, 0, sizeof options);
    options.warn = no_warning;
    const int code = write_gguf(m, "fuzz.tfm", &out, &options, &err);
    if (code && (!err.msg[0] || strchr(err.msg, '\n'))) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    void *file;
    tfm_model *m;
    tfm_error err;
    if (size > MAX_FILE || posix_memalign(&file, 64, size + !size)) return 0;
    memcpy(file, data, size);
    if (!tfm_model_from_memory(file, size, NULL, &m, &err)) {
        tfm_model_verify(m, &err);
        if (is_modest(m)) {
            run_session(m, TFM_ACT_MODE_F32, TFM_KV_F32);
            run_session(m, TFM_ACT_MODE_Q8, TFM_KV_DEFAULT);
        }
        if (tfm_model_tokenizer(m))
            use_tokenizer(tfm_model_tokenizer(m), (const char *)data, size < MAX_TEXT ? size : MAX_TEXT);
        if (data[size - 1] % 8 == 0 && is_modest(m)) use_writer(m); /* every family is tried: for some of the files */
        tfm_model_close(m);
    } else if (!err.msg[0] || strchr(err.msg, '\n')) {
        abort();
    }
    free(file);
    return 0;
}
