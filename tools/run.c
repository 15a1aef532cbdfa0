/* run.c - see run.h. */
#include "run.h"
#include "isa.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

const char *const run_kv_names[] = { "f32", "f16", "bf16", "q8_0", NULL };
const char *const run_act_names[] = { "f32", "q8", NULL };

/* ---- OPTIONS --------------------------------------------------------------------------------------------------- */

/* "scalar, avx2": the instruction sets that can run here. */
static void list_isas(char *text, size_t size)
{
    int i;
    int32_t isa;
    text[0] = 0;
    for (i = 0; (isa = tfm_isa_list(i)) != 0; i++) {
        size_t used = strlen(text);
        if (isa_works(isa)) snprintf(text + used, size - used, "%s%s", used ? ", " : "", tfm_isa_name(isa));
    }
}

static int choose_isa(const cli *c, const char *name, int32_t *chosen)
{
    char available[128];
    int i;
    int32_t isa;
    if (!name) {
        *chosen = isa_best();
        return CLI_GO_ON;
    }
    for (i = 0; (isa = tfm_isa_list(i)) != 0; i++) {
        if (strcmp(name, tfm_isa_name(isa)) != 0 || !isa_works(isa)) continue;
        *chosen = isa;
        return CLI_GO_ON;
    }
    list_isas(available, sizeof available);
    return cli_wrong(c, "--isa %s: not available here, choose from: %s", name, available);
}

/* ---- RUNNING --------------------------------------------------------------------------------------------------- */

int run_error(const run *r, const tfm_error *err)
{
    if (strstr(err->msg, r->path)) return tool_error("%s", err->msg);
    return tool_error("%s: %s", r->path, err->msg);
}

int run_open_any(run *r, const cli *c, const run_options *o, const char *path)
{
    tfm_error err;
    int32_t isa = TFM_ISA_AUTO, status;
    memset(r, 0, sizeof *r);
    r->path = path;
    status = choose_isa(c, o->isa, &isa);
    if (status != CLI_GO_ON) return status;
    r->open_seconds = -time_now();
    if (tfm_model_open(path, NULL, &r->model, &err)) return run_error(r, &err);
    r->open_seconds += time_now();
    r->config = tfm_model_config_of(r->model);
    r->tokenizer = tfm_model_tokenizer(r->model);
    r->setup.size = sizeof r->setup;
    r->setup.n_ctx = o->ctx ? (int32_t)o->ctx : r->config->n_ctx < 4096 ? r->config->n_ctx : 4096;
    r->setup.n_batch = (int32_t)o->batch;
    r->setup.kv = o->kv + 1;
    r->setup.act = o->act + 1;
    r->setup.isa = isa;
    r->setup.n_threads = o->threads ? (int32_t)o->threads : cpu_count();
    if (r->config->n_layers && o->ctx > r->config->n_ctx)
        tool_warn("%s: made for %d positions, -c asks for %lld", path, (int)r->config->n_ctx, (long long)o->ctx);
    return CLI_GO_ON;
}

int run_open(run *r, const cli *c, const run_options *o, const char *path)
{
    const int status = run_open_any(r, c, o, path);
    if (status != CLI_GO_ON) return status;
    if (r->config->n_layers == 0) return tool_error("%s: holds a tokenizer only, there is no model to run", path);
    return CLI_GO_ON;
}

int run_start(run *r)
{
    tfm_error err;
    tfm_session_free(r->session);
    r->session = NULL;
    if (!r->threads && r->setup.n_threads > 1) {
        r->threads = pool_new(r->setup.n_threads);
        if (!r->threads) return tool_error("cannot start %d threads", (int)r->setup.n_threads);
    }
    if (r->setup.n_batch == 0) r->setup.n_batch = 512;
    if (r->setup.n_batch > r->setup.n_ctx) r->setup.n_batch = r->setup.n_ctx;
    r->setup.parallel.user = r->threads;
    r->setup.parallel.run = pool_run;
    r->session_seconds = -time_now();
    if (tfm_session_new(r->model, &r->setup, &r->session, &err)) return run_error(r, &err);
    r->session_seconds += time_now();
    return CLI_GO_ON;
}

int run_reset(run *r)
{
    return tfm_session_rewind(r->session, 0, NULL) ? run_start(r) : CLI_GO_ON; /* window layers may not reach back */
}

int run_open_output(const run *r, sink *out, const char *path, tfm_error *err)
{
    if (path_same_file(r->path, path)) return tool_fail(err, TFM_ERR_ARG, "%s: the output is the model itself", path);
    return sink_open_file(out, path, err);
}

/* A damaged tokenizer may know more tokens than the model has; who looks at logits[id] must not meet them. */
static tfm_result check_ids(const run *r, const int32_t *ids, int64_t n, tfm_error *err)
{
    const int32_t n_vocab = r->config->n_vocab; /* 0: the file holds a tokenizer only */
    int64_t i;
    for (i = 0; n_vocab && i < n; i++)
        if (ids[i] >= n_vocab)
            return tool_fail(err, TFM_ERR_FORMAT, "the tokenizer gives id %d, the model has %d tokens", (int)ids[i],
                             (int)n_vocab);
    return TFM_OK;
}

