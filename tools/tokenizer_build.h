/* tokenizer_build.h - one description of a tokenizer, filled by the readers (tokenizer_json.c for tokenizer.json,
 * tokenizer_spm.c for vocabularies with scores, tokenizer_gguf.c) and written as a section by tokenizer.c.
 *
 * Spaces: where a vocabulary writes a space as U+2581 and both encoder and decoder replace one by the other, everything
 * is kept in spaces instead (`spaces`): U+2581 in the text becomes a space, which is the same thing seen from the
 * other side, and the text stays short.
 */
#ifndef TOOLS_TOKENIZER_BUILD_H
#define TOOLS_TOKENIZER_BUILD_H

#include "regex.h"
#include "tokenizer.h"
#include "unicode.h"

#define TOK_SPACE_MARK "\xE2\x96\x81" /* U+2581 */
#define TOK_NONE UINT32_MAX

typedef struct tok_piece {
    const char *name; /* as in the vocabulary, its identity */
    uint32_t name_length;
    const char *text; /* what the model sees */
    uint32_t length;
    const char *print, *first; /* what it prints; what it prints at the start of a text. NULL: the one before */
    uint32_t n_print, n_first;
    uint32_t flags;   /* TFM_TOKEN_..., TFM_TOK_PIECE_... */
    uint32_t reachable; /* the model may make it */
    double score;
} tok_piece;

typedef struct tok_merge {
    uint32_t left, right, rank, result;
} tok_merge;

typedef struct tok_added {
    const char *name; /* as in the vocabulary */
    uint32_t name_length;
    const char *match; /* what it looks like in the text */
    uint32_t match_length;
    uint32_t id, flags;
    int normalized;
} tok_added;

typedef struct tokenizer_build {
    arena *a;
    tfm_error *err;
    const char *file; /* for messages */
    tok_section *out;
    int64_t n_rows;

    tok_piece *pieces; /* by id; name NULL: no piece */
    uint32_t n_ids;
    name_index names;  /* of pieces */
    tok_merge *merges;
    size_t n_merges, cap_merges;
    int last_merge_wins; /* where a pair stands twice; else the first */
    tok_added *added;
    size_t n_added, cap_added;
    uint32_t byte_ids[256];
    uint32_t ops[TFM_TOK_MAX_OPS][6];
    uint32_t n_ops, n_norm;
    uint32_t *maps; /* rows of 4 */
    size_t n_maps, cap_maps;
    char *strings;
    size_t n_strings, cap_strings;
    regex_pool expressions;
    uint32_t prefix[16], suffix[16], n_prefix, n_suffix;
    uint32_t model, flags, unk, word_class, word_limit;
    uint32_t inner, n_inner, final, n_final; /* in strings */
    uint32_t strip; /* TFM_TOK_STRIP */
    double unk_score;
    uint64_t grow_mul, grow_add; /* by what replaces one string by another */
    double grow_good, grow_bad;  /* by the other operations: any text; a bad byte, beyond U+FFFD */
    int spaces, ignore_merges;
} tokenizer_build;

void build_begin(tokenizer_build *b, arena *a, const char *file, int64_t n_rows, tok_section *out, tfm_error *err);
void build_warn(tokenizer_build *b, const char *line); /* line: the arena's, or a literal */

/* Room for ids below n (at most n_rows, if that is known), without pieces; names for up to n_names of them. */
int build_ids(tokenizer_build *b, int64_t n, size_t n_names);
/* Gives an id its piece, whose text is its name until the reader says otherwise. An id or a name twice is an error. */
int build_piece(tokenizer_build *b, int64_t id, const char *name, size_t length);
uint32_t build_find(const tokenizer_build *b, const char *name, size_t length); /* id, or TOK_NONE */
/* text[0..n) with U+2581 as a space. */
const char *build_unmark(tokenizer_build *b, const char *text, size_t n, uint32_t *length);
/* The byte that a name like <0x0A> spells, or -1. */
int build_spelled_byte(const char *name, size_t length);

int build_add_merge(tokenizer_build *b, uint32_t left, uint32_t right, uint32_t rank, uint32_t result);
/* Merges of a vocabulary with scores: every cut of a piece into two, best score first. */
int build_merges_from_scores(tokenizer_build *b);
int build_add_token(tokenizer_build *b, const tok_added *token);

int build_op(tokenizer_build *b, uint32_t kind, uint32_t x, uint32_t y, uint32_t z);
int build_string(tokenizer_build *b, const char *text, size_t n, uint32_t *at);
/* A map of characters, or a split at its groups: growth is by how much it may lengthen a text. */
int build_map(tokenizer_build *b, uint32_t kind, const unicode_map *map, double growth);
int build_rewrite(tokenizer_build *b, const char *where, const char *pattern, size_t n, const char *to, size_t n_to);
/* Bytes of a precompiled SentencePiece map; clusters: as the `tokenizers` package applies it. */
int build_charsmap(tokenizer_build *b, const char *bytes, size_t n, int clusters);
int build_byte_chars(tokenizer_build *b);
/* The normal forms: compatibility 0 or 1, composed 0 or 1. */
int build_form(tokenizer_build *b, int compatibility, int composed);
/* What the normaliser makes of a text, in the arena. NULL: no memory. */
const char *build_normalised(tokenizer_build *b, const char *text, size_t n, size_t *length);
int build_replace(tokenizer_build *b, const char *from, size_t n_from, const char *to, size_t n_to);
int build_prepend(tokenizer_build *b, const char *text, size_t n, uint32_t when);
int build_split(tokenizer_build *b, const char *where, const char *pattern, size_t n, int is_regex, uint32_t behaviour);

/* Writes the section and frees what is not the arena's. */
int build_finish(tokenizer_build *b);
/* Frees it after an error, which it returns. */
int build_abandon(tokenizer_build *b, int code);

/* Byte-level vocabularies: the bytes that a name spells (0: a character of it stands for none, and nothing is changed;
 * -1: out of memory); the symbols of all bytes; a merge by names. */
uint32_t tok_byte_character(int byte); /* that stands for it: below 0x144 */
int tok_from_byte_level(arena *a, const char *name, size_t n, const char **bytes, uint32_t *length);
void tok_byte_symbols(tokenizer_build *b);
int tok_named_merge(tokenizer_build *b, const char *where, const char *left, size_t n_left, const char *right,
                    size_t n_right,
                    uint32_t rank);

/* Vocabularies with U+2581: what kind of piece an id has (one the model makes, a byte, one that is matched in the
 * text), and what stands before the model. */
int tok_space_piece(tokenizer_build *b, uint32_t id);
int tok_byte_piece(tokenizer_build *b, uint32_t id);
int tok_matched_piece(tokenizer_build *b, uint32_t id, int control, int normalized);
int tok_space_ops(tokenizer_build *b, int prefix);

/* text[0..n) with U+2581 for its spaces. */
const char *tok_mark_spaces(arena *a, const char *text, size_t n, size_t *length);

/* The pre-tokenizer of GPT-2, which ByteLevel implies. */
extern const char tok_gpt2_pattern[];

#endif
