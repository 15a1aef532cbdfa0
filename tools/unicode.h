/* unicode.h - what the converter knows of Unicode: maps and groups of characters that go into a file as data, and
 * sets of characters for expressions. The tables (unicode_tables.h, unicode_gguf.h) are made by gen_unicode.py from the
 * references. */
#ifndef TOOLS_UNICODE_H
#define TOOLS_UNICODE_H

#include "base.h"

/* Rows of a map in the form of [B10] of tfm.h (low, high, action | length << 8, value); strings: what rows name. */
typedef struct unicode_map {
    const uint32_t *rows;
    size_t n_rows;
    const unsigned char *strings;
    size_t n_strings;
} unicode_map;

typedef enum unicode_map_kind {
    UNICODE_LOWER,         /* lower case, one character at a time */
    UNICODE_STRIP_ACCENTS, /* without marks */
    UNICODE_BERT_CLEAN,    /* without control characters, white space as spaces */
    UNICODE_BERT_MARKS,    /* without non-spacing marks */
    UNICODE_COMPATIBILITY, /* compatibility decompositions, complete */
    UNICODE_SCRIPTS,       /* groups: scripts, Hiragana and Katakana with Han */
    UNICODE_CLUSTERS,      /* groups: TFM_TOK_GCB_... */
    UNICODE_GGUF_BASE,     /* what llama.cpp does before WordPiece: letters without their accents */
    UNICODE_GGUF_CLEAN,    /* ... without control characters, white space as spaces */
    UNICODE_GGUF_ACCENTS,  /* ... without accents */
    UNICODE_GGUF_ALONE,    /* ... spaces around punctuation and ideographs */
    UNICODE_GGUF_LOWER     /* ... lower case */
} unicode_map_kind;
unicode_map unicode_map_of(unicode_map_kind kind);

/* The ranges of a script or property (any case, _ and - and blanks left out), *n of them: low, high, ... NULL: there is
 * none. General categories are not among them. */
const uint32_t *unicode_set(const char *name, size_t length, size_t *n);
/* General categories as code points << 5 | category, where runs begin. */
const uint32_t *unicode_categories(size_t *n);
/* The other characters that c matches without regard to case; 0 after the last. */
uint32_t unicode_fold(uint32_t c, int index);

#endif
