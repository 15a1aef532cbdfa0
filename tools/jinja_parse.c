/* jinja_parse.c - tokens become a tree; the grammar and its precedences are Jinja's. */
#include "jinja_internal.h"
#include "jinja_lex.h"

typedef struct parser {
    jinja *t;
    const jinja_token *at;
    arena *a;
    tfm_error *err;
    int failed, depth, loops;
} parser;

static jinja_node *parse_expression(parser *p, int with_condition);
static jinja_node *parse_unary(parser *p, int with_filter);
static jinja_node *parse_tuple(parser *p, int with_condition, int in_brackets);
static jinja_node *parse_body(parser *p, const char *const *ends);

/* ---- tools ----------------------------------------------------------------------------------------------------- */

static jinja_node *fail(parser *p, const char *what, const char *detail) {
    if (!p->failed)
        tool_fail(p->err, TFM_ERR_FORMAT, "%s: line %d: %s%s%s%s", p->t->name, p->at->line, what, detail ? " '" : "",
                  detail ? detail : "", detail ? "'" : "");
    p->failed = 1;
    return NULL;
}

/* Every rule that can contain itself enters here and leaves with p->depth--. */
static int enter(parser *p) {
    if (++p->depth > JINJA_MAX_NESTING) fail(p, "the template is nested too deeply", NULL);
    return p->failed;
}

static jinja_node *new_node(parser *p, enum jinja_node_kind kind) {
    static jinja_node spare; /* only after the arena failed: what is built on it is never used */
    jinja_node *n = arena_alloc(p->a, sizeof *n);
    if (!n) {
        fail(p, "out of memory", NULL);
        memset(&spare, 0, sizeof spare);
        return &spare;
    }
    n->kind = kind;
    n->line = p->at->line;
    return n;
}

static jinja_node *new_pair(parser *p, enum jinja_node_kind kind, jinja_node *a, jinja_node *b) {
    jinja_node *n = new_node(p, kind);
    n->a = a;
    n->b = b;
    if (a) n->line = a->line;
    return n;
}

static int is_op(const parser *p, const char *op) { return p->at->kind == TOKEN_OP && !strcmp(p->at->text, op); }
static int is_name(const parser *p, const char *name) {
    return p->at->kind == TOKEN_NAME && (!name || !strcmp(p->at->text, name));
}
static void advance(parser *p) { if (p->at->kind != TOKEN_END) p->at++; }

static int take_op(parser *p, const char *op) {
    if (!is_op(p, op)) return 0;
    advance(p);
    return 1;
}
static int take_name(parser *p, const char *name) {
    if (!is_name(p, name)) return 0;
    advance(p);
    return 1;
}
static void expect_op(parser *p, const char *op) { if (!take_op(p, op)) fail(p, "expected", op); }
static const char *expect_name(parser *p) {
    const char *name = p->at->text;
    if (!is_name(p, NULL)) { fail(p, "expected a name", NULL); return ""; }
    advance(p);
    return name;
}
static void expect(parser *p, enum jinja_token_kind kind) {
    if (p->at->kind != kind) fail(p, "the tag should end before", p->at->n ? p->at->text : NULL);
    else advance(p);
}

static void append(jinja_node ***tail, jinja_node *n) {
    if (!n) return;
    **tail = n;
    *tail = &n->next;
}

/* ---- expressions ----------------------------------------------------------------------------------------------- */

static jinja_node *constant(parser *p, jinja_value v) {
    jinja_node *n = new_node(p, NODE_CONST);
    n->value = v;
    return n;
}

static void note_literal(jinja *t, const jinja_string *s) {
    size_t i = 0;
    while (i < t->n_literals && strcmp(t->literals[i], s->text)) i++;
    if (i < t->n_literals || i == t->room_literals || !s->n || strlen(s->text) != s->n) return;
    t->literals[t->n_literals++] = s->text;
}

