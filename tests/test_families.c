/* test_families.c - every file of tests/ref/families (see tests/ref_families.py) becomes a Hugging Face directory, the
 * directory a .tfm file, and the file must answer as transformers does.
 *
 * Exact mode is held to the recorded tolerance. What has to be the same bits - cut prompts, any number of threads, any
 * hook - is compared with memcmp.
 */
#define _POSIX_C_SOURCE 200809L /* opendir */
#define _FILE_OFFSET_BITS 64 /* 32-bit systems cannot list a folder of large numbers without */

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "reference.h"
#include "tools/isa.h"
#include "tools/convert.h"
#include "tools/write_gguf.h"
#include "tools/pool.h"


/* How far quantised weights and activations may be from the float reference: root of the mean squared difference, as a
 * part of the reference's root mean square. Weights of noise carry errors far; the worst model has 0.08. */
#define FAST_BOUND 0.1

/* With a router, such an error may choose another expert: the whole row is another one then. The worst has 0.21. */
#define FAST_BOUND_ROUTED 0.3

/* ---- READING --------------------------------------------------------------------------------------------------- */

static int path_of(char *path, size_t size, const char *dir, const char *name, const char *ending) {
    return (size_t)snprintf(path, size, "%s/%s%s", dir, name, ending) < size;
}

/* The bytes from the brace at `text` to the one that closes it. */
static size_t object_bytes(const char *text) {
    int depth = 0, in_string = 0;
    for (size_t i = 0; text[i]; i++) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\' && text[i + 1]) i++;
            else if (c == '"') in_string = 0;
        } else if (c == '"') {
            in_string = 1;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && --depth == 0) {
            return i + 1;
        }
    }
    return 0;
}

static int64_t read_ids(const json *list, int32_t *ids, int64_t room) {
    int64_t n = (int64_t)json_count(list), id = 0;
    if (n > room) return 0;
    for (int64_t i = 0; i < n; i++) {
        if (json_as_int(json_at(list, (size_t)i), &id, NULL)) return 0;
        ids[i] = (int32_t)id;
    }
    return n;
}

static int read_logits(reference *ref, const char *folder, tfm_error *err) {
    const char *file;
    char path[512], *bytes = NULL;
    size_t n = 0;
    const size_t count = (size_t)ref->n_ids * (size_t)ref->n_vocab;
    if (json_string(ref->root, "logits", &file, err)) return -1;
    if (!path_of(path, sizeof path, folder, file, "") || read_whole(path, 1 << 24, &bytes, &n, err)) return -1;
    if (n != 4 * count) {
        free(bytes);
        return tool_fail(err, -1, "%s: %zu bytes, not %zu", path, n, 4 * count);
    }
    ref->logits = (float *)arena_array(&ref->mem, count, sizeof(float));
    for (size_t i = 0; i < count; i++) ref->logits[i] = load_f32(bytes + 4 * i);
    free(bytes);
    return 0;
}

int read_reference(reference *ref, const char *folder, const char *name, tfm_error *err) {
    char path[512], *text = NULL, *copy;
    const char *config;
    int64_t n_vocab = 0;
    double tolerance = 0, max_ref = 0;
    size_t n = 0;
    memset(ref, 0, sizeof *ref);
    snprintf(ref->name, sizeof ref->name, "%s", name);
    if (!path_of(path, sizeof path, folder, name, ".json") || read_whole(path, 1 << 20, &text, &n, err)) return -1;
    copy = arena_strndup(&ref->mem, text, n);
    free(text);
    ref->root = json_parse(path, copy, n, &ref->mem, err);
    if (!ref->root || json_array(ref->root, "tensors", &ref->tensors, err) ||
        json_int(ref->root, "n_vocab", &n_vocab, err) || json_real(ref->root, "tolerance", &tolerance, err) ||
        json_real(ref->root, "max_ref", &max_ref, err))
        return -1;
    ref->n_vocab = (int32_t)n_vocab;
    ref->tolerance = (float)tolerance;
    ref->max_ref = (float)max_ref;
    ref->n_ids = read_ids(json_get(ref->root, "ids"), ref->ids, MAX_IDS);
    ref->n_greedy = read_ids(json_get(ref->root, "greedy"), ref->ids + ref->n_ids, MAX_IDS - ref->n_ids);
    if (json_get(ref->root, "keys")) return read_logits(ref, folder, err); /* a GGUF file: no config.json */
    config = strstr(copy, "\"config\": {");
    if (!config || !ref->n_ids || !ref->n_greedy) return tool_fail(err, -1, "%s: config, ids or greedy missing", path);
    ref->config = config + strlen("\"config\": ");
    ref->config_bytes = object_bytes(ref->config);
    return read_logits(ref, folder, err);
}

