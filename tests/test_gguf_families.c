/* test_gguf_families.c - every file of tests/ref/gguf (see tests/ref_gguf.py) becomes a GGUF file as llama.cpp's
 * converter would write it from the same weights as a directory of tests/ref/families, and that file must give the
 * logits of that directory's reference. Those without "of" have weights and logits of their own
 * (tests/ref_gguf_moe.py). */
#include <stdlib.h>
#include <string.h>

#include "reference.h"
#include "convert_output.h"
#include "tools/convert.h"
#include "tools/gguf.h"
#include "tools/write_gguf.h"

typedef struct gguf_file {
    const reference *ref;
    tiny_file info, data, file;
    const char *what;
} gguf_file;

static void append(tiny_file *f, const void *bytes, size_t n) {
    sink s = tiny_sink(f);
    s.write_at(s.user, f->size, bytes, n);
}

static void append_le(tiny_file *f, uint64_t value, int n) {
    unsigned char b[8];
    for (int i = 0; i < n; i++) b[i] = (unsigned char)(value >> 8 * i);
    append(f, b, (size_t)n);
}

static void append_f32(tiny_file *f, float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    append_le(f, u, 4);
}

static void append_text(tiny_file *f, const char *text) {
    append_le(f, strlen(text), 8);
    append(f, text, strlen(text));
}

/* ---- KEYS ------------------------------------------------------------------------------------------------------ */

static int type_of(const char *name) {
    static const struct { const char *name; int id; } types[] = {
        {"u32", 4}, {"i32", 5}, {"f32", 6}, {"bool", 7}, {"str", 8}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strncmp(name, types[i].name, strlen(types[i].name))) return types[i].id;
    return -1;
}

static void append_value(tiny_file *f, int type, const json *v) {
    double real = 0;
    const char *text = "";
    int flag = 0;
    if (type == 8 && !json_as_string(v, &text, NULL)) append_text(f, text);
    else if (type == 7 && !json_as_bool(v, &flag, NULL)) append_le(f, (uint64_t)flag, 1);
    else if (type == 6 && !json_as_real(v, &real, NULL)) append_f32(f, (float)real);
    else if (type < 6 && !json_as_real(v, &real, NULL)) append_le(f, (uint32_t)(int32_t)real, 4);
    else check(0, "a value of tests/ref/gguf is not of its type");
}

static int append_key(tiny_file *f, const json *row, tfm_error *err) {
    const char *key, *kind;
    const json *value = json_at(row, 2);
    if (json_as_string(json_at(row, 0), &key, err) || json_as_string(json_at(row, 1), &kind, err)) return -1;
    const int list = kind[0] == '[', type = type_of(kind + list);
    append_text(f, key);
    append_le(f, list ? 9 : (uint64_t)type, 4);
    if (list) {
        append_le(f, (uint64_t)type, 4);
        append_le(f, json_count(value), 8);
    }
    for (size_t i = 0; i < (list ? json_count(value) : 1); i++) append_value(f, type, list ? json_at(value, i) : value);
    return 0;
}

/* ---- TENSORS --------------------------------------------------------------------------------------------------- */

static int64_t number_at(const json *list, size_t i) {
    int64_t n = 0;
    json_as_int(json_at(list, i), &n, NULL);
    return n;
}

/* The weights of a tensor of the directory; NULL after a failed check. */
static float *weights_of(const gguf_file *g, const char *name, size_t length, tensor_row *t) {
    tfm_error err;
    for (size_t i = 0; i < json_count(g->ref->tensors); i++) {
        if (read_row(json_at(g->ref->tensors, i), t, &err) || strlen(t->name) != length ||
            memcmp(t->name, name, length))
            continue;
        float *values = (float *)tiny_alloc(t->count * sizeof(float));
        tiny_fill(values, t->count, t->name, (int)t->e, (float)t->offset);
        return values;
    }
    check(0, "%s: no tensor %.*s", g->what, (int)length, name);
    return NULL;
}

/* Rows [first, first + count) of the source: `cols` apart, or its columns. */
static void append_rows(gguf_file *g, const float *w, const tensor_row *t, int64_t first, int64_t count, int columns,
                        float plus) {
    const int64_t cols = json_count(t->shape) > 1 ? number_at(t->shape, json_count(t->shape) - 1) : 1;
    const int64_t rows = (int64_t)t->count / cols;
    for (int64_t r = first; r < first + count; r++)
        for (int64_t i = 0; i < (columns ? rows : cols); i++)
            append_f32(&g->data, w[columns ? i * cols + r : r * cols + i] + plus);
}

