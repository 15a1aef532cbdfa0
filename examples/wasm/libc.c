/* libc.c - the little of a C library that tfm.h needs where there is none: memory in one growing linear memory,
 * and bytes.
 *
 * Not for several threads at once: the pool's threads run kernels, which allocate nothing.
 */
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

#undef memcpy
#undef memmove
#undef memset
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

/* ---- ARITHMETIC --------------------------------------------------------------------------------------------------
 * With addresses of 64 bits the compiler checks products for overflow by this function of its runtime library. */

#if UINTPTR_MAX > 0xffffffffu
__extension__ typedef __int128 wide;
__extension__ typedef unsigned __int128 uwide;
wide __multi3(wide a, wide b);
wide __multi3(wide a, wide b) {
    const uint64_t mask = 0xffffffffu, al = (uint64_t)a, bl = (uint64_t)b;
    const uint64_t a0 = al & mask, a1 = al >> 32, b0 = bl & mask, b1 = bl >> 32;
    const uint64_t low = a0 * b0, middle = a1 * b0 + (low >> 32), cross = a0 * b1 + (middle & mask);
    const uint64_t high = a1 * b1 + (middle >> 32) + (cross >> 32) + (uint64_t)((uwide)a >> 64) * bl +
                          al * (uint64_t)((uwide)b >> 64);
    return (wide)((uwide)high << 64 | (cross << 32 | (low & mask)));
}
#endif