/* A string literal; several in a row are one. */
static jinja_node *parse_string(parser *p) {
    size_t total = 0, n = 0;
    const jinja_token *t = p->at;
    for (; t->kind == TOKEN_STRING; t++) total += t->n;
    char *text = arena_text(p->a, total);
    jinja_string *s = arena_alloc(p->a, sizeof *s);
    jinja_value v;
    if (!text || !s) return fail(p, "out of memory", NULL);
    jinja_node *node = new_node(p, NODE_CONST);
    for (; p->at->kind == TOKEN_STRING; advance(p)) {
        memcpy(text + n, p->at->text, p->at->n);
        n += p->at->n;
    }
    s->text = text;
    s->n = n;
    v.kind = JINJA_STRING;
    v.u.s = s;
    node->value = v;
    note_literal(p->t, s);
    return node;
}

static jinja_node *parse_list(parser *p) {
    jinja_node *n = new_node(p, NODE_LIST), **tail = &n->kids;
    advance(p);
    while (!p->failed && !is_op(p, "]")) {
        append(&tail, parse_expression(p, 1));
        if (!take_op(p, ",")) break;
    }
    expect_op(p, "]");
    return n;
}

static jinja_node *parse_dict(parser *p) {
    jinja_node *n = new_node(p, NODE_DICT), **tail = &n->kids;
    advance(p);
    while (!p->failed && !is_op(p, "}")) {
        append(&tail, parse_expression(p, 1));
        expect_op(p, ":");
        append(&tail, parse_expression(p, 1));
        if (!take_op(p, ",")) break;
    }
    expect_op(p, "}");
    return n;
}

static jinja_node *parse_name(parser *p) {
    static const struct { const char *name; enum jinja_kind kind; int value; } constants[] = {
        {"true", JINJA_BOOL, 1}, {"True", JINJA_BOOL, 1}, {"false", JINJA_BOOL, 0}, {"False", JINJA_BOOL, 0},
        {"none", JINJA_NONE, 0}, {"None", JINJA_NONE, 0}};
    jinja_node *n = new_node(p, NODE_NAME);
    n->name = p->at->text;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        if (strcmp(constants[i].name, n->name)) continue;
        n->kind = NODE_CONST;
        n->value.kind = constants[i].kind;
        n->value.u.i = constants[i].value;
    }
    advance(p);
    return n;
}

static jinja_node *parse_primary(parser *p) {
    jinja_node *n;
    switch (p->at->kind) {
    case TOKEN_NAME: return parse_name(p);
    case TOKEN_STRING: return parse_string(p);
    case TOKEN_INT:
        n = constant(p, jinja_int(p->at->i));
        advance(p);
        return n;
    case TOKEN_FLOAT:
        n = constant(p, jinja_float(p->at->f));
        advance(p);
        return n;
    default: break;
    }
    if (is_op(p, "[")) return parse_list(p);
    if (is_op(p, "{")) return parse_dict(p);
    if (!is_op(p, "("))
        return p->at->n ? fail(p, "unexpected", p->at->text) : fail(p, "an expression is missing", NULL);
    advance(p);
    n = parse_tuple(p, 1, 1);
    expect_op(p, ")");
    return n;
}

/* What stands between the brackets of v[...]: an expression, or a slice. */
static jinja_node *parse_subscript(parser *p, jinja_node *v) {
    jinja_node *part[3] = {NULL, NULL, NULL};
    int colons = 0;
    while (!p->failed && !is_op(p, "]")) {
        if (is_op(p, ":")) {
            if (++colons > 2) return fail(p, "a slice has too many parts", NULL);
            advance(p);
        } else if (is_op(p, ",") && !colons) { /* v[a, b]: a tuple is the key */
            jinja_node *tuple = new_pair(p, NODE_TUPLE, NULL, NULL), **tail = &tuple->kids;
            append(&tail, part[0]);
            while (take_op(p, ",") && !is_op(p, "]")) append(&tail, parse_expression(p, 1));
            part[0] = tuple;
        } else {
            if (part[colons]) return fail(p, "expected", "]");
            part[colons] = parse_expression(p, 1);
        }
    }
    expect_op(p, "]");
    if (!colons && !part[0]) return fail(p, "an index is missing", NULL);
    jinja_node *n = new_pair(p, colons ? NODE_SLICE : NODE_ITEM, v, part[0]);
    n->c = part[1];
    n->d = part[2];
    return n;
}

