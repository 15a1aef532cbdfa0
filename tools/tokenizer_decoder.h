/* tokenizer_decoder.h - the decoder of a tokenizer.json, carried out on every piece while converting: a file
 * holds what the pieces print, not how the reference gets there. */
#ifndef TOOLS_TOKENIZER_DECODER_H
#define TOOLS_TOKENIZER_DECODER_H

#include "json.h"
#include "tokenizer_build.h"

enum { TOK_MAX_STEPS = 16 };

typedef struct decoder_step {
    int kind;
    const char *from, *to; /* texts; what they mean depends on the kind */
    size_t n_from, n_to;
    int64_t start, stop;
    int on;                         /* clean up; a scheme that drops the first spaces */
    tokenizer_build *rewrite;       /* a regular expression, as a normaliser of its own */
} decoder_step;

typedef struct tok_decoder {
    decoder_step steps[TOK_MAX_STEPS];
    int n, fused, by_place, last_differs;
} tok_decoder;

/* Reads the decoder (NULL or null: tokens are joined by spaces). */
int decoder_read(tok_decoder *d, tokenizer_build *b, const json *decoder);
/* Gives every piece what it prints. A piece that has a print already goes in as that, the others as their names. */
int decoder_apply(tok_decoder *d, tokenizer_build *b);
void decoder_free(tok_decoder *d);

#endif
