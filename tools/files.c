/* files.c - sources, sinks, paths: portable, on the calls of os.h. */
#define _CRT_SECURE_NO_WARNINGS

#include "files.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "os.h"

/* ---- SOURCES ----------------------------------------------------------------------------------------------------- */

int source_read(const source *s, uint64_t offset, void *buf, size_t n, tfm_error *err)
{
    int result;
    if (offset > s->size || n > s->size - offset) {
        return tool_fail(err, TFM_ERR_FORMAT, "%s: ends at byte %llu, but %llu bytes at offset %llu are needed",
                         s->name, (unsigned long long)s->size, (unsigned long long)n, (unsigned long long)offset);
    }
    if (n == 0) return TFM_OK;
    result = s->read_at(s->user, offset, buf, n);
    if (result > 0) return tool_fail(err, TFM_ERR_IO, "%s: became shorter while it was read", s->name);
    if (result < 0) {
        return tool_fail(err, TFM_ERR_IO, "%s: cannot read %llu bytes at offset %llu", s->name, (unsigned long long)n,
                         (unsigned long long)offset);
    }
    return TFM_OK;
}

int source_read_all(const source *s, uint64_t limit, arena *a, char **text, size_t *n, tfm_error *err)
{
    if (s->size > limit || s->size >= SIZE_MAX) {
        return tool_fail(err, TFM_ERR_FORMAT, "%s: has %llu bytes, more than the %llu allowed", s->name,
                         (unsigned long long)s->size, (unsigned long long)limit);
    }
    *n = (size_t)s->size;
    *text = (char *)arena_alloc(a, *n + 1);
    if (*text == NULL) return tool_fail(err, TFM_ERR_MEMORY, "%s: no memory for its %zu bytes", s->name, *n);
    return source_read(s, 0, *text, *n, err);
}

/* A copy from malloc, or NULL. */
static char *copy_text(const char *text)
{
    char *copy = (char *)malloc(strlen(text) + 1);
    return copy != NULL ? strcpy(copy, text) : NULL;
}

/* Which files were opened as sources, so that none of them is overwritten. Never shrinks: a source stays one. */
static struct {
    os_info *files;
    size_t n, capacity;
} opened;

static void remember_source(const os_info *info)
{
    os_info *grown = (os_info *)array_grow(opened.files, &opened.capacity, opened.n + 1, sizeof *grown);
    if (grown == NULL) return;
    opened.files = grown;
    opened.files[opened.n++] = *info;
}

static int is_source(const os_info *info)
{
    size_t i;
    for (i = 0; i < opened.n; i++)
        if (opened.files[i].device == info->device && opened.files[i].number == info->number) return 1;
    return 0;
}

typedef struct local_file {
    int fd;
    char *name;
} local_file;

static int local_read_at(void *user, uint64_t offset, void *buf, size_t n)
{
    const local_file *f = (const local_file *)user;
    unsigned char *to = (unsigned char *)buf;
    while (n > 0) {
        int64_t got = os_read(f->fd, offset, to, n);
        if (got <= 0) return got == 0 ? 1 : -1;
        to += got;
        offset += (uint64_t)got;
        n -= (size_t)got;
    }
    return 0;
}

static void local_close(local_file *f)
{
    if (f->fd >= 0) os_close(f->fd);
    free(f->name);
    free(f);
}

int source_read_model(const source *s, arena *a, void **bytes, size_t *n, tfm_error *err)
{
    unsigned char *p = s->size > SIZE_MAX / 2 ? NULL : arena_alloc(a, (size_t)s->size + 64);
    if (!p)
        return tool_fail(err, TFM_ERR_MEMORY, "%s: out of memory for its %llu bytes", s->name,
                         (unsigned long long)s->size);
    p += (64 - (uintptr_t)p % 64) % 64;
    *bytes = p;
    *n = (size_t)s->size;
    return source_read(s, 0, p, *n, err);
}

