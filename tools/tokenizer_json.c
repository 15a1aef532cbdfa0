/* tokenizer_json.c - reads tokenizer.json (the format of the `tokenizers` package, which is the reference for what
 * comes out) and what tokenizer_config.json adds to it.
 *
 * A component is one row in one of the tables below and one function; what no row names is refused by its name.
 */
#include "json.h"
#include "tokenizer_build.h"
#include "tokenizer_decoder.h"

#include <math.h>
#include <string.h>

enum { LIMIT_JSON = 1 << 28 };

/* Two ways to keep the text: as the reference has it, with bytes as the characters of the byte-level alphabet and
 * spaces as U+2581, or (`bytes`, b.spaces) with bytes and spaces as they are. The second is what most files allow, and
 * fast. */
typedef struct hf {
    tokenizer_build b;
    tok_decoder decoder;
    const json *root, *config;
    int bytes;                /* ByteLevel comes last: the model gets bytes */
    int n_levels, level_last; /* while looking: ByteLevels so far; the last pre-tokenizer was one */
    int marks, no_spaces;     /* something makes U+2581 of spaces; something after it could tell the difference */
    int marked, norm_marked;  /* while reading: spaces are gone; they were after the normaliser */
    int64_t n_model;          /* tokens of model.vocab */
    int64_t next_id;          /* what an added token that is new would get */
} hf;

/* A component by its type: run() fills the description, look() comes before and only takes notes. */
typedef struct component {
    const char *type;
    void (*look)(hf *h, const json *part);
    int (*run)(hf *h, const json *part);
} component;

static int refuse(hf *h, const json *at, const char *why) {
    char path[160];
    return tool_fail(h->b.err, TFM_ERR_UNSUPPORTED, "%s: %s", json_path(at, path, sizeof path), why);
}

static int is_text(const json *v, const char *text) {
    return json_is(v, JSON_STRING) && v->count == strlen(text) && memcmp(v->u.text, text, v->count) == 0;
}

/* Runs a table over a component and the parts of a Sequence (whose list has the given key). */
static int walk_part(hf *h, const json *part, const char *list, const component *table, int looking, int depth) {
    const char *type;
    char path[160];
    if (json_is_null(part)) return TFM_OK;
    int code = json_string(part, "type", &type, h->b.err);
    if (code) return code;
    if (strcmp(type, "Sequence") == 0) {
        const json *parts;
        if (depth > 8) return refuse(h, part, "sequences are nested too deeply");
        code = json_array(part, list, &parts, h->b.err);
        for (size_t i = 0; !code && i < json_count(parts); i++) {
            code = walk_part(h, json_at(parts, i), list, table, looking, depth + 1);
        }
        return code;
    }
    for (; table->type; table++) {
        if (strcmp(type, table->type) != 0) continue;
        if (!looking) return table->run(h, part);
        table->look(h, part);
        return TFM_OK;
    }
    return tool_fail(h->b.err, TFM_ERR_UNSUPPORTED, "%s: \"%s\" is not supported", json_path(part, path, sizeof path),
                     type);
}
static int walk(hf *h, const char *key, const char *list, const component *table, int looking) {
    return walk_part(h, json_get(h->root, key), list, table, looking, 0);
}

/* The pattern of a Replace or Split: {"String": ..} or {"Regex": ..}. */
static int read_pattern(hf *h, const json *part, const json **pattern, int *is_regex) {
    const json *p;
    int code = json_object(part, "pattern", &p, h->b.err);
    if (code) return code;
    *pattern = json_get(p, "String");
    *is_regex = !*pattern;
    if (*is_regex) *pattern = json_get(p, "Regex");
    return json_is(*pattern, JSON_STRING) ? TFM_OK : refuse(h, p, "expected a String or a Regex");
}

static int text_member(hf *h, const json *part, const char *key, const json **out) {
    *out = json_get(part, key);
    if (json_is(*out, JSON_STRING)) return TFM_OK;
    char path[160];
    return tool_fail(h->b.err, TFM_ERR_FORMAT, "%s: %s: expected a string", json_path(part, path, sizeof path), key);
}

/* ---- normalizer -------------------------------------------------------------------------------------------------- */

static void look_any(hf *h, const json *part) {
    (void)part;
    h->no_spaces |= h->marks;
    h->level_last = 0;
}
static int is_mark_replace(const json *part) {
    return is_text(json_get(json_get(part, "pattern"), "String"), " ") &&
           is_text(json_get(part, "content"), TOK_SPACE_MARK);
}
static void look_replace(hf *h, const json *part) {
    look_any(h, part);
    h->marks |= is_mark_replace(part);
}
static void look_prepend(hf *h, const json *part) {
    const json *text = json_get(part, "prepend");
    if (json_is(text, JSON_STRING) && memchr(text->u.text, ' ', text->count)) look_any(h, part);
}
static void look_byte_level(hf *h, const json *part) {
    look_any(h, part);
    h->n_levels++;
    h->level_last = 1;
}
static void look_byte_level_early(hf *h, const json *part) { /* as a normaliser */
    look_any(h, part);
    h->n_levels += 2;
}

