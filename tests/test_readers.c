/* test_readers.c - the readers of files nobody vouches for (JSON, safetensors, GGUF, llama2.c), and seeds for the fuzz
 * targets. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/gguf.h"
#include "tools/json.h"
#include "tools/llama2c.h"
#include "tools/safetensors.h"
#include "test.h"

void test_json(void);
void test_safetensors(void);
void test_gguf(void);
void test_llama2c(void);
void test_reader_seeds(void);

/* ---- bytes to build files from --------------------------------------------------------------------------------- */

typedef struct bytes {
    unsigned char data[8192];
    size_t n;
} bytes;

static void put(bytes *b, const void *data, size_t n)
{
    if (n > sizeof b->data - b->n) abort();
    if (n > 0) memcpy(b->data + b->n, data, n);
    b->n += n;
}

static void put_number(bytes *b, uint64_t value, size_t n_bytes)
{
    size_t i;
    for (i = 0; i < n_bytes; i++) {
        unsigned char c = (unsigned char)(value >> 8 * i);
        put(b, &c, 1);
    }
}

static void put_string(bytes *b, const char *s)
{
    put_number(b, strlen(s), 8);
    put(b, s, strlen(s));
}

static void put_zeros(bytes *b, size_t n)
{
    while (n-- > 0) put_number(b, 0, 1);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

static const json *parse(arena *a, const char *text, tfm_error *err)
{
    memset(err, 0, sizeof *err);
    return json_parse("t.json", text, strlen(text), a, err);
}

static const char json_text[] =
    "\xef\xbb\xbf {\"a\": {\"b\": [1, 2.5, -0]}, \"n\": null, \"t\": true, \"e\": 1E3, \"big\": 18446744073709551616, "
    "\"inf\": [Infinity, -Infinity, NaN], \"s\": \"\\u00e9\\ud83d\\ude00\\udc00\\n\", \"a2\": 1, \"a2\": 2}";

static void check_json_values(arena *a)
{
    tfm_error err;
    const char *text, *name;
    int64_t whole = 0;
    double real = 0;
    int flag = 0;
    const json *v = parse(a, json_text, &err);
    check(v != NULL, "%s", err.msg);
    if (v == NULL) return;
    check(json_count(v) == 8 && strcmp(json_at(v, 7)->key, "a2") == 0 && v->has_duplicates, "duplicate keys");
    check(json_int(v, "a2", &whole, &err) == TFM_OK && whole == 2, "the last value counts");
    check(json_int(v, "e", &whole, &err) == TFM_OK && whole == 1000, "1E3 is an integer");
    check(json_real(v, "big", &real, &err) == TFM_OK && real == 18446744073709551616.0, "2^64 as a real");
    check(json_int(v, "big", &whole, &err) < 0 && strstr(err.msg, "t.json: big") != NULL, "%s", err.msg);
    check(json_string(v, "s", &text, &err) == TFM_OK &&
          strcmp(text, "\xc3\xa9\xf0\x9f\x98\x80\xef\xbf\xbd\n") == 0, "escapes");
    check(json_int_or(v, "n", 5, &whole, &err) == TFM_OK && whole == 5, "null means the default");
    check(json_bool(v, "t", &flag, &err) == TFM_OK && flag == 1, "true");
    name = json_at(json_get(json_get(v, "a"), "b"), 1)->u.text;
    check(strcmp(name, "2.5") == 0, "the number's text is kept: %s", name);
    check(json_as_int(json_at(json_get(json_get(v, "a"), "b"), 1), &whole, &err) < 0 &&
          strcmp(err.msg, "t.json: a.b[1]: expected an integer, found 2.5") == 0, "%s", err.msg);
    check(json_string(json_get(v, "a"), "c", &text, &err) < 0 && strcmp(err.msg, "t.json: a.c: missing") == 0, "%s",
          err.msg);
    check(json_item_int(json_get(json_get(v, "a"), "b"), 9, &whole, &err) < 0 &&
          strcmp(err.msg, "t.json: a.b: item 9 is missing") == 0, "%s", err.msg);
    check(json_item_real(json_get(json_get(v, "a"), "b"), 1, &real, &err) == TFM_OK && real == 2.5, "an item");
    check(json_as_real(json_at(json_get(v, "inf"), 1), &real, &err) == TFM_OK && real < -1e308, "-Infinity");
    check(json_as_real(json_at(json_get(v, "inf"), 2), &real, &err) == TFM_OK && isnan(real), "NaN");
}

static void check_json_refusals(arena *a)
{
    static const char *const wrong[] = { "", " ", "{", "[1,", "[1 2]", "[1,]", "{\"a\":1,}", "{a:1}", "{\"a\" 1}",
                                         "\"x", "\"\\x\"", "\"\\u12g4\"", "01", "1.", ".5", "-", "+1", "1e", "tru",
                                         "nul", "[1] 2", "\"\n\"", "\"\xff\"", "\"\\", "-Inf", "'a'", "[}",
                                         "{\"a\":}" };
    char deep[600];
    tfm_error err;
    size_t i;
    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        check(parse(a, wrong[i], &err) == NULL && err.code < 0 && err.msg[0] != 0, "accepted: %s", wrong[i]);
    }
    parse(a, "[\"\\n\\u000a\",\n  tru]", &err);
    check(strstr(err.msg, "t.json: line 2, column 3:") != NULL, "%s", err.msg);
    memset(deep, '[', 300);
    memset(deep + 300, ']', 300);
    check(json_parse("t", deep + 300 - 128, 256, a, &err) != NULL, "128 levels");
    check(json_parse("t", deep + 300 - 129, 258, a, &err) == NULL, "129 levels");
}

