/* Kernels: every one, in every pass that this machine runs, against double precision, against the reference libraries
 * (tests/ref/kernels.h) and, where the bits are part of the contract, against the rule written out literally. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tfm.h"
#include "test.h"
#include "ref/kernels.h"
#ifdef TEST_KERNELS_ALONE
#define WORKS(isa) 1
#else
#include "tools/isa.h"
#define WORKS(isa) isa_works(isa)
#endif

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

/* --- helpers ------------------------------------------------------------------------------------------------------ */

/* The hash of tests/ref_kernels.py: 16 bits of (seed, index). */
static int hashed(uint32_t seed, uint32_t i) {
    uint32_t h = i * 2654435761u + seed * 40503u;
    h ^= h >> 15;
    h *= 0x85ebca6bu;
    h ^= h >> 13;
    return (int)(h >> 8 & 0xffff);
}
static float value(uint32_t seed, uint32_t i) { return (float)(hashed(seed, i) - 32768) / 8192.0f; }

static void fill(float *x, uint32_t seed, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = value(seed, (uint32_t)i);
}

/* Memory that lasts until the test ends, 64-byte aligned and offset by `skew` bytes. */
static struct { unsigned char *base; size_t used, size; } arena;

static void *take(size_t n, size_t skew) {
    if (!arena.base) {
        arena.size = (size_t)48 << 20;
        arena.base = malloc(arena.size);
        arena.used = (64 - ((uintptr_t)arena.base & 63)) & 63;
    }
    void *p = arena.base + arena.used + skew;
    arena.used = (arena.used + skew + n + 63 + 64) & ~(size_t)63;
    arena.used += (64 - ((uintptr_t)(arena.base + arena.used) & 63)) & 63;
    if (arena.used > arena.size) {
        fprintf(stderr, "test_kernels: arena too small\n");
        exit(1);
    }
    memset(p, 0x5a, n);
    return p;
}
static void release(void) { arena.used = (64 - ((uintptr_t)arena.base & 63)) & 63; }

static uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

static int same_bits(const float *a, const float *b, int64_t n) { return memcmp(a, b, 4 * (size_t)n) == 0; }

static int has_pass(int i) { return tfm_isa_list(i) != 0; }

static const tfm_kernels *pass(int i) {
    const int32_t isa = tfm_isa_list(i);
    return isa && WORKS(isa) ? tfm_kernels_for(isa) : NULL;
}
/* Whether madd rounds once: part of the contract. */
static int fuses(const tfm_kernels *k) {
    return k->isa != TFM_ISA_SCALAR && k->isa != TFM_ISA_WASM && k->isa != TFM_ISA_MVE;
}

/* Largest |a - b| against a double reference, in units of `scale`. */
static double error_of(const float *a, const double *ref, int n, double scale) {
    double worst = 0;
    for (int i = 0; i < n; i++) {
        double e = fabs((double)a[i] - ref[i]) / scale;
        if (!(e <= worst)) worst = e;
    }
    return worst;
}

/* --- formats ------------------------------------------------------------------------------------------------------ */

/* Bytes of the 16-bit scales in a source block, so that hashed blocks can be kept finite: offsets, -1 = none. */
typedef struct source { int32_t type; int halves[2]; } source;
static const source sources[] = {
    { TFM_Q8_0, { 0, -1 } }, { TFM_Q4_0, { 0, -1 } }, { TFM_Q5_0, { 0, -1 } }, { TFM_Q4_1, { 0, 2 } },
    { TFM_Q5_1, { 0, 2 } }, { TFM_Q2_K, { 80, 82 } }, { TFM_Q3_K, { 108, -1 } }, { TFM_Q4_K, { 0, 2 } },
    { TFM_Q5_K, { 0, 2 } }, { TFM_Q6_K, { 208, -1 } }, { TFM_IQ4_NL, { 0, -1 } }, { TFM_IQ4_XS, { 0, -1 } },
    { TFM_MXFP4, { -1, -1 } }
};

/* n source blocks of hashed bytes. */
static uint8_t *hashed_blocks(const source *s, uint32_t seed, int64_t n) {
    const tfm_type_info *info = tfm_type_get(s->type);
    uint8_t *p = take((size_t)(n * info->block_bytes), 0);
    for (int64_t i = 0; i < n * info->block_bytes; i++) p[i] = (uint8_t)(hashed(seed, (uint32_t)i) & 255);
    for (int64_t b = 0; b < n; b++) {
        for (int h = 0; h < 2; h++) if (s->halves[h] >= 0) p[b * info->block_bytes + s->halves[h] + 1] &= 0xbf;
        if (s->type == TFM_MXFP4) p[b * 17] = (uint8_t)(b < 2 ? b : p[b * 17] & 0xbf); /* the subnormal ones first */
    }
    return p;
}

static tfm_tensor packed(int32_t type, int32_t from, const void *src, int64_t rows, int64_t cols) {
    tfm_tensor t = { NULL, type, TFM_TILED, rows, cols };
    void *data = take(tfm_tensor_bytes(type, TFM_TILED, rows, cols), 0);
    check(tfm_pack(type, data, from, src, rows, cols) == TFM_OK, "pack type %d", type);
    t.data = data;
    return t;
}

static void test_format_values(void) {
    for (int i = 0; i < COUNT(sources); i++) {
        const tfm_type_info *info = tfm_type_get(sources[i].type);
        const int64_t cols = 2 * info->block;
        const uint8_t *blocks = hashed_blocks(&sources[i], 100 + (uint32_t)i, 8);
        const tfm_tensor t = packed(info->type, info->type, blocks, 4, cols);
        const size_t row_bytes = 2 * (size_t)info->block_bytes;
        uint8_t *back = take(row_bytes, 0);
        float *row = take(4 * (size_t)cols, 0);
        uint64_t hash = 0xcbf29ce484222325u;
        check(strcmp(info->name, ref_formats[i].type) == 0, "order of ref_formats at %s", info->name);
        for (int64_t r = 0; r < 4; r++) {
            tfm_tensor_row(&t, r, row);
            tfm_source_row(&t, r, back);
            check(!memcmp(back, blocks + (size_t)r * row_bytes, row_bytes),
                  "%s row %d does not come back", info->name, (int)r);
            for (int64_t c = 0; c < 4 * cols; c++) {
                hash = (hash ^ (bits_of(row[c / 4]) >> 8 * (c % 4) & 255)) * 0x100000001b3u;
            }
            for (int c = 0; r == 0 && c < 8; c++) {
                check(row[c] == (float)ref_formats[i].first[c], "%s value %d: %g", info->name, c, (double)row[c]);
            }
        }
        check(hash == ref_formats[i].hash, "%s differs from gguf-py", info->name);
        release();
    }
}

static void test_format_sizes(void) {
    for (int i = 0; i < COUNT(sources); i++) {
        const tfm_type_info *info = tfm_type_get(sources[i].type);
        const double tiled = (double)tfm_strip_bytes(info->type, 64 * info->block);
        const double flat = 16.0 * 64 * info->block_bytes;
        check(tiled <= 1.04 * flat, "%s tiles take %g times the source", info->name, tiled / flat);
        check(tfm_strip_bytes(info->type, info->block) % 64 == 0, "%s strip alignment", info->name);
        check(tfm_strip_bytes(info->type, info->block + 1) == 0, "%s cut block", info->name);
        check(tfm_tensor_bytes(info->type, TFM_ROWS, 4, info->block) == 0, "%s has no ROWS layout", info->name);
        check(!tfm_tensor_bytes(info->type, TFM_TILED, INT64_MAX / 2, INT64_MAX / 256 * 256), "%s size", info->name);
        check(tfm_type_find(info->name) == info, "%s by name", info->name);
    }
    check(tfm_type_find("q4_k") == tfm_type_get(TFM_Q4_K), "names of any case");
    check(tfm_type_get(TFM_MXFP4)->block_bytes == 17 && tfm_strip_bytes(TFM_MXFP4, 96) == 832, "MXFP4 strips");
    check(!tfm_type_find("Q4") && !tfm_type_find("") && !tfm_type_get(5), "unknown types");
    check(tfm_tensor_bytes(TFM_F16, TFM_TILED, 17, 3) == 2 * 128, "F16 strips are padded to 64 bytes");
    check(tfm_tensor_bytes(TFM_F32, TFM_ROWS, 3, 5) == 60, "F32 rows");
    check(!tfm_tensor_bytes(TFM_F32, TFM_ROWS, 0, 5) && !tfm_tensor_bytes(TFM_F32, TFM_TILED, 5, -1), "empty tensors");
}

