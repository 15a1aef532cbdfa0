/* families_gpt.c - families that go back to GPT: LayerNorm with bias, often learned positions or ALiBi, names of their
 * own. See family_rows.h. */
#include "family_rows.h"

/* GPT-1's "gelu" is the tanh form, too. */
static const named_value gpt1_activations[] = {
    {"gelu", TFM_ACT_GELU_TANH}, {"relu", TFM_ACT_RELU}, {"silu", TFM_ACT_SILU}, {"swish", TFM_ACT_SILU}, {NULL, 0}};

static const named_value multi_query[] = {{"true", 1}, {"false", -1}, {NULL, 0}};

static const named_value opt_places[] = {{"true", TFM_PLACE_PRE}, {"false", TFM_PLACE_POST_ADD}, {NULL, 0}};

static const named_value inverted[] = {{"true", 0}, {"false", 1}, {NULL, 0}};

static const named_value bloom_places[] = {{"true", TFM_PLACE_PRE_STREAM}, {"false", TFM_PLACE_PRE}, {NULL, 0}};

static const named_value falcon_alibi[] = {{"true", TFM_ALIBI_BF16}, {"false", TFM_ALIBI_NONE}, {NULL, 0}};

static const named_value falcon_rope[] = {{"true", TFM_ROPE_NONE}, {"false", TFM_ROPE_HALF}, {NULL, 0}};

