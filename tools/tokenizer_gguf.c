/* tokenizer_gguf.c - the vocabularies in GGUF files: "gpt2" (byte-level, a named pre-tokenizer), "llama" (BPE by
 * scores),
 * "t5" (Unigram) and "bert" (WordPiece). The reference is llama.cpp; names of pre-tokenizers are known here and nowhere
 * else. */
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
/* Letters but for small (capital) ones of ASCII stand for words' capital (small) letters. */
#define NOT_SMALL "[\\p{L}&&[^a-z]]"
#define NOT_CAPITAL "[\\p{L}&&[^A-Z]]"
static const char gpt4o[] =
    BEFORE_WORD NOT_SMALL "*" NOT_CAPITAL "+" CONTRACTIONS "?|" BEFORE_WORD NOT_SMALL "+" NOT_CAPITAL "*" CONTRACTIONS
    "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" NEWLINES_AND_SPACES;
static const char granite_multi[] =
    BEFORE_WORD "[[\\p{L}\\p{M}]&&[^a-z]]*[[\\p{L}\\p{M}]&&[^A-Z]]+" CONTRACTIONS "?|" BEFORE_WORD
    "[[\\p{L}\\p{M}]&&[^a-z]]+[[\\p{L}\\p{M}]&&[^A-Z]]*" CONTRACTIONS
    "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" NEWLINES_AND_SPACES;
static const char tekken[] =
    BEFORE_WORD NOT_SMALL "*" NOT_CAPITAL "+|" BEFORE_WORD NOT_SMALL "+" NOT_CAPITAL "*|\\p{N}"
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" NEWLINES_AND_SPACES;
static const char cased[] = /* what gpt4o stands for, spelled out */
    BEFORE_WORD UPPER "*" LOWER "+" CONTRACTIONS "?|" BEFORE_WORD UPPER "+" LOWER "*" CONTRACTIONS "?|\\p{N}{1,3}"
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" NEWLINES_AND_SPACES;
static const char cased_digits[] =
    BEFORE_WORD UPPER "*" LOWER "+" CONTRACTIONS "?|" BEFORE_WORD UPPER "+" LOWER "*" CONTRACTIONS "?|\\p{N}"
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" NEWLINES_AND_SPACES;
static const char jais2[] =
    CONTRACTIONS "|" BEFORE_WORD "\\p{L}+|\\p{N}{1,3}" PUNCTUATION_RUNS "|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)"
    "|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}";
static const char qwen35[] =
    CONTRACTIONS "|" BEFORE_WORD "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" NEWLINES_AND_SPACES;
static const char bare_words[] = BEFORE_WORD "\\p{L}+|\\p{N}" PUNCTUATION_RUNS NEWLINES_AND_SPACES;
static const char all_digits[] = CONTRACTIONS "|" BEFORE_WORD "\\p{L}+|\\p{N}+" PUNCTUATION_RUNS NEWLINES_AND_SPACES;
static const char one_newline[] =
    "'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|" BEFORE_WORD "\\p{L}+|\\p{N}" PUNCTUATION_RUNS
    "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
static const char seed_coder[] =
    CONTRACTIONS "|" BEFORE_WORD "\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" NEWLINES_AND_SPACES;
static const char exaone_moe[] =
    CONTRACTIONS "|" BEFORE_WORD "(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?"
    "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
static const char spark[] =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+|[\\r\\n]|\\s+(?!\\S)|\\s+";
static const char lines[] = "[^\\n]+|[\\n]+";
static const char newline[] = "[\\r\\n]";
static const char spaced_letters[] = "\\s?\\p{L}+", spaced_punctuation[] = "\\s?\\p{P}+", last_spaces[] = "\\s+$";
static const char sentences[] =
    " ?[^(\\s|.,!?\xE2\x80\xA6\xE3\x80\x82\xEF\xBC\x8C\xE3\x80\x81\xE0\xA5\xA4\xDB\x94\xD8\x8C)]+";
