/* tokenizer_decoder.c - see tokenizer_decoder.h. A decoder is one row of the table at the end of the first part,
 * a reader and a case in run_step(). */
#include "tokenizer_decoder.h"

#include <stdlib.h>
#include <string.h>

enum { BYTE_LEVEL, REPLACE, FALLBACK, FUSE, STRIP, METASPACE, WORDPIECE, SUFFIX, CTC, JOIN };

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int refuse(const tokenizer_build *b, const json *at, const char *why) {
    char path[160];
    return tool_fail(b->err, TFM_ERR_UNSUPPORTED, "%s: %s", json_path(at, path, sizeof path), why);
}

static int text_of(const tokenizer_build *b, const json *part, const char *key, const char *otherwise,
                   const char **text,
                   size_t *n) {
    const json *v = json_get(part, key);
    if (json_is_null(v) && otherwise) {
        *text = otherwise;
        *n = strlen(otherwise);
        return TFM_OK;
    }
    if (!json_is(v, JSON_STRING)) return refuse(b, part, "expected a string");
    *text = v->u.text;
    *n = v->count;
    return TFM_OK;
}

static int read_byte_level(tok_decoder *d, tokenizer_build *b, const json *part, decoder_step *s) {
    (void)s;
    if (d->fused) return refuse(b, part, "ByteLevel after Fuse is not supported");
    d->fused = 1;
    return TFM_OK;
}
static int read_fuse(tok_decoder *d, tokenizer_build *b, const json *part, decoder_step *s) {
    (void)b; (void)part; (void)s;
    d->fused = 1;
    return TFM_OK;
}
static int read_fallback(tok_decoder *d, tokenizer_build *b, const json *part, decoder_step *s) {
    (void)s;
    if (d->fused) return refuse(b, part, "ByteFallback after Fuse is not supported");
    b->flags |= TFM_TOK_BYTE_RUNS | TFM_TOK_PER_BYTE;
    return TFM_OK;
}

static int one_character(const char *text, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count == 1;
}

static int read_replace(tok_decoder *d, tokenizer_build *b, const json *part, decoder_step *s) {
    const json *pattern = json_get(part, "pattern"), *string = json_get(pattern, "String");
    const json *regex = json_get(pattern, "Regex");
    char path[160];
    int code = text_of(b, part, "content", NULL, &s->to, &s->n_to);
    if (code) return code;
    if (json_is(string, JSON_STRING) && string->count) {
        s->from = string->u.text;
        s->n_from = string->count;
        if (d->fused && !one_character(s->from, s->n_from)) {
            return refuse(b, part, "after Fuse only a single character can be replaced");
        }
        return TFM_OK;
    }
    if (!json_is(regex, JSON_STRING) || d->fused) return refuse(b, part, "this Replace is not supported");
    s->rewrite = (tokenizer_build *)arena_alloc(b->a, sizeof *s->rewrite);
    tok_section *unused = (tok_section *)arena_alloc(b->a, sizeof *unused);
    if (!s->rewrite || !unused) return tool_fail(b->err, TFM_ERR_MEMORY, "%s: out of memory", b->file);
    build_begin(s->rewrite, b->a, b->file, 0, unused, b->err);
    code = build_rewrite(s->rewrite, json_path(regex, path, sizeof path), regex->u.text, regex->count, s->to, s->n_to);
    s->rewrite->n_norm = s->rewrite->n_ops;
    return code;
}

static int read_strip(tok_decoder *d, tokenizer_build *b, const json *part, decoder_step *s) {
    int code = text_of(b, part, "content", " ", &s->from, &s->n_from);
    if (!code) code = json_int_or(part, "start", 0, &s->start, b->err);
    if (!code) code = json_int_or(part, "stop", 0, &s->stop, b->err);
    if (code) return code;
    if (!one_character(s->from, s->n_from) || s->start < 0 || s->start > 255 || s->stop < 0 || s->stop > 255) {
        return refuse(b, part, "this Strip is not supported");
    }
    if (!d->fused) return TFM_OK;
    if (b->strip || s->n_from > 1) return refuse(b, part, "after Fuse one Strip of an ASCII character is supported");
    b->strip = (uint32_t)s->start | (uint32_t)s->stop << 8 | (uint32_t)(unsigned char)s->from[0] << 16;
    s->start = s->stop = 0;
    return TFM_OK;
}

