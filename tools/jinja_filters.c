/* jinja_filters.c - the filters: a table of functions. */
#include <math.h>

#include "jinja_strings.h"

static int64_t int_arg(const jinja_args *args, int i, const char *name, int64_t otherwise) {
    const jinja_value *v = jinja_arg(args, i, name);
    return v && (v->kind == JINJA_INT || v->kind == JINJA_BOOL) ? v->u.i : otherwise;
}

static int true_arg(const jinja_args *args, int i, const char *name) {
    const jinja_value *v = jinja_arg(args, i, name);
    return v && jinja_is_true(*v);
}

/* "a.b.0" looked up step by step, as the filters with attribute=... do. */
static jinja_value by_path(jinja_state *s, jinja_value v, const jinja_value *path) {
    if (path->kind != JINJA_STRING) return jinja_item(s, v, *path);
    const char *at = jinja_c_string(s, path->u.s);
    while (!s->failed) {
        const size_t n = strcspn(at, ".");
        int64_t index;
        jinja_value key = parse_int64(at, n, &index) ? jinja_string_of(s, at, NULL, n) : jinja_int(index);
        v = jinja_item(s, v, key);
        if (!at[n]) break;
        at += n + 1;
    }
    return v;
}

/* The arguments from `first` on. */
static void rest_of(const jinja_args *args, int first, jinja_args *out) {
    out->n = out->n_positional = 0;
    for (int i = first; i < args->n; i++) {
        out->value[out->n] = args->value[i];
        out->name[out->n++] = args->name[i];
        out->n_positional += !args->name[i];
    }
}

/* ---- FILTERS: TEXT --------------------------------------------------------------------------------------------- */

static jinja_value f_trim(jinja_state *s, jinja_value v, jinja_args *args) {
    const jinja_value *set = jinja_arg(args, 0, "chars");
    return jinja_strip(s, jinja_to_string(s, v), set && set->kind == JINJA_STRING ? set->u.s : NULL,
                       JINJA_LEFT | JINJA_RIGHT);
}
#define F_RECASE(name, mode) \
    static jinja_value f_##name(jinja_state *s, jinja_value v, jinja_args *args) { \
        (void)args; \
        return jinja_recase(s, jinja_to_string(s, v), mode); \
    }
F_RECASE(upper, JINJA_UPPER)
F_RECASE(lower, JINJA_LOWER)
F_RECASE(capitalize, JINJA_CAPITAL)

/* A word begins behind white space or one of -({[< here, unlike in the method. */
static jinja_value f_title(jinja_state *s, jinja_value v, jinja_args *args) {
    const jinja_string *text = jinja_to_string(s, v);
    jinja_builder b;
    size_t begin = 0;
    uint32_t code;
    (void)args;
    memset(&b, 0, sizeof b);
    for (size_t i = 0, n; i < text->n && !s->failed; i += n) {
        n = jinja_char(text->text + i, text->n - i, &code);
        const int between = jinja_is_space(code) || (code < 128 && strchr("-({[<", (int)code) && code);
        if (!between && i + n < text->n) continue;
        const size_t end = between ? i : i + n;
        jinja_value word = jinja_slice_of(s, text, begin, end);
        if (!s->failed) jinja_add(s, &b, jinja_to_string(s, jinja_recase(s, word.u.s, JINJA_CAPITAL)));
        if (between) jinja_add_bytes(s, &b, text->text + i, text->input ? text->input + i : NULL, n);
        begin = i + n;
    }
    return jinja_built(s, &b);
}

static jinja_value f_string(jinja_state *s, jinja_value v, jinja_args *args) {
    (void)args;
    const jinja_string *text = jinja_to_string(s, v);
    return jinja_string_of(s, text->text, text->input, text->n);
}

static jinja_value f_safe(jinja_state *s, jinja_value v, jinja_args *args) {
    jinja_value out = f_string(s, v, args);
    if (out.kind == JINJA_STRING) ((jinja_string *)(uintptr_t)out.u.s)->safe = 1;
    return out;
}

static jinja_value f_replace(jinja_state *s, jinja_value v, jinja_args *args) {
    const jinja_value *old = jinja_arg(args, 0, "old"), *with = jinja_arg(args, 1, "new");
    if (!old || !with) return jinja_fail(s, TFM_ERR_FORMAT, "replace needs two strings");
    return jinja_replace(s, jinja_to_string(s, v), jinja_to_string(s, *old), jinja_to_string(s, *with),
                         int_arg(args, 2, "count", -1));
}