/* A vocabulary: 300,000 keys must take a blink, and each must be found. */
static void check_json_size(arena *a)
{
    enum { N = 300000 };
    char *text = (char *)malloc((size_t)N * 40), *to = text, key[32];
    const json *v;
    tfm_error err;
    int64_t value = 0;
    double start;
    int i, bad = 0;
    if (text == NULL) return;
    *to++ = '{';
    for (i = 0; i < N; i++) to += sprintf(to, "%s\"\xe2\x96\x81token%d\": %d", i > 0 ? ", " : "", i, i);
    *to++ = '}';
    start = time_now();
    v = json_parse("vocab", text, (size_t)(to - text), a, &err);
    for (i = 0; i < N && v != NULL; i += 7) {
        sprintf(key, "\xe2\x96\x81token%d", i);
        if (json_int(v, key, &value, &err) != TFM_OK || value != i) bad++;
    }
    check(v != NULL && json_count(v) == N && bad == 0, "%d keys not found", bad);
    check(time_now() - start < 5, "a large object takes %.1f s", time_now() - start);
    free(text);
}

void test_json(void)
{
    arena a = { NULL, 0, 0, 0 };
    check_json_values(&a);
    check_json_refusals(&a);
    check_json_size(&a);
    arena_free(&a);
}

/* ---- safetensors ----------------------------------------------------------------------------------------------- */

static void put_safetensors(bytes *b, const char *header, size_t data)
{
    b->n = 0;
    put_string(b, header);
    put_zeros(b, data);
}

#define ENTRY(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const char shard_index[] = "{\"weight_map\":{\"a\":\"1.safetensors\",\"c\":\"2.safetensors\"}}";

/* Two shards that both hold c. */
static void put_shards(bytes *one, bytes *two)
{
    put_safetensors(one, "{" ENTRY("a", "F32", "[2]", "[0,8]") "," ENTRY("c", "U8", "[3]", "[8,11]") "}", 11);
    put_safetensors(two, "{" ENTRY("c", "I64", "[1,1]", "[0,8]") "}", 8);
    two->data[two->n - 8] = 42;
}