/* ---- WRITING THE CHECKPOINT ------------------------------------------------------------------------------------ */

static int write_file(const char *dir, const char *name, const void *data, size_t n) {
    char path[512];
    FILE *f = path_of(path, sizeof path, dir, name, "") ? file_open(path, "wb") : NULL;
    int ok = f && fwrite(data, 1, n, f) == n;
    if (f && fclose(f)) ok = 0;
    check(ok, "%s/%s cannot be written", dir, name);
    return ok ? 0 : -1;
}

static size_t element_bytes(const char *dtype) { return !strcmp(dtype, "U8") ? 1 : strcmp(dtype, "F32") ? 2 : 4; }

static void store(unsigned char *out, float x, const char *dtype) {
    uint32_t u;
    if (!strcmp(dtype, "U8")) u = (uint32_t)x;
    else if (!strcmp(dtype, "F32")) memcpy(&u, &x, 4);
    else u = !strcmp(dtype, "BF16") ? tiny_bf16(x) : tiny_f16(x);
    for (size_t i = 0; i < element_bytes(dtype); i++) out[i] = (unsigned char)(u >> 8 * i);
}

int read_row(const json *row, tensor_row *t, tfm_error *err) {
    int64_t dim = 0;
    t->shape = json_at(row, 1);
    t->count = 1;
    for (size_t i = 0; i < json_count(t->shape); i++) {
        if (json_as_int(json_at(t->shape, i), &dim, err)) return -1;
        t->count *= (size_t)dim;
    }
    return json_as_string(json_at(row, 0), &t->name, err) || json_as_string(json_at(row, 2), &t->dtype, err) ||
           json_as_int(json_at(row, 3), &t->e, err) || json_as_real(json_at(row, 4), &t->offset, err);
}

/* Tensors [first, first + n) as one safetensors file. */
static int write_safetensors(const reference *ref, const char *dir, const char *file, size_t first, size_t n,
                             tfm_error *err) {
    tiny_file out = { NULL, 0, 0 }, data = { NULL, 0, 0 };
    sink header = tiny_sink(&out), body = tiny_sink(&data);
    unsigned char length[8] = { 0 };
    char text[512];
    int r = 0, len;
    header.write_at(header.user, 0, length, 8);
    for (size_t i = first; !r && i < first + n; i++) {
        tensor_row t;
        if ((r = read_row(json_at(ref->tensors, i), &t, err)) != 0) break;
        const size_t width = element_bytes(t.dtype), at = data.size;
        float *values = (float *)tiny_alloc(t.count * sizeof(float));
        unsigned char *bytes = (unsigned char *)tiny_alloc(t.count * width);
        if (strcmp(t.dtype, "U8")) tiny_fill(values, t.count, t.name, (int)t.e, (float)t.offset);
        else tiny_fill_bytes(values, t.count, t.name, (int)t.e, (float)t.offset);
        for (size_t k = 0; k < t.count; k++) store(bytes + k * width, values[k], t.dtype);
        body.write_at(body.user, at, bytes, t.count * width);
        len = snprintf(text, sizeof text, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i == first ? "{" : ",", t.name,
                       t.dtype);
        for (size_t k = 0; k < json_count(t.shape); k++)
            len += snprintf(text + len, sizeof text - (size_t)len, "%s%s", k ? "," : "", json_at(t.shape, k)->u.text);
        len += snprintf(text + len, sizeof text - (size_t)len, "],\"data_offsets\":[%zu,%zu]}", at, data.size);
        header.write_at(header.user, out.size, text, (size_t)len);
        tiny_free(values);
        tiny_free(bytes);
    }
    header.write_at(header.user, out.size, "}", 1);
    for (int i = 0; i < 8; i++) out.data[i] = (unsigned char)((uint64_t)(out.size - 8) >> 8 * i);
    header.write_at(header.user, out.size, data.data, data.size);
    if (!r) r = write_file(dir, file, out.data, out.size);
    tiny_file_free(&out);
    tiny_file_free(&data);
    return r;
}

