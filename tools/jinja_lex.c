/* jinja_lex.c - see jinja_lex.h. The rules for white space are Jinja's with trim_blocks and lstrip_blocks: a line break
 * after a block or comment goes, as do blanks before one that stands first on its line; "-" takes all white space on
 * its side and "+" keeps it.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "jinja_internal.h"
#include "jinja_lex.h"

typedef struct lexer {
    const char *name, *text;
    size_t n, at;
    int line;
    int line_starting; /* the last thing read ended with a line break, or nothing was read */
    arena *a;
    tfm_error *err;
    jinja_token *tokens;
    size_t n_tokens, room;
    char brackets[JINJA_MAX_NESTING]; /* that are open in this tag: the closing ones */
    int n_brackets;
} lexer;

static int fail(lexer *l, const char *what) {
    return tool_fail(l->err, TFM_ERR_FORMAT, "%s: line %d: %s", l->name, l->line, what);
}

static int add(lexer *l, enum jinja_token_kind kind, const char *text, size_t n) {
    if (l->n_tokens == l->room) {
        size_t room = l->room ? 2 * l->room : 256;
        jinja_token *more = arena_array(l->a, room, sizeof *more);
        if (!more) return tool_fail(l->err, TFM_ERR_MEMORY, "out of memory");
        if (l->n_tokens) memcpy(more, l->tokens, l->n_tokens * sizeof *more);
        l->tokens = more;
        l->room = room;
    }
    jinja_token *t = &l->tokens[l->n_tokens++];
    memset(t, 0, sizeof *t);
    t->kind = kind;
    t->line = l->line;
    t->text = arena_strndup(l->a, text, n);
    t->n = n;
    return t->text ? TFM_OK : tool_fail(l->err, TFM_ERR_MEMORY, "out of memory");
}

static int starts(const lexer *l, size_t at, const char *what) {
    size_t n = strlen(what);
    return at <= l->n && n <= l->n - at && !memcmp(l->text + at, what, n);
}

/* Bytes of white space at `at`, 0 if there is none. */
static size_t space_at(const lexer *l, size_t at) {
    uint32_t code;
    if (at >= l->n) return 0;
    size_t n = jinja_char(l->text + at, l->n - at, &code);
    return jinja_is_space(code) ? n : 0;
}

static void move_to(lexer *l, size_t to) {
    for (; l->at < to; l->at++) l->line += l->text[l->at] == '\n';
    l->line_starting = to > 0 && l->text[to - 1] == '\n';
}

static void skip_space(lexer *l) {
    size_t n, to = l->at;
    while ((n = space_at(l, to)) != 0) to += n;
    if (to > l->at) move_to(l, to);
}

/* ---- text ------------------------------------------------------------------------------------------------------ */

/* Where text[begin, end) ends if the white space at its end is left out. */
static size_t without_space(const lexer *l, size_t begin, size_t end) {
    size_t kept = begin, n;
    for (size_t i = begin; i < end; i += n) {
        uint32_t code;
        n = jinja_char(l->text + i, end - i, &code);
        if (!jinja_is_space(code)) kept = i + n;
    }
    return kept;
}

/* Adds the text before a tag that begins at `end` with sign '-', '+' or another; lstrip: it is no {{ }}. */
static int add_text(lexer *l, size_t end, char sign, int lstrip) {
    size_t begin = l->at, stop = end, line = end;
    if (sign == '-') {
        stop = without_space(l, begin, end);
    } else if (sign != '+' && lstrip) {
        while (line > begin && l->text[line - 1] != '\n') line--;
        if ((line > begin || l->line_starting) && without_space(l, line, end) == line) stop = line;
    }
    int code = stop > begin ? add(l, TOKEN_TEXT, l->text + begin, stop - begin) : TFM_OK;
    move_to(l, end);
    return code;
}

/* Steps over the end of a tag and over the white space it takes: `-` all of it, else one line break if it is a block
 * or comment without `+`. */