/* The encoder's exchange of spaces and U+2581, as seen from the side everything is kept in. */
static int replace_spaces(hf *h) {
    h->marked = 1;
    if (h->b.spaces) return build_replace(&h->b, TOK_SPACE_MARK, 3, " ", 1);
    return build_replace(&h->b, " ", 1, TOK_SPACE_MARK, 3);
}
static int run_replace(hf *h, const json *part) {
    const json *from, *to;
    char path[160];
    int is_regex, code = read_pattern(h, part, &from, &is_regex);
    if (!code) code = text_member(h, part, "content", &to);
    if (code) return code;
    if (is_mark_replace(part)) return replace_spaces(h);
    if (is_regex) {
        return build_rewrite(&h->b, json_path(from, path, sizeof path), from->u.text, from->count, to->u.text,
                             to->count);
    }
    return build_replace(&h->b, from->u.text, from->count, to->u.text, to->count);
}
static int run_prepend(hf *h, const json *part) {
    const json *text;
    uint32_t n;
    int code = text_member(h, part, "prepend", &text);
    if (code) return code;
    n = text->count;
    const char *prefix = h->b.spaces ? build_unmark(&h->b, text->u.text, text->count, &n) : text->u.text;
    return build_prepend(&h->b, prefix, n, TFM_TOK_ALWAYS);
}
static int run_nfc(hf *h, const json *part) { (void)part; return build_form(&h->b, 0, 1); }
static int run_nfd(hf *h, const json *part) { (void)part; return build_form(&h->b, 0, 0); }
static int run_nfkc(hf *h, const json *part) { (void)part; return build_form(&h->b, 1, 1); }
static int run_nfkd(hf *h, const json *part) { (void)part; return build_form(&h->b, 1, 0); }

static int map_known(hf *h, unicode_map_kind kind, double growth) {
    const unicode_map map = unicode_map_of(kind);
    return build_map(&h->b, TFM_TOK_MAP, &map, growth);
}
static int run_lower(hf *h, const json *part) { (void)part; return map_known(h, UNICODE_LOWER, 1.5); }
static int run_strip_accents(hf *h, const json *part) { (void)part; return map_known(h, UNICODE_STRIP_ACCENTS, 1); }
static int run_strip(hf *h, const json *part) {
    int left, right, code = json_bool_or(part, "strip_left", 0, &left, h->b.err);
    if (!code) code = json_bool_or(part, "strip_right", 0, &right, h->b.err);
    return code ? code : build_op(&h->b, TFM_TOK_TRIM, (uint32_t)(left | right << 1), 0, 0);
}
static int run_byte_chars(hf *h, const json *part) { (void)part; return build_byte_chars(&h->b); }

/* Rows that drop characters or make spaces of them. */
static int run_nmt(hf *h, const json *part) {
    static const struct { uint32_t low, high; int drop; } known[] = {
        {0x1, 0x8, 1}, {0x9, 0xA, 0}, {0xB, 0xB, 1}, {0xC, 0xD, 0}, {0xE, 0x1F, 1}, {0x7F, 0x7F, 1}, {0x8F, 0x8F, 1},
        {0x9F, 0x9F, 1}, {0x1680, 0x1680, 0}, {0x200B, 0x200F, 0}, {0x2028, 0x2029, 0}, {0x2581, 0x2581, 0},
        {0xFEFF, 0xFEFF, 0}, {0xFFFD, 0xFFFD, 0}};
    enum { N = sizeof known / sizeof known[0] };
    uint32_t rows[N][4] = {{0}};
    const unicode_map map = {rows[0], N, (const unsigned char *)" ", 1};
    (void)part;
    for (size_t i = 0; i < N; i++) {
        rows[i][0] = known[i].low;
        rows[i][1] = known[i].high;
        rows[i][2] = known[i].drop ? TFM_TOK_MAP_DROP : TFM_TOK_MAP_STRING | 1 << 8;
    }
    return build_map(&h->b, TFM_TOK_MAP, &map, 1);
}

/* Spaces around ideographs. */
static int space_ideographs(hf *h) {
    static const uint32_t ranges[][2] = {{0x3400, 0x4DBF}, {0x4E00, 0x9FFF}, {0xF900, 0xFAFF}, {0x20000, 0x2A6DF},
                                         {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF},
                                         {0x2F800, 0x2FA1F}};
    enum { N = sizeof ranges / sizeof ranges[0] };
    uint32_t rows[N][4] = {{0}};
    const unicode_map map = {rows[0], N, (const unsigned char *)" ", 1};
    for (size_t i = 0; i < N; i++) {
        rows[i][0] = ranges[i][0];
        rows[i][1] = ranges[i][1];
        rows[i][2] = TFM_TOK_MAP_AROUND | 1 << 8;
    }
    return build_map(&h->b, TFM_TOK_MAP, &map, 5.0 / 3);
}
static int run_bert(hf *h, const json *part) {
    int clean, ideographs, accents, lower;
    int code = json_bool_or(part, "clean_text", 1, &clean, h->b.err);
    if (!code) code = json_bool_or(part, "handle_chinese_chars", 1, &ideographs, h->b.err);
    if (!code) code = json_bool_or(part, "lowercase", 1, &lower, h->b.err);
    if (!code) code = json_bool_or(part, "strip_accents", lower, &accents, h->b.err);
    if (!code && clean) code = map_known(h, UNICODE_BERT_CLEAN, 1);
    if (!code && ideographs) code = space_ideographs(h);
    if (!code && accents) code = build_form(&h->b, 0, 0);
    if (!code && accents) code = map_known(h, UNICODE_BERT_MARKS, 1);
    return code || !lower ? code : run_lower(h, part);
}

static int base64_digit(int ch) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *p = ch ? strchr(digits, ch) : NULL;
    return p ? (int)(p - digits) : -1;
}
static int run_precompiled(hf *h, const json *part) {
    const json *text;
    size_t m = 0;
    uint32_t bits = 0;
    int have = 0, code = text_member(h, part, "precompiled_charsmap", &text);
    if (code) return code;
    char *bytes = (char *)arena_alloc(h->b.a, text->count + 1);
    if (!bytes) return tool_fail(h->b.err, TFM_ERR_MEMORY, "%s: out of memory", h->b.file);
    for (size_t i = 0; i < text->count && text->u.text[i] != '='; i++) {
        const int digit = base64_digit((unsigned char)text->u.text[i]);
        if (digit < 0) return refuse(h, text, "not base64");
        bits = bits << 6 | (uint32_t)digit;
        have += 6;
        if (have < 8) continue;
        have -= 8;
        bytes[m++] = (char)(bits >> have);
    }
    return m ? build_charsmap(&h->b, bytes, m, 1) : TFM_OK;
}

