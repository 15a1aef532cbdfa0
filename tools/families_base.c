/* families_base.c - what all families share: the keys and tensor names of Hugging Face directories and of GGUF, before
 * any family adds its own. */
#include "family_rows.h"

const named_value activations[] = {
    {"silu", TFM_ACT_SILU}, {"swish", TFM_ACT_SILU}, {"gelu", TFM_ACT_GELU_ERF}, {"gelu_new", TFM_ACT_GELU_TANH},
    {"gelu_pytorch_tanh", TFM_ACT_GELU_TANH}, {"gelu_fast", TFM_ACT_GELU_TANH}, {"quick_gelu", TFM_ACT_GELU_QUICK},
    {"relu", TFM_ACT_RELU}, {"relu2", TFM_ACT_RELU2}, {NULL, 0}};

const named_value parallel_1[] = {
    {"true", TFM_RESIDUAL_PARALLEL_1}, {"false", TFM_RESIDUAL_SEQUENTIAL}, {NULL, 0}};
const named_value parallel_2[] = {
    {"true", TFM_RESIDUAL_PARALLEL_2}, {"false", TFM_RESIDUAL_SEQUENTIAL}, {NULL, 0}};

static const named_value rope_types[] = {
    {"default", TFM_ROPE_PLAIN}, {"linear", TFM_ROPE_LINEAR}, {"dynamic", TFM_ROPE_DYNAMIC}, {"yarn", TFM_ROPE_YARN},
    {"longrope", TFM_ROPE_LONG}, {"su", TFM_ROPE_LONG}, {"llama3", TFM_ROPE_BANDS}, {NULL, 0}};

static const named_value gguf_rope_types[] = {
    {"none", TFM_ROPE_PLAIN}, {"linear", TFM_ROPE_LINEAR}, {"yarn", TFM_ROPE_YARN}, {"longrope", TFM_ROPE_LONG},
    {NULL, 0}};

/* `type` is the older spelling; where both stand, the later row wins. */
const rule rope_rules[] = {
    NAME("type", P_ROPE_SCALING, rope_types),
    NAME("rope_type", P_ROPE_SCALING, rope_types),
    REAL("rope_theta", P_ROPE_THETA),
    REAL_NOT_ZERO("factor", P_ROPE_FACTOR),
    REAL("low_freq_factor", P_ROPE_LOW),
    REAL("high_freq_factor", P_ROPE_HIGH),
    INT("original_max_position_embeddings", P_ROPE_CTX_ORIG),
    REAL("beta_slow", P_ROPE_SLOW),
    REAL("beta_fast", P_ROPE_FAST),
    REAL_NOT_ZERO("attention_factor", P_ROPE_ATTN_FACTOR),
    REAL("mscale", P_ROPE_MSCALE),
    REAL("mscale_all_dim", P_ROPE_MSCALE_ALL),
    REAL("short_mscale", P_ROPE_MSCALE),
    REAL("long_mscale", P_ROPE_MSCALE_ALL),
    BOOL("truncate", P_ROPE_TRUNCATE),
    REAL("partial_rotary_factor", P_ROPE_PART),
    REAL("llama_4_scaling_beta", P_TEMPERATURE),
    REAL("alpha", P_ROPE_ALPHA),
    REAL("base", P_ROPE_THETA),
    SPECIAL("short_factor", P_ROPE_SHORT),
    SPECIAL("long_factor", P_ROPE_LONG),
    HARMLESS("finetuned"),
    END};

/* Masks of the Sparse Transformer: no published checkpoint has them, so the keys are this project's own.
 *   "sparse_attention": {"pattern": "strided", "stride": 128, "layers": ["near", "far"]}
 * pattern: strided or fixed. stride: l. columns: c of fixed, the last columns of a block of l that are read from
 * everywhere. groups: over how many such groups of columns the heads are spread. layers: what the layers see, in turn:
 * near or far (a layer each), both (merged in one head), heads (near and far heads in turn), dense (everything). */
static const named_value mask_patterns[] = {{"strided", TFM_MASK_STRIDED}, {"fixed", TFM_MASK_FIXED}, {NULL, 0}};
const rule sparse_rules[] = {
    NAME("pattern", P_MASK, mask_patterns),
    INT("stride", P_MASK_STRIDE),
    INT("columns", P_MASK_COLUMNS),
    INT("groups", P_MASK_GROUPS),
    SPECIAL("layers", P_MASK_LAYERS),
    END};

/* ---- HUGGING FACE: WHAT ALL SHARE ------------------------------------------------------------------------------ */

