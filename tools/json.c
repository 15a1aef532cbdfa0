/* json.c - text to tree: recursive descent; finished containers move from a stack to the arena.
 *
 * Strings are decoded where they stand: decoded, none is longer than it was written, and the place of its closing quote
 * is free for the final zero. So most of a vocabulary is never copied.
 */
#include "json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_DEPTH = 128,
    MAX_VALUES = 1 << 23,  /* of one text, so that "[[[],[],..." cannot fill the memory */
    SMALL_OBJECT = 16      /* up to here members are compared one by one */
};

typedef struct parser {
    unsigned char *at, *end;
    const unsigned char *line_start; /* of the line that `at` is on; only blanks may hold line breaks */
    unsigned long line;
    const char *name;
    arena *a;
    json *stack;           /* finished values whose containers are still open */
    size_t n, capacity;
    size_t n_values;
    int depth;
    tfm_error *err;
} parser;

/* ---- errors ---------------------------------------------------------------------------------------------------- */

/* Names line and column (in bytes, from 1) of `where`, which is on the line of p->at. */
static int fail_at(const parser *p, const unsigned char *where, const char *what)
{
    return tool_fail(p->err, TFM_ERR_FORMAT, "%s: line %lu, column %lu: %s", p->name, p->line,
                     (unsigned long)(where - p->line_start) + 1, what);
}

static int fail_memory(const parser *p)
{
    return tool_fail(p->err, TFM_ERR_MEMORY, "%s: no memory for the JSON tree", p->name);
}

/* ---- strings --------------------------------------------------------------------------------------------------- */

/* Four hexadecimal digits at s, or -1. */
static int32_t hex4(const unsigned char *s, const unsigned char *end)
{
    int32_t value = 0;
    int i;
    if (end - s < 4) return -1;
    for (i = 0; i < 4; i++) {
        int c = s[i], digit;
        if (c >= '0' && c <= '9') digit = c - '0';
        else if (c >= 'a' && c <= 'f') digit = c - 'a' + 10;
        else if (c >= 'A' && c <= 'F') digit = c - 'A' + 10;
        else return -1;
        value = value * 16 + digit;
    }
    return value;
}

static char *put_utf8(char *to, int32_t c)
{
    if (c < 0x80) {
        *to++ = (char)c;
        return to;
    }
    if (c < 0x800) {
        *to++ = (char)(0xc0 | c >> 6);
    } else if (c < 0x10000) {
        *to++ = (char)(0xe0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
    } else {
        *to++ = (char)(0xf0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 0x3f));
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
    }
    *to++ = (char)(0x80 | (c & 0x3f));
    return to;
}

/* A \u escape whose digits stand at *s; takes the second half of a surrogate pair along. Never writes more bytes than
 * the escape has. NULL if it is malformed. */
static char *put_unicode_escape(char *to, const unsigned char **s, const unsigned char *end)
{
    int32_t c = hex4(*s, end), low = -1;
    if (c < 0) return NULL;
    *s += 4;
    if (c < 0xd800 || c > 0xdfff) return put_utf8(to, c);
    if (c < 0xdc00 && end - *s >= 2 && (*s)[0] == '\\' && (*s)[1] == 'u') low = hex4(*s + 2, end);
    if (low < 0xdc00 || low > 0xdfff) return put_utf8(to, 0xfffd);
    *s += 6;
    return put_utf8(to, 0x10000 + (c - 0xd800) * 0x400 + (low - 0xdc00));
}

/* The escape whose letter is at *s. */
static char *put_escape(char *to, const unsigned char **s, const unsigned char *end)
{
    static const char letters[] = "\"\\/bfnrt", meaning[] = "\"\\/\b\f\n\r\t";
    const char *letter;
    int c = *(*s)++;
    if (c == 'u') return put_unicode_escape(to, s, end);
    letter = c != 0 ? strchr(letters, c) : NULL;
    if (letter == NULL) return NULL;
    *to++ = meaning[letter - letters];
    return to;
}

