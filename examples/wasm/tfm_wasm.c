/* tfm_wasm.c - tfm.h as a WebAssembly module: functions of numbers and addresses for tfm.mjs (or any other host).
 *
 * Addresses and sizes cross the border as float64, exact to 2^53: never negative above 2 GB, and the same in wasm32
 * and memory64. A function that can fail returns 0 or a negative code and leaves its message at last_error().
 * No imports but the memory, and that only where threads share it.
 */
#include <stdlib.h>
#include <string.h>

#define TFM_STATIC
#define TFM_NO_STDIO
#define TFM_NO_MALLOC
#define TFM_NO_MMAP
#define TFM_NO_SCALAR
#define TFM_IMPLEMENTATION
#include "tfm.h"

#define EXPORT(name) __attribute__((export_name(#name)))

typedef double address;

static void *at(address p) { return (void *)(uintptr_t)p; }
static address of(const void *p) { return (address)(uintptr_t)p; }

static tfm_error last;

EXPORT(last_error) address last_error(void) { return of(last.msg); }

static int32_t fail(int32_t code, const char *message) {
    last.code = code;
    memcpy(last.msg, message, strlen(message) + 1);
    return code;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

EXPORT(allocate) address allocate(address bytes) {
    void *p = bytes < (address)SIZE_MAX ? malloc((size_t)bytes) : NULL;
    if (!p) fail(TFM_ERR_MEMORY, "out of memory");
    return of(p);
}
/* The same block with more room; 0 leaves it as it was. */
EXPORT(enlarge) address enlarge(address p, address bytes) {
    void *q = bytes < (address)SIZE_MAX ? realloc(at(p), (size_t)bytes) : NULL;
    if (!q) fail(TFM_ERR_MEMORY, "out of memory");
    return of(q);
}
EXPORT(release) void release(address p) { free(at(p)); }

/* ---- threads ----------------------------------------------------------------------------------------------------- */
#ifdef __wasm_atomics__
/* A pool behind tfm_parallel: workers of the host's run pool_worker() for ever. A job's parts are claimed one by one
 * through `ticket` (job << 32 | parts << 16 | next part); who holds a part can read fn and arg, since the job lasts
 * until all parts are done. */
enum { SPINS = 20000 };
static struct {
    uint64_t ticket;
    uint32_t posted; /* jobs so far; sleeping workers wait for it to change */
    uint32_t done;   /* parts of this job that are finished */
    void (*fn)(void *arg, int index);
    void *arg;
} pool;

/* Claims and runs one part; 0 if none is left. */
static int pool_part(void) {
    uint64_t t = __atomic_load_n(&pool.ticket, __ATOMIC_SEQ_CST);
    do {
        if ((t & 0xffff) >= (t >> 16 & 0xffff)) return 0;
    } while (!__atomic_compare_exchange_n(&pool.ticket, &t, t + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    pool.fn(pool.arg, (int)(t & 0xffff));
    __atomic_fetch_add(&pool.done, 1, __ATOMIC_SEQ_CST);
    return 1;
}

static void pool_run(void *user, void (*fn)(void *arg, int index), void *arg, int n) {
    (void)user;
    const uint64_t job = __atomic_load_n(&pool.posted, __ATOMIC_SEQ_CST) + 1u;
    pool.fn = fn;
    pool.arg = arg;
    __atomic_store_n(&pool.done, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&pool.ticket, job << 32 | (uint64_t)n << 16, __ATOMIC_SEQ_CST);
    __atomic_store_n(&pool.posted, (uint32_t)job, __ATOMIC_SEQ_CST);
    __builtin_wasm_memory_atomic_notify((int *)&pool.posted, 1u << 30);
    while (pool_part()) continue;
    /* a page's main thread may not wait */
    while (__atomic_load_n(&pool.done, __ATOMIC_SEQ_CST) < (uint32_t)n) continue;
}

EXPORT(pool_worker) void pool_worker(void) {
    for (;;) {
        const uint32_t seen = __atomic_load_n(&pool.posted, __ATOMIC_SEQ_CST);
        while (pool_part()) continue;
        for (int i = 0; i < SPINS && __atomic_load_n(&pool.posted, __ATOMIC_SEQ_CST) == seen; i++) continue;
        __builtin_wasm_memory_atomic_wait32((int *)&pool.posted, (int)seen, -1);
    }
}
#endif

/* ---- model ------------------------------------------------------------------------------------------------------- */

/* A model file in memory that stays where it is; the model's address, or 0. */
EXPORT(model_open) address model_open(address file, address bytes) {
    tfm_model *m = NULL;
    size_t need;
    if (tfm_model_size(at(file), (size_t)bytes, &need, &last)) return 0;
    void *mem = malloc(need);
    if (!mem) return fail(TFM_ERR_MEMORY, "out of memory for the model's tables"), 0;
    if (tfm_model_init(at(file), (size_t)bytes, mem, need, &m, &last)) free(mem);
    return of(m);
}

EXPORT(model_verify) int32_t model_verify(address model) { return tfm_model_verify(at(model), &last); }

/* Numbers of the description, by name there: n_ctx, n_vocab, ... */
enum { ASK_CTX, ASK_VOCAB, ASK_LAYERS, ASK_WIDTH, ASK_BOS, ASK_TEXT, ASK_CHAT };
EXPORT(model_ask) int32_t model_ask(address model, int32_t what) {
    const tfm_config *c = tfm_model_config_of(at(model));
    const tfm_chat *chat = tfm_model_chat(at(model));
    switch (what) {
    case ASK_CTX: return c->n_ctx;
    case ASK_VOCAB: return c->n_vocab;
    case ASK_LAYERS: return c->n_layers;
    case ASK_WIDTH: return c->d_model;
    case ASK_BOS: return c->bos;
    case ASK_TEXT: return tfm_model_tokenizer(at(model)) != NULL;
    case ASK_CHAT: return !chat ? 0 : tfm_chat_known(chat) ? 2 : 1; /* no format, a template only, a format */
    default: return 0;
    }
}

/* Whether id ends a text, or in a conversation an answer. */
EXPORT(model_is_end) int32_t model_is_end(address model, int32_t id, int32_t in_chat) {
    const tfm_config *c = tfm_model_config_of(at(model));
    const tfm_chat *chat = in_chat ? tfm_model_chat(at(model)) : NULL;
    int32_t end;
    for (int i = 0; i < c->n_eos; i++) if (c->eos[i] == id) return 1;
    for (int32_t i = 0; chat && (end = tfm_chat_end(chat, i)) >= 0; i++) if (end == id) return 1;
    return 0;
}

/* ---- session ----------------------------------------------------------------------------------------------------- */

static tfm_session_config setup(int32_t n_ctx, int32_t n_batch, int32_t kv, int32_t act, int32_t isa, int32_t threads) {
    tfm_session_config c;
    memset(&c, 0, sizeof c);
    c.size = sizeof c;
    c.n_ctx = n_ctx;
    c.n_batch = n_batch;
    c.kv = kv;
    c.act = act;
    c.isa = isa;
    c.n_threads = threads;
#ifdef __wasm_atomics__
    if (threads > 1) c.parallel.run = pool_run;
#endif
    return c;
}

/* Bytes that session_open will take; 0 and a message if the options are wrong. */
EXPORT(session_size) address session_size(address model, int32_t n_ctx, int32_t n_batch, int32_t kv, int32_t act,
                                          int32_t isa, int32_t threads) {
    const tfm_session_config c = setup(n_ctx, n_batch, kv, act, isa, threads);
    size_t need;
    return tfm_session_size(at(model), &c, &need, &last) ? 0 : (address)need;
}

EXPORT(session_open) address session_open(address model, int32_t n_ctx, int32_t n_batch, int32_t kv, int32_t act,
                                          int32_t isa, int32_t threads) {
    const tfm_session_config c = setup(n_ctx, n_batch, kv, act, isa, threads);
    tfm_session *s = NULL;
    size_t need;
    if (tfm_session_size(at(model), &c, &need, &last)) return 0;
    void *mem = malloc(need);
    if (!mem) return fail(TFM_ERR_MEMORY, "out of memory for the session; choose a shorter context"), 0;
    if (tfm_session_init(at(model), &c, mem, need, &s, &last)) free(mem);
    return of(s);
}

EXPORT(session_eval) int32_t session_eval(address session, address ids, int32_t n) {
    return tfm_eval(at(session), at(ids), n, &last);
}
EXPORT(session_length) int32_t session_length(address session) { return (int32_t)tfm_session_length(at(session)); }
EXPORT(session_rewind) int32_t session_rewind(address session, int32_t length) {
    return tfm_session_rewind(at(session), length, &last);
}
EXPORT(session_logits) address session_logits(address session) { return of(tfm_logits(at(session), 0)); }

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* The most ids that a text of so many bytes can give. */
EXPORT(encode_max) int32_t encode_max(address model, int32_t bytes) {
    const int64_t n = tfm_encode_max(tfm_model_tokenizer(at(model)), (size_t)bytes);
    return n < 0 || n > INT32_MAX ? -1 : (int32_t)n;
}

/* UTF-8 text -> ids; their number, or a negative code. */
EXPORT(encode) int32_t encode(address model, address text, int32_t bytes, int32_t flags, address ids, int32_t max) {
    const tfm_tokenizer *t = tfm_model_tokenizer(at(model));
    const size_t need = tfm_encode_size(t, (size_t)bytes);
    void *scratch = need ? malloc(need) : NULL;
    int64_t n = 0;
    if (!scratch) return fail(TFM_ERR_MEMORY, "the text is too long");
    const int32_t code = tfm_encode(t, at(text), (size_t)bytes, flags, at(ids), max, &n, scratch, need, &last);
    free(scratch);
    return code ? code : (int32_t)n;
}

EXPORT(token_flags) int32_t token_flags(address model, int32_t id) {
    return tfm_token_flags(tfm_model_tokenizer(at(model)), id);
}
EXPORT(token_find) int32_t token_find(address model, address piece, int32_t bytes) {
    return tfm_token_find(tfm_model_tokenizer(at(model)), at(piece), (size_t)bytes);
}

/* A decoder, and behind it room for what one call can give. */
EXPORT(decoder_open) address decoder_open(address model, int32_t flags) {
    const tfm_tokenizer *t = tfm_model_tokenizer(at(model));
    tfm_decoder *d = malloc(sizeof *d + tfm_decode_max(t));
    if (!d) return fail(TFM_ERR_MEMORY, "out of memory"), 0;
    tfm_decode_init(d, t, flags);
    return of(d);
}
EXPORT(decoder_text) address decoder_text(address decoder) { return of((tfm_decoder *)at(decoder) + 1); }
/* Bytes of text that id completes, to be read at decoder_text; id -1: after the last one. */
EXPORT(decode) int32_t decode(address decoder, int32_t id) {
    tfm_decoder *d = at(decoder);
    const size_t room = tfm_decode_max(d->tokenizer);
    return (int32_t)(id < 0 ? tfm_decode_flush(d, (char *)(d + 1), room) : tfm_decode(d, id, (char *)(d + 1), room));
}

/* ---- chat -------------------------------------------------------------------------------------------------------- */

/* The strftime format of the date that chat_encode needs, zero-terminated; 0: none. */
EXPORT(chat_date_format) address chat_date_format(address model) {
    const tfm_chat *c = tfm_model_chat(at(model));
    return c && tfm_chat_date_format(c) ? of(tfm_chat_date_format(c)) : 0;
}

/* The ids of a rendered conversation in a block of their own, ids[0] their number; NULL and a message. */
static int32_t *chat_ids(const tfm_model *m, const tfm_turn *turns, int32_t n_turns, const char *date) {
    const tfm_tokenizer *t = tfm_model_tokenizer(m);
    const tfm_chat *c = tfm_model_chat(m);
    size_t n, scratch;
    int64_t n_ids = 0;
    if (!t || !c) return fail(TFM_ERR_UNSUPPORTED, "the model's file has no chat format"), NULL;
    const tfm_result r = tfm_chat_render(c, turns, n_turns, TFM_CHAT_PROMPT, date, NULL, NULL, 0, &n, &last);
    if (r && r != TFM_ERR_MEMORY) return NULL;
    const int64_t most = tfm_encode_max(t, n);
    scratch = tfm_encode_size(t, n);
    char *mem = most < 0 || !scratch ? NULL : malloc(scratch + 2 * n);
    int32_t *ids = mem && most < INT32_MAX / 4 ? malloc(4 * ((size_t)most + 1)) : NULL;
    if (!ids) return free(mem), fail(TFM_ERR_MEMORY, "the conversation is too long"), NULL;
    char *text = mem + scratch;
    uint8_t *marks = (uint8_t *)text + n;
    if (tfm_chat_render(c, turns, n_turns, TFM_CHAT_PROMPT, date, text, marks, n, &n, &last) ||
        tfm_encode_marked(t, text, marks, n, ids + 1, most, &n_ids, mem, scratch, &last)) {
        free(ids);
        ids = NULL;
    } else ids[0] = (int32_t)n_ids;
    free(mem);
    return ids;
}

/* A conversation, up to where the model answers: rows[n] are role and bytes of each turn, their texts stand one behind
 * the other. A block of 1 + k numbers to be released: k, then k ids; 0 and a message. */
EXPORT(chat_encode) address chat_encode(address model, address rows, int32_t n, address texts, address date) {
    const int32_t *row = at(rows);
    const char *text = at(texts);
    tfm_turn *turns = n > 0 && (size_t)n < SIZE_MAX / sizeof *turns ? malloc((size_t)n * sizeof *turns) : NULL;
    if (!turns) return fail(TFM_ERR_MEMORY, "out of memory"), 0;
    for (int32_t i = 0; i < n; i++, row += 2) {
        turns[i].role = row[0];
        turns[i].text = text;
        turns[i].n = (size_t)row[1];
        text += row[1];
    }
    const address ids = of(chat_ids(at(model), turns, n, at(date)));
    free(turns);
    return ids;
}

/* ---- sampler ----------------------------------------------------------------------------------------------------- */

/* The seed comes in halves. */
EXPORT(sampler_open) address sampler_open(address model, float temp, int32_t top_k, float top_p, float min_p,
                                          float repeat_penalty, float presence_penalty, float frequency_penalty,
                                          int32_t repeat_last_n, uint32_t seed_low, uint32_t seed_high) {
    const int32_t n_vocab = tfm_model_config_of(at(model))->n_vocab;
    tfm_sampler_config c;
    tfm_sampler *s = NULL;
    size_t need;
    memset(&c, 0, sizeof c);
    c.size = sizeof c;
    c.temp = temp;
    c.top_k = top_k;
    c.top_p = top_p;
    c.min_p = min_p;
    c.repeat_penalty = repeat_penalty;
    c.presence_penalty = presence_penalty;
    c.frequency_penalty = frequency_penalty;
    c.repeat_last_n = repeat_last_n;
    c.seed = (uint64_t)seed_high << 32 | seed_low;
    if (tfm_sampler_size(n_vocab, &need)) return fail(TFM_ERR_ARG, "no sampler for this vocabulary"), 0;
    void *mem = malloc(need);
    if (!mem) return fail(TFM_ERR_MEMORY, "out of memory for the sampler"), 0;
    if (tfm_sampler_init(&c, n_vocab, mem, need, &s, &last)) free(mem);
    return of(s);
}

/* The next id, after the session's last eval and n ids so far; or a negative code. */
EXPORT(sample) int32_t sample(address sampler, address session, address history, int32_t n) {
    int32_t id = -1;
    const int32_t code = tfm_sample(at(sampler), tfm_logits(at(session), 0), at(history), n, &id, &last);
    return code ? code : id;
}
