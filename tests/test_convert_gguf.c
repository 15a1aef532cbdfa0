/* test_convert_gguf.c - GGUF and llama2.c files: the order of rows, what has no key, what is refused, damage. The files
 * are built here in memory; weights tell their row, so that a row in the wrong place shows.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "convert_output.h"
#include "tools/write_gguf.h"

enum { D = 8, HEADS = 6, KV = 2, HEAD_DIM = 4, FF = 12, VOCAB = 5 };
enum { BIAS_QKV = 1, QK_NORM = 2, SANDWICH = 4 };

/* ---- GGUF ------------------------------------------------------------------------------------------------------ */

typedef struct gguf_builder {
    unsigned char kv[4096], info[65536], data[1 << 20], file[4096 + 65536 + (1 << 20) + 64];
    size_t n_kv_bytes, n_info, n_data, size;
    uint64_t n_kv, n_tensors;
} gguf_builder;

static void put_string(unsigned char *to, size_t *at, const char *text) {
    put_le(to, at, strlen(text), 8);
    memcpy(to + *at, text, strlen(text));
    *at += strlen(text);
}

static void kv_u32(gguf_builder *g, const char *key, uint32_t value) {
    put_string(g->kv, &g->n_kv_bytes, key);
    put_le(g->kv, &g->n_kv_bytes, 4, 4);
    put_le(g->kv, &g->n_kv_bytes, value, 4);
    g->n_kv++;
}

static void kv_f32(gguf_builder *g, const char *key, float value) {
    put_string(g->kv, &g->n_kv_bytes, key);
    put_le(g->kv, &g->n_kv_bytes, 6, 4);
    put_f32(g->kv, &g->n_kv_bytes, value);
    g->n_kv++;
}

static void kv_text(gguf_builder *g, const char *key, const char *value) {
    put_string(g->kv, &g->n_kv_bytes, key);
    put_le(g->kv, &g->n_kv_bytes, 8, 4);
    put_string(g->kv, &g->n_kv_bytes, value);
    g->n_kv++;
}

/* The row of pairs in which llama's GGUF files keep row r of a matrix of `heads` heads (0: rows stay). */
static int stored_row(int r, int rows, int heads) {
    if (!heads) return r;
    int d = rows / heads, i = r % d;
    return r - i + (i < d / 2 ? 2 * i : 2 * (i - d / 2) + 1);
}

/* F32; the values say the row (of a vector: the column) in the model's order. */
static void gguf_tensor_of(gguf_builder *g, const char *name, int rows, int cols, int heads) {
    put_string(g->info, &g->n_info, name);
    put_le(g->info, &g->n_info, rows ? 2 : 1, 4);
    put_le(g->info, &g->n_info, (uint64_t)cols, 8);
    if (rows) put_le(g->info, &g->n_info, (uint64_t)rows, 8);
    put_le(g->info, &g->n_info, 0, 4);
    put_le(g->info, &g->n_info, g->n_data, 8);
    for (int r = 0; r < (rows ? rows : 1); r++)
        for (int c = 0; c < cols; c++) {
            float value = rows ? (float)r + (float)c / 64 : (float)c + 1;
            int to = rows ? stored_row(r, rows, heads) * cols + c : stored_row(c, cols, heads);
            size_t at = g->n_data + 4 * (size_t)to;
            put_f32(g->data, &at, value);
        }
    g->n_data = (g->n_data + 4 * (size_t)(rows ? rows : 1) * (size_t)cols + 31) / 32 * 32;
    g->n_tensors++;
}

static void finish_gguf(gguf_builder *g) {
    size_t at = 0;
    put_le(g->file, &at, 0x46554747, 4);
    put_le(g->file, &at, 3, 4);
    put_le(g->file, &at, g->n_tensors, 8);
    put_le(g->file, &at, g->n_kv, 8);
    memcpy(g->file + at, g->kv, g->n_kv_bytes);
    at += g->n_kv_bytes;
    memcpy(g->file + at, g->info, g->n_info);
    at = (at + g->n_info + 31) / 32 * 32;
    memcpy(g->file + at, g->data, g->n_data);
    g->size = at + g->n_data;
}


static void gguf_keys(gguf_builder *g, const char *arch, int layers) {
    static const struct { const char *key; uint32_t value; } keys[] = {
        {"context_length", 64}, {"embedding_length", D}, {"feed_forward_length", FF}, {"attention.head_count", HEADS},
        {"attention.head_count_kv", KV}, {"attention.key_length", HEAD_DIM}, {"attention.value_length", HEAD_DIM}};
    char key[96];
    kv_text(g, "general.architecture", arch);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(key, sizeof key, "%s.%s", arch, keys[i].key);
        kv_u32(g, key, keys[i].value);
    }
    snprintf(key, sizeof key, "%s.block_count", arch);
    kv_u32(g, key, (uint32_t)layers);
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    kv_f32(g, key, 1e-6f);
}

