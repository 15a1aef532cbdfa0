/* strips.c - see strips.h. A strip of one float type from another, or of the type it has, is packed as it is; anything
 * else passes through float32.
 */
#include "strips.h"

#include "quantize.h"

static size_t align64(size_t n) { return (n + 63) & ~(size_t)63; }

static int thread_count(const strip_threads *t) { return t->hook.run && t->n > 1 ? t->n : 1; }

/* A strip of the source's type and its values. */
static size_t thread_work_bytes(int32_t from, int64_t cols) {
    return align64(tfm_strip_bytes(from, cols)) + align64(STRIP * (size_t)cols * sizeof(float));
}

size_t strip_work_bytes(int32_t from, int64_t cols, const strip_threads *threads) {
    return (size_t)thread_count(threads) * thread_work_bytes(from, cols);
}

void *strip_memory(arena *mem, size_t n) {
    char *p = arena_alloc(mem, n + 63);
    return p ? p + ((64 - (uintptr_t)p % 64) & 63) : NULL;
}

/* Whether a strip of F16 holds an infinity or NaN. */
static int overflows_f16(const void *strip, int64_t cols) {
    const uint16_t *bits = strip;
    for (size_t i = 0; i < STRIP * (size_t)cols; i++)
        if ((bits[i] & 0x7c00) == 0x7c00) return 1;
    return 0;
}

/* Rows of floats as a strip of floats. */
static int pack_floats(int32_t to, void *out, int32_t from, const void *rows, size_t stride, int n, int64_t cols) {
    const int code = tfm_pack_strip(to, out, from, rows, stride, n, cols);
    return !code && to == TFM_F16 && from != TFM_F16 && overflows_f16(out, cols) ? TFM_ERR_NUMERIC : code;
}

/* The n rows of strip s as float32. */
static int read_values(const strip_job *j, int64_t s, int n, char *packed, float *values) {
    const char *rows = j->rows ? j->rows + (size_t)(STRIP * s) * j->stride : NULL;
    tfm_tensor strip = {packed, j->from, TFM_TILED, STRIP, j->cols};
    const int blocks = rows && tfm_type_get(j->from)->block > 1;
    const int code = blocks ? tfm_pack_strip(j->from, packed, j->from, rows, j->stride, n, j->cols) : TFM_OK;
    for (int r = 0; !code && r < n; r++) {
        tfm_tensor row = {rows ? rows + (size_t)r * j->stride : NULL, j->from, TFM_ROWS, 1, j->cols};
        if (blocks) tfm_tensor_row(&strip, r, values + r * j->cols);
        else if (rows) tfm_tensor_row(&row, 0, values + r * j->cols);
        else tfm_tensor_row(j->tiled, j->first + STRIP * s + r, values + r * j->cols);
    }
    return code;
}

static int convert_strip(const strip_job *j, int64_t s, char *work) {
    const int64_t left = j->n_rows - STRIP * s;
    const int n = (int)(left < STRIP ? left : STRIP), floats = tfm_type_get(j->from)->block == 1;
    const int to_floats = tfm_type_get(j->to)->block == 1;
    char *out = j->out + (size_t)s * tfm_strip_bytes(j->to, j->cols);
    float *values = (float *)(void *)(work + align64(tfm_strip_bytes(j->from, j->cols)));
    if (j->rows && (j->to == j->from || (floats && to_floats)))
        return pack_floats(j->to, out, j->from, j->rows + (size_t)(STRIP * s) * j->stride, j->stride, n, j->cols);
    const int code = read_values(j, s, n, work, values);
    if (code) return code;
    if (to_floats) return pack_floats(j->to, out, TFM_F32, values, (size_t)j->cols * sizeof *values, n, j->cols);
    return quantize_strip(j->to, out, values, n, j->cols, j->importance);
}

typedef struct strip_run {
    const strip_job *job;
    int n_threads;
    int codes[256]; /* of each thread */
} strip_run;

/* Thread i takes strips i, i + n_threads, ... */
static void run_thread(void *arg, int i) {
    strip_run *r = arg;
    const strip_job *j = r->job;
    char *work = j->work + (size_t)i * thread_work_bytes(j->from, j->cols);
    r->codes[i] = TFM_OK;
    for (int64_t s = i; STRIP * s < j->n_rows && !r->codes[i]; s += r->n_threads)
        r->codes[i] = convert_strip(j, s, work);
}

int strips_convert(const strip_job *job, const strip_threads *threads) {
    strip_run r;
    int code = TFM_OK;
    r.job = job;
    r.n_threads = thread_count(threads);
    if (r.n_threads > (int)(sizeof r.codes / sizeof *r.codes)) r.n_threads = (int)(sizeof r.codes / sizeof *r.codes);
    if (r.n_threads > 1) threads->hook.run(threads->hook.user, run_thread, &r, r.n_threads);
    else run_thread(&r, 0);
    for (int i = 0; !code && i < r.n_threads; i++) code = r.codes[i];
    return code;
}

const char *strip_error(int code, int32_t to) {
    if (code != TFM_ERR_NUMERIC) return "this change of type is not built";
    if (to == TFM_F16) return "a weight is too large for F16 (BF16 holds it)";
    return "a weight is infinite, not a number, or too large for this type";
}
