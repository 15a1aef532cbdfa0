/* describe_words.h - the description of a model in words: the path a token takes, part by part. */
#ifndef TOOLS_DESCRIBE_WORDS_H
#define TOOLS_DESCRIBE_WORDS_H

#include "base.h"

/* Writes the path into buf (zero-terminated, cut at `size`) and returns the length of the whole text. Layers that are
 * alike share their lines; every field of the description that does anything is in them. */
size_t describe_words(const tfm_config *c, char *buf, size_t size);

#endif
