/* test_convert.c - Hugging Face directories: what the converter reads out of a configuration, which tensors it takes,
 * what it refuses. The directories are built here in memory; element (row, col) of a matrix is row + col / 64.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "convert_output.h"

/* ---- A HUGGING FACE DIRECTORY ---------------------------------------------------------------------------------- */

enum { D = 8, HEADS = 2, KV = 1, HEAD_DIM = 4, FF = 12, VOCAB = 5, LAYERS = 7 };
enum { BIAS_QKV = 1, BIAS_O = 2, BIAS_MLP = 4, QK_NORM = 8, SANDWICH = 16, HEAD = 32, NO_EMBED = 64,
       HEAD_DIFFERS = 128 };

typedef struct builder {
    char header[65536];
    float data[16384];
    size_t n_header, n;
    unsigned char file[sizeof(uint64_t) + 65536 + 16384 * 4];
    size_t size;
} builder;

/* A matrix; rows 0: a vector. `shift` moves the rows' values. */
static void add_tensor(builder *b, const char *name, int rows, int cols, float shift) {
    size_t begin = b->n;
    for (int r = 0; r < (rows ? rows : 1); r++)
        for (int c = 0; c < cols; c++) b->data[b->n++] = rows ? (float)r + shift + (float)c / 64 : (float)c + 1;
    b->n_header += (size_t)snprintf(b->header + b->n_header, sizeof b->header - b->n_header,
                                    "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[", b->n_header ? "," : "{", name);
    if (rows) b->n_header += (size_t)snprintf(b->header + b->n_header, sizeof b->header - b->n_header, "%d,", rows);
    b->n_header += (size_t)snprintf(b->header + b->n_header, sizeof b->header - b->n_header,
                                    "%d],\"data_offsets\":[%zu,%zu]}", cols, 4 * begin, 4 * b->n);
}

static void add_layer_tensor(builder *b, const char *prefix, int layer, const char *name, int rows, int cols) {
    char full[128];
    snprintf(full, sizeof full, "%slayers.%d.%s", prefix, layer, name);
    add_tensor(b, full, rows, cols, 0);
}

static void add_layer(builder *b, const char *p, int i, int parts) {
    add_layer_tensor(b, p, i, "input_layernorm.weight", 0, D);
    add_layer_tensor(b, p, i, "post_attention_layernorm.weight", 0, D);
    add_layer_tensor(b, p, i, "self_attn.q_proj.weight", HEADS * HEAD_DIM, D);
    add_layer_tensor(b, p, i, "self_attn.k_proj.weight", KV * HEAD_DIM, D);
    add_layer_tensor(b, p, i, "self_attn.v_proj.weight", KV * HEAD_DIM, D);
    add_layer_tensor(b, p, i, "self_attn.o_proj.weight", D, HEADS * HEAD_DIM);
    add_layer_tensor(b, p, i, "mlp.gate_proj.weight", FF, D);
    add_layer_tensor(b, p, i, "mlp.up_proj.weight", FF, D);
    add_layer_tensor(b, p, i, "mlp.down_proj.weight", D, FF);
    if (parts & BIAS_QKV) {
        add_layer_tensor(b, p, i, "self_attn.q_proj.bias", 0, HEADS * HEAD_DIM);
        add_layer_tensor(b, p, i, "self_attn.k_proj.bias", 0, KV * HEAD_DIM);
        add_layer_tensor(b, p, i, "self_attn.v_proj.bias", 0, KV * HEAD_DIM);
    }
    if (parts & BIAS_O) add_layer_tensor(b, p, i, "self_attn.o_proj.bias", 0, D);
    if (parts & BIAS_MLP) {
        add_layer_tensor(b, p, i, "mlp.gate_proj.bias", 0, FF);
        add_layer_tensor(b, p, i, "mlp.up_proj.bias", 0, FF);
        add_layer_tensor(b, p, i, "mlp.down_proj.bias", 0, D);
    }
    if (parts & QK_NORM) {
        add_layer_tensor(b, p, i, "self_attn.q_norm.weight", 0, HEAD_DIM);
        add_layer_tensor(b, p, i, "self_attn.k_norm.weight", 0, HEAD_DIM);
    }
    if (parts & SANDWICH) {
        add_layer_tensor(b, p, i, "pre_feedforward_layernorm.weight", 0, D);
        add_layer_tensor(b, p, i, "post_feedforward_layernorm.weight", 0, D);
    }
}

