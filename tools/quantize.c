/* quantize.c - the encoders: how a block of floats becomes codes, scales and minima.
 *
 * A type with one scale a block fits it to the block. A type with integer scales fits a scale (and a minimum) to
 * each sub-block, rounds these to integers under one d (and dmin), and rounds the values again under what became of
 * them. A fit tries a row of scales near the one that the extreme values suggest and keeps the one with the least
 * weighted error. Weights, ranges and number of trials are data: the table of schemes.
 */
#include "quantize.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* No product may be fused with a sum: the bytes must not depend on the host. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__) && !defined(__TINYC__)
#pragma GCC optimize("fp-contract=off")
#elif defined(_MSC_VER)
#pragma fp_contract(off)
#endif

enum { LANES = 8, MAX_BLOCK = 256, MAX_SUBS = 16, MAX_FIT = 32 };

/* Below this a group counts as zeros: the reciprocal of its scale would be of no use. */
static const float nothing = 1e-15f;

/* What a weight of an error is made of: without importance x^2, |x| or rms + |x|; with it, times the root of x^2 and of
 * `spread` times the mean square (of the block, or of the row), or as it is. */
enum weighing { BY_SQUARE, BY_MAGNITUDE, BY_RMS };
enum fit { FIT_PLAIN, FIT_SCALES, FIT_MINIMA, FIT_BOOK, FIT_EXPONENT };

/* Trials of a scale with a minimum: (top + first + i * step) / (highest - lowest), i = 0 .. count. */
typedef struct trials { float first, step; int count; } trials;

typedef struct scheme {
    int32_t type;
    enum fit fit;
    int minimum;          /* codes are counted from a minimum, 0 .. top; else -top-1 .. top */
    int sub;              /* values under one scale */
    int top;              /* the highest code */
    int scale_top;        /* the highest integer scale, 0: none; signed scales go down to -scale_top - 1 */
    enum weighing weight;
    int spread, by_row;   /* with importance; spread 0: the importance is the weight */
    trials trials;        /* without importance */
} scheme;

static const scheme schemes[] = {
    /* type       fit           min sub top  scale  weight       spread row  trials */
    { TFM_Q4_0,   FIT_PLAIN,    0,  32, 7,   0,     BY_SQUARE,    1, 1, { 0, 0, 0 } },
    { TFM_Q5_0,   FIT_PLAIN,    0,  32, 15,  0,     BY_SQUARE,    1, 1, { 0, 0, 0 } },
    { TFM_Q4_1,   FIT_PLAIN,    1,  32, 15,  0,     BY_SQUARE,    1, 1, { 0, 0, 0 } },
    { TFM_Q5_1,   FIT_PLAIN,    1,  32, 31,  0,     BY_SQUARE,    1, 1, { 0, 0, 0 } },
    { TFM_Q2_K,   FIT_MINIMA,   1,  16, 3,   15,    BY_MAGNITUDE, 1, 0, { -0.5f, 0.1f, 15 } },
    { TFM_Q3_K,   FIT_SCALES,   0,  16, 3,   31,    BY_SQUARE,    2, 0, { 0, 0, 0 } },
    { TFM_Q4_K,   FIT_MINIMA,   1,  32, 15,  63,    BY_RMS,       2, 0, { -1.0f, 0.1f, 20 } },
    { TFM_Q5_K,   FIT_MINIMA,   1,  32, 31,  63,    BY_RMS,       2, 0, { -0.5f, 0.1f, 15 } },
    { TFM_Q6_K,   FIT_SCALES,   0,  16, 31,  127,   BY_SQUARE,    0, 0, { 0, 0, 0 } },
    { TFM_IQ4_NL, FIT_BOOK,     0,  32, 0,   0,     BY_SQUARE,    2, 0, { 0, 0, 0 } },
    { TFM_IQ4_XS, FIT_BOOK,     0,  32, 0,   31,    BY_SQUARE,    2, 0, { 0, 0, 0 } },
    { TFM_MXFP4,  FIT_EXPONENT, 0,  32, 0,   0,     BY_SQUARE,    0, 0, { 0, 0, 0 } }
};
static const trials trials_by_importance = { -0.9f, 0.05f, 36 };

static const float book[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };

static const scheme *scheme_of(int32_t type) {
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (schemes[i].type == type) return &schemes[i];
    return NULL;
}

/* ---- ARITHMETIC ------------------------------------------------------------------------------------------------- */

/* To the nearest integer in [low, high], ties to even; low if v is not a number. */
static float nearest(float v, float low, float high) {
    v = v > low ? v : low;
    v = v < high ? v : high;
    return (v + 12582912.0f) - 12582912.0f; /* 1.5 * 2^23: the sum has no place for a fraction */
}

static float magnitude(float x) { return x < 0 ? -x : x; }

/* Sums are kept in lanes, which compilers turn into registers, and closed in one fixed order. */
static float close_sum(const float *s) { return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7])); }

static float sum_of(const float *x, int64_t n) {
    float s[LANES] = { 0 };
    for (int64_t i = 0; i < n; i += LANES)
        for (int k = 0; k < LANES; k++) s[k] += x[i + k];
    return close_sum(s);
}

static float sum_of_squares(const float *x, int64_t n) {
    float s[LANES] = { 0 };
    for (int64_t i = 0; i < n; i += LANES)
        for (int k = 0; k < LANES; k++) s[k] += x[i + k] * x[i + k];
    return close_sum(s);
}

/* The value of largest magnitude, the first of them. */
static float peak_of(const float *x, int n) {
    float peak = x[0];
    for (int i = 1; i < n; i++)
        if (magnitude(x[i]) > magnitude(peak)) peak = x[i];
    return peak;
}

/* Weighted sums of code * x and code^2: the scale that suits the codes best is xl / ll, and xl^2 / ll what it
 * explains. */
typedef struct moments { float xl, ll; } moments;

static moments moments_of(const float *code, const float *x, const float *w, int n) {
    float xl[LANES] = { 0 }, ll[LANES] = { 0 };
    moments m;
    for (int i = 0; i < n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const float wl = w[i + k] * code[i + k];
            xl[k] += wl * x[i + k];
            ll[k] += wl * code[i + k];
        }
    m.xl = close_sum(xl);
    m.ll = close_sum(ll);
    return m;
}

static float scale_of(moments m) { return m.ll > 0 ? m.xl / m.ll : 0; }
static int explains_more(moments a, moments b) { return a.ll > 0 && a.xl * a.xl > scale_of(b) * b.xl * a.ll; }

static void round_all(float *code, const float *x, int n, float factor, float low, float high) {
    for (int i = 0; i < n; i += LANES)
        for (int k = 0; k < LANES; k++) code[i + k] = nearest(x[i + k] * factor, low, high);
}

/* ---- FITS: the best scale of n values with weights w ------------------------------------------------------------ */

/* Codes low .. -low - 1. Nineteen scales around the one that brings the peak to `low`. */
static float fit_scale(float *code, const float *x, const float *w, int n, float low) {
    const float peak = peak_of(x, n);
    float trial[MAX_FIT] = { 0 };
    moments best = { 0, 0 };
    memset(code, 0, sizeof *code * (size_t)n);
    if (magnitude(peak) < nothing) return 0;
    for (int i = 0; i < 19; i++) { /* 0, -9 .. -1, 1 .. 9 tenths of a step */
        const int tenths = i == 0 ? 0 : i < 10 ? i - 10 : i - 9;
        round_all(trial, x, n, (low - 0.1f * (float)tenths) / peak, low, -low - 1);
        const moments m = moments_of(trial, x, w, n);
        if (i && !explains_more(m, best)) continue;
        memcpy(code, trial, sizeof *code * (size_t)n);
        best = m;
    }
    return scale_of(best);
}

/* Moves one code at a time to where the scale that fits the others puts it, while that explains more. */
static moments improve(float *code, const float *x, const float *w, int n, float low, float high) {
    moments now = moments_of(code, x, w, n);
    for (int pass = 0, changed = 1; changed && pass < 5; pass++) {
        changed = 0;
        for (int i = 0; i < n; i++) {
            moments without = { now.xl - w[i] * x[i] * code[i], now.ll - w[i] * code[i] * code[i] };
            if (!(without.xl > 0) || (low == 0 && !(without.ll > 0))) continue;
            const float moved = nearest(x[i] * without.ll / without.xl, low, high);
            if (moved == code[i]) continue;
            without.xl += w[i] * x[i] * moved;
            without.ll += w[i] * moved * moved;
            if (!explains_more(without, now)) continue;
            code[i] = moved;
            now = without;
            changed = 1;
        }
    }
    return now;
}

