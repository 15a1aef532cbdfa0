/* isa.c - see isa.h. */
#include "isa.h"

#include <string.h>

#include "os.h"

/* Whether a product of 16 tokens comes out of two instruction sets alike; arg: the two. */
static int same_product(void *arg)
{
    enum { ROWS = 16, COLS = 32, N = 16, ROOM = 4096 };
    static union { unsigned char bytes[ROOM]; double align; } w, x;
    static float in[N * COLS], out[2][N * ROWS];
    const int32_t *isa = (const int32_t *)arg;
    const size_t stride = tfm_q8_row_bytes(COLS);
    tfm_tensor t = { NULL, TFM_Q8_0, TFM_TILED, ROWS, COLS };
    tfm_matmul_args args = { NULL, NULL, NULL, 0, 1, N, NULL, ROWS, NULL, 0 };
    unsigned char *weights = w.bytes + (64 - ((uintptr_t)w.bytes & 63));
    int i;
    for (i = 0; i < N * COLS; i++) in[i] = (float)(i * 37 % 101 - 50);
    if (N * stride > ROOM || tfm_tensor_bytes(TFM_Q8_0, TFM_TILED, ROWS, COLS) > ROOM - 64) return 0;
    if (tfm_pack(TFM_Q8_0, weights, TFM_F32, in, ROWS, COLS)) return 0;
    tfm_quantize_rows(x.bytes, in, N, COLS);
    t.data = weights;
    args.w = &t;
    args.x = x.bytes;
    args.x_stride = stride;
    for (i = 0; i < 2; i++) {
        const tfm_kernels *k = tfm_kernels_for(isa[i]);
        if (!k) return 0;
        args.y = out[i];
        k->matmul(&args, 0, 1);
    }
    return memcmp(out[0], out[1], sizeof out[0]) == 0;
}

int isa_works(int32_t isa)
{
    static int amx = -1;
    int32_t both[2] = { TFM_ISA_AMX, TFM_ISA_AVX512 };
    if (!tfm_kernels_for(isa)) return 0;
    if (isa != TFM_ISA_AMX) return 1;
    if (amx < 0) amx = os_try(same_product, both);
    return amx;
}

int32_t isa_best(void)
{
    return isa_works(TFM_ISA_AMX) ? TFM_ISA_AMX : tfm_kernels_for(TFM_ISA_AUTO)->isa;
}