static void add_model(builder *b, const char *prefix, int parts) {
    char name[128];
    snprintf(name, sizeof name, "%sembed_tokens.weight", prefix);
    if (!(parts & NO_EMBED)) add_tensor(b, name, VOCAB, D, 0);
    if (parts & HEAD) add_tensor(b, "lm_head.weight", VOCAB, D, parts & HEAD_DIFFERS ? 1.0f : 0.0f);
    snprintf(name, sizeof name, "%snorm.weight", prefix);
    add_tensor(b, name, 0, D, 0);
    for (int i = 0; i < LAYERS; i++) add_layer(b, prefix, i, parts);
}

/* length of the header · header · data */
static void finish_safetensors(builder *b) {
    size_t at = 0;
    b->header[b->n_header++] = '}';
    put_le(b->file, &at, b->n_header, 8);
    memcpy(b->file + at, b->header, b->n_header);
    at += b->n_header;
    for (size_t i = 0; i < b->n; i++) put_f32(b->file, &at, b->data[i]);
    b->size = at;
}

static void config_text(char *buf, size_t size, const char *model_type, const char *extra) {
    snprintf(buf, size, "{\"model_type\":\"%s\",\"hidden_size\":%d,\"intermediate_size\":%d,\"num_hidden_layers\":%d,"
             "\"num_attention_heads\":%d,\"num_key_value_heads\":%d,\"vocab_size\":%d%s%s}", model_type, D, FF, LAYERS,
             HEADS, KV, VOCAB, *extra ? "," : "", extra);
}

static int convert_files(output *o, const builder *b, const char *config, const char *generation,
                         const convert_options *options) {
    memory_file files[3] = {{"config.json", config, strlen(config)}, {"model.safetensors", b->file, b->size},
                            {"generation_config.json", generation, generation ? strlen(generation) : 0}};
    memory_dir folder = {files, generation ? 3 : 2};
    source_dir dir = dir_memory("dir", &folder);
    sink out = output_sink(o);
    return output_open(o, convert_directory(&dir, &out, options, &o->err));
}

static int convert_hf(output *o, const char *config, int parts, const char *generation) {
    builder *b = calloc(1, sizeof *b);
    if (!b) exit(1);
    add_model(b, "model.", parts);
    finish_safetensors(b);
    convert_options options = output_options(o);
    int code = convert_files(o, b, config, generation, &options);
    free(b);
    return code;
}

/* ---- CONFIGURATIONS -------------------------------------------------------------------------------------------- */

typedef struct expectation { int layer; const char *field; double value; } expectation; /* layer -1: of the model */

typedef struct config_row {
    const char *model_type, *extra;
    int parts;
    const char *error; /* a part of the message, or NULL: it converts */
    expectation want[4];
} config_row;

#define NOTHING {{0, NULL, 0}}

