/* jinja_strings.h - what filters, tests and methods share. */
#ifndef TOOLS_JINJA_STRINGS_H
#define TOOLS_JINJA_STRINGS_H

#include "jinja_internal.h"

enum { JINJA_LEFT = 1, JINJA_RIGHT = 2 };
enum jinja_case { JINJA_UPPER, JINJA_LOWER, JINJA_TITLE, JINJA_CAPITAL, JINJA_SWAP };

/* set NULL: white space */
jinja_value jinja_strip(jinja_state *s, const jinja_string *str, const jinja_string *set, int sides);
jinja_value jinja_replace(jinja_state *s, const jinja_string *str, const jinja_string *old, const jinja_string *with,
                          int64_t most); /* most < 0: all */
jinja_value jinja_join(jinja_state *s, const jinja_string *between, const jinja_list *items);
jinja_value jinja_recase(jinja_state *s, const jinja_string *str, enum jinja_case mode);
jinja_value jinja_lines(jinja_state *s, const jinja_string *str, int keep_ends);
int jinja_all_cased(const jinja_string *str, int upper);
jinja_value jinja_pairs(jinja_state *s, const jinja_dict *d); /* (key, value) tuples */
/* A string argument of a call, or `otherwise`; a string with a final zero. */
const jinja_string *jinja_text_arg(jinja_state *s, const jinja_args *args, int i, const char *name,
                                   const char *otherwise);
const char *jinja_c_string(jinja_state *s, const jinja_string *text);
jinja_function *jinja_string_method(const char *name); /* NULL: none */

#endif
