/* tfm-quantize - a .tfm file with its matrices in another type. Norms and biases stay float32, the tokenizer and the
 * description are the same, and the provenance says what was done. */
#include <stdlib.h>
#include <string.h>

#include "quantize_cli.h"
#include "writer.h"

enum { CHUNK_STRIPS = 64 }; /* that are made at a time */

static quantize_options options = {mix_names + 1, 0, 0, NULL, 0}; /* a source's own types would be a copy */

static const cli_option option_rows[] = {
    QUANTIZE_OPTION_ROWS(options, mix_names + 1, "", "type or mix of types of the matrices"),
    CLI_END
};
static const char *const arg_names[] = {"IN.tfm", "OUT.tfm"};
static const cli command_line = {"tfm-quantize", "--type T [--imatrix FILE] IN.tfm OUT.tfm",
                                 "Writes a .tfm file with its matrices in another type.", option_rows, 2, 2, arg_names};

typedef struct job {
    const char *file;
    const tfm_model *model;
    const quantize_setup *setup;
    tfm_file_writer writer;
    tfm_weight *out;         /* [n]: the tensors as they will be */
    int64_t n;
    uint64_t done, total;
    progress *bar;
    tfm_error *err;
} job;

/* Some strips at a time. */
static int quantize_matrix(job *j, const tfm_weight *from, const tfm_tensor *to, arena *mem) {
    const strip_threads *threads = &j->setup->threads;
    const size_t strip = tfm_strip_bytes(to->type, to->cols);
    const int64_t step = STRIP * CHUNK_STRIPS;
    char name[64];
    strip_job s = {from->t.type, to->type, 0, to->cols, NULL, 0, &from->t, 0, imatrix_of(j->setup->importance, from),
                   strip_memory(mem, CHUNK_STRIPS * strip),
                   strip_memory(mem, strip_work_bytes(from->t.type, to->cols, threads))};
    int code = s.out && s.work ? TFM_OK : tool_fail(j->err, TFM_ERR_MEMORY, "out of memory");
    for (; !code && s.first < to->rows; s.first += step) {
        s.n_rows = to->rows - s.first < step ? to->rows - s.first : step;
        code = strips_convert(&s, threads);
        if (code)
            return tool_fail(j->err, code, "%s: tensor %s: %s", j->file, tfm_weight_name(from->stack, from->layer,
                             from->role, from->expert, name, sizeof name), strip_error(code, to->type));
        const tfm_tensor strips = {s.out, to->type, TFM_TILED, s.n_rows, to->cols};
        code = writer_rows(&j->writer, &strips, j->err);
        progress_update(j->bar, j->done += tfm_tensor_bytes(to->type, TFM_TILED, s.n_rows, to->cols), j->total);
    }
    return code;
}

static int write_tensors(job *j) {
    int code = TFM_OK;
    for (int64_t i = 0; !code && i < j->n; i++) {
        tfm_weight w;
        arena mem = {NULL, 0, 0, 0};
        tfm_model_weight(j->model, i, &w);
        const tfm_tensor *to = &j->out[i].t;
        if (w.t.type == to->type) code = writer_rows(&j->writer, &w.t, j->err);
        else code = quantize_matrix(j, &w, to, &mem);
        arena_free(&mem);
    }
    return code;
}

static void warn(const job *j, const mix_report *r) {
    const tfm_weight *first = &j->out[r->first_fallback];
    char name[64];
    if (r->n_fallbacks)
        tool_warn("%lld tensors have rows that a block of their type does not divide: %s; the first is %s",
                  (long long)r->n_fallbacks, r->text, tfm_weight_name(first->stack, first->layer, first->role,
                  first->expert, name, sizeof name));
    if (r->n_again) tool_warn("%lld tensors are quantised already and lose once more", (long long)r->n_again);
}

