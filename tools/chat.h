/* chat.h - chat templates: from the checkpoint's Jinja to the chat section of a .tfm file, and from a conversation to
 * text. A template becomes data if data reproduces it: chat_infer.c renders it on probe conversations, writes down what
 * stands between the turns, and compares on others. Otherwise its text is kept and interpreted here.
 */
#ifndef TOOLS_CHAT_H
#define TOOLS_CHAT_H

#include "jinja.h"

enum { CHAT_MAX_VARIABLES = 40 };

/* What a checkpoint says about its chat format. */
typedef struct chat_source {
    const char *file;     /* for messages */
    const char *text;     /* the template; NULL: there is none */
    size_t n;
    struct { const char *name, *value; } variables[CHAT_MAX_VARIABLES]; /* bos_token ...; a list is a name repeated */
    size_t n_variables;
} chat_source;

void chat_add_variable(chat_source *s, const char *name, const char *value);

/* The section, in the arena. */
typedef struct chat_section {
    unsigned char *bytes;
    size_t size;
    int known;          /* the format became data */
    const char *notice; /* if not: why, one line; else NULL */
} chat_section;

/* tokenizer: to find the ids that end an answer; may be NULL. */
int chat_build(arena *a, const chat_source *src, const tfm_tokenizer *tokenizer, chat_section *out, tfm_error *err);

/* The template interpreted on turns (jinja.h); the variables are the source's, `options` may be NULL. */
int chat_interpret(arena *a, const jinja *t, const chat_source *src, const tfm_turn *turns, size_t n, int prompt,
                   const jinja_options *options, jinja_output *out, tfm_error *err);

/* Messages [{"role": "user", "content": "..."} ...] as *n turns in the arena; NULL if they are something else. */
struct json;
tfm_turn *chat_turns(arena *a, const struct json *messages, size_t *n, tfm_error *err);

/* A conversation as text and marks (see tfm_chat_render), by data if the format is known, else by its template. The
 * date is today's. */
typedef struct chat_text {
    char *text;
    unsigned char *marks; /* per byte: 1 = the format's */
    size_t n;
} chat_text;
int chat_render(arena *a, const tfm_chat *c, const tfm_turn *turns, size_t n, int prompt, chat_text *out,
                tfm_error *err);

#endif
