/* tfm-convert - a checkpoint (Hugging Face directory, GGUF, llama2.c .bin) becomes a .tfm file, or a .tfm file a GGUF.
 *
 * This is the shell around convert.c and write_gguf.c: options, files, progress. The file appears whole or not at all.
 */
#include <string.h>

#include "c_array.h"
#include "convert.h"
#include "families.h"
#include "quantize_cli.h"
#include "write_gguf.h"

enum { MAX_ALLOWED = 32 };

static quantize_options quantize = {mix_names, 0, 0, NULL, 0};
static int vocab_only, to_gguf, list_families;
static const char *tokenizer_path, *allowed, *array_name;

static const cli_option option_rows[] = {
    QUANTIZE_OPTION_ROWS(quantize, mix_names, NULL, "type or mix of types of the matrices; source keeps each"),
    CLI_FLAG(0, "vocab-only", &vocab_only, "convert the tokenizer alone; SRC may be a bare tokenizer file"),
    CLI_STRING(0, "tokenizer", "FILE", &tokenizer_path, "the checkpoint's own; tokenizer.bin beside a llama2.c model",
               "tokenizer.json, tokenizer.model, tokenizer.bin or a GGUF to take the tokenizer from", NULL),
    CLI_STRING(0, "allow-unknown", "KEY,...", &allowed, "", "keys of the configuration that may be ignored", NULL),
    CLI_STRING(0, "c-array", "NAME", &array_name, "",
               "OUT is a C header with the file as an array; SRC may be a .tfm too", NULL),
    CLI_FLAG(0, "to-gguf", &to_gguf, "write a GGUF file from a .tfm file; every weight keeps its type and its bits"),
    CLI_FLAG(0, "families", &list_families, "print the table of known families, as the README has it, and stop"),
    CLI_END
};
static const char *const arg_names[] = {"SRC", "OUT.tfm"};
static const cli command_line = {
    "tfm-convert", "[--type T] [--imatrix FILE] [--vocab-only] [--tokenizer FILE] SRC OUT.tfm\n"
    "       tfm-convert --c-array NAME [...] SRC OUT.h\n"
    "       tfm-convert --to-gguf IN.tfm OUT.gguf\n"
    "       tfm-convert --families",
    "SRC: a Hugging Face directory (config.json, tokenizer files, weights as safetensors or as PyTorch's .bin), or "
    "its\nfile of weights; a GGUF file (a split one by its first part); a llama2.c .bin of version 0, 1 or 2.",
    option_rows, 0, 2, arg_names
};

/* "a,b" -> keys; the text is cut in place. Returns their number, -1 if there are too many. */
static int split_keys(char *text, const char **keys) {
    int n = 0;
    for (char *at = text; at; n++) {
        char *comma = strchr(at, ',');
        if (n == MAX_ALLOWED) return -1;
        keys[n] = at;
        if (comma) *comma++ = 0;
        at = comma;
    }
    return n;
}

/* "llama, mistral" for a table: the names of a family in one kind of source, without the words "KEY=". */
static void print_names(const char *names) {
    const char *start = names && strchr(names, '=') ? strchr(names, ' ') + 1 : names;
    printf(" | ");
    for (const char *at = start; at && *at; at++) {
        if (at == start) putchar('`');
        if (*at == ' ') printf("`, `");
        else putchar(*at);
    }
    if (start && *start) putchar('`');
}

/* The families as a table in Markdown: title, model_type, general.architecture. */
static int print_families(void) {
    const family *f;
    printf("| family | `model_type` | GGUF architecture |\n|---|---|---|\n");
    for (int i = 0; (f = family_at(i)) != NULL; i++) {
        if (!f->title) continue;
        printf("| %s", f->title);
        print_names(f->form[FORM_HF].names_of);
        print_names(f->form[FORM_GGUF].names_of);
        printf(" |\n");
    }
    return 0;
}

static void on_progress(void *user, uint64_t done, uint64_t total) { progress_update(user, done, total); }

