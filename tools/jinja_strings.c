/* jinja_strings.c - methods of strings, which several filters share. Offsets are bytes inside, characters outside. */
#include "jinja_strings.h"

#include <math.h>

/* One character: its code point, its bytes. */
typedef struct letter { uint32_t code; size_t n; } letter;

static letter letter_at(const jinja_string *s, size_t i) {
    letter l;
    l.n = jinja_char(s->text + i, s->n - i, &l.code);
    return l;
}

/* ---- stripping ------------------------------------------------------------------------------------------------- */

static int in_set(jinja_state *s, const jinja_string *set, const char *p, size_t n) {
    uint32_t code;
    if (jinja_step(s, set->n / 64)) return 0;
    for (size_t i = 0, m; i < set->n; i += m) {
        m = jinja_char(set->text + i, set->n - i, &code);
        if (m == n && !memcmp(set->text + i, p, n)) return 1;
    }
    return 0;
}

jinja_value jinja_strip(jinja_state *s, const jinja_string *str, const jinja_string *set, int sides) {
    size_t begin = 0, end = str->n;
    letter l;
    while (sides & JINJA_LEFT && begin < end) {
        l = letter_at(str, begin);
        if (!(set ? in_set(s, set, str->text + begin, l.n) : jinja_is_space(l.code))) break;
        begin += l.n;
    }
    while (sides & JINJA_RIGHT && end > begin) {
        size_t at = end - 1;
        while (at > begin && (str->text[at] & 0xC0) == 0x80) at--;
        l = letter_at(str, at);
        if (!(set ? in_set(s, set, str->text + at, l.n) : jinja_is_space(l.code))) break;
        end = at;
    }
    if (jinja_step(s, 1 + (str->n - (end - begin)) / 16)) return jinja_undefined(NULL);
    return jinja_slice_of(s, str, begin, end);
}

static jinja_value strip_with(jinja_state *s, jinja_value self, jinja_args *args, int sides) {
    const jinja_value *set = jinja_arg(args, 0, "chars");
    if (set && set->kind != JINJA_STRING && set->kind != JINJA_NONE)
        return jinja_fail(s, TFM_ERR_FORMAT, "strip needs a string, not a %s", jinja_type_name(*set));
    return jinja_strip(s, self.u.s, set && set->kind == JINJA_STRING ? set->u.s : NULL, sides);
}

static jinja_value do_strip(jinja_state *s, jinja_value self, jinja_args *args) { return strip_with(s, self, args,
    JINJA_LEFT | JINJA_RIGHT); }
static jinja_value do_lstrip(jinja_state *s, jinja_value self, jinja_args *args) { return strip_with(s, self, args,
    JINJA_LEFT); }
static jinja_value do_rstrip(jinja_state *s, jinja_value self, jinja_args *args) { return strip_with(s, self, args,
    JINJA_RIGHT); }

/* ---- searching ------------------------------------------------------------------------------------------------- */

/* The first place of part at or behind `from`, or SIZE_MAX. */
static size_t find(jinja_state *s, const jinja_string *str, const jinja_string *part, size_t from) {
    if (part->n > str->n || from > str->n - part->n) return SIZE_MAX;
    if (!part->n) return from;
    for (size_t i = from; i <= str->n - part->n; i++) {
        const char *at = memchr(str->text + i, part->text[0], str->n - part->n - i + 1);
        if (!at || jinja_step(s, 1 + ((size_t)(at - str->text) - i + part->n) / 256)) return SIZE_MAX;
        i = (size_t)(at - str->text);
        if (!memcmp(at, part->text, part->n)) return i;
    }
    return SIZE_MAX;
}

static size_t rfind(jinja_state *s, const jinja_string *str, const jinja_string *part, size_t end) {
    if (part->n > end) return SIZE_MAX;
    for (size_t i = end - part->n + 1; i-- > 0;) {
        if (i % 64 == 0 && jinja_step(s, 1 + part->n / 4)) return SIZE_MAX;
        if (!memcmp(str->text + i, part->text, part->n)) return i;
    }
    return SIZE_MAX;
}

/* Argument i as a string; an empty one after a failure. */
static const jinja_string *string_arg(jinja_state *s, const jinja_args *args, int i, const char *name) {
    static const jinja_string empty = {"", NULL, 0, 0};
    const jinja_value *v = jinja_arg(args, i, name);
    if (v && v->kind == JINJA_STRING) return v->u.s;
    jinja_fail(s, TFM_ERR_FORMAT, "argument %d must be a string, not %s", i + 1, v ? jinja_type_name(*v) : "missing");
    return &empty;
}