/* Every f16 and bf16 converts to float32 and back to itself; floats round to nearest even; padding rows are zeros. */
static void test_format_floats(void) {
    static const int32_t halves[] = { TFM_F16, TFM_BF16 };
    uint16_t *all = take(65536 * 2, 0);
    float *wide = take(65536 * 4, 0);
    for (int i = 0; i < 65536; i++) all[i] = (uint16_t)i;
    for (int h = 0; h < 2; h++) {
        const tfm_tensor t = { all, halves[h], TFM_ROWS, 1, 65536 };
        tfm_tensor_row(&t, 0, wide);
        const tfm_tensor back = packed(halves[h], TFM_F32, wide, 1, 65536);
        int bad = 0;
        for (int i = 0; i < 65536; i++) {
            const uint16_t got = ((const uint16_t *)back.data)[16 * i];
            bad += wide[i] == wide[i] && got != i;
            bad += ((const uint16_t *)back.data)[16 * i + 7] != 0;
        }
        check(bad == 0, "type %d: %d values do not come back", halves[h], bad);
    }
    static const struct { float x; unsigned f16, bf16; } known[] = {
        { 1.0f, 0x3c00, 0x3f80 }, { 65504.0f, 0x7bff, 0x4780 }, { 65520.0f, 0x7c00, 0x4780 }, { 1e-8f, 0x0000, 0x322c },
        { 2.98023224e-8f, 0x0000, 0x3300 }, { 2.99e-8f, 0x0001, 0x3300 }, { 1.00048828125f, 0x3c00, 0x3f80 },
        { 1.00146484375f, 0x3c02, 0x3f80 }, { 1.01171875f, 0x3c0c, 0x3f82 }, { -6.1e-5f, 0x83ff, 0xb880 }
    };
    for (int i = 0; i < COUNT(known); i++) {
        const float v = known[i].x;
        const unsigned a = *(const uint16_t *)packed(TFM_F16, TFM_F32, &v, 1, 1).data;
        const unsigned b = *(const uint16_t *)packed(TFM_BF16, TFM_F32, &v, 1, 1).data;
        check(a == known[i].f16 && b == known[i].bf16, "%g is %04x in f16, %04x in bf16", (double)v, a, b);
    }
    float x[128], row[64];
    fill(x, 9, 128);
    const tfm_tensor q = packed(TFM_Q8_0, TFM_F32, x, 2, 64);
    for (int r = 0; r < 2; r++) {
        tfm_tensor_row(&q, r, row);
        for (int c = 0; c < 64; c++) check(row[c] == (float)ref_q8_0_of_floats[64 * r + c], "Q8_0 of floats %d", c);
    }
    check(tfm_pack_strip(TFM_Q4_0, x, TFM_F32, x, 0, 1, 32) == TFM_ERR_UNSUPPORTED, "F32 -> Q4_0 is not for tfm_pack");
    check(tfm_pack_strip(TFM_F32, x, TFM_Q8_0, x, 0, 1, 32) == TFM_ERR_UNSUPPORTED, "Q8_0 -> F32 is not for tfm_pack");
    check(tfm_pack_strip(TFM_Q8_0, x, TFM_F32, x, 0, 1, 33) == TFM_ERR_ARG, "cut block");
    release();
}

void test_kernel_formats(void) {
    test_format_values();
    test_format_sizes();
    test_format_floats();
}

/* --- matmul ------------------------------------------------------------------------------------------------------- */

/* A source block in integers: value of element i = d * scale[i / sub] * q[i] - m * minimum[i / sub] (types with one m
   per block: + m). Written from the formats' description, not from the library. */
typedef struct block { int q[256], scale[16], minimum[16]; float d, m; } block;

static float half_of(uint16_t h) {
    float x;
    const tfm_tensor t = { &h, TFM_F16, TFM_ROWS, 1, 1 };
    tfm_tensor_row(&t, 0, &x);
    return x;
}

/* In a source: little-endian, on every host. */
static float half_at(const uint8_t *p) { return half_of((uint16_t)(p[0] | p[1] << 8)); }

static void six_bit_scales(block *b, const uint8_t *s) {
    for (int i = 0; i < 8; i++) {
        b->scale[i] = i < 4 ? s[i] & 63 : (s[i + 4] & 15) | (s[i - 4] >> 6) << 4;
        b->minimum[i] = i < 4 ? s[i + 4] & 63 : s[i + 4] >> 4 | (s[i] >> 6) << 4;
    }
}

static void decode(block *b, int32_t type, const uint8_t *p) {
    static const int iq4[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };
    static const int e2m1[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };
    memset(b, 0, sizeof *b);
    const int five = type == TFM_Q5_0 || type == TFM_Q5_1, one = type == TFM_Q4_1 || type == TFM_Q5_1;
    for (int i = 0; i < 16; i++) b->scale[i] = 1;
    b->d = half_at(p);
    switch (type) {
    case TFM_Q8_0: for (int i = 0; i < 32; i++) b->q[i] = (int8_t)p[2 + i]; break;
    case TFM_Q4_0: case TFM_Q4_1: case TFM_Q5_0: case TFM_Q5_1:
        if (one) b->m = half_at(p + 2);
        p += one ? 4 : 2;
        for (int i = 0; i < 32; i++) {
            const uint8_t *low = p + (five ? 4 : 0);
            b->q[i] = i < 16 ? low[i] & 15 : low[i - 16] >> 4;
            if (five) b->q[i] |= (p[i / 8] >> i % 8 & 1) << 4;
            if (!one) b->q[i] -= five ? 16 : 8;
        }
        break;
    case TFM_Q2_K:
        b->d = half_at(p + 80), b->m = half_at(p + 82);
        for (int i = 0; i < 16; i++) b->scale[i] = p[i] & 15, b->minimum[i] = p[i] >> 4;
        for (int i = 0; i < 256; i++) b->q[i] = p[16 + i / 128 * 32 + i % 32] >> 2 * (i % 128 / 32) & 3;
        break;
    case TFM_Q3_K:
        b->d = half_at(p + 108);
        for (int i = 0; i < 16; i++) {
            b->scale[i] = ((p[96 + i % 8] >> 4 * (i / 8) & 15) | (p[104 + i % 4] >> 2 * (i / 4) & 3) << 4) - 32;
        }
        for (int i = 0; i < 256; i++) {
            b->q[i] = (p[32 + i / 128 * 32 + i % 32] >> 2 * (i % 128 / 32) & 3) - (p[i % 32] >> i / 32 & 1 ? 0 : 4);
        }
        break;
    case TFM_Q4_K: case TFM_Q5_K:
        b->m = half_at(p + 2);
        six_bit_scales(b, p + 4);
        for (int i = 0; i < 256; i++) {
            b->q[i] = p[(type == TFM_Q4_K ? 16 : 48) + i / 64 * 32 + i % 32] >> 4 * (i % 64 / 32) & 15;
            if (type == TFM_Q5_K) b->q[i] |= (p[16 + i % 32] >> i / 32 & 1) << 4;
        }
        break;
    case TFM_IQ4_NL: for (int i = 0; i < 32; i++) b->q[i] = iq4[p[2 + i % 16] >> i / 16 * 4 & 15]; break;
    case TFM_IQ4_XS:
        for (int i = 0; i < 8; i++) {
            b->scale[i] = ((p[4 + i / 2] >> i % 2 * 4 & 15) | ((p[2] | p[3] << 8) >> 2 * i & 3) << 4) - 32;
        }
        for (int i = 0; i < 256; i++) b->q[i] = iq4[p[8 + i / 32 * 16 + i % 16] >> i % 32 / 16 * 4 & 15];
        break;
    case TFM_MXFP4:
        b->d = ldexpf(1.0f, p[0] - 128);
        for (int i = 0; i < 32; i++) b->q[i] = e2m1[p[1 + i % 16] >> i / 16 * 4 & 15];
        break;
    default: /* Q6_K */
        b->d = half_at(p + 208);
        for (int i = 0; i < 16; i++) b->scale[i] = (int8_t)p[192 + i];
        for (int i = 0; i < 256; i++) {
            const int low = p[i / 128 * 64 + i % 64] >> 4 * (i % 128 / 64) & 15;
            b->q[i] = (low | (p[128 + i / 128 * 32 + i % 32] >> 2 * (i % 128 / 32) & 3) << 4) - 32;
        }
    }
}

/* acc + a * b, rounded once: some libraries' fmaf is not. The product is exact in double; where the sum is not, its
 * last bit is made odd, so that the second rounding cannot meet a tie that is none. */
