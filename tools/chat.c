/* chat.c - see chat.h. */
#include "chat.h"
#include "json.h"

#include <string.h>
#include <time.h>

void chat_add_variable(chat_source *s, const char *name, const char *value) {
    if (!name || !value || s->n_variables == CHAT_MAX_VARIABLES) return;
    s->variables[s->n_variables].name = name;
    s->variables[s->n_variables++].value = value;
}

/* A name that stands once is a text, several times a list. */
static int add_variables(arena *a, const chat_source *src, jinja_value vars) {
    int bad = 0;
    for (size_t i = 0; i < src->n_variables; i++) {
        const char *name = src->variables[i].name, *value = src->variables[i].value;
        size_t first = 0, count = 0;
        for (size_t k = src->n_variables; k-- > 0;) {
            if (strcmp(src->variables[k].name, name)) continue;
            first = k;
            count++;
        }
        if (first < i) continue;
        jinja_value v = jinja_text(a, value, strlen(value), 0);
        if (count > 1 || !strcmp(name, "additional_special_tokens")) {
            v = jinja_new_list(a);
            for (size_t k = i; k < src->n_variables; k++)
                if (!strcmp(src->variables[k].name, name))
                    bad |= jinja_push(a, v, jinja_text(a, src->variables[k].value, strlen(src->variables[k].value), 0));
        }
        bad |= jinja_put(a, vars, name, v);
    }
    return bad;
}

static const char *const roles[] = {"", "system", "user", "assistant"};

/* A message may say more than a turn holds, such as calls of tools; only if that is empty it can be left out. */
static int check_keys(const json *m, tfm_error *err) {
    char where[256];
    for (size_t i = 0; i < json_count(m); i++) {
        const json *v = json_at(m, i);
        const int empty = json_is_null(v) || ((json_is(v, JSON_ARRAY) || json_is(v, JSON_OBJECT)) && !json_count(v)) ||
                          (json_is(v, JSON_STRING) && !v->count);
        if (strcmp(v->key, "role") && strcmp(v->key, "content") && !empty)
            return tool_fail(err, TFM_ERR_ARG, "%s: of a message only role and content are read",
                             json_path(v, where, sizeof where));
    }
    return TFM_OK;
}

tfm_turn *chat_turns(arena *a, const json *messages, size_t *n, tfm_error *err) {
    tfm_turn *turns = arena_array(a, json_count(messages) + 1, sizeof *turns);
    const char *role;
    char where[256];
    *n = json_count(messages);
    if (!json_is(messages, JSON_ARRAY) || !turns) {
        tool_fail(err, TFM_ERR_ARG, "%s: a list of messages is needed",
                  messages ? json_path(messages, where, sizeof where) : "messages");
        return NULL;
    }
    for (size_t i = 0; i < *n; i++) {
        const json *m = json_at(messages, i), *content = json_get(m, "content");
        if (json_string(m, "role", &role, err)) return NULL;
        for (int r = TFM_CHAT_SYSTEM; r <= TFM_CHAT_ASSISTANT; r++) if (!strcmp(roles[r], role)) turns[i].role = r;
        if (!turns[i].role || !json_is(content, JSON_STRING)) {
            tool_fail(err, TFM_ERR_ARG, "%s: role must be system, user or assistant, content a text",
                      json_path(m, where, sizeof where));
            return NULL;
        }
        if (check_keys(m, err)) return NULL;
        turns[i].text = content->u.text;
        turns[i].n = content->count;
    }
    return turns;
}

int chat_interpret(arena *a, const jinja *t, const chat_source *src, const tfm_turn *turns, size_t n, int prompt,
                   const jinja_options *options, jinja_output *out, tfm_error *err) {
    jinja_value vars = jinja_new_dict(a), messages = jinja_new_list(a), none;
    memset(&none, 0, sizeof none);
    none.kind = JINJA_NONE;
    int bad = vars.kind == JINJA_UNDEFINED || messages.kind == JINJA_UNDEFINED;
    for (size_t i = 0; i < n && !bad; i++) {
        jinja_value m = jinja_new_dict(a);
        bad |= jinja_put(a, m, "role", jinja_text(a, roles[turns[i].role], strlen(roles[turns[i].role]), 0));
        bad |= jinja_put(a, m, "content", jinja_text(a, turns[i].text ? turns[i].text : "", turns[i].n, 1));
        bad |= jinja_push(a, messages, m);
    }
    bad |= jinja_put(a, vars, "messages", messages);
    bad |= jinja_put(a, vars, "tools", none) | jinja_put(a, vars, "documents", none);
    bad |= jinja_put(a, vars, "add_generation_prompt", jinja_bool(prompt)) | add_variables(a, src, vars);
    if (bad) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    return jinja_render(t, vars, options, a, out, err);
}

/* What the section says about its source. */
static chat_source source_of(const tfm_chat *c) {
    chat_source s;
    const char *name, *value = NULL;
    memset(&s, 0, sizeof s);
    s.file = "chat_template";
    s.text = tfm_chat_template(c, &s.n);
    for (int32_t i = 0; (name = tfm_chat_variable(c, i, &value)) != NULL; i++) chat_add_variable(&s, name, value);
    return s;
}

static int render_by_template(arena *a, const tfm_chat *c, const tfm_turn *turns, size_t n, int prompt, chat_text *out,
                              tfm_error *err) {
    const chat_source from = source_of(c);
    jinja_output text;
    const jinja *t = jinja_parse(from.file, from.text, from.n, a, err);
    int code = t ? chat_interpret(a, t, &from, turns, n, prompt, NULL, &text, err) : TFM_ERR_FORMAT;
    if (code) return code;
    out->text = text.text;
    out->marks = text.input;
    out->n = text.n;
    for (size_t i = 0; i < text.n; i++) out->marks[i] = !text.input[i];
    return TFM_OK;
}

int chat_render(arena *a, const tfm_chat *c, const tfm_turn *turns, size_t n, int prompt, chat_text *out,
                tfm_error *err) {
    const char *format = tfm_chat_date_format(c);
    const int32_t flags = prompt ? TFM_CHAT_PROMPT : 0;
    const time_t now = time(NULL);
    const struct tm *local = format ? localtime(&now) : NULL;
    char date[128] = "";
    if (!tfm_chat_known(c)) return render_by_template(a, c, turns, n, prompt, out, err);
    if (local) strftime(date, sizeof date, format, local);
    int code = tfm_chat_render(c, turns, (int64_t)n, flags, date, NULL, NULL, 0, &out->n, err);
    if (code == TFM_ERR_ARG) return render_by_template(a, c, turns, n, prompt, out, err); /* what data do not cover */
    if (code && code != TFM_ERR_MEMORY) return code;
    out->text = arena_text(a, out->n);
    out->marks = arena_alloc(a, out->n + 1);
    if (!out->text || !out->marks) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    return tfm_chat_render(c, turns, (int64_t)n, flags, date, out->text, out->marks, out->n, &out->n, err);
}