static int64_t int_arg(const jinja_args *args, int i, const char *name, int64_t otherwise) {
    const jinja_value *v = jinja_arg(args, i, name);
    return v && (v->kind == JINJA_INT || v->kind == JINJA_BOOL) ? v->u.i : otherwise;
}

static jinja_value place(const jinja_string *str, size_t at) {
    const jinja_string before = {str->text, NULL, at == SIZE_MAX ? 0 : at, 0};
    return jinja_int(at == SIZE_MAX ? -1 : (int64_t)jinja_length(&before));
}

static jinja_value do_find(jinja_state *s, jinja_value self, jinja_args *args) {
    return place(self.u.s, find(s, self.u.s, string_arg(s, args, 0, "sub"), 0));
}
static jinja_value do_rfind(jinja_state *s, jinja_value self, jinja_args *args) {
    return place(self.u.s, rfind(s, self.u.s, string_arg(s, args, 0, "sub"), self.u.s->n));
}
static jinja_value do_index(jinja_state *s, jinja_value self, jinja_args *args) {
    jinja_value at = do_find(s, self, args);
    return at.u.i < 0 ? jinja_fail(s, TFM_ERR_FORMAT, "index: substring not found") : at;
}
static jinja_value do_rindex(jinja_state *s, jinja_value self, jinja_args *args) {
    jinja_value at = do_rfind(s, self, args);
    return at.u.i < 0 ? jinja_fail(s, TFM_ERR_FORMAT, "rindex: substring not found") : at;
}
static jinja_value do_count(jinja_state *s, jinja_value self, jinja_args *args) {
    const jinja_string *part = string_arg(s, args, 0, "sub");
    int64_t n = 0;
    if (!part->n) return jinja_int((int64_t)jinja_length(self.u.s) + 1);
    for (size_t at = 0; (at = find(s, self.u.s, part, at)) != SIZE_MAX; at += part->n) n++;
    return jinja_int(n);
}

/* startswith, endswith: one string or a tuple of them. */
static jinja_value has_end(jinja_state *s, jinja_value self, const jinja_args *args, int at_end) {
    const jinja_value *what = jinja_arg(args, 0, "prefix");
    const jinja_string *str = self.u.s;
    if (!what || (what->kind != JINJA_STRING && what->kind != JINJA_TUPLE))
        return jinja_fail(s, TFM_ERR_FORMAT, "startswith and endswith need a string or a tuple of strings");
    const size_t n = what->kind == JINJA_TUPLE ? what->u.list->n : 1;
    for (size_t i = 0; i < n; i++) {
        const jinja_value v = what->kind == JINJA_TUPLE ? what->u.list->items[i] : *what;
        if (v.kind != JINJA_STRING || v.u.s->n > str->n || jinja_step(s, v.u.s->n / 256)) continue;
        if (!memcmp(str->text + (at_end ? str->n - v.u.s->n : 0), v.u.s->text, v.u.s->n)) return jinja_bool(1);
    }
    return jinja_bool(0);
}
static jinja_value do_startswith(jinja_state *s, jinja_value self, jinja_args *args) { return has_end(s, self, args,
    0); }
static jinja_value do_endswith(jinja_state *s, jinja_value self, jinja_args *args) { return has_end(s, self, args, 1); }

static jinja_value do_removeprefix(jinja_state *s, jinja_value self, jinja_args *args) {
    const jinja_string *part = string_arg(s, args, 0, "prefix");
    return jinja_is_true(has_end(s, self, args, 0)) ? jinja_slice_of(s, self.u.s, part->n, self.u.s->n) : self;
}
static jinja_value do_removesuffix(jinja_state *s, jinja_value self, jinja_args *args) {
    const jinja_string *part = string_arg(s, args, 0, "prefix");
    return jinja_is_true(has_end(s, self, args, 1)) ? jinja_slice_of(s, self.u.s, 0, self.u.s->n - part->n) : self;
}

/* ---- splitting ------------------------------------------------------------------------------------------------- */