int source_open_file(source *out, const char *path, tfm_error *err)
{
    os_info info;
    local_file *f;
    memset(out, 0, sizeof *out);
    if (os_stat(path, &info) != 0) return tool_fail(err, TFM_ERR_IO, "%s: %s", path, strerror(errno));
    if (info.kind == PATH_DIRECTORY) return tool_fail(err, TFM_ERR_IO, "%s: is a directory, not a file", path);
    if (info.kind != PATH_FILE) return tool_fail(err, TFM_ERR_IO, "%s: is not a regular file", path);
    f = (local_file *)calloc(1, sizeof *f);
    if (f == NULL) return tool_fail(err, TFM_ERR_MEMORY, "%s: no memory", path);
    f->fd = os_open(path, OS_READ);
    if (f->fd < 0 || os_info_of(f->fd, &info) != 0) {
        tool_fail(err, TFM_ERR_IO, "%s: %s", path, strerror(errno));
        local_close(f);
        return TFM_ERR_IO;
    }
    f->name = copy_text(path);
    if (f->name == NULL) {
        local_close(f);
        return tool_fail(err, TFM_ERR_MEMORY, "%s: no memory", path);
    }
    remember_source(&info);
    out->user = f;
    out->name = f->name;
    out->size = info.size;
    out->read_at = local_read_at;
    return TFM_OK;
}

void source_close_file(source *s)
{
    if (s->user != NULL) local_close((local_file *)s->user);
    memset(s, 0, sizeof *s);
}

/* A name inside the directory: names come from index files, and must not lead out of it. */
static int is_plain_name(const char *file)
{
    const char *c;
    for (c = file; *c != 0; c++)
        if (os_is_separator(*c)) return 0;
    return file[0] != 0 && strcmp(file, ".") != 0 && strcmp(file, "..") != 0;
}

static int dir_local_open(void *user, const char *file, source *out, tfm_error *err)
{
    const char *directory = (const char *)user;
    size_t n = strlen(directory);
    const char *slash = n > 0 && os_is_separator(directory[n - 1]) ? "" : "/";
    os_info info;
    char *path;
    int result;
    memset(out, 0, sizeof *out);
    if (!is_plain_name(file)) {
        return tool_fail(err, TFM_ERR_FORMAT, "%s: '%s' is not the name of a file in it", directory, file);
    }
    path = (char *)malloc(n + strlen(file) + 2);
    if (path == NULL) return tool_fail(err, TFM_ERR_MEMORY, "%s: no memory", directory);
    strcat(strcat(strcpy(path, directory), slash), file);
    result = os_stat(path, &info) != 0 && errno == ENOENT ? 1 : source_open_file(out, path, err);
    free(path);
    return result;
}

static void dir_local_close(void *user, source *s)
{
    (void)user;
    source_close_file(s);
}

int dir_open_local(source_dir *out, const char *path, tfm_error *err)
{
    int kind = path_kind(path);
    char *copy;
    memset(out, 0, sizeof *out);
    if (kind == PATH_ABSENT) return tool_fail(err, TFM_ERR_IO, "%s: %s", path, strerror(errno));
    if (kind != PATH_DIRECTORY) return tool_fail(err, TFM_ERR_IO, "%s: is not a directory", path);
    copy = copy_text(path);
    if (copy == NULL) return tool_fail(err, TFM_ERR_MEMORY, "%s: no memory", path);
    out->user = copy;
    out->name = copy;
    out->open = dir_local_open;
    out->close = dir_local_close;
    return TFM_OK;
}

void dir_close_local(source_dir *dir)
{
    free(dir->user);
    memset(dir, 0, sizeof *dir);
}

static int memory_read_at(void *user, uint64_t offset, void *buf, size_t n)
{
    memcpy(buf, (const unsigned char *)user + offset, n);
    return 0;
}

