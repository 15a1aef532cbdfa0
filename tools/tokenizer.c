/* tokenizer.c - the writer of the tokenizer section; see tokenizer_build.h. Its form is specified in [B10] of tfm.h. */
#include "tokenizer_build.h"

#include <stdlib.h>
#include <string.h>

const char tok_gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* ---- filling the description ------------------------------------------------------------------------------------- */

void build_begin(tokenizer_build *b, arena *a, const char *file, int64_t n_rows, tok_section *out, tfm_error *err) {
    memset(b, 0, sizeof *b);
    memset(out, 0, sizeof *out);
    b->a = a;
    b->file = file;
    b->n_rows = n_rows;
    b->out = out;
    b->err = err;
    b->unk = b->word_class = TOK_NONE;
    b->grow_mul = 3;
    b->grow_good = b->grow_bad = 1;
    memset(b->byte_ids, 0xFF, sizeof b->byte_ids);
    out->bos = out->eos = out->unk = -1;
}

void build_warn(tokenizer_build *b, const char *line) {
    if (line && b->out->n_warnings < 8) b->out->warnings[b->out->n_warnings++] = line;
}

static int out_of_memory(tokenizer_build *b) {
    return tool_fail(b->err, TFM_ERR_MEMORY, "%s: out of memory", b->file);
}

static const char *piece_name(const void *table, uint32_t entry, size_t *length) {
    const tok_piece *p = (const tok_piece *)table + entry;
    *length = p->name_length;
    return p->name;
}

int build_ids(tokenizer_build *b, int64_t n, size_t n_names) {
    if (b->n_rows > 0 && n > b->n_rows) {
        return tool_fail(b->err, TFM_ERR_FORMAT, "%s: token id %lld lies past the %lld rows of the embedding", b->file,
                         (long long)n - 1, (long long)b->n_rows);
    }
    if (n > INT32_MAX - 1 || (b->n_rows <= 0 && (uint64_t)n > 4 * (uint64_t)n_names + 65536)) {
        return tool_fail(b->err, TFM_ERR_FORMAT, "%s: token id %lld is far above the number of tokens, %lld", b->file,
                         (long long)n - 1, (long long)n_names);
    }
    if (b->n_rows > INT32_MAX - 1) return tool_fail(b->err, TFM_ERR_FORMAT, "%s: too many rows", b->file);
    b->n_ids = (uint32_t)(b->n_rows > 0 ? b->n_rows : n);
    b->pieces = (tok_piece *)arena_array(b->a, (size_t)b->n_ids + 1, sizeof *b->pieces);
    if (!b->pieces || name_index_init(&b->names, b->a, n_names, piece_name)) return out_of_memory(b);
    return TFM_OK;
}

int build_piece(tokenizer_build *b, int64_t id, const char *name, size_t length) {
    uint32_t other;
    if (id < 0 || id >= (int64_t)b->n_ids || length >= 1u << 24) {
        return tool_fail(b->err, TFM_ERR_FORMAT, "%s: token id %lld is out of range", b->file, (long long)id);
    }
    tok_piece *p = &b->pieces[id];
    if (p->name) {
        return tool_fail(b->err, TFM_ERR_FORMAT, "%s: token id %lld belongs to \"%s\" and to \"%s\"", b->file,
                         (long long)id,
                         p->name, name);
    }
    p->name = p->text = name;
    p->name_length = p->length = (uint32_t)length;
    p->flags = TFM_TOKEN_PRESENT;
    int code = name_index_add(&b->names, b->pieces, (uint32_t)id, &other);
    if (code == 1) {
        return tool_fail(b->err, TFM_ERR_FORMAT, "%s: token \"%s\" has the ids %u and %lld", b->file, name,
                         (unsigned)other,
                         (long long)id);
    }
    return code ? tool_fail(b->err, TFM_ERR_FORMAT, "%s: the names of its tokens collide", b->file) : TFM_OK;
}

uint32_t build_find(const tokenizer_build *b, const char *name, size_t length) {
    uint32_t id = name_index_find(&b->names, b->pieces, name, length);
    return id == NAME_ABSENT ? TOK_NONE : id;
}

const char *build_unmark(tokenizer_build *b, const char *text, size_t n, uint32_t *length) {
    char *out = arena_strndup(b->a, text, n);
    size_t m = 0;
    if (!out) return NULL;
    for (size_t i = 0; i < n; m++) {
        int mark = n - i >= 3 && memcmp(text + i, TOK_SPACE_MARK, 3) == 0;
        out[m] = mark ? ' ' : text[i];
        i += mark ? 3 : 1;
    }
    out[m] = 0;
    *length = (uint32_t)m;
    return out;
}

int build_spelled_byte(const char *name, size_t length) {
    int v = 0;
    if (length != 6 || memcmp(name, "<0x", 3) != 0 || name[5] != '>') return -1;
    for (int i = 3; i < 5; i++) {
        int c = (unsigned char)name[i], lower = c | 32;
        if (c >= '0' && c <= '9') v = v * 16 + c - '0';
        else if (lower >= 'a' && lower <= 'f') v = v * 16 + lower - 'a' + 10;
        else return -1;
    }
    return v;
}

int build_add_merge(tokenizer_build *b, uint32_t left, uint32_t right, uint32_t rank, uint32_t result) {
    tok_merge *p = (tok_merge *)array_grow(b->merges, &b->cap_merges, b->n_merges + 1, sizeof *p);
    if (!p) return out_of_memory(b);
    b->merges = p;
    p += b->n_merges++;
    p->left = left;
    p->right = right;
    p->rank = rank;
    p->result = result;
    return TFM_OK;
}

