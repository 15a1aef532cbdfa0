/* jinja_library.c - tests, globals, and the methods of lists and dicts: tables of functions. */
#include <time.h>

#include "jinja_strings.h"

const jinja_value *jinja_arg(const jinja_args *args, int i, const char *name) {
    if (i < args->n_positional) return &args->value[i];
    for (int k = args->n_positional; k < args->n; k++)
        if (args->name[k] && !strcmp(args->name[k], name)) return &args->value[k];
    return NULL;
}

/* A string argument, or `otherwise`. */
const jinja_string *jinja_text_arg(jinja_state *s, const jinja_args *args, int i, const char *name,
                                   const char *otherwise) {
    const jinja_value *v = jinja_arg(args, i, name);
    jinja_value preset = v && v->kind != JINJA_NONE ? *v : jinja_literal(s, otherwise);
    return jinja_to_string(s, preset);
}

const char *jinja_c_string(jinja_state *s, const jinja_string *text) {
    return jinja_copy(s, text->text, text->n);
}

/* ---- TESTS ----------------------------------------------------------------------------------------------------- */

typedef int test_function(jinja_state *s, jinja_value v, const jinja_args *args);

#define TEST(name, condition) \
    static int t_##name(jinja_state *s, jinja_value v, const jinja_args *args) { \
        (void)s; \
        (void)args; \
        return condition; \
    }
TEST(defined, v.kind != JINJA_UNDEFINED)
TEST(undefined, v.kind == JINJA_UNDEFINED)
TEST(none, v.kind == JINJA_NONE)
TEST(boolean, v.kind == JINJA_BOOL)
TEST(true, v.kind == JINJA_BOOL && v.u.i)
TEST(false, v.kind == JINJA_BOOL && !v.u.i)
TEST(integer, v.kind == JINJA_INT)
TEST(float, v.kind == JINJA_FLOAT)
TEST(number, jinja_is_number(v))
TEST(string, v.kind == JINJA_STRING)
TEST(mapping, v.kind == JINJA_DICT)
TEST(iterable, v.kind == JINJA_STRING || v.kind == JINJA_LIST || v.kind == JINJA_TUPLE || v.kind == JINJA_DICT ||
     v.kind == JINJA_UNDEFINED || v.kind == JINJA_LOOP)
TEST(sequence, v.kind == JINJA_STRING || v.kind == JINJA_LIST || v.kind == JINJA_TUPLE || v.kind == JINJA_DICT ||
     v.kind == JINJA_UNDEFINED)
TEST(callable, v.kind == JINJA_CALLABLE || v.kind == JINJA_LOOP)
TEST(escaped, v.kind == JINJA_STRING && v.u.s->safe)
TEST(lower, jinja_all_cased(jinja_to_string(s, v), 0))
TEST(upper, jinja_all_cased(jinja_to_string(s, v), 1))
TEST(filter, v.kind == JINJA_STRING && jinja_has_filter(jinja_c_string(s, v.u.s)))
TEST(test, v.kind == JINJA_STRING && jinja_has_test(jinja_c_string(s, v.u.s)))

/* The argument of a test that needs one. */
static jinja_value operand(jinja_state *s, const jinja_args *args) {
    return args->n ? args->value[0] : jinja_fail(s, TFM_ERR_FORMAT, "a test needs an argument");
}
TEST(eq, jinja_equal(s, v, operand(s, args)))
TEST(ne, !jinja_equal(s, v, operand(s, args)))
TEST(lt, jinja_compare(s, v, operand(s, args)) < 0)
TEST(le, jinja_compare(s, v, operand(s, args)) <= 0)
TEST(gt, jinja_compare(s, v, operand(s, args)) > 0)
TEST(ge, jinja_compare(s, v, operand(s, args)) >= 0)
TEST(in, jinja_contains(s, operand(s, args), v))

static int t_sameas(jinja_state *s, jinja_value v, const jinja_args *args) {
    jinja_value other = operand(s, args);
    if (v.kind != other.kind) return 0;
    if (v.kind == JINJA_NONE || v.kind == JINJA_BOOL || v.kind == JINJA_INT)
        return v.kind == JINJA_NONE || v.u.i == other.u.i;
    return v.u.list == other.u.list;
}

