/* test_file.c - the .tfm file: what is written is what is read; nothing damaged, cut or forged is believed. */
#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "tiny.h"
#include "tools/run.h"
#include "tools/tokenizer.h"
#include "tools/writer.h"

enum { N_VOCAB = 272, N_TOKENS = 261 }; /* rows of the embedding, and tokens that the tokenizer has: rows are padded */

/* Places in the file: see [A5] of tfm.h. */
enum { AT_VERSION = 4, AT_SIZE = 8, AT_SECTIONS = 16, AT_TABLE_HASH = 24, AT_HASH = 32,
       ROW_FLAGS = 4, ROW_OFFSET = 8, ROW_BYTES = 16, ROW_HASH = 24 };

/* ---- MAKING ONE ------------------------------------------------------------------------------------------------ */

/* A tokenizer.json with all bytes, four merges and one special token, made here. */
static int make_json(char *out, size_t room) {
    size_t n = (size_t)snprintf(out, room,
        "{\"added_tokens\":[{\"id\":260,\"content\":\"<end>\",\"special\":true,\"normalized\":false,\"lstrip\":false,"
        "\"rstrip\":false,\"single_word\":false}],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\","
        "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true},\"post_processor\":null,\"decoder\":"
        "{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{");
    int moved = 256; /* bytes that do not print stand for themselves at 256, 257 ... */
    for (int b = 0; b < 256; b++) {
        const int printable = (b > 32 && b < 127) || (b > 160 && b != 173);
        n += (size_t)snprintf(out + n, room - n, "\"\\u%04x\":%d,", printable ? b : moved, b);
        moved += !printable;
    }
    n += (size_t)snprintf(out + n, room - n, "\"he\":256,\"ll\":257,\"hell\":258,\"hello\":259},\"merges\":"
                          "[\"h e\",\"l l\",\"he ll\",\"hell o\"]}}");
    return n < room ? (int)n : -1;
}

static int make_tokenizer(arena *mem, tok_section *out) {
    static char text[8192];
    tfm_error err;
    const int n = make_json(text, sizeof text);
    const source json = source_memory("tokenizer.json", text, (size_t)n);
    const int r = n < 0 ? -1 : tokenizer_from_json(mem, &json, NULL, N_VOCAB, out, &err);
    check(!r, "the tokenizer: %s", r ? err.msg : "");
    return r;
}

static void describe_small(tiny_model *t) {
    tiny_describe(t);
    t->config.n_layers = 2;
    t->config.n_vocab = N_VOCAB;
    t->config.d_model = 32;
    t->config.logit_scale = 0.5f;
    t->config.n_eos = 1;
    t->config.eos[0] = 260;
    for (int i = 0; i < 2; i++) {
        t->blocks[i].n_heads = 2;
        t->blocks[i].n_kv_heads = 1;
        t->blocks[i].head_dim = 16;
        t->blocks[i].d_ff = 32;
    }
}

static const char provenance[] = "tool test_file\n";

/* A file of t's weights (a tokenizer alone if t is NULL), with a tokenizer if asked for. */
static int make_file(tiny_file *f, const tiny_model *t, int with_tokenizer) {
    arena mem;
    tok_section tokenizer;
    tfm_file_writer w;
    tfm_error err;
    sink out = tiny_sink(f);
    const int64_t n = t ? t->n_weights : 0;
    memset(&mem, 0, sizeof mem);
    memset(&tokenizer, 0, sizeof tokenizer);
    int r = with_tokenizer ? make_tokenizer(&mem, &tokenizer) : 0;
    if (!r) r = writer_begin(&w, &out, &mem, t ? &t->config : NULL, t ? t->weights : NULL, n, tokenizer.bytes,
                             tokenizer.size, &err);
    for (int64_t i = 0; !r && i < n; i++) r = writer_rows(&w, &t->weights[i].t, &err);
    if (!r) r = writer_end(&w, provenance, sizeof provenance - 1, &err);
    check(!r, "the file cannot be made");
    arena_free(&mem);
    return r;
}

/* ---- FORGING --------------------------------------------------------------------------------------------------- */

static void put_u64(unsigned char *p, uint64_t v) {
    for (int i = 0; i < 8; i++) p[i] = (unsigned char)(v >> 8 * i);
}