static const config_row config_rows[] = {
    /* defaults and spellings */
    {"llama", "", HEAD, NULL,
     {{-1, "n_ctx", 2048}, {0, "rope_theta", 1e4}, {0, "norm_eps", 1e-6}, {0, "n_kv_heads", 1}}},
    {"llama", "\"rope_theta\":5e5,\"rms_norm_eps\":1e-5", HEAD, NULL, {{6, "rope_theta", 5e5}, {-1, "norm_eps", 1e-5}}},
    {"llama", "\"rope_parameters\":{\"rope_theta\":5e5,\"rope_type\":\"default\"},\"dtype\":\"float32\"", HEAD, NULL,
     {{0, "rope_theta", 5e5}, {0, "rope_scaling", TFM_ROPE_PLAIN}}},
    {"llama", "\"rope_scaling\":{\"type\":\"linear\",\"factor\":4.0}", HEAD, NULL,
     {{0, "rope_scaling", TFM_ROPE_LINEAR}, {0, "rope_factor", 4}}},
    {"llama", "\"rope_scaling\":{\"rope_type\":\"yarn\",\"type\":\"linear\",\"factor\":null},"
     "\"max_position_embeddings\":64,\"original_max_position_embeddings\":16", HEAD, NULL,
     {{0, "rope_scaling", TFM_ROPE_YARN}, {0, "rope_factor", 4}, {0, "rope_ctx_orig", 16}, {0, "rope_high", 32}}},
    {"llama", "\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1.0,"
     "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":64,\"rope_theta\":5e5}", HEAD, NULL,
     {{0, "rope_scaling", TFM_ROPE_BANDS}, {0, "rope_high", 4}, {0, "rope_ctx_orig", 64}, {0, "rope_theta", 5e5}}},
    {"llama", "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2.0},\"max_position_embeddings\":24", HEAD, NULL,
     {{0, "rope_scaling", TFM_ROPE_DYNAMIC}, {0, "rope_ctx_max", 24}}},
    {"llama", "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1],\"long_factor\":[2,3.5],"
     "\"original_max_position_embeddings\":16},\"max_position_embeddings\":64", HEAD, NULL,
     {{0, "rope_scaling", TFM_ROPE_LONG}, {0, "rope_factor", 4}, {0, "rope_ctx_orig", 16}}},
    {"llama", "\"attention_bias\":true", HEAD | BIAS_QKV | BIAS_O, NULL, {{0, "bias", 15}}},
    {"llama", "\"mlp_bias\":true", HEAD | BIAS_MLP, NULL, {{0, "bias", 112}}},
    {"llama", "\"hidden_size\":8.0,\"hidden_act\":\"relu2\"", HEAD, NULL, {{0, "ffn_act", TFM_ACT_RELU2}}},
    {"llama", "\"mystery\":null,\"other\":false,\"third\":[],\"fourth\":\"\"", HEAD, NULL, NOTHING},
    {"llama", "\"tie_word_embeddings\":true,\"bos_token_id\":null,\"eos_token_id\":[3,4,3]", 0, NULL,
     {{-1, "tied", 1}, {-1, "bos", 1}, {-1, "n_eos", 2}}},
    /* windows */
    {"mistral", "\"sliding_window\":4", HEAD, NULL, {{0, "window", 4}, {6, "window", 4}}},
    {"mistral", "\"sliding_window\":null", HEAD, NULL, {{0, "window", 0}}},
    {"mistral", "", HEAD, NULL, {{0, "window", 4096}, {-1, "n_ctx", 131072}}},
    {"qwen2", "\"sliding_window\":4,\"max_window_layers\":3", HEAD | BIAS_QKV, NULL,
     {{6, "window", 0}, {0, "bias", 7}}},
    {"qwen2", "\"sliding_window\":4,\"max_window_layers\":3,\"use_sliding_window\":true", HEAD | BIAS_QKV, NULL,
     {{2, "window", 0}, {3, "window", 4}}},
    {"qwen3", "\"head_dim\":4,\"attention_bias\":true", HEAD | BIAS_QKV | BIAS_O | QK_NORM, NULL,
     {{0, "qk_norm", TFM_QKNORM_HEAD}, {0, "bias", 15}, {0, "qk_norm_offset", 0}}},
    /* gemma */
    {"gemma", "\"head_dim\":4,\"hidden_act\":\"gelu\"", 0, NULL,
     {{0, "norm_offset", 1}, {0, "ffn_act", TFM_ACT_GELU_TANH}, {-1, "tied", 1}, {-1, "embed_scale", 2.82842712}}},
    {"gemma2", "\"head_dim\":4,\"query_pre_attn_scalar\":16", SANDWICH, NULL,
     {{0, "window", 4096}, {1, "window", 0}, {0, "attn_softcap", 50}, {0, "attn_scale", 0.25}}},
    {"gemma2", "\"head_dim\":4,\"attn_logit_softcapping\":null,\"final_logit_softcapping\":null", SANDWICH, NULL,
     {{0, "attn_softcap", 0}, {-1, "logit_softcap", 0}, {0, "norm_place", TFM_PLACE_SANDWICH}}},
    {"gemma3_text", "\"head_dim\":4,\"sliding_window\":6,\"attn_logit_softcapping\":50.0", SANDWICH | QK_NORM, NULL,
     {{4, "rope_theta", 1e4}, {5, "rope_theta", 1e6}, {5, "window", 0}, {6, "attn_softcap", 0}}},
    {"gemma3_text", "\"head_dim\":4,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8.0}",
     SANDWICH | QK_NORM, NULL,
     {{4, "rope_scaling", TFM_ROPE_PLAIN}, {5, "rope_factor", 8}, {0, "qk_norm_offset", 1}}},
    {"gemma3_text", "\"head_dim\":4,\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\","
     "\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\"],\"rope_parameters\":"
     "{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":8.0,\"rope_theta\":7e5},"
     "\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":300}}", SANDWICH | QK_NORM, NULL,
     {{0, "rope_theta", 7e5}, {1, "rope_theta", 300}, {0, "rope_factor", 8}, {1, "rope_scaling", TFM_ROPE_PLAIN}}},
    /* refused */
    {"mamba", "", 0, "model_type \"mamba\" is not known", NOTHING},
    {"llama", "\"mystery\":3", HEAD, "mystery", NOTHING},
    {"exaone4", "\"sliding_window_pattern\":\"LGLG\"", HEAD, "sliding_window_pattern: \"LGLG\"", NOTHING},
    {"gpt_oss", "\"swiglu_alpha\":1.5", HEAD, "swiglu_alpha 1.5", NOTHING},
    {"qwen3_moe", "\"mlp_only_layers\":[5000]", HEAD, "mlp_only_layers", NOTHING},
    {"exaone_moe", "\"mlp_layer_types\":[\"dense\",\"hash\"]", HEAD, "mlp_layer_types", NOTHING},
    {"exaone_moe", "\"mlp_layer_types\":[\"dense\"]", HEAD, "has 1 entries", NOTHING},
    {"llama", "\"sliding_window\":4096", HEAD, "sliding_window", NOTHING},
    {"llama", "\"rope_scaling\":{\"type\":\"spiral\",\"factor\":2}", HEAD, "rope_scaling.type: \"spiral\"", NOTHING},
    {"llama", "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,\"twist\":1}", HEAD, "twist", NOTHING},
    {"llama", "\"rope_scaling\":{\"type\":\"linear\"}", HEAD, "factor is missing", NOTHING},
    {"llama", "\"rope_scaling\":{\"type\":\"linear\",\"factor\":-2}", HEAD, "factor -2", NOTHING},
    {"llama", "\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}", HEAD,
     "rope_scaling.factor: must not be 0", NOTHING},
    {"llama", "\"rope_scaling\":4", HEAD, "rope_scaling: expected an object", NOTHING},
    {"llama", "\"rope_theta\":0", HEAD, "rope_theta", NOTHING},
    {"llama", "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[2]}", HEAD,
     "short_factor is [1]", NOTHING},
    {"llama", "\"hidden_size\":\"8\"", HEAD, "hidden_size", NOTHING},
    {"llama", "\"num_hidden_layers\":0", HEAD, "number of layers is 0", NOTHING},
    {"llama", "\"num_hidden_layers\":8", HEAD, "model.layers.7.input_layernorm.weight is missing", NOTHING},
    {"llama", "\"num_hidden_layers\":2147483647", HEAD, "2147483647 layers", NOTHING},
    {"llama", "\"num_hidden_layers\":6", HEAD, "model.layers.6.", NOTHING},
    {"mixtral", "\"num_local_experts\":0,\"num_hidden_layers\":6", HEAD, "model.layers.6.", NOTHING},
    {"mixtral", "\"num_local_experts\":0,\"num_hidden_layers\":6,\"num_nextn_predict_layers\":1", HEAD, NULL,
     {{0, "ffn_kind", TFM_FFN_DENSE}}},
    {"llama", "\"num_key_value_heads\":0", HEAD, "key/value heads", NOTHING},
    {"llama", "\"num_attention_heads\":3,\"num_key_value_heads\":3", HEAD, "no multiple of 3 heads", NOTHING},
    {"llama", "\"intermediate_size\":16", HEAD,
     "mlp.gate_proj.weight is [12, 8], config.json asks for [16, 8]", NOTHING},
    {"llama", "\"vocab_size\":4", HEAD, "vocab_size is 4, but tensor model.embed_tokens.weight has 5 rows", NOTHING},
    {"llama", "\"attention_bias\":true", HEAD, "self_attn.q_proj.bias is missing", NOTHING},
    {"llama", "", HEAD | BIAS_QKV, "_proj.bias: the model as described has no such part", NOTHING},
    {"llama", "\"eos_token_id\":5", HEAD, "eos token id 5, but the embedding has 5 rows", NOTHING},
    {"llama", "\"layer_types\":[\"full_attention\"]", HEAD, "layer_types has 1 entries", NOTHING},
    {"llama", "\"layer_types\":[\"linear_attention\"]", HEAD, "\"linear_attention\" is not known", NOTHING},
    {"llama", "\"hidden_act\":\"xielu\"", HEAD, "hidden_act: \"xielu\"", NOTHING},
    {"llama", "\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4}", HEAD, NULL, NOTHING},
    {"llama", "\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":3}", HEAD, "GPTQ of bits \"3\"", NOTHING},
    {"llama", "\"quantization_config\":{\"quant_method\":\"awq\",\"version\":\"gemv\"}", HEAD,
     "AWQ version \"gemv\"", NOTHING},
    {"llama", "\"quantization_config\":{\"quant_method\":\"bitsandbytes\"}", HEAD,
     "\"bitsandbytes\" is not read", NOTHING},
    {"llama", "\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[0,128]}", HEAD, "out of range",
     NOTHING},
    {"llama", "\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"nvfp4-pack-quantized\"}",
     HEAD, "\"nvfp4-pack-quantized\" is not read", NOTHING},
    {"qwen3", "", HEAD | QK_NORM, "asks for [256, 8]", NOTHING},
};