/* Codes low .. -low - 1, from the scale that brings the peak to `low`, one code after the other. */
static float fit_by_steps(float *code, const float *x, const float *w, int n, float low) {
    const float peak = peak_of(x, n);
    memset(code, 0, sizeof *code * (size_t)n);
    if (magnitude(peak) < nothing) return 0;
    round_all(code, x, n, low / peak, low, -low - 1);
    return scale_of(improve(code, x, w, n, low, -low - 1));
}

/* Codes 0 .. top of values that are not negative. */
static float fit_positive(float *code, const float *x, const float *w, int n, float top) {
    float highest = 0, inverse = 0, least = 0;
    for (int i = 0; i < n; i++) highest = x[i] > highest ? x[i] : highest;
    memset(code, 0, sizeof *code * (size_t)n);
    if (highest < nothing) return 0;
    for (int i = 0; i < 9; i++) { /* 0, -4 .. -1, 1 .. 4 tenths of a step */
        const int tenths = i == 0 ? 0 : i < 5 ? i - 5 : i - 4;
        const float trial = (0.1f * (float)tenths + top) / highest, scale = 1 / trial;
        float error = 0;
        for (int k = 0; k < n; k++) {
            const float miss = x[k] - scale * nearest(trial * x[k], 0, top);
            error += w[k] * miss * miss;
        }
        if (i && !(error < least)) continue;
        least = error;
        inverse = trial;
    }
    for (int i = 0; i < n; i++) code[i] = nearest(inverse * x[i], 0, top);
    return scale_of(improve(code, x, w, n, 0, top));
}

/* What a row of codes, a scale and a minimum miss: weighted squares, or magnitudes. */
static float missed(const float *code, const float *x, const float *w, int n, float scale, float low, int squares) {
    float s[LANES] = { 0 };
    for (int i = 0; i < n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const float miss = scale * code[i + k] + low - x[i + k];
            s[k] += w[i + k] * (squares ? miss * miss : magnitude(miss));
        }
    return close_sum(s);
}

/* The sums of w * code, w * code^2 and w * code * x. */
static void linear_sums(const float *code, const float *x, const float *w, int n, float *l, float *ll, float *xl) {
    const moments m = moments_of(code, x, w, n);
    float s[LANES] = { 0 };
    for (int i = 0; i < n; i += LANES)
        for (int k = 0; k < LANES; k++) s[k] += w[i + k] * code[i + k];
    *l = close_sum(s);
    *ll = m.ll;
    *xl = m.xl;
}

static void shift(float *out, const float *x, int n, float low) {
    for (int i = 0; i < n; i++) out[i] = x[i] - low;
}

/* Codes 0 .. top above a minimum that is not positive: x = scale * code - *minimum. For each trial the codes, then
 * scale and minimum by least squares; the trials that follow start from the best minimum so far. */
static float fit_minimum(float *code, float *minimum, const float *x, const float *w, int n, float top, trials t,
                         int squares) {
    float low = x[0], high = x[0], trial[MAX_FIT] = { 0 }, shifted[MAX_FIT] = { 0 }, wx[MAX_FIT] = { 0 };
    for (int i = 1; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    low = low > 0 ? 0 : low;
    memset(code, 0, sizeof *code * (size_t)n);
    *minimum = -low;
    if (!(high > low)) return 0;
    for (int i = 0; i < n; i++) wx[i] = w[i] * x[i];
    float scale = 1 / (top / (high - low));
    const float sum_w = sum_of(w, n), sum_x = sum_of(wx, n);
    shift(shifted, x, n, low);
    round_all(code, shifted, n, top / (high - low), 0, top);
    float least = missed(code, x, w, n, scale, low, squares);
    for (int i = 0; i <= t.count; i++) {
        float l, ll, xl;
        round_all(trial, shifted, n, (t.first + t.step * (float)i + top) / (high - low), 0, top);
        linear_sums(trial, x, w, n, &l, &ll, &xl);
        const float det = sum_w * ll - l * l;
        if (!(det > 0)) continue;
        float s = (sum_w * xl - sum_x * l) / det, m = (ll * sum_x - l * xl) / det;
        if (m > 0) {
            m = 0;
            s = xl / ll;
        }
        const float error = missed(trial, x, w, n, s, m, squares);
        if (!(error < least)) continue;
        memcpy(code, trial, sizeof *code * (size_t)n);
        least = error;
        scale = s;
        low = m;
        *minimum = -m;
        shift(shifted, x, n, low);
    }
    return scale;
}

/* The entry of the book that comes nearest; of two, the higher. */
static int book_code(float v) {
    int low = 0, high = 15;
    if (!(v > book[0])) return 0;
    if (v >= book[15]) return 15;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (v < book[middle]) high = middle;
        else low = middle;
    }
    return v - book[low] < book[high] - v ? low : high;
}

