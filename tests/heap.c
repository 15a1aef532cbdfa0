/* heap.c - see heap.h. Counters are atomic: threads may allocate. */
#include "heap.h"

#include <stdlib.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t count, size_t n);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t count, size_t n);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);

static struct { long calls, failed, live, fail_at; int for_good, asked; } heap;

void heap_start(long fail_at, int for_good) {
    heap.calls = heap.failed = 0;
    heap.fail_at = fail_at;
    heap.for_good = for_good;
    heap.asked = 1;
}

long heap_calls(void) { return heap.calls; }
long heap_failed(void) { return heap.failed; }
long heap_live(void) { return heap.live; }

/* Whether this call is to fail. */
static int fails(void) {
    if (!heap.asked) {
        const char *n = getenv("TFM_FAIL_ALLOC");
        heap_start(n ? atol(n) : 0, 0);
    }
    const long call = __atomic_add_fetch(&heap.calls, 1, __ATOMIC_RELAXED);
    const int bad = heap.fail_at && (call == heap.fail_at || (heap.for_good && call > heap.fail_at));
    if (bad) __atomic_add_fetch(&heap.failed, 1, __ATOMIC_RELAXED);
    return bad;
}

static void *made(void *p) {
    if (p) __atomic_add_fetch(&heap.live, 1, __ATOMIC_RELAXED);
    return p;
}

void *__wrap_malloc(size_t n) { return fails() ? NULL : made(__real_malloc(n)); }
void *__wrap_calloc(size_t count, size_t n) { return fails() ? NULL : made(__real_calloc(count, n)); }

void *__wrap_realloc(void *p, size_t n) {
    if (fails()) return NULL;
    return p ? __real_realloc(p, n) : made(__real_realloc(p, n));
}

void __wrap_free(void *p) {
    if (p) __atomic_sub_fetch(&heap.live, 1, __ATOMIC_RELAXED);
    __real_free(p);
}
