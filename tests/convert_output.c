/* convert_output.c - see convert_output.h */
#include <stdlib.h>
#include <string.h>

#include "convert_output.h"
#include "tools/write_gguf.h"

enum { ROOM = 4 << 20 };

static int output_write(void *user, uint64_t offset, const void *buf, size_t n) {
    output *o = user;
    if (offset > ROOM || n > ROOM - offset) return -1;
    memcpy(o->bytes + offset, buf, n);
    if (offset + n > o->size) o->size = (size_t)offset + n;
    return 0;
}

static void output_warn(void *user, const char *line) {
    output *o = user;
    size_t n = strlen(o->warning);
    snprintf(o->warning + n, sizeof o->warning - n, "%s\n", line);
}

void output_start(output *o) {
    memset(o, 0, sizeof *o);
    o->room = calloc(1, ROOM + 64);
    if (!o->room) exit(1);
    o->bytes = o->room + (64 - (uintptr_t)o->room % 64);
}

void output_end(output *o) {
    tfm_model_close(o->model);
    free(o->room);
}

sink output_sink(output *o) {
    sink s = {o, output_write};
    return s;
}

convert_options output_options(output *o) {
    convert_options options;
    memset(&options, 0, sizeof options);
    options.user = o;
    options.warn = output_warn;
    return options;
}

int output_open(output *o, int code) {
    if (!code) code = tfm_model_from_memory(o->bytes, o->size, NULL, &o->model, &o->err);
    if (!code) code = tfm_model_verify(o->model, &o->err);
    return code;
}

void output_use(output *o, int code, const char *what) {
    const int32_t ids[2] = {0, 1};
    tfm_session_config cfg;
    tfm_session *s;
    size_t bytes;
    if (code) {
        check(o->err.msg[0] && !strchr(o->err.msg, '\n'), "%s: an error without a line", what);
        return;
    }
    memset(&cfg, 0, sizeof cfg);
    cfg.size = sizeof cfg;
    cfg.n_ctx = 4;
    cfg.n_batch = 2;
    if (tfm_session_size(o->model, &cfg, &bytes, NULL) || bytes > 1 << 24 || tfm_session_new(o->model, &cfg, &s, NULL))
        return;
    tfm_eval(s, ids, tfm_model_config_of(o->model)->n_vocab > 1 ? 2 : 1, NULL);
    tfm_session_free(s);
}

void put_le(unsigned char *to, size_t *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) to[(*at)++] = (unsigned char)(value >> (8 * i));
}

void put_f32(unsigned char *to, size_t *at, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_le(to, at, bits, 4);
}

int output_convert(output *o, const void *bytes, size_t n) {
    source src = source_memory("file", bytes, n);
    sink out = output_sink(o);
    convert_options options = output_options(o);
    return output_open(o, convert_file(&src, &out, &options, &o->err));
}

/* The tensor of an identity; data NULL: there is none. */
static tfm_tensor same_tensor(const tfm_model *m, const tfm_weight *of) {
    const tfm_tensor none = {NULL, 0, 0, 0, 0};
    tfm_weight w;
    for (int64_t i = 0; tfm_model_weight(m, i, &w); i++)
        if (w.layer == of->layer && w.role == of->role && w.expert == of->expert) return w.t;
    return none;
}

/* Every tensor of a in b, bit for bit. */
static void check_same_weights(const char *what, const tfm_model *a, const tfm_model *b) {
    tfm_weight w;
    for (int64_t i = 0; tfm_model_weight(a, i, &w); i++) {
        const tfm_tensor t = same_tensor(b, &w);
        const size_t n = tfm_tensor_bytes(w.t.type, w.t.layout, w.t.rows, w.t.cols);
        check(t.data && t.type == w.t.type && t.rows == w.t.rows && t.cols == w.t.cols && !memcmp(t.data, w.t.data, n),
              "%s: %s of layer %d differs", what, tfm_role_name(w.role), (int)w.layer);
    }
    check(tfm_model_weight_count(a) == tfm_model_weight_count(b), "%s: tensors", what);
}

static void check_same_description(const char *what, const tfm_model *a, const tfm_model *b) {
    static unsigned char x[65536], y[65536];
    const size_t n = tfm_config_encode(tfm_model_config_of(a), x, sizeof x);
    const size_t m = tfm_config_encode(tfm_model_config_of(b), y, sizeof y);
    check(n == m && n <= sizeof x && !memcmp(x, y, n), "%s: the description differs", what);
}

void check_to_gguf(const char *what, const tfm_model *m, const char *error) {
    output gguf, again;
    output_start(&gguf);
    output_start(&again);
    sink out = output_sink(&gguf);
    convert_options options = output_options(&gguf);
    int code = write_gguf(m, "model.tfm", &out, &options, &gguf.err);
    if (error) {
        check(code && strstr(gguf.err.msg, error), "%s: %d \"%s\"", what, code, code ? gguf.err.msg : "");
    } else {
        check(!code, "%s: %s", what, code ? gguf.err.msg : "");
        const char *end = strchr(gguf.warning, '\n');
        check(code || (strstr(gguf.warning, "lacks name, author and licence") && end && !end[1]),
              "%s: what is lost, in one notice: %s", what, gguf.warning);
        if (!code) code = output_convert(&again, gguf.bytes, gguf.size);
        check(!code, "%s, read again: %s", what, code ? again.err.msg : "");
        if (!code) check_same_weights(what, m, again.model);
        if (!code) check_same_description(what, m, again.model);
    }
    output_end(&gguf);
    output_end(&again);
}