static jinja_value f_indent(jinja_state *s, jinja_value v, jinja_args *args) {
    const jinja_value *width = jinja_arg(args, 0, "width");
    const int first = true_arg(args, 1, "first"), blank = true_arg(args, 2, "blank");
    jinja_value spaces = width ? *width : jinja_int(4);
    jinja_builder b, pad;
    memset(&b, 0, sizeof b);
    memset(&pad, 0, sizeof pad);
    if (spaces.kind == JINJA_STRING) jinja_add(s, &pad, spaces.u.s);
    else for (int64_t i = 0; i < spaces.u.i && !s->failed; i++) jinja_add_text(s, &pad, " ");
    const jinja_string *text = jinja_to_string(s, v);
    const jinja_string *fill = jinja_to_string(s, jinja_built(s, &pad));
    jinja_value lines = jinja_lines(s, text, 0);
    for (size_t i = 0; lines.kind == JINJA_LIST && i < lines.u.list->n && !s->failed; i++) {
        const jinja_string *line = lines.u.list->items[i].u.s;
        if (i) jinja_add_text(s, &b, "\n");
        if (i ? line->n || blank : first) jinja_add(s, &b, fill);
        jinja_add(s, &b, line);
    }
    if (text->n && text->text[text->n - 1] == '\n') {
        jinja_add_text(s, &b, "\n");
        if (blank) jinja_add(s, &b, fill);
    }
    if (!text->n && first) jinja_add(s, &b, fill);
    return jinja_built(s, &b);
}

static jinja_value f_escape(jinja_state *s, jinja_value v, jinja_args *args) {
    static const char *const pairs[][2] = {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"},
                                           {"\"", "&#34;"}};
    jinja_value out = f_string(s, v, args);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs && !s->failed; i++) {
        const jinja_string old = {pairs[i][0], NULL, 1, 0}, with = {pairs[i][1], NULL, strlen(pairs[i][1]), 0};
        out = jinja_replace(s, out.u.s, &old, &with, -1);
    }
    return s->failed ? out : f_safe(s, out, args);
}

static jinja_value f_wordcount(jinja_state *s, jinja_value v, jinja_args *args) {
    const jinja_string *text = jinja_to_string(s, v);
    int64_t n = 0;
    int inside = 0;
    uint32_t code;
    (void)args;
    for (size_t i = 0; i < text->n; i += jinja_char(text->text + i, text->n - i, &code)) {
        jinja_char(text->text + i, text->n - i, &code);
        const int word = !jinja_is_space(code) && (code > 127 || code == '_' || (code >= '0' && code <= '9') ||
                                                   ((code | 32) >= 'a' && (code | 32) <= 'z'));
        n += word && !inside;
        inside = word;
    }
    return jinja_int(n);
}

static jinja_value f_truncate(jinja_state *s, jinja_value v, jinja_args *args) {
    const jinja_string *text = jinja_to_string(s, v), *end = jinja_text_arg(s, args, 2, "end", "...");
    const int64_t length = int_arg(args, 0, "length", 255), leeway = int_arg(args, 3, "leeway", 5), tail =
        (int64_t)jinja_length(end);
    jinja_builder b;
    uint32_t code;
    size_t at = 0, last_space = SIZE_MAX;
    memset(&b, 0, sizeof b);
    if ((int64_t)jinja_length(text) <= length + leeway) return f_string(s, v, args);
    for (int64_t i = 0; i < length - tail && at < text->n; i++) {
        if (text->text[at] == ' ') last_space = at;
        at += jinja_char(text->text + at, text->n - at, &code);
    }
    if (!true_arg(args, 1, "killwords") && last_space != SIZE_MAX) at = last_space;
    jinja_add_bytes(s, &b, text->text, text->input, at);
    jinja_add(s, &b, end);
    return jinja_built(s, &b);
}

