/* regex.c - see regex.h.
 *
 *   alternatives  sequence ('|' sequence)*                 the first that leads to a match wins
 *   sequence      (atom quantifier?)*
 *   atom          character  .  class  \escape  ^  $  \A  \z  (?: )  ( )  (?i: )  (?= )  (?! )
 *   quantifier    ? * + {m} {m,} {,n} {m,n}                greedy; ?? lazy; ?+ *+ ++ possessive on one character
 *   class         [...] [^...] of characters, ranges and the escapes below
 *   escapes       \p{L} \P{Lu} \p{^N} (general categories)  \s \S \d \D \w \W  \r \n \t \f \v \a \e \xHH \x{H} \uHHHH
 *                 \ before ASCII punctuation
 *   (?i: )        ASCII letters, with the two characters of other blocks that fold to them
 *
 * Lines as in Oniguruma: ^ and $ match at every line, . everything but a newline. Refused: repeating a group without
 * limit, stars inside a look-ahead (both keep matching linear), look-behind, atomic groups, back references, scripts,
 * set operations, an expression that can match nothing.
 */
#include "regex.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 4096, MAX_CODE = 4096, MAX_DEPTH = 32, MAX_REPEAT = 64, MAX_RANGES = 256 };

typedef enum node_kind { NODE_EMPTY, NODE_CLASS, NODE_SEQUENCE, NODE_ALTERNATIVES, NODE_REPEAT, NODE_LOOK,
                        NODE_ANCHOR } node_kind;
enum { GREEDY, LAZY, POSSESSIVE };
enum { NO_LIMIT = -1 };

typedef struct node {
    node_kind kind;
    int first, next;    /* children form a list: first child, next sibling; -1 ends it */
    int min, max, mode; /* of a repeat */
    uint32_t value;     /* class index; negative look-ahead 1; anchor's op | multi-line << 8 */
} node;

/* A set of characters while it is built. */
typedef struct char_set {
    uint32_t low[MAX_RANGES], high[MAX_RANGES];
    int n;
    uint32_t categories; /* bit per general category */
} char_set;

typedef struct compiler {
    regex_pool *pool;
    const char *where;
    const unsigned char *text;
    size_t n, at;
    int ignore_case, depth, n_nodes;
    node *nodes;
    uint32_t n_memo;
    size_t begin; /* of the program in the pool */
    tfm_error *err;
    int failed;
} compiler;

static int fail(compiler *c, size_t at, const char *why) {
    if (!c->failed) {
        tool_fail(c->err, TFM_ERR_UNSUPPORTED, "%s: the expression \"%.*s\" cannot be compiled: at byte %zu: %s",
                  c->where,
                  (int)(c->n < 200 ? c->n : 200), (const char *)c->text, at, why);
    }
    c->failed = 1;
    return -1;
}

/* ---- general categories ------------------------------------------------------------------------------------------ */

/* In the order of the bits of tfm.h. */
static const char *const category_names[30] = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                               "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                               "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn", "Cs"};
enum { CATEGORY_ND = 8, ALL_CATEGORIES = 0x3FFFFFFF };

static uint32_t category_mask(const char *name, size_t n) {
    uint32_t mask = 0;
    for (uint32_t i = 0; i < 30; i++) {
        int same_first = n && (name[0] & ~32) == category_names[i][0];
        if (same_first && (n == 1 || (n == 2 && (name[1] | 32) == category_names[i][1]))) mask |= 1u << i;
    }
    return mask;
}

/* Category of an ASCII character, as a bit. */
static uint32_t ascii_category(uint32_t ch) {
    static const char punctuation[] = "_-([{)]}$+<=>|~^`";
    static const unsigned char category[] = {11, 12, 13, 13, 13, 14, 14, 14, 19, 18, 18, 18, 18, 18, 18, 20, 20};
    if (ch < 32 || ch == 127) return 1u << 25;
    if (ch == ' ') return 1u << 22;
    if (ch >= '0' && ch <= '9') return 1u << CATEGORY_ND;
    if (ch >= 'A' && ch <= 'Z') return 1u << 0;
    if (ch >= 'a' && ch <= 'z') return 1u << 1;
    const char *p = strchr(punctuation, (int)ch);
    return 1u << (p ? category[p - punctuation] : 17);
}

/* ---- sets -------------------------------------------------------------------------------------------------------- */

