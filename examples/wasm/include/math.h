/* What tfm.h and tools/ need of a C library where there is none; see ../libc.c. The first four are instructions. */
#ifndef WASM_MATH_H
#define WASM_MATH_H
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VAL __builtin_inf()
#define isfinite(x) __builtin_isfinite(x)
#define isnan(x) __builtin_isnan(x)
#define isinf(x) __builtin_isinf(x)
#define sqrt(x) __builtin_sqrt(x)
#define sqrtf(x) __builtin_sqrtf(x)
#define floor(x) __builtin_floor(x)
#define ceil(x) __builtin_ceil(x)
#define fabs(x) __builtin_fabs(x)
double exp(double x);
double log(double x);
double log1p(double x);
double pow(double x, double y);
float expm1f(float x);
#endif