static double field_of(const tfm_model *m, const expectation *e) {
    int n = 0;
    const tfm_field *fields = e->layer < 0 ? tfm_config_fields(&n) : tfm_block_fields(&n);
    const char *base = e->layer < 0 ? (const char *)tfm_model_config_of(m) : (const char *)tfm_model_block(m, e->layer);
    for (int i = 0; i < n; i++) {
        int32_t integer;
        float real;
        if (strcmp(fields[i].name, e->field)) continue;
        memcpy(&integer, base + fields[i].offset, 4);
        memcpy(&real, base + fields[i].offset, 4);
        return fields[i].kind == 2 ? (double)real : (double)integer;
    }
    return -12345;
}

static void check_row(const config_row *row) {
    char config[2048];
    output o;
    config_text(config, sizeof config, row->model_type, row->extra);
    output_start(&o);
    int code = convert_hf(&o, config, row->parts, NULL);
    if (row->error) {
        check(code && strstr(o.err.msg, row->error), "%s {%s}: expected \"%s\", got %d \"%s\"", row->model_type,
              row->extra, row->error, code, code ? o.err.msg : "");
    } else {
        check(!code, "%s {%s}: %s", row->model_type, row->extra, code ? o.err.msg : "");
    }
    for (int i = 0; !code && i < 4 && row->want[i].field; i++) {
        double value = field_of(o.model, &row->want[i]);
        check(fabs(value - row->want[i].value) <= 1e-6 * fabs(row->want[i].value), "%s {%s}: layer %d %s is %g, not %g",
              row->model_type, row->extra, row->want[i].layer, row->want[i].field, value, row->want[i].value);
    }
    output_end(&o);
}