const family families_gpt[] = {
    /* LayerNorm with bias, biases on every linear map, no gate, 4 * d_model wide unless it says otherwise, no RoPE. */
    {"gpt", NULL, "decoder", {
        [FORM_HF] = {NULL, RULES(
            INT("n_layer", P_N_LAYERS), INT("n_embd", P_D_MODEL), INT("n_head", P_N_HEADS), INT("n_inner", P_D_FF),
            INT("num_hidden_layers", P_N_LAYERS), INT("hidden_size", P_D_MODEL), INT("num_attention_heads", P_N_HEADS),
            INT("intermediate_size", P_D_FF),
            INT("n_positions", P_N_CTX),
            HARMLESS("n_ctx"), /* the same number */
            REAL_OR("layer_norm_epsilon", P_NORM_EPS, 1e-5),
            NAME_OR("activation_function", P_ACT, TFM_ACT_GELU_TANH, activations),
            FIXED(P_NORM_KIND, TFM_NORM_LAYER),
            FIXED(P_GATED, 0),
            FIXED(P_ROPE_STYLE, TFM_ROPE_NONE),
            FIXED(P_BIAS, TFM_BIAS_NORM | BIAS_QKV | TFM_BIAS_O | TFM_BIAS_UP | TFM_BIAS_DOWN),
            HARMLESS("attn_pdrop"), HARMLESS("summary_activation"), HARMLESS("summary_first_dropout"),
            HARMLESS("summary_proj_to_labels"), HARMLESS("summary_type"), HARMLESS("summary_use_proj"),
            HARMLESS("task_specific_params"), HARMLESS("gradient_checkpointing"), HARMLESS("scale_attn_weights")),
            NAMES(
            {"@wte.weight", TFM_ROLE_EMBED, TAKE_ROWS},
            {"@wpe.weight", TFM_ROLE_POS_EMBED, TAKE_ROWS},
            {"@ln_f.weight", TFM_ROLE_OUT_NORM, TAKE_ROWS},
            {"@ln_f.bias", TFM_ROLE_OUT_NORM_B, TAKE_ROWS},
            {"lm_head.bias", TFM_ROLE_HEAD_B, TAKE_ROWS},
            {"@h.#.ln_1.weight", TFM_ROLE_ATTN_NORM, TAKE_ROWS},
            {"@h.#.ln_1.bias", TFM_ROLE_ATTN_NORM_B, TAKE_ROWS},
            {"@h.#.ln_2.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS},
            {"@h.#.ln_2.bias", TFM_ROLE_FFN_NORM_B, TAKE_ROWS},
            {"@h.#.attn.c_proj.weight", TFM_ROLE_O, TAKE_ROWS},
            {"@h.#.attn.c_proj.bias", TFM_ROLE_O_B, TAKE_ROWS},
            {"@h.#.mlp.c_fc.weight", TFM_ROLE_UP, TAKE_ROWS},
            {"@h.#.mlp.c_fc.bias", TFM_ROLE_UP_B, TAKE_ROWS},
            {"@h.#.mlp.c_proj.weight", TFM_ROLE_DOWN, TAKE_ROWS},
            {"@h.#.mlp.c_proj.bias", TFM_ROLE_DOWN_B, TAKE_ROWS}),
            STRINGS("transformer.", ""), NULL,
            STRINGS("*attn.bias", "*attn.masked_bias", "*attention.bias", "*attention.masked_bias",
                "*attn.causal_mask", "*attn.embed_positions")},
        GGUF(NULL, RULES(
            REAL(".attention.layer_norm_rms_epsilon", P_NORM_EPS),
            NEED_REAL(".attention.layer_norm_epsilon", P_NORM_EPS),
            FIXED(P_NORM_KIND, TFM_NORM_LAYER),
            FIXED(P_ACT, TFM_ACT_GELU_TANH),
            FIXED(P_GATED, 0),
            FIXED(P_ROPE_STYLE, TFM_ROPE_NONE)), NULL)}},

    /* Matrices are stored [in][out], q, k and v in one; learned positions. */
    {"gpt2", "GPT-2", "gpt", {
        HF("gpt2", RULES(
            INT_OR("n_positions", P_N_CTX, 1024),
            BOOL_OR("tie_word_embeddings", P_TIED, 1),
            BOOL("scale_attn_by_inverse_layer_idx", P_SCALE_BY_LAYER),
            SPECIAL("sparse_attention", P_SPARSE),
            HARMLESS("reorder_and_upcast_attn"),
            FIXED(P_POS_KIND, TFM_POS_LEARNED)), NAMES(
            {"@h.#.attn.c_attn.weight", TFM_ROLE_Q, TAKE_ALL_Q | TAKE_COLUMNS},
            {"@h.#.attn.c_attn.weight", TFM_ROLE_K, TAKE_ALL_K | TAKE_COLUMNS},
            {"@h.#.attn.c_attn.weight", TFM_ROLE_V, TAKE_ALL_V | TAKE_COLUMNS},
            {"@h.#.attn.c_attn.bias", TFM_ROLE_Q_B, TAKE_ALL_Q},
            {"@h.#.attn.c_attn.bias", TFM_ROLE_K_B, TAKE_ALL_K},
            {"@h.#.attn.c_attn.bias", TFM_ROLE_V_B, TAKE_ALL_V},
            {"@h.#.attn.c_proj.weight", TFM_ROLE_O, TAKE_ROWS | TAKE_COLUMNS},
            {"@h.#.mlp.c_fc.weight", TFM_ROLE_UP, TAKE_ROWS | TAKE_COLUMNS},
            {"@h.#.mlp.c_proj.weight", TFM_ROLE_DOWN, TAKE_ROWS | TAKE_COLUMNS})),
        GGUF("gpt2", RULES(
            FIXED(P_POS_KIND, TFM_POS_LEARNED)), NAMES(GGUF_FUSED_QKV))}},

    /* The first of them: norms after the sums, none at the end. */
    {"gpt1", "GPT-1", "gpt2", {
        HF("openai-gpt", RULES(
            INT_OR("n_positions", P_N_CTX, 512),
            NAME_OR("afn", P_ACT, TFM_ACT_GELU_TANH, gpt1_activations),
            FIXED(P_NORM_PLACE, TFM_PLACE_POST_ADD),
            FIXED(P_OUT_NORM, 0),
            HARMLESS("predict_special_tokens"), HARMLESS("n_special")), NAMES(
            {"@tokens_embed.weight", TFM_ROLE_EMBED, TAKE_ROWS},
            {"@positions_embed.weight", TFM_ROLE_POS_EMBED, TAKE_ROWS},
            {"@h.#.ln_1.weight", TFM_ROLE_ATTN_POST_NORM, TAKE_ROWS},
            {"@h.#.ln_1.bias", TFM_ROLE_ATTN_POST_NORM_B, TAKE_ROWS},
            {"@h.#.ln_2.weight", TFM_ROLE_FFN_POST_NORM, TAKE_ROWS},
            {"@h.#.ln_2.bias", TFM_ROLE_FFN_POST_NORM_B, TAKE_ROWS}))}},

    /* One key/value head, or, without multi_query, q, k and v head by head. */
    {"gpt_bigcode", "GPT-BigCode (StarCoder)", "gpt", {
        HF("gpt_bigcode", RULES(
            NAME_OR("multi_query", P_N_KV_HEADS, 1, multi_query),
            HARMLESS("num_key_value_heads"),
            INT_OR("n_positions", P_N_CTX, 1024),
            BOOL_OR("tie_word_embeddings", P_TIED, 1),
            HARMLESS("attention_softmax_in_fp32"), HARMLESS("scale_attention_softmax_in_fp32"),
            HARMLESS("inference_runner"),
            HARMLESS("validate_runner_input"), HARMLESS("pre_allocate_kv_cache"), HARMLESS("max_batch_size"),
            HARMLESS("max_sequence_length"), HARMLESS("pad_key_length"), HARMLESS("attention_head_type"),
            FIXED(P_POS_KIND, TFM_POS_LEARNED)), NAMES(
            {"@h.#.attn.c_attn.weight", TFM_ROLE_Q, TAKE_GROUPS_Q},
            {"@h.#.attn.c_attn.weight", TFM_ROLE_K, TAKE_GROUPS_K},
            {"@h.#.attn.c_attn.weight", TFM_ROLE_V, TAKE_GROUPS_V},
            {"@h.#.attn.c_attn.bias", TFM_ROLE_Q_B, TAKE_GROUPS_Q},
            {"@h.#.attn.c_attn.bias", TFM_ROLE_K_B, TAKE_GROUPS_K},
            {"@h.#.attn.c_attn.bias", TFM_ROLE_V_B, TAKE_GROUPS_V})),
        GGUF("starcoder", RULES(
            FIXED(P_POS_KIND, TFM_POS_LEARNED)), NAMES(GGUF_FUSED_QKV))}},

    /* Scores are not scaled; layers see everything or a window, in turn. */
    {"gpt_neo", "GPT-Neo", "gpt", {
        HF("gpt_neo", RULES(
            INT("num_layers", P_N_LAYERS), INT("num_heads", P_N_HEADS),
            INT_OR("window_size", P_WINDOW, 256),
            SPECIAL("attention_layers", P_LAYER_TYPES),
            SPECIAL("attention_types", P_LAYER_RUNS),
            BOOL_OR("tie_word_embeddings", P_TIED, 1),
            HARMLESS("embed_dropout"), HARMLESS("resid_dropout"), HARMLESS("classifier_dropout"),
            FIXED(P_ATTN_SCALE, 1),
            FIXED(P_BIAS, TFM_BIAS_NORM | TFM_BIAS_O | TFM_BIAS_UP | TFM_BIAS_DOWN),
            FIXED(P_POS_KIND, TFM_POS_LEARNED)), NAMES(
            {"@h.#.attn.attention.q_proj.weight", TFM_ROLE_Q, TAKE_ROWS},
            {"@h.#.attn.attention.k_proj.weight", TFM_ROLE_K, TAKE_ROWS},
            {"@h.#.attn.attention.v_proj.weight", TFM_ROLE_V, TAKE_ROWS},
            {"@h.#.attn.attention.out_proj.weight", TFM_ROLE_O, TAKE_ROWS},
            {"@h.#.attn.attention.out_proj.bias", TFM_ROLE_O_B, TAKE_ROWS}))}},

    /* Both branches read ln_1; interleaved RoPE; no bias in attention, one at the head. */
    {"gptj", "GPT-J", "gpt", {
        HF("gptj", RULES(
            INT_OR("rotary_dim", P_ROPE_DIMS, 64),
            HARMLESS("rotary"),
            FIXED(P_RESIDUAL, TFM_RESIDUAL_PARALLEL_1),
            FIXED(P_ROPE_STYLE, TFM_ROPE_INTERLEAVED),
            FIXED(P_HEAD_BIAS, 1),
            FIXED(P_BIAS, TFM_BIAS_NORM | TFM_BIAS_UP | TFM_BIAS_DOWN)), NAMES(
            {"@h.#.attn.q_proj.weight", TFM_ROLE_Q, TAKE_ROWS},
            {"@h.#.attn.k_proj.weight", TFM_ROLE_K, TAKE_ROWS},
            {"@h.#.attn.v_proj.weight", TFM_ROLE_V, TAKE_ROWS},
            {"@h.#.attn.out_proj.weight", TFM_ROLE_O, TAKE_ROWS},
            {"@h.#.mlp.fc_in.weight", TFM_ROLE_UP, TAKE_ROWS},
            {"@h.#.mlp.fc_in.bias", TFM_ROLE_UP_B, TAKE_ROWS},
            {"@h.#.mlp.fc_out.weight", TFM_ROLE_DOWN, TAKE_ROWS},
            {"@h.#.mlp.fc_out.bias", TFM_ROLE_DOWN_B, TAKE_ROWS}))}},

    /* q, v and k in one matrix of four parts. */
    {"codegen", "CodeGen", "gptj", {
        HF("codegen", NULL, NAMES(
            {"@h.#.attn.qkv_proj.weight", TFM_ROLE_Q, TAKE_QUARTERS_Q},
            {"@h.#.attn.qkv_proj.weight", TFM_ROLE_K, TAKE_QUARTERS_K},
            {"@h.#.attn.qkv_proj.weight", TFM_ROLE_V, TAKE_QUARTERS_V}))}},

    /* q, k and v head by head; a part of a head rotates; the branches are parallel, each with its norm. */
    {"gpt_neox", "GPT-NeoX, Pythia", "gpt", {
        [FORM_HF] = {"gpt_neox", RULES(
            REAL_OR("layer_norm_eps", P_NORM_EPS, 1e-5),
            NAME_OR("hidden_act", P_ACT, TFM_ACT_GELU_ERF, activations),
            REAL_OR("rotary_pct", P_ROPE_PART, 0.25), REAL("partial_rotary_factor", P_ROPE_PART),
            REAL("rotary_emb_base", P_ROPE_THETA),
            NAME_OR("use_parallel_residual", P_RESIDUAL, TFM_RESIDUAL_PARALLEL_2, parallel_2),
            BITS_ON("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
            HARMLESS("classifier_dropout"), HARMLESS("is_decoder"),
            FIXED(P_ROPE_STYLE, TFM_ROPE_HALF)), NAMES(
            {"@embed_in.weight", TFM_ROLE_EMBED, TAKE_ROWS},
            {"@final_layer_norm.weight", TFM_ROLE_OUT_NORM, TAKE_ROWS},
            {"@final_layer_norm.bias", TFM_ROLE_OUT_NORM_B, TAKE_ROWS},
            {"embed_out.weight", TFM_ROLE_HEAD, TAKE_ROWS},
            {"lm_head.weight", TFM_ROLE_HEAD, TAKE_ROWS},
            {"@layers.#.input_layernorm.weight", TFM_ROLE_ATTN_NORM, TAKE_ROWS},
            {"@layers.#.input_layernorm.bias", TFM_ROLE_ATTN_NORM_B, TAKE_ROWS},
            {"@layers.#.post_attention_layernorm.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS},
            {"@layers.#.post_attention_layernorm.bias", TFM_ROLE_FFN_NORM_B, TAKE_ROWS},
            {"@layers.#.attention.query_key_value.weight", TFM_ROLE_Q, TAKE_GROUPS_Q},
            {"@layers.#.attention.query_key_value.weight", TFM_ROLE_K, TAKE_GROUPS_K},
            {"@layers.#.attention.query_key_value.weight", TFM_ROLE_V, TAKE_GROUPS_V},
            {"@layers.#.attention.query_key_value.bias", TFM_ROLE_Q_B, TAKE_GROUPS_Q},
            {"@layers.#.attention.query_key_value.bias", TFM_ROLE_K_B, TAKE_GROUPS_K},
            {"@layers.#.attention.query_key_value.bias", TFM_ROLE_V_B, TAKE_GROUPS_V},
            {"@layers.#.attention.dense.weight", TFM_ROLE_O, TAKE_ROWS},
            {"@layers.#.attention.dense.bias", TFM_ROLE_O_B, TAKE_ROWS},
            {"@layers.#.mlp.dense_h_to_4h.weight", TFM_ROLE_UP, TAKE_ROWS},
            {"@layers.#.mlp.dense_h_to_4h.bias", TFM_ROLE_UP_B, TAKE_ROWS},
            {"@layers.#.mlp.dense_4h_to_h.weight", TFM_ROLE_DOWN, TAKE_ROWS},
            {"@layers.#.mlp.dense_4h_to_h.bias", TFM_ROLE_DOWN_B, TAKE_ROWS}),
            STRINGS("gpt_neox.", ""), STRINGS("@", "embed_out.", "lm_head."), NULL},
        GGUF("gptneox", RULES(
            NAME_OR(".use_parallel_residual", P_RESIDUAL, TFM_RESIDUAL_PARALLEL_2, parallel_2),
            FIXED(P_ACT, TFM_ACT_GELU_ERF),
            FIXED(P_ROPE_STYLE, TFM_ROPE_HALF)), NAMES(GGUF_FUSED_QKV))}},

    /* Positions start at row 2; norms before the branches, or after the sums and then none at the end; a narrow
     * embedding is projected. */
    {"opt", "OPT", "gpt", {
        [FORM_HF] = {"opt", RULES(
            INT("ffn_dim", P_D_FF),
            NAME_OR("activation_function", P_ACT, TFM_ACT_RELU, activations),
            NAME_OR("do_layer_norm_before", P_NORM_PLACE, TFM_PLACE_PRE, opt_places),
            BOOL("do_layer_norm_before", P_OUT_NORM),
            BOOL("_remove_final_layer_norm", P_OUT_NORM_DROPPED),
            INT("word_embed_proj_dim", P_D_EMBED),
            BITS_ON("enable_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O | TFM_BIAS_UP | TFM_BIAS_DOWN),
            NAME("layer_norm_elementwise_affine", P_NORM_NO_WEIGHT, inverted),
            BITS_ON("layer_norm_elementwise_affine", P_BIAS, TFM_BIAS_NORM),
            BOOL_OR("tie_word_embeddings", P_TIED, 1),
            HARMLESS("dropout"), HARMLESS("layerdrop"), HARMLESS("init_std"), HARMLESS("activation_dropout"),
            HARMLESS("prefix"),
            FIXED(P_NORM_EPS, 1e-5),
            FIXED(P_POS_KIND, TFM_POS_LEARNED),
            FIXED(P_POS_OFFSET, 2)), NAMES(
            {"@embed_tokens.weight", TFM_ROLE_EMBED, TAKE_ROWS},
            {"@embed_positions.weight", TFM_ROLE_POS_EMBED, TAKE_ROWS},
            {"@project_in.weight", TFM_ROLE_EMBED_PROJ, TAKE_ROWS},
            {"@project_out.weight", TFM_ROLE_OUT_PROJ, TAKE_ROWS},
            {"@final_layer_norm.weight", TFM_ROLE_OUT_NORM, TAKE_ROWS},
            {"@final_layer_norm.bias", TFM_ROLE_OUT_NORM_B, TAKE_ROWS},
            {"@layers.#.self_attn_layer_norm.weight", TFM_ROLE_ATTN_NORM, TAKE_ROWS},
            {"@layers.#.self_attn_layer_norm.bias", TFM_ROLE_ATTN_NORM_B, TAKE_ROWS},
            {"@layers.#.self_attn_layer_norm.weight", TFM_ROLE_ATTN_POST_NORM, TAKE_ROWS},
            {"@layers.#.self_attn_layer_norm.bias", TFM_ROLE_ATTN_POST_NORM_B, TAKE_ROWS},
            {"@layers.#.final_layer_norm.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS},
            {"@layers.#.final_layer_norm.bias", TFM_ROLE_FFN_NORM_B, TAKE_ROWS},
            {"@layers.#.final_layer_norm.weight", TFM_ROLE_FFN_POST_NORM, TAKE_ROWS},
            {"@layers.#.final_layer_norm.bias", TFM_ROLE_FFN_POST_NORM_B, TAKE_ROWS},
            {"@layers.#.self_attn.out_proj.weight", TFM_ROLE_O, TAKE_ROWS},
            {"@layers.#.self_attn.out_proj.bias", TFM_ROLE_O_B, TAKE_ROWS},
            {"@layers.#.self_attn.q_proj.weight", TFM_ROLE_Q, TAKE_ROWS},
            {"@layers.#.self_attn.k_proj.weight", TFM_ROLE_K, TAKE_ROWS},
            {"@layers.#.self_attn.v_proj.weight", TFM_ROLE_V, TAKE_ROWS},
            {"@layers.#.self_attn.q_proj.bias", TFM_ROLE_Q_B, TAKE_ROWS},
            {"@layers.#.self_attn.k_proj.bias", TFM_ROLE_K_B, TAKE_ROWS},
            {"@layers.#.self_attn.v_proj.bias", TFM_ROLE_V_B, TAKE_ROWS},
            {"@layers.#.fc1.weight", TFM_ROLE_UP, TAKE_ROWS},
            {"@layers.#.fc1.bias", TFM_ROLE_UP_B, TAKE_ROWS},
            {"@layers.#.fc2.weight", TFM_ROLE_DOWN, TAKE_ROWS},
            {"@layers.#.fc2.bias", TFM_ROLE_DOWN_B, TAKE_ROWS}),
            STRINGS("model.decoder.", "decoder.", ""), NULL, NULL}}},

    /* ALiBi; a norm over the embedding; q, k and v head by head. */
    {"bloom", "BLOOM", "gpt", {
        HF("bloom", RULES(
            INT("n_embed", P_D_MODEL),
            BOOL_OR("tie_word_embeddings", P_TIED, 1),
            INT("seq_length", P_N_CTX),
            NAME("apply_residual_connection_post_layernorm", P_NORM_PLACE, bloom_places),
            HARMLESS("slow_but_exact"), HARMLESS("attention_softmax_in_fp32"), HARMLESS("bias_dropout_fusion"),
            HARMLESS("masked_softmax_fusion"), HARMLESS("skip_bias_add"), HARMLESS("skip_bias_add_qkv"),
            HARMLESS("offset_alibi"),
            FIXED(P_EMBED_NORM, 1),
            FIXED(P_ALIBI, TFM_ALIBI_SLOPES)), NAMES(
            {"@word_embeddings.weight", TFM_ROLE_EMBED, TAKE_ROWS},
            {"@word_embeddings_layernorm.weight", TFM_ROLE_EMBED_NORM, TAKE_ROWS},
            {"@word_embeddings_layernorm.bias", TFM_ROLE_EMBED_NORM_B, TAKE_ROWS},
            {"alibi.slopes", TFM_ROLE_SLOPES, TAKE_ROWS}, /* computed by the converter */
            {"@h.#.input_layernorm.weight", TFM_ROLE_ATTN_NORM, TAKE_ROWS},
            {"@h.#.input_layernorm.bias", TFM_ROLE_ATTN_NORM_B, TAKE_ROWS},
            {"@h.#.post_attention_layernorm.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS},
            {"@h.#.post_attention_layernorm.bias", TFM_ROLE_FFN_NORM_B, TAKE_ROWS},
            {"@h.#.self_attention.query_key_value.weight", TFM_ROLE_Q, TAKE_GROUPS_Q},
            {"@h.#.self_attention.query_key_value.weight", TFM_ROLE_K, TAKE_GROUPS_K},
            {"@h.#.self_attention.query_key_value.weight", TFM_ROLE_V, TAKE_GROUPS_V},
            {"@h.#.self_attention.query_key_value.bias", TFM_ROLE_Q_B, TAKE_GROUPS_Q},
            {"@h.#.self_attention.query_key_value.bias", TFM_ROLE_K_B, TAKE_GROUPS_K},
            {"@h.#.self_attention.query_key_value.bias", TFM_ROLE_V_B, TAKE_GROUPS_V},
            {"@h.#.self_attention.dense.weight", TFM_ROLE_O, TAKE_ROWS},
            {"@h.#.self_attention.dense.bias", TFM_ROLE_O_B, TAKE_ROWS},
            {"@h.#.mlp.dense_h_to_4h.weight", TFM_ROLE_UP, TAKE_ROWS},
            {"@h.#.mlp.dense_h_to_4h.bias", TFM_ROLE_UP_B, TAKE_ROWS},
            {"@h.#.mlp.dense_4h_to_h.weight", TFM_ROLE_DOWN, TAKE_ROWS},
            {"@h.#.mlp.dense_4h_to_h.bias", TFM_ROLE_DOWN_B, TAKE_ROWS})),
        GGUF("bloom", RULES(
            HARMLESS(".attention.max_alibi_bias"),
            FIXED(P_EMBED_NORM, 1),
            FIXED(P_ALIBI, TFM_ALIBI_SLOPES)),
            NAMES(
            GGUF_FUSED_QKV,
            {"alibi.slopes", TFM_ROLE_SLOPES, TAKE_ROWS}))}},

    /* ALiBi by slopes of its own; LayerNorms without bias, no other bias either; q, k and v may be clamped. Keys of
     * attn_config that would change something are refused unless they are off; those listed here are not read by the
     * reference either. */
    {"mpt", "MPT", "gpt", {
        HF("mpt", RULES(
            INT("d_model", P_D_MODEL), INT("n_heads", P_N_HEADS), INT("n_layers", P_N_LAYERS),
            INT_OR("max_seq_len", P_N_CTX, 2048),
            BOOL_OR("tie_word_embeddings", P_TIED, 1),
            SPECIAL("attn_config", P_NESTED),
            REAL("clip_qkv", P_QKV_CLAMP),
            REAL("softmax_scale", P_ATTN_SCALE),
            HARMLESS("alibi"), HARMLESS("alibi_bias_max"), HARMLESS("attn_impl"),
            HARMLESS("attn_type"), HARMLESS("attn_pdrop"),
            HARMLESS("expansion_ratio"), HARMLESS("learned_pos_emb"), HARMLESS("emb_pdrop"), HARMLESS("init_config"),
            HARMLESS("init_device"), HARMLESS("embedding_fraction"), HARMLESS("norm_type"), HARMLESS("no_bias"),
            HARMLESS("tokenizer_name"), HARMLESS("verbose"), HARMLESS("ffn_config"), HARMLESS("problem_type"),
            FIXED(P_ACT, TFM_ACT_GELU_ERF),
            FIXED(P_BIAS, 0),
            FIXED(P_ALIBI, TFM_ALIBI_SLOPES),
            FIXED(P_SLOPE_RULE, SLOPES_ABOVE)), NAMES(
            {"alibi.slopes", TFM_ROLE_SLOPES, TAKE_ROWS},
            {"@norm_f.weight", TFM_ROLE_OUT_NORM, TAKE_ROWS},
            {"@blocks.#.norm_1.weight", TFM_ROLE_ATTN_NORM, TAKE_ROWS},
            {"@blocks.#.norm_2.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS},
            {"@blocks.#.attn.Wqkv.weight", TFM_ROLE_Q, TAKE_ALL_Q},
            {"@blocks.#.attn.Wqkv.weight", TFM_ROLE_K, TAKE_ALL_K},
            {"@blocks.#.attn.Wqkv.weight", TFM_ROLE_V, TAKE_ALL_V},
            {"@blocks.#.attn.out_proj.weight", TFM_ROLE_O, TAKE_ROWS},
            {"@blocks.#.ffn.up_proj.weight", TFM_ROLE_UP, TAKE_ROWS},
            {"@blocks.#.ffn.down_proj.weight", TFM_ROLE_DOWN, TAKE_ROWS})),
        GGUF("mpt", RULES(
            REAL(".attention.clamp_kqv", P_QKV_CLAMP),
            HARMLESS(".attention.max_alibi_bias"), /* 8 */
            FIXED(P_ACT, TFM_ACT_GELU_ERF),
            FIXED(P_ALIBI, TFM_ALIBI_SLOPES),
            FIXED(P_SLOPE_RULE, SLOPES_ABOVE)),
            NAMES(
            GGUF_FUSED_QKV,
            {"alibi.slopes", TFM_ROLE_SLOPES, TAKE_ROWS}))}},

    /* Parallel branches under one norm, one key/value head; without multi_query as many as heads. */
    {"falcon", "Falcon (7B, 1B)", "bloom", {
        HF("falcon", RULES(
            NAME_OR("multi_query", P_N_KV_HEADS, 1, multi_query),
            HARMLESS("num_kv_heads"), HARMLESS("n_head_kv"), /* read in the newer form alone */
            NAME_OR("parallel_attn", P_RESIDUAL, TFM_RESIDUAL_PARALLEL_1, parallel_1),
            INT("ffn_hidden_size", P_D_FF),
            NAME_OR("activation", P_ACT, TFM_ACT_GELU_ERF, activations),
            BITS("bias", P_BIAS, BIAS_QKV | TFM_BIAS_O | TFM_BIAS_UP | TFM_BIAS_DOWN),
            BOOL_OR("tie_word_embeddings", P_TIED, 1),
            HARMLESS("apply_residual_connection_post_layernorm"), HARMLESS("num_ln_in_parallel_attn"),
            FIXED(P_BIAS, TFM_BIAS_NORM),
            FIXED(P_ROPE_STYLE, TFM_ROPE_HALF),
            FIXED(P_EMBED_NORM, 0),
            NAME_OR("alibi", P_ALIBI, TFM_ALIBI_NONE, falcon_alibi),
            NAME("alibi", P_ROPE_STYLE, falcon_rope)), NULL),
        GGUF("falcon", RULES(
            FIXED(P_ACT, TFM_ACT_GELU_ERF),
            FIXED(P_RESIDUAL, TFM_RESIDUAL_PARALLEL_1),
            FIXED(P_ROPE_STYLE, TFM_ROPE_HALF),
            FIXED(P_EMBED_NORM, 0),
            FIXED(P_ALIBI, TFM_ALIBI_NONE)), NULL)}},

    /* The newer form: key/value heads by number, a norm for each branch unless num_ln_in_parallel_attn is 1. */
    {"falcon_new", "Falcon (40B, 11B, 180B)", "falcon", {
        HF("new_decoder_architecture= falcon", RULES(
            HARMLESS("new_decoder_architecture"), HARMLESS("multi_query"), HARMLESS("parallel_attn"),
            INT("num_kv_heads", P_N_KV_HEADS), INT("n_head_kv", P_N_KV_HEADS),
            FIXED(P_N_KV_HEADS, -1), /* as many as heads */
            INT("num_ln_in_parallel_attn", P_RESIDUAL), /* 1 and 2 are the numbers of those residuals too */
            FIXED(P_RESIDUAL, TFM_RESIDUAL_PARALLEL_2)), NAMES(
            {"@h.#.ln_attn.weight", TFM_ROLE_ATTN_NORM, TAKE_ROWS},
            {"@h.#.input_layernorm.weight", TFM_ROLE_ATTN_NORM, TAKE_ROWS},
            {"@h.#.ln_attn.bias", TFM_ROLE_ATTN_NORM_B, TAKE_ROWS},
            {"@h.#.input_layernorm.bias", TFM_ROLE_ATTN_NORM_B, TAKE_ROWS},
            {"@h.#.ln_mlp.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS},
            {"@h.#.ln_mlp.bias", TFM_ROLE_FFN_NORM_B, TAKE_ROWS})),
        GGUF("blk.0.attn_norm_2.weight= falcon", RULES(
            FIXED(P_RESIDUAL, TFM_RESIDUAL_PARALLEL_2)),
            NAMES(
            {"blk.#.attn_norm_2.weight", TFM_ROLE_ATTN_NORM, TAKE_ROWS},
            {"blk.#.attn_norm_2.bias", TFM_ROLE_ATTN_NORM_B, TAKE_ROWS},
            {"blk.#.attn_norm.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS},
            {"blk.#.attn_norm.bias", TFM_ROLE_FFN_NORM_B, TAKE_ROWS}))}},

/* ---- PHI 1 AND 2, PERSIMMON ------------------------------------------------------------------------------------ */

    /* Parallel branches under one norm, a bias at the head too; partial RoPE. */
    {"phi", "Phi-1, Phi-2", "gpt", {
        [FORM_HF] = {"phi", RULES(
            REAL_OR("layer_norm_eps", P_NORM_EPS, 1e-5),
            NAME_OR("hidden_act", P_ACT, TFM_ACT_GELU_TANH, activations),
            REAL_OR("partial_rotary_factor", P_ROPE_PART, 0.5),
            BITS("qk_layernorm", P_QK_NORM, TFM_QKNORM_HEAD),
            BITS("qk_layernorm", P_BIAS, TFM_BIAS_QK_NORM),
            FIXED(P_RESIDUAL, TFM_RESIDUAL_PARALLEL_1),
            FIXED(P_ROPE_STYLE, TFM_ROPE_HALF),
            FIXED(P_HEAD_BIAS, 1)), NAMES(
            {"@embed_tokens.weight", TFM_ROLE_EMBED, TAKE_ROWS},
            {"@final_layernorm.weight", TFM_ROLE_OUT_NORM, TAKE_ROWS},
            {"@final_layernorm.bias", TFM_ROLE_OUT_NORM_B, TAKE_ROWS},
            {"@layers.#.input_layernorm.weight", TFM_ROLE_ATTN_NORM, TAKE_ROWS},
            {"@layers.#.input_layernorm.bias", TFM_ROLE_ATTN_NORM_B, TAKE_ROWS},
            {"@layers.#.self_attn.q_layernorm.weight", TFM_ROLE_Q_NORM, TAKE_ROWS},
            {"@layers.#.self_attn.q_layernorm.bias", TFM_ROLE_Q_NORM_B, TAKE_ROWS},
            {"@layers.#.self_attn.k_layernorm.weight", TFM_ROLE_K_NORM, TAKE_ROWS},
            {"@layers.#.self_attn.k_layernorm.bias", TFM_ROLE_K_NORM_B, TAKE_ROWS},
            {"@layers.#.self_attn.dense.weight", TFM_ROLE_O, TAKE_ROWS},
            {"@layers.#.self_attn.dense.bias", TFM_ROLE_O_B, TAKE_ROWS},
            {"@layers.#.mlp.fc1.weight", TFM_ROLE_UP, TAKE_ROWS},
            {"@layers.#.mlp.fc1.bias", TFM_ROLE_UP_B, TAKE_ROWS},
            {"@layers.#.mlp.fc2.weight", TFM_ROLE_DOWN, TAKE_ROWS},
            {"@layers.#.mlp.fc2.bias", TFM_ROLE_DOWN_B, TAKE_ROWS}), hf_prefixes, NULL, NULL},
        GGUF("phi2", RULES(
            HARMLESS(".feed_forward_length"), /* written as 4 * d_model: the matrices say */
            FIXED(P_RESIDUAL, TFM_RESIDUAL_PARALLEL_1),
            FIXED(P_ROPE_STYLE, TFM_ROPE_HALF)), NULL)}},

    /* Sequential; q, k and v head by head, normed with bias; squared ReLU. */
    {"persimmon", "Persimmon", "phi", {
        HF("persimmon", RULES(
            NAME_OR("hidden_act", P_ACT, TFM_ACT_RELU2, activations),
            INT_OR("max_position_embeddings", P_N_CTX, 16384),
            BITS_ON("qk_layernorm", P_QK_NORM, TFM_QKNORM_HEAD),
            BITS_ON("qk_layernorm", P_BIAS, TFM_BIAS_QK_NORM),
            FIXED(P_RESIDUAL, TFM_RESIDUAL_SEQUENTIAL),
            FIXED(P_HEAD_BIAS, 0)), NAMES(
            {"@layers.#.post_attention_layernorm.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS},
            {"@layers.#.post_attention_layernorm.bias", TFM_ROLE_FFN_NORM_B, TAKE_ROWS},
            {"@layers.#.self_attn.query_key_value.weight", TFM_ROLE_Q, TAKE_GROUPS_Q},
            {"@layers.#.self_attn.query_key_value.weight", TFM_ROLE_K, TAKE_GROUPS_K},
            {"@layers.#.self_attn.query_key_value.weight", TFM_ROLE_V, TAKE_GROUPS_V},
            {"@layers.#.self_attn.query_key_value.bias", TFM_ROLE_Q_B, TAKE_GROUPS_Q},
            {"@layers.#.self_attn.query_key_value.bias", TFM_ROLE_K_B, TAKE_GROUPS_K},
            {"@layers.#.self_attn.query_key_value.bias", TFM_ROLE_V_B, TAKE_GROUPS_V},
            {"@layers.#.mlp.dense_h_to_4h.weight", TFM_ROLE_UP, TAKE_ROWS},
            {"@layers.#.mlp.dense_h_to_4h.bias", TFM_ROLE_UP_B, TAKE_ROWS},
            {"@layers.#.mlp.dense_4h_to_h.weight", TFM_ROLE_DOWN, TAKE_ROWS},
            {"@layers.#.mlp.dense_4h_to_h.bias", TFM_ROLE_DOWN_B, TAKE_ROWS}))}},
    FAMILIES_END};