static jinja_node *parse_arguments(parser *p) {
    jinja_node *first = NULL, **tail = &first;
    int count = 0;
    expect_op(p, "(");
    while (!p->failed && !is_op(p, ")")) {
        const char *name = NULL;
        int star = take_op(p, "**") ? 2 : take_op(p, "*") ? 1 : 0;
        if (!star && is_name(p, NULL) && p->at[1].kind == TOKEN_OP && !strcmp(p->at[1].text, "=")) {
            name = p->at->text;
            advance(p);
            advance(p);
        }
        jinja_node *value = parse_expression(p, 1);
        if (!value) break;
        if (name || star) { /* the name is the argument's, not the expression's */
            jinja_node *wrap = new_pair(p, NODE_SCOPE, value, NULL);
            wrap->name = name;
            wrap->star = star;
            value = wrap;
        }
        if (++count > JINJA_MAX_ARGS) fail(p, "a call has too many arguments", NULL);
        append(&tail, value);
        if (!take_op(p, ",")) break;
    }
    expect_op(p, ")");
    return first;
}

static void note_split(parser *p, const jinja_node *call) {
    jinja *t = p->t;
    if (call->a->kind != NODE_ATTR || strcmp(call->a->name, "split")) return;
    for (const jinja_node *k = call->kids; k; k = k->next) {
        if (k->kind != NODE_CONST || k->value.kind != JINJA_STRING || !k->value.u.s->n) continue;
        if (t->n_split_literals < t->room_split_literals) t->split_literals[t->n_split_literals++] = k->value.u.s->text;
    }
}

static jinja_node *parse_call(parser *p, jinja_node *callee) {
    jinja_node *n = new_pair(p, NODE_CALL, callee, NULL);
    n->kids = parse_arguments(p);
    if (!p->failed) note_split(p, n);
    return n;
}

/* .name [index] (call) behind a value */
static jinja_node *parse_postfix(parser *p, jinja_node *v) {
    int links = 0;
    while (!p->failed && v) {
        if (++links > JINJA_MAX_NESTING) return fail(p, "an expression is too long", NULL);
        if (take_op(p, ".")) {
            if (p->at->kind == TOKEN_INT) {
                v = new_pair(p, NODE_ITEM, v, constant(p, jinja_int(p->at->i)));
                advance(p);
            } else {
                v = new_pair(p, NODE_ATTR, v, NULL);
                v->name = expect_name(p);
            }
        } else if (take_op(p, "[")) {
            v = parse_subscript(p, v);
        } else if (is_op(p, "(")) {
            v = parse_call(p, v);
        } else {
            break;
        }
    }
    return v;
}

/* name(.name)* of a filter or test */
static const char *parse_dotted(parser *p) {
    const char *name = expect_name(p);
    while (!p->failed && take_op(p, ".")) {
        name = arena_printf(p->a, "%s.%s", name, expect_name(p));
        if (!name) { fail(p, "out of memory", NULL); return ""; }
    }
    return name;
}

static jinja_node *parse_filter(parser *p, jinja_node *v) {
    jinja_node *n = new_pair(p, NODE_FILTER, v, NULL);
    n->line = p->at->line;
    n->name = parse_dotted(p);
    if (is_op(p, "(")) n->kids = parse_arguments(p);
    return n;
}

static int test_argument_follows(const parser *p) {
    if (p->at->kind == TOKEN_NAME)
        return !is_name(p, "else") && !is_name(p, "or") && !is_name(p, "and") && !is_name(p, "is") &&
               !is_name(p, "if") && !is_name(p, "not") && !is_name(p, "in") && !is_name(p, "recursive");
    return p->at->kind == TOKEN_STRING || p->at->kind == TOKEN_INT || p->at->kind == TOKEN_FLOAT || is_op(p, "[") ||
           is_op(p, "{");
}

static jinja_node *parse_test(parser *p, jinja_node *v) {
    int negated = take_name(p, "not");
    jinja_node *n = new_pair(p, NODE_TEST, v, NULL);
    n->name = parse_dotted(p);
    if (is_op(p, "(")) n->kids = parse_arguments(p);
    else if (test_argument_follows(p)) n->kids = parse_postfix(p, parse_primary(p));
    return negated ? new_pair(p, NODE_NOT, n, NULL) : n;
}

