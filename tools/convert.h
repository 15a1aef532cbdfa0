/* convert.h - checkpoints become .tfm files. The core of tfm-convert: reads and writes through callbacks only, so that
 * it runs wherever bytes can be had. Peak memory is a few MB beside the directory of tensors and the tokenizer.
 */
#ifndef TOOLS_CONVERT_H
#define TOOLS_CONVERT_H

#include "base.h"
#include "imatrix.h"
#include "mix.h"
#include "strips.h"

typedef struct convert_options {
    const mix *mix;                     /* the types of the matrices; NULL: each as it is */
    const imatrix *importance;          /* for those that are quantised, or NULL */
    strip_threads threads;
    int vocab_only;                     /* the tokenizer alone */
    const char *const *allow_unknown;   /* keys of the configuration that may be ignored */
    size_t n_allow_unknown;
    const source *tokenizer;            /* instead of the checkpoint's own files: tokenizer.json, tokenizer.model or
                                           tokenizer.bin, told apart by their content; or NULL */
    const char *weights;                /* a directory's file of weights, or its index; NULL: by its usual name */
    const source_dir *beside;           /* where the other parts of a split file are; NULL: nowhere */
    void *user;
    void (*warn)(void *user, const char *line);                    /* NULL: stderr */
    void (*progress)(void *user, uint64_t done, uint64_t total);   /* bytes of the source; may be NULL */
} convert_options;

/* A directory as save_pretrained writes it. */
int convert_directory(const source_dir *dir, sink *out, const convert_options *options, tfm_error *err);
/* A file: GGUF or llama2.c; with vocab_only also tokenizer.json, tokenizer.model, tokenizer.bin. */
int convert_file(const source *src, sink *out, const convert_options *options, tfm_error *err);

#endif