/* The bytes up to the closing quote of a string whose text starts at p->at. Checks them, but not the escapes. */
static int measure_string(const parser *p, size_t *n, int *has_escapes)
{
    const unsigned char *s = p->at;
    *has_escapes = 0;
    while (s < p->end && *s != '"') {
        size_t length = 1;
        if (*s == '\\') {
            *has_escapes = 1;
            length = 2;
        } else if (*s < 0x20) {
            return fail_at(p, s, "control character in a string");
        } else if (*s >= 0x80) {
            length = utf8_sequence(s, (size_t)(p->end - s));
            if (length == 0) return fail_at(p, s, "invalid UTF-8 in a string");
        }
        if ((size_t)(p->end - s) < length) break;
        s += length;
    }
    if (s >= p->end || *s != '"') return fail_at(p, p->at - 1, "string without an end");
    *n = (size_t)(s - p->at);
    return TFM_OK;
}

/* The string whose opening quote is at p->at. */
static int parse_string(parser *p, const char **text, uint32_t *length)
{
    const unsigned char *s = ++p->at, *quote;
    char *to = (char *)p->at;
    size_t n = 0;
    int has_escapes, code = measure_string(p, &n, &has_escapes);
    if (code != TFM_OK) return code;
    *text = to;
    quote = s + n;
    if (!has_escapes) {
        to += n;
        s = quote;
    }
    while (s < quote) {
        const unsigned char *escape = s;
        if (*s != '\\') {
            *to++ = (char)*s++;
            continue;
        }
        s++;
        to = put_escape(to, &s, quote);
        if (to == NULL) return fail_at(p, escape, "invalid escape in a string");
    }
    *to = 0;
    *length = (uint32_t)(to - *text);
    p->at += n + 1;
    return TFM_OK;
}

/* ---- numbers and words ----------------------------------------------------------------------------------------- */

static const unsigned char *skip_digits(const unsigned char *s, const unsigned char *end)
{
    while (s < end && *s >= '0' && *s <= '9') s++;
    return s;
}

/* The end of the number at s as JSON writes it, or NULL. */
static const unsigned char *scan_number(const unsigned char *s, const unsigned char *end, int *is_integer)
{
    const unsigned char *digits;
    if (s < end && *s == '-') s++;
    digits = s;
    s = skip_digits(s, end);
    if (s == digits || (*digits == '0' && s - digits > 1)) return NULL;
    *is_integer = 1;
    if (s < end && *s == '.') {
        *is_integer = 0;
        digits = ++s;
        s = skip_digits(s, end);
        if (s == digits) return NULL;
    }
    if (s < end && (*s == 'e' || *s == 'E')) {
        *is_integer = 0;
        s++;
        if (s < end && (*s == '+' || *s == '-')) s++;
        digits = s;
        s = skip_digits(s, end);
        if (s == digits) return NULL;
    }
    return s;
}

static int parse_number(parser *p, json *out)
{
    int is_integer;
    const unsigned char *end = scan_number(p->at, p->end, &is_integer);
    size_t n = end != NULL ? (size_t)(end - p->at) : 0;
    if (n == 0) return fail_at(p, p->at, "invalid number");
    out->type = JSON_NUMBER;
    out->u.text = arena_strndup(p->a, (const char *)p->at, n); /* behind it stands a byte that is yet to be read */
    if (out->u.text == NULL) return fail_memory(p);
    out->count = (uint32_t)n;
    out->is_integer = (uint8_t)(is_integer && parse_int64(out->u.text, n, &out->v.integer) == 0);
    if (!out->is_integer && parse_real(out->u.text, n, &out->v.number) != 0) {
        return fail_at(p, p->at, "number with too many digits");
    }
    p->at += n;
    return TFM_OK;
}

