/* jinja.h - an interpreter for chat templates, which are Jinja programs that others wrote.
 *
 * The language is Jinja 3.1 as chat templates are run: trim_blocks and lstrip_blocks on, no autoescape, immutable
 * sandbox, loop controls, the `generation` tag, raise_exception, strftime_now, tojson without HTML escapes.
 * Templates are untrusted: steps, memory and nesting are bounded, and nothing but the variables can be reached.
 *
 * Text knows where it comes from. Every byte of a string is the template's or the input's, and keeps that through
 * slices, concatenation and filters; so the caller can tell a turn marker of the template from one typed by a user.
 */
#ifndef TOOLS_JINJA_H
#define TOOLS_JINJA_H

#include "base.h"

typedef struct jinja jinja; /* a template, parsed; lives in its arena */

enum jinja_kind {
    JINJA_UNDEFINED, JINJA_NONE, JINJA_BOOL, JINJA_INT, JINJA_FLOAT, JINJA_STRING, JINJA_LIST, JINJA_TUPLE, JINJA_DICT,
    JINJA_NAMESPACE, JINJA_LOOP, JINJA_CALLABLE
};

typedef struct jinja_string {
    const char *text;           /* UTF-8, n bytes */
    const unsigned char *input; /* per byte: 1 = came in with the variables; NULL: all of it is the template's */
    size_t n;
    int safe;                   /* marked by the filter of that name: "+" escapes what it is joined to */
} jinja_string;

typedef struct jinja_list jinja_list;
typedef struct jinja_dict jinja_dict;
struct jinja_callable;
struct jinja_loop;

typedef struct jinja_value {
    enum jinja_kind kind;
    union {
        int64_t i; /* of a bool too */
        double f;
        const jinja_string *s;
        jinja_list *list;
        jinja_dict *dict; /* of a namespace too */
        const struct jinja_callable *call;
        struct jinja_loop *loop;
        const char *name; /* of what is undefined, or NULL */
    } u;
} jinja_value;

struct jinja_list {
    jinja_value *items;
    size_t n, room;
};

struct jinja_dict {
    jinja_value *keys, *values; /* in the order of insertion */
    size_t n, room;
};

/* The template text[0..n). `name` is the file for messages: "NAME: line 3: ...". */
const jinja *jinja_parse(const char *name, const char *text, size_t n, arena *a, tfm_error *err);

/* The i-th string literal that stands in an argument of a method call `.split(...)`, or NULL: where templates cut. */
const char *jinja_split_literal(const jinja *t, size_t i);
/* The i-th string literal of all, or NULL: what a template can ask a text for. */
const char *jinja_any_literal(const jinja *t, size_t i);

/* Values for the variables, in an arena. Strings of the input are made valid UTF-8 (bad sequences: U+FFFD). */
jinja_value jinja_bool(int b);
jinja_value jinja_text(arena *a, const char *text, size_t n, int input);
jinja_value jinja_new_list(arena *a);
jinja_value jinja_new_dict(arena *a);
/* 0, or -1 if there is no memory. */
int jinja_push(arena *a, jinja_value list, jinja_value item);
int jinja_put(arena *a, jinja_value dict, const char *key, jinja_value value);

typedef struct jinja_output {
    char *text; /* n bytes and a final zero, in the arena of the call */
    unsigned char *input; /* [n], see jinja_string */
    size_t n;
} jinja_output;

typedef struct jinja_options {
    int64_t now;            /* seconds since 1970 for strftime_now, in local time; 0 = the clock */
    /* what strftime_now returns instead; NULL = none. *date_format becomes the format asked for */
    const char *fixed_date;
    const char **date_format;
    int64_t max_steps;      /* fewer than the interpreter's limit; 0 = that limit */
} jinja_options;

/* Renders with the variables of a dict. 0, or an error: the template raised one (TFM_ERR_ARG), broke a limit
 * (TFM_ERR_MEMORY) or did something that has no meaning (TFM_ERR_FORMAT). */
int jinja_render(const jinja *t, jinja_value variables, const jinja_options *options, arena *a, jinja_output *out,
                 tfm_error *err);

#endif