/* Fifteen scales around the one that brings the peak to the lowest entry. */
static float fit_book(const float *x, const float *w, int n) {
    const float peak = peak_of(x, n);
    float trial[MAX_FIT] = { 0 };
    moments best = { 0, 0 };
    if (magnitude(peak) < nothing) return 0;
    for (int i = -8; i <= 7; i++) { /* first the opposite: the peak at the highest entry's side */
        const float inverse = i == -8 ? -book[0] / peak : (book[0] + (float)i) / peak;
        for (int k = 0; k < n; k++) trial[k] = book[book_code(x[k] * inverse)];
        const moments m = moments_of(trial, x, w, n);
        if (i == -8 || explains_more(m, best)) best = m;
    }
    return scale_of(best);
}

/* ---- BLOCKS ----------------------------------------------------------------------------------------------------- */

/* One block under way. */
typedef struct work {
    const scheme *s;
    int block, subs;
    const float *x;          /* [block] */
    const float *importance; /* [block] or NULL */
    float mean_square;       /* with importance, times spread */
    float weight[MAX_BLOCK], code[MAX_BLOCK];
    float scale[MAX_SUBS], minimum[MAX_SUBS], sum[MAX_SUBS]; /* sum: of the weights */
    tfm_quant_block *out;
} work;

static void weigh(work *k) {
    const int sub = k->s->sub;
    for (int i = 0; i < k->block; i++) {
        const float x = k->x[i], square = x * x;
        k->weight[i] = k->s->weight == BY_SQUARE ? square : magnitude(x);
        if (k->importance && !k->s->spread) k->weight[i] = k->importance[i];
        if (k->importance && k->s->spread) k->weight[i] = k->importance[i] * sqrtf(k->mean_square + square);
    }
    for (int j = 0; j < k->subs; j++) {
        float *w = k->weight + j * sub;
        const float rms = sqrtf(sum_of_squares(k->x + j * sub, sub) / (float)sub);
        for (int i = 0; !k->importance && k->s->weight == BY_RMS && i < sub; i++) w[i] += rms;
        k->sum[j] = sum_of(w, sub);
    }
}

/* One scale without importance: the peak becomes the lowest code, or the range is cut into equal steps; halves go
 * up. */
static void plain_codes(work *k) {
    const float low = k->s->minimum ? 0 : (float)(-k->s->top - 1), most = (float)k->s->top - low;
    float least = k->x[0], highest = k->x[0];
    for (int i = 1; i < k->block; i++) {
        least = k->x[i] < least ? k->x[i] : least;
        highest = k->x[i] > highest ? k->x[i] : highest;
    }
    const float d = k->s->minimum ? (highest - least) / most : peak_of(k->x, k->block) / low;
    const float inverse = d != 0 ? 1 / d : 0, start = k->s->minimum ? least : 0;
    k->scale[0] = d;
    k->minimum[0] = -least;
    for (int i = 0; i < k->block; i++) {
        const float v = (k->x[i] - start) * inverse + (0.5f - low);
        k->code[i] = (float)(int)(!(v > 0) ? 0 : v < most ? v : most) + low;
    }
}