/* Those whose result depends on where a token stands. */
static int by_place(tok_decoder *d, const tokenizer_build *b, const json *part) {
    if (d->fused || d->by_place) return refuse(b, part, "this decoder after another one is not supported");
    d->by_place = 1;
    return TFM_OK;
}
static int read_metaspace(tok_decoder *d, tokenizer_build *b, const json *part, decoder_step *s) {
    const json *scheme = json_get(part, "prepend_scheme");
    int add = 1, code = text_of(b, part, "replacement", TOK_SPACE_MARK, &s->from, &s->n_from);
    if (!code) code = json_bool_or(part, "add_prefix_space", 1, &add, b->err);
    s->on = add && !(json_is(scheme, JSON_STRING) && strcmp(scheme->u.text, "never") == 0);
    return code || !s->on ? code : by_place(d, b, part);
}
static int read_wordpiece(tok_decoder *d, tokenizer_build *b, const json *part, decoder_step *s) {
    int code = text_of(b, part, "prefix", "##", &s->from, &s->n_from);
    if (!code) code = json_bool_or(part, "cleanup", 1, &s->on, b->err);
    return code ? code : by_place(d, b, part);
}
static int read_suffix(tok_decoder *d, tokenizer_build *b, const json *part, decoder_step *s) {
    int code = text_of(b, part, "suffix", "</w>", &s->from, &s->n_from);
    d->last_differs = 1;
    return code ? code : by_place(d, b, part);
}
static int read_ctc(tok_decoder *d, tokenizer_build *b, const json *part, decoder_step *s) {
    int code = text_of(b, part, "pad_token", "<pad>", &s->from, &s->n_from);
    if (!code) code = text_of(b, part, "word_delimiter_token", "|", &s->to, &s->n_to);
    if (!code) code = json_bool_or(part, "cleanup", 1, &s->on, b->err);
    b->flags |= TFM_TOK_ONCE;
    return code || !d->n ? code : refuse(b, part, "CTC after another decoder is not supported");
}

typedef struct decoder_row {
    const char *type;
    int kind;
    int (*read)(tok_decoder *d, tokenizer_build *b, const json *part, decoder_step *s);
} decoder_row;

static const decoder_row rows[] = {
    {"ByteLevel", BYTE_LEVEL, read_byte_level}, {"Replace", REPLACE, read_replace},
    {"ByteFallback", FALLBACK, read_fallback},  {"Fuse", FUSE, read_fuse},
    {"Strip", STRIP, read_strip},               {"Metaspace", METASPACE, read_metaspace},
    {"WordPiece", WORDPIECE, read_wordpiece},   {"BPEDecoder", SUFFIX, read_suffix},
    {"CTC", CTC, read_ctc},                     {NULL, 0, NULL},
};

static int add_step(tok_decoder *d, tokenizer_build *b, const json *part, const decoder_row *row) {
    decoder_step *s = &d->steps[d->n];
    if (d->n == TOK_MAX_STEPS) return refuse(b, part, "too many decoders");
    s->kind = row->kind;
    int code = row->read(d, b, part, s);
    d->n++;
    return code;
}

static int read_part(tok_decoder *d, tokenizer_build *b, const json *part, int depth) {
    const char *type;
    char path[160];
    int code = json_string(part, "type", &type, b->err);
    if (code) return code;
    if (strcmp(type, "Sequence") == 0) {
        const json *parts;
        if (depth > 8) return refuse(b, part, "sequences are nested too deeply");
        code = json_array(part, "decoders", &parts, b->err);
        for (size_t i = 0; !code && i < json_count(parts); i++) code = read_part(d, b, json_at(parts, i), depth + 1);
        return code;
    }
    for (const decoder_row *row = rows; row->type; row++) {
        if (strcmp(type, row->type) == 0) return add_step(d, b, part, row);
    }
    return tool_fail(b->err, TFM_ERR_UNSUPPORTED, "%s: \"%s\" is not supported", json_path(part, path, sizeof path),
                     type);
}

