/* tfm-eval - what the numbers are: logits, hidden states and every intermediate of given ids, the greedy continuation,
 * and the perplexity of a text.
 *
 * It serves to compare the library with other implementations, so its default is the exact path (float32 activations
 * and cache); --fast takes the path that generate runs by default.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "imatrix.h"
#include "run.h"

#define LOGITS_MOST ((int64_t)64 << 20) /* bytes of logits kept at a time, unless --chunk says otherwise */
#define IDS_TEXT_MOST ((uint64_t)1 << 28)
#define PPL_TEXT_MOST ((uint64_t)1 << 30)

static run_options options = RUN_EXACT;
static const char *ids_text, *logits_path, *hidden_path, *trace_path, *ppl_path, *imatrix_path;
static int64_t n_greedy, rope_len, n_chunks;
static int fast;

static const cli_option option_rows[] = {
    CLI_GROUP("Evaluating ids, which are taken as they are"),
    CLI_STRING(0, "ids", "LIST", &ids_text, NULL, "separated by commas or blanks; - reads them from stdin", NULL),
    CLI_STRING(0, "logits", "OUT", &logits_path, NULL, "write float32 [n_ids][n_vocab], little-endian", NULL),
    CLI_STRING(0, "hidden", "OUT", &hidden_path, NULL, "write float32 [n_ids][d_model], after the final norm", NULL),
    CLI_STRING(0, "trace", "DIR", &trace_path, NULL, "write each intermediate as DIR/L07.attn_out.npy ...,\n"
               "and index.txt, their names in order of computation", NULL),
    CLI_INT(0, "greedy", "N", &n_greedy, 1, INT32_MAX, "", "print the N most likely ids that follow", NULL),
    CLI_INT(0, "rope-len", "L", &rope_len, 1, INT32_MAX, "number of ids, plus N",
            "sequence length for RoPE that depends on it", NULL),
    CLI_GROUP("Perplexity"),
    CLI_STRING(0, "ppl", "FILE", &ppl_path, NULL,
               "of a text, in chunks of -c positions (default 512); also nll, log Z", NULL),
    CLI_INT(0, "chunks", "K", &n_chunks, 1, INT32_MAX, "all", "stop after K chunks", NULL),
    CLI_STRING(0, "imatrix", "OUT", &imatrix_path, NULL, "also write the importance matrix of the text,\n"
               "for tfm-quantize and tfm-convert (a GGUF as llama-imatrix writes it)", NULL),
    RUN_OPTION_ROWS(options, "as many as needed"),
    CLI_INT(0, "chunk", "N", &options.batch, 1, INT32_MAX, "", "the same as --batch N", NULL),
    CLI_FLAG(0, "fast", &fast, "run as generate does: --kv f16 --act q8"),
    CLI_END
};
static const char *const arg_names[] = { "MODEL" };
static const cli command_line = {
    "tfm-eval", "MODEL --ids LIST|- [--logits OUT] [--greedy N] [--hidden OUT] [--trace DIR]\n"
    "       tfm-eval MODEL --ppl FILE [--ctx 512] [--chunks K] [--imatrix OUT]",
    "Shows the numbers behind the text. The default is the exact path.", option_rows, 1, 1, arg_names
};

/* ---- IDS ------------------------------------------------------------------------------------------------------- */

typedef struct id_list { int32_t *ids; int64_t n; } id_list;

static int is_separator(char c)
{
    return c == ' ' || c == ',' || c == '\t' || c == '\n' || c == '\r';
}

/* Reads "1, 2 3"; out->ids comes from malloc. */
static int parse_ids(const char *text, size_t length, id_list *out)
{
    size_t i = 0, end;
    out->n = 0;
    out->ids = (int32_t *)malloc((length / 2 + 1) * sizeof *out->ids);
    if (!out->ids) return tool_error("--ids: no memory for the list");
    for (;;) {
        int64_t id;
        while (i < length && is_separator(text[i])) i++;
        if (i == length) break;
        for (end = i; end < length && !is_separator(text[end]);) end++;
        if (parse_int64(text + i, end - i, &id) || id < 0 || id > INT32_MAX)
            return cli_wrong(&command_line, "--ids: '%.*s' is no id", end - i < 40 ? (int)(end - i) : 40, text + i);
        out->ids[out->n++] = (int32_t)id;
        i = end;
    }
    return out->n ? CLI_GO_ON : cli_wrong(&command_line, "--ids: the list is empty");
}

