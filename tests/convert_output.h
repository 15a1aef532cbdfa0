/* convert_output.h - a place in memory for what the converter writes and says; used by the tests of the converter. */
#ifndef CONVERT_OUTPUT_H
#define CONVERT_OUTPUT_H

#include "test.h"
#include "tools/convert.h"

typedef struct output {
    unsigned char *room, *bytes; /* bytes: aligned to 64 */
    size_t size;
    char warning[1024];          /* all of them, line by line */
    tfm_error err;
    tfm_model *model;
} output;

void output_start(output *o);
void output_end(output *o);
sink output_sink(output *o);
convert_options output_options(output *o); /* every tensor as it is, warnings to o */
/* Opens what was converted, checked whole; code is what the converter returned. */
int output_open(output *o, int code);

/* After damage: the error is one line, or the model runs. */
void output_use(output *o, int code, const char *what);

/* Converts a GGUF or llama2.c file and opens what comes out. */
int output_convert(output *o, const void *bytes, size_t n);
/* .tfm -> GGUF -> .tfm; `error`: a part of the message, or NULL: it must be the same again, bit for bit. */
void check_to_gguf(const char *what, const tfm_model *m, const char *error);

/* A number as little-endian bytes at to + *at, whatever the host; *at goes on behind it. */
void put_le(unsigned char *to, size_t *at, uint64_t value, int bytes);
void put_f32(unsigned char *to, size_t *at, float value);

#endif
