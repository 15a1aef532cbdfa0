/* jinja_value.c - values of the interpreter: limits, strings that know their origin, order, printing, JSON. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

#include "jinja_internal.h"

/* ---- LIMITS ---------------------------------------------------------------------------------------------------- */

jinja_value jinja_fail(jinja_state *s, int code, const char *format, ...) {
    char line[400];
    va_list args;
    va_start(args, format);
    if (!s->failed) {
        if (vsnprintf(line, sizeof line, format, args) < 0) line[0] = 0;
        s->failed = tool_fail(s->err, code, "%s: line %d: %s", s->t->name, s->line, line);
    }
    va_end(args);
    return jinja_undefined(NULL);
}

int jinja_step(jinja_state *s, size_t work) {
    if (s->failed) return -1;
    if (work > JINJA_MAX_STEPS) work = JINJA_MAX_STEPS;
    s->steps += (int64_t)work;
    if (s->steps <= s->max_steps) return 0;
    jinja_fail(s, TFM_ERR_MEMORY, "the template takes too many steps");
    return -1;
}

int jinja_step_over(jinja_state *s, jinja_value v) {
    size_t work = 1;
    if (v.kind == JINJA_STRING) work += v.u.s->n / 64;
    if (v.kind == JINJA_LIST || v.kind == JINJA_TUPLE) work += v.u.list->n / 16;
    if (v.kind == JINJA_DICT) work += v.u.dict->n / 16;
    return jinja_step(s, work);
}

void *jinja_alloc(jinja_state *s, size_t n) {
    if (jinja_step(s, 1 + n / 256)) return NULL;
    s->bytes += n;
    void *p = n <= JINJA_MAX_BYTES && s->bytes <= JINJA_MAX_BYTES ? arena_alloc(s->a, n + 1) : NULL;
    if (!p) jinja_fail(s, TFM_ERR_MEMORY, "the template needs too much memory");
    return p;
}

const char *jinja_copy(jinja_state *s, const char *text, size_t n) {
    char *copy = jinja_alloc(s, n);
    if (copy && n) memcpy(copy, text, n);
    return copy ? copy : "";
}

/* ---- SIMPLE VALUES --------------------------------------------------------------------------------------------- */

static jinja_value value_of(enum jinja_kind kind) {
    jinja_value v;
    memset(&v, 0, sizeof v);
    v.kind = kind;
    return v;
}

jinja_value jinja_undefined(const char *name) {
    jinja_value v = value_of(JINJA_UNDEFINED);
    v.u.name = name;
    return v;
}

jinja_value jinja_none(void) { return value_of(JINJA_NONE); }

jinja_value jinja_int(int64_t i) {
    jinja_value v = value_of(JINJA_INT);
    v.u.i = i;
    return v;
}

jinja_value jinja_bool(int b) {
    jinja_value v = value_of(JINJA_BOOL);
    v.u.i = b != 0;
    return v;
}

jinja_value jinja_float(double f) {
    jinja_value v = value_of(JINJA_FLOAT);
    v.u.f = f;
    return v;
}

int jinja_is_string(jinja_value v) { return v.kind == JINJA_STRING; }
int jinja_is_number(jinja_value v) { return v.kind == JINJA_INT || v.kind == JINJA_FLOAT || v.kind == JINJA_BOOL; }
double jinja_number(jinja_value v) { return v.kind == JINJA_FLOAT ? v.u.f : (double)v.u.i; }

const char *jinja_type_name(jinja_value v) {
    static const char *const names[] = {"undefined", "none", "bool", "int", "float", "string", "list", "tuple", "dict",
                                        "namespace", "loop", "function"};
    return names[v.kind];
}

int jinja_is_true(jinja_value v) {
    switch (v.kind) {
    case JINJA_UNDEFINED: case JINJA_NONE: return 0;
    case JINJA_BOOL: case JINJA_INT: return v.u.i != 0;
    case JINJA_FLOAT: return v.u.f != 0;
    case JINJA_STRING: return v.u.s->n != 0;
    case JINJA_LIST: case JINJA_TUPLE: return v.u.list->n != 0;
    case JINJA_DICT: return v.u.dict->n != 0;
    default: return 1;
    }
}

/* ---- UTF-8 ----------------------------------------------------------------------------------------------------- */