/* pairs: q and k are stored as llama's are. parts as of a directory. */
static void gguf_layer(gguf_builder *g, int i, int pairs, int parts) {
    const struct { const char *name; int rows, cols, heads, part; } rows[] = {
        {"attn_norm.weight", 0, D, 0, 0}, {"ffn_norm.weight", 0, D, 0, 0},
        {"attn_q.weight", HEADS * HEAD_DIM, D, HEADS, 0}, {"attn_k.weight", KV * HEAD_DIM, D, KV, 0},
        {"attn_v.weight", KV * HEAD_DIM, D, 0, 0}, {"attn_output.weight", D, HEADS * HEAD_DIM, 0, 0},
        {"ffn_gate.weight", FF, D, 0, 0}, {"ffn_up.weight", FF, D, 0, 0}, {"ffn_down.weight", D, FF, 0, 0},
        {"attn_q.bias", 0, HEADS * HEAD_DIM, HEADS, BIAS_QKV}, {"attn_k.bias", 0, KV * HEAD_DIM, KV, BIAS_QKV},
        {"attn_v.bias", 0, KV * HEAD_DIM, 0, BIAS_QKV}, {"attn_q_norm.weight", 0, HEAD_DIM, 0, QK_NORM},
        {"attn_k_norm.weight", 0, HEAD_DIM, 0, QK_NORM}, {"post_attention_norm.weight", 0, D, 0, SANDWICH},
        {"post_ffw_norm.weight", 0, D, 0, SANDWICH}};
    char name[64];
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        if (rows[k].part && !(parts & rows[k].part)) continue;
        snprintf(name, sizeof name, "blk.%d.%s", i, rows[k].name);
        gguf_tensor_of(g, name, rows[k].rows, rows[k].cols, pairs ? rows[k].heads : 0);
    }
}

static void gguf_model(gguf_builder *g, int layers, int pairs, int parts) {
    gguf_tensor_of(g, "token_embd.weight", VOCAB, D, 0);
    gguf_tensor_of(g, "output_norm.weight", 0, D, 0);
    for (int i = 0; i < layers; i++) gguf_layer(g, i, pairs, parts);
}

/* Every row of a matrix, every element of a vector stands where the model has it. */
static void check_order(const tfm_model *m, int role) {
    tfm_tensor t = tfm_model_tensor(m, 1, role);
    float row[64];
    for (int64_t r = 0; r < t.rows; r++) {
        tfm_tensor_row(&t, r, row);
        if (t.layout == TFM_TILED)
            check(row[0] == (float)r, "%s: row %lld is row %g", tfm_role_name(role), (long long)r, (double)row[0]);
        for (int64_t c = 0; t.layout == TFM_ROWS && c < t.cols; c++)
            check(row[c] == (float)c + 1, "%s: element %lld is %g", tfm_role_name(role), (long long)c,
                  (double)row[c] - 1);
    }
}

/* Llama's q and k are pairs in GGUF, k with the number of its own heads; qwen2's are not. */
static void check_gguf_order(const char *arch, int pairs) {
    gguf_builder *g = calloc(1, sizeof *g);
    output o;
    if (!g) exit(1);
    gguf_keys(g, arch, 2);
    gguf_model(g, 2, pairs, BIAS_QKV);
    gguf_tensor_of(g, "rope_freqs.weight", 0, HEAD_DIM / 2, 0);
    finish_gguf(g);
    output_start(&o);
    int code = output_convert(&o, g->file, g->size);
    check(!code, "%s: %s", arch, code ? o.err.msg : "");
    for (int role = TFM_ROLE_Q; !code && role <= TFM_ROLE_V_B; role++) check_order(o.model, role);
    if (!code) {
        const tfm_block *b = tfm_model_block(o.model, 0);
        check(b->rope_style == TFM_ROPE_HALF && b->rope_theta == 1e4f && b->rope_scaling == TFM_ROPE_FACTORS,
              "%s: style %d, theta %g, scaling %d", arch, (int)b->rope_style, (double)b->rope_theta,
              (int)b->rope_scaling);
        check(b->bias == (TFM_BIAS_Q | TFM_BIAS_K | TFM_BIAS_V), "%s: bias %d", arch, (int)b->bias);
        check(tfm_model_tensor(o.model, -1, TFM_ROLE_ROPE_FACTORS).cols == HEAD_DIM / 2, "%s: factors", arch);
    }
    output_end(&o);
    free(g);
}