/* At white space, as str.split() without a separator does. */
static jinja_value split_words(jinja_state *s, const jinja_string *str, int64_t most) {
    jinja_value out = jinja_list_of(s, JINJA_LIST);
    size_t at = 0, begin;
    while (!s->failed) {
        while (at < str->n && jinja_is_space(letter_at(str, at).code)) at += letter_at(str, at).n;
        if (at >= str->n) break;
        begin = at;
        if (most >= 0 && (int64_t)out.u.list->n == most) {
            const jinja_string rest = {str->text + begin, str->input ? str->input + begin : NULL, str->n - begin, 0};
            jinja_append(s, out, jinja_strip(s, &rest, NULL, JINJA_RIGHT));
            break;
        }
        while (at < str->n && !jinja_is_space(letter_at(str, at).code)) at += letter_at(str, at).n;
        jinja_append(s, out, jinja_slice_of(s, str, begin, at));
    }
    return out;
}

static jinja_value do_split(jinja_state *s, jinja_value self, jinja_args *args) {
    const jinja_value *sep = jinja_arg(args, 0, "sep");
    const int64_t most = int_arg(args, 1, "maxsplit", -1);
    const jinja_string *str = self.u.s;
    if (!sep || sep->kind == JINJA_NONE) return split_words(s, str, most);
    const jinja_string *part = string_arg(s, args, 0, "sep");
    jinja_value out = jinja_list_of(s, JINJA_LIST);
    size_t begin = 0, at;
    if (!part->n) return jinja_fail(s, TFM_ERR_FORMAT, "split: empty separator");
    while (!s->failed && (most < 0 || (int64_t)out.u.list->n < most) && (at = find(s, str, part, begin)) != SIZE_MAX) {
        jinja_append(s, out, jinja_slice_of(s, str, begin, at));
        begin = at + part->n;
    }
    jinja_append(s, out, jinja_slice_of(s, str, begin, str->n));
    return out;
}

static jinja_value do_rsplit(jinja_state *s, jinja_value self, jinja_args *args) {
    const int64_t most = int_arg(args, 1, "maxsplit", -1);
    const jinja_string *str = self.u.s;
    if (most < 0) return do_split(s, self, args);
    const jinja_string *part = string_arg(s, args, 0, "sep");
    jinja_value backwards = jinja_list_of(s, JINJA_LIST), out = jinja_list_of(s, JINJA_LIST);
    size_t end = str->n, at;
    if (!part->n) return jinja_fail(s, TFM_ERR_FORMAT, "rsplit: empty separator");
    while (!s->failed && (int64_t)backwards.u.list->n < most && (at = rfind(s, str, part, end)) != SIZE_MAX) {
        jinja_append(s, backwards, jinja_slice_of(s, str, at + part->n, end));
        end = at;
    }
    jinja_append(s, backwards, jinja_slice_of(s, str, 0, end));
    for (size_t i = s->failed ? 0 : backwards.u.list->n; i-- > 0;) jinja_append(s, out, backwards.u.list->items[i]);
    return out;
}

static jinja_value partition(jinja_state *s, const jinja_string *str, const jinja_string *part, size_t at, int last) {
    jinja_value out = jinja_list_of(s, JINJA_TUPLE);
    const size_t begin = at == SIZE_MAX ? last ? 0 : str->n : at, end = at == SIZE_MAX ? begin : at + part->n;
    if (!part->n) return jinja_fail(s, TFM_ERR_FORMAT, "partition: empty separator");
    jinja_append(s, out, jinja_slice_of(s, str, 0, begin));
    jinja_append(s, out, jinja_slice_of(s, str, begin, end));
    jinja_append(s, out, jinja_slice_of(s, str, end, str->n));
    return out;
}
static jinja_value do_partition(jinja_state *s, jinja_value self, jinja_args *args) {
    const jinja_string *part = string_arg(s, args, 0, "sep");
    return partition(s, self.u.s, part, find(s, self.u.s, part, 0), 0);
}
static jinja_value do_rpartition(jinja_state *s, jinja_value self, jinja_args *args) {
    const jinja_string *part = string_arg(s, args, 0, "sep");
    return partition(s, self.u.s, part, rfind(s, self.u.s, part, self.u.s->n), 1);
}