size_t jinja_char(const char *p, size_t n, uint32_t *code) {
    const unsigned char *u = (const unsigned char *)p;
    size_t length = utf8_sequence(p, n);
    *code = length == 1 ? u[0] : length == 2 ? (u[0] & 31u) : length == 3 ? (u[0] & 15u) : (u[0] & 7u);
    if (!length) { *code = 0xFFFD; return 1; }
    for (size_t i = 1; i < length; i++) *code = *code << 6 | (u[i] & 63u);
    return length;
}

int jinja_is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

size_t jinja_length(const jinja_string *s) {
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) n += (s->text[i] & 0xC0) != 0x80;
    return n;
}

/* ---- STRINGS --------------------------------------------------------------------------------------------------- */

jinja_value jinja_string_of(jinja_state *s, const char *text, const unsigned char *input, size_t n) {
    jinja_string *str = jinja_alloc(s, sizeof *str);
    jinja_value v = value_of(JINJA_STRING);
    if (!str) return jinja_undefined(NULL);
    str->text = text;
    str->input = input;
    str->n = n;
    v.u.s = str;
    return v;
}

jinja_value jinja_literal(jinja_state *s, const char *text) { return jinja_string_of(s, text, NULL, strlen(text)); }

jinja_value jinja_slice_of(jinja_state *s, const jinja_string *from, size_t begin, size_t end) {
    if (end < begin) end = begin;
    return jinja_string_of(s, from->text + begin, from->input ? from->input + begin : NULL, end - begin);
}

jinja_value jinja_text(arena *a, const char *text, size_t n, int input) {
    jinja_value v = value_of(JINJA_STRING);
    jinja_string *s = arena_alloc(a, sizeof *s);
    size_t bad = 0, m, used = 0;
    for (size_t i = 0; i < n; i += m ? m : 1) bad += !(m = utf8_sequence(text + i, n - i));
    char *copy = bad <= SIZE_MAX / 4 - n ? arena_text(a, n + 2 * bad) : NULL;
    if (!s || !copy) return jinja_undefined(NULL);
    for (size_t i = 0; i < n;) {
        m = utf8_sequence(text + i, n - i);
        memcpy(copy + used, m ? text + i : "\xEF\xBF\xBD", m ? m : 3);
        used += m ? m : 3;
        i += m ? m : 1;
    }
    s->text = copy;
    s->n = used;
    if (input && used) {
        unsigned char *marks = arena_alloc(a, used);
        if (!marks) return jinja_undefined(NULL);
        memset(marks, 1, used);
        s->input = marks;
    }
    v.u.s = s;
    return v;
}

void jinja_add_bytes(jinja_state *s, jinja_builder *b, const char *text, const unsigned char *input, size_t n) {
    if (s->failed || !n) return;
    if (n > b->room - b->n) {
        size_t room = 2 * b->room + n + 32;
        char *more = jinja_alloc(s, room);
        if (!more) return;
        if (b->n) memcpy(more, b->text, b->n);
        b->text = more;
        b->room = room;
    }
    if ((input || b->input) && b->n + n > b->input_room) {
        unsigned char *more = jinja_alloc(s, b->room);
        if (!more) return;
        if (b->input) memcpy(more, b->input, b->n);
        b->input = more;
        b->input_room = b->room;
    }
    if (jinja_step(s, 1 + n / 256)) return;
    memcpy(b->text + b->n, text, n);
    if (input) memcpy(b->input + b->n, input, n);
    else if (b->input) memset(b->input + b->n, 0, n);
    b->n += n;
}

void jinja_add(jinja_state *s, jinja_builder *b, const jinja_string *text) {
    if (text) jinja_add_bytes(s, b, text->text, text->input, text->n);
}

void jinja_add_text(jinja_state *s, jinja_builder *b, const char *text) {
    jinja_add_bytes(s, b, text, NULL, strlen(text));
}

jinja_value jinja_built(jinja_state *s, const jinja_builder *b) {
    return jinja_string_of(s, b->n ? b->text : "", b->input, b->n);
}

/* ---- LISTS AND DICTS ------------------------------------------------------------------------------------------- */

jinja_value jinja_list_of(jinja_state *s, enum jinja_kind kind) {
    jinja_value v = value_of(kind);
    if (kind == JINJA_LIST || kind == JINJA_TUPLE) v.u.list = jinja_alloc(s, sizeof *v.u.list);
    else v.u.dict = jinja_alloc(s, sizeof *v.u.dict);
    return v.u.list ? v : jinja_undefined(NULL);
}

