/* base.h - what every program shares: errors, memory, files, the command line, the terminal.
 *
 * All differences between operating systems live in base.c and pool.c; the rest of tools/ is plain C99.
 * Paths and arguments are UTF-8 on every system. Numbers are read and written without regard to the locale.
 *
 * Contents: ERRORS  MEMORY  NAMES  BYTES  SOURCES  SINKS  NUMBERS  COMMAND LINE  TERMINAL AND CLOCK  PROCESS
 */
#ifndef TOOLS_BASE_H
#define TOOLS_BASE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tfm.h"

#if defined(__MINGW_PRINTF_FORMAT)
#define TOOL_PRINTF(at, args) __attribute__((format(__MINGW_PRINTF_FORMAT, at, args)))
#elif defined(__GNUC__)
#define TOOL_PRINTF(at, args) __attribute__((format(printf, at, args)))
#else
#define TOOL_PRINTF(at, args)
#endif

/* ---- ERRORS ---------------------------------------------------------------------------------------------------- */

/* Fills err (may be NULL) with one formatted line and returns code, so that a failing function ends with
 *     return tool_fail(err, TFM_ERR_FORMAT, "%s: %s: expected an integer", file, key);
 * Text that came from a file is made harmless: control characters and broken UTF-8 become '?'. A line that is too
 * long loses its middle, so that both the file at its start and the reason at its end stay readable. */
int tool_fail(tfm_error *err, int code, const char *format, ...) TOOL_PRINTF(3, 4);

/* "warning: ..." as one harmless line on stderr. */
void tool_warn(const char *format, ...) TOOL_PRINTF(1, 2);

/* "error: ..." as one harmless line on stderr. Returns 1, the exit status of a failed program. */
int tool_error(const char *format, ...) TOOL_PRINTF(1, 2);

/* The cleaning alone, in place. */
void tool_clean_line(char *line);

/* ---- MEMORY ---------------------------------------------------------------------------------------------------- */

/* Many allocations, one release. An all-zero arena is empty and ready for use. */
typedef struct arena {
    struct arena_block *blocks; /* newest first */
    size_t used, room;          /* bytes taken of the newest block, bytes it has */
    size_t total;               /* bytes taken from the system so far */
} arena;

void *arena_alloc(arena *a, size_t size);                  /* zeroed, aligned to 16 bytes; NULL if there is no memory */
void *arena_array(arena *a, size_t count, size_t size);    /* the same for count * size, multiplication checked */
char *arena_text(arena *a, size_t n);                      /* n zero bytes and a final zero, packed closely */
char *arena_strdup(arena *a, const char *s);               /* a copy of a C string */
char *arena_strndup(arena *a, const char *s, size_t n);    /* a copy of n bytes (zeros included) and a final zero */
char *arena_printf(arena *a, const char *format, ...) TOOL_PRINTF(2, 3);
void arena_free(arena *a);                                 /* releases everything; the arena is empty again */

/* Makes room for `needed` elements in an array from malloc, doubling it. Returns the array (perhaps moved), or NULL
 * and leaves the old one alone. New elements are not cleared. */
void *array_grow(void *array, size_t *capacity, size_t needed, size_t element_size);

/* ---- NAMES ----------------------------------------------------------------------------------------------------- */

/* An index of the names in a table of the caller's: finds entry i by its name in constant time. The table may move;
 * it is reached through the callback on each call. */
typedef struct name_index {
    uint64_t *slots; /* hash << 32 | entry + 1, or 0; open addressing, at most half full */
    uint32_t mask;
    const char *(*name_of)(const void *table, uint32_t entry, size_t *length);
} name_index;

#define NAME_ABSENT UINT32_MAX

/* Room for up to `capacity` names. TFM_OK or TFM_ERR_MEMORY. */
int name_index_init(name_index *index, arena *a, size_t capacity,
                    const char *(*name_of)(const void *table, uint32_t entry, size_t *length));
/* Adds entry; returns TFM_OK, 1 if the name is already there (*present is its entry), or TFM_ERR_FORMAT for a file
 * made to collide. */
int name_index_add(name_index *index, const void *table, uint32_t entry, uint32_t *present);
uint32_t name_index_find(const name_index *index, const void *table, const char *name, size_t length);

/* ---- BYTES ----------------------------------------------------------------------------------------------------- */

/* Little-endian numbers at any address, on any host. */
uint16_t load_u16(const void *bytes);
uint32_t load_u32(const void *bytes);
uint64_t load_u64(const void *bytes);
float load_f32(const void *bytes);
double load_f64(const void *bytes);

/* Bytes of the well-formed UTF-8 sequence that s[0..n) starts with, or 0. */
size_t utf8_sequence(const void *s, size_t n);

/* 0 and the result, or -1 if it does not fit in 64 bits. */
int checked_mul(uint64_t a, uint64_t b, uint64_t *product);
int checked_add(uint64_t a, uint64_t b, uint64_t *sum);

/* ---- SOURCES --------------------------------------------------------------------------------------------------- */

/* Bytes to read at random. A program opens files; a browser brings its own callback. */
typedef struct source {
    void *user;
    const char *name; /* for messages */
    uint64_t size;
    int (*read_at)(void *user, uint64_t offset, void *buf, size_t n); /* 0 all n bytes, 1 it ends earlier, -1 failed */
} source;

