/* tokenizer_spm.c - vocabularies whose pieces have scores: SentencePiece models and tokenizer.bin of llama2.c. */
#include "json.h"
#include "llama2c.h"
#include "tokenizer_build.h"

#include <float.h>
#include <string.h>

enum { LIMIT_MODEL = 1 << 28 };

/* ---- protocol buffers, as far as needed -------------------------------------------------------------------------- */

typedef struct wire {
    const unsigned char *p, *end;
    int bad;
} wire;

typedef struct wire_field {
    uint32_t number;
    uint64_t value;    /* of a varint, or the bits of a fixed one */
    wire bytes;        /* of a length-delimited one */
    int kind;          /* 0 varint, 1 fixed64, 2 bytes, 5 fixed32 */
} wire_field;

static uint64_t wire_varint(wire *w) {
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (w->p == w->end) break;
        v |= (uint64_t)(*w->p & 127) << shift;
        if (*w->p++ < 128) return v;
    }
    w->bad = 1;
    return 0;
}

/* The next field; 0 at the end or if the bytes are damaged (w->bad). */
static int wire_next(wire *w, wire_field *f) {
    if (w->bad || w->p == w->end) return 0;
    uint64_t tag = wire_varint(w), left, n = 0;
    memset(f, 0, sizeof *f);
    f->number = (uint32_t)(tag >> 3);
    f->kind = (int)(tag & 7);
    if (f->kind == 0) {
        f->value = wire_varint(w);
        return !w->bad;
    }
    if (f->kind == 2) n = wire_varint(w);
    else if (f->kind == 1) n = 8;
    else if (f->kind == 5) n = 4;
    else w->bad = 1;
    left = (uint64_t)(w->end - w->p);
    if (w->bad || n > left || tag >> 3 > UINT32_MAX) { w->bad = 1; return 0; }
    f->bytes.p = w->p;
    f->bytes.end = w->p + n;
    if (f->kind == 5) f->value = load_u32(w->p);
    if (f->kind == 1) f->value = load_u64(w->p);
    w->p += n;
    return 1;
}

/* ---- SentencePiece ----------------------------------------------------------------------------------------------- */

enum { SPM_NORMAL = 1, SPM_UNKNOWN = 2, SPM_CONTROL = 3, SPM_USER_DEFINED = 4, SPM_UNUSED = 5, SPM_BYTE = 6 };
enum { SPM_UNIGRAM = 1, SPM_BPE = 2 };

typedef struct spm_model {
    uint64_t n_pieces, kind, byte_fallback, suffix, dummy_prefix, squeeze, escape;
    int64_t unk, bos, eos;
    wire unk_surface, charsmap;
    float worst; /* score of a normal piece */
} spm_model;

static int spm_damaged(tokenizer_build *b) {
    return tool_fail(b->err, TFM_ERR_FORMAT, "%s: not a SentencePiece model, or a damaged one", b->file);
}

static void spm_trainer(spm_model *m, wire w) {
    wire_field f;
    while (wire_next(&w, &f)) {
        if (f.number == 3) m->kind = f.value;
        if (f.number == 24) m->suffix = f.value;
        if (f.number == 35) m->byte_fallback = f.value;
        if (f.number == 40) m->unk = (int32_t)f.value;
        if (f.number == 41) m->bos = (int32_t)f.value;
        if (f.number == 42) m->eos = (int32_t)f.value;
        if (f.number == 44) m->unk_surface = f.bytes;
    }
}
static void spm_normalizer(spm_model *m, wire w) {
    wire_field f;
    while (wire_next(&w, &f)) {
        if (f.number == 2) m->charsmap = f.bytes;
        if (f.number == 3) m->dummy_prefix = f.value;
        if (f.number == 4) m->squeeze = f.value;
        if (f.number == 5) m->escape = f.value;
    }
}