/* |filter, is test, and (call) behind either */
static jinja_node *parse_filters(parser *p, jinja_node *v) {
    int links = 0;
    while (!p->failed && v) {
        if (++links > JINJA_MAX_NESTING) return fail(p, "an expression is too long", NULL);
        if (take_op(p, "|")) v = parse_filter(p, v);
        else if (take_name(p, "is")) v = parse_test(p, v);
        else if (is_op(p, "(")) v = parse_call(p, v);
        else break;
    }
    return v;
}

static jinja_node *parse_unary(parser *p, int with_filter) {
    jinja_node *n = NULL;
    if (!enter(p)) {
        if (take_op(p, "-")) n = new_pair(p, NODE_NEG, parse_unary(p, 0), NULL);
        else if (take_op(p, "+")) n = new_pair(p, NODE_POS, parse_unary(p, 0), NULL);
        else n = parse_primary(p);
        n = parse_postfix(p, n);
        if (with_filter) n = parse_filters(p, n);
    }
    p->depth--;
    return n;
}

/* The levels of binary operators, the loosest first; each is left-associative, also "**". */
typedef struct operator_row { const char *text; int op; } operator_row;
static const operator_row sums[] = {{"+", OP_ADD}, {"-", OP_SUB}, {NULL, 0}};
static const operator_row products[] = {{"*", OP_MUL}, {"/", OP_DIV}, {"//", OP_FLOORDIV}, {"%", OP_MOD}, {NULL, 0}};
static const operator_row powers[] = {{"**", OP_POW}, {NULL, 0}};
static const operator_row comparisons[] = {{"==", OP_EQ}, {"!=", OP_NE}, {"<", OP_LT}, {"<=", OP_LE}, {">", OP_GT},
                                           {">=", OP_GE}, {NULL, 0}};

static int take_operator(parser *p, const operator_row *rows) {
    for (; rows->text; rows++) if (take_op(p, rows->text)) return rows->op;
    return -1;
}

static jinja_node *parse_binary(parser *p, const operator_row *rows, jinja_node *(*next)(parser *)) {
    jinja_node *left = next(p);
    int op, links = 0;
    while (!p->failed && (op = take_operator(p, rows)) >= 0) {
        if (++links > JINJA_MAX_NESTING) return fail(p, "an expression is too long", NULL);
        left = new_pair(p, NODE_BINARY, left, next(p));
        left->op = op;
    }
    return left;
}

static jinja_node *parse_operand(parser *p) { return parse_unary(p, 1); }
static jinja_node *parse_power(parser *p) { return parse_binary(p, powers, parse_operand); }
static jinja_node *parse_product(parser *p) { return parse_binary(p, products, parse_power); }

static jinja_node *parse_concat(parser *p) {
    jinja_node *first = parse_product(p);
    if (p->failed || !is_op(p, "~")) return first;
    jinja_node *n = new_pair(p, NODE_CONCAT, NULL, NULL), **tail = &n->kids;
    append(&tail, first);
    while (!p->failed && take_op(p, "~")) append(&tail, parse_product(p));
    return n;
}

static jinja_node *parse_sum(parser *p) { return parse_binary(p, sums, parse_concat); }

static jinja_node *parse_compare(parser *p) {
    jinja_node *first = parse_sum(p), *n = NULL, **tail = NULL;
    while (!p->failed) {
        int op = take_operator(p, comparisons);
        if (op < 0 && take_name(p, "in")) op = OP_IN;
        if (op < 0 && is_name(p, "not") && p->at[1].kind == TOKEN_NAME && !strcmp(p->at[1].text, "in")) {
            advance(p);
            advance(p);
            op = OP_NOT_IN;
        }
        if (op < 0) break;
        if (!n) {
            n = new_pair(p, NODE_COMPARE, first, NULL);
            tail = &n->kids;
        }
        jinja_node *operand = new_pair(p, NODE_SCOPE, parse_sum(p), NULL);
        operand->op = op;
        append(&tail, operand);
    }
    return n ? n : first;
}

