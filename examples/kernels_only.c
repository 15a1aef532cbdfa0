/* kernels_only.c - one transformer block by hand.
 *
 * The kernels are plain functions on arrays: no model, no session, no allocation. This is a whole block as most models
 * have it, written out with them:
 *
 *     x += O attention(rope(Q n(x)), rope(K n(x)), V n(x))      n = RMSNorm
 *     x += down(silu(gate n(x)) * up n(x))                      SwiGLU
 *
 * for five tokens with 4 query heads that share 2 key-value heads. At the end it checks what makes a language model
 * causal: another last token changes the last row and no row before it.
 *
 * To build: cc -O2 -I.. kernels_only.c -o kernels_only -lm
 */
#define TFM_IMPLEMENTATION
#include "tfm.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TOKENS = 5, D = 64, HEADS = 4, KV_HEADS = 2, HEAD = 16, FF = 128, KV = KV_HEADS * HEAD };

/* Row-major [rows][cols], as frameworks store a linear layer. */
static float w_q[HEADS * HEAD][D], w_k[KV][D], w_v[KV][D], w_o[D][HEADS * HEAD];
static float w_gate[FF][D], w_up[FF][D], w_down[D][FF];
static float norm_1[D], norm_2[D];

/* The cache: [kv head][position][head dimension]. A longer text would go on filling it. */
static float cache_k[KV_HEADS][TOKENS][HEAD], cache_v[KV_HEADS][TOKENS][HEAD];

static uint32_t random_state = 1;

static void fill(float *x, size_t n, float middle, float scale)
{
    for (size_t i = 0; i < n; i++) {
        random_state = random_state * 1664525u + 1013904223u;
        x[i] = middle + scale * ((float)(random_state >> 8) / 8388608.0f - 1.0f);
    }
}
#define FILL(array, middle, scale) fill((float *)(array), sizeof(array) / sizeof(float), middle, scale)

static void make_weights(void)
{
    FILL(w_q, 0, 0.25f);
    FILL(w_k, 0, 0.25f);
    FILL(w_v, 0, 0.25f);
    FILL(w_o, 0, 0.25f);
    FILL(w_gate, 0, 0.25f);
    FILL(w_up, 0, 0.25f);
    FILL(w_down, 0, 0.25f);
    FILL(norm_1, 1, 0.1f);
    FILL(norm_2, 1, 0.1f);
}

/* y[t] = W x[t] for all tokens. x [TOKENS][cols], y [TOKENS][rows] */
static void linear(float *y, const float *w, const float *x, int rows, int cols)
{
    const tfm_tensor weight = { w, TFM_F32, TFM_ROWS, rows, cols };
    const tfm_matmul_args a = {
        .w = &weight, .x = x, .x_stride = (size_t)cols * sizeof *x, .n = TOKENS, .y = y, .y_stride = (size_t)rows,
    };
    tfm_matmul(&a, 0, (rows + 15) / 16); /* rows come in strips of 16; threads would take some each */
}

/* Turns the heads of each token by its position. x [TOKENS][n_heads][HEAD] */
static void rotate(float *x, int n_heads)
{
    const tfm_rope_params plain = { .dims = HEAD, .theta = 10000 };
    float inv_freq[HEAD / 2], c[HEAD / 2], s[HEAD / 2], scale;
    tfm_rope_freqs(&plain, TOKENS, inv_freq, &scale);
    for (int t = 0; t < TOKENS; t++) {
        for (int i = 0; i < HEAD / 2; i++) {
            c[i] = scale * cosf((float)t * inv_freq[i]);
            s[i] = scale * sinf((float)t * inv_freq[i]);
        }
        tfm_rope(x + t * n_heads * HEAD, c, s, TFM_ROPE_HALF, HEAD, HEAD, n_heads);
    }
}

/* y = O attention(n). n, y [TOKENS][D] */
static void attention(float *y, const float *n)
{
    static float q[TOKENS][HEADS * HEAD], k[TOKENS][KV_HEADS][HEAD], v[TOKENS][KV_HEADS][HEAD];
    static float mixed[TOKENS][HEADS * HEAD];
    linear(&q[0][0], &w_q[0][0], n, HEADS * HEAD, D);
    linear(&k[0][0][0], &w_k[0][0], n, KV, D);
    linear(&v[0][0][0], &w_v[0][0], n, KV, D);
    rotate(&q[0][0], HEADS);
    rotate(&k[0][0][0], KV_HEADS);
    for (int t = 0; t < TOKENS; t++) {
        for (int h = 0; h < KV_HEADS; h++) {
            memcpy(cache_k[h][t], k[t][h], sizeof k[t][h]);
            memcpy(cache_v[h][t], v[t][h], sizeof v[t][h]);
        }
    }
    const tfm_attention_args a = {
        .out = &mixed[0][0], .q = &q[0][0], .k = cache_k, .v = cache_v, .kv_type = TFM_F32, .n = TOKENS,
        .n_heads = HEADS, .n_kv_heads = KV_HEADS, .head_dim = HEAD, .pos = 0, .length = TOKENS,
        .scale = 1 / sqrtf((float)HEAD),
    };
    tfm_attention(&a, 0, TOKENS * HEADS); /* an item is one head of one token */
    linear(y, &w_o[0][0], &mixed[0][0], D, HEADS * HEAD);
}

/* y = down(silu(gate n) * up n). n, y [TOKENS][D] */
static void feed_forward(float *y, const float *n)
{
    static float gate[TOKENS][FF], up[TOKENS][FF];
    linear(&gate[0][0], &w_gate[0][0], n, FF, D);
    linear(&up[0][0], &w_up[0][0], n, FF, D);
    tfm_swiglu(&gate[0][0], &gate[0][0], &up[0][0], TOKENS * FF);
    linear(y, &w_down[0][0], &gate[0][0], D, FF);
}

/* The block: x [TOKENS][D] in place. */
static void block(float x[TOKENS][D])
{
    static float n[TOKENS][D], y[TOKENS][D];
    for (int t = 0; t < TOKENS; t++) tfm_rmsnorm(n[t], x[t], norm_1, 0, 1e-6f, D);
    attention(&y[0][0], &n[0][0]);
    for (int i = 0; i < TOKENS * D; i++) (&x[0][0])[i] += (&y[0][0])[i];
    for (int t = 0; t < TOKENS; t++) tfm_rmsnorm(n[t], x[t], norm_2, 0, 1e-6f, D);
    feed_forward(&y[0][0], &n[0][0]);
    for (int i = 0; i < TOKENS * D; i++) (&x[0][0])[i] += (&y[0][0])[i];
}

int main(void)
{
    static float x[TOKENS][D], other[TOKENS][D];
    make_weights();
    FILL(x, 0, 1);
    memcpy(other, x, sizeof x);
    FILL(other[TOKENS - 1], 0, 1); /* another last token */
    block(x);
    block(other);

    for (int t = 0; t < TOKENS; t++) {
        printf("token %d:", t);
        for (int i = 0; i < 6; i++) printf(" %9.5f", (double)x[t][i]);
        printf(" ...\n");
    }
    const int before = memcmp(x, other, sizeof x - sizeof x[0]) == 0;
    const int last = memcmp(x[TOKENS - 1], other[TOKENS - 1], sizeof x[0]) != 0;
    printf("another last token changes the last row: %s\n", last ? "yes" : "NO");
    printf("the rows before it are the same bits: %s\n", before ? "yes" : "NO");
    return !(before && last);
}