static int spm_scan(tokenizer_build *b, wire w, spm_model *m) {
    static const unsigned char surface[] = " \xE2\x81\x87 ";
    wire_field f;
    memset(m, 0, sizeof *m);
    m->kind = SPM_UNIGRAM;
    m->dummy_prefix = m->squeeze = m->escape = 1;
    m->bos = 1;
    m->eos = 2;
    m->worst = FLT_MAX;
    m->unk_surface.p = surface;
    m->unk_surface.end = surface + 5;
    while (wire_next(&w, &f)) {
        if (f.number == 1) m->n_pieces++;
        if (f.number == 2) spm_trainer(m, f.bytes);
        if (f.number == 3) spm_normalizer(m, f.bytes);
    }
    if (w.bad || !m->n_pieces) return spm_damaged(b);
    const char *why = m->kind != SPM_BPE && m->kind != SPM_UNIGRAM ? "only BPE and Unigram models are supported"
                      : m->suffix                                  ? "treat_whitespace_as_suffix is not supported"
                      : !m->escape ? "a model that does not escape spaces is not supported"
                                   : NULL;
    return why ? tool_fail(b->err, TFM_ERR_UNSUPPORTED, "%s: %s", b->file, why) : TFM_OK;
}

/* A piece the text may hold: spaces where the vocabulary has U+2581. */
int tok_space_piece(tokenizer_build *b, uint32_t id) {
    tok_piece *p = &b->pieces[id];
    if (memchr(p->name, ' ', p->name_length)) {
        p->flags |= TFM_TOK_PIECE_LITERAL;
        return TFM_OK;
    }
    p->text = build_unmark(b, p->name, p->name_length, &p->length);
    p->reachable = p->text != NULL;
    return p->text ? TFM_OK : tool_fail(b->err, TFM_ERR_MEMORY, "%s: out of memory", b->file);
}

const char *tok_mark_spaces(arena *a, const char *text, size_t n, size_t *length) {
    char *out = (char *)arena_alloc(a, 3 * n + 1);
    size_t m = 0;
    for (size_t i = 0; out && i < n; i++) {
        if (text[i] == ' ') { memcpy(out + m, TOK_SPACE_MARK, 3); m += 3; }
        else out[m++] = text[i];
    }
    *length = m;
    return out;
}

/* The piece of a byte. */
int tok_byte_piece(tokenizer_build *b, uint32_t id) {
    tok_piece *p = &b->pieces[id];
    int byte = build_spelled_byte(p->name, p->name_length);
    if (byte < 0) return tool_fail(b->err, TFM_ERR_FORMAT, "%s: token \"%s\" is said to be a byte", b->file, p->name);
    char text = (char)byte;
    p->text = arena_strndup(b->a, &text, 1);
    p->length = 1;
    p->flags |= TFM_TOKEN_BYTE;
    b->byte_ids[byte] = id;
    return p->text ? TFM_OK : tool_fail(b->err, TFM_ERR_MEMORY, "%s: out of memory", b->file);
}

/* A token that is matched in the text rather than made by the model. */
int tok_matched_piece(tokenizer_build *b, uint32_t id, int control, int normalized) {
    tok_piece *p = &b->pieces[id];
    tok_added t = {0};
    t.name = t.match = p->name;
    t.name_length = t.match_length = p->name_length;
    t.id = id;
    t.flags = control ? TFM_TOK_CONTROL : 0;
    t.normalized = normalized;
    p->flags |= TFM_TOKEN_ADDED | (control ? (uint32_t)TFM_TOKEN_SPECIAL : 0u);
    if (normalized) t.match = build_unmark(b, p->name, p->name_length, &t.match_length);
    return build_add_token(b, &t);
}