static jinja_node *parse_not(parser *p) {
    jinja_node *n = NULL;
    if (!enter(p)) n = take_name(p, "not") ? new_pair(p, NODE_NOT, parse_not(p), NULL) : parse_compare(p);
    p->depth--;
    return n;
}

static jinja_node *parse_logic(parser *p, const char *word, enum jinja_node_kind kind, jinja_node *(*next)(parser *)) {
    jinja_node *left = next(p);
    int links = 0;
    while (!p->failed && take_name(p, word)) {
        if (++links > JINJA_MAX_NESTING) return fail(p, "an expression is too long", NULL);
        left = new_pair(p, kind, left, next(p));
    }
    return left;
}

static jinja_node *parse_and(parser *p) { return parse_logic(p, "and", NODE_AND, parse_not); }
static jinja_node *parse_or(parser *p) { return parse_logic(p, "or", NODE_OR, parse_and); }

static jinja_node *parse_expression(parser *p, int with_condition) {
    jinja_node *n = NULL;
    if (!enter(p)) {
        n = parse_or(p);
        while (!p->failed && with_condition && take_name(p, "if")) {
            n = new_pair(p, NODE_COND, n, parse_or(p));
            if (take_name(p, "else")) n->c = parse_expression(p, 1);
        }
    }
    p->depth--;
    return n;
}

/* One expression, or several with commas: a tuple. In brackets it may be empty. */
static jinja_node *parse_tuple(parser *p, int with_condition, int in_brackets) {
    if (in_brackets && is_op(p, ")")) return new_node(p, NODE_TUPLE);
    jinja_node *first = parse_expression(p, with_condition);
    if (p->failed || !is_op(p, ",")) return first;
    jinja_node *n = new_pair(p, NODE_TUPLE, NULL, NULL), **tail = &n->kids;
    append(&tail, first);
    while (!p->failed && take_op(p, ",")) {
        if (is_op(p, ")") || p->at->kind == TOKEN_BLOCK_END || p->at->kind == TOKEN_PRINT_END) break;
        append(&tail, parse_expression(p, with_condition));
    }
    return n;
}

/* ---- statements ------------------------------------------------------------------------------------------------ */

/* name, name.attribute, or several with commas, perhaps in brackets. */
static jinja_node *parse_target(parser *p, int with_attribute) {
    jinja_node *tuple = NULL, **tail = NULL;
    int brackets = take_op(p, "(");
    for (;;) {
        jinja_node *n = new_node(p, NODE_NAME);
        n->name = expect_name(p);
        if (with_attribute && take_op(p, ".")) {
            n = new_pair(p, NODE_ATTR, n, NULL);
            n->name = expect_name(p);
        }
        if (!tuple && !is_op(p, ",")) {
            if (brackets) expect_op(p, ")");
            return n;
        }
        if (!tuple) {
            tuple = new_node(p, NODE_TUPLE);
            tail = &tuple->kids;
        }
        append(&tail, n);
        if (p->failed || !take_op(p, ",") || !is_name(p, NULL)) break;
    }
    if (brackets) expect_op(p, ")");
    return tuple;
}

/* Steps over an end tag: its word, then the end of the block. */
static void end_block(parser *p) {
    advance(p);
    expect(p, TOKEN_BLOCK_END);
}

static jinja_node *parse_if(parser *p) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    static const char *const last[] = {"endif", NULL};
    jinja_node *first = NULL, **place = &first;
    do { /* if, then each elif hangs in the `other` of the one before */
        jinja_node *n = new_node(p, NODE_IF);
        advance(p);
        n->a = parse_tuple(p, 0, 0);
        expect(p, TOKEN_BLOCK_END);
        n->kids = parse_body(p, ends);
        *place = n;
        place = &n->other;
    } while (!p->failed && is_name(p, "elif"));
    if (!p->failed && is_name(p, "else")) {
        end_block(p);
        *place = parse_body(p, last);
    }
    end_block(p);
    return first;
}

