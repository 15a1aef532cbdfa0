/* custom_block.c - an architecture of your own, with weights in memory and no file.
 *
 * To the library a model is a description and some arrays. The description says how the blocks are built (here two
 * kinds that take turns, and that no released model has); tfm_role_shape then tells which weights such a model needs
 * and in which shapes, so this program can make all of them in one loop. Whoever trains models in his own program fills
 * the same arrays from his own parameters.
 *
 * The weights are given twice: as plain row-major arrays, and packed into the tiles in which files store them because
 * the kernels read them faster so. Both must give the same logits, bit for bit.
 *
 * To build: cc -O2 -I.. custom_block.c -o custom_block
 */
#define TFM_IMPLEMENTATION
#include "tfm.h"
#include <stdio.h>
#include <string.h>

enum { LAYERS = 4, VOCAB = 96, MAX_WEIGHTS = 64, TOKENS = 6 };

/* All weights live here, one after the other, each aligned to 64 bytes. */
static char memory[8 << 20];
static size_t memory_used;

static void *take(size_t bytes)
{
    char *base = memory + 64 - (uintptr_t)memory % 64 + memory_used;
    memory_used += (bytes + 63) / 64 * 64;
    return memory_used <= sizeof memory - 64 ? base : NULL;
}

/* The description. Fields that are not named are zero: absent, or the default. */
static const tfm_block kinds[2] = {
    { /* grouped attention over everything, then a gated feed-forward network: what most models do today */
        .norm_kind = TFM_NORM_RMS, .norm_eps = 1e-6f,
        .n_heads = 8, .n_kv_heads = 2, .head_dim = 16,
        .rope_style = TFM_ROPE_HALF, .rope_theta = 10000,
        .ffn_act = TFM_ACT_SILU, .ffn_gated = 1, .d_ff = 256,
    },
    { /* attention with biases in a window of 4 tokens, beside a squared-ReLU network that reads the same norm */
        .norm_kind = TFM_NORM_LAYER, .norm_eps = 1e-5f, .residual = TFM_RESIDUAL_PARALLEL_1,
        .bias = TFM_BIAS_Q | TFM_BIAS_K | TFM_BIAS_V | TFM_BIAS_NORM,
        .n_heads = 4, .n_kv_heads = 4, .head_dim = 32, .window = 4,
        .rope_style = TFM_ROPE_INTERLEAVED, .rope_dims = 16, .rope_theta = 500,
        .ffn_act = TFM_ACT_RELU2, .d_ff = 192,
    },
};
static const uint8_t kind_of_layer[LAYERS] = { 0, 1, 0, 1 };

static tfm_config describe(void)
{
    tfm_config c = {
        .size = sizeof c, .n_layers = LAYERS, .d_model = 64, .n_vocab = VOCAB, .n_ctx = 128,
        .n_blocks = 2, .blocks = kinds, .layer_block = kind_of_layer,
        .norm_kind = TFM_NORM_RMS, .norm_eps = 1e-6f,
        .tied = 1, /* the embedding serves as the output matrix, too */
        .bos = -1,
    };
    return c;
}

/* A number in [-1, 1) from a hash: stands in for training. */
static float noise(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    x ^= x >> 16;
    return (float)(x >> 8) / 8388608.0f - 1.0f;
}

/* Makes every weight that the description asks for, as float32 rows. Returns how many. */
static int make_weights(const tfm_config *c, tfm_weight *w)
{
    int n = 0;
    for (int32_t layer = -1; layer < c->n_layers; layer++) { /* layer -1: embedding, final norm, ... */
        for (int32_t role = 1; role < TFM_ROLE_LIMIT; role++) {
            int64_t rows, cols;
            int optional;
            if (!tfm_role_shape(c, layer, role, &rows, &cols, &optional) || optional) continue;
            float *x = take((size_t)(rows * cols) * sizeof *x);
            if (!x || n == MAX_WEIGHTS) return 0;
            const float scale = rows > 1 ? 0.2f : 0.1f, middle = rows > 1 ? 0.0f : 1.0f; /* vectors: norms, biases */
            for (int64_t i = 0; i < rows * cols; i++) x[i] = middle + scale * noise((uint32_t)i * 1024u + (uint32_t)n);
            w[n++] = (tfm_weight){ TFM_STACK_DECODER, layer, role, -1, { x, TFM_F32, TFM_ROWS, rows, cols } };
        }
    }
    return n;
}

/* The same weights with all matrices packed into tiles. */
static int pack_weights(const tfm_weight *rows, tfm_weight *tiled, int n)
{
    for (int i = 0; i < n; i++) {
        tiled[i] = rows[i];
        tfm_tensor *t = &tiled[i].t;
        if (t->rows == 1) continue; /* vectors stay as they are */
        void *tiles = take(tfm_tensor_bytes(TFM_F32, TFM_TILED, t->rows, t->cols));
        if (!tiles || tfm_pack(TFM_F32, tiles, TFM_F32, t->data, t->rows, t->cols)) return 0;
        t->data = tiles;
        t->layout = TFM_TILED;
    }
    return 1;
}

/* Logits of the last of some tokens. 1 if all went well. */
static int run(const tfm_config *c, const tfm_weight *w, int n, float logits[VOCAB])
{
    static const int32_t ids[TOKENS] = { 3, 14, 15, 92, 65, 35 };
    tfm_session_config config = { .size = sizeof config, .kv = TFM_KV_F32 };
    tfm_error err;
    tfm_model *model = NULL;
    tfm_session *session = NULL;
    const int good = !tfm_model_from_weights(c, w, n, NULL, &model, &err)
                  && !tfm_session_new(model, &config, &session, &err)
                  && !tfm_eval(session, ids, TOKENS, &err);
    if (good) memcpy(logits, tfm_logits(session, 0), VOCAB * sizeof *logits);
    else fprintf(stderr, "%s\n", err.msg); /* names the layer and the weight that does not fit */
    tfm_session_free(session);
    tfm_model_close(model);
    return good;
}

int main(void)
{
    static tfm_weight rows[MAX_WEIGHTS], tiled[MAX_WEIGHTS];
    static float logits[VOCAB], logits_tiled[VOCAB];
    const tfm_config c = describe();
    const int n = make_weights(&c, rows);
    if (!n || !pack_weights(rows, tiled, n)) return fprintf(stderr, "the memory is too small\n"), 1;
    if (!run(&c, rows, n, logits) || !run(&c, tiled, n, logits_tiled)) return 1;

    printf("%d weights in %d layers; the first logits of the last token:\n", n, LAYERS);
    for (int i = 0; i < 8; i++) printf("%10.5f%s", (double)logits[i], i % 4 == 3 ? "\n" : "");
    const int same = memcmp(logits, logits_tiled, sizeof logits) == 0;
    printf("rows and tiles give the same bits: %s\n", same ? "yes" : "NO");
    return !same;
}
