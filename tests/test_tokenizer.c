/* Tokenizers: ids and texts against the references in ref/tokenizers/ (made by ref_tokenizers.py), and the faults that
 * others shipped: tokens and rows that disagree, merges in either spelling, characters over several tokens,
     the space in
 * front, control tokens typed by a user, damaged sections, very long words.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "tools/gguf.h"
#include "tools/json.h"
#include "tools/tokenizer.h"

#define EMPTY_ARENA { 0 }

/* A tokenizer with room to work in. */
typedef struct opened {
    arena a;
    tok_section section;
    uint64_t mem[64];
    const tfm_tokenizer *t;
    tfm_error err;
    int code;
} opened;

static char *slurp(arena *a, const char *name, size_t *n)
{
    char path[512], *data = NULL, *copy;
    tfm_error err;
    snprintf(path, sizeof path, "%s/ref/tokenizers/%s", test_data(), name);
    if (read_whole(path, 1 << 24, &data, n, &err)) {
        check(0, "%s", err.msg);
        return NULL;
    }
    copy = arena_strndup(a, data, *n);
    free(data);
    return copy;
}

static void open_section(opened *o)
{
    o->t = NULL;
    if (o->code) return;
    o->code = tfm_tokenizer_open(o->section.bytes, o->section.size, o->mem, sizeof o->mem, &o->t, &o->err);
    check(o->code == TFM_OK, "opening: %s", o->err.msg);
}

static void from_json_text(opened *o, const char *text, int64_t n_rows)
{
    source src = source_memory("tokenizer.json", text, strlen(text));
    o->code = tokenizer_from_json(&o->a, &src, NULL, n_rows, &o->section, &o->err);
    open_section(o);
}

/* What stands around a model, and the model, as one document. */
static char *document(arena *a, const char *around, const char *vocab)
{
    const int whole = strcmp(vocab, "bytes_whole") == 0;
    size_t n, n_around = strlen(around);
    char *model = slurp(a, strcmp(vocab, "marks") == 0 ? "vocab_marks.json" : "vocab_bytes.json", &n);
    char *ignore = model ? strstr(model, "\"ignore_merges\":false") : NULL;
    if (!model) return NULL;
    if (whole && ignore) memcpy(ignore, "\"ignore_merges\":true ", 21);
    return arena_printf(a, "%.*s,\"model\":%s}", (int)(n_around - 1), around, model);
}

/* ids of a text; -1 after an error. Scratch and ids have exactly the sizes that the library asks for. */
static int64_t encode(const tfm_tokenizer *t, const char *text, size_t n, int32_t flags, int32_t **ids)
{
    tfm_error err;
    int64_t n_ids = 0, most = tfm_encode_max(t, n);
    size_t room = tfm_encode_size(t, n);
    void *scratch = malloc(room);
    *ids = (int32_t *)malloc(((size_t)most + 1) * sizeof **ids);
    int code = tfm_encode(t, text, n, flags, *ids, most, &n_ids, scratch, room, &err);
    free(scratch);
    check(code == TFM_OK, "encode: %s", code ? err.msg : "");
    return code ? -1 : n_ids;
}

static int same_ids(const json *expected, const int32_t *ids, int64_t n)
{
    if ((int64_t)json_count(expected) != n) return 0;
    for (size_t i = 0; i < json_count(expected); i++) {
        int64_t id;
        if (json_as_int(json_at(expected, i), &id, NULL) || id != ids[i]) return 0;
    }
    return 1;
}

/* The whole decoded text and, where the reference does not look ahead, the joined pieces of streaming. */
static void check_decoded(const opened *o, const char *name, size_t row, const int32_t *ids, int64_t n, int32_t flags,
                          const char *expected, size_t length)
{
    char *text = (char *)malloc(length + 64), *stream;
    size_t m = tfm_decode_text(o->t, ids, n, flags, text, length + 64), most = tfm_decode_max(o->t), at = 0;
    tfm_decoder d;
    check(m == length && memcmp(text, expected, length) == 0, "%s row %zu flags %d: decoded \"%.*s\"", name, row,
          (int)flags,
          (int)(m < 60 ? m : 60), text);
    stream = (char *)malloc(most * ((size_t)n + 2));
    tfm_decode_init(&d, o->t, flags);
    for (int64_t i = 0; i < n; i++) at += tfm_decode(&d, ids[i], stream + at, most);
    at += tfm_decode_flush(&d, stream + at, most);
    check(at == length && memcmp(stream, expected, length) == 0, "%s row %zu flags %d: streamed text differs", name,
          row, (int)flags);
    free(stream);
    free(text);
}