static uint64_t hash_of(const unsigned char *p, size_t n) {
    tfm_hash h;
    memset(&h, 0, sizeof h);
    tfm_hash_feed(&h, p, n);
    return tfm_hash_finish(&h);
}

/* In pieces, some of them nothing, as at once. */
static void test_hash(void) {
    unsigned char bytes[75];
    tfm_hash h;
    for (int i = 0; i < 75; i++) bytes[i] = (unsigned char)(i * 37);
    for (size_t cut = 0; cut <= sizeof bytes; cut++) {
        memset(&h, 0, sizeof h);
        tfm_hash_feed(&h, bytes, cut);
        tfm_hash_feed(&h, NULL, 0);
        tfm_hash_feed(&h, bytes + cut, sizeof bytes - cut);
        check(tfm_hash_finish(&h) == hash_of(bytes, sizeof bytes), "cut at %zu", cut);
    }
}

/* The section's row in the table, NULL if there is none. */
static unsigned char *section_row(const tiny_file *f, uint32_t id) {
    for (uint32_t i = 0; i < load_u32(f->data + AT_SECTIONS); i++) {
        unsigned char *row = f->data + TFM_FILE_HEADER_BYTES + i * TFM_FILE_SECTION_BYTES;
        if (load_u32(row) == id) return row;
    }
    return NULL;
}

static unsigned char *section(const tiny_file *f, uint32_t id, size_t *n) {
    const unsigned char *row = section_row(f, id);
    *n = row ? (size_t)load_u64(row + ROW_BYTES) : 0;
    return row ? f->data + load_u64(row + ROW_OFFSET) : NULL;
}

/* Makes all hashes right again, as somebody would who means harm. */
static void forge_hashes(tiny_file *f) {
    static const uint32_t hashed[] = { TFM_SECTION_DESCRIPTION, TFM_SECTION_DIRECTORY, TFM_SECTION_PROVENANCE };
    const uint32_t n = load_u32(f->data + AT_SECTIONS);
    for (size_t i = 0; i < sizeof hashed / sizeof hashed[0]; i++) {
        unsigned char *row = section_row(f, hashed[i]);
        if (!row) continue;
        const uint64_t at = load_u64(row + ROW_OFFSET), bytes = load_u64(row + ROW_BYTES);
        if (at <= f->size && bytes <= f->size - at) put_u64(row + ROW_HASH, hash_of(f->data + at, (size_t)bytes));
    }
    if (n <= 64)
        put_u64(f->data + AT_TABLE_HASH, hash_of(f->data + TFM_FILE_HEADER_BYTES, n * (size_t)TFM_FILE_SECTION_BYTES));
    put_u64(f->data + AT_SIZE, f->size);
    put_u64(f->data + AT_HASH, hash_of(f->data, 32));
}

/* ---- OPENING --------------------------------------------------------------------------------------------------- */

static tfm_model *open_memory(const tiny_file *f, const char *what) {
    tfm_model *m = NULL;
    tfm_error err;
    const tfm_result r = tfm_model_from_memory(f->data, f->size, NULL, &m, &err);
    check(!r, "%s: %s", what, r ? err.msg : "");
    return m;
}

/* Refused, by one line that holds `names`. */
static void check_refused(const unsigned char *data, size_t n, tfm_result want, const char *names, const char *what) {
    tfm_model *m = NULL;
    tfm_error err;
    const tfm_result r = tfm_model_from_memory(data, n, NULL, &m, &err);
    check(r && !m, "%s was accepted", what);
    if (!r) tfm_model_close(m);
    else check((!want || r == want) && err.msg[0] && strstr(err.msg, names),
               "%s: result %d, '%s'", what, (int)r, err.msg);
}

/* Whatever the file says: it is refused, or it runs. Under sanitizers this shows that nothing is touched outside. */
static void survive(const tiny_file *f) {
    static const int32_t ids[] = { 1, 0, 2 };
    tfm_model *m;
    tfm_session *s;
    tfm_session_config cfg = tiny_exact(4, 3);
    size_t bytes = 0;
    tfm_error err;
    if (tfm_model_from_memory(f->data, f->size, NULL, &m, &err)) {
        check(err.msg[0] && !strchr(err.msg, '\n'), "a refusal without a line");
        return;
    }
    if (!tfm_session_size(m, &cfg, &bytes, NULL) && bytes < 1 << 24 && !tfm_session_new(m, &cfg, &s, NULL)) {
        tfm_eval(s, ids, 3, NULL);
        tfm_session_free(s);
    }
    if (tfm_model_tokenizer(m)) {
        static int32_t out[64];
        static uint64_t scratch[8192];
        char text[256];
        int64_t n = 0;
        tfm_encode(tfm_model_tokenizer(m), "hello<end> \xc3\xa9", 13, TFM_ENCODE_PARSE_SPECIAL, out, 64, &n, scratch,
                   sizeof scratch, NULL);
        for (int32_t i = -1; i < N_VOCAB + 1; i++) tfm_decode_text(tfm_model_tokenizer(m), &i, 1, 0, text, sizeof text);
    }
    tfm_model_close(m);
}

