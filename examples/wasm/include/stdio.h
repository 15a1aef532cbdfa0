/* What tools/ need of a C library where there is none; see ../convert_libc.c. */
#ifndef WASM_STDIO_H
#define WASM_STDIO_H
#include <stdarg.h>
#include <stddef.h>
typedef struct FILE FILE;
#define EOF (-1)
#define stderr ((FILE *)0)
int snprintf(char *out, size_t size, const char *format, ...);
int vsnprintf(char *out, size_t size, const char *format, va_list args);
#endif