/* One row: [ids, ids with specials parsed, text, text without specials]; 0: the same, null: not known. */
static void check_row(const opened *o, const char *name, size_t row, const json *text, const json *expected)
{
    const json *plain = json_at(expected, 0), *parsed = json_at(expected, 1);
    for (int parse = 0; parse < 2; parse++) {
        const json *want = parse && !json_is(parsed, JSON_NUMBER) ? parsed : plain;
        int32_t *ids;
        if (parse && json_is_null(parsed)) break;
        int64_t n = encode(o->t, text->u.text, text->count, parse ? TFM_ENCODE_PARSE_SPECIAL : 0, &ids);
        check(same_ids(want, ids, n), "%s row %zu \"%.40s\": ids differ (parse %d)", name, row, text->u.text, parse);
        if (same_ids(want, ids, n) && (parse || json_is_null(parsed))) {
            for (int skip = 0; skip < 2; skip++) {
                const json *decoded = json_at(expected, 2 + (size_t)skip);
                if (json_is_null(decoded)) continue;
                if (json_is(decoded, JSON_NUMBER)) decoded = text;
                check_decoded(o, name, row, ids, n, skip ? TFM_DECODE_SKIP_SPECIAL : 0, decoded->u.text,
                              decoded->count);
            }
        }
        free(ids);
    }
}

static void check_rows(const opened *o, const char *name, const json *texts, const json *rows, int no_zeros)
{
    size_t at = 0;
    if (o->code) {
        check(0, "%s: %s", name, o->err.msg);
        return;
    }
    for (size_t i = 0; i < json_count(texts); i++) {
        const json *text = json_at(texts, i);
        if (no_zeros && memchr(text->u.text, 0, text->count)) continue;
        check_row(o, name, i, text, json_at(rows, at++));
    }
    check(at == json_count(rows), "%s: %zu rows for %zu texts", name, json_count(rows), at);
}

static const json *read_rows_of(arena *a, const char *file)
{
    tfm_error err;
    size_t n;
    char *text = slurp(a, file, &n);
    const json *root = text ? json_parse(file, text, n, a, &err) : NULL;
    if (text) check(root != NULL, "%s", root ? "" : err.msg);
    return root;
}

static const json *read_rows(arena *a) { return read_rows_of(a, "rows.json"); }

static const char *member_text(const json *object, const char *key)
{
    const json *v = json_get(object, key);
    return json_is(v, JSON_STRING) ? v->u.text : "";
}

/* ---- against the references ------------------------------------------------------------------------------------- */

void test_tokenizer_json(void)
{
    arena a = EMPTY_ARENA;
    const json *root = read_rows(&a), *list = json_get(root, "json");
    for (size_t i = 0; i < json_count(list); i++) {
        const json *kind = json_at(list, i);
        opened o;
        memset(&o, 0, sizeof o);
        char *text = document(&a, member_text(kind, "around"), member_text(kind, "vocab"));
        if (text) from_json_text(&o, text, 0);
        if (text) check_rows(&o, member_text(kind, "name"), json_get(root, "texts"), json_get(kind, "rows"), 0);
        arena_free(&o.a);
    }
    check(json_count(list) >= 10, "rows.json lists %zu tokenizers", json_count(list));
    arena_free(&a);
}

/* A seed for tests/fuzz/fuzz_vocabulary.c: the kind, a text, the file. */
static void write_vocabulary_seed(int kind, const char *name, const char *data, size_t n)
{
    static const char text[] = "Hello  the world's 12 \xE6\x97\xA5<s>";
    char *seed = (char *)malloc(n + 64);
    seed[0] = (char)kind;
    seed[1] = (char)(sizeof text - 1);
    memcpy(seed + 2, text, sizeof text - 1);
    memcpy(seed + 1 + sizeof text, data, n);
    write_seed("vocabulary", name, seed, n + 1 + sizeof text);
    free(seed);
}

/* One for each kind of component. The fuzz target for tokenizer.json begins from the same documents. */
void test_tokenizer_kinds(void)
{
    arena a = EMPTY_ARENA;
    const json *root = read_rows_of(&a, "kinds.json"), *list = json_get(root, "json");
    for (size_t i = 0; i < json_count(list); i++) {
        const json *kind = json_at(list, i), *document = json_get(kind, "document");
        char seed[32];
        opened o;
        memset(&o, 0, sizeof o);
        from_json_text(&o, document->u.text, 0);
        check_rows(&o, member_text(kind, "name"), json_get(root, "texts"), json_get(kind, "rows"), 0);
        arena_free(&o.a);
        snprintf(seed, sizeof seed, "kind_%zu.json", i);
        write_seed("tokenizer", seed, document->u.text, document->count);
        write_seed("json", seed, document->u.text, document->count);
    }
    check(json_count(list) >= 15, "kinds.json lists %zu tokenizers", json_count(list));
    arena_free(&a);
}