static int set_add(compiler *c, char_set *s, uint32_t low, uint32_t high) {
    if (s->n == MAX_RANGES) return fail(c, c->at, "a class has too many ranges");
    s->low[s->n] = low;
    s->high[s->n++] = high;
    return 0;
}

static const uint32_t white_space[][2] = {{9, 13}, {32, 32}, {0x85, 0x85}, {0xA0, 0xA0}, {0x1680, 0x1680},
                                          {0x2000, 0x200A},
                                          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
/* What counts as a word character beside letters, marks, digits, letter numbers and connectors. */
static const uint32_t word_extra[][2] = {{0xB2, 0xB3}, {0xB9, 0xB9}, {0xBC, 0xBE}, {0x24B6, 0x24E9}, {0x1F130, 0x1F149},
                                         {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
enum { WORD_CATEGORIES = 0xFF | 1 << 8 | 1 << 9 | 1 << 11 };

/* Adds what a class escape stands for. Returns 1 if ch is one, 0 if not, -1 on failure. */
static int set_escape(compiler *c, char_set *s, int ch, int alone, int *negate) {
    const size_t n_space = sizeof white_space / sizeof white_space[0];
    const size_t n_word = sizeof word_extra / sizeof word_extra[0];
    switch (ch) {
    case 'd': s->categories |= 1u << CATEGORY_ND; return 1;
    case 'D': s->categories |= ALL_CATEGORIES & ~(1u << CATEGORY_ND); return 1;
    case 's':
        for (size_t i = 0; i < n_space; i++) if (set_add(c, s, white_space[i][0], white_space[i][1])) return -1;
        return 1;
    case 'S':
        for (size_t i = 0; i <= n_space; i++) {
            uint32_t low = i ? white_space[i - 1][1] + 1 : 0, high = i < n_space ? white_space[i][0] - 1 : 0x10FFFF;
            if (low <= high && set_add(c, s, low, high)) return -1;
        }
        return 1;
    case 'W':
        if (!alone) return fail(c, c->at, "\\W inside a class");
        *negate = 1; /* fall through */
    case 'w':
        s->categories |= WORD_CATEGORIES;
        for (size_t i = 0; i < n_word; i++) if (set_add(c, s, word_extra[i][0], word_extra[i][1])) return -1;
        return 1;
    default: return 0;
    }
}

/* Both cases of the ASCII letters in [low, high], and what folds to them. */
static int set_fold(compiler *c, char_set *s, uint32_t low, uint32_t high) {
    if (!c->ignore_case) return 0;
    if (high >= 0x80 && (low != high || low >= 0x80)) return fail(c, c->at, "(?i) on a character beyond ASCII");
    for (uint32_t ch = low; ch <= high && ch < 0x80; ch++) {
        uint32_t lower = ch | 32;
        if (lower < 'a' || lower > 'z') continue;
        if (set_add(c, s, lower, lower) || set_add(c, s, lower - 32, lower - 32)) return -1;
        if (lower == 's' && set_add(c, s, 0x17F, 0x17F)) return -1;
        if (lower == 'k' && set_add(c, s, 0x212A, 0x212A)) return -1;
    }
    return 0;
}

/* ---- output ------------------------------------------------------------------------------------------------------ */

static void put_word(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> 8 * i);
}

static int grow(compiler *c, uint8_t **array, size_t *cap, size_t n, size_t size) {
    void *p = array_grow(*array, cap, n + 1, size);
    if (!p) return fail(c, c->at, "out of memory");
    *array = (uint8_t *)p;
    return 0;
}

/* The set as a class of the pool; equal classes are shared. Returns its index, or -1. */
static int put_class(compiler *c, const char_set *s, int negate) {
    regex_pool *pool = c->pool;
    uint8_t head[32] = {0};
    uint32_t bitmap[4] = {0, 0, 0, 0};
    size_t n_kept = 0, first = pool->n_ranges;
    for (uint32_t ch = 0; ch < 128; ch++) {
        int in = (s->categories & ascii_category(ch)) != 0;
        for (int i = 0; i < s->n; i++) in |= ch >= s->low[i] && ch <= s->high[i];
        if (in != negate) bitmap[ch >> 5] |= 1u << (ch & 31);
    }
    for (int i = 0; i < s->n; i++) {
        if (s->high[i] < 128) continue;
        if (grow(c, &pool->ranges, &pool->cap_ranges, pool->n_ranges, 8)) return -1;
        put_word(pool->ranges + 8 * pool->n_ranges, s->low[i] < 128 ? 128 : s->low[i]);
        put_word(pool->ranges + 8 * pool->n_ranges + 4, s->high[i]);
        pool->n_ranges++;
        n_kept++;
    }
    for (int i = 0; i < 4; i++) put_word(head + 4 * i, bitmap[i]);
    put_word(head + 16, s->categories);
    put_word(head + 20, (uint32_t)first);
    put_word(head + 24, (uint32_t)n_kept);
    put_word(head + 28, (uint32_t)negate);
    for (size_t i = 0; i < pool->n_classes; i++) {
        const uint8_t *other = pool->classes + 32 * i;
        uint32_t at = load_u32(other + 20);
        if (memcmp(other, head, 20) == 0 && memcmp(other + 24, head + 24, 8) == 0 &&
            (!n_kept || memcmp(pool->ranges + 8 * (size_t)at, pool->ranges + 8 * first, 8 * n_kept) == 0)) {
            pool->n_ranges = first;
            return (int)i;
        }
    }
    if (grow(c, &pool->classes, &pool->cap_classes, pool->n_classes, 32)) return -1;
    memcpy(pool->classes + 32 * pool->n_classes, head, 32);
    return (int)pool->n_classes++;
}

/* Appends an instruction; returns its index, or -1. */
static int put_code(compiler *c, int op, uint32_t a, uint32_t b) {
    regex_pool *pool = c->pool;
    if (pool->n_code - c->begin >= MAX_CODE) return fail(c, c->n, "the expression is too large");
    if (grow(c, &pool->code, &pool->cap_code, pool->n_code, 8)) return -1;
    uint8_t *p = pool->code + 8 * pool->n_code;
    p[0] = (uint8_t)op;
    p[1] = 0;
    p[2] = (uint8_t)a;
    p[3] = (uint8_t)(a >> 8);
    put_word(p + 4, b);
    return (int)pool->n_code++;
}
static void patch(compiler *c, int at) { /* the jump at `at` goes to what comes next */
    if (at >= 0) put_word(c->pool->code + 8 * (size_t)at + 4, (uint32_t)c->pool->n_code);
}
static uint32_t new_memo(compiler *c) {
    if (c->n_memo == TFM_RE_MAX_MEMO) fail(c, c->n, "the expression has too many choices");
    return c->n_memo < TFM_RE_MAX_MEMO ? c->n_memo++ : 0;
}

/* ---- parsing ----------------------------------------------------------------------------------------------------- */

static int new_node(compiler *c, node_kind kind) {
    if (c->n_nodes == MAX_NODES) return fail(c, c->at, "the expression is too large");
    node *p = &c->nodes[c->n_nodes];
    memset(p, 0, sizeof *p);
    p->kind = kind;
    p->first = p->next = -1;
    return c->n_nodes++;
}

static int peek(const compiler *c) { return c->at < c->n ? c->text[c->at] : -1; }
static int accept(compiler *c, const char *s) {
    size_t n = strlen(s);
    if (n > c->n - c->at || memcmp(c->text + c->at, s, n) != 0) return 0;
    c->at += n;
    return 1;
}

/* The next character, decoded. */
static int64_t next_character(compiler *c) {
    uint32_t ch = c->text[c->at++];
    int more = ch >= 0xF0 ? 3 : ch >= 0xE0 ? 2 : ch >= 0xC0 ? 1 : 0;
    if (ch >= 0x80) ch &= 0x3Fu >> more;
    for (; more; more--) {
        if (c->at == c->n || (c->text[c->at] & 0xC0) != 0x80) return fail(c, c->at, "bad UTF-8");
        ch = ch << 6 | (c->text[c->at++] & 63u);
    }
    return ch;
}

static int hex_digit(int ch) {
    if (ch >= '0' && ch <= '9') return ch - '0';
    if ((ch | 32) >= 'a' && (ch | 32) <= 'f') return (ch | 32) - 'a' + 10;
    return -1;
}
/* Up to `most` hexadecimal digits; `exact`: just as many. */
static int64_t parse_hex(compiler *c, int most, int exact) {
    int64_t v = 0;
    int n = 0;
    for (; n < most && hex_digit(peek(c)) >= 0; n++) v = v * 16 + hex_digit(c->text[c->at++]);
    if (!n || (exact && n < most) || v > 0x10FFFF) return fail(c, c->at, "bad hexadecimal number");
    return v;
}

/* An escape that is one character; the backslash is read. */
static int64_t parse_escaped(compiler *c) {
    static const char letters[] = "rntfvae", values[] = "\r\n\t\f\v\a\033";
    int ch = peek(c);
    if (ch < 0) return fail(c, c->at, "a backslash at the end");
    const char *p = strchr(letters, ch);
    if (p) { c->at++; return values[p - letters]; }
    if (accept(c, "x{")) {
        int64_t v = parse_hex(c, 6, 0);
        return v >= 0 && !accept(c, "}") ? fail(c, c->at, "} expected") : v;
    }
    if (accept(c, "x")) return parse_hex(c, 2, 1);
    if (accept(c, "u")) return parse_hex(c, 4, 1);
    if (ch < 32 || ch >= 127 || (ch >= '0' && ch <= '9') || ((ch | 32) >= 'a' && (ch | 32) <= 'z')) {
        return fail(c, c->at - 1, "this escape is not supported");
    }
    c->at++;
    return ch;
}

/* \p{..} or \P{..}; the p is read. */
static int parse_property(compiler *c, int negate, uint32_t *mask) {
    size_t from = c->at;
    if (!accept(c, "{")) return fail(c, from, "{ expected");
    if (accept(c, "^")) negate = !negate;
    size_t name = c->at;
    while (c->at < c->n && c->text[c->at] != '}') c->at++;
    *mask = category_mask((const char *)c->text + name, c->at - name);
    if (!accept(c, "}")) return fail(c, from, "} expected");
    if (!*mask) return fail(c, name, "only general categories (L, Lu, N, ...) are supported as properties");
    if (negate) *mask = ALL_CATEGORIES & ~*mask;
    return 0;
}

/* A class escape at the backslash, if there is one: 1 and it is added, 0 if it is something else, -1 failure. */
static int parse_class_escape(compiler *c, char_set *s, int alone, int *negate) {
    int ch = c->at + 1 < c->n ? c->text[c->at + 1] : -1;
    uint32_t mask = 0;
    if (ch == 'p' || ch == 'P') {
        c->at += 2;
        if (parse_property(c, ch == 'P', &mask)) return -1;
        s->categories |= mask;
        return 1;
    }
    int found = set_escape(c, s, ch, alone, negate);
    if (found > 0) c->at += 2;
    return found;
}

/* One end of a range in [...]. */
static int64_t parse_class_character(compiler *c) {
    int ch = peek(c);
    if (ch < 0) return fail(c, c->at, "] expected");
    if (ch == '[') return fail(c, c->at, "a class inside a class");
    if (c->at + 1 < c->n && ch == '&' && c->text[c->at + 1] == '&') return fail(c, c->at, "an intersection of classes");
    if (ch == '\\') { c->at++; return parse_escaped(c); }
    return next_character(c);
}

/* [...]; the bracket is read. */
static int parse_class(compiler *c, char_set *s, int *negate) {
    *negate = accept(c, "^");
    for (int items = 0; !(peek(c) == ']' && items); items++) {
        if (peek(c) == '\\') {
            int unused = 0, found = parse_class_escape(c, s, 0, &unused);
            if (found < 0) return -1;
            if (found) continue;
        }
        int64_t low = parse_class_character(c), high = low;
        if (low < 0) return -1;
        if (peek(c) == '-' && c->at + 1 < c->n && c->text[c->at + 1] != ']') {
            c->at++;
            if (peek(c) == '\\' && c->at + 1 < c->n && strchr("dDsSwWpP", c->text[c->at + 1])) {
                return fail(c, c->at, "bad range");
            }
            high = parse_class_character(c);
        }
        if (high < low) return c->failed ? -1 : fail(c, c->at, "a range runs backwards");
        if (set_add(c, s, (uint32_t)low, (uint32_t)high) || set_fold(c, s, (uint32_t)low, (uint32_t)high)) return -1;
    }
    c->at++;
    return 0;
}

static int class_node(compiler *c, const char_set *s, int negate) {
    int index = put_class(c, s, negate), id = index < 0 ? -1 : new_node(c, NODE_CLASS);
    if (id >= 0) c->nodes[id].value = (uint32_t)index;
    return id;
}
static int anchor_node(compiler *c, uint32_t op, int multi_line) {
    int id = new_node(c, NODE_ANCHOR);
    if (id >= 0) c->nodes[id].value = op | (uint32_t)multi_line << 8;
    return id;
}

static int parse_alternatives(compiler *c);

/* ( ...; the parenthesis is read. */
static int parse_group(compiler *c) {
    size_t from = c->at - 1;
    int keep = c->ignore_case, look = -1, id;
    if (accept(c, "?:")) {
    } else if (accept(c, "?i:")) {
        c->ignore_case = 1;
    } else if (accept(c, "?=")) {
        look = 0;
    } else if (accept(c, "?!")) {
        look = 1;
    } else if (accept(c, "?i)")) {
        c->ignore_case = 1; /* up to the end of the group around it, which puts it back */
        return new_node(c, NODE_EMPTY);
    } else if (peek(c) == '?') {
        return fail(c, from, "this kind of group is not supported");
    }
    if (++c->depth > MAX_DEPTH) return fail(c, from, "groups are nested too deeply");
    id = parse_alternatives(c);
    c->depth--;
    c->ignore_case = keep;
    if (id < 0) return -1;
    if (!accept(c, ")")) return fail(c, from, "a group without an end");
    if (look >= 0) {
        int body = id;
        if ((id = new_node(c, NODE_LOOK)) < 0) return -1;
        c->nodes[id].first = body;
        c->nodes[id].value = (uint32_t)look;
    }
    return id;
}

static int parse_atom(compiler *c) {
    char_set s;
    int negate = 0, ch = peek(c);
    s.n = 0;
    s.categories = 0;
    if (ch == '(') { c->at++; return parse_group(c); }
    if (ch == '[') {
        c->at++;
        return parse_class(c, &s, &negate) ? -1 : class_node(c, &s, negate);
    }
    if (ch == '.') {
        c->at++;
        return set_add(c, &s, '\n', '\n') ? -1 : class_node(c, &s, 1);
    }
    if (accept(c, "^")) return anchor_node(c, TFM_RE_START, 1);
    if (accept(c, "$")) return anchor_node(c, TFM_RE_END, 1);
    if (accept(c, "\\A")) return anchor_node(c, TFM_RE_START, 0);
    if (accept(c, "\\z")) return anchor_node(c, TFM_RE_END, 0);
    if (ch == '\\') {
        int found = parse_class_escape(c, &s, 1, &negate);
        if (found) return found < 0 ? -1 : class_node(c, &s, negate);
        c->at++;
        int64_t v = parse_escaped(c);
        if (v < 0 || set_add(c, &s, (uint32_t)v, (uint32_t)v) || set_fold(c, &s, (uint32_t)v, (uint32_t)v)) return -1;
        return class_node(c, &s, 0);
    }
    if (ch == '?' || ch == '*' || ch == '+') return fail(c, c->at, "nothing to repeat");
    int64_t v = next_character(c);
    if (v < 0 || set_add(c, &s, (uint32_t)v, (uint32_t)v) || set_fold(c, &s, (uint32_t)v, (uint32_t)v)) return -1;
    return class_node(c, &s, 0);
}

static int parse_number(compiler *c, int otherwise) {
    int v = 0, any = 0;
    for (; peek(c) >= '0' && peek(c) <= '9'; any = 1) {
        v = v * 10 + (c->text[c->at++] - '0');
        if (v > 100000) v = 100000;
    }
    return any ? v : otherwise;
}

/* {m,n} at the brace: 1 and it is read, or 0 where the brace stands for itself. */
static int parse_braces(compiler *c, int *min, int *max) {
    size_t from = c->at++;
    *min = parse_number(c, -1);
    *max = *min;
    if (accept(c, ",")) *max = parse_number(c, *min < 0 ? -2 : NO_LIMIT);
    if (accept(c, "}") && *max != -2 && !(*min < 0 && *max < 0)) {
        if (*min < 0) *min = 0;
        return 1;
    }
    c->at = from;
    return 0;
}

static int parse_repeat(compiler *c, int atom) {
    int min, max, braces = 0;
    size_t from = c->at;
    if (accept(c, "?")) { min = 0; max = 1; }
    else if (accept(c, "*")) { min = 0; max = NO_LIMIT; }
    else if (accept(c, "+")) { min = 1; max = NO_LIMIT; }
    else if (peek(c) == '{' && parse_braces(c, &min, &max)) braces = 1;
    else return atom;
    node_kind kind = c->nodes[atom].kind;
    if (kind == NODE_LOOK || kind == NODE_ANCHOR || kind == NODE_EMPTY) return fail(c, from, "this cannot be repeated");
    if (min > MAX_REPEAT || max > MAX_REPEAT) return fail(c, from, "a count above 64");
    if (max != NO_LIMIT && max < min) return fail(c, from, "the counts run backwards");
    int id = new_node(c, NODE_REPEAT), mode = GREEDY;
    if (id < 0) return -1;
    if (accept(c, "?")) mode = LAZY;
    else if (peek(c) == '+' && !braces) { c->at++; mode = POSSESSIVE; }
    if (strchr("?*+", peek(c)) && peek(c) > 0) return fail(c, c->at, "a quantifier on a quantifier");
    if (braces && mode == LAZY && min == max) return fail(c, from, "{n}? means something else here");
    if (kind != NODE_CLASS && (max == NO_LIMIT || mode == POSSESSIVE)) {
        return fail(c, from, "only a single character may be repeated without limit or possessively");
    }
    if (max == NO_LIMIT && mode == LAZY) return fail(c, from, "lazy repetition without limit");
    c->nodes[id].first = atom;
    c->nodes[id].min = min;
    c->nodes[id].max = max;
    c->nodes[id].mode = mode;
    return id;
}

/* Appends a child to a parent's list. */
static void adopt(compiler *c, int parent, int *last, int child) {
    if (*last < 0) c->nodes[parent].first = child;
    else c->nodes[*last].next = child;
    *last = child;
}

static int parse_sequence(compiler *c) {
    int id = new_node(c, NODE_SEQUENCE), last = -1;
    while (id >= 0 && peek(c) >= 0 && peek(c) != '|' && peek(c) != ')') {
        int child = parse_atom(c);
        if (child >= 0) child = parse_repeat(c, child);
        if (child < 0) return -1;
        adopt(c, id, &last, child);
    }
    return id;
}

static int parse_alternatives(compiler *c) {
    int id = new_node(c, NODE_ALTERNATIVES), last = -1;
    if (id < 0) return -1;
    do {
        int child = parse_sequence(c);
        if (child < 0) return -1;
        adopt(c, id, &last, child);
    } while (accept(c, "|"));
    return id;
}

/* ---- generating -------------------------------------------------------------------------------------------------- */

static void generate(compiler *c, int id, int in_look);

/* The part of a repeat beyond its minimum. */
static void generate_optional(compiler *c, const node *r, int in_look) {
    int jumps[MAX_REPEAT], n = 0;
    const node *body = &c->nodes[r->first];
    if (r->max == NO_LIMIT) {
        if (in_look) { fail(c, c->n, "a repetition without limit inside a look-ahead"); return; }
        put_code(c, r->mode == POSSESSIVE ? TFM_RE_RUN : TFM_RE_STAR, new_memo(c), body->value);
        return;
    }
    for (int i = r->min; i < r->max && !c->failed; i++) {
        if (r->mode == POSSESSIVE) { put_code(c, TFM_RE_TRY, 0, body->value); continue; }
        int split = put_code(c, TFM_RE_SPLIT, new_memo(c), 0);
        jumps[n++] = split;
        if (r->mode == LAZY) { /* first choice: go past everything */
            jumps[n - 1] = put_code(c, TFM_RE_JUMP, 0, 0);
            if (!c->failed) patch(c, split);
        }
        generate(c, r->first, in_look);
    }
    while (n && !c->failed) patch(c, jumps[--n]);
}

static void generate_alternatives(compiler *c, const node *p, int in_look) {
    int jumps[MAX_NODES / 8], n = 0;
    for (int child = p->first; child >= 0 && !c->failed; child = c->nodes[child].next) {
        int more = c->nodes[child].next >= 0;
        int split = more ? put_code(c, TFM_RE_SPLIT, new_memo(c), 0) : -1;
        generate(c, child, in_look);
        if (!more || c->failed) break;
        if (n == MAX_NODES / 8) { fail(c, c->n, "too many alternatives"); return; }
        jumps[n++] = put_code(c, TFM_RE_JUMP, 0, 0);
        if (!c->failed) patch(c, split);
    }
    while (n && !c->failed) patch(c, jumps[--n]);
}

static void generate(compiler *c, int id, int in_look) {
    const node *p = &c->nodes[id];
    int look;
    if (c->failed) return;
    switch (p->kind) {
    case NODE_EMPTY: break;
    case NODE_CLASS: put_code(c, TFM_RE_CLASS, 0, p->value); break;
    case NODE_ANCHOR: put_code(c, (int)(p->value & 255), 0, p->value >> 8); break;
    case NODE_SEQUENCE:
        for (int child = p->first; child >= 0; child = c->nodes[child].next) generate(c, child, in_look);
        break;
    case NODE_ALTERNATIVES: generate_alternatives(c, p, in_look); break;
    case NODE_REPEAT:
        for (int i = 0; i < p->min && !c->failed; i++) generate(c, p->first, in_look);
        generate_optional(c, p, in_look);
        break;
    default: /* NODE_LOOK */
        look = put_code(c, p->value ? TFM_RE_NOT_AHEAD : TFM_RE_AHEAD, 0, 0);
        generate(c, p->first, 1);
        put_code(c, TFM_RE_MATCH, 0, 0);
        if (!c->failed) patch(c, look);
        break;
    }
}

/* Whether what a node matches can be empty. */
static int can_be_empty(const compiler *c, int id) {
    const node *p = &c->nodes[id];
    if (p->kind == NODE_CLASS) return 0;
    if (p->kind == NODE_REPEAT) return !p->min || can_be_empty(c, p->first);
    if (p->kind == NODE_SEQUENCE) {
        for (int child = p->first; child >= 0; child = c->nodes[child].next) if (!can_be_empty(c, child)) return 0;
        return 1;
    }
    if (p->kind == NODE_ALTERNATIVES) {
        for (int child = p->first; child >= 0; child = c->nodes[child].next) if (can_be_empty(c, child)) return 1;
        return 0;
    }
    return 1;
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

static int begin(compiler *c, regex_pool *pool, const char *where, const char *text, size_t n, tfm_error *err) {
    memset(c, 0, sizeof *c);
    c->pool = pool;
    c->where = where;
    c->text = (const unsigned char *)text;
    c->n = n;
    c->err = err;
    c->begin = pool->n_code;
    c->nodes = (node *)malloc(MAX_NODES * sizeof *c->nodes);
    return c->nodes ? 0 : tool_fail(err, TFM_ERR_MEMORY, "%s: out of memory", where);
}

static int finish(compiler *c, uint32_t *start, uint32_t *n_memo) {
    put_code(c, TFM_RE_MATCH, 0, 0);
    free(c->nodes);
    if (c->failed) {
        c->pool->n_code = c->begin;
        return TFM_ERR_UNSUPPORTED;
    }
    *start = (uint32_t)c->begin;
    *n_memo = c->n_memo;
    return TFM_OK;
}

int regex_compile(regex_pool *pool, const char *where, const char *pattern, size_t n, uint32_t *start,
                  uint32_t *n_memo, tfm_error *err) {
    compiler c;
    int code = begin(&c, pool, where, pattern, n, err);
    if (code) return code;
    int root = parse_alternatives(&c);
    if (root >= 0 && c.at < c.n) fail(&c, c.at, "a ) without a (");
    if (root >= 0 && !c.failed && can_be_empty(&c, root)) fail(&c, 0, "it can match nothing");
    if (root >= 0) generate(&c, root, 0);
    return finish(&c, start, n_memo);
}

int regex_literal(regex_pool *pool, const char *where, const char *text, size_t n, uint32_t *start, uint32_t *n_memo,
                  tfm_error *err) {
    compiler c;
    int code = begin(&c, pool, where, text, n, err);
    if (code) return code;
    if (!n) fail(&c, 0, "it can match nothing");
    while (c.at < c.n && !c.failed) {
        int64_t ch = next_character(&c);
        if (ch >= 0) put_code(&c, TFM_RE_CHAR, 0, (uint32_t)ch);
    }
    return finish(&c, start, n_memo);
}

int regex_class(regex_pool *pool, const char *where, const char *pattern, uint32_t *index, tfm_error *err) {
    compiler c;
    int code = begin(&c, pool, where, pattern, strlen(pattern), err);
    if (code) return code;
    int id = parse_atom(&c);
    if (id >= 0 && (c.at < c.n || c.nodes[id].kind != NODE_CLASS)) fail(&c, c.at, "one class expected");
    if (!c.failed) *index = c.nodes[id].value;
    free(c.nodes);
    return c.failed ? TFM_ERR_UNSUPPORTED : TFM_OK;
}

void regex_pool_free(regex_pool *pool) {
    free(pool->code);
    free(pool->classes);
    free(pool->ranges);
    memset(pool, 0, sizeof *pool);
}