static int read_ids(id_list *out)
{
    tfm_error err;
    char *text;
    size_t n;
    int status;
    out->ids = NULL;
    if (strcmp(ids_text, "-") != 0) return parse_ids(ids_text, strlen(ids_text), out);
    if (read_whole("-", IDS_TEXT_MOST, &text, &n, &err)) return tool_error("--ids: %s", err.msg);
    status = parse_ids(text, n, out);
    free(text);
    return status;
}

static int check_ids(const run *r, const id_list *list)
{
    int64_t i;
    for (i = 0; i < list->n; i++)
        if (list->ids[i] >= r->config->n_vocab)
            return tool_error("--ids: id %d is too large, %s has %d", (int)list->ids[i], r->path,
                              (int)r->config->n_vocab);
    if (list->n > r->setup.n_ctx)
        return tool_error("--ids: %lld ids do not fit the context of %d", (long long)list->n, (int)r->setup.n_ctx);
    return CLI_GO_ON;
}

/* ---- ROWS OF NUMBERS INTO A FILE ------------------------------------------------------------------------------- */

typedef struct row_file {
    const char *path; /* NULL: nothing is written */
    sink out;
    uint64_t at;
    const float *(*row)(const tfm_session *s, int64_t i); /* tfm_logits or tfm_hidden */
    int32_t width;
    unsigned char *bytes; /* one row, little-endian */
} row_file;

static int rows_open(const run *r, row_file *f, tfm_error *err)
{
    if (!f->path) return 0;
    f->bytes = (unsigned char *)malloc((size_t)f->width * 4);
    if (!f->bytes) return tool_fail(err, TFM_ERR_MEMORY, "%s: no memory for a row", f->path);
    return run_open_output(r, &f->out, f->path, err);
}

/* The rows of the n tokens of the last eval. */
static int rows_write(row_file *f, const tfm_session *s, int64_t n, tfm_error *err)
{
    const size_t size = (size_t)f->width * 4;
    int64_t i;
    if (!f->path) return 0;
    for (i = 0; i < n; i++, f->at += size) {
        floats_to_bytes(f->bytes, f->row(s, i), (size_t)f->width);
        if (sink_write(&f->out, f->at, f->bytes, size, err)) return err->code;
    }
    return 0;
}

/* The file takes its name; without this, rows_close removes it. */
static int rows_commit(row_file *f, tfm_error *err)
{
    return f->path ? sink_commit(&f->out, err) : 0;
}

static void rows_close(row_file *f)
{
    if (f->path) sink_discard(&f->out);
    free(f->bytes);
}

/* ---- TRACE ----------------------------------------------------------------------------------------------------- */

enum { NPY_HEADER = 128 };

typedef struct trace_entry {
    char name[80];
    sink out; /* at rest between appends: there are hundreds */
    int64_t rows, cols;
} trace_entry;
typedef struct trace {
    const run *run;
    const char *dir; /* NULL: nothing is traced */
    trace_entry *entries; /* in order of first appearance */
    size_t n, capacity, next; /* next: where the following name most likely is */
    sink index;
    int finished;
    tfm_error err; /* the first failure; the callback cannot return it */
} trace;

/* DIR/name as an output that appears in trace_commit. */
static int trace_file(trace *t, sink *out, const char *name)
{
    arena a = { NULL, 0, 0, 0 };
    const char *path = arena_printf(&a, "%s/%s", t->dir, name);
    if (path) run_open_output(t->run, out, path, &t->err);
    else tool_fail(&t->err, TFM_ERR_MEMORY, "%s/%s: no memory", t->dir, name);
    arena_free(&a);
    return t->err.code;
}

static int trace_open(trace *t, tfm_error *err)
{
    if (!t->dir) return 0;
    if (make_directory(t->dir, err)) return err->code;
    if (trace_file(t, &t->index, "index.txt")) *err = t->err;
    return t->err.code;
}

