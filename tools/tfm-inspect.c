/* tfm-inspect - what is in a .tfm file: the path a token takes through the model in words, every field of the
 * description, the tensors, the memory a session needs, and the speed that a memory bandwidth allows.
 *
 * Fields and their values are printed over the tables of the library (tfm_config_fields, tfm_block_fields), so a field
 * that is new in the header appears here by itself. Only describe_words.c knows what the fields mean.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "c_array.h"
#include "chat.h"
#include "describe_words.h"
#include "diff_models.h"
#include "run.h"
#include "tensor_figures.h"

static run_options options = RUN_FAST;
static const char *tensor_name, *out_path, *plan_name;
static double bandwidth;
static int json, verify, stats, diff;

static const cli_option option_rows[] = {
    CLI_GROUP("What to show"),
    CLI_FLAG(0, "json", &json, "print one JSON object"),
    CLI_REAL(0, "bandwidth", "GB/s", &bandwidth, 0.001, 1e6, "", "show the tokens/s that this bandwidth allows", NULL),
    CLI_FLAG(0, "stats", &stats, "measure every tensor: smallest, largest, root mean square, zeros, NaN, infinities"),
    CLI_FLAG(0, "diff", &diff, "show what differs between two files; exit status 0: nothing, 3: something"),
    CLI_STRING(0, "tensor", "NAME", &tensor_name, NULL, "write one tensor as float32, row by row ...", NULL),
    CLI_STRING(0, "out", "FILE", &out_path, NULL, "... into this file", NULL),
    CLI_STRING(0, "plan", "NAME", &plan_name, NULL,
               "print the memory that -c, --batch, --kv ... ask for as C constants", NULL),
    CLI_FLAG(0, "verify", &verify, "check the hashes of the tokenizer and of every tensor"),
    RUN_OPTION_ROWS(options, "the model's, at most 4096"),
    CLI_END
};
static const char *const arg_names[] = { "MODEL", "MODEL2" };
static const cli command_line = {
    "tfm-inspect",
    "MODEL [--json] [-c CTX] [--kv TYPE] [--bandwidth GB/s] [--stats] [--verify]\n"
    "       tfm-inspect MODEL --plan NAME [-c CTX] [--kv TYPE] ...\n"
    "       tfm-inspect MODEL --tensor NAME --out FILE\n"
    "       tfm-inspect --diff MODEL MODEL2 [--json]",
    "Shows what a .tfm file holds and what running it takes.", option_rows, 1, 2, arg_names
};

typedef struct memory {
    uint64_t file, parameters, per_token, tied_saved;
    size_t kv, session;
} memory;

static int measure_memory(const run *r, memory *m)
{
    tfm_error err;
    const tfm_tensor embed = tfm_model_tensor(r->model, -1, TFM_ROLE_EMBED);
    source file;
    memset(m, 0, sizeof *m);
    if (source_open_file(&file, r->path, &err)) return run_error(r, &err);
    m->file = file.size;
    source_close_file(&file);
    if (r->config->n_layers == 0) return CLI_GO_ON;
    m->parameters = model_parameters(r->model);
    m->per_token = model_bytes_per_token(r->model);
    if (r->config->tied) m->tied_saved = tfm_tensor_bytes(embed.type, embed.layout, embed.rows, embed.cols);
    if (tfm_session_kv_bytes(r->model, &r->setup, &m->kv, &err)) return run_error(r, &err);
    if (tfm_session_size(r->model, &r->setup, &m->session, &err)) return run_error(r, &err);
    return CLI_GO_ON;
}

/* Tokens per second if nothing but reading weights (and at the context's end the whole cache) took time. */
static double tokens_per_s(uint64_t bytes)
{
    return bandwidth * 1e9 / (double)bytes;
}

/* ---- FIELDS ---------------------------------------------------------------------------------------------------- */

static int32_t field_int(const void *base, const tfm_field *f, uint32_t i)
{
    int32_t value;
    memcpy(&value, (const char *)base + f->offset + 4 * i, 4);
    return value;
}

