/* jinja_internal.h - what the parts of the interpreter share: jinja_parse.c makes the tree, jinja_eval.c walks it,
 * jinja_value.c knows what values are, jinja_strings.c their methods; jinja_filters.c has the filters, jinja_library.c
 * tests, methods of lists and dicts, and globals.
 */
#ifndef TOOLS_JINJA_INTERNAL_H
#define TOOLS_JINJA_INTERNAL_H

#include <string.h>

#include "jinja.h"

enum {
    JINJA_MAX_NESTING = 120,        /* of statements and expressions in the template */
    JINJA_MAX_DEPTH = 400,          /* of the walk, with macros and recursive loops */
    JINJA_MAX_STEPS = 8 * 1000000,  /* nodes walked, items and blocks of bytes moved */
    JINJA_MAX_BYTES = 192 << 20,    /* made by one rendering */
    JINJA_MAX_TEXT = 4 << 20,       /* of a template */
    JINJA_MAX_ARGS = 24
};

/* ---- THE TREE -------------------------------------------------------------------------------------------------- */

enum jinja_node_kind {
    /* expressions */
    NODE_CONST, NODE_NAME, NODE_LIST, NODE_TUPLE, NODE_DICT, NODE_ATTR, NODE_ITEM, NODE_SLICE, NODE_CALL, NODE_FILTER,
    NODE_TEST, NODE_NOT, NODE_NEG, NODE_POS, NODE_AND, NODE_OR, NODE_COMPARE, NODE_BINARY, NODE_CONCAT, NODE_COND,
    /* statements */
    NODE_TEXT, NODE_PRINT, NODE_IF, NODE_FOR, NODE_SET, NODE_SET_BLOCK, NODE_MACRO, NODE_CALL_BLOCK, NODE_FILTER_BLOCK,
    NODE_WITH, NODE_SCOPE, NODE_BREAK, NODE_CONTINUE
};

enum jinja_operator {
    OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE, OP_IN, OP_NOT_IN, OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD,
    OP_POW
};

typedef struct jinja_node jinja_node;

/* Children by kind (a, b, c are nodes or NULL; kids is a list linked by `next`; names beside kids are in `name`):
 *   NAME name · LIST TUPLE kids · DICT kids: key, value, ... · ATTR a.name · ITEM a[b] · SLICE a[b:c:d] · CALL a(kids)
 *   FILTER a|name(kids) · TEST a is name(kids) · NOT NEG POS a · AND OR a, b · COMPARE a, then kids with op ·
 *   BINARY a op b · CONCAT kids · COND a if b else c
 *   TEXT value · PRINT a · IF a: kids, else: other · FOR a (target) in b if c: kids, else: other, flag = recursive ·
 *   SET a = b · SET_BLOCK a, filters in b, kids · MACRO name(a: list of params) kids · CALL_BLOCK as MACRO, b: the call
 *   FILTER_BLOCK a: the filter over kids · WITH a: list of targets and values, kids · SCOPE kids
 * In a list of arguments a kid with a name is a keyword argument; star = 1, 2 for * and **. A parameter is a node
 * NAME whose a is its default. */
struct jinja_node {
    enum jinja_node_kind kind;
    int line;
    int op, flag, star;
    const char *name;
    jinja_value value;
    jinja_node *a, *b, *c, *d, *kids, *other, *next;
};

struct jinja {
    const char *name;
    const jinja_node *body;
    const char **split_literals, **literals;
    size_t n_split_literals, room_split_literals, n_literals, room_literals;
};

/* ---- THE STATE OF A RENDERING ---------------------------------------------------------------------------------- */

typedef struct jinja_frame { /* a scope: its variables, then those of the scope around it */
    jinja_dict vars;
    struct jinja_frame *outer;
} jinja_frame;

/* Text under way. */
typedef struct jinja_builder {
    char *text;
    unsigned char *input; /* NULL until there is input in it */
    size_t n, room, input_room;
} jinja_builder;

typedef struct jinja_state {
    const jinja *t;
    const jinja_options *options;
    arena *a;
    tfm_error *err;
    int failed, line, depth;
    int64_t steps, max_steps;
    size_t bytes;
    enum { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } flow;
    jinja_frame *frame;
    jinja_builder *out;
} jinja_state;

/* Arguments of a call, positional first. */
typedef struct jinja_args {
    jinja_value value[JINJA_MAX_ARGS];
    const char *name[JINJA_MAX_ARGS]; /* NULL: positional */
    int n, n_positional;
} jinja_args;

typedef jinja_value jinja_function(jinja_state *s, jinja_value self, jinja_args *args);

/* A function of the library (perhaps bound to `self`), a macro, or loop(...). */
typedef struct jinja_callable {
    const char *name;
    jinja_function *run;
    jinja_value self;
    const jinja_node *macro; /* with its parameters in a, its body in kids */
    jinja_frame *home;       /* scope where it was defined */
} jinja_callable;