static const char thousands[] = "(?=([0-9]{3})+(?![0-9]))";
/* By threes from the right; the first group with what stands before it. */
static const char counted[] = "[^\\p{N}]*\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))";
static const char cjk_hangul[] = "[\xE4\xB8\x80-\xE9\xBE\xA5\xE0\xA0\x80-\xE4\xB8\x80\xEA\xB0\x80-\xED\x9F\xBF]+";
static const char deepseek_letters[] =
    "\\s?[A-Za-z\xC2\xB5\xC3\x80-\xC3\x96\xC3\x98-\xC3\xB6\xC3\xB8-\xC6\xBA\xC6\xBC-\xC6\xBF\xC7\x84-\xCA"
    "\x93\xCA\x95-\xCA\xAF\xCD\xB0-\xCD\xB3\xCD\xB6\xCD\xB7\xCD\xBB-\xCD\xBD\xCD\xBF\xCE\x86\xCE\x88-\xCE"
    "\x8A\xCE\x8C\xCE\x8E-\xCE\xA1\xCE\xA3-\xCF\xB5\xCF\xB7-\xD2\x81\xD2\x8A-\xD4\xAF\xD4\xB1-\xD5\x96"
    "\xE1\x82\xA0-\xE1\x83\x85\xE1\x8E\xA0-\xE1\x8F\xB5\xE1\x8F\xB8-\xE1\x8F\xBD\xE1\xB2\x90-\xE1\xB2\xBA"
    "\xE1\xB2\xBD-\xE1\xB2\xBF\xE1\xB4\x80-\xE1\xB4\xAB\xE1\xB5\xAB-\xE1\xB5\xB7\xE1\xB5\xB9-\xE1\xB6\x9A"
    "\xE1\xB8\x80-\xE1\xBC\x95\xE1\xBC\x98-\xE1\xBC\x9D\xE1\xBC\xA0-\xE1\xBD\x85\xE1\xBD\x88-\xE1\xBD\x8D"
    "\xE1\xBD\x90-\xE1\xBD\x97\xE1\xBD\x99\xE1\xBD\x9B\xE1\xBD\x9D\xE1\xBD\x9F-\xE1\xBD\xBD\xE1\xBE\x80-"
    "\xE1\xBE\xB4\xE1\xBE\xB6-\xE1\xBE\xBC\xE1\xBE\xBE\xE1\xBF\x82-\xE1\xBF\x84\xE1\xBF\x86-\xE1\xBF\x8C"
    "\xE1\xBF\x90-\xE1\xBF\x93\xE1\xBF\x96-\xE1\xBF\x9B\xE1\xBF\xA0-\xE1\xBF\xAC\xE1\xBF\xB2-\xE1\xBF\xB4"
    "\xE1\xBF\xB6-\xE1\xBF\xBC\xE2\x84\x82\xE2\x84\x87\xE2\x84\x8A-\xE2\x84\x93\xE2\x84\x95\xE2\x84\x99-"
    "\xE2\x84\x9D\xE2\x84\xA4\xE2\x84\xA6\xE2\x84\xA8\xE2\x84\xAA-\xE2\x84\xAD\xE2\x84\xAF-\xE2\x84\xB4"
    "\xE2\x84\xB9\xE2\x84\xBC-\xE2\x84\xBF\xE2\x85\x85-\xE2\x85\x89\xE2\x85\x8E\xE2\x86\x83\xE2\x86\x84"
    "\xE2\xB0\x80-\xE2\xB1\xBB\xE2\xB1\xBE-\xE2\xB3\xA4\xE2\xB3\xAB-\xE2\xB3\xAE\xE2\xB3\xB2\xE2\xB3\xB3"
    "\xEA\x99\x80-\xEA\x99\xAD\xEA\x9A\x80-\xEA\x9A\x9B\xEA\x9C\xA2-\xEA\x9D\xAF\xEA\x9D\xB1-\xEA\x9E\x87"
    "\xEA\x9E\x8B-\xEA\x9E\x8E\xEA\xAD\xB0-\xEA\xAE\xBF\xEF\xAC\x80-\xEF\xAC\x86\xEF\xAC\x93-\xEF\xAC\x97"
    "\xEF\xBC\xA1-\xEF\xBC\xBA\xEF\xBD\x81-\xEF\xBD\x9A\xF0\x90\x90\x80-\xF0\x90\x91\x8F\xF0\x90\x92\xB0-"
    "\xF0\x90\x93\x93\xF0\x90\x93\x98-\xF0\x90\x93\xBB\xF0\x90\xB2\x80-\xF0\x90\xB2\xB2\xF0\x90\xB3\x80-"
    "\xF0\x90\xB3\xB2\xF0\x91\xA2\xA0-\xF0\x91\xA3\x9F\xF0\x9E\xA4\x80-\xF0\x9E\xA5\x83]+";
static const char deepseek_punctuation[] =
    "\\s?[!-/:-~\xEF\xBC\x81-\xEF\xBC\x8F\xEF\xBC\x9A-\xEF\xBD\x9E\xE2\x80\x98-\xE2\x80\x9F\xE3\x80\x80-"
    "\xE3\x80\x82]+";
