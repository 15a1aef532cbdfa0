/* tokenizer_back.h - the tokenizer of a .tfm file as metadata of a GGUF file. */
#ifndef TOOLS_TOKENIZER_BACK_H
#define TOOLS_TOKENIZER_BACK_H

#include "gguf_out.h"
#include "tokenizer.h"

/* The ids that begin and end a text, which a description has also without a tokenizer. */
int tokenizer_put_ids(gguf_out *g, const char *file, const tfm_config *c, tfm_error *err);
/* Adds the rest of "tokenizer.ggml.*" for n_rows tokens. What the metadata cannot say is an error that names it;
 * *warning is NULL or a line about what they say in other words. */
int tokenizer_to_gguf(gguf_out *g, const char *file, const tfm_model *model, int64_t n_rows, arena *a,
                      const char **warning, tfm_error *err);

#endif