static const rule hf_rules[] = {
    NEED_INT("num_hidden_layers", P_N_LAYERS),
    NEED_INT("hidden_size", P_D_MODEL),
    NEED_INT("intermediate_size", P_D_FF),
    NEED_INT("num_attention_heads", P_N_HEADS),
    INT("num_key_value_heads", P_N_KV_HEADS),
    INT("head_dim", P_HEAD_DIM),
    INT("vocab_size", P_N_VOCAB),
    INT_OR("max_position_embeddings", P_N_CTX, 2048),
    REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-6),
    NAME_OR("hidden_act", P_ACT, TFM_ACT_SILU, activations),
    BOOL_OR("tie_word_embeddings", P_TIED, 0),
    INT("bos_token_id", P_BOS),
    SPECIAL("eos_token_id", P_EOS),
    SPECIAL("layer_types", P_LAYER_TYPES),
    REAL_OR("rope_theta", P_ROPE_THETA, 1e4),
    SPECIAL("rope_scaling", P_ROPE_OBJECT),
    SPECIAL("rope_parameters", P_ROPE_OBJECT),
    INT("original_max_position_embeddings", P_CTX_ORIG),
    FIXED(P_ROPE_STYLE, TFM_ROPE_HALF),
    FIXED(P_NORM_KIND, TFM_NORM_RMS),
    FIXED(P_NORM_PLACE, TFM_PLACE_PRE),
    FIXED(P_OUT_NORM, 1),
    FIXED(P_GATED, 1),
    /* training, bookkeeping, and the generation defaults that older versions wrote here */
    HARMLESS("model_type"), HARMLESS("architectures"), HARMLESS("auto_map"), HARMLESS("_name_or_path"),
    HARMLESS("name_or_path"), HARMLESS("transformers_version"), HARMLESS("transformers.js_config"),
    HARMLESS("quantization_config"), HARMLESS("compression_config"), /* the tensors' reader has them */
    HARMLESS("torch_dtype"), HARMLESS("dtype"), HARMLESS("use_cache"), HARMLESS("cache_implementation"),
    HARMLESS("_attn_implementation_autoset"), HARMLESS("attn_implementation"), HARMLESS("_attn_implementation"),
    HARMLESS("initializer_range"), HARMLESS("attention_dropout"), HARMLESS("hidden_dropout"), HARMLESS("resid_pdrop"),
    HARMLESS("residual_dropout"),
    HARMLESS("embd_pdrop"), HARMLESS("pretraining_tp"), HARMLESS("pad_token_id"), HARMLESS("unk_token_id"),
    HARMLESS("sep_token_id"), HARMLESS("is_llama_config"), HARMLESS("unsloth_version"), HARMLESS("unsloth_fixed"),
    HARMLESS("tokenizer_class"), HARMLESS("id2label"), HARMLESS("label2id"), HARMLESS("num_labels"),
    HARMLESS("return_dict"), HARMLESS("chunk_size_feed_forward"), HARMLESS("max_length"), HARMLESS("min_length"),
    HARMLESS("num_beams"), HARMLESS("num_beam_groups"), HARMLESS("num_return_sequences"), HARMLESS("do_sample"),
    HARMLESS("temperature"), HARMLESS("top_k"), HARMLESS("top_p"), HARMLESS("typical_p"),
    HARMLESS("length_penalty"), HARMLESS("repetition_penalty"), HARMLESS("diversity_penalty"),
    HARMLESS("no_repeat_ngram_size"), HARMLESS("encoder_no_repeat_ngram_size"),
    END};

