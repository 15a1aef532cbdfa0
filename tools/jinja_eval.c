/* jinja_eval.c - walks the tree. After a failure everything yields "undefined" and loops end, so callers look at
 * s->failed only where they would go on for long.
 */
#include <math.h>

#include "jinja_internal.h"

static jinja_value eval(jinja_state *s, const jinja_node *n);
static void run(jinja_state *s, const jinja_node *n);

/* ---- NAMES ----------------------------------------------------------------------------------------------------- */

static jinja_value look_up(jinja_state *s, const char *name) {
    const size_t n = strlen(name);
    for (const jinja_frame *f = s->frame; f; f = f->outer) {
        if (jinja_step(s, 1 + f->vars.n / 8)) break;
        const jinja_value *v = jinja_find_name(&f->vars, name, n);
        if (v) return *v;
    }
    return jinja_undefined(name);
}

static void define(jinja_state *s, const char *name, jinja_value v) {
    jinja_set_key(s, &s->frame->vars, jinja_literal(s, name), v);
}

/* A scope inside the current one. */
static jinja_frame *push_frame(jinja_state *s) {
    jinja_frame *f = jinja_alloc(s, sizeof *f);
    if (!f) return NULL;
    f->outer = s->frame;
    s->frame = f;
    return f;
}

static void assign(jinja_state *s, const jinja_node *target, jinja_value v) {
    s->line = target->line;
    if (target->kind == NODE_NAME) {
        define(s, target->name, v);
    } else if (target->kind == NODE_ATTR) {
        jinja_value owner = eval(s, target->a);
        if (owner.kind != JINJA_NAMESPACE)
            jinja_fail(s, TFM_ERR_FORMAT, "cannot set '%s': only a namespace has attributes to set", target->name);
        else if (target->name[0] == '_') jinja_fail(s, TFM_ERR_FORMAT, "a namespace cannot hold '%s'", target->name);
        else jinja_set_key(s, owner.u.dict, jinja_literal(s, target->name), v);
    } else { /* a tuple */
        const jinja_list *items = jinja_iterate(s, v);
        size_t i = 0;
        for (const jinja_node *t = target->kids; t && !s->failed; t = t->next, i++) {
            if (i >= items->n)
                jinja_fail(s, TFM_ERR_FORMAT, "%llu values for more names", (unsigned long long)items->n);
            else assign(s, t, items->items[i]);
        }
        if (!s->failed && i != items->n)
            jinja_fail(s, TFM_ERR_FORMAT, "%llu values for %llu names", (unsigned long long)items->n,
                       (unsigned long long)i);
    }
}

/* ---- ATTRIBUTES AND ITEMS -------------------------------------------------------------------------------------- */

static jinja_value loop_attribute(const jinja_loop *l, const char *name) {
    const int64_t n = (int64_t)l->items->n, at = (int64_t)l->at;
    if (!strcmp(name, "index")) return jinja_int(at + 1);
    if (!strcmp(name, "index0")) return jinja_int(at);
    if (!strcmp(name, "revindex")) return jinja_int(n - at);
    if (!strcmp(name, "revindex0")) return jinja_int(n - at - 1);
    if (!strcmp(name, "first")) return jinja_bool(at == 0);
    if (!strcmp(name, "last")) return jinja_bool(at == n - 1);
    if (!strcmp(name, "length")) return jinja_int(n);
    if (!strcmp(name, "depth")) return jinja_int(l->depth0 + 1);
    if (!strcmp(name, "depth0")) return jinja_int(l->depth0);
    if (!strcmp(name, "previtem") && at > 0) return l->items->items[at - 1];
    if (!strcmp(name, "nextitem") && at + 1 < n) return l->items->items[at + 1];
    return jinja_undefined(name);
}

static jinja_value missing_owner(jinja_state *s, jinja_value v, const char *what) {
    return jinja_fail(s, TFM_ERR_FORMAT, "%s%s%s is undefined and has no '%s'", v.u.name ? "'" : "",
                      v.u.name ? v.u.name : "a value",
                      v.u.name ? "'" : "", what);
}