static int spm_piece(tokenizer_build *b, spm_model *m, uint32_t id, wire w) {
    wire_field f;
    wire name = {NULL, NULL, 0};
    uint32_t score_bits = 0;
    uint64_t type = SPM_NORMAL;
    while (wire_next(&w, &f)) {
        if (f.number == 1) name = f.bytes;
        if (f.number == 2) score_bits = (uint32_t)f.value;
        if (f.number == 3) type = f.value;
    }
    size_t n = name.p ? (size_t)(name.end - name.p) : 0;
    if (w.bad || !n) return spm_damaged(b);
    const char *text = arena_strndup(b->a, (const char *)name.p, n);
    int code = text ? build_piece(b, id, text, n) : TFM_ERR_MEMORY;
    if (code) return code;
    tok_piece *p = &b->pieces[id];
    float score;
    memcpy(&score, &score_bits, 4);
    p->score = score;
    switch (type) {
    case SPM_NORMAL:
        if (score < m->worst) m->worst = score;
        return tok_space_piece(b, id);
    case SPM_BYTE: return tok_byte_piece(b, id);
    case SPM_USER_DEFINED:
        code = tok_space_piece(b, id);
        if (m->kind == SPM_UNIGRAM) p->score = 0; /* whatever the file says */
        if (memchr(text, ' ', n)) return code; /* no text has it, as spaces are U+2581 before it is looked for */
        return code || m->kind == SPM_UNIGRAM ? code : tok_matched_piece(b, id, 0, 1);
    case SPM_UNUSED:
        if (m->kind == SPM_UNIGRAM) return TFM_OK; /* a name for nothing */
        return tool_fail(b->err, TFM_ERR_UNSUPPORTED, "%s: unused pieces of a BPE model are not supported", b->file);
    case SPM_CONTROL:
        p->length = 0; /* prints nothing */
        return tok_matched_piece(b, id, 1, 0);
    case SPM_UNKNOWN:
        b->unk = id;
        p->text = arena_strndup(b->a, (const char *)m->unk_surface.p, (size_t)(m->unk_surface.end - m->unk_surface.p));
        p->length = (uint32_t)(m->unk_surface.end - m->unk_surface.p);
        p->flags |= TFM_TOK_PIECE_LITERAL;
        return p->text ? TFM_OK : TFM_ERR_MEMORY;
    default: return tool_fail(b->err, TFM_ERR_UNSUPPORTED,
                              "%s: token \"%s\" has the type %llu, which is not supported", b->file,
                              text, (unsigned long long)type);
    }
}

/* What stands before the model: the space in front, and U+2581 in the text, which counts as a space. */
int tok_space_ops(tokenizer_build *b, int prefix) {
    int code = prefix ? build_prepend(b, " ", 1, TFM_TOK_ALWAYS) : TFM_OK;
    if (!code) code = build_replace(b, TOK_SPACE_MARK, 3, " ", 1);
    b->n_norm = b->n_ops;
    b->spaces = 1;
    if (prefix) b->strip = 1 | (uint32_t)' ' << 16;
    return code;
}

/* A character without a piece costs 10 more than the worst piece. */
static void unigram_scores(tokenizer_build *b, const spm_model *m) {
    const float unknown = m->worst - 10;
    b->model = TFM_TOK_UNIGRAM;
    b->flags |= TFM_TOK_FLOAT_PATHS;
    b->unk_score = unknown;
}

/* Tokens that only tokenizer_config.json has (added_tokens_decoder: {"id": {content, special, ...}}), from id n on:
 * matched in the text before everything else. */
static int64_t last_extra(const json *extra, int64_t n) {
    int64_t id, last = n - 1;
    for (size_t i = 0; i < json_count(extra); i++) {
        const json *item = json_at(extra, i);
        if (!parse_int64(item->key, item->key_length, &id) && id > last) last = id;
    }
    return last;
}
static int extra_tokens(tokenizer_build *b, const json *extra, int64_t n) {
    int code = TFM_OK;
    for (size_t i = 0; i < json_count(extra) && !code; i++) {
        const json *item = json_at(extra, i), *content = json_get(item, "content");
        int64_t id;
        int special = 0;
        if (parse_int64(item->key, item->key_length, &id) || id < n || !json_is(content, JSON_STRING)) continue;
        code = build_piece(b, id, content->u.text, content->count);
        if (!code) code = json_bool_or(item, "special", 0, &special, b->err);
        if (!code) code = tok_matched_piece(b, (uint32_t)id, special, 0);
    }
    return code;
}

