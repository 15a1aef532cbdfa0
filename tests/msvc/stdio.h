/* stdio.h - see string.h beside it. */
#pragma once
#include <stddef.h>
#define SEEK_SET 0
#define SEEK_END 2
typedef struct FILE FILE;
#ifdef __cplusplus
extern "C" {
#endif
__declspec(deprecated("C4996")) FILE *_wfopen(const wchar_t *path, const wchar_t *mode);
int fclose(FILE *f);
size_t fread(void *buf, size_t size, size_t n, FILE *f);
int _fseeki64(FILE *f, __int64 offset, int from);
__int64 _ftelli64(FILE *f);
int printf(const char *format, ...);
#ifdef __cplusplus
}
#endif