/* Room for one more; the new array comes from `fresh`. */
static jinja_value *grown(jinja_value *old, size_t n, jinja_value *fresh) {
    if (fresh && n) memcpy(fresh, old, n * sizeof *fresh);
    return fresh;
}

void jinja_append(jinja_state *s, jinja_value list, jinja_value item) {
    if (s->failed || list.kind == JINJA_UNDEFINED || jinja_step(s, 1)) return;
    jinja_list *l = list.u.list;
    if (l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 8;
        l->items = grown(l->items, l->n, jinja_alloc(s, room * sizeof *l->items));
        if (!l->items) { l->n = l->room = 0; return; }
        l->room = room;
    }
    l->items[l->n++] = item;
}

int jinja_push(arena *a, jinja_value list, jinja_value item) {
    if (list.kind != JINJA_LIST || item.kind == JINJA_UNDEFINED) return -1;
    jinja_list *l = list.u.list;
    if (l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 8;
        jinja_value *more = grown(l->items, l->n, arena_array(a, room, sizeof *more));
        if (!more) return -1;
        l->items = more;
        l->room = room;
    }
    l->items[l->n++] = item;
    return 0;
}

static jinja_value new_container(arena *a, enum jinja_kind kind, size_t size) {
    jinja_value v = value_of(kind);
    v.u.list = arena_alloc(a, size);
    return v.u.list ? v : jinja_undefined(NULL);
}

jinja_value jinja_new_list(arena *a) { return new_container(a, JINJA_LIST, sizeof(jinja_list)); }
jinja_value jinja_new_dict(arena *a) { return new_container(a, JINJA_DICT, sizeof(jinja_dict)); }

static int put(arena *a, jinja_dict *d, jinja_value key, jinja_value value) {
    if (d->n == d->room) {
        size_t room = d->room ? 2 * d->room : 8;
        jinja_value *keys = grown(d->keys, d->n, arena_array(a, room, sizeof *keys));
        jinja_value *values = grown(d->values, d->n, arena_array(a, room, sizeof *values));
        if (!keys || !values) return -1;
        d->keys = keys;
        d->values = values;
        d->room = room;
    }
    d->keys[d->n] = key;
    d->values[d->n++] = value;
    return 0;
}

int jinja_put(arena *a, jinja_value dict, const char *key, jinja_value value) {
    jinja_value k = jinja_text(a, key, strlen(key), 0);
    if (dict.kind != JINJA_DICT || k.kind == JINJA_UNDEFINED || value.kind == JINJA_UNDEFINED) return -1;
    return put(a, dict.u.dict, k, value);
}

const jinja_value *jinja_find_name(const jinja_dict *d, const char *name, size_t n) {
    for (size_t i = 0; i < d->n; i++) {
        if (d->keys[i].kind != JINJA_STRING || d->keys[i].u.s->n != n) continue;
        if (!memcmp(d->keys[i].u.s->text, name, n)) return &d->values[i];
    }
    return NULL;
}

const jinja_value *jinja_find(jinja_state *s, const jinja_dict *d, jinja_value key) {
    if (jinja_step(s, 1 + d->n / 8 + (key.kind == JINJA_STRING ? key.u.s->n / 64 : 0))) return NULL;
    if (key.kind == JINJA_STRING) return jinja_find_name(d, key.u.s->text, key.u.s->n);
    for (size_t i = 0; i < d->n; i++) if (jinja_equal(s, d->keys[i], key)) return &d->values[i];
    return NULL;
}

void jinja_set_key(jinja_state *s, jinja_dict *d, jinja_value key, jinja_value value) {
    const jinja_value *there = jinja_find(s, d, key);
    if (s->failed) return;
    if (key.kind == JINJA_LIST || key.kind == JINJA_DICT) {
        jinja_fail(s, TFM_ERR_FORMAT, "a %s cannot be a key", jinja_type_name(key));
    } else if (there) {
        d->values[there - d->values] = value;
    } else {
        s->bytes += 2 * sizeof value;
        if (s->bytes > JINJA_MAX_BYTES || put(s->a, d, key, value))
            jinja_fail(s, TFM_ERR_MEMORY, "the template needs too much memory");
    }
}

