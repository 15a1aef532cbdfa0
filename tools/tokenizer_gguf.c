/* tokenizer_gguf.c - the vocabularies in GGUF files: "gpt2" (byte-level, a named pre-tokenizer) and "llama"
 * (pieces with scores). The reference is llama.cpp; names of pre-tokenizers are known here and nowhere else. */
#include "tokenizer_build.h"

#include <string.h>

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_USER_DEFINED = 4, TYPE_UNUSED = 5, TYPE_BYTE = 6 };

#define CONTRACTIONS "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define NEWLINES_AND_SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define PUNCTUATION_RUNS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define BEFORE_WORD "[^\\r\\n\\p{L}\\p{N}]?"

static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)";
static const char digit[] = "\\p{N}";
static const char llama3[] =
    CONTRACTIONS "|" BEFORE_WORD "\\p{L}+|\\p{N}{1,3}" PUNCTUATION_RUNS NEWLINES_AND_SPACES;
static const char qwen2[] = CONTRACTIONS "|" BEFORE_WORD "\\p{L}+|\\p{N}" PUNCTUATION_RUNS NEWLINES_AND_SPACES;
static const char three_digits[] = "\\p{N}{1,3}";
static const char cjk[] = "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+";
static const char deepseek3[] =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*" NEWLINES_AND_SPACES;
static const char gpt4o[] =
    BEFORE_WORD UPPER "*" LOWER "+" CONTRACTIONS "?|" BEFORE_WORD UPPER "+" LOWER "*" CONTRACTIONS "?|\\p{N}{1,3}"
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" NEWLINES_AND_SPACES;
static const char tekken[] =
    BEFORE_WORD UPPER "*" LOWER "+|" BEFORE_WORD UPPER "+" LOWER "*|\\p{N}"
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" NEWLINES_AND_SPACES;
static const char falcon_punctuation[] = "[\\p{P}\\$\\+<=>\\^~\\|`]+";
static const char default_punctuation[] = "[\\p{P}\\$\\+<=>\\^~\\|]+";
static const char digits[] = "\\p{N}+";
static const char ascii_three[] = "[0-9][0-9][0-9]";

/* What the name in tokenizer.ggml.pre stands for: expressions, each applied to the pieces the one before left. */
typedef struct pre_tokenizer {
    const char *names; /* blanks around each */
    const char *expressions[4];
    int ignore_merges, add_bos;
} pre_tokenizer;

static const pre_tokenizer known[] = {
    {" default ", {default_punctuation, gpt2, digits, ascii_three}, 0, 0},
    {" gpt-2 phi-2 mpt olmo jais gigachat a.x-4.0 mellum exaone4 trillion granite-docling ", {gpt2}, 0, 0},
    {" smollm starcoder refact command-r codeshell exaone minerva-7b ", {digit, gpt2}, 0, 0},
    {" llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 ", {llama3}, 1, 1},
    {" dbrx smaug-bpe chatglm-bpe glm4 ", {llama3}, 0, 0},
    {" qwen2 deepseek-r1-qwen kormo megrez stablelm2 hunyuan grok-2 ", {qwen2}, 0, 0},
    {" deepseek-v3 hunyuan-dense ", {three_digits, cjk, deepseek3}, 0, 0},
    {" falcon ", {falcon_punctuation, gpt2, ascii_three}, 0, 0},
    {" gpt-4o llama4 kanana2 ", {gpt4o}, 0, 0},
    {" tekken ", {tekken}, 1, 1},
};

/* Tokens that end a turn or a text; files that call them ordinary are overruled. */
static const char *const control_names[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>", "<EOT>", "<|end_of_text|>",
        "</s>"};

typedef struct vocabulary {
    const gguf *g;
    const gguf_kv *tokens, *types, *scores, *merges;
} vocabulary;

static int type_of(const vocabulary *v, uint32_t id) {
    int type = v->types ? (int)gguf_int_at(v->types, id) : TYPE_NORMAL;
    const gguf_string *name = &v->tokens->u.strings[id];
    if (type != TYPE_NORMAL && type != TYPE_USER_DEFINED) return type;
    for (size_t i = 0; i < sizeof control_names / sizeof control_names[0]; i++) {
        if (name->length == strlen(control_names[i]) && memcmp(name->text, control_names[i],
                                                               name->length) == 0) return TYPE_CONTROL;
    }
    return type;
}

static int array_length(tokenizer_build *b, const vocabulary *v, const gguf_kv *kv) {
    if (!kv || kv->count == v->tokens->count) return TFM_OK;
    return tool_fail(b->err, TFM_ERR_FORMAT, "%s: %s has %llu entries for %llu tokens", b->file, kv->key,
                     (unsigned long long)kv->count, (unsigned long long)v->tokens->count);
}