static int breaks_line(uint32_t c) {
    return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

jinja_value jinja_lines(jinja_state *s, const jinja_string *str, int keep_ends) {
    jinja_value out = jinja_list_of(s, JINJA_LIST);
    for (size_t begin = 0, at = 0, end; begin < str->n && !s->failed; begin = at) {
        while (at < str->n && !breaks_line(letter_at(str, at).code)) at += letter_at(str, at).n;
        end = at;
        if (at < str->n) at += letter_at(str, at).n;
        if (end + 1 == at && str->text[end] == '\r' && at < str->n && str->text[at] == '\n') at++;
        jinja_append(s, out, jinja_slice_of(s, str, begin, keep_ends ? at : end));
    }
    return out;
}
static jinja_value do_splitlines(jinja_state *s, jinja_value self, jinja_args *args) {
    const jinja_value *keep = jinja_arg(args, 0, "keepends");
    return jinja_lines(s, self.u.s, keep && jinja_is_true(*keep));
}

/* ---- replacing and joining ------------------------------------------------------------------------------------- */

jinja_value jinja_replace(jinja_state *s, const jinja_string *str, const jinja_string *old, const jinja_string *with,
                          int64_t most) {
    jinja_builder b;
    size_t begin = 0, at;
    memset(&b, 0, sizeof b);
    while (!s->failed && most-- != 0 && (at = find(s, str, old, begin)) != SIZE_MAX) {
        if (!old->n) { /* before every character and at the end */
            const size_t n = begin < str->n ? letter_at(str, begin).n : 0;
            jinja_add(s, &b, with);
            if (!n) return jinja_built(s, &b);
            jinja_add_bytes(s, &b, str->text + begin, str->input ? str->input + begin : NULL, n);
            begin += n;
            continue;
        }
        jinja_add_bytes(s, &b, str->text + begin, str->input ? str->input + begin : NULL, at - begin);
        jinja_add(s, &b, with);
        begin = at + old->n;
    }
    jinja_add_bytes(s, &b, str->text + begin, str->input ? str->input + begin : NULL, str->n - begin);
    return jinja_built(s, &b);
}
static jinja_value do_replace(jinja_state *s, jinja_value self, jinja_args *args) {
    const jinja_string *old = string_arg(s, args, 0, "old"), *with = string_arg(s, args, 1, "new");
    return jinja_replace(s, self.u.s, old, with, int_arg(args, 2, "count", -1));
}

jinja_value jinja_join(jinja_state *s, const jinja_string *between, const jinja_list *items) {
    jinja_builder b;
    memset(&b, 0, sizeof b);
    for (size_t i = 0; i < items->n && !s->failed; i++) {
        if (i) jinja_add(s, &b, between);
        jinja_add(s, &b, jinja_to_string(s, items->items[i]));
    }
    return jinja_built(s, &b);
}
static jinja_value do_join(jinja_state *s, jinja_value self, jinja_args *args) {
    const jinja_value *items = jinja_arg(args, 0, "iterable");
    if (!items) return jinja_fail(s, TFM_ERR_FORMAT, "join needs a list");
    const jinja_list *list = jinja_iterate(s, *items);
    for (size_t i = 0; i < list->n; i++)
        if (list->items[i].kind != JINJA_STRING)
            return jinja_fail(s, TFM_ERR_FORMAT, "join: item %llu is a %s", (unsigned long long)i,
                              jinja_type_name(list->items[i]));
    return jinja_join(s, self.u.s, list);
}

/* ---- upper and lower case -------------------------------------------------------------------------------------- */

/* ASCII, Latin-1, Greek and Cyrillic; other letters stay as they are. */
static uint32_t change_case(uint32_t c, int up) {
    static const struct { uint32_t low, high, step; } ranges[] = { /* of lower case letters; upper = lower - step */
        {'a', 'z', 32}, {0xE0, 0xF6, 32}, {0xF8, 0xFE, 32}, {0x3B1, 0x3C1, 32}, {0x3C3, 0x3CB, 32}, {0x430, 0x44F, 32},
        {0x450, 0x45F, 80}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        const uint32_t shift = up ? 0 : ranges[i].step;
        if (c + shift >= ranges[i].low && c + shift <= ranges[i].high) return up ? c - ranges[i].step : c + shift;
    }
    return c;
}
static int has_case(uint32_t c) { return change_case(c, 1) != c || change_case(c, 0) != c; }

/* mode: upper, lower, title (first letter of each word), capitalize (of the whole), swapcase. */
jinja_value jinja_recase(jinja_state *s, const jinja_string *str, enum jinja_case mode) {
    jinja_builder b;
    int inside = 0; /* a word, or the text */
    letter l;
    memset(&b, 0, sizeof b);
    for (size_t i = 0; i < str->n && !s->failed; i += l.n) {
        char out[4];
        l = letter_at(str, i);
        int up = mode == JINJA_UPPER || ((mode == JINJA_TITLE || mode == JINJA_CAPITAL) && !inside) ||
                 (mode == JINJA_SWAP && change_case(l.code, 1) != l.code);
        const uint32_t c = change_case(l.code, up);
        memcpy(out, str->text + i, l.n);
        if (c != l.code && l.n == 1) out[0] = (char)c;
        if (c != l.code && l.n == 2) { out[0] = (char)(0xC0 | c >> 6); out[1] = (char)(0x80 | (c & 63)); }
        jinja_add_bytes(s, &b, out, str->input ? str->input + i : NULL, l.n);
        inside = mode == JINJA_CAPITAL ? 1 : has_case(l.code);
    }
    return jinja_built(s, &b);
}
#define RECASE(name, mode) \
    static jinja_value do_##name(jinja_state *s, jinja_value self, jinja_args *args) { \
        (void)args; \
        return jinja_recase(s, self.u.s, mode); \
    }