/* ---- ORDER ----------------------------------------------------------------------------------------------------- */

/* UTF-8 sorts as code points do */
static int compare_text(jinja_state *s, const jinja_string *a, const jinja_string *b) {
    size_t n = a->n < b->n ? a->n : b->n;
    if (jinja_step(s, n / 256)) return 0;
    int order = n ? memcmp(a->text, b->text, n) : 0;
    return order ? order : a->n < b->n ? -1 : a->n > b->n;
}

static int lists_equal(jinja_state *s, const jinja_list *a, const jinja_list *b) {
    if (a->n != b->n) return 0;
    for (size_t i = 0; i < a->n; i++) if (!jinja_equal(s, a->items[i], b->items[i])) return 0;
    return 1;
}

static int dicts_equal(jinja_state *s, const jinja_dict *a, const jinja_dict *b) {
    if (a->n != b->n) return 0;
    for (size_t i = 0; i < a->n; i++) {
        const jinja_value *other = jinja_find(s, b, a->keys[i]);
        if (!other || !jinja_equal(s, a->values[i], *other)) return 0;
    }
    return 1;
}

int jinja_equal(jinja_state *s, jinja_value a, jinja_value b) {
    int equal = 0;
    if (jinja_step(s, 1)) return 0;
    if (jinja_is_number(a) && jinja_is_number(b)) {
        if (a.kind != JINJA_FLOAT && b.kind != JINJA_FLOAT) return a.u.i == b.u.i;
        return jinja_number(a) == jinja_number(b);
    }
    if (a.kind != b.kind) return 0;
    if (++s->depth > JINJA_MAX_DEPTH) jinja_fail(s, TFM_ERR_MEMORY, "values are nested too deeply");
    switch (a.kind) {
    case JINJA_UNDEFINED: case JINJA_NONE: equal = 1; break;
    case JINJA_STRING: equal = a.u.s->n == b.u.s->n && !compare_text(s, a.u.s, b.u.s); break;
    case JINJA_LIST: case JINJA_TUPLE: equal = !s->failed && lists_equal(s, a.u.list, b.u.list); break;
    case JINJA_DICT: equal = !s->failed && dicts_equal(s, a.u.dict, b.u.dict); break;
    default: equal = a.u.list == b.u.list; break;
    }
    s->depth--;
    return equal;
}

int jinja_compare(jinja_state *s, jinja_value a, jinja_value b) {
    if (jinja_step(s, 1)) return 0;
    if (jinja_is_number(a) && jinja_is_number(b)) {
        double x = jinja_number(a), y = jinja_number(b);
        if (a.kind != JINJA_FLOAT && b.kind != JINJA_FLOAT) return a.u.i < b.u.i ? -1 : a.u.i > b.u.i;
        return x < y ? -1 : x > y;
    }
    if (a.kind == JINJA_STRING && b.kind == JINJA_STRING) return compare_text(s, a.u.s, b.u.s);
    if (a.kind == b.kind && (a.kind == JINJA_LIST || a.kind == JINJA_TUPLE)) {
        const jinja_list *x = a.u.list, *y = b.u.list;
        for (size_t i = 0; i < x->n && i < y->n; i++)
            if (!jinja_equal(s, x->items[i], y->items[i])) {
                int order = 0;
                if (++s->depth <= JINJA_MAX_DEPTH) order = jinja_compare(s, x->items[i], y->items[i]);
                s->depth--;
                return order;
            }
        return x->n < y->n ? -1 : x->n > y->n;
    }
    jinja_fail(s, TFM_ERR_FORMAT, "a %s and a %s cannot be compared", jinja_type_name(a), jinja_type_name(b));
    return 0;
}

/* Whether part stands in whole. */
static int has_part(jinja_state *s, const jinja_string *whole, const jinja_string *part) {
    if (jinja_step(s, 1 + whole->n / 64)) return 0;
    if (!part->n) return 1;
    for (size_t i = 0; part->n <= whole->n && i <= whole->n - part->n; i++) {
        const char *at = memchr(whole->text + i, part->text[0], whole->n - part->n - i + 1);
        if (!at) return 0;
        i = (size_t)(at - whole->text);
        if (!memcmp(at, part->text, part->n)) return 1;
        if (part->n > 64 && jinja_step(s, 1 + part->n / 256)) return 0;
    }
    return 0;
}

