/* The header's own elementary functions against the C library's in double precision, on floats spread over their whole
 * range; and how its loops are cut. They are static in the header, hence a scalar copy of the implementation here. */
#define TFM_IMPLEMENTATION
#define TFM_STATIC
#ifndef TFM_NO_SIMD
#define TFM_NO_SIMD
#endif
#define TFM_NO_TEXT
#define TFM_NO_STDIO
#include "tfm.h"

#include <math.h>

#include "test.h"
#include "tiny.h"

enum { STEP = 40009 }; /* between the bit patterns of the floats that are tried: 107 thousand of them */

/* The distance of x from ref in units of ref's last place (those of subnormals below 2^-126). */
static double ulps(float x, double ref) {
    int e;
    if (!(fabs((double)x) <= 3.5e38) || !(fabs(ref) <= 3.5e38)) return 1e9;
    frexp(ref, &e);
    return fabs((double)x - ref) / ldexp(1.0, e < -125 ? -149 : e - 24);
}

static void test_sqrt(void) {
    int wrong = 0;
    for (uint32_t u = 0; u < 0x7f800000u; u += STEP) {
        const float x = tfm__bits_f32(u), root = (float)sqrt((double)x);
        wrong += tfm__sqrt(x) != root;
    }
    for (uint32_t i = 0; i < 4096; i++) { /* squares, and the floats beside them */
        const float x = (float)(i * i);
        wrong += tfm__sqrt(x) != (float)i;
        const float above = tfm__bits_f32(tfm__f32_bits(x) + 1);
        wrong += tfm__sqrt(above) != (float)sqrt((double)above);
    }
    check(!wrong, "%d roots are not the nearest float", wrong);
    const float inf = TFM__INFINITY, nan = tfm__sqrt(-1.0f), zero = tfm__sqrt(-0.0f);
    check(tfm__sqrt(inf) == inf && nan != nan && tfm__f32_bits(zero) == 0x80000000u, "roots of special values");
}

/* The angle less whole turns, as the sines of some libraries are wrong far from 0; the turn is two doubles. */
static double less_turns(double a) {
    const double turn = 6.283185307179586477, more = 2.449293598294706e-16, rest = fmod(a, turn);
    return rest - (a - rest) / turn * more;
}

/* Worst errors of sine and cosine over the angles from `low` to `high` (bit patterns) and their negatives. */
static void test_angles(uint32_t low, uint32_t high, uint32_t step) {
    double worst = 0;
    float at = 0;
    for (uint32_t u = low; u <= high; u += step) {
        const float a = tfm__bits_f32(u);
        float s, c, minus_s, minus_c;
        tfm__sin_cos(a, &s, &c);
        tfm__sin_cos(-a, &minus_s, &minus_c);
        const double angle = less_turns((double)a), e = fmax(ulps(s, sin(angle)), ulps(c, cos(angle)));
        if (e > worst) worst = e, at = a;
        if (minus_s != -s || minus_c != c) worst = 1e9;
    }
    check(worst <= 0.55, "sine and cosine are off by %.3f ulp at %.9g", worst, (double)at);
}

static void test_sin_cos(void) {
    float s, c;
    test_angles(0, tfm__f32_bits(1.0e12f), STEP);
    test_angles(tfm__f32_bits(0.25f), tfm__f32_bits(8.0f), 211);
    test_angles(tfm__f32_bits(131071.0f), tfm__f32_bits(131072.0f), 1);
    for (int k = 1; k < 20000; k++) /* around multiples of pi / 2, where digits cancel */
        test_angles(tfm__f32_bits((float)(k * 1.5707963267948966)) - 1,
                    tfm__f32_bits((float)(k * 1.5707963267948966)) + 1, 1);
    tfm__sin_cos(TFM__INFINITY, &s, &c);
    check(s != s && c != c, "the sine of infinity is a number");
    tfm__sin_cos(TFM__NAN, &s, &c);
    check(s != s && c != c, "the sine of a NaN is a number");
}

static void test_logarithms(void) {
    double worst_exp = 0, worst_expm1 = 0, worst_log1p = 0, worst_softplus = 0, worst_log = 0, worst_pow = 0;
    for (uint32_t u = 0; u < 0x42ae0000u; u += STEP / 4) /* up to 87 */
        for (int sign = -1; sign <= 1; sign += 2) {
            const float x = (float)sign * tfm__bits_f32(u);
            float e_x;
            worst_expm1 = fmax(worst_expm1, ulps(tfm__expm1(x, &e_x), expm1((double)x)));
            worst_exp = fmax(worst_exp, ulps(e_x, exp((double)x)));
            worst_softplus = fmax(worst_softplus, ulps(tfm__softplus(x), log1p(exp((double)x))));
        }
    for (uint32_t u = 0; u < 0x7f000000u; u += STEP) {
        const float x = tfm__bits_f32(u);
        worst_log1p = fmax(worst_log1p, ulps(tfm__log1p(x), log1p((double)x)));
        if (u < 0x00800000u) continue;
        worst_log = fmax(worst_log, fabs(tfm__log((double)x) - log((double)x)) / fmax(0.1, fabs(log((double)x))));
        for (double y = -1; y <= 1; y += 0.0625) {
            const double p = pow((double)x, y);
            worst_pow = fmax(worst_pow, fabs(tfm__pow((double)x, y) / p - 1));
        }
    }
    check(worst_exp <= 1.5, "exp is off by %.3f ulp", worst_exp);
    check(worst_expm1 <= 2, "expm1 is off by %.3f ulp", worst_expm1);
    check(worst_log1p <= 2.5, "log1p is off by %.3f ulp", worst_log1p);
    check(worst_softplus <= 3, "softplus is off by %.3f ulp", worst_softplus);
    check(worst_log <= ldexp(1, -45), "log is off by %g", worst_log);
    check(worst_pow <= ldexp(1, -45), "pow is off by %g", worst_pow);
    double worst_power = 0;
    for (float x = 1e-6f; x < 1e6f; x *= 1.1f)
        for (float y = 0.125f; y < 4.0f; y *= 1.3f)
            worst_power = fmax(worst_power, fabs((double)tfm__power(x, y) / pow((double)x, (double)y) - 1));
    check(worst_power <= 1e-5, "power is off by %g", worst_power);
    check((float)tfm__pow(64, -0.5) == 0.125f, "64^-1/2 is not 1/8");
    check(tfm__floor(-1.5) == -2 && tfm__floor(2.0) == 2 && tfm__floor(2.5) == 2 && tfm__floor(-3.0) == -3, "floor");
}

/* What an item costs may be 2^32 and more: 4 * 2^17 positions * 128 elements * 64 heads, also where an address has 32
 * bits, and the grain as large as its type allows. */
static void count_items(void *ctx, int64_t first, int64_t last) { *(int64_t *)ctx += last - first; }

static void test_costs(void) {
    static const int64_t costs[] = { 1, 65535, 0x80000002, (int64_t)1 << 32, ((int64_t)1 << 40) + 1 };
    tfm__workers w;
    memset(&w, 0, sizeof w);
    w.n_threads = 3;
    w.parallel.run = tiny_backwards; /* else OpenMP, where the tests are built with it */
    for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++)
        for (w.grain = 1; w.grain > 0; w.grain = w.grain == 1 ? INT32_MAX : 0) {
            int64_t n = 0;
            tfm__for(&w, 100, costs[i], count_items, &n);
            check(n == 100, "%d items of 100 are done (cost %d)", (int)n, (int)i);
        }
}

void test_math(void) {
    test_costs();
    test_sqrt();
    test_sin_cos();
    test_logarithms();
}
