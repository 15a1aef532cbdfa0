/* bench_kernels - how fast each matmul kernel is, beside what the processor could do.
 *
 *     bench_kernels [--isa NAME] [--blas LIBRARY] [ROWS COLUMNS TOKENS]
 *
 * One thread. For every weight type: GOP/s (two operations a product) of a prompt of TOKENS and of one token, and the
 * bytes of weights that one token reads a second. Beside them the peaks that this program measures in loops that touch
 * no memory: products of bytes alone; with what a block of 32 inputs takes besides (the sum times the scale of the
 * activations, a multiply-add with the scale of the weights: 2 operations, and one for the minima of sub-blocks; AVX2
 * also converts the sum), which no kernel of this arithmetic can exceed; float32 multiply-adds. --blas: sgemm of that
 * OpenBLAS (a path for dlopen; symbol cblas_sgemm) on the same shape and thread; OPENBLAS_CORETYPE=Haswell holds it to
 * AVX2.
 *
 * Each figure is the best of many runs, so that a busy machine disturbs it little; an idle one is better. */
#include "tfm.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- PEAKS: twelve chains, since an operation takes 4 or 5 cycles and two begin in each -------------------------- */

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define LOOPS 3000000
#define CHAINS(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11)
#define ZERO_512(i) __m512i a##i = _mm512_set1_epi32(i);
#define ZERO_256(i) __m256i a##i = _mm256_set1_epi32(i);
#define VNNI_512(i) a##i = _mm512_dpbusd_epi32(a##i, x, y); __asm__ volatile("" : "+v"(a##i));
#define MADD_512(i) f##i = _mm512_fmadd_ps(f##i, x, y); __asm__ volatile("" : "+v"(f##i));
#define MADD_256(i) f##i = _mm256_fmadd_ps(f##i, x, y); __asm__ volatile("" : "+x"(f##i));
/* AVX2 has no product of four bytes with a sum of 32 bits: two products, their sum in 16 bits, widened, added. */
#define BYTE_256(i) \
    a##i = _mm256_add_epi32(a##i, _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), one)); \
    __asm__ volatile("" : "+x"(a##i), "+x"(x));
#define FZERO_512(i) __m512 f##i = _mm512_set1_ps((float)i);
#define FZERO_256(i) __m256 f##i = _mm256_set1_ps((float)i);

__attribute__((target("avx512f,avx512vnni"))) static double bytes_512(void)
{
    __m512i x = _mm512_set1_epi8(3), y = _mm512_set1_epi8(2);
    CHAINS(ZERO_512)
    for (int i = 0; i < LOOPS; i++) { CHAINS(VNNI_512) }
    return 12.0 * LOOPS * 128;
}
__attribute__((target("avx512f"))) static double floats_512(void)
{
    __m512 x = _mm512_set1_ps(0.5f), y = _mm512_set1_ps(1.0f);
    CHAINS(FZERO_512)
    for (int i = 0; i < LOOPS; i++) { CHAINS(MADD_512) }
    return 12.0 * LOOPS * 32;
}
__attribute__((target("avx2"))) static double bytes_256(void)
{
    __m256i x = _mm256_set1_epi8(3), y = _mm256_set1_epi8(2), one = _mm256_set1_epi16(1);
    CHAINS(ZERO_256)
    for (int i = 0; i < LOOPS; i++) { CHAINS(BYTE_256) }
    return 12.0 * LOOPS * 64;
}
__attribute__((target("avx2,fma"))) static double floats_256(void)
{
    __m256 x = _mm256_set1_ps(0.5f), y = _mm256_set1_ps(1.0f);
    CHAINS(FZERO_256)
    for (int i = 0; i < LOOPS; i++) { CHAINS(MADD_256) }
    return 12.0 * LOOPS * 16;
}

/* A block of 32 inputs of 16 rows and one token, twelve at once: 8 steps of products, then `more` float operations. */
#define EIGHT(F) CHAINS(F) CHAINS(F) CHAINS(F) CHAINS(F) CHAINS(F) CHAINS(F) CHAINS(F) CHAINS(F)
#define FLOAT_512(i) f##i = _mm512_mul_ps(f##i, v); __asm__ volatile("" : "+v"(f##i));
#define BLOCK_512(name, products, more) \
    __attribute__((target("avx512f,avx512vnni"))) static double name(void) \
    { \
        const __m512i x = _mm512_set1_epi8(3), y = _mm512_set1_epi8(2); \
        __m512 v = _mm512_set1_ps(1.0f); \
        __m512i l = y; \
        __asm__("" : "+v"(v), "+v"(l)); /* who knows that it is 1 leaves the products out */ \
        CHAINS(ZERO_512) CHAINS(FZERO_512) \
        for (int i = 0; i < LOOPS / 8; i++) { products more } \
        return 12.0 * (LOOPS / 8) * 1024; \
    }
BLOCK_512(block_512, EIGHT(VNNI_512), CHAINS(FLOAT_512) CHAINS(FLOAT_512))
BLOCK_512(sub_block_512, EIGHT(VNNI_512), CHAINS(FLOAT_512) CHAINS(FLOAT_512) CHAINS(FLOAT_512))

/* The same for the two halves of 8 rows; sums of 16 bits have room for eight products of codes of 4 bits. */
#define PAIR_256(i) w##i = _mm256_maddubs_epi16(x, x); __asm__ volatile("" : "+x"(w##i));
#define MORE_256(i) t = _mm256_maddubs_epi16(x, x); __asm__ volatile("" : "+x"(t)); w##i = _mm256_add_epi16(w##i, t);
#define WIDE_256(i) a##i = _mm256_add_epi32(a##i, _mm256_madd_epi16(w##i, x)); __asm__ volatile("" : "+x"(a##i));
#define FLOAT_256(i) f##i = _mm256_mul_ps(f##i, v); __asm__ volatile("" : "+x"(f##i));
#define FOUR(F) F(0) F(1) F(2) F(3)
#define BLOCK_256(name, more) \
    __attribute__((target("avx2,fma"))) static double name(void) \
    { \
        const __m256i x = _mm256_set1_epi8(3); /* registers are few: one operand for all */ \
        __m256 v = _mm256_set1_ps(1.0f); \
        __m256i t, w0, w1, w2, w3; \
        __asm__("" : "+x"(v)); \
        FOUR(ZERO_256) FOUR(FZERO_256) \
        for (int i = 0; i < LOOPS / 8; i++) { \
            FOUR(PAIR_256) FOUR(MORE_256) FOUR(MORE_256) FOUR(MORE_256) FOUR(MORE_256) FOUR(MORE_256) FOUR(MORE_256) \
            FOUR(MORE_256) FOUR(WIDE_256) more \
        } \
        return 4.0 * (LOOPS / 8) * 512; \
    }
BLOCK_256(block_256, FOUR(FLOAT_256) FOUR(FLOAT_256) FOUR(FLOAT_256))
BLOCK_256(sub_block_256, FOUR(FLOAT_256) FOUR(FLOAT_256) FOUR(FLOAT_256) FOUR(FLOAT_256))

typedef double (*peak_fn)(void);
enum { PEAK_BYTES, PEAK_BLOCK, PEAK_SUB_BLOCK, PEAK_FLOATS };
static peak_fn peak_of(int isa, int of)
{
    static const peak_fn wide[] = { bytes_512, block_512, sub_block_512, floats_512 };
    static const peak_fn narrow[] = { bytes_256, block_256, sub_block_256, floats_256 };
    return isa == TFM_ISA_AVX512 ? wide[of] : isa == TFM_ISA_AVX2 ? narrow[of] : NULL;
}
#else
typedef double (*peak_fn)(void);
enum { PEAK_BYTES, PEAK_BLOCK, PEAK_SUB_BLOCK, PEAK_FLOATS };
static peak_fn peak_of(int isa, int of) { (void)isa, (void)of; return NULL; }
#endif

/* GOP/s, 0 where no loop is written for the instruction set. */
static double peak(int isa, int of)
{
    const peak_fn run = peak_of(isa, of);
    double best = 0;
    for (int i = 0; run && i < 5; i++) {
        const double start = now(), operations = run(), speed = operations / (now() - start) * 1e-9;
        best = speed > best ? speed : best;
    }
    return best;
}

/* ---- KERNELS ----------------------------------------------------------------------------------------------------- */

typedef struct bench {
    const tfm_kernels *k;
    int64_t rows, cols;
    int32_t n;
    float *x, *y;
    void *q8, *weights;
    float *values; /* of each row */
    uint8_t *source;
} bench;

static void *room(size_t bytes)
{
    void *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!p) exit(1);
    memset(p, 0, bytes);
    return p;
}

/* Seconds of the best run, n tokens. */
static double matmul_seconds(const bench *b, const tfm_tensor *w, int q8, int32_t n)
{
    tfm_matmul_args a;
    double best = 1e9, spent = 0;
    memset(&a, 0, sizeof a);
    a.w = w;
    a.x = q8 ? b->q8 : (const void *)b->x;
    a.x_stride = q8 ? tfm_q8_row_bytes(b->cols) : 4 * (size_t)b->cols;
    a.x_q8 = q8;
    a.n = n;
    a.y = b->y;
    a.y_stride = (size_t)b->rows;
    for (int i = 0; i < 5 || spent < 0.3; i++) {
        const double start = now();
        b->k->matmul(&a, 0, (b->rows + 15) / 16);
        const double seconds = now() - start;
        best = seconds < best ? seconds : best;
        spent += seconds;
    }
    return best;
}

/* Rows of the type that hold ordinary numbers: no subnormals, which are slow. */
static void source_of(const bench *b, int32_t type)
{
    const tfm_type_info *info = tfm_type_get(type);
    const size_t row = (size_t)(b->cols / info->block) * info->block_bytes;
    for (size_t i = 0; i < row; i++) b->source[i] = (uint8_t)((i * 131 >> 3) & 0x3b);
    for (int64_t i = 0; i < b->cols; i++) {
        const uint16_t half = (uint16_t)(0x3800 + i % 64), brain = (uint16_t)(0x3e80 + i % 64);
        if (type == TFM_F32) memcpy(b->source + 4 * i, &b->values[i], 4);
        if (type == TFM_F16) memcpy(b->source + 2 * i, &half, 2);
        if (type == TFM_BF16) memcpy(b->source + 2 * i, &brain, 2);
        if (type == TFM_MXFP4 && i % 32 == 0) b->source[17 * (i / 32)] = 120;
    }
    for (int64_t r = 1; r < b->rows; r++) memcpy(b->source + (size_t)r * row, b->source, row);
}

static void bench_type(bench *b, int32_t type, double byte_peak, double float_peak, double blas)
{
    const tfm_type_info *info = tfm_type_get(type);
    const int q8 = info->block > 1;
    tfm_tensor w = { NULL, 0, 0, 0, 0 };
    if (b->cols % info->block) return;
    source_of(b, type);
    if (tfm_pack(type, b->weights, type, b->source, b->rows, b->cols)) return;
    w.data = b->weights;
    w.type = type;
    w.layout = TFM_TILED;
    w.rows = b->rows;
    w.cols = b->cols;
    const double all = 2.0 * (double)b->rows * (double)b->cols;
    const double many = all * b->n / matmul_seconds(b, &w, q8, b->n) * 1e-9, seconds = matmul_seconds(b, &w, q8, 1);
    const double top = q8 ? byte_peak : float_peak;
    printf("%-8s %10.0f", info->name, many);
    if (top > 0) printf(" %7.0f %%", 100 * many / top);
    if (!q8 && blas > 0) printf(" (%.0f %% of sgemm)", 100 * many / blas);
    printf(" %10.0f %10.1f\n", all / seconds * 1e-9,
           (double)b->rows * (double)b->cols / info->block * info->block_bytes / seconds * 1e-9);
}

/* ---- SGEMM ------------------------------------------------------------------------------------------------------- */

typedef void (*sgemm_fn)(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                         const float *b, int ldb, float beta, float *c, int ldc);

/* y [n][rows] = x [n][cols] w [rows][cols]^T, as a matmul here. */
static double blas_speed(const bench *b, const char *path)
{
    void *library = dlopen(path, RTLD_NOW);
    sgemm_fn sgemm = NULL;
    void (*threads)(int) = NULL;
    double best = 1e9, spent = 0;
    if (library) *(void **)(&sgemm) = dlsym(library, "cblas_sgemm");
    if (library) *(void **)(&threads) = dlsym(library, "openblas_set_num_threads");
    if (!sgemm) return fprintf(stderr, "error: %s: no cblas_sgemm there\n", path), -1;
    if (threads) threads(1);
    float *w = (float *)room(4 * (size_t)(b->rows * b->cols));
    for (int64_t i = 0; i < b->rows * b->cols; i++) w[i] = (float)(i % 7) - 3;
    for (int i = 0; i < 5 || spent < 0.5; i++) {
        const double start = now();
        sgemm(101, 111, 112, b->n, (int)b->rows, (int)b->cols, 1.0f, b->x, (int)b->cols, w, (int)b->cols, 0.0f, b->y,
              (int)b->rows);
        const double seconds = now() - start;
        best = seconds < best ? seconds : best;
        spent += seconds;
    }
    free(w);
    return 2.0 * (double)b->rows * (double)b->cols * b->n / best * 1e-9;
}

int main(int argc, char **argv)
{
    static const int32_t types[] = { TFM_F32, TFM_F16, TFM_BF16, TFM_Q8_0, TFM_Q4_0, TFM_Q4_1, TFM_Q5_0, TFM_Q5_1,
                                     TFM_Q2_K, TFM_Q3_K, TFM_Q4_K, TFM_Q5_K, TFM_Q6_K, TFM_IQ4_NL, TFM_IQ4_XS,
                                     TFM_MXFP4 };
    const char *blas_path = NULL;
    int isa = TFM_ISA_AUTO, at = 1;
    bench b;
    double blas = 0;
    for (; at + 1 < argc && argv[at][0] == '-'; at += 2) {
        if (!strcmp(argv[at], "--blas")) blas_path = argv[at + 1];
        for (int i = TFM_ISA_SCALAR; !strcmp(argv[at], "--isa") && tfm_isa_name(i); i++)
            if (!strcmp(tfm_isa_name(i), argv[at + 1])) isa = i;
    }
    memset(&b, 0, sizeof b);
    b.k = tfm_kernels_for(isa);
    if (!b.k) return fprintf(stderr, "error: this machine does not have that instruction set\n"), 1;
    b.rows = at < argc ? atoll(argv[at]) : 1536;
    b.cols = at + 1 < argc ? atoll(argv[at + 1]) : 1536;
    b.n = at + 2 < argc ? atoi(argv[at + 2]) : 512;
    b.x = (float *)room(4 * (size_t)(b.cols * b.n));
    b.y = (float *)room(4 * (size_t)(b.rows * b.n));
    b.q8 = room(tfm_q8_row_bytes(b.cols) * (size_t)b.n);
    b.source = (uint8_t *)room(4 * (size_t)(b.rows * b.cols));
    b.weights = room(tfm_tensor_bytes(TFM_F32, TFM_TILED, b.rows, b.cols));
    for (int64_t i = 0; i < b.cols * b.n; i++) b.x[i] = (float)(i * 37 % 101 - 50) / 50;
    b.values = (float *)room(4 * (size_t)b.cols);
    for (int64_t i = 0; i < b.cols; i++) b.values[i] = (float)(i * 53 % 97 - 48) / 64;
    tfm_quantize_rows(b.q8, b.x, b.n, b.cols);
    if (blas_path && (blas = blas_speed(&b, blas_path)) < 0) return 1;
    const double byte_peak = peak(b.k->isa, PEAK_BYTES), float_peak = peak(b.k->isa, PEAK_FLOATS);
    printf("%s, one thread, %lld x %lld, %d tokens\n", b.k->name, (long long)b.rows, (long long)b.cols, (int)b.n);
    if (byte_peak > 0)
        printf("peaks: bytes %.0f GOP/s, with a scale a block %.0f, with a minimum, too, %.0f; float32 %.0f "
               "GFLOP/s\n", byte_peak, peak(b.k->isa, PEAK_BLOCK), peak(b.k->isa, PEAK_SUB_BLOCK), float_peak);
    if (blas > 0) printf("sgemm: %.0f GFLOP/s\n", blas);
    printf("%-8s %10s%s %10s %10s\n", "type", "GOP/s", byte_peak > 0 ? " of peak" : "", "1 token", "GB/s");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) bench_type(&b, types[i], byte_peak, float_peak, blas);
    return 0;
}