static int remainder_is(jinja_state *s, jinja_value v, int64_t divisor, int64_t wanted) {
    if ((v.kind != JINJA_INT && v.kind != JINJA_BOOL) || !divisor) {
        jinja_fail(s, TFM_ERR_FORMAT, "a whole number is needed, not a %s", jinja_type_name(v));
        return 0;
    }
    if (divisor == -1) return wanted == 0;
    const int64_t r = v.u.i % divisor;
    return (wanted ? r != 0 : r == 0);
}
TEST(even, remainder_is(s, v, 2, 0))
TEST(odd, remainder_is(s, v, 2, 1))
TEST(divisibleby, remainder_is(s, v, operand(s, args).u.i, 0))

static const struct { const char *name; test_function *run; } tests[] = {
    {"boolean", t_boolean}, {"callable", t_callable}, {"defined", t_defined}, {"divisibleby", t_divisibleby},
        {"eq", t_eq},
    {"equalto", t_eq}, {"==", t_eq}, {"escaped", t_escaped}, {"even", t_even}, {"false", t_false}, {"filter", t_filter},
    {"float", t_float}, {"ge", t_ge}, {">=", t_ge}, {"gt", t_gt}, {"greaterthan", t_gt}, {">", t_gt}, {"in", t_in},
    {"integer", t_integer}, {"iterable", t_iterable}, {"le", t_le}, {"<=", t_le}, {"lower", t_lower}, {"lt", t_lt},
    {"lessthan", t_lt}, {"<", t_lt}, {"mapping", t_mapping}, {"ne", t_ne}, {"!=", t_ne}, {"none", t_none},
    {"number", t_number}, {"odd", t_odd}, {"sameas", t_sameas}, {"sequence", t_sequence}, {"string", t_string},
    {"test", t_test}, {"true", t_true}, {"undefined", t_undefined}, {"upper", t_upper}};

static test_function *find_test(const char *name) {
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) if (!strcmp(tests[i].name, name)) return tests[i].run;
    return NULL;
}

int jinja_has_test(const char *name) { return find_test(name) != NULL; }
int jinja_test(jinja_state *s, const char *name, jinja_value v, jinja_args *args) {
    test_function *run = find_test(name);
    if (!run) jinja_fail(s, TFM_ERR_UNSUPPORTED, "no such test: '%s'", name);
    return jinja_step_over(s, v) ? 0 : run(s, v, args);
}

/* ---- METHODS OF LISTS, DICTS, LOOPS ---------------------------------------------------------------------------- */

static jinja_value d_get(jinja_state *s, jinja_value self, jinja_args *args) {
    const jinja_value *key = jinja_arg(args, 0, "key"), *preset = jinja_arg(args, 1, "default");
    if (!key) return jinja_fail(s, TFM_ERR_FORMAT, "get needs a key");
    const jinja_value *v = jinja_find(s, self.u.dict, *key);
    return v ? *v : preset ? *preset : jinja_none();
}
static jinja_value d_items(jinja_state *s, jinja_value self, jinja_args *args) {
    (void)args;
    return jinja_pairs(s, self.u.dict);
}
static jinja_value d_list(jinja_state *s, jinja_value self, int keys) {
    jinja_value out = jinja_list_of(s, JINJA_LIST);
    for (size_t i = 0; i < self.u.dict->n && !s->failed; i++)
        jinja_append(s, out, keys ? self.u.dict->keys[i] : self.u.dict->values[i]);
    return out;
}
static jinja_value d_keys(jinja_state *s, jinja_value self, jinja_args *args) { (void)args; return d_list(s, self, 1); }
static jinja_value d_values(jinja_state *s, jinja_value self, jinja_args *args) { (void)args; return d_list(s, self,
    0); }

static jinja_value copy_dict(jinja_state *s, const jinja_dict *from, jinja_value out) {
    for (size_t i = 0; i < from->n && !s->failed; i++) jinja_set_key(s, out.u.dict, from->keys[i], from->values[i]);
    return out;
}
static jinja_value d_copy(jinja_state *s, jinja_value self, jinja_args *args) {
    jinja_value out = jinja_list_of(s, JINJA_DICT);
    (void)args;
    return s->failed ? out : copy_dict(s, self.u.dict, out);
}