static float madd_fused(float a, float b, float acc) {
    const double product = (double)a * (double)b, x = (double)acc;
    double sum = product + x;
    const double part = sum - product, rest = (product - (sum - part)) + (x - part);
    uint64_t bits;
    memcpy(&bits, &sum, 8);
    if (rest != 0 && !(bits & 1)) bits += (rest > 0) == (sum > 0) ? 1u : ~(uint64_t)0;
    memcpy(&sum, &bits, 8);
    return (float)sum;
}

/* The same, or rounded twice. */
static float madd(int fused, float a, float b, float acc) {
    if (fused) return madd_fused(a, b, acc);
    volatile float product = a * b;
    volatile float sum = acc + product;
    return sum;
}

/* A scale of activations has 22 bits. */
static float without_two_bits(float d) {
    uint32_t bits;
    memcpy(&bits, &d, 4);
    bits &= ~3u;
    memcpy(&d, &bits, 4);
    return d;
}

/* 32 inputs of a row of activations. */
typedef struct q8_record { int8_t q[32]; float d, zero, total; int16_t sums[2]; } q8_record;

/* One row times one q8 row: the manual's rule ("the same bits"), word for word. */
static float literal_q8(int fused, int32_t type, const uint8_t *row, const uint8_t *x, int64_t cols) {
    const tfm_type_info *info = tfm_type_get(type);
    const int k_type = info->block == 256, one = type == TFM_Q4_1 || type == TFM_Q5_1;
    const int four_five = type == TFM_Q4_K || type == TFM_Q5_K;
    const int sub = four_five || type == TFM_IQ4_XS ? 32 : 16;
    float acc = 0;
    block b;
    for (int64_t c = 0; c < cols; c += 32) {
        if (c % info->block == 0) decode(&b, type, row + c / info->block * info->block_bytes);
        const int at = (int)(c % info->block);
        const q8_record *r = (const q8_record *)(const void *)x + c / 32;
        const int halves = k_type && sub == 16 ? 2 : 1, s = k_type ? at / sub : 0;
        int64_t u = 0;
        for (int h = 0; h < halves; h++) {
            int64_t t = 0;
            for (int i = 32 / halves * h; i < 32 / halves * (h + 1); i++) {
                t += b.q[at + i] * r->q[i];
                u += b.minimum[s + h] * r->q[i];
            }
            acc = madd(fused, (float)t * r->d, b.d * (float)b.scale[s + h], acc);
        }
        if (one) acc = madd(fused, b.m, r->total, acc);
        if (four_five) acc = madd(fused, -b.m * (float)b.minimum[s], r->total, acc);
        if (type == TFM_Q2_K) acc = madd(fused, -(float)u * r->d, b.m, acc);
    }
    return acc;
}

enum { ROWS = 85, MAX_TOKENS = 20 };
static const int token_counts[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 19, 20 };

/* Every token count, a cut into strip ranges, scratch of several sizes: always `want`. */
static void check_matmul(const char *what, const tfm_kernels *k, tfm_matmul_args a, const float *want, int n_cases) {
    const int64_t rows = a.w->rows, strips = (rows + 15) / 16;
    float *y = take((size_t)(MAX_TOKENS * (rows + 3)) * 4, 4);
    void *scratch = take(80 << 10, 0);
    const size_t stride = a.x_stride;
    a.y = y;
    a.y_stride = (size_t)rows + 3;
    for (int i = 0; i < n_cases; i++) {
        a.n = n_cases == COUNT(token_counts) ? token_counts[i] : 1 + 18 * i;
        a.x_stride = a.n == 1 ? 0 : stride; /* of one row it is not looked at */
        a.scratch = i % 2 ? scratch : NULL;
        a.scratch_bytes = i % 4 == 1 ? 80 << 10 : 20 << 10;
        for (int64_t t = 0; t < a.n * (rows + 3); t++) y[t] = 12345.0f;
        const int64_t cut = i % (strips + 1);
        k->matmul(&a, cut, strips);
        k->matmul(&a, 0, cut);
        int bad = 0, outside = 0;
        for (int64_t t = 0; t < a.n; t++) {
            bad += !same_bits(y + t * (rows + 3), want + t * rows, rows);
            for (int j = 0; j < 3; j++) outside += y[t * (rows + 3) + rows + j] != 12345.0f;
        }
        check(bad == 0, "%s %s: %d of %d tokens differ from the rule", k->name, what, bad, a.n);
        check(outside == 0, "%s %s writes beyond its rows", k->name, what);
    }
}

/* `large` activations, and scales of one row beside others. */
static void matmul_q8(const tfm_kernels *k, const source *s, int64_t cols, int large) {
    const tfm_type_info *info = tfm_type_get(s->type);
    const int64_t blocks = cols / info->block;
    uint8_t *src = hashed_blocks(s, 7, ROWS * blocks);
    if (large) src[(ROWS - 1) * blocks * info->block_bytes + s->halves[0] + 1] = 0x7b;
    const tfm_tensor w = packed(s->type, s->type, src, ROWS, cols);
    const size_t stride = tfm_q8_row_bytes(cols);
    uint8_t *x = take(MAX_TOKENS * stride, 0);
    float *row = take(4 * (size_t)cols, 4), *want = take(4 * MAX_TOKENS * ROWS, 0), bias[ROWS];
    fill(bias, 3, ROWS);
    for (int t = 0; t < MAX_TOKENS; t++) {
        fill(row, 50 + (uint32_t)t, cols);
        if (large == 2) for (int64_t c = 0; c < cols; c++) row[c] *= 1e9f;
        k->quantize_row(x + (size_t)t * stride, row, cols);
        if (t == 1) { /* the largest sums */
            for (int64_t b = 0; b < cols / 32; b++) {
                q8_record *r = (q8_record *)(void *)(x + stride) + b;
                memset(r->q, 127, 32);
                r->total = r->d * (32 * 127);
                r->sums[0] = r->sums[1] = 16 * 127;
            }
        }
        for (int r = 0; r < ROWS; r++) {
            const uint8_t *wr = src + r * blocks * info->block_bytes, *xr = x + (size_t)t * stride;
            const float y = literal_q8(fuses(k), s->type, wr, xr, cols);
            want[t * ROWS + r] = y + bias[r];
        }
    }
    tfm_matmul_args a = { &w, bias, x, stride, 1, 0, NULL, 0, NULL, 0 };
    check_matmul(info->name, k, a, want, COUNT(token_counts));
    release();
}

/* Float32 activations: one chain over the dequantised values. */
static void matmul_f32(const tfm_kernels *k, const tfm_tensor *w, const char *what) {
    const int64_t cols = w->cols, rows = w->rows;
    float *x = take(4 * (size_t)(MAX_TOKENS * (cols + 1)), 4), *row = take(4 * (size_t)cols, 0);
    float *want = take(4 * (size_t)(MAX_TOKENS * rows), 0);
    fill(x, 60, MAX_TOKENS * (cols + 1));
    for (int64_t r = 0; r < rows; r++) {
        tfm_tensor_row(w, r, row);
        for (int64_t t = 0; t < MAX_TOKENS; t++) {
            float acc = 0;
            for (int64_t c = 0; c < cols; c++) acc = madd(fuses(k), row[c], x[t * (cols + 1) + c], acc);
            want[t * rows + r] = acc;
        }
    }
    tfm_matmul_args a = { w, NULL, x, 4 * (size_t)(cols + 1), 0, 0, NULL, 0, NULL, 0 };
    check_matmul(what, k, a, want, w->type == TFM_F32 ? COUNT(token_counts) : 2);
}

/* Float weights: tiles and rows hold the same numbers and give the same bits. */
static void matmul_floats(const tfm_kernels *k, int32_t type, int64_t cols) {
    const int64_t size = tfm_type_get(type)->block_bytes;
    float *src = take(4 * (size_t)(ROWS * cols), 4);
    uint8_t *flat = take((size_t)(size * ROWS * cols), 4);
    fill(src, 70, ROWS * cols);
    k->store_kv(flat, type, src, ROWS * cols);
    const tfm_tensor tiled = packed(type, TFM_F32, src, ROWS, cols), rows = { flat, type, TFM_ROWS, ROWS, cols };
    matmul_f32(k, &tiled, "float tiles");
    matmul_f32(k, &rows, "float rows");
    release();
}