void test_tokenizer_sentencepiece(void)
{
    arena a = EMPTY_ARENA;
    const json *root = read_rows(&a), *list = json_get(root, "model");
    for (size_t i = 0; i < json_count(list); i++) {
        const json *kind = json_at(list, i);
        opened o;
        size_t n;
        memset(&o, 0, sizeof o);
        char *data = slurp(&a, member_text(kind, "name"), &n);
        if (!data) continue;
        source src = source_memory(member_text(kind, "name"), data, n);
        write_vocabulary_seed(0, member_text(kind, "name"), data, n);
        o.code = tokenizer_from_sentencepiece(&o.a, &src, NULL, 0, &o.section, &o.err);
        open_section(&o);
        check_rows(&o, member_text(kind, "name"), json_get(root, "texts"), json_get(kind, "rows"), 1);
        arena_free(&o.a);
    }
    arena_free(&a);
}

/* A lone model file takes the tokens that only tokenizer_config.json knows. */
void test_tokenizer_model_config(void)
{
    static const char config[] = "{\"added_tokens_decoder\":{\"1\":{\"content\":\"<s>\",\"special\":true},"
                                 "\"%d\":{\"content\":\"<|tool|>\",\"special\":false},"
                                 "\"%d\":{\"content\":\"<|end|>\",\"special\":true}}}";
    static const char text[] = "hello<|tool|>the<|end|>";
    opened o;
    size_t n;
    char more[256];
    int32_t *ids, first = 0;
    memset(&o, 0, sizeof o);
    char *data = slurp(&o.a, "dummy_prefix.model", &n);
    if (!data) return;
    source src = source_memory("tokenizer.model", data, n);
    o.code = tokenizer_from_sentencepiece(&o.a, &src, NULL, 0, &o.section, &o.err);
    first = o.section.n_ids;
    snprintf(more, sizeof more, config, (int)first, (int)first + 1);
    source extra = source_memory("tokenizer_config.json", more, strlen(more));
    o.code = tokenizer_from_sentencepiece(&o.a, &src, &extra, 0, &o.section, &o.err);
    open_section(&o);
    if (o.t) {
        int64_t count = encode(o.t, text, strlen(text), TFM_ENCODE_PARSE_SPECIAL, &ids), tools = 0, ends = 0;
        for (int64_t i = 0; i < count; i++) tools += ids[i] == first, ends += ids[i] == first + 1;
        check(tools == 1 && ends == 1 && ids[count - 1] == first + 1, "added tokens, parsed");
        free(ids);
        count = encode(o.t, text, strlen(text), 0, &ids);
        tools = ends = 0;
        for (int64_t i = 0; i < count; i++) tools += ids[i] == first, ends += ids[i] == first + 1;
        check(tools == 1 && ends == 0, "the control token that a user typed is text");
        free(ids);
    }
    arena_free(&o.a);
}

/* Another name of the pre-tokenizer, of any length, in a file's bytes. */
static char *rename_pre(arena *a, const char *data, size_t *n, const char *pre)
{
    static const char key[] = "tokenizer.ggml.pre";
    const size_t key_length = sizeof key - 1, length = strlen(pre);
    for (size_t i = 0; i + key_length + 12 < *n; i++) {
        if (memcmp(data + i, key, key_length) != 0) continue;
        const size_t at = i + key_length + 4, old = (size_t)load_u64(data + at);
        char *out = (char *)arena_alloc(a, *n + length);
        memcpy(out, data, at);
        memset(out + at, 0, 8);
        out[at] = (char)length;
        memcpy(out + at + 8, pre, length);
        memcpy(out + at + 8 + length, data + at + 8 + old, *n - at - 8 - old);
        *n += length - old;
        return out;
    }
    return NULL;
}

static void from_gguf_bytes(opened *o, const char *name, const char *data, size_t n)
{
    source src = source_memory(name, data, n);
    gguf g;
    memset(o, 0, sizeof *o);
    o->code = gguf_open(&g, &src, &o->a, &o->err);
    if (!o->code) o->code = tokenizer_from_gguf(&o->a, &g, 0, &o->section, &o->err);
    open_section(o);
}

static void check_gguf_rows(const char *file)
{
    arena a = EMPTY_ARENA;
    const json *root = read_rows_of(&a, file), *list = json_get(root, "gguf");
    opened o;
    check(json_count(list) > 2, "%s lists %zu GGUF files", file, json_count(list));
    for (size_t i = 0; i < json_count(list); i++) {
        const json *kind = json_at(list, i);
        size_t n;
        char *data = slurp(&a, member_text(kind, "name"), &n);
        if (data && *member_text(kind, "pre")) data = rename_pre(&a, data, &n, member_text(kind, "pre"));
        if (!data) continue;
        write_vocabulary_seed(1, member_text(kind, "name"), data, n);
        from_gguf_bytes(&o, member_text(kind, "name"), data, n);
        const char *pre = member_text(kind, "pre");
        check_rows(&o, *pre ? pre : member_text(kind, "name"), json_get(root, "texts"), json_get(kind, "rows"), 0);
        arena_free(&o.a);
    }
    arena_free(&a);
}