static int plan(job *j, arena *mem) {
    mix_report report;
    int64_t missing;
    j->n = tfm_model_weight_count(j->model);
    j->out = arena_array(mem, (size_t)j->n + 1, sizeof *j->out);
    if (!j->out) return tool_fail(j->err, TFM_ERR_MEMORY, "out of memory");
    for (int64_t i = 0; i < j->n; i++) tfm_model_weight(j->model, i, &j->out[i]);
    mix_apply(j->setup->mix, tfm_model_config_of(j->model), j->out, j->n, j->setup->importance != NULL, &report);
    for (int64_t i = 0; i < j->n; i++) {
        const tfm_tensor *t = &j->out[i].t;
        j->total += tfm_tensor_bytes(t->type, t->layout, t->rows, t->cols);
    }
    warn(j, &report);
    const int code = imatrix_check(j->setup->importance, j->out, j->n, &missing, j->err);
    if (missing) tool_warn("%lld quantised matrices have no row in the importance matrix", (long long)missing);
    return code;
}

static int quantize(job *j, sink *out, arena *mem) {
    size_t n_tokenizer = 0, n_chat = 0, n_text = 0;
    const void *tokenizer = tfm_model_section(j->model, TFM_SECTION_TOKENIZER, &n_tokenizer);
    const void *chat = tfm_model_section(j->model, TFM_SECTION_CHAT, &n_chat);
    const char *text = tfm_model_section(j->model, TFM_SECTION_PROVENANCE, &n_text);
    const char *now = arena_printf(mem, "%.*squantized %s%s\n", text && n_text < 1 << 20 ? (int)n_text : 0,
                                   text ? text : "", j->setup->mix->rules,
                                   j->setup->importance ? " with imatrix" : "");
    int code = now ? plan(j, mem) : tool_fail(j->err, TFM_ERR_MEMORY, "out of memory");
    if (code) return code;
    code = writer_begin(&j->writer, out, mem, tfm_model_config_of(j->model), j->out, j->n, tokenizer, n_tokenizer,
                        j->err);
    if (!code) code = write_tensors(j);
    if (!code && chat) code = writer_section(&j->writer, TFM_SECTION_CHAT, chat, n_chat, j->err);
    return code ? code : writer_end(&j->writer, now, strlen(now), j->err);
}

static int run(const char *in, const char *out_path, const quantize_setup *setup, progress *bar, tfm_error *err) {
    arena mem = {NULL, 0, 0, 0};
    tfm_model *model;
    sink out;
    job j;
    if (path_same_file(in, out_path)) return tool_fail(err, TFM_ERR_ARG, "%s: is the source itself", out_path);
    tfm_error why;
    int code = tfm_model_open(in, NULL, &model, &why);
    if (code) return tool_fail(err, code, strstr(why.msg, in) ? "%.0s%s" : "%s: %s", in, why.msg);
    memset(&j, 0, sizeof j);
    j.file = in;
    j.model = model;
    j.setup = setup;
    j.bar = bar;
    j.err = err;
    if (!tfm_model_weight_count(model)) code = tool_fail(err, TFM_ERR_ARG, "%s: holds a tokenizer alone", in);
    if (!code) code = sink_open_file(&out, out_path, err);
    if (!code) {
        code = quantize(&j, &out, &mem);
        if (!code) code = sink_commit(&out, err);
        if (code) sink_discard(&out);
    }
    tfm_model_close(model);
    arena_free(&mem);
    return code;
}

int main(int argc, char **argv) {
    const char *args[2];
    progress bar;
    quantize_setup setup;
    tfm_error err;
    program_start(&argc, &argv);
    int status = cli_parse(&command_line, argc, argv, args, NULL);
    if (status != CLI_GO_ON) return program_end(status);
    if (!options.type_given) return cli_wrong(&command_line, "--type is missing");
    if (quantize_options_wrong(&options)) return cli_wrong(&command_line, "%s", quantize_options_wrong(&options));
    if (!strcmp(args[1], "-"))
        return cli_wrong(&command_line, "OUT.tfm: - is no file; the output is not written to stdout");
    int code = quantize_setup_open(&setup, &options, &err);
    progress_begin(&bar, "quantizing", 1);
    if (!code) code = run(args[0], args[1], &setup, &bar, &err);
    progress_end(&bar);
    quantize_setup_close(&setup);
    return program_end(code ? tool_error("%s", err.msg) : 0);
}