source source_memory(const char *name, const void *data, size_t size)
{
    source s;
    s.user = (void *)(uintptr_t)data; /* only ever read */
    s.name = name;
    s.size = size;
    s.read_at = memory_read_at;
    return s;
}

static int dir_memory_open(void *user, const char *file, source *out, tfm_error *err)
{
    const memory_dir *dir = (const memory_dir *)user;
    size_t i;
    (void)err;
    for (i = 0; i < dir->n_files; i++) {
        if (strcmp(dir->files[i].name, file) != 0) continue;
        *out = source_memory(dir->files[i].name, dir->files[i].data, dir->files[i].size);
        return 0;
    }
    return 1;
}

static void dir_memory_close(void *user, source *s)
{
    (void)user;
    memset(s, 0, sizeof *s);
}

source_dir dir_memory(const char *name, memory_dir *files)
{
    source_dir dir;
    dir.user = files;
    dir.name = name;
    dir.open = dir_memory_open;
    dir.close = dir_memory_close;
    return dir;
}

int path_kind(const char *path)
{
    os_info info;
    return os_stat(path, &info) == 0 ? info.kind : PATH_ABSENT;
}

int path_same_file(const char *a, const char *b)
{
    os_info x, y;
    return os_stat(a, &x) == 0 && os_stat(b, &y) == 0 && x.device == y.device && x.number == y.number;
}

int read_whole(const char *path, uint64_t limit, char **data, size_t *n, tfm_error *err)
{
    int from_stdin = strcmp(path, "-") == 0;
    const char *name = from_stdin ? "stdin" : path;
    FILE *f = from_stdin ? stdin : file_open(path, "rb");
    size_t capacity = 0, got, size = 0;
    char *text = NULL;
    os_info info;
    int code = TFM_OK;
    *data = NULL;
    *n = 0;
    if (f == NULL) return tool_fail(err, TFM_ERR_IO, "%s: %s", name, strerror(errno));
    if ((from_stdin ? os_info_of(0, &info) : os_stat(path, &info)) == 0) remember_source(&info);
    do {
        char *grown = (char *)array_grow(text, &capacity, size + 65536, 1);
        if (grown == NULL) {
            code = tool_fail(err, TFM_ERR_MEMORY, "%s: no memory", name);
            break;
        }
        text = grown;
        got = fread(text + size, 1, capacity - size - 1, f);
        size += got;
        if (size > limit) {
            code = tool_fail(err, TFM_ERR_ARG, "%s: has more than %llu bytes", name, (unsigned long long)limit);
            break;
        }
    } while (got > 0);
    if (code == TFM_OK && ferror(f)) code = tool_fail(err, TFM_ERR_IO, "%s: %s", name, strerror(errno));
    if (!from_stdin) fclose(f);
    if (code != TFM_OK) {
        free(text);
        return code;
    }
    text[size] = 0;
    *data = text;
    *n = size;
    return TFM_OK;
}

/* ---- SINKS ------------------------------------------------------------------------------------------------------- */

enum { MAX_PATH_BYTES = 4096 };

typedef struct file_sink {
    struct file_sink *volatile next;
    volatile sig_atomic_t live; /* the temporary file may exist */
    int fd;                     /* -1: at rest */
    int error;                  /* errno of the first write that failed */
    char *path;
    char temporary[MAX_PATH_BYTES];
} file_sink;

/* All that were ever made: they are used again and never freed, since the signal handler may be among them. */
static file_sink *volatile file_sinks;

/* Runs in signal handlers: removes the files that will not be finished. */
static void sinks_abandon(void)
{
    file_sink *f;
    for (f = file_sinks; f != NULL; f = f->next) {
        if (!f->live) continue;
        if (f->fd >= 0) os_close(f->fd); /* Windows does not remove an open file */
        os_remove(f->temporary);
    }
    discard_directory();
}

