/* tfm-quantize - a .tfm file with its matrices in another type. Norms and biases stay float32, the tokenizer and the
 * description are the same, and the provenance says what was done. */
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "writer.h"

enum { STRIP = 16 };

static const char *const type_names[] = {"f32", "f16", "bf16", "q8_0", NULL};
static int type, type_given;

static const cli_option option_rows[] = {
    CLI_CHOICE(0, "type", "T", &type, type_names, "", "type of the matrices", &type_given),
    CLI_END
};
static const char *const arg_names[] = {"IN.tfm", "OUT.tfm"};
static const cli command_line = {"tfm-quantize", "--type T IN.tfm OUT.tfm",
                                 "Writes a .tfm file with its matrices in another type.", option_rows, 2, 2, arg_names};

typedef struct job {
    const tfm_model *model;
    tfm_file_writer writer;
    tfm_weight *out;         /* [n]: the tensors as they will be */
    int64_t n;
    uint64_t done, total;
    progress *bar;
    tfm_error *err;
} job;

static size_t align64(size_t n) { return (n + 63) & ~(size_t)63; }

static void *aligned(arena *mem, size_t n) {
    char *p = arena_alloc(mem, n + 63);
    return p ? p + ((64 - (uintptr_t)p % 64) & 63) : NULL;
}

/* Sixteen rows at a time through float32. */
static int quantize_matrix(job *j, const char *name, const tfm_tensor *from, const tfm_tensor *to, arena *mem) {
    size_t strip = tfm_strip_bytes(to->type, to->cols), stride = (size_t)to->cols * sizeof(float);
    char *packed = aligned(mem, align64(strip));
    float *values = arena_array(mem, STRIP, stride);
    int code = packed && values ? TFM_OK : tool_fail(j->err, TFM_ERR_MEMORY, "out of memory");
    for (int64_t row = 0; !code && row < to->rows; row += STRIP) {
        int n = (int)(to->rows - row < STRIP ? to->rows - row : STRIP);
        for (int r = 0; r < n; r++) tfm_tensor_row(from, row + r, values + r * to->cols);
        code = convert_strip(to->type, packed, TFM_F32, values, stride, n, to->cols, NULL);
        if (code) return tool_fail(j->err, code, "tensor %s: %s", name, strip_error(code));
        code = writer_data(&j->writer, packed, strip, j->err);
        progress_update(j->bar, j->done += strip, j->total);
    }
    return code;
}

static int write_tensors(job *j) {
    int code = TFM_OK;
    for (int64_t i = 0; !code && i < j->n; i++) {
        tfm_weight w;
        char name[64];
        arena mem = {NULL, 0, 0, 0};
        tfm_model_weight(j->model, i, &w);
        const tfm_tensor *to = &j->out[i].t;
        size_t bytes = tfm_tensor_bytes(to->type, to->layout, to->rows, to->cols);
        tfm_weight_name(w.stack, w.layer, w.role, w.expert, name, sizeof name);
        if (w.t.type == to->type) code = writer_data(&j->writer, w.t.data, bytes, j->err);
        else code = quantize_matrix(j, name, &w.t, to, &mem);
        arena_free(&mem);
    }
    return code;
}

static int plan(job *j, int32_t wanted, arena *mem) {
    int64_t n_kept = 0;
    j->n = tfm_model_weight_count(j->model);
    j->out = arena_array(mem, (size_t)j->n + 1, sizeof *j->out);
    if (!j->out) return tool_fail(j->err, TFM_ERR_MEMORY, "out of memory");
    for (int64_t i = 0; i < j->n; i++) {
        tfm_weight *w = &j->out[i];
        tfm_model_weight(j->model, i, w);
        const int changes = w->t.layout == TFM_TILED && w->role != TFM_ROLE_ROUTER;
        if (changes) w->t.type = type_for_columns(wanted, w->t.cols);
        n_kept += changes && w->t.type != wanted;
        j->total += tfm_tensor_bytes(w->t.type, w->t.layout, w->t.rows, w->t.cols);
    }
    if (n_kept)
        tool_warn("%lld tensors become F16: their rows are no multiple of a block of %s", (long long)n_kept,
                  tfm_type_get(wanted)->name);
    return TFM_OK;
}

static int quantize(job *j, int32_t wanted, sink *out, arena *mem) {
    size_t n_tokenizer = 0, n_chat = 0, n_text = 0;
    const void *tokenizer = tfm_model_section(j->model, TFM_SECTION_TOKENIZER, &n_tokenizer);
    const void *chat = tfm_model_section(j->model, TFM_SECTION_CHAT, &n_chat);
    const char *text = tfm_model_section(j->model, TFM_SECTION_PROVENANCE, &n_text);
    const char *now = arena_printf(mem, "%.*squantized %s\n", text ? (int)n_text : 0, text ? text : "",
                                   tfm_type_get(wanted)->name);
    int code = now ? plan(j, wanted, mem) : tool_fail(j->err, TFM_ERR_MEMORY, "out of memory");
    if (code) return code;
    code = writer_begin(&j->writer, out, mem, tfm_model_config_of(j->model), j->out, j->n, tokenizer, n_tokenizer,
                        j->err);
    if (!code) code = write_tensors(j);
    if (!code && chat) code = writer_section(&j->writer, TFM_SECTION_CHAT, chat, n_chat, j->err);
    return code ? code : writer_end(&j->writer, now, strlen(now), j->err);
}

static int run(const char *in, const char *out_path, int32_t wanted, progress *bar, tfm_error *err) {
    arena mem = {NULL, 0, 0, 0};
    tfm_model *model;
    sink out;
    job j;
    if (path_same_file(in, out_path)) return tool_fail(err, TFM_ERR_ARG, "%s: is the source itself", out_path);
    tfm_error why;
    int code = tfm_model_open(in, NULL, &model, &why);
    if (code) return tool_fail(err, code, strstr(why.msg, in) ? "%.0s%s" : "%s: %s", in, why.msg);
    memset(&j, 0, sizeof j);
    j.model = model;
    j.bar = bar;
    j.err = err;
    if (!tfm_model_weight_count(model)) code = tool_fail(err, TFM_ERR_ARG, "%s: holds a tokenizer alone", in);
    if (!code) code = sink_open_file(&out, out_path, err);
    if (!code) {
        code = quantize(&j, wanted, &out, &mem);
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
    tfm_error err;
    program_start(&argc, &argv);
    int status = cli_parse(&command_line, argc, argv, args, NULL);
    if (status != CLI_GO_ON) return program_end(status);
    if (!type_given) return cli_wrong(&command_line, "--type is missing");
    if (!strcmp(args[1], "-")) return cli_wrong(&command_line, "OUT.tfm: - is no file; the output is not written to stdout");
    progress_begin(&bar, "quantizing", 1);
    int code = run(args[0], args[1], convert_type(type_names[type]), &bar, &err);
    progress_end(&bar);
    return program_end(code ? tool_error("%s", err.msg) : 0);
}
