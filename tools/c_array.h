/* c_array.h - a model as the source of a program: a C header with its bytes, for hosts without files. */
#ifndef TOOLS_C_ARRAY_H
#define TOOLS_C_ARRAY_H

#include "base.h"

/* Bytes that grow in memory, as a sink: the form in which a converter that writes at random can be read back. */
typedef struct memory_sink {
    unsigned char *bytes;
    size_t n, room;
} memory_sink;
sink sink_memory(memory_sink *m);
void sink_memory_free(memory_sink *m);

/* 1 if name can be the name of an array. */
int c_array_name_ok(const char *name);
/* `static const unsigned char NAME[NAME_BYTES]`, aligned to 64 bytes. The same bytes give the same text everywhere. */
int c_array_write(sink *out, const char *name, const void *bytes, size_t n, tfm_error *err);
/* NAME in upper case, with `suffix` behind it: the name of a constant. */
const char *c_array_constant(arena *mem, const char *name, const char *suffix);

#endif