int build_add_token(tokenizer_build *b, const tok_added *token) {
    tok_added *p = (tok_added *)array_grow(b->added, &b->cap_added, b->n_added + 1, sizeof *p);
    if (!p) return out_of_memory(b);
    b->added = p;
    p[b->n_added++] = *token;
    return TFM_OK;
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

int build_op(tokenizer_build *b, uint32_t kind, uint32_t x, uint32_t y, uint32_t z) {
    if (b->n_ops == TFM_TOK_MAX_OPS) {
        return tool_fail(b->err, TFM_ERR_UNSUPPORTED, "%s: normalizer and pre_tokenizer have more than %d parts",
                         b->file,
                         TFM_TOK_MAX_OPS);
    }
    uint32_t *op = b->ops[b->n_ops++];
    op[0] = kind;
    op[1] = x;
    op[2] = y;
    op[3] = z;
    op[4] = op[5] = 0;
    return TFM_OK;
}

int build_string(tokenizer_build *b, const char *text, size_t n, uint32_t *at) {
    char *p = (char *)array_grow(b->strings, &b->cap_strings, b->n_strings + n + 1, 1);
    if (!p) return out_of_memory(b);
    b->strings = p;
    memcpy(p + b->n_strings, text, n);
    *at = (uint32_t)b->n_strings;
    b->n_strings += n;
    return TFM_OK;
}

static int too_long(tokenizer_build *b) {
    return tool_fail(b->err, TFM_ERR_UNSUPPORTED, "%s: its normalizer makes the text too long", b->file);
}

/* Notes that an operation may lengthen a text by a factor, a bad byte's U+FFFD by another. */
static int grow_by(tokenizer_build *b, double good, double bad) {
    if (good < 1) good = 1;
    if (bad < 1) bad = 1;
    b->grow_good *= good;
    b->grow_bad *= bad;
    b->grow_add = (uint64_t)((double)b->grow_add * good) + (good > 1);
    return b->grow_good > 1000 || b->grow_bad > 1000 || b->grow_add > 60000 ? too_long(b) : TFM_OK;
}

int build_replace(tokenizer_build *b, const char *from, size_t n_from, const char *to, size_t n_to) {
    uint32_t x, z;
    if (!n_from || n_from > 255 || n_to > 255) {
        return tool_fail(b->err, TFM_ERR_UNSUPPORTED, "%s: a Replace is empty or longer than 255 bytes", b->file);
    }
    int code = build_string(b, from, n_from, &x);
    if (!code) code = build_string(b, to, n_to, &z);
    if (code) return code;
    uint64_t growth = n_to > n_from ? (n_to + n_from - 1) / n_from : 1;
    b->grow_mul *= growth;
    b->grow_add *= growth;
    if (b->grow_mul > 3000 || b->grow_add > 60000) return too_long(b);
    return build_op(b, TFM_TOK_REPLACE, x, (uint32_t)n_from | (uint32_t)n_to << 16, z);
}

int build_prepend(tokenizer_build *b, const char *text, size_t n, uint32_t when) {
    uint32_t at;
    if (n > 255) return tool_fail(b->err, TFM_ERR_UNSUPPORTED, "%s: a Prepend is longer than 255 bytes", b->file);
    int code = build_string(b, text, n, &at);
    b->grow_add += n;
    return code ? code : build_op(b, TFM_TOK_PREPEND, at, (uint32_t)n, when);
}

int build_split(tokenizer_build *b, const char *where, const char *pattern, size_t n, int is_regex,
                uint32_t behaviour) {
    uint32_t start, n_memo;
    int code = is_regex ? regex_compile(&b->expressions, where, pattern, n, &start, &n_memo, b->err)
                        : regex_literal(&b->expressions, where, pattern, n, &start, &n_memo, b->err);
    return code ? code : build_op(b, TFM_TOK_SPLIT, start, behaviour, n_memo);
}

int build_rewrite(tokenizer_build *b, const char *where, const char *pattern, size_t n, const char *to, size_t n_to) {
    uint32_t start, n_memo, at;
    int code = regex_compile(&b->expressions, where, pattern, n, &start, &n_memo, b->err);
    if (!code && n_to > 255) {
        code = tool_fail(b->err, TFM_ERR_UNSUPPORTED, "%s: a Replace is longer than 255 bytes", b->file);
    }
    if (!code) code = build_string(b, to, n_to, &at);
    /* an empty match may come before every character and at the end */
    if (!code) code = grow_by(b, (double)n_to + 1, (double)n_to + 1);
    b->grow_add += n_to;
    if (!code) code = build_op(b, TFM_TOK_REWRITE, start, at, (uint32_t)n_to);
    if (!code) b->ops[b->n_ops - 1][4] = n_memo;
    return code;
}

int build_byte_chars(tokenizer_build *b) {
    int code = grow_by(b, 2, 2);
    return code ? code : build_op(b, TFM_TOK_BYTE_CHARS, 0, 0, 0);
}

/* Appends rows; *first is the place of the first. */
static int put_rows(tokenizer_build *b, const unicode_map *map, uint32_t *first) {
    uint32_t strings = 0;
    int code = map->n_strings ? build_string(b, (const char *)map->strings, map->n_strings, &strings) : TFM_OK;
    if (code) return code;
    uint32_t *rows = (uint32_t *)array_grow(b->maps, &b->cap_maps, 4 * (b->n_maps + map->n_rows), sizeof *rows);
    if (!rows) return out_of_memory(b);
    b->maps = rows;
    rows += 4 * b->n_maps;
    memcpy(rows, map->rows, map->n_rows * 4 * sizeof *rows);
    for (size_t i = 0; i < map->n_rows; i++) {
        const uint32_t action = rows[4 * i + 2] & 255;
        if (action == TFM_TOK_MAP_STRING || action == TFM_TOK_MAP_AROUND) rows[4 * i + 3] += strings;
    }
    *first = (uint32_t)b->n_maps;
    b->n_maps += map->n_rows;
    return TFM_OK;
}

int build_map(tokenizer_build *b, uint32_t kind, const unicode_map *map, double growth) {
    uint32_t first;
    int code = put_rows(b, map, &first);
    if (!code) code = grow_by(b, growth, 1);
    return code ? code : build_op(b, kind, first, (uint32_t)map->n_rows, 0);
}

/* Normal forms make at most 3 bytes of one, with compatibility 11 (UAX 15). */
int build_form(tokenizer_build *b, int compatibility, int composed) {
    const unicode_map map = unicode_map_of(UNICODE_COMPATIBILITY);
    int code = compatibility ? build_map(b, TFM_TOK_MAP, &map, 11) : grow_by(b, 3, 1);
    return code ? code : build_op(b, composed ? TFM_TOK_NFC : TFM_TOK_NFD, 0, 0, 0);
}

/* ---- precompiled maps -------------------------------------------------------------------------------------------- */

typedef struct charsmap {
    const unsigned char *units;
    size_t n_units, n_texts, steps;
    const char *texts;
    double ratio, bad; /* bytes made of one; of the three of U+FFFD */
} charsmap;

static uint32_t unit_below(uint32_t node, uint32_t unit) { return node ^ (unit >> 10 << ((unit & 512) >> 6)); }

/* Follows every key; depth bytes of one lie behind. Returns 0 if the map is damaged. */
static int charsmap_walk(charsmap *m, uint32_t node, unsigned depth, int is_fffd) {
    static const unsigned char fffd[] = {0xEF, 0xBF, 0xBD};
    if (depth > 64 || m->steps++ > (size_t)1 << 22) return 0;
    for (uint32_t c = 1; c < 256; c++) {
        const uint32_t next = node ^ c, unit = next < m->n_units ? load_u32(m->units + 4 * (size_t)next) : 0;
        const int here = is_fffd && depth < 3 && c == fffd[depth];
        if (next >= m->n_units || (unit & 0x800000FFu) != c) continue;
        const uint32_t below = unit_below(next, unit);
        if (unit >> 8 & 1) {
            const uint32_t at = below < m->n_units ? load_u32(m->units + 4 * (size_t)below) & 0x7FFFFFFF : UINT32_MAX;
            if (at >= m->n_texts || !memchr(m->texts + at, 0, m->n_texts - at)) return 0;
            const size_t length = strlen(m->texts + at);
            const double ratio = (double)length / (depth + 1);
            m->steps += length / 64; /* long texts may be shared by many keys */
            if (ratio > m->ratio) m->ratio = ratio;
            if (here && ratio > m->bad) m->bad = ratio;
        }
        if (!charsmap_walk(m, below, depth + 1, here)) return 0;
    }
    return 1;
}

int build_charsmap(tokenizer_build *b, const char *bytes, size_t n, int clusters) {
    charsmap m = {0};
    uint32_t at, first = 0;
    const unicode_map groups = unicode_map_of(UNICODE_CLUSTERS);
    const size_t unit_bytes = n >= 4 ? load_u32(bytes) : 0;
    if (n >= 4 && unit_bytes % 4 == 0 && unit_bytes && unit_bytes <= n - 4) {
        m.units = (const unsigned char *)bytes + 4;
        m.n_units = unit_bytes / 4;
        m.texts = bytes + 4 + unit_bytes;
        m.n_texts = n - 4 - unit_bytes;
    }
    if (!m.units || !charsmap_walk(&m, unit_below(0, load_u32(m.units)), 0, 1)) {
        return tool_fail(b->err, TFM_ERR_FORMAT, "%s: its precompiled character map is damaged", b->file);
    }
    int code = build_string(b, bytes, n, &at);
    if (!code && clusters) code = put_rows(b, &groups, &first);
    if (!code) code = grow_by(b, m.ratio, m.bad);
    if (!code) code = build_op(b, TFM_TOK_CHARSMAP, at, (uint32_t)n, first);
    if (!code) b->ops[b->n_ops - 1][4] = clusters ? (uint32_t)groups.n_rows : 0;
    return code;
}

/* ---- merges from scores ------------------------------------------------------------------------------------------ */

static int by_score(const void *x, const void *y) { /* best first */
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? 1 : a > b ? -1 : 0;
}

static uint32_t rank_of(const double *scores, size_t n, double score) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (scores[mid] > score) low = mid + 1;
        else high = mid;
    }
    return (uint32_t)low;
}