jinja_value jinja_attribute(jinja_state *s, jinja_value v, const char *name) {
    const jinja_value *found = NULL;
    if (v.kind == JINJA_UNDEFINED) return missing_owner(s, v, name);
    if (v.kind == JINJA_NAMESPACE) {
        found = jinja_find_name(v.u.dict, name, strlen(name));
        return found ? *found : jinja_undefined(name);
    }
    if (v.kind == JINJA_LOOP) {
        jinja_value of_loop = loop_attribute(v.u.loop, name);
        if (of_loop.kind != JINJA_UNDEFINED) return of_loop;
    }
    jinja_value method = jinja_method(s, v, name);
    if (method.kind != JINJA_UNDEFINED) return method;
    if (v.kind == JINJA_DICT) found = jinja_find_name(v.u.dict, name, strlen(name));
    return found ? *found : jinja_undefined(name);
}

/* Index i of n, negative ones from the end; 0 if it is outside. */
static int place_of(int64_t i, size_t n, size_t *at) {
    if (i < 0) i += (int64_t)n;
    *at = (size_t)i;
    return i >= 0 && (uint64_t)i < n;
}

/* Where character i of a string begins. */
static size_t byte_of(const jinja_string *s, size_t i) {
    size_t at = 0;
    uint32_t code;
    while (i-- && at < s->n) at += jinja_char(s->text + at, s->n - at, &code);
    return at;
}

jinja_value jinja_item(jinja_state *s, jinja_value v, jinja_value key) {
    const jinja_value *found;
    size_t at;
    const int number = key.kind == JINJA_INT || key.kind == JINJA_BOOL;
    if (v.kind == JINJA_UNDEFINED) return missing_owner(s, v, key.kind == JINJA_STRING ? key.u.s->text : "item");
    if (v.kind == JINJA_DICT && (found = jinja_find(s, v.u.dict, key)) != NULL) return *found;
    if ((v.kind == JINJA_LIST || v.kind == JINJA_TUPLE) && number)
        return place_of(key.u.i, v.u.list->n, &at) ? v.u.list->items[at] : jinja_undefined("item");
    if (v.kind == JINJA_STRING && number) {
        if (jinja_step(s, 1 + v.u.s->n / 64) || !place_of(key.u.i, jinja_length(v.u.s), &at))
            return jinja_undefined("item");
        const size_t begin = byte_of(v.u.s, at);
        uint32_t code;
        return jinja_slice_of(s, v.u.s, begin, begin + jinja_char(v.u.s->text + begin, v.u.s->n - begin, &code));
    }
    if (key.kind != JINJA_STRING) return jinja_undefined("item");
    const char *name = jinja_copy(s, key.u.s->text, key.u.s->n);
    if (v.kind == JINJA_NAMESPACE || v.kind == JINJA_LOOP) return jinja_attribute(s, v, name);
    jinja_value method = jinja_method(s, v, name);
    return method.kind != JINJA_UNDEFINED ? method : jinja_undefined(name);
}

/* One bound of a slice, as Python clips it; absent (undefined or none) is `otherwise`. */
static int64_t slice_bound(jinja_state *s, const jinja_node *n, int64_t length, int64_t step, int64_t otherwise) {
    jinja_value v = n ? eval(s, n) : jinja_none();
    int64_t i = v.u.i;
    if (v.kind == JINJA_NONE) return otherwise;
    if (v.kind != JINJA_INT && v.kind != JINJA_BOOL) {
        jinja_fail(s, TFM_ERR_FORMAT, "a slice needs whole numbers, not a %s", jinja_type_name(v));
        return 0;
    }
    if (i < 0) i = i < -length ? -1 : i + length;
    if (i < 0) return step < 0 ? -1 : 0;
    if (i >= length) return step < 0 ? length - 1 : length;
    return i;
}