/* ---- TESTS ----------------------------------------------------------------------------------------------------- */

static void test_round_trip(const tiny_file *f, const tiny_model *t) {
    tfm_model *m = open_memory(f, "round trip");
    tiny_file again = { NULL, 0, 0 };
    tfm_weight w;
    size_t n = 0;
    int fields;
    if (!m) return;
    const tfm_config *c = tfm_model_config_of(m);
    const tfm_field *field = tfm_config_fields(&fields);
    for (int i = 0; i < fields; i++)
        check(!memcmp((const char *)c + field[i].offset, (const char *)&t->config + field[i].offset,
                      4 * field[i].count),
              "%s is not what was written", field[i].name);
    field = tfm_block_fields(&fields);
    for (int i = 0; i < fields; i++)
        check(!memcmp((const char *)&c->blocks[1] + field[i].offset, (const char *)&t->blocks[1] + field[i].offset,
                      4 * field[i].count), "block 1: %s is not what was written", field[i].name);
    check(c->n_blocks == 2 && c->layer_block && !memcmp(c->layer_block, t->layer_block, 2), "layer_block");
    check(tfm_model_block(m, 1) == &c->blocks[1] && !tfm_model_block(m, 2) && !tfm_model_block(m, -1),
          "tfm_model_block");
    check(tfm_model_weight_count(m) == t->n_weights && !tfm_model_weight(m, t->n_weights, &w) &&
          !tfm_model_weight(m, -1, &w), "count");
    for (int64_t i = 0; i < t->n_weights && tfm_model_weight(m, i, &w); i++) {
        const tfm_weight *x = &t->weights[i];
        check(w.layer == x->layer && w.role == x->role && w.t.type == x->t.type && w.t.rows == x->t.rows &&
              w.t.cols == x->t.cols && !((uintptr_t)w.t.data % 64), "weight %d", (int)i);
        check(!memcmp(w.t.data, x->t.data, tfm_tensor_bytes(w.t.type, w.t.layout, w.t.rows, w.t.cols)),
              "weight %d: other bytes", (int)i);
    }
    check(tfm_model_tensor(m, -1, TFM_ROLE_HEAD).data == tfm_model_tensor(m, -1, TFM_ROLE_EMBED).data, "tied head");
    const void *p = tfm_model_section(m, TFM_SECTION_PROVENANCE, &n);
    check(p && n == sizeof provenance - 1 && !memcmp(p, provenance, n), "provenance");
    check(!tfm_model_section(m, TFM_SECTION_CHAT, &n) && !n && !tfm_model_section(m, 1000, &n),
          "a section that is not there");
    tfm_error err;
    check(!tfm_model_verify(m, &err), "verify: %s", err.msg);
    tfm_model_close(m);
    if (!make_file(&again, t, 1))
        check(again.size == f->size && !memcmp(again.data, f->data, f->size), "written twice, the bytes differ");
    tiny_file_free(&again);
}

/* What a program meets that takes for granted what a file need not have: an error, no crash. */
static void test_absent(void) {
    tfm_model *m = NULL;
    tfm_session *s = NULL;
    tfm_error err;
    int32_t id;
    int64_t n = 1;
    uint64_t scratch[8];
    size_t need = 1;
    check(tfm_model_open(NULL, NULL, &m, &err) == TFM_ERR_ARG && strstr(err.msg, "path"), "no path");
    check(tfm_session_new(NULL, NULL, &s, &err) == TFM_ERR_ARG && strstr(err.msg, "model"), "no model");
    check(!tfm_encode_size(NULL, 1) &&
          tfm_encode(NULL, "a", 1, 0, &id, 1, &n, scratch, sizeof scratch, &err) == TFM_ERR_ARG &&
          !n && strstr(err.msg, "no tokenizer"), "no tokenizer: %s", err.msg);
    check(tfm_chat_render(NULL, NULL, 0, 0, NULL, NULL, NULL, 0, &need, &err) == TFM_ERR_ARG && !need,
          "no chat format");
}