static jinja_value f_tojson(jinja_state *s, jinja_value v, jinja_args *args) {
    const jinja_value *indent = jinja_arg(args, 1, "indent"), *separators = jinja_arg(args, 2, "separators");
    const int lines = indent && indent->kind == JINJA_INT && indent->u.i >= 0 && indent->u.i <= 64;
    const char *item = lines ? "," : ", ", *key = ": ";
    if (indent && indent->kind != JINJA_NONE && !lines)
        return jinja_fail(s, TFM_ERR_UNSUPPORTED, "tojson: indent must be a number up to 64");
    if (separators && (separators->kind == JINJA_TUPLE || separators->kind == JINJA_LIST) &&
        separators->u.list->n == 2) {
        item = jinja_c_string(s, jinja_to_string(s, separators->u.list->items[0]));
        key = jinja_c_string(s, jinja_to_string(s, separators->u.list->items[1]));
    }
    return jinja_tojson(s, v, lines ? (int)indent->u.i : -1, true_arg(args, 0, "ensure_ascii"),
                        true_arg(args, 3, "sort_keys"),
                        item, key);
}

static jinja_value f_format(jinja_state *s, jinja_value v, jinja_args *args) {
    jinja_value values = jinja_list_of(s, JINJA_TUPLE);
    for (int i = 0; i < args->n && !s->failed; i++) jinja_append(s, values, args->value[i]);
    return jinja_percent(s, jinja_to_string(s, v), values);
}

static jinja_value f_urlencode(jinja_state *s, jinja_value v, jinja_args *args) {
    const jinja_string *text = jinja_to_string(s, v);
    jinja_builder b;
    char code[4];
    (void)args;
    memset(&b, 0, sizeof b);
    for (size_t i = 0; i < text->n && !s->failed; i++) {
        const unsigned char c = (unsigned char)text->text[i];
        const int plain = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || (c && strchr("_.-~/", c));
        snprintf(code, sizeof code, "%%%02X", c);
        if (plain) jinja_add_bytes(s, &b, text->text + i, text->input ? text->input + i : NULL, 1);
        else jinja_add_bytes(s, &b, code, text->input ? (const unsigned char *)"\1\1\1" : NULL, 3);
    }
    return jinja_built(s, &b);
}

/* ---- FILTERS: NUMBERS ------------------------------------------------------------------------------------------ */

static jinja_value f_int(jinja_state *s, jinja_value v, jinja_args *args) {
    int64_t i;
    double f;
    const jinja_value *preset = jinja_arg(args, 0, "default");
    jinja_value otherwise = preset ? *preset : jinja_int(0);
    if (jinja_is_number(v)) {
        f = jinja_number(v);
        if (v.kind != JINJA_FLOAT) return jinja_int(v.u.i);
        return f > -9e18 && f < 9e18 ? jinja_int((int64_t)f) : otherwise;
    }
    if (v.kind != JINJA_STRING) return otherwise;
    jinja_value bare = jinja_strip(s, v.u.s, NULL, JINJA_LEFT | JINJA_RIGHT);
    if (s->failed) return bare;
    if (!parse_int64(bare.u.s->text, bare.u.s->n, &i)) return jinja_int(i);
    if (!parse_real(bare.u.s->text, bare.u.s->n, &f) && f > -9e18 && f < 9e18) return jinja_int((int64_t)f);
    return otherwise;
}

static jinja_value f_float(jinja_state *s, jinja_value v, jinja_args *args) {
    const jinja_value *preset = jinja_arg(args, 0, "default");
    double f;
    if (jinja_is_number(v)) return jinja_float(jinja_number(v));
    if (v.kind == JINJA_STRING) {
        jinja_value bare = jinja_strip(s, v.u.s, NULL, JINJA_LEFT | JINJA_RIGHT);
        if (!s->failed && !parse_real(bare.u.s->text, bare.u.s->n, &f)) return jinja_float(f);
    }
    return preset ? *preset : jinja_float(0);
}

static jinja_value f_abs(jinja_state *s, jinja_value v, jinja_args *args) {
    (void)args;
    if (v.kind == JINJA_FLOAT) return jinja_float(fabs(v.u.f));
    if (!jinja_is_number(v) || v.u.i == INT64_MIN) return jinja_fail(s, TFM_ERR_FORMAT, "abs needs a number");
    return jinja_int(v.u.i < 0 ? -v.u.i : v.u.i);
}

