/* chat_case.c - see chat_case.h. */
#include "chat_case.h"

#include <string.h>

jinja_value chat_case_value(arena *a, const json *v) {
    jinja_value out;
    memset(&out, 0, sizeof out);
    switch (v->type) {
    case JSON_NULL: out.kind = JINJA_NONE; break;
    case JSON_BOOL: out = jinja_bool(v->boolean); break;
    case JSON_NUMBER:
        out.kind = v->is_integer ? JINJA_INT : JINJA_FLOAT;
        if (v->is_integer) out.u.i = v->v.integer;
        else out.u.f = v->v.number;
        break;
    case JSON_STRING: return jinja_text(a, v->u.text, v->count, 1);
    case JSON_ARRAY:
        out = jinja_new_list(a);
        for (size_t i = 0; i < json_count(v); i++) jinja_push(a, out, chat_case_value(a, json_at(v, i)));
        break;
    default:
        out = jinja_new_dict(a);
        for (size_t i = 0; i < json_count(v); i++)
            jinja_put(a, out, json_at(v, i)->key, chat_case_value(a, json_at(v, i)));
        break;
    }
    return out;
}

int chat_case_render(arena *a, const json *c, jinja_output *out, tfm_error *err) {
    const json *text = json_get(c, "template"), *vars = json_get(c, "vars");
    jinja_options options;
    int64_t now = 0;
    memset(&options, 0, sizeof options);
    if (!json_is(text, JSON_STRING) || json_int_or(c, "now", 0, &now, err))
        return tool_fail(err, TFM_ERR_ARG, "no template");
    options.now = now;
    const jinja *t = jinja_parse("template", text->u.text, text->count, a, err);
    if (!t) return TFM_ERR_FORMAT;
    return jinja_render(t, json_is(vars, JSON_OBJECT) ? chat_case_value(a, vars) : jinja_new_dict(a), &options, a, out,
                        err);
}

int chat_case_build(arena *a, const json *c, chat_section *out, tfm_error *err) {
    const json *text = json_get(c, "template"), *variables = json_get(c, "variables");
    chat_source s;
    memset(&s, 0, sizeof s);
    if (!json_is(text, JSON_STRING)) return tool_fail(err, TFM_ERR_ARG, "no template");
    s.file = "template";
    s.text = text->u.text;
    s.n = text->count;
    for (size_t i = 0; i < json_count(variables); i++) {
        const json *v = json_at(variables, i);
        for (size_t k = 0; k < json_count(v); k++) chat_add_variable(&s, v->key, json_at(v, k)->u.text);
        if (json_is(v, JSON_STRING)) chat_add_variable(&s, v->key, v->u.text);
    }
    return chat_build(a, &s, NULL, out, err);
}