/* The 1 of (1 + w) is folded in; the query scalar has no key; windows and the second theta neither. */
static void check_gguf_gemma(void) {
    gguf_builder *g = calloc(1, sizeof *g);
    output o;
    if (!g) exit(1);
    gguf_keys(g, "gemma3", 7);
    kv_u32(g, "gemma3.attention.sliding_window", 16);
    gguf_model(g, 7, 0, SANDWICH | QK_NORM);
    finish_gguf(g);
    output_start(&o);
    int code = output_convert(&o, g->file, g->size);
    check(!code, "gemma3: %s", code ? o.err.msg : "");
    if (!code) {
        const tfm_config *c = tfm_model_config_of(o.model);
        const tfm_block *local = tfm_model_block(o.model, 4), *full = tfm_model_block(o.model, 5);
        check(local->window == 16 && local->rope_theta == 1e4f, "gemma3: layer 4");
        check(full->window == 0 && full->rope_theta == 1e6f, "gemma3: layer 5");
        check(local->norm_offset == 0 && local->qk_norm_offset == 0 && c->norm_offset == 0, "gemma3: offsets");
        check(c->embed_scale == (float)sqrt(8.0), "gemma3: embedding scale %g", (double)c->embed_scale);
        check(c->tied && full->ffn_act == TFM_ACT_GELU_TANH, "gemma3: tied, gelu");
    }
    output_end(&o);
    free(g);
}

static void check_gguf_gemma2_scale(int layers, float scale) {
    gguf_builder *g = calloc(1, sizeof *g);
    output o;
    if (!g) exit(1);
    gguf_keys(g, "gemma2", layers);
    gguf_model(g, layers, 0, SANDWICH);
    finish_gguf(g);
    output_start(&o);
    int code = output_convert(&o, g->file, g->size);
    check(!code, "gemma2: %s", code ? o.err.msg : "");
    if (!code) {
        const tfm_block *b = tfm_model_block(o.model, 0);
        check(b->attn_scale == scale && b->attn_softcap == 50 && b->window == 4096, "gemma2 of %d layers: scale %g",
              layers, (double)b->attn_scale);
    }
    output_end(&o);
    free(g);
}

/* Ids that are images can never come next, in a vocabulary that has them all; no tensor of the file says so. */
static void check_gguf_images_off(int n_vocab) {
    gguf_builder *g = calloc(1, sizeof *g);
    output o;
    if (!g) exit(1);
    gguf_keys(g, "chameleon", 1);
    gguf_tensor_of(g, "token_embd.weight", n_vocab, D, 0);
    gguf_tensor_of(g, "output_norm.weight", 0, D, 0);
    gguf_layer(g, 0, 1, 0);
    finish_gguf(g);
    output_start(&o);
    int code = output_convert(&o, g->file, g->size);
    check(!code, "chameleon: %s", code ? o.err.msg : "");
    const tfm_tensor bias = tfm_model_tensor(code ? NULL : o.model, -1, TFM_ROLE_HEAD_B);
    const float *x = bias.data;
    if (n_vocab < 8196) check(!x, "chameleon: ids are switched off although there are %d", n_vocab);
    else if (x) check(x[3] == 0 && x[4] == -FLT_MAX && x[8195] == -FLT_MAX && x[n_vocab - 1] == 0, "chameleon: ids");
    else check(0, "chameleon: no id is switched off");
    if (!code) check_to_gguf("chameleon", o.model, NULL);
    output_end(&o);
    free(g);
}

/* Cuts and changed bytes: an error or a model, never a crash; a cut is always an error. */
static void check_gguf_damage(void) {
    gguf_builder *g = calloc(1, sizeof *g);
    output o;
    if (!g) exit(1);
    gguf_keys(g, "llama", 1);
    gguf_model(g, 1, 1, 0);
    finish_gguf(g);
    size_t header = g->size - g->n_data;
    for (size_t n = 0; n < g->size; n += n < header ? 7 : 509) {
        output_start(&o);
        check(output_convert(&o, g->file, n) != 0, "cut at %zu of %zu", n, g->size);
        output_end(&o);
    }
    for (size_t i = 0; i < header; i += 3) {
        unsigned char kept = g->file[i];
        g->file[i] ^= (unsigned char)(i % 2 ? 0xff : 0x01);
        output_start(&o);
        int code = output_convert(&o, g->file, g->size);
        output_use(&o, code, "a changed byte");
        output_end(&o);
        g->file[i] = kept;
    }
    free(g);
}