static const component normalizers[] = {
    {"Replace", look_replace, run_replace},      {"Prepend", look_prepend, run_prepend},
    {"NFC", look_any, run_nfc},                  {"NFD", look_any, run_nfd},
    {"NFKC", look_any, run_nfkc},                {"NFKD", look_any, run_nfkd},
    {"Lowercase", look_any, run_lower},          {"Strip", look_any, run_strip},
    {"StripAccents", look_any, run_strip_accents}, {"Nmt", look_any, run_nmt},
    {"BertNormalizer", look_any, run_bert},      {"Precompiled", look_any, run_precompiled},
    {"ByteLevel", look_byte_level_early, run_byte_chars}, {NULL, NULL, NULL},
};

/* ---- pre_tokenizer ----------------------------------------------------------------------------------------------- */

static int run_byte_level(hf *h, const json *part) {
    int prefix, regex;
    int code = json_bool_or(part, "add_prefix_space", 1, &prefix, h->b.err);
    if (!code) code = json_bool_or(part, "use_regex", 1, &regex, h->b.err);
    if (!code && prefix) code = build_prepend(&h->b, " ", 1, TFM_TOK_IF_MISSING);
    if (!code && regex) code = build_split(&h->b, h->b.file, tok_gpt2_pattern, strlen(tok_gpt2_pattern), 1,
                                           TFM_TOK_ISOLATED);
    return code || h->bytes ? code : build_byte_chars(&h->b);
}

static void look_metaspace(hf *h, const json *part) {
    const json *mark = json_get(part, "replacement");
    const int usual = json_is_null(mark) || is_text(mark, TOK_SPACE_MARK);
    if (!usual || h->n_levels) look_any(h, part);
    h->no_spaces |= !usual;
    h->level_last = 0;
    h->marks = 1;
}
/* prepend_scheme, or what older files say instead: 0 always, 1 first, 2 never. */
static int read_scheme(hf *h, const json *part, int *scheme) {
    static const char *const names[] = {"always", "first", "never"};
    const json *v = json_get(part, "prepend_scheme");
    int add = 1, code = json_bool_or(part, "add_prefix_space", 1, &add, h->b.err);
    *scheme = add ? 0 : 2;
    if (code || json_is_null(v)) return code;
    for (*scheme = 0; *scheme < 3; ++*scheme) if (is_text(v, names[*scheme])) return TFM_OK;
    return refuse(h, v, "expected always, first or never");
}
static int run_metaspace(hf *h, const json *part) {
    const json *v = json_get(part, "replacement");
    int scheme, split;
    const char *mark = h->b.spaces ? " " : json_is(v, JSON_STRING) ? v->u.text : TOK_SPACE_MARK;
    size_t n = strlen(mark);
    int code = read_scheme(h, part, &scheme);
    if (!code) code = json_bool_or(part, "split", 1, &split, h->b.err);
    if (!code) code = h->b.spaces ? replace_spaces(h) : build_replace(&h->b, " ", 1, mark, n);
    if (!code && scheme < 2) {
        code = build_prepend(&h->b, mark, n, scheme == 0 ? TFM_TOK_IF_MISSING : TFM_TOK_IF_FIRST_MISSING);
    }
    return code || !split ? code : build_split(&h->b, h->b.file, mark, n, 0, TFM_TOK_WITH_NEXT);
}

/* A split at a string tells no difference if it has neither space nor mark, or finds nothing since spaces are gone. */
static void look_split(hf *h, const json *part) {
    const json *text = json_get(json_get(part, "pattern"), "String");
    tfm_error unused;
    int invert = 1;
    h->level_last = 0;
    if (json_bool_or(part, "invert", 0, &invert, &unused) || invert || !json_is(text, JSON_STRING) ||
        strstr(text->u.text, TOK_SPACE_MARK)) look_any(h, part);
}
static int read_behaviour(hf *h, const json *part, const char *otherwise, uint32_t *how) {
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const json *v = json_get(part, "behavior");
    for (*how = 0; *how < 5; ++*how) {
        if (json_is_null(v) && otherwise ? strcmp(otherwise, names[*how]) == 0 : is_text(v, names[*how])) return TFM_OK;
    }
    return refuse(h, part, "this behavior is not supported");
}
static int run_split(hf *h, const json *part) {
    const json *pattern;
    char path[160];
    int is_regex, invert;
    uint32_t how;
    int code = read_pattern(h, part, &pattern, &is_regex);
    if (!code) code = json_bool_or(part, "invert", 0, &invert, h->b.err);
    if (!code) code = read_behaviour(h, part, NULL, &how);
    if (code) return code;
    if (h->b.spaces && h->marked && memchr(pattern->u.text, ' ', pattern->count)) return TFM_OK;
    if (!is_regex && !pattern->count) return TFM_OK;
    return build_split(&h->b, json_path(pattern, path, sizeof path), pattern->u.text, pattern->count, is_regex,
                       how | (invert ? (uint32_t)TFM_TOK_INVERT : 0u));
}