static void check_shards(arena *a)
{
    bytes one, two;
    memory_file files[3] = { { "model.safetensors.index.json", shard_index, sizeof shard_index - 1 } };
    memory_dir list;
    source_dir dir;
    safetensors st;
    tfm_error err;
    const st_tensor *t;
    unsigned char value[8];
    put_shards(&one, &two);
    files[1].name = "1.safetensors";
    files[1].data = one.data;
    files[1].size = one.n;
    files[2].name = "2.safetensors";
    files[2].data = two.data;
    files[2].size = two.n;
    list.files = files;
    list.n_files = 3;
    dir = dir_memory("dir", &list);
    check(st_open_dir(&st, &dir, st_weights_name(&dir), a, &err) == TFM_OK && st.n_tensors == 2 && st.n_files == 2,
          "%s", err.msg);
    t = st_find(&st, "c");
    check(t != NULL && t->dtype == ST_I64 && t->n_dims == 2, "the index decides which file holds c");
    check(t != NULL && st_read(&st, t, 0, 1, value, &err) == TFM_OK && load_u64(value) == 42, "its data");
    check(t != NULL && st_read(&st, t, 1, 1, value, &err) < 0, "elements beyond the end");
    check(st_find(&st, "b") == NULL, "absent tensor");
    st_close(&st);
    list.n_files = 2;
    check(st_open_dir(&st, &dir, st_weights_name(&dir), a, &err) < 0 && strstr(err.msg, "2.safetensors") != NULL,
          "absent shard: %s", err.msg);
    st_close(&st);
    files[2] = files[1];
    files[2].name = "2.safetensors";
    files[1].data = two.data;
    files[1].size = two.n;
    list.n_files = 3;
    check(st_open_dir(&st, &dir, st_weights_name(&dir), a, &err) < 0 && strstr(err.msg, "1.safetensors") != NULL &&
          strstr(err.msg, " a,") != NULL, "tensor absent from its shard: %s", err.msg);
    st_close(&st);
}

