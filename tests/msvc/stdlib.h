/* stdlib.h - see string.h beside it. */
#pragma once
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
void *malloc(size_t n);
void free(void *p);
#ifdef __cplusplus
}
#endif