static double field_real(const void *base, const tfm_field *f)
{
    float value;
    memcpy(&value, (const char *)base + f->offset, 4);
    return (double)value;
}

/* How many elements of an array field are in use: the field n_NAME says so. */
static uint32_t field_used(const void *base, const tfm_field *f, const tfm_field *fields, int n)
{
    int i;
    for (i = 0; i < n; i++)
        if (strncmp(fields[i].name, "n_", 2) == 0 && strcmp(fields[i].name + 2, f->name) == 0)
            return (uint32_t)field_int(base, &fields[i], 0);
    return f->count;
}

/* {"name": value, ...} of all fields that are not zero: absent, or the default. */
static void json_fields(const void *base, const tfm_field *fields, int n)
{
    int i, shown = 0;
    printf("{");
    for (i = 0; i < n; i++) {
        const tfm_field *f = &fields[i];
        const char *name = tfm_field_value_name(f->name, field_int(base, f, 0));
        const uint32_t count = f->kind == 3 ? field_used(base, f, fields, n) : 1;
        uint32_t k;
        if (f->kind != 3 && field_int(base, f, 0) == 0) continue;
        printf("%s\"%s\": ", shown++ ? ", " : "", f->name);
        if (f->kind == 2) printf("%.9g", field_real(base, f));
        else if (f->kind == 1 && name) printf("\"%s\"", name);
        else if (f->kind == 1) printf("%d", (int)field_int(base, f, 0));
        else {
            printf("[");
            for (k = 0; k < count; k++) printf("%s%d", k ? ", " : "", (int)field_int(base, f, k));
            printf("]");
        }
    }
    printf("}");
}

/* ---- TEXT ------------------------------------------------------------------------------------------------------ */

static void print_path(const tfm_config *c)
{
    const size_t n = describe_words(c, NULL, 0) + 1;
    char *text = (char *)malloc(n);
    if (!text) return;
    describe_words(c, text, n);
    fputs(text, stdout);
    free(text);
}

static void print_figures(const tensor_figures *f)
{
    printf(" %11.4g %11.4g %11.4g %9llu", (double)f->min, (double)f->max, f->rms, (unsigned long long)f->n_zero);
    if (f->n_nan || f->n_inf)
        printf("  %s%llu NaN, %llu infinite%s", ink(INK_RED), (unsigned long long)f->n_nan,
               (unsigned long long)f->n_inf, ink(INK_PLAIN));
}

static int print_tensors(const tfm_model *m)
{
    tfm_weight w;
    tensor_figures f;
    char name[64], dims[40], size[16];
    int64_t i;
    printf("\n%s%-32s %-6s %-5s %18s %10s%s%s\n", ink(INK_BOLD), "tensor", "type", "order", "rows x cols", "bytes",
           stats ? "    smallest     largest         rms     zeros" : "", ink(INK_PLAIN));
    for (i = 0; tfm_model_weight(m, i, &w); i++) {
        tfm_weight_name(w.stack, w.layer, w.role, w.expert, name, sizeof name);
        snprintf(dims, sizeof dims, "%lld x %lld", (long long)w.t.rows, (long long)w.t.cols);
        printf("%-32s %-6s %-5s %18s %10s", name, tfm_type_get(w.t.type)->name,
               w.t.layout == TFM_TILED ? "tiled" : "rows", dims,
               human_size(size, tfm_tensor_bytes(w.t.type, w.t.layout, w.t.rows, w.t.cols)));
        if (stats && tensor_measure(&w.t, &f)) return tool_error("out of memory");
        if (stats) print_figures(&f);
        printf("\n");
    }
    return 0;
}