void test_safetensors(void)
{
    static const struct {
        const char *what, *header;
        size_t data;
    } wrong[] = {
        { "overlap", "{" ENTRY("a", "F32", "[2]", "[0,8]") "," ENTRY("b", "F32", "[2]", "[4,12]") "}", 12 },
        { "gap", "{" ENTRY("a", "F32", "[1]", "[0,4]") "," ENTRY("b", "F32", "[1]", "[8,12]") "}", 12 },
        { "past the end", "{" ENTRY("a", "F32", "[2]", "[0,8]") "}", 7 },
        { "bytes behind the data", "{" ENTRY("a", "F32", "[2]", "[0,8]") "}", 9 },
        { "shape and length differ", "{" ENTRY("a", "F16", "[2]", "[0,8]") "}", 8 },
        { "product wraps", "{" ENTRY("a", "U8", "[4294967296,4294967296]", "[0,0]") "}", 0 },
        { "bytes wrap", "{" ENTRY("a", "F64", "[2305843009213693952]", "[0,0]") "}", 0 },
        { "negative dimension", "{" ENTRY("a", "U8", "[-1]", "[0,1]") "}", 1 },
        { "negative offset", "{" ENTRY("a", "U8", "[1]", "[-1,0]") "}", 1 },
        { "offsets backwards", "{" ENTRY("a", "U8", "[1]", "[1,0]") "}", 1 },
        { "one offset", "{" ENTRY("a", "U8", "[1]", "[0]") "}", 1 },
        { "half a byte", "{" ENTRY("a", "F4", "[3]", "[0,2]") "}", 2 },
        { "unknown type", "{" ENTRY("a", "F7", "[1]", "[0,1]") "}", 1 },
        { "too many dimensions", "{" ENTRY("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1 },
        { "name twice", "{" ENTRY("a", "U8", "[1]", "[0,1]") "," ENTRY("a", "U8", "[1]", "[0,1]") "}", 1 },
        { "not an object", "[]", 0 },
        { "no JSON", "{", 0 },
    };
    arena a = { NULL, 0, 0, 0 };
    safetensors st;
    source src;
    tfm_error err;
    bytes b;
    size_t i;
    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        put_safetensors(&b, wrong[i].header, wrong[i].data);
        src = source_memory("t.safetensors", b.data, b.n);
        check(st_open_file(&st, &src, &a, &err) < 0 && strncmp(err.msg, "t.safetensors: ", 15) == 0, "%s: %s",
              wrong[i].what, err.msg);
        st_close(&st);
    }
    put_safetensors(&b, "{\"__metadata__\":{\"format\":\"pt\"}," ENTRY("s", "BF16", "[]", "[0,2]") ","
                        ENTRY("none", "F32", "[0,5]", "[2,2]") "}   ", 2);
    src = source_memory("t.safetensors", b.data, b.n);
    check(st_open_file(&st, &src, &a, &err) == TFM_OK && st.n_tensors == 2 && st.tensors[0].n_dims == 0, "%s", err.msg);
    for (i = 0; i < b.n; i++) {
        src.size = i;
        check(st_open_file(&st, &src, &a, &err) < 0, "cut at %zu", i);
    }
    b.data[7] = 0x7f;
    src.size = b.n;
    check(st_open_file(&st, &src, &a, &err) < 0 && strstr(err.msg, "header length") != NULL, "%s", err.msg);
    check_shards(&a);
    arena_free(&a);
}

/* ---- GGUF ------------------------------------------------------------------------------------------------------ */

/* A file with one key and one tensor, each number of which a test may set. */
typedef struct gguf_recipe {
    uint32_t version;
    uint64_t n_tensors, n_kv;
    const char *key;
    uint32_t value_type;
    uint64_t value;
    uint32_t n_dims;
    uint64_t dims[5];
    uint32_t type;
    uint64_t offset;
    size_t data;
} gguf_recipe;

static const gguf_recipe good = { 3, 1, 1, "general.alignment", GGUF_U32, 32, 2, { 32, 2, 1, 1, 1 }, GGML_Q8_0, 0, 68 };

static void put_gguf(bytes *b, const gguf_recipe *r)
{
    uint32_t i;
    b->n = 0;
    put(b, "GGUF", 4);
    put_number(b, r->version, 4);
    put_number(b, r->n_tensors, 8);
    put_number(b, r->n_kv, 8);
    put_string(b, r->key);
    put_number(b, r->value_type, 4);
    put_number(b, r->value, 4);
    put_string(b, "weight");
    put_number(b, r->n_dims, 4);
    for (i = 0; i < r->n_dims && i < 5; i++) put_number(b, r->dims[i], 8);
    put_number(b, r->type, 4);
    put_number(b, r->offset, 8);
    while (b->n % 32 != 0) put_zeros(b, 1);
    put_zeros(b, r->data);
}

static int open_gguf(gguf *g, const bytes *b, arena *a, tfm_error *err)
{
    source src = source_memory("t.gguf", b->data, b->n);
    memset(err, 0, sizeof *err);
    return gguf_open(g, &src, a, err);
}

static void refuse_gguf(arena *a, const char *what, const gguf_recipe *r)
{
    bytes b;
    gguf g;
    tfm_error err;
    size_t before = a->total;
    put_gguf(&b, r);
    check(open_gguf(&g, &b, a, &err) < 0 && strncmp(err.msg, "t.gguf: ", 8) == 0, "%s: %s", what, err.msg);
    check(a->total - before < 1 << 20, "%s: takes %zu bytes", what, a->total - before);
}

#define REFUSE(what, field, number) \
    do { \
        gguf_recipe r = good; \
        r.field = number; \
        refuse_gguf(a, what, &r); \
    } while (0)

static void check_gguf_refusals(arena *a)
{
    REFUSE("version 1", version, 1);
    REFUSE("big-endian", version, 0x03000000);
    REFUSE("version 4", version, 4);
    REFUSE("2^60 tensors", n_tensors, (uint64_t)1 << 60);
    REFUSE("-1 tensors", n_tensors, UINT64_MAX);
    REFUSE("2^60 keys", n_kv, (uint64_t)1 << 60);
    REFUSE("two keys", n_kv, 2);
    REFUSE("value type", value_type, 13);
    REFUSE("alignment of another type", value_type, GGUF_F32);
    REFUSE("alignment 0", value, 0);
    REFUSE("alignment 3", value, 3);
    REFUSE("alignment 2^31", value, (uint64_t)1 << 31);
    REFUSE("no dimensions", n_dims, 0);
    REFUSE("five dimensions", n_dims, 5);
    REFUSE("2^32-1 dimensions", n_dims, UINT32_MAX);
    REFUSE("dimension 0", dims[1], 0);
    REFUSE("dimension -1", dims[1], UINT64_MAX);
    REFUSE("product that wraps", dims[1], ((uint64_t)1 << 59) + 2);
    REFUSE("part of a block", dims[0], 33);
    REFUSE("unknown type", type, 4);
    REFUSE("offset past the end", offset, 96);
    REFUSE("offset that wraps", offset, UINT64_MAX - 31);
    REFUSE("offset not aligned", offset, 1);
    REFUSE("data missing", data, 67);
}

/* Metadata of several types, no tensors. */
static void put_gguf_metadata(bytes *b)
{
    b->n = 0;
    put(b, "GGUF\3\0\0\0", 8);
    put_number(b, 0, 8);
    put_number(b, 4, 8);
    put_string(b, "tokens");
    put_number(b, GGUF_ARRAY, 4);
    put_number(b, GGUF_STRING, 4);
    put_number(b, 2, 8);
    put_string(b, "\xe2\x96\x81");
    put_string(b, "");
    put_string(b, "heads");
    put_number(b, GGUF_ARRAY, 4);
    put_number(b, GGUF_I32, 4);
    put_number(b, 2, 8);
    put_number(b, 8, 4);
    put_number(b, (uint32_t)-3, 4);
    put_string(b, "eps");
    put_number(b, GGUF_F32, 4);
    put_number(b, 0x3f000000, 4);
    put_string(b, "on");
    put_number(b, GGUF_BOOL, 4);
    put_number(b, 0, 1);
}

static void check_gguf_metadata(arena *a)
{
    bytes b;
    gguf g;
    tfm_error err;
    const gguf_kv *kv;
    int64_t layers[2] = { 0, 0 };
    int flag = 1;
    double real = 0;
    put_gguf_metadata(&b);
    check(open_gguf(&g, &b, a, &err) == TFM_OK && g.n_kv == 4, "%s", err.msg);
    check(gguf_string_array(&g, "tokens", &kv, &err) == TFM_OK && kv->count == 2 && kv->u.strings[0].length == 3 &&
          strcmp(kv->u.strings[0].text, "\xe2\x96\x81") == 0, "strings");
    check(gguf_ints(&g, "heads", layers, 2, &err) == TFM_OK && layers[0] == 8 && layers[1] == -3, "one per layer");
    check(gguf_ints(&g, "heads", layers, 3, &err) < 0, "for another number of layers: %s", err.msg);
    check(gguf_real(&g, "eps", &real, &err) == TFM_OK && real == 0.5, "real");
    check(gguf_bool(&g, "on", &flag, &err) == TFM_OK && flag == 0, "bool");
    check(gguf_int(&g, "eps", layers, &err) < 0, "a real is no integer");
    check(strcmp(err.msg, "t.gguf: eps: expected an integer, found an f32") == 0, "%s", err.msg);
    check(gguf_int(&g, "none", layers, &err) < 0 && strcmp(err.msg, "t.gguf: none: missing") == 0, "%s", err.msg);
    check(gguf_int_or(&g, "none", 7, layers, &err) == TFM_OK && layers[0] == 7, "default");
}

void test_gguf(void)
{
    arena a = { NULL, 0, 0, 0 };
    bytes b;
    gguf g;
    tfm_error err;
    const gguf_tensor *t;
    unsigned char row[34];
    size_t i, whole;
    put_gguf(&b, &good);
    check(open_gguf(&g, &b, &a, &err) == TFM_OK && g.n_tensors == 1, "%s", err.msg);
    t = gguf_find_tensor(&g, "weight");
    check(t != NULL && t->bytes == 68 && t->offset == b.n - 68, "tensor");
    check(t != NULL && gguf_row_bytes(t) == 34 && gguf_n_rows(t) == 2, "its rows");
    b.data[b.n - 34] = 9;
    check(t != NULL && gguf_read_rows(&g, t, 1, 1, row, &err) == TFM_OK && row[0] == 9, "second row");
    check(t != NULL && gguf_read_rows(&g, t, 1, 2, row, &err) < 0, "rows beyond the end");
    for (whole = b.n, i = 0; i < whole; i++) {
        b.n = i;
        check(open_gguf(&g, &b, &a, &err) < 0, "cut at %zu", i);
    }
    check(ggml_type_by_name("q4_k")->id == GGML_Q4_K && ggml_type_by_name("Q9") == NULL, "types by name");
    check_gguf_refusals(&a);
    check_gguf_metadata(&a);
    arena_free(&a);
}

/* ---- llama2.c -------------------------------------------------------------------------------------------------- */

static int open_checkpoint(l2c_model *m, bytes *b, const int32_t header[7], size_t n_floats, tfm_error *err)
{
    source src;
    int i;
    b->n = 0;
    for (i = 0; i < 7; i++) put_number(b, (uint32_t)header[i], 4);
    put_zeros(b, n_floats * 4);
    src = source_memory("t.bin", b->data, b->n);
    memset(err, 0, sizeof *err);
    return l2c_open(m, &src, err);
}

static void check_checkpoint(void)
{
    /* dim 8, hidden 12, 2 layers, 2 heads, 1 kv head, vocab 5, 3 positions; then fields that are wrong */
    static const int32_t header[7] = { 8, 12, 2, 2, 1, 5, 3 };
    static const int32_t wrong[][2] = { { 0, 0 }, { 0, 9 }, { 1, -12 }, { 2, 0 }, { 2, INT32_MAX }, { 3, 0 }, { 3, 8 },
                                        { 4, 3 }, { 5, INT32_MIN }, { 5, 0 }, { 6, INT32_MAX }, { 6, 0 } };
    const size_t n = 5 * 8 + 2 * (8 + 64 + 32 + 32 + 64 + 8 + 3 * 96) + 8 + 2 * 6;
    l2c_model m;
    tfm_error err;
    bytes b;
    int32_t h[7];
    float value = 0;
    size_t i;
    check(open_checkpoint(&m, &b, header, n, &err) == TFM_OK, "%s", err.msg);
    check(m.tied && m.vocab_size == 5 && m.head_dim == 4, "header");
    check(m.tensors[L2C_WQ].offset == 28 + 4 * (40 + 16) && m.tensors[L2C_CLASSIFIER].rows == 0, "layout");
    b.data[28 + 4 * (40 + 16 + 64) + 3] = 0x40; /* wq of layer 1 starts with 2.0 */
    check(l2c_read(&m, L2C_WQ, 1, 0, 1, &value, &err) == TFM_OK && value == 2.0f, "wq of layer 1");
    check(l2c_read(&m, L2C_WQ, 2, 0, 1, &value, &err) < 0, "beyond the last layer");
    check(l2c_read(&m, L2C_WQ, 1, 64, 1, &value, &err) < 0, "beyond the end of a layer");
    check(open_checkpoint(&m, &b, header, n - 1, &err) < 0, "a number too few");
    check(open_checkpoint(&m, &b, header, n + 1, &err) < 0, "a number too many");
    memcpy(h, header, sizeof h);
    h[5] = -5;
    check(open_checkpoint(&m, &b, h, n + 40, &err) == TFM_OK, "%s", err.msg);
    check(!m.tied && m.tensors[L2C_CLASSIFIER].rows == 5, "untied");
    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        memcpy(h, header, sizeof h);
        h[wrong[i][0]] = wrong[i][1];
        check(open_checkpoint(&m, &b, h, n, &err) < 0 && strncmp(err.msg, "t.bin: ", 7) == 0, "field %d = %d",
              (int)wrong[i][0], (int)wrong[i][1]);
    }
    memcpy(h, header, sizeof h);
    h[0] = 0x616b3432;
    check(open_checkpoint(&m, &b, h, n, &err) == TFM_ERR_UNSUPPORTED, "later version: %s", err.msg);
}

