/* libc.c - the little of a C library that tfm.h needs where there is none: memory in one growing linear memory,
 * bytes, a little mathematics. tfm_convert_wasm.c has the rest that the converter needs.
 *
 * Not for several threads at once: the pool's threads run kernels, which allocate nothing.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- MEMORY ------------------------------------------------------------------------------------------------------
 * Blocks in the order of their addresses, each behind a header of 64 bytes; the free ones are in a list, neighbours in
 * it are joined. A model, a session and a few buffers: first fit is good enough. Memory only ever grows, so what is
 * freed here is used again and never given back. */

typedef struct block {
    size_t size;        /* bytes with the header, a multiple of 64 */
    struct block *next; /* of the free list */
} block;

enum { HEADER = 64, PAGE = 65536 };

extern unsigned char __heap_base;
static block *free_list;
static uintptr_t heap_end; /* all below is in a block */

/* Bytes there are: 65536 pages are 2^32, which a size_t of 32 bits cannot say, so the last page stays unused. */
static uintptr_t memory_bytes(void) {
    const uintptr_t pages = __builtin_wasm_memory_size(0);
    return sizeof(uintptr_t) == 4 && pages > 65535 ? (uintptr_t)65535 * PAGE : pages * PAGE;
}

/* A new block at the end. */
static block *extend(size_t size) {
    if (!heap_end) heap_end = ((uintptr_t)&__heap_base + 63) & ~(uintptr_t)63;
    const uintptr_t have = memory_bytes();
    if (size > UINTPTR_MAX - heap_end) return NULL;
    if (heap_end + size > have) {
        const uintptr_t pages = (heap_end + size - have - 1) / PAGE + 1;
        if (sizeof(uintptr_t) == 4 && pages > 65535 - have / PAGE) return NULL;
        if (__builtin_wasm_memory_grow(0, pages) == (uintptr_t)-1) return NULL;
    }
    block *b = (block *)heap_end;
    heap_end += size;
    b->size = size;
    return b;
}

void *malloc(size_t n) {
    if (n > SIZE_MAX - 2 * HEADER) return NULL;
    const size_t size = ((n ? n : 1) + HEADER + 63) & ~(size_t)63;
    block **at = &free_list;
    while (*at && (*at)->size < size) at = &(*at)->next;
    block *b = *at;
    if (!b) {
        b = extend(size);
        return b ? (char *)b + HEADER : NULL;
    }
    *at = b->next;
    if (b->size - size > HEADER) {
        block *rest = (block *)((char *)b + size);
        rest->size = b->size - size;
        rest->next = *at;
        *at = rest;
        b->size = size;
    }
    return (char *)b + HEADER;
}

/* Joins b with its right neighbour if that is free and touches it. */
static void join(block *b) {
    block *right = b->next;
    if (!right || (char *)b + b->size != (char *)right) return;
    b->size += right->size;
    b->next = right->next;
}

void free(void *p) {
    if (!p) return;
    block *b = (block *)((char *)p - HEADER), *left = NULL, **at = &free_list;
    while (*at && *at < b) left = *at, at = &(*at)->next;
    b->next = *at;
    *at = b;
    join(b);
    if (left) join(left);
    /* a free end is no block: the next, larger one can begin there */
    for (at = &free_list; *at && (*at)->next; at = &(*at)->next) continue;
    if (*at && (uintptr_t)*at + (*at)->size == heap_end) {
        heap_end = (uintptr_t)*at;
        *at = NULL;
    }
}

void *calloc(size_t count, size_t size) {
    if (size && count > SIZE_MAX / size) return NULL;
    void *p = malloc(count * size);
    return p ? memset(p, 0, count * size) : NULL;
}

/* The last block grows in place, so a model of unknown size is never copied. */
static int grow_last(block *b, size_t n) {
    if ((uintptr_t)b + b->size != heap_end || n > SIZE_MAX - 2 * HEADER) return 0;
    const size_t more = ((n + HEADER + 63) & ~(size_t)63) - b->size, size = b->size;
    if (!extend(more)) return 0;
    b->size = size + more;
    return 1;
}

void *realloc(void *p, size_t n) {
    const size_t had = p ? ((block *)((char *)p - HEADER))->size - HEADER : 0;
    if (p && (n <= had || grow_last((block *)((char *)p - HEADER), n))) return p;
    void *to = malloc(n);
    if (!to) return NULL;
    if (p) memcpy(to, p, had < n ? had : n);
    free(p);
    return to;
}

/* ---- BYTES -------------------------------------------------------------------------------------------------------
 * Loops that the compiler must not turn into calls of themselves. */