/* The shards, and the index that says where each tensor is. */
static int write_shards(reference *ref, const char *dir, const json *files, tfm_error *err) {
    const char *map = "";
    size_t first = 0;
    for (size_t i = 0; i < json_count(files); i++) {
        const char *file;
        int64_t n = 0;
        if (json_as_string(json_at(json_at(files, i), 0), &file, err) ||
            json_as_int(json_at(json_at(files, i), 1), &n, err) ||
            write_safetensors(ref, dir, file, first, (size_t)n, err))
            return -1;
        for (size_t k = first; k < first + (size_t)n; k++)
            map = arena_printf(&ref->mem, "%s%s\n\"%s\": \"%s\"", map, *map ? "," : "",
                               json_at(json_at(ref->tensors, k), 0)->u.text, file);
        first += (size_t)n;
    }
    map = arena_printf(&ref->mem, "{\"metadata\": {}, \"weight_map\": {%s\n}}\n", map);
    return write_file(dir, "model.safetensors.index.json", map, strlen(map));
}

static int write_checkpoint(reference *ref, const char *dir, tfm_error *err) {
    const json *files = json_get(ref->root, "files");
    if (make_directory(dir, err) || write_file(dir, "config.json", ref->config, ref->config_bytes)) return -1;
    if (json_get(ref->root, "generation_config")) {
        const char *text = strstr(ref->config, "\"generation_config\": {") + strlen("\"generation_config\": ");
        if (write_file(dir, "generation_config.json", text, object_bytes(text))) return -1;
    }
    if (files) return write_shards(ref, dir, files, err);
    return write_safetensors(ref, dir, "model.safetensors", 0, json_count(ref->tensors), err);
}

/* ---- CONVERSION ------------------------------------------------------------------------------------------------ */

static void ignore_warning(void *user, const char *line) {
    (void)user;
    (void)line; /* these directories have no tokenizer, and some a vision tower */
}

static int convert(const char *dir, sink *out, const char *type, tfm_error *err) {
    convert_options options;
    source_dir from;
    int r;
    memset(&options, 0, sizeof options);
    options.mix = mix_find(type);
    options.warn = ignore_warning;
    if ((r = dir_open_local(&from, dir, err)) != 0) return r;
    r = convert_directory(&from, out, &options, err);
    dir_close_local(&from);
    return r;
}

/* The directory as a file on the disk, every tensor as it is; NULL after a failed check. */
static tfm_model *open_exact(const reference *ref, const char *dir) {
    tfm_model *m = NULL;
    tfm_error err;
    char path[512];
    sink out;
    int r = path_of(path, sizeof path, test_dir(), ref->name, ".tfm") ? sink_open_file(&out, path, &err) : -1;
    check(!r, "%s: %s", ref->name, r ? err.msg : "");
    if (r) return NULL;
    r = convert(dir, &out, "source", &err);
    if (!r) r = sink_commit(&out, &err);
    sink_discard(&out);
    check(!r, "%s: conversion: %s", ref->name, r ? err.msg : "");
    if (r) return NULL;
    r = tfm_model_open(path, NULL, &m, &err);
    check(!r, "%s: %s", ref->name, r ? err.msg : "");
    check(r || !tfm_model_verify(m, &err), "%s: a fresh file does not verify", ref->name);
    return m;
}

/* With Q8_0 matrices, in memory. */
static tfm_model *open_fast(const reference *ref, const char *dir, tiny_file *file) {
    tfm_model *m = NULL;
    tfm_error err;
    sink out = tiny_sink(file);
    int r = convert(dir, &out, "q8_0", &err);
    if (!r) r = tfm_model_from_memory(file->data, file->size, NULL, &m, &err);
    check(!r, "%s as q8_0: %s", ref->name, r ? err.msg : "");
    return m;
}