static jinja_value f_round(jinja_state *s, jinja_value v, jinja_args *args) {
    const int64_t digits = int_arg(args, 0, "precision", 0);
    const char *method = jinja_c_string(s, jinja_text_arg(s, args, 1, "method", "common"));
    char buf[400];
    double f = jinja_number(v), scale = pow(10, (double)digits);
    if (!jinja_is_number(v) || digits < -300 || digits > 300)
        return jinja_fail(s, TFM_ERR_FORMAT, "round needs a number");
    if (!strcmp(method, "ceil")) return jinja_float(ceil(f * scale) / scale);
    if (!strcmp(method, "floor")) return jinja_float(floor(f * scale) / scale);
    if (digits < 0) return jinja_float(nearbyint(f * scale) / scale);
    snprintf(buf, sizeof buf, "%.*f", (int)(digits > 30 ? 30 : digits), f); /* correctly rounded, ties as stored */
    if (parse_real(buf, strlen(buf), &f)) return v;
    return jinja_float(f);
}

static jinja_value f_sum(jinja_state *s, jinja_value v, jinja_args *args) {
    const jinja_value *path = jinja_arg(args, 0, "attribute"), *start = jinja_arg(args, 1, "start");
    const jinja_list *items = jinja_iterate(s, v);
    double total = start ? jinja_number(*start) : 0;
    int64_t whole = start && start->kind == JINJA_INT ? start->u.i : 0;
    int real = start && start->kind == JINJA_FLOAT;
    for (size_t i = 0; i < items->n && !s->failed; i++) {
        jinja_value item = path ? by_path(s, items->items[i], path) : items->items[i];
        if (!jinja_is_number(item))
            return jinja_fail(s, TFM_ERR_FORMAT, "sum needs numbers, not a %s", jinja_type_name(item));
        real |= item.kind == JINJA_FLOAT;
        total += jinja_number(item);
        if (item.kind != JINJA_FLOAT) whole = (int64_t)((uint64_t)whole + (uint64_t)item.u.i);
    }
    if (!real && fabs(total) > 9e18) return jinja_fail(s, TFM_ERR_FORMAT, "a whole number is too large");
    return real ? jinja_float(total) : jinja_int(whole);
}

/* ---- FILTERS: LISTS -------------------------------------------------------------------------------------------- */

static jinja_value f_length(jinja_state *s, jinja_value v, jinja_args *args) {
    (void)args;
    switch (v.kind) {
    case JINJA_UNDEFINED: return jinja_int(0);
    case JINJA_STRING: return jinja_int((int64_t)jinja_length(v.u.s));
    case JINJA_LIST: case JINJA_TUPLE: return jinja_int((int64_t)v.u.list->n);
    case JINJA_DICT: return jinja_int((int64_t)v.u.dict->n);
    default: return jinja_fail(s, TFM_ERR_FORMAT, "a %s has no length", jinja_type_name(v));
    }
}

static jinja_value f_first(jinja_state *s, jinja_value v, jinja_args *args) {
    const jinja_list *items = jinja_iterate(s, v);
    (void)args;
    return items->n ? items->items[0] : jinja_undefined("first item");
}
static jinja_value f_last(jinja_state *s, jinja_value v, jinja_args *args) {
    const jinja_list *items = jinja_iterate(s, v);
    (void)args;
    return items->n ? items->items[items->n - 1] : jinja_undefined("last item");
}

static jinja_value f_list(jinja_state *s, jinja_value v, jinja_args *args) {
    const jinja_list *items = jinja_iterate(s, v);
    jinja_value out = jinja_list_of(s, JINJA_LIST);
    (void)args;
    for (size_t i = 0; i < items->n && !s->failed; i++) jinja_append(s, out, items->items[i]);
    return out;
}

static jinja_value f_reverse(jinja_state *s, jinja_value v, jinja_args *args) {
    const jinja_list *items = jinja_iterate(s, v);
    static const jinja_string nothing = {"", NULL, 0, 0};
    jinja_value out = jinja_list_of(s, JINJA_LIST);
    (void)args;
    for (size_t i = items->n; i-- > 0 && !s->failed;) jinja_append(s, out, items->items[i]);
    return v.kind == JINJA_STRING && !s->failed ? jinja_join(s, &nothing, out.u.list) : out;
}

static jinja_value f_join(jinja_state *s, jinja_value v, jinja_args *args) {
    const jinja_value *path = jinja_arg(args, 1, "attribute");
    const jinja_string *between = jinja_text_arg(s, args, 0, "d", "");
    const jinja_list *items = jinja_iterate(s, v);
    if (!path) return jinja_join(s, between, items);
    jinja_value list = jinja_list_of(s, JINJA_LIST);
    for (size_t i = 0; i < items->n && !s->failed; i++) jinja_append(s, list, by_path(s, items->items[i], path));
    return s->failed ? list : jinja_join(s, between, list.u.list);
}

