/* quantize.h - floats become blocks of codes; the one quantiser of tfm-convert and tfm-quantize.
 *
 * Every step is a float32 operation in a fixed order (no libm but the square root, no fused product and sum), so the
 * same values give the same bytes on every host.
 */
#ifndef TOOLS_QUANTIZE_H
#define TOOLS_QUANTIZE_H

#include "base.h"

/* Whether quantize_strip has an encoder for a type. */
int quantize_knows(int32_t type);

/* values [n_rows][cols] (n_rows <= 16) become one strip of tfm_strip_bytes(type, cols). importance [cols], or NULL:
 * how much the square of an error counts in each input. TFM_ERR_NUMERIC: a value is not finite, or too large for the
 * type. */
int quantize_strip(int32_t type, void *strip, const float *values, int n_rows, int64_t cols, const float *importance);

#endif