void test_tokenizer_gguf(void)
{
    arena a = EMPTY_ARENA;
    opened o;
    size_t n;
    check_gguf_rows("rows.json");
    check_gguf_rows("kinds.json"); /* ids by llama.cpp itself */
    char *data = slurp(&a, "bytes.gguf", &n);
    if (data) data = rename_pre(&a, data, &n, "no-such-name");
    if (data) {
        from_gguf_bytes(&o, "bytes.gguf", data, n);
        check(o.code == TFM_ERR_UNSUPPORTED && strstr(o.err.msg, "no-such-name"), "an unknown pre-tokenizer: %s",
              o.err.msg);
        arena_free(&o.a);
    }
    arena_free(&a);
}

/* ---- faults others shipped -------------------------------------------------------------------------------------- */

#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}"
#define PLAIN(added) "{\"added_tokens\":[" added "],\"normalizer\":null,\"pre_tokenizer\":" BYTE_LEVEL \
                     ",\"post_processor\":null,\"decoder\":" BYTE_LEVEL "}"
#define TOKEN(id, content, special) "{\"id\":" id ",\"content\":\"" content "\",\"special\":" special "}"

static void open_kind(opened *o, const char *around, int64_t n_rows)
{
    arena a = EMPTY_ARENA;
    memset(o, 0, sizeof *o);
    char *text = document(&a, around, "bytes");
    o->code = TFM_ERR_IO;
    if (text) from_json_text(o, text, n_rows);
    arena_free(&a);
}

/* Token ids, vocabulary size and rows of the embedding need not agree. */
void test_tokenizer_rows(void)
{
    opened o;
    size_t n;
    int32_t *ids;
    open_kind(&o, PLAIN(TOKEN("323", "<s>", "true")), 340);
    check(o.code == TFM_OK && tfm_vocab_size(o.t) == 340, "padded rows: %s", o.err.msg);
    if (o.t) {
        const int32_t padded[] = { 64, 335, 339, 400, -1, 66 };
        char text[16];
        check(tfm_token_piece(o.t, 335, &n) == NULL && n == 0, "a padding row has a piece");
        check(tfm_decode_text(o.t, padded, 6, 0, text, sizeof text) == 2, "padding rows print something");
        check(tfm_token_find(o.t, "<s>", 3) == 323 && tfm_token_flags(o.t, 323) & TFM_TOKEN_SPECIAL,
              "<s> is not found");
    }
    arena_free(&o.a);
    open_kind(&o, PLAIN(TOKEN("323", "<s>", "true") "," TOKEN("324", "<t>", "true")), 324);
    check(o.code && strstr(o.err.msg, "324"), "an id past the rows: %s", o.err.msg);
    arena_free(&o.a);
    open_kind(&o, PLAIN(TOKEN("323", "<s>", "true") "," TOKEN("5000", "<far>", "true")), 0);
    check(o.code && strstr(o.err.msg, "5000") && strstr(o.err.msg, "324"), "a gap: %s", o.err.msg);
    arena_free(&o.a);
    open_kind(&o, PLAIN(TOKEN("0", "!", "false") "," TOKEN("323", "<s>", "true") "," TOKEN("323", "<s>", "true")), 0);
    check(o.code == TFM_OK, "a token that is listed twice: %s", o.err.msg);
    if (o.t) {
        check(encode(o.t, "the<s>!", 7, TFM_ENCODE_PARSE_SPECIAL, &ids) >= 3, "ids of repeated tokens");
        free(ids);
    }
    arena_free(&o.a);
}

