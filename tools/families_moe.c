/* families_moe.c - mixtures of experts. See family_rows.h. */
#include "family_rows.h"

/* How experts, routers and shared experts are called: one tensor an expert under two names, or all experts in one. */
static const name_row moe_names[] = {
    {"@layers.#.mlp.gate.weight", TFM_ROLE_ROUTER, TAKE_ROWS},
    {"@layers.#.mlp.router.weight", TFM_ROLE_ROUTER, TAKE_ROWS},
    {"@layers.#.block_sparse_moe.gate.weight", TFM_ROLE_ROUTER, TAKE_ROWS},
    {"@layers.#.mlp.gate.e_score_correction_bias", TFM_ROLE_ROUTER_SELECT_B, TAKE_ROWS},
    {"@layers.#.mlp.e_score_correction_bias", TFM_ROLE_ROUTER_SELECT_B, TAKE_ROWS},
    {"@layers.#.block_sparse_moe.e_score_correction_bias", TFM_ROLE_ROUTER_SELECT_B, TAKE_ROWS},
    {"@layers.#.mlp.moe_statics.e_score_correction_bias", TFM_ROLE_ROUTER_SELECT_B, TAKE_ROWS},
    {"@layers.#.mlp.gate.moe_statics.e_score_correction_bias", TFM_ROLE_ROUTER_SELECT_B, TAKE_ROWS},
    {"@layers.#.mlp.experts.~.gate_proj.weight", TFM_ROLE_EXPERT_GATE, TAKE_ROWS},
    {"@layers.#.mlp.experts.~.up_proj.weight", TFM_ROLE_EXPERT_UP, TAKE_ROWS},
    {"@layers.#.mlp.experts.~.down_proj.weight", TFM_ROLE_EXPERT_DOWN, TAKE_ROWS},
    {"@layers.#.block_sparse_moe.experts.~.w1.weight", TFM_ROLE_EXPERT_GATE, TAKE_ROWS},
    {"@layers.#.block_sparse_moe.experts.~.w3.weight", TFM_ROLE_EXPERT_UP, TAKE_ROWS},
    {"@layers.#.block_sparse_moe.experts.~.w2.weight", TFM_ROLE_EXPERT_DOWN, TAKE_ROWS},
    {"@layers.#.mlp.experts.gate_up_proj", TFM_ROLE_EXPERT_GATE, TAKE_EXPERTS | TAKE_FIRST_HALF},
    {"@layers.#.mlp.experts.gate_up_proj", TFM_ROLE_EXPERT_UP, TAKE_EXPERTS | TAKE_SECOND_HALF},
    {"@layers.#.mlp.experts.down_proj", TFM_ROLE_EXPERT_DOWN, TAKE_EXPERTS},
    {"@layers.#.mlp.gate_proj.weight", TFM_ROLE_GATE, TAKE_ROWS},
    {"@layers.#.mlp.up_proj.weight", TFM_ROLE_UP, TAKE_ROWS},
    {"@layers.#.mlp.down_proj.weight", TFM_ROLE_DOWN, TAKE_ROWS},
    {"@layers.#.mlp.shared_expert.gate_proj.weight", TFM_ROLE_GATE, TAKE_ROWS},
    {"@layers.#.mlp.shared_expert.up_proj.weight", TFM_ROLE_UP, TAKE_ROWS},
    {"@layers.#.mlp.shared_expert.down_proj.weight", TFM_ROLE_DOWN, TAKE_ROWS},
    {"@layers.#.mlp.shared_experts.gate_proj.weight", TFM_ROLE_GATE, TAKE_ROWS},
    {"@layers.#.mlp.shared_experts.up_proj.weight", TFM_ROLE_UP, TAKE_ROWS},
    {"@layers.#.mlp.shared_experts.down_proj.weight", TFM_ROLE_DOWN, TAKE_ROWS},
    {"@layers.#.mlp.gate_proj.bias", TFM_ROLE_GATE_B, TAKE_ROWS},
    {"@layers.#.mlp.up_proj.bias", TFM_ROLE_UP_B, TAKE_ROWS},
    {"@layers.#.mlp.down_proj.bias", TFM_ROLE_DOWN_B, TAKE_ROWS},
    {"@layers.#.mlp.shared_experts.gate_proj.bias", TFM_ROLE_GATE_B, TAKE_ROWS},
    {"@layers.#.mlp.shared_experts.up_proj.bias", TFM_ROLE_UP_B, TAKE_ROWS},
    {"@layers.#.mlp.shared_experts.down_proj.bias", TFM_ROLE_DOWN_B, TAKE_ROWS},
    {"@layers.#.mlp.shared_expert_gate.weight", TFM_ROLE_SHARED_GATE, TAKE_ROWS},
    {"lm_head.bias", TFM_ROLE_HEAD_B, TAKE_ROWS},
    NAMES_END};

/* What no Llama 4 checkpoint says. */
#define LLAMA4_PARTS \
    FIXED(P_ROPE_STYLE, TFM_ROPE_INTERLEAVED), FIXED(P_ROPE_LAYERS, ROPE_IN_PERIOD), \
    FIXED(P_WINDOW_RULE, WINDOW_WITH_ROPE), FIXED(P_CHUNKED, 1), FIXED(P_QK_AFTER_ROPE, 1), FIXED(P_QK_NO_WEIGHT, 1), \
    FIXED(P_QK_WITH_ROPE, 1), FIXED(P_TEMPERATURE_NO_ROPE, 1), FIXED(P_TEMPERATURE_OFFSET, 1), \
    FIXED(P_ROUTER_SCORE, TFM_SCORE_LOGIT), FIXED(P_ROUTER_WEIGHT, TFM_WEIGH_SIGMOID), FIXED(P_ROUTER_ON_INPUT, 1)