static jinja_value eval_slice(jinja_state *s, const jinja_node *n) {
    jinja_value v = eval(s, n->a), step_value = n->d ? eval(s, n->d) : jinja_none();
    const int64_t step = step_value.kind == JINJA_NONE ? 1 : step_value.u.i;
    if (v.kind == JINJA_UNDEFINED) return missing_owner(s, v, "slice");
    if ((step_value.kind != JINJA_NONE && step_value.kind != JINJA_INT) || !step)
        return jinja_fail(s, TFM_ERR_FORMAT, "the step of a slice must be a whole number that is not 0");
    if (v.kind != JINJA_STRING && v.kind != JINJA_LIST && v.kind != JINJA_TUPLE)
        return jinja_fail(s, TFM_ERR_FORMAT, "a %s cannot be sliced", jinja_type_name(v));
    const int text = v.kind == JINJA_STRING;
    const int64_t length = (int64_t)(text ? jinja_length(v.u.s) : v.u.list->n);
    const int64_t from = slice_bound(s, n->b, length, step, step < 0 ? length - 1 : 0);
    const int64_t to = slice_bound(s, n->c, length, step, step < 0 ? -1 : length);
    if (jinja_step(s, 1 + (size_t)length / 64)) return jinja_undefined(NULL);
    if (text && step == 1)
        return jinja_slice_of(s, v.u.s, byte_of(v.u.s, (size_t)from), to > from ? byte_of(v.u.s, (size_t)to) : 0);
    const jinja_list *items = jinja_iterate(s, v);
    jinja_value out = jinja_list_of(s, v.kind == JINJA_TUPLE ? JINJA_TUPLE : JINJA_LIST);
    for (int64_t i = from; !s->failed && (step > 0 ? i < to : i > to); i += step) {
        jinja_append(s, out, items->items[i]);
        if (step > 0 ? step > to - i : step < to - i) break;
    }
    if (!text || s->failed) return out;
    jinja_builder b;
    memset(&b, 0, sizeof b);
    for (size_t i = 0; i < out.u.list->n; i++) jinja_add(s, &b, out.u.list->items[i].u.s);
    return jinja_built(s, &b);
}

/* ---- OPERATORS ------------------------------------------------------------------------------------------------- */

static jinja_value wrong_operands(jinja_state *s, const char *op, jinja_value a, jinja_value b) {
    if (a.kind == JINJA_UNDEFINED && a.u.name) return jinja_fail(s, TFM_ERR_FORMAT, "'%s' is undefined", a.u.name);
    if (b.kind == JINJA_UNDEFINED && b.u.name) return jinja_fail(s, TFM_ERR_FORMAT, "'%s' is undefined", b.u.name);
    return jinja_fail(s, TFM_ERR_FORMAT, "%s does not work on %s and %s", op, jinja_type_name(a), jinja_type_name(b));
}

/* The characters that HTML escapes, for "+" with text that |safe marked. */
static void add_escaped(jinja_state *s, jinja_builder *b, const jinja_string *text, int escape) {
    static const char special[] = "&<>'\"";
    static const char *const escaped[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    if (!escape) { jinja_add(s, b, text); return; }
    for (size_t i = 0; i < text->n && !s->failed; i++) {
        const char *at = text->text[i] ? strchr(special, text->text[i]) : NULL;
        if (at) jinja_add_text(s, b, escaped[at - special]);
        else jinja_add_bytes(s, b, text->text + i, text->input ? text->input + i : NULL, 1);
    }
}

static jinja_value add_strings(jinja_state *s, const jinja_string *a, const jinja_string *b) {
    jinja_builder out;
    memset(&out, 0, sizeof out);
    add_escaped(s, &out, a, !a->safe && b->safe);
    add_escaped(s, &out, b, a->safe && !b->safe);
    jinja_value v = jinja_built(s, &out);
    if (v.kind == JINJA_STRING && (a->safe || b->safe)) ((jinja_string *)(uintptr_t)v.u.s)->safe = 1;
    return v;
}

static jinja_value add_lists(jinja_state *s, jinja_value a, jinja_value b) {
    jinja_value out = jinja_list_of(s, a.kind);
    for (size_t i = 0; i < a.u.list->n; i++) jinja_append(s, out, a.u.list->items[i]);
    for (size_t i = 0; i < b.u.list->n; i++) jinja_append(s, out, b.u.list->items[i]);
    return out;
}

/* "text" * 3, [list] * 3 */
static jinja_value repeat(jinja_state *s, jinja_value v, int64_t times) {
    jinja_builder b;
    jinja_value out = v.kind == JINJA_STRING ? v : jinja_list_of(s, v.kind);
    memset(&b, 0, sizeof b);
    for (int64_t i = 0; i < times && !jinja_step(s, 1); i++) {
        if (v.kind == JINJA_STRING) jinja_add(s, &b, v.u.s);
        else for (size_t k = 0; k < v.u.list->n; k++) jinja_append(s, out, v.u.list->items[k]);
    }
    return v.kind == JINJA_STRING ? jinja_built(s, &b) : out;
}

static int add_overflows(int64_t a, int64_t b) { return b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b; }
static int mul_overflows(int64_t a, int64_t b) {
    const int64_t limit = (int64_t)1 << 31;
    if (a > -limit && a < limit && b > -limit && b < limit) return 0;
    if (!a || !b) return 0;
    if (a == INT64_MIN || b == INT64_MIN) return 1;
    const int64_t x = a < 0 ? -a : a, y = b < 0 ? -b : b;
    return x > INT64_MAX / y;
}

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

static jinja_value int_power(jinja_state *s, int64_t base, int64_t exponent) {
    int64_t value = 1;
    if (exponent < 0) return jinja_float(pow((double)base, (double)exponent));
    for (int64_t i = 0; i < exponent; i++) {
        if (base == 0 || base == 1) return jinja_int(base);
        if (base == -1) return jinja_int(exponent % 2 ? -1 : 1);
        if (mul_overflows(value, base)) return jinja_fail(s, TFM_ERR_FORMAT, "a whole number is too large");
        value *= base;
    }
    return jinja_int(value);
}

static jinja_value int_arithmetic(jinja_state *s, int op, int64_t a, int64_t b) {
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && !b)
        return jinja_fail(s, TFM_ERR_FORMAT, "division by zero");
    if (b == -1 && a == INT64_MIN) return jinja_fail(s, TFM_ERR_FORMAT, "a whole number is too large");
    switch (op) {
    case OP_DIV: return jinja_float((double)a / (double)b);
    case OP_FLOORDIV: return jinja_int(floor_div(a, b));
    case OP_MOD: return jinja_int(a - floor_div(a, b) * b);
    case OP_POW: return int_power(s, a, b);
    case OP_MUL: if (!mul_overflows(a, b)) return jinja_int(a * b); break;
    case OP_SUB: if (b != INT64_MIN && !add_overflows(a, -b)) return jinja_int(a - b); break;
    default: if (!add_overflows(a, b)) return jinja_int(a + b); break;
    }
    return jinja_fail(s, TFM_ERR_FORMAT, "a whole number is too large");
}