/* The pairs of a dict as tuples. */
jinja_value jinja_pairs(jinja_state *s, const jinja_dict *d) {
    jinja_value out = jinja_list_of(s, JINJA_LIST);
    for (size_t i = 0; i < d->n && !s->failed; i++) {
        jinja_value pair = jinja_list_of(s, JINJA_TUPLE);
        jinja_append(s, pair, d->keys[i]);
        jinja_append(s, pair, d->values[i]);
        jinja_append(s, out, pair);
    }
    return out;
}

static jinja_value f_items(jinja_state *s, jinja_value v, jinja_args *args) {
    (void)args;
    if (v.kind == JINJA_UNDEFINED) return jinja_list_of(s, JINJA_LIST);
    if (v.kind != JINJA_DICT) return jinja_fail(s, TFM_ERR_FORMAT, "items needs a dict, not a %s", jinja_type_name(v));
    return jinja_pairs(s, v.u.dict);
}

/* What values are sorted and compared by: text without case unless case_sensitive. */
static jinja_value sort_key(jinja_state *s, jinja_value v, const jinja_value *path, int case_sensitive) {
    if (path) v = by_path(s, v, path);
    return v.kind == JINJA_STRING && !case_sensitive ? jinja_recase(s, v.u.s, JINJA_LOWER) : v;
}

/* Stable insertion by binary search; the moves count as steps. */
static jinja_value sorted(jinja_state *s, const jinja_list *items, const jinja_value *path, int case_sensitive,
                          int down) {
    jinja_value out = jinja_list_of(s, JINJA_LIST), keys = jinja_list_of(s, JINJA_LIST);
    for (size_t i = 0; i < items->n && !s->failed; i++) {
        jinja_value key = sort_key(s, items->items[i], path, case_sensitive);
        jinja_append(s, out, items->items[i]);
        jinja_append(s, keys, key);
        size_t low = 0, high = s->failed ? 0 : i;
        while (low < high && !s->failed) {
            const size_t middle = (low + high) / 2;
            const int order = jinja_compare(s, keys.u.list->items[middle], key);
            if (down ? order >= 0 : order <= 0) low = middle + 1;
            else high = middle;
        }
        if (s->failed || jinja_step(s, 1 + (i - low) / 16)) break;
        memmove(out.u.list->items + low + 1, out.u.list->items + low, (i - low) * sizeof key);
        memmove(keys.u.list->items + low + 1, keys.u.list->items + low, (i - low) * sizeof key);
        out.u.list->items[low] = items->items[i];
        keys.u.list->items[low] = key;
    }
    return out;
}

static jinja_value f_sort(jinja_state *s, jinja_value v, jinja_args *args) {
    return sorted(s, jinja_iterate(s, v), jinja_arg(args, 2, "attribute"), true_arg(args, 1, "case_sensitive"),
                  true_arg(args, 0, "reverse"));
}

static jinja_value f_dictsort(jinja_state *s, jinja_value v, jinja_args *args) {
    const jinja_string *by = jinja_text_arg(s, args, 1, "by", "key");
    jinja_value place = jinja_int(by->n == 5);
    if (v.kind != JINJA_DICT)
        return jinja_fail(s, TFM_ERR_FORMAT, "dictsort needs a dict, not a %s", jinja_type_name(v));
    jinja_value pairs = jinja_pairs(s, v.u.dict);
    return s->failed ? pairs : sorted(s, pairs.u.list, &place, true_arg(args, 0, "case_sensitive"),
                                      true_arg(args, 2, "reverse"));
}

static jinja_value f_unique(jinja_state *s, jinja_value v, jinja_args *args) {
    const jinja_value *path = jinja_arg(args, 1, "attribute");
    const int case_sensitive = true_arg(args, 0, "case_sensitive");
    const jinja_list *items = jinja_iterate(s, v);
    jinja_value out = jinja_list_of(s, JINJA_LIST), keys = jinja_list_of(s, JINJA_LIST);
    for (size_t i = 0; i < items->n && !s->failed; i++) {
        jinja_value key = sort_key(s, items->items[i], path, case_sensitive);
        if (s->failed || jinja_contains(s, keys, key)) continue;
        jinja_append(s, keys, key);
        jinja_append(s, out, items->items[i]);
    }
    return out;
}