/* Rows of the embedding that no token has: they decode to nothing and can be evaluated; what lies past them cannot. */
static void test_padded_rows(const tiny_file *f) {
    tfm_model *m = open_memory(f, "padded rows");
    static const int32_t ids[] = { 259, N_TOKENS, N_VOCAB - 1, 'x' };
    char text[64];
    if (!m) return;
    const tfm_tokenizer *t = tfm_model_tokenizer(m);
    check(t && tfm_vocab_size(t) == N_VOCAB, "the tokenizer has %d ids", t ? (int)tfm_vocab_size(t) : -1);
    if (t) {
        const size_t n = tfm_decode_text(t, ids, 4, 0, text, sizeof text);
        size_t bytes = 1;
        check(n == 6 && !memcmp(text, "hellox", 6), "ids without a piece print something");
        check(!tfm_token_piece(t, N_TOKENS, &bytes) && !bytes && !tfm_token_flags(t, N_TOKENS),
              "a piece of an id that has none");
        check(!tfm_token_piece(t, N_VOCAB, &bytes) && !tfm_token_piece(t, -1, &bytes), "a piece of an id out of range");
    }
    tfm_session_config cfg = tiny_exact(8, 8);
    tfm_session *s = NULL;
    tfm_error err;
    check(!tfm_session_new(m, &cfg, &s, &err), "session");
    if (s) check(!tfm_eval(s, ids, 4, &err) && tfm_logits(s, 3), "padding rows cannot be evaluated");
    tfm_session_free(s);
    tfm_model_close(m);
}

/* Cut after every byte: as it is, and with a header that claims the shorter length. */
static void test_truncated(const tiny_file *f) {
    tiny_file cut = { NULL, 0, 0 };
    int accepted = 0;
    cut.data = (unsigned char *)tiny_alloc(f->size);
    for (size_t n = 0; n < f->size; n++) {
        tfm_model *m = NULL;
        memcpy(cut.data, f->data, n);
        cut.size = n;
        accepted += !tfm_model_from_memory(cut.data, n, NULL, &m, NULL);
        if (n < 8192 || n % 64 < 2) {
            if (n >= TFM_FILE_HEADER_BYTES) {
                put_u64(cut.data + AT_SIZE, n);
                put_u64(cut.data + AT_HASH, hash_of(cut.data, 32));
            }
            accepted += !tfm_model_from_memory(cut.data, n, NULL, &m, NULL);
        }
    }
    check(!accepted, "%d of %d cut files were accepted", accepted, (int)f->size);
    check_refused(f->data, 0, TFM_ERR_FORMAT, "0 bytes", "an empty file");
    tiny_file_free(&cut);
}

/* Every byte that a checksum at opening covers, flipped in every way a bit can be. */
static void test_flipped(const tiny_file *f) {
    static const uint32_t ids[] = { 0, TFM_SECTION_DESCRIPTION, TFM_SECTION_DIRECTORY, TFM_SECTION_PROVENANCE };
    for (size_t k = 0; k < sizeof ids / sizeof ids[0]; k++) {
        size_t n = TFM_FILE_HEADER_BYTES + load_u32(f->data + AT_SECTIONS) * (size_t)TFM_FILE_SECTION_BYTES;
        unsigned char *p = ids[k] ? section(f, ids[k], &n) : f->data;
        for (size_t i = 0; i < n; i++) {
            char what[64];
            snprintf(what, sizeof what, "section %d with byte %d flipped", (int)ids[k], (int)i);
            p[i] ^= (unsigned char)(1u << i % 8);
            check_refused(f->data, f->size, 0, "", what);
            p[i] ^= (unsigned char)(1u << i % 8);
        }
    }
}

