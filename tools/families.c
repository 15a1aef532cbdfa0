/* families.c - the tables of model families. Facts only; describe.c says what the values mean.
 *
 * To add a family of known parts, write a row of `families` at the end with what differs from its base, and a line in
 * tests/ref_families.py. A key that is neither used nor listed as harmless is refused by the converter unless it is
 * null, false or empty: better no model than a wrong one.
 */
#include <string.h>

#include "families.h"

/* ---- WRITING RULES --------------------------------------------------------------------------------------------- */

#define FIXED(param, value)           { NULL, param, RULE_FIXED, 0, value, NULL }
#define NEED_INT(key, param)          { key, param, RULE_INT, RULE_REQUIRED, 0, NULL }
#define NEED_REAL(key, param)         { key, param, RULE_REAL, RULE_REQUIRED, 0, NULL }
#define INT(key, param)               { key, param, RULE_INT, 0, 0, NULL }
#define INT_OR(key, param, value)     { key, param, RULE_INT, RULE_DEFAULT, value, NULL }
#define INT_OR_OFF(key, param, value) { key, param, RULE_INT, RULE_DEFAULT | RULE_NULL_IS_OFF, value, NULL }
#define REAL(key, param)              { key, param, RULE_REAL, 0, 0, NULL }
#define REAL_OR(key, param, value)    { key, param, RULE_REAL, RULE_DEFAULT, value, NULL }
#define REAL_OR_OFF(key, param, value) { key, param, RULE_REAL, RULE_DEFAULT | RULE_NULL_IS_OFF, value, NULL }
#define BOOL(key, param)              { key, param, RULE_BOOL, 0, 0, NULL }
#define BOOL_OR(key, param, value)    { key, param, RULE_BOOL, RULE_DEFAULT, value, NULL }
#define BITS(key, param, bits)        { key, param, RULE_BITS, 0, bits, NULL }
#define BITS_ON(key, param, bits)     { key, param, RULE_BITS, RULE_DEFAULT, bits, NULL }
#define NAME(key, param, names)       { key, param, RULE_NAME, 0, 0, names }
#define NAME_OR(key, param, value, names) { key, param, RULE_NAME, RULE_DEFAULT, value, names }
#define SPECIAL(key, param)           { key, param, RULE_SPECIAL, 0, 0, NULL }
#define HARMLESS(key)                 { key, P_NONE, RULE_SPECIAL, 0, 0, NULL }
#define END                           { NULL, P_NONE, RULE_SPECIAL, 0, 0, NULL }
#define NAMES_END                     { NULL, 0, 0 }

enum { BIAS_QKV = TFM_BIAS_Q | TFM_BIAS_K | TFM_BIAS_V, BIAS_MLP = TFM_BIAS_GATE | TFM_BIAS_UP | TFM_BIAS_DOWN };

static const named_value activations[] = {
    {"silu", TFM_ACT_SILU}, {"swish", TFM_ACT_SILU}, {"gelu", TFM_ACT_GELU_ERF}, {"gelu_new", TFM_ACT_GELU_TANH},
    {"gelu_pytorch_tanh", TFM_ACT_GELU_TANH}, {"gelu_fast", TFM_ACT_GELU_TANH}, {"quick_gelu", TFM_ACT_GELU_QUICK},
    {"relu", TFM_ACT_RELU}, {"relu2", TFM_ACT_RELU2}, {NULL, 0}};

/* Gemma's "gelu" always meant the tanh form. */
static const named_value gemma_activations[] = {
    {"gelu", TFM_ACT_GELU_TANH}, {"gelu_pytorch_tanh", TFM_ACT_GELU_TANH}, {"gelu_new", TFM_ACT_GELU_TANH}, {NULL, 0}};