/* Numbers that lie, everywhere in metadata and directory: counts, lengths, dimensions, offsets, hyper-parameters. */
static void check_gguf_numbers(void) {
    static const uint64_t lies[] = {0, 1, 3, 255, 0x7fffffff, 0x80000000u, 0xffffffffu,
                                    0x7fc00000 /* NaN */, 0x7f800000 /* inf */,
                                    0xbf800000u /* -1 */, (uint64_t)1 << 32, (uint64_t)1 << 61, (uint64_t)1 << 63,
                                    ~(uint64_t)0, ~(uint64_t)0 - 31};
    gguf_builder *g = calloc(1, sizeof *g);
    output o;
    if (!g) exit(1);
    gguf_keys(g, "llama", 1);
    kv_u32(g, "general.alignment", 32);
    gguf_model(g, 1, 1, 0);
    finish_gguf(g);
    const size_t header = g->size - g->n_data;
    for (size_t i = 8, turn = 0; i + 8 < header; i++, turn++) {
        unsigned char kept[8];
        const uint64_t lie = lies[turn * 7 % (sizeof lies / sizeof *lies)];
        size_t at = i;
        memcpy(kept, g->file + i, 8);
        put_le(g->file, &at, lie, lie >> 32 ? 8 : 4);
        output_start(&o);
        output_use(&o, output_convert(&o, g->file, g->size), "a lie");
        output_end(&o);
        memcpy(g->file + i, kept, 8);
    }
    free(g);
}

/* Seeds for tests/fuzz/fuzz_convert.c. */
static void write_model_seed(const char *name, const unsigned char *file, size_t n) {
    unsigned char *seed = malloc(n + 1);
    if (!seed) exit(1);
    seed[0] = 3;
    memcpy(seed + 1, file, n);
    write_seed("convert", name, seed, n + 1);
    free(seed);
}
static void write_gguf_seed(const char *arch, int pairs, int parts) {
    gguf_builder *g = calloc(1, sizeof *g);
    if (!g) exit(1);
    gguf_keys(g, arch, 1);
    gguf_model(g, 1, pairs, parts);
    finish_gguf(g);
    write_model_seed(arch, g->file, g->size);
    free(g);
}

static void check_gguf_refused(const char *key, uint32_t value, const char *tensor, const char *error) {
    gguf_builder *g = calloc(1, sizeof *g);
    output o;
    if (!g) exit(1);
    gguf_keys(g, "llama", 1);
    if (key) kv_u32(g, key, value);
    gguf_model(g, 1, 1, 0);
    if (tensor) gguf_tensor_of(g, tensor, 3, 3, 0);
    finish_gguf(g);
    output_start(&o);
    int code = output_convert(&o, g->file, g->size);
    if (error)
        check(code && strstr(o.err.msg, error), "expected \"%s\", got %d \"%s\"", error, code, code ? o.err.msg : "");
    else
        check(!code, "%s%s: %s", key ? key : "", tensor ? tensor : "", code ? o.err.msg : "");
    output_end(&o);
    free(g);
}

/* A type that is not read is named, and what to use instead. */
static void check_gguf_type_refused(unsigned char type, const char *error) {
    gguf_builder *g = calloc(1, sizeof *g);
    output o;
    if (!g) exit(1);
    gguf_keys(g, "llama", 1);
    gguf_model(g, 1, 1, 0);
    gguf_tensor_of(g, "output.weight", 3, 256, 0);
    g->info[g->n_info - 12] = type; /* before the offset */
    finish_gguf(g);
    output_start(&o);
    const int code = output_convert(&o, g->file, g->size);
    check(code && strstr(o.err.msg, error), "expected \"%s\", got %d \"%s\"", error, code, code ? o.err.msg : "");
    output_end(&o);
    free(g);
}

void test_convert_gguf(void) {
    check_gguf_order("llama", 1);
    check_gguf_order("qwen2", 0);
    check_gguf_gemma();
    check_gguf_gemma2_scale(2, 0);
    check_gguf_gemma2_scale(46, 1); /* floor(8 / 6) ^ -1/2 */
    check_gguf_images_off(8197);
    check_gguf_images_off(8195);
    check_gguf_damage();
    check_gguf_numbers();
    write_gguf_seed("llama", 1, 0);
    write_gguf_seed("qwen2", 0, BIAS_QKV);
    write_gguf_seed("gemma2", 0, SANDWICH);
    check_gguf_refused("llama.expert_count", 4, NULL, "llama.expert_count");
    check_gguf_refused("llama.expert_count", 0, NULL, NULL);
    check_gguf_refused("other.key", 4, NULL, NULL);
    check_gguf_type_refused(21, "output.weight has type IQ3_S, which is not supported; the nearest that is: Q3_K");
    check_gguf_type_refused(35, "type TQ2_0, which is not supported; the nearest that is: Q2_K");
    check_gguf_refused("split.count", 3, NULL, "split");
    check_gguf_refused("llama.vocab_size", 4, NULL, "vocab_size is 4");
    check_gguf_refused("llama.rope.dimension_count", 1 << 20, NULL, "rope_dims");
    check_gguf_refused(NULL, 0, "blk.0.ffn_gate_inp.weight", "blk.0.ffn_gate_inp.weight");
    check_gguf_refused(NULL, 0, "v.patch_embd.weight", NULL);
    check_gguf_refused(NULL, 0, "output.weight", "output.weight is [3, 3], file asks for [5, 8]");
}