/* One that is not in use; NULL: no memory. */
static file_sink *spare_sink(void)
{
    file_sink *f;
    for (f = file_sinks; f != NULL && f->live; f = f->next) continue;
    if (f == NULL && (f = (file_sink *)calloc(1, sizeof *f)) != NULL) {
        f->next = file_sinks;
        file_sinks = f;
    }
    return f;
}

/* Whether the file can be written to; opens it again if it is at rest. */
static int awake(file_sink *f)
{
    if (f->error == 0 && f->fd < 0 && (f->fd = os_open(f->temporary, OS_WRITE)) < 0) f->error = errno;
    return f->error == 0;
}

static int file_write_at(void *user, uint64_t offset, const void *buf, size_t n)
{
    file_sink *f = (file_sink *)user;
    const unsigned char *from = (const unsigned char *)buf;
    while (n > 0 && awake(f)) {
        int64_t done = os_write(f->fd, offset, from, n);
        if (done <= 0) {
            f->error = done < 0 ? errno : ENOSPC;
            break;
        }
        from += done;
        offset += (uint64_t)done;
        n -= (size_t)done;
    }
    return f->error == 0 ? 0 : -1;
}

/* May path be replaced? */
static int check_target(const char *path, tfm_error *err)
{
    os_info info;
    if (path[0] == 0) return tool_fail(err, TFM_ERR_ARG, "the output has no name");
    if (os_stat(path, &info) != 0) return TFM_OK;
    if (info.kind == PATH_DIRECTORY) return tool_fail(err, TFM_ERR_IO, "%s: is a directory", path);
    if (info.kind != PATH_FILE) return tool_fail(err, TFM_ERR_IO, "%s: is not a regular file", path);
    if (is_source(&info)) return tool_fail(err, TFM_ERR_ARG, "%s: the output is one of the files read", path);
    return TFM_OK;
}

/* A new file beside f->path, under a name no other process chooses. */
static int create_temporary(file_sink *f, tfm_error *err)
{
    static unsigned long serial = 0; /* of all in this process */
    size_t n = strlen(f->path);
    int attempt, why = 0;
    while (n > 0 && !os_is_separator(f->path[n - 1])) n--;
    if (n > MAX_PATH_BYTES - 64) return tool_fail(err, TFM_ERR_ARG, "%s: the path is too long", f->path);
    for (attempt = 0; attempt < 100; attempt++) {
        snprintf(f->temporary, sizeof f->temporary, "%.*stfm-%lu-%lu.tmp", (int)n, f->path, os_process_id(),
                 serial++);
        f->fd = -1;
        f->live = 1; /* before the file exists: a signal may come between the two */
        f->fd = os_open(f->temporary, OS_CREATE);
        if (f->fd >= 0) return TFM_OK;
        why = errno;
        f->live = 0;
        if (why != EEXIST) break;
    }
    return tool_fail(err, TFM_ERR_IO, "%s: cannot be created: %s", f->path, strerror(why));
}

/* The path to write to, from malloc: behind a link, that of the file it names. */
static char *target_of(const char *path)
{
    char *target = path_kind(path) == PATH_ABSENT ? NULL : os_resolve(path);
    return target != NULL ? target : copy_text(path);
}

/* The last part of a path; the folder before it goes to `folder` ("." if there is none). */
static const char *split_path(const char *path, char folder[MAX_PATH_BYTES])
{
    size_t n = strlen(path), i;
    while (n > 0 && !os_is_separator(path[n - 1])) n--;
    for (i = 0; i < n && i + 2 < MAX_PATH_BYTES; i++) folder[i] = path[i];
    if (n == 0) folder[i++] = '.';
    folder[i] = '\0';
    return path + n;
}

/* Whether two paths, of files that need not exist yet, name one place. */
static int same_place(const char *a, const char *b)
{
    char folder_a[MAX_PATH_BYTES], folder_b[MAX_PATH_BYTES];
    return strcmp(split_path(a, folder_a), split_path(b, folder_b)) == 0 && path_same_file(folder_a, folder_b);
}