static const name_row hf_names[] = {
    {"@embed_tokens.weight", TFM_ROLE_EMBED, TAKE_ROWS},
    {"@norm.weight", TFM_ROLE_OUT_NORM, TAKE_ROWS},
    {"lm_head.weight", TFM_ROLE_HEAD, TAKE_ROWS},
    {"language_model.lm_head.weight", TFM_ROLE_HEAD, TAKE_ROWS},
    {"rope_scaling.short_factor", TFM_ROLE_ROPE_FACTORS, TAKE_ROWS},     /* lists of config.json, */
    {"rope_scaling.long_factor", TFM_ROLE_ROPE_FACTORS_LONG, TAKE_ROWS}, /* presented as tensors */
    {"@layers.#.input_layernorm.weight", TFM_ROLE_ATTN_NORM, TAKE_ROWS},
    {"@layers.#.self_attn.q_proj.weight", TFM_ROLE_Q, TAKE_ROWS},
    {"@layers.#.self_attn.k_proj.weight", TFM_ROLE_K, TAKE_ROWS},
    {"@layers.#.self_attn.v_proj.weight", TFM_ROLE_V, TAKE_ROWS},
    {"@layers.#.self_attn.o_proj.weight", TFM_ROLE_O, TAKE_ROWS},
    {"@layers.#.self_attn.q_proj.bias", TFM_ROLE_Q_B, TAKE_ROWS},
    {"@layers.#.self_attn.k_proj.bias", TFM_ROLE_K_B, TAKE_ROWS},
    {"@layers.#.self_attn.v_proj.bias", TFM_ROLE_V_B, TAKE_ROWS},
    {"@layers.#.self_attn.o_proj.bias", TFM_ROLE_O_B, TAKE_ROWS},
    {"@layers.#.self_attn.q_norm.weight", TFM_ROLE_Q_NORM, TAKE_ROWS},
    {"@layers.#.self_attn.k_norm.weight", TFM_ROLE_K_NORM, TAKE_ROWS},
    {"@layers.#.post_attention_layernorm.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS},
    {"@layers.#.mlp.gate_proj.weight", TFM_ROLE_GATE, TAKE_ROWS},
    {"@layers.#.mlp.up_proj.weight", TFM_ROLE_UP, TAKE_ROWS},
    {"@layers.#.mlp.down_proj.weight", TFM_ROLE_DOWN, TAKE_ROWS},
    {"@layers.#.mlp.gate_proj.bias", TFM_ROLE_GATE_B, TAKE_ROWS},
    {"@layers.#.mlp.up_proj.bias", TFM_ROLE_UP_B, TAKE_ROWS},
    {"@layers.#.mlp.down_proj.bias", TFM_ROLE_DOWN_B, TAKE_ROWS},
    NAMES_END};

/* "" is what a model saved without its head has. */
const char *const hf_prefixes[] = {"model.", "language_model.model.", "model.language_model.", "", NULL};
static const char *const hf_own[] = {"@", "lm_head.", "language_model.lm_head.", NULL};
static const char *const hf_skip[] = {"*.rotary_emb.inv_freq", "*.rotary_emb.*_cached", NULL};

/* ---- GGUF: WHAT ALL SHARE -------------------------------------------------------------------------------------- */

static const rule gguf_rules[] = {
    NEED_INT(".block_count", P_N_LAYERS),
    NEED_INT(".context_length", P_N_CTX),
    NEED_INT(".embedding_length", P_D_MODEL),
    NEED_INT(".feed_forward_length", P_D_FF),
    NEED_INT(".attention.head_count", P_N_HEADS),
    INT(".attention.head_count_kv", P_N_KV_HEADS),
    INT(".attention.key_length", P_HEAD_DIM),
    INT(".attention.value_length", P_VALUE_DIM),
    NEED_REAL(".attention.layer_norm_rms_epsilon", P_NORM_EPS),
    INT(".vocab_size", P_N_VOCAB),
    INT(".rope.dimension_count", P_ROPE_DIMS),
    REAL_OR(".rope.freq_base", P_ROPE_THETA, 1e4),
    NAME_OR(".rope.scaling.type", P_ROPE_SCALING, TFM_ROPE_LINEAR, gguf_rope_types),
    REAL(".rope.scale_linear", P_ROPE_FACTOR),
    REAL(".rope.scaling.factor", P_ROPE_FACTOR),
    INT(".rope.scaling.original_context_length", P_ROPE_CTX_ORIG),
    REAL(".rope.scaling.yarn_beta_slow", P_ROPE_SLOW),
    REAL(".rope.scaling.yarn_beta_fast", P_ROPE_FAST),
    REAL(".rope.scaling.attn_factor", P_ROPE_ATTN_FACTOR),
    FIXED(P_ROPE_STYLE, TFM_ROPE_HALF),
    FIXED(P_NORM_KIND, TFM_NORM_RMS),
    FIXED(P_NORM_PLACE, TFM_PLACE_PRE),
    FIXED(P_OUT_NORM, 1),
    FIXED(P_GATED, 1),
    FIXED(P_ACT, TFM_ACT_SILU),
    HARMLESS(".rope.scaling.finetuned"), HARMLESS(".tensor_data_layout"),
    END};

static const name_row gguf_names[] = {
    {"token_embd.weight", TFM_ROLE_EMBED, TAKE_ROWS},
    {"output_norm.weight", TFM_ROLE_OUT_NORM, TAKE_ROWS},
    {"output.weight", TFM_ROLE_HEAD, TAKE_ROWS},
    {"output_norm.bias", TFM_ROLE_OUT_NORM_B, TAKE_ROWS},
    {"output.bias", TFM_ROLE_HEAD_B, TAKE_ROWS},
    {"position_embd.weight", TFM_ROLE_POS_EMBED, TAKE_ROWS},
    {"token_embd_norm.weight", TFM_ROLE_EMBED_NORM, TAKE_ROWS},
    {"token_embd_norm.bias", TFM_ROLE_EMBED_NORM_B, TAKE_ROWS},
    {"rope_freqs.weight", TFM_ROLE_ROPE_FACTORS, TAKE_ROWS},
    {"rope_factors_short.weight", TFM_ROLE_ROPE_FACTORS, TAKE_ROWS},
    {"rope_factors_long.weight", TFM_ROLE_ROPE_FACTORS_LONG, TAKE_ROWS},
    {"blk.#.attn_norm.weight", TFM_ROLE_ATTN_NORM, TAKE_ROWS},
    {"blk.#.attn_norm.bias", TFM_ROLE_ATTN_NORM_B, TAKE_ROWS},
    {"blk.#.attn_q.weight", TFM_ROLE_Q, TAKE_ROWS},
    {"blk.#.attn_k.weight", TFM_ROLE_K, TAKE_ROWS},
    {"blk.#.attn_v.weight", TFM_ROLE_V, TAKE_ROWS},
    {"blk.#.attn_qkv.weight", TFM_ROLE_Q, TAKE_ALL_Q},
    {"blk.#.attn_qkv.weight", TFM_ROLE_K, TAKE_ALL_K},
    {"blk.#.attn_qkv.weight", TFM_ROLE_V, TAKE_ALL_V},
    {"blk.#.attn_output.weight", TFM_ROLE_O, TAKE_ROWS},
    {"blk.#.attn_q.bias", TFM_ROLE_Q_B, TAKE_ROWS},
    {"blk.#.attn_k.bias", TFM_ROLE_K_B, TAKE_ROWS},
    {"blk.#.attn_v.bias", TFM_ROLE_V_B, TAKE_ROWS},
    {"blk.#.attn_qkv.bias", TFM_ROLE_Q_B, TAKE_ALL_Q},
    {"blk.#.attn_qkv.bias", TFM_ROLE_K_B, TAKE_ALL_K},
    {"blk.#.attn_qkv.bias", TFM_ROLE_V_B, TAKE_ALL_V},
    {"blk.#.attn_output.bias", TFM_ROLE_O_B, TAKE_ROWS},
    {"blk.#.attn_q_norm.weight", TFM_ROLE_Q_NORM, TAKE_ROWS},
    {"blk.#.attn_k_norm.weight", TFM_ROLE_K_NORM, TAKE_ROWS},
    {"blk.#.attn_q_norm.bias", TFM_ROLE_Q_NORM_B, TAKE_ROWS},
    {"blk.#.attn_k_norm.bias", TFM_ROLE_K_NORM_B, TAKE_ROWS},
    {"blk.#.post_attention_norm.weight", TFM_ROLE_ATTN_POST_NORM, TAKE_ROWS},
    {"blk.#.ffn_norm.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS},
    {"blk.#.ffn_norm.bias", TFM_ROLE_FFN_NORM_B, TAKE_ROWS},
    {"blk.#.post_ffw_norm.weight", TFM_ROLE_FFN_POST_NORM, TAKE_ROWS},
    {"blk.#.ffn_gate.weight", TFM_ROLE_GATE, TAKE_ROWS},
    {"blk.#.ffn_up.weight", TFM_ROLE_UP, TAKE_ROWS},
    {"blk.#.ffn_down.weight", TFM_ROLE_DOWN, TAKE_ROWS},
    {"blk.#.ffn_gate.bias", TFM_ROLE_GATE_B, TAKE_ROWS},
    {"blk.#.ffn_up.bias", TFM_ROLE_UP_B, TAKE_ROWS},
    {"blk.#.ffn_down.bias", TFM_ROLE_DOWN_B, TAKE_ROWS},
    NAMES_END};

static const char *const gguf_prefixes[] = {"", NULL};
static const char *const gguf_own[] = {"blk.", "token_embd", "output", "rope_f", "position_embd", NULL};
static const char *const gguf_skip[] = {"*.attn_rot_embd.weight", NULL};

/* ---- THE FAMILY THAT OTHERS DERIVE FROM ------------------------------------------------------------------------ */

const family families_base[] = {
    {"decoder", NULL, NULL, {
        [FORM_HF] = {NULL, hf_rules, hf_names, hf_prefixes, hf_own, hf_skip},
        [FORM_GGUF] = {NULL, gguf_rules, gguf_names, gguf_prefixes, gguf_own, gguf_skip}}},
    FAMILIES_END};