static void end_tag(lexer *l, size_t to, char sign, int trim) {
    move_to(l, to);
    if (sign == '-') skip_space(l);
    else if (trim && sign != '+' && l->at < l->n && l->text[l->at] == '\n') move_to(l, l->at + 1);
}

/* ---- inside tags ----------------------------------------------------------------------------------------------- */

static size_t put_utf8(char *out, uint32_t code) {
    if (code >= 0xD800 && code < 0xE000) code = 0xFFFD;
    if (code < 0x80) { out[0] = (char)code; return 1; }
    if (code < 0x800) { out[0] = (char)(0xC0 | code >> 6); out[1] = (char)(0x80 | (code & 63)); return 2; }
    if (code < 0x10000) {
        out[0] = (char)(0xE0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 63));
        out[2] = (char)(0x80 | (code & 63));
        return 3;
    }
    out[0] = (char)(0xF0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 63));
    out[2] = (char)(0x80 | (code >> 6 & 63));
    out[3] = (char)(0x80 | (code & 63));
    return 4;
}

/* `digits` hexadecimal digits at p; -1 if they are not all there. */
static int64_t hex(const char *p, size_t left, size_t digits) {
    int64_t value = 0;
    if (left < digits) return -1;
    for (size_t i = 0; i < digits; i++) {
        if (!isxdigit((unsigned char)p[i])) return -1;
        value = value * 16 + (isdigit((unsigned char)p[i]) ? p[i] - '0' : (p[i] | 32) - 'a' + 10);
    }
    return value;
}

/* One escape at p (behind the backslash) as bytes at *out; returns the bytes it took, 0 if it is malformed. */
static size_t unescape(const char *p, size_t left, char **out) {
    static const char plain[] = "abfnrtv\\'\"", meant[] = "\a\b\f\n\r\t\v\\'\"";
    const char *known = memchr(plain, p[0], sizeof plain - 1);
    if (known) { *(*out)++ = meant[known - plain]; return 1; }
    if (p[0] == '\n') return 1;
    if (p[0] >= '0' && p[0] <= '7') {
        size_t n = 0;
        uint32_t code = 0;
        while (n < 3 && n < left && p[n] >= '0' && p[n] <= '7') code = code * 8 + (uint32_t)(p[n++] - '0');
        *out += put_utf8(*out, code);
        return n;
    }
    size_t digits = p[0] == 'x' ? 2 : p[0] == 'u' ? 4 : p[0] == 'U' ? 8 : 0;
    if (digits) {
        int64_t code = hex(p + 1, left - 1, digits);
        if (code < 0 || code > 0x10FFFF) return 0;
        *out += put_utf8(*out, (uint32_t)code);
        return 1 + digits;
    }
    if (p[0] == 'N') return 0;
    *(*out)++ = '\\';
    *(*out)++ = p[0];
    return 1;
}

static int lex_string(lexer *l) {
    const char *p = l->text + l->at + 1, quote = l->text[l->at];
    size_t left = l->n - l->at - 1, n = 0;
    while (n < left && p[n] != quote) n += p[n] == '\\' && n + 1 < left ? 2 : 1;
    if (n >= left) return fail(l, "a string does not end");
    char *decoded = arena_text(l->a, 2 * n + 1), *out = decoded;
    if (!decoded) return tool_fail(l->err, TFM_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < n;) {
        if (p[i] != '\\') { *out++ = p[i++]; continue; }
        size_t took = unescape(p + i + 1, n - i - 1, &out);
        if (!took) return fail(l, "an escape in a string is malformed");
        i += 1 + took;
    }
    int code = add(l, TOKEN_STRING, decoded, (size_t)(out - decoded));
    move_to(l, l->at + n + 2);
    return code;
}

/* Digits with '_' between them, without the '_'. Returns how many bytes of the text they are. */
static size_t digits_at(const lexer *l, size_t at, char *out, size_t room, size_t *used) {
    size_t i = at;
    while (i < l->n && (isdigit((unsigned char)l->text[i]) ||
                        (l->text[i] == '_' && i + 1 < l->n && isdigit((unsigned char)l->text[i + 1])))) {
        if (l->text[i] != '_' && *used + 1 < room) out[(*used)++] = l->text[i];
        i++;
    }
    return i - at;
}