int jinja_contains(jinja_state *s, jinja_value where, jinja_value what) {
    if (where.kind == JINJA_STRING && what.kind == JINJA_STRING) return has_part(s, where.u.s, what.u.s);
    if (where.kind == JINJA_DICT) return jinja_find(s, where.u.dict, what) != NULL;
    if (where.kind == JINJA_LIST || where.kind == JINJA_TUPLE) {
        for (size_t i = 0; i < where.u.list->n; i++) if (jinja_equal(s, where.u.list->items[i], what)) return 1;
        return 0;
    }
    if (where.kind == JINJA_UNDEFINED && !where.u.name && s->failed) return 0;
    if (where.kind != JINJA_UNDEFINED)
        jinja_fail(s, TFM_ERR_FORMAT, "'in' needs a list, dict or string, not a %s", jinja_type_name(where));
    return 0; /* nothing is in what is undefined */
}

const jinja_list *jinja_iterate(jinja_state *s, jinja_value v) {
    static const jinja_list empty;
    if (v.kind == JINJA_LIST || v.kind == JINJA_TUPLE) return v.u.list;
    if (v.kind == JINJA_UNDEFINED) return &empty;
    jinja_value list = jinja_list_of(s, JINJA_LIST);
    if (list.kind != JINJA_LIST) return &empty;
    if (v.kind == JINJA_DICT) {
        for (size_t i = 0; i < v.u.dict->n; i++) jinja_append(s, list, v.u.dict->keys[i]);
    } else if (v.kind == JINJA_STRING) {
        uint32_t code;
        for (size_t i = 0, n; i < v.u.s->n && !s->failed; i += n) {
            n = jinja_char(v.u.s->text + i, v.u.s->n - i, &code);
            jinja_append(s, list, jinja_slice_of(s, v.u.s, i, i + n));
        }
    } else {
        jinja_fail(s, TFM_ERR_FORMAT, "a %s cannot be iterated", jinja_type_name(v));
    }
    return list.u.list;
}

/* ---- PRINTING -------------------------------------------------------------------------------------------------- */

/* The shortest decimal that reads back as f, in Python's form. */
static void print_float(char *buf, size_t size, double f) {
    char digits[40];
    double back = 0;
    int precision = 1, exponent;
    if (f != f || f - f != 0) {
        snprintf(buf, size, "%s", f != f ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    for (; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*e", precision - 1, f);
        if (!parse_real(digits, strlen(digits), &back) && back == f) break;
    }
    if (precision > 17) precision = 17;
    const char *e = strchr(digits, 'e');
    exponent = e ? (int)strtol(e + 1, NULL, 10) : 0;
    if (exponent >= 16 || (exponent < -4 && f != 0)) {
        snprintf(buf, size, "%.*e", precision - 1, f);
        return;
    }
    int decimals = precision - 1 - exponent;
    snprintf(buf, size, "%.*f", decimals < 1 ? 1 : decimals, f);
}

/* Text between quotes as Python writes it. */
static void repr_string(jinja_state *s, jinja_builder *b, const jinja_string *str) {
    int single = memchr(str->text, '\'', str->n) != NULL, twice = memchr(str->text, '"', str->n) != NULL;
    const char quote = single && !twice ? '"' : '\'', *const named = "\n\r\t\\", *const letters = "nrt\\";
    char escape[12];
    uint32_t code;
    jinja_add_bytes(s, b, &quote, NULL, 1);
    for (size_t i = 0, n; i < str->n && !s->failed; i += n) {
        n = jinja_char(str->text + i, str->n - i, &code);
        const char *known = code && code < 128 ? strchr(named, (int)code) : NULL;
        escape[0] = 0;
        if (known) snprintf(escape, sizeof escape, "\\%c", letters[known - named]);
        else if (code == (uint32_t)quote) snprintf(escape, sizeof escape, "\\%c", quote);
        else if (code < 32 || (code >= 127 && code <= 160) || code == 0xAD)
            snprintf(escape, sizeof escape, "\\x%02x", (unsigned)code);
        else if (code == 0x2028 || code == 0x2029 || (code >= 0x2000 && code <= 0x200F) || code == 0x3000 ||
                 code == 0xFEFF)
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)code);
        if (escape[0])
            jinja_add_bytes(s, b, escape, str->input ? (const unsigned char *)"\1\1\1\1\1\1\1\1\1\1\1" : NULL,
                            strlen(escape));
        else jinja_add_bytes(s, b, str->text + i, str->input ? str->input + i : NULL, n);
    }
    jinja_add_bytes(s, b, &quote, NULL, 1);
}