/* More tokens than a tile has, and than a portion has of long rows: each as if it were alone. */
static void matmul_many(const tfm_kernels *k, const source *s, int64_t cols, int n) {
    enum { FEW_ROWS = 41 };
    const int64_t blocks = cols / tfm_type_get(s->type)->block;
    const tfm_tensor w = packed(s->type, s->type, hashed_blocks(s, 9, FEW_ROWS * blocks), FEW_ROWS, cols);
    const size_t stride = tfm_q8_row_bytes(cols);
    uint8_t *x = take((size_t)n * stride, 0);
    float *row = take(4 * (size_t)cols, 4), *y = take(4 * (size_t)n * FEW_ROWS, 4), one[FEW_ROWS];
    tfm_matmul_args a = { &w, NULL, x, stride, 1, n, y, FEW_ROWS, NULL, 0 };
    int bad = 0;
    for (int t = 0; t < n; t++) {
        fill(row, 200 + (uint32_t)t, cols);
        k->quantize_row(x + (size_t)t * stride, row, cols);
    }
    k->matmul(&a, 0, (FEW_ROWS + 15) / 16);
    a.n = 1;
    a.y = one;
    for (int t = 0; t < n; t++) {
        a.x = x + (size_t)t * stride;
        k->matmul(&a, 0, (FEW_ROWS + 15) / 16);
        bad += !same_bits(one, y + t * FEW_ROWS, FEW_ROWS);
    }
    check(bad == 0, "%s %s: of %d tokens of %d columns %d differ from themselves alone", k->name,
          tfm_type_get(s->type)->name, n, (int)cols, bad);
    release();
}

void test_kernel_matmul(void) {
    static const int32_t floats[] = { TFM_F32, TFM_F16, TFM_BF16 };
    static const int64_t widths[] = { 1, 77, 600 };
    for (int p = 0; has_pass(p); p++) {
        const tfm_kernels *k = pass(p);
        if (!k) {
            skip("this CPU cannot run %s", tfm_isa_name(tfm_isa_list(p)));
            continue;
        }
        for (int i = 0; i < COUNT(sources); i++) {
            const tfm_type_info *info = tfm_type_get(sources[i].type);
            const int64_t cols = info->block == 32 ? 320 : 512;
            matmul_q8(k, &sources[i], info->block == 32 ? 96 : 512, 0);
            for (int large = 1; large < 3 && sources[i].halves[0] == 0 && info->block == 32; large++)
                matmul_q8(k, &sources[i], 32, large);
            const uint8_t *blocks = hashed_blocks(&sources[i], 8, 33 * cols / info->block);
            const tfm_tensor w = packed(info->type, info->type, blocks, 33, cols);
            matmul_f32(k, &w, info->name);
            release();
        }
        for (int i = 0; i < COUNT(sources); i++) matmul_many(k, &sources[i], 256, 96 + 7 * i);
        matmul_many(k, &sources[1], 6144, 147); /* Q4_0 and Q6_K: a portion is 48 to 71 tokens */
        matmul_many(k, &sources[9], 6144, 147);
        for (int i = 0; i < 9; i++) matmul_floats(k, floats[i / 3], widths[i % 3]);
    }
}

/* --- quantised activations ---------------------------------------------------------------------------------------- */

void test_kernel_quantize(void) {
    enum { COLS = 1024 };
    const size_t bytes = tfm_q8_row_bytes(COLS);
    float *x = take(4 * COLS, 4);
    uint8_t *got = take(bytes, 0);
    for (int p = 0; has_pass(p); p++) {
        const tfm_kernels *k = pass(p);
        if (!k) continue;
        fill(x, 21, COLS);
        for (int i = 0; i < COLS; i++) x[i] *= ldexpf(1.0f, i / 32 * 4 - 80);
        memset(x + 32, 0, 4 * 32);
        x[64] = 1e-37f, memset(x + 65, 0, 4 * 31);
        x[100] = INFINITY, x[130] = NAN, x[170] = 3e38f;
        k->quantize_row(got, x, COLS);
        int bad = 0, sum = 0;
        for (int b = 0; b < COLS / 32; b++) {
            const q8_record *r = (const q8_record *)(const void *)got + b;
            float amax = 0;
            int nan = 0;
            for (int i = 0; i < 32; i++) amax = fmaxf(amax, fabsf(x[32 * b + i])), nan |= isnan(x[32 * b + i]);
            const int plain = !nan && amax <= 3.4e38f && amax >= 1.6e-36f;
            if (plain) bad += r->d != without_two_bits(amax / 127.0f) || r->zero != r->d * -12582912.0f;
            else if (nan || amax > 3.4e38f) bad += isfinite(r->d);
            else bad += r->d != 0;
            if (plain) bad += r->total != r->d * (float)(r->sums[0] + r->sums[1]);
            for (int i = 0; i < 32; i++) {
                volatile float v = plain ? x[32 * b + i] * (127.0f / amax) : 0;
                bad += r->q[i] != (int)rintf(v);
                sum += r->q[i];
                if (i % 16 == 15) bad += r->sums[i / 16] != sum, sum = 0;
            }
        }
        check(bad == 0, "%s: %d values of a q8 row are wrong", k->name, bad);
    }
    release();
}

/* --- vectors ------------------------------------------------------------------------------------------------------ */

static double act_of(double x, int act) {
    switch (act) {
    case TFM_ACT_RELU: return x > 0 ? x : 0;
    case TFM_ACT_RELU2: return x > 0 ? x * x : 0;
    case TFM_ACT_GELU_ERF: return 0.5 * x * (1 + erf(x * sqrt(0.5)));
    case TFM_ACT_GELU_TANH: return 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
    case TFM_ACT_GELU_QUICK: return x / (1 + exp(-1.702 * x));
    case TFM_ACT_SILU: return x / (1 + exp(-x));
    case TFM_ACT_SIGMOID: return 1 / (1 + exp(-x));
    default: return x;
    }
}

/* Activations over a wide range: error in units of 2^-24 max(|result|, min(|x|, 1) / 4). */
static void test_activations(const tfm_kernels *k) {
    enum { N = 3001 };
    float *x = take(4 * N, 4), *y = take(4 * N, 4), *up = take(4 * N, 4);
    fill(up, 33, N);
    for (int act = TFM_ACT_NONE; act <= TFM_ACT_SIGMOID; act++) {
        double worst = 0, product = 0;
        for (int i = 0; i < N; i++) x[i] = y[i] = (float)(i - 1500) * (float)(i - 1500) * (i < 1500 ? -5e-5f : 5e-5f);
        k->activate(y, act, N);
        for (int i = 0; i < N; i++) {
            const double ref = act_of((double)x[i], act), floor = 0.25 * fmin(fabs((double)x[i]), 1.0);
            const double unit = fmax(fabs(ref), floor) + 1e-30;
            worst = fmax(worst, fabs((double)y[i] - ref) / unit * 16777216.0);
        }
        check(worst <= 12, "%s: activation %d is off by %.1f ulp", k->name, act, worst);
        k->glu(x, x, up, act, N);
        for (int i = 0; i < N; i++) {
            const double ref = (double)y[i] * (double)up[i];
            product = fmax(product, fabs((double)x[i] - ref) / (fabs(ref) + 1));
        }
        check(product <= 6e-8, "%s: glu %d", k->name, act);
    }
    float special[3] = { INFINITY, -INFINITY, NAN };
    k->activate(special, TFM_ACT_SIGMOID, 3);
    check(special[0] == 1 && special[1] == 0 && isnan(special[2]), "%s: sigmoid of infinities and NaN", k->name);
    for (int i = 0; i < N; i++) x[i] = (float)(i - 1500) * 0.05f, y[i] = x[i];
    k->softcap(y, 30.0f, N);
    double worst = 0;
    for (int i = 0; i < N; i++) worst = fmax(worst, fabs((double)y[i] / (30 * tanh((double)x[i] / 30)) - 1));
    check(worst <= 6e-7, "%s: softcap is off by %g", k->name, worst);
}