/* ---- SPLIT ----------------------------------------------------------------------------------------------------- */

enum { PARTS = 3 };

/* Part `no` of a model of one layer: the first has the metadata and the embedding, the last everything else. */
static void split_part(gguf_builder *g, int no, uint32_t count, uint32_t n_tensors, const char *extra) {
    memset(g, 0, sizeof *g);
    if (no == 0) gguf_keys(g, "llama", 1);
    kv_u32(g, "split.count", count);
    kv_u32(g, "split.no", (uint32_t)no);
    kv_u32(g, "split.tensors.count", n_tensors);
    if (no == 0) gguf_tensor_of(g, "token_embd.weight", VOCAB, D, 0);
    if (no == 1) gguf_tensor_of(g, "output_norm.weight", 0, D, 0);
    if (no == 2) gguf_layer(g, 0, 1, 0);
    if (extra) gguf_tensor_of(g, extra, VOCAB, D, 0);
    finish_gguf(g);
}

/* files[i] is what lies under the name of part i, NULL: nothing; given: the part that is converted. */
static int convert_parts(output *o, const gguf_builder *const files[PARTS], int given) {
    static const char *const names[PARTS] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"};
    memory_file list[PARTS];
    memory_dir folder = {list, 0};
    for (int i = 0; i < PARTS; i++) {
        memory_file f = {names[i], files[i] ? files[i]->file : NULL, files[i] ? files[i]->size : 0};
        if (files[i]) list[folder.n_files++] = f;
    }
    source_dir dir = dir_memory("dir", &folder);
    source src = source_memory(names[given], files[given]->file, files[given]->size);
    sink out = output_sink(o);
    convert_options options = output_options(o);
    options.beside = &dir;
    return output_open(o, convert_file(&src, &out, &options, &o->err));
}

static void check_parts(const char *what, const gguf_builder *a, const gguf_builder *b, const gguf_builder *c,
                        int given, const char *error) {
    const gguf_builder *const files[PARTS] = {a, b, c};
    output o;
    output_start(&o);
    int code = convert_parts(&o, files, given);
    if (error) {
        check(code && strstr(o.err.msg, error), "split, %s: %d \"%s\"", what, code, code ? o.err.msg : "");
    } else {
        check(!code, "split, %s: %s", what, code ? o.err.msg : "");
        if (!code) check_order(o.model, TFM_ROLE_Q);
        if (!code) check_order(o.model, TFM_ROLE_DOWN);
    }
    output_end(&o);
}

/* A seed for tests/fuzz/fuzz_checkpoint.c. */
static void write_split_seed(const gguf_builder *first, const gguf_builder *second) {
    static unsigned char seed[1 << 16];
    size_t at = 0;
    put_le(seed, &at, 2, 1);
    put_le(seed, &at, first->size, 2);
    memcpy(seed + at, first->file, first->size);
    memcpy(seed + at + first->size, second->file, second->size);
    write_seed("checkpoint", "split", seed, at + first->size + second->size);
}