static int find_arrays(tokenizer_build *b, vocabulary *v) {
    static const char types[] = "tokenizer.ggml.token_type", scores[] = "tokenizer.ggml.scores";
    int code = gguf_string_array(v->g, "tokenizer.ggml.tokens", &v->tokens, b->err);
    if (!code && gguf_find(v->g, types)) code = gguf_int_array(v->g, types, &v->types, b->err);
    if (!code && gguf_find(v->g, scores)) code = gguf_real_array(v->g, scores, &v->scores, b->err);
    if (!code) code = array_length(b, v, v->types);
    return code ? code : array_length(b, v, v->scores);
}

/* bos_token_id and the like; absent: the default of the kind. */
static int special_id(tokenizer_build *b, const vocabulary *v, const char *key, int64_t otherwise, int64_t *id) {
    int code = gguf_int_or(v->g, key, otherwise, id, b->err);
    if (code) return code;
    if (*id < 0 || *id >= (int64_t)v->tokens->count) {
        if (gguf_find(v->g, key)) {
            return tool_fail(b->err, TFM_ERR_FORMAT, "%s: %s: there is no token %lld", b->file, key, (long long)*id);
        }
        *id = -1;
    }
    return TFM_OK;
}

/* The ids around a text. */
static int surround(tokenizer_build *b, const vocabulary *v, int add_bos, int64_t default_bos, int64_t default_eos,
                    int64_t default_unk) {
    int64_t bos, eos, unk;
    int add_eos, code = special_id(b, v, "tokenizer.ggml.bos_token_id", default_bos, &bos);
    if (!code) code = special_id(b, v, "tokenizer.ggml.eos_token_id", default_eos, &eos);
    if (!code) code = special_id(b, v, "tokenizer.ggml.unknown_token_id", default_unk, &unk);
    if (!code) code = gguf_bool_or(v->g, "tokenizer.ggml.add_bos_token", add_bos, &add_bos, b->err);
    if (!code) code = gguf_bool_or(v->g, "tokenizer.ggml.add_eos_token", 0, &add_eos, b->err);
    if (code) return code;
    if (add_bos && bos >= 0) b->prefix[b->n_prefix++] = (uint32_t)bos;
    if (add_eos && eos >= 0) b->suffix[b->n_suffix++] = (uint32_t)eos;
    b->out->bos = (int32_t)bos;
    b->out->eos = (int32_t)eos;
    b->out->unk = (int32_t)unk;
    return TFM_OK;
}

/* ---- gpt2 -------------------------------------------------------------------------------------------------------- */

static int read_pre(tokenizer_build *b, const vocabulary *v, const pre_tokenizer **out) {
    const char *name;
    int code = gguf_str_or(v->g, "tokenizer.ggml.pre", "default", &name, b->err);
    if (code) return code;
    const char *padded = arena_printf(b->a, " %s ", name);
    *out = NULL;
    for (size_t i = 0; padded && i < sizeof known / sizeof known[0] && !*out; i++) {
        if (!strchr(name, ' ') && strstr(known[i].names, padded)) *out = &known[i];
    }
    if (!*out) {
        return tool_fail(b->err, TFM_ERR_UNSUPPORTED,
                         "%s: tokenizer.ggml.pre: the pre-tokenizer \"%s\" is not supported", b->file, name);
    }
    if (*out == &known[0]) {
        build_warn(b, arena_printf(b->a,
                                   "%s: tokenizer.ggml.pre names none, llama.cpp's default is used", b->file));
    }
    for (int i = 0; i < 4 && (*out)->expressions[i] && !code; i++) {
        const char *e = (*out)->expressions[i];
        code = build_split(b, b->file, e, strlen(e), 1, TFM_TOK_ISOLATED);
    }
    return code;
}

static int gpt2_piece(tokenizer_build *b, const vocabulary *v, uint32_t id) {
    const gguf_string *s = &v->tokens->u.strings[id];
    int type = type_of(v, id), code = s->length ? build_piece(b, id, s->text, s->length) : TFM_OK;
    if (code || !s->length) return code;
    tok_piece *p = &b->pieces[id];
    if (type == TYPE_UNUSED) { /* a name for nothing */
        p->length = 0;
        p->flags = 0;
        return TFM_OK;
    }
    if (type == TYPE_CONTROL || type == TYPE_UNKNOWN || type == TYPE_USER_DEFINED) {
        p->reachable = 1;
        return tok_matched_piece(b, id, type != TYPE_USER_DEFINED, 0);
    }
    uint32_t n;
    const char *text = tok_from_byte_level(b->a, p->name, p->name_length, &n);
    if (!text) return TFM_OK; /* no byte-level name: no text leads to it */
    p->text = text;
    p->length = n;
    p->reachable = 1;
    return TFM_OK;
}