/* GGUF keeps all experts of a layer in one tensor; its first files had one for each. */
static const name_row moe_gguf_names[] = {
    {"blk.#.ffn_gate_inp.weight", TFM_ROLE_ROUTER, TAKE_ROWS},
    {"blk.#.ffn_gate_inp.bias", TFM_ROLE_ROUTER_B, TAKE_ROWS},
    {"blk.#.exp_probs_b.bias", TFM_ROLE_ROUTER_SELECT_B, TAKE_ROWS},
    {"blk.#.ffn_gate_exps.weight", TFM_ROLE_EXPERT_GATE, TAKE_EXPERTS},
    {"blk.#.ffn_up_exps.weight", TFM_ROLE_EXPERT_UP, TAKE_EXPERTS},
    {"blk.#.ffn_down_exps.weight", TFM_ROLE_EXPERT_DOWN, TAKE_EXPERTS},
    {"blk.#.ffn_gate.~.weight", TFM_ROLE_EXPERT_GATE, TAKE_ROWS},
    {"blk.#.ffn_up.~.weight", TFM_ROLE_EXPERT_UP, TAKE_ROWS},
    {"blk.#.ffn_down.~.weight", TFM_ROLE_EXPERT_DOWN, TAKE_ROWS},
    {"blk.#.ffn_gate_exps.bias", TFM_ROLE_EXPERT_GATE_B, TAKE_EXPERTS},
    {"blk.#.ffn_up_exps.bias", TFM_ROLE_EXPERT_UP_B, TAKE_EXPERTS},
    {"blk.#.ffn_down_exps.bias", TFM_ROLE_EXPERT_DOWN_B, TAKE_EXPERTS},
    {"blk.#.ffn_gate.weight", TFM_ROLE_GATE, TAKE_ROWS},
    {"blk.#.ffn_up.weight", TFM_ROLE_UP, TAKE_ROWS},
    {"blk.#.ffn_down.weight", TFM_ROLE_DOWN, TAKE_ROWS},
    {"blk.#.ffn_gate_shexp.weight", TFM_ROLE_GATE, TAKE_ROWS},
    {"blk.#.ffn_up_shexp.weight", TFM_ROLE_UP, TAKE_ROWS},
    {"blk.#.ffn_down_shexp.weight", TFM_ROLE_DOWN, TAKE_ROWS},
    {"blk.#.ffn_gate_inp_shexp.weight", TFM_ROLE_SHARED_GATE, TAKE_ROWS},
    {"blk.#.attn_sinks.weight", TFM_ROLE_SINKS, TAKE_ROWS},
    NAMES_END};

