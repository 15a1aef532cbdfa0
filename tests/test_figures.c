/* test_figures.c - what tfm-inspect measures of tensors. */
#include <math.h>

#include "test.h"
#include "tools/tensor_figures.h"

void test_figures(void);

void test_figures(void) {
    const float a[6] = {1, -3, 0, 2, NAN, 0}, b[6] = {1, -3, 0.5f, 2, NAN, -1}, c[6] = {NAN, 0, 0, 0, 0, 0};
    const float endless[2] = {INFINITY, -2};
    const tfm_tensor ta = {a, TFM_F32, TFM_ROWS, 2, 3}, tb = {b, TFM_F32, TFM_ROWS, 2, 3};
    const tfm_tensor tc = {c, TFM_F32, TFM_ROWS, 2, 3};
    const tfm_tensor te = {endless, TFM_F32, TFM_ROWS, 1, 2}, tn = {c, TFM_F32, TFM_ROWS, 1, 1};
    tensor_figures f;
    double largest;
    int64_t row;
    check(!tensor_measure(&ta, &f) && f.min == -3 && f.max == 2 && f.n_nan == 1 && f.n_inf == 0 && f.n_zero == 2,
          "figures");
    check(fabs(f.rms - sqrt(14.0 / 5)) < 1e-12, "rms of the values that are numbers: %g", f.rms);
    check(!tensor_measure(&te, &f) && f.n_inf == 1 && f.min == -2 && isinf(f.max) && isinf(f.rms), "an infinity");
    check(!tensor_measure(&tn, &f) && f.n_nan == 1 && f.min == 0 && f.max == 0 && f.rms == 0, "no number at all");
    check(!tensor_compare(&ta, &ta, &largest, &row) && largest == 0, "the same tensor, NaN included");
    check(!tensor_compare(&ta, &tb, &largest, &row) && largest == 1 && row == 1,
          "largest difference %g in row %d", largest,
          (int)row);
    check(!tensor_compare(&ta, &tc, &largest, &row) && isinf(largest) && row == 0, "a number against NaN");
}