static jinja_node *parse_for(parser *p) {
    static const char *const ends[] = {"else", "endfor", NULL};
    jinja_node *n = new_node(p, NODE_FOR);
    advance(p);
    n->a = parse_target(p, 0);
    if (!take_name(p, "in")) return fail(p, "expected", "in");
    n->b = parse_tuple(p, 0, 0);
    if (take_name(p, "if")) n->c = parse_expression(p, 1);
    n->flag = take_name(p, "recursive");
    expect(p, TOKEN_BLOCK_END);
    p->loops++;
    n->kids = parse_body(p, ends);
    p->loops--;
    if (!p->failed && is_name(p, "else")) {
        end_block(p);
        n->other = parse_body(p, ends + 1);
    }
    end_block(p);
    return n;
}

static jinja_node *parse_set(parser *p) {
    static const char *const ends[] = {"endset", NULL};
    advance(p);
    jinja_node *target = parse_target(p, 1), *n = new_pair(p, NODE_SET, target, NULL);
    if (take_op(p, "=")) {
        n->b = parse_tuple(p, 1, 0);
        expect(p, TOKEN_BLOCK_END);
        return n;
    }
    n->kind = NODE_SET_BLOCK;
    while (!p->failed && take_op(p, "|")) n->b = parse_filter(p, n->b);
    expect(p, TOKEN_BLOCK_END);
    n->kids = parse_body(p, ends);
    end_block(p);
    return n;
}

/* (a, b=1): a list of NAME nodes whose a is the default. */
static jinja_node *parse_parameters(parser *p) {
    jinja_node *first = NULL, **tail = &first;
    int count = 0;
    if (!take_op(p, "(")) return NULL;
    while (!p->failed && !is_op(p, ")")) {
        jinja_node *n = new_node(p, NODE_NAME);
        n->name = expect_name(p);
        if (take_op(p, "=")) n->a = parse_expression(p, 1);
        if (++count > JINJA_MAX_ARGS) fail(p, "a macro has too many parameters", NULL);
        append(&tail, n);
        if (!take_op(p, ",")) break;
    }
    expect_op(p, ")");
    return first;
}

static jinja_node *parse_macro(parser *p) {
    static const char *const ends[] = {"endmacro", NULL};
    jinja_node *n = new_node(p, NODE_MACRO);
    const int loops = p->loops;
    advance(p);
    n->name = expect_name(p);
    n->a = parse_parameters(p);
    expect(p, TOKEN_BLOCK_END);
    p->loops = 0;
    n->kids = parse_body(p, ends);
    p->loops = loops;
    end_block(p);
    return n;
}

static jinja_node *parse_call_block(parser *p) {
    static const char *const ends[] = {"endcall", NULL};
    jinja_node *n = new_node(p, NODE_CALL_BLOCK);
    const int loops = p->loops;
    advance(p);
    n->name = "caller";
    n->a = parse_parameters(p);
    n->b = parse_expression(p, 1);
    if (!p->failed && n->b->kind != NODE_CALL) return fail(p, "a call block needs a call", NULL);
    expect(p, TOKEN_BLOCK_END);
    p->loops = 0;
    n->kids = parse_body(p, ends);
    p->loops = loops;
    end_block(p);
    return n;
}

static jinja_node *parse_filter_block(parser *p) {
    static const char *const ends[] = {"endfilter", NULL};
    jinja_node *n = new_node(p, NODE_FILTER_BLOCK);
    advance(p);
    n->a = parse_filter(p, NULL);
    while (!p->failed && take_op(p, "|")) n->a = parse_filter(p, n->a);
    expect(p, TOKEN_BLOCK_END);
    n->kids = parse_body(p, ends);
    end_block(p);
    return n;
}

static jinja_node *parse_with(parser *p) {
    static const char *const ends[] = {"endwith", NULL};
    jinja_node *n = new_node(p, NODE_WITH), **tail = &n->a;
    advance(p);
    while (!p->failed && p->at->kind != TOKEN_BLOCK_END) {
        append(&tail, new_pair(p, NODE_SET, parse_target(p, 0), NULL));
        jinja_node *set = n->a;
        while (set->next) set = set->next;
        expect_op(p, "=");
        set->b = parse_expression(p, 1);
        if (!take_op(p, ",")) break;
    }
    expect(p, TOKEN_BLOCK_END);
    n->kids = parse_body(p, ends);
    end_block(p);
    return n;
}