static int read_gpt2(tokenizer_build *b, vocabulary *v) {
    static const char key[] = "tokenizer.ggml.merges";
    const pre_tokenizer *pre;
    int code = read_pre(b, v, &pre);
    if (!code) code = gguf_string_array(v->g, key, &v->merges, b->err);
    const char *where = arena_printf(b->a, "%s: %s", b->file, key);
    if (!code && !v->merges->count) code = tool_fail(b->err, TFM_ERR_FORMAT, "%s: the list of merges is empty", where);
    for (uint32_t id = 0; !code && id < v->tokens->count; id++) code = gpt2_piece(b, v, id);
    for (size_t i = 0; !code && i < v->merges->count; i++) {
        const gguf_string *s = &v->merges->u.strings[i];
        const char *space = s->length > 1 ? (const char *)memchr(s->text + 1, ' ', s->length - 1) : NULL;
        if (!space) return tool_fail(b->err, TFM_ERR_FORMAT, "%s: merge %zu is not a pair: \"%s\"", where, i, s->text);
        size_t n = (size_t)(space - s->text);
        code = tok_named_merge(b, where, s->text, n, space + 1, s->length - n - 1, (uint32_t)i);
    }
    if (code) return code;
    b->flags |= TFM_TOK_BYTE_LEVEL | TFM_TOK_LONGEST;
    b->ignore_merges = pre->ignore_merges;
    tok_byte_symbols(b);
    return surround(b, v, pre->add_bos, 11, 11, -1);
}

/* ---- llama ------------------------------------------------------------------------------------------------------- */

static int llama_piece(tokenizer_build *b, const vocabulary *v, uint32_t id) {
    const gguf_string *s = &v->tokens->u.strings[id];
    int type = type_of(v, id), code = s->length ? build_piece(b, id, s->text, s->length) : TFM_OK;
    if (code || !s->length) return code;
    tok_piece *p = &b->pieces[id];
    p->score = v->scores ? (float)gguf_real_at(v->scores, id) : 0;
    switch (type) {
    case TYPE_BYTE: return tok_byte_piece(b, id);
    case TYPE_CONTROL:
    case TYPE_UNKNOWN: return tok_matched_piece(b, id, 1, 0);
    case TYPE_USER_DEFINED:
        code = tok_matched_piece(b, id, 0, 0);
        p->flags |= TFM_TOK_PIECE_LITERAL;
        p->reachable = !memchr(p->name, ' ', p->name_length) && !strstr(p->name, TOK_SPACE_MARK);
        return code;
    case TYPE_UNUSED:
        p->length = 0;
        p->flags = 0;
        return TFM_OK;
    default: return tok_space_piece(b, id);
    }
}

static int read_llama(tokenizer_build *b, vocabulary *v) {
    int prefix, code = TFM_OK;
    if (!v->scores) return tool_fail(b->err, TFM_ERR_FORMAT, "%s: tokenizer.ggml.scores is missing", b->file);
    for (uint32_t id = 0; !code && id < v->tokens->count; id++) code = llama_piece(b, v, id);
    if (!code) code = gguf_bool_or(v->g, "tokenizer.ggml.add_space_prefix", 1, &prefix, b->err);
    if (code) return code;
    b->flags |= TFM_TOK_BYTE_FALLBACK | TFM_TOK_PER_BYTE | TFM_TOK_BYTE_RUNS | TFM_TOK_LONGEST;
    code = tok_space_ops(b, prefix);
    if (!code) code = build_merges_from_scores(b);
    if (!code) code = surround(b, v, 1, 1, 2, 0);
    if (!code && b->out->unk >= 0) b->unk = (uint32_t)b->out->unk;
    return code;
}

int tokenizer_from_gguf(arena *a, const gguf *g, int64_t n_rows, tok_section *out, tfm_error *err) {
    tokenizer_build b;
    vocabulary v = {0};
    const char *model;
    v.g = g;
    build_begin(&b, a, g->src.name, n_rows, out, err);
    int code = gguf_str(g, "tokenizer.ggml.model", &model, err);
    if (!code) code = find_arrays(&b, &v);
    if (!code) code = build_ids(&b, (int64_t)v.tokens->count, v.tokens->count);
    if (code) return build_abandon(&b, code);
    if (strcmp(model, "gpt2") == 0) code = read_gpt2(&b, &v);
    else if (strcmp(model, "llama") == 0) code = read_llama(&b, &v);
    else code = tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: tokenizer.ggml.model: \"%s\" is not supported", b.file, model);
    return code ? build_abandon(&b, code) : build_finish(&b);
}