void test_convert_split(void) {
    enum { FIRST, SECOND, THIRD, OTHER, TWICE, MORE, FEWER, N };
    gguf_builder *g = calloc(N, sizeof *g);
    if (!g) exit(1);
    for (int i = 0; i < PARTS; i++) split_part(&g[i], i, PARTS, 11, NULL);
    split_part(&g[OTHER], 1, PARTS, 12, NULL);
    split_part(&g[TWICE], 1, PARTS, 11, "token_embd.weight");
    split_part(&g[MORE], 1, PARTS, 11, "output.weight");
    split_part(&g[FEWER], 1, 2, 11, NULL);
    check_parts("whole", g, g + SECOND, g + THIRD, 0, NULL);
    check_parts("its second part", g, g + SECOND, g + THIRD, 1,
                "m-00002-of-00003.gguf: is part 2 of 3, give the first");
    check_parts("one missing", g, NULL, g + THIRD, 0, "part m-00002-of-00003.gguf is missing");
    check_parts("swapped", g, g + THIRD, g + SECOND, 0, "m-00002-of-00003.gguf: split.no is 3");
    check_parts("one twice", g, g + SECOND, g + SECOND, 0, "m-00003-of-00003.gguf: split.no is 2");
    check_parts("of another model", g, g + OTHER, g + THIRD, 0, "m-00002-of-00003.gguf: is a part of another model");
    check_parts("of another count", g, g + FEWER, g + THIRD, 0, "m-00002-of-00003.gguf: is a part of another model");
    check_parts("a tensor twice", g, g + TWICE, g + THIRD, 0, "m-00002-of-00003.gguf: tensor token_embd.weight");
    check_parts("a tensor too many", g, g + MORE, g + THIRD, 0, "split.tensors.count is 11, but the parts hold 12");
    split_part(&g[OTHER], 0, 2, 11, "output_norm.weight");
    split_part(&g[FEWER], 2, 2, 11, NULL);
    write_split_seed(&g[OTHER], &g[FEWER]);
    memset(g[SECOND].file, 0, 4);
    check_parts("a part that is none", g, g + SECOND, g + THIRD, 0, "m-00002-of-00003.gguf: header");
    free(g);
}

/* ---- LLAMA2.C -------------------------------------------------------------------------------------------------- */

enum { L2C_DIM = 8, L2C_HIDDEN = 12, L2C_N = 2, L2C_SEQ = 16, L2C_GROUP = 8, L2C_TENSORS = 11 };

/* Elements of each tensor, all layers together, in version 0's order without the tables of RoPE. */
static const size_t l2c_sizes[L2C_TENSORS] = {
    VOCAB * L2C_DIM, L2C_N * L2C_DIM, L2C_N * L2C_DIM * L2C_DIM, L2C_N * L2C_DIM * L2C_DIM / 2,
    L2C_N * L2C_DIM * L2C_DIM / 2, L2C_N * L2C_DIM * L2C_DIM, L2C_N * L2C_DIM, L2C_N * L2C_DIM * L2C_HIDDEN,
    L2C_N * L2C_DIM * L2C_HIDDEN, L2C_N * L2C_DIM * L2C_HIDDEN, L2C_DIM};
static const int l2c_layers[L2C_TENSORS] = {1, L2C_N, L2C_N, L2C_N, L2C_N, L2C_N, L2C_N, L2C_N, L2C_N, L2C_N, 1};
static const int l2c_is_norm[L2C_TENSORS] = {0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1};

/* Element i of all: an int8 times its group's scale, exact as float32; the groups of a tensor are counted from its
 * layer's first element on. */
static int l2c_code(size_t i) { return (int)(i * 37 % 255) - 127; }
static float l2c_scale(size_t first, size_t group) { return 0.125f * (float)(1 + (first + group * 3) % 5); }

static void put_l2c_tensor(unsigned char *file, size_t *at, int version, size_t first, size_t n, int norm) {
    const int grouped = version == 2 && !norm;
    for (size_t i = 0; i < n; i++) {
        if (grouped) put_le(file, at, (uint64_t)(unsigned char)l2c_code(first + i), 1);
        else put_f32(file, at, (float)l2c_code(first + i) * l2c_scale(first, i / L2C_GROUP));
    }
    for (size_t g = 0; grouped && g < n / L2C_GROUP; g++) put_f32(file, at, l2c_scale(first, g));
}

static size_t make_l2c(unsigned char *file, int version) {
    static const int later[L2C_TENSORS] = {1, 6, 10, 0, 2, 3, 4, 5, 7, 8, 9}; /* norms, then the rest */
    const int32_t header[7] = {L2C_DIM, L2C_HIDDEN, L2C_N, 2, 1, VOCAB, L2C_SEQ};
    size_t at = 0, starts[L2C_TENSORS], total = 0;
    if (version) put_le(file, &at, 0x616b3432, 4);
    if (version) put_le(file, &at, (uint64_t)version, 4);
    for (int i = 0; i < 7; i++) put_le(file, &at, (uint32_t)header[i], 4);
    if (version) put_le(file, &at, 1, 1);
    if (version) put_le(file, &at, L2C_GROUP, 4);
    while (version && at < 256) put_le(file, &at, 0, 1);
    for (int k = 0; k < L2C_TENSORS; k++) {
        starts[k] = total;
        total += l2c_sizes[k];
    }
    for (int i = 0; i < L2C_TENSORS; i++) {
        const int k = version ? later[i] : i, layers = l2c_layers[k];
        const size_t n = l2c_sizes[k] / (size_t)layers;
        for (int l = 0; l < layers; l++)
            put_l2c_tensor(file, &at, version, starts[k] + (size_t)l * n, n, l2c_is_norm[k]);
    }
    for (int i = 0; !version && i < L2C_SEQ * HEAD_DIM; i++) put_f32(file, &at, 0);
    return at;
}