/* The same by somebody who can compute the checksums: refused or harmless. */
static void test_forged(const tiny_file *f) {
    static const uint32_t ids[] = { 0, TFM_SECTION_DESCRIPTION, TFM_SECTION_DIRECTORY, TFM_SECTION_TOKENIZER };
    static const unsigned char flips[] = { 0x01, 0x80, 0xff };
    tiny_file forged = tiny_file_copy(f);
    for (size_t k = 0; k < sizeof ids / sizeof ids[0]; k++) {
        size_t n = TFM_FILE_HEADER_BYTES + load_u32(f->data + AT_SECTIONS) * (size_t)TFM_FILE_SECTION_BYTES;
        const size_t at = ids[k] ? (size_t)(section(f, ids[k], &n) - f->data) : 0;
        const size_t step = n / 1000 + 1;
        for (size_t i = 0; i < n; i += step) {
            forged.data[at + i] ^= flips[i % 3];
            forge_hashes(&forged);
            survive(&forged);
            memcpy(forged.data, f->data, TFM_FILE_HEADER_BYTES + 64 * (size_t)TFM_FILE_SECTION_BYTES);
            forged.data[at + i] = f->data[at + i];
        }
    }
    check(!memcmp(forged.data, f->data, f->size), "the forger lost track");
    tiny_file_free(&forged);
}

/* Numbers that lie: every word of the description and of the directory, and every double word of the table of sections
   and of the directory, becomes something absurd. */
static void test_lies(const tiny_file *f) {
    static const uint64_t lies[] = { 0, 1, 2, 3, 64, 65536, 0x7fffffff, 0x80000000u, 0xffffffffu, 0x7fc00000 /* NaN */,
        0xffc00000u, 0x7f800000 /* infinity */, 0xff800000u, 0xbf800000u /* -1 */, 0x7f7fffff, 0x00000001, 0x3f800000,
        (uint64_t)1 << 32, (uint64_t)1 << 58, (uint64_t)1 << 63, ~(uint64_t)0, ~(uint64_t)0 - 63 };
    static const uint32_t ids[] = { 0, TFM_SECTION_DESCRIPTION, TFM_SECTION_DIRECTORY };
    tiny_file forged = tiny_file_copy(f);
    for (size_t k = 0; k < sizeof ids / sizeof ids[0]; k++) {
        size_t n = TFM_FILE_HEADER_BYTES + load_u32(f->data + AT_SECTIONS) * (size_t)TFM_FILE_SECTION_BYTES;
        unsigned char *p = forged.data + (ids[k] ? (size_t)(section(f, ids[k], &n) - f->data) : 0);
        for (size_t i = 0; i + 8 <= n; i += 4)
            for (size_t v = 0; v < sizeof lies / sizeof lies[0]; v++) {
                unsigned char kept[8];
                const size_t bytes = lies[v] >> 32 ? 8 : 4;
                if (bytes == 8 && (i % 8 || ids[k] == TFM_SECTION_DESCRIPTION)) continue;
                memcpy(kept, p + i, 8);
                for (size_t b = 0; b < bytes; b++) p[i + b] = (unsigned char)(lies[v] >> 8 * b);
                forge_hashes(&forged);
                survive(&forged);
                memcpy(forged.data, f->data, TFM_FILE_HEADER_BYTES + 64 * (size_t)TFM_FILE_SECTION_BYTES);
                memcpy(p + i, kept, 8);
            }
    }
    check(!memcmp(forged.data, f->data, f->size), "the forger lost track");
    tiny_file_free(&forged);
}

/* Rows of the directory that come twice, are missing, or share their bytes. */
static void test_tensors(const tiny_file *f) {
    enum { ROW = TFM_FILE_ENTRY_BYTES };
    tiny_file g = tiny_file_copy(f);
    size_t n = 0;
    section(f, TFM_SECTION_DIRECTORY, &n);
    for (size_t i = 0; i + ROW < n; i += ROW) {
        memcpy(g.data, f->data, f->size);
        unsigned char *p = section(&g, TFM_SECTION_DIRECTORY, &n);
        memcpy(p + i + ROW, p + i, ROW); /* the next one is gone, this one comes twice */
        forge_hashes(&g);
        check_refused(g.data, g.size, TFM_ERR_FORMAT, "", "a tensor that comes twice");
    }
    memcpy(g.data, f->data, f->size);
    put_u64(section_row(&g, TFM_SECTION_DIRECTORY) + ROW_BYTES, n - ROW);
    forge_hashes(&g);
    check_refused(g.data, g.size, TFM_ERR_FORMAT, "", "a tensor that is missing");
    tiny_file_free(&g);
}

