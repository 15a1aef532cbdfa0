/* files.h - bytes to read and to write: files, directories, memory.
 *
 * Portable C on the calls of os.h. Paths are UTF-8 on every system.
 */
#ifndef TOOLS_FILES_H
#define TOOLS_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "arena.h"
#include "os.h"

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

/* The same aligned to 64 bytes, as tfm_model_from_memory wants it. */
int source_read_model(const source *s, arena *a, void **bytes, size_t *n, tfm_error *err);

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

int path_kind(const char *path);                  /* PATH_... of os.h; links are followed */
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
 * files opened as a source by this process, or that is no regular file. */
int sink_open_file(sink *out, const char *path, tfm_error *err);
/* closes the file until it is written to again: systems bound the open ones */
void sink_rest(sink *s);
int sink_commit(sink *s, tfm_error *err);  /* also reports what a write had failed with, e.g. a full disk */
void sink_discard(sink *s);                /* nothing happens if it is committed or never was opened */

/* write_at with a message. */
int sink_write(sink *s, uint64_t offset, const void *buf, size_t n, tfm_error *err);

/* A directory; one that exists already is fine. */
int make_directory(const char *path, tfm_error *err);
void discard_directory(void); /* removes the last one that was made, if it is empty; a signal does so, too */

#endif