static void test_reductions(const tfm_kernels *k) {
    static const int sizes[] = { 1, 2, 15, 16, 17, 31, 33, 576, 1000, 3001 };
    float *x = take(4 * 3001, 4), *w = take(4 * 3001, 4), *b = take(4 * 3001, 8), *y = take(4 * 3001, 12);
    float *z = take(4 * 3001, 4);
    double *ref = take(8 * 3001, 0);
    fill(w, 41, 3001);
    fill(b, 42, 3001);
    for (int s = 0; s < COUNT(sizes); s++) {
        const int n = sizes[s];
        double square = 0, mean = 0, var = 0, top = -1e30, total = 0;
        fill(x, 43, n);
        for (int i = 0; i < n; i++) {
            square += (double)x[i] * (double)x[i] / n;
            mean += (double)x[i] / n;
            top = fmax(top, (double)x[i]);
        }
        for (int i = 0; i < n; i++) {
            var += ((double)x[i] - mean) * ((double)x[i] - mean) / n;
            total += exp((double)x[i] - top);
        }
        for (int i = 0; i < n; i++) ref[i] = (double)x[i] / sqrt(square + 1e-6) * (1 + (double)w[i]);
        k->rmsnorm(y, x, w, 1.0f, 1e-6f, n);
        check(error_of(y, ref, n, 10) <= 4e-7, "%s: rmsnorm of %d", k->name, n);
        for (int i = 0; i < n; i++) ref[i] = (double)x[i] / sqrt(square + 1e-6);
        memcpy(y, x, 4 * (size_t)n);
        k->rmsnorm(y, y, NULL, 0.0f, 1e-6f, n);
        check(error_of(y, ref, n, 3) <= 4e-7, "%s: rmsnorm of %d without weight, in place", k->name, n);
        k->norm(TFM_NORM_RMS, y, x, w, b, 1.0f, 1e-6f, n);
        k->rmsnorm(z, x, w, 1.0f, 1e-6f, n);
        check(same_bits(y, z, n), "%s: norm RMS of %d is not rmsnorm", k->name, n);
        for (int i = 0; i < n; i++) ref[i] = (double)x[i] / sqrt(square * n + 0.5) * (1 + (double)w[i]);
        k->norm(TFM_NORM_L2, y, x, w, b, 1.0f, 0.5f, n);
        check(error_of(y, ref, n, 10) <= 4e-7, "%s: norm L2 of %d", k->name, n);
        for (int i = 0; i < n; i++) ref[i] = ((double)x[i] - mean) / sqrt(var + 1e-5) * (double)w[i] + (double)b[i];
        k->layernorm(y, x, w, b, 0.0f, 1e-5f, n);
        check(error_of(y, ref, n, 10) <= 1e-6, "%s: layernorm of %d", k->name, n);
        for (int i = 0; i < n; i++) ref[i] = exp((double)x[i] - top) / total;
        memcpy(y, x, 4 * (size_t)n);
        k->softmax(y, n);
        double worst = 0;
        for (int i = 0; i < n; i++) worst = fmax(worst, fabs((double)y[i] / ref[i] - 1));
        check(worst <= 6e-7, "%s: softmax of %d is off by %g", k->name, n, worst);
        const double lse = top + log(total), off = fabs((double)k->logsumexp(x, n) - lse);
        check(off <= 3e-7 * (fabs(lse) + 1), "%s: logsumexp of %d is off by %g", k->name, n, off);
        memcpy(y, x, 4 * (size_t)n);
        k->add(y, w, 0.5f, n);
        for (int i = 0; i < n; i++) ref[i] = (double)x[i] + 0.5 * (double)w[i];
        check(error_of(y, ref, n, 8) <= 1e-7, "%s: add of %d", k->name, n);
        k->scale(y, 2.0f, n);
        for (int i = 0; i < n; i++) ref[i] *= 2;
        check(error_of(y, ref, n, 16) <= 1e-7, "%s: scale of %d", k->name, n);
    }
}

static void near(const tfm_kernels *k, const char *what, const float *got, const double *ref, int n, double tolerance) {
    double top = 0;
    for (int i = 0; i < n; i++) top = fmax(top, fabs(ref[i]));
    const double e = error_of(got, ref, n, top);
    check(e <= tolerance, "%s: %s differs from the reference library by %g", k->name, what, e);
}

static void test_against_libraries(const tfm_kernels *k) {
    static const struct { const char *name; int act; const double *ref; } acts[] = {
        { "relu", TFM_ACT_RELU, ref_relu },
        { "relu2", TFM_ACT_RELU2, ref_relu2 },
        { "gelu_erf", TFM_ACT_GELU_ERF, ref_gelu_erf },
        { "gelu_tanh", TFM_ACT_GELU_TANH, ref_gelu_tanh },
        { "gelu_quick", TFM_ACT_GELU_QUICK, ref_gelu_quick },
        { "silu", TFM_ACT_SILU, ref_silu },
        { "sigmoid", TFM_ACT_SIGMOID, ref_sigmoid }
    };
    float x[40], y[40], w[40], b[40];
    fill(x, 1, 40);
    for (int i = 0; i < COUNT(acts); i++) {
        memcpy(y, x, sizeof x);
        k->activate(y, acts[i].act, 40);
        near(k, acts[i].name, y, acts[i].ref, 40, 2e-7);
    }
    fill(w, 2, 40);
    k->glu(y, x, w, TFM_ACT_SILU, 40);
    near(k, "swiglu", y, ref_swiglu, 40, 2e-7);
    memcpy(y, x, sizeof x);
    k->softcap(y, 3.0f, 40);
    near(k, "softcap", y, ref_softcap, 40, 2e-7);
    memcpy(y, x, sizeof x);
    k->softmax(y, 40);
    near(k, "softmax", y, ref_softmax, 40, 3e-7);
    y[0] = k->logsumexp(x, 40);
    near(k, "logsumexp", y, ref_logsumexp, 1, 2e-7);
    fill(w, 3, 40);
    fill(b, 4, 40);
    k->rmsnorm(y, x, w, 0.0f, 1e-6f, 40);
    near(k, "rmsnorm", y, ref_rmsnorm, 40, 3e-7);
    k->rmsnorm(y, x, w, 1.0f, 1e-6f, 40);
    near(k, "rmsnorm (1 + w)", y, ref_rmsnorm_plus_one, 40, 3e-7);
    k->layernorm(y, x, w, b, 0.0f, 1e-5f, 40);
    near(k, "layernorm", y, ref_layernorm, 40, 4e-7);
}

void test_kernel_vectors(void) {
    for (int p = 0; has_pass(p); p++) {
        const tfm_kernels *k = pass(p);
        if (!k) continue;
        test_activations(k);
        test_reductions(k);
        test_against_libraries(k);
        release();
    }
}

/* Hash of what the kernels with a float32 result give for x: activations, softmax, attention, norms. */
enum { SAME_KERNELS = 12, SAME_FUSED = 10 }; /* the first ten use madd */
static uint64_t bits_hash(const tfm_kernels *k, int i, const float *x, float *a, int n) {
    uint64_t hash = 0xcbf29ce484222325u;
    memcpy(a, x, 4 * (size_t)n);
    if (i < 8) {
        k->activate(a, i, n);
    } else if (i == 8) {
        k->softmax(a, n);
    } else if (i == 9) {
        const tfm_attention_args args = { a, x, x + 40, x + 400, TFM_F32, 2, 2, 1, 20, 10, 16, 0, 0.2f, 5.0f, NULL, 0,
                                          0, NULL, 0, 0, 0, 0, 0 };
        k->attention(&args, 0, 4);
    } else if (i == 10) {
        k->layernorm(a, a, x, x, 1.0f, 1e-5f, n);
    } else {
        k->rmsnorm(a, a, x, 1.0f, 1e-5f, n);
    }
    for (int j = 0; j < n; j++) hash = (hash ^ bits_of(a[j])) * 0x100000001b3u;
    return hash;
}

/* One set of bits in all passes whose madd is fused, on every machine; one in the others; norms the same in both. */
void test_kernel_same_bits(void) {
    enum { N = 1003 };
    static const uint64_t known[2][SAME_KERNELS] = {
        {
            0x023a68ad1fdb6f17u, 0x5ce154d679d4eb17u, 0xa61a3627acb51d72u, 0x7777881d1a05aadfu,
            0xf6d28b81e69db90cu, 0xa825683b5942c84fu, 0x4fcfe5b1f06c6131u, 0x5de9171bd60a843au,
            0x023030cbb5c04690u, 0x940267451b90973du, 0xf07cc9c67a515326u, 0x9e2d9f145afdaf05u
        },
        {
            0x023a68ad1fdb6f17u, 0x5ce154d679d4eb17u, 0xa61a3627acb51d72u, 0xa64759118843585cu,
            0x1a0641437a8a1595u, 0x934dfa61cfa762bdu, 0xa1d90169d3cd50c5u, 0xbed5e25fde0df39au,
            0x12bc7e7c10dd523cu, 0x5b0b8ff023261a40u, 0xf07cc9c67a515326u, 0x9e2d9f145afdaf05u
        }
    };
    float *x = take(4 * N, 4), *a = take(4 * N, 0);
    fill(x, 81, N);
    for (int p = 0; has_pass(p); p++) {
        const tfm_kernels *k = pass(p);
        if (!k) continue;
        for (int i = 0; i < SAME_KERNELS; i++) {
            const uint64_t hash = bits_hash(k, i, x, a, N), want = known[fuses(k)][i];
            check(hash == want, "%s: kernel %d gives bits %016llx", k->name, i, (unsigned long long)hash);
        }
    }
    for (int i = SAME_FUSED; i < SAME_KERNELS; i++) check(known[0][i] == known[1][i], "norms use no madd");
    release();
}