static int append_source(gguf_file *g, const char *name, const json *runs) {
    tensor_row t;
    const char *mark = strpbrk(name, "+^");
    const int columns = mark && *mark == '^';
    const float plus = mark && *mark == '+' ? 1.0f : 0.0f;
    float *w = weights_of(g, name, mark ? (size_t)(mark - name) : strlen(name), &t);
    if (!w) return -1;
    const int64_t cols = json_count(t.shape) > 1 ? number_at(t.shape, json_count(t.shape) - 1) : 1;
    if (!json_count(runs)) append_rows(g, w, &t, 0, columns ? cols : (int64_t)t.count / cols, columns, plus);
    for (size_t i = 0; i < json_count(runs); i++)
        append_rows(g, w, &t, number_at(json_at(runs, i), 0), number_at(json_at(runs, i), 1), columns, plus);
    tiny_free(w);
    return 0;
}

static int append_tensor(gguf_file *g, const json *row, tfm_error *err) {
    const char *name, *taken;
    const json *shape = json_at(row, 1), *from = json_at(row, 2);
    const size_t start = g->data.size;
    size_t count = 1;
    if (json_as_string(json_at(row, 0), &name, err)) return -1;
    append_text(&g->info, name);
    append_le(&g->info, json_count(shape), 4);
    for (size_t i = json_count(shape); i-- > 0;) {
        append_le(&g->info, (uint64_t)number_at(shape, i), 8);
        count *= (size_t)number_at(shape, i);
    }
    append_le(&g->info, 0, 4);
    append_le(&g->info, start, 8);
    if (json_count(row) == 5) { /* of its own, as in tests/ref/families */
        append_source(g, name, NULL);
    } else if (json_is(from, JSON_ARRAY)) {
        for (size_t i = 0; i < json_count(from); i++) append_value(&g->data, 6, json_at(from, i));
    } else if (json_as_string(from, &taken, err) || append_source(g, taken, json_at(row, 3))) {
        return -1;
    }
    check(g->data.size - start == 4 * count, "%s: %s has %zu bytes", g->what, name, g->data.size - start);
    while (g->data.size % 32) append_le(&g->data, 0, 1);
    return 0;
}

static int build(gguf_file *g, const json *root, tfm_error *err) {
    const json *keys, *tensors;
    if (json_array(root, "keys", &keys, err) || json_array(root, "tensors", &tensors, err)) return -1;
    append(&g->file, "GGUF\3\0\0\0", 8);
    append_le(&g->file, json_count(tensors), 8);
    append_le(&g->file, json_count(keys), 8);
    for (size_t i = 0; i < json_count(keys); i++)
        if (append_key(&g->file, json_at(keys, i), err)) return -1;
    for (size_t i = 0; i < json_count(tensors); i++)
        if (append_tensor(g, json_at(tensors, i), err)) return -1;
    append(&g->file, g->info.data, g->info.size);
    while (g->file.size % 32) append_le(&g->file, 0, 1);
    append(&g->file, g->data.data, g->data.size);
    return 0;
}

/* ---- THE TEST -------------------------------------------------------------------------------------------------- */

static void ignore_warning(void *user, const char *line) {
    (void)user;
    (void)line; /* no tokenizer */
}

static void check_logits(const gguf_file *g, const tfm_model *m) {
    const reference *ref = g->ref;
    const size_t n = (size_t)ref->n_ids * (size_t)ref->n_vocab;
    const tfm_session_config cfg = tiny_exact((int32_t)ref->n_ids, (int32_t)ref->n_ids);
    float *out = (float *)tiny_alloc(n * sizeof(float));
    check(tfm_model_config_of(m)->n_vocab == ref->n_vocab, "%s: n_vocab is not %d", g->what, (int)ref->n_vocab);
    if (tfm_model_config_of(m)->n_vocab == ref->n_vocab && tiny_logits(m, &cfg, ref->ids, ref->n_ids, out, g->what))
        check(tiny_max_diff(out, ref->logits, n) <= ref->tolerance, "%s: off by %g, allowed %g", g->what,
              (double)tiny_max_diff(out, ref->logits, n), (double)ref->tolerance);
    tiny_free(out);
}

/* What other programs look for in the file that is written: the tensors of the recorded one, in their shapes, and the
 * keys that tell mixtures from dense layers. */