static void repr(jinja_state *s, jinja_builder *b, jinja_value v);

static void repr_items(jinja_state *s, jinja_builder *b, jinja_value v) {
    const int tuple = v.kind == JINJA_TUPLE;
    jinja_add_text(s, b, tuple ? "(" : "[");
    for (size_t i = 0; i < v.u.list->n && !s->failed; i++) {
        if (i) jinja_add_text(s, b, ", ");
        repr(s, b, v.u.list->items[i]);
    }
    jinja_add_text(s, b, tuple ? v.u.list->n == 1 ? ",)" : ")" : "]");
}

static void repr_dict(jinja_state *s, jinja_builder *b, const jinja_dict *d) {
    jinja_add_text(s, b, "{");
    for (size_t i = 0; i < d->n && !s->failed; i++) {
        if (i) jinja_add_text(s, b, ", ");
        repr(s, b, d->keys[i]);
        jinja_add_text(s, b, ": ");
        repr(s, b, d->values[i]);
    }
    jinja_add_text(s, b, "}");
}

static void repr(jinja_state *s, jinja_builder *b, jinja_value v) {
    char number[400];
    if (jinja_step(s, 1)) return;
    if (++s->depth > JINJA_MAX_DEPTH) jinja_fail(s, TFM_ERR_MEMORY, "values are nested too deeply");
    switch (s->failed ? JINJA_UNDEFINED : v.kind) {
    case JINJA_UNDEFINED: break;
    case JINJA_NONE: jinja_add_text(s, b, "None"); break;
    case JINJA_BOOL: jinja_add_text(s, b, v.u.i ? "True" : "False"); break;
    case JINJA_INT:
        snprintf(number, sizeof number, "%lld", (long long)v.u.i);
        jinja_add_text(s, b, number);
        break;
    case JINJA_FLOAT:
        print_float(number, sizeof number, v.u.f);
        jinja_add_text(s, b, number);
        break;
    case JINJA_STRING: repr_string(s, b, v.u.s); break;
    case JINJA_LIST: case JINJA_TUPLE: repr_items(s, b, v); break;
    case JINJA_DICT: repr_dict(s, b, v.u.dict); break;
    default: jinja_fail(s, TFM_ERR_FORMAT, "a %s cannot be printed", jinja_type_name(v)); break;
    }
    s->depth--;
}

jinja_value jinja_repr(jinja_state *s, jinja_value v) {
    jinja_builder b;
    memset(&b, 0, sizeof b);
    repr(s, &b, v);
    return jinja_built(s, &b);
}

const jinja_string *jinja_to_string(jinja_state *s, jinja_value v) {
    static const jinja_string empty = {"", NULL, 0, 0};
    if (v.kind != JINJA_STRING) v = v.kind == JINJA_UNDEFINED ? v : jinja_repr(s, v);
    return v.kind == JINJA_STRING ? v.u.s : &empty;
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

typedef struct json_style { int indent, ascii, sort_keys; const char *item_separator, *key_separator; } json_style;

static void json_string(jinja_state *s, jinja_builder *b, const jinja_string *str, int ascii) {
    static const unsigned char ones[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const char *const named = "\"\\\n\r\t\b\f", *const letters = "\"\\nrtbf";
    uint32_t code;
    jinja_add_text(s, b, "\"");
    for (size_t i = 0, n; i < str->n && !s->failed; i += n) {
        char escape[16] = "";
        n = jinja_char(str->text + i, str->n - i, &code);
        const char *known = code && code < 128 ? strchr(named, (int)code) : NULL;
        if (known) snprintf(escape, sizeof escape, "\\%c", letters[known - named]);
        else if (code < 32 || (ascii && code > 126 && code < 0x10000))
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)code);
        else if (ascii && code >= 0x10000)
            snprintf(escape, sizeof escape, "\\u%04x\\u%04x", (unsigned)(0xD800 + ((code - 0x10000) >> 10)),
                     (unsigned)(0xDC00 + (code & 1023)));
        if (escape[0]) jinja_add_bytes(s, b, escape, str->input ? ones : NULL, strlen(escape));
        else jinja_add_bytes(s, b, str->text + i, str->input ? str->input + i : NULL, n);
    }
    jinja_add_text(s, b, "\"");
}

