/* malloc.h - see string.h beside it; the compiler's own header of intrinsics wants it. */
#pragma once
#include <stdlib.h>
#ifdef __cplusplus
extern "C" {
#endif
void *_aligned_malloc(size_t n, size_t align);
void _aligned_free(void *p);
#ifdef __cplusplus
}
#endif
