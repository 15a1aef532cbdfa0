/* mix.h - what --type names: a type for every matrix, or a mix that gives the ones that matter most more bits.
 *
 * The choices are those of llama.cpp's quantiser, so that a name means the same here and there; they are rows of a
 * table.
 */
#ifndef TOOLS_MIX_H
#define TOOLS_MIX_H

#include "base.h"

typedef struct mix {
    const char *name;
    const char *rules; /* the mix whose rules it follows: its own, or that for which it is short */
    int32_t type;      /* of the matrices that no rule names */
} mix;

/* The names in order, NULL at the end: "source", then the mixes. */
extern const char *const mix_names[];
/* NULL: "source", or an unknown name. */
const mix *mix_find(const char *name);

/* What mix_apply did beyond the mix. */
typedef struct mix_report {
    int64_t n_fallbacks;    /* matrices whose rows the block of the wanted type does not divide */
    int64_t first_fallback; /* the first of them */
    int64_t n_again;        /* quantised matrices that become another quantised type */
    char text[160];         /* "12 Q4_K -> Q5_0, 1 Q6_K -> Q8_0" */
} mix_report;

/* weights are those of the source, in the file's order; each t.type becomes what the mix gives it. Vectors,
 * positions and routers keep theirs. importance: whether an importance matrix is used. */
void mix_apply(const mix *m, const tfm_config *c, tfm_weight *weights, int64_t n, int importance, mix_report *report);

#endif