static int lex_number(lexer *l) {
    char digits[80];
    size_t used = 0, end = l->at;
    int real = 0;
    end += digits_at(l, end, digits, sizeof digits, &used);
    if (end + 1 < l->n && l->text[end] == '.' && isdigit((unsigned char)l->text[end + 1])) {
        real = 1;
        digits[used < 70 ? used++ : 70] = '.';
        end += 1 + digits_at(l, end + 1, digits, sizeof digits, &used);
    }
    size_t exponent = end + 1;
    if (end < l->n && (l->text[end] | 32) == 'e') {
        if (exponent < l->n && (l->text[exponent] == '+' || l->text[exponent] == '-')) exponent++;
        if (exponent < l->n && isdigit((unsigned char)l->text[exponent])) {
            real = 1;
            for (; end < exponent && used < 72; end++) digits[used++] = l->text[end];
            end += digits_at(l, end, digits, sizeof digits, &used);
        }
    }
    if (used >= 70) return fail(l, "a number is too long");
    int code = add(l, real ? TOKEN_FLOAT : TOKEN_INT, digits, used);
    if (code) return code;
    jinja_token *t = &l->tokens[l->n_tokens - 1];
    if (real ? parse_real(digits, used, &t->f) : parse_int64(digits, used, &t->i))
        return fail(l, "a number is too large");
    move_to(l, end);
    return TFM_OK;
}

static int is_name_byte(char c) { return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80; }

/* Keeps the book of brackets: a tag ends only where none is open. */
static int bracket(lexer *l, char c) {
    static const char open[] = "([{", close[] = ")]}";
    const char *o = strchr(open, c);
    if (o) {
        if (l->n_brackets == JINJA_MAX_NESTING) return fail(l, "brackets are nested too deeply");
        l->brackets[l->n_brackets++] = close[o - open];
    } else if (strchr(close, c)) {
        if (!l->n_brackets || l->brackets[l->n_brackets - 1] != c) return fail(l, "a closing bracket has no partner");
        l->n_brackets--;
    }
    return TFM_OK;
}

static int lex_operator(lexer *l) {
    static const char two[] = "//**==!=>=<=", one[] = "+-/*%~[](){}><=.:|,;";
    size_t n = 0;
    for (size_t i = 0; two[i] && !n; i += 2) if (l->n - l->at >= 2 && !memcmp(l->text + l->at, two + i, 2)) n = 2;
    if (!n && strchr(one, l->text[l->at])) n = 1;
    if (!n || !l->text[l->at]) return fail(l, "a character has no meaning here");
    int code = n == 1 ? bracket(l, l->text[l->at]) : TFM_OK;
    if (!code) code = add(l, TOKEN_OP, l->text + l->at, n);
    move_to(l, l->at + n);
    return code;
}

/* 1 and the end of the tag in *to if it ends here, with its sign. */
static int tag_ends(const lexer *l, int block, size_t *to, char *sign) {
    const char *mark = block ? "%}" : "}}";
    if (l->n_brackets) return 0;
    *sign = l->text[l->at];
    if ((*sign == '-' || (*sign == '+' && block)) && starts(l, l->at + 1, mark)) { *to = l->at + 3; return 1; }
    *sign = 0;
    *to = l->at + 2;
    return starts(l, l->at, mark);
}

static int lex_tag(lexer *l, int block) {
    size_t to = 0;
    char sign = 0;
    int code = add(l, block ? TOKEN_BLOCK : TOKEN_PRINT, "", 0);
    while (!code) {
        skip_space(l);
        if (l->at >= l->n) return fail(l, "a tag does not end");
        if (tag_ends(l, block, &to, &sign)) break;
        const char c = l->text[l->at];
        if (c == '"' || c == '\'') {
            code = lex_string(l);
        } else if (isdigit((unsigned char)c)) {
            code = lex_number(l);
        } else if (is_name_byte(c)) {
            size_t end = l->at;
            while (end < l->n && is_name_byte(l->text[end])) end++;
            code = add(l, TOKEN_NAME, l->text + l->at, end - l->at);
            move_to(l, end);
        } else {
            code = lex_operator(l);
        }
    }
    if (!code) code = add(l, block ? TOKEN_BLOCK_END : TOKEN_PRINT_END, "", 0);
    end_tag(l, to, sign, block);
    return code;
}