static jinja_value extreme(jinja_state *s, jinja_value v, const jinja_args *args, int largest) {
    const jinja_value *path = jinja_arg(args, 1, "attribute");
    const jinja_list *items = jinja_iterate(s, v);
    jinja_value best = jinja_undefined("smallest or largest item"), best_key = best;
    for (size_t i = 0; i < items->n && !s->failed; i++) {
        jinja_value key = sort_key(s, items->items[i], path, true_arg(args, 0, "case_sensitive"));
        const int order = i ? jinja_compare(s, key, best_key) : 0;
        if (i && (largest ? order <= 0 : order >= 0)) continue;
        best = items->items[i];
        best_key = key;
    }
    return best;
}
static jinja_value f_min(jinja_state *s, jinja_value v, jinja_args *args) { return extreme(s, v, args, 0); }
static jinja_value f_max(jinja_state *s, jinja_value v, jinja_args *args) { return extreme(s, v, args, 1); }

/* map(attribute="x", default=...), map("filter", arguments...) */
static jinja_value f_map(jinja_state *s, jinja_value v, jinja_args *args) {
    const jinja_value *path = jinja_arg(args, JINJA_MAX_ARGS, "attribute"), *preset = jinja_arg(args, JINJA_MAX_ARGS,
        "default");
    const jinja_list *items = jinja_iterate(s, jinja_is_true(v) ? v : jinja_undefined(NULL));
    jinja_value out = jinja_list_of(s, JINJA_LIST);
    const char *name = path ? "" : jinja_c_string(s, jinja_text_arg(s, args, 0, "filter", ""));
    jinja_args rest;
    rest_of(args, path ? 0 : 1, &rest);
    for (size_t i = 0; i < items->n && !s->failed; i++) {
        jinja_value item = path ? by_path(s, items->items[i], path) : jinja_filter(s, name, items->items[i], &rest);
        jinja_append(s, out, item.kind == JINJA_UNDEFINED && preset ? *preset : item);
    }
    return out;
}

/* select, reject ("test", arguments...), and with an attribute before them selectattr, rejectattr */
static jinja_value choose(jinja_state *s, jinja_value v, jinja_args *args, int with_path, int keep) {
    const jinja_value *path = with_path ? jinja_arg(args, 0, "attribute") : NULL;
    const jinja_list *items = jinja_iterate(s, jinja_is_true(v) ? v : jinja_undefined(NULL)); /* none counts as empty */
    jinja_value out = jinja_list_of(s, JINJA_LIST);
    jinja_args rest;
    const int named = args->n_positional > with_path;
    const char *test = named ? jinja_c_string(s, jinja_to_string(s, args->value[with_path])) : "";
    if (with_path && !path) return jinja_fail(s, TFM_ERR_FORMAT, "selectattr and rejectattr need an attribute");
    rest_of(args, with_path + named, &rest);
    for (size_t i = 0; i < items->n && !s->failed; i++) {
        jinja_value item = path ? by_path(s, items->items[i], path) : items->items[i];
        const int passes = named ? jinja_test(s, test, item, &rest) : jinja_is_true(item);
        if (passes == keep) jinja_append(s, out, items->items[i]);
    }
    return out;
}
static jinja_value f_select(jinja_state *s, jinja_value v, jinja_args *args) { return choose(s, v, args, 0, 1); }
static jinja_value f_reject(jinja_state *s, jinja_value v, jinja_args *args) { return choose(s, v, args, 0, 0); }
static jinja_value f_selectattr(jinja_state *s, jinja_value v, jinja_args *args) { return choose(s, v, args, 1, 1); }
static jinja_value f_rejectattr(jinja_state *s, jinja_value v, jinja_args *args) { return choose(s, v, args, 1, 0); }

static jinja_value f_batch(jinja_state *s, jinja_value v, jinja_args *args) {
    const int64_t size = int_arg(args, 0, "linecount", 0);
    const jinja_value *fill = jinja_arg(args, 1, "fill_with");
    const jinja_list *items = jinja_iterate(s, v);
    jinja_value out = jinja_list_of(s, JINJA_LIST), row = out;
    if (size < 1) return jinja_fail(s, TFM_ERR_FORMAT, "batch needs a size");
    for (size_t i = 0; i < items->n && !s->failed; i++) {
        if (i % (uint64_t)size == 0) jinja_append(s, out, row = jinja_list_of(s, JINJA_LIST));
        jinja_append(s, row, items->items[i]);
    }
    while (fill && items->n && !s->failed && row.u.list->n < (uint64_t)size) jinja_append(s, row, *fill);
    return out;
}