/* llama2.c keeps its tokenizer in a file beside the model: its path if there is one, else NULL. A GGUF has its own. */
static const char *tokenizer_beside(const char *path, arena *mem) {
    const char *slash = strrchr(path, '/');
    char magic[4] = "";
    source src;
    if (source_open_file(&src, path, NULL)) return NULL;
    if (src.size >= 4) src.read_at(src.user, 0, magic, 4);
    source_close_file(&src);
    if (!memcmp(magic, "GGUF", 4)) return NULL;
    size_t n = slash ? (size_t)(slash - path) + 1 : 0;
    const char *beside = arena_printf(mem, "%.*stokenizer.bin", (int)n, path);
    return beside && path_kind(beside) == PATH_FILE ? beside : NULL;
}

static int run_directory(const char *path, sink *out, const convert_options *o, tfm_error *err) {
    source_dir dir;
    int code = dir_open_local(&dir, path, err);
    if (code) return code;
    code = convert_directory(&dir, out, o, err);
    dir_close_local(&dir);
    return code;
}

/* The directory in which a file lies. */
static int open_beside(source_dir *dir, const char *path, tfm_error *err) {
    const char *slash = strrchr(path, '/');
    arena mem = {NULL, 0, 0, 0};
    const char *parent = slash ? arena_strndup(&mem, path, slash == path ? 1 : (size_t)(slash - path)) : ".";
    int code = parent ? dir_open_local(dir, parent, err) : tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    arena_free(&mem);
    return code;
}

/* Weights that lie in a directory with their configuration; a file that is a model alone says so itself. */
static int is_weights(const source *src, const source_dir *dir) {
    unsigned char head[10] = {0};
    source config;
    if (src->size < sizeof head || src->read_at(src->user, 0, head, sizeof head)) return 0;
    if (memcmp(head, "PK\x03\x04", 4) && memcmp(head, "\x80\x02\x8a\x0a", 4) && memcmp(head + 8, "{\"", 2)) return 0;
    if (dir->open(dir->user, "config.json", &config, NULL)) return 0;
    dir->close(dir->user, &config);
    return 1;
}

static int convert_beside(const source *src, const char *path, sink *out, convert_options *o, tfm_error *err) {
    const char *slash = strrchr(path, '/');
    source_dir beside;
    int code = open_beside(&beside, path, err);
    if (code) return code;
    o->beside = &beside;
    o->weights = slash ? slash + 1 : path;
    code = is_weights(src, &beside) ? convert_directory(&beside, out, o, err) : convert_file(src, out, o, err);
    o->beside = NULL;
    dir_close_local(&beside);
    return code;
}

/* A .tfm file as it is, once it is known to be one. */
static int copy_model(const source *src, sink *out, tfm_error *err) {
    arena mem = {NULL, 0, 0, 0};
    tfm_model *model;
    void *bytes;
    size_t n = 0;
    int code = source_read_model(src, &mem, &bytes, &n, err);
    if (!code) code = tfm_model_from_memory(bytes, n, NULL, &model, err);
    if (!code) {
        tfm_model_close(model);
        code = sink_write(out, 0, bytes, n, err);
    }
    arena_free(&mem);
    return code;
}

static int is_model(const source *src) {
    static const unsigned char magic[4] = {'t', 'f', 'm', 0x1a};
    unsigned char head[4];
    return src->size >= 4 && !src->read_at(src->user, 0, head, 4) && !memcmp(head, magic, 4);
}

static int run_file(const char *path, sink *out, convert_options *o, tfm_error *err) {
    source src;
    int code = source_open_file(&src, path, err);
    if (code) return code;
    if (array_name && !o->mix && is_model(&src)) code = copy_model(&src, out, err);
    else code = convert_beside(&src, path, out, o, err);
    source_close_file(&src);
    return code;
}

/* The way back: the file is mapped, not read. */
static int run_to_gguf(const char *path, const char *out_path, const convert_options *o, tfm_error *err) {
    tfm_model *model;
    tfm_error why;
    sink out;
    if (path_same_file(path, out_path)) return tool_fail(err, TFM_ERR_ARG, "%s: is the source itself", out_path);
    int code = tfm_model_open(path, NULL, &model, &why);
    if (code) return tool_fail(err, code, strstr(why.msg, path) ? "%.0s%s" : "%s: %s", path, why.msg);
    code = sink_open_file(&out, out_path, err);
    if (!code) {
        code = write_gguf(model, path, &out, o, err);
        if (!code) code = sink_commit(&out, err);
        if (code) sink_discard(&out);
    }
    tfm_model_close(model);
    return code;
}