/* ---- CHECKS ---------------------------------------------------------------------------------------------------- */

/* One run of the prompt in another setting than the plain one. */
typedef struct variant {
    const reference *ref;
    const tfm_model *m;
    const float *plain; /* the logits of the plain run */
    float *out;
} variant;

static void check_same_bits(const variant *v, const tfm_session_config *cfg, const char *what) {
    char label[128];
    snprintf(label, sizeof label, "%s %s", v->ref->name, what);
    if (tiny_logits(v->m, cfg, v->ref->ids, v->ref->n_ids, v->out, label))
        check(!memcmp(v->out, v->plain, (size_t)v->ref->n_ids * (size_t)v->ref->n_vocab * sizeof(float)),
              "%s gives other bits (up to %g)", label,
              (double)tiny_max_diff(v->out, v->plain, (size_t)v->ref->n_ids * (size_t)v->ref->n_vocab));
}

static void check_chunks(const variant *v, tfm_session_config cfg) {
    static const int32_t sizes[] = { 1, 3, 16 };
    char what[32];
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        cfg.n_batch = sizes[i];
        snprintf(what, sizeof what, "in chunks of %d", (int)sizes[i]);
        check_same_bits(v, &cfg, what);
    }
}

/* Where only the last row is wanted, the last layer leaves the others out once their keys and values are stored: all
   but one id, then that one, which reads what they left. */
static void check_last(const variant *v, tfm_session_config cfg) {
    const int32_t n = (int32_t)v->ref->n_ids, sizes[] = { n, 3 };
    cfg.want = TFM_WANT_LAST;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        tfm_session *s;
        tfm_error err;
        cfg.n_batch = sizes[i];
        int r = tfm_session_new(v->m, &cfg, &s, &err);
        check(!r, "%s: no session: %s", v->ref->name, r ? err.msg : "");
        if (r) return;
        for (int32_t at = 0, step = n - 1; !r && at < n; at += step, step = 1) {
            r = tfm_eval(s, v->ref->ids + at, step, &err);
            check(!r, "%s, the last row: %s", v->ref->name, r ? err.msg : "");
            if (!r)
                check(!memcmp(tfm_logits(s, 0), v->plain + (int64_t)(at + step - 1) * v->ref->n_vocab,
                              (size_t)v->ref->n_vocab * 4),
                      "%s: the last of %d rows has other bits in chunks of %d", v->ref->name, (int)(at + step),
                      (int)sizes[i]);
        }
        tfm_session_free(s);
    }
}

/* The work in as many parts as counts say, up to a 0: run by this thread in reverse, and by a pool. */
static void check_threads(const variant *v, tfm_session_config cfg, const int32_t *counts) {
    char what[48];
    for (size_t i = 0; counts[i]; i++) {
        pool *p = pool_new(counts[i]);
        cfg.n_threads = counts[i];
        cfg.parallel.user = NULL;
        cfg.parallel.run = tiny_backwards;
        snprintf(what, sizeof what, "in %d parts", (int)counts[i]);
        check_same_bits(v, &cfg, what);
        check(p != NULL, "no pool of %d threads", (int)counts[i]);
        if (!p) return;
        cfg.parallel.user = p;
        cfg.parallel.run = pool_run;
        snprintf(what, sizeof what, "on %d threads", (int)counts[i]);
        check_same_bits(v, &cfg, what);
        pool_free(p);
    }
}

static int has_router(const tfm_model *m) {
    const tfm_config *c = tfm_model_config_of(m);
    for (int i = 0; i < c->n_blocks; i++)
        if (c->blocks[i].ffn_kind == TFM_FFN_EXPERTS) return 1;
    return 0;
}