/* Versions 1 and 2 hold the same numbers as version 0. */
static void check_l2c_versions(const tfm_model *legacy) {
    static unsigned char file[65536];
    float a[L2C_HIDDEN], b[L2C_HIDDEN];
    for (int version = 1; version <= 2; version++) {
        output o;
        const size_t n = make_l2c(file, version);
        output_start(&o);
        int code = output_convert(&o, file, n);
        check(!code, "llama2c %d: %s", version, code ? o.err.msg : "");
        check(!code && (version == 2) == (strstr(o.warning, "becomes F32") != NULL), "llama2c %d: %s", version,
              o.warning);
        tfm_weight w;
        for (int64_t i = 0; !code && tfm_model_weight(legacy, i, &w); i++) {
            tfm_tensor t = tfm_model_tensor(o.model, w.layer, w.role);
            int same = t.rows == w.t.rows && t.cols == w.t.cols && t.type == TFM_F32;
            for (int64_t r = 0; same && r < t.rows; r++) {
                tfm_tensor_row(&w.t, r, a);
                tfm_tensor_row(&t, r, b);
                same = !memcmp(a, b, (size_t)t.cols * sizeof *a);
            }
            check(same, "llama2c %d: %s of layer %d differs", version, tfm_role_name(w.role), (int)w.layer);
        }
        output_end(&o);
        write_model_seed(version == 1 ? "llama2c_1" : "llama2c_2", file, n);
        for (size_t cut = 0; cut < n; cut += cut < 260 ? 1 : 251) {
            output_start(&o);
            check(output_convert(&o, file, cut) != 0, "llama2c %d: cut at %zu", version, cut);
            output_end(&o);
        }
    }
    size_t n = make_l2c(file, 2);
    file[37] = 7; /* does not divide a matrix */
    output o;
    output_start(&o);
    check(output_convert(&o, file, n) && strstr(o.err.msg, "group_size = 7"), "llama2c 2: %s", o.err.msg);
    output_end(&o);
}

void test_convert_llama2c(void) {
    static unsigned char file[65536];
    const size_t n = make_l2c(file, 0);
    output o;
    write_model_seed("llama2c", file, n);
    output_start(&o);
    int code = output_convert(&o, file, n);
    check(!code, "llama2c: %s", code ? o.err.msg : "");
    if (!code) {
        float row[L2C_HIDDEN];
        tfm_tensor q = tfm_model_tensor(o.model, 1, TFM_ROLE_Q);
        tfm_tensor_row(&q, 3, row);
        const size_t first = l2c_sizes[0] + l2c_sizes[1] + L2C_DIM * L2C_DIM, i = 3 * L2C_DIM + 2;
        check(row[2] == (float)l2c_code(first + i) * l2c_scale(first, i / L2C_GROUP), "llama2c: q[1][3][2] is %g",
              (double)row[2]);
        const tfm_config *c = tfm_model_config_of(o.model);
        check(c->blocks[0].rope_style == TFM_ROPE_INTERLEAVED && c->n_ctx == L2C_SEQ && c->tied,
              "llama2c: description");
        check_l2c_versions(o.model);
    }
    output_end(&o);
    output_start(&o);
    check(output_convert(&o, file, n - 4) != 0, "llama2c: a cut file");
    output_end(&o);
}

/* ---- AND BACK -------------------------------------------------------------------------------------------------- */

/* A GGUF model of an architecture and back. */
static void check_gguf_back(const char *arch, int layers, int pairs, int parts, const char *key, float value) {
    gguf_builder *g = calloc(1, sizeof *g);
    output o;
    char name[96];
    if (!g) exit(1);
    gguf_keys(g, arch, layers);
    snprintf(name, sizeof name, "%s.%s", arch, key ? key : "");
    if (key) kv_f32(g, name, value);
    snprintf(name, sizeof name, "%s.attention.sliding_window", arch);
    if (!strncmp(arch, "gemma", 5) && arch[5]) kv_u32(g, name, 16);
    kv_u32(g, "tokenizer.ggml.bos_token_id", 1);
    kv_u32(g, "tokenizer.ggml.eos_token_id", 2);
    kv_u32(g, "tokenizer.ggml.eot_token_id", 4);
    gguf_model(g, layers, pairs, parts);
    if (key && strstr(key, "freq_base")) gguf_tensor_of(g, "rope_freqs.weight", 0, HEAD_DIM / 2, 0);
    finish_gguf(g);
    output_start(&o);
    int code = output_convert(&o, g->file, g->size);
    check(!code, "%s: %s", arch, code ? o.err.msg : "");
    if (!code) check_to_gguf(arch, o.model, NULL);
    output_end(&o);
    free(g);
}

