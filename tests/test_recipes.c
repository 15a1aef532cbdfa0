/* test_recipes.c - the manual's recipes, followed: TFM__TEST_PARTS puts an activation, a norm (two places of the header
 * each), a weight type, an instruction set, and a family (one row of tools/families_llama.c) where the recipes say. A
 * directory of that family must convert, run, and give what a few lines of double precision give; so must a product of
 * that type, by that instruction set and by the other.
 *
 *     test_recipes DIR      writes into DIR, ends with "N passed, N failed"
 */
#define TFM_IMPLEMENTATION
#include "tfm.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALONE_NAME "recipes"
#include "alone.h"
#include "tiny.h"
#include "tools/convert.h"
#include "tools/describe_words.h"
#include "tools/families.h"

enum { D = 8, FF = 12, VOCAB = 10, HEADS = 2, ID = 3 };


/* ---- THE CHECKPOINT -------------------------------------------------------------------------------------------- */

static const struct { const char *name; int rows, cols; } tensors[] = {
    {"lm_head.weight", VOCAB, D}, {"model.embed_tokens.weight", VOCAB, D},
    {"model.layers.0.input_layernorm.weight", 0, D}, {"model.layers.0.mlp.down_proj.weight", D, FF},
    {"model.layers.0.mlp.gate_proj.weight", FF, D}, {"model.layers.0.mlp.up_proj.weight", FF, D},
    {"model.layers.0.post_attention_layernorm.weight", 0, D}, {"model.layers.0.self_attn.k_proj.weight", D, D},
    {"model.layers.0.self_attn.o_proj.weight", D, D}, {"model.layers.0.self_attn.q_proj.weight", D, D},
    {"model.layers.0.self_attn.v_proj.weight", D, D}, {"model.norm.weight", 0, D}};
enum { N_TENSORS = sizeof tensors / sizeof tensors[0] };

static const char config[] =
    "{\"model_type\": \"test_family\", \"hidden_size\": 8, \"intermediate_size\": 12, \"num_hidden_layers\": 1,\n"
    " \"num_attention_heads\": 2, \"vocab_size\": 10, \"hidden_act\": \"test\", \"rms_norm_eps\": 0.25,\n"
    " \"bos_token_id\": 0, \"eos_token_id\": 1}\n";

/* The values of a tensor by the end of its name: hashed, norms around 1. */
static const float *weights(const char *ending) {
    static float values[VOCAB * FF];
    for (int i = 0; i < N_TENSORS; i++) {
        const size_t n = strlen(tensors[i].name), k = strlen(ending);
        if (n < k || strcmp(tensors[i].name + n - k, ending)) continue;
        tiny_fill(values, (size_t)(tensors[i].rows ? tensors[i].rows : 1) * (size_t)tensors[i].cols, tensors[i].name, 8,
                  tensors[i].rows ? 0.0f : 1.0f);
        return values;
    }
    return NULL;
}

static int write_file(const char *dir, const char *name, const void *data, size_t n) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    const int good = f && fwrite(data, 1, n, f) == n;
    return f && !fclose(f) && good;
}