/* Every instruction set against the reference: by the largest difference in exact mode, by the mean in fast mode. */
static void check_isas(const variant *v, tfm_session_config cfg) {
    const size_t n = (size_t)v->ref->n_ids * (size_t)v->ref->n_vocab;
    const int exact = cfg.act == TFM_ACT_MODE_F32;
    const double bound = exact ? (double)v->ref->tolerance : has_router(v->m) ? FAST_BOUND_ROUTED : FAST_BOUND;
    for (int i = 0; tfm_isa_list(i); i++) {
        char label[128];
        cfg.isa = tfm_isa_list(i);
        if (!isa_works(cfg.isa)) continue;
        snprintf(label, sizeof label, "%s by %s", v->ref->name, tfm_isa_name(cfg.isa));
        if (!tiny_logits(v->m, &cfg, v->ref->ids, v->ref->n_ids, v->out, label)) continue;
        const double off = exact ? (double)tiny_max_diff(v->out, v->ref->logits, n)
                                 : tiny_mean_diff(v->out, v->ref->logits, n);
        check(off <= bound, "%s, %s mode: off by %g, allowed %g", label, exact ? "exact" : "fast", off, bound);
    }
}

static void check_greedy(const reference *ref, const tfm_model *m) {
    const int64_t total = ref->n_ids + ref->n_greedy;
    tfm_session_config cfg = tiny_exact((int32_t)total, (int32_t)ref->n_ids);
    tfm_session *s;
    tfm_error err;
    cfg.want = TFM_WANT_LAST;
    int r = tfm_session_new(m, &cfg, &s, &err);
    check(!r, "%s: no session: %s", ref->name, r ? err.msg : "");
    if (r) return;
    r = tfm_eval(s, ref->ids, ref->n_ids, &err);
    for (int64_t i = ref->n_ids; !r && i < total; i++) {
        const int id = tiny_argmax(tfm_logits(s, 0), ref->n_vocab);
        check(id == ref->ids[i],
              "%s: greedy id %d is %d, not %d", ref->name, (int)(i - ref->n_ids), id, (int)ref->ids[i]);
        if (id != ref->ids[i]) break;
        r = tfm_eval(s, ref->ids + i, 1, &err);
    }
    check(!r, "%s: greedy: %s", ref->name, r ? err.msg : "");
    tfm_session_free(s);
}

static void check_exact(const reference *ref, const tfm_model *m, float *plain, float *out) {
    const size_t n = (size_t)ref->n_ids * (size_t)ref->n_vocab;
    const tfm_session_config cfg = tiny_exact((int32_t)ref->n_ids, (int32_t)ref->n_ids);
    static const int32_t threads[] = { 2, 3, 4, 7, 0 };
    variant v;
    v.ref = ref;
    v.m = m;
    v.plain = plain;
    v.out = out;
    check(tfm_model_config_of(m)->n_vocab == ref->n_vocab, "%s: n_vocab is not %d", ref->name, (int)ref->n_vocab);
    if (tfm_model_config_of(m)->n_vocab != ref->n_vocab ||
        !tiny_logits(m, &cfg, ref->ids, ref->n_ids, plain, ref->name))
        return;
    check(tiny_max_diff(plain, ref->logits, n) <= ref->tolerance,
          "%s: off by %g, allowed %g (largest logit %g)", ref->name,
          (double)tiny_max_diff(plain, ref->logits, n), (double)ref->tolerance, (double)ref->max_ref);
    check_chunks(&v, cfg);
    check_last(&v, cfg);
    check_threads(&v, cfg, threads);
    check_isas(&v, cfg);
    check_greedy(ref, m);
}

static void check_fast(const reference *ref, const tfm_model *m, float *plain, float *out) {
    tfm_session_config cfg = tiny_exact((int32_t)ref->n_ids, (int32_t)ref->n_ids);
    static const int32_t threads[] = { 3, 0 };
    variant v;
    v.ref = ref;
    v.m = m;
    v.plain = plain;
    v.out = out;
    cfg.kv = TFM_KV_F16;
    cfg.act = TFM_ACT_MODE_Q8;
    if (!tiny_logits(m, &cfg, ref->ids, ref->n_ids, plain, ref->name)) return;
    check_isas(&v, cfg);
    check_chunks(&v, cfg);
    check_last(&v, cfg);
    check_threads(&v, cfg, threads);
}

enum { SAID_IN_GGUF = 108 }; /* so many of the models at least */