void test_llama2c(void)
{
    arena a = { NULL, 0, 0, 0 };
    l2c_tokenizer t;
    tfm_error err;
    source src;
    bytes b;
    check_checkpoint();
    b.n = 0;
    put_number(&b, 3, 4);
    put_number(&b, 0x3f800000, 4);
    put_number(&b, 3, 4);
    put(&b, "abc", 3);
    put_number(&b, 0xbf800000, 4);
    put_number(&b, 0, 4);
    src = source_memory("tokenizer.bin", b.data, b.n);
    check(l2c_read_tokenizer(&t, &src, 2, &a, &err) == TFM_OK && t.n_pieces == 2 && t.max_length == 3, "%s", err.msg);
    write_seed("vocabulary", "llama2c", "\2\0\3\0\0\0\0\0\0\0\1\0\0\0a\0\0\0\0\1\0\0\0b", 24);
    check(strcmp(t.pieces[0].text, "abc") == 0 && t.pieces[1].score == -1.0f && t.pieces[1].length == 0, "pieces");
    check(l2c_read_tokenizer(&t, &src, 0, &a, &err) == TFM_OK && t.n_pieces == 2, "to the end of the file");
    check(l2c_read_tokenizer(&t, &src, 3, &a, &err) < 0, "fewer than the model has");
    check(l2c_read_tokenizer(&t, &src, 1, &a, &err) < 0, "more than the model has");
    src.size--;
    check(l2c_read_tokenizer(&t, &src, 2, &a, &err) < 0, "cut short");
    b.data[8] = 0xff;
    b.data[11] = 0xff;
    check(l2c_read_tokenizer(&t, &src, 2, &a, &err) < 0 && strstr(err.msg, "piece 0") != NULL, "%s", err.msg);
    arena_free(&a);
}

