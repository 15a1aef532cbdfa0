/* convert_chat.c - where checkpoints keep their chat template and the special tokens it may name. */
#include <string.h>

#include "convert_chat.h"
#include "json.h"

enum { CONFIG_LIMIT = 64 << 20, TEMPLATE_LIMIT = 4 << 20 };

static const char *const token_names[] = {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token",
                                          "mask_token"};

/* ---- HUGGING FACE ---------------------------------------------------------------------------------------------- */

/* A file of the directory as JSON; *out is NULL if it is absent or no JSON object (the tokenizer's reader says why). */
static int read_json(arena *a, const source_dir *dir, const char *file, const json **out, tfm_error *err) {
    source src;
    const int status = dir->open(dir->user, file, &src, err);
    *out = NULL;
    if (status) return status < 0 ? status : TFM_OK;
    *out = json_read(&src, CONFIG_LIMIT, a, err);
    dir->close(dir->user, &src);
    if (!*out) return err ? err->code : TFM_ERR_FORMAT;
    if (!json_is(*out, JSON_OBJECT)) *out = NULL;
    return TFM_OK;
}

/* A token is its text or an object with it. */
static const char *token_text(const json *v) {
    if (json_is(v, JSON_OBJECT)) v = json_get(v, "content");
    return json_is(v, JSON_STRING) && strlen(v->u.text) == v->count ? v->u.text : NULL;
}

static void read_tokens(chat_source *out, const json *config) {
    const json *more = json_get(config, "additional_special_tokens");
    for (size_t i = 0; i < sizeof token_names / sizeof *token_names; i++) {
        size_t k = 0;
        while (k < out->n_variables && strcmp(out->variables[k].name, token_names[i])) k++;
        if (k == out->n_variables) chat_add_variable(out, token_names[i], token_text(json_get(config, token_names[i])));
    }
    for (size_t i = 0; i < json_count(more); i++)
        chat_add_variable(out, "additional_special_tokens", token_text(json_at(more, i)));
}

/* "chat_template": one text, or a list of named ones of which "default" is taken. */
static void read_template(chat_source *out, const json *config) {
    const json *t = json_get(config, "chat_template");
    for (size_t i = 0; json_is(t, JSON_ARRAY) && i < json_count(t); i++) {
        const json *name = json_get(json_at(t, i), "name");
        if (json_is(name, JSON_STRING) && !strcmp(name->u.text, "default")) t = json_get(json_at(t, i), "template");
    }
    if (!json_is(t, JSON_STRING)) return;
    out->text = t->u.text;
    out->n = t->count;
}

int chat_from_hf(arena *a, const source_dir *dir, chat_source *out, tfm_error *err) {
    const json *config, *separate, *map;
    source src;
    char *text;
    memset(out, 0, sizeof *out);
    int code = read_json(a, dir, "tokenizer_config.json", &config, err);
    if (!code) code = read_json(a, dir, "special_tokens_map.json", &map, err);
    if (!code) code = read_json(a, dir, "chat_template.json", &separate, err);
    if (code) return code;
    out->file = "tokenizer_config.json";
    read_template(out, config);
    if (separate && json_get(separate, "chat_template")) {
        out->file = "chat_template.json";
        read_template(out, separate);
    }
    const int status = dir->open(dir->user, "chat_template.jinja", &src, err);
    if (status < 0) return status;
    if (!status) {
        out->file = "chat_template.jinja";
        code = source_read_all(&src, TEMPLATE_LIMIT, a, &text, &out->n, err);
        dir->close(dir->user, &src);
        if (code) return code;
        out->text = text;
    }
    read_tokens(out, config);
    if (map) read_tokens(out, map);
    return TFM_OK;
}

/* ---- GGUF ------------------------------------------------------------------------------------------------------ */

int chat_from_gguf(arena *a, const gguf *g, chat_source *out, tfm_error *err) {
    static const struct { const char *key, *name; } ids[] = {
        {"tokenizer.ggml.bos_token_id", "bos_token"}, {"tokenizer.ggml.eos_token_id", "eos_token"},
        {"tokenizer.ggml.unknown_token_id", "unk_token"}, {"tokenizer.ggml.padding_token_id", "pad_token"}};
    const gguf_kv *t = gguf_find(g, "tokenizer.chat_template"), *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    memset(out, 0, sizeof *out);
    out->file = g->src.name;
    if (!t || t->type != GGUF_STRING) return TFM_OK;
    out->text = arena_strndup(a, t->u.strings[0].text, t->u.strings[0].length);
    out->n = t->u.strings[0].length;
    if (!out->text) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        int64_t id = -1;
        if (gguf_int_or(g, ids[i].key, -1, &id, NULL) || id < 0) continue;
        if (tokens && tokens->type == GGUF_ARRAY && tokens->element == GGUF_STRING && (uint64_t)id < tokens->count)
            chat_add_variable(out, ids[i].name, tokens->u.strings[id].text);
    }
    return TFM_OK;
}