static jinja_value real_arithmetic(jinja_state *s, int op, double a, double b) {
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
        return jinja_fail(s, TFM_ERR_FORMAT, "division by zero");
    switch (op) {
    case OP_DIV: return jinja_float(a / b);
    case OP_FLOORDIV: return jinja_float(floor(a / b));
    case OP_MOD: return jinja_float(a - floor(a / b) * b);
    case OP_POW: return jinja_float(pow(a, b));
    case OP_MUL: return jinja_float(a * b);
    case OP_SUB: return jinja_float(a - b);
    default: return jinja_float(a + b);
    }
}

static jinja_value eval_binary(jinja_state *s, const jinja_node *n) {
    static const char *const names[] = {"==", "!=", "<", "<=", ">", ">=", "in", "not in", "+", "-", "*", "/", "//",
                                        "%", "**"};
    jinja_value a = eval(s, n->a), b = eval(s, n->b);
    const int a_list = a.kind == JINJA_LIST || a.kind == JINJA_TUPLE, b_list = b.kind == JINJA_LIST ||
        b.kind == JINJA_TUPLE;
    s->line = n->line;
    if (s->failed) return jinja_undefined(NULL);
    if (jinja_is_number(a) && jinja_is_number(b)) {
        if (a.kind == JINJA_FLOAT || b.kind == JINJA_FLOAT)
            return real_arithmetic(s, n->op, jinja_number(a), jinja_number(b));
        return int_arithmetic(s, n->op, a.u.i, b.u.i);
    }
    if (n->op == OP_ADD && jinja_is_string(a) && jinja_is_string(b)) return add_strings(s, a.u.s, b.u.s);
    if (n->op == OP_ADD && a_list && a.kind == b.kind) return add_lists(s, a, b);
    if (n->op == OP_MUL && (jinja_is_string(a) || a_list) && b.kind == JINJA_INT) return repeat(s, a, b.u.i);
    if (n->op == OP_MUL && (jinja_is_string(b) || b_list) && a.kind == JINJA_INT) return repeat(s, b, a.u.i);
    if (n->op == OP_MOD && jinja_is_string(a)) return jinja_percent(s, a.u.s, b);
    return wrong_operands(s, names[n->op], a, b);
}

