/* families_llama.c - families that keep Llama's shape and names of tensors, with a twist or two. See family_rows.h. */
#include "family_rows.h"

/* Gemma's "gelu" always meant the tanh form. */
static const named_value gemma_activations[] = {
    {"gelu", TFM_ACT_GELU_TANH}, {"gelu_pytorch_tanh", TFM_ACT_GELU_TANH}, {"gelu_new", TFM_ACT_GELU_TANH}, {NULL, 0}};

static const name_row olmo2_names[] = {
    {"@layers.#.post_attention_layernorm.weight", TFM_ROLE_ATTN_POST_NORM, TAKE_ROWS},
    {"@layers.#.post_feedforward_layernorm.weight", TFM_ROLE_FFN_POST_NORM, TAKE_ROWS},
    NAMES_END};

/* GGUF stores the q and k rows of many families (biases too) as interleaved pairs: undone here. */
static const name_row gguf_pair_names[] = {
    {"blk.#.attn_q.weight", TFM_ROLE_Q, TAKE_PAIRS_Q},
    {"blk.#.attn_k.weight", TFM_ROLE_K, TAKE_PAIRS_K},
    {"blk.#.attn_q.bias", TFM_ROLE_Q_B, TAKE_PAIRS_Q},
    {"blk.#.attn_k.bias", TFM_ROLE_K_B, TAKE_PAIRS_K},
    NAMES_END};

static const named_value swin_places[] = {{"true", TFM_PLACE_POST_BRANCH}, {"false", TFM_PLACE_PRE}, {NULL, 0}};
static const named_value rope_steps[] = {{"true", TFM_ROPE_STEPS}, {"false", TFM_ROPE_PLAIN}, {NULL, 0}};
static const named_value openlm_norms[] = {
    {"gain_only_lp_layer_norm", TFM_NORM_LAYER}, {"gain_only_layer_norm", TFM_NORM_LAYER}, {"rms_norm", TFM_NORM_RMS},
    {NULL, 0}};
static const named_value openlm_positions[] = {{"rotary", TFM_ROPE_HALF}, {NULL, 0}};
static const named_value openlm_ffn[] = {{"swiglu", 1}, {"swiglu_torch", 1}, {NULL, 0}};

static const named_value xielu[] = {{"xielu", TFM_ACT_XIELU}, {NULL, 0}};