RECASE(upper, JINJA_UPPER)
RECASE(lower, JINJA_LOWER)
RECASE(title, JINJA_TITLE)
RECASE(capitalize, JINJA_CAPITAL)
RECASE(swapcase, JINJA_SWAP)

static int is_alpha(uint32_t c) { return has_case(c) || (c > 0x2AF && !jinja_is_space(c)); }
static int is_digit(uint32_t c) { return c >= '0' && c <= '9'; }
static int is_alnum(uint32_t c) { return is_alpha(c) || is_digit(c); }

static jinja_value all_of(const jinja_string *str, int (*test)(uint32_t)) {
    for (size_t i = 0; i < str->n; i += letter_at(str, i).n) if (!test(letter_at(str, i).code)) return jinja_bool(0);
    return jinja_bool(str->n > 0);
}
#define ALL_OF(name, test) \
    static jinja_value do_##name(jinja_state *s, jinja_value self, jinja_args *args) { \
        (void)s; \
        (void)args; \
        return all_of(self.u.s, test); \
    }
ALL_OF(isspace, jinja_is_space)
ALL_OF(isdigit, is_digit)
ALL_OF(isalpha, is_alpha)
ALL_OF(isalnum, is_alnum)

/* There are letters, and all of them are of one case. */
int jinja_all_cased(const jinja_string *str, int upper) {
    int any = 0;
    for (size_t i = 0; i < str->n; i += letter_at(str, i).n) {
        const uint32_t c = letter_at(str, i).code;
        if (change_case(c, !upper) != c) any = 1;
        else if (change_case(c, upper) != c) return 0;
    }
    return any;
}
static jinja_value do_isupper(jinja_state *s, jinja_value self, jinja_args *args) {
    (void)s;
    (void)args;
    return jinja_bool(jinja_all_cased(self.u.s, 1));
}
static jinja_value do_islower(jinja_state *s, jinja_value self, jinja_args *args) {
    (void)s;
    (void)args;
    return jinja_bool(jinja_all_cased(self.u.s, 0));
}

/* ---- padding and formats --------------------------------------------------------------------------------------- */

static void add_fill(jinja_state *s, jinja_builder *b, const jinja_string *fill, int64_t n) {
    for (; n > 0 && !jinja_step(s, 1); n--) jinja_add(s, b, fill);
}

static jinja_value pad(jinja_state *s, jinja_value self, const jinja_args *args, int side) { /* -1 left, 0, 1 right */
    static const jinja_string space = {" ", NULL, 1, 0};
    const jinja_value *fill = jinja_arg(args, 1, "fillchar");
    const jinja_string *with = fill && fill->kind == JINJA_STRING ? fill->u.s : &space;
    const int64_t width = int_arg(args, 0, "width", 0), n = (int64_t)jinja_length(self.u.s);
    const int64_t gap = width > n ? width - n : 0;
    const int64_t left = side < 0 ? gap : side > 0 ? 0 : gap / 2 + (gap & width & 1);
    jinja_builder b;
    memset(&b, 0, sizeof b);
    add_fill(s, &b, with, left);
    jinja_add(s, &b, self.u.s);
    add_fill(s, &b, with, gap - left);
    return jinja_built(s, &b);
}
static jinja_value do_rjust(jinja_state *s, jinja_value self, jinja_args *args) { return pad(s, self, args, -1); }
static jinja_value do_ljust(jinja_state *s, jinja_value self, jinja_args *args) { return pad(s, self, args, 1); }
static jinja_value do_center(jinja_state *s, jinja_value self, jinja_args *args) { return pad(s, self, args, 0); }