/* What a newer converter may write: sections and keys nobody here knows. */
static void test_unknown(const tiny_file *f) {
    tiny_file g = tiny_file_copy(f);
    size_t n = 0;

    section_row(&g, TFM_SECTION_PROVENANCE)[0] = 99;
    forge_hashes(&g);
    tfm_model_close(open_memory(&g, "an unknown section that may be skipped"));
    section_row(&g, 99)[ROW_FLAGS] = 1;
    forge_hashes(&g);
    check_refused(g.data, g.size, TFM_ERR_UNSUPPORTED, "99", "an unknown section that is required");

    memcpy(g.data, f->data, f->size);
    section_row(&g, TFM_SECTION_DATA)[ROW_FLAGS] = 3;
    forge_hashes(&g);
    check_refused(g.data, g.size, TFM_ERR_UNSUPPORTED, "section data", "an unknown flag of a section");
    memcpy(g.data, f->data, f->size);
    section(&g, TFM_SECTION_DIRECTORY, &n)[64 + 20] = 1;
    forge_hashes(&g);
    check_refused(g.data, g.size, TFM_ERR_UNSUPPORTED, "flags 1", "an unknown flag of a tensor");

    memcpy(g.data, f->data, f->size);
    unsigned char *p = section(&g, TFM_SECTION_DESCRIPTION, &n), *record = NULL;
    for (size_t at = 0; at < n; at += 8 + (load_u32(p + at + 4) + 7) / 8 * 8)
        if (load_u16(p + at) == 34) record = p + at; /* eos, the last global field; the model still is one without it */
    check(record != NULL, "the description has no eos");
    if (record) {
        record[0] = 0x0f;
        record[1] = 0x27; /* key 9999 */
        record[3] = 1;
        forge_hashes(&g);
        check_refused(g.data, g.size, TFM_ERR_UNSUPPORTED, "9999", "an unknown key that is required");
        record[3] = 0;
        forge_hashes(&g);
        tfm_model_close(open_memory(&g, "an unknown key that may be skipped"));
        record[0] = 7; /* one of structure, which comes in any order */
        record[1] = 0;
        forge_hashes(&g);
        tfm_model_close(open_memory(&g, "an unknown key of structure that may be skipped"));
        record[3] = 1;
        forge_hashes(&g);
        check_refused(g.data, g.size, TFM_ERR_UNSUPPORTED, "key 7", "an unknown key of structure that is required");
        record[0] = 16; /* n_layers, a second time: table sizes must not change under way */
        record[1] = 0;
        forge_hashes(&g);
        check_refused(g.data, g.size, TFM_ERR_FORMAT, "key 16", "a key that comes twice");
    }

    memcpy(g.data, f->data, f->size);
    g.data[AT_VERSION] = 77;
    forge_hashes(&g);
    check_refused(g.data, g.size, TFM_ERR_UNSUPPORTED, "version 77 is newer", "a newer version");
    g.data[AT_VERSION] = 0;
    forge_hashes(&g);
    check_refused(g.data, g.size, TFM_ERR_UNSUPPORTED, "version 0 is older than the first fixed one: convert",
                  "version 0");
    check(f->data[AT_VERSION] == 1 && TFM_FILE_VERSION == 1, "files are of version 1");
    memcpy(g.data, "GGUF", 4);
    check_refused(g.data, g.size, TFM_ERR_FORMAT, "not a .tfm", "another kind of file");
    tiny_file_free(&g);
}

/* What opening does not read, --verify finds. */
static void test_verify(const tiny_file *f) {
    static const uint32_t ids[] = { TFM_SECTION_TOKENIZER, TFM_SECTION_DATA };
    for (size_t k = 0; k < 2; k++) {
        size_t n = 0;
        unsigned char *p = section(f, ids[k], &n) + n - 1;
        *p ^= 0x10;
        tfm_error err;
        tfm_model *m = NULL;
        const tfm_result r = tfm_model_from_memory(f->data, f->size, NULL, &m, &err);
        if (k == 1) check(!r, "a flipped weight is not found at opening: %s", r ? err.msg : "");
        if (!r) {
            check(tfm_model_verify(m, &err) == TFM_ERR_FORMAT, "section %d: a flipped byte is not found", (int)ids[k]);
            check(strstr(err.msg, k ? "blk.1." : "tokenizer") != NULL, "verify names the wrong thing: %s", err.msg);
        }
        tfm_model_close(m);
        *p ^= 0x10;
    }
}