/* Every cut of piece id at a character into two pieces that the model can make. Returns how many there were, or the
 * error, which is below 0. */
static int cut_piece(tokenizer_build *b, uint32_t id, uint32_t rank) {
    enum { LONGEST = 4096 }; /* the time is quadratic in it */
    const tok_piece *p = &b->pieces[id];
    int n = 0;
    if (p->name_length > LONGEST) {
        return tool_fail(b->err, TFM_ERR_UNSUPPORTED,
                         "%s: token %u has %u bytes, at most %d are supported", b->file, (unsigned)id,
                         (unsigned)p->name_length, (int)LONGEST);
    }
    for (uint32_t i = 1; i < p->name_length; i++) {
        if (((unsigned char)p->name[i] & 0xC0) == 0x80) continue;
        uint32_t left = build_find(b, p->name, i), right = build_find(b, p->name + i, p->name_length - i);
        if (left == TOK_NONE || right == TOK_NONE || !b->pieces[left].reachable ||
            !b->pieces[right].reachable) continue;
        const int code = build_add_merge(b, left, right, rank, id);
        if (code) return code;
        n++;
    }
    return n;
}

static int one_character(const char *text, uint32_t n) {
    for (uint32_t i = 1; i < n; i++) if (((unsigned char)text[i] & 0xC0) != 0x80) return 0;
    return 1;
}