/* What may stand in the place of a value, right for no key or for few. */
static const char *const absurd[] = {
    "0", "-1", "1", "2", "3", "2147483647", "2147483648", "-2147483648", "4294967297", "9223372036854775807", "1e400",
    "-1e-400", "1e18", "0.5", "NaN", "-Infinity", "null", "true", "\"x\"", "\"\"", "[]", "[0]", "[[[[]]]]", "{}",
    "{\"a\":1}"};

/* The end of the value that begins at p: a number, string, word or list. */
static const char *value_end(const char *p) {
    int depth = 0;
    for (; *p; p++) {
        if (*p == '"') for (p++; *p && *p != '"'; p++) {}
        depth += (*p == '[' || *p == '{') - (*p == ']' || *p == '}');
        if (depth < 0 || (!depth && (*p == ',' || *p == 0))) return p;
    }
    return p;
}

/* Each value of a configuration becomes an absurd one: an error of one line, or a model that runs. */
static void check_absurd(const config_row *row, const builder *b, size_t *turn) {
    char config[2048], other[2048];
    config_text(config, sizeof config, row->model_type, row->extra);
    for (const char *p = strchr(config, ':'); p; p = strchr(p + 1, ':')) {
        const char *end = value_end(p + 1);
        output o;
        snprintf(other, sizeof other, "%.*s%s%s", (int)(p + 1 - config), config,
                 absurd[(*turn)++ % (sizeof absurd / sizeof *absurd)], end);
        output_start(&o);
        convert_options options = output_options(&o);
        output_use(&o, convert_files(&o, b, other, NULL, &options), other);
        output_end(&o);
    }
}