/* NULL with t->err filled. */
static trace_entry *trace_find(trace *t, const char *name)
{
    trace_entry *grown;
    size_t k;
    for (k = 0; k < t->n; k++) { /* layers come in the same order in every chunk */
        trace_entry *e = &t->entries[(t->next + k) % t->n];
        if (strcmp(e->name, name) != 0) continue;
        t->next = (t->next + k + 1) % t->n;
        return e;
    }
    grown = (trace_entry *)array_grow(t->entries, &t->capacity, t->n + 1, sizeof *t->entries);
    if (!grown) {
        tool_fail(&t->err, TFM_ERR_MEMORY, "%s: no memory for the trace", t->dir);
        return NULL;
    }
    t->entries = grown;
    grown += t->n;
    memset(grown, 0, sizeof *grown);
    snprintf(grown->name, sizeof grown->name, "%s", name);
    if (trace_file(t, &grown->out, name)) return NULL;
    t->n++;
    return grown;
}

/* The header of a .npy file, version 1.0: always NPY_HEADER bytes, so that it can be written when all rows are. */
static void npy_header(char out[NPY_HEADER], int64_t rows, int64_t cols)
{
    int n;
    memset(out, ' ', NPY_HEADER);
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = NPY_HEADER - 10;
    out[9] = 0;
    n = snprintf(out + 10, NPY_HEADER - 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld, %lld), }",
                 (long long)rows, (long long)cols);
    out[10 + n] = ' ';
    out[NPY_HEADER - 1] = '\n';
}

static void trace_append(trace *t, trace_entry *e, const float *data, int64_t rows, int64_t cols)
{
    unsigned char bytes[4096];
    const size_t total = (size_t)rows * (size_t)cols, most = sizeof bytes / 4;
    uint64_t at = NPY_HEADER + (uint64_t)e->rows * (uint64_t)cols * 4;
    size_t done, n;
    for (done = 0; done < total; done += n, at += n * 4) {
        n = total - done < most ? total - done : most;
        floats_to_bytes(bytes, data + done, n);
        if (sink_write(&e->out, at, bytes, n * 4, &t->err)) return;
    }
    sink_rest(&e->out);
    e->rows += rows;
    e->cols = cols;
}

static void on_trace(void *user, const char *name, int32_t layer, const float *data, int64_t rows, int64_t cols)
{
    trace *t = (trace *)user;
    trace_entry *e;
    char file[80];
    if (t->err.code || t->finished) return;
    if (layer < 0) snprintf(file, sizeof file, "%.60s.npy", name);
    else snprintf(file, sizeof file, "L%02d.%.60s.npy", (int)layer, name);
    e = trace_find(t, file);
    if (!e) return;
    if (e->rows && e->cols != cols) tool_fail(&t->err, TFM_ERR_FORMAT, "%s/%s: its width changes", t->dir, file);
    else trace_append(t, e, data, rows, cols);
}

/* Writes the final shapes and the index; what is evaluated later is not traced. */
static int trace_finish(trace *t, tfm_error *err)
{
    char header[NPY_HEADER];
    uint64_t at = 0;
    size_t i;
    for (i = 0; i < t->n; i++) {
        trace_entry *e = &t->entries[i];
        const size_t n = strlen(e->name);
        npy_header(header, e->rows, e->cols);
        if (sink_write(&e->out, 0, header, NPY_HEADER, err) || sink_write(&t->index, at, e->name, n, err) ||
            sink_write(&t->index, at + n, "\n", 1, err))
            return err->code;
        sink_rest(&e->out);
        at += n + 1;
    }
    t->finished = 1;
    return 0;
}

/* The files take their names, the index last; without this, trace_close removes them, and a directory made for them. */
static int trace_commit(trace *t, tfm_error *err)
{
    size_t i;
    for (i = 0; i < t->n; i++)
        if (sink_commit(&t->entries[i].out, err)) return err->code;
    return t->dir ? sink_commit(&t->index, err) : 0;
}

static void trace_close(trace *t)
{
    size_t i;
    for (i = 0; i < t->n; i++) sink_discard(&t->entries[i].out);
    sink_discard(&t->index);
    discard_directory();
    free(t->entries);
}

/* ---- EVALUATING IDS -------------------------------------------------------------------------------------------- */

/* What a run writes about each of its ids. */
typedef struct outputs { row_file logits, hidden; trace trace; } outputs;