static jinja_value l_count(jinja_state *s, jinja_value self, jinja_args *args) {
    const jinja_value *what = jinja_arg(args, 0, "value");
    int64_t n = 0;
    for (size_t i = 0; what && i < self.u.list->n && !s->failed; i++) n += jinja_equal(s, self.u.list->items[i], *what);
    return jinja_int(n);
}
static jinja_value l_index(jinja_state *s, jinja_value self, jinja_args *args) {
    const jinja_value *what = jinja_arg(args, 0, "value");
    for (size_t i = 0; what && i < self.u.list->n && !s->failed; i++)
        if (jinja_equal(s, self.u.list->items[i], *what)) return jinja_int((int64_t)i);
    return jinja_fail(s, TFM_ERR_FORMAT, "index: not in the list");
}

static jinja_value loop_cycle(jinja_state *s, jinja_value self, jinja_args *args) {
    if (!args->n_positional) return jinja_fail(s, TFM_ERR_FORMAT, "cycle needs values");
    return args->value[self.u.loop->at % (size_t)args->n_positional];
}
static jinja_value loop_changed(jinja_state *s, jinja_value self, jinja_args *args) {
    jinja_value seen = jinja_list_of(s, JINJA_TUPLE);
    for (int i = 0; i < args->n_positional; i++) jinja_append(s, seen, args->value[i]);
    const int same = self.u.loop->changed.kind == JINJA_TUPLE && jinja_equal(s, self.u.loop->changed, seen);
    self.u.loop->changed = seen;
    return jinja_bool(!same);
}

/* The sandbox lets no template change a list or dict. */
static jinja_value unsafe(jinja_state *s, jinja_value self, jinja_args *args) {
    (void)args;
    return jinja_fail(s, TFM_ERR_FORMAT, "a %s cannot be changed here (use + or a namespace)", jinja_type_name(self));
}

static const struct { enum jinja_kind kind; const char *name; jinja_function *run; } methods[] = {
    {JINJA_DICT, "get", d_get}, {JINJA_DICT, "items", d_items}, {JINJA_DICT, "keys", d_keys},
    {JINJA_DICT, "values", d_values}, {JINJA_DICT, "copy", d_copy}, {JINJA_DICT, "update", unsafe},
    {JINJA_DICT, "pop", unsafe}, {JINJA_DICT, "popitem", unsafe}, {JINJA_DICT, "setdefault", unsafe},
    {JINJA_DICT, "clear", unsafe}, {JINJA_LIST, "count", l_count}, {JINJA_LIST, "index", l_index},
    {JINJA_LIST, "append", unsafe}, {JINJA_LIST, "extend", unsafe}, {JINJA_LIST, "insert", unsafe},
    {JINJA_LIST, "pop", unsafe}, {JINJA_LIST, "remove", unsafe}, {JINJA_LIST, "reverse", unsafe},
    {JINJA_LIST, "sort", unsafe}, {JINJA_LIST, "clear", unsafe}, {JINJA_LOOP, "cycle", loop_cycle},
    {JINJA_LOOP, "changed", loop_changed}};

static jinja_value bound(jinja_state *s, const char *name, jinja_function *run, jinja_value self) {
    jinja_callable *c = jinja_alloc(s, sizeof *c);
    jinja_value v = jinja_undefined(name);
    if (!c) return v;
    c->name = name;
    c->run = run;
    c->self = self;
    v.kind = JINJA_CALLABLE;
    v.u.call = c;
    return v;
}

jinja_value jinja_method(jinja_state *s, jinja_value v, const char *name) {
    const enum jinja_kind kind = v.kind == JINJA_TUPLE ? JINJA_LIST : v.kind;
    if (kind == JINJA_STRING && jinja_string_method(name)) return bound(s, name, jinja_string_method(name), v);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (methods[i].kind == kind && !strcmp(methods[i].name, name)) return bound(s, name, methods[i].run, v);
    return jinja_undefined(name);
}

