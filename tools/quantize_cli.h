/* quantize_cli.h - the options that tfm-convert and tfm-quantize share: type, importance matrix, threads. */
#ifndef TOOLS_QUANTIZE_CLI_H
#define TOOLS_QUANTIZE_CLI_H

#include "imatrix.h"
#include "mix.h"
#include "pool.h"
#include "strips.h"

typedef struct quantize_options {
    const char *const *types; /* mix_names, or those behind "source" */
    int type;                 /* into types */
    int type_given;
    const char *imatrix_path;
    int64_t n_threads; /* 0: all processors */
} quantize_options;

/* Rows of a table of options; o is a quantize_options, names its types, shown_type the default that the help names. */
#define QUANTIZE_OPTION_ROWS(o, names, shown_type, help)                                                              \
    CLI_CHOICE(0, "type", "T", &(o).type, names, shown_type, help, &(o).type_given),                                  \
    CLI_STRING(0, "imatrix", "FILE", &(o).imatrix_path, "",                                                           \
               "importance matrix, from tfm-eval --imatrix or llama-imatrix", NULL),                                  \
    CLI_INT('t', "threads", "THREADS", &(o).n_threads, 1, 256, "all processors", "threads to use", NULL)

typedef struct quantize_setup {
    const mix *mix; /* NULL: source */
    imatrix matrix;
    const imatrix *importance; /* &matrix or NULL */
    pool *pool;
    strip_threads threads;
    arena mem;
} quantize_setup;

int quantize_setup_open(quantize_setup *s, const quantize_options *o, tfm_error *err);
/* What is wrong with --imatrix beside that --type, or NULL. */
const char *quantize_options_wrong(const quantize_options *o);
void quantize_setup_close(quantize_setup *s); /* also after a failure */

#endif