int decoder_read(tok_decoder *d, tokenizer_build *b, const json *decoder) {
    memset(d, 0, sizeof *d);
    if (!json_is_null(decoder)) return read_part(d, b, decoder, 0);
    d->steps[d->n++].kind = JOIN;
    d->by_place = 1;
    return TFM_OK;
}

void decoder_free(tok_decoder *d) {
    for (int i = 0; i < d->n; i++) if (d->steps[i].rewrite) build_abandon(d->steps[i].rewrite, 0);
}

/* ---- carrying out ------------------------------------------------------------------------------------------------ */

/* A text that a step works on. */
typedef struct text {
    const char *p;
    size_t n;
} text;

/* Every `from` replaced by `to`; the text itself if there is none. */
static text replaced(arena *a, text t, const char *from, size_t n_from, const char *to, size_t n_to) {
    size_t hits = 0, m = 0;
    for (size_t i = 0; n_from && i + n_from <= t.n;) {
        const int hit = memcmp(t.p + i, from, n_from) == 0;
        hits += (size_t)hit;
        i += hit ? n_from : 1;
    }
    if (!hits) return t;
    char *out = (char *)arena_alloc(a, t.n + hits * n_to + 1);
    for (size_t i = 0; out && i < t.n;) {
        const int hit = i + n_from <= t.n && memcmp(t.p + i, from, n_from) == 0;
        if (hit) memcpy(out + m, to, n_to);
        else out[m] = t.p[i];
        m += hit ? n_to : 1;
        i += hit ? n_from : 1;
    }
    t.p = out;
    t.n = m;
    return t;
}