/* A list of merges is never silently empty. */
void test_tokenizer_merges(void)
{
    static const char head[] = "{\"pre_tokenizer\":" BYTE_LEVEL ",\"decoder\":" BYTE_LEVEL
                               ",\"model\":{\"type\":\"BPE\",\"vocab\":"
                               "{\"a\":0,\"b\":1,\"#\":2,\"ab\":3,\"##\":4},\"merges\":";
    static const struct { const char *merges; int ok; } cases[] = {
        {"[\"a b\",\"# #\"]", 1}, {"[[\"a\",\"b\"],[\"#\",\"#\"]]", 1}, {"[]", 0}, {"[\"a c\"]", 0}, {"[\"b a\"]", 0},
        {"[[\"a\",\"b\",\"a\"]]", 0}, {"[[1,2]]", 0}, {"[\"a  b\"]", 0}, {"null", 0}, {"[\"ab\"]", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        opened o;
        memset(&o, 0, sizeof o);
        snprintf(text, sizeof text, "%s%s}}", head, cases[i].merges);
        from_json_text(&o, text, 0);
        check((o.code == TFM_OK) == cases[i].ok, "merges %s: %s", cases[i].merges, o.err.msg);
        if (o.t) {
            int32_t *ids;
            int64_t n = encode(o.t, "ab##zb", 6, 0, &ids); /* z is in no piece and falls away */
            check(n == 3 && ids[0] == 3 && ids[1] == 4 && ids[2] == 1, "ids with merges %s", cases[i].merges);
            free(ids);
        }
        arena_free(&o.a);
    }
}

/* ids of single bytes, then what each prints. */
static void check_stream(const tfm_tokenizer *t, const char *bytes, size_t n, const char *const *expected)
{
    tfm_decoder d;
    char out[64];
    tfm_decode_init(&d, t, 0);
    for (size_t i = 0; i <= n; i++) {
        int32_t id = i < n ? tfm_token_find(t, bytes + i, 1) : 0;
        check(id >= 0, "byte %zu has no token", i);
        size_t m = i < n ? tfm_decode(&d, id, out, sizeof out) : tfm_decode_flush(&d, out, sizeof out);
        check(m == strlen(expected[i]) && memcmp(out, expected[i], m) == 0, "byte %zu prints \"%.*s\"", i, (int)m, out);
    }
}

void test_tokenizer_stream(void)
{
    static const char *const llama[] = {"", "", "", "\xF0\x9F\xA6\x99", ""}, *const cut[] = {"", "", "",
            "\xEF\xBF\xBD"};
    static const char *const bad[] = {"", "", ("\xEF\xBF\xBD" "I"), ""}, *const stray[] = {"\xEF\xBF\xBD",
            "\xEF\xBF\xBD", ""};
    static const char *const two[] = {"", "", "\xEF\xBF\xBD\xEF\xBF\xBD", "\xEF\xBF\xBD", ""};
    opened o;
    open_kind(&o, PLAIN(TOKEN("323", "<s>", "true")), 0);
    if (!o.t) return;
    check_stream(o.t, "\xF0\x9F\xA6\x99", 4, llama);
    check_stream(o.t, "\xF0\x9F\xA6", 3, cut);
    check_stream(o.t, "\xF0\x9F" "I", 3, bad);
    check_stream(o.t, "\xA6\xA6", 2, stray);
    check_stream(o.t, "\xE0\xA0\xC0\x80", 4, two);
    tfm_decoder d, before;
    char out[4];
    tfm_decode_init(&d, o.t, 0);
    tfm_decode(&d, tfm_token_find(o.t, "\xF0", 1), out, sizeof out);
    before = d;
    check(tfm_decode(&d, tfm_token_find(o.t, "I", 1), out, 3) == 4, "too little room is not reported");
    check(memcmp(&d, &before, sizeof d) == 0, "too little room changes something");
    arena_free(&o.a);
}

/* Markers that a user types are text unless asked for; text is cleaned of what is no UTF-8. */
void test_tokenizer_text(void)
{
    static const char bad[] = "a\xFF\xE2\x82z\xF0\x9F\xA6\xED\xA0\x80", good[] =
        "a\xEF\xBF\xBD\xEF\xBF\xBDz\xEF\xBF\xBD"
                                                                              "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD";
    opened o;
    int32_t *ids, *others;
    open_kind(&o, PLAIN(TOKEN("323", "<|im_end|>", "true") "," TOKEN("324", "<tool>", "false")), 0);
    if (!o.t) return;
    int64_t n = encode(o.t, "<|im_end|>", 10, TFM_ENCODE_PARSE_SPECIAL, &ids);
    check(n == 1 && ids[0] == 323, "a special token that is asked for");
    free(ids);
    n = encode(o.t, "<|im_end|>", 10, 0, &ids);
    check(n > 1, "a special token typed by a user became one");
    free(ids);
    n = encode(o.t, "<tool>", 6, 0, &ids);
    check(n == 1 && ids[0] == 324, "an added token that is not special");
    free(ids);
    n = encode(o.t, bad, sizeof bad - 1, 0, &ids);
    check(n == encode(o.t, good, sizeof good - 1, 0, &others) && memcmp(ids, others, (size_t)n * 4) == 0, "bad UTF-8");
    free(ids);
    free(others);
    check(tfm_encode_size(o.t, ((size_t)1 << 28) + 1) == 0 && tfm_encode_max(o.t, ((size_t)1 << 28) + 1) == -1,
          "a size that is too large");
    arena_free(&o.a);
}

/* Calls work() with every tokenizer of rows.json and kinds.json. */
static void with_each(void (*work)(opened *o, void *user), void *user)
{
    arena a = EMPTY_ARENA;
    const json *forms = json_get(read_rows(&a), "json"), *kinds = json_get(read_rows_of(&a, "kinds.json"), "json");
    const size_t n_forms = json_count(forms);
    for (size_t i = 0; i < n_forms + json_count(kinds); i++) {
        const json *kind = i < n_forms ? json_at(forms, i) : json_at(kinds, i - n_forms);
        const char *text = i < n_forms ? document(&a, member_text(kind, "around"), member_text(kind, "vocab"))
                                       : member_text(kind, "document");
        opened o;
        memset(&o, 0, sizeof o);
        if (text) from_json_text(&o, text, 0);
        check(o.t != NULL, "%s: %s", member_text(kind, "name"), o.err.msg);
        if (o.t) work(&o, user);
        arena_free(&o.a);
    }
    arena_free(&a);
}

/* Text that is long in one piece takes no time to speak of, whatever it is made of. */
static void encode_long(opened *o, void *user)
{
    static const char *const units[] = {"a", " ", "\n", "1", "A", "e\xCC\x81\xCC\xA3", "\xE6\x97\xA5", "\xFF", "'",
                                        " a", "the", "\xCC\xA3\xCC\x81"};
    enum { SIZE = 20000 };
    static char text[SIZE];
    (void)user;
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        const size_t length = strlen(units[u]);
        int32_t *ids;
        for (size_t k = 0; k < SIZE; k++) text[k] = units[u][k % length];
        encode(o->t, text, SIZE, 0, &ids);
        free(ids);
    }
}