/* ---- seeds for the fuzz targets -------------------------------------------------------------------------------- */

static void write_gguf_seeds(void)
{
    static const uint32_t kinds[] = { GGML_F32, GGML_F16, GGML_BF16, GGML_Q4_0, GGML_Q8_0, GGML_Q4_K, GGML_Q6_K };
    char name[32];
    bytes b;
    size_t i;
    put_gguf_metadata(&b);
    write_seed("gguf", "metadata", b.data, b.n);
    for (i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const ggml_type *type = ggml_type_by_id(kinds[i]);
        gguf_recipe r = good;
        r.type = kinds[i];
        r.dims[0] = type->block_elements;
        r.data = 2 * type->block_bytes;
        put_gguf(&b, &r);
        snprintf(name, sizeof name, "type_%s", type->name);
        write_seed("gguf", name, b.data, b.n);
    }
}

/* The first byte tells fuzz_safetensors what follows. */
static void write_safetensors_seeds(void)
{
    bytes b, one, two;
    put_shards(&one, &two);
    b.n = 0;
    put_number(&b, 0, 1);
    put(&b, one.data, one.n);
    write_seed("safetensors", "file", b.data, b.n);
    b.n = 0;
    put_number(&b, 1, 1);
    put_number(&b, sizeof shard_index - 1, 2);
    put_number(&b, one.n, 2);
    put_number(&b, two.n, 2);
    put(&b, shard_index, sizeof shard_index - 1);
    put(&b, one.data, one.n);
    put(&b, two.data, two.n);
    write_seed("safetensors", "directory", b.data, b.n);
    write_seed("json", "text", json_text, sizeof json_text - 1);
}

void test_reader_seeds(void)
{
    write_gguf_seeds();
    write_safetensors_seeds();
}