static int split_at(hf *h, const char *expression, uint32_t how) {
    return build_split(&h->b, h->b.file, expression, strlen(expression), 1, how);
}
static int run_digits(hf *h, const json *part) {
    int individual, code = json_bool_or(part, "individual_digits", 0, &individual, h->b.err);
    return code ? code : split_at(h, "\\p{numbers of Digits}", individual ? TFM_TOK_ISOLATED : TFM_TOK_CONTIGUOUS);
}
static int run_whitespace(hf *h, const json *part) {
    (void)part;
    return split_at(h, "\\p{words of Whitespace}+|[^\\p{words of Whitespace}\\s]+", TFM_TOK_REMOVED | TFM_TOK_INVERT);
}
static int run_whitespace_split(hf *h, const json *part) {
    (void)part;
    return split_at(h, "\\s", TFM_TOK_REMOVED);
}
static int run_punctuation(hf *h, const json *part) {
    uint32_t how;
    int code = read_behaviour(h, part, "Isolated", &how);
    return code ? code : split_at(h, "\\p{punctuation of words}", how);
}
static int run_bert_split(hf *h, const json *part) {
    int code = run_whitespace_split(h, part);
    return code ? code : split_at(h, "\\p{punctuation of words}", TFM_TOK_ISOLATED);
}
static int run_delimiter(hf *h, const json *part) {
    const json *text;
    int code = text_member(h, part, "delimiter", &text);
    return code ? code : build_split(&h->b, h->b.file, text->u.text, text->count, 0, TFM_TOK_REMOVED);
}
static int run_scripts(hf *h, const json *part) {
    const unicode_map map = unicode_map_of(UNICODE_SCRIPTS);
    (void)part;
    return build_map(&h->b, TFM_TOK_GROUPS, &map, 1);
}
static int run_chunks(hf *h, const json *part) {
    int64_t length;
    int code = json_int_or(part, "length", 5, &length, h->b.err);
    if (!code && (length < 1 || length > INT32_MAX)) return refuse(h, part, "length is out of range");
    return code ? code : build_op(&h->b, TFM_TOK_CHUNKS, (uint32_t)length, 0, 0);
}

static const component pre_tokenizers[] = {
    {"ByteLevel", look_byte_level, run_byte_level}, {"Metaspace", look_metaspace, run_metaspace},
    {"Split", look_split, run_split},              {"Digits", look_any, run_digits},
    {"Whitespace", look_any, run_whitespace},      {"WhitespaceSplit", look_any, run_whitespace_split},
    {"Punctuation", look_any, run_punctuation},    {"BertPreTokenizer", look_any, run_bert_split},
    {"CharDelimiterSplit", look_any, run_delimiter}, {"UnicodeScripts", look_any, run_scripts},
    {"FixedLength", look_any, run_chunks},         {NULL, NULL, NULL},
};

/* ---- post_processor ---------------------------------------------------------------------------------------------- */

static int run_nothing(hf *h, const json *part) {
    (void)h;
    (void)part;
    return TFM_OK;
}

static int add_around(hf *h, const json *at, int after, int64_t id) {
    tokenizer_build *b = &h->b;
    uint32_t *list = after ? b->suffix : b->prefix, *n = after ? &b->n_suffix : &b->n_prefix;
    if (id < 0 || id >= (int64_t)b->n_ids || !b->pieces[id].name) {
        char path[160];
        return tool_fail(b->err, TFM_ERR_FORMAT, "%s: there is no token %lld", json_path(at, path, sizeof path),
                         (long long)id);
    }
    if (*n == 16) return refuse(h, at, "more than 16 tokens around the text");
    list[(*n)++] = (uint32_t)id;
    return TFM_OK;
}

static int run_template(hf *h, const json *part) {
    const json *single, *tokens = json_get(part, "special_tokens");
    int after = 0, code = json_array(part, "single", &single, h->b.err);
    for (size_t i = 0; !code && i < json_count(single); i++) {
        const json *item = json_at(single, i), *special = json_get(item, "SpecialToken");
        if (!special) {
            if (!is_text(json_get(json_get(item, "Sequence"), "id"), "A") || after) {
                return refuse(h, item, "expected Sequence A once");
            }
            after = 1;
            continue;
        }
        const json *name = json_get(special, "id");
        const json *ids = json_is(name, JSON_STRING) ? json_get(json_get_n(tokens, name->u.text, name->count), "ids")
            : NULL;
        if (!json_count(ids)) return refuse(h, item, "the token is not among special_tokens");
        for (size_t k = 0; !code && k < json_count(ids); k++) {
            int64_t id;
            code = json_as_int(json_at(ids, k), &id, h->b.err);
            if (!code) code = add_around(h, item, after, id);
        }
    }
    return code;
}
/* BERT's and RoBERTa's: "cls" before, "sep" after, each [token, id]. */
static int run_cls_sep(hf *h, const json *part) {
    const json *pair;
    int64_t cls, sep;
    int code = json_array(part, "cls", &pair, h->b.err);
    if (!code) code = json_item_int(pair, 1, &cls, h->b.err);
    if (!code) code = json_array(part, "sep", &pair, h->b.err);
    if (!code) code = json_item_int(pair, 1, &sep, h->b.err);
    if (!code) code = add_around(h, part, 0, cls);
    return code ? code : add_around(h, part, 1, sep);
}

static const component processors[] = {
    {"ByteLevel", look_any, run_nothing},
    {"TemplateProcessing", look_any, run_template},
    {"BertProcessing", look_any, run_cls_sep},
    {"RobertaProcessing", look_any, run_cls_sep},
    {NULL, NULL, NULL},
};

/* ---- the byte-level alphabet ------------------------------------------------------------------------------------- */

/* Bytes that print stand for themselves, the others for U+0100, U+0101 ... in order. */
static int prints(int byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}
uint32_t tok_byte_character(int byte) {
    if (prints(byte)) return (uint32_t)byte;
    return 256 + (uint32_t)(byte < 33 ? byte : byte < 173 ? byte - 127 + 33 : 67);
}
/* -1: the character stands for no byte. */
static int character_byte(uint32_t c) {
    const int i = (int)c - 256;
    if (c >= 0x144) return -1;
    if (i < 0) return prints((int)c) ? (int)c : -1;
    return i < 33 ? i : i < 67 ? i - 33 + 127 : 173;
}