/* q, k and v are one tensor in this architecture's files, unless their types differ: in layer 0 v is F16. */
static void check_gguf_back_apart(void) {
    static const char name[] = "blk.0.attn_v.weight";
    gguf_builder *g = calloc(1, sizeof *g);
    output o;
    size_t at = 0;
    if (!g) exit(1);
    gguf_keys(g, "qwen", 2);
    gguf_model(g, 2, 0, BIAS_QKV);
    while (at < g->n_info && memcmp(g->info + at, name, sizeof name - 1)) at++;
    g->info[at + sizeof name - 1 + 4 + 16] = 1; /* behind the number of dimensions and two of them */
    finish_gguf(g);
    output_start(&o);
    int code = output_convert(&o, g->file, g->size);
    check(!code, "qwen: %s", code ? o.err.msg : "");
    if (!code) {
        check(tfm_model_tensor(o.model, 0, TFM_ROLE_V).type == TFM_F16, "qwen: v of layer 0 is not F16");
        check_to_gguf("qwen", o.model, NULL);
        output gguf;
        output_start(&gguf);
        sink out = output_sink(&gguf);
        convert_options options = output_options(&gguf);
        code = write_gguf(o.model, "qwen.tfm", &out, &options, &gguf.err);
        for (at = 0; at < 4096 && memcmp(gguf.bytes + at, "qwen.block_count", 16); at++) {}
        check(!code && at < 4096, "qwen with a v of its own type: written as another architecture");
        output_end(&gguf);
    }
    output_end(&o);
    free(g);
}

/* The same model with a field that no architecture has. */
static void check_cannot_say(void) {
    gguf_builder *g = calloc(1, sizeof *g);
    output o;
    if (!g) exit(1);
    gguf_keys(g, "qwen2", 1);
    gguf_model(g, 1, 0, BIAS_QKV);
    finish_gguf(g);
    output_start(&o);
    int code = output_convert(&o, g->file, g->size);
    check(!code, "qwen2: %s", code ? o.err.msg : "");
    /* the test's own memory */
    tfm_block *b = code ? NULL : (tfm_block *)(uintptr_t)tfm_model_config_of(o.model)->blocks;
    if (b) {
        b->attn_softcap = 7;
        check_to_gguf("a field of none", o.model, "attn_softcap is 7");
        b->attn_softcap = 0;
        b->norm_offset = 1;
        check_to_gguf("norms that differ", o.model, "norm_offset");
    }
    output_end(&o);
    free(g);
}

void test_write_gguf(void) {
    check_gguf_back("llama", 2, 1, 0, NULL, 0);
    check_gguf_back("llama", 2, 1, BIAS_QKV, "rope.freq_base", 5e5f);
    check_gguf_back("llama", 1, 1, 0, "rope.scaling.factor", 4);
    check_gguf_back("qwen2", 3, 0, BIAS_QKV, NULL, 0);
    check_gguf_back("qwen3", 1, 0, QK_NORM, NULL, 0);
    check_gguf_back("gemma", 2, 0, 0, NULL, 0);
    check_gguf_back("gemma2", 4, 0, SANDWICH, "attn_logit_softcapping", 0);
    check_gguf_back("gemma3", 7, 0, SANDWICH | QK_NORM, "rope.freq_base_swa", 2e4f);
    check_gguf_back("qwen", 2, 0, BIAS_QKV, NULL, 0);
    check_gguf_back_apart();
    check_cannot_say();
    static unsigned char file[65536]; /* pairs stay pairs: another description, the same rows */
    output o;
    output_start(&o);
    int code = output_convert(&o, file, make_l2c(file, 0));
    check(!code, "llama2c: %s", code ? o.err.msg : "");
    if (!code) {
        output gguf;
        output_start(&gguf);
        sink out = output_sink(&gguf);
        convert_options options = output_options(&gguf);
        code = write_gguf(o.model, "l2c.tfm", &out, &options, &gguf.err);
        check(!code && gguf.size > 1000, "llama2c to GGUF: %s", code ? gguf.err.msg : "");
        output_end(&gguf);
    }
    output_end(&o);
}
