/* strips.h - rows of a matrix become strips of 16 rows of another type, on several threads: the step that
 * tfm-convert and tfm-quantize share.
 */
#ifndef TOOLS_STRIPS_H
#define TOOLS_STRIPS_H

#include "base.h"

enum { STRIP = 16 };

/* Threads to work with; the zero value is the caller's alone. */
typedef struct strip_threads {
    tfm_parallel hook;
    int n;
} strip_threads;

typedef struct strip_job {
    int32_t from, to;        /* types */
    int64_t n_rows, cols;
    const char *rows;        /* in the source's form, `stride` bytes apart, */
    size_t stride;
    const tfm_tensor *tiled; /* or, if rows is NULL, those of a tiled matrix */
    int64_t first;           /* from this row on, a multiple of 16 */
    const float *importance; /* [cols] or NULL; see quantize.h */
    char *out;               /* [strips][tfm_strip_bytes(to, cols)] */
    char *work;              /* strip_work_bytes(), both aligned to 64 */
} strip_job;

size_t strip_work_bytes(int32_t from, int64_t cols, const strip_threads *threads);
int strips_convert(const strip_job *job, const strip_threads *threads);
/* Why it failed, for messages. */
const char *strip_error(int code, int32_t to);

/* n bytes aligned to 64 in an arena; NULL if there are none. */
void *strip_memory(arena *mem, size_t n);

#endif
