/* reference.h - a model of tests/ref/families as its JSON describes it: what test_families.c reads, for others too. */
#ifndef TEST_REFERENCE_H
#define TEST_REFERENCE_H

#include "test.h"
#include "tiny.h"
#include "tools/json.h"

enum { MAX_REFERENCES = 300, MAX_IDS = 128 };

typedef struct reference {
    arena mem;
    const json *root, *tensors;
    char name[64];
    const char *config;    /* the text of config.json, not zero-terminated */
    size_t config_bytes;
    int32_t ids[MAX_IDS];  /* the prompt, then the greedy answer */
    int64_t n_ids, n_greedy;
    int32_t n_vocab;
    float *logits;         /* [n_ids][n_vocab] */
    float tolerance, max_ref;
} reference;

/* folder/name.json and its logits; the arena is the caller's to free, also after an error. */
int read_reference(reference *ref, const char *folder, const char *name, tfm_error *err);

/* A row of its `tensors`. */
typedef struct tensor_row {
    const char *name, *dtype;
    const json *shape;
    int64_t e;
    double offset;
    size_t count;
} tensor_row;
int read_row(const json *row, tensor_row *t, tfm_error *err);

/* The names of the files NAME.json in a folder, sorted; a failed check if there are none. Returns their number. */
size_t list_references(const char *folder, char (*names)[64], size_t room);

#endif