static void test_memory(const tiny_file *f) {
    unsigned char *shifted = (unsigned char *)tiny_alloc(f->size + 64), *mem;
    tfm_model *m = NULL;
    tfm_error err;
    size_t need = 0;
    memcpy(shifted + 8, f->data, f->size);
    check_refused(shifted + 8, f->size, TFM_ERR_ARG, "64", "a file that is not aligned");
    tiny_free(shifted);

    check(!tfm_model_size(f->data, f->size, &need, &err) && need, "tfm_model_size");
    mem = (unsigned char *)tiny_alloc(need + 64);
    memset(mem, 0xA5, need + 64);
    check(tfm_model_init(f->data, f->size, mem, need - 1, &m, &err) == TFM_ERR_MEMORY && !m, "a byte too few");
    check(tfm_model_init(f->data, f->size, mem + 8, need, &m, &err) == TFM_ERR_MEMORY && !m, "memory not aligned");
    check(!tfm_model_init(f->data, f->size, mem, need, &m, &err) && m, "tfm_model_init");
    for (int i = 0; i < 64; i++) check(mem[need + (size_t)i] == 0xA5, "a byte behind the model was written");
    if (m) {
        static float a[3 * N_VOCAB], b[3 * N_VOCAB];
        static const int32_t ids[] = { 104, 105, 3 };
        tfm_session_config cfg = tiny_exact(3, 3);
        tfm_model *other = open_memory(f, "memory");
        if (tiny_logits(m, &cfg, ids, 3, a, "in place") && other && tiny_logits(other, &cfg, ids, 3, b, "allocated"))
            check(!memcmp(a, b, sizeof a), "a model in the caller's memory gives other bits");
        tfm_model_close(other);
    }
    tiny_free(mem);
}

typedef struct counter {
    int allocs, fail_at;
    size_t bytes;
} counter;

static void *count_alloc(void *user, size_t size, size_t align) {
    counter *c = (counter *)user;
    (void)align;
    if (c->allocs++ == c->fail_at) return NULL;
    c->bytes += size;
    return tiny_alloc(size);
}

static void count_release(void *user, void *p, size_t size) {
    counter *c = (counter *)user;
    c->bytes -= size;
    tiny_free(p);
}

/* From a path: mapped and read, the same model; every failure names the path and leaves nothing allocated. */
static void test_paths(const tiny_file *f) {
    char path[512];
    tfm_error err;
    tfm_model *m = NULL;
    FILE *out;
    snprintf(path, sizeof path, "%s/small.tfm", test_dir());
    out = file_open(path, "wb");
    check(out && fwrite(f->data, 1, f->size, out) == f->size && !fclose(out), "%s cannot be written", path);
    check(!tfm_model_open(path, NULL, &m, &err), "mapped: %s", err.msg);
    tfm_model_close(m);
    for (int fail_at = -1; fail_at < 2; fail_at++) {
        counter c = { 0, 0, 0 };
        tfm_allocator allocator;
        tfm_model_config cfg;
        c.fail_at = fail_at;
        allocator.user = &c;
        allocator.alloc = count_alloc;
        allocator.release = count_release;
        memset(&cfg, 0, sizeof cfg);
        cfg.size = sizeof cfg;
        cfg.no_mmap = 1;
        cfg.allocator = &allocator;
        const tfm_result r = tfm_model_open(path, &cfg, &m, &err);
        check(r == (fail_at < 0 ? TFM_OK : TFM_ERR_MEMORY), "allocation %d fails: result %d", fail_at, (int)r);
        if (r) check(strstr(err.msg, "small.tfm") && !m, "allocation %d fails: '%s'", fail_at, err.msg);
        else check(c.allocs == 2 && !tfm_model_verify(m, &err), "read: %d allocations", c.allocs);
        tfm_model_close(m);
        check(!c.bytes, "%d bytes were not given back", (int)c.bytes);
    }
    check(tfm_model_open(test_dir(), NULL, &m, &err) && strstr(err.msg, test_dir()), "a directory: '%s'", err.msg);
    check(tfm_model_open("no/such.tfm", NULL, &m, &err) == TFM_ERR_IO && strstr(err.msg, "no/such.tfm"),
          "no file: '%s'", err.msg);
    snprintf(path, sizeof path, "%s/config.json", test_dir());
    out = file_open(path, "wb");
    check(out && fputs("{}", out) >= 0 && !fclose(out), "%s cannot be written", path);
    check(tfm_model_open(path, NULL, &m, &err) == TFM_ERR_FORMAT && strstr(err.msg, "config.json"),
          "not a model: '%s'", err.msg);
}