int tok_from_byte_level(arena *a, const char *name, size_t n, const char **bytes, uint32_t *length) {
    char *out = (char *)arena_alloc(a, n + 1);
    size_t m = 0;
    if (!out) return -1;
    for (size_t i = 0; i < n; m++) {
        uint32_t c = (unsigned char)name[i++];
        if (c >= 0xC0 && i < n) c = (c & 31) << 6 | ((unsigned char)name[i++] & 63);
        if (character_byte(c) < 0) return 0;
        out[m] = (char)character_byte(c);
    }
    *bytes = out;
    *length = (uint32_t)m;
    return 1;
}

/* The symbols of all bytes. */
void tok_byte_symbols(tokenizer_build *b) {
    for (int i = 0; i < 256; i++) {
        uint32_t c = tok_byte_character(i);
        char name[2] = {(char)c, 0};
        size_t n = 1;
        if (c >= 0x80) {
            name[0] = (char)(0xC0 | c >> 6);
            name[1] = (char)(0x80 | (c & 63));
            n = 2;
        }
        b->byte_ids[i] = build_find(b, name, n);
    }
}

/* ---- model ------------------------------------------------------------------------------------------------------- */

/* What the model sees of a piece. */
static int give_text(hf *h, uint32_t id, int in_model) {
    tokenizer_build *b = &h->b;
    tok_piece *p = &b->pieces[id];
    p->reachable = in_model != 0;
    if (h->bytes) {
        const int spelled = tok_from_byte_level(b->a, p->name, p->name_length, &p->text, &p->length);
        if (spelled < 0) p->text = NULL;
        if (!spelled) p->reachable = 0;
    } else if (b->spaces) {
        if (memchr(p->name, ' ', p->name_length)) p->reachable = 0;
        p->text = build_unmark(b, p->name, p->name_length, &p->length);
    }
    return p->text ? TFM_OK : tool_fail(b->err, TFM_ERR_MEMORY, "%s: out of memory", b->file);
}

/* Room for the ids up to the highest. */
static int make_room(hf *h, int64_t highest, size_t n_vocab) {
    return build_ids(&h->b, highest + 1, n_vocab + json_count(json_get(h->root, "added_tokens")) +
                                             json_count(json_get(h->config, "added_tokens_decoder")));
}

/* {"piece": id, ...} */
static int read_vocab(hf *h, const json *vocab, int64_t last_added) {
    tokenizer_build *b = &h->b;
    int64_t id, highest = last_added;
    int code = TFM_OK;
    for (size_t i = 0; i < json_count(vocab) && !code; i++) {
        code = json_as_int(json_at(vocab, i), &id, b->err);
        if (!code && id > highest) highest = id;
    }
    if (!code) code = make_room(h, highest, json_count(vocab));
    for (size_t i = 0; i < json_count(vocab) && !code; i++) {
        const json *item = json_at(vocab, i);
        code = json_as_int(item, &id, b->err);
        if (!code) code = build_piece(b, id, item->key, item->key_length);
        if (!code) code = give_text(h, (uint32_t)id, 1);
    }
    h->n_model = (int64_t)json_count(vocab);
    return code;
}

/* [["piece", score], ...] */
static int read_scored_vocab(hf *h, const json *vocab, int64_t last_added) {
    tokenizer_build *b = &h->b;
    const int64_t n = (int64_t)json_count(vocab);
    double worst = INFINITY;
    int code = make_room(h, last_added < n ? n - 1 : last_added, (size_t)n);
    for (int64_t i = 0; i < n && !code; i++) {
        const json *item = json_at(vocab, (size_t)i), *name = json_at(item, 0);
        if (!json_is(name, JSON_STRING)) return refuse(h, item, "expected a piece and its score");
        code = json_item_real(item, 1, &b->pieces[i].score, b->err);
        const double score = b->pieces[i].score;
        if (!code) code = build_piece(b, i, name->u.text, name->count);
        if (!code) code = give_text(h, (uint32_t)i, 1);
        if (score < worst) worst = score;
    }
    b->unk_score = worst - 10;
    h->n_model = n;
    return code;
}

/* "left right" or ["left", "right"]. */
static int merge_parts(hf *h, const json *item, const char **left, size_t *n_left, const char **right,
                       size_t *n_right) {
    if (json_is(item, JSON_ARRAY) && json_count(item) == 2 && json_is(json_at(item, 0), JSON_STRING) &&
        json_is(json_at(item, 1), JSON_STRING)) {
        *left = json_at(item, 0)->u.text;
        *n_left = json_at(item, 0)->count;
        *right = json_at(item, 1)->u.text;
        *n_right = json_at(item, 1)->count;
        return TFM_OK;
    }
    const char *space = json_is(item, JSON_STRING) ? (const char *)memchr(item->u.text, ' ', item->count) : NULL;
    if (!space || memchr(space + 1, ' ', item->count - (size_t)(space + 1 - item->u.text))) {
        return refuse(h, item, "expected a pair of pieces");
    }
    *left = item->u.text;
    *n_left = (size_t)(space - item->u.text);
    *right = space + 1;
    *n_right = item->count - *n_left - 1;
    return TFM_OK;
}

