/* regex.c - see regex.h.
 *
 *   alternatives  sequence ('|' sequence)*                 the first that leads to a match wins
 *   sequence      (atom quantifier?)*
 *   atom          character  .  class  \escape  ^  $  \A  \z  \b  \B  (?# )
 *                 (?: )  ( )  (?<name> )  (?flags: )  (?flags)  (?> )  (?= )  (?! )  (?<= )  (?<! )
 *   flags         i  ASCII and other letters match either case (one character for one)    m  . matches a newline too
 *   quantifier    ? * + {m} {m,} {,n} {m,n}                greedy; ?? *? +? {m,n}? lazy; ?+ *+ ++ possessive
 *   class         [...] [^...] of characters, ranges, classes, [:name:], the escapes below; && intersects
 *   escapes       \p{name} \P{name} \p{^name}: categories (L, Lu, Letter), scripts (Han), properties (Alphabetic)
 *                 \s \S \d \D \w \W \h \H  \r \n \t \f \v \a \e \xHH \x{H} \uHHHH  \ before ASCII punctuation
 *
 * Lines as in Oniguruma: ^ and $ match at every line, . everything but a newline. Refused: repetition without limit
 * inside a look-behind or an atomic group and of what can be empty (all of this keeps matching bounded), look-around
 * and atomic groups nested more than 4 deep, look-behind without a fixed length, back references, counts above 1024.
 */
#include "regex.h"

#include <stdlib.h>
#include <string.h>

#include "unicode.h"

enum { MAX_NODES = 4096, MAX_CODE = 4096, MAX_DEPTH = 32, MAX_REPEAT = 1024,
       MAX_LEVELS = 5 * MAX_DEPTH, /* of nodes: a group has up to five */
       MAX_VISITS = 1 << 18 };     /* of nodes while generating: repeats of what gives no code multiply too */

typedef enum node_kind { NODE_EMPTY, NODE_CLASS, NODE_SEQUENCE, NODE_ALTERNATIVES, NODE_REPEAT, NODE_LOOK, NODE_BEHIND,
                         NODE_ATOMIC, NODE_ANCHOR } node_kind;
enum { GREEDY, LAZY, POSSESSIVE };
enum { NO_LIMIT = -1 };

typedef struct node {
    node_kind kind;
    int first, next;    /* children form a list: first child, next sibling; -1 ends it */
    int min, max, mode; /* of a repeat */
    uint32_t value;     /* class index; negative look-around 1; anchor's op | its a << 8 | its b << 16 */
} node;

/* A set of characters while it is built: the union of ranges and general categories. */
typedef struct char_set {
    uint32_t *ranges; /* low, high, ... */
    size_t n, cap;    /* numbers in it */
    uint32_t categories; /* a bit each */
} char_set;