int build_merges_from_scores(tokenizer_build *b) {
    size_t n = 0;
    int64_t stranded = 0;
    double *scores = (double *)arena_array(b->a, (size_t)b->n_ids + 1, sizeof *scores);
    if (!scores) return out_of_memory(b);
    for (uint32_t id = 0; id < b->n_ids; id++) {
        if (!b->pieces[id].name || !b->pieces[id].reachable) continue;
        if (b->pieces[id].score != b->pieces[id].score) {
            return tool_fail(b->err, TFM_ERR_FORMAT, "%s: the score of token %u is not a number", b->file,
                             (unsigned)id);
        }
        scores[n++] = b->pieces[id].score;
    }
    qsort(scores, n, sizeof *scores, by_score);
    size_t m = 0;
    for (size_t i = 0; i < n; i++) if (!i || scores[i] != scores[i - 1]) scores[m++] = scores[i];
    for (uint32_t id = 0; id < b->n_ids; id++) {
        const tok_piece *p = &b->pieces[id];
        if (!p->name || !p->reachable || one_character(p->name, p->name_length)) continue;
        int cuts = cut_piece(b, id, rank_of(scores, m, p->score));
        if (cuts < 0) return cuts;
        stranded += cuts == 0;
    }
    if (!b->n_merges) return tool_fail(b->err, TFM_ERR_FORMAT, "%s: no two of its pieces make a third one", b->file);
    if (stranded > (int64_t)b->n_ids / 100) { /* a few are always matched as a whole or never wanted */
        build_warn(b, arena_printf(b->a, "%s: %lld pieces can never be made of smaller ones", b->file,
                                   (long long)stranded));
    }
    return TFM_OK;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

typedef struct blob {
    uint8_t *data;
    size_t n, cap;
    int failed;
} blob;

static uint8_t *blob_take(blob *o, size_t n) {
    uint8_t *p = o->failed || o->n + n > UINT32_MAX ? NULL : (uint8_t *)array_grow(o->data, &o->cap, o->n + n + 1, 1);
    if (!p) { o->failed = 1; return NULL; }
    o->data = p;
    memset(p + o->n, 0, n);
    o->n += n;
    return p + o->n - n;
}
static void store_u32(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> 8 * i);
}
static uint32_t *blob_words(blob *o, size_t n) { return (uint32_t *)(void *)blob_take(o, 4 * n); }

/* Begins a table of `count` entries, 16-byte aligned; the head is at the blob's start. */
static uint8_t *begin_table(blob *o, int table, size_t count, size_t entry) {
    if (!blob_take(o, (0 - o->n) & 15)) return NULL;
    size_t at = o->n;
    uint8_t *p = blob_take(o, count * entry);
    if (!p) return NULL;
    store_u32(o->data + 4 * (TFM_TOK_TABLES + 2 * table), (uint32_t)at);
    store_u32(o->data + 4 * (TFM_TOK_TABLES + 2 * table + 1), (uint32_t)count);
    return o->data + at;
}
static void write_words(blob *o, int table, const uint32_t *words, size_t count, size_t per_entry) {
    uint8_t *p = begin_table(o, table, count, 4 * per_entry);
    for (size_t i = 0; p && i < count * per_entry; i++) store_u32(p + 4 * i, words[i]);
}
static void write_bytes(blob *o, int table, const void *bytes, size_t count, size_t entry) {
    uint8_t *p = begin_table(o, table, count, entry);
    if (p && count) memcpy(p, bytes, count * entry);
}

/* The two hash functions of tfm.h. */
static uint32_t piece_hash(const char *text, uint32_t n) {
    const unsigned char *p = (const unsigned char *)text;
    uint32_t h = 0x9E3779B1u ^ n;
    for (; n >= 4; p += 4, n -= 4) {
        h = (h ^ load_u32(p)) * 0x85EBCA6Bu;
        h ^= h >> 15;
    }
    for (; n; p++, n--) h = (h ^ *p) * 0xC2B2AE35u;
    h ^= h >> 15;
    h *= 0x27D4EB2Fu;
    return h ^ h >> 16;
}
static uint32_t pair_hash(uint32_t left, uint32_t right) {
    uint32_t h = left * 0x9E3779B1u + right * 0x85EBCA77u;
    h ^= h >> 15;
    h *= 0x2C1B3C6Du;
    return h ^ h >> 16;
}

/* A hash table of entries of `words` words. Fills `slots` (cap of them; key_word of a free one is empty); 0 if an entry
 * would lie too far from its place. */