void test_tokenizer_long(void) { with_each(encode_long, NULL); }

/* A damaged section is refused or gives some ids; nothing is read outside (run this under a sanitizer). */
typedef struct damage {
    uint64_t state;
    int opened_anyway;
} damage;

/* Whatever its bytes say, what an id prints fits the room that the tokenizer asks for. */
static void check_decode_max(const tfm_tokenizer *t)
{
    const size_t room = tfm_decode_max(t);
    tfm_decoder d;
    char *out = (char *)malloc(room);
    size_t most = 0, n;
    tfm_decode_init(&d, t, 0);
    for (int32_t id = 0; id < 400; id++) {
        n = tfm_decode(&d, id, out, room);
        most = n > most ? n : most;
    }
    free(out);
    n = tfm_decode_flush(&d, NULL, 0);
    check(most <= room && n <= room, "%d bytes printed, room for %d", (int)most, (int)room);
}

static void use_damaged(const tfm_tokenizer *t)
{
    static const char text[] = "Hello  the world's 123 <s>\n\n \xE6\x97\xA5 e\xCC\x81 <|im_end|><word> "
                               "\r\n\xE1\x84\x80";
    int32_t ids[256];
    int64_t n = 0;
    size_t room = tfm_encode_size(t, sizeof text - 1);
    void *scratch = room && room < 1 << 28 ? malloc(room) : NULL;
    char out[64];
    if (scratch) tfm_encode(t, text, sizeof text - 1, TFM_ENCODE_PARSE_SPECIAL, ids, 256, &n, scratch, room, NULL);
    if (scratch) tfm_normalize(t, text, sizeof text - 1, out, sizeof out, scratch, room);
    tfm_decode_text(t, ids, n < 256 ? n : 256, 0, out, sizeof out);
    check_decode_max(t);
    free(scratch);
}

static void damage_section(opened *o, void *user)
{
    damage *d = (damage *)user;
    const size_t size = o->section.size, head = 4 * (TFM_TOK_TABLES + 2 * TFM_TOK_N_TABLES);
    for (int round = 0; round < 200; round++) {
        uint8_t *copy = (uint8_t *)malloc(size);
        const tfm_tokenizer *t;
        memcpy(copy, o->section.bytes, size);
        for (int hits = 1 + round % 4; hits; hits--) {
            d->state ^= d->state << 13;
            d->state ^= d->state >> 7;
            d->state ^= d->state << 17;
            size_t at = (size_t)(d->state % (round % 2 ? size : head));
            copy[at] = (uint8_t)(d->state >> (round % 3 ? 32 : 40));
        }
        if (!round) { /* a lie about the longest text alone */
            memcpy(copy, o->section.bytes, size);
            memset(copy + 4 * TFM_TOK_MAX_TEXT, 0, 4);
        }
        size_t cut = round % 16 == 15 ? (size_t)(d->state % size) : size;
        if (tfm_tokenizer_open(copy, cut, o->mem, sizeof o->mem, &t, NULL) == TFM_OK) {
            use_damaged(t);
            d->opened_anyway++;
        }
        free(copy);
    }
}

void test_tokenizer_damage(void)
{
    damage d = {88172645463325252u, 0};
    with_each(damage_section, &d);
    check(d.opened_anyway > 100, "only %d damaged sections were opened", d.opened_anyway);
}

