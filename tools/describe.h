/* describe.h - from what a checkpoint says (families.h) to a tfm_config: blocks, windows, RoPE. Knows no names. */
#ifndef TOOLS_DESCRIBE_H
#define TOOLS_DESCRIBE_H

#include "families.h"

enum { ARCH_MAX_EOS = 16, ARCH_MAX_LAYERS = 4096, ARCH_DENSE = 255 };

typedef struct arch {
    value_set p;                 /* the model; its RoPE is that of layers that see everything */
    value_set local;             /* the RoPE of window layers, if has_local */
    int has_local;
    unsigned char *window_layer; /* [n_listed]: 1 if a layer has the window; NULL: by P_WINDOW_RULE */
    unsigned char *rope_layer;   /* [n_rope_listed]: 1 if a layer rotates; NULL: by P_ROPE_LAYERS */
    int64_t n_listed, n_rope_listed;
    unsigned char *mask_layers;  /* [n_mask_layers]: TFM_PART_ or ARCH_DENSE for the layers in turn */
    int64_t n_mask_layers;
    unsigned char *moe_layer;    /* [ARCH_MAX_LAYERS]: the layers of a list, see moe_list; NULL: by P_MOE_FIRST ... */
    int moe_list;                /* P_MOE_LAYERS: only those have experts; P_DENSE_LAYERS: those have none */
    int64_t n_moe_listed;        /* of a list with an entry for every layer; else 0 */
    int rope_factors;            /* the checkpoint holds a tensor of divisors */
    int n_eos;
    int32_t eos[ARCH_MAX_EOS];
    const char *eos_file, *bos_file; /* what says them, for messages; NULL: the file of all else */
} arch;

double arch_value(const arch *a, param p); /* 0 if not given */
int arch_int(const arch *a, param p);
/* Adds an id once; -1 if there are too many. */
int arch_add_eos(arch *a, int64_t id);

/* The description; memory from the arena. `file` is for messages. P_N_VOCAB and P_TIED must be settled. */
int describe(const arch *a, const char *file, arena *mem, tfm_config *out, tfm_error *err);

#endif