static const char east_asian[] =
    "[\xEA\xB0\x80-\xED\x9E\xA3\xE3\x84\xB1-\xE3\x86\x8E]+|[\xEF\xBC\x81\xE2\x80\xA6\xE2\x80\x9C\xE2\x80"
    "\x9D\xE2\x80\x98\xE2\x80\x99\xE2\x80\x94\xEF\xBC\x9A\xEF\xBC\x9B\xEF\xBC\x8C\xE3\x80\x81-\xE3\x80"
    "\xBF\xEF\xB8\xB0-\xEF\xB9\x8F]+|[\xE3\x84\x85-\xE3\x84\xAF]+|[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-"
    "\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+";
static const char asian[] =
    "[\xE4\xB8\x80-\xE9\xBF\xBF\xE3\x90\x80-\xE4\xB6\xBF\xE8\xB1\x88-\xEF\xAB\xBF\xE3\x81\x80-\xE3\x82"
    "\x9F\xE3\x82\xA0-\xE3\x83\xBF\xEF\xBD\xA5-\xEF\xBE\x9F\xE2\xBC\x80-\xE2\xBF\x9F\xE0\xB9\x80-\xE0\xB9"
    "\xBF\xE0\xBA\x80-\xE0\xBB\xBF\xE1\x9E\x80-\xE1\x9F\xBF\xE1\x80\x80-\xE1\x82\x9F\xEA\xA9\xA0-\xEA\xA9"
    "\xBF\xEA\xA7\xA0-\xEA\xA7\xBF\xEA\xB0\x80-\xED\x9E\xAF\xE1\x84\x80-\xE1\x87\xBF]+";
static const char sentinel[] = "<sentinel:[0-9]+>", image[] = "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z";
static const char indents[] = "([\\t\\n]|    |  )", any_punctuation[] = "[\\p{P}!-/:-@\\[-`{-~]";
static const char falcon_punctuation[] = "[\\p{P}\\$\\+<=>\\^~\\|`]+";
static const char default_punctuation[] = "[\\p{P}\\$\\+<=>\\^~\\|]+";
static const char digits[] = "\\p{N}+";
static const char ascii_three[] = "[0-9][0-9][0-9]";

/* What the name in tokenizer.ggml.pre stands for: expressions, each applied to the pieces the one before left. */
enum { MAX_EXPRESSIONS = 6, WHOLE = 1, BOS = 2, SPACES = 4, SEP = 8 };
typedef struct pre_tokenizer {
    const char *names; /* blanks around each */
    const char *expressions[MAX_EXPRESSIONS];
    int how; /* WHOLE: words that are pieces stay whole; BOS, SEP: ids around; SPACES: pieces have U+2581,
        text no bytes */
} pre_tokenizer;

static const pre_tokenizer known[] = {
    {" default ", {default_punctuation, gpt2, digits, ascii_three}, 0},
    {" gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de mpt olmo jais gigachat a.x-4.0 mellum modern-bert exaone4"
     " trillion granite-docling ", {gpt2}, 0},
    {" jina-v1-en jina-v2-code roberta-bpe ", {gpt2}, SEP},
    {" smollm starcoder refact command-r codeshell exaone minerva-7b mellum2 ", {digit, gpt2}, 0},
    {" llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano ", {llama3}, WHOLE | BOS},
    {" dbrx smaug-bpe chatglm-bpe ", {llama3}, 0},
    {" glm4 glm5 ", {llama3}, WHOLE},
    {" jais-2 ", {jais2}, 0},
    {" qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2 ", {qwen2}, 0},
    {" qwen35 ", {qwen35}, 0},
    {" ufakzeka ", {bare_words}, 0},
    {" laguna ", {lines, qwen2}, 0},
    {" minicpm5 ", {three_digits, all_digits}, WHOLE},
    {" deepseek-llm ", {newline, deepseek_letters, deepseek_punctuation, last_spaces, cjk_hangul, digits}, 0},
    {" deepseek-coder ", {newline, spaced_letters, spaced_punctuation, cjk_hangul, digit}, 0},
    {" deepseek-v3 hunyuan-dense joyai-llm hy_v4 ", {three_digits, cjk, deepseek3}, 0},
    {" spark2_5 ", {three_digits, cjk, spark, digit}, 0},
    {" youtu ", {east_asian, cased_digits}, WHOLE},
    {" falcon ", {falcon_punctuation, gpt2, ascii_three}, 0},
    {" poro-chat bloom gpt3-finnish ", {sentences}, 0},
    {" viking ", {sentences, digit}, 0},
    {" gpt-4o llama4 kanana2 talkie minimax-m2 ", {gpt4o}, 0},
    {" granite-embed-multi-97m ", {granite_multi}, WHOLE},
    {" tiny_aya cohere2moe ", {counted, cased}, 0},
    {" afmoe ", {counted, asian, deepseek3}, 0},
    {" superbpe ", {digits, thousands}, 0},
    {" tekken ", {tekken}, WHOLE | BOS},
    {" chameleon ", {sentinel, image, indents, digit, any_punctuation, gpt2}, BOS},
    {" bailingmoe bailingmoe2 llada-moe ", {one_newline}, 0},
    {" seed-coder ", {seed_coder}, 0},
    {" exaone-moe ", {exaone_moe}, 0},
    {" gemma4 granite-embed-multi-311m sarvam-moe ", {lines}, SPACES},
};