/* What cannot be converted is refused with its place; what looks like that but can be, is not. */
void test_tokenizer_refused(void)
{
    static const struct { const char *pattern, *message; } cases[] = {
        {"a(b", "at byte 1: a group without an end"}, {"a)", "at byte 1: a ) without a ("}, {"x{2,1}", "at byte 1"},
        {"*a", "at byte 0: nothing to repeat"}, {"[a", "at byte 2: ] expected"}, {"[z-a]", "a range runs backwards"},
        {"\\\\p{Klingon}", "at byte 3: this property is not known"}, {"(a)\\\\1",
                                                                      "at byte 3: this escape is not supported"},
        {"(?<=a+)b", "look-behind without a fixed length"}, {"(a*)*", "can be empty and is repeated without limit"},
        {"(?>(ab)+)", "repetition without limit"}, {"a{2000}", "a count above 1024"}, {"(?<n>a)(?(1)b)",
                                                                                       "not supported"},
        {"a|(?i:stra\\\\x{DF}e)(?=.*x)", NULL}, {"(?<!a|bc)x|[^\\\\p{Han}&&[:alpha:]]++|\\\\b(?:\\\\s\\\\w)*?z", NULL},
            {"(?=x)|a*", NULL}};
    static const char form[] = "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},"
                               "\"behavior\":\"Isolated\"},"
                               "\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0},\"unk_token\":\"a\"}}";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        opened o;
        memset(&o, 0, sizeof o);
        snprintf(text, sizeof text, form, cases[i].pattern);
        from_json_text(&o, text, 0);
        if (cases[i].message) {
            check(o.code == TFM_ERR_UNSUPPORTED && strstr(o.err.msg, cases[i].message) && strstr(o.err.msg, "Regex"),
                  "%s: code %d, %s", cases[i].pattern, o.code, o.err.msg);
        } else {
            check(o.code == TFM_OK, "%s: %s", cases[i].pattern, o.err.msg);
        }
        arena_free(&o.a);
    }
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

/* Encodes n bytes of one kind. Returns the result, its message in err. */
static int encode_run(const tfm_tokenizer *t, char byte, size_t n, int64_t *n_ids, tfm_error *err)
{
    const size_t room = tfm_encode_size(t, n);
    char *text = (char *)malloc(n);
    void *scratch = malloc(room);
    memset(text, byte, n);
    const int code = tfm_encode(t, text, n, 0, NULL, 0, n_ids, scratch, room, err);
    free(scratch);
    free(text);
    return code;
}

/* Opens a document, damages the section, and checks that a run of 'a' ends with an error that says why. */
static void check_slow(const char *what, const char *text, void (*spoil)(uint8_t *section), size_t n)
{
    opened o;
    tfm_error err;
    int64_t n_ids;
    memset(&o, 0, sizeof o);
    from_json_text(&o, text, 0);
    check(o.code == TFM_OK, "%s: %s", what, o.err.msg);
    if (o.t && spoil) {
        spoil(o.section.bytes);
        open_section(&o);
    }
    if (o.t) {
        const int code = encode_run(o.t, 'a', n, &n_ids, &err);
        check(code == TFM_ERR_FORMAT && strstr(err.msg, "too long"), "%s: result %d", what, code);
    }
    arena_free(&o.a);
}

static uint8_t *table_of(uint8_t *section, int k, uint32_t *n)
{
    const uint8_t *row = section + 4 * (TFM_TOK_TABLES + 2 * k);
    *n = load_u32(row + 4);
    return section + load_u32(row);
}

/* Every node becomes its own child. */
static void make_rings(uint8_t *section, int table)
{
    uint32_t n;
    uint8_t *node = table_of(section, table, &n);
    for (uint32_t i = 0; i < n; i++, node += 8) {
        node[0] = (uint8_t)i;
        node[1] = node[2] = 0;
    }
}
static void damage_pieces(uint8_t *section) { make_rings(section, TFM_TOK_TRIE_PIECES); }
static void damage_added(uint8_t *section)
{
    make_rings(section, TFM_TOK_TRIE_RAW);
    memset(section + 4 * TFM_TOK_MAX_ADDED, 255, 2);
}

/* The double array of a precompiled map: from the root 'a' leads to a node from where 'a' leads back to itself. */
static void damage_map(uint8_t *section)
{
    uint32_t n;
    uint8_t *op = table_of(section, TFM_TOK_OPS, &n);
    uint8_t *unit = table_of(section, TFM_TOK_STRINGS, &n) + load_u32(op + 4) + 4;
    memset(op + 16, 0, 4); /* no rows of groups: the longest key counts */
    memset(unit, 0, 4);
    unit += 4 * 'a';
    unit[0] = 'a';
    unit[1] = (uint8_t)('a' << 2);
    unit[2] = (uint8_t)('a' >> 6);
    unit[3] = 0;
}

