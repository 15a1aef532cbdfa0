/* diff_models.h - tfm-inspect --diff: what differs between two .tfm files. */
#ifndef TOOLS_DIFF_MODELS_H
#define TOOLS_DIFF_MODELS_H

#include "base.h"

enum { DIFF_SAME = 0, DIFF_DIFFERENT = 3 };

/* Prints the fields of the description that differ, layer by layer; whether the tokenizers do; and each tensor that
 * is in one file alone, has another type or shape, or other values, with the largest difference. DIFF_SAME,
 * DIFF_DIFFERENT, or 1 after one line on stderr. What was recorded about the origin of the files does not count. */
int diff_models(const char *path_a, const char *path_b, int json);

#endif