/* marks NULL: flags count. */
static int32_t *encode(const run *r, const char *text, const unsigned char *marks, size_t size, int32_t flags,
                       int64_t *n,
                       tfm_error *err)
{
    const int64_t most = tfm_encode_max(r->tokenizer, size);
    const size_t scratch_bytes = tfm_encode_size(r->tokenizer, size);
    void *scratch = NULL;
    int32_t *ids = NULL;
    tfm_result result = TFM_ERR_MEMORY;
    tool_fail(err, TFM_ERR_MEMORY, "no memory to tokenize %llu bytes", (unsigned long long)size);
    if ((uint64_t)most < SIZE_MAX / sizeof *ids && scratch_bytes < SIZE_MAX) {
        ids = (int32_t *)malloc(((size_t)most + 1) * sizeof *ids);
        scratch = malloc(scratch_bytes + 1);
    }
    if (ids && scratch && marks)
        result = tfm_encode_marked(r->tokenizer, text, marks, size, ids, most, n, scratch, scratch_bytes, err);
    else if (ids && scratch)
        result = tfm_encode(r->tokenizer, text, size, flags, ids, most, n, scratch, scratch_bytes, err);
    free(scratch);
    if (!result) result = check_ids(r, ids, *n, err);
    if (!result) return ids;
    free(ids);
    return NULL;
}

int32_t *run_encode(const run *r, const char *text, size_t size, int32_t flags, int64_t *n, tfm_error *err)
{
    return encode(r, text, NULL, size, flags, n, err);
}

int32_t *run_encode_marked(const run *r, const char *text, const unsigned char *marks, size_t size, int64_t *n,
                           tfm_error *err)
{
    return encode(r, text, marks, size, 0, n, err);
}

void run_close(run *r)
{
    tfm_session_free(r->session);
    tfm_model_close(r->model);
    pool_free(r->threads);
    memset(r, 0, sizeof *r);
}

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    interrupted = 1;
    signal(number, SIG_DFL);
}

void run_catch_interrupt(void)
{
    interrupted = 0;
    if (signal(SIGINT, on_interrupt) == SIG_IGN) signal(SIGINT, SIG_IGN); /* it was ignored: that stays so */
}

void run_leave_interrupt(void)
{
    if (signal(SIGINT, SIG_DFL) == SIG_IGN) signal(SIGINT, SIG_IGN);
}

int run_interrupted(void)
{
    return interrupted;
}

/* ---- FIGURES --------------------------------------------------------------------------------------------------- */

uint64_t weight_source_bytes(const tfm_weight *w)
{
    const tfm_type_info *type = tfm_type_get(w->t.type);
    return (uint64_t)w->t.rows * (uint64_t)(w->t.cols / type->block) * (uint64_t)type->block_bytes;
}

uint64_t model_source_bytes(const tfm_model *m)
{
    tfm_weight w;
    uint64_t sum = 0;
    int64_t i;
    for (i = 0; tfm_model_weight(m, i, &w); i++) sum += weight_source_bytes(&w);
    return sum;
}

uint64_t model_parameters(const tfm_model *m)
{
    tfm_weight w;
    uint64_t sum = 0;
    int64_t i;
    for (i = 0; tfm_model_weight(m, i, &w); i++) sum += (uint64_t)w.t.rows * (uint64_t)w.t.cols;
    return sum;
}

/* Sums a figure over the weights that one token meets: all, of experts those that are used. looked_up: a row of it. */
static uint64_t sum_per_token(const tfm_model *m, uint64_t (*figure)(const tfm_weight *w, int looked_up))
{
    const int tied = tfm_model_config_of(m)->tied;
    tfm_weight w;
    uint64_t sum = 0;
    int64_t i;
    uint64_t experts = 0; /* of the run of one role's experts that i stands in */
    for (i = 0; tfm_model_weight(m, i, &w); i++) {
        const int looked_up = w.role == TFM_ROLE_POS_EMBED || (w.role == TFM_ROLE_EMBED && !tied);
        const tfm_block *b;
        if (w.expert < 0) {
            sum += figure(&w, looked_up);
            continue;
        }
        b = tfm_model_block(m, w.layer);
        experts = (w.expert ? experts : 0) + figure(&w, looked_up);
        if (w.expert == b->n_experts - 1) sum += experts * (uint64_t)b->n_experts_used / (uint64_t)b->n_experts;
    }
    return sum;
}

static uint64_t bytes_read(const tfm_weight *w, int looked_up)
{
    return weight_source_bytes(w) / (uint64_t)(looked_up ? w->t.rows : 1);
}

uint64_t model_bytes_per_token(const tfm_model *m)
{
    return sum_per_token(m, bytes_read);
}

/* A multiplication and an addition for each element of a matrix. */
static uint64_t matrix_flops(const tfm_weight *w, int looked_up)
{
    return looked_up || w->t.rows == 1 ? 0 : 2 * (uint64_t)w->t.rows * (uint64_t)w->t.cols;
}

uint64_t model_flops_per_token(const tfm_model *m, int64_t position)
{
    const tfm_config *c = tfm_model_config_of(m);
    uint64_t sum = sum_per_token(m, matrix_flops);
    int32_t i;
    for (i = 0; i < c->n_layers; i++) {
        const tfm_block *b = tfm_model_block(m, i);
        const int64_t keys = b->window && b->window < position + 1 ? b->window : position + 1;
        sum += 4 * (uint64_t)b->n_heads * (uint64_t)b->head_dim * (uint64_t)keys; /* scores, sum of values */
    }
    return sum;
}

void floats_to_bytes(void *out, const float *x, size_t n)
{
    unsigned char *p = (unsigned char *)out;
    size_t i;
    for (i = 0; i < n; i++, p += 4) {
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        p[0] = (unsigned char)bits;
        p[1] = (unsigned char)(bits >> 8);
        p[2] = (unsigned char)(bits >> 16);
        p[3] = (unsigned char)(bits >> 24);
    }
}