int tok_named_merge(tokenizer_build *b, const char *where, const char *left, size_t n_left, const char *right,
                    size_t n_right,
                    uint32_t rank) {
    uint32_t l = build_find(b, left, n_left), r = build_find(b, right, n_right), whole = TOK_NONE;
    char buffer[512], *text = n_left + n_right <= sizeof buffer ? buffer : (char *)arena_alloc(b->a, n_left + n_right);
    if (!text) return tool_fail(b->err, TFM_ERR_MEMORY, "%s: out of memory", b->file);
    const size_t cut = b->n_inner < n_right ? b->n_inner : n_right; /* what marks the inside of a word goes once */
    memcpy(text, left, n_left);
    memcpy(text + n_left, right + cut, n_right - cut);
    if (l != TOK_NONE && r != TOK_NONE) whole = build_find(b, text, n_left + n_right - cut);
    if (whole != TOK_NONE) return build_add_merge(b, l, r, rank, whole);
    return tool_fail(b->err, TFM_ERR_FORMAT,
                     "%s: merge %u, \"%.*s\" and \"%.*s\", names a piece that is not in the vocabulary",
                     where, (unsigned)rank, (int)(n_left < 99 ? n_left : 99), left, (int)(n_right < 99 ? n_right : 99),
                         right);
}

static int read_merges(hf *h, const json *model) {
    tokenizer_build *b = &h->b;
    const json *merges;
    const char *left = "", *right = "";
    size_t n_left = 0, n_right = 0;
    char path[160];
    int code = json_array(model, "merges", &merges, b->err);
    for (size_t i = 0; !code && i < json_count(merges); i++) {
        code = merge_parts(h, json_at(merges, i), &left, &n_left, &right, &n_right);
        if (!code) {
            code = tok_named_merge(b, json_path(merges, path, sizeof path), left, n_left, right, n_right, (uint32_t)i);
        }
    }
    b->last_merge_wins = 1;
    if (!code && !b->n_merges) code = refuse(h, model, "the list of merges is empty");
    return code;
}

/* The model's kind; files of long ago do not say it. */
static int model_kind(const json *model) {
    static const char *const names[] = {"BPE", "Unigram", "WordPiece", "WordLevel"};
    const json *type = json_get(model, "type");
    for (int i = 0; i < 4; i++) if (is_text(type, names[i])) return i;
    if (!json_is_null(type)) return -1;
    if (json_get(model, "merges")) return TFM_TOK_BPE;
    if (json_is(json_get(model, "vocab"), JSON_ARRAY)) return TFM_TOK_UNIGRAM;
    return json_get(model, "max_input_chars_per_word") ? TFM_TOK_WORDPIECE : TFM_TOK_WORDLEVEL;
}

static int has_text(const json *object, const char *key) {
    const json *v = json_get(object, key);
    return json_is(v, JSON_STRING) && v->count > 0;
}

static int vocab_has(const json *vocab, const char *piece) {
    if (json_is(vocab, JSON_OBJECT)) return json_get(vocab, piece) != NULL;
    for (size_t i = 0; i < json_count(vocab); i++) if (is_text(json_at(json_at(vocab, i), 0), piece)) return 1;
    return 0;
}

/* The tokens of single bytes, written <0x00> to <0xFF>. */
static void find_byte_tokens(tokenizer_build *b) {
    b->flags |= TFM_TOK_BYTE_FALLBACK;
    for (unsigned i = 0; i < 256; i++) {
        const char *digits = "0123456789ABCDEF";
        char name[7] = {'<', '0', 'x', digits[i >> 4], digits[i & 15], '>', 0};
        b->byte_ids[i] = build_find(b, name, 6);
    }
}
static void find_unknown(hf *h, const json *model) {
    const json *unk = json_get(model, "unk_token");
    if (json_is(unk, JSON_STRING)) h->b.unk = build_find(&h->b, unk->u.text, unk->count);
}
/* A member of the model that stands before or after pieces. */
static int read_affix(hf *h, const json *model, const char *key, uint32_t *at, uint32_t *n) {
    const json *v = json_get(model, key);
    *n = 0;
    if (json_is_null(v)) return TFM_OK;
    if (!json_is(v, JSON_STRING) || v->count > 255) return refuse(h, v, "expected a short string");
    *n = v->count;
    return build_string(&h->b, v->u.text, v->count, at);
}

static int read_bpe(hf *h, const json *model, int64_t last_added) {
    tokenizer_build *b = &h->b;
    const json *vocab;
    int fuse, fallback, ignore;
    int code = json_bool_or(model, "fuse_unk", 0, &fuse, b->err);
    if (!code) code = json_bool_or(model, "byte_fallback", 0, &fallback, b->err);
    if (!code) code = json_bool_or(model, "ignore_merges", 0, &ignore, b->err);
    if (!code) code = json_object(model, "vocab", &vocab, b->err);
    if (!code) code = read_affix(h, model, "continuing_subword_prefix", &b->inner, &b->n_inner);
    if (!code) code = read_affix(h, model, "end_of_word_suffix", &b->final, &b->n_final);
    if (!code && fallback && (b->n_inner || b->n_final)) {
        code = refuse(h, model, "byte_fallback beside a prefix or suffix of pieces is not supported");
    }
    if (!code) code = read_vocab(h, vocab, last_added);
    if (!code) code = read_merges(h, model);
    if (code) return code;
    b->ignore_merges = ignore;
    if (fuse) b->flags |= TFM_TOK_FUSE_UNK;
    if (h->bytes) {
        b->flags |= TFM_TOK_BYTE_LEVEL;
        tok_byte_symbols(b);
    } else if (fallback) {
        find_byte_tokens(b);
    }
    find_unknown(h, model);
    if (b->unk == TOK_NONE) b->flags |= TFM_TOK_DROP_UNKNOWN;
    return TFM_OK;
}

static int read_unigram(hf *h, const json *model, int64_t last_added) {
    tokenizer_build *b = &h->b;
    const json *vocab;
    int64_t unk;
    int fallback, code = json_array(model, "vocab", &vocab, b->err);
    if (!code) code = json_bool_or(model, "byte_fallback", 0, &fallback, b->err);
    if (!code) code = json_int_or(model, "unk_id", -1, &unk, b->err);
    if (!code) code = read_scored_vocab(h, vocab, last_added);
    if (code) return code;
    if (unk >= h->n_model) return refuse(h, json_get(model, "unk_id"), "there is no such token");
    if (unk >= 0) b->unk = (uint32_t)unk;
    if (fallback) find_byte_tokens(b);
    return TFM_OK;
}