/* The sources are open before the output, so that it cannot be one of them. */
static int run(const char *src, const char *out_path, convert_options *o, arena *mem, tfm_error *err) {
    source tokenizer;
    sink out;
    int directory = path_kind(src) == PATH_DIRECTORY, code;
    if (path_same_file(src, out_path)) return tool_fail(err, TFM_ERR_ARG, "%s: is the source itself", out_path);
    if (!tokenizer_path && !directory && !vocab_only) tokenizer_path = tokenizer_beside(src, mem);
    if (tokenizer_path) {
        code = source_open_file(&tokenizer, tokenizer_path, err);
        if (code) return code;
        o->tokenizer = &tokenizer;
    }
    code = sink_open_file(&out, out_path, err);
    if (!code) {
        memory_sink model; /* an array is written when all of it is known */
        sink *to = &out, array = sink_memory(&model);
        if (array_name) to = &array;
        code = directory ? run_directory(src, to, o, err) : run_file(src, to, o, err);
        if (!code && array_name) code = c_array_write(&out, array_name, model.bytes, model.n, err);
        if (!code) code = sink_commit(&out, err);
        if (code) sink_discard(&out);
        sink_memory_free(&model);
    }
    if (tokenizer_path) source_close_file(&tokenizer);
    return code;
}

int main(int argc, char **argv) {
    const char *args[2], *keys[MAX_ALLOWED];
    progress bar;
    arena mem = {NULL, 0, 0, 0};
    tfm_error err;
    convert_options o;
    quantize_setup setup;
    int n_args;
    program_start(&argc, &argv);
    int status = cli_parse(&command_line, argc, argv, args, &n_args);
    if (status != CLI_GO_ON) return program_end(status);
    if (list_families && n_args) return cli_wrong(&command_line, "--families stands alone");
    if (list_families) return program_end(print_families());
    if (to_gguf &&
        (quantize.type_given || quantize.imatrix_path || vocab_only || tokenizer_path || allowed || array_name))
        return cli_wrong(&command_line, "--to-gguf goes with no other option");
    if (n_args < 2) return cli_wrong(&command_line, "missing argument %s", arg_names[n_args]);
    if (array_name && !c_array_name_ok(array_name))
        return cli_wrong(&command_line, "--c-array %s: no name of a C array", array_name);
    if (quantize_options_wrong(&quantize)) return cli_wrong(&command_line, "%s", quantize_options_wrong(&quantize));
    if (vocab_only && quantize.type_given)
        return cli_wrong(&command_line, "--type has nothing to do with --vocab-only");
    if (!strcmp(args[1], "-"))
        return cli_wrong(&command_line, "OUT.tfm: - is no file; the output is not written to stdout");
    memset(&o, 0, sizeof o);
    o.vocab_only = vocab_only;
    o.allow_unknown = keys;
    if (allowed) {
        int n = split_keys(arena_strdup(&mem, allowed), keys);
        if (n < 0) return cli_wrong(&command_line, "--allow-unknown: more than %d keys", MAX_ALLOWED);
        o.n_allow_unknown = (size_t)n;
    }
    int code = quantize_setup_open(&setup, &quantize, &err);
    progress_begin(&bar, "converting", 1);
    o.mix = setup.mix;
    o.importance = setup.importance;
    o.threads = setup.threads;
    o.user = &bar;
    o.progress = on_progress;
    if (!code && to_gguf) code = run_to_gguf(args[0], args[1], &o, &err);
    else if (!code) code = run(args[0], args[1], &o, &mem, &err);
    progress_end(&bar);
    quantize_setup_close(&setup);
    arena_free(&mem);
    return program_end(code ? tool_error("%s", err.msg) : 0);
}
