/* chat_case.h - cases for the template interpreter as JSON: {"template": text, "vars": {...}, "now": seconds}. */
#ifndef CHAT_CASE_H
#define CHAT_CASE_H

#include "tools/chat.h"
#include "tools/json.h"

/* A value of JSON as the interpreter's; strings below it count as input. */
jinja_value chat_case_value(arena *a, const json *v);
/* Renders a case. 0, or an error that is not the file's. */
int chat_case_render(arena *a, const json *c, jinja_output *out, tfm_error *err);


/* The template of {"template": ..., "variables": {...}} as a chat section in the arena; a variable may be a list. */
int chat_case_build(arena *a, const json *c, chat_section *out, tfm_error *err);

#endif
