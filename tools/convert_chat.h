/* convert_chat.h - the chat template of a checkpoint. */
#ifndef TOOLS_CONVERT_CHAT_H
#define TOOLS_CONVERT_CHAT_H

#include "chat.h"
#include "gguf.h"

/* chat_template.jinja, else chat_template.json, else tokenizer_config.json; out->text is NULL if there is none. */
int chat_from_hf(arena *a, const source_dir *dir, chat_source *out, tfm_error *err);
/* tokenizer.chat_template */
int chat_from_gguf(arena *a, const gguf *g, chat_source *out, tfm_error *err);

#endif