static int fill_slots(uint32_t *slots, size_t cap, uint32_t words, uint32_t key_word, uint32_t empty,
                      const uint32_t *entries,
                      const uint32_t *hashes, size_t n) {
    for (size_t i = 0; i < cap; i++) slots[i * words + key_word] = empty;
    for (size_t i = 0; i < n; i++) {
        size_t slot = (size_t)((uint64_t)hashes[i] * cap >> 32), probes = 1;
        for (; slots[slot * words + key_word] != empty; probes++) {
            if (probes == TFM_TOK_PROBES) return 0;
            if (++slot == cap) slot = 0;
        }
        memcpy(slots + slot * words, entries + i * words, words * sizeof *slots);
    }
    return 1;
}
static int write_hash(tokenizer_build *b, blob *o, int table, uint32_t words, uint32_t key_word, uint32_t empty,
                      const uint32_t *entries, const uint32_t *hashes, size_t n) {
    for (size_t cap = n + n / 3 + 2; cap <= 64 * n + 1024; cap += cap / 4) {
        uint32_t *slots = (uint32_t *)calloc(cap, words * sizeof *slots);
        if (!slots) return out_of_memory(b);
        int ok = fill_slots(slots, cap, words, key_word, empty, entries, hashes, n);
        if (ok) write_words(o, table, slots, cap, words);
        free(slots);
        if (ok) return TFM_OK;
    }
    return tool_fail(b->err, TFM_ERR_FORMAT, "%s: the names of its tokens collide", b->file);
}

/* Texts of all pieces as a pair of tables: where each ends, and bytes. which: 0 what the model sees, 1 what they print,
 * 2 at the start. Notes the longest. */
static const char *piece_string(const tok_piece *p, int which, uint32_t *n) {
    if (which == 2 && p->first) { *n = p->n_first; return p->first; }
    if (which && p->print) { *n = p->n_print; return p->print; }
    *n = p->length;
    return p->text;
}
static int write_strings(tokenizer_build *b, blob *o, int table, int which, uint32_t *longest) {
    size_t total = 0;
    uint32_t n, *ends = (uint32_t *)arena_array(b->a, (size_t)b->n_ids + 1, 4);
    if (!ends) return out_of_memory(b);
    for (uint32_t id = 0; id < b->n_ids; id++) {
        piece_string(&b->pieces[id], which, &n);
        if (n > *longest) *longest = n;
        total += n;
        ends[id + 1] = (uint32_t)total;
    }
    write_words(o, table, ends, (size_t)b->n_ids + 1, 1);
    uint8_t *bytes = begin_table(o, table + 1, total, 1);
    for (uint32_t id = 0; bytes && id < b->n_ids; id++) {
        const char *text = piece_string(&b->pieces[id], which, &n);
        if (n) memcpy(bytes + ends[id], text, n);
    }
    return TFM_OK;
}

static int write_pieces(tokenizer_build *b, blob *o, uint32_t *max_piece, uint32_t *max_text) {
    size_t n = 0;
    int prints = 0, starts = 0;
    uint32_t *entries = (uint32_t *)arena_array(b->a, (size_t)b->n_ids + 1, 8);
    uint32_t *hashes = (uint32_t *)arena_array(b->a, (size_t)b->n_ids + 1, 4);
    if (!entries || !hashes) return out_of_memory(b);
    for (uint32_t id = 0; id < b->n_ids; id++) {
        const tok_piece *p = &b->pieces[id];
        prints |= p->print != NULL;
        starts |= p->first != NULL;
        if (!p->reachable || !p->length) continue;
        entries[2 * n] = hashes[n] = piece_hash(p->text, p->length);
        entries[2 * n + 1] = id + 1;
        n++;
    }
    int code = write_strings(b, o, TFM_TOK_ENDS, 0, max_piece);
    *max_text = *max_piece;
    if (!code && prints) code = write_strings(b, o, TFM_TOK_TEXT_ENDS, 1, max_text);
    if (!code && starts) code = write_strings(b, o, TFM_TOK_FIRST_ENDS, 2, max_text);
    uint8_t *flags = begin_table(o, TFM_TOK_PIECE_FLAGS, b->n_ids, 1);
    for (uint32_t id = 0; flags && id < b->n_ids; id++) flags[id] = (uint8_t)b->pieces[id].flags;
    return code ? code : write_hash(b, o, TFM_TOK_HASH, 2, 1, 0, entries, hashes, n);
}