typedef struct compiler {
    regex_pool *pool;
    const char *where;
    const unsigned char *text;
    size_t n, at;
    int ignore_case, dot_all, depth, n_nodes;
    int n_visits, level, n_bodies; /* while generating: nodes so far; of this one: nodes and bodies around it */
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

static uint32_t short_category_mask(const char *name, size_t n) {
    uint32_t mask = 0;
    for (uint32_t i = 0; i < 30; i++) {
        int same_first = n && (name[0] & ~32) == category_names[i][0];
        if (same_first && (n == 1 || (n == 2 && (name[1] | 32) == category_names[i][1]))) mask |= 1u << i;
    }
    return mask;
}
static uint32_t category_mask(const char *name, size_t n) {
    static const char *const names[][2] = {
        {"L", "letter"}, {"Lu", "uppercase_letter"}, {"Ll", "lowercase_letter"}, {"Lt", "titlecase_letter"},
        {"Lm", "modifier_letter"}, {"Lo", "other_letter"}, {"M", "mark"}, {"Mn", "nonspacing_mark"},
        {"Mc", "spacing_mark"}, {"Me", "enclosing_mark"}, {"N", "number"}, {"Nd", "decimal_number"},
        {"Nl", "letter_number"}, {"No", "other_number"}, {"P", "punctuation"}, {"Pc", "connector_punctuation"},
        {"Pd", "dash_punctuation"}, {"Ps", "open_punctuation"}, {"Pe", "close_punctuation"},
        {"Pi", "initial_punctuation"}, {"Pf", "final_punctuation"}, {"Po", "other_punctuation"}, {"S", "symbol"},
        {"Sm", "math_symbol"}, {"Sc", "currency_symbol"}, {"Sk", "modifier_symbol"}, {"So", "other_symbol"},
        {"Z", "separator"}, {"Zs", "space_separator"}, {"Zl", "line_separator"}, {"Zp", "paragraph_separator"},
        {"C", "other"}, {"Cc", "control"}, {"Cf", "format"}, {"Co", "private_use"}, {"Cn", "unassigned"},
        {"Cs", "surrogate"}};
    uint32_t mask = short_category_mask(name, n);
    for (size_t i = 0; !mask && i < sizeof names / sizeof names[0]; i++) {
        size_t k = 0;
        for (; k < n && names[i][1][k]; k++) {
            const int same = name[k] == '_' ? names[i][1][k] == '_' : (name[k] | 32) == names[i][1][k];
            if (!same) break;
        }
        if (k == n && !names[i][1][k]) mask = short_category_mask(names[i][0], strlen(names[i][0]));
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
    uint32_t *p = (uint32_t *)array_grow(s->ranges, &s->cap, s->n + 2, sizeof *p);
    if (!p) return fail(c, c->at, "out of memory");
    s->ranges = p;
    p[s->n++] = low;
    p[s->n++] = high;
    return 0;
}
static int set_union(compiler *c, char_set *s, const uint32_t *ranges, size_t n) {
    for (size_t i = 0; i < n; i++) if (set_add(c, s, ranges[2 * i], ranges[2 * i + 1])) return -1;
    return 0;
}

static int by_low(const void *x, const void *y) {
    const uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return a < b ? -1 : a > b;
}
/* Ranges ascending, none touching another. */
static void set_sort(char_set *s) {
    size_t m = 0;
    if (s->n) qsort(s->ranges, s->n / 2, 2 * sizeof *s->ranges, by_low);
    for (size_t i = 0; i < s->n; i += 2) {
        if (m && s->ranges[i] <= s->ranges[m - 1] + 1) {
            if (s->ranges[i + 1] > s->ranges[m - 1]) s->ranges[m - 1] = s->ranges[i + 1];
            continue;
        }
        s->ranges[m++] = s->ranges[i];
        s->ranges[m++] = s->ranges[i + 1];
    }
    s->n = m;
}
/* Everything as sorted ranges, no categories. */
static int set_spell(compiler *c, char_set *s) {
    size_t n;
    const uint32_t *runs = unicode_categories(&n);
    for (size_t i = 0; s->categories && i < n; i++) {
        const uint32_t end = i + 1 < n ? (runs[i + 1] >> 5) - 1 : 0x10FFFF;
        if (s->categories >> (runs[i] & 31) & 1 && set_add(c, s, runs[i] >> 5, end)) return -1;
    }
    s->categories = 0;
    set_sort(s);
    return 0;
}
static int set_complement(compiler *c, char_set *s) {
    char_set out = {0};
    uint32_t next = 0;
    int failed = set_spell(c, s);
    for (size_t i = 0; !failed && i < s->n; i += 2) {
        if (s->ranges[i] > next) failed = set_add(c, &out, next, s->ranges[i] - 1);
        next = s->ranges[i + 1] + 1;
    }
    if (!failed && next <= 0x10FFFF) failed = set_add(c, &out, next, 0x10FFFF);
    free(failed ? out.ranges : s->ranges);
    if (!failed) *s = out;
    return failed;
}
/* s becomes what is in both. */
static int set_intersect(compiler *c, char_set *s, char_set *other) {
    if (set_complement(c, s) || set_complement(c, other) || set_union(c, s, other->ranges, other->n / 2)) return -1;
    return set_complement(c, s);
}
static int set_has(const char_set *s, uint32_t ch) { /* sorted, no categories */
    size_t low = 0, high = s->n / 2;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (ch > s->ranges[2 * mid + 1]) low = mid + 1;
        else if (ch < s->ranges[2 * mid]) high = mid;
        else return 1;
    }
    return 0;
}
/* With what its characters match without regard to case. */
static int set_fold(compiler *c, char_set *s) {
    if (!c->ignore_case) return 0;
    if (set_spell(c, s)) return -1;
    const char_set before = {s->ranges, s->n, 0, 0};
    char_set extra = {0};
    int failed = 0;
    for (size_t i = 0; i < before.n && !failed; i += 2) {
        for (uint32_t ch = before.ranges[i]; ch <= before.ranges[i + 1] && ch < 0x1F000 && !failed; ch++) {
            uint32_t other;
            for (int k = 0; !failed && (other = unicode_fold(ch, k)) != 0; k++) {
                failed = !set_has(&before, other) && set_add(c, &extra, other, other);
            }
        }
    }
    if (!failed) failed = set_union(c, s, extra.ranges, extra.n / 2);
    free(extra.ranges);
    return failed;
}

static const uint32_t white_space[][2] = {{9, 13}, {32, 32}, {0x85, 0x85}, {0xA0, 0xA0}, {0x1680, 0x1680},
                                          {0x2000, 0x200A},
                                          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
/* What counts as a word character beside letters, marks, digits, letter numbers and connectors. */
static const uint32_t word_extra[][2] = {{0xB2, 0xB3}, {0xB9, 0xB9}, {0xBC, 0xBE}, {0x24B6, 0x24E9}, {0x1F130, 0x1F149},
                                         {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
enum { WORD_CATEGORIES = 0xFF | 1 << 8 | 1 << 9 | 1 << 11 };

/* Adds what a class escape stands for. Returns 1 if ch is one, 0 if not, -1 on failure. */
static int set_escape(compiler *c, char_set *s, int ch) {
    static const uint32_t hex[][2] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
    const int upper = ch >= 'A' && ch <= 'Z';
    char_set own = {0};
    int failed = 0;
    switch (ch | 32) {
    case 'd': own.categories = 1u << CATEGORY_ND; break;
    case 's': failed = set_union(c, &own, white_space[0], sizeof white_space / 8); break;
    case 'h': failed = set_union(c, &own, hex[0], 3); break;
    case 'w':
        own.categories = WORD_CATEGORIES;
        failed = set_union(c, &own, word_extra[0], sizeof word_extra / 8);
        break;
    default: return 0;
    }
    if (!failed && upper && own.n) failed = set_complement(c, &own);
    else if (upper) own.categories = ALL_CATEGORIES & ~own.categories;
    if (!failed) failed = set_union(c, s, own.ranges, own.n / 2);
    s->categories |= own.categories;
    free(own.ranges);
    return failed ? -1 : 1;
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

/* Finds a class of the pool that equals one with the given head and ranges; -1 if there is none. */
static int find_class(const regex_pool *pool, const uint8_t *head, size_t first, size_t n_kept) {
    for (size_t i = 0; i < pool->n_classes; i++) {
        const uint8_t *other = pool->classes + 32 * i;
        uint32_t at = load_u32(other + 20);
        if (memcmp(other, head, 20) == 0 && memcmp(other + 24, head + 24, 8) == 0 &&
            (!n_kept || memcmp(pool->ranges + 8 * (size_t)at, pool->ranges + 8 * first,
                               8 * n_kept) == 0)) return (int)i;
    }
    return -1;
}

/* The set as a class of the pool; equal classes are shared. Returns its index, or -1. */
static int put_class(compiler *c, char_set *s, int negate) {
    regex_pool *pool = c->pool;
    uint8_t head[32] = {0};
    uint32_t bitmap[4] = {0, 0, 0, 0};
    size_t first = pool->n_ranges;
    set_sort(s);
    for (uint32_t ch = 0; ch < 128; ch++) {
        int in = (s->categories & ascii_category(ch)) != 0 || set_has(s, ch);
        if (in != negate) bitmap[ch >> 5] |= 1u << (ch & 31);
    }
    for (size_t i = 0; i < s->n; i += 2) {
        if (s->ranges[i + 1] < 128) continue;
        if (grow(c, &pool->ranges, &pool->cap_ranges, pool->n_ranges, 8)) return -1;
        put_word(pool->ranges + 8 * pool->n_ranges, s->ranges[i] < 128 ? 128 : s->ranges[i]);
        put_word(pool->ranges + 8 * pool->n_ranges + 4, s->ranges[i + 1]);
        pool->n_ranges++;
    }
    const size_t n_kept = pool->n_ranges - first;
    for (int i = 0; i < 4; i++) put_word(head + 4 * i, bitmap[i]);
    put_word(head + 16, s->categories);
    put_word(head + 20, (uint32_t)first);
    put_word(head + 24, (uint32_t)n_kept);
    put_word(head + 28, (uint32_t)negate);
    const int known = find_class(pool, head, first, n_kept);
    if (known >= 0) {
        pool->n_ranges = first;
        return known;
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

/* \p{..} or \P{..}; the p is read. Also the inside of [:..:], which ends in another way. */
static int parse_property(compiler *c, char_set *s, const char *end, int negate) {
    size_t from = c->at, n;
    char_set own = {0};
    if (accept(c, "^")) negate = !negate;
    size_t name = c->at;
    while (c->at < c->n && c->text[c->at] != (unsigned char)*end) c->at++;
    const char *text = (const char *)c->text + name;
    const size_t length = c->at - name;
    if (!accept(c, end)) return fail(c, from, "a property without an end");
    own.categories = category_mask(text, length);
    const uint32_t *ranges = own.categories ? NULL : unicode_set(text, length, &n);
    if (!own.categories && !ranges) return fail(c, name, "this property is not known");
    int failed = ranges && set_union(c, &own, ranges, n);
    if (!failed && negate && ranges) failed = set_complement(c, &own);
    else if (negate) own.categories = ALL_CATEGORIES & ~own.categories;
    if (!failed) failed = set_union(c, s, own.ranges, own.n / 2);
    s->categories |= own.categories;
    free(own.ranges);
    return failed ? -1 : 0;
}

/* A class escape at the backslash, if there is one: 1 and it is added, 0 if it is something else, -1 failure. */
static int parse_class_escape(compiler *c, char_set *s) {
    int ch = c->at + 1 < c->n ? c->text[c->at + 1] : -1;
    if (ch == 'p' || ch == 'P') {
        c->at += 2;
        if (!accept(c, "{")) return fail(c, c->at, "{ expected");
        return parse_property(c, s, "}", ch == 'P') ? -1 : 1;
    }
    int found = ch < 0 ? 0 : set_escape(c, s, ch);
    if (found > 0) c->at += 2;
    return found;
}

/* One end of a range in [...]. */
static int64_t parse_class_character(compiler *c) {
    int ch = peek(c);
    if (ch < 0) return fail(c, c->at, "] expected");
    if (ch == '\\') { c->at++; return parse_escaped(c); }
    return next_character(c);
}

/* A character or a range in [...]. */
static int parse_range(compiler *c, char_set *s) {
    int64_t low = parse_class_character(c), high = low;
    if (low < 0) return -1;
    if (peek(c) == '-' && c->at + 1 < c->n && c->text[c->at + 1] != ']') {
        c->at++;
        if (peek(c) == '[' || (peek(c) == '\\' && c->at + 1 < c->n && strchr("dDsSwWpPhH", c->text[c->at + 1]))) {
            return fail(c, c->at, "bad range");
        }
        high = parse_class_character(c);
    }
    if (high < low) return c->failed ? -1 : fail(c, c->at, "a range runs backwards");
    return set_add(c, s, (uint32_t)low, (uint32_t)high);
}

static int parse_class(compiler *c, char_set *s);

/* One thing in [...]; the items before it are n. */
static int parse_class_item(compiler *c, char_set *s) {
    if (accept(c, "[:")) return parse_property(c, s, ":]", 0);
    if (accept(c, "[")) {
        char_set inner = {0};
        int failed = parse_class(c, &inner);
        if (!failed) failed = set_union(c, s, inner.ranges, inner.n / 2);
        s->categories |= inner.categories;
        free(inner.ranges);
        return failed;
    }
    int found = peek(c) == '\\' ? parse_class_escape(c, s) : 0;
    return found ? (found < 0 ? -1 : 0) : parse_range(c, s);
}

/* [...]; the bracket is read. */
static int parse_class(compiler *c, char_set *s) {
    const int negate = accept(c, "^");
    char_set part = {0};
    int failed = 0, items = 0, parts = 0;
    if (++c->depth > MAX_DEPTH) return fail(c, c->at, "classes are nested too deeply");
    for (; !failed; items++) {
        const int end = peek(c) == ']' && items, meet = accept(c, "&&");
        if (!end && !meet) { failed = parse_class_item(c, &part); continue; }
        if (!parts++) { char_set empty = *s; *s = part; part = empty; }
        else failed = set_intersect(c, s, &part);
        part.n = part.categories = 0;
        if (end) break;
    }
    free(part.ranges);
    c->depth--;
    c->at++;
    return failed || set_fold(c, s) || (negate && set_complement(c, s)) ? -1 : 0;
}

/* Takes over the set. */
static int class_node(compiler *c, char_set *s, int failed) {
    int index = failed ? -1 : put_class(c, s, 0), id = index < 0 ? -1 : new_node(c, NODE_CLASS);
    free(s->ranges);
    if (id >= 0) c->nodes[id].value = (uint32_t)index;
    return id;
}
static int anchor_node(compiler *c, uint32_t op, uint32_t a, uint32_t b) {
    int id = new_node(c, NODE_ANCHOR);
    if (id >= 0) c->nodes[id].value = op | a << 8 | b << 16;
    return id;
}
static int bound_node(compiler *c, uint32_t negate) {
    char_set s = {0};
    int failed = set_escape(c, &s, 'w') < 0, index = failed ? -1 : put_class(c, &s, 0);
    free(s.ranges);
    return index < 0 ? -1 : anchor_node(c, TFM_RE_BOUND, negate, (uint32_t)index);
}

static int parse_alternatives(compiler *c);

/* What stands after "(?" and before the group's body. look: the kind of node it becomes, or -1. Returns 0, or 1 if the
 * group ends here ("(?i)"), or -1. */
static int parse_group_head(compiler *c, size_t from, int *look, uint32_t *negative) {
    static const struct { const char *text; int kind; uint32_t negative; } heads[] = {
        {":", -1, 0}, {"=", NODE_LOOK, 0}, {"!", NODE_LOOK, 1}, {"<=", NODE_BEHIND, 0}, {"<!", NODE_BEHIND, 1},
        {">", NODE_ATOMIC, 0}};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        if (!accept(c, heads[i].text)) continue;
        *look = heads[i].kind;
        *negative = heads[i].negative;
        return 0;
    }
    if (accept(c, "<") || accept(c, "P<")) { /* a name, which nothing refers to */
        while (peek(c) > 0 && peek(c) != '>') c->at++;
        return accept(c, ">") ? 0 : fail(c, from, "a name without an end");
    }
    if (accept(c, "#")) {
        while (peek(c) >= 0 && peek(c) != ')') c->at++;
        return accept(c, ")") ? 1 : fail(c, from, "a comment without an end");
    }
    for (int on = 1;;) {
        if (accept(c, "i")) c->ignore_case = on;
        else if (accept(c, "m")) c->dot_all = on;
        else if (accept(c, "-")) on = 0;
        else if (accept(c, ":")) return 0;
        else if (accept(c, ")")) return 1; /* up to the end of the group around it, which puts it back */
        else return fail(c, from, "this kind of group is not supported");
    }
}

/* ( ...; the parenthesis is read. */
static int parse_group(compiler *c) {
    size_t from = c->at - 1;
    int keep_case = c->ignore_case, keep_dot = c->dot_all, look = -1, id;
    uint32_t negative = 0;
    if (accept(c, "?")) {
        int ended = parse_group_head(c, from, &look, &negative);
        if (ended) return ended < 0 ? -1 : new_node(c, NODE_EMPTY);
    }
    if (++c->depth > MAX_DEPTH) return fail(c, from, "groups are nested too deeply");
    id = parse_alternatives(c);
    c->depth--;
    c->ignore_case = keep_case;
    c->dot_all = keep_dot;
    if (id < 0) return -1;
    if (!accept(c, ")")) return fail(c, from, "a group without an end");
    if (look >= 0) {
        int body = id;
        if ((id = new_node(c, (node_kind)look)) < 0) return -1;
        c->nodes[id].first = body;
        c->nodes[id].value = negative;
        c->nodes[id].min = (int)from;
    }
    return id;
}

static int parse_atom(compiler *c) {
    char_set s = {0};
    int ch = peek(c);
    if (ch == '(') { c->at++; return parse_group(c); }
    if (ch == '[') { c->at++; return class_node(c, &s, parse_class(c, &s)); }
    if (ch == '.') {
        c->at++;
        int failed = c->dot_all ? 0 : set_add(c, &s, '\n', '\n');
        return class_node(c, &s, failed || set_complement(c, &s));
    }
    if (accept(c, "^")) return anchor_node(c, TFM_RE_START, 0, 1);
    if (accept(c, "$")) return anchor_node(c, TFM_RE_END, 0, 1);
    if (accept(c, "\\A")) return anchor_node(c, TFM_RE_START, 0, 0);
    if (accept(c, "\\z")) return anchor_node(c, TFM_RE_END, 0, 0);
    if (accept(c, "\\b")) return bound_node(c, 0);
    if (accept(c, "\\B")) return bound_node(c, 1);
    if (ch == '?' || ch == '*' || ch == '+') return fail(c, c->at, "nothing to repeat");
    if (ch == '\\') {
        int found = parse_class_escape(c, &s);
        if (found) return class_node(c, &s, found < 0);
        c->at++;
    }
    int64_t v = ch == '\\' ? parse_escaped(c) : next_character(c);
    return class_node(c, &s, v < 0 || set_add(c, &s, (uint32_t)v, (uint32_t)v) || set_fold(c, &s));
}

/* Whether what a node matches can be empty. */
static int can_be_empty(const compiler *c, int id) {
    const node *p = &c->nodes[id];
    if (p->kind == NODE_CLASS) return 0;
    if (p->kind == NODE_REPEAT) return !p->min || can_be_empty(c, p->first);
    if (p->kind == NODE_ATOMIC) return can_be_empty(c, p->first);
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
    if (kind == NODE_LOOK || kind == NODE_BEHIND || kind == NODE_ANCHOR || kind == NODE_EMPTY) {
        return fail(c, from, "this cannot be repeated");
    }
    if (min > MAX_REPEAT || max > MAX_REPEAT) return fail(c, from, "a count above 1024");
    if (max != NO_LIMIT && max < min) return fail(c, from, "the counts run backwards");
    int id = new_node(c, NODE_REPEAT), mode = GREEDY;
    if (id < 0) return -1;
    if (accept(c, "?")) mode = LAZY;
    else if (peek(c) == '+' && !braces) { c->at++; mode = POSSESSIVE; }
    const int again = braces && mode == GREEDY && peek(c) == '+'; /* not possessive after braces: all of it, repeated */
    if (!again && strchr("?*+", peek(c)) && peek(c) > 0) return fail(c, c->at, "a quantifier on a quantifier");
    if (braces && mode == LAZY && min == max) return fail(c, from, "{n}? means something else here");
    if (max == NO_LIMIT && can_be_empty(c, atom)) {
        return fail(c, from, "this can be empty and is repeated without limit");
    }
    if (kind != NODE_CLASS && mode == POSSESSIVE) { /* the same as an atomic group around it */
        int group = new_node(c, NODE_ATOMIC);
        if (group < 0) return -1;
        c->nodes[group].min = (int)from;
        c->nodes[group].first = id;
        c->nodes[id].first = atom;
        c->nodes[id].min = min;
        c->nodes[id].max = max;
        return group;
    }
    const int simple = again && kind == NODE_CLASS && min <= 1 && max >= 1; /* (x{1,3})+ is x+ */
    if (simple) c->at++;
    c->nodes[id].first = atom;
    c->nodes[id].min = min;
    c->nodes[id].max = simple ? (int)NO_LIMIT : max;
    c->nodes[id].mode = mode;
    return again && !simple ? parse_repeat(c, id) : id;
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

/* A repeat without limit. The minimum of a single class is spelled out before its star; others loop. */
static void generate_loop(compiler *c, const node *r, int in_look) {
    const node *body = &c->nodes[r->first];
    if (in_look > 1) { fail(c, c->n, "a repetition without limit inside a look-behind or an atomic group"); return; }
    if (body->kind == NODE_CLASS && r->mode != LAZY) {
        for (int i = 0; i < r->min && !c->failed; i++) generate(c, r->first, in_look);
        put_code(c, r->mode == POSSESSIVE ? TFM_RE_RUN : TFM_RE_STAR, new_memo(c), body->value);
        return;
    }
    for (int i = 1; i < r->min && !c->failed; i++) generate(c, r->first, in_look);
    int jump = r->min ? -1 : put_code(c, TFM_RE_JUMP, 0, 0);
    const uint32_t again = (uint32_t)c->pool->n_code;
    generate(c, r->first, in_look);
    if (!c->failed) patch(c, jump);
    put_code(c, r->mode == LAZY ? TFM_RE_LOOP_LAZY : TFM_RE_LOOP, new_memo(c), again);
}

static void generate_repeat(compiler *c, const node *r, int in_look) {
    int jumps[MAX_REPEAT], n = 0;
    const node *body = &c->nodes[r->first];
    if (r->max == NO_LIMIT) { generate_loop(c, r, in_look); return; }
    for (int i = 0; i < r->min && !c->failed; i++) generate(c, r->first, in_look);
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

/* How many characters a node matches, if that is always the same number; else -1. */
static int fixed_length(const compiler *c, int id) {
    const node *p = &c->nodes[id];
    int sum = 0, n;
    switch (p->kind) {
    case NODE_CLASS: return 1;
    case NODE_REPEAT:
        n = fixed_length(c, p->first);
        return n < 0 || p->min != p->max || n * p->min > 60000 ? -1 : n * p->min;
    case NODE_ATOMIC: return fixed_length(c, p->first);
    case NODE_SEQUENCE:
        for (int child = p->first; child >= 0 && sum >= 0; child = c->nodes[child].next) {
            n = fixed_length(c, child);
            sum = n < 0 || sum > 60000 ? -1 : sum + n;
        }
        return sum;
    case NODE_ALTERNATIVES:
        sum = fixed_length(c, p->first);
        for (int child = c->nodes[p->first].next; child >= 0; child = c->nodes[child].next) {
            if (fixed_length(c, child) != sum) return -1;
        }
        return sum;
    default: return 0;
    }
}

/* An instruction with a body of its own, which ends in MATCH. */
static void generate_body(compiler *c, int op, uint32_t a, int body, int in_look) {
    int at = put_code(c, op, a, 0);
    if (++c->n_bodies > TFM_RE_MAX_BODIES) fail(c, c->n, "look-around and atomic groups are nested too deeply");
    generate(c, body, op == TFM_RE_AHEAD || op == TFM_RE_NOT_AHEAD ? (in_look > 1 ? in_look : 1) : 2);
    c->n_bodies--;
    put_code(c, TFM_RE_MATCH, 0, 0);
    if (!c->failed) patch(c, at);
}

/* Alternatives may differ in length: one of them stands before, or none of them. */
static void generate_behind(compiler *c, const node *p) {
    const node *list = &c->nodes[p->first];
    int jumps[MAX_REPEAT], n = 0;
    for (int child = list->first; child >= 0 && !c->failed; child = c->nodes[child].next) {
        const int length = fixed_length(c, child), more = c->nodes[child].next >= 0 && !p->value;
        if (length < 0) { fail(c, (size_t)p->min, "look-behind without a fixed length"); return; }
        if (n == MAX_REPEAT) { fail(c, (size_t)p->min, "too many alternatives"); return; }
        int split = more ? put_code(c, TFM_RE_SPLIT, new_memo(c), 0) : -1;
        generate_body(c, p->value ? TFM_RE_NOT_BEHIND : TFM_RE_BEHIND, (uint32_t)length, child, 2);
        if (!more) continue;
        jumps[n++] = put_code(c, TFM_RE_JUMP, 0, 0);
        if (!c->failed) patch(c, split);
    }
    while (n && !c->failed) patch(c, jumps[--n]);
}

/* A run of one class needs no body: what follows cannot take it back. */
static int is_run(const compiler *c, int id) {
    const node *p = &c->nodes[id];
    if (p->kind == NODE_ALTERNATIVES || p->kind == NODE_SEQUENCE) {
        return p->first >= 0 && c->nodes[p->first].next < 0 ? is_run(c, p->first) : -1;
    }
    if (p->kind != NODE_REPEAT || p->max != NO_LIMIT || p->mode == LAZY) return -1;
    return c->nodes[p->first].kind == NODE_CLASS ? id : -1;
}
static void generate_atomic(compiler *c, const node *p, int in_look) {
    const int run = is_run(c, p->first);
    if (run < 0 || in_look) { generate_body(c, TFM_RE_ATOMIC, 0, p->first, in_look); return; }
    c->nodes[run].mode = POSSESSIVE;
    generate(c, run, 0);
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
    if (c->failed) return;
    if (++c->n_visits > MAX_VISITS) fail(c, c->n, "the expression is too large");
    if (++c->level > MAX_LEVELS) fail(c, c->n, "the expression is nested too deeply");
    switch (c->failed ? NODE_EMPTY : p->kind) {
    case NODE_EMPTY: break;
    case NODE_CLASS: put_code(c, TFM_RE_CLASS, 0, p->value); break;
    case NODE_ANCHOR: put_code(c, (int)(p->value & 255), p->value >> 8 & 255, p->value >> 16); break;
    case NODE_SEQUENCE:
        for (int child = p->first; child >= 0; child = c->nodes[child].next) generate(c, child, in_look);
        break;
    case NODE_ALTERNATIVES: generate_alternatives(c, p, in_look); break;
    case NODE_REPEAT: generate_repeat(c, p, in_look); break;
    case NODE_BEHIND: generate_behind(c, p); break;
    case NODE_ATOMIC: generate_atomic(c, p, in_look); break;
    default: generate_body(c, p->value ? TFM_RE_NOT_AHEAD : TFM_RE_AHEAD, 0, p->first, in_look); break; /* NODE_LOOK */
    }
    c->level--;
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