/* --- rotary positions --------------------------------------------------------------------------------------------- */

static void test_frequencies(void) {
    static const float shorter[8] = { 1.0f, 1.1f, 1.2f, 1.3f, 1.4f, 1.5f, 1.6f, 1.7f };
    static const float longer[8] = { 2.0f, 2.7f, 3.4f, 4.1f, 4.8f, 5.5f, 6.2f, 6.9f };
    static const struct { const char *name; tfm_rope_params p; int64_t len; const double *ref; } cases[] = {
        { "plain", { 16, TFM_ROPE_PLAIN, 500000, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL },
          0, ref_freqs_plain },
        { "linear", { 16, TFM_ROPE_LINEAR, 10000, 4, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL },
          0, ref_freqs_linear },
        { "dynamic", { 16, TFM_ROPE_DYNAMIC, 10000, 2, 0, 4096, 0, 0, 0, 0, 0, 0, NULL, NULL },
          100, ref_freqs_dynamic_short },
        { "dynamic", { 16, TFM_ROPE_DYNAMIC, 10000, 2, 0, 4096, 0, 0, 0, 0, 0, 0, NULL, NULL },
          10000, ref_freqs_dynamic_long },
        { "yarn", { 16, TFM_ROPE_YARN, 10000, 4, 1024, 4096, 0, 0, 0, 0, 0, 0, NULL, NULL },
          0, ref_freqs_yarn },
        { "yarn", { 16, TFM_ROPE_YARN, 10000, 40, 4096, 0, 2, 16, 0, 0.707f, 1, 1, NULL, NULL },
          0, ref_freqs_yarn_mscale },
        { "long", { 16, TFM_ROPE_LONG, 10000, 4, 1024, 4096, 0, 0, 0, 0, 0, 0, shorter, longer },
          1024, ref_freqs_long_short },
        { "long", { 16, TFM_ROPE_LONG, 10000, 4, 1024, 4096, 0, 0, 0, 0, 0, 0, shorter, longer },
          1025, ref_freqs_long_long },
        { "bands", { 16, TFM_ROPE_BANDS, 500000, 8, 8192, 0, 1, 4, 0, 0, 0, 0, NULL, NULL },
          0, ref_freqs_bands }
    };
    for (int i = 0; i < COUNT(cases); i++) {
        float f[8], mscale;
        tfm_rope_freqs(&cases[i].p, cases[i].len, f, &mscale);
        for (int j = 0; j < 8; j++) {
            check(fabs((double)f[j] / cases[i].ref[j] - 1) <= 2.5e-7, "frequencies %s (%d) at %d: %.9g, not %.9g",
                  cases[i].name, i, j, (double)f[j], cases[i].ref[j]);
        }
        check(fabs((double)mscale - cases[i].ref[8]) <= 1e-7, "mscale of %s (%d)", cases[i].name, i);
    }
    tfm_rope_params p = { 16, TFM_ROPE_FACTORS, 10000, 0, 0, 0, 0, 0, 0, 0, 0, 0, shorter, NULL };
    float f[8], plain[8], mscale;
    tfm_rope_freqs(&p, 0, f, &mscale);
    p.scaling = TFM_ROPE_PLAIN;
    tfm_rope_freqs(&p, 0, plain, &mscale);
    for (int j = 0; j < 8; j++) check(f[j] == plain[j] / shorter[j], "explicit factors at %d", j);
    p.scaling = TFM_ROPE_STEPS;
    p.ctx_max = 3;
    tfm_rope_freqs(&p, INT64_MAX, f, &mscale); /* the steps end */
    for (int j = 1; j < 8; j++) check(f[j] > 0 && f[j] < plain[j], "steps without end at %d: %g", j, (double)f[j]);
}

void test_kernel_rope(void) {
    static const int64_t positions[] = { 0, 1, 2, 7, 100, 1000, 4095, 131071, 999983 };
    static const float inv[8] = { 1.0f, 0.5f, 0.316227764f, 0.1f, 0.0123f, 0.001f, 0.00031622776f, 1e-7f };
    test_frequencies();
    for (int p = 0; has_pass(p); p++) {
        const tfm_kernels *k = pass(p);
        if (!k) continue;
        float c[8], s[8], x[24];
        double worst = 0;
        for (int i = 0; i < COUNT(positions); i++) {
            k->rope_angles(c, s, inv, 1.0f, positions[i], 8);
            for (int j = 0; j < 8; j++) {
                volatile float angle = (float)positions[i] * inv[j];
                worst = fmax(worst, fabs((double)c[j] - cos((double)angle)));
                worst = fmax(worst, fabs((double)s[j] - sin((double)angle)));
            }
        }
        check(worst < 1e-7, "%s: rope_angles are off by %g", k->name, worst);
        k->rope_angles(c, s, inv, 2.0f, 3, 8);
        worst = fmax(fabs((double)c[0] - 2 * cos(3.0)), fabs((double)s[0] - 2 * sin(3.0)));
        check(worst < 2e-7, "%s: rope_angles with mscale", k->name);
        const float base[4] = { 1.0f, 0.1f, 0.01f, 0.001f };
        for (int style = TFM_ROPE_HALF; style <= TFM_ROPE_INTERLEAVED; style++) {
            fill(x, 8, 24);
            k->rope_angles(c, s, base, 1.0f, 1000, 4);
            k->rope(x, c, s, style, 8, 12, 2);
            near(k, "rope", x, style == TFM_ROPE_HALF ? ref_rope_half : ref_rope_interleaved, 24, 3e-7);
        }
    }
}

/* --- attention ---------------------------------------------------------------------------------------------------- */

typedef struct attention_case {
    int32_t kv_type;
    int n_heads, n_kv_heads, head_dim, n;
    int64_t pos, length, window;
    float softcap;
} attention_case;

/* A cached row as float32. */
static void read_kv(float *out, int32_t type, const uint8_t *row, int64_t head_dim) {
    if (type == TFM_Q8_0) {
        for (int64_t i = 0; i < head_dim; i++) {
            const uint8_t *b = row + 34 * (i / 32);
            uint16_t d; /* in the host's order */
            memcpy(&d, b, 2);
            out[i] = half_of(d) * (float)(int8_t)b[2 + i % 32];
        }
    } else {
        const tfm_tensor t = { row, type, TFM_ROWS, 1, head_dim };
        tfm_tensor_row(&t, 0, out);
    }
}

typedef struct mask_case { int32_t mask, stride, columns, groups, part; } mask_case;

/* The patterns as their papers put them, position by position. */
static int visible(const tfm_attention_args *a, int64_t head, int64_t i, int64_t j) {
    if (a->mask == TFM_MASK_CAUSAL) return 1;
    const int64_t s = a->mask_stride, groups = a->mask_groups ? a->mask_groups : 1;
    const int in_turn = a->mask_part == TFM_PART_HEADS, far_head = in_turn && head % 2 == 1;
    const int use_near = a->mask_part == TFM_PART_BOTH || a->mask_part == TFM_PART_NEAR || (in_turn && !far_head);
    const int use_far = a->mask_part == TFM_PART_BOTH || a->mask_part == TFM_PART_FAR || far_head;
    const int64_t group = (in_turn ? (head - 1) / 2 : head) % groups, first = s - (group + 1) * a->mask_columns;
    const int in_columns = j % s >= first && j % s < first + a->mask_columns;
    switch (a->mask) {
    case TFM_MASK_STRIDED: return (use_near && i - j < s) || (use_far && (i - j) % s == 0);
    case TFM_MASK_FIXED: return (use_near && i / s == j / s) || (use_far && (in_columns || i == j));
    default: return 1;
    }
}