static jinja_value do_zfill(jinja_state *s, jinja_value self, jinja_args *args) {
    static const jinja_string zero = {"0", NULL, 1, 0};
    const int64_t width = int_arg(args, 0, "width", 0), n = (int64_t)jinja_length(self.u.s);
    const size_t sign = self.u.s->n && (self.u.s->text[0] == '-' || self.u.s->text[0] == '+');
    jinja_builder b;
    memset(&b, 0, sizeof b);
    jinja_add_bytes(s, &b, self.u.s->text, self.u.s->input, sign);
    add_fill(s, &b, &zero, width - n);
    jinja_add_bytes(s, &b, self.u.s->text + sign, self.u.s->input ? self.u.s->input + sign : NULL, self.u.s->n - sign);
    return jinja_built(s, &b);
}

/* One {field} of a format: {}, {0}, {name}, with .attributes and [items] behind it; no conversion or width. */
static jinja_value format_field(jinja_state *s, const char *field, size_t n, jinja_args *args, int *next) {
    size_t end = 0;
    int64_t index = 0;
    while (end < n && field[end] != '.' && field[end] != '[') end++;
    const char *name = jinja_copy(s, field, end);
    if (memchr(field, ':', n) || memchr(field, '!', n))
        return jinja_fail(s, TFM_ERR_UNSUPPORTED, "format: {%.*s} is not supported", (int)(n < 40 ? n : 40), field);
    if (!end) index = (*next)++;
    const jinja_value *v = end && parse_int64(field, end, &index) ? jinja_arg(args, JINJA_MAX_ARGS, name)
                           : index >= 0 && index < args->n_positional ? &args->value[index] : NULL;
    if (!v) return jinja_fail(s, TFM_ERR_FORMAT, "format: no value for {%.*s}", (int)(n < 40 ? n : 40), field);
    if (end < n)
        return jinja_fail(s, TFM_ERR_UNSUPPORTED, "format: {%.*s} is not supported", (int)(n < 40 ? n : 40), field);
    return *v;
}

static jinja_value do_format(jinja_state *s, jinja_value self, jinja_args *args) {
    const jinja_string *f = self.u.s;
    jinja_builder b;
    int next = 0;
    memset(&b, 0, sizeof b);
    for (size_t i = 0; i < f->n && !s->failed; i++) {
        const char c = f->text[i];
        if ((c == '{' || c == '}') && i + 1 < f->n && f->text[i + 1] == c) i++;
        else if (c == '}') return jinja_fail(s, TFM_ERR_FORMAT, "format: '}' without '{'");
        else if (c == '{') {
            const char *end = memchr(f->text + i, '}', f->n - i);
            if (!end) return jinja_fail(s, TFM_ERR_FORMAT, "format: '{' without '}'");
            const size_t at = (size_t)(end - f->text);
            jinja_add(s, &b, jinja_to_string(s, format_field(s, f->text + i + 1, at - i - 1, args, &next)));
            i = at;
            continue;
        }
        jinja_add_bytes(s, &b, f->text + i, f->input ? f->input + i : NULL, 1);
    }
    return jinja_built(s, &b);
}

/* The n characters of "%-5.2f": flags, a width and a precision of two digits at most. */
static int known_spec(const char *spec, size_t n) {
    size_t at = 1 + strspn(spec + 1, "-+ #0"), width = strspn(spec + at, "0123456789"), precision = 0;
    at += width;
    if (spec[at] == '.') at += 1 + (precision = strspn(spec + at + 1, "0123456789"));
    return width <= 2 && precision <= 2 && at == n - 1;
}

static int is_real(char kind) { return kind == 'f' || kind == 'e' || kind == 'g'; }