/* Evaluates all ids, n_batch at a time; *last is the index of the last one within its eval. */
static int evaluate(run *r, const id_list *list, outputs *o, int64_t *last, tfm_error *err)
{
    progress p;
    int64_t at, n = 0;
    int bad = 0;
    progress_begin(&p, "evaluating", 0);
    for (at = 0; at < list->n && !bad; at += n) {
        progress_update(&p, (uint64_t)at, (uint64_t)list->n);
        n = list->n - at < r->setup.n_batch ? list->n - at : r->setup.n_batch;
        bad = tfm_eval(r->session, list->ids + at, n, err);
        if (!bad) bad = rows_write(&o->logits, r->session, n, err);
        if (!bad) bad = rows_write(&o->hidden, r->session, n, err);
        if (!bad && o->trace.err.code) {
            *err = o->trace.err;
            bad = err->code;
        }
    }
    progress_end(&p);
    *last = n - 1;
    return bad;
}

/* Prints the continuation. The last id need not be evaluated. */
static int print_greedy(run *r, int64_t last)
{
    tfm_error err;
    const float *logits = tfm_logits(r->session, last);
    int64_t i;
    for (i = 0; i < n_greedy; i++) {
        const int32_t id = tfm_argmax(logits, r->config->n_vocab);
        printf("%s%d", i ? "," : "", (int)id);
        if (i + 1 == n_greedy) break;
        if (tfm_session_length(r->session) == r->setup.n_ctx) {
            tool_warn("the context of %d is full after %lld of %lld ids", (int)r->setup.n_ctx, (long long)i + 1,
                      (long long)n_greedy);
            break;
        }
        if (tfm_eval(r->session, &id, 1, &err)) {
            printf("\n");
            return run_error(r, &err);
        }
        logits = tfm_logits(r->session, 0);
    }
    printf("\n");
    return CLI_GO_ON;
}

/* Default batch: 512, or as many tokens as LOGITS_MOST holds rows for. */
static void set_batch(run *r)
{
    const int64_t rows = LOGITS_MOST / 4 / r->config->n_vocab;
    int64_t n = r->setup.want == TFM_WANT_ALL && rows < 512 ? rows : 512;
    if (options.batch) n = options.batch;
    if (n > r->setup.n_ctx) n = r->setup.n_ctx;
    r->setup.n_batch = n < 1 ? 1 : (int32_t)n;
}

/* Evaluates into the files of o; none appears before all are written. */
static int write_outputs(run *r, const id_list *list, outputs *o, int64_t *last)
{
    tfm_error err;
    int bad = rows_open(r, &o->logits, &err);
    if (!bad) bad = rows_open(r, &o->hidden, &err);
    if (!bad) bad = trace_open(&o->trace, &err);
    if (!bad) bad = evaluate(r, list, o, last, &err);
    if (!bad) bad = trace_finish(&o->trace, &err);
    if (!bad) bad = rows_commit(&o->logits, &err);
    if (!bad) bad = rows_commit(&o->hidden, &err);
    if (!bad) bad = trace_commit(&o->trace, &err);
    rows_close(&o->logits);
    rows_close(&o->hidden);
    trace_close(&o->trace);
    return bad ? tool_error("%s", err.msg) : CLI_GO_ON;
}

static void plan(run *r, const id_list *list, outputs *o)
{
    memset(o, 0, sizeof *o);
    o->logits.path = logits_path;
    o->logits.row = tfm_logits;
    o->logits.width = r->config->n_vocab;
    o->hidden.path = hidden_path;
    o->hidden.row = tfm_hidden;
    o->hidden.width = r->config->d_model;
    o->trace.run = r;
    o->trace.dir = trace_path;
    r->setup.trace_user = &o->trace;
    if (trace_path) r->setup.trace = on_trace;
    r->setup.rope_len = rope_len ? rope_len : list->n + n_greedy;
    r->setup.want = TFM_WANT_LAST;
    if (hidden_path) r->setup.want = TFM_WANT_HIDDEN;
    if (logits_path || trace_path || (hidden_path && n_greedy)) r->setup.want = TFM_WANT_ALL;
    set_batch(r);
}