/* Attention in double over the cache as it is stored. */
static void attention_reference(double *out, const attention_case *c, const tfm_attention_args *a, size_t row_bytes) {
    const int hd = c->head_dim;
    float row[1024];
    double *score = take(8 * (size_t)(c->pos + c->n), 0);
    for (int64_t i = 0; i < (int64_t)c->n * c->n_heads; i++) {
        const int64_t t = i / c->n_heads, p1 = c->pos + t + 1, p0 = c->window && p1 > c->window ? p1 - c->window : 0;
        const size_t head = (size_t)(i % c->n_heads / (c->n_heads / c->n_kv_heads)) * (size_t)c->length;
        double top = -1e300, total = 0;
        for (int64_t p = p0; p < p1; p++) {
            double dot = 0;
            read_kv(row, c->kv_type, (const uint8_t *)a->k + (head + (size_t)(p % c->length)) * row_bytes, hd);
            for (int d = 0; d < hd; d++) dot += (double)a->q[i * hd + d] * (double)row[d];
            score[p] = dot * (double)a->scale;
            if (c->softcap > 0) score[p] = (double)c->softcap * tanh(score[p] / (double)c->softcap);
            if (a->slopes) score[p] += (double)a->slopes[i % c->n_heads] * (double)(p - (p1 - 1));
            if (!visible(a, i % c->n_heads, p1 - 1, p)) score[p] = -1e300;
            top = fmax(top, score[p]);
        }
        for (int d = 0; d < hd; d++) out[i * hd + d] = 0;
        for (int64_t p = p0; p < p1; p++) total += exp(score[p] - top);
        for (int64_t p = p0; p < p1; p++) {
            if (score[p] == -1e300) continue;
            read_kv(row, c->kv_type, (const uint8_t *)a->v + (head + (size_t)(p % c->length)) * row_bytes, hd);
            for (int d = 0; d < hd; d++) out[i * hd + d] += exp(score[p] - top) / total * (double)row[d];
        }
    }
}

static void check_attention(const tfm_kernels *k, const attention_case *c, const float *slopes, const mask_case *m) {
    const int64_t hd = c->head_dim, items = (int64_t)c->n * c->n_heads, end = c->pos + c->n;
    const size_t row = (size_t)(c->kv_type == TFM_F32 ? 4 * hd : c->kv_type == TFM_Q8_0 ? hd / 32 * 34 : 2 * hd);
    const size_t cache = row * (size_t)(c->length * c->n_kv_heads);
    const size_t bytes = 4 * (size_t)(items * hd);
    float *q = take(bytes, 4), *out = take(bytes, 4), *cut = take(bytes, 4), *x = take(4 * (size_t)hd, 4);
    uint8_t *kc = take(cache, 0), *vc = take(cache, 0);
    double *ref = take(8 * (size_t)(items * hd), 0);
    memset(kc, 0xff, cache); /* what no query may see is NaN */
    memset(vc, 0xff, cache);
    fill(q, 90, items * hd);
    for (int64_t p = end > c->length ? end - c->length : 0; p < end; p++) {
        for (int h = 0; h < c->n_kv_heads; h++) {
            const size_t at = ((size_t)h * (size_t)c->length + (size_t)(p % c->length)) * row;
            fill(x, 1000 + (uint32_t)(p * 8 + h), hd);
            k->store_kv(kc + at, c->kv_type, x, hd);
            fill(x, 900000 + (uint32_t)(p * 8 + h), hd);
            k->store_kv(vc + at, c->kv_type, x, hd);
        }
    }
    tfm_attention_args a = { out, q, kc, vc, c->kv_type, c->n, c->n_heads, c->n_kv_heads, c->head_dim, c->pos,
                             c->length, c->window, 0.3f / sqrtf((float)hd), c->softcap, slopes, 0, 0, NULL, m->mask,
                             m->stride, m->columns, m->groups, m->part };
    attention_reference(ref, c, &a, row);
    k->attention(&a, 0, items);
    const double e = error_of(out, ref, (int)(items * hd), 4);
    /* a score is one chain of head_dim sums, which loses more the longer it is */
    check(e <= (hd <= 33 ? 4e-7 : hd <= 128 ? 8e-7 : 1.5e-6),
          "%s: attention kv %d, %d/%d heads of %d, pos %d, window %d%s, mask %d by %d, part %d: off by %g",
          k->name, c->kv_type, c->n_heads, c->n_kv_heads, c->head_dim, (int)c->pos, (int)c->window,
          slopes ? ", with slopes" : "", m->mask, m->stride, m->part, e);
    a.out = cut;
    for (int64_t i = 0; i < items;) { /* cut into uneven ranges of items */
        const int64_t next = i + 1 + hashed(5, (uint32_t)i) % 6 < items ? i + 1 + hashed(5, (uint32_t)i) % 6 : items;
        k->attention(&a, i, next);
        i = next;
    }
    check(same_bits(out, cut, items * hd), "%s: attention differs when its items are cut", k->name);
    a.n = 1; /* and into calls of one token */
    for (int t = 0; t < c->n; t++) {
        a.q = q + t * c->n_heads * hd;
        a.out = cut + t * c->n_heads * hd;
        a.pos = c->pos + t;
        k->attention(&a, 0, c->n_heads);
    }
    check(same_bits(out, cut, items * hd), "%s: attention differs when its tokens are cut", k->name);
}

void test_kernel_attention(void) {
    static const float slopes[9] = { 0.5f, 0.25f, 0.125f, 0.0625f, 0.01f, 1.0f, 0.003f, 0.7f, 0.05f };
    static const attention_case cases[] = {
        { TFM_F32, 4, 2, 64, 7, 0, 16, 0, 0 },        { TFM_F32, 3, 3, 7, 5, 60, 128, 0, 0 },
        { TFM_F32, 1, 1, 1, 3, 10, 32, 0, 30.0f },    { TFM_F16, 6, 2, 20, 9, 120, 130, 0, 0 },
        { TFM_F16, 8, 2, 128, 3, 200, 256, 0, 50.0f }, { TFM_BF16, 2, 1, 256, 4, 62, 66, 0, 0 },
        { TFM_BF16, 7, 1, 33, 5, 100, 128, 0, 0 },    { TFM_Q8_0, 4, 1, 64, 6, 126, 200, 0, 0 },
        { TFM_Q8_0, 2, 2, 96, 2, 63, 65, 0, 30.0f },  { TFM_F32, 4, 1, 32, 8, 300, 85, 70, 0 },
        { TFM_F16, 2, 1, 16, 6, 1000, 12, 5, 0 },     { TFM_Q8_0, 4, 2, 32, 5, 515, 140, 129, 0 },
        { TFM_F16, 2, 2, 1024, 2, 5, 8, 0, 0 },       { TFM_F32, 4, 2, 48, 70, 0, 70, 0, 0 },
        { TFM_F16, 9, 3, 64, 40, 100, 160, 50, 0 },   { TFM_F16, 4, 1, 300, 9, 150, 160, 0, 0 }
    };
    static const mask_case none = { TFM_MASK_CAUSAL, 0, 0, 0, 0 };
    static const mask_case masks[] = {
        { TFM_MASK_FIXED, 16, 0, 0, TFM_PART_NEAR },        { TFM_MASK_FIXED, 100, 0, 0, TFM_PART_NEAR },
        { TFM_MASK_STRIDED, 7, 0, 0, TFM_PART_NEAR },       { TFM_MASK_STRIDED, 7, 0, 0, TFM_PART_FAR },
        { TFM_MASK_STRIDED, 90, 0, 0, TFM_PART_FAR },       { TFM_MASK_STRIDED, 12, 0, 0, TFM_PART_BOTH },
        { TFM_MASK_STRIDED, 9, 0, 0, TFM_PART_HEADS },
        { TFM_MASK_FIXED, 16, 3, 0, TFM_PART_FAR },         { TFM_MASK_FIXED, 80, 2, 0, TFM_PART_FAR },
        { TFM_MASK_FIXED, 11, 2, 3, TFM_PART_BOTH },        { TFM_MASK_FIXED, 8, 2, 4, TFM_PART_HEADS }
    };
    static const attention_case masked[] = {
        { TFM_F32, 8, 2, 20, 30, 0, 30, 0, 0 }, { TFM_F16, 4, 4, 32, 9, 150, 160, 0, 30.0f },
        { TFM_F32, 4, 1, 16, 70, 60, 130, 50, 0 }
    };
    static const attention_case ring = { TFM_F16, 4, 2, 32, 5, 515, 21, 0, 0 }; /* 16 positions and the 5 of the call */
    for (int p = 0; has_pass(p); p++) {
        const tfm_kernels *k = pass(p);
        if (!k) continue;
        for (int i = 0; i < COUNT(cases); i++) {
            check_attention(k, &cases[i], NULL, &none);
            check_attention(k, &cases[i], slopes, &none);
            release();
        }
        for (int i = 0; i < 2 * COUNT(masks); i++) { /* each on two of them */
            check_attention(k, &masked[i % COUNT(masked)], i % 2 ? slopes : NULL, &masks[i % COUNT(masks)]);
            release();
        }
        check_attention(k, &ring, NULL, &masks[0]);
        release();
        float q[400], out[400], kv[2][2 * 8 * 20];
        fill(q, 5, 400);
        fill(kv[0], 6, 320);
        fill(kv[1], 7, 320);
        const tfm_attention_args a = { out, q, kv[0], kv[1], TFM_F32, 5, 4, 2, 20, 3, 8, 0, 0.125f, 0, NULL, 0,
                                       0, NULL, 0, 0, 0, 0, 0 };
        k->attention(&a, 0, 20);
        near(k, "attention", out, ref_attention, 400, 4e-7);
    }
}