/* ---- comments and raw ------------------------------------------------------------------------------------------ */

static int lex_comment(lexer *l) {
    size_t end = l->at;
    while (end < l->n && !starts(l, end, "#}")) end++;
    if (end >= l->n) return fail(l, "a comment does not end");
    char sign = end > l->at ? l->text[end - 1] : 0;
    end_tag(l, end + 2, sign, 1);
    return TFM_OK;
}

/* The end of a tag that holds one word, from behind its "{%" and sign; 0 if it is another tag. */
static size_t word_tag(const lexer *l, size_t at, const char *word, char *sign) {
    size_t n;
    while ((n = space_at(l, at)) != 0) at += n;
    if (!starts(l, at, word)) return 0;
    at += strlen(word);
    while ((n = space_at(l, at)) != 0) at += n;
    *sign = at < l->n ? l->text[at] : 0;
    if (*sign == '-' || *sign == '+') at++;
    return starts(l, at, "%}") ? at + 2 : 0;
}

static int lex_raw(lexer *l, size_t to, char sign) {
    size_t end, close = 0;
    char first = 0, last = 0;
    end_tag(l, to, sign, 0);
    for (end = l->at; end < l->n && !close; end++) {
        if (!starts(l, end, "{%")) continue;
        first = end + 2 < l->n ? l->text[end + 2] : 0;
        close = word_tag(l, end + 2 + (first == '-' || first == '+'), "endraw", &last);
        if (close) break;
    }
    if (!close) return fail(l, "a raw block does not end");
    int code = add_text(l, end, first, 1);
    end_tag(l, close, last, 1);
    return code;
}

/* From the next tag's begin, which is at `begin`. */
static int lex_from(lexer *l, size_t begin) {
    const char kind = l->text[begin + 1], sign = begin + 2 < l->n ? l->text[begin + 2] : 0;
    const size_t inside = begin + 2 + (sign == '-' || sign == '+');
    char last = 0;
    size_t raw = kind == '%' ? word_tag(l, inside, "raw", &last) : 0;
    int code = add_text(l, begin, sign, kind != '{');
    move_to(l, inside);
    if (code) return code;
    if (raw) return lex_raw(l, raw, last);
    return kind == '#' ? lex_comment(l) : lex_tag(l, kind == '%');
}

const jinja_token *jinja_lex(const char *name, const char *text, size_t n, arena *a, tfm_error *err) {
    lexer l;
    char *lines = n <= JINJA_MAX_TEXT ? arena_text(a, n) : NULL;
    int code = TFM_OK;
    memset(&l, 0, sizeof l);
    l.name = name;
    l.text = lines;
    l.line = l.line_starting = 1;
    l.a = a;
    l.err = err;
    if (!lines) {
        tool_fail(err, TFM_ERR_MEMORY, "%s: a template of %llu bytes is too long", name, (unsigned long long)n);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) { /* every kind of line break becomes \n */
        if (text[i] == '\r' && i + 1 < n && text[i + 1] == '\n') continue;
        lines[l.n++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (l.n && lines[l.n - 1] == '\n') l.n--;
    while (!code && l.at < l.n) {
        size_t begin = l.at;
        while (begin < l.n && !starts(&l, begin, "{%") && !starts(&l, begin, "{{") && !starts(&l, begin, "{#")) begin++;
        code = begin < l.n ? lex_from(&l, begin) : add_text(&l, begin, '+', 0);
    }
    if (!code) code = add(&l, TOKEN_END, "", 0);
    return code ? NULL : l.tokens;
}
