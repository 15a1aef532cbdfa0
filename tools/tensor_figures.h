/* tensor_figures.h - what the numbers of a tensor are like, and how two tensors differ. */
#ifndef TOOLS_TENSOR_FIGURES_H
#define TOOLS_TENSOR_FIGURES_H

#include "base.h"

/* Of the values that are numbers; without any, min, max and rms are 0. */
typedef struct tensor_figures {
    float min, max;
    double rms;
    uint64_t n_nan, n_inf, n_zero;
} tensor_figures;

/* -1: out of memory. */
int tensor_measure(const tfm_tensor *t, tensor_figures *out);
/* The largest difference of two tensors of one shape; *at_row is where it is. A number against NaN, or two
 * infinities that differ, is infinite; NaN against NaN is none. -1: out of memory. */
int tensor_compare(const tfm_tensor *a, const tfm_tensor *b, double *largest, int64_t *at_row);

#endif