static int read_spm(tokenizer_build *b, wire w, const json *extra) {
    spm_model m;
    wire_field f;
    uint32_t id = 0;
    int code = spm_scan(b, w, &m);
    const int64_t n = code ? 0 : (int64_t)m.n_pieces;
    if (!code) code = build_ids(b, last_extra(extra, n) + 1, (size_t)n + json_count(extra));
    while (!code && wire_next(&w, &f)) if (f.number == 1) code = spm_piece(b, &m, id++, f.bytes);
    if (!code) code = extra_tokens(b, extra, n);
    if (code) return code;
    b->flags = TFM_TOK_FUSE_UNK | TFM_TOK_PER_BYTE | TFM_TOK_STRIP_MARKS | (m.byte_fallback
                                                                            ? (uint32_t)TFM_TOK_BYTE_FALLBACK : 0u);
    const size_t n_map = m.charsmap.p ? (size_t)(m.charsmap.end - m.charsmap.p) : 0;
    if (n_map) code = build_charsmap(b, (const char *)m.charsmap.p, n_map, 0);
    if (!code && m.squeeze) code = build_op(b, TFM_TOK_SQUEEZE, 1, 0, 0);
    if (!code) code = tok_space_ops(b, m.dummy_prefix != 0);
    if (m.squeeze) {
        b->flags |= TFM_TOK_STRIP_EACH;
        b->strip = 1 | (uint32_t)' ' << 16;
    }
    if (m.kind == SPM_UNIGRAM) unigram_scores(b, &m);
    else if (!code) code = build_merges_from_scores(b);
    b->out->bos = m.bos >= 0 && m.bos < (int64_t)m.n_pieces ? (int32_t)m.bos : -1;
    b->out->eos = m.eos >= 0 && m.eos < (int64_t)m.n_pieces ? (int32_t)m.eos : -1;
    return code;
}

int tokenizer_from_sentencepiece(arena *a, const source *model, const source *config, int64_t n_rows, tok_section *out,
                                 tfm_error *err) {
    const json *more = config ? json_read(config, LIMIT_MODEL, a, err) : NULL;
    tokenizer_build b;
    char *text;
    size_t n;
    build_begin(&b, a, model->name, n_rows, out, err);
    int code = config && !more ? TFM_ERR_FORMAT : source_read_all(model, LIMIT_MODEL, a, &text, &n, err);
    if (code) return code;
    wire w;
    w.p = (const unsigned char *)text;
    w.end = w.p + n;
    w.bad = 0;
    code = read_spm(&b, w, json_get(more, "added_tokens_decoder"));
    return code ? build_abandon(&b, code) : build_finish(&b);
}

/* ---- llama2.c ---------------------------------------------------------------------------------------------------- */

static int read_llama2c(tokenizer_build *b, const l2c_tokenizer *t) {
    int code = build_ids(b, (int64_t)t->n_pieces, t->n_pieces);
    for (uint32_t id = 0; !code && id < t->n_pieces; id++) {
        const l2c_piece *p = &t->pieces[id];
        size_t n;
        const char *name = tok_mark_spaces(b->a, p->text, p->length, &n);
        code = name ? build_piece(b, id, name, n) : TFM_ERR_MEMORY;
        if (code) break;
        b->pieces[id].score = p->score;
        if (id >= 3 && id < 259 && build_spelled_byte(name, n) == (int)id - 3) code = tok_byte_piece(b, id);
        else code = tok_space_piece(b, id);
        if (id < 3 && !code) { /* unknown, begin and end of text, whatever they look like */
            b->pieces[id].reachable = 0;
            code = tok_matched_piece(b, id, 1, 0);
        }
    }
    b->flags = TFM_TOK_BYTE_FALLBACK | TFM_TOK_PER_BYTE;
    if (!code) code = tok_space_ops(b, 1);
    if (!code) code = build_merges_from_scores(b);
    b->unk = 0;
    b->out->bos = 1;
    b->out->eos = 2;
    b->prefix[b->n_prefix++] = 1;
    return code;
}

int tokenizer_from_llama2c(arena *a, const source *bin, int64_t n_rows, tok_section *out, tfm_error *err) {
    tokenizer_build b;
    l2c_tokenizer t;
    build_begin(&b, a, bin->name, n_rows, out, err);
    int code = l2c_read_tokenizer(&t, bin, n_rows, a, err);
    if (code) return code;
    if (t.n_pieces < 259) {
        return tool_fail(err, TFM_ERR_FORMAT, "%s: %llu pieces, but the bytes alone take 259", bin->name,
                         (unsigned long long)t.n_pieces);
    }
    code = read_llama2c(&b, &t);
    return code ? build_abandon(&b, code) : build_finish(&b);
}