/* Groups of items with one value of an attribute: tuples (value, items), sorted. */
static jinja_value f_groupby(jinja_state *s, jinja_value v, jinja_args *args) {
    const jinja_value *path = jinja_arg(args, 0, "attribute");
    jinja_value out = jinja_list_of(s, JINJA_LIST), group = out, last = jinja_undefined(NULL);
    if (!path) return jinja_fail(s, TFM_ERR_FORMAT, "groupby needs an attribute");
    jinja_value all = sorted(s, jinja_iterate(s, v), path, 0, 0);
    for (size_t i = 0; !s->failed && i < all.u.list->n; i++) {
        jinja_value item = all.u.list->items[i], key = by_path(s, item, path), folded = sort_key(s, item, path, 0);
        if (!i || !jinja_equal(s, folded, last)) {
            jinja_value pair = jinja_list_of(s, JINJA_TUPLE);
            group = jinja_list_of(s, JINJA_LIST);
            jinja_append(s, pair, key);
            jinja_append(s, pair, group);
            jinja_append(s, out, pair);
        }
        jinja_append(s, group, item);
        last = folded;
    }
    return out;
}

static jinja_value f_default(jinja_state *s, jinja_value v, jinja_args *args) {
    const jinja_value *preset = jinja_arg(args, 0, "default_value");
    const int use = v.kind == JINJA_UNDEFINED || (true_arg(args, 1, "boolean") && !jinja_is_true(v));
    return !use ? v : preset ? *preset : jinja_literal(s, "");
}

static jinja_value f_attr(jinja_state *s, jinja_value v, jinja_args *args) {
    const char *name = jinja_c_string(s, jinja_text_arg(s, args, 0, "name", ""));
    if (v.kind == JINJA_DICT) return jinja_method(s, v, name);
    return jinja_attribute(s, v, name);
}

static const struct { const char *name; jinja_function *run; } filters[] = {
    {"abs", f_abs}, {"attr", f_attr}, {"batch", f_batch}, {"capitalize", f_capitalize}, {"count", f_length},
    {"d", f_default}, {"default", f_default}, {"dictsort", f_dictsort}, {"e", f_escape}, {"escape", f_escape},
    {"first", f_first}, {"float", f_float}, {"format", f_format}, {"groupby", f_groupby}, {"indent", f_indent},
    {"int", f_int}, {"items", f_items}, {"join", f_join}, {"last", f_last}, {"length", f_length}, {"list", f_list},
    {"lower", f_lower}, {"map", f_map}, {"max", f_max}, {"min", f_min}, {"reject", f_reject},
    {"rejectattr", f_rejectattr}, {"replace", f_replace}, {"reverse", f_reverse}, {"round", f_round}, {"safe", f_safe},
    {"select", f_select}, {"selectattr", f_selectattr}, {"sort", f_sort}, {"string", f_string}, {"sum", f_sum},
    {"title", f_title}, {"tojson", f_tojson}, {"trim", f_trim}, {"truncate", f_truncate}, {"unique", f_unique},
    {"upper", f_upper}, {"urlencode", f_urlencode}, {"wordcount", f_wordcount}};

static jinja_function *find_filter(const char *name) {
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (!strcmp(filters[i].name, name)) return filters[i].run;
    return NULL;
}

int jinja_has_filter(const char *name) { return find_filter(name) != NULL; }

jinja_value jinja_filter(jinja_state *s, const char *name, jinja_value v, jinja_args *args) {
    jinja_value out = jinja_undefined(NULL);
    jinja_function *run = find_filter(name);
    if (!run) return jinja_fail(s, TFM_ERR_UNSUPPORTED, "no such filter: '%s'", name);
    if (++s->depth > JINJA_MAX_DEPTH) jinja_fail(s, TFM_ERR_MEMORY, "filters are nested too deeply");
    else if (!jinja_step_over(s, v)) out = run(s, v, args);
    s->depth--;
    return out;
}