void test_convert_absurd(void) {
    size_t turn = 0;
    for (size_t i = 0; i < sizeof config_rows / sizeof *config_rows; i++) {
        builder *b = calloc(1, sizeof *b);
        if (!b) exit(1);
        add_model(b, "model.", config_rows[i].parts);
        finish_safetensors(b);
        for (int k = 0; k < 2; k++) check_absurd(&config_rows[i], b, &turn);
        free(b);
    }
}

void test_convert_config(void) {
    for (size_t i = 0; i < sizeof config_rows / sizeof *config_rows; i++) check_row(&config_rows[i]);
}

/* ---- THE HEAD -------------------------------------------------------------------------------------------------- */

typedef struct head_row {
    const char *extra;
    int parts, refused, tied, warns;
    float first; /* element 0 of the head */
} head_row;

void test_convert_head(void) {
    static const char tied[] = "\"tie_word_embeddings\":true", untied[] = "\"tie_word_embeddings\":false";
    const head_row rows[] = {
        {tied, 0, 0, 1, 0, 0},
        {tied, HEAD, 0, 1, 0, 0},
        {tied, HEAD | HEAD_DIFFERS, 0, 0, 1, 1},
        {tied, HEAD | NO_EMBED, 0, 1, 0, 0},
        {tied, NO_EMBED, 1, 0, 0, 0},
        {untied, HEAD | HEAD_DIFFERS, 0, 0, 0, 1},
        {untied, HEAD | NO_EMBED, 1, 0, 0, 0},
        {untied, 0, 1, 0, 0, 0},
        {"", 0, 1, 0, 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char config[1024];
        output o;
        float row[D] = {-1};
        config_text(config, sizeof config, "llama", rows[i].extra);
        output_start(&o);
        int code = convert_hf(&o, config, rows[i].parts, NULL);
        check(!code == !rows[i].refused, "row %zu: %d %s", i, code, code ? o.err.msg : "");
        if (!code) {
            tfm_tensor head = tfm_model_tensor(o.model, -1, TFM_ROLE_HEAD);
            tfm_tensor embed = tfm_model_tensor(o.model, -1, TFM_ROLE_EMBED);
            tfm_tensor_row(&head, 0, row);
            check(tfm_model_config_of(o.model)->tied == rows[i].tied, "row %zu: tied", i);
            check((head.data == embed.data) == rows[i].tied, "row %zu: one pointer", i);
            check(row[0] == rows[i].first, "row %zu: the head begins with %g", i, (double)row[0]);
            check(!!strstr(o.warning, "lm_head.weight differs") == rows[i].warns, "row %zu: warning \"%s\"", i,
                  o.warning);
        }
        output_end(&o);
    }
}

/* ---- OTHER FILES OF THE DIRECTORY ------------------------------------------------------------------------------ */

static void check_generation_config(void) {
    char config[1024];
    output o;
    config_text(config, sizeof config, "llama", "\"eos_token_id\":2");
    output_start(&o);
    int code = convert_hf(&o, config, HEAD, "{\"eos_token_id\":[3,4],\"temperature\":0.6}");
    check(!code && tfm_model_config_of(o.model)->n_eos == 2 && tfm_model_config_of(o.model)->eos[0] == 3,
          "generation_config.json goes before config.json: %s", code ? o.err.msg : "");
    output_end(&o);
    static const struct { const char *config, *generation, *error; } wrong[] = { /* VOCAB ids are */
        {"\"eos_token_id\":2", "{\"eos_token_id\":[3,99]}", "dir: generation_config.json: eos token id 99"},
        {"\"eos_token_id\":2", "{\"bos_token_id\":99}", "dir: generation_config.json: bos token id 99"},
        {"\"eos_token_id\":99", "{\"bos_token_id\":1}", "dir: config.json: eos token id 99"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        config_text(config, sizeof config, "llama", wrong[i].config);
        output_start(&o);
        code = convert_hf(&o, config, HEAD, wrong[i].generation);
        check(code && !strncmp(o.err.msg, wrong[i].error, strlen(wrong[i].error)), "expected \"%s\", got %d \"%s\"",
              wrong[i].error, code, code ? o.err.msg : "");
        output_end(&o);
    }
}

/* A text model inside a larger one: text_config, its own prefix, other towers skipped with one warning. */
static void check_towers(void) {
    static const char config[] =
        "{\"model_type\":\"gemma3\",\"eos_token_id\":[1,4],\"vision_config\":{\"a\":1},"
        "\"text_config\":{\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":7,"
        "\"num_attention_heads\":2,\"num_key_value_heads\":1,"
        "\"head_dim\":4,\"vocab_size\":5}}";
    builder *b = calloc(1, sizeof *b);
    output o;
    output_start(&o);
    if (!b) exit(1);
    add_tensor(b, "vision_tower.a.weight", 2, 2, 0);
    add_tensor(b, "unused.filler", 2, 2, 0);
    add_model(b, "language_model.model.", SANDWICH | QK_NORM);
    finish_safetensors(b);
    convert_options options = output_options(&o);
    int code = convert_files(&o, b, config, NULL, &options);
    check(!code, "towers: %s", code ? o.err.msg : "");
    check(strstr(o.warning, "skipped 2 tensors that the model does not use: vision_tower.a.weight, unused.filler") != 0,
          "towers: \"%s\"", o.warning);
    check(!code && tfm_model_config_of(o.model)->n_eos == 2, "towers: eos beside text_config");
    free(b);
    output_end(&o);
}

/* Keys that the user lets pass; the same input gives the same bytes; types. */
static void check_options(void) {
    static const char *const allowed[] = {"mystery"};
    char config[1024];
    builder *b = calloc(1, sizeof *b);
    output o, again;
    if (!b) exit(1);
    config_text(config, sizeof config, "llama", "\"mystery\":3,\"tie_word_embeddings\":true");
    add_model(b, "model.", 0);
    finish_safetensors(b);
    output_start(&o);
    output_start(&again);
    convert_options options = output_options(&o);
    options.allow_unknown = allowed;
    options.n_allow_unknown = 1;
    int code = convert_files(&o, b, config, NULL, &options);
    check(!code, "allow-unknown: %s", code ? o.err.msg : "");
    code = convert_files(&again, b, config, NULL, &options);
    check(!code && o.size == again.size && !memcmp(o.bytes, again.bytes, o.size), "same input, same bytes");
    output_end(&again);
    output_end(&o);
    output_start(&o);
    options.user = &o;
    options.mix = mix_find("q8_0");
    code = convert_files(&o, b, config, NULL, &options);
    check(!code && tfm_model_tensor(o.model, 0, TFM_ROLE_Q).type == TFM_F16, "rows of 8 become F16: %s",
          code ? o.err.msg : "");
    check(!code && tfm_model_tensor(o.model, 0, TFM_ROLE_ATTN_NORM).type == TFM_F32, "norms stay F32");
    free(b);
    output_end(&o);
}

void test_convert_directory(void) {
    check_generation_config();
    check_towers();
    check_options();
}
