/* run.h - what the programs that run a model share: their common options, opening a model, a session with a pool of
 * threads behind it, and a few figures about the model.
 *
 *     static run_options options = RUN_FAST;
 *     static const cli_option rows[] = { RUN_OPTION_ROWS(options), CLI_END };
 *     ...
 *     run r;
 *     status = run_open(&r, &command_line, &options, path);
 *     if (status == CLI_GO_ON) status = run_start(&r, &settings);
 *     ...
 *     run_close(&r);
 */
#ifndef TOOLS_RUN_H
#define TOOLS_RUN_H

#include "base.h"
#include "pool.h"

/* ---- OPTIONS --------------------------------------------------------------------------------------------------- */

typedef struct run_options {
    int64_t threads, ctx, batch; /* 0 = the default of run_open */
    const char *isa;             /* NULL = the best */
    int kv, act;                 /* index into the names below */
    int kv_given, act_given;
} run_options;

extern const char *const run_kv_names[];  /* "f32", "f16", ...: index = TFM_KV_ - 1 */
extern const char *const run_act_names[]; /* "f32", "q8": index = TFM_ACT_MODE_ - 1 */

#define RUN_FAST { 0, 0, 0, NULL, TFM_KV_F16 - 1, TFM_ACT_MODE_Q8 - 1, 0, 0 }
#define RUN_EXACT { 0, 0, 0, NULL, TFM_KV_F32 - 1, TFM_ACT_MODE_F32 - 1, 0, 0 }

/* Rows for a program's table; ctx_default is a string for the help. */
#define RUN_OPTION_ROWS(o, ctx_default)                                                                             \
    CLI_GROUP("Running the model"),                                                                                 \
    CLI_INT('t', "threads", "THREADS", &(o).threads, 1, 1024, "all processors", "threads to use", NULL),            \
    CLI_INT('c', "ctx", "CTX", &(o).ctx, 1, INT32_MAX, ctx_default, "context: positions there is room for", NULL),  \
    CLI_INT(0, "batch", "N", &(o).batch, 1, INT32_MAX, "512, or the context", "tokens evaluated together", NULL),   \
    CLI_STRING(0, "isa", "NAME", &(o).isa, "the best there is", "instruction set: scalar, avx2, avx512 ...", NULL), \
    CLI_CHOICE(0, "kv", "TYPE", &(o).kv, run_kv_names, NULL, "type of the key-value cache", &(o).kv_given),         \
    CLI_CHOICE(0, "act", "TYPE", &(o).act, run_act_names, NULL,                                                     \
               "activations that meet quantised weights; f32 is exact", &(o).act_given)

/* ---- RUNNING --------------------------------------------------------------------------------------------------- */

typedef struct run {
    const char *path;
    tfm_model *model;
    const tfm_config *config;
    const tfm_tokenizer *tokenizer; /* NULL if the file has none */
    tfm_session_config setup;       /* from the options; a program changes want, n_ctx ... before run_start */
    tfm_session *session;           /* of the last run_start */
    pool *threads;
    double open_seconds, session_seconds; /* of tfm_model_open and the last tfm_session_new */
} run;

/* Opens the model and fills setup: n_ctx is -c, or the smaller of the model's context and 4096. CLI_GO_ON, or the exit
 * status after one line on stderr. The run must be closed in both cases. */
int run_open(run *r, const cli *c, const run_options *o, const char *path);
int run_open_any(run *r, const cli *c, const run_options *o, const char *path); /* a file without a model will do */

/* Makes (or makes anew) the session that setup describes, with its threads. */
int run_start(run *r);
int run_reset(run *r); /* empties the session */
void run_close(run *r);

/* sink_open_file for a result: refuses to replace the model. */
int run_open_output(const run *r, sink *out, const char *path, tfm_error *err);

/* "MODEL: message" on stderr; returns 1. */
int run_error(const run *r, const tfm_error *err);

/* Text as ids from malloc, *n of them; flags are TFM_ENCODE_. NULL and err if that fails. */
int32_t *run_encode(const run *r, const char *text, size_t size, int32_t flags, int64_t *n, tfm_error *err);
/* The same for a text of which some bytes are marked as a chat format's: only there special tokens count. */
int32_t *run_encode_marked(const run *r, const char *text, const unsigned char *marks, size_t size, int64_t *n,
                           tfm_error *err);

/* From here on Ctrl-C sets a flag (which is cleared now) instead of ending the program; a second one ends it. */
void run_catch_interrupt(void);
void run_leave_interrupt(void); /* Ctrl-C ends the program again */
int run_interrupted(void);

/* ---- FIGURES --------------------------------------------------------------------------------------------------- */

uint64_t weight_source_bytes(const tfm_weight *w); /* bytes in the form of the source (GGUF blocks, or floats) */
uint64_t model_source_bytes(const tfm_model *m);
uint64_t model_parameters(const tfm_model *m);

/* Source bytes of the weights that one decoded token reads: all but tables of which it reads a row. A tied embedding
 * counts, as the output matrix. */
uint64_t model_bytes_per_token(const tfm_model *m);
/* Floating-point operations of one decoded token: of its matrices, and of attention to the positions before it. Norms,
 * activations and the like do not count. */
uint64_t model_flops_per_token(const tfm_model *m, int64_t position);

/* n floats as little-endian bytes, whatever the host. */
void floats_to_bytes(void *out, const float *x, size_t n);

#endif