static int by_pair(const void *x, const void *y) {
    const tok_merge *a = (const tok_merge *)x, *b = (const tok_merge *)y;
    if (a->left != b->left) return a->left < b->left ? -1 : 1;
    if (a->right != b->right) return a->right < b->right ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static int write_merges(tokenizer_build *b, blob *o) {
    uint32_t *entries = (uint32_t *)arena_array(b->a, b->n_merges + 1, 16);
    uint32_t *hashes = (uint32_t *)arena_array(b->a, b->n_merges + 1, 4);
    if (!entries || !hashes) return out_of_memory(b);
    if (b->n_merges) qsort(b->merges, b->n_merges, sizeof *b->merges, by_pair);
    size_t n = 0;
    for (size_t i = 0; i < b->n_merges; i++) {
        const tok_merge *m = &b->merges[i];
        if (n && entries[4 * n - 4] == m->left && entries[4 * n - 3] == m->right) {
            if (b->last_merge_wins) entries[4 * n - 2] = m->rank;
            continue;
        }
        hashes[n] = pair_hash(m->left, m->right);
        entries[4 * n] = m->left;
        entries[4 * n + 1] = m->right;
        entries[4 * n + 2] = m->rank;
        entries[4 * n + 3] = m->result;
        n++;
    }
    return write_hash(b, o, TFM_TOK_MERGES, 4, 0, TOK_NONE, entries, hashes, n);
}

/* ---- the trie of added tokens ------------------------------------------------------------------------------------ */

typedef struct trie_text {
    const unsigned char *text;
    uint32_t n, added;
} trie_text;

static int by_text(const void *x, const void *y) {
    const trie_text *a = (const trie_text *)x, *b = (const trie_text *)y;
    int order = memcmp(a->text, b->text, a->n < b->n ? a->n : b->n);
    if (order) return order;
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    return a->added < b->added ? -1 : a->added > b->added;
}

typedef struct trie_range {
    size_t low, high; /* texts that share their first `depth` bytes */
    uint32_t depth;
} trie_range;

/* Nodes in breadth-first order, so that children lie one after the other. */
static int write_trie(tokenizer_build *b, blob *o, int root_table, const trie_text *texts, size_t n) {
    size_t most = 2, n_nodes = 1;
    uint32_t root[256] = {0};
    for (size_t i = 0; i < n; i++) most += texts[i].n;
    if (most >= 1u << 24) {
        return tool_fail(b->err, TFM_ERR_UNSUPPORTED, "%s: its tokens are too many or too long", b->file);
    }
    trie_range *ranges = (trie_range *)arena_array(b->a, most, sizeof *ranges);
    uint32_t *nodes = (uint32_t *)arena_array(b->a, most, 8);
    if (!ranges || !nodes) return out_of_memory(b);
    ranges[0].high = n;
    for (size_t k = 0; k < n_nodes; k++) {
        size_t i = ranges[k].low;
        uint32_t depth = ranges[k].depth;
        for (; i < ranges[k].high && texts[i].n == depth; i++) if (!nodes[2 * k + 1]) nodes[2 * k + 1] =
            texts[i].added + 1;
        nodes[2 * k] |= (uint32_t)n_nodes;
        while (i < ranges[k].high) {
            unsigned char byte = texts[i].text[depth];
            ranges[n_nodes].low = i;
            ranges[n_nodes].depth = depth + 1;
            while (i < ranges[k].high && texts[i].text[depth] == byte) i++;
            ranges[n_nodes].high = i;
            nodes[2 * n_nodes] = (uint32_t)byte << 24;
            if (!k) root[byte] = (uint32_t)n_nodes;
            n_nodes++;
        }
    }
    nodes[2 * n_nodes] = (uint32_t)n_nodes;
    write_words(o, root_table, root, n ? 256 : 0, 1);
    write_words(o, root_table + 1, nodes, n ? n_nodes + 1 : 0, 2);
    return TFM_OK;
}

static int write_added(tokenizer_build *b, blob *o, uint32_t *max_added) {
    uint32_t *entries = (uint32_t *)arena_array(b->a, b->n_added + 1, 8);
    trie_text *texts = (trie_text *)arena_array(b->a, b->n_added + 1, sizeof *texts);
    if (!entries || !texts) return out_of_memory(b);
    *max_added = 0;
    for (size_t i = 0; i < b->n_added; i++) {
        const tok_added *t = &b->added[i];
        entries[2 * i] = t->id;
        entries[2 * i + 1] = t->flags;
        if (t->match_length > *max_added) *max_added = t->match_length;
        if (t->match_length > 65536) {
            return tool_fail(b->err, TFM_ERR_UNSUPPORTED, "%s: an added token is too long", b->file);
        }
    }
    write_words(o, TFM_TOK_ADDED, entries, b->n_added, 2);
    for (int normalized = 0; normalized < 2; normalized++) {
        size_t n = 0;
        for (size_t i = 0; i < b->n_added; i++) {
            if (b->added[i].normalized != normalized || !b->added[i].match_length) continue;
            texts[n].text = (const unsigned char *)b->added[i].match;
            texts[n].n = b->added[i].match_length;
            texts[n++].added = (uint32_t)i;
        }
        if (n) qsort(texts, n, sizeof *texts, by_text);
        int code = write_trie(b, o, normalized ? TFM_TOK_ROOT_NORM : TFM_TOK_ROOT_RAW, texts, n);
        if (code) return code;
    }
    return TFM_OK;
}

/* Scores, and the trie of the pieces. */
static int write_unigram(tokenizer_build *b, blob *o) {
    trie_text *texts = (trie_text *)arena_array(b->a, (size_t)b->n_ids + 1, sizeof *texts);
    uint32_t *scores = (uint32_t *)arena_array(b->a, (size_t)b->n_ids + 1, 8);
    size_t n = 0;
    if (!texts || !scores) return out_of_memory(b);
    for (uint32_t id = 0; id < b->n_ids; id++) {
        const tok_piece *p = &b->pieces[id];
        uint64_t bits;
        if (p->score != p->score) {
            return tool_fail(b->err, TFM_ERR_FORMAT, "%s: the score of token %u is not a number", b->file,
                             (unsigned)id);
        }
        memcpy(&bits, &p->score, 8);
        scores[2 * id] = (uint32_t)bits;
        scores[2 * id + 1] = (uint32_t)(bits >> 32);
        if (!p->reachable || !p->length) continue;
        texts[n].text = (const unsigned char *)p->text;
        texts[n].n = p->length;
        texts[n++].added = id;
    }
    if (n) qsort(texts, n, sizeof *texts, by_text);
    write_words(o, TFM_TOK_SCORES, scores, b->n_ids, 2);
    return write_trie(b, o, TFM_TOK_ROOT_PIECES, texts, n);
}

/* ---- short cuts -------------------------------------------------------------------------------------------------- */

/* The bytes after which a merge may have a space. Returns 0 if words may not be cut at spaces at all. */
static int bytes_before_spaces(const tokenizer_build *b, uint32_t joins[8]) {
    int has_space = 0;
    memset(joins, 0, 8 * sizeof *joins);
    if (!b->spaces || b->ignore_merges || b->model != TFM_TOK_BPE || b->n_inner || b->n_final) return 0;
    for (uint32_t id = 0; id < b->n_ids; id++) {
        has_space |= b->pieces[id].reachable && b->pieces[id].length == 1 && b->pieces[id].text[0] == ' ';
    }
    for (size_t i = 0; i < b->n_merges; i++) {
        const tok_piece *left = &b->pieces[b->merges[i].left], *right = &b->pieces[b->merges[i].right];
        if (!left->length || !right->length || right->text[0] != ' ') continue;
        unsigned char last = (unsigned char)left->text[left->length - 1];
        joins[last >> 5] |= 1u << (last & 31);
    }
    return has_space;
}

/* Marks the pieces that their own text is encoded as, by encoding it with a section that has the model alone. */
static int mark_whole_words(tokenizer_build *b, blob *o) {
    const tfm_tokenizer *t;
    uint64_t mem[64];
    int32_t ids[2];
    int64_t n_ids;
    size_t longest = 256;
    blob bare = {0};
    if (b->model != TFM_TOK_BPE || ((b->n_inner || b->n_final) && !b->ignore_merges)) return TFM_OK;
    if (tfm_tokenizer_size() > sizeof mem || !blob_take(&bare, o->n)) return out_of_memory(b);
    memcpy(bare.data, o->data, o->n);
    for (int table = 0; table < TFM_TOK_N_TABLES; table++) {
        int model = table <= TFM_TOK_MERGES;
        if (!model) store_u32(bare.data + 4 * (TFM_TOK_TABLES + 2 * table + 1), 0);
    }
    store_u32(bare.data + 4 * TFM_TOK_N_NORM, 0);
    store_u32(bare.data + 4 * (TFM_TOK_INNER + 1), 0);
    store_u32(bare.data + 4 * (TFM_TOK_FINAL + 1), 0);
    store_u32(bare.data + 4 * TFM_TOK_WORD_CLASS, TOK_NONE);
    store_u32(bare.data + 4 * TFM_TOK_FLAGS,
              b->flags & (TFM_TOK_BYTE_LEVEL | TFM_TOK_BYTE_FALLBACK | TFM_TOK_FUSE_UNK));
    int code = tfm_tokenizer_open(bare.data, bare.n, mem, sizeof mem, &t, b->err);
    size_t room = code ? 0 : tfm_encode_size(t, longest);
    void *scratch = room ? malloc(room) : NULL;
    if (!code && !scratch) code = out_of_memory(b);
    uint8_t *flags = o->data + load_u32(o->data + 4 * (TFM_TOK_TABLES + 2 * TFM_TOK_PIECE_FLAGS));
    for (uint32_t id = 0; !code && id < b->n_ids; id++) {
        const tok_piece *p = &b->pieces[id];
        if (!p->reachable || !p->length || (p->length > longest && !b->ignore_merges)) continue;
        int whole = b->ignore_merges || (tfm_encode(t, p->text, p->length, 0, ids, 2, &n_ids, scratch, room,
                                                    NULL) == TFM_OK &&
                                         n_ids == 1 && ids[0] == (int32_t)id);
        if (whole) flags[id] |= TFM_TOK_PIECE_WHOLE;
    }
    free(scratch);
    free(bare.data);
    return code;
}

/* ---- the section ------------------------------------------------------------------------------------------------- */

static void write_head(tokenizer_build *b, blob *o, uint32_t max_piece, uint32_t max_text, uint32_t max_added) {
    uint32_t words[TFM_TOK_TABLES] = {0};
    const uint64_t bad = b->grow_mul * (uint64_t)(b->grow_bad + 0.999);
    const uint64_t good = b->grow_mul / 3 * (uint64_t)(b->grow_good + 0.999);
    uint64_t bits;
    memcpy(&bits, &b->unk_score, 8);
    words[TFM_TOK_FORM] = 2;
    words[TFM_TOK_SIZE] = (uint32_t)o->n;
    words[TFM_TOK_FLAGS] = b->flags;
    words[TFM_TOK_MODEL] = b->model;
    words[TFM_TOK_N_IDS] = b->n_ids;
    words[TFM_TOK_UNK] = b->unk;
    words[TFM_TOK_MAX_PIECE] = max_piece;
    words[TFM_TOK_MAX_TEXT] = max_text;
    words[TFM_TOK_MAX_ADDED] = max_added;
    words[TFM_TOK_GROW_MUL] = (uint32_t)(good > bad ? good : bad);
    words[TFM_TOK_GROW_ADD] = (uint32_t)b->grow_add;
    words[TFM_TOK_WORD_CLASS] = b->word_class;
    words[TFM_TOK_WORD_LIMIT] = b->word_limit;
    words[TFM_TOK_N_NORM] = b->n_norm;
    words[TFM_TOK_INNER] = b->inner;
    words[TFM_TOK_INNER + 1] = b->n_inner;
    words[TFM_TOK_FINAL] = b->final;
    words[TFM_TOK_FINAL + 1] = b->n_final;
    words[TFM_TOK_STRIP] = b->strip;
    words[TFM_TOK_UNK_SCORE] = (uint32_t)bits;
    words[TFM_TOK_UNK_SCORE + 1] = (uint32_t)(bits >> 32);
    for (int i = 0; i < TFM_TOK_TABLES; i++) store_u32(o->data + 4 * i, words[i]);
}

/* Operations and what they name. */
static void write_ops(tokenizer_build *b, blob *o) {
    write_words(o, TFM_TOK_OPS, b->ops[0], b->n_ops, 6);
    write_words(o, TFM_TOK_MAPS, b->maps, b->n_maps, 4);
    write_bytes(o, TFM_TOK_CODE, b->expressions.code, b->expressions.n_code, 8);
    write_bytes(o, TFM_TOK_CLASSES, b->expressions.classes, b->expressions.n_classes, 32);
    write_bytes(o, TFM_TOK_RANGES, b->expressions.ranges, b->expressions.n_ranges, 8);
    write_bytes(o, TFM_TOK_STRINGS, b->strings, b->n_strings, 1);
}

static int write_section(tokenizer_build *b, blob *o) {
    uint32_t max_piece = 0, max_text = 0, max_added = 0, joins[8];
    int code = blob_words(o, TFM_TOK_TABLES + 2 * TFM_TOK_N_TABLES) ? TFM_OK : out_of_memory(b);
    if (!code) code = write_pieces(b, o, &max_piece, &max_text);
    if (!code) code = b->model == TFM_TOK_UNIGRAM ? write_unigram(b, o) : write_merges(b, o);
    if (!code) code = write_added(b, o, &max_added);
    if (code) return code;
    write_words(o, TFM_TOK_BYTE_IDS, b->byte_ids, b->flags & (TFM_TOK_BYTE_LEVEL | TFM_TOK_BYTE_FALLBACK) ? 256 : 0, 1);
    write_words(o, TFM_TOK_PREFIX, b->prefix, b->n_prefix, 1);
    write_words(o, TFM_TOK_SUFFIX, b->suffix, b->n_suffix, 1);
    write_ops(b, o);
    if (bytes_before_spaces(b, joins)) write_words(o, TFM_TOK_JOINS, joins, 8, 1);
    if (o->failed) return out_of_memory(b);
    if (b->model == TFM_TOK_BPE) b->flags |= TFM_TOK_WHOLE_WORDS;
    write_head(b, o, max_piece, max_text, max_added);
    return mark_whole_words(b, o);
}

/* A section that has the normaliser alone does it. */
const char *build_normalised(tokenizer_build *b, const char *text, size_t n, size_t *length) {
    tokenizer_build bare = *b;
    blob o = {0};
    uint64_t mem[64];
    uint32_t no_pieces = 0;
    const tfm_tokenizer *t;
    char *out = NULL;
    void *scratch = NULL;
    bare.model = TFM_TOK_WORDLEVEL;
    bare.flags = bare.n_ids = bare.n_inner = bare.n_final = 0;
    bare.word_class = TOK_NONE;
    bare.n_ops = b->n_norm;
    blob_words(&o, TFM_TOK_TABLES + 2 * TFM_TOK_N_TABLES);
    write_words(&o, TFM_TOK_ENDS, &no_pieces, 1, 1);
    write_ops(&bare, &o);
    if (!o.failed && tfm_tokenizer_size() <= sizeof mem) {
        write_head(&bare, &o, 0, 0, 0);
        if (tfm_tokenizer_open(o.data, o.n, mem, sizeof mem, &t, NULL) == TFM_OK) {
            const size_t room = tfm_encode_size(t, n);
            scratch = room ? malloc(room) : NULL;
            *length = scratch ? tfm_normalize(t, text, n, NULL, 0, scratch, room) : SIZE_MAX;
            if (*length != SIZE_MAX) out = (char *)arena_alloc(b->a, *length + 1);
            if (out) tfm_normalize(t, text, n, out, *length, scratch, room);
        }
    }
    free(scratch);
    free(o.data);
    return out;
}

int build_abandon(tokenizer_build *b, int code) {
    free(b->merges);
    free(b->added);
    free(b->strings);
    free(b->maps);
    regex_pool_free(&b->expressions);
    b->merges = NULL;
    b->added = NULL;
    b->strings = NULL;
    b->maps = NULL;
    return code;
}

int build_finish(tokenizer_build *b) {
    blob o = {0};
    uint32_t word_class = TOK_NONE;
    int code = TFM_OK;
    for (size_t i = 0; i < b->n_added && !code && word_class == TOK_NONE; i++) {
        if (!(b->added[i].flags & TFM_TOK_SINGLE_WORD)) continue;
        code = regex_class(&b->expressions, b->file,
                           "[\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200C}-\\x{200D}\\x{24B6}-\\x{24E9}"
                           "\\x{1F130}-\\x{1F149}"
                           "\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}]", &word_class, b->err);
    }
    b->word_class = word_class;
    if (!code) code = write_section(b, &o);
    if (!code) {
        b->out->bytes = (uint8_t *)arena_alloc(b->a, o.n);
        b->out->size = o.n;
        b->out->n_ids = (int32_t)b->n_ids;
        if (b->out->unk < 0 && b->unk != TOK_NONE) b->out->unk = (int32_t)b->unk;
        if (b->out->bytes) memcpy(b->out->bytes, o.data, o.n);
        else code = out_of_memory(b);
    }
    free(o.data);
    return build_abandon(b, code);
}