#ifdef __wasm_bulk_memory__
void *memcpy(void *to, const void *from, size_t n) { return __builtin_memcpy(to, from, n); }
void *memmove(void *to, const void *from, size_t n) { return __builtin_memmove(to, from, n); }
void *memset(void *to, int byte, size_t n) { return __builtin_memset(to, byte, n); }
#else
void *memcpy(void *to, const void *from, size_t n) { return memmove(to, from, n); }

void *memmove(void *to, const void *from, size_t n) {
    unsigned char *d = to;
    const unsigned char *s = from;
    if (d < s || d >= s + n) {
        for (; n >= 8; n -= 8, d += 8, s += 8) *(uint64_t *)(void *)d = *(const uint64_t *)(const void *)s;
        while (n--) *d++ = *s++;
    } else {
        while (n--) d[n] = s[n];
    }
    return to;
}

void *memset(void *to, int byte, size_t n) {
    unsigned char *d = to;
    while (n--) *d++ = (unsigned char)byte;
    return to;
}
#endif

int memcmp(const void *a, const void *b, size_t n) {
    const unsigned char *x = a, *y = b;
    for (; n; n--, x++, y++) if (*x != *y) return *x - *y;
    return 0;
}

void *memchr(const void *p, int byte, size_t n) {
    const unsigned char *s = p;
    for (; n; n--, s++) if (*s == (unsigned char)byte) return (void *)(uintptr_t)s;
    return NULL;
}

size_t strlen(const char *s) {
    size_t n = 0;
    while (s[n]) n++;
    return n;
}

int strncmp(const char *a, const char *b, size_t n) {
    for (; n; n--, a++, b++) {
        const unsigned char x = (unsigned char)*a, y = (unsigned char)*b;
        if (x != y || !x) return x - y;
    }
    return 0;
}
int strcmp(const char *a, const char *b) { return strncmp(a, b, SIZE_MAX); }

char *strchr(const char *s, int c) {
    for (; *s != (char)c; s++) if (!*s) return NULL;
    return (char *)(uintptr_t)s;
}

char *strrchr(const char *s, int c) {
    const char *last = NULL;
    do { if (*s == (char)c) last = s; } while (*s++);
    return (char *)(uintptr_t)last;
}

char *strstr(const char *s, const char *part) {
    const size_t n = strlen(part);
    for (; ; s++) {
        if (!strncmp(s, part, n)) return (char *)(uintptr_t)s;
        if (!*s) return NULL;
    }
}

/* ---- MATHEMATICS -------------------------------------------------------------------------------------------------
 * In double, a few ulp: used for numbers of the description (RoPE frequencies, scales), rounded to float afterwards. */

typedef union number { double d; uint64_t u; } number;

static double power_of_two(int n) { /* -1022 ... 1023 */
    number r;
    r.u = (uint64_t)(n + 1023) << 52;
    return r.d;
}

/* x = k ln 2 + r with |r| <= ln 2 / 2, and the series of e^r. */
double exp(double x) {
    if (x != x || x > 709.79) return x > 0 ? HUGE_VAL : x;
    if (x < -745.2) return 0;
    const int k = (int)(x * 1.4426950408889634 + (x < 0 ? -0.5 : 0.5));
    const double r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
    double sum = 1;
    for (int i = 14; i > 0; i--) sum = 1 + sum * r / i;
    return sum * power_of_two(k / 2) * power_of_two(k - k / 2);
}

/* x = 2^k m with m around 1, ln m = 2 artanh((m - 1) / (m + 1)) as a series. */
double log(double x) {
    number m;
    int k = 0;
    m.d = x;
    if (!(x > 0)) return x == 0 ? -HUGE_VAL : NAN;
    if (x == HUGE_VAL) return x;
    if (m.u >> 52 == 0) m.d *= power_of_two(54), k -= 54;
    k += (int)(m.u >> 52) - 1023;
    m.u = (m.u & 0xfffffffffffffu) | (uint64_t)1023 << 52;
    if (m.d > 1.4142135623730951) m.d *= 0.5, k++;
    const double f = (m.d - 1) / (m.d + 1), z = f * f;
    double sum = 1.0 / 25;
    for (int i = 23; i > 0; i -= 2) sum = 1.0 / i + z * sum;
    return k * 6.93147180369123816490e-01 + (k * 1.90821492927058770002e-10 + 2 * f * sum);
}

double log1p(double x) {
    const double u = 1 + x;
    return u == 1 ? x : log(u) * (x / (u - 1)); /* the quotient repairs what 1 + x lost */
}

double pow(double x, double y) { return y == 0 ? 1 : exp(y * log(x)); }

float expm1f(float x) {
    const double d = (double)x;
    return d > -1e-5 && d < 1e-5 ? (float)(d + d * d / 2) : (float)(exp(d) - 1);
}