/* The words of JSON, and the numbers that Python adds. */
static int parse_word(parser *p, json *out)
{
    static const struct {
        const char *word;
        json_type type;
        uint8_t boolean;
        int sign; /* of an infinity; 0: not a number */
    } words[] = {
        { "null", JSON_NULL, 0, 0 },
        { "true", JSON_BOOL, 1, 0 },
        { "false", JSON_BOOL, 0, 0 },
        { "NaN", JSON_NUMBER, 0, 0 },
        { "Infinity", JSON_NUMBER, 0, 1 },
        { "-Infinity", JSON_NUMBER, 0, -1 },
    };
    size_t i, n;
    for (i = 0; i < sizeof words / sizeof words[0]; i++) {
        n = strlen(words[i].word);
        if ((size_t)(p->end - p->at) < n || memcmp(p->at, words[i].word, n) != 0) continue;
        p->at += n;
        out->type = (uint8_t)words[i].type;
        out->boolean = words[i].boolean;
        if (words[i].type != JSON_NUMBER) return TFM_OK;
        out->u.text = words[i].word;
        out->count = (uint32_t)n;
        out->v.number = words[i].sign == 0 ? (double)NAN : words[i].sign * (double)INFINITY;
        return TFM_OK;
    }
    return *p->at == '-' ? parse_number(p, out) : fail_at(p, p->at, "expected a value");
}

/* ---- containers ------------------------------------------------------------------------------------------------ */

static const char *key_of(const void *table, uint32_t entry, size_t *length)
{
    const json *member = (const json *)table + entry;
    *length = member->key_length;
    return member->key;
}

/* Of members with one key the first keeps its place and gets the last one's value. */
static int merge_duplicates(const parser *p, json *object)
{
    json *items = object->u.items;
    uint32_t i, same, n = object->count;
    name_index *index = NULL;
    if (n > SMALL_OBJECT) {
        index = (name_index *)arena_alloc(p->a, sizeof *index);
        if (index == NULL || name_index_init(index, p->a, n, key_of) != TFM_OK) return fail_memory(p);
    }
    object->v.index = index;
    for (i = 0, object->count = 0; i < n; i++) {
        int present;
        items[object->count] = items[i];
        if (index != NULL) {
            present = name_index_add(index, items, object->count, &same);
        } else {
            const json *earlier = json_get_n(object, items[i].key, items[i].key_length);
            present = earlier != NULL;
            same = present ? (uint32_t)(earlier - items) : 0;
        }
        if (present < 0) return fail_at(p, p->at, "object whose keys all collide");
        if (present) items[same] = items[i];
        else object->count++;
    }
    object->has_duplicates = object->count < n;
    return TFM_OK;
}

/* Tells the children of v where v has come to stand. */
static void adopt(json *v)
{
    uint32_t i;
    if (v->type != JSON_ARRAY && v->type != JSON_OBJECT) return;
    for (i = 0; i < v->count; i++) v->u.items[i].parent = v;
}

/* Moves the values above stack[first] to the arena as the children of `out`. */
static int close_container(parser *p, size_t first, json *out)
{
    size_t n = p->n - first;
    uint32_t i;
    int code = TFM_OK;
    out->count = (uint32_t)n;
    p->n = first;
    if (n == 0) return TFM_OK;
    out->u.items = (json *)arena_array(p->a, n, sizeof *out->u.items);
    if (out->u.items == NULL) return fail_memory(p);
    memcpy(out->u.items, p->stack + first, n * sizeof *out->u.items);
    if (out->type == JSON_OBJECT) code = merge_duplicates(p, out);
    for (i = 0; i < out->count; i++) adopt(&out->u.items[i]);
    return code;
}

static void skip_blanks(parser *p)
{
    for (; p->at < p->end; p->at++) {
        if (*p->at == '\n') {
            p->line++;
            p->line_start = p->at + 1;
        } else if (*p->at != ' ' && *p->at != '\t' && *p->at != '\r') {
            return;
        }
    }
}

/* Steps over c after blanks, if it is there. */
static int take(parser *p, int c)
{
    skip_blanks(p);
    if (p->at >= p->end || *p->at != c) return 0;
    p->at++;
    return 1;
}

static int push(parser *p, const json *v)
{
    json *grown = (json *)array_grow(p->stack, &p->capacity, p->n + 1, sizeof *grown);
    if (grown == NULL) return fail_memory(p);
    p->stack = grown;
    p->stack[p->n++] = *v;
    return TFM_OK;
}

static int parse_value(parser *p, json *out);