static int write_checkpoint(const char *dir) {
    static unsigned char file[1 << 16];
    static float data[4096];
    char *header = (char *)file + 8;
    size_t n = 0, length = 0;
    for (int i = 0; i < N_TENSORS; i++) {
        const size_t count = (size_t)(tensors[i].rows ? tensors[i].rows : 1) * (size_t)tensors[i].cols;
        memcpy(data + n, weights(tensors[i].name), 4 * count);
        length += (size_t)sprintf(header + length, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[", i ? "," : "{",
                                  tensors[i].name);
        if (tensors[i].rows) length += (size_t)sprintf(header + length, "%d,", tensors[i].rows);
        length += (size_t)sprintf(header + length, "%d],\"data_offsets\":[%zu,%zu]}", tensors[i].cols, 4 * n,
                                  4 * (n + count));
        n += count;
    }
    length += (size_t)sprintf(header + length, "}");
    for (int i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)length >> 8 * i);
    file_order(TFM_F32, data, (int64_t)n);
    memcpy(header + length, data, 4 * n);
    tfm_error err;
    return !make_directory(dir, &err) && write_file(dir, "config.json", config, sizeof config - 1) &&
           write_file(dir, "model.safetensors", file, 8 + length + 4 * n);
}

/* ---- THE SAME IN DOUBLE PRECISION ------------------------------------------------------------------------------ */

static void norm(double *out, const double *x, const char *name) {
    const float *w = weights(name);
    double sum = 0;
    for (int i = 0; i < D; i++) sum += x[i] * x[i];
    for (int i = 0; i < D; i++) out[i] = x[i] / sqrt(sum / 4 + 0.25) * (double)w[i];
}

static void multiply(double *out, const double *x, const char *name, int rows, int cols) {
    const float *w = weights(name);
    for (int r = 0; r < rows; r++) {
        out[r] = 0;
        for (int i = 0; i < cols; i++) out[r] += (double)w[r * cols + i] * x[i];
    }
}

/* One token alone: attention gives its value back. */
static void forward(double *logits) {
    double x[D], n[D], v[D], gate[FF], up[FF], y[D];
    for (int i = 0; i < D; i++) x[i] = (double)weights("embed_tokens.weight")[ID * D + i];
    norm(n, x, "input_layernorm.weight");
    multiply(v, n, "v_proj.weight", D, D);
    multiply(y, v, "o_proj.weight", D, D);
    for (int i = 0; i < D; i++) x[i] += y[i];
    norm(n, x, "post_attention_layernorm.weight");
    multiply(gate, n, "gate_proj.weight", FF, D);
    multiply(up, n, "up_proj.weight", FF, D);
    for (int i = 0; i < FF; i++) gate[i] = gate[i] * (gate[i] + 1) * up[i];
    multiply(y, gate, "down_proj.weight", D, FF);
    for (int i = 0; i < D; i++) x[i] += y[i];
    norm(n, x, "model.norm.weight");
    multiply(logits, n, "lm_head.weight", VOCAB, D);
}

/* ---- THE TEST -------------------------------------------------------------------------------------------------- */

static void ignore_warning(void *user, const char *text) {
    (void)user;
    (void)text; /* no tokenizer */
}

static void check_model(const tfm_model *m) {
    const int32_t id = ID;
    const tfm_session_config cfg = tiny_exact(4, 4);
    char text[4096];
    double want[VOCAB], off = 0;
    tfm_session *s = NULL;
    tfm_error err;
    describe_words(tfm_model_config_of(m), text, sizeof text);
    check(strstr(text, "test norm, eps 0.25") != NULL, "the norm is not in the words");
    check(strstr(text, "down(test(gate x) * up x)") != NULL, "the activation is not in the words");
    const int ran = !tfm_session_new(m, &cfg, &s, &err) && !tfm_eval(s, &id, 1, &err);
    check(ran, "the model does not run");
    forward(want);
    for (int i = 0; ran && i < VOCAB; i++) off = fmax(off, fabs((double)tfm_logits(s, 0)[i] - want[i]));
    check(ran && off < 1e-6, "the logits are not those of double precision");
    tfm_session_free(s);
}

/* ---- A TYPE AND AN INSTRUCTION SET ------------------------------------------------------------------------------ */

/* Blocks of 32 codes of 4 bits, 0 to 15 for -5 to 10, then their scale: in this row 2^-r. */
enum { ROWS = 20, COLS = 96, TOKENS = 7, BLOCK = 18 };

static int code_of(int row, int i) { return (row * 7 + i * 5 + i / 11) % 16; }

static void make_blocks(unsigned char *blocks) {
    for (int r = 0; r < ROWS; r++) {
        for (int b = 0; b < COLS / 32; b++, blocks += BLOCK) {
            const int half = (15 - r % 8) << 10; /* 2^-(r % 8) in 16 bits */
            for (int i = 0; i < 16; i++)
                blocks[i] = (unsigned char)(code_of(r, 32 * b + i) | code_of(r, 32 * b + i + 16) << 4);
            blocks[16] = (unsigned char)half;
            blocks[17] = (unsigned char)(half >> 8);
        }
    }
}

static double value_of(int row, int i) { return (code_of(row, i) - 5) / (double)(1 << row % 8); }

/* y[token][row] of a pass; the activations are small integers, which their bytes hold exactly. */
static void product(float *y, int32_t isa, const tfm_tensor *w) {
    static union { unsigned char bytes[TOKENS * 256]; double align; } x;
    static float in[TOKENS * COLS];
    tfm_matmul_args a = { w, NULL, x.bytes, tfm_q8_row_bytes(COLS), 1, TOKENS, y, ROWS, NULL, 0 };
    for (int i = 0; i < TOKENS * COLS; i++) in[i] = i % 32 == 0 ? 127.0f : (float)(i * 29 % 201 - 100);
    check(tfm_q8_row_bytes(COLS) <= 256, "room for the activations");
    tfm_quantize_rows(x.bytes, in, TOKENS, COLS);
    tfm_kernels_for(isa)->matmul(&a, 0, (ROWS + 15) / 16);
    for (int t = 0; t < TOKENS; t++) {
        for (int r = 0; r < ROWS; r++) {
            double want = 0;
            for (int i = 0; i < COLS; i++) want += value_of(r, i) * (double)in[t * COLS + i];
            check((double)y[t * ROWS + r] == want, "%s: token %d, row %d: %g, not %g", tfm_isa_name(isa), t, r,
                  (double)y[t * ROWS + r], want);
        }
    }
}

static void check_kernels(void) {
    static unsigned char blocks[ROWS * COLS / 32 * BLOCK];
    static union { unsigned char bytes[8192]; double align; } room;
    static float y[2][TOKENS * ROWS], row[COLS];
    unsigned char *tiles = room.bytes + (64 - ((uintptr_t)room.bytes & 63));
    const tfm_type_info *type = tfm_type_find("test");
    const tfm_tensor w = { tiles, TFM_TEST, TFM_TILED, ROWS, COLS };
    check(type && type->type == TFM_TEST && type->block_bytes == BLOCK, "the type is not in the table");
    check(tfm_kernels_for(TFM_ISA_TEST) && !strcmp(tfm_isa_name(TFM_ISA_TEST), "test"),
          "the instruction set is missing");
    if (!type || !tfm_kernels_for(TFM_ISA_TEST)) return;
    make_blocks(blocks);
    check(tfm_tensor_bytes(TFM_TEST, TFM_TILED, ROWS, COLS) + 64 <= sizeof room, "room for the tiles");
    check(!tfm_pack(TFM_TEST, tiles, TFM_TEST, blocks, ROWS, COLS), "the type cannot be packed");
    for (int r = 0; r < ROWS; r++) {
        tfm_tensor_row(&w, r, row);
        for (int i = 0; i < COLS; i++)
            check((double)row[i] == value_of(r, i), "row %d, input %d: %g", r, i, (double)row[i]);
    }
    product(y[0], TFM_ISA_SCALAR, &w);
    product(y[1], TFM_ISA_TEST, &w);
    check(!memcmp(y[0], y[1], sizeof y[0]), "the instruction sets differ");
}

int main(int argc, char **argv) {
    char dir[512];
    tfm_error err;
    tfm_model *m = NULL;
    tiny_file bytes = { NULL, 0, 0 };
    sink out = tiny_sink(&bytes);
    source_dir from;
    convert_options options;
    if (argc != 2) return 2;
    snprintf(dir, sizeof dir, "%s/recipes", argv[1]);
    memset(&options, 0, sizeof options);
    options.warn = ignore_warning;
    check(write_checkpoint(dir), "the directory cannot be written");
    check(family_find(FORM_HF, "test_family", NULL, NULL) != NULL, "the row is no family");
    int r = dir_open_local(&from, dir, &err);
    if (!r) {
        r = convert_directory(&from, &out, &options, &err);
        dir_close_local(&from);
    }
    if (!r) r = tfm_model_from_memory(bytes.data, bytes.size, NULL, &m, &err);
    check(!r, "the directory does not convert: %s", r ? err.msg : "");
    if (!r) check_model(m);
    check_kernels();
    tfm_model_close(m);
    tiny_file_free(&bytes);
    printf("recipes %d ok\n%d passed, %d failed\n", passed, passed, failed);
    return failed > 0;
}