static void json_line(jinja_state *s, jinja_builder *b, const json_style *style, int level) {
    if (style->indent < 0) return;
    jinja_add_text(s, b, "\n");
    for (int i = 0; i < style->indent * level && !s->failed; i++) jinja_add_text(s, b, " ");
}

static void json_value(jinja_state *s, jinja_builder *b, jinja_value v, const json_style *style, int level);

static void json_list(jinja_state *s, jinja_builder *b, const jinja_list *l, const json_style *style, int level) {
    jinja_add_text(s, b, "[");
    for (size_t i = 0; i < l->n && !s->failed; i++) {
        if (i) jinja_add_text(s, b, style->item_separator);
        json_line(s, b, style, level + 1);
        json_value(s, b, l->items[i], style, level + 1);
    }
    if (l->n) json_line(s, b, style, level);
    jinja_add_text(s, b, "]");
}

/* Index of the smallest key above `last` (index or SIZE_MAX). Quadratic, but counted. */
static size_t next_key(jinja_state *s, const jinja_dict *d, size_t last) {
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < d->n && !s->failed; i++) {
        if (last != SIZE_MAX && jinja_compare(s, d->keys[i], d->keys[last]) <= 0) continue;
        if (best == SIZE_MAX || jinja_compare(s, d->keys[i], d->keys[best]) < 0) best = i;
    }
    return best;
}

static void json_dict(jinja_state *s, jinja_builder *b, const jinja_dict *d, const json_style *style, int level) {
    size_t at = SIZE_MAX;
    jinja_add_text(s, b, "{");
    for (size_t i = 0; i < d->n && !s->failed; i++) {
        at = style->sort_keys ? next_key(s, d, at) : i;
        if (at == SIZE_MAX) break;
        if (i) jinja_add_text(s, b, style->item_separator);
        json_line(s, b, style, level + 1);
        if (d->keys[at].kind == JINJA_STRING) {
            json_string(s, b, d->keys[at].u.s, style->ascii);
        } else {
            jinja_add_text(s, b, "\"");
            json_value(s, b, d->keys[at], style, level + 1);
            jinja_add_text(s, b, "\"");
        }
        jinja_add_text(s, b, style->key_separator);
        json_value(s, b, d->values[at], style, level + 1);
    }
    if (d->n) json_line(s, b, style, level);
    jinja_add_text(s, b, "}");
}

static void json_value(jinja_state *s, jinja_builder *b, jinja_value v, const json_style *style, int level) {
    if (jinja_step(s, 1)) return;
    if (level > JINJA_MAX_DEPTH / 4) jinja_fail(s, TFM_ERR_MEMORY, "values are nested too deeply");
    switch (s->failed ? JINJA_UNDEFINED : v.kind) {
    case JINJA_NONE: jinja_add_text(s, b, "null"); break;
    case JINJA_BOOL: jinja_add_text(s, b, v.u.i ? "true" : "false"); break;
    case JINJA_INT: case JINJA_FLOAT: {
        const jinja_string *number = jinja_to_string(s, v);
        const char *first = number->text;
        if (v.kind == JINJA_FLOAT && v.u.f - v.u.f != 0)
            jinja_add_text(s, b, first[0] == 'n' ? "NaN" : first[0] == '-' ? "-Infinity" : "Infinity");
        else jinja_add(s, b, number);
        break;
    }
    case JINJA_STRING: json_string(s, b, v.u.s, style->ascii); break;
    case JINJA_LIST: case JINJA_TUPLE: json_list(s, b, v.u.list, style, level); break;
    case JINJA_DICT: json_dict(s, b, v.u.dict, style, level); break;
    default: jinja_fail(s, TFM_ERR_FORMAT, "tojson: a value that is %s has no JSON", jinja_type_name(v)); break;
    }
}

jinja_value jinja_tojson(jinja_state *s, jinja_value v, int indent, int ascii, int sort_keys,
                         const char *item_separator,
                         const char *key_separator) {
    json_style style = {indent, ascii, sort_keys, item_separator, key_separator};
    jinja_builder b;
    memset(&b, 0, sizeof b);
    json_value(s, &b, v, &style, 0);
    return jinja_built(s, &b);
}