/* store_kv: saturating f16, and equal to packing otherwise. */
void test_kernel_store(void) {
    for (int p = 0; has_pass(p); p++) {
        const tfm_kernels *k = pass(p);
        if (!k) continue;
        float x[64];
        uint16_t h[64];
        fill(x, 12, 64);
        x[3] = 1e6f, x[4] = -1e6f, x[5] = INFINITY, x[6] = NAN, x[7] = 1e-7f;
        k->store_kv(h, TFM_F16, x, 37);
        check(h[3] == 0x7bff && h[4] == 0xfbff && h[5] == 0x7bff, "%s: f16 saturates", k->name);
        check((h[6] & 0x7fff) > 0x7c00, "%s: NaN stays NaN in f16", k->name);
        const tfm_tensor half = packed(TFM_F16, TFM_F32, x, 1, 64), bf = packed(TFM_BF16, TFM_F32, x, 1, 64);
        for (int i = 7; i < 37; i++) check(h[i] == ((const uint16_t *)half.data)[16 * i], "%s: f16 at %d", k->name, i);
        k->store_kv(h, TFM_BF16, x, 37);
        for (int i = 0; i < 37; i++) check(h[i] == ((const uint16_t *)bf.data)[16 * i], "%s: bf16 at %d", k->name, i);
        float row[64];
        uint8_t q[68];
        fill(x, 9, 64);
        k->store_kv(q, TFM_Q8_0, x, 64);
        read_kv(row, TFM_Q8_0, q, 64);
        for (int i = 0; i < 64; i++) check(row[i] == (float)ref_q8_0_of_floats[i], "%s: q8_0 at %d", k->name, i);
        float out[64];
        const tfm_tensor q8 = packed(TFM_Q8_0, TFM_F32, x, 1, 64);
        k->embed(out, &q8, 0, 3.0f);
        for (int i = 0; i < 64; i++) check(out[i] == 3.0f * row[i], "%s: embed at %d", k->name, i);
        release();
    }
}

/* --- the choice of a pass, and the plain functions ---------------------------------------------------------------- */

void test_kernel_isa(void) {
    check(tfm_kernels_for(TFM_ISA_AUTO) != NULL, "AUTO gives a pass");
    check(tfm_kernels_for(TFM_ISA_SCALAR) != NULL, "scalar is always there");
    check(tfm_isa_list(0) == TFM_ISA_SCALAR, "scalar comes first");
    check(tfm_kernels_for(99) == NULL && tfm_isa_name(99) == NULL && tfm_isa_name(-1) == NULL, "unknown ids");
    check(tfm_isa_list(-1) == 0 && tfm_isa_list(100) == 0, "the list ends");
    int widest = 0;
    for (int p = 0; has_pass(p); p++) {
        const int32_t isa = tfm_isa_list(p);
        const tfm_kernels *k = pass(p);
        if (!k) continue;
        if (isa != TFM_ISA_AMX) widest = k->isa;
        check(k->isa == isa && strcmp(k->name, tfm_isa_name(isa)) == 0, "pass %d says who it is", p);
    }
    check(tfm_kernels_for(TFM_ISA_AUTO)->isa == widest, "AUTO is the widest that runs");
}

/* Each plain function is the kernel of one pass (which, the compiler's flags decide). */
void test_kernel_plain(void) {
    enum { N = 96 };
    float x[N], w[N], plain[N], c[4], s[4];
    int same[12] = { 0 };
    uint8_t *q = take(2 * tfm_q8_row_bytes(N), 0), *q2 = take(2 * tfm_q8_row_bytes(N), 0);
    fill(x, 14, N);
    fill(w, 15, N);
    const tfm_tensor t = { x, TFM_F32, TFM_ROWS, 3, 32 };
    memset(q, 0, 2 * tfm_q8_row_bytes(N)), memset(q2, 0, 2 * tfm_q8_row_bytes(N));
    tfm_quantize_rows(q, x, 2, 32);
    for (int p = 0; has_pass(p); p++) {
        const tfm_kernels *k = pass(p);
        if (!k) continue;
        float y[N];
        k->rope_angles(c, s, w, 1.0f, 5, 4);
#define PLAIN(i, setup, call_plain, call_pass) \
        do { \
            memcpy(plain, setup, sizeof plain), memcpy(y, setup, sizeof y); \
            call_plain; \
            call_pass; \
            same[i] |= same_bits(plain, y, N); \
        } while (0)
        PLAIN(0, x, tfm_rmsnorm(plain, x, w, 0, 1e-5f, N), k->rmsnorm(y, x, w, 0, 1e-5f, N));
        PLAIN(1, x, tfm_layernorm(plain, x, w, w, 0, 1e-5f, N), k->layernorm(y, x, w, w, 0, 1e-5f, N));
        PLAIN(2, x, tfm_softmax(plain, N), k->softmax(y, N));
        PLAIN(3, x, plain[0] = tfm_logsumexp(x, N), y[0] = k->logsumexp(x, N));
        PLAIN(4, x, tfm_softcap(plain, 5, N), k->softcap(y, 5, N));
        PLAIN(5, x, tfm_activate(plain, TFM_ACT_GELU_ERF, N), k->activate(y, TFM_ACT_GELU_ERF, N));
        PLAIN(6, x, tfm_glu(plain, x, w, TFM_ACT_GELU_TANH, N), k->glu(y, x, w, TFM_ACT_GELU_TANH, N));
        PLAIN(7, x, tfm_swiglu(plain, x, w, N), k->glu(y, x, w, TFM_ACT_SILU, N));
        PLAIN(8, x, tfm_rope(plain, c, s, TFM_ROPE_HALF, 8, 12, 8), k->rope(y, c, s, TFM_ROPE_HALF, 8, 12, 8));
        PLAIN(9, x, tfm_embed(plain, &t, 2, 3.0f), k->embed(y, &t, 2, 3.0f));
        tfm_matmul_args a = { &t, NULL, w, 128, 0, 3, plain, 3, NULL, 0 }, b = a;
        b.y = y;
        PLAIN(10, x, tfm_matmul(&a, 0, 1), k->matmul(&b, 0, 1));
        tfm_attention_args d = { plain, w, x, x, TFM_F32, 2, 2, 1, 8, 4, 8, 0, 0.3f, 0, NULL, 0, 0, NULL,
                                 0, 0, 0, 0, 0 };
        tfm_attention_args e = d;
        e.out = y;
        PLAIN(11, x, tfm_attention(&d, 0, 4), k->attention(&e, 0, 4));
#undef PLAIN
        for (int r = 0; r < 2; r++) k->quantize_row(q2 + (size_t)r * tfm_q8_row_bytes(32), x + 32 * r, 32);
        check(memcmp(q, q2, 2 * tfm_q8_row_bytes(32)) == 0, "%s: quantize_row and tfm_quantize_rows", k->name);
    }
    for (int i = 0; i < 12; i++) check(same[i], "plain function %d equals no pass", i);
    release();
}

/* --- alone -------------------------------------------------------------------------------------------------------- */

/* Without the runner, for machines that have no threads or directories: this file and tools/tfm_impl.c are enough. */
#ifdef TEST_KERNELS_ALONE
#include <stdarg.h>

static int passed, failed, skipped;

void check(int ok, const char *format, ...) {
    va_list args;
    *(ok ? &passed : &failed) += 1;
    if (ok || failed > 20) return;
    printf("FAILED: ");
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
}

void skip(const char *format, ...) {
    (void)format;
    skipped++;
}

int main(void) {
    test_kernel_formats();
    test_kernel_matmul();
    test_kernel_quantize();
    test_kernel_vectors();
    test_kernel_same_bits();
    test_kernel_rope();
    test_kernel_attention();
    test_kernel_store();
    test_kernel_isa();
    test_kernel_plain();
    printf("widest instruction set: %s\n", tfm_kernels_for(TFM_ISA_AUTO)->name);
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed != 0;
}
#endif
