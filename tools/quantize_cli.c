/* quantize_cli.c - see quantize_cli.h */
#include "quantize_cli.h"

#include <string.h>

static int read_importance(quantize_setup *s, const char *path, tfm_error *err) {
    source src;
    int code = source_open_file(&src, path, err);
    if (code) return code;
    code = imatrix_read(&s->matrix, &src, &s->mem, err);
    source_close_file(&src);
    s->importance = &s->matrix;
    return code;
}

int quantize_setup_open(quantize_setup *s, const quantize_options *o, tfm_error *err) {
    memset(s, 0, sizeof *s);
    s->mix = mix_find(o->types[o->type]);
    s->threads.n = o->n_threads ? (int)o->n_threads : cpu_count();
    if (s->threads.n > 1) s->pool = pool_new(s->threads.n);
    if (s->threads.n > 1 && !s->pool) return tool_fail(err, TFM_ERR_MEMORY, "cannot start %d threads", s->threads.n);
    s->threads.hook.user = s->pool;
    s->threads.hook.run = pool_run;
    return o->imatrix_path ? read_importance(s, o->imatrix_path, err) : TFM_OK;
}

const char *quantize_options_wrong(const quantize_options *o) {
    const mix *m = mix_find(o->types[o->type]);
    if (!o->imatrix_path || (m && tfm_type_get(m->type)->block > 1)) return NULL;
    return "--imatrix needs a --type that quantises";
}

void quantize_setup_close(quantize_setup *s) {
    pool_free(s->pool);
    arena_free(&s->mem);
}