int sink_open_file(sink *out, const char *path, tfm_error *err)
{
    static int catching = 0;
    file_sink *f, *other;
    int code = check_target(path, err);
    memset(out, 0, sizeof *out);
    if (code != TFM_OK) return code;
    if (strcmp(path, "-") == 0) return tool_fail(err, TFM_ERR_ARG, "-: results go to files, not to stdout");
    f = spare_sink();
    if (f == NULL || (f->path = target_of(path)) == NULL) return tool_fail(err, TFM_ERR_MEMORY, "%s: no memory", path);
    f->error = 0;
    for (other = file_sinks; other != NULL; other = other->next) {
        if (!other->live || !same_place(other->path, f->path)) continue;
        free(f->path);
        return tool_fail(err, TFM_ERR_ARG, "%s: is being written already", path);
    }
    if (!catching) os_catch_signals(sinks_abandon);
    catching = 1;
    code = create_temporary(f, err);
    if (code != TFM_OK) {
        free(f->path);
        return code;
    }
    out->user = f;
    out->write_at = file_write_at;
    return TFM_OK;
}

void sink_rest(sink *s)
{
    file_sink *f = (file_sink *)s->user;
    if (f->fd >= 0 && os_close(f->fd) != 0 && f->error == 0) f->error = errno;
    f->fd = -1;
}

static void close_slot(file_sink *f)
{
    f->live = 0;
    free(f->path);
    f->path = NULL;
}

int sink_commit(sink *s, tfm_error *err)
{
    file_sink *f = (file_sink *)s->user;
    int code = TFM_OK;
    if (awake(f) && os_sync(f->fd) != 0) f->error = errno;
    sink_rest(s);
    if (f->error != 0) code = tool_fail(err, TFM_ERR_IO, "%s: cannot be written: %s", f->path, strerror(f->error));
    else code = check_target(f->path, err);
    if (code == TFM_OK && os_rename(f->temporary, f->path) != 0) {
        code = tool_fail(err, TFM_ERR_IO, "%s: cannot be put in place: %s", f->path, strerror(errno));
    }
    if (code != TFM_OK) {
        sink_discard(s);
        return code;
    }
    close_slot(f);
    memset(s, 0, sizeof *s);
    return TFM_OK;
}

void sink_discard(sink *s)
{
    file_sink *f = (file_sink *)s->user;
    if (f == NULL) return;
    if (f->fd >= 0) os_close(f->fd);
    os_remove(f->temporary);
    close_slot(f);
    memset(s, 0, sizeof *s);
}

/* NULL: a sink that is no file. */
static const file_sink *file_of(const sink *s)
{
    const file_sink *f = file_sinks;
    while (f != NULL && f != s->user) f = f->next;
    return f;
}

int sink_write(sink *s, uint64_t offset, const void *buf, size_t n, tfm_error *err)
{
    const file_sink *f;
    if (n == 0 || s->write_at(s->user, offset, buf, n) == 0) return TFM_OK;
    f = file_of(s);
    if (f == NULL) {
        return tool_fail(err, TFM_ERR_IO, "output: cannot write %llu bytes at offset %llu", (unsigned long long)n,
                         (unsigned long long)offset);
    }
    return tool_fail(err, TFM_ERR_IO, "%s: cannot be written: %s", f->path, strerror(f->error));
}

static char made[MAX_PATH_BYTES]; /* the last directory that was made */

int make_directory(const char *path, tfm_error *err)
{
    if (os_mkdir(path) == 0) {
        snprintf(made, sizeof made, "%s", strlen(path) < sizeof made ? path : "");
        return TFM_OK;
    }
    if (errno == EEXIST && path_kind(path) == PATH_DIRECTORY) return TFM_OK;
    return tool_fail(err, TFM_ERR_IO, "%s: cannot be created: %s", path, strerror(errno));
}

void discard_directory(void)
{
    if (made[0]) os_rmdir(made);
}