/* %s %r %d %i %f %x */
static void percent_item(jinja_state *s, jinja_builder *b, const char *spec, size_t n, jinja_value v) {
    const char kind = spec[n - 1];
    char buf[400], format[24];
    if (kind == 's' || kind == 'r' ? n != 2 : !known_spec(spec, n)) {
        jinja_fail(s, TFM_ERR_UNSUPPORTED, "%%%.*s is not supported", (int)n - 1, spec + 1);
    } else if (kind == 's' || kind == 'r') {
        jinja_add(s, b, kind == 's' ? jinja_to_string(s, v) : jinja_to_string(s, jinja_repr(s, v)));
    } else if (!jinja_is_number(v)) {
        jinja_fail(s, TFM_ERR_FORMAT, "%%%c needs a number, not a %s", kind, jinja_type_name(v));
    } else if (!is_real(kind) && v.kind == JINJA_FLOAT && !(fabs(v.u.f) < 9e18)) {
        jinja_fail(s, TFM_ERR_FORMAT, "a whole number is too large");
    } else {
        const int real = is_real(kind);
        snprintf(format, sizeof format, "%.*s%s%c", (int)n - 1, spec, real ? "" : "ll", kind == 'i' ? 'd' : kind);
        if (real) snprintf(buf, sizeof buf, format, jinja_number(v));
        else snprintf(buf, sizeof buf, format, (long long)(v.kind == JINJA_FLOAT ? (int64_t)v.u.f : v.u.i));
        jinja_add_text(s, b, buf);
    }
}

jinja_value jinja_percent(jinja_state *s, const jinja_string *f, jinja_value args) {
    const int many = args.kind == JINJA_TUPLE;
    size_t used = 0;
    jinja_builder b;
    memset(&b, 0, sizeof b);
    for (size_t i = 0; i < f->n && !s->failed; i++) {
        size_t end = i + 1;
        if (f->text[i] != '%') { jinja_add_bytes(s, &b, f->text + i, f->input ? f->input + i : NULL, 1); continue; }
        while (end < f->n && end - i < 12 && f->text[end] && strchr("0123456789.-+ #", f->text[end])) end++;
        if (end >= f->n || !f->text[end] || !strchr("srdifegx%", f->text[end]))
            return jinja_fail(s, TFM_ERR_FORMAT, "a format after %% is not supported");
        if (f->text[end] == '%') { jinja_add_text(s, &b, "%"); i = end; continue; }
        if (used >= (many ? args.u.list->n : 1)) return jinja_fail(s, TFM_ERR_FORMAT, "%%: not enough values");
        percent_item(s, &b, f->text + i, end - i + 1, many ? args.u.list->items[used] : args);
        used++;
        i = end;
    }
    if (!s->failed && used < (many ? args.u.list->n : 1) && args.kind != JINJA_DICT)
        return jinja_fail(s, TFM_ERR_FORMAT, "%%: not all values are used");
    return jinja_built(s, &b);
}

/* ---- the table ------------------------------------------------------------------------------------------------- */

static const struct { const char *name; jinja_function *run; } methods[] = {
    {"strip", do_strip}, {"lstrip", do_lstrip}, {"rstrip", do_rstrip}, {"split", do_split}, {"rsplit", do_rsplit},
    {"splitlines", do_splitlines}, {"partition", do_partition}, {"rpartition", do_rpartition},
    {"startswith", do_startswith}, {"endswith", do_endswith}, {"removeprefix", do_removeprefix},
    {"removesuffix", do_removesuffix}, {"find", do_find}, {"rfind", do_rfind}, {"index", do_index},
        {"rindex", do_rindex},
    {"count", do_count}, {"replace", do_replace}, {"join", do_join}, {"upper", do_upper}, {"lower", do_lower},
    {"casefold", do_lower}, {"title", do_title}, {"capitalize", do_capitalize}, {"swapcase", do_swapcase},
    {"isspace", do_isspace}, {"isdigit", do_isdigit}, {"isnumeric", do_isdigit}, {"isdecimal", do_isdigit},
    {"isalpha", do_isalpha}, {"isalnum", do_isalnum}, {"isupper", do_isupper}, {"islower", do_islower},
    {"rjust", do_rjust}, {"ljust", do_ljust}, {"center", do_center}, {"zfill", do_zfill}, {"format", do_format}};

jinja_function *jinja_string_method(const char *name) {
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (!strcmp(methods[i].name, name)) return methods[i].run;
    return NULL;
}