/* What tests/fuzz/fuzz_tfm.c begins with: the whole, and smaller files for its parts. */
static void write_seeds(const tiny_file *whole) {
    static const int32_t types[] = { TFM_F32, TFM_F16, TFM_BF16, TFM_Q8_0 };
    tiny_file f = { NULL, 0, 0 };
    char name[32];
    write_seed("tfm", "whole", whole->data, whole->size);
    if (!make_file(&f, NULL, 1)) write_seed("tfm", "tokenizer", f.data, f.size);
    tiny_file_free(&f);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        tiny_model t;
        describe_small(&t);
        t.config.n_vocab = 19;
        t.config.n_layers = 1 + (int32_t)i % 2;
        tiny_weights(&t, types[i], i == 1 ? TFM_ROWS : TFM_TILED);
        snprintf(name, sizeof name, "model_%s", tfm_type_get(types[i])->name);
        if (!make_file(&f, &t, 0)) write_seed("tfm", name, f.data, f.size);
        tiny_file_free(&f);
        tiny_weights_free(&t);
    }
    tiny_model t; /* a mixture of experts */
    describe_small(&t);
    t.config.n_vocab = 19;
    t.config.n_layers = 1;
    t.blocks[0].ffn_kind = TFM_FFN_EXPERTS;
    t.blocks[0].n_experts = 4;
    t.blocks[0].n_experts_used = 2;
    t.blocks[0].d_expert = 16;
    t.blocks[0].n_groups = 2;
    t.blocks[0].n_groups_used = 1;
    t.blocks[0].router_score = TFM_SCORE_SIGMOID;
    t.blocks[0].bias |= TFM_BIAS_SELECT;
    t.blocks[0].sinks = 1;
    tiny_weights(&t, TFM_F32, TFM_TILED);
    if (!make_file(&f, &t, 0)) write_seed("tfm", "experts", f.data, f.size);
    tiny_file_free(&f);
    tiny_weights_free(&t);
}

/* A tokenizer with more tokens than the model: programs never get to see the ids that have no logit. */
static void test_foreign_ids(void) {
    tiny_model t;
    tiny_file f = { NULL, 0, 0 };
    tfm_error err;
    run r;
    int64_t n = 0;
    memset(&r, 0, sizeof r);
    describe_small(&t);
    t.config.n_vocab = 200;
    t.config.n_eos = 0;
    tiny_weights(&t, TFM_F32, TFM_TILED);
    if (!make_file(&f, &t, 1) && !tfm_model_from_memory(f.data, f.size, NULL, &r.model, &err)) {
        r.config = tfm_model_config_of(r.model);
        r.tokenizer = tfm_model_tokenizer(r.model);
        int32_t *ids = run_encode(&r, "abc", 3, TFM_ENCODE_NO_SPECIAL, &n, &err);
        check(ids && n == 3, "ids below 200");
        free(ids);
        ids = run_encode(&r, "hello", 5, TFM_ENCODE_NO_SPECIAL, &n, &err);
        check(!ids && strstr(err.msg, "259"), "an id that the model does not have: %s", err.msg);
        free(ids);
    }
    check(r.model != NULL, "the model with few tokens");
    run_close(&r);
    tiny_file_free(&f);
    tiny_weights_free(&t);
}

void test_file(void) {
    tiny_model t;
    tiny_file f = { NULL, 0, 0 };
    test_hash();
    test_absent();
    test_foreign_ids();
    describe_small(&t);
    tiny_weights(&t, TFM_Q8_0, TFM_TILED);
    if (!make_file(&f, &t, 1)) {
        test_round_trip(&f, &t);
        test_padded_rows(&f);
        test_truncated(&f);
        test_flipped(&f);
        test_forged(&f);
        test_lies(&f);
        test_tensors(&f);
        test_unknown(&f);
        test_verify(&f);
        test_memory(&f);
        test_paths(&f);
        write_seeds(&f);
    }
    tiny_file_free(&f);
    tiny_weights_free(&t);
}
