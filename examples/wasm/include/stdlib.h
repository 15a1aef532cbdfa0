/* What tfm.h and tools/ need of a C library where there is none; see ../libc.c. */
#ifndef WASM_STDLIB_H
#define WASM_STDLIB_H
#include <stddef.h>
void *malloc(size_t n); /* aligned to 64 bytes, as models and sessions want it */
void *calloc(size_t count, size_t size);
void *realloc(void *p, size_t n);
void free(void *p);
#endif