static int compare(jinja_state *s, int op, jinja_value a, jinja_value b) {
    if (op == OP_EQ || op == OP_NE) return jinja_equal(s, a, b) == (op == OP_EQ);
    if (op == OP_IN || op == OP_NOT_IN) return jinja_contains(s, b, a) == (op == OP_IN);
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED) {
        wrong_operands(s, "an order", a, b);
        return 0;
    }
    const int order = jinja_compare(s, a, b);
    return op == OP_LT ? order < 0 : op == OP_LE ? order <= 0 : op == OP_GT ? order > 0 : order >= 0;
}

/* a < b < c means both. */
static jinja_value eval_compare(jinja_state *s, const jinja_node *n) {
    jinja_value left = eval(s, n->a);
    for (const jinja_node *k = n->kids; k; k = k->next) {
        jinja_value right = eval(s, k->a);
        s->line = n->line;
        if (s->failed || !compare(s, k->op, left, right)) return jinja_bool(0);
        left = right;
    }
    return jinja_bool(1);
}

static jinja_value eval_concat(jinja_state *s, const jinja_node *n) {
    jinja_builder b;
    memset(&b, 0, sizeof b);
    for (const jinja_node *k = n->kids; k; k = k->next) jinja_add(s, &b, jinja_to_string(s, eval(s, k)));
    return jinja_built(s, &b);
}

static jinja_value eval_sign(jinja_state *s, const jinja_node *n) {
    jinja_value v = eval(s, n->a);
    if (!jinja_is_number(v)) return s->failed ? v : wrong_operands(s, "a sign", v, v);
    if (v.kind == JINJA_FLOAT) return jinja_float(n->kind == NODE_NEG ? -v.u.f : v.u.f);
    return n->kind == NODE_NEG ? int_arithmetic(s, OP_SUB, 0, v.u.i) : jinja_int(v.u.i);
}

/* ---- CALLS ----------------------------------------------------------------------------------------------------- */

static void add_argument(jinja_state *s, jinja_args *args, const char *name, jinja_value v) {
    if (args->n == JINJA_MAX_ARGS) { jinja_fail(s, TFM_ERR_FORMAT, "a call has too many arguments"); return; }
    if (!name && args->n_positional < args->n) { jinja_fail(s, TFM_ERR_FORMAT,
                                                            "a positional argument follows a named one"); return; }
    args->value[args->n] = v;
    args->name[args->n++] = name;
    args->n_positional += !name;
}

static void eval_arguments(jinja_state *s, const jinja_node *kids, jinja_args *args) {
    args->n = args->n_positional = 0;
    for (const jinja_node *k = kids; k && !s->failed; k = k->next) {
        const int wrapped = k->kind == NODE_SCOPE;
        jinja_value v = eval(s, wrapped ? k->a : k);
        if (wrapped && k->star == 2) {
            for (size_t i = 0; v.kind == JINJA_DICT && i < v.u.dict->n; i++)
                add_argument(s, args, jinja_to_string(s, v.u.dict->keys[i])->text, v.u.dict->values[i]);
        } else if (wrapped && k->star) {
            const jinja_list *items = jinja_iterate(s, v);
            for (size_t i = 0; i < items->n; i++) add_argument(s, args, NULL, items->items[i]);
        } else {
            add_argument(s, args, wrapped ? k->name : NULL, v);
        }
    }
}

/* Runs statements with their text going to a new string. */
static jinja_value capture(jinja_state *s, const jinja_node *body) {
    jinja_builder b, *out = s->out;
    memset(&b, 0, sizeof b);
    s->out = &b;
    run(s, body);
    s->out = out;
    return jinja_built(s, &b);
}

/* The parameters of a macro become variables of the current frame. */
static void bind_parameters(jinja_state *s, const jinja_node *macro, jinja_args *args) {
    int i = 0;
    for (const jinja_node *p = macro->a; p && !s->failed; p = p->next, i++) {
        const jinja_value *given = jinja_arg(args, i, p->name);
        define(s, p->name, given ? *given : p->a ? eval(s, p->a) : jinja_undefined(p->name));
    }
    if (args->n_positional > i) jinja_fail(s, TFM_ERR_FORMAT, "%s gets more than %d arguments", macro->name, i);
    const jinja_value *caller = jinja_arg(args, JINJA_MAX_ARGS, "caller");
    if (caller) define(s, "caller", *caller);
}