/* Tensors and bytes of each type. */
static void print_types(const tfm_model *m)
{
    enum { MOST = 32 };
    struct { int32_t type; int64_t n; uint64_t bytes; } types[MOST];
    tfm_weight w;
    char size[16];
    int64_t i;
    int k, n = 0;
    for (i = 0; tfm_model_weight(m, i, &w); i++) {
        for (k = 0; k < n && types[k].type != w.t.type; k++) {}
        if (k == MOST) continue;
        if (k == n) {
            types[n].type = w.t.type;
            types[n].n = 0;
            types[n++].bytes = 0;
        }
        types[k].n++;
        types[k].bytes += tfm_tensor_bytes(w.t.type, w.t.layout, w.t.rows, w.t.cols);
    }
    printf("\n");
    for (k = 0; k < n; k++)
        printf("%-6s %6lld tensors %10s\n", tfm_type_get(types[k].type)->name, (long long)types[k].n,
               human_size(size, types[k].bytes));
}

/* Positions that a layer of this block keeps, see tfm_session_kv_bytes. */
static int32_t cache_positions(const run *r, const tfm_block *b)
{
    const int32_t ctx = r->setup.n_ctx, batch = r->setup.n_batch ? r->setup.n_batch : 512;
    const int near = b->mask >= TFM_MASK_STRIDED && b->mask_part == TFM_PART_NEAR;
    const int32_t reach = near && (!b->window || b->mask_stride < b->window) ? b->mask_stride : b->window;
    return reach && (int64_t)reach + batch < ctx ? reach + batch : ctx;
}

/* How the cache's bytes come about: a product for each kind of layer. */
static void print_cache(const run *r)
{
    static const double value_bytes[] = { 0, 4, 2, 2, 34.0 / 32 }; /* by TFM_KV_; Q8_0: 32 codes and a scale */
    const tfm_config *c = r->config;
    int32_t i, k, n;
    for (i = 0; i < c->n_blocks; i++) {
        const tfm_block *b = &c->blocks[i];
        for (n = 0, k = 0; k < c->n_layers; k++) n += tfm_model_block(r->model, k) == b;
        if (n == 0) continue;
        printf("    %3d layer%s x 2 x %d head%s x %d x %d positions x %g bytes\n", (int)n, n == 1 ? "" : "s",
               (int)b->n_kv_heads, b->n_kv_heads == 1 ? "" : "s", (int)b->head_dim, (int)cache_positions(r, b),
               value_bytes[r->setup.kv ? r->setup.kv : TFM_KV_F16]);
    }
}

static void print_memory(const run *r, const memory *m)
{
    char a[16], b[16];
    const int64_t last = r->setup.n_ctx - 1;
    printf("\n%smemory for %d positions, kv %s, %d threads%s\n", ink(INK_BOLD), (int)r->setup.n_ctx,
           run_kv_names[options.kv], (int)r->setup.n_threads, ink(INK_PLAIN));
    printf("  weights and tables    %s, mapped or read\n", human_size(a, m->file));
    printf("  key-value cache       %s\n", human_size(a, m->kv));
    print_cache(r);
    printf("  session               %s, the cache included\n", human_size(a, m->session));
    printf("  together              %s\n", human_size(a, m->file + m->session));
    if (r->config->tied) printf("  saved by tying        %s\n", human_size(b, m->tied_saved));
    printf("\n%sa token%s\n", ink(INK_BOLD), ink(INK_PLAIN));
    printf("  weights read          %s\n", human_size(a, m->per_token));
    printf("  operations            %.4g G, %.4g G at the context's end\n",
           (double)model_flops_per_token(r->model, 0) * 1e-9, (double)model_flops_per_token(r->model, last) * 1e-9);
    if (bandwidth > 0)
        printf("  at %g GB/s            at most %.1f tokens/s, %.1f at the context's end\n", bandwidth,
               tokens_per_s(m->per_token), tokens_per_s(m->per_token + m->kv));
}

static const char *chat_kind(const tfm_model *m)
{
    const tfm_chat *c = tfm_model_chat(m);
    return !c ? "no chat format" : tfm_chat_known(c) ? "chat format" : "chat template that is interpreted";
}