static text cleaned_up(arena *a, text t) {
    static const char *const pairs[][2] = {{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"},
                                           {" n't", "n't"}, {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"},
                                           {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; t.p && i < sizeof pairs / sizeof pairs[0]; i++) {
        t = replaced(a, t, pairs[i][0], strlen(pairs[i][0]), pairs[i][1], strlen(pairs[i][1]));
    }
    return t;
}

static text with_space(arena *a, text t) {
    char *out = (char *)arena_alloc(a, t.n + 2);
    if (out) {
        out[0] = ' ';
        memcpy(out + 1, t.p, t.n);
    }
    t.p = out;
    t.n++;
    return t;
}

/* Takes up to start and stop characters away. */
static text stripped(text t, const decoder_step *s) {
    for (int64_t i = 0; i < s->start && t.n >= s->n_from && memcmp(t.p, s->from, s->n_from) == 0; i++) {
        t.p += s->n_from;
        t.n -= s->n_from;
    }
    for (int64_t i = 0; i < s->stop && t.n >= s->n_from; i++) {
        if (memcmp(t.p + t.n - s->n_from, s->from, s->n_from) != 0) break;
        t.n -= s->n_from;
    }
    return t;
}

static text run_step(tokenizer_build *b, const decoder_step *s, text t, int first, int last) {
    uint32_t n = (uint32_t)t.n;
    switch (s->kind) {
    case BYTE_LEVEL:
        if (tok_from_byte_level(b->a, t.p, t.n, &t.p, &n) < 0) t.p = NULL;
        t.n = n;
        return t;
    case REPLACE:
        if (s->rewrite) t.p = build_normalised(s->rewrite, t.p, t.n, &t.n);
        else t = replaced(b->a, t, s->from, s->n_from, s->to, s->n_to);
        return t;
    case STRIP: return stripped(t, s);
    case METASPACE: return replaced(b->a, t, s->from, s->n_from, " ", first && s->on ? 0 : 1);
    case WORDPIECE:
        if (!first && t.n >= s->n_from && memcmp(t.p, s->from, s->n_from) == 0) { t.p += s->n_from; t.n -= s->n_from; }
        else if (!first) t = with_space(b->a, t);
        return s->on ? cleaned_up(b->a, t) : t;
    case SUFFIX: return replaced(b->a, t, s->from, s->n_from, " ", last ? 0 : 1);
    case CTC:
        t = replaced(b->a, t, s->from, s->n_from, "", 0);
        if (t.p && s->on) t = replaced(b->a, cleaned_up(b->a, t), s->to, s->n_to, " ", 1);
        return t;
    case JOIN: return first ? t : with_space(b->a, t);
    default: return t;
    }
}

/* What a token prints at a place. *byte: the byte that it spells, or -1. */
static text printed(tok_decoder *d, tokenizer_build *b, text t, int first, int last, int *byte) {
    *byte = -1;
    for (int i = 0; i < d->n && t.p; i++) {
        if (d->steps[i].kind == FALLBACK && (*byte = build_spelled_byte(t.p, t.n)) >= 0) {
            const char value = (char)*byte;
            t.p = arena_strndup(b->a, &value, 1);
            t.n = 1;
            break;
        }
        t = run_step(b, &d->steps[i], t, first, last);
    }
    return t;
}

static int same(text x, text y) { return x.n == y.n && memcmp(x.p, y.p, x.n) == 0; }

/* Whether `first` is `whole` without its spaces. */
static int is_bare(text first, text whole) {
    size_t m = 0;
    for (size_t i = 0; i < whole.n; i++) {
        if (whole.p[i] == ' ') continue;
        if (m >= first.n || first.p[m] != whole.p[i]) return 0;
        m++;
    }
    return m == first.n;
}

static int piece_prints(tok_decoder *d, tokenizer_build *b, tok_piece *p, int *all_bare) {
    int byte, ignored;
    text name = {p->print ? p->print : p->name, p->print ? p->n_print : p->name_length};
    text model = {p->text, p->length}, inside = printed(d, b, name, 0, 0, &byte), end = inside, first = inside;
    if (d->last_differs) end = printed(d, b, name, 0, 1, &ignored);
    if (d->by_place && !d->last_differs) first = printed(d, b, name, 1, 0, &ignored);
    if (!inside.p || !end.p || !first.p) return tool_fail(b->err, TFM_ERR_MEMORY, "%s: out of memory", b->file);
    if (!same(inside, end)) {
        if (inside.n != end.n + 1 || inside.p[inside.n - 1] != ' ' || memcmp(inside.p, end.p, end.n) != 0) {
            return tool_fail(b->err, TFM_ERR_UNSUPPORTED, "%s: decoder: token \"%s\" has the suffix inside", b->file,
                             p->name);
        }
        p->flags |= TFM_TOK_PIECE_SPACE;
        inside = first = end;
    }
    if (byte >= 0) p->flags |= TFM_TOKEN_BYTE;
    p->print = same(inside, model) ? NULL : inside.p;
    p->n_print = (uint32_t)inside.n;
    p->first = same(first, inside) ? NULL : first.p;
    p->n_first = (uint32_t)first.n;
    *all_bare &= is_bare(first, inside);
    return TFM_OK;
}

int decoder_apply(tok_decoder *d, tokenizer_build *b) {
    int all_bare = 1, differ = 0, code = TFM_OK;
    for (uint32_t id = 0; !code && id < b->n_ids; id++) {
        tok_piece *p = &b->pieces[id];
        if (p->name && p->flags & TFM_TOKEN_PRESENT) code = piece_prints(d, b, p, &all_bare);
        differ |= p->first != NULL;
    }
    if (code || !differ || !all_bare) return code;
    for (uint32_t id = 0; id < b->n_ids; id++) b->pieces[id].first = NULL;
    b->flags |= TFM_TOK_FIRST_BARE;
    return TFM_OK;
}
