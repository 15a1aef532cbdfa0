/* cli.h - the command line of a program from a table of its options. */
#ifndef TOOLS_CLI_H
#define TOOLS_CLI_H

#include <stdint.h>

#include "text.h"

enum option_kind { OPTION_END, OPTION_GROUP, OPTION_FLAG, OPTION_STRING, OPTION_INT, OPTION_SEED, OPTION_REAL,
                   OPTION_CHOICE, OPTION_LIST };

/* The values of an option that may stand several times. */
typedef struct cli_list {
    const char *items[32];
    int n;
} cli_list;

/* One row of a program's table of options. Build rows with the macros below; the help shows the value that stands in
 * the variable before parsing as the default, or `shown` instead of it ("" shows none). */
typedef struct cli_option {
    enum option_kind kind;
    char letter;           /* -n, or 0 */
    const char *name;      /* --top-k without the dashes, or NULL; for a group its title */
    const char *argument;  /* "N", what the help calls the value */
    void *value;           /* int (flag, choice), const char *, int64_t, uint64_t (seed), double, cli_list */
    int64_t min, max;      /* of an int */
    double low, high;      /* of a real */
    const char *const *choices; /* ends with NULL; the value becomes the index */
    const char *shown;
    const char *help;
    int *given;            /* counts how often the option stood on the command line, or NULL */
} cli_option;

#define CLI_GROUP(title) \
    { OPTION_GROUP, 0, title, NULL, NULL, 0, 0, 0, 0, NULL, NULL, NULL, NULL }
#define CLI_FLAG(letter, name, value, help) \
    { OPTION_FLAG, letter, name, NULL, value, 0, 0, 0, 0, NULL, "", help, NULL }
#define CLI_STRING(letter, name, argument, value, shown, help, given) \
    { OPTION_STRING, letter, name, argument, value, 0, 0, 0, 0, NULL, shown, help, given }
#define CLI_LIST(letter, name, argument, value, help) \
    { OPTION_LIST, letter, name, argument, value, 0, 0, 0, 0, NULL, "", help, NULL }
#define CLI_INT(letter, name, argument, value, min, max, shown, help, given) \
    { OPTION_INT, letter, name, argument, value, min, max, 0, 0, NULL, shown, help, given }
#define CLI_SEED(letter, name, argument, value, shown, help, given) \
    { OPTION_SEED, letter, name, argument, value, 0, 0, 0, 0, NULL, shown, help, given }
#define CLI_REAL(letter, name, argument, value, low, high, shown, help, given) \
    { OPTION_REAL, letter, name, argument, value, 0, 0, low, high, NULL, shown, help, given }
#define CLI_CHOICE(letter, name, argument, value, choices, shown, help, given) \
    { OPTION_CHOICE, letter, name, argument, value, 0, 0, 0, 0, choices, shown, help, given }
#define CLI_END { OPTION_END, 0, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL, NULL, NULL }

typedef struct cli {
    const char *program;       /* "tfm-convert" */
    const char *usage;         /* "[options] SRC OUT.tfm" */
    const char *about;         /* lines below the usage; may be NULL */
    const cli_option *options; /* ends with CLI_END */
    int min_args, max_args;    /* how many positional arguments */
    const char *const *arg_names; /* their names for messages, max_args of them */
} cli;

#define CLI_GO_ON (-1)

/* Reads the command line. args gets the positional arguments (room for max_args), *n_args their number (may be NULL).
 * CLI_GO_ON, or the exit status: 0 after --help (printed on stdout), 2 after wrong usage (one line on stderr). */
int cli_parse(const cli *c, int argc, char **argv, const char **args, int *n_args);
/* For what only the program can know is wrong: prints the line that ends in the hint at --help, returns 2. */
int cli_wrong(const cli *c, const char *format, ...) TOOL_PRINTF(2, 3);

#endif