/* {% generation %}: marks what the model is trained on; to us a scope of its own. */
static jinja_node *parse_generation(parser *p) {
    static const char *const ends[] = {"endgeneration", NULL};
    jinja_node *n = new_node(p, NODE_SCOPE);
    end_block(p);
    n->kids = parse_body(p, ends);
    end_block(p);
    return n;
}

static jinja_node *parse_loop_control(parser *p) {
    jinja_node *n = new_node(p, is_name(p, "break") ? NODE_BREAK : NODE_CONTINUE);
    if (!p->loops) return fail(p, "not inside a loop:", p->at->text);
    end_block(p);
    return n;
}

static jinja_node *parse_statement(parser *p) {
    static const struct { const char *word; jinja_node *(*parse)(parser *); } rows[] = {
        {"if", parse_if}, {"for", parse_for}, {"set", parse_set}, {"macro", parse_macro}, {"call", parse_call_block},
        {"filter", parse_filter_block}, {"with", parse_with}, {"generation", parse_generation},
        {"break", parse_loop_control}, {"continue", parse_loop_control}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (is_name(p, rows[i].word)) return rows[i].parse(p);
    return fail(p, "no such tag:", p->at->n ? p->at->text : "");
}

static int at_end(const parser *p, const char *const *ends) {
    for (; ends && *ends; ends++) if (is_name(p, *ends)) return 1;
    return 0;
}

/* Statements up to one of the end tags (the parser stands on its word then), or to the end of the template. */
static jinja_node *parse_body(parser *p, const char *const *ends) {
    jinja_node *first = NULL, **tail = &first, *n;
    if (enter(p)) { p->depth--; return NULL; }
    while (!p->failed) {
        if (p->at->kind == TOKEN_TEXT) {
            n = new_node(p, NODE_TEXT);
            jinja_string *s = arena_alloc(p->a, sizeof *s);
            if (!s) { fail(p, "out of memory", NULL); break; }
            s->text = p->at->text;
            s->n = p->at->n;
            n->value.kind = JINJA_STRING;
            n->value.u.s = s;
            append(&tail, n);
            advance(p);
        } else if (p->at->kind == TOKEN_PRINT) {
            n = new_node(p, NODE_PRINT);
            advance(p);
            n->a = parse_tuple(p, 1, 0);
            expect(p, TOKEN_PRINT_END);
            append(&tail, n);
        } else if (p->at->kind == TOKEN_BLOCK) {
            advance(p);
            if (at_end(p, ends)) break;
            append(&tail, parse_statement(p));
            while (*tail) tail = &(*tail)->next;
        } else {
            if (ends) fail(p, "missing:", ends[0]);
            break;
        }
    }
    p->depth--;
    return first;
}

const jinja *jinja_parse(const char *name, const char *text, size_t n, arena *a, tfm_error *err) {
    enum { SPLITS = 16, LITERALS = 160 };
    parser p;
    jinja *t = arena_alloc(a, sizeof *t);
    memset(&p, 0, sizeof p);
    if (!t || !(t->split_literals = arena_array(a, SPLITS, sizeof *t->split_literals)) ||
        !(t->literals = arena_array(a, LITERALS, sizeof *t->literals)) || !(t->name = arena_strdup(a, name))) {
        tool_fail(err, TFM_ERR_MEMORY, "out of memory");
        return NULL;
    }
    t->room_split_literals = SPLITS;
    t->room_literals = LITERALS;
    p.t = t;
    p.a = a;
    p.err = err;
    p.at = jinja_lex(t->name, text, n, a, err);
    if (!p.at) return NULL;
    t->body = parse_body(&p, NULL);
    return p.failed ? NULL : t;
}

const char *jinja_any_literal(const jinja *t, size_t i) { return i < t->n_literals ? t->literals[i] : NULL; }

const char *jinja_split_literal(const jinja *t, size_t i) {
    return i < t->n_split_literals ? t->split_literals[i] : NULL;
}
