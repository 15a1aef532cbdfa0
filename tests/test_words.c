/* test_words.c - the description in words: every field that a description has shows somewhere, so a new one that nobody
 * put into words fails here; runs of layers; texts that do not fit. */
#include <string.h>

#include "test.h"
#include "tools/describe_words.h"

enum { TEXT = 1 << 14 };

/* Bases in which one field or another means something. */
static tfm_block plain_block(void) {
    tfm_block b;
    memset(&b, 0, sizeof b);
    b.norm_kind = TFM_NORM_LAYER;
    b.norm_eps = 1e-5f;
    b.n_heads = 4;
    b.n_kv_heads = 2;
    b.head_dim = 16;
    b.ffn_act = TFM_ACT_SILU;
    b.ffn_gated = 1;
    b.d_ff = 96;
    b.qk_norm = TFM_QKNORM_HEAD;
    b.qk_norm_kind = TFM_NORM_RMS;
    b.temperature = 0.5f;
    b.temperature_ctx = 100;
    b.rope_style = TFM_ROPE_HALF;
    b.rope_scaling = TFM_ROPE_YARN;
    b.rope_theta = 10000;
    b.rope_factor = 4;
    b.rope_ctx_orig = 64;
    return b;
}

static tfm_block expert_block(void) {
    tfm_block b = plain_block();
    b.ffn_kind = TFM_FFN_EXPERTS;
    b.n_experts = 8;
    b.n_experts_used = 2;
    b.d_expert = 32;
    b.n_groups = 4;
    b.n_groups_used = 2;
    b.router_norm = 1;
    b.router_pick = TFM_PICK_SPARSE_MIXER;
    b.rope_scaling = TFM_ROPE_DYNAMIC;
    return b;
}

static tfm_block masked_block(void) {
    tfm_block b = plain_block();
    b.mask = TFM_MASK_FIXED;
    b.mask_stride = 8;
    b.mask_columns = 2;
    b.mask_groups = 2;
    b.rope_scaling = TFM_ROPE_BANDS;
    return b;
}

static tfm_config config_of(const tfm_block *b) {
    tfm_config c;
    memset(&c, 0, sizeof c);
    c.size = sizeof c;
    c.n_layers = 2;
    c.d_model = 64;
    c.n_vocab = 100;
    c.n_ctx = 128;
    c.n_blocks = 1;
    c.blocks = b;
    c.norm_kind = TFM_NORM_LAYER;
    c.pos_kind = TFM_POS_LEARNED;
    c.n_eos = 1;
    return c;
}

/* Another value of a field; 0 if it has only one. */
static int change(void *base, const tfm_field *f) {
    char *at = (char *)base + f->offset;
    int32_t i;
    float x;
    if (f->kind == 2) {
        memcpy(&x, at, 4);
        x = 2 * x + 3;
        memcpy(at, &x, 4);
        return 1;
    }
    memcpy(&i, at, 4);
    if (tfm_field_value_name(f->name, i)) { /* the last one if it is not that already, else the first */
        int32_t last = i;
        while (tfm_field_value_name(f->name, last + 1)) last++;
        if (last == 0) return 0;
        i = i == last ? 0 : last;
    } else {
        i += 1;
    }
    memcpy(at, &i, 4);
    return 1;
}

static int shows(const tfm_config *c, const char *before) {
    char after[TEXT];
    describe_words(c, after, sizeof after);
    return strcmp(before, after) != 0;
}

static void check_block_fields(void) {
    tfm_block bases[4];
    char text[TEXT];
    int n;
    const tfm_field *fields = tfm_block_fields(&n);
    bases[0] = plain_block();
    bases[1] = expert_block();
    bases[2] = masked_block();
    bases[3] = plain_block();
    bases[3].norm_place = TFM_PLACE_POST_ADD;
    for (int i = 0; i < n; i++) {
        int seen = 0, changed = 0;
        for (int k = 0; k < 4; k++) {
            tfm_block b = bases[k];
            const tfm_config c = config_of(&b);
            describe_words(&c, text, sizeof text);
            changed |= change(&b, &fields[i]);
            seen |= shows(&c, text);
        }
        check(seen || !changed, "a block's %s is nowhere in the words", fields[i].name);
    }
}

static void check_config_fields(void) {
    const tfm_block b = plain_block();
    char text[TEXT];
    int n;
    const tfm_field *fields = tfm_config_fields(&n);
    const tfm_config base = config_of(&b);
    describe_words(&base, text, sizeof text);
    for (int i = 0; i < n; i++) {
        tfm_config c = base;
        if (change(&c, &fields[i])) check(shows(&c, text), "a model's %s is nowhere in the words", fields[i].name);
    }
}

/* Layers that are alike share their lines, in whatever order they stand. */
static void check_runs(void) {
    static const uint8_t layer_block[7] = {0, 0, 0, 1, 0, 0, 1};
    tfm_block blocks[2];
    char text[TEXT], cut[40];
    blocks[0] = plain_block();
    blocks[1] = masked_block();
    tfm_config c = config_of(blocks);
    c.n_layers = 7;
    c.n_blocks = 2;
    c.layer_block = layer_block;
    const size_t n = describe_words(&c, text, sizeof text);
    check(n == strlen(text) && text[n - 1] == '\n', "the length of the words is not what is said");
    check(strstr(text, "\n  layers 0-2, 4-5\n") && strstr(text, "\n  layers 3, 6\n"), "runs of layers: %s", text);
    check(describe_words(&c, cut, sizeof cut) == n && strlen(cut) == sizeof cut - 1 &&
          !strncmp(cut, text, sizeof cut - 1),
          "words do not fit and are not cut");
}

void test_words(void) {
    check_block_fields();
    check_config_fields();
    check_runs();
}
