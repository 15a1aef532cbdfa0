/* plan.h - which tensor of a checkpoint plays which role of the described model, and how its rows are taken. convert.c
 * makes and follows it; write_gguf.c follows it the other way.
 */
#ifndef TOOLS_PLAN_H
#define TOOLS_PLAN_H

#include "checkpoint.h"

/* The rows of a role inside a tensor that holds several: `run` rows from `start` on, then again `period` further. */
typedef struct row_slice {
    int64_t start, run, period;
    int64_t total;   /* rows of the whole tensor, or of the expert's part */
    int experts;     /* so many parts stand in the tensor one after another; 0: it is one */
    int64_t part;    /* rows, as the source has them, before the expert's part */
    int columns;     /* the source is [in][out]: its columns are meant */
    int pair_heads;  /* so many heads stand as interleaved pairs, see pair_row; 0: none */
    int64_t swap;    /* rows of a head whose halves stand the other way round; 0: none do */
    int unit;        /* rows are scaled to length 1 */
} row_slice;

typedef struct plan_item {
    const ckpt_tensor *from;
    row_slice slice;
} plan_item;

typedef struct plan {
    tfm_config config;
    tfm_weight *weights;
    plan_item *items;
    int64_t n, room;
    uint64_t bytes;         /* of the source */
} plan;

/* Settles head and description, finds every tensor. An unknown tensor of the model's own is an error. */
int make_plan(checkpoint *c, plan *p, tfm_error *err);
/* How `rows` rows (or elements) of `cols` of a role, of an expert (-1: there are none), are taken from a tensor
 * (name_take). */
row_slice plan_slice(const tfm_config *cfg, int layer, int expert, int take, int64_t rows, int64_t cols);
/* Where row r of the model stands in the source, or in the expert's part of it. */
int64_t plan_source_row(const row_slice *s, int64_t r);

#endif