const family families_llama[] = {
    /* Llama 1, 2, 3 and the many of the same shape.
     * In GGUF Mistral is "llama", too. llama2.c keeps pairs interleaved; so do we. The file says nothing but sizes. */
    {"llama", "Llama 1, 2, 3 and its kin (TinyLlama, SmolLM2, Yi ...)", "decoder", {
        HF("llama", RULES(
            BITS("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
            BITS("mlp_bias", P_BIAS, BIAS_MLP),
            INT_OR("bos_token_id", P_BOS, 1)), NULL),
        GGUF("llama", RULES(
            INT(".attention.sliding_window", P_WINDOW),
            FIXED(P_WINDOW_RULE, WINDOW_ALL)), gguf_pair_names),
        [FORM_LLAMA2C] = {"llama2c", RULES(
            FIXED(P_NORM_EPS, 1e-5),
            FIXED(P_ROPE_THETA, 1e4),
            FIXED(P_ROPE_STYLE, TFM_ROPE_INTERLEAVED),
            FIXED(P_NORM_KIND, TFM_NORM_RMS),
            FIXED(P_NORM_PLACE, TFM_PLACE_PRE),
            FIXED(P_OUT_NORM, 1),
            FIXED(P_GATED, 1),
            FIXED(P_ACT, TFM_ACT_SILU),
            FIXED(P_BOS, 1)), NAMES(
            {"token_embedding", TFM_ROLE_EMBED, TAKE_ROWS},
            {"final_norm", TFM_ROLE_OUT_NORM, TAKE_ROWS},
            {"classifier", TFM_ROLE_HEAD, TAKE_ROWS},
            {"attn_norm.#", TFM_ROLE_ATTN_NORM, TAKE_ROWS},
            {"wq.#", TFM_ROLE_Q, TAKE_ROWS},
            {"wk.#", TFM_ROLE_K, TAKE_ROWS},
            {"wv.#", TFM_ROLE_V, TAKE_ROWS},
            {"wo.#", TFM_ROLE_O, TAKE_ROWS},
            {"ffn_norm.#", TFM_ROLE_FFN_NORM, TAKE_ROWS},
            {"w1.#", TFM_ROLE_GATE, TAKE_ROWS},
            {"w2.#", TFM_ROLE_DOWN, TAKE_ROWS},
            {"w3.#", TFM_ROLE_UP, TAKE_ROWS}), STRINGS(""), STRINGS(""), NULL}}},

    /* Every layer has the window, or none. */
    {"mistral", "Mistral", "llama", {
        HF("mistral", RULES(
            INT_OR("max_position_embeddings", P_N_CTX, 131072),
            INT_OR_OFF("sliding_window", P_WINDOW, 4096),
            FIXED(P_WINDOW_RULE, WINDOW_ALL)), NULL),
        GGUF("llama", NULL, NULL)}},

    /* q, k and v have biases that no key announces; layers from max_window_layers on have a window if that is on. */
    {"qwen2", "Qwen 2, 2.5", "decoder", {
        HF("qwen2", RULES(
            INT_OR("max_position_embeddings", P_N_CTX, 32768),
            INT_OR_OFF("sliding_window", P_WINDOW, 4096),
            BOOL_OR("use_sliding_window", P_WINDOW_ON, 0),
            INT_OR("max_window_layers", P_WINDOW_FIRST, 28),
            FIXED(P_WINDOW_RULE, WINDOW_FROM),
            FIXED(P_BIAS, BIAS_QKV)), NULL),
        GGUF("qwen2", NULL, NULL)}},

    /* RMS norms on q and k, per head; head_dim is 128 unless the file says so. */
    {"qwen3", "Qwen 3", "decoder", {
        HF("qwen3", RULES(
            INT_OR("max_position_embeddings", P_N_CTX, 32768),
            INT_OR("head_dim", P_HEAD_DIM, 128),
            INT_OR_OFF("sliding_window", P_WINDOW, 4096),
            BOOL_OR("use_sliding_window", P_WINDOW_ON, 0),
            INT_OR("max_window_layers", P_WINDOW_FIRST, 28),
            BITS("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
            FIXED(P_WINDOW_RULE, WINDOW_FROM),
            FIXED(P_QK_NORM, TFM_QKNORM_HEAD)), NULL),
        GGUF("qwen3", RULES(
            FIXED(P_QK_NORM, TFM_QKNORM_HEAD)), NULL)}},

    /* Norms multiply by 1 + w (GGUF has the 1 folded in), embeddings by sqrt(d_model); GeGLU; tied. */
    {"gemma", "Gemma", "decoder", {
        HF("gemma", RULES(
            INT_OR("max_position_embeddings", P_N_CTX, 8192),
            INT_OR("head_dim", P_HEAD_DIM, 256),
            NAME_OR("hidden_act", P_ACT, TFM_ACT_GELU_TANH, gemma_activations),
            NAME("hidden_activation", P_ACT, gemma_activations),
            BOOL_OR("tie_word_embeddings", P_TIED, 1),
            INT_OR("bos_token_id", P_BOS, 2),
            FIXED(P_NORM_OFFSET, 1),
            FIXED(P_EMBED_SQRT, 1)), NULL),
        GGUF("gemma", RULES(
            FIXED(P_ACT, TFM_ACT_GELU_TANH),
            FIXED(P_EMBED_SQRT, 1)), NULL)}},

    /* Sandwich norms, two soft-caps, a query scalar, a window on every other layer. */
    {"gemma2", "Gemma 2", "gemma", {
        HF("gemma2", RULES(
            NAME_OR("hidden_activation", P_ACT, TFM_ACT_GELU_TANH, gemma_activations),
            HARMLESS("hidden_act"),
            INT_OR("query_pre_attn_scalar", P_QUERY_SCALAR, 256),
            REAL_OR_OFF("attn_logit_softcapping", P_ATTN_SOFTCAP, 50),
            REAL_OR_OFF("final_logit_softcapping", P_LOGIT_SOFTCAP, 30),
            INT_OR_OFF("sliding_window", P_WINDOW, 4096),
            HARMLESS("sliding_window_size"),
            FIXED(P_WINDOW_RULE, WINDOW_PERIOD),
            FIXED(P_WINDOW_PERIOD, 2),
            FIXED(P_NORM_PLACE, TFM_PLACE_SANDWICH)), NAMES(
            {"@layers.#.post_attention_layernorm.weight", TFM_ROLE_ATTN_POST_NORM, TAKE_ROWS},
            {"@layers.#.pre_feedforward_layernorm.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS},
            {"@layers.#.post_feedforward_layernorm.weight", TFM_ROLE_FFN_POST_NORM, TAKE_ROWS})),
        GGUF("gemma2", RULES(
            /* the query scalar is no key: only the 27B's is not head_dim */
            FIXED(P_QUERY_WIDE_LAYERS, 46),
            REAL_OR(".attn_logit_softcapping", P_ATTN_SOFTCAP, 50),
            REAL_OR(".final_logit_softcapping", P_LOGIT_SOFTCAP, 30),
            INT_OR(".attention.sliding_window", P_WINDOW, 4096),
            FIXED(P_WINDOW_RULE, WINDOW_PERIOD),
            FIXED(P_WINDOW_PERIOD, 2),
            FIXED(P_NORM_PLACE, TFM_PLACE_SANDWICH)), NULL)}},

    /* QK-norm instead of the attention cap (its key stays in the config and is not applied); five windows to one full
     * layer, each kind with its own theta, scaling on the full ones alone. Published text_configs leave out what equals
     * the class's defaults, sizes too. */
    {"gemma3", "Gemma 3 (text)", "gemma2", {
        HF("gemma3_text gemma3", RULES(
            INT_OR("vocab_size", P_N_VOCAB, 262208),
            INT_OR("num_attention_heads", P_N_HEADS, 8),
            INT_OR("num_key_value_heads", P_N_KV_HEADS, 4),
            INT_OR("max_position_embeddings", P_N_CTX, 131072),
            HARMLESS("attn_logit_softcapping"),
            REAL("final_logit_softcapping", P_LOGIT_SOFTCAP),
            INT_OR("sliding_window_pattern", P_WINDOW_PERIOD, 6),
            INT("_sliding_window_pattern", P_WINDOW_PERIOD),
            REAL_OR("rope_theta", P_ROPE_THETA, 1e6),
            REAL_OR("rope_local_base_freq", P_ROPE_LOCAL_THETA, 1e4),
            FIXED(P_ATTN_SOFTCAP, 0),
            FIXED(P_LOGIT_SOFTCAP, 0),
            FIXED(P_QK_NORM, TFM_QKNORM_HEAD)), NULL),
        GGUF("gemma3", RULES(
            FIXED(P_QUERY_WIDE_LAYERS, 62),
            HARMLESS(".attn_logit_softcapping"),
            REAL(".final_logit_softcapping", P_LOGIT_SOFTCAP),
            NEED_INT(".attention.sliding_window", P_WINDOW),
            INT_OR(".attention.sliding_window_pattern", P_WINDOW_PERIOD, 6),
            REAL_OR(".rope.freq_base", P_ROPE_THETA, 1e6),
            REAL_OR(".rope.freq_base_swa", P_ROPE_LOCAL_THETA, 1e4),
            FIXED(P_ATTN_SOFTCAP, 0),
            FIXED(P_LOGIT_SOFTCAP, 0),
            FIXED(P_QK_NORM, TFM_QKNORM_HEAD)), NULL)}},

/* ---- LLAMA-SHAPED, WITH A TWIST OR TWO ------------------------------------------------------------------------- */

    /* q, k and v in one matrix, gate and up in another; part of a head may rotate; every layer has the window, or
     * none. */
    {"phi3", "Phi-3, Phi-4", "decoder", {
        HF("phi3", RULES(
            INT_OR("max_position_embeddings", P_N_CTX, 4096),
            REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-5),
            INT("sliding_window", P_WINDOW),
            REAL("partial_rotary_factor", P_ROPE_PART),
            BITS("attention_bias", P_BIAS, 0),
            FIXED(P_WINDOW_RULE, WINDOW_ALL)), NAMES(
            {"@layers.#.self_attn.qkv_proj.weight", TFM_ROLE_Q, TAKE_ALL_Q},
            {"@layers.#.self_attn.qkv_proj.weight", TFM_ROLE_K, TAKE_ALL_K},
            {"@layers.#.self_attn.qkv_proj.weight", TFM_ROLE_V, TAKE_ALL_V},
            {"@layers.#.mlp.gate_up_proj.weight", TFM_ROLE_GATE, TAKE_FIRST_HALF},
            {"@layers.#.mlp.gate_up_proj.weight", TFM_ROLE_UP, TAKE_SECOND_HALF})),
        GGUF("phi3", RULES(
            INT(".attention.sliding_window", P_WINDOW),
            FIXED(P_WINDOW_RULE, WINDOW_ALL)),
            NAMES(
            GGUF_FUSED_QKV,
            {"blk.#.ffn_up.weight", TFM_ROLE_GATE, TAKE_FIRST_HALF},
            {"blk.#.ffn_up.weight", TFM_ROLE_UP, TAKE_SECOND_HALF}))}},

    /* Four multipliers; attention_multiplier is the scale of the scores itself, not a factor on it. */
    {"granite", "Granite", "decoder", {
        HF("granite", RULES(
            REAL_OR("embedding_multiplier", P_EMBED_SCALE, 1),
            REAL_OR("logits_scaling", P_LOGIT_DIVISOR, 1),
            REAL_OR("residual_multiplier", P_RESIDUAL_SCALE, 1),
            REAL_OR("attention_multiplier", P_ATTN_SCALE, 1),
            BITS("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
            BITS("mlp_bias", P_BIAS, BIAS_MLP)), NULL),
        GGUF("granite", RULES(
            REAL(".attention.scale", P_ATTN_SCALE),
            REAL(".embedding_scale", P_EMBED_SCALE),
            REAL(".residual_scale", P_RESIDUAL_SCALE),
            REAL(".logit_scale", P_LOGIT_DIVISOR)),
            gguf_pair_names)}},

    /* Interleaved RoPE; no bias on o. */
    {"helium", "Helium", "decoder", {
        HF("helium", RULES(
            INT_OR("head_dim", P_HEAD_DIM, 128),
            INT_OR("max_position_embeddings", P_N_CTX, 4096),
            REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-8),
            REAL_OR("rope_theta", P_ROPE_THETA, 1e5),
            BITS("attention_bias", P_BIAS, BIAS_QKV),
            BITS("mlp_bias", P_BIAS, BIAS_MLP),
            FIXED(P_ROPE_STYLE, TFM_ROPE_INTERLEAVED)), NULL)}},

    {"ernie4_5", "ERNIE 4.5", "decoder", {
        HF("ernie4_5", RULES(
            INT_OR("head_dim", P_HEAD_DIM, 128),
            INT_OR("max_position_embeddings", P_N_CTX, 131072),
            REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-5),
            REAL_OR("rope_theta", P_ROPE_THETA, 5e5),
            BOOL_OR("tie_word_embeddings", P_TIED, 1),
            BITS("use_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O | BIAS_MLP),
            FIXED(P_ROPE_STYLE, TFM_ROPE_INTERLEAVED)), NULL),
        GGUF("ernie4_5", RULES(
            FIXED(P_ROPE_STYLE, TFM_ROPE_INTERLEAVED)), NULL)}},

    {"seed_oss", "Seed-OSS", "decoder", {
        HF("seed_oss", RULES(
            INT_OR("head_dim", P_HEAD_DIM, 128),
            INT_OR("max_position_embeddings", P_N_CTX, 524288),
            BITS_ON("attention_bias", P_BIAS, BIAS_QKV),
            BITS("attention_out_bias", P_BIAS, TFM_BIAS_O),
            BITS("mlp_bias", P_BIAS, BIAS_MLP)), NULL),
        GGUF("seed_oss", NULL, NAMES(
            {"blk.#.post_attention_norm.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS}))}},

    /* Feed-forward without a gate, squared ReLU. */
    {"arcee", "Arcee", "llama", {
        HF("arcee", RULES(
            INT_OR("max_position_embeddings", P_N_CTX, 4096),
            REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-5),
            NAME_OR("hidden_act", P_ACT, TFM_ACT_RELU2, activations),
            FIXED(P_GATED, 0)), NULL),
        GGUF("arcee", RULES(
            FIXED(P_ACT, TFM_ACT_RELU2),
            FIXED(P_GATED, 0)), NULL)}},

    /* The norms of q and k come after RoPE. */
    {"hunyuan_v1_dense", "Hunyuan (dense)", "decoder", {
        HF("hunyuan_v1_dense", RULES(
            REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-5),
            BITS("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
            HARMLESS("attention_head_dim"), HARMLESS("eod_token_id"),
            FIXED(P_ROPE_BY_ALPHA, 1),
            FIXED(P_QK_NORM, TFM_QKNORM_HEAD),
            FIXED(P_QK_AFTER_ROPE, 1)), NAMES(
            {"@layers.#.self_attn.query_layernorm.weight", TFM_ROLE_Q_NORM, TAKE_ROWS},
            {"@layers.#.self_attn.key_layernorm.weight", TFM_ROLE_K_NORM, TAKE_ROWS})),
        GGUF("hunyuan-dense", RULES(
            FIXED(P_QK_AFTER_ROPE, 1)), NULL)}},

    /* Interleaved RoPE over half a head, gate and up in one matrix; biases on q, k and v but not on o. */
    {"glm", "GLM", "decoder", {
        HF("glm", RULES(
            INT_OR("head_dim", P_HEAD_DIM, 128),
            INT_OR("max_position_embeddings", P_N_CTX, 131072),
            REAL_OR("rms_norm_eps", P_NORM_EPS, 1.5625e-7),
            REAL_OR("partial_rotary_factor", P_ROPE_PART, 0.5),
            BITS_ON("attention_bias", P_BIAS, BIAS_QKV),
            FIXED(P_ROPE_STYLE, TFM_ROPE_INTERLEAVED)), NAMES(
            {"@layers.#.mlp.gate_up_proj.weight", TFM_ROLE_GATE, TAKE_FIRST_HALF},
            {"@layers.#.mlp.gate_up_proj.weight", TFM_ROLE_UP, TAKE_SECOND_HALF})),
        GGUF("chatglm", RULES(
            FIXED(P_ROPE_STYLE, TFM_ROPE_INTERLEAVED)),
            NAMES(
            {"blk.#.ffn_up.weight", TFM_ROLE_GATE, TAKE_FIRST_HALF},
            {"blk.#.ffn_up.weight", TFM_ROLE_UP, TAKE_SECOND_HALF}))}},

    /* Sandwich norms; post_attention_layernorm stands before the feed-forward. */
    {"glm4", "GLM-4", "glm", {
        HF("glm4", RULES(
            FIXED(P_NORM_PLACE, TFM_PLACE_SANDWICH)), NAMES(
            {"@layers.#.post_self_attn_layernorm.weight", TFM_ROLE_ATTN_POST_NORM, TAKE_ROWS},
            {"@layers.#.post_mlp_layernorm.weight", TFM_ROLE_FFN_POST_NORM, TAKE_ROWS})),
        GGUF("glm4", RULES(
            FIXED(P_NORM_PLACE, TFM_PLACE_SANDWICH)), NULL)}},

    /* LayerNorms without weights; q, k and v are clamped. */
    {"olmo", "OLMo", "decoder", {
        HF("olmo", RULES(
            REAL("clip_qkv", P_QKV_CLAMP),
            BITS("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
            FIXED(P_NORM_KIND, TFM_NORM_LAYER),
            FIXED(P_NORM_EPS, 1e-5),
            FIXED(P_NORM_NO_WEIGHT, 1)), NULL),
        GGUF("olmo", RULES(
            REAL(".attention.clamp_kqv", P_QKV_CLAMP),
            REAL(".attention.layer_norm_rms_epsilon", P_NORM_EPS),
            NEED_REAL(".attention.layer_norm_epsilon", P_NORM_EPS),
            FIXED(P_NORM_KIND, TFM_NORM_LAYER),
            FIXED(P_NORM_NO_WEIGHT, 1)),
            gguf_pair_names)}},

    /* Norms on the branches' outputs; q and k are normed over their whole width. */
    {"olmo2", "OLMo 2", "decoder", {
        HF("olmo2", RULES(
            REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-5),
            BITS("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
            FIXED(P_NORM_PLACE, TFM_PLACE_POST_BRANCH),
            FIXED(P_QK_NORM, TFM_QKNORM_FULL)), olmo2_names),
        GGUF("olmo2", RULES(
            INT(".attention.sliding_window", P_WINDOW),
            SPECIAL(".attention.sliding_window_pattern", P_LAYER_TYPES),
            REAL(".rope.freq_base_swa", P_ROPE_LOCAL_THETA),
            FIXED(P_ROPE_LOCAL_PLAIN, 1),
            FIXED(P_WINDOW_RULE, WINDOW_PERIOD),
            FIXED(P_WINDOW_PERIOD, 4),
            FIXED(P_NORM_PLACE, TFM_PLACE_POST_BRANCH)), NULL)}},

    /* Three windows to one full layer; only the full ones are scaled. */
    {"olmo3", "OLMo 3", "olmo2", {
        HF("olmo3", RULES(
            INT_OR("sliding_window", P_WINDOW, 4096),
            REAL_OR("rope_theta", P_ROPE_THETA, 5e5),
            FIXED(P_ROPE_LOCAL_PLAIN, 1),
            FIXED(P_WINDOW_RULE, WINDOW_PERIOD),
            FIXED(P_WINDOW_PERIOD, 4)), NULL),
        GGUF("olmo2", NULL, NULL)}},

    /* Where there are windows, only their layers have RoPE. */
    {"exaone4", "EXAONE 4", "decoder", {
        HF("exaone4", RULES(
            REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-5),
            INT_OR_OFF("sliding_window", P_WINDOW, 4096),
            INT_OR("sliding_window_pattern", P_WINDOW_PERIOD, 4),
            FIXED(P_WINDOW_RULE, WINDOW_PERIOD),
            FIXED(P_ROPE_LAYERS, ROPE_IN_WINDOWS),
            FIXED(P_NORM_PLACE, TFM_PLACE_POST_BRANCH),
            FIXED(P_QK_NORM, TFM_QKNORM_HEAD)), olmo2_names),
        GGUF("exaone4", RULES(
            INT(".attention.sliding_window", P_WINDOW),
            SPECIAL(".attention.sliding_window_pattern", P_LAYER_TYPES),
            FIXED(P_WINDOW_RULE, WINDOW_PERIOD),
            FIXED(P_WINDOW_PERIOD, 4),
            FIXED(P_ROPE_LAYERS, ROPE_IN_WINDOWS),
            FIXED(P_NORM_PLACE, TFM_PLACE_POST_BRANCH)), NULL)}},

    /* Every fourth layer has no RoPE. In no_rope_layers 1 means that RoPE is used. */
    {"smollm3", "SmolLM3", "decoder", {
        HF("smollm3", RULES(
            INT_OR("max_position_embeddings", P_N_CTX, 32768),
            REAL_OR("rope_theta", P_ROPE_THETA, 2e6),
            BOOL_OR("tie_word_embeddings", P_TIED, 1),
            SPECIAL("no_rope_layers", P_ROPE_FLAGS),
            INT_OR("no_rope_layer_interval", P_ROPE_PERIOD, 4),
            INT("sliding_window", P_WINDOW),
            BOOL_OR("use_sliding_window", P_WINDOW_ON, 0),
            HARMLESS("max_window_layers"),
            BITS("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
            BITS("mlp_bias", P_BIAS, BIAS_MLP),
            FIXED(P_ROPE_LAYERS, ROPE_IN_PERIOD)), NULL),
        GGUF("smollm3", RULES(
            FIXED(P_ROPE_LAYERS, ROPE_IN_PERIOD),
            FIXED(P_ROPE_PERIOD, 4)),
            gguf_pair_names)}},

    {"ministral", "Ministral", "mistral", {
        HF("ministral", NULL, NULL)}},

    /* Queries grow with the position. */
    {"ministral3", "Ministral 3", "mistral", {
        HF("ministral3", RULES(
            INT_OR_OFF("sliding_window", P_WINDOW, 0),
            INT_OR("head_dim", P_HEAD_DIM, 128),
            INT_OR("max_position_embeddings", P_N_CTX, 262144),
            REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-5)), NULL),
        GGUF("mistral3", RULES(
            INT(".attention.sliding_window", P_WINDOW),
            REAL(".attention.temperature_scale", P_TEMPERATURE),
            REAL(".rope.scaling.yarn_log_multiplier", P_ROPE_MSCALE_ALL),
            FIXED(P_ROPE_MSCALE, 1),
            FIXED(P_WINDOW_RULE, WINDOW_ALL)),
            gguf_pair_names)}},

    /* Both branches read one LayerNorm without bias; interleaved RoPE; logits are multiplied by logit_scale. */
    {"cohere", "Command R, R+", "decoder", {
        HF("cohere", RULES(
            INT_OR("max_position_embeddings", P_N_CTX, 8192),
            REAL_OR("layer_norm_eps", P_NORM_EPS, 1e-5),
            REAL_OR("logit_scale", P_LOGIT_SCALE, 0.0625),
            REAL_OR("rope_theta", P_ROPE_THETA, 5e5),
            BOOL_OR("tie_word_embeddings", P_TIED, 1),
            BITS("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
            BITS("use_qk_norm", P_QK_NORM, TFM_QKNORM_HEADS),
            FIXED(P_NORM_KIND, TFM_NORM_LAYER),
            FIXED(P_RESIDUAL, TFM_RESIDUAL_PARALLEL_1),
            FIXED(P_ROPE_STYLE, TFM_ROPE_INTERLEAVED)), NULL),
        GGUF("command-r", RULES(
            REAL(".attention.layer_norm_rms_epsilon", P_NORM_EPS),
            NEED_REAL(".attention.layer_norm_epsilon", P_NORM_EPS),
            REAL(".logit_scale", P_LOGIT_SCALE),
            FIXED(P_NORM_KIND, TFM_NORM_LAYER),
            FIXED(P_RESIDUAL, TFM_RESIDUAL_PARALLEL_1),
            FIXED(P_ROPE_STYLE, TFM_ROPE_INTERLEAVED)), NULL)}},

    /* Three windows with RoPE to one full layer without. */
    {"cohere2", "Command A, R7B", "cohere", {
        HF("cohere2", RULES(
            INT_OR("sliding_window", P_WINDOW, 4096),
            INT_OR("sliding_window_pattern", P_WINDOW_PERIOD, 4),
            INT("_sliding_window_pattern", P_WINDOW_PERIOD),
            INT_OR("head_dim", P_HEAD_DIM, 128),
            HARMLESS("order_of_interleaved_layers"), HARMLESS("rotary_pct"), HARMLESS("position_embedding_type"),
            HARMLESS("use_embedding_sharing"), HARMLESS("use_gated_activation"), HARMLESS("use_parallel_block"),
            HARMLESS("use_parallel_embedding"),
            FIXED(P_WINDOW_RULE, WINDOW_PERIOD),
            FIXED(P_ROPE_LAYERS, ROPE_IN_WINDOWS)), NULL),
        GGUF("cohere2", RULES(
            INT(".attention.sliding_window", P_WINDOW),
            SPECIAL(".attention.sliding_window_pattern", P_LAYER_TYPES),
            FIXED(P_WINDOW_RULE, WINDOW_PERIOD),
            FIXED(P_WINDOW_PERIOD, 4),
            FIXED(P_ROPE_LAYERS, ROPE_IN_WINDOWS)), NULL)}},

    /* No gate, an activation with parameters of each layer's own; norms of q and k. */
    {"apertus", "Apertus", "decoder", {
        HF("apertus", RULES(
            INT_OR("max_position_embeddings", P_N_CTX, 65536),
            REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-5),
            REAL_OR("rope_theta", P_ROPE_THETA, 12e6),
            NAME_OR("hidden_act", P_ACT, TFM_ACT_XIELU, xielu),
            BITS("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
            HARMLESS("post_norm"), HARMLESS("qk_norm"),
            FIXED(P_QK_NORM, TFM_QKNORM_HEAD),
            FIXED(P_GATED, 0)), NAMES(
            {"@layers.#.attention_layernorm.weight", TFM_ROLE_ATTN_NORM, TAKE_ROWS},
            {"@layers.#.feedforward_layernorm.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS},
            {"@layers.#.mlp.act_fn.alpha_p|@layers.#.mlp.act_fn.alpha_n|"
             "@layers.#.mlp.act_fn.beta|@layers.#.mlp.act_fn.eps",
             TFM_ROLE_ACT, TAKE_ROWS})),
        GGUF("apertus", RULES(
            FIXED(P_ACT, TFM_ACT_XIELU),
            FIXED(P_GATED, 0)),
            NAMES(
            {"blk.#.xielu", TFM_ROLE_ACT, TAKE_ROWS})) /* joined by the reader from four lists */}},

    /* No norm has weights; one over the embedding too; q and k are normed after a RoPE that turns the other way. */
    {"nanochat", "nanochat", "decoder", {
        HF("nanochat", RULES(
            NAME_OR("hidden_act", P_ACT, TFM_ACT_RELU2, activations),
            REAL_OR_OFF("final_logit_softcapping", P_LOGIT_SOFTCAP, 15),
            BITS("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
            FIXED(P_NORM_NO_WEIGHT, 1),
            FIXED(P_EMBED_NORM, 1),
            FIXED(P_QK_NORM, TFM_QKNORM_HEAD),
            FIXED(P_QK_AFTER_ROPE, 1),
            FIXED(P_GATED, 0)), NAMES(
            {"@layers.#.self_attn.q_proj.weight", TFM_ROLE_Q, TAKE_SWAP_Q},
            {"@layers.#.self_attn.k_proj.weight", TFM_ROLE_K, TAKE_SWAP_K},
            {"@layers.#.self_attn.q_proj.bias", TFM_ROLE_Q_B, TAKE_SWAP_Q},
            {"@layers.#.self_attn.k_proj.bias", TFM_ROLE_K_B, TAKE_SWAP_K},
            {"@layers.#.mlp.fc1.weight", TFM_ROLE_UP, TAKE_ROWS},
            {"@layers.#.mlp.fc2.weight", TFM_ROLE_DOWN, TAKE_ROWS}))}},

    /* Gemma 2 without the norms on the outputs. */
    {"vaultgemma", "VaultGemma", "gemma2", {
        HF("vaultgemma", RULES(
            FIXED(P_NORM_PLACE, TFM_PLACE_PRE)), NAMES(
            {"@layers.#.pre_feedforward_layernorm.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS}))}},

/* ---- LLAMA'S BLOCK UNDER OTHER NAMES -------------------------------------------------------------------------- */

    /* q, k and v in one matrix. The 13B models have ALiBi and say model_max_length alone; the 7B models have RoPE.
     * Version 2 scales the rows of the output matrix to length 1. */
    {"baichuan", "Baichuan 1, 2 (13B: ALiBi)", "decoder", {
        HF("baichuan", RULES(
            INT("model_max_length", P_N_CTX),
            REAL("z_loss_weight", P_UNIT_HEAD),
            HARMLESS("_from_model_config"), HARMLESS("gradient_checkpointing"),
            FIXED(P_UNIT_HEAD_VOCAB, 125696),
            FIXED(P_ROPE_STYLE, TFM_ROPE_NONE),
            FIXED(P_ALIBI, TFM_ALIBI_SLOPES)),
            NAMES(
            {"alibi.slopes", TFM_ROLE_SLOPES, TAKE_ROWS},
            {"@layers.#.self_attn.W_pack.weight", TFM_ROLE_Q, TAKE_ALL_Q},
            {"@layers.#.self_attn.W_pack.weight", TFM_ROLE_K, TAKE_ALL_K},
            {"@layers.#.self_attn.W_pack.weight", TFM_ROLE_V, TAKE_ALL_V})),
        GGUF("baichuan", RULES(
            FIXED(P_ALIBI_LAYERS, 40)),
            NAMES(
            {"alibi.slopes", TFM_ROLE_SLOPES, TAKE_ROWS},
            {"blk.#.attn_q.weight", TFM_ROLE_Q, TAKE_PAIRS_Q},
            {"blk.#.attn_k.weight", TFM_ROLE_K, TAKE_PAIRS_K}))}},
    {"baichuan_rope", "Baichuan 1, 2 (7B: RoPE)", "baichuan", {
        HF("max_position_embeddings= baichuan", RULES(
            FIXED(P_ROPE_STYLE, TFM_ROPE_HALF),
            FIXED(P_ALIBI, TFM_ALIBI_NONE)), NULL),
        GGUF("baichuan", NULL, NULL)}},

    /* Biases on q, k, v and o; `rotary` is an older spelling of the RoPE values. */
    {"internlm", "InternLM", "decoder", {
        HF("internlm", RULES(
            BITS_ON("bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
            SPECIAL("rotary", P_ROPE_OBJECT),
            FIXED(P_ROPE_FACTOR, 1)), NULL)}},

    /* q, k and v in one matrix, group by group; names of its own. */
    {"internlm2", "InternLM 2, 2.5", "decoder", {
        HF("internlm2", RULES(
            BITS_ON("bias", P_BIAS, BIAS_QKV | TFM_BIAS_O)),
            NAMES(
            {"@tok_embeddings.weight", TFM_ROLE_EMBED, TAKE_ROWS},
            {"output.weight", TFM_ROLE_HEAD, TAKE_ROWS},
            {"@layers.#.attention_norm.weight", TFM_ROLE_ATTN_NORM, TAKE_ROWS},
            {"@layers.#.ffn_norm.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS},
            {"@layers.#.attention.wqkv.weight", TFM_ROLE_Q, TAKE_GROUPS_Q},
            {"@layers.#.attention.wqkv.weight", TFM_ROLE_K, TAKE_GROUPS_K},
            {"@layers.#.attention.wqkv.weight", TFM_ROLE_V, TAKE_GROUPS_V},
            {"@layers.#.attention.wqkv.bias", TFM_ROLE_Q_B, TAKE_GROUPS_Q},
            {"@layers.#.attention.wqkv.bias", TFM_ROLE_K_B, TAKE_GROUPS_K},
            {"@layers.#.attention.wqkv.bias", TFM_ROLE_V_B, TAKE_GROUPS_V},
            {"@layers.#.attention.wo.weight", TFM_ROLE_O, TAKE_ROWS},
            {"@layers.#.attention.wo.bias", TFM_ROLE_O_B, TAKE_ROWS},
            {"@layers.#.feed_forward.w1.weight", TFM_ROLE_GATE, TAKE_ROWS},
            {"@layers.#.feed_forward.w3.weight", TFM_ROLE_UP, TAKE_ROWS},
            {"@layers.#.feed_forward.w2.weight", TFM_ROLE_DOWN, TAKE_ROWS})),
        GGUF("internlm2", NULL, gguf_pair_names)}},

    /* q, k and v in one matrix; w2 is the gate and w1 is not; intermediate_size counts both. Past seq_length theta
     * grows in steps and queries with the logarithm of the position, each if it is switched on. */
    {"qwen", "Qwen 1", "decoder", {
        [FORM_HF] = {"qwen", RULES(
            REAL_OR("layer_norm_epsilon", P_NORM_EPS, 1e-6),
            INT("seq_length", P_CTX_ORIG), INT("seq_length", P_N_CTX),
            REAL("rotary_emb_base", P_ROPE_THETA),
            REAL("rotary_pct", P_ROPE_PART),
            INT("kv_channels", P_HEAD_DIM),
            NAME("use_dynamic_ntk", P_ROPE_SCALING, rope_steps),
            BOOL("use_logn_attn", P_LOG_SCALE),
            HARMLESS("intermediate_size"), /* the matrices say */
            HARMLESS("max_position_embeddings"), HARMLESS("no_bias"), HARMLESS("scale_attn_weights"),
            HARMLESS("use_flash_attn"), HARMLESS("attn_dropout_prob"), HARMLESS("emb_dropout_prob"), HARMLESS("bf16"),
            HARMLESS("fp16"), HARMLESS("fp32"), HARMLESS("onnx_safe"), HARMLESS("tokenizer_type"),
            HARMLESS("softmax_in_fp32"), HARMLESS("use_cache_kernel"), HARMLESS("use_cache_quantization"),
            FIXED(P_BIAS, BIAS_QKV)),
            NAMES(
            {"@wte.weight", TFM_ROLE_EMBED, TAKE_ROWS},
            {"@ln_f.weight", TFM_ROLE_OUT_NORM, TAKE_ROWS},
            {"@h.#.ln_1.weight", TFM_ROLE_ATTN_NORM, TAKE_ROWS},
            {"@h.#.ln_2.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS},
            {"@h.#.attn.c_attn.weight", TFM_ROLE_Q, TAKE_ALL_Q},
            {"@h.#.attn.c_attn.weight", TFM_ROLE_K, TAKE_ALL_K},
            {"@h.#.attn.c_attn.weight", TFM_ROLE_V, TAKE_ALL_V},
            {"@h.#.attn.c_attn.bias", TFM_ROLE_Q_B, TAKE_ALL_Q},
            {"@h.#.attn.c_attn.bias", TFM_ROLE_K_B, TAKE_ALL_K},
            {"@h.#.attn.c_attn.bias", TFM_ROLE_V_B, TAKE_ALL_V},
            {"@h.#.attn.c_proj.weight", TFM_ROLE_O, TAKE_ROWS},
            {"@h.#.mlp.w1.weight", TFM_ROLE_UP, TAKE_ROWS},
            {"@h.#.mlp.w2.weight", TFM_ROLE_GATE, TAKE_ROWS},
            {"@h.#.mlp.c_proj.weight", TFM_ROLE_DOWN, TAKE_ROWS}),
            STRINGS("transformer."), NULL, NULL},
        GGUF("qwen", RULES(
            HARMLESS(".feed_forward_length"), /* twice the width: the matrices say */
            REAL(".attention.layer_norm_rms_epsilon", P_NORM_EPS),
            REAL_OR(".attention.layer_norm_epsilon", P_NORM_EPS, 1e-6)), NAMES(GGUF_FUSED_QKV))}},

    /* LayerNorms without bias, over the whole width of q and k too; gate and up in one matrix. */
    {"openlm", "OpenLM, DCLM", "decoder", {
        HF("openlm", RULES(
            SPECIAL("params_args_dict", P_NESTED),
            INT("dim", P_D_MODEL), INT("n_layers", P_N_LAYERS), INT("n_heads", P_N_HEADS), INT("seq_len", P_N_CTX),
            INT("hidden_size", P_D_MODEL), INT("num_hidden_layers", P_N_LAYERS), INT("num_attention_heads", P_N_HEADS),
            INT("intermediate_size", P_D_FF),
            REAL_OR("norm_eps", P_NORM_EPS, 1e-5),
            BOOL("weight_tying", P_TIED),
            NAME("model_norm", P_NORM_KIND, openlm_norms),
            NAME("positional_embedding_type", P_ROPE_STYLE, openlm_positions),
            NAME("ffn_type", P_GATED, openlm_ffn),
            BITS("apply_qk_norm", P_QK_NORM, TFM_QKNORM_FULL), BITS("qk_norm", P_QK_NORM, TFM_QKNORM_FULL),
            INT("moe_freq", P_ZERO),
            HARMLESS("attn_name"), HARMLESS("model"), HARMLESS("moe_capacity_factor"), HARMLESS("moe_loss_weight"),
            HARMLESS("moe_top_k"), HARMLESS("moe_num_experts"), HARMLESS("attn_activation"),
            FIXED(P_NORM_KIND, TFM_NORM_LAYER)),
            NAMES(
            {"@tok_embeddings.weight", TFM_ROLE_EMBED, TAKE_ROWS},
            {"@output.weight", TFM_ROLE_HEAD, TAKE_ROWS},
            {"@layers.#.attention_norm.weight", TFM_ROLE_ATTN_NORM, TAKE_ROWS},
            {"@layers.#.ffn_norm.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS},
            {"@layers.#.attention.in_proj.weight", TFM_ROLE_Q, TAKE_ALL_Q},
            {"@layers.#.attention.in_proj.weight", TFM_ROLE_K, TAKE_ALL_K},
            {"@layers.#.attention.in_proj.weight", TFM_ROLE_V, TAKE_ALL_V},
            {"@layers.#.attention.out_proj.weight", TFM_ROLE_O, TAKE_ROWS},
            {"@layers.#.attention.q_norm.weight", TFM_ROLE_Q_NORM, TAKE_ROWS},
            {"@layers.#.attention.k_norm.weight", TFM_ROLE_K_NORM, TAKE_ROWS},
            {"@layers.#.feed_forward.w12.weight", TFM_ROLE_GATE, TAKE_FIRST_HALF},
            {"@layers.#.feed_forward.w12.weight", TFM_ROLE_UP, TAKE_SECOND_HALF},
            {"@layers.#.feed_forward.w3.weight", TFM_ROLE_DOWN, TAKE_ROWS}))}},

    /* Both branches read one LayerNorm without bias; one key/value head; tied, and logits may be scaled. */
    {"palm", "PaLM-style", "decoder", {
        HF("palm", RULES(
            INT_OR("num_key_value_heads", P_N_KV_HEADS, 1),
            REAL_OR("layer_norm_eps", P_NORM_EPS, 1e-5),
            REAL("logit_scale", P_LOGIT_SCALE),
            BOOL_OR("tie_word_embeddings", P_TIED, 1),
            FIXED(P_NORM_KIND, TFM_NORM_LAYER),
            FIXED(P_RESIDUAL, TFM_RESIDUAL_PARALLEL_1)), NULL)}},

    /* q and k have LayerNorms with weights and biases of each head's own; with swin_norm the norms stand on the
     * branches' outputs under the same names. Tokens of images can never come next. The image encoder is skipped. */
    {"chameleon", "Chameleon (text)", "llama", {
        [FORM_HF] = {"chameleon", RULES(
            INT_OR("max_position_embeddings", P_N_CTX, 4096),
            REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-5),
            NAME("swin_norm", P_NORM_PLACE, swin_places),
            SPECIAL("vocabulary_map", P_LOGITS_OFF),
            HARMLESS("model_parallel_size"), HARMLESS("vq_config"), HARMLESS("is_encoder_decoder"),
            HARMLESS("boi_token_id"), HARMLESS("eoi_token_id"), HARMLESS("image_token_id"),
            FIXED(P_QK_NORM, TFM_QKNORM_HEADS),
            FIXED(P_QK_NORM_KIND, TFM_NORM_LAYER),
            FIXED(P_QK_NORM_EPS, 1e-5),
            FIXED(P_BIAS, TFM_BIAS_QK_NORM)),
            NAMES(
            {"@layers.#.input_layernorm.weight", TFM_ROLE_ATTN_POST_NORM, TAKE_ROWS},
            {"@layers.#.post_attention_layernorm.weight", TFM_ROLE_FFN_POST_NORM, TAKE_ROWS},
            {"@layers.#.self_attn.q_norm.bias", TFM_ROLE_Q_NORM_B, TAKE_ROWS},
            {"@layers.#.self_attn.k_norm.bias", TFM_ROLE_K_NORM_B, TAKE_ROWS},
            {"lm_head.bias", TFM_ROLE_HEAD_B, TAKE_ROWS}),
            NULL, NULL, STRINGS("*vqmodel.*")},
        /* norms of q and k are vectors of pairs, too; which tokens are images no key says */
        GGUF("chameleon", RULES(
            NAME(".swin_norm", P_NORM_PLACE, swin_places),
            FIXED(P_QK_NORM_KIND, TFM_NORM_LAYER),
            FIXED(P_QK_NORM_EPS, 1e-5),
            FIXED(P_LOGITS_OFF_FIRST, 4),
            FIXED(P_LOGITS_OFF_END, 8196)), NAMES(
            {"blk.#.attn_norm.weight", TFM_ROLE_ATTN_NORM, TAKE_ROWS},
            {"blk.#.attn_norm.weight", TFM_ROLE_ATTN_POST_NORM, TAKE_ROWS},
            {"blk.#.ffn_norm.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS},
            {"blk.#.ffn_norm.weight", TFM_ROLE_FFN_POST_NORM, TAKE_ROWS},
            {"blk.#.attn_q_norm.weight", TFM_ROLE_Q_NORM, TAKE_PAIRS_Q},
            {"blk.#.attn_k_norm.weight", TFM_ROLE_K_NORM, TAKE_PAIRS_K},
            {"blk.#.attn_q_norm.bias", TFM_ROLE_Q_NORM_B, TAKE_PAIRS_Q},
            {"blk.#.attn_k_norm.bias", TFM_ROLE_K_NORM_B, TAKE_PAIRS_K}))}},

/* ---- LAYERNORM WITH BIAS, LLAMA'S NAMES ------------------------------------------------------------------------ */

    /* Norms multiply by 1 + w; squared ReLU without a gate. */
    {"layer_norm", NULL, "decoder", {
        HF(NULL, RULES(
            FIXED(P_NORM_KIND, TFM_NORM_LAYER),
            FIXED(P_BIAS, TFM_BIAS_NORM)), NAMES(
            {"@norm.bias", TFM_ROLE_OUT_NORM_B, TAKE_ROWS},
            {"@layers.#.input_layernorm.bias", TFM_ROLE_ATTN_NORM_B, TAKE_ROWS},
            {"@layers.#.post_attention_layernorm.bias", TFM_ROLE_FFN_NORM_B, TAKE_ROWS})),
        GGUF(NULL, RULES(
            REAL(".attention.layer_norm_rms_epsilon", P_NORM_EPS),
            NEED_REAL(".attention.layer_norm_epsilon", P_NORM_EPS),
            FIXED(P_NORM_KIND, TFM_NORM_LAYER)), NULL)}},

    {"nemotron", "Nemotron", "layer_norm", {
        HF("nemotron", RULES(
            REAL_OR("norm_eps", P_NORM_EPS, 1e-5),
            INT_OR("max_position_embeddings", P_N_CTX, 4096),
            NAME_OR("hidden_act", P_ACT, TFM_ACT_RELU2, activations),
            REAL_OR("partial_rotary_factor", P_ROPE_PART, 0.5),
            REAL("partial_rotary_percent", P_ROPE_PART), REAL("rope_percent", P_ROPE_PART),
            REAL("rope_percentage", P_ROPE_PART),
            BITS("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
            BITS("mlp_bias", P_BIAS, BIAS_MLP),
            FIXED(P_NORM_OFFSET, 1),
            FIXED(P_GATED, 0)), NULL),
        GGUF("nemotron", RULES(
            FIXED(P_ACT, TFM_ACT_RELU2),
            FIXED(P_GATED, 0)), NULL)}},

    /* A parallel residual has one norm for both branches. */
    {"stablelm", "StableLM", "layer_norm", {
        HF("stablelm", RULES(
            REAL_OR("layer_norm_eps", P_NORM_EPS, 1e-5),
            REAL("norm_eps", P_NORM_EPS),
            INT_OR("max_position_embeddings", P_N_CTX, 4096),
            REAL_OR("partial_rotary_factor", P_ROPE_PART, 0.25),
            REAL("rope_pct", P_ROPE_PART),
            BITS("use_qkv_bias", P_BIAS, BIAS_QKV),
            NAME("use_parallel_residual", P_RESIDUAL, parallel_1),
            BITS("qk_layernorm", P_QK_NORM, TFM_QKNORM_HEADS)), NAMES(
            /* a tensor for each head */
            {"@layers.#.self_attn.q_layernorm.norms.%.weight", TFM_ROLE_Q_NORM, TAKE_ROWS},
            {"@layers.#.self_attn.k_layernorm.norms.%.weight", TFM_ROLE_K_NORM, TAKE_ROWS})),
        GGUF("stablelm", RULES(
            HARMLESS(".use_parallel_residual"), /* written without being said: the tensors say */
            FIXED(P_RESIDUAL, TFM_RESIDUAL_PARALLEL_1)), NULL)}},

    {"stablelm_sequential", NULL, "stablelm", {
        GGUF("blk.0.ffn_norm.weight= stablelm", RULES(
            FIXED(P_RESIDUAL, TFM_RESIDUAL_SEQUENTIAL)), NULL)}},

    {"starcoder2", "StarCoder2", "layer_norm", {
        HF("starcoder2", RULES(
            REAL_OR("norm_epsilon", P_NORM_EPS, 1e-5),
            INT_OR("max_position_embeddings", P_N_CTX, 4096),
            NAME_OR("hidden_act", P_ACT, TFM_ACT_GELU_TANH, activations),
            BOOL_OR("tie_word_embeddings", P_TIED, 1),
            INT("sliding_window", P_WINDOW),
            BITS_ON("use_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O | TFM_BIAS_UP | TFM_BIAS_DOWN),
            HARMLESS("embedding_dropout"), HARMLESS("norm_type"), HARMLESS("mlp_type"),
            FIXED(P_WINDOW_RULE, WINDOW_ALL),
            FIXED(P_GATED, 0)), NAMES(
            {"@layers.#.mlp.c_fc.weight", TFM_ROLE_UP, TAKE_ROWS},
            {"@layers.#.mlp.c_proj.weight", TFM_ROLE_DOWN, TAKE_ROWS},
            {"@layers.#.mlp.c_fc.bias", TFM_ROLE_UP_B, TAKE_ROWS},
            {"@layers.#.mlp.c_proj.bias", TFM_ROLE_DOWN_B, TAKE_ROWS})),
        GGUF("starcoder2", RULES(
            INT(".attention.sliding_window", P_WINDOW),
            FIXED(P_WINDOW_RULE, WINDOW_ALL),
            FIXED(P_ACT, TFM_ACT_GELU_TANH),
            FIXED(P_GATED, 0)), NULL)}},

    {"jais2", "Jais 2", "layer_norm", {
        HF("jais2", RULES(
            REAL_OR("layer_norm_eps", P_NORM_EPS, 1e-5),
            NAME_OR("hidden_act", P_ACT, TFM_ACT_RELU2, activations),
            BITS_ON("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
            BITS_ON("mlp_bias", P_BIAS, TFM_BIAS_UP | TFM_BIAS_DOWN),
            FIXED(P_GATED, 0)), NULL),
        GGUF("jais2", RULES(
            FIXED(P_ACT, TFM_ACT_RELU2),
            FIXED(P_GATED, 0)), NULL)}},

    /* GPT's block with learned positions and the masks of sparse_rules; biases everywhere, tied. */
    {"sparse_transformer", "Sparse Transformer", "layer_norm", {
        HF("sparse_transformer", RULES(
            REAL_OR("layer_norm_eps", P_NORM_EPS, 1e-5),
            NAME_OR("hidden_act", P_ACT, TFM_ACT_GELU_ERF, activations),
            BOOL_OR("tie_word_embeddings", P_TIED, 1),
            SPECIAL("sparse_attention", P_SPARSE),
            FIXED(P_GATED, 0),
            FIXED(P_ROPE_STYLE, TFM_ROPE_NONE),
            FIXED(P_POS_KIND, TFM_POS_LEARNED),
            FIXED(P_BIAS, TFM_BIAS_NORM | BIAS_QKV | TFM_BIAS_O | TFM_BIAS_UP | TFM_BIAS_DOWN)),
            NAMES(
            {"@embed_positions.weight", TFM_ROLE_POS_EMBED, TAKE_ROWS},
            {"@layers.#.mlp.fc1.weight", TFM_ROLE_UP, TAKE_ROWS},
            {"@layers.#.mlp.fc1.bias", TFM_ROLE_UP_B, TAKE_ROWS},
            {"@layers.#.mlp.fc2.weight", TFM_ROLE_DOWN, TAKE_ROWS},
            {"@layers.#.mlp.fc2.bias", TFM_ROLE_DOWN_B, TAKE_ROWS}))}},
#ifdef TFM__TEST_PARTS
    {"test", "a family that a test adds", "llama", {
        HF("test_family", RULES(
            FIXED(P_NORM_KIND, TFM_NORM_TEST)), NULL)}},
#endif
    FAMILIES_END};