/* Dynamic RoPE is made for sequences longer than the trained context. */
static int64_t longest_context(const run *r)
{
    int32_t i;
    for (i = 0; i < r->config->n_blocks; i++)
        if (r->config->blocks[i].rope_scaling == TFM_ROPE_DYNAMIC) return INT32_MAX;
    return r->config->n_ctx;
}

static int eval_ids(run *r)
{
    id_list list;
    outputs o;
    int64_t last = 0;
    int status = read_ids(&list);
    if (status == CLI_GO_ON && !options.ctx) {
        const int64_t need = list.n + n_greedy, most = longest_context(r);
        r->setup.n_ctx = need < most ? (int32_t)need : (int32_t)most;
    }
    if (status == CLI_GO_ON) status = check_ids(r, &list);
    if (status == CLI_GO_ON) {
        plan(r, &list, &o);
        status = run_start(r);
    }
    if (status == CLI_GO_ON) status = write_outputs(r, &list, &o, &last);
    if (status == CLI_GO_ON && n_greedy) status = print_greedy(r, last);
    free(list.ids);
    return status;
}

/* ---- PERPLEXITY ------------------------------------------------------------------------------------------------ */

/* log Z, the logarithm of the sum of exp(logit), in double precision: what z-loss (arXiv:2204.02311, section 5) keeps
 * near 0 in training. log p(id) = logits[id] - log Z. */
static double log_normaliser(const float *logits, int32_t n)
{
    const double max = (double)logits[tfm_argmax(logits, n)];
    double sum = 0;
    int32_t i;
    for (i = 0; i < n; i++) sum += exp((double)logits[i] - max);
    return log(sum) + max;
}

typedef struct score { double nll, log_z, max_log_z; int64_t tokens; } score; /* sums, but for the maximum */

static void score_token(score *s, const float *logits, int32_t n, int32_t id)
{
    const double log_z = log_normaliser(logits, n);
    s->nll += log_z - (double)logits[id];
    s->log_z += log_z;
    if (s->tokens++ == 0 || log_z > s->max_log_z) s->max_log_z = log_z;
}

/* Evaluates one chunk; the logits of positions ctx/2 .. ctx-2 are scored against the ids that follow them. */
static int score_chunk(run *r, const int32_t *ids, score *s)
{
    const int64_t ctx = r->setup.n_ctx;
    tfm_error err;
    int64_t at, i, n;
    if (run_reset(r) != CLI_GO_ON) return 1;
    for (at = 0; at < ctx - 1; at += n) {
        n = ctx - 1 - at < r->setup.n_batch ? ctx - 1 - at : r->setup.n_batch;
        if (tfm_eval(r->session, ids + at, n, &err)) return run_error(r, &err);
        for (i = 0; i < n; i++) {
            if (at + i < ctx / 2) continue;
            score_token(s, tfm_logits(r->session, i), r->config->n_vocab, ids[at + i + 1]);
        }
    }
    return CLI_GO_ON;
}

/* Scores the text; *n_scored are the chunks. */
static int score_text(run *r, id_list *list, int64_t *n_scored)
{
    const int64_t ctx = r->setup.n_ctx, all = list->n / ctx;
    const int64_t chunks = n_chunks && n_chunks < all ? n_chunks : all;
    const int32_t bos = tfm_token_prefix(r->tokenizer, 0);
    score s = { 0, 0, 0, 0 };
    progress p;
    int64_t c;
    int status = CLI_GO_ON;
    *n_scored = chunks;
    progress_begin(&p, "perplexity", 0);
    for (c = 0; c < chunks && status == CLI_GO_ON; c++) {
        progress_update(&p, (uint64_t)c, (uint64_t)chunks);
        if (bos >= 0) list->ids[c * ctx] = bos;
        status = score_chunk(r, list->ids + c * ctx, &s);
    }
    progress_end(&p);
    if (status != CLI_GO_ON) return status;
    s.nll /= (double)s.tokens;
    printf("ppl %.4f\nnll %.6f\n", exp(s.nll), s.nll);
    printf("log_z_mean %.6f\nlog_z_max %.6f\n", s.log_z / (double)s.tokens, s.max_log_z);
    printf("chunks %lld\ntokens %lld\n", (long long)chunks, (long long)s.tokens);
    printf("ids %lld\nctx %lld\nbos %d\n", (long long)list->n, (long long)ctx, (int)bos);
    return CLI_GO_ON;
}