/* Files found by name beside each other. */
typedef struct source_dir {
    void *user;
    const char *name;
    int (*open)(void *user, const char *file, source *out, tfm_error *err); /* 0 found, 1 absent, < 0 error */
    void (*close)(void *user, source *s);
} source_dir;

/* Reads n bytes, checked against s->size. The only way the readers call read_at. */
int source_read(const source *s, uint64_t offset, void *buf, size_t n, tfm_error *err);
/* All of a source into the arena, with a final zero byte; more than `limit` bytes is an error. */
int source_read_all(const source *s, uint64_t limit, arena *a, char **text, size_t *n, tfm_error *err);

/* A file of the local system. A directory, or a file that is absent, is an error that says so. */
int source_open_file(source *out, const char *path, tfm_error *err);
void source_close_file(source *s);

/* A directory of the local system; dir_close_local releases it after the sources it opened. */
int dir_open_local(source_dir *out, const char *path, tfm_error *err);
void dir_close_local(source_dir *dir);

/* Memory of the caller's, which must outlive it. */
source source_memory(const char *name, const void *data, size_t size);

/* A directory of such memory, for tests, fuzzers and browsers. */
typedef struct memory_file {
    const char *name;
    const void *data;
    size_t size;
} memory_file;
typedef struct memory_dir {
    const memory_file *files;
    size_t n_files;
} memory_dir;
source_dir dir_memory(const char *name, memory_dir *files);

enum { PATH_ABSENT, PATH_FILE, PATH_DIRECTORY, PATH_OTHER };
int path_kind(const char *path);          /* one of the above; links are followed */
int path_same_file(const char *a, const char *b); /* 1 if both exist and are one file */

/* A whole file, or stdin for "-", from malloc with a final zero byte; more than `limit` bytes is an error. */
int read_whole(const char *path, uint64_t limit, char **data, size_t *n, tfm_error *err);

/* ---- SINKS ----------------------------------------------------------------------------------------------------- */

typedef struct sink {
    void *user;
    int (*write_at)(void *user, uint64_t offset, const void *buf, size_t n); /* 0, or -1 */
} sink;

/* A file that appears whole or not at all: the bytes go to a temporary file beside `path`, which takes its name in
 * sink_commit and disappears in sink_discard and when a signal ends the program. Refuses a path that is one of the
 * files opened as a source by this process, or that is no regular file. Up to 8 may be open at a time. */
int sink_open_file(sink *out, const char *path, tfm_error *err);
int sink_commit(sink *s, tfm_error *err);  /* also reports what a write had failed with, e.g. a full disk */
void sink_discard(sink *s);                /* nothing happens if it is committed or never was opened */

/* write_at with a message. */
int sink_write(sink *s, uint64_t offset, const void *buf, size_t n, tfm_error *err);

/* fopen for UTF-8 paths and files of any size. */
FILE *file_open(const char *path, const char *mode);
/* A directory; one that exists already is fine. */
int make_directory(const char *path, tfm_error *err);

/* ---- NUMBERS --------------------------------------------------------------------------------------------------- */

/* The whole of text[0..n) must be the number. 0, or -1 (malformed or out of range). */
int parse_int64(const char *text, size_t n, int64_t *value);
int parse_uint64(const char *text, size_t n, uint64_t *value); /* "-1" is 2^64 - 1 */
int parse_real(const char *text, size_t n, double *value);     /* decimal, rounded right in any locale; 1e999 is inf */

/* ---- COMMAND LINE ---------------------------------------------------------------------------------------------- */

enum option_kind { OPTION_END, OPTION_GROUP, OPTION_FLAG, OPTION_STRING, OPTION_INT, OPTION_SEED, OPTION_REAL,
                   OPTION_CHOICE };

/* One row of a program's table of options. Build rows with the macros below; the help shows the value that stands in
 * the variable before parsing as the default, or `shown` instead of it ("" shows none). */
typedef struct cli_option {
    enum option_kind kind;
    char letter;           /* -n, or 0 */
    const char *name;      /* --top-k without the dashes, or NULL; for a group its title */
    const char *argument;  /* "N", what the help calls the value */
    void *value;           /* int (flag, choice), const char *, int64_t, uint64_t (seed), double */
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
void cli_help(const cli *c, FILE *out);

/* ---- TERMINAL AND CLOCK ---------------------------------------------------------------------------------------- */

double time_now(void);                              /* seconds of a clock that never goes back */
const char *human_size(char buf[16], uint64_t n);   /* "1.12 GB" (powers of 1000) */
const char *human_time(char buf[16], double seconds); /* "3.4 s", "2 min 05 s" */

/* A line on stderr that is rewritten in place; nothing at all unless stderr is a terminal. */
typedef struct progress {
    const char *label;
    double started, shown;
    int on, bytes; /* bytes: the figures are sizes */
} progress;

void progress_begin(progress *p, const char *label, int bytes);
void progress_update(progress *p, uint64_t done, uint64_t total); /* cheap: draws at most ten times a second */
void progress_end(progress *p);                                   /* clears the line */

int is_terminal(FILE *f);

/* ---- PROCESS --------------------------------------------------------------------------------------------------- */

/* First thing in every main: binary stdin and stdout, UTF-8 arguments (argv may be replaced) and console. */
void program_start(int *argc, char ***argv);
int cpu_count(void);             /* processors this process may use, at least 1 */
uint64_t random_seed(void);      /* differs from run to run */
/* Flushes stdout; returns status, or 1 with a message if something that was printed could not be written. */
int program_end(int status);

#endif