/* As a GGUF file and back, if some architecture says the model: it must be the same. Returns whether one does. */
static int check_as_gguf(const reference *ref, const tfm_model *m, float *out) {
    const size_t n = (size_t)ref->n_ids * (size_t)ref->n_vocab;
    const tfm_session_config cfg = tiny_exact((int32_t)ref->n_ids, (int32_t)ref->n_ids);
    tiny_file gguf = { NULL, 0, 0 }, file = { NULL, 0, 0 };
    sink to_gguf = tiny_sink(&gguf), to_file = tiny_sink(&file);
    tfm_model *again = NULL;
    convert_options options;
    tfm_error err;
    memset(&options, 0, sizeof options);
    options.warn = ignore_warning;
    if (write_gguf(m, ref->name, &to_gguf, &options, &err)) {
        tiny_file_free(&gguf);
        return 0;
    }
    source src = source_memory(ref->name, gguf.data, gguf.size);
    int r = convert_file(&src, &to_file, &options, &err);
    if (!r) r = tfm_model_from_memory(file.data, file.size, NULL, &again, &err);
    check(!r, "%s, as GGUF and back: %s", ref->name, r ? err.msg : "");
    if (!r && tiny_logits(again, &cfg, ref->ids, ref->n_ids, out, ref->name))
        check(tiny_max_diff(out, ref->logits, n) <= ref->tolerance, "%s, as GGUF and back: off by %g", ref->name,
              (double)tiny_max_diff(out, ref->logits, n));
    tfm_model_close(again);
    tiny_file_free(&gguf);
    tiny_file_free(&file);
    return 1;
}

/* Returns whether GGUF says it, too. */
static int run_reference(const char *folder, const char *name) {
    reference ref;
    tfm_error err;
    char dir[512];
    tiny_file file = { NULL, 0, 0 };
    int said = 0;
    int r = read_reference(&ref, folder, name, &err);
    if (!r && !path_of(dir, sizeof dir, test_dir(), name, "")) r = tool_fail(&err, -1, "the path is too long");
    if (!r) r = write_checkpoint(&ref, dir, &err);
    check(!r, "%s: %s", name, r ? err.msg : "");
    if (!r) {
        const size_t n = (size_t)ref.n_ids * (size_t)ref.n_vocab;
        float *plain = (float *)arena_array(&ref.mem, n, sizeof(float));
        float *out = (float *)arena_array(&ref.mem, n, sizeof(float));
        tfm_model *m = open_exact(&ref, dir);
        if (m) check_exact(&ref, m, plain, out);
        if (m) said = check_as_gguf(&ref, m, out);
        tfm_model_close(m);
        m = open_fast(&ref, dir, &file);
        if (m) check_fast(&ref, m, plain, out);
        tfm_model_close(m);
        tiny_file_free(&file);
    }
    arena_free(&ref.mem);
    return said;
}

static int by_name(const void *a, const void *b) { return strcmp((const char *)a, (const char *)b); }

size_t list_references(const char *folder, char (*names)[64], size_t room) {
    size_t n = 0;
    const struct dirent *e;
    DIR *d = opendir(folder);
    check(d != NULL, "%s cannot be read", folder);
    if (!d) return 0;
    while ((e = readdir(d)) != NULL) {
        const size_t length = strlen(e->d_name);
        if (length < 6 || length >= sizeof names[0] || strcmp(e->d_name + length - 5, ".json")) continue;
        check(n < room, "%s: too many files", folder);
        if (n < room) snprintf(names[n++], sizeof names[0], "%.*s", (int)(length - 5), e->d_name);
    }
    closedir(d);
    check(n > 0, "%s is empty", folder);
    qsort(names, n, sizeof names[0], by_name);
    return n;
}

void test_families(void) {
    static char names[MAX_REFERENCES][64];
    char folder[512];
    path_of(folder, sizeof folder, test_data(), "ref/families", "");
    const size_t n = list_references(folder, names, MAX_REFERENCES);
    int said = 0;
    for (size_t i = 0; i < n; i++) said += run_reference(folder, names[i]);
    check(said >= SAID_IN_GGUF, "only %d models can be written as GGUF", said);
}