const family families_moe[] = {
    {"moe", NULL, "decoder", {
        [FORM_HF] = {NULL, RULES(
            INT("num_experts_per_tok", P_N_EXPERTS_USED),
            INT("num_local_experts", P_N_EXPERTS), INT("num_experts", P_N_EXPERTS),
            INT("n_routed_experts", P_N_EXPERTS),
            FIXED(P_ROUTER_SCORE, TFM_SCORE_SOFTMAX),
            HARMLESS("output_router_logits"), HARMLESS("router_aux_loss_coef"), HARMLESS("router_jitter_noise"),
            HARMLESS("input_jitter_noise"), INT("num_nextn_predict_layers", P_N_EXTRA_LAYERS)), moe_names,
            NULL, NULL, STRINGS("*.mtp_*")}, /* what predicts further tokens */
        /* which layers are mixtures, and which biases there are, the tensors say; of the former keys tell others */
        GGUF(NULL, RULES(
            INT(".expert_count", P_N_EXPERTS), INT(".expert_used_count", P_N_EXPERTS_USED),
            INT(".expert_feed_forward_length", P_D_EXPERT),
            INT(".expert_shared_feed_forward_length", P_D_SHARED), INT(".expert_shared_count", P_N_SHARED),
            REAL(".expert_weights_scale", P_ROUTER_SCALE), BOOL(".expert_weights_norm", P_ROUTER_NORM),
            INT(".expert_gating_func", P_ROUTER_GATING),
            INT(".expert_group_count", P_N_GROUPS), INT(".expert_group_used_count", P_N_GROUPS_USED),
            INT(".nextn_predict_layers", P_N_EXTRA_LAYERS),
            INT(".leading_dense_block_count", P_MOE_FIRST),
            FIXED(P_EXTRA_COUNTED, 1),
            FIXED(P_ROUTER_SCORE, TFM_SCORE_SOFTMAX),
            FIXED(P_GROUP_SCORE, TFM_GROUP_TWO)), moe_gguf_names)}},

    /* Softmax over all experts, the weights of those picked brought to the sum 1. */
    {"mixtral", "Mixtral", "moe", {
        HF("mixtral", RULES(
            INT_OR("num_local_experts", P_N_EXPERTS, 8),
            INT_OR("num_experts_per_tok", P_N_EXPERTS_USED, 2),
            INT_OR("max_position_embeddings", P_N_CTX, 131072),
            INT("sliding_window", P_WINDOW),
            REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-5),
            REAL_OR("rope_theta", P_ROPE_THETA, 1e6),
            INT_OR("bos_token_id", P_BOS, 1),
            FIXED(P_WINDOW_RULE, WINDOW_ALL),
            FIXED(P_ROUTER_NORM, 1)), NULL),
        GGUF("blk.0.ffn_gate_inp.weight= llama", RULES(
            INT(".attention.sliding_window", P_WINDOW),
            FIXED(P_WINDOW_RULE, WINDOW_ALL),
            FIXED(P_ROUTER_NORM, 1)), NAMES(
            {"blk.#.attn_q.weight", TFM_ROLE_Q, TAKE_PAIRS_Q},
            {"blk.#.attn_k.weight", TFM_ROLE_K, TAKE_PAIRS_K}))}},

    /* A shared expert with a gate of its own; every other layer below max_window_layers may have a window. */
    {"qwen2_moe", "Qwen 1.5, 2 MoE", "moe", {
        HF("qwen2_moe", RULES(
            INT_OR("num_experts", P_N_EXPERTS, 60),
            INT_OR("num_experts_per_tok", P_N_EXPERTS_USED, 4),
            INT_OR("moe_intermediate_size", P_D_EXPERT, 1408),
            INT_OR("shared_expert_intermediate_size", P_D_SHARED, 5632),
            INT_OR("decoder_sparse_step", P_MOE_STEP, 1),
            SPECIAL("mlp_only_layers", P_DENSE_LAYERS),
            BOOL_OR("norm_topk_prob", P_ROUTER_NORM, 0),
            INT_OR("max_position_embeddings", P_N_CTX, 32768),
            INT_OR_OFF("sliding_window", P_WINDOW, 4096),
            BOOL_OR("use_sliding_window", P_WINDOW_ON, 0),
            INT_OR("max_window_layers", P_WINDOW_FIRST, 28),
            BITS_ON("qkv_bias", P_BIAS, BIAS_QKV),
            FIXED(P_WINDOW_RULE, WINDOW_EVEN_BELOW),
            FIXED(P_SHARED_GATE, 1)), NULL),
        GGUF("qwen2moe", RULES(FIXED(P_SHARED_GATE, 1)), NULL)}},

    {"qwen3_moe", "Qwen 3 MoE", "moe", {
        HF("qwen3_moe", RULES(
            INT_OR("num_experts", P_N_EXPERTS, 128),
            INT_OR("num_local_experts", P_N_EXPERTS, 128),
            INT_OR("num_experts_per_tok", P_N_EXPERTS_USED, 8),
            INT_OR("moe_intermediate_size", P_D_EXPERT, 768),
            INT_OR("decoder_sparse_step", P_MOE_STEP, 1),
            SPECIAL("mlp_only_layers", P_DENSE_LAYERS),
            BOOL_OR("norm_topk_prob", P_ROUTER_NORM, 0),
            INT_OR("max_position_embeddings", P_N_CTX, 32768),
            INT_OR_OFF("sliding_window", P_WINDOW, 4096),
            BOOL_OR("use_sliding_window", P_WINDOW_ON, 0),
            HARMLESS("max_window_layers"),
            BITS("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
            FIXED(P_WINDOW_RULE, WINDOW_ALL),
            FIXED(P_QK_NORM, TFM_QKNORM_HEAD)), NULL),
        GGUF("qwen3moe", RULES(
            FIXED(P_ROUTER_NORM, 1),
            FIXED(P_QK_NORM, TFM_QKNORM_HEAD)), NULL)}},

    /* q and k normed over their whole width, then clamped. */
    {"olmoe", "OLMoE", "moe", {
        HF("olmoe", RULES(
            INT_OR("num_experts", P_N_EXPERTS, 64),
            INT_OR("num_experts_per_tok", P_N_EXPERTS_USED, 8),
            BOOL_OR("norm_topk_prob", P_ROUTER_NORM, 0),
            INT_OR("max_position_embeddings", P_N_CTX, 4096),
            REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-5),
            REAL("clip_qkv", P_QKV_CLAMP),
            BITS("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
            FIXED(P_QK_NORM, TFM_QKNORM_FULL)), NULL),
        GGUF("olmoe", RULES(
            REAL(".attention.clamp_kqv", P_QKV_CLAMP),
            FIXED(P_QK_NORM, TFM_QKNORM_FULL)), NULL)}},

    /* LayerNorms without bias; weights over their Lp norm; w2 of each expert is stored by columns. */
    {"dbrx", "DBRX", "moe", {
        [FORM_HF] = {"dbrx", RULES(
            INT("d_model", P_D_MODEL), INT("n_heads", P_N_HEADS), INT("n_layers", P_N_LAYERS),
            INT("hidden_size", P_NONE), INT("num_attention_heads", P_NONE), INT("num_hidden_layers", P_NONE),
            INT("intermediate_size", P_NONE), INT("num_key_value_heads", P_N_KV_HEADS),
            INT_OR("max_seq_len", P_N_CTX, 2048),
            SPECIAL("attn_config", P_NESTED),
            INT("kv_n_heads", P_N_KV_HEADS),
            REAL("clip_qkv", P_QKV_CLAMP),
            SPECIAL("ffn_config", P_NESTED),
            INT("ffn_hidden_size", P_D_EXPERT),
            INT("moe_num_experts", P_N_EXPERTS),
            INT("moe_top_k", P_N_EXPERTS_USED),
            REAL_OR_OFF("moe_normalize_expert_weights", P_ROUTER_NORM, 1),
            SPECIAL("ffn_act_fn", P_NESTED),
            NAME("name", P_ACT, activations),
            HARMLESS("attn_pdrop"), HARMLESS("emb_pdrop"), HARMLESS("moe_jitter_eps"), HARMLESS("moe_loss_weight"),
            HARMLESS("uniform_expert_assignment"),
            FIXED(P_NORM_KIND, TFM_NORM_LAYER),
            FIXED(P_NORM_EPS, 1e-5)), NAMES(
            {"@wte.weight", TFM_ROLE_EMBED, TAKE_ROWS},
            {"@norm_f.weight", TFM_ROLE_OUT_NORM, TAKE_ROWS},
            {"@blocks.#.norm_attn_norm.norm_1.weight", TFM_ROLE_ATTN_NORM, TAKE_ROWS},
            {"@blocks.#.norm_attn_norm.norm_2.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS},
            {"@blocks.#.norm_attn_norm.attn.Wqkv.weight", TFM_ROLE_Q, TAKE_ALL_Q},
            {"@blocks.#.norm_attn_norm.attn.Wqkv.weight", TFM_ROLE_K, TAKE_ALL_K},
            {"@blocks.#.norm_attn_norm.attn.Wqkv.weight", TFM_ROLE_V, TAKE_ALL_V},
            {"@blocks.#.norm_attn_norm.attn.out_proj.weight", TFM_ROLE_O, TAKE_ROWS},
            {"@blocks.#.ffn.router.layer.weight", TFM_ROLE_ROUTER, TAKE_ROWS},
            {"@blocks.#.ffn.experts.mlp.w1", TFM_ROLE_EXPERT_GATE, TAKE_EXPERTS},
            {"@blocks.#.ffn.experts.mlp.v1", TFM_ROLE_EXPERT_UP, TAKE_EXPERTS},
            {"@blocks.#.ffn.experts.mlp.w2", TFM_ROLE_EXPERT_DOWN, TAKE_EXPERTS | TAKE_COLUMNS}),
            STRINGS("transformer.", ""), NULL, NULL},
        GGUF("dbrx", RULES(
            REAL(".attention.layer_norm_rms_epsilon", P_NORM_EPS),
            NEED_REAL(".attention.layer_norm_epsilon", P_NORM_EPS),
            REAL(".attention.clamp_kqv", P_QKV_CLAMP),
            FIXED(P_NORM_KIND, TFM_NORM_LAYER),
            FIXED(P_ROUTER_NORM, 1)), NAMES(
            {"blk.#.attn_output_norm.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS},
            GGUF_FUSED_QKV))}},

    /* Two rounds that each take the largest logit; LayerNorms and all of attention with biases. */
    {"phimoe", "Phi-3.5-MoE", "moe", {
        HF("phimoe", RULES(
            INT_OR("num_local_experts", P_N_EXPERTS, 16),
            INT_OR("num_experts_per_tok", P_N_EXPERTS_USED, 2),
            INT_OR("max_position_embeddings", P_N_CTX, 131072),
            INT("sliding_window", P_WINDOW),
            REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-5),
            REAL_OR("rope_theta", P_ROPE_THETA, 1e6),
            REAL_OR("router_jitter_noise", P_ROUTER_JITTER, 0.01),
            INT_OR("bos_token_id", P_BOS, 1),
            FIXED(P_BIAS, TFM_BIAS_NORM),
            BITS("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
            BOOL("lm_head_bias", P_HEAD_BIAS),
            FIXED(P_NORM_KIND, TFM_NORM_LAYER),
            FIXED(P_WINDOW_RULE, WINDOW_ALL),
            FIXED(P_ROUTER_SCORE, TFM_SCORE_LOGIT),
            FIXED(P_ROUTER_PICK, TFM_PICK_SPARSE_MIXER)), NAMES(
            {"@norm.bias", TFM_ROLE_OUT_NORM_B, TAKE_ROWS},
            {"@layers.#.input_layernorm.bias", TFM_ROLE_ATTN_NORM_B, TAKE_ROWS},
            {"@layers.#.post_attention_layernorm.bias", TFM_ROLE_FFN_NORM_B, TAKE_ROWS})),
        GGUF("phimoe", RULES(
            INT(".attention.sliding_window", P_WINDOW),
            REAL(".rope.scaling.attn_factor", P_ROPE_ATTN_FACTOR),
            FIXED(P_WINDOW_RULE, WINDOW_ALL),
            FIXED(P_NORM_KIND, TFM_NORM_LAYER),
            FIXED(P_ROUTER_JITTER, 0.01),
            FIXED(P_ROUTER_SCORE, TFM_SCORE_LOGIT),
            FIXED(P_ROUTER_PICK, TFM_PICK_SPARSE_MIXER)), NULL)}},

    /* Granite's multipliers; softmax over the experts picked alone. */
    {"granitemoe", "Granite 3 MoE", "granite", {
        HF("granitemoe granitemoeshared", RULES(
            INT_OR("num_local_experts", P_N_EXPERTS, 8),
            INT_OR("num_experts_per_tok", P_N_EXPERTS_USED, 2),
            INT("shared_intermediate_size", P_D_SHARED),
            HARMLESS("output_router_logits"), HARMLESS("router_aux_loss_coef"),
            FIXED(P_ROUTER_WEIGHT, TFM_WEIGH_SOFTMAX)), NAMES(
            {"@layers.#.block_sparse_moe.router.layer.weight", TFM_ROLE_ROUTER, TAKE_ROWS},
            {"@layers.#.block_sparse_moe.router.weight", TFM_ROLE_ROUTER, TAKE_ROWS},
            {"@layers.#.block_sparse_moe.input_linear.weight", TFM_ROLE_EXPERT_GATE, TAKE_EXPERTS | TAKE_FIRST_HALF},
            {"@layers.#.block_sparse_moe.input_linear.weight", TFM_ROLE_EXPERT_UP, TAKE_EXPERTS | TAKE_SECOND_HALF},
            {"@layers.#.block_sparse_moe.output_linear.weight", TFM_ROLE_EXPERT_DOWN, TAKE_EXPERTS},
            {"@layers.#.block_sparse_moe.experts.gate_up_proj", TFM_ROLE_EXPERT_GATE, TAKE_EXPERTS | TAKE_FIRST_HALF},
            {"@layers.#.block_sparse_moe.experts.gate_up_proj", TFM_ROLE_EXPERT_UP, TAKE_EXPERTS | TAKE_SECOND_HALF},
            {"@layers.#.block_sparse_moe.experts.down_proj", TFM_ROLE_EXPERT_DOWN, TAKE_EXPERTS},
            {"@layers.#.shared_mlp.input_linear.weight", TFM_ROLE_GATE, TAKE_FIRST_HALF},
            {"@layers.#.shared_mlp.input_linear.weight", TFM_ROLE_UP, TAKE_SECOND_HALF},
            {"@layers.#.shared_mlp.output_linear.weight", TFM_ROLE_DOWN, TAKE_ROWS})),
        GGUF("granitemoe", RULES(
            INT(".expert_count", P_N_EXPERTS), INT(".expert_used_count", P_N_EXPERTS_USED),
            INT(".expert_feed_forward_length", P_D_EXPERT),
            INT(".expert_shared_feed_forward_length", P_D_SHARED),
            FIXED(P_ROUTER_WEIGHT, TFM_WEIGH_SOFTMAX)), moe_gguf_names)}},

    /* Sinks; down((up + 1) * gate * sigmoid(1.702 gate)) of clamped gate and up; biases on the router and the experts,
     * whose gate and up stand in turns, by columns where they are floats. */
    {"gpt_oss", "gpt-oss", "moe", {
        HF("gpt_oss", RULES(
            INT_OR("num_local_experts", P_N_EXPERTS, 128),
            INT_OR("num_experts_per_tok", P_N_EXPERTS_USED, 4),
            INT_OR("head_dim", P_HEAD_DIM, 64),
            INT_OR("max_position_embeddings", P_N_CTX, 131072),
            INT_OR_OFF("sliding_window", P_WINDOW, 128),
            REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-5),
            REAL_OR("rope_theta", P_ROPE_THETA, 150000),
            REAL_OR("swiglu_limit", P_FFN_LIMIT, 7),
            REAL("swiglu_alpha", P_GLU_ALPHA),
            HARMLESS("hidden_act"), HARMLESS("experts_per_token"), HARMLESS("initial_context_length"),
            FIXED(P_BIAS, TFM_BIAS_ROUTER | TFM_BIAS_EXPERTS),
            BITS_ON("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
            FIXED(P_SINKS, 1),
            FIXED(P_ACT, TFM_ACT_GELU_QUICK),
            FIXED(P_UP_OFFSET, 1),
            FIXED(P_WINDOW_RULE, WINDOW_PERIOD),
            FIXED(P_WINDOW_PERIOD, 2),
            FIXED(P_ROUTER_SCORE, TFM_SCORE_LOGIT),
            FIXED(P_ROUTER_WEIGHT, TFM_WEIGH_SOFTMAX)), NAMES(
            {"@layers.#.self_attn.sinks", TFM_ROLE_SINKS, TAKE_ROWS},
            {"@layers.#.mlp.router.bias", TFM_ROLE_ROUTER_B, TAKE_ROWS},
            {"@layers.#.mlp.experts.gate_up_proj_blocks", TFM_ROLE_EXPERT_GATE, TAKE_EXPERTS | TAKE_EVEN},
            {"@layers.#.mlp.experts.gate_up_proj_blocks", TFM_ROLE_EXPERT_UP, TAKE_EXPERTS | TAKE_ODD},
            {"@layers.#.mlp.experts.down_proj_blocks", TFM_ROLE_EXPERT_DOWN, TAKE_EXPERTS},
            {"@layers.#.mlp.experts.gate_up_proj", TFM_ROLE_EXPERT_GATE, TAKE_EXPERTS | TAKE_COLUMNS | TAKE_EVEN},
            {"@layers.#.mlp.experts.gate_up_proj", TFM_ROLE_EXPERT_UP, TAKE_EXPERTS | TAKE_COLUMNS | TAKE_ODD},
            {"@layers.#.mlp.experts.down_proj", TFM_ROLE_EXPERT_DOWN, TAKE_EXPERTS | TAKE_COLUMNS},
            {"@layers.#.mlp.experts.gate_up_proj_bias", TFM_ROLE_EXPERT_GATE_B, TAKE_EXPERTS | TAKE_EVEN},
            {"@layers.#.mlp.experts.gate_up_proj_bias", TFM_ROLE_EXPERT_UP_B, TAKE_EXPERTS | TAKE_ODD},
            {"@layers.#.mlp.experts.down_proj_bias", TFM_ROLE_EXPERT_DOWN_B, TAKE_EXPERTS})),
        GGUF("gpt-oss", RULES(
            NEED_INT(".attention.sliding_window", P_WINDOW),
            FIXED(P_SINKS, 1),
            FIXED(P_ACT, TFM_ACT_GELU_QUICK),
            FIXED(P_FFN_LIMIT, 7),
            FIXED(P_UP_OFFSET, 1),
            FIXED(P_ROPE_TRUNCATE, 0),
            FIXED(P_WINDOW_RULE, WINDOW_PERIOD),
            FIXED(P_WINDOW_PERIOD, 2),
            FIXED(P_ROUTER_SCORE, TFM_SCORE_LOGIT),
            FIXED(P_ROUTER_WEIGHT, TFM_WEIGH_SOFTMAX)), NAMES(
            {"blk.#.post_attention_norm.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS}))}},

    /* Sigmoid scores, experts picked with a bias and by groups, weighed without it. */
    {"sigmoid_moe", NULL, "moe", {
        HF(NULL, RULES(
            INT_OR("num_experts_per_tok", P_N_EXPERTS_USED, 8),
            INT_OR("n_group", P_N_GROUPS, 1),
            INT_OR("topk_group", P_N_GROUPS_USED, 1),
            INT_OR("first_k_dense_replace", P_MOE_FIRST, 1),
            BOOL_OR("norm_topk_prob", P_ROUTER_NORM, 1),
            REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-5),
            HARMLESS("topk_method"), HARMLESS("scoring_func"),
            FIXED(P_BIAS, TFM_BIAS_SELECT),
            FIXED(P_ROUTER_SCORE, TFM_SCORE_SIGMOID),
            FIXED(P_ROUTER_NORM_EPS, 1e-20),
            FIXED(P_GROUP_SCORE, TFM_GROUP_TWO)), NULL),
        GGUF(NULL, RULES(
            FIXED(P_ROUTER_SCORE, TFM_SCORE_SIGMOID),
            FIXED(P_ROUTER_NORM_EPS, 1e-20)), NULL)}},

    {"glm4_moe", "GLM-4.5, 4.6", "sigmoid_moe", {
        HF("glm4_moe", RULES(
            INT_OR("n_routed_experts", P_N_EXPERTS, 128),
            INT_OR("n_shared_experts", P_N_SHARED, 1),
            INT_OR("moe_intermediate_size", P_D_EXPERT, 1408),
            INT_OR("max_position_embeddings", P_N_CTX, 131072),
            REAL_OR("routed_scaling_factor", P_ROUTER_SCALE, 1),
            REAL_OR("partial_rotary_factor", P_ROPE_PART, 0.5),
            BITS("attention_bias", P_BIAS, BIAS_QKV),
            BITS("use_qk_norm", P_QK_NORM, TFM_QKNORM_HEAD)), NULL),
        GGUF("glm4moe", NULL, NAMES(
            {"blk.#.post_attention_norm.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS}))}},

    /* RoPE in window layers alone. */
    {"exaone_moe", "EXAONE MoE", "sigmoid_moe", {
        HF("exaone_moe", RULES(
            INT_OR("num_experts", P_N_EXPERTS, 64),
            INT_OR("num_shared_experts", P_N_SHARED, 1),
            INT_OR("moe_intermediate_size", P_D_EXPERT, 1024),
            SPECIAL("mlp_layer_types", P_FFN_TYPES),
            REAL_OR("routed_scaling_factor", P_ROUTER_SCALE, 2.5),
            INT_OR_OFF("sliding_window", P_WINDOW, 4096),
            INT_OR("sliding_window_pattern", P_WINDOW_PERIOD, 4),
            FIXED(P_WINDOW_RULE, WINDOW_PERIOD),
            FIXED(P_ROPE_LAYERS, ROPE_IN_WINDOWS),
            FIXED(P_QK_NORM, TFM_QKNORM_HEAD)), NULL),
        GGUF("exaone-moe", RULES(
            NEED_INT(".attention.sliding_window", P_WINDOW),
            SPECIAL(".attention.sliding_window_pattern", P_LAYER_TYPES),
            FIXED(P_WINDOW_RULE, WINDOW_PERIOD),
            FIXED(P_WINDOW_PERIOD, 4),
            FIXED(P_ROPE_LAYERS, ROPE_IN_WINDOWS),
            FIXED(P_QK_NORM, TFM_QKNORM_HEAD)), NULL)}},

    /* q and k normed over their whole width; part of a head rotates. */
    {"minimax_m2", "MiniMax-M2", "moe", {
        HF("minimax_m2", RULES(
            INT_OR("num_local_experts", P_N_EXPERTS, 256),
            INT_OR("num_experts_per_tok", P_N_EXPERTS_USED, 8),
            INT_OR("head_dim", P_HEAD_DIM, 128),
            INT_OR("max_position_embeddings", P_N_CTX, 196608),
            INT("rotary_dim", P_ROPE_DIMS),
            REAL_OR("rope_theta", P_ROPE_THETA, 5e6),
            HARMLESS("attn_type_list"), HARMLESS("layernorm_full_attention_beta"), HARMLESS("layernorm_mlp_beta"),
            HARMLESS("layernorm_linear_attention_beta"), HARMLESS("mlp_intermediate_size"), HARMLESS("num_mtp_modules"),
            HARMLESS("mtp_transformer_layers"), HARMLESS("use_mtp"), HARMLESS("qk_norm_type"), HARMLESS("use_qk_norm"),
            INT("shared_intermediate_size", P_D_SHARED), HARMLESS("scoring_func"), HARMLESS("shared_moe_mode"),
            HARMLESS("swa_rope_theta"),
            HARMLESS("use_routing_bias"),
            FIXED(P_BIAS, TFM_BIAS_SELECT),
            FIXED(P_QK_NORM, TFM_QKNORM_FULL),
            FIXED(P_ROUTER_SCORE, TFM_SCORE_SIGMOID),
            FIXED(P_ROUTER_NORM, 1)), NULL),
        GGUF("minimax-m2", RULES(
            FIXED(P_QK_NORM, TFM_QKNORM_FULL),
            FIXED(P_ROUTER_SCORE, TFM_SCORE_SIGMOID),
            FIXED(P_ROUTER_NORM, 1)), NULL)}},

    /* Picked with a bias on the probabilities; interleaved RoPE; biases, if any, everywhere but on the experts. */
    {"ernie4_5_moe", "ERNIE 4.5 MoE", "moe", {
        HF("ernie4_5_moe", RULES(
            INT_OR("moe_num_experts", P_N_EXPERTS, 64),
            INT_OR("moe_k", P_N_EXPERTS_USED, 6),
            INT_OR("moe_num_shared_experts", P_N_SHARED, 2),
            INT_OR("moe_intermediate_size", P_D_EXPERT, 1536),
            INT_OR("moe_layer_start_index", P_MOE_FIRST, 1),
            INT_OR("moe_layer_end_index", P_MOE_LAST, -1),
            INT_OR("moe_layer_interval", P_MOE_STEP, 1),
            REAL_OR("moe_norm_min", P_ROUTER_NORM_FLOOR, 1e-12),
            INT_OR("max_position_embeddings", P_N_CTX, 131072),
            REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-5),
            REAL_OR("rope_theta", P_ROPE_THETA, 5e5),
            BOOL_OR("tie_word_embeddings", P_TIED, 1),
            INT_OR("bos_token_id", P_BOS, 1),
            FIXED(P_BIAS, TFM_BIAS_SELECT),
            BITS("use_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O | BIAS_MLP),
            BOOL("use_bias", P_HEAD_BIAS),
            HARMLESS("moe_capacity"), HARMLESS("moe_gate"), HARMLESS("moe_use_aux_free"), HARMLESS("use_moe"),
            HARMLESS("multi_token_pred_lambda"), HARMLESS("moe_dropout_prob"),
            FIXED(P_ROPE_STYLE, TFM_ROPE_INTERLEAVED),
            FIXED(P_ROUTER_NORM, 1)), NULL),
        GGUF("ernie4_5-moe", RULES(
            INT(".interleave_moe_layer_step", P_MOE_STEP),
            HARMLESS(".expert_shared_feed_forward_length"), /* the count says it; this is another quotient */
            FIXED(P_ROPE_STYLE, TFM_ROPE_INTERLEAVED),
            FIXED(P_ROUTER_NORM_FLOOR, 1e-12),
            FIXED(P_ROUTER_NORM, 1)), NULL)}},

    /* Chunks and RoPE in three of four layers, queries that grow with the position in the fourth; an expert's weight
     * multiplies its input. intermediate_size is that of experts; experts stand in one tensor by columns. */
    {"llama4", "Llama 4 (text)", "moe", {
        HF("llama4_text llama4", RULES(
            INT_OR("intermediate_size", P_D_EXPERT, 8192), INT_OR("intermediate_size", P_D_SHARED, 8192),
            INT_OR("intermediate_size_mlp", P_D_FF, 16384),
            INT_OR("num_local_experts", P_N_EXPERTS, 16),
            INT_OR("num_experts_per_tok", P_N_EXPERTS_USED, 1),
            SPECIAL("moe_layers", P_MOE_LAYERS),
            INT_OR("interleave_moe_layer_step", P_MOE_STEP, 1),
            INT_OR("head_dim", P_HEAD_DIM, 128),
            INT_OR("max_position_embeddings", P_N_CTX, 131072),
            REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-5),
            REAL_OR("rope_theta", P_ROPE_THETA, 5e5),
            INT_OR("bos_token_id", P_BOS, 1),
            SPECIAL("no_rope_layers", P_ROPE_FLAGS),
            INT_OR("no_rope_layer_interval", P_ROPE_PERIOD, 4),
            INT_OR_OFF("attention_chunk_size", P_WINDOW, 8192),
            BITS_ON("use_qk_norm", P_QK_NORM, TFM_QKNORM_HEAD),
            BOOL_OR("attn_temperature_tuning", P_TEMPERATURE_ON, 1),
            REAL_OR("attn_scale", P_TEMPERATURE, 0.1),
            INT_OR("floor_scale", P_TEMPERATURE_CTX, 8192),
            BITS("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
            HARMLESS("for_llm_compressor"),
            LLAMA4_PARTS), NAMES(
            {"@layers.#.feed_forward.router.weight", TFM_ROLE_ROUTER, TAKE_ROWS},
            {"@layers.#.feed_forward.experts.gate_up_proj", TFM_ROLE_EXPERT_GATE,
             TAKE_EXPERTS | TAKE_COLUMNS | TAKE_FIRST_HALF},
            {"@layers.#.feed_forward.experts.gate_up_proj", TFM_ROLE_EXPERT_UP,
             TAKE_EXPERTS | TAKE_COLUMNS | TAKE_SECOND_HALF},
            {"@layers.#.feed_forward.experts.down_proj", TFM_ROLE_EXPERT_DOWN, TAKE_EXPERTS | TAKE_COLUMNS},
            {"@layers.#.feed_forward.shared_expert.gate_proj.weight", TFM_ROLE_GATE, TAKE_ROWS},
            {"@layers.#.feed_forward.shared_expert.up_proj.weight", TFM_ROLE_UP, TAKE_ROWS},
            {"@layers.#.feed_forward.shared_expert.down_proj.weight", TFM_ROLE_DOWN, TAKE_ROWS},
            {"@layers.#.feed_forward.gate_proj.weight", TFM_ROLE_GATE, TAKE_ROWS},
            {"@layers.#.feed_forward.up_proj.weight", TFM_ROLE_UP, TAKE_ROWS},
            {"@layers.#.feed_forward.down_proj.weight", TFM_ROLE_DOWN, TAKE_ROWS})),
        /* only sizes are in the file; the larger model has no norms of q and k */
        GGUF("llama4", RULES(
            NEED_INT(".expert_feed_forward_length", P_D_EXPERT), INT(".expert_feed_forward_length", P_D_SHARED),
            INT(".interleave_moe_layer_step", P_MOE_STEP),
            FIXED(P_WINDOW, 8192),
            FIXED(P_ROPE_PERIOD, 4),
            FIXED(P_TEMPERATURE, 0.1),
            FIXED(P_TEMPERATURE_CTX, 8192),
            FIXED(P_QK_NORM, TFM_QKNORM_HEAD),
            FIXED(P_QK_NOT_EXPERTS, 128),
            LLAMA4_PARTS), NULL)}},

    /* Norms before and after each branch; the scale of the scores is a key; scores are capped. */
    {"grok1", "Grok-1", "moe", {
        HF("grok-1 grok1", RULES(
            INT_OR("num_experts", P_N_EXPERTS, 8),
            INT_OR("num_experts_per_tok", P_N_EXPERTS_USED, 2),
            INT_OR("max_position_embeddings", P_N_CTX, 8192),
            REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-5),
            NAME_OR("hidden_act", P_ACT, TFM_ACT_GELU_TANH, activations),
            REAL_OR("attn_output_multiplier", P_ATTN_SCALE, 0.08838834764831845),
            REAL_OR("max_attn_value", P_ATTN_SOFTCAP, 30),
            REAL_OR("embedding_multiplier_scale", P_EMBED_SCALE, 78.38367176906169),
            REAL_OR("output_multiplier_scale", P_LOGIT_SCALE, 0.5773502691896257),
            BOOL_OR("tie_word_embeddings", P_TIED, 1),
            HARMLESS("attn_output_multiplier_dtype"),
            FIXED(P_NORM_PLACE, TFM_PLACE_SANDWICH)), NAMES(
            {"@norm.scale", TFM_ROLE_OUT_NORM, TAKE_ROWS},
            {"@layers.#.pre_attn_norm.scale", TFM_ROLE_ATTN_NORM, TAKE_ROWS},
            {"@layers.#.post_attn_norm.scale", TFM_ROLE_ATTN_POST_NORM, TAKE_ROWS},
            {"@layers.#.pre_moe_norm.scale", TFM_ROLE_FFN_NORM, TAKE_ROWS},
            {"@layers.#.post_moe_norm.scale", TFM_ROLE_FFN_POST_NORM, TAKE_ROWS},
            {"@layers.#.attn.q_proj.weight", TFM_ROLE_Q, TAKE_ROWS},
            {"@layers.#.attn.k_proj.weight", TFM_ROLE_K, TAKE_ROWS},
            {"@layers.#.attn.v_proj.weight", TFM_ROLE_V, TAKE_ROWS},
            {"@layers.#.attn.o_proj.weight", TFM_ROLE_O, TAKE_ROWS},
            {"@layers.#.moe_block.gate.weight", TFM_ROLE_ROUTER, TAKE_ROWS},
            {"@layers.#.moe_block.experts.~.linear.weight", TFM_ROLE_EXPERT_GATE, TAKE_ROWS},
            {"@layers.#.moe_block.experts.~.linear_v.weight", TFM_ROLE_EXPERT_UP, TAKE_ROWS},
            {"@layers.#.moe_block.experts.~.linear_1.weight", TFM_ROLE_EXPERT_DOWN, TAKE_ROWS})),
        GGUF("grok", RULES(
            REAL_OR(".attention.output_scale", P_ATTN_SCALE, 0.08838834764831845),
            REAL_OR(".attn_logit_softcapping", P_ATTN_SOFTCAP, 30),
            REAL(".final_logit_softcapping", P_LOGIT_SOFTCAP),
            REAL_OR(".embedding_scale", P_EMBED_SCALE, 78.38367176906169),
            REAL_OR(".logit_scale", P_LOGIT_SCALE, 0.5773502691896257),
            HARMLESS(".router_logit_softcapping"), /* of later programs, not of the model as published */
            FIXED(P_ACT, TFM_ACT_GELU_TANH),
            FIXED(P_NORM_PLACE, TFM_PLACE_SANDWICH)), NAMES(
            {"blk.#.attn_output_norm.weight", TFM_ROLE_ATTN_POST_NORM, TAKE_ROWS},
            {"blk.#.layer_output_norm.weight", TFM_ROLE_FFN_POST_NORM, TAKE_ROWS},
            {"blk.#.post_ffw_norm.weight", TFM_ROLE_FFN_POST_NORM, TAKE_ROWS}))}},
    FAMILIES_END};
