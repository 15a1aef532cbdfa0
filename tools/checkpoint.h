/* checkpoint.h - one view of a Hugging Face directory, a GGUF file and a llama2.c file: values and named tensors.
 *
 * Each kind of source has a file (convert_hf.c, convert_gguf.c, convert_llama2c.c) that fills a checkpoint;
 * convert.c does the rest and does not know where the bytes come from.
 */
#ifndef TOOLS_CHECKPOINT_H
#define TOOLS_CHECKPOINT_H

#include "convert.h"
#include "convert_chat.h"
#include "describe.h"
#include "tokenizer.h"

enum { CKPT_MAX_DIMS = 8 };

typedef struct ckpt_tensor {
    const char *name;
    int32_t type;                 /* TFM_..., or -1: not a type that weights can have here */
    const char *type_name;        /* as the source calls it */
    int n_dims;
    int64_t dims[CKPT_MAX_DIMS];  /* outermost first */
    int64_t rows, cols;           /* cols: the innermost dimension; rows: the product of the others */
    uint64_t row_bytes;
    const void *data;             /* a tensor that is in memory already, else NULL */
    size_t index;                 /* the reader's */
    int used;
} ckpt_tensor;

typedef struct checkpoint {
    source_form form;
    const char *file;             /* what says the values, for messages: "config.json" */
    const family *family;
    const char *prefix;           /* of the model's own tensors */
    arch arch;
    ckpt_tensor *tensors;
    size_t n_tensors;
    name_index index;
    tfm_hash hash;                /* of the source: its description, then the tensors as they are streamed */
    /* n rows from `first` on, as they stand in the source, floats in the host's byte order (t->data is NULL) */
    int (*read_rows)(const struct checkpoint *c, const ckpt_tensor *t, int64_t first, int64_t n, void *buf,
                     tfm_error *err);
    int (*tokenizer)(const struct checkpoint *c, arena *mem, int64_t n_rows, tok_section *out, tfm_error *err);
    /* NULL: it has no template */
    int (*chat)(const struct checkpoint *c, arena *mem, chat_source *out, tfm_error *err);
    void (*close)(struct checkpoint *c);
    void *reader;
    arena *mem;
    const convert_options *options;
} checkpoint;

/* Each fills *c, whose mem and options are set. c->close, if set, is to be called also after an error. */
int checkpoint_open_hf(checkpoint *c, const source_dir *dir, tfm_error *err);
int checkpoint_open_gguf(checkpoint *c, const source *src, tfm_error *err);
int checkpoint_open_llama2c(checkpoint *c, const source *src, tfm_error *err);

/* Sets file, family and its defaults. */
int checkpoint_begin(checkpoint *c, source_form form, const char *file, const char *family_name, family_asks *ask,
                     const void *user, tfm_error *err);
/* Room for n tensors; then fill in c->tensors and add each name. A name that stands twice is an error. */
int checkpoint_room(checkpoint *c, size_t n, tfm_error *err);
int checkpoint_add(checkpoint *c, const ckpt_tensor *t, tfm_error *err);
ckpt_tensor *checkpoint_find(const checkpoint *c, const char *name);
/* The tensor that plays a role in a layer (-1: none of a layer), and how it is taken; NULL if there is none. */
ckpt_tensor *checkpoint_role(const checkpoint *c, int role, int layer, const name_row **row);
/* The same for one expert (of all, if they stand in one tensor). */
ckpt_tensor *checkpoint_expert(const checkpoint *c, int role, int layer, int expert, const name_row **row);
/* What the tensor would be called, for messages. */
const char *checkpoint_role_name(const checkpoint *c, int role, int layer, int expert, char *buf, size_t size);
/* Stores a value that the file gives, checked against the rule's kind. `where` names file and key. */
int checkpoint_value(value_set *set, const rule *r, double value, const char *where, tfm_error *err);
/* An unknown key: TFM_OK if --allow-unknown names it. */
int checkpoint_unknown(const checkpoint *c, const char *where, const char *key, tfm_error *err);
void checkpoint_warn(const checkpoint *c, const char *format, ...) TOOL_PRINTF(2, 3);

/* Lists of config.json that become tensors, in host order: F32 [1][n]. */
int checkpoint_add_floats(checkpoint *c, const char *name, const float *values, size_t n, tfm_error *err);
/* The slopes of ALiBi, which no checkpoint stores, as the tensor "alibi.slopes", if the values ask for them. */
int checkpoint_add_slopes(checkpoint *c, tfm_error *err);
/* Ids below n_vocab that can never come next, as a bias of the head: no logit is far enough from it to change it. */
int checkpoint_add_logits_off(checkpoint *c, const char *name, int64_t n_vocab, const int64_t *ids, int64_t n_ids,
                              tfm_error *err);

#endif
