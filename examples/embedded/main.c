/* A language model on a microcontroller: no operating system, no file, no malloc, no libm. The model stays in flash and
 * is used in place; everything that changes lives in one static buffer whose size is known when this is compiled.
 *
 * model.S puts the model's file into the program, plan.h (made by tfm-inspect --plan) says what memory it needs. The
 * Makefile beside this builds it for several CPUs and runs it in an emulator; board.h is what a new board must bring.
 */
#define TFM_IMPLEMENTATION
#define TFM_STATIC
#define TFM_NO_STDIO
#define TFM_NO_MALLOC
#define TFM_NO_MMAP
#define TFM_NO_THREADS
#define TFM_NO_NFC
#define TFM_NO_EXPERTS
#include "tfm.h"

#include "board.h"
#include "plan.h"

#ifndef PROMPT
#define PROMPT "Once upon a time"
#endif
enum { MAX_PROMPT = 32, N_TOKENS = 64 };

extern const unsigned char model_file[MODEL_BYTES];

static unsigned char memory[MODEL_MEMORY_BYTES] __attribute__((aligned(64)));

static int32_t made[N_TOKENS];

static void put(const char *text) { board_put(text, strlen(text)); }

static void put_number(uint64_t u) {
    char digits[20];
    int i = 20;
    do digits[--i] = (char)('0' + u % 10); while (u /= 10);
    board_put(digits + i, (size_t)(20 - i));
}

static void put_figure(const char *name, uint64_t value) {
    put(name);
    put(" ");
    put_number(value);
    put("\n");
}

static int fail(const tfm_error *err) {
    put("error: ");
    put(err->msg);
    put("\n");
    return 1;
}

/* The session's memory is still free while the prompt becomes ids. */
static tfm_result start(tfm_session **s, const tfm_tokenizer **t, int32_t *ids, int64_t *n, tfm_error *err) {
    unsigned char *rest = memory + MODEL_TABLES_BYTES;
    tfm_session_config cfg;
    tfm_model *m;
    tfm_result r = tfm_model_init(model_file, MODEL_BYTES, memory, MODEL_TABLES_BYTES, &m, err);
    if (r) return r;
    *t = tfm_model_tokenizer(m);
    r = tfm_encode(*t, PROMPT, sizeof PROMPT - 1, 0, ids, MAX_PROMPT, n, rest, MODEL_SESSION_BYTES, err);
    if (r) return r;
    memset(&cfg, 0, sizeof cfg);
    cfg.size = sizeof cfg;
    cfg.n_ctx = MODEL_CTX;
    cfg.n_batch = MODEL_BATCH;
    cfg.kv = MODEL_KV;
    cfg.act = MODEL_ACT;
    return tfm_session_init(m, &cfg, rest, MODEL_SESSION_BYTES, s, err);
}

/* Always the likeliest token, until the model ends the text or N_TOKENS are made. Returns how many; -1: an error. */
static int generate(tfm_session *s, const tfm_tokenizer *t, const int32_t *ids, int64_t n, tfm_error *err) {
    const tfm_config *c = tfm_model_config_of((const tfm_model *)(const void *)memory);
    static char text[256];
    tfm_decoder d;
    tfm_decode_init(&d, t, TFM_DECODE_CONTINUATION);
    for (int i = 0; i < N_TOKENS; i++, ids = &made[i - 1], n = 1) {
        board_ticks();
        if (tfm_eval(s, ids, n, err)) return -1;
        made[i] = tfm_argmax(tfm_logits(s, 0), c->n_vocab);
        for (int j = 0; j < c->n_eos; j++) if (made[i] == c->eos[j]) return i;
        const size_t bytes = tfm_decode(&d, made[i], text, sizeof text);
        if (bytes <= sizeof text) board_put(text, bytes);
    }
    return N_TOKENS;
}

int main(void) {
    const tfm_tokenizer *t;
    tfm_session *s;
    tfm_error err;
    int32_t ids[MAX_PROMPT];
    int64_t n;
    if (start(&s, &t, ids, &n, &err)) return fail(&err);
    put(PROMPT);
    const uint64_t before = board_ticks();
    const int tokens = generate(s, t, ids, n, &err);
    const uint64_t ticks = board_ticks() - before;
    put("\n\n");
    if (tokens < 0) return fail(&err);

    put("ids");
    for (int i = 0; i < tokens; i++) {
        put(" ");
        put_number((uint64_t)made[i]);
    }
    put("\n");
    put_figure("tokens", (uint64_t)tokens);
    put_figure("evaluated", (uint64_t)tfm_session_length(s));
    put_figure("ticks", ticks);
    put_figure("memory", sizeof memory);
    put_figure("stack", board_stack_used());
    return 0;
}
