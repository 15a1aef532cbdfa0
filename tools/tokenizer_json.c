/* tokenizer_json.c - reads tokenizer.json (the format of the `tokenizers` package, which is the reference for what
 * comes out) and what tokenizer_config.json adds to it.
 *
 * A component is one row in one of the tables below and one function; what no row names is refused by its name.
 */
#include "json.h"
#include "tokenizer_build.h"

#include <string.h>

enum { LIMIT_JSON = 1 << 28 };

typedef struct hf {
    tokenizer_build b;
    const json *root, *config;
    int byte_level_out, byte_level_in; /* ByteLevel among the decoders, the pre-tokenizers */
    int mark_in, mark_out;             /* something makes U+2581 of spaces, spaces of U+2581 */
    int marked, closed, fused;         /* while reading: spaces are gone; nothing may follow; decoders: Fuse came */
    size_t n_model;                    /* tokens of model.vocab */
    int64_t next_id;                   /* what an added token that is new would get */
} hf;

/* A component by its type: run() fills the description, look() comes before and only takes notes. */
typedef struct component {
    const char *type;
    int (*look)(hf *h, const json *part);
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
static int walk(hf *h, const json *part, const char *list, const component *table, int looking) {
    const char *type;
    char path[160];
    if (json_is_null(part)) return TFM_OK;
    int code = json_string(part, "type", &type, h->b.err);
    if (code) return code;
    if (strcmp(type, "Sequence") == 0) {
        const json *parts;
        code = json_array(part, list, &parts, h->b.err);
        for (size_t i = 0; !code && i < json_count(parts); i++) code = walk(h, json_at(parts, i), list, table, looking);
        return code;
    }
    for (; table->type; table++) {
        if (strcmp(type, table->type) != 0) continue;
        if (looking) return table->look ? table->look(h, part) : TFM_OK;
        if (h->closed) return refuse(h, part, "nothing is supported after ByteLevel");
        return table->run(h, part);
    }
    return tool_fail(h->b.err, TFM_ERR_UNSUPPORTED, "%s: \"%s\" is not supported", json_path(part, path, sizeof path),
                     type);
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

static int is_mark_replace(const json *part, const char *from, const char *to) {
    return is_text(json_get(json_get(part, "pattern"), "String"), from) && is_text(json_get(part, "content"), to);
}
static int look_replace_in(hf *h, const json *part) {
    h->mark_in |= is_mark_replace(part, " ", TOK_SPACE_MARK);
    return TFM_OK;
}
/* The encoder's exchange of spaces and U+2581, as seen from the side everything is kept in. */
static int replace_spaces(hf *h) {
    if (h->b.spaces) return build_replace(&h->b, TOK_SPACE_MARK, 3, " ", 1);
    return build_replace(&h->b, " ", 1, TOK_SPACE_MARK, 3);
}
static int run_replace_in(hf *h, const json *part) {
    const json *from, *to;
    int is_regex, code = read_pattern(h, part, &from, &is_regex);
    if (!code) code = text_member(h, part, "content", &to);
    if (code) return code;
    if (is_regex) return refuse(h, part, "Replace by a regular expression is not supported");
    if (is_mark_replace(part, " ", TOK_SPACE_MARK)) {
        h->marked = 1;
        return replace_spaces(h);
    }
    if (h->b.spaces && (h->marked || strstr(from->u.text, TOK_SPACE_MARK) || strstr(to->u.text, TOK_SPACE_MARK))) {
        return refuse(h, part, "this replacement beside that of spaces is not supported");
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
static int run_nfc(hf *h, const json *part) {
    if (h->b.spaces && h->marked) return refuse(h, part, "NFC after the replacement of spaces is not supported");
    return build_op(&h->b, TFM_TOK_NFC, 0, 0, 0);
}

static const component normalizers[] = {
    {"Replace", look_replace_in, run_replace_in},
    {"Prepend", NULL, run_prepend},
    {"NFC", NULL, run_nfc},
    {NULL, NULL, NULL},
};

/* ---- pre_tokenizer ----------------------------------------------------------------------------------------------- */

static int look_byte_level_in(hf *h, const json *part) {
    (void)part;
    h->byte_level_in = 1;
    return TFM_OK;
}
static int run_byte_level_in(hf *h, const json *part) {
    int prefix, regex;
    int code = json_bool_or(part, "add_prefix_space", 1, &prefix, h->b.err);
    if (!code) code = json_bool_or(part, "use_regex", 1, &regex, h->b.err);
    if (!code && prefix) code = build_prepend(&h->b, " ", 1, TFM_TOK_IF_MISSING);
    if (!code && regex) code = build_split(&h->b, h->b.file, tok_gpt2_pattern, strlen(tok_gpt2_pattern), 1,
                                           TFM_TOK_ISOLATED);
    h->closed = 1;
    return code;
}

static int look_metaspace_in(hf *h, const json *part) {
    if (!is_text(json_get(part, "replacement"), TOK_SPACE_MARK)) {
        return refuse(h, part, "only U+2581 is supported as replacement");
    }
    h->mark_in = 1;
    return TFM_OK;
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
static int run_metaspace_in(hf *h, const json *part) {
    int scheme, split;
    const char *mark = h->b.spaces ? " " : TOK_SPACE_MARK;
    size_t n = strlen(mark);
    int code = read_scheme(h, part, &scheme);
    if (!code) code = json_bool_or(part, "split", 1, &split, h->b.err);
    if (!code) code = replace_spaces(h);
    if (!code && scheme < 2) {
        code = build_prepend(&h->b, mark, n, scheme == 0 ? TFM_TOK_IF_MISSING : TFM_TOK_IF_FIRST_MISSING);
    }
    if (!code && split) code = build_split(&h->b, h->b.file, mark, n, 0, TFM_TOK_WITH_NEXT);
    h->marked = 1;
    return code;
}

static int run_split(hf *h, const json *part) {
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const json *pattern, *behaviour = json_get(part, "behavior");
    char path[160];
    int is_regex, invert;
    uint32_t how = 0;
    int code = read_pattern(h, part, &pattern, &is_regex);
    if (!code) code = json_bool_or(part, "invert", 0, &invert, h->b.err);
    if (code) return code;
    while (how < 5 && !is_text(behaviour, names[how])) how++;
    if (how == 5) return refuse(h, part, "this behavior is not supported");
    if (h->b.spaces && h->marked) {
        if (is_regex || invert) return refuse(h, part, "a Split after the replacement of spaces is not supported");
        if (memchr(pattern->u.text, ' ', pattern->count)) return TFM_OK; /* no space is left to be found */
        if (strstr(pattern->u.text, TOK_SPACE_MARK)) return refuse(h, part, "a Split at U+2581 is not supported");
    }
    return build_split(&h->b, json_path(pattern, path, sizeof path), pattern->u.text, pattern->count, is_regex,
                       how | (invert ? (uint32_t)TFM_TOK_INVERT : 0u));
}
static int run_digits(hf *h, const json *part) {
    int individual, code = json_bool_or(part, "individual_digits", 0, &individual, h->b.err);
    return code ? code : build_split(&h->b, h->b.file, "\\p{N}", 5, 1, individual ? TFM_TOK_ISOLATED
                                     : TFM_TOK_CONTIGUOUS);
}

static const component pre_tokenizers[] = {
    {"ByteLevel", look_byte_level_in, run_byte_level_in},
    {"Metaspace", look_metaspace_in, run_metaspace_in},
    {"Split", NULL, run_split},
    {"Digits", NULL, run_digits},
    {NULL, NULL, NULL},
};

/* ---- decoder ----------------------------------------------------------------------------------------------------- */

static int look_byte_level_out(hf *h, const json *part) {
    (void)part;
    h->byte_level_out = 1;
    return TFM_OK;
}
static int look_replace_out(hf *h, const json *part) {
    h->mark_out |= is_mark_replace(part, TOK_SPACE_MARK, " ");
    return TFM_OK;
}
static int look_metaspace_out(hf *h, const json *part) {
    if (!is_text(json_get(part, "replacement"), TOK_SPACE_MARK)) {
        return refuse(h, part, "only U+2581 is supported as replacement");
    }
    h->mark_out = 1;
    return TFM_OK;
}
static int run_nothing(hf *h, const json *part) {
    (void)h;
    (void)part;
    return TFM_OK;
}
static int run_replace_out(hf *h, const json *part) {
    if (is_mark_replace(part, TOK_SPACE_MARK, " ")) return TFM_OK;
    return refuse(h, part, "only U+2581 by a space is supported");
}
static int run_byte_fallback_out(hf *h, const json *part) {
    if (h->fused) return refuse(h, part, "ByteFallback after Fuse is not supported");
    h->b.flags |= TFM_TOK_BYTE_RUNS | TFM_TOK_PER_BYTE;
    return TFM_OK;
}
static int run_fuse(hf *h, const json *part) {
    (void)part;
    h->fused = 1;
    return TFM_OK;
}
static int run_strip_out(hf *h, const json *part) {
    int64_t start, stop;
    int code = json_int_or(part, "start", 0, &start, h->b.err);
    if (!code) code = json_int_or(part, "stop", 0, &stop, h->b.err);
    if (code || (!start && !stop)) return code;
    if (start != 1 || stop || !h->fused || !is_text(json_get(part, "content"), " ")) {
        return refuse(h, part, "only one space at the start, after Fuse, is supported");
    }
    h->b.flags |= TFM_TOK_STRIP;
    return TFM_OK;
}
static int run_metaspace_out(hf *h, const json *part) {
    int scheme, code = read_scheme(h, part, &scheme);
    if (!code && h->fused) return refuse(h, part, "Metaspace after Fuse is not supported");
    if (!code && scheme < 2) h->b.flags |= TFM_TOK_FIRST_BARE;
    return code;
}

static const component decoders[] = {
    {"ByteLevel", look_byte_level_out, run_nothing},
    {"Replace", look_replace_out, run_replace_out},
    {"ByteFallback", NULL, run_byte_fallback_out},
    {"Fuse", NULL, run_fuse},
    {"Strip", NULL, run_strip_out},
    {"Metaspace", look_metaspace_out, run_metaspace_out},
    {NULL, NULL, NULL},
};

/* ---- post_processor ---------------------------------------------------------------------------------------------- */

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
    int64_t cls, sep;
    int code = json_as_int(json_at(json_get(part, "cls"), 1), &cls, h->b.err);
    if (!code) code = json_as_int(json_at(json_get(part, "sep"), 1), &sep, h->b.err);
    if (!code) code = add_around(h, part, 0, cls);
    return code ? code : add_around(h, part, 1, sep);
}

static const component processors[] = {
    {"ByteLevel", NULL, run_nothing},
    {"TemplateProcessing", NULL, run_template},
    {"BertProcessing", NULL, run_cls_sep},
    {"RobertaProcessing", NULL, run_cls_sep},
    {NULL, NULL, NULL},
};

/* ---- the byte-level alphabet ------------------------------------------------------------------------------------- */

/* Bytes that print stand for themselves, the others for U+0100, U+0101 ... in order. */
static int prints(int byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}
static uint32_t byte_character(int byte) {
    uint32_t next = 256;
    if (prints(byte)) return (uint32_t)byte;
    for (int i = 0; i < byte; i++) next += !prints(i);
    return next;
}

/* name in bytes, or NULL if it has a character that stands for none. */
const char *tok_from_byte_level(arena *a, const char *name, size_t n, uint32_t *length) {
    short byte_of[0x144];
    char *out = (char *)arena_alloc(a, n + 1);
    size_t m = 0;
    for (size_t i = 0; i < 0x144; i++) byte_of[i] = -1;
    for (int i = 0; i < 256; i++) byte_of[byte_character(i)] = (short)i;
    for (size_t i = 0; out && i < n; m++) {
        uint32_t c = (unsigned char)name[i++];
        if (c >= 0xC0 && i < n) c = (c & 31) << 6 | ((unsigned char)name[i++] & 63);
        if (c >= 0x144 || byte_of[c] < 0) return NULL;
        out[m] = (char)byte_of[c];
    }
    *length = (uint32_t)m;
    return out;
}

/* The symbols of all bytes. */
void tok_byte_symbols(tokenizer_build *b) {
    for (int i = 0; i < 256; i++) {
        uint32_t c = byte_character(i);
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

/* What the piece of a name stands for, in the text and when decoded. */
static int give_text(hf *h, uint32_t id, int in_model) {
    tokenizer_build *b = &h->b;
    tok_piece *p = &b->pieces[id];
    int byte = b->flags & TFM_TOK_BYTE_RUNS ? build_spelled_byte(p->name, p->name_length) : -1;
    p->reachable = in_model != 0;
    if (byte >= 0) {
        char text = (char)byte;
        p->text = arena_strndup(b->a, &text, 1);
        p->length = 1;
        p->flags |= TFM_TOKEN_BYTE;
        p->reachable = 0;
    } else if (h->byte_level_in) {
        uint32_t n;
        const char *bytes = tok_from_byte_level(b->a, p->name, p->name_length, &n);
        if (bytes) {
            p->text = bytes;
            p->length = n;
        } else {
            p->reachable = 0;
        }
    } else if (b->spaces) {
        if (memchr(p->name, ' ', p->name_length)) {
            p->flags |= TFM_TOK_PIECE_LITERAL;
            p->reachable = 0;
        }
        p->text = build_unmark(b, p->name, p->name_length, &p->length);
    }
    return p->text ? TFM_OK : tool_fail(b->err, TFM_ERR_MEMORY, "%s: out of memory", b->file);
}

static int read_vocab(hf *h, const json *vocab, int64_t last_added) {
    tokenizer_build *b = &h->b;
    int64_t id, highest = last_added;
    int code = TFM_OK;
    for (size_t i = 0; i < json_count(vocab) && !code; i++) {
        code = json_as_int(json_at(vocab, i), &id, b->err);
        if (!code && id > highest) highest = id;
    }
    if (!code) code = build_ids(b, highest + 1, json_count(vocab) + json_count(json_get(h->root, "added_tokens")) +
                                                    json_count(json_get(h->config, "added_tokens_decoder")));
    for (size_t i = 0; i < json_count(vocab) && !code; i++) {
        const json *item = json_at(vocab, i);
        code = json_as_int(item, &id, b->err);
        if (!code) code = build_piece(b, id, item->key, item->key_length);
        if (!code) code = give_text(h, (uint32_t)id, 1);
    }
    h->n_model = json_count(vocab);
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
    memcpy(text, left, n_left);
    memcpy(text + n_left, right, n_right);
    if (l != TOK_NONE && r != TOK_NONE) whole = build_find(b, text, n_left + n_right);
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

static int read_model(hf *h, int64_t last_added) {
    tokenizer_build *b = &h->b;
    const json *model, *vocab, *unk;
    int fuse, fallback, ignore;
    int code = json_object(h->root, "model", &model, b->err);
    if (code) return code;
    const json *type = json_get(model, "type");
    if (!json_is_null(type) && !is_text(type, "BPE")) return refuse(h, type, "only BPE is supported");
    if (json_count(json_get(model, "continuing_subword_prefix")) || json_count(json_get(model, "end_of_word_suffix"))) {
        return refuse(h, model, "continuing_subword_prefix and end_of_word_suffix are not supported");
    }
    code = json_bool_or(model, "fuse_unk", 0, &fuse, b->err);
    if (!code) code = json_bool_or(model, "byte_fallback", 0, &fallback, b->err);
    if (!code) code = json_bool_or(model, "ignore_merges", 0, &ignore, b->err);
    if (!code) code = json_object(model, "vocab", &vocab, b->err);
    if (!code) code = read_vocab(h, vocab, last_added);
    if (!code) code = read_merges(h, model);
    if (code) return code;
    b->ignore_merges = ignore;
    if (fuse) b->flags |= TFM_TOK_FUSE_UNK;
    if (h->byte_level_in) {
        b->flags |= TFM_TOK_BYTE_LEVEL;
        tok_byte_symbols(b);
    } else if (fallback) {
        b->flags |= TFM_TOK_BYTE_FALLBACK;
        for (unsigned i = 0; i < 256; i++) {
            const char *digits = "0123456789ABCDEF";
            char name[7] = {'<', '0', 'x', digits[i >> 4], digits[i & 15], '>', 0};
            b->byte_ids[i] = build_find(b, name, 6);
        }
    }
    unk = json_get(model, "unk_token");
    if (json_is(unk, JSON_STRING)) b->unk = build_find(b, unk->u.text, unk->count);
    if (b->unk == TOK_NONE) b->flags |= TFM_TOK_DROP_UNKNOWN;
    return TFM_OK;
}

/* ---- added tokens ------------------------------------------------------------------------------------------------ */

/* What a token to be matched in normalised text looks like there. */
static int normalise_match(hf *h, const json *at, tok_added *t) {
    tokenizer_build *b = &h->b;
    const json *norm = json_get(h->root, "normalizer");
    const json *list = is_text(json_get(norm, "type"), "Sequence") ? json_get(norm, "normalizers") : NULL;
    size_t n_parts = list ? json_count(list) : !json_is_null(norm);
    for (size_t i = 0; i < n_parts; i++) {
        const json *part = list ? json_at(list, i) : norm, *type = json_get(part, "type");
        if (is_text(type, "Prepend")) {
            const json *prefix = json_get(part, "prepend");
            char *text = (char *)arena_alloc(b->a, (size_t)prefix->count + t->match_length + 1);
            if (!text) return tool_fail(b->err, TFM_ERR_MEMORY, "%s: out of memory", b->file);
            memcpy(text, prefix->u.text, prefix->count);
            memcpy(text + prefix->count, t->match, t->match_length);
            t->match = text;
            t->match_length += prefix->count;
        } else if (is_text(type, "NFC")) {
            for (uint32_t k = 0; k < t->match_length; k++) {
                if ((unsigned char)t->match[k] >= 0xCC) return refuse(h, at, "NFC of an added token is not supported");
            }
        } else if (!is_mark_replace(part, " ", TOK_SPACE_MARK)) {
            return refuse(h, at, "an added token that goes through this normalizer is not supported");
        } else if (!b->spaces && memchr(t->match, ' ', t->match_length)) {
            return refuse(h, at, "an added token with a space that goes through this normalizer is not supported");
        }
    }
    if (!b->spaces) return TFM_OK;
    t->match = build_unmark(b, t->match, t->match_length, &t->match_length);
    return t->match ? TFM_OK : tool_fail(b->err, TFM_ERR_MEMORY, "%s: out of memory", b->file);
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
    if (t.normalized) code = normalise_match(h, item, &t);
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
    h->next_id = (int64_t)h->n_model;
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

static int survey(hf *h) {
    const json *decoder = json_get(h->root, "decoder");
    int code = walk(h, json_get(h->root, "normalizer"), "normalizers", normalizers, 1);
    if (!code) code = walk(h, json_get(h->root, "pre_tokenizer"), "pretokenizers", pre_tokenizers, 1);
    if (!code) code = walk(h, decoder, "decoders", decoders, 1);
    if (code) return code;
    if (json_is_null(decoder)) return refuse(h, h->root, "a tokenizer without a decoder is not supported");
    if (h->byte_level_in != h->byte_level_out) {
        return refuse(h, h->root, "ByteLevel in only one of pre_tokenizer and decoder is not supported");
    }
    if (h->mark_out && !h->mark_in) {
        return refuse(h, decoder, "it makes spaces of U+2581, but nothing makes U+2581 of spaces");
    }
    h->b.spaces = h->mark_in && h->mark_out;
    return TFM_OK;
}

static int read_json(hf *h) {
    int64_t highest;
    int code = survey(h);
    if (!code) code = walk(h, json_get(h->root, "normalizer"), "normalizers", normalizers, 0);
    h->b.n_norm = h->b.n_ops;
    if (!code) code = walk(h, json_get(h->root, "pre_tokenizer"), "pretokenizers", pre_tokenizers, 0);
    h->closed = 0;
    if (!code) code = walk(h, json_get(h->root, "decoder"), "decoders", decoders, 0);
    if (!code) code = last_added(h, &highest);
    if (!code) code = read_model(h, highest);
    if (!code) code = read_all_added(h);
    if (!code) code = walk(h, json_get(h->root, "post_processor"), "processors", processors, 0);
    if (code) return code;
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
            code = tokenizer_from_sentencepiece(a, &model_file, n_rows, out, err);
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