/* A conversation as the chat format writes it, line breaks as \n. */
static void print_chat(const tfm_model *m)
{
    static const tfm_turn turns[] = { { TFM_CHAT_SYSTEM, "SYSTEM", 6 }, { TFM_CHAT_USER, "USER", 4 },
                                      { TFM_CHAT_ASSISTANT, "ANSWER", 6 }, { TFM_CHAT_USER, "USER", 4 } };
    const tfm_chat *c = tfm_model_chat(m);
    arena mem = { NULL, 0, 0, 0 };
    chat_text text;
    size_t skip;
    int shown = 0;
    for (skip = 0; c && skip < 2 && !shown; skip++) { /* not every format has a place for a system text */
        shown = !chat_render(&mem, c, turns + skip, 4 - skip, 1, &text, NULL);
        if (!shown) continue;
        printf("\nchat                    ");
        tool_print_clean(text.text, text.n, "\\n");
        printf("\n");
    }
    arena_free(&mem);
}

static int print_text(const run *r, const memory *m)
{
    const tfm_config *c = r->config;
    const char *origin;
    size_t n;
    char size[16];
    printf("%s: %s", r->path, human_size(size, m->file));
    if (c->n_layers)
        printf(", %.4g M parameters, %d layers, width %d, vocabulary %d, context %d", (double)m->parameters * 1e-6,
               (int)c->n_layers, (int)c->d_model, (int)c->n_vocab, (int)c->n_ctx);
    printf(", %s, %s\n", r->tokenizer ? "tokenizer" : "no tokenizer", chat_kind(r->model));
    origin = (const char *)tfm_model_section(r->model, TFM_SECTION_PROVENANCE, &n);
    tool_print_clean(origin, origin ? n : 0, "\n");
    print_chat(r->model);
    if (c->n_layers == 0) return 0;
    printf("\n");
    print_path(c);
    print_memory(r, m);
    print_types(r->model);
    return print_tensors(r->model);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

/* A number, or null where there is none in JSON. */
static void json_number(const char *name, double value)
{
    if (isfinite(value)) printf(", \"%s\": %.9g", name, value);
    else printf(", \"%s\": null", name);
}

static int json_figures(const tfm_tensor *t)
{
    tensor_figures f;
    if (tensor_measure(t, &f)) return tool_error("out of memory");
    json_number("min", (double)f.min);
    json_number("max", (double)f.max);
    json_number("rms", f.rms);
    printf(", \"zeros\": %llu, \"nan\": %llu, \"inf\": %llu", (unsigned long long)f.n_zero,
           (unsigned long long)f.n_nan, (unsigned long long)f.n_inf);
    return 0;
}

static int json_tensors(const tfm_model *m)
{
    tfm_weight w;
    char name[64];
    int64_t i;
    printf("\"tensors\": [");
    for (i = 0; tfm_model_weight(m, i, &w); i++) {
        tfm_weight_name(w.stack, w.layer, w.role, w.expert, name, sizeof name);
        printf("%s\n  {\"name\": \"%s\", \"role\": \"%s\", \"layer\": %d, ", i ? "," : "", name, tfm_role_name(w.role),
               (int)w.layer);
        printf("\"type\": \"%s\", \"layout\": \"%s\", \"dims\": [%lld, %lld], ", tfm_type_get(w.t.type)->name,
               w.t.layout == TFM_TILED ? "tiled" : "rows", (long long)w.t.rows, (long long)w.t.cols);
        printf("\"bytes\": %llu, \"source_bytes\": %llu",
               (unsigned long long)tfm_tensor_bytes(w.t.type, w.t.layout, w.t.rows, w.t.cols),
               (unsigned long long)weight_source_bytes(&w));
        if (stats && json_figures(&w.t)) return 1;
        printf("}");
    }
    printf("]");
    return 0;
}

static void json_description(const tfm_config *c)
{
    int i, n;
    const tfm_field *fields = tfm_config_fields(&n);
    printf("\"config\": ");
    json_fields(c, fields, n);
    fields = tfm_block_fields(&n);
    printf(",\n\"blocks\": [");
    for (i = 0; i < c->n_blocks; i++) {
        printf("%s", i ? ",\n  " : "");
        json_fields(&c->blocks[i], fields, n);
    }
    printf("],\n\"layer_block\": [");
    for (i = 0; i < c->n_layers; i++) printf("%s%d", i ? ", " : "", c->layer_block ? (int)c->layer_block[i] : 0);
    printf("],\n");
}

static int print_json(const run *r, const memory *m)
{
    const tfm_config *c = r->config;
    int status;
    printf("{\"file_bytes\": %llu, \"tokenizer\": %s, \"chat\": \"%s\", ", (unsigned long long)m->file,
           r->tokenizer ? "true" : "false", chat_kind(r->model));
    printf("\"n_params\": %llu, \"n_layers\": %d, \"d_model\": %d, \"n_vocab\": %d, \"n_ctx_model\": %d,\n",
           (unsigned long long)m->parameters, (int)c->n_layers, (int)c->d_model, (int)c->n_vocab, (int)c->n_ctx);
    printf("\"weight_bytes_per_token\": %llu, \"tied\": %s, \"tied_bytes_saved\": %llu,\n",
           (unsigned long long)m->per_token, c->tied ? "true" : "false", (unsigned long long)m->tied_saved);
    printf("\"n_ctx\": %d, \"kv\": \"%s\", \"n_threads\": %d, \"kv_bytes\": %llu, \"session_bytes\": %llu,\n",
           (int)r->setup.n_ctx, run_kv_names[options.kv], (int)r->setup.n_threads, (unsigned long long)m->kv,
           (unsigned long long)m->session);
    if (bandwidth > 0 && c->n_layers)
        printf("\"bandwidth_gb_per_s\": %.6g, \"tokens_per_s\": %.6g, \"tokens_per_s_full_context\": %.6g,\n",
               bandwidth, tokens_per_s(m->per_token), tokens_per_s(m->per_token + m->kv));
    if (c->n_layers)
        printf("\"flops_per_token\": %llu, \"flops_per_token_full_context\": %llu,\n",
               (unsigned long long)model_flops_per_token(r->model, 0),
               (unsigned long long)model_flops_per_token(r->model, r->setup.n_ctx - 1));
    json_description(c);
    status = json_tensors(r->model);
    printf("}\n");
    return status;
}

/* ---- ONE TENSOR ------------------------------------------------------------------------------------------------ */

static int find_tensor(const run *r, const char *wanted, tfm_weight *w)
{
    char name[64];
    int64_t i;
    for (i = 0; tfm_model_weight(r->model, i, w); i++) {
        tfm_weight_name(w->stack, w->layer, w->role, w->expert, name, sizeof name);
        if (strcmp(name, wanted) == 0) return CLI_GO_ON;
    }
    return tool_error("%s: has no tensor '%s'", r->path, wanted);
}

static int write_tensor(const run *r, const char *name, const char *path)
{
    tfm_weight w;
    tfm_error err;
    sink out = { NULL, NULL };
    float *row;
    int64_t i;
    size_t row_bytes;
    int bad;
    if (find_tensor(r, name, &w) != CLI_GO_ON) return 1;
    row_bytes = (size_t)w.t.cols * sizeof *row;
    row = (float *)malloc(row_bytes);
    if (!row) return tool_error("no memory for a row of %lld numbers", (long long)w.t.cols);
    bad = run_open_output(r, &out, path, &err);
    for (i = 0; i < w.t.rows && !bad; i++) {
        tfm_tensor_row(&w.t, i, row);
        floats_to_bytes(row, row, (size_t)w.t.cols);
        bad = sink_write(&out, (uint64_t)i * row_bytes, row, row_bytes, &err);
    }
    if (!bad) bad = sink_commit(&out, &err);
    if (bad) tool_error("%s", err.msg);
    sink_discard(&out);
    free(row);
    return bad ? 1 : 0;
}

/* ---- PLAN ------------------------------------------------------------------------------------------------------ */

static void print_constant(arena *mem, const char *suffix, uint64_t value, const char *comment)
{
    printf("#define %-32s %10llu /* %s */\n", c_array_constant(mem, plan_name, suffix), (unsigned long long)value,
           comment);
}

/* The settings of a session and the bytes they need, for a program whose memory is one static buffer. */
static int print_plan(const run *r)
{
    tfm_session_config setup = r->setup;
    arena mem = {NULL, 0, 0, 0};
    tfm_error err;
    source file;
    void *bytes;
    size_t n, tables, session;
    int code;
    if (!options.threads) setup.n_threads = 1;
    code = source_open_file(&file, r->path, &err);
    if (code) return run_error(r, &err);
    code = source_read_model(&file, &mem, &bytes, &n, &err);
    source_close_file(&file);
    if (!code) code = tfm_model_size(bytes, n, &tables, &err);
    if (!code) code = tfm_session_size(r->model, &setup, &session, &err);
    if (code) return run_error(r, &err);
    printf("/* Made by tfm-inspect --plan: the settings of a session, and the bytes that they need. */\n");
    print_constant(&mem, "_BYTES", n, "of the model's file");
    print_constant(&mem, "_CTX", (uint64_t)setup.n_ctx, "tfm_session_config.n_ctx");
    print_constant(&mem, "_BATCH",
                   setup.n_batch ? (uint64_t)setup.n_batch : (uint64_t)(setup.n_ctx < 512 ? setup.n_ctx : 512),
                   "n_batch");
    print_constant(&mem, "_KV", (uint64_t)setup.kv, "kv");
    print_constant(&mem, "_ACT", (uint64_t)setup.act, "act");
    print_constant(&mem, "_THREADS", (uint64_t)setup.n_threads, "n_threads");
    print_constant(&mem, "_TABLES_BYTES", tables, "tfm_model_init");
    print_constant(&mem, "_SESSION_BYTES", session, "tfm_session_init");
    print_constant(&mem, "_MEMORY_BYTES", (uint64_t)tables + session, "both, one behind the other, 64-byte aligned");
    arena_free(&mem);
    return 0;
}

static int inspect(const run *r)
{
    tfm_error err;
    memory m;
    if (plan_name) return print_plan(r);
    if (tensor_name) return write_tensor(r, tensor_name, out_path);
    if (verify && tfm_model_verify(r->model, &err)) return run_error(r, &err);
    if (measure_memory(r, &m) != CLI_GO_ON) return 1;
    if (json ? print_json(r, &m) : print_text(r, &m)) return 1;
    if (verify && !json) printf("\nverified: every hash agrees\n");
    return 0;
}

int main(int argc, char **argv)
{
    const char *paths[2];
    run r;
    int status, n_paths;
    program_start(&argc, &argv);
    status = cli_parse(&command_line, argc, argv, paths, &n_paths);
    if (status != CLI_GO_ON) return program_end(status);
    if (diff && n_paths != 2) return cli_wrong(&command_line, "--diff takes two files");
    if (diff && (stats || verify || tensor_name || out_path || plan_name))
        return cli_wrong(&command_line, "--diff goes with --json alone");
    if (!diff && n_paths != 1) return cli_wrong(&command_line, "too many arguments");
    if (diff) return program_end(diff_models(paths[0], paths[1], json));
    if (!tensor_name != !out_path) return cli_wrong(&command_line, "--tensor NAME and --out FILE belong together");
    if ((plan_name || tensor_name) && ((plan_name && tensor_name) || json || stats || verify || bandwidth > 0))
        return cli_wrong(&command_line, "%s goes with no other output", plan_name ? "--plan" : "--tensor");
    if (plan_name && !c_array_name_ok(plan_name)) return cli_wrong(&command_line, "--plan %s: no name in C", plan_name);
    status = run_open_any(&r, &command_line, &options, paths[0]);
    if (status == CLI_GO_ON) status = inspect(&r);
    run_close(&r);
    return program_end(status);
}