static jinja_value call_macro(jinja_state *s, const jinja_callable *c, jinja_args *args) {
    jinja_frame *frame = s->frame;
    jinja_value out = jinja_undefined(NULL);
    s->frame = c->home;
    if (push_frame(s)) {
        bind_parameters(s, c->macro, args);
        out = capture(s, c->macro->kids);
    }
    s->frame = frame;
    return out;
}

static void run_loop(jinja_state *s, const jinja_node *n, jinja_value over, int depth0);

/* loop(items) in a recursive loop. */
static jinja_value call_loop(jinja_state *s, const jinja_loop *l, const jinja_args *args) {
    jinja_builder b, *out = s->out;
    jinja_frame *frame = s->frame;
    memset(&b, 0, sizeof b);
    if (!l->node || args->n != 1)
        return jinja_fail(s, TFM_ERR_FORMAT, "loop(...) needs a recursive loop and one argument");
    s->out = &b;
    s->frame = l->home;
    run_loop(s, l->node, args->value[0], l->depth0 + 1);
    s->frame = frame;
    s->out = out;
    return jinja_built(s, &b);
}

jinja_value jinja_call(jinja_state *s, jinja_value callee, jinja_args *args) {
    jinja_value v = jinja_undefined(NULL);
    if (s->failed) return v;
    if (callee.kind != JINJA_CALLABLE && callee.kind != JINJA_LOOP) {
        if (callee.kind == JINJA_UNDEFINED && callee.u.name)
            return jinja_fail(s, TFM_ERR_FORMAT, "'%s' is undefined", callee.u.name);
        return jinja_fail(s, TFM_ERR_FORMAT, "a %s cannot be called", jinja_type_name(callee));
    }
    if (++s->depth > JINJA_MAX_DEPTH) jinja_fail(s, TFM_ERR_MEMORY, "calls are nested too deeply");
    else if (callee.kind == JINJA_LOOP) v = call_loop(s, callee.u.loop, args);
    else if (callee.u.call->macro) v = call_macro(s, callee.u.call, args);
    else if (!jinja_step_over(s, callee.u.call->self)) v = callee.u.call->run(s, callee.u.call->self, args);
    s->depth--;
    return v;
}

static jinja_value eval_call(jinja_state *s, const jinja_node *n) {
    jinja_value callee = eval(s, n->a);
    jinja_args args;
    eval_arguments(s, n->kids, &args);
    s->line = n->line;
    return jinja_call(s, callee, &args);
}

static jinja_value eval_filter(jinja_state *s, const jinja_node *n, jinja_value v) {
    jinja_args args;
    eval_arguments(s, n->kids, &args);
    s->line = n->line;
    return s->failed ? v : jinja_filter(s, n->name, v, &args);
}

static jinja_value eval_test(jinja_state *s, const jinja_node *n) {
    jinja_value v = eval(s, n->a);
    jinja_args args;
    eval_arguments(s, n->kids, &args);
    s->line = n->line;
    return jinja_bool(!s->failed && jinja_test(s, n->name, v, &args));
}

static jinja_value new_macro(jinja_state *s, const jinja_node *n) {
    jinja_callable *c = jinja_alloc(s, sizeof *c);
    jinja_value v = jinja_undefined(n->name);
    if (!c) return v;
    c->name = n->name;
    c->macro = n;
    c->home = s->frame;
    v.kind = JINJA_CALLABLE;
    v.u.call = c;
    return v;
}

/* ---- EXPRESSIONS ----------------------------------------------------------------------------------------------- */

static jinja_value eval_items(jinja_state *s, const jinja_node *n) {
    jinja_value out = jinja_list_of(s, n->kind == NODE_LIST ? JINJA_LIST : JINJA_TUPLE);
    for (const jinja_node *k = n->kids; k && !s->failed; k = k->next) jinja_append(s, out, eval(s, k));
    return out;
}

static jinja_value eval_dict(jinja_state *s, const jinja_node *n) {
    jinja_value out = jinja_list_of(s, JINJA_DICT);
    for (const jinja_node *k = n->kids; k && k->next && !s->failed; k = k->next->next) {
        jinja_value key = eval(s, k), value = eval(s, k->next);
        if (!s->failed) jinja_set_key(s, out.u.dict, key, value);
    }
    return out;
}

static jinja_value eval_logic(jinja_state *s, const jinja_node *n) {
    jinja_value v = eval(s, n->a);
    return jinja_is_true(v) == (n->kind == NODE_AND) ? eval(s, n->b) : v;
}