/* ---- GLOBALS --------------------------------------------------------------------------------------------------- */

static jinja_value g_range(jinja_state *s, jinja_value self, jinja_args *args) {
    jinja_value out = jinja_list_of(s, JINJA_LIST);
    int64_t v[3] = {0, 0, 1};
    (void)self;
    for (int i = 0; i < args->n; i++)
        if (i >= 3 || args->name[i] || (args->value[i].kind != JINJA_INT && args->value[i].kind != JINJA_BOOL))
            return jinja_fail(s, TFM_ERR_FORMAT, "range needs one to three whole numbers");
        else v[args->n == 1 ? 1 : i] = args->value[i].u.i;
    if (!args->n || !v[2]) return jinja_fail(s, TFM_ERR_FORMAT, "range needs an end, and a step that is not 0");
    for (int64_t i = v[0]; (v[2] > 0 ? i < v[1] : i > v[1]) && !s->failed; i += v[2]) {
        if (out.u.list->n >= 100000) return jinja_fail(s, TFM_ERR_MEMORY, "range of more than 100000 items");
        jinja_append(s, out, jinja_int(i));
        if (v[2] > 0 ? i > INT64_MAX - v[2] : i < INT64_MIN - v[2]) break;
    }
    return out;
}

static jinja_value filled(jinja_state *s, jinja_args *args, enum jinja_kind kind) {
    jinja_value out = jinja_list_of(s, kind);
    if (!s->failed && args->n_positional && args->value[0].kind == JINJA_DICT) copy_dict(s, args->value[0].u.dict, out);
    for (int i = args->n_positional; i < args->n && !s->failed; i++)
        jinja_set_key(s, out.u.dict, jinja_literal(s, args->name[i]), args->value[i]);
    return out;
}
static jinja_value g_dict(jinja_state *s, jinja_value self, jinja_args *args) { (void)self; return filled(s, args,
    JINJA_DICT); }
static jinja_value g_namespace(jinja_state *s, jinja_value self, jinja_args *args) {
    (void)self;
    for (int i = args->n_positional; i < args->n; i++)
        if (args->name[i][0] == '_')
            return jinja_fail(s, TFM_ERR_FORMAT, "a namespace cannot hold '%s'", args->name[i]);
    return filled(s, args, JINJA_NAMESPACE);
}

static jinja_value g_raise_exception(jinja_state *s, jinja_value self, jinja_args *args) {
    (void)self;
    return jinja_fail(s, TFM_ERR_ARG, "%s",
                      jinja_c_string(s, jinja_text_arg(s, args, 0, "message", "the template refuses this")));
}

static jinja_value g_strftime_now(jinja_state *s, jinja_value self, jinja_args *args) {
    const char *format = jinja_c_string(s, jinja_text_arg(s, args, 0, "format", ""));
    const time_t now = s->options->now ? (time_t)s->options->now : time(NULL);
    const struct tm *local = localtime(&now);
    char buf[400];
    (void)self;
    if (s->options->date_format) *s->options->date_format = format;
    if (s->options->fixed_date) return jinja_literal(s, s->options->fixed_date);
    for (const char *p = format; *p; p++) /* what strftime has on every system */
        if (*p == '%' && (!*++p || !strchr("aAbBcCdDeFgGhHIjmMnprRStTuUVwWxXyYzZ%", *p)))
            return jinja_fail(s, TFM_ERR_UNSUPPORTED, "strftime_now: '%s' is not supported", format);
    const size_t n = local ? strftime(buf, sizeof buf, format, local) : 0;
    return jinja_literal(s, jinja_copy(s, buf, n));
}

void jinja_globals(jinja_state *s, jinja_dict *vars) {
    static const struct { const char *name; jinja_function *run; } rows[] = {
        {"range", g_range}, {"dict", g_dict}, {"namespace", g_namespace}, {"raise_exception", g_raise_exception},
        {"strftime_now", g_strftime_now}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        jinja_set_key(s, vars, jinja_literal(s, rows[i].name), bound(s, rows[i].name, rows[i].run, jinja_none()));
}