/* The whole text as ids, without special tokens; out->ids comes from malloc. */
static int encode_file(const run *r, const char *path, id_list *out)
{
    tfm_error err;
    char *text;
    size_t n;
    out->ids = NULL;
    if (!r->tokenizer) return tool_error("%s: has no tokenizer", r->path);
    if (read_whole(path, PPL_TEXT_MOST, &text, &n, &err)) return tool_error("%s", err.msg);
    out->ids = run_encode(r, text, n, TFM_ENCODE_NO_SPECIAL, &out->n, &err);
    free(text);
    return out->ids ? CLI_GO_ON : tool_error("%s: %s", path, err.msg);
}

/* Scores the text, and writes its importance matrix if `seen` collects one. The file is there before the figures. */
static int score_and_collect(run *r, id_list *list, const collector *seen)
{
    sink out;
    tfm_error err;
    int64_t chunks;
    int status;
    if (!seen) return score_text(r, list, &chunks);
    if (run_open_output(r, &out, imatrix_path, &err)) return tool_error("%s", err.msg);
    status = score_text(r, list, &chunks);
    if (status == CLI_GO_ON && (collector_write(seen, &out, ppl_path, chunks, r->setup.n_ctx, &err) ||
                                sink_commit(&out, &err)))
        status = tool_error("%s: %s", imatrix_path, err.msg);
    sink_discard(&out);
    return status;
}

static int eval_perplexity(run *r)
{
    id_list list;
    collector *seen = imatrix_path ? collector_new(r->model) : NULL;
    int status = encode_file(r, ppl_path, &list);
    if (imatrix_path && !seen) status = tool_error("no memory for the importance matrix");
    if (status == CLI_GO_ON) {
        if (!options.ctx) r->setup.n_ctx = r->config->n_ctx < 512 ? r->config->n_ctx : 512;
        if (r->setup.n_ctx < 4) status = cli_wrong(&command_line, "--ppl: -c %d is too short", (int)r->setup.n_ctx);
        else if (list.n < r->setup.n_ctx)
            status = tool_error("%s: has %lld tokens, one chunk needs %d", ppl_path, (long long)list.n,
                                (int)r->setup.n_ctx);
    }
    if (status == CLI_GO_ON) {
        r->setup.want = TFM_WANT_ALL;
        r->setup.rope_len = rope_len;
        r->setup.trace_user = seen;
        if (seen) r->setup.trace = collector_trace;
        set_batch(r);
        status = run_start(r);
    }
    if (status == CLI_GO_ON) status = score_and_collect(r, &list, seen);
    collector_free(seen);
    free(list.ids);
    return status;
}

int main(int argc, char **argv)
{
    const char *path;
    run r;
    int status;
    program_start(&argc, &argv);
    status = cli_parse(&command_line, argc, argv, &path, NULL);
    if (status != CLI_GO_ON) return program_end(status);
    if (!ids_text == !ppl_path) return cli_wrong(&command_line, "needs either --ids or --ppl");
    if (ids_text && !logits_path && !hidden_path && !trace_path && !n_greedy)
        return cli_wrong(&command_line, "--ids needs something to show: --logits, --hidden, --trace or --greedy");
    if (ids_text && n_chunks) return cli_wrong(&command_line, "--chunks goes with --ppl");
    if (ppl_path && (logits_path || hidden_path || trace_path || n_greedy))
        return cli_wrong(&command_line, "--ppl stands alone, without --logits, --hidden, --trace and --greedy");
    if (imatrix_path && !ppl_path) return cli_wrong(&command_line, "--imatrix goes with --ppl");
    if (logits_path && hidden_path && strcmp(logits_path, hidden_path) == 0)
        return cli_wrong(&command_line, "--logits and --hidden need two files");
    if (fast && !options.kv_given) options.kv = TFM_KV_F16 - 1;
    if (fast && !options.act_given) options.act = TFM_ACT_MODE_Q8 - 1;
    status = run_open(&r, &command_line, &options, path);
    if (status == CLI_GO_ON) status = ids_text ? eval_ids(&r) : eval_perplexity(&r);
    run_close(&r);
    return program_end(status == CLI_GO_ON ? 0 : status);
}