/* `"key" :` before a member's value. */
static int parse_key(parser *p, json *member)
{
    int code;
    skip_blanks(p);
    if (p->at >= p->end || *p->at != '"') return fail_at(p, p->at, "expected a key in double quotes");
    code = parse_string(p, &member->key, &member->key_length);
    if (code == TFM_OK && !take(p, ':')) code = fail_at(p, p->at, "expected ':' after the key");
    return code;
}

/* An array or object whose opening bracket is at p->at. */
static int parse_container(parser *p, json *out)
{
    int is_object = *p->at++ == '{', close = is_object ? '}' : ']', code = TFM_OK;
    size_t first = p->n;
    out->type = is_object ? JSON_OBJECT : JSON_ARRAY;
    if (++p->depth > MAX_DEPTH) return fail_at(p, p->at - 1, "nested too deeply");
    if (!take(p, close)) {
        do {
            json child;
            memset(&child, 0, sizeof child);
            if (is_object) code = parse_key(p, &child);
            if (code == TFM_OK) code = parse_value(p, &child);
            if (code == TFM_OK) code = push(p, &child);
            if (code != TFM_OK) return code;
        } while (take(p, ','));
        if (!take(p, close)) return fail_at(p, p->at, is_object ? "expected ',' or '}'" : "expected ',' or ']'");
    }
    p->depth--;
    return close_container(p, first, out);
}

static int parse_value(parser *p, json *out)
{
    skip_blanks(p);
    if (p->at >= p->end) return fail_at(p, p->at, "the text ends where a value is expected");
    if (++p->n_values > MAX_VALUES) return fail_at(p, p->at, "too many values");
    switch (*p->at) {
    case '{':
    case '[':
        return parse_container(p, out);
    case '"':
        out->type = JSON_STRING;
        return parse_string(p, &out->u.text, &out->count);
    case '0': case '1': case '2': case '3': case '4': case '5': case '6': case '7': case '8': case '9':
        return parse_number(p, out);
    default:
        return parse_word(p, out);
    }
}

/* ---- entry points ---------------------------------------------------------------------------------------------- */

static const json *parse_document(parser *p)
{
    json *document = (json *)arena_alloc(p->a, sizeof *document), *root = (json *)arena_alloc(p->a, sizeof *root);
    if (document == NULL || root == NULL || (document->u.text = arena_strdup(p->a, p->name)) == NULL) {
        fail_memory(p);
        return NULL;
    }
    document->type = JSON_DOCUMENT;
    if (p->end - p->at >= 3 && memcmp(p->at, "\xef\xbb\xbf", 3) == 0) p->at += 3;
    if (parse_value(p, root) != TFM_OK) return NULL;
    skip_blanks(p);
    if (p->at != p->end) {
        fail_at(p, p->at, "text after the end of the value");
        return NULL;
    }
    root->parent = document;
    adopt(root);
    return root;
}

const json *json_parse_in_place(const char *name, char *text, size_t n, arena *a, tfm_error *err)
{
    parser p;
    const json *root;
    memset(&p, 0, sizeof p);
    p.at = (unsigned char *)text;
    p.end = p.at + n;
    p.line_start = p.at;
    p.line = 1;
    p.name = name;
    p.a = a;
    p.err = err;
    if (n > INT32_MAX) {
        tool_fail(err, TFM_ERR_FORMAT, "%s: more than 2 GB of JSON", name);
        return NULL;
    }
    root = parse_document(&p);
    free(p.stack);
    return root;
}

const json *json_parse(const char *name, const char *text, size_t n, arena *a, tfm_error *err)
{
    char *copy = arena_strndup(a, text, n);
    if (copy != NULL) return json_parse_in_place(name, copy, n, a, err);
    tool_fail(err, TFM_ERR_MEMORY, "%s: no memory for %zu bytes of JSON", name, n);
    return NULL;
}

const json *json_read(const source *s, uint64_t limit, arena *a, tfm_error *err)
{
    char *text;
    size_t n;
    if (source_read_all(s, limit, a, &text, &n, err) != TFM_OK) return NULL;
    return json_parse_in_place(s->name, text, n, a, err);
}