/* What is put before a word is put before every word, also where it stands already. */
static void damage_prepend(uint8_t *section)
{
    uint32_t n;
    uint8_t *op = table_of(section, TFM_TOK_OPS, &n);
    for (; n; n--, op += 24)
        if (load_u32(op) == TFM_TOK_PREPEND) op[12] = TFM_TOK_ALWAYS;
}

#define WORD_LEVEL "\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0},\"unk_token\":\"a\"}}"

/* Bytes for which every look-up takes as long as the text, or the text doubles with each operation. */
void test_tokenizer_slow(void)
{
    static const char unigram[] = "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":"
                                  "[[\"<unk>\",0],[\"a\",-1],[\"aa\",-2]]}}";
    static char text[1 << 15], zeros[601];
    size_t n;
    check_slow("a Unigram whose trie has rings", unigram, damage_pieces, 5000);

    snprintf(text, sizeof text,
             "{\"added_tokens\":[{\"id\":1,\"content\":\"ab\",\"special\":false,\"normalized\":false}],"
             WORD_LEVEL);
    check_slow("added tokens whose trie has rings", text, damage_added, 5000);

    memset(zeros, 'A', 600); /* base64: 450 zero bytes, then the number of bytes of the units: 98 of them */
    memcpy(zeros, "iAEAA", 5);
    snprintf(text, sizeof text,
             "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"%s\"}," WORD_LEVEL, zeros);
    check_slow("a precompiled map with a ring", text, damage_map, 5000);

    n = (size_t)snprintf(text, sizeof text, "{\"model\":{\"type\":\"WordPiece\",\"continuing_subword_prefix\":\"##\","
                         "\"unk_token\":\"a\",\"max_input_chars_per_word\":2000000,\"vocab\":{\"a\":0,\"##a\":1,\"##");
    memset(text + n, 'a', 5000);
    snprintf(text + n + 5000, sizeof text - n - 5000, "b\":2}}}");
    check_slow("a WordPiece of long words and pieces", text, NULL, 5000);

    n = (size_t)snprintf(text, sizeof text, "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[");
    for (int i = 0; i < 10; i++)
        n += (size_t)snprintf(text + n, sizeof text - n,
                              "{\"type\":\"FixedLength\",\"length\":1},{\"type\":\"Metaspace\","
                              "\"replacement\":\"_\",\"prepend_scheme\":\"always\",\"split\":false}%s",
                              i < 9 ? "," : "]},");
    snprintf(text + n, sizeof text - n, WORD_LEVEL);
    check_slow("a pre-tokenizer that doubles the text again and again", text, damage_prepend, 100);
}

/* White space that one added token takes away is not looked at again for the next. */
void test_tokenizer_strip(void)
{
    enum { N = 1 << 17 };
    opened o;
    tfm_error err;
    int64_t n_ids = 0;
    memset(&o, 0, sizeof o);
    from_json_text(&o, "{\"added_tokens\":[{\"id\":1,\"content\":\" \",\"special\":false,\"normalized\":false,"
                       "\"rstrip\":true}]," WORD_LEVEL, 0);
    check(o.code == TFM_OK, "rstrip: %s", o.err.msg);
    if (o.t) {
        const int code = encode_run(o.t, ' ', N, &n_ids, &err);
        check(code == TFM_ERR_MEMORY && n_ids == N, "rstrip: result %d, %d ids", code, (int)n_ids);
    }
    arena_free(&o.a);
}

/* Expressions that would take long to compile, or to match: look-aheads in look-aheads, each with 8192 ways through it,
 * none of which matches. */
void test_tokenizer_patience(void)
{
    static const char form[] = "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},"
                               "\"behavior\":\"Isolated\"}," WORD_LEVEL;
    char pattern[2048] = "", text[4096];
    opened o;
    for (int depth = 0; depth < 4; depth++) {
        strcat(pattern, "(?=");
        for (int i = 0; i < 13; i++) strcat(pattern, "(?:aa|aa)");
    }
    strcat(pattern, "x))))");
    snprintf(text, sizeof text, form, pattern);
    check_slow("nested look-aheads", text, NULL, 128);

    for (int k = 0; k < 3; k++) {
        static const char *const open[] = {"(?:", "(?=", ""}, *const close[] = {"){1000}", ")", ""};
        pattern[0] = 0;
        for (int i = 0; i < 8; i++) strcat(pattern, open[k]);
        for (int i = 0; i < 8; i++) strcat(pattern, close[k]);
        if (k == 2) strcpy(pattern, "x");
        for (int i = 0; k == 2 && i < 400; i++) strcat(pattern, "{1}+");
        snprintf(text, sizeof text, form, pattern);
        memset(&o, 0, sizeof o);
        from_json_text(&o, text, 0);
        check(o.code == TFM_ERR_UNSUPPORTED && strstr(o.err.msg, "too"),
              "%.20s...: code %d, %s", pattern, o.code, o.err.msg);
        arena_free(&o.a);
    }
}