static int read_words(hf *h, const json *model, int64_t last_added) {
    tokenizer_build *b = &h->b;
    const json *vocab;
    int64_t limit = INT32_MAX;
    int code = json_object(model, "vocab", &vocab, b->err);
    if (!code && b->model == TFM_TOK_WORDPIECE) {
        code = json_int_or(model, "max_input_chars_per_word", 100, &limit, b->err);
        if (!code) code = read_affix(h, model, "continuing_subword_prefix", &b->inner, &b->n_inner);
        if (!code && (limit < 0 || limit > INT32_MAX)) {
            code = refuse(h, json_get(model, "max_input_chars_per_word"), "out of range");
        }
    }
    b->word_limit = (uint32_t)limit;
    if (!code) code = read_vocab(h, vocab, last_added);
    if (!code) find_unknown(h, model);
    return code;
}

static int read_model(hf *h, int64_t last_added) {
    static int (*const readers[])(hf *, const json *, int64_t) = {read_bpe, read_unigram, read_words, read_words};
    const json *model;
    int code = json_object(h->root, "model", &model, h->b.err);
    if (code) return code;
    const int kind = model_kind(model);
    if (kind < 0) return refuse(h, json_get(model, "type"), "expected BPE, Unigram, WordPiece or WordLevel");
    h->b.model = (uint32_t)kind;
    code = readers[kind](h, model, last_added);
    if (!code && h->b.unk == TOK_NONE && !(h->b.flags & (TFM_TOK_BYTE_LEVEL | TFM_TOK_BYTE_FALLBACK))) {
        build_warn(&h->b, arena_printf(h->b.a, "%s: it has no unknown token; what it does not know is left out",
                                       h->b.file));
    }
    return code;
}

/* ---- added tokens ------------------------------------------------------------------------------------------------ */

/* What a token to be matched in normalised text looks like there, and to the decoder. */
static int normalise_match(hf *h, tok_added *t) {
    tokenizer_build *b = &h->b;
    tok_piece *p = &b->pieces[t->id];
    size_t n;
    if (!b->n_norm) return TFM_OK;
    t->match = build_normalised(b, t->name, t->name_length, &n);
    if (!t->match) return tool_fail(b->err, TFM_ERR_MEMORY, "%s: out of memory", b->file);
    t->match_length = (uint32_t)n;
    p->print = t->match;
    p->n_print = (uint32_t)n;
    if (!h->norm_marked) return TFM_OK;
    p->print = tok_mark_spaces(b->a, t->match, n, &n); /* the decoder sees the marks */
    p->n_print = (uint32_t)n;
    return p->print ? TFM_OK : tool_fail(b->err, TFM_ERR_MEMORY, "%s: out of memory", b->file);
}

static int already_added(const hf *h, const json *content) {
    for (size_t i = 0; i < h->b.n_added; i++) {
        const tok_added *t = &h->b.added[i];
        if (t->name_length == content->count && memcmp(t->name, content->u.text, content->count) == 0) return 1;
    }
    return 0;
}

/* One entry of added_tokens or added_tokens_decoder. The reference gives a new token the next free id whatever the file
 * says; a file that says something else is refused. */
static int read_added(hf *h, const json *item, int64_t id) {
    tokenizer_build *b = &h->b;
    static const struct { const char *key; uint32_t flag; } keys[] = {
        {"lstrip", TFM_TOK_LSTRIP}, {"rstrip", TFM_TOK_RSTRIP}, {"single_word", TFM_TOK_SINGLE_WORD},
            {"special", TFM_TOK_CONTROL}};
    tok_added t = {0};
    const json *content;
    char path[160];
    int on, code = text_member(h, item, "content", &content);
    if (code || !content->count || already_added(h, content)) return code;
    uint32_t known = build_find(b, content->u.text, content->count);
    int64_t expected = known != TOK_NONE ? (int64_t)known : h->next_id;
    if (id != expected) {
        return tool_fail(b->err, TFM_ERR_FORMAT, "%s: token \"%s\" claims id %lld, but %s %lld", json_path(item, path,
                sizeof path),
                         content->u.text, (long long)id, known != TOK_NONE ? "the vocabulary gives it"
                             : "the next free id is",
                         (long long)expected);
    }
    if (known == TOK_NONE) {
        code = build_piece(b, id, content->u.text, content->count);
        if (!code) code = give_text(h, (uint32_t)id, 0);
    }
    for (size_t i = 0; i < 4 && !code; i++) {
        code = json_bool_or(item, keys[i].key, 0, &on, b->err);
        if (on) t.flags |= keys[i].flag;
    }
    if (!code) code = json_bool_or(item, "normalized", !(t.flags & TFM_TOK_CONTROL), &t.normalized, b->err);
    if (code) return code;
    if (id >= h->next_id) h->next_id = id + 1;
    t.name = t.match = content->u.text;
    t.name_length = t.match_length = content->count;
    t.id = (uint32_t)id;
    b->pieces[id].flags |= TFM_TOKEN_ADDED | (t.flags & TFM_TOK_CONTROL ? (uint32_t)TFM_TOKEN_SPECIAL : 0u);
    if (t.normalized) code = normalise_match(h, &t);
    return code ? code : build_add_token(b, &t);
}

static int key_number(const json *item, int64_t *id) {
    return parse_int64(item->key, item->key_length, id);
}

