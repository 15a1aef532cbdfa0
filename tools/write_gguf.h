/* write_gguf.h - a .tfm file as a GGUF file: the tables of families (families.h) read the other way round. */
#ifndef TOOLS_WRITE_GGUF_H
#define TOOLS_WRITE_GGUF_H

#include "convert.h"

/* The model's description must be one that some architecture of GGUF can say: the head is written, read back and
 * compared, and a field that comes back otherwise is an error that names it. Weights are written bit for bit, experts
 * stacked; norms that multiply by 1 + w get their 1 folded in, and frequencies scaled in bands become divisors. What
 * the file does not hold is said in one warning. options: user, warn and progress. */
int write_gguf(const tfm_model *model, const char *file, sink *out, const convert_options *options, tfm_error *err);

#endif