/* GPT-1's "gelu" is the tanh form, too. */
static const named_value gpt1_activations[] = {
    {"gelu", TFM_ACT_GELU_TANH}, {"relu", TFM_ACT_RELU}, {"silu", TFM_ACT_SILU}, {"swish", TFM_ACT_SILU}, {NULL, 0}};

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
    REAL("factor", P_ROPE_FACTOR),
    REAL("low_freq_factor", P_ROPE_LOW),
    REAL("high_freq_factor", P_ROPE_HIGH),
    INT("original_max_position_embeddings", P_ROPE_CTX_ORIG),
    REAL("beta_slow", P_ROPE_SLOW),
    REAL("beta_fast", P_ROPE_FAST),
    REAL("attention_factor", P_ROPE_ATTN_FACTOR),
    REAL("mscale", P_ROPE_MSCALE),
    REAL("mscale_all_dim", P_ROPE_MSCALE_ALL),
    BOOL("truncate", P_ROPE_TRUNCATE),
    REAL("partial_rotary_factor", P_ROPE_PART),
    REAL("llama_4_scaling_beta", P_TEMPERATURE),
    SPECIAL("short_factor", P_ROPE_SHORT),
    SPECIAL("long_factor", P_ROPE_LONG),
    HARMLESS("finetuned"),
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
static const char *const hf_prefixes[] = {"model.", "language_model.model.", "model.language_model.", "", NULL};
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
    {"rope_freqs.weight", TFM_ROLE_ROPE_FACTORS, TAKE_ROWS},
    {"rope_factors_short.weight", TFM_ROLE_ROPE_FACTORS, TAKE_ROWS},
    {"rope_factors_long.weight", TFM_ROLE_ROPE_FACTORS_LONG, TAKE_ROWS},
    {"blk.#.attn_norm.weight", TFM_ROLE_ATTN_NORM, TAKE_ROWS},
    {"blk.#.attn_q.weight", TFM_ROLE_Q, TAKE_ROWS},
    {"blk.#.attn_k.weight", TFM_ROLE_K, TAKE_ROWS},
    {"blk.#.attn_v.weight", TFM_ROLE_V, TAKE_ROWS},
    {"blk.#.attn_output.weight", TFM_ROLE_O, TAKE_ROWS},
    {"blk.#.attn_q.bias", TFM_ROLE_Q_B, TAKE_ROWS},
    {"blk.#.attn_k.bias", TFM_ROLE_K_B, TAKE_ROWS},
    {"blk.#.attn_v.bias", TFM_ROLE_V_B, TAKE_ROWS},
    {"blk.#.attn_output.bias", TFM_ROLE_O_B, TAKE_ROWS},
    {"blk.#.attn_q_norm.weight", TFM_ROLE_Q_NORM, TAKE_ROWS},
    {"blk.#.attn_k_norm.weight", TFM_ROLE_K_NORM, TAKE_ROWS},
    {"blk.#.post_attention_norm.weight", TFM_ROLE_ATTN_POST_NORM, TAKE_ROWS},
    {"blk.#.ffn_norm.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS},
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

/* ---- FAMILIES -------------------------------------------------------------------------------------------------- */

static const family decoder = {
    "decoder", NULL,
    {[FORM_HF] = {NULL, hf_rules, hf_names, hf_prefixes, hf_own, hf_skip},
     [FORM_GGUF] = {NULL, gguf_rules, gguf_names, gguf_prefixes, gguf_own, gguf_skip}}};

/* Llama 1, 2, 3 and the many of the same shape. */
static const rule llama_hf[] = {
    BITS("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
    BITS("mlp_bias", P_BIAS, BIAS_MLP),
    INT_OR("bos_token_id", P_BOS, 1),
    END};

/* GGUF stores the q and k rows of this family (biases too) as interleaved pairs: undone here. Mistral is "llama". */
static const rule llama_gguf[] = {
    INT(".attention.sliding_window", P_WINDOW),
    FIXED(P_WINDOW_RULE, WINDOW_ALL),
    END};
static const name_row llama_gguf_names[] = {
    {"blk.#.attn_q.weight", TFM_ROLE_Q, TAKE_PAIRS_Q},
    {"blk.#.attn_k.weight", TFM_ROLE_K, TAKE_PAIRS_K},
    {"blk.#.attn_q.bias", TFM_ROLE_Q_B, TAKE_PAIRS_Q},
    {"blk.#.attn_k.bias", TFM_ROLE_K_B, TAKE_PAIRS_K},
    NAMES_END};

/* llama2.c keeps pairs interleaved; so do we. The file says nothing beyond sizes. */
static const rule llama2c_rules[] = {
    FIXED(P_NORM_EPS, 1e-5),
    FIXED(P_ROPE_THETA, 1e4),
    FIXED(P_ROPE_STYLE, TFM_ROPE_INTERLEAVED),
    FIXED(P_NORM_KIND, TFM_NORM_RMS),
    FIXED(P_NORM_PLACE, TFM_PLACE_PRE),
    FIXED(P_OUT_NORM, 1),
    FIXED(P_GATED, 1),
    FIXED(P_ACT, TFM_ACT_SILU),
    FIXED(P_BOS, 1),
    END};
static const name_row llama2c_names[] = {
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
    {"w3.#", TFM_ROLE_UP, TAKE_ROWS},
    NAMES_END};
static const char *const llama2c_own[] = {"", NULL};

static const family llama = {
    "llama", &decoder,
    {[FORM_HF] = {"llama", llama_hf, NULL, NULL, NULL, NULL},
     [FORM_GGUF] = {"llama", llama_gguf, llama_gguf_names, NULL, NULL, NULL},
     [FORM_LLAMA2C] = {"llama2c", llama2c_rules, llama2c_names, gguf_prefixes, llama2c_own, NULL}}};

/* Every layer has the window, or none. */
static const rule mistral_hf[] = {
    INT_OR("max_position_embeddings", P_N_CTX, 131072),
    INT_OR_OFF("sliding_window", P_WINDOW, 4096),
    INT_OR("bos_token_id", P_BOS, 1),
    FIXED(P_WINDOW_RULE, WINDOW_ALL),
    END};

static const family mistral = {
    "mistral", &decoder, {[FORM_HF] = {"mistral", mistral_hf, NULL, NULL, NULL, NULL}}};

/* q, k and v have biases that no key announces; layers from max_window_layers on have a window if it is switched on. */
static const rule qwen2_hf[] = {
    INT_OR("max_position_embeddings", P_N_CTX, 32768),
    INT_OR_OFF("sliding_window", P_WINDOW, 4096),
    BOOL_OR("use_sliding_window", P_WINDOW_ON, 0),
    INT_OR("max_window_layers", P_WINDOW_FIRST, 28),
    FIXED(P_WINDOW_RULE, WINDOW_FROM),
    FIXED(P_BIAS, BIAS_QKV),
    END};

static const family qwen2 = {
    "qwen2", &decoder,
    {[FORM_HF] = {"qwen2", qwen2_hf, NULL, NULL, NULL, NULL}, [FORM_GGUF] = {"qwen2", NULL, NULL, NULL, NULL, NULL}}};

/* RMS norms on q and k, per head; head_dim is 128 unless the file says so. */
static const rule qwen3_hf[] = {
    INT_OR("max_position_embeddings", P_N_CTX, 32768),
    INT_OR("head_dim", P_HEAD_DIM, 128),
    INT_OR_OFF("sliding_window", P_WINDOW, 4096),
    BOOL_OR("use_sliding_window", P_WINDOW_ON, 0),
    INT_OR("max_window_layers", P_WINDOW_FIRST, 28),
    BITS("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
    FIXED(P_WINDOW_RULE, WINDOW_FROM),
    FIXED(P_QK_NORM, TFM_QKNORM_HEAD),
    END};
static const rule qwen3_gguf[] = {
    FIXED(P_QK_NORM, TFM_QKNORM_HEAD),
    END};

static const family qwen3 = {
    "qwen3", &decoder,
    {[FORM_HF] = {"qwen3", qwen3_hf, NULL, NULL, NULL, NULL},
     [FORM_GGUF] = {"qwen3", qwen3_gguf, NULL, NULL, NULL, NULL}}};

/* Norms multiply by 1 + w (GGUF has the 1 folded in), embeddings by sqrt(d_model); GeGLU; tied. */
static const rule gemma_hf[] = {
    INT_OR("max_position_embeddings", P_N_CTX, 8192),
    INT_OR("head_dim", P_HEAD_DIM, 256),
    NAME_OR("hidden_act", P_ACT, TFM_ACT_GELU_TANH, gemma_activations),
    NAME("hidden_activation", P_ACT, gemma_activations),
    BOOL_OR("tie_word_embeddings", P_TIED, 1),
    INT_OR("bos_token_id", P_BOS, 2),
    FIXED(P_NORM_OFFSET, 1),
    FIXED(P_EMBED_SQRT, 1),
    END};
static const rule gemma_gguf[] = {
    FIXED(P_ACT, TFM_ACT_GELU_TANH),
    FIXED(P_EMBED_SQRT, 1),
    END};

static const family gemma = {
    "gemma", &decoder,
    {[FORM_HF] = {"gemma", gemma_hf, NULL, NULL, NULL, NULL},
     [FORM_GGUF] = {"gemma", gemma_gguf, NULL, NULL, NULL, NULL}}};

/* Sandwich norms, two soft-caps, a query scalar, a window on every other layer. */
static const rule gemma2_hf[] = {
    NAME_OR("hidden_activation", P_ACT, TFM_ACT_GELU_TANH, gemma_activations),
    HARMLESS("hidden_act"),
    INT_OR("query_pre_attn_scalar", P_QUERY_SCALAR, 256),
    REAL_OR_OFF("attn_logit_softcapping", P_ATTN_SOFTCAP, 50),
    REAL_OR_OFF("final_logit_softcapping", P_LOGIT_SOFTCAP, 30),
    INT_OR_OFF("sliding_window", P_WINDOW, 4096),
    HARMLESS("sliding_window_size"),
    FIXED(P_WINDOW_RULE, WINDOW_PERIOD),
    FIXED(P_WINDOW_PERIOD, 2),
    FIXED(P_NORM_PLACE, TFM_PLACE_SANDWICH),
    END};
static const name_row gemma2_hf_names[] = {
    {"@layers.#.post_attention_layernorm.weight", TFM_ROLE_ATTN_POST_NORM, TAKE_ROWS},
    {"@layers.#.pre_feedforward_layernorm.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS},
    {"@layers.#.post_feedforward_layernorm.weight", TFM_ROLE_FFN_POST_NORM, TAKE_ROWS},
    NAMES_END};
static const rule gemma2_gguf[] = { /* the query scalar is no key: only the 27B's is not head_dim */
    FIXED(P_QUERY_WIDE_LAYERS, 46),
    REAL_OR(".attn_logit_softcapping", P_ATTN_SOFTCAP, 50),
    REAL_OR(".final_logit_softcapping", P_LOGIT_SOFTCAP, 30),
    INT_OR(".attention.sliding_window", P_WINDOW, 4096),
    FIXED(P_WINDOW_RULE, WINDOW_PERIOD),
    FIXED(P_WINDOW_PERIOD, 2),
    FIXED(P_NORM_PLACE, TFM_PLACE_SANDWICH),
    END};

static const family gemma2 = {
    "gemma2", &gemma,
    {[FORM_HF] = {"gemma2", gemma2_hf, gemma2_hf_names, NULL, NULL, NULL},
     [FORM_GGUF] = {"gemma2", gemma2_gguf, NULL, NULL, NULL, NULL}}};

/* QK-norm instead of the attention cap (its key stays in the config and is not applied); five windows to one full
 * layer, each kind with its own theta, scaling on the full ones alone. Published text_configs leave out what equals the
 * class's defaults, sizes too. */
static const rule gemma3_hf[] = {
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
    FIXED(P_QK_NORM, TFM_QKNORM_HEAD),
    END};
static const rule gemma3_gguf[] = {
    FIXED(P_QUERY_WIDE_LAYERS, 62),
    HARMLESS(".attn_logit_softcapping"),
    REAL(".final_logit_softcapping", P_LOGIT_SOFTCAP),
    NEED_INT(".attention.sliding_window", P_WINDOW),
    INT_OR(".attention.sliding_window_pattern", P_WINDOW_PERIOD, 6),
    REAL_OR(".rope.freq_base", P_ROPE_THETA, 1e6),
    REAL_OR(".rope.freq_base_swa", P_ROPE_LOCAL_THETA, 1e4),
    FIXED(P_ATTN_SOFTCAP, 0),
    FIXED(P_LOGIT_SOFTCAP, 0),
    FIXED(P_QK_NORM, TFM_QKNORM_HEAD),
    END};

static const family gemma3 = {
    "gemma3", &gemma2,
    {[FORM_HF] = {"gemma3_text gemma3", gemma3_hf, NULL, NULL, NULL, NULL},
     [FORM_GGUF] = {"gemma3", gemma3_gguf, NULL, NULL, NULL, NULL}}};

/* ---- LLAMA-SHAPED, WITH A TWIST OR TWO ------------------------------------------------------------------------- */

#define HF_FAMILY(var, base, words, rules, names) \
    static const family var = {#var, base, {[FORM_HF] = {words, rules, names, NULL, NULL, NULL}}}

/* q, k and v in one matrix, gate and up in another; part of a head may rotate; every layer has the window, or none. */
static const rule phi3_hf[] = {
    INT_OR("max_position_embeddings", P_N_CTX, 4096),
    REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-5),
    INT("sliding_window", P_WINDOW),
    REAL("partial_rotary_factor", P_ROPE_PART),
    BITS("attention_bias", P_BIAS, 0),
    FIXED(P_WINDOW_RULE, WINDOW_ALL),
    END};
static const name_row phi3_names[] = {
    {"@layers.#.self_attn.qkv_proj.weight", TFM_ROLE_Q, TAKE_ALL_Q},
    {"@layers.#.self_attn.qkv_proj.weight", TFM_ROLE_K, TAKE_ALL_K},
    {"@layers.#.self_attn.qkv_proj.weight", TFM_ROLE_V, TAKE_ALL_V},
    {"@layers.#.mlp.gate_up_proj.weight", TFM_ROLE_GATE, TAKE_FIRST_HALF},
    {"@layers.#.mlp.gate_up_proj.weight", TFM_ROLE_UP, TAKE_SECOND_HALF},
    NAMES_END};
HF_FAMILY(phi3, &decoder, "phi3", phi3_hf, phi3_names);

/* Four multipliers; attention_multiplier is the scale of the scores itself, not a factor on it. */
static const rule granite_hf[] = {
    REAL_OR("embedding_multiplier", P_EMBED_SCALE, 1),
    REAL_OR("logits_scaling", P_LOGIT_DIVISOR, 1),
    REAL_OR("residual_multiplier", P_RESIDUAL_SCALE, 1),
    REAL_OR("attention_multiplier", P_ATTN_SCALE, 1),
    BITS("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
    BITS("mlp_bias", P_BIAS, BIAS_MLP),
    END};
HF_FAMILY(granite, &decoder, "granite", granite_hf, NULL);

/* Interleaved RoPE; no bias on o. */
static const rule helium_hf[] = {
    INT_OR("head_dim", P_HEAD_DIM, 128),
    INT_OR("max_position_embeddings", P_N_CTX, 4096),
    REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-8),
    REAL_OR("rope_theta", P_ROPE_THETA, 1e5),
    BITS("attention_bias", P_BIAS, BIAS_QKV),
    BITS("mlp_bias", P_BIAS, BIAS_MLP),
    FIXED(P_ROPE_STYLE, TFM_ROPE_INTERLEAVED),
    END};
HF_FAMILY(helium, &decoder, "helium", helium_hf, NULL);

static const rule ernie4_5_hf[] = {
    INT_OR("head_dim", P_HEAD_DIM, 128),
    INT_OR("max_position_embeddings", P_N_CTX, 131072),
    REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-5),
    REAL_OR("rope_theta", P_ROPE_THETA, 5e5),
    BOOL_OR("tie_word_embeddings", P_TIED, 1),
    BITS("use_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O | BIAS_MLP),
    FIXED(P_ROPE_STYLE, TFM_ROPE_INTERLEAVED),
    END};
HF_FAMILY(ernie4_5, &decoder, "ernie4_5", ernie4_5_hf, NULL);

static const rule seed_oss_hf[] = {
    INT_OR("head_dim", P_HEAD_DIM, 128),
    INT_OR("max_position_embeddings", P_N_CTX, 524288),
    BITS_ON("attention_bias", P_BIAS, BIAS_QKV),
    BITS("attention_out_bias", P_BIAS, TFM_BIAS_O),
    BITS("mlp_bias", P_BIAS, BIAS_MLP),
    END};
HF_FAMILY(seed_oss, &decoder, "seed_oss", seed_oss_hf, NULL);

/* Feed-forward without a gate, squared ReLU. */
static const rule arcee_hf[] = {
    INT_OR("max_position_embeddings", P_N_CTX, 4096),
    REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-5),
    NAME_OR("hidden_act", P_ACT, TFM_ACT_RELU2, activations),
    FIXED(P_GATED, 0),
    END};
HF_FAMILY(arcee, &llama, "arcee", arcee_hf, NULL);

/* The norms of q and k come after RoPE. */
static const rule hunyuan_hf[] = {
    REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-5),
    BITS("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
    HARMLESS("attention_head_dim"), HARMLESS("eod_token_id"),
    FIXED(P_QK_NORM, TFM_QKNORM_HEAD),
    FIXED(P_QK_AFTER_ROPE, 1),
    END};
static const name_row hunyuan_names[] = {
    {"@layers.#.self_attn.query_layernorm.weight", TFM_ROLE_Q_NORM, TAKE_ROWS},
    {"@layers.#.self_attn.key_layernorm.weight", TFM_ROLE_K_NORM, TAKE_ROWS},
    NAMES_END};
HF_FAMILY(hunyuan_v1_dense, &decoder, "hunyuan_v1_dense", hunyuan_hf, hunyuan_names);

/* Interleaved RoPE over half a head, gate and up in one matrix; biases on q, k and v but not on o. */
static const rule glm_hf[] = {
    INT_OR("head_dim", P_HEAD_DIM, 128),
    INT_OR("max_position_embeddings", P_N_CTX, 131072),
    REAL_OR("rms_norm_eps", P_NORM_EPS, 1.5625e-7),
    REAL_OR("partial_rotary_factor", P_ROPE_PART, 0.5),
    BITS_ON("attention_bias", P_BIAS, BIAS_QKV),
    FIXED(P_ROPE_STYLE, TFM_ROPE_INTERLEAVED),
    END};
static const name_row glm_names[] = {
    {"@layers.#.mlp.gate_up_proj.weight", TFM_ROLE_GATE, TAKE_FIRST_HALF},
    {"@layers.#.mlp.gate_up_proj.weight", TFM_ROLE_UP, TAKE_SECOND_HALF},
    NAMES_END};
HF_FAMILY(glm, &decoder, "glm", glm_hf, glm_names);

/* Sandwich norms; post_attention_layernorm stands before the feed-forward. */
static const rule glm4_hf[] = {
    FIXED(P_NORM_PLACE, TFM_PLACE_SANDWICH),
    END};
static const name_row glm4_names[] = {
    {"@layers.#.post_self_attn_layernorm.weight", TFM_ROLE_ATTN_POST_NORM, TAKE_ROWS},
    {"@layers.#.post_mlp_layernorm.weight", TFM_ROLE_FFN_POST_NORM, TAKE_ROWS},
    NAMES_END};
HF_FAMILY(glm4, &glm, "glm4", glm4_hf, glm4_names);

/* LayerNorms without weights; q, k and v are clamped. */
static const rule olmo_hf[] = {
    REAL("clip_qkv", P_QKV_CLAMP),
    BITS("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
    FIXED(P_NORM_KIND, TFM_NORM_LAYER),
    FIXED(P_NORM_EPS, 1e-5),
    FIXED(P_NORM_NO_WEIGHT, 1),
    END};
HF_FAMILY(olmo, &decoder, "olmo", olmo_hf, NULL);

/* Norms on the branches' outputs; q and k are normed over their whole width. */
static const rule olmo2_hf[] = {
    REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-5),
    BITS("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
    FIXED(P_NORM_PLACE, TFM_PLACE_POST_BRANCH),
    FIXED(P_QK_NORM, TFM_QKNORM_FULL),
    END};
static const name_row olmo2_names[] = {
    {"@layers.#.post_attention_layernorm.weight", TFM_ROLE_ATTN_POST_NORM, TAKE_ROWS},
    {"@layers.#.post_feedforward_layernorm.weight", TFM_ROLE_FFN_POST_NORM, TAKE_ROWS},
    NAMES_END};
HF_FAMILY(olmo2, &decoder, "olmo2", olmo2_hf, olmo2_names);

/* Three windows to one full layer; only the full ones are scaled. */
static const rule olmo3_hf[] = {
    INT_OR("sliding_window", P_WINDOW, 4096),
    REAL_OR("rope_theta", P_ROPE_THETA, 5e5),
    FIXED(P_ROPE_LOCAL_PLAIN, 1),
    FIXED(P_WINDOW_RULE, WINDOW_PERIOD),
    FIXED(P_WINDOW_PERIOD, 4),
    END};
HF_FAMILY(olmo3, &olmo2, "olmo3", olmo3_hf, NULL);

/* Where there are windows, only their layers have RoPE. */
static const rule exaone4_hf[] = {
    REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-5),
    INT_OR_OFF("sliding_window", P_WINDOW, 4096),
    INT_OR("sliding_window_pattern", P_WINDOW_PERIOD, 4),
    FIXED(P_WINDOW_RULE, WINDOW_PERIOD),
    FIXED(P_ROPE_LAYERS, ROPE_IN_WINDOWS),
    FIXED(P_NORM_PLACE, TFM_PLACE_POST_BRANCH),
    FIXED(P_QK_NORM, TFM_QKNORM_HEAD),
    END};
HF_FAMILY(exaone4, &decoder, "exaone4", exaone4_hf, olmo2_names);

/* Every fourth layer has no RoPE. In no_rope_layers 1 means that RoPE is used. */
static const rule smollm3_hf[] = {
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
    FIXED(P_ROPE_LAYERS, ROPE_IN_PERIOD),
    END};
HF_FAMILY(smollm3, &decoder, "smollm3", smollm3_hf, NULL);

HF_FAMILY(ministral, &mistral, "ministral", NULL, NULL);

/* Queries grow with the position. */
static const rule ministral3_hf[] = {
    INT_OR_OFF("sliding_window", P_WINDOW, 0),
    INT_OR("head_dim", P_HEAD_DIM, 128),
    INT_OR("max_position_embeddings", P_N_CTX, 262144),
    REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-5),
    END};
HF_FAMILY(ministral3, &mistral, "ministral3", ministral3_hf, NULL);

/* Both branches read one LayerNorm without bias; interleaved RoPE; logits are multiplied by logit_scale. */
static const rule cohere_hf[] = {
    INT_OR("max_position_embeddings", P_N_CTX, 8192),
    REAL_OR("layer_norm_eps", P_NORM_EPS, 1e-5),
    REAL_OR("logit_scale", P_LOGIT_SCALE, 0.0625),
    REAL_OR("rope_theta", P_ROPE_THETA, 5e5),
    BOOL_OR("tie_word_embeddings", P_TIED, 1),
    BITS("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
    BITS("use_qk_norm", P_QK_NORM, TFM_QKNORM_HEADS),
    FIXED(P_NORM_KIND, TFM_NORM_LAYER),
    FIXED(P_RESIDUAL, TFM_RESIDUAL_PARALLEL_1),
    FIXED(P_ROPE_STYLE, TFM_ROPE_INTERLEAVED),
    END};
HF_FAMILY(cohere, &decoder, "cohere", cohere_hf, NULL);

/* Three windows with RoPE to one full layer without. */
static const rule cohere2_hf[] = {
    INT_OR("sliding_window", P_WINDOW, 4096),
    INT_OR("sliding_window_pattern", P_WINDOW_PERIOD, 4),
    INT("_sliding_window_pattern", P_WINDOW_PERIOD),
    INT_OR("head_dim", P_HEAD_DIM, 128),
    HARMLESS("order_of_interleaved_layers"), HARMLESS("rotary_pct"), HARMLESS("position_embedding_type"),
    HARMLESS("use_embedding_sharing"), HARMLESS("use_gated_activation"), HARMLESS("use_parallel_block"),
    HARMLESS("use_parallel_embedding"),
    FIXED(P_WINDOW_RULE, WINDOW_PERIOD),
    FIXED(P_ROPE_LAYERS, ROPE_IN_WINDOWS),
    END};
HF_FAMILY(cohere2, &cohere, "cohere2", cohere2_hf, NULL);

/* No gate, an activation with parameters of each layer's own; norms of q and k. */
static const named_value xielu[] = {{"xielu", TFM_ACT_XIELU}, {NULL, 0}};
static const rule apertus_hf[] = {
    INT_OR("max_position_embeddings", P_N_CTX, 65536),
    REAL_OR("rms_norm_eps", P_NORM_EPS, 1e-5),
    REAL_OR("rope_theta", P_ROPE_THETA, 12e6),
    NAME_OR("hidden_act", P_ACT, TFM_ACT_XIELU, xielu),
    BITS("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
    HARMLESS("post_norm"), HARMLESS("qk_norm"),
    FIXED(P_QK_NORM, TFM_QKNORM_HEAD),
    FIXED(P_GATED, 0),
    END};
static const name_row apertus_names[] = {
    {"@layers.#.attention_layernorm.weight", TFM_ROLE_ATTN_NORM, TAKE_ROWS},
    {"@layers.#.feedforward_layernorm.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS},
    {"@layers.#.mlp.act_fn.alpha_p|@layers.#.mlp.act_fn.alpha_n|@layers.#.mlp.act_fn.beta|@layers.#.mlp.act_fn.eps",
     TFM_ROLE_ACT, TAKE_ROWS},
    NAMES_END};
HF_FAMILY(apertus, &decoder, "apertus", apertus_hf, apertus_names);

/* No norm has weights; one over the embedding too; q and k are normed after a RoPE that turns the other way. */
static const rule nanochat_hf[] = {
    NAME_OR("hidden_act", P_ACT, TFM_ACT_RELU2, activations),
    REAL_OR_OFF("final_logit_softcapping", P_LOGIT_SOFTCAP, 15),
    BITS("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
    FIXED(P_NORM_NO_WEIGHT, 1),
    FIXED(P_EMBED_NORM, 1),
    FIXED(P_QK_NORM, TFM_QKNORM_HEAD),
    FIXED(P_QK_AFTER_ROPE, 1),
    FIXED(P_GATED, 0),
    END};
static const name_row nanochat_names[] = {
    {"@layers.#.self_attn.q_proj.weight", TFM_ROLE_Q, TAKE_SWAP_Q},
    {"@layers.#.self_attn.k_proj.weight", TFM_ROLE_K, TAKE_SWAP_K},
    {"@layers.#.self_attn.q_proj.bias", TFM_ROLE_Q_B, TAKE_SWAP_Q},
    {"@layers.#.self_attn.k_proj.bias", TFM_ROLE_K_B, TAKE_SWAP_K},
    {"@layers.#.mlp.fc1.weight", TFM_ROLE_UP, TAKE_ROWS},
    {"@layers.#.mlp.fc2.weight", TFM_ROLE_DOWN, TAKE_ROWS},
    NAMES_END};
HF_FAMILY(nanochat, &decoder, "nanochat", nanochat_hf, nanochat_names);

/* Gemma 2 without the norms on the outputs. */
static const rule vaultgemma_hf[] = {
    FIXED(P_NORM_PLACE, TFM_PLACE_PRE),
    END};
static const name_row vaultgemma_names[] = {
    {"@layers.#.pre_feedforward_layernorm.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS},
    NAMES_END};
HF_FAMILY(vaultgemma, &gemma2, "vaultgemma", vaultgemma_hf, vaultgemma_names);

/* ---- LAYERNORM WITH BIAS, LLAMA'S NAMES ------------------------------------------------------------------------ */

/* Norms multiply by 1 + w; squared ReLU without a gate. */
static const rule nemotron_hf[] = {
    REAL_OR("norm_eps", P_NORM_EPS, 1e-5),
    INT_OR("max_position_embeddings", P_N_CTX, 4096),
    NAME_OR("hidden_act", P_ACT, TFM_ACT_RELU2, activations),
    REAL_OR("partial_rotary_factor", P_ROPE_PART, 0.5),
    REAL("partial_rotary_percent", P_ROPE_PART), REAL("rope_percent", P_ROPE_PART),
    REAL("rope_percentage", P_ROPE_PART),
    BITS("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
    BITS("mlp_bias", P_BIAS, BIAS_MLP),
    FIXED(P_NORM_OFFSET, 1),
    FIXED(P_GATED, 0),
    END};
static const rule layer_norm_hf[] = {
    FIXED(P_NORM_KIND, TFM_NORM_LAYER),
    FIXED(P_BIAS, TFM_BIAS_NORM),
    END};
static const name_row layer_norm_names[] = {
    {"@norm.bias", TFM_ROLE_OUT_NORM_B, TAKE_ROWS},
    {"@layers.#.input_layernorm.bias", TFM_ROLE_ATTN_NORM_B, TAKE_ROWS},
    {"@layers.#.post_attention_layernorm.bias", TFM_ROLE_FFN_NORM_B, TAKE_ROWS},
    NAMES_END};
HF_FAMILY(layer_norm, &decoder, NULL, layer_norm_hf, layer_norm_names);
HF_FAMILY(nemotron, &layer_norm, "nemotron", nemotron_hf, NULL);

static const named_value parallel_1[] = {
    {"true", TFM_RESIDUAL_PARALLEL_1}, {"false", TFM_RESIDUAL_SEQUENTIAL}, {NULL, 0}};
static const named_value parallel_2[] = {
    {"true", TFM_RESIDUAL_PARALLEL_2}, {"false", TFM_RESIDUAL_SEQUENTIAL}, {NULL, 0}};

/* A parallel residual has one norm for both branches. */
static const rule stablelm_hf[] = {
    REAL_OR("layer_norm_eps", P_NORM_EPS, 1e-5),
    REAL("norm_eps", P_NORM_EPS),
    INT_OR("max_position_embeddings", P_N_CTX, 4096),
    REAL_OR("partial_rotary_factor", P_ROPE_PART, 0.25),
    REAL("rope_pct", P_ROPE_PART),
    BITS("use_qkv_bias", P_BIAS, BIAS_QKV),
    NAME("use_parallel_residual", P_RESIDUAL, parallel_1),
    BITS("qk_layernorm", P_QK_NORM, TFM_QKNORM_HEADS),
    END};
static const name_row stablelm_names[] = { /* a tensor for each head */
    {"@layers.#.self_attn.q_layernorm.norms.%.weight", TFM_ROLE_Q_NORM, TAKE_ROWS},
    {"@layers.#.self_attn.k_layernorm.norms.%.weight", TFM_ROLE_K_NORM, TAKE_ROWS},
    NAMES_END};
HF_FAMILY(stablelm, &layer_norm, "stablelm", stablelm_hf, stablelm_names);

static const rule starcoder2_hf[] = {
    REAL_OR("norm_epsilon", P_NORM_EPS, 1e-5),
    INT_OR("max_position_embeddings", P_N_CTX, 4096),
    NAME_OR("hidden_act", P_ACT, TFM_ACT_GELU_TANH, activations),
    BOOL_OR("tie_word_embeddings", P_TIED, 1),
    INT("sliding_window", P_WINDOW),
    BITS_ON("use_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O | TFM_BIAS_UP | TFM_BIAS_DOWN),
    HARMLESS("embedding_dropout"), HARMLESS("norm_type"), HARMLESS("mlp_type"),
    FIXED(P_WINDOW_RULE, WINDOW_ALL),
    FIXED(P_GATED, 0),
    END};
static const name_row starcoder2_names[] = {
    {"@layers.#.mlp.c_fc.weight", TFM_ROLE_UP, TAKE_ROWS},
    {"@layers.#.mlp.c_proj.weight", TFM_ROLE_DOWN, TAKE_ROWS},
    {"@layers.#.mlp.c_fc.bias", TFM_ROLE_UP_B, TAKE_ROWS},
    {"@layers.#.mlp.c_proj.bias", TFM_ROLE_DOWN_B, TAKE_ROWS},
    NAMES_END};
HF_FAMILY(starcoder2, &layer_norm, "starcoder2", starcoder2_hf, starcoder2_names);

static const rule jais2_hf[] = {
    REAL_OR("layer_norm_eps", P_NORM_EPS, 1e-5),
    NAME_OR("hidden_act", P_ACT, TFM_ACT_RELU2, activations),
    BITS_ON("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
    BITS_ON("mlp_bias", P_BIAS, TFM_BIAS_UP | TFM_BIAS_DOWN),
    FIXED(P_GATED, 0),
    END};
HF_FAMILY(jais2, &layer_norm, "jais2", jais2_hf, NULL);

/* ---- GPT-SHAPED ------------------------------------------------------------------------------------------------ */

/* LayerNorm with bias, biases on every linear map, no gate, 4 * d_model wide unless it says otherwise, no RoPE. */
static const rule gpt_hf[] = {
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
    HARMLESS("task_specific_params"), HARMLESS("gradient_checkpointing"), HARMLESS("scale_attn_weights"),
    END};
static const name_row gpt_names[] = {
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
    {"@h.#.mlp.c_proj.bias", TFM_ROLE_DOWN_B, TAKE_ROWS},
    NAMES_END};
static const char *const gpt_prefixes[] = {"transformer.", "", NULL};
static const char *const gpt_skip[] = {"*attn.bias", "*attn.masked_bias", "*attention.bias", "*attention.masked_bias",
                                       "*attn.causal_mask", "*attn.embed_positions", NULL};
static const family gpt = {
    "gpt", &decoder, {[FORM_HF] = {NULL, gpt_hf, gpt_names, gpt_prefixes, NULL, gpt_skip}}};

/* Matrices are stored [in][out], q, k and v in one; learned positions. */
static const rule gpt2_hf[] = {
    INT_OR("n_positions", P_N_CTX, 1024),
    BOOL_OR("tie_word_embeddings", P_TIED, 1),
    BOOL("scale_attn_by_inverse_layer_idx", P_SCALE_BY_LAYER),
    HARMLESS("reorder_and_upcast_attn"),
    FIXED(P_POS_KIND, TFM_POS_LEARNED),
    END};
static const name_row gpt2_names[] = {
    {"@h.#.attn.c_attn.weight", TFM_ROLE_Q, TAKE_ALL_Q | TAKE_COLUMNS},
    {"@h.#.attn.c_attn.weight", TFM_ROLE_K, TAKE_ALL_K | TAKE_COLUMNS},
    {"@h.#.attn.c_attn.weight", TFM_ROLE_V, TAKE_ALL_V | TAKE_COLUMNS},
    {"@h.#.attn.c_attn.bias", TFM_ROLE_Q_B, TAKE_ALL_Q},
    {"@h.#.attn.c_attn.bias", TFM_ROLE_K_B, TAKE_ALL_K},
    {"@h.#.attn.c_attn.bias", TFM_ROLE_V_B, TAKE_ALL_V},
    {"@h.#.attn.c_proj.weight", TFM_ROLE_O, TAKE_ROWS | TAKE_COLUMNS},
    {"@h.#.mlp.c_fc.weight", TFM_ROLE_UP, TAKE_ROWS | TAKE_COLUMNS},
    {"@h.#.mlp.c_proj.weight", TFM_ROLE_DOWN, TAKE_ROWS | TAKE_COLUMNS},
    NAMES_END};
HF_FAMILY(gpt2, &gpt, "gpt2", gpt2_hf, gpt2_names);

/* The first of them: norms after the sums, none at the end. */
static const rule gpt1_hf[] = {
    INT_OR("n_positions", P_N_CTX, 512),
    NAME_OR("afn", P_ACT, TFM_ACT_GELU_TANH, gpt1_activations),
    FIXED(P_NORM_PLACE, TFM_PLACE_POST_ADD),
    FIXED(P_OUT_NORM, 0),
    HARMLESS("predict_special_tokens"), HARMLESS("n_special"),
    END};
static const name_row gpt1_names[] = {
    {"@tokens_embed.weight", TFM_ROLE_EMBED, TAKE_ROWS},
    {"@positions_embed.weight", TFM_ROLE_POS_EMBED, TAKE_ROWS},
    {"@h.#.ln_1.weight", TFM_ROLE_ATTN_POST_NORM, TAKE_ROWS},
    {"@h.#.ln_1.bias", TFM_ROLE_ATTN_POST_NORM_B, TAKE_ROWS},
    {"@h.#.ln_2.weight", TFM_ROLE_FFN_POST_NORM, TAKE_ROWS},
    {"@h.#.ln_2.bias", TFM_ROLE_FFN_POST_NORM_B, TAKE_ROWS},
    NAMES_END};
HF_FAMILY(gpt1, &gpt2, "openai-gpt", gpt1_hf, gpt1_names);

/* One key/value head, or, without multi_query, q, k and v head by head. */
static const named_value multi_query[] = {{"true", 1}, {"false", -1}, {NULL, 0}};
static const rule gpt_bigcode_hf[] = {
    NAME_OR("multi_query", P_N_KV_HEADS, 1, multi_query),
    HARMLESS("num_key_value_heads"),
    INT_OR("n_positions", P_N_CTX, 1024),
    BOOL_OR("tie_word_embeddings", P_TIED, 1),
    HARMLESS("attention_softmax_in_fp32"), HARMLESS("scale_attention_softmax_in_fp32"), HARMLESS("inference_runner"),
    HARMLESS("validate_runner_input"), HARMLESS("pre_allocate_kv_cache"), HARMLESS("max_batch_size"),
    HARMLESS("max_sequence_length"), HARMLESS("pad_key_length"), HARMLESS("attention_head_type"),
    FIXED(P_POS_KIND, TFM_POS_LEARNED),
    END};
static const name_row gpt_bigcode_names[] = {
    {"@h.#.attn.c_attn.weight", TFM_ROLE_Q, TAKE_GROUPS_Q},
    {"@h.#.attn.c_attn.weight", TFM_ROLE_K, TAKE_GROUPS_K},
    {"@h.#.attn.c_attn.weight", TFM_ROLE_V, TAKE_GROUPS_V},
    {"@h.#.attn.c_attn.bias", TFM_ROLE_Q_B, TAKE_GROUPS_Q},
    {"@h.#.attn.c_attn.bias", TFM_ROLE_K_B, TAKE_GROUPS_K},
    {"@h.#.attn.c_attn.bias", TFM_ROLE_V_B, TAKE_GROUPS_V},
    NAMES_END};
HF_FAMILY(gpt_bigcode, &gpt, "gpt_bigcode", gpt_bigcode_hf, gpt_bigcode_names);

/* Scores are not scaled; layers see everything or a window, in turn. */
static const rule gpt_neo_hf[] = {
    INT("num_layers", P_N_LAYERS), INT("num_heads", P_N_HEADS),
    INT_OR("window_size", P_WINDOW, 256),
    SPECIAL("attention_layers", P_LAYER_TYPES),
    SPECIAL("attention_types", P_LAYER_RUNS),
    BOOL_OR("tie_word_embeddings", P_TIED, 1),
    HARMLESS("embed_dropout"), HARMLESS("resid_dropout"), HARMLESS("classifier_dropout"),
    FIXED(P_ATTN_SCALE, 1),
    FIXED(P_BIAS, TFM_BIAS_NORM | TFM_BIAS_O | TFM_BIAS_UP | TFM_BIAS_DOWN),
    FIXED(P_POS_KIND, TFM_POS_LEARNED),
    END};
static const name_row gpt_neo_names[] = {
    {"@h.#.attn.attention.q_proj.weight", TFM_ROLE_Q, TAKE_ROWS},
    {"@h.#.attn.attention.k_proj.weight", TFM_ROLE_K, TAKE_ROWS},
    {"@h.#.attn.attention.v_proj.weight", TFM_ROLE_V, TAKE_ROWS},
    {"@h.#.attn.attention.out_proj.weight", TFM_ROLE_O, TAKE_ROWS},
    {"@h.#.attn.attention.out_proj.bias", TFM_ROLE_O_B, TAKE_ROWS},
    NAMES_END};
HF_FAMILY(gpt_neo, &gpt, "gpt_neo", gpt_neo_hf, gpt_neo_names);

/* Both branches read ln_1; interleaved RoPE; no bias in attention, one at the head. */
static const rule gptj_hf[] = {
    INT_OR("rotary_dim", P_ROPE_DIMS, 64),
    HARMLESS("rotary"),
    FIXED(P_RESIDUAL, TFM_RESIDUAL_PARALLEL_1),
    FIXED(P_ROPE_STYLE, TFM_ROPE_INTERLEAVED),
    FIXED(P_HEAD_BIAS, 1),
    FIXED(P_BIAS, TFM_BIAS_NORM | TFM_BIAS_UP | TFM_BIAS_DOWN),
    END};
static const name_row gptj_names[] = {
    {"@h.#.attn.q_proj.weight", TFM_ROLE_Q, TAKE_ROWS},
    {"@h.#.attn.k_proj.weight", TFM_ROLE_K, TAKE_ROWS},
    {"@h.#.attn.v_proj.weight", TFM_ROLE_V, TAKE_ROWS},
    {"@h.#.attn.out_proj.weight", TFM_ROLE_O, TAKE_ROWS},
    {"@h.#.mlp.fc_in.weight", TFM_ROLE_UP, TAKE_ROWS},
    {"@h.#.mlp.fc_in.bias", TFM_ROLE_UP_B, TAKE_ROWS},
    {"@h.#.mlp.fc_out.weight", TFM_ROLE_DOWN, TAKE_ROWS},
    {"@h.#.mlp.fc_out.bias", TFM_ROLE_DOWN_B, TAKE_ROWS},
    NAMES_END};
HF_FAMILY(gptj, &gpt, "gptj", gptj_hf, gptj_names);

/* q, v and k in one matrix of four parts. */
static const name_row codegen_names[] = {
    {"@h.#.attn.qkv_proj.weight", TFM_ROLE_Q, TAKE_QUARTERS_Q},
    {"@h.#.attn.qkv_proj.weight", TFM_ROLE_K, TAKE_QUARTERS_K},
    {"@h.#.attn.qkv_proj.weight", TFM_ROLE_V, TAKE_QUARTERS_V},
    NAMES_END};
HF_FAMILY(codegen, &gptj, "codegen", NULL, codegen_names);

/* q, k and v head by head; a part of a head rotates; the branches are parallel, each with its norm. */
static const rule gpt_neox_hf[] = {
    REAL_OR("layer_norm_eps", P_NORM_EPS, 1e-5),
    NAME_OR("hidden_act", P_ACT, TFM_ACT_GELU_ERF, activations),
    REAL_OR("rotary_pct", P_ROPE_PART, 0.25), REAL("partial_rotary_factor", P_ROPE_PART),
    REAL("rotary_emb_base", P_ROPE_THETA),
    NAME_OR("use_parallel_residual", P_RESIDUAL, TFM_RESIDUAL_PARALLEL_2, parallel_2),
    BITS_ON("attention_bias", P_BIAS, BIAS_QKV | TFM_BIAS_O),
    HARMLESS("classifier_dropout"), HARMLESS("is_decoder"),
    FIXED(P_ROPE_STYLE, TFM_ROPE_HALF),
    END};
static const name_row gpt_neox_names[] = {
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
    {"@layers.#.mlp.dense_4h_to_h.bias", TFM_ROLE_DOWN_B, TAKE_ROWS},
    NAMES_END};
static const char *const gpt_neox_prefixes[] = {"gpt_neox.", "", NULL};
static const char *const gpt_neox_own[] = {"@", "embed_out.", "lm_head.", NULL};
static const family gpt_neox = {
    "gpt_neox", &gpt, {[FORM_HF] = {"gpt_neox", gpt_neox_hf, gpt_neox_names, gpt_neox_prefixes, gpt_neox_own, NULL}}};

/* Positions start at row 2; norms before the branches, or after the sums and then none at the end; a narrow embedding
 * is projected. */
static const named_value opt_places[] = {{"true", TFM_PLACE_PRE}, {"false", TFM_PLACE_POST_ADD}, {NULL, 0}};
static const named_value inverted[] = {{"true", 0}, {"false", 1}, {NULL, 0}};
static const rule opt_hf[] = {
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
    FIXED(P_POS_OFFSET, 2),
    END};
static const name_row opt_names[] = {
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
    {"@layers.#.fc2.bias", TFM_ROLE_DOWN_B, TAKE_ROWS},
    NAMES_END};
static const char *const opt_prefixes[] = {"model.decoder.", "decoder.", "", NULL};
static const family opt = {
    "opt", &gpt, {[FORM_HF] = {"opt", opt_hf, opt_names, opt_prefixes, NULL, NULL}}};

/* ALiBi; a norm over the embedding; q, k and v head by head. */
static const rule bloom_hf[] = {
    INT("n_embed", P_D_MODEL),
    BOOL_OR("tie_word_embeddings", P_TIED, 1),
    INT("seq_length", P_N_CTX),
    HARMLESS("slow_but_exact"), HARMLESS("attention_softmax_in_fp32"), HARMLESS("bias_dropout_fusion"),
    HARMLESS("masked_softmax_fusion"), HARMLESS("skip_bias_add"), HARMLESS("skip_bias_add_qkv"),
    HARMLESS("offset_alibi"),
    FIXED(P_EMBED_NORM, 1),
    FIXED(P_ALIBI, TFM_ALIBI_SLOPES),
    END};
static const name_row bloom_names[] = {
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
    {"@h.#.mlp.dense_4h_to_h.bias", TFM_ROLE_DOWN_B, TAKE_ROWS},
    NAMES_END};
HF_FAMILY(bloom, &gpt, "bloom", bloom_hf, bloom_names);

/* ALiBi by slopes of its own; LayerNorms without bias, no other bias either; q, k and v may be clamped. Keys of
 * attn_config that would change something are refused unless they are off; those listed here are not read by the
 * reference either. */
static const rule mpt_hf[] = {
    INT("d_model", P_D_MODEL), INT("n_heads", P_N_HEADS), INT("n_layers", P_N_LAYERS),
    INT_OR("max_seq_len", P_N_CTX, 2048),
    BOOL_OR("tie_word_embeddings", P_TIED, 1),
    SPECIAL("attn_config", P_NESTED),
    REAL("clip_qkv", P_QKV_CLAMP),
    REAL("softmax_scale", P_ATTN_SCALE),
    HARMLESS("alibi"), HARMLESS("alibi_bias_max"), HARMLESS("attn_impl"), HARMLESS("attn_type"), HARMLESS("attn_pdrop"),
    HARMLESS("expansion_ratio"), HARMLESS("learned_pos_emb"), HARMLESS("emb_pdrop"), HARMLESS("init_config"),
    HARMLESS("init_device"), HARMLESS("embedding_fraction"), HARMLESS("norm_type"), HARMLESS("no_bias"),
    HARMLESS("tokenizer_name"), HARMLESS("verbose"), HARMLESS("ffn_config"), HARMLESS("problem_type"),
    FIXED(P_ACT, TFM_ACT_GELU_ERF),
    FIXED(P_BIAS, 0),
    FIXED(P_ALIBI, TFM_ALIBI_SLOPES),
    FIXED(P_SLOPE_RULE, SLOPES_ABOVE),
    END};
static const name_row mpt_names[] = {
    {"alibi.slopes", TFM_ROLE_SLOPES, TAKE_ROWS},
    {"@norm_f.weight", TFM_ROLE_OUT_NORM, TAKE_ROWS},
    {"@blocks.#.norm_1.weight", TFM_ROLE_ATTN_NORM, TAKE_ROWS},
    {"@blocks.#.norm_2.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS},
    {"@blocks.#.attn.Wqkv.weight", TFM_ROLE_Q, TAKE_ALL_Q},
    {"@blocks.#.attn.Wqkv.weight", TFM_ROLE_K, TAKE_ALL_K},
    {"@blocks.#.attn.Wqkv.weight", TFM_ROLE_V, TAKE_ALL_V},
    {"@blocks.#.attn.out_proj.weight", TFM_ROLE_O, TAKE_ROWS},
    {"@blocks.#.ffn.up_proj.weight", TFM_ROLE_UP, TAKE_ROWS},
    {"@blocks.#.ffn.down_proj.weight", TFM_ROLE_DOWN, TAKE_ROWS},
    NAMES_END};
HF_FAMILY(mpt, &gpt, "mpt", mpt_hf, mpt_names);

/* Parallel branches under one norm, one key/value head; without multi_query as many as heads. */
static const named_value falcon_alibi[] = {{"true", TFM_ALIBI_BF16}, {"false", TFM_ALIBI_NONE}, {NULL, 0}};
static const named_value falcon_rope[] = {{"true", TFM_ROPE_NONE}, {"false", TFM_ROPE_HALF}, {NULL, 0}};
static const rule falcon_hf[] = {
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
    NAME("alibi", P_ROPE_STYLE, falcon_rope),
    END};
HF_FAMILY(falcon, &bloom, "falcon", falcon_hf, NULL);

/* The newer form: key/value heads by number, a norm for each branch unless num_ln_in_parallel_attn is 1. */
static const rule falcon_new_hf[] = {
    HARMLESS("new_decoder_architecture"), HARMLESS("multi_query"), HARMLESS("parallel_attn"),
    INT("num_kv_heads", P_N_KV_HEADS), INT("n_head_kv", P_N_KV_HEADS),
    FIXED(P_N_KV_HEADS, -1), /* as many as heads */
    INT("num_ln_in_parallel_attn", P_RESIDUAL), /* 1 and 2 are the numbers of those residuals too */
    FIXED(P_RESIDUAL, TFM_RESIDUAL_PARALLEL_2),
    END};
static const name_row falcon_new_names[] = {
    {"@h.#.ln_attn.weight", TFM_ROLE_ATTN_NORM, TAKE_ROWS},
    {"@h.#.input_layernorm.weight", TFM_ROLE_ATTN_NORM, TAKE_ROWS},
    {"@h.#.ln_attn.bias", TFM_ROLE_ATTN_NORM_B, TAKE_ROWS},
    {"@h.#.input_layernorm.bias", TFM_ROLE_ATTN_NORM_B, TAKE_ROWS},
    {"@h.#.ln_mlp.weight", TFM_ROLE_FFN_NORM, TAKE_ROWS},
    {"@h.#.ln_mlp.bias", TFM_ROLE_FFN_NORM_B, TAKE_ROWS},
    NAMES_END};
HF_FAMILY(falcon_new, &falcon, "new_decoder_architecture= falcon", falcon_new_hf, falcon_new_names);

/* ---- PHI 1 AND 2, PERSIMMON ------------------------------------------------------------------------------------ */

/* Parallel branches under one norm, a bias at the head too; partial RoPE. */
static const rule phi_hf[] = {
    REAL_OR("layer_norm_eps", P_NORM_EPS, 1e-5),
    NAME_OR("hidden_act", P_ACT, TFM_ACT_GELU_TANH, activations),
    REAL_OR("partial_rotary_factor", P_ROPE_PART, 0.5),
    BITS("qk_layernorm", P_QK_NORM, TFM_QKNORM_HEAD),
    BITS("qk_layernorm", P_BIAS, TFM_BIAS_QK_NORM),
    FIXED(P_RESIDUAL, TFM_RESIDUAL_PARALLEL_1),
    FIXED(P_ROPE_STYLE, TFM_ROPE_HALF),
    FIXED(P_HEAD_BIAS, 1),
    END};
static const name_row phi_names[] = {
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
    {"@layers.#.mlp.fc2.bias", TFM_ROLE_DOWN_B, TAKE_ROWS},
    NAMES_END};
static const family phi = {
    "phi", &gpt, {[FORM_HF] = {"phi", phi_hf, phi_names, hf_prefixes, NULL, NULL}}};

/* Sequential; q, k and v head by head, normed with bias; squared ReLU. */
static const rule persimmon_hf[] = {
    NAME_OR("hidden_act", P_ACT, TFM_ACT_RELU2, activations),
    INT_OR("max_position_embeddings", P_N_CTX, 16384),
    BITS_ON("qk_layernorm", P_QK_NORM, TFM_QKNORM_HEAD),
    BITS_ON("qk_layernorm", P_BIAS, TFM_BIAS_QK_NORM),
    FIXED(P_RESIDUAL, TFM_RESIDUAL_SEQUENTIAL),
    FIXED(P_HEAD_BIAS, 0),
    END};
static const name_row persimmon_names[] = {
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
    {"@layers.#.mlp.dense_4h_to_h.bias", TFM_ROLE_DOWN_B, TAKE_ROWS},
    NAMES_END};
HF_FAMILY(persimmon, &phi, "persimmon", persimmon_hf, persimmon_names);

static const family *const families[] = {
    &llama, &mistral, &qwen2, &qwen3, &gemma, &gemma2, &gemma3, &phi3, &granite, &helium, &ernie4_5, &seed_oss, &arcee,
    &hunyuan_v1_dense, &glm, &glm4, &olmo, &olmo2, &olmo3, &exaone4, &smollm3, &ministral, &ministral3, &cohere,
    &cohere2, &nemotron, &stablelm, &starcoder2, &jais2, &gpt2, &gpt_bigcode, &gpt_neo, &gptj, &codegen, &gpt_neox,
    &opt, &bloom, &mpt, &falcon_new, &falcon, &phi, &persimmon, &apertus, &nanochat, &vaultgemma, &gpt1};
enum { N_FAMILIES = sizeof families / sizeof families[0] };

/* ---- LOOKING UP ------------------------------------------------------------------------------------------------ */

static int is_word_of(const char *words, const char *word) {
    size_t n = strlen(word);
    for (const char *at = words; at && n; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (!strncmp(at, word, n) && (at[n] == 0 || at[n] == ' ')) return 1;
    }
    return 0;
}

const family *family_find(source_form form, const char *name, family_asks *ask, const void *user) {
    for (int i = 0; i < N_FAMILIES; i++) {
        const char *words = families[i]->form[form].names_of, *end = words ? strchr(words, '=') : NULL;
        char key[64];
        if (!is_word_of(words, name)) continue;
        if (!end) return families[i];
        snprintf(key, sizeof key, "%.*s", (int)(end - words), words);
        if (ask && ask(user, key)) return families[i];
    }
    return NULL;
}

const char *family_list(source_form form, char *buf, size_t size) {
    size_t used = 0;
    buf[0] = 0;
    for (int i = 0; i < N_FAMILIES; i++) {
        const char *names = families[i]->form[form].names_of;
        if (!names || strchr(names, '=') || used >= size) continue; /* a variant: its family stands alone too */
        int n = snprintf(buf + used, size - used, "%s%s", used ? " " : "", names);
        used += n > 0 ? (size_t)n : 0;
    }
    return buf;
}

static int is_last(const rule *r) { return !r->key && r->kind != RULE_FIXED; }

const rule *family_rule(const family *f, source_form form, const char *key, int i) {
    for (; f; f = f->base) {
        int here = 0;
        for (const rule *r = f->form[form].rules; r && !is_last(r); r++)
            if (r->key && !strcmp(r->key, key) && here++ == i) return r;
        if (here) return NULL;
    }
    return NULL;
}

void family_defaults(const family *f, source_form form, value_set *set) {
    if (f->base) family_defaults(f->base, form, set);
    for (const rule *r = f->form[form].rules; r && !is_last(r); r++) {
        if (r->kind != RULE_FIXED && !(r->flags & RULE_DEFAULT)) continue;
        set->v[r->param] = r->kind == RULE_BITS ? (int)set->v[r->param] | (int)r->value : r->value;
        set->given[r->param] = GIVEN_DEFAULT;
    }
}

const char *family_missing(const family *f, source_form form, const value_set *set) {
    for (const family *at = f; at; at = at->base)
        for (const rule *r = at->form[form].rules; r && !is_last(r); r++)
            if ((r->flags & RULE_REQUIRED) && set->given[r->param] != GIVEN_FILE &&
                family_rule(f, form, r->key, 0) == r)
                return r->key;
    return NULL;
}

const name_row *family_name(const family *f, source_form form, int role, int i) {
    for (; f; f = f->base) {
        int here = 0;
        for (const name_row *n = f->form[form].names; n && n->pattern; n++)
            if (n->role == role && here++ == i) return n;
        if (here) return NULL;
    }
    return NULL;
}

const char *const *family_prefixes(const family *f, source_form form) {
    while (f->base && !f->form[form].prefixes) f = f->base;
    return f->form[form].prefixes;
}

int family_owns(const family *f, source_form form, const char *prefix, const char *name) {
    while (f->base && !f->form[form].own) f = f->base;
    for (const char *const *own = f->form[form].own; own && *own; own++) {
        const char *start = strcmp(*own, "@") ? *own : prefix;
        if (!strncmp(name, start, strlen(start))) return 1;
    }
    return 0;
}

/* Whether text is pattern, whose '*' stand for anything. */
static int matches(const char *pattern, const char *text) {
    const char *star = NULL, *again = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = ++pattern;
            again = text;
        } else if (*pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star;
            text = ++again;
        } else {
            return 0;
        }
    }
    while (*pattern == '*') pattern++;
    return *pattern == 0;
}

int family_skips(const family *f, source_form form, const char *name) {
    for (; f; f = f->base)
        for (const char *const *skip = f->form[form].skip; skip && *skip; skip++)
            if (matches(*skip, name)) return 1;
    return 0;
}

const char *family_format(const char *pattern, const char *prefix, int layer, char *buf, size_t size) {
    size_t used = 0;
    for (const char *p = pattern; *p && used + 1 < size; p++) {
        int n = 1;
        if (*p == '@') n = snprintf(buf + used, size - used, "%s", prefix);
        else if (*p == '#') n = snprintf(buf + used, size - used, "%d", layer);
        else buf[used] = *p;
        used += n > 0 ? (size_t)n : 0;
    }
    buf[used < size ? used : size - 1] = 0;
    return buf;
}

const name_row *family_joined(const family *f, source_form form, int i) {
    for (; f; f = f->base)
        for (const name_row *n = f->form[form].names; n && n->pattern; n++)
            if (strpbrk(n->pattern, "|%") && i-- == 0) return n;
    return NULL;
}