static int read_all_added(hf *h) {
    const json *list = json_get(h->root, "added_tokens"), *more = json_get(h->config, "added_tokens_decoder");
    int64_t id, highest = -1;
    int code = TFM_OK;
    for (uint32_t i = 0; i < h->b.n_ids; i++) if (h->b.pieces[i].name) highest = i;
    h->next_id = h->n_model;
    if (highest >= h->next_id) build_warn(&h->b, arena_printf(h->b.a, "%s: its vocabulary leaves out some ids",
                                                              h->b.file));
    for (size_t i = 0; i < json_count(list) && !code; i++) {
        code = json_int(json_at(list, i), "id", &id, h->b.err);
        if (!code) code = read_added(h, json_at(list, i), id);
    }
    for (size_t i = 0; i < json_count(more) && !code; i++) {
        if (key_number(json_at(more, i), &id)) return refuse(h, json_at(more, i), "expected a token id as the key");
        code = read_added(h, json_at(more, i), id);
    }
    return code;
}

/* The highest id that added tokens claim; -1 if there is none. */
static int last_added(hf *h, int64_t *highest) {
    const json *list = json_get(h->root, "added_tokens"), *more = json_get(h->config, "added_tokens_decoder");
    int64_t id;
    *highest = -1;
    for (size_t i = 0; i < json_count(list); i++) {
        int code = json_int(json_at(list, i), "id", &id, h->b.err);
        if (code) return code;
        if (id > *highest) *highest = id;
    }
    for (size_t i = 0; i < json_count(more); i++) {
        if (key_number(json_at(more, i), &id) == 0 && id > *highest) *highest = id;
    }
    return TFM_OK;
}

/* bos_token and the like of tokenizer_config.json: a string, or an object with its content. */
static int32_t config_token(const hf *h, const char *key) {
    const json *v = json_get(h->config, key);
    if (json_is(v, JSON_OBJECT)) v = json_get(v, "content");
    uint32_t id = json_is(v, JSON_STRING) ? build_find(&h->b, v->u.text, v->count) : TOK_NONE;
    return id == TOK_NONE ? -1 : (int32_t)id;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* Chooses how to keep the text. */
static int survey(hf *h) {
    const json *model = json_get(h->root, "model"), *vocab = json_get(model, "vocab");
    int code = walk(h, "normalizer", "normalizers", normalizers, 1);
    if (!code) code = walk(h, "pre_tokenizer", "pretokenizers", pre_tokenizers, 1);
    if (code) return code;
    const int has_mark = vocab_has(vocab, TOK_SPACE_MARK), kind = model_kind(model);
    const int affixes = has_text(model, "continuing_subword_prefix") || has_text(model, "end_of_word_suffix");
    h->bytes = h->n_levels == 1 && h->level_last && kind == TFM_TOK_BPE && !affixes && !h->marks;
    h->b.spaces = h->marks && !h->no_spaces && !h->n_levels && has_mark && !affixes &&
                  (kind == TFM_TOK_BPE || kind == TFM_TOK_UNIGRAM);
    return TFM_OK;
}

static int read_json(hf *h) {
    int64_t highest;
    int code = survey(h);
    if (!code) code = walk(h, "normalizer", "normalizers", normalizers, 0);
    h->b.n_norm = h->b.n_ops;
    h->norm_marked = h->marked && h->b.spaces;
    if (!code) code = walk(h, "pre_tokenizer", "pretokenizers", pre_tokenizers, 0);
    if (!code) code = decoder_read(&h->decoder, &h->b, json_get(h->root, "decoder"));
    if (!code) code = last_added(h, &highest);
    if (!code) code = read_model(h, highest);
    if (!code) code = read_all_added(h);
    if (!code) code = walk(h, "post_processor", "processors", processors, 0);
    if (!code) code = decoder_apply(&h->decoder, &h->b);
    decoder_free(&h->decoder);
    if (code) return code;
    if (!json_is_null(json_get(h->root, "truncation")) || !json_is_null(json_get(h->root, "padding"))) {
        build_warn(&h->b, arena_printf(h->b.a, "%s: its truncation and padding are left to the caller", h->b.file));
    }
    h->b.out->bos = config_token(h, "bos_token");
    h->b.out->eos = config_token(h, "eos_token");
    return TFM_OK;
}

int tokenizer_from_hf(arena *a, const source_dir *dir, int64_t n_rows, tok_section *out, tfm_error *err) {
    source json_file, config_file, model_file;
    memset(out, 0, sizeof *out);
    int have_config = dir->open(dir->user, "tokenizer_config.json", &config_file, err);
    if (have_config < 0) return have_config;
    int code = dir->open(dir->user, "tokenizer.json", &json_file, err);
    if (code == 0) {
        code = tokenizer_from_json(a, &json_file, have_config == 0 ? &config_file : NULL, n_rows, out, err);
        dir->close(dir->user, &json_file);
    } else if (code == 1) {
        code = dir->open(dir->user, "tokenizer.model", &model_file, err);
        if (code == 0) {
            code = tokenizer_from_sentencepiece(a, &model_file, have_config == 0 ? &config_file : NULL, n_rows, out,
                                                err);
            dir->close(dir->user, &model_file);
        } else if (code == 1) {
            code = tool_fail(err, TFM_ERR_IO, "%s: neither tokenizer.json nor tokenizer.model is there", dir->name);
        }
    }
    if (have_config == 0) dir->close(dir->user, &config_file);
    return code;
}

int tokenizer_from_json(arena *a, const source *src, const source *config, int64_t n_rows, tok_section *out,
                        tfm_error *err) {
    hf h;
    memset(&h, 0, sizeof h);
    build_begin(&h.b, a, src->name, n_rows, out, err);
    h.root = json_read(src, LIMIT_JSON, a, err);
    if (!h.root) return TFM_ERR_FORMAT;
    if (config) {
        h.config = json_read(config, LIMIT_JSON, a, err);
        if (!h.config) return TFM_ERR_FORMAT;
    }
    int code = read_json(&h);
    return code ? build_abandon(&h.b, code) : build_finish(&h.b);
}