static jinja_value eval_condition(jinja_state *s, const jinja_node *n) {
    if (jinja_is_true(eval(s, n->b))) return eval(s, n->a);
    return n->c ? eval(s, n->c) : jinja_undefined(NULL);
}

static jinja_value eval_node(jinja_state *s, const jinja_node *n) {
    switch (n->kind) {
    case NODE_CONST: return n->value;
    case NODE_NAME: return look_up(s, n->name);
    case NODE_LIST: case NODE_TUPLE: return eval_items(s, n);
    case NODE_DICT: return eval_dict(s, n);
    case NODE_ATTR: return jinja_attribute(s, eval(s, n->a), n->name);
    case NODE_ITEM: {
        jinja_value v = eval(s, n->a), key = eval(s, n->b);
        s->line = n->line;
        return s->failed ? v : jinja_item(s, v, key);
    }
    case NODE_SLICE: return eval_slice(s, n);
    case NODE_CALL: return eval_call(s, n);
    case NODE_FILTER: return eval_filter(s, n, eval(s, n->a));
    case NODE_TEST: return eval_test(s, n);
    case NODE_NOT: return jinja_bool(!jinja_is_true(eval(s, n->a)));
    case NODE_NEG: case NODE_POS: return eval_sign(s, n);
    case NODE_AND: case NODE_OR: return eval_logic(s, n);
    case NODE_COMPARE: return eval_compare(s, n);
    case NODE_BINARY: return eval_binary(s, n);
    case NODE_CONCAT: return eval_concat(s, n);
    default: return eval_condition(s, n);
    }
}

static jinja_value eval(jinja_state *s, const jinja_node *n) {
    jinja_value v = jinja_undefined(NULL);
    if (jinja_step(s, 1)) return v;
    s->line = n->line;
    if (++s->depth > JINJA_MAX_DEPTH) jinja_fail(s, TFM_ERR_MEMORY, "the template is nested too deeply");
    else v = eval_node(s, n);
    s->depth--;
    return s->failed ? jinja_undefined(NULL) : v;
}

/* ---- STATEMENTS ------------------------------------------------------------------------------------------------ */

/* The items that pass the loop's condition. */
static const jinja_list *loop_items(jinja_state *s, const jinja_node *n, jinja_value over) {
    const jinja_list *all = jinja_iterate(s, over);
    jinja_frame *frame = s->frame;
    if (!n->c || s->failed) return all;
    jinja_value kept = jinja_list_of(s, JINJA_LIST);
    for (size_t i = 0; i < all->n && push_frame(s); i++) {
        assign(s, n->a, all->items[i]);
        if (jinja_is_true(eval(s, n->c))) jinja_append(s, kept, all->items[i]);
        s->frame = frame;
    }
    return s->failed ? all : kept.u.list;
}

static void run_loop(jinja_state *s, const jinja_node *n, jinja_value over, int depth0) {
    jinja_frame *frame = s->frame;
    jinja_loop *l = jinja_alloc(s, sizeof *l);
    jinja_value loop = jinja_undefined("loop");
    if (!l) return;
    l->items = loop_items(s, n, over);
    l->depth0 = depth0;
    l->node = n->flag ? n : NULL;
    l->home = frame;
    loop.kind = JINJA_LOOP;
    loop.u.loop = l;
    for (l->at = 0; l->at < l->items->n && !s->failed && s->flow != FLOW_BREAK; l->at++) {
        s->flow = FLOW_ON;
        if (!push_frame(s)) break;
        define(s, "loop", loop);
        assign(s, n->a, l->items->items[l->at]);
        run(s, n->kids);
        s->frame = frame;
    }
    s->flow = FLOW_ON;
    if (!l->items->n && n->other && push_frame(s)) run(s, n->other);
    s->frame = frame;
}

static void run_in_scope(jinja_state *s, const jinja_node *body) {
    jinja_frame *frame = s->frame;
    if (push_frame(s)) run(s, body);
    s->frame = frame;
}

static void run_if(jinja_state *s, const jinja_node *n) {
    while (n && n->kind == NODE_IF && !s->failed) { /* if, elif ... */
        if (jinja_is_true(eval(s, n->a))) { run(s, n->kids); return; }
        if (!n->other || n->other->kind != NODE_IF || n->other->next) break;
        n = n->other;
    }
    if (n && !s->failed) run(s, n->other);
}