static void fit_block(work *k) {
    const scheme *s = k->s;
    const trials t = k->importance || s->fit == FIT_PLAIN ? trials_by_importance : s->trials;
    const int squares = k->importance || s->weight != BY_MAGNITUDE;
    for (int j = 0; j < k->subs; j++) {
        const float *x = k->x + j * s->sub, *w = k->weight + j * s->sub;
        float *code = k->code + j * s->sub;
        const float low = (float)(-s->top - 1);
        if (s->minimum) k->scale[j] = fit_minimum(code, &k->minimum[j], x, w, s->sub, (float)s->top, t, squares);
        else if (s->fit == FIT_BOOK) k->scale[j] = fit_book(x, w, s->sub);
        else if (s->type == TFM_Q3_K && !k->importance) k->scale[j] = fit_by_steps(code, x, w, s->sub, low);
        else k->scale[j] = fit_scale(code, x, w, s->sub, low);
    }
}

/* Scales or minima of all sub-blocks as integers 0 .. top under one f16, which is returned. */
static uint16_t round_positive(const work *k, float *rounded, const float *values) {
    const float top = (float)k->s->scale_top;
    float highest = 0;
    if (k->importance) return tfm_to_f16(fit_positive(rounded, values, k->sum, k->subs, top));
    for (int j = 0; j < k->subs; j++) highest = values[j] > highest ? values[j] : highest;
    const float inverse = highest > 0 ? top / highest : 0;
    for (int j = 0; j < k->subs; j++) rounded[j] = nearest(inverse * values[j], 0, top);
    return tfm_to_f16(highest / top);
}

/* Signed scales as integers: the largest becomes the lowest integer. */
static float round_signed(const work *k, float *rounded) {
    const float low = (float)(-k->s->scale_top - 1), peak = peak_of(k->scale, k->subs);
    if (k->s->type == TFM_Q3_K && k->importance) return fit_scale(rounded, k->scale, k->sum, k->subs, low);
    memset(rounded, 0, sizeof *rounded * (size_t)k->subs);
    if (magnitude(peak) < nothing) return 0;
    const float inverse = low / peak;
    for (int j = 0; j < k->subs; j++) rounded[j] = nearest(inverse * k->scale[j], low, -low - 1);
    return 1 / inverse;
}

/* Codes of a sub-block once its scale and minimum are known as they will be read. */
static void round_again(work *k, int j, float d, float m) {
    const float low = k->s->minimum ? 0 : (float)(-k->s->top - 1), high = (float)k->s->top;
    for (int i = j * k->s->sub; d != 0 && i < (j + 1) * k->s->sub; i++)
        k->code[i] = nearest((k->x[i] + m) / d, low, high);
}

static void put_codes(work *k) {
    const int zero = k->s->minimum ? 0 : k->s->top + 1;
    for (int i = 0; i < k->block; i++) k->out->code[i] = (uint8_t)((int)k->code[i] + zero);
}

static void encode_plain(work *k) {
    if (k->importance) fit_block(k);
    else plain_codes(k);
    k->out->d = tfm_to_f16(k->scale[0]);
    k->out->m = k->s->minimum ? tfm_to_f16(-k->minimum[0]) : 0;
    put_codes(k);
}

static void encode_minima(work *k) {
    float scale[MAX_SUBS], minimum[MAX_SUBS];
    fit_block(k);
    k->out->d = round_positive(k, scale, k->scale);
    k->out->m = round_positive(k, minimum, k->minimum);
    const float d = tfm_from_f16(k->out->d), m = tfm_from_f16(k->out->m);
    for (int j = 0; j < k->subs; j++) {
        k->out->scale[j] = (int8_t)scale[j];
        k->out->minimum[j] = (uint8_t)minimum[j];
        round_again(k, j, d * scale[j], m * minimum[j]);
    }
    put_codes(k);
}

static void encode_scales(work *k) {
    float scale[MAX_SUBS];
    fit_block(k);
    k->out->d = tfm_to_f16(round_signed(k, scale));
    const float d = tfm_from_f16(k->out->d);
    for (int j = 0; j < k->subs; j++) {
        k->out->scale[j] = (int8_t)scale[j];
        round_again(k, j, d * scale[j], 0);
    }
    put_codes(k);
}

