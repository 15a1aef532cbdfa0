/* tokenizer.h - from the tokenizer files of a checkpoint to the tokenizer section of a .tfm file.
 *
 * Every reader turns its source into one description (tokenizer_build in tokenizer.c), and one writer turns that into
 * the tables tfm.h uses in place. To support one more kind of file, fill the description; to support one more
 * component, add it to the reader's table and to [B10] of tfm.h.
 */
#ifndef TOOLS_TOKENIZER_H
#define TOOLS_TOKENIZER_H

#include "base.h"
#include "gguf.h"

/* What a reader gives. All memory is the arena's. */
typedef struct tok_section {
    uint8_t *bytes; /* the section, ready to be written */
    size_t size;
    int32_t n_ids;  /* rows given by the caller, or the highest id + 1 */
    int32_t bos, eos, unk; /* ids the files call so, or -1; the config's and generation config's go before them */
    int n_warnings; /* lines for the user, without "warning: " */
    const char *warnings[8];
} tok_section;

/* n_rows: rows of the embedding; 0 if there is none (--vocab-only): then the highest id + 1. An id >= n_rows is an
 * error that names both. All return TFM_OK or an error code with a message that names file and field. */

/* tokenizer.json (else tokenizer.model) and tokenizer_config.json of a directory. */
int tokenizer_from_hf(arena *a, const source_dir *dir, int64_t n_rows, tok_section *out, tfm_error *err);
/* A bare tokenizer.json; config is tokenizer_config.json or NULL. */
int tokenizer_from_json(arena *a, const source *json, const source *config, int64_t n_rows, tok_section *out,
                        tfm_error *err);
/* A SentencePiece model; config is tokenizer_config.json, whose further tokens are added, or NULL. */
int tokenizer_from_sentencepiece(arena *a, const source *model, const source *config, int64_t n_rows, tok_section *out,
                                 tfm_error *err);
/* The metadata "tokenizer.ggml.*". */
int tokenizer_from_gguf(arena *a, const gguf *g, int64_t n_rows, tok_section *out, tfm_error *err);
/* The names that tokenizer.ggml.pre may say for the i-th pre-tokenizer, a blank around each; the default comes last.
 * NULL past the end. */
const char *tokenizer_pre_names(int i);
/* tokenizer.bin of llama2.c, which needs the model's vocab_size (n_rows; 0 reads to the end of the file). */
int tokenizer_from_llama2c(arena *a, const source *bin, int64_t n_rows, tok_section *out, tfm_error *err);

#endif
