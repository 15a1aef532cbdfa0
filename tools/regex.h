/* regex.h - compiles the regular expressions of pre-tokenizers to the small programs that tfm.h runs.
 *
 * The language is the part of Oniguruma's (which the reference uses) that tokenizers need; whatever is outside it is
 * refused with its position. Leftmost match, alternatives in order. See regex.c for the grammar.
 */
#ifndef TOOLS_REGEX_H
#define TOOLS_REGEX_H

#include "base.h"

/* Instructions, classes and ranges of all programs of one tokenizer, in the form of the section ([B10] of tfm.h):
 * little-endian words. Grows in memory from malloc; regex_pool_free releases it. */
typedef struct regex_pool {
    uint8_t *code;    size_t n_code, cap_code;       /* 8 bytes each */
    uint8_t *classes; size_t n_classes, cap_classes; /* 32 bytes each */
    uint8_t *ranges;  size_t n_ranges, cap_ranges;   /* 8 bytes each */
} regex_pool;

/* Adds the program of pattern[0..n); *start is its first instruction, *n_memo the number of its choice points.
 * `where` names the pattern in messages ("tokenizer.json: pre_tokenizer.pattern"). */
int regex_compile(regex_pool *pool, const char *where, const char *pattern, size_t n, uint32_t *start,
                  uint32_t *n_memo, tfm_error *err);
/* The same for a text that stands for itself. */
int regex_literal(regex_pool *pool, const char *where, const char *text, size_t n, uint32_t *start, uint32_t *n_memo,
                  tfm_error *err);
/* The class of a bare pattern like "\w" or "[\p{L}_]"; *index is its place among the classes. */
int regex_class(regex_pool *pool, const char *where, const char *pattern, uint32_t *index, tfm_error *err);
void regex_pool_free(regex_pool *pool);

#endif
