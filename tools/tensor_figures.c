/* tensor_figures.c - row by row, in the values that tfm_tensor_row gives. */
#include "tensor_figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int tensor_measure(const tfm_tensor *t, tensor_figures *out) {
    float *row = malloc((size_t)t->cols * sizeof *row);
    double squares = 0;
    uint64_t n = 0;
    memset(out, 0, sizeof *out);
    if (!row) return -1;
    for (int64_t r = 0; r < t->rows; r++) {
        tfm_tensor_row(t, r, row);
        for (int64_t i = 0; i < t->cols; i++) {
            const float v = row[i];
            if (isnan(v)) {
                out->n_nan++;
                continue;
            }
            if (!n++) out->min = out->max = v;
            if (v < out->min) out->min = v;
            if (v > out->max) out->max = v;
            out->n_inf += isinf(v) != 0;
            out->n_zero += v == 0;
            squares += (double)v * (double)v;
        }
    }
    out->rms = n ? sqrt(squares / (double)n) : 0;
    free(row);
    return 0;
}

static double difference(float a, float b) {
    if (isnan(a) && isnan(b)) return 0;
    if (a == b) return 0;
    if (isnan(a) || isnan(b) || isinf(a) || isinf(b)) return INFINITY;
    return fabs((double)a - (double)b);
}

int tensor_compare(const tfm_tensor *a, const tfm_tensor *b, double *largest, int64_t *at_row) {
    float *rows = malloc(2 * (size_t)a->cols * sizeof *rows);
    *largest = 0;
    *at_row = 0;
    if (!rows) return -1;
    for (int64_t r = 0; r < a->rows; r++) {
        float *x = rows, *y = rows + a->cols;
        tfm_tensor_row(a, r, x);
        tfm_tensor_row(b, r, y);
        for (int64_t i = 0; i < a->cols; i++) {
            const double d = difference(x[i], y[i]);
            if (d <= *largest) continue;
            *largest = d;
            *at_row = r;
        }
    }
    free(rows);
    return 0;
}