static void encode_book(work *k) {
    float scale[MAX_SUBS] = { 1 };
    fit_block(k);
    k->out->d = tfm_to_f16(k->s->scale_top ? round_signed(k, scale) : k->scale[0]);
    const float unit = tfm_from_f16(k->out->d);
    for (int j = 0; j < k->subs; j++) {
        const float d = unit * scale[j], inverse = d != 0 ? 1 / d : 0;
        k->out->scale[j] = (int8_t)scale[j];
        for (int i = j * k->s->sub; i < (j + 1) * k->s->sub; i++)
            k->out->code[i] = (uint8_t)book_code(k->x[i] * inverse);
    }
}

/* Microscaling, as its specification has it: the exponent of the peak, then for each value the nearest of 16, the first
 * if there are two. */
static void encode_exponent(work *k) {
    static const float values[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };
    const float peak = magnitude(peak_of(k->x, k->block));
    uint32_t bits;
    float d;
    int e;
    memcpy(&bits, &peak, sizeof bits);
    e = (int)(bits >> 23) - 2; /* 4 * 2^(e - 127) <= peak; subnormal peaks become zeros */
    k->out->d = (uint16_t)(e > 0 ? e : 0);
    bits = e >= 2 ? (uint32_t)(e - 1) << 23 : 0x00200000u << (e > 0 ? e : 0);
    memcpy(&d, &bits, sizeof d);
    for (int i = 0; i < k->block; i++) {
        float least = 0;
        for (int c = 0; c < 16; c++) {
            const float miss = magnitude(values[c] * d - k->x[i]);
            if (c && !(miss < least)) continue;
            least = miss;
            k->out->code[i] = (uint8_t)c;
        }
    }
}

/* ---- STRIPS ----------------------------------------------------------------------------------------------------- */

/* Whether all are numbers no larger than `most`. */
static int all_within(const float *x, int64_t n, float most) {
    int within = 1;
    for (int64_t i = 0; i < n; i++) within &= magnitude(x[i]) <= most;
    return within;
}

static int is_finite_f16(uint16_t h) { return (h & 0x7c00) != 0x7c00; }

static int quantize_row(const scheme *s, void *strip, int row, const float *x, int64_t cols, const float *importance) {
    static void (*const encode[])(work *) = {
        encode_plain, encode_scales, encode_minima, encode_book, encode_exponent
    };
    const int block = tfm_type_get(s->type)->block;
    const float row_square = s->by_row && importance ? sum_of_squares(x, cols) / (float)cols : 0;
    tfm_quant_block out;
    work k;
    memset(&k, 0, sizeof k);
    k.s = s;
    k.block = block;
    k.subs = block / s->sub;
    k.out = &out;
    for (int64_t b = 0; b < cols / block; b++) {
        memset(&out, 0, sizeof out);
        k.x = x + b * block;
        k.importance = importance ? importance + b * block : NULL;
        k.mean_square = s->by_row ? row_square : (float)s->spread * sum_of_squares(k.x, block) / (float)block;
        if (s->fit != FIT_EXPONENT) weigh(&k);
        encode[s->fit](&k);
        if (s->fit != FIT_EXPONENT && (!is_finite_f16(out.d) || !is_finite_f16(out.m))) return TFM_ERR_NUMERIC;
        tfm_pack_block(s->type, strip, cols, row, b, &out);
    }
    return TFM_OK;
}

int quantize_knows(int32_t type) { return type == TFM_Q8_0 || scheme_of(type); }

int quantize_strip(int32_t type, void *strip, const float *values, int n_rows, int64_t cols, const float *importance) {
    const scheme *s = scheme_of(type);
    const size_t bytes = tfm_strip_bytes(type, cols);
    int code = TFM_OK;
    if (!quantize_knows(type)) return TFM_ERR_UNSUPPORTED;
    if (!bytes) return TFM_ERR_ARG;
    if (!all_within(values, n_rows * cols, s && s->fit == FIT_EXPONENT ? FLT_MAX : 65504.0f)) return TFM_ERR_NUMERIC;
    if (type == TFM_Q8_0)
        return tfm_pack_strip(type, strip, TFM_F32, values, (size_t)cols * sizeof *values, n_rows, cols);
    memset(strip, 0, bytes);
    for (int r = 0; !code && r < n_rows; r++) code = quantize_row(s, strip, r, values + r * cols, cols, importance);
    return code;
}