static void check_written(const gguf_file *g, const json *root, const tfm_model *m) {
    static const char *const endings[] = {".leading_dense_block_count", ".interleave_moe_layer_step"};
    const json *keys = json_get(root, "keys"), *tensors = json_get(root, "tensors");
    tiny_file written = { NULL, 0, 0 };
    sink out = tiny_sink(&written);
    arena mem = { NULL, 0, 0, 0 };
    convert_options options;
    gguf file;
    tfm_error err;
    memset(&options, 0, sizeof options);
    options.warn = ignore_warning;
    int r = write_gguf(m, g->what, &out, &options, &err);
    const source src = source_memory(g->what, written.data, written.size);
    if (!r) r = gguf_open(&file, &src, &mem, &err);
    check(!r, "%s, written: %s", g->what, r ? err.msg : "");
    for (size_t i = 0; !r && i < json_count(tensors); i++) {
        const char *name = "";
        const json *shape = json_at(json_at(tensors, i), 1);
        json_as_string(json_at(json_at(tensors, i), 0), &name, NULL);
        const gguf_tensor *t = gguf_find_tensor(&file, name);
        int same = t && t->n_dims == (int)json_count(shape);
        for (int k = 0; same && k < t->n_dims; k++) same = t->dims[t->n_dims - 1 - k] == number_at(shape, (size_t)k);
        check(same, "%s, written: %s is missing or has another shape", g->what, name);
    }
    for (size_t i = 0; !r && i < json_count(keys); i++) {
        const char *key = "";
        int64_t value = 0;
        json_as_string(json_at(json_at(keys, i), 0), &key, NULL);
        for (size_t k = 0; k < sizeof endings / sizeof *endings; k++)
            if (strstr(key, endings[k]))
                check(!gguf_int(&file, key, &value, &err) && value == number_at(json_at(keys, i), 2),
                      "%s, written: %s", g->what, key);
    }
    arena_free(&mem);
    tiny_file_free(&written);
}

static void convert_and_check(gguf_file *g, const json *root) {
    tfm_error err;
    tfm_model *m = NULL;
    tiny_file out_bytes = { NULL, 0, 0 };
    sink out = tiny_sink(&out_bytes);
    source src = source_memory(g->what, g->file.data, g->file.size);
    convert_options options;
    memset(&options, 0, sizeof options);
    options.warn = ignore_warning;
    int r = convert_file(&src, &out, &options, &err);
    if (!r) r = tfm_model_from_memory(out_bytes.data, out_bytes.size, NULL, &m, &err);
    check(!r, "%s as GGUF: %s", g->what, r ? err.msg : "");
    if (!r) check_logits(g, m);
    if (!r) check_to_gguf(g->what, m, NULL);
    if (!r) check_written(g, root, m);
    tfm_model_close(m);
    tiny_file_free(&out_bytes);
}

static void run_file(const char *folder, const char *families, const char *name) {
    reference ref;
    gguf_file g;
    tfm_error err;
    char path[600], *text = NULL;
    const char *of = name;
    size_t n = 0;
    arena mem = { NULL, 0, 0, 0 };
    memset(&g, 0, sizeof g);
    memset(&ref, 0, sizeof ref);
    snprintf(path, sizeof path, "%s/%s.json", folder, name);
    int r = read_whole(path, 1 << 20, &text, &n, &err);
    const json *root = r ? NULL : json_parse(path, arena_strndup(&mem, text, n), n, &mem, &err);
    free(text);
    if (json_get(root, "of")) r = json_string(root, "of", &of, &err) || read_reference(&ref, families, of, &err);
    else r = !root || read_reference(&ref, folder, name, &err);
    g.ref = &ref;
    g.what = name;
    if (!r) r = build(&g, root, &err);
    check(!r, "%s: %s", path, r ? err.msg : "");
    if (!r) convert_and_check(&g, root);
    tiny_file_free(&g.info);
    tiny_file_free(&g.data);
    tiny_file_free(&g.file);
    arena_free(&ref.mem);
    arena_free(&mem);
}

void test_gguf_families(void) {
    static char names[MAX_REFERENCES][64];
    char folder[512], families[512];
    snprintf(folder, sizeof folder, "%s/ref/gguf", test_data());
    snprintf(families, sizeof families, "%s/ref/families", test_data());
    const size_t n = list_references(folder, names, MAX_REFERENCES);
    for (size_t i = 0; i < n; i++) run_file(folder, families, names[i]);
}
