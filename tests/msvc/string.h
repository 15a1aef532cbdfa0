/* string.h - what tfm.h takes of the C library on Windows, so that clang can check it as that compiler's dialect. */
#pragma once
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
void *memcpy(void *to, const void *from, size_t n);
void *memmove(void *to, const void *from, size_t n);
void *memset(void *to, int c, size_t n);
int memcmp(const void *a, const void *b, size_t n);
#ifdef __cplusplus
const void *memchr(const void *s, int c, size_t n);
#else
void *memchr(const void *s, int c, size_t n);
#endif
size_t strlen(const char *s);
int strcmp(const char *a, const char *b);
#ifdef __cplusplus
}
#endif
