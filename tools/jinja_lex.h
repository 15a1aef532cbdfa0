/* jinja_lex.h - a template as tokens: text, and what stands in {% %} and {{ }}. White space that tags drop is gone. */
#ifndef TOOLS_JINJA_LEX_H
#define TOOLS_JINJA_LEX_H

#include "base.h"

enum jinja_token_kind {
    TOKEN_TEXT, TOKEN_BLOCK, TOKEN_BLOCK_END, TOKEN_PRINT, TOKEN_PRINT_END, TOKEN_NAME, TOKEN_STRING, TOKEN_INT,
    TOKEN_FLOAT, TOKEN_OP, TOKEN_END
};

typedef struct jinja_token {
    enum jinja_token_kind kind;
    int line;
    const char *text; /* zero-terminated; a string is unescaped */
    size_t n;
    int64_t i;
    double f;
} jinja_token;

/* All tokens, the last of kind TOKEN_END, in the arena; NULL and err if the template is malformed. */
const jinja_token *jinja_lex(const char *name, const char *text, size_t n, arena *a, tfm_error *err);

#endif
