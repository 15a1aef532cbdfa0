/* writer.h - writes a .tfm file through a sink, tensor by tensor; see [A5] of tfm.h for the form.
 *
 * What goes into the file is what is handed in here and nothing else: no date, no path, no padding that is not zero.
 * The same input gives the same bytes on every host. Memory: the directory, 64 bytes a tensor.
 */
#ifndef TOOLS_WRITER_H
#define TOOLS_WRITER_H

#include "base.h"

typedef struct tfm_file_writer {
    sink *out;
    uint64_t end;              /* of what is written so far */
    unsigned char head[64 + 8 * 32]; /* header and section table */
    int n_sections;
    unsigned char *directory;  /* [n_tensors][64] */
    uint64_t directory_at;
    int64_t n_tensors, current;
    uint64_t left;             /* bytes of the current tensor that are still to come */
    tfm_hash hash;             /* of the current tensor */
} tfm_file_writer;

/* Declares the tensors (their t.data is not used) and writes all that stands before them. c is NULL, and n_tensors 0,
 * for a file that holds a tokenizer alone; tokenizer may be NULL. The sink must outlive w. */
int writer_begin(tfm_file_writer *w, sink *out, arena *mem, const tfm_config *c, const tfm_weight *tensors,
                 int64_t n_tensors, const void *tokenizer, size_t tokenizer_bytes, tfm_error *err);
/* The next rows of the tensors in their order, as they stand in memory; of a TILED one whole strips. */
int writer_rows(tfm_file_writer *w, const tfm_tensor *rows, tfm_error *err);
/* One more section behind the tensors, when they are complete; there is room for one. */
int writer_section(tfm_file_writer *w, uint32_t id, const void *bytes, size_t n, tfm_error *err);
/* Provenance, directory and header: the file is whole. */
int writer_end(tfm_file_writer *w, const char *provenance, size_t n, tfm_error *err);

#endif