/* A chain of filters whose innermost value is the text of a block. */
static jinja_value filter_text(jinja_state *s, const jinja_node *filter, jinja_value text) {
    return filter ? eval_filter(s, filter, filter_text(s, filter->a, text)) : text;
}

static jinja_value text_of_block(jinja_state *s, const jinja_node *body) {
    jinja_frame *frame = s->frame;
    jinja_value text = push_frame(s) ? capture(s, body) : jinja_undefined(NULL);
    s->frame = frame;
    return text;
}

static void run_call_block(jinja_state *s, const jinja_node *n) {
    jinja_value callee = eval(s, n->b->a);
    jinja_args args;
    eval_arguments(s, n->b->kids, &args);
    add_argument(s, &args, "caller", new_macro(s, n));
    s->line = n->line;
    jinja_add(s, s->out, jinja_to_string(s, jinja_call(s, callee, &args)));
}

static void run_with(jinja_state *s, const jinja_node *n) {
    jinja_frame *frame = s->frame, *inner = push_frame(s);
    for (const jinja_node *k = n->a; k && inner && !s->failed; k = k->next) {
        s->frame = frame; /* values are those of outside */
        jinja_value v = eval(s, k->b);
        s->frame = inner;
        assign(s, k->a, v);
    }
    if (inner) run(s, n->kids);
    s->frame = frame;
}

static void run_node(jinja_state *s, const jinja_node *n) {
    switch (n->kind) {
    case NODE_TEXT: jinja_add(s, s->out, n->value.u.s); break;
    case NODE_PRINT: jinja_add(s, s->out, jinja_to_string(s, eval(s, n->a))); break;
    case NODE_IF: run_if(s, n); break;
    case NODE_FOR: run_loop(s, n, eval(s, n->b), 0); break;
    case NODE_SET: {
        jinja_value v = eval(s, n->b);
        if (!s->failed) assign(s, n->a, v);
        break;
    }
    case NODE_SET_BLOCK: assign(s, n->a, filter_text(s, n->b, text_of_block(s, n->kids))); break;
    case NODE_MACRO: define(s, n->name, new_macro(s, n)); break;
    case NODE_CALL_BLOCK: run_call_block(s, n); break;
    case NODE_FILTER_BLOCK: jinja_add(s, s->out, jinja_to_string(s,
                                                                 filter_text(s, n->a,
                                                                     text_of_block(s, n->kids)))); break;
    case NODE_WITH: run_with(s, n); break;
    case NODE_SCOPE: run_in_scope(s, n->kids); break;
    case NODE_BREAK: s->flow = FLOW_BREAK; break;
    default: s->flow = FLOW_CONTINUE; break;
    }
}

static void run(jinja_state *s, const jinja_node *n) {
    if (++s->depth > JINJA_MAX_DEPTH) jinja_fail(s, TFM_ERR_MEMORY, "the template is nested too deeply");
    for (; n && s->flow == FLOW_ON && !jinja_step(s, 1); n = n->next) {
        s->line = n->line;
        run_node(s, n);
    }
    s->depth--;
}

int jinja_render(const jinja *t, jinja_value variables, const jinja_options *options, arena *a, jinja_output *out,
                 tfm_error *err) {
    static const jinja_options none;
    jinja_state s;
    jinja_frame globals, given;
    jinja_builder text;
    memset(&s, 0, sizeof s);
    memset(&globals, 0, sizeof globals);
    memset(&given, 0, sizeof given);
    memset(&text, 0, sizeof text);
    memset(out, 0, sizeof *out);
    if (variables.kind != JINJA_DICT) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    s.t = t;
    s.options = options ? options : &none;
    s.max_steps = s.options->max_steps ? s.options->max_steps : JINJA_MAX_STEPS;
    s.a = a;
    s.err = err;
    s.frame = &globals;
    s.out = &text;
    jinja_globals(&s, &globals.vars);
    given.outer = &globals;
    given.vars = *variables.u.dict;
    given.vars.room = given.vars.n; /* so that the caller's arrays are not written to */
    s.frame = &given;
    push_frame(&s);
    run(&s, t->body);
    out->text = arena_strndup(a, text.n ? text.text : "", text.n);
    out->input = arena_alloc(a, text.n + 1);
    out->n = text.n;
    if (!s.failed && (!out->text || !out->input)) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    if (text.input && out->input) memcpy(out->input, text.input, text.n);
    return s.failed;
}