typedef struct jinja_loop {
    const jinja_list *items;
    size_t at;
    int depth0;
    const jinja_node *node; /* of a recursive loop */
    jinja_frame *home;
    jinja_value changed;    /* what loop.changed() saw last */
} jinja_loop;

/* ---- jinja_value.c --------------------------------------------------------------------------------------------- */

/* The first failure counts: "NAME: line N: message". Returns an undefined value. */
jinja_value jinja_fail(jinja_state *s, int code, const char *format, ...) TOOL_PRINTF(3, 4);
int jinja_step(jinja_state *s, size_t work); /* counts; 0, or -1 after a failure */
int jinja_step_over(jinja_state *s, jinja_value v); /* counts a look at all of v: its bytes or items */
void *jinja_alloc(jinja_state *s, size_t n); /* zeroed, with a final zero; NULL after a failure */
const char *jinja_copy(jinja_state *s, const char *text, size_t n); /* with a final zero; "" after a failure */

jinja_value jinja_undefined(const char *name);
jinja_value jinja_none(void);
jinja_value jinja_int(int64_t i);
jinja_value jinja_float(double f);
jinja_value jinja_literal(jinja_state *s, const char *text); /* a text of the template's, not copied */
jinja_value jinja_string_of(jinja_state *s, const char *text, const unsigned char *input, size_t n); /* not copied */
jinja_value jinja_slice_of(jinja_state *s, const jinja_string *from, size_t begin, size_t end);
jinja_value jinja_list_of(jinja_state *s, enum jinja_kind kind); /* empty; or a dict, or a namespace */
void jinja_append(jinja_state *s, jinja_value list, jinja_value item);
void jinja_set_key(jinja_state *s, jinja_dict *d, jinja_value key, jinja_value value);
const jinja_value *jinja_find(jinja_state *s, const jinja_dict *d, jinja_value key);
const jinja_value *jinja_find_name(const jinja_dict *d, const char *name, size_t n);

int jinja_is_true(jinja_value v);
int jinja_is_number(jinja_value v); /* int, float, bool */
int jinja_is_string(jinja_value v);
double jinja_number(jinja_value v);
int jinja_equal(jinja_state *s, jinja_value a, jinja_value b);
/* < 0, 0, > 0; fails where the kinds have no order. */
int jinja_compare(jinja_state *s, jinja_value a, jinja_value b);
int jinja_contains(jinja_state *s, jinja_value where, jinja_value what);
const char *jinja_type_name(jinja_value v);
/* The items of a list, tuple, dict (its keys) or string (its characters), as a list; NULL after a failure. */
const jinja_list *jinja_iterate(jinja_state *s, jinja_value v);
/* What {{ v }} prints. */
const jinja_string *jinja_to_string(jinja_state *s, jinja_value v);
jinja_value jinja_repr(jinja_state *s, jinja_value v);
jinja_value jinja_tojson(jinja_state *s, jinja_value v, int indent, int ascii, int sort_keys,
                         const char *item_separator,
                         const char *key_separator);

void jinja_add(jinja_state *s, jinja_builder *b, const jinja_string *text);
void jinja_add_bytes(jinja_state *s, jinja_builder *b, const char *text, const unsigned char *input, size_t n);
void jinja_add_text(jinja_state *s, jinja_builder *b, const char *text); /* the template's */
jinja_value jinja_built(jinja_state *s, const jinja_builder *b);

/* UTF-8: bytes of the character at p (at least 1), its code point. */
size_t jinja_char(const char *p, size_t n, uint32_t *code);
int jinja_is_space(uint32_t code); /* what str.strip() takes away */
size_t jinja_length(const jinja_string *s); /* characters */

/* ---- jinja_filters.c, jinja_library.c ---------------------------------------------------------------------------- */

jinja_value jinja_filter(jinja_state *s, const char *name, jinja_value v, jinja_args *args);
int jinja_test(jinja_state *s, const char *name, jinja_value v, jinja_args *args);
int jinja_has_filter(const char *name);
int jinja_has_test(const char *name);
/* A method of a value, or undefined. */
jinja_value jinja_method(jinja_state *s, jinja_value v, const char *name);
void jinja_globals(jinja_state *s, jinja_dict *vars);
/* printf-style "..." % args. */
jinja_value jinja_percent(jinja_state *s, const jinja_string *format, jinja_value args);
const jinja_value *jinja_arg(const jinja_args *args, int i, const char *name); /* positional i or keyword, or NULL */

/* ---- jinja_eval.c ---------------------------------------------------------------------------------------------- */

jinja_value jinja_call(jinja_state *s, jinja_value callee, jinja_args *args);
jinja_value jinja_attribute(jinja_state *s, jinja_value v, const char *name); /* v.name */
jinja_value jinja_item(jinja_state *s, jinja_value v, jinja_value key);       /* v[key] */

#endif