const char *tokenizer_pre_names(int i) {
    const int n = (int)(sizeof known / sizeof known[0]);
    return i >= 0 && i < n ? known[(i + 1) % n].names : NULL;
}

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

/* The separator after the text, where the kind of vocabulary has one by default. */
static int separate(tokenizer_build *b, const vocabulary *v) {
    int64_t sep;
    int add, code = special_id(b, v, "tokenizer.ggml.seperator_token_id", -1, &sep); /* spelled so */
    if (!code && sep < 0) code = special_id(b, v, "tokenizer.ggml.separator_token_id", 102, &sep);
    if (!code) code = gguf_bool_or(v->g, "tokenizer.ggml.add_sep_token", 1, &add, b->err);
    if (!code && add && sep >= 0) b->suffix[b->n_suffix++] = (uint32_t)sep;
    return code;
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
    if ((*out)->how & SPACES) code = tok_space_ops(b, 0);
    for (int i = 0; i < MAX_EXPRESSIONS && (*out)->expressions[i] && !code; i++) {
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
    if (b->spaces) return type == TYPE_BYTE ? tok_byte_piece(b, id) : tok_space_piece(b, id);
    const int spelled = tok_from_byte_level(b->a, p->name, p->name_length, &p->text, &p->length);
    if (spelled < 0) return tool_fail(b->err, TFM_ERR_MEMORY, "%s: out of memory", b->file);
    if (!spelled) return TFM_OK; /* no byte-level name: no text leads to it */
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
    b->flags |= TFM_TOK_LONGEST;
    b->ignore_merges = (pre->how & WHOLE) != 0;
    if (pre->how & SPACES) {
        b->flags |= TFM_TOK_BYTE_FALLBACK | TFM_TOK_PER_BYTE | TFM_TOK_BYTE_RUNS;
    } else {
        b->flags |= TFM_TOK_BYTE_LEVEL;
        tok_byte_symbols(b);
    }
    code = surround(b, v, (pre->how & BOS) != 0, 11, 11, -1);
    return code || !(pre->how & SEP) ? code : separate(b, v);
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

/* ---- t5 ---------------------------------------------------------------------------------------------------------- */

static int t5_piece(tokenizer_build *b, const vocabulary *v, uint32_t id) {
    const gguf_string *s = &v->tokens->u.strings[id];
    int type = type_of(v, id), code = s->length ? build_piece(b, id, s->text, s->length) : TFM_OK;
    if (code || !s->length) return code;
    tok_piece *p = &b->pieces[id];
    p->score = (float)gguf_real_at(v->scores, id);
    if (type == TYPE_NORMAL && p->score - 10 < b->unk_score) b->unk_score = (float)p->score - 10.0f;
    if (type == TYPE_BYTE) return tok_byte_piece(b, id);
    if (type == TYPE_CONTROL || type == TYPE_UNKNOWN) return tok_matched_piece(b, id, 1, 0);
    code = tok_space_piece(b, id);
    if (type == TYPE_USER_DEFINED) p->score = 0;
    return code || type != TYPE_USER_DEFINED ? code : tok_matched_piece(b, id, 0, 0);
}

static int read_charsmap(tokenizer_build *b, const vocabulary *v) {
    static const char key[] = "tokenizer.ggml.precompiled_charsmap";
    const gguf_kv *map;
    if (!gguf_find(v->g, key)) return TFM_OK;
    int code = gguf_int_array(v->g, key, &map, b->err);
    char *bytes = code ? NULL : (char *)arena_alloc(b->a, (size_t)map->count + 1);
    if (code) return code;
    if (!bytes) return tool_fail(b->err, TFM_ERR_MEMORY, "%s: out of memory", b->file);
    for (size_t i = 0; i < map->count; i++) bytes[i] = (char)gguf_int_at(map, i);
    return map->count ? build_charsmap(b, bytes, (size_t)map->count, 0) : TFM_OK;
}

static int read_t5(tokenizer_build *b, vocabulary *v) {
    int prefix, squeeze, code = TFM_OK;
    if (!v->scores) return tool_fail(b->err, TFM_ERR_FORMAT, "%s: tokenizer.ggml.scores is missing", b->file);
    for (uint32_t id = 0; !code && id < v->tokens->count; id++) code = t5_piece(b, v, id);
    if (!code) code = gguf_bool_or(v->g, "tokenizer.ggml.add_space_prefix", 1, &prefix, b->err);
    if (!code) code = gguf_bool_or(v->g, "tokenizer.ggml.remove_extra_whitespaces", 0, &squeeze, b->err);
    if (!code) code = read_charsmap(b, v);
    if (!code && squeeze) code = build_op(b, TFM_TOK_SQUEEZE, 0, 0, 0);
    if (code) return code;
    b->model = TFM_TOK_UNIGRAM;
    b->flags |= TFM_TOK_PER_BYTE | TFM_TOK_BYTE_RUNS | TFM_TOK_LONGEST;
    code = tok_space_ops(b, prefix || squeeze); /* a run of spaces becomes one before each word, also the first */
    if (!code) code = surround(b, v, 0, -1, 1, 2);
    int add_eos = 1;
    if (!code) code = gguf_bool_or(v->g, "tokenizer.ggml.add_eos_token", 1, &add_eos, b->err);
    if (!code && add_eos && !b->n_suffix && b->out->eos >= 0) b->suffix[b->n_suffix++] = (uint32_t)b->out->eos;
    if (!code && b->out->unk >= 0) b->unk = (uint32_t)b->out->unk;
    return code;
}

/* ---- bert -------------------------------------------------------------------------------------------------------- */

static int bert_piece(tokenizer_build *b, const vocabulary *v, uint32_t id) {
    const gguf_string *s = &v->tokens->u.strings[id];
    int type = type_of(v, id), code = s->length ? build_piece(b, id, s->text, s->length) : TFM_OK;
    if (code || !s->length) return code;
    tok_piece *p = &b->pieces[id];
    p->reachable = 1;
    p->print = build_unmark(b, p->name, p->name_length, &p->n_print);
    if (!p->print) return tool_fail(b->err, TFM_ERR_MEMORY, "%s: out of memory", b->file);
    if (type == TYPE_NORMAL || type == TYPE_UNUSED || type == TYPE_BYTE) return TFM_OK;
    return tok_matched_piece(b, id, type != TYPE_USER_DEFINED, 0);
}

static int read_bert(tokenizer_build *b, vocabulary *v) {
    int lower = 1, accents = 1, code = TFM_OK;
    for (uint32_t id = 0; !code && id < v->tokens->count; id++) code = bert_piece(b, v, id);
    if (!code) code = gguf_bool_or(v->g, "tokenizer.ggml.normalizer.lowercase", 1, &lower, b->err);
    if (!code) code = gguf_bool_or(v->g, "tokenizer.ggml.normalizer.strip_accents", lower, &accents, b->err);
    const struct { unicode_map_kind kind; int wanted; double growth; } maps[] = {
        {UNICODE_GGUF_BASE, accents, 1.5}, {UNICODE_GGUF_CLEAN, 1, 1}, {UNICODE_GGUF_ACCENTS, accents, 1},
        {UNICODE_GGUF_ALONE, 1, 3}, {UNICODE_GGUF_LOWER, lower, 1.5}};
    for (size_t i = 0; !code && i < sizeof maps / sizeof maps[0]; i++) {
        const unicode_map map = unicode_map_of(maps[i].kind);
        if (maps[i].wanted) code = build_map(b, TFM_TOK_MAP, &map, maps[i].growth);
    }
    b->n_norm = b->n_ops;
    b->model = TFM_TOK_WORDPIECE;
    b->word_limit = INT32_MAX;
    b->flags |= TFM_TOK_LONGEST;
    if (!code) code = build_split(b, b->file, " ", 1, 0, TFM_TOK_REMOVED);
    if (!code) code = build_prepend(b, TOK_SPACE_MARK, 3, TFM_TOK_ALWAYS);
    if (!code) code = surround(b, v, 1, 101, -1, 100);
    if (!code) code = separate(b, v);
    if (!code && b->out->unk >= 0) b->unk = (uint32_t)b->out->unk;
    b->strip = 1 | (uint32_t)' ' << 16;
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
    else if (strcmp(model, "t5") == 0) code = read_t5(&b, &v);
    else if (strcmp(model, "bert") == 0) code = read_bert(&b, &v);
    else code = tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: tokenizer.ggml.model: \"%s\" is not supported", b.file, model);
    return code ? build_abandon(&b, code) : build_finish(&b);
}
