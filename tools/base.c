/* base.c - what every program shares. The operating systems differ in the first section only. */
#if defined(__linux__)
#define _GNU_SOURCE 1 /* sched_getaffinity */
#elif defined(__APPLE__)
#define _DARWIN_C_SOURCE 1
#elif !defined(_WIN32)
#define _POSIX_C_SOURCE 200809L
#endif
#define _FILE_OFFSET_BITS 64
#define _CRT_SECURE_NO_WARNINGS

#include "base.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
/* windows.h must come first */
#include <direct.h>
#include <io.h>
#include <process.h>
#include <shellapi.h>
#else
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#endif
#endif

/* ==== OPERATING SYSTEM ========================================================================================== */

typedef struct os_info {
    int kind;                /* PATH_... */
    uint64_t size;
    uint64_t device, number; /* tell two files apart */
} os_info;

enum { IO_CHUNK = 1 << 30 }; /* the most one system call is asked for */

static void sinks_abandon(void); /* SINKS; signal handlers call it */

#if defined(_WIN32)

/* From malloc; NULL with errno set. */
static wchar_t *to_wide(const char *text)
{
    int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, NULL, 0);
    wchar_t *wide = n > 0 ? (wchar_t *)malloc((size_t)n * sizeof *wide) : NULL;
    if (wide != NULL) MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, wide, n);
    else errno = n > 0 ? ENOMEM : EINVAL;
    return wide;
}

static char *to_utf8(const wchar_t *wide)
{
    int n = WideCharToMultiByte(CP_UTF8, 0, wide, -1, NULL, 0, NULL, NULL);
    char *text = n > 0 ? (char *)malloc((size_t)n) : NULL;
    if (text != NULL) WideCharToMultiByte(CP_UTF8, 0, wide, -1, text, n, NULL, NULL);
    return text;
}

static int os_info_of(int fd, os_info *info)
{
    BY_HANDLE_FILE_INFORMATION id;
    struct _stat64 st;
    if (_fstat64(fd, &st) != 0) return -1;
    info->kind = (st.st_mode & _S_IFMT) == _S_IFREG ? PATH_FILE : PATH_OTHER;
    info->size = (uint64_t)st.st_size;
    info->device = info->number = 0;
    if (GetFileInformationByHandle((HANDLE)_get_osfhandle(fd), &id)) {
        info->device = id.dwVolumeSerialNumber;
        info->number = (uint64_t)id.nFileIndexHigh << 32 | id.nFileIndexLow;
    }
    return 0;
}

static int os_open(const char *path, int create)
{
    int flags = create ? _O_WRONLY | _O_CREAT | _O_EXCL : _O_RDONLY;
    wchar_t *wide = to_wide(path);
    int fd = wide != NULL ? _wopen(wide, flags | _O_BINARY | _O_NOINHERIT, _S_IREAD | _S_IWRITE) : -1;
    free(wide);
    return fd;
}

static int os_stat(const char *path, os_info *info)
{
    struct _stat64 st;
    wchar_t *wide = to_wide(path);
    int fd, result = wide != NULL ? _wstat64(wide, &st) : -1;
    free(wide);
    if (result != 0) return -1;
    memset(info, 0, sizeof *info);
    info->kind = PATH_DIRECTORY;
    if ((st.st_mode & _S_IFMT) == _S_IFDIR) return 0;
    fd = os_open(path, 0);
    if (fd < 0) return -1;
    result = os_info_of(fd, info);
    _close(fd);
    return result;
}

static int64_t os_read(int fd, uint64_t offset, void *buf, size_t n)
{
    if (_lseeki64(fd, (int64_t)offset, SEEK_SET) < 0) return -1;
    return _read(fd, buf, (unsigned)(n < IO_CHUNK ? n : IO_CHUNK));
}

static int64_t os_write(int fd, uint64_t offset, const void *buf, size_t n)
{
    if (_lseeki64(fd, (int64_t)offset, SEEK_SET) < 0) return -1;
    return _write(fd, buf, (unsigned)(n < IO_CHUNK ? n : IO_CHUNK));
}

static int os_sync(int fd)
{
    return _commit(fd);
}

static int os_close(int fd)
{
    return _close(fd);
}

static int os_rename(const char *from, const char *to)
{
    wchar_t *a = to_wide(from), *b = to_wide(to);
    int ok = a != NULL && b != NULL && MoveFileExW(a, b, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH);
    if (!ok) errno = EACCES;
    free(a);
    free(b);
    return ok ? 0 : -1;
}

static void os_remove(const char *path)
{
    wchar_t *wide = to_wide(path);
    if (wide != NULL) _wunlink(wide);
    free(wide);
}

/* The path behind a link, from malloc. */
static char *os_resolve(const char *path)
{
    return _strdup(path);
}

static int os_is_separator(char c)
{
    return c == '/' || c == '\\' || c == ':';
}

static unsigned long os_process_id(void)
{
    return (unsigned long)_getpid();
}

static BOOL WINAPI os_on_console(DWORD event)
{
    (void)event;
    sinks_abandon();
    return FALSE; /* the default handler ends the process */
}

static void os_catch_signals(void)
{
    SetConsoleCtrlHandler(os_on_console, TRUE);
}

FILE *file_open(const char *path, const char *mode)
{
    wchar_t *p = to_wide(path), *m = to_wide(mode);
    FILE *f = p != NULL && m != NULL ? _wfopen(p, m) : NULL;
    free(p);
    free(m);
    return f;
}

static int os_mkdir(const char *path)
{
    wchar_t *wide = to_wide(path);
    int result = wide != NULL ? _wmkdir(wide) : -1;
    free(wide);
    return result;
}

double time_now(void)
{
    LARGE_INTEGER now, per_second;
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&per_second);
    return (double)now.QuadPart / (double)per_second.QuadPart;
}

int is_terminal(FILE *f)
{
    return _isatty(_fileno(f));
}

int cpu_count(void)
{
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return info.dwNumberOfProcessors > 0 ? (int)info.dwNumberOfProcessors : 1;
}

void program_start(int *argc, char ***argv)
{
    int i, n = 0;
    wchar_t **wide = CommandLineToArgvW(GetCommandLineW(), &n);
    char **args = wide != NULL ? (char **)calloc((size_t)n + 1, sizeof *args) : NULL;
    for (i = 0; args != NULL && i < n; i++) {
        args[i] = to_utf8(wide[i]);
        if (args[i] == NULL) break;
    }
    if (args != NULL && i == n) { /* else the arguments stay as they are */
        *argc = n;
        *argv = args;
    }
    LocalFree(wide);
    _setmode(_fileno(stdin), _O_BINARY);
    _setmode(_fileno(stdout), _O_BINARY);
    SetConsoleOutputCP(CP_UTF8);
}

#else /* POSIX */

static void info_from_stat(const struct stat *st, os_info *info)
{
    info->kind = S_ISREG(st->st_mode) ? PATH_FILE : S_ISDIR(st->st_mode) ? PATH_DIRECTORY : PATH_OTHER;
    info->size = (uint64_t)st->st_size;
    info->device = (uint64_t)st->st_dev;
    info->number = (uint64_t)st->st_ino;
}

static int os_info_of(int fd, os_info *info)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return -1;
    info_from_stat(&st, info);
    return 0;
}

static int os_stat(const char *path, os_info *info)
{
    struct stat st;
    if (stat(path, &st) != 0) return -1;
    info_from_stat(&st, info);
    return 0;
}

static int os_open(const char *path, int create)
{
    int fd;
    do fd = open(path, (create ? O_WRONLY | O_CREAT | O_EXCL : O_RDONLY) | O_CLOEXEC, 0666);
    while (fd < 0 && errno == EINTR);
    return fd;
}

static int64_t os_read(int fd, uint64_t offset, void *buf, size_t n)
{
    ssize_t got;
    do got = pread(fd, buf, n < IO_CHUNK ? n : IO_CHUNK, (off_t)offset);
    while (got < 0 && errno == EINTR);
    return got;
}

static int64_t os_write(int fd, uint64_t offset, const void *buf, size_t n)
{
    ssize_t done;
    do done = pwrite(fd, buf, n < IO_CHUNK ? n : IO_CHUNK, (off_t)offset);
    while (done < 0 && errno == EINTR);
    return done;
}

static int os_sync(int fd)
{
    return fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP ? 0 : -1; /* some file systems cannot */
}

static int os_close(int fd)
{
    return close(fd);
}

static int os_rename(const char *from, const char *to)
{
    return rename(from, to);
}

static void os_remove(const char *path)
{
    unlink(path);
}

static char *os_resolve(const char *path)
{
    return realpath(path, NULL);
}

static int os_is_separator(char c)
{
    return c == '/' || c == '\\'; /* the second so that a file means the same on every system */
}

static unsigned long os_process_id(void)
{
    return (unsigned long)getpid();
}

static void os_on_signal(int signal_number)
{
    sinks_abandon();
    raise(signal_number); /* its handler is the default one again: this ends the process */
}

static void os_catch_signals(void)
{
    static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE };
    struct sigaction old, ours;
    size_t i;
    memset(&ours, 0, sizeof ours);
    ours.sa_handler = os_on_signal;
    ours.sa_flags = (int)(SA_RESETHAND | SA_NODEFER);
    sigemptyset(&ours.sa_mask);
    for (i = 0; i < sizeof ends / sizeof ends[0]; i++) { /* one that is ignored (nohup) stays so */
        if (sigaction(ends[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL) sigaction(ends[i], &ours, NULL);
    }
}

FILE *file_open(const char *path, const char *mode)
{
    return fopen(path, mode);
}

static int os_mkdir(const char *path)
{
    return mkdir(path, 0777);
}

double time_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int is_terminal(FILE *f)
{
    return isatty(fileno(f));
}

int cpu_count(void)
{
    long n;
#if defined(__linux__)
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed) > 0 ? CPU_COUNT(&allowed) : 1;
#endif
    n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

void program_start(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
#if defined(SIGXFSZ)
    signal(SIGXFSZ, SIG_IGN); /* a file beyond the allowed size is an error of write, not a death */
#endif
}

#endif

/* ==== ERRORS ==================================================================================================== */

size_t utf8_sequence(const void *sequence, size_t n)
{
    const unsigned char *s = (const unsigned char *)sequence;
    unsigned low = 0x80, high = 0xbf; /* what the second byte may be */
    size_t i, length;
    if (n == 0) return 0;
    if (s[0] < 0x80) return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
    length = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (n < length) return 0;
    if (s[0] == 0xe0) low = 0xa0;  /* shorter forms exist */
    if (s[0] == 0xf0) low = 0x90;
    if (s[0] == 0xed) high = 0x9f; /* surrogates */
    if (s[0] == 0xf4) high = 0x8f; /* beyond U+10FFFF */
    if (s[1] < low || s[1] > high) return 0;
    for (i = 2; i < length; i++)
        if (s[i] < 0x80 || s[i] > 0xbf) return 0;
    return length;
}

void tool_clean_line(char *line)
{
    size_t i = 0, n = strlen(line);
    while (i < n) {
        unsigned char c = (unsigned char)line[i];
        size_t length = utf8_sequence(line + i, n - i);
        int control = c < 0x20 || c == 0x7f || (c == 0xc2 && (unsigned char)line[i + 1] < 0xa0);
        if (length == 0) {
            line[i++] = '?';
        } else {
            if (control) memset(line + i, '?', length);
            i += length;
        }
    }
}

/* Copies line, without its middle if it is too long; room is at least 64. */
static void copy_shortened(char *out, size_t room, const char *line)
{
    size_t n = strlen(line), head, tail;
    if (n < room) {
        memcpy(out, line, n + 1);
        return;
    }
    head = room / 3;
    tail = n - (room - head - sizeof " ... " - 1);
    while (head > 0 && ((unsigned char)line[head] & 0xc0) == 0x80) head--;
    while (((unsigned char)line[tail] & 0xc0) == 0x80) tail++;
    memcpy(out, line, head);
    memcpy(out + head, " ... ", 5);
    memcpy(out + head + 5, line + tail, n - tail + 1);
}

enum { LINE_MAX_BYTES = 2048 };

static void format_line(char line[LINE_MAX_BYTES], const char *format, va_list args)
{
    if (vsnprintf(line, LINE_MAX_BYTES, format, args) < 0) strcpy(line, "message cannot be formatted");
    tool_clean_line(line);
}

int tool_fail(tfm_error *err, int code, const char *format, ...)
{
    char line[LINE_MAX_BYTES];
    va_list args;
    if (err == NULL) return code;
    va_start(args, format);
    format_line(line, format, args);
    va_end(args);
    err->code = code;
    copy_shortened(err->msg, sizeof err->msg, line);
    return code;
}

void tool_warn(const char *format, ...)
{
    char line[LINE_MAX_BYTES];
    va_list args;
    va_start(args, format);
    format_line(line, format, args);
    va_end(args);
    fprintf(stderr, "warning: %s\n", line);
}

int tool_error(const char *format, ...)
{
    char line[LINE_MAX_BYTES];
    va_list args;
    va_start(args, format);
    format_line(line, format, args);
    va_end(args);
    fflush(stdout);
    fprintf(stderr, "error: %s\n", line);
    return 1;
}

/* ==== MEMORY ==================================================================================================== */

#if defined(TFM_FUZZING)
enum { ARENA_BLOCK = 0 }; /* every allocation has a block of its own, so that sanitizers see where it ends */
#else
enum { ARENA_BLOCK = 65536 };
#endif
enum { ARENA_ALIGN = 16, ARENA_LARGEST_STEP = 1 << 20 };

struct arena_block {
    struct arena_block *next;
    unsigned char *data; /* aligned */
};

static struct arena_block *new_block(arena *a, size_t size)
{
    size_t overhead = sizeof(struct arena_block) + ARENA_ALIGN - 1;
    struct arena_block *block;
    if (size > SIZE_MAX - overhead) return NULL;
    block = (struct arena_block *)calloc(1, size + overhead);
    if (block == NULL) return NULL;
    block->data = (unsigned char *)(block + 1);
    block->data += (ARENA_ALIGN - (uintptr_t)block->data % ARENA_ALIGN) % ARENA_ALIGN;
    a->total += size + overhead;
    return block;
}

static void *take(arena *a, size_t size, size_t align)
{
    size_t step = a->total / 8, start = (a->used + align - 1) / align * align;
    struct arena_block *block;
    if (a->blocks != NULL && start <= a->room && size <= a->room - start) {
        a->used = start + size;
        return a->blocks->data + start;
    }
    if (step > ARENA_LARGEST_STEP) step = ARENA_LARGEST_STEP;
    if (step < (size_t)ARENA_BLOCK || ARENA_BLOCK == 0) step = ARENA_BLOCK;
    block = new_block(a, size > step / 4 ? size : step);
    if (block == NULL) return NULL;
    if (size > step / 4 && a->blocks != NULL) { /* a block of its own, behind the one with room left */
        block->next = a->blocks->next;
        a->blocks->next = block;
        return block->data;
    }
    block->next = a->blocks;
    a->blocks = block;
    a->room = size > step / 4 ? size : step;
    a->used = size;
    return block->data;
}

void *arena_alloc(arena *a, size_t size)
{
    return take(a, size, ARENA_ALIGN);
}

void *arena_array(arena *a, size_t count, size_t size)
{
    if (size != 0 && count > SIZE_MAX / size) return NULL;
    return arena_alloc(a, count * size);
}

char *arena_text(arena *a, size_t n)
{
    return n < SIZE_MAX ? (char *)take(a, n + 1, 1) : NULL;
}

char *arena_strndup(arena *a, const char *s, size_t n)
{
    char *copy = arena_text(a, n);
    if (copy != NULL && n > 0) memcpy(copy, s, n);
    return copy;
}

char *arena_strdup(arena *a, const char *s)
{
    return arena_strndup(a, s, strlen(s));
}

char *arena_printf(arena *a, const char *format, ...)
{
    va_list args;
    char *text;
    int n;
    va_start(args, format);
    n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    text = n >= 0 ? arena_text(a, (size_t)n) : NULL;
    if (text == NULL) return NULL;
    va_start(args, format);
    vsnprintf(text, (size_t)n + 1, format, args);
    va_end(args);
    return text;
}

void arena_free(arena *a)
{
    while (a->blocks != NULL) {
        struct arena_block *next = a->blocks->next;
        free(a->blocks);
        a->blocks = next;
    }
    memset(a, 0, sizeof *a);
}

void *array_grow(void *array, size_t *capacity, size_t needed, size_t element_size)
{
    size_t room = *capacity < 16 ? 16 : *capacity;
    void *grown;
    if (needed <= *capacity) return array;
    while (room < needed) room = room > SIZE_MAX / 2 ? needed : room * 2;
    if (element_size != 0 && room > SIZE_MAX / element_size) return NULL;
    grown = realloc(array, room * element_size);
    if (grown != NULL) *capacity = room;
    return grown;
}

/* ==== NAMES ===================================================================================================== */

enum { MAX_PROBES = 256 }; /* names of honest files need a few; a file made to collide is refused */

static uint32_t name_hash(const char *name, size_t length)
{
    const uint64_t odd = 0x9e3779b97f4a7c15u;
    uint64_t h = (uint64_t)length * odd;
    unsigned char tail[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
    for (; length >= 8; name += 8, length -= 8) {
        h = (h ^ load_u64(name)) * odd;
        h ^= h >> 32;
    }
    if (length > 0) memcpy(tail, name, length);
    h = (h ^ load_u64(tail)) * odd;
    return (uint32_t)(h >> 32);
}

int name_index_init(name_index *index, arena *a, size_t capacity,
                    const char *(*name_of)(const void *table, uint32_t entry, size_t *length))
{
    uint32_t n = 16;
    if (capacity > (size_t)1 << 30) return TFM_ERR_MEMORY;
    while (n / 2 < capacity) n *= 2;
    index->slots = (uint64_t *)arena_array(a, n, sizeof *index->slots);
    index->mask = n - 1;
    index->name_of = name_of;
    return index->slots != NULL ? TFM_OK : TFM_ERR_MEMORY;
}

static uint32_t entry_of(uint64_t slot)
{
    return (uint32_t)slot - 1;
}

/* The slot that holds the name, or the free one where it belongs; NAME_ABSENT if the search takes too long. */
static uint32_t find_slot(const name_index *index, const void *table, const char *name, size_t length, uint32_t hash)
{
    uint32_t at = hash & index->mask;
    int probes;
    for (probes = 0; probes < MAX_PROBES; probes++, at = (at + 1) & index->mask) {
        uint64_t slot = index->slots[at];
        size_t n;
        const char *other;
        if (slot == 0) return at;
        if (slot >> 32 != hash) continue; /* spares a look at the table, which is seldom in the cache */
        other = index->name_of(table, entry_of(slot), &n);
        if (n == length && memcmp(other, name, n) == 0) return at;
    }
    return NAME_ABSENT;
}

int name_index_add(name_index *index, const void *table, uint32_t entry, uint32_t *present)
{
    size_t length;
    const char *name = index->name_of(table, entry, &length);
    uint32_t hash = name_hash(name, length), slot = find_slot(index, table, name, length, hash);
    if (slot == NAME_ABSENT) return TFM_ERR_FORMAT;
    if (index->slots[slot] != 0) {
        if (present != NULL) *present = entry_of(index->slots[slot]);
        return 1;
    }
    index->slots[slot] = (uint64_t)hash << 32 | (entry + 1);
    return TFM_OK;
}

uint32_t name_index_find(const name_index *index, const void *table, const char *name, size_t length)
{
    uint32_t slot;
    if (index->slots == NULL) return NAME_ABSENT;
    slot = find_slot(index, table, name, length, name_hash(name, length));
    return slot == NAME_ABSENT || index->slots[slot] == 0 ? NAME_ABSENT : entry_of(index->slots[slot]);
}

/* ==== BYTES ===================================================================================================== */

uint16_t load_u16(const void *bytes)
{
    const unsigned char *b = (const unsigned char *)bytes;
    return (uint16_t)(b[0] | b[1] << 8);
}

uint32_t load_u32(const void *bytes)
{
    const unsigned char *b = (const unsigned char *)bytes;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

uint64_t load_u64(const void *bytes)
{
    const unsigned char *b = (const unsigned char *)bytes;
    return load_u32(b) | (uint64_t)load_u32(b + 4) << 32;
}

float load_f32(const void *bytes)
{
    uint32_t bits = load_u32(bytes);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

double load_f64(const void *bytes)
{
    uint64_t bits = load_u64(bytes);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

int checked_mul(uint64_t a, uint64_t b, uint64_t *product)
{
    if (b != 0 && a > UINT64_MAX / b) return -1;
    *product = a * b;
    return 0;
}

int checked_add(uint64_t a, uint64_t b, uint64_t *sum)
{
    if (a > UINT64_MAX - b) return -1;
    *sum = a + b;
    return 0;
}

/* ==== SOURCES =================================================================================================== */

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

static int local_close(local_file *f)
{
    if (f->fd >= 0) os_close(f->fd);
    free(f->name);
    free(f);
    return TFM_ERR_IO;
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
    f->fd = os_open(path, 0);
    if (f->fd < 0 || os_info_of(f->fd, &info) != 0) {
        tool_fail(err, TFM_ERR_IO, "%s: %s", path, strerror(errno));
        return local_close(f);
    }
    f->name = (char *)malloc(strlen(path) + 1);
    if (f->name == NULL) {
        tool_fail(err, TFM_ERR_MEMORY, "%s: no memory", path);
        return local_close(f);
    }
    strcpy(f->name, path);
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
    copy = (char *)malloc(strlen(path) + 1);
    if (copy == NULL) return tool_fail(err, TFM_ERR_MEMORY, "%s: no memory", path);
    out->user = strcpy(copy, path);
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
    int code = TFM_OK;
    *data = NULL;
    *n = 0;
    if (f == NULL) return tool_fail(err, TFM_ERR_IO, "%s: %s", name, strerror(errno));
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

/* ==== SINKS ===================================================================================================== */

enum { MAX_SINKS = 8, MAX_PATH_BYTES = 4096 };

typedef struct file_sink {
    volatile sig_atomic_t live; /* the temporary file may exist */
    int fd;
    int error;                  /* errno of the first write that failed */
    char *path;
    char temporary[MAX_PATH_BYTES];
} file_sink;

static file_sink file_sinks[MAX_SINKS]; /* static, for the signal handler */

/* Runs in signal handlers: removes the files that will not be finished. */
static void sinks_abandon(void)
{
    int i;
    for (i = 0; i < MAX_SINKS; i++) {
        if (!file_sinks[i].live) continue;
#if defined(_WIN32)
        os_close(file_sinks[i].fd); /* an open file cannot be removed there */
#endif
        os_remove(file_sinks[i].temporary);
    }
}

static int file_write_at(void *user, uint64_t offset, const void *buf, size_t n)
{
    file_sink *f = (file_sink *)user;
    const unsigned char *from = (const unsigned char *)buf;
    while (n > 0 && f->error == 0) {
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
    if (os_stat(path, &info) != 0) return TFM_OK;
    if (info.kind == PATH_DIRECTORY) return tool_fail(err, TFM_ERR_IO, "%s: is a directory", path);
    if (info.kind != PATH_FILE) return tool_fail(err, TFM_ERR_IO, "%s: is not a regular file", path);
    if (is_source(&info)) return tool_fail(err, TFM_ERR_ARG, "%s: the output is one of the files read", path);
    return TFM_OK;
}

/* A new file beside f->path, under a name no other process chooses. */
static int create_temporary(file_sink *f, tfm_error *err)
{
    size_t n = strlen(f->path);
    int attempt, why = 0;
    while (n > 0 && !os_is_separator(f->path[n - 1])) n--;
    if (n > MAX_PATH_BYTES - 64) return tool_fail(err, TFM_ERR_ARG, "%s: the path is too long", f->path);
    for (attempt = 0; attempt < 100; attempt++) {
        snprintf(f->temporary, sizeof f->temporary, "%.*stfm-%lu-%d.tmp", (int)n, f->path, os_process_id(), attempt);
        f->live = 1; /* before the file exists: a signal may come between the two */
        f->fd = os_open(f->temporary, 1);
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
    if (target != NULL) return target;
    target = (char *)malloc(strlen(path) + 1);
    return target != NULL ? strcpy(target, path) : NULL;
}

int sink_open_file(sink *out, const char *path, tfm_error *err)
{
    static int catching = 0;
    file_sink *f;
    int i, code = check_target(path, err);
    memset(out, 0, sizeof *out);
    if (code != TFM_OK) return code;
    for (i = 0; i < MAX_SINKS && file_sinks[i].live; i++) continue;
    if (i == MAX_SINKS) {
        return tool_fail(err, TFM_ERR_ARG, "%s: more than %d files being written", path, (int)MAX_SINKS);
    }
    f = &file_sinks[i];
    f->error = 0;
    f->path = target_of(path);
    if (f->path == NULL) return tool_fail(err, TFM_ERR_MEMORY, "%s: no memory", path);
    if (!catching) os_catch_signals();
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
    if (f->error == 0 && os_sync(f->fd) != 0) f->error = errno;
    if (os_close(f->fd) != 0 && f->error == 0) f->error = errno;
    f->fd = -1;
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

int sink_write(sink *s, uint64_t offset, const void *buf, size_t n, tfm_error *err)
{
    const file_sink *f = (const file_sink *)s->user;
    if (n == 0 || s->write_at(s->user, offset, buf, n) == 0) return TFM_OK;
    if (s->write_at != file_write_at) {
        return tool_fail(err, TFM_ERR_IO, "output: cannot write %llu bytes at offset %llu", (unsigned long long)n,
                         (unsigned long long)offset);
    }
    return tool_fail(err, TFM_ERR_IO, "%s: cannot be written: %s", f->path, strerror(f->error));
}

int make_directory(const char *path, tfm_error *err)
{
    if (os_mkdir(path) == 0) return TFM_OK;
    if (errno == EEXIST && path_kind(path) == PATH_DIRECTORY) return TFM_OK;
    return tool_fail(err, TFM_ERR_IO, "%s: cannot be created: %s", path, strerror(errno));
}

/* ==== NUMBERS =================================================================================================== */

/* Digits only, as many as fit. */
static int parse_digits(const char *text, size_t n, uint64_t *value)
{
    size_t i;
    *value = 0;
    for (i = 0; i < n; i++) {
        unsigned digit = (unsigned)((unsigned char)text[i] - '0');
        if (digit > 9 || *value > (UINT64_MAX - digit) / 10) return -1;
        *value = *value * 10 + digit;
    }
    return n > 0 ? 0 : -1;
}

int parse_int64(const char *text, size_t n, int64_t *value)
{
    int negative = n > 0 && text[0] == '-';
    size_t sign = n > 0 && (text[0] == '-' || text[0] == '+');
    uint64_t magnitude;
    if (parse_digits(text + sign, n - sign, &magnitude) != 0) return -1;
    if (magnitude > (uint64_t)INT64_MAX + (uint64_t)negative) return -1;
    *value = magnitude > (uint64_t)INT64_MAX ? INT64_MIN : negative ? -(int64_t)magnitude : (int64_t)magnitude;
    return 0;
}

int parse_uint64(const char *text, size_t n, uint64_t *value)
{
    if (parse_digits(text, n, value) == 0) return 0;
    *value = UINT64_MAX;
    return n == 2 && memcmp(text, "-1", 2) == 0 ? 0 : -1;
}

/* A decimal number taken apart: its value is digits * 10^exponent if all digits fitted (`exact`). */
typedef struct decimal {
    uint64_t digits;
    int64_t exponent;
    int negative, exact;
} decimal;

static int scan_exponent(const char *text, size_t n, decimal *d)
{
    size_t i = n > 0 && (text[0] == '-' || text[0] == '+');
    int negative = n > 0 && text[0] == '-';
    int64_t value = 0;
    if (i == n) return -1;
    for (; i < n; i++) {
        if (text[i] < '0' || text[i] > '9') return -1;
        if (value < 100000) value = value * 10 + (text[i] - '0');
    }
    d->exponent += negative ? -value : value;
    return 0;
}

static int scan_decimal(const char *text, size_t n, decimal *d)
{
    size_t i = n > 0 && (text[0] == '-' || text[0] == '+');
    int n_digits = 0, after_point = 0;
    memset(d, 0, sizeof *d);
    d->negative = n > 0 && text[0] == '-';
    d->exact = 1;
    for (; i < n; i++) {
        if (text[i] == '.' && !after_point) {
            after_point = 1;
            continue;
        }
        if (text[i] < '0' || text[i] > '9') break;
        n_digits++;
        if (d->digits > (UINT64_MAX - 9) / 10) {
            d->exact = 0;
            continue;
        }
        d->digits = d->digits * 10 + (uint64_t)(text[i] - '0');
        d->exponent -= after_point;
    }
    if (n_digits == 0) return -1;
    if (i == n) return 0;
    if (text[i] != 'e' && text[i] != 'E') return -1;
    return scan_exponent(text + i + 1, n - i - 1, d);
}

/* strtod on a copy with the decimal point that the current locale expects. */
static int parse_with_strtod(const char *text, size_t n, double *value)
{
    const char *point = localeconv()->decimal_point;
    char copy[1100], *end;
    size_t i, used = 0;
    if (n > 1024 || strlen(point) > 16) return -1;
    for (i = 0; i < n; i++) {
        if (text[i] != '.') copy[used++] = text[i];
        else {
            memcpy(copy + used, point, strlen(point));
            used += strlen(point);
        }
    }
    copy[used] = 0;
    *value = strtod(copy, &end);
    return end == copy + used ? 0 : -1;
}

#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD == 0
enum { PLAIN_DOUBLES = 1 }; /* an operation on doubles rounds once, to a double */
#else
enum { PLAIN_DOUBLES = 0 };
#endif

int parse_real(const char *text, size_t n, double *value)
{
    static const double power[] = { 1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
    decimal d;
    if (scan_decimal(text, n, &d) != 0) return -1;
    /* Else both operands are exact, and one operation rounds the result correctly. */
    if (!d.exact || d.digits > (uint64_t)1 << 53 || d.exponent < -22 || d.exponent > 22 || !PLAIN_DOUBLES) {
        return parse_with_strtod(text, n, value);
    }
    *value = d.exponent < 0 ? (double)d.digits / power[-d.exponent] : (double)d.digits * power[d.exponent];
    if (d.negative) *value = -*value;
    return 0;
}

/* ==== COMMAND LINE ============================================================================================== */

enum { HELP_COLUMN = 30 };

/* The default of an option as the help shows it, or "". */
static const char *shown_default(const cli_option *o, char *buf, size_t size)
{
    if (o->shown != NULL) return o->shown;
    switch (o->kind) {
    case OPTION_STRING: return *(const char *const *)o->value != NULL ? *(const char *const *)o->value : "";
    case OPTION_INT: snprintf(buf, size, "%lld", (long long)*(const int64_t *)o->value); return buf;
    case OPTION_SEED: snprintf(buf, size, "%llu", (unsigned long long)*(const uint64_t *)o->value); return buf;
    case OPTION_REAL: snprintf(buf, size, "%g", *(const double *)o->value); return buf;
    case OPTION_CHOICE: return o->choices[*(const int *)o->value];
    default: return "";
    }
}

static void help_option(const cli_option *o, FILE *out)
{
    char buf[64], left[128];
    const char *text, *value = o->argument != NULL ? o->argument : "", *preset = shown_default(o, buf, sizeof buf);
    const char *space = o->argument != NULL ? " " : "", *name = o->name != NULL ? o->name : "";
    int i;
    if (o->letter == 0) snprintf(left, sizeof left, "      --%s%s%s", name, space, value);
    else snprintf(left, sizeof left, "  -%c%s%s%s%s", o->letter, o->name != NULL ? ", --" : "", name, space, value);
    fprintf(out, "%-*s", HELP_COLUMN - 2, left);
    if (strlen(left) > HELP_COLUMN - 2) fprintf(out, "\n%*s", HELP_COLUMN - 2, "");
    fprintf(out, "  ");
    for (text = o->help; *text != 0; text++) {
        fputc(*text, out);
        if (*text == '\n') fprintf(out, "%*s", HELP_COLUMN, "");
    }
    if (o->kind == OPTION_CHOICE) {
        fprintf(out, ": ");
        for (i = 0; o->choices[i] != NULL; i++) fprintf(out, "%s%s", i > 0 ? ", " : "", o->choices[i]);
    }
    if (preset[0] != 0) fprintf(out, " (default %s)", preset);
    fputc('\n', out);
}

void cli_help(const cli *c, FILE *out)
{
    static const cli_option help = CLI_FLAG('h', "help", NULL, "show this text");
    const cli_option *o;
    fprintf(out, "usage: %s %s\n", c->program, c->usage);
    if (c->about != NULL) fprintf(out, "\n%s\n", c->about);
    fputc('\n', out);
    for (o = c->options; o->kind != OPTION_END; o++) {
        if (o->kind == OPTION_GROUP) fprintf(out, "%s%s:\n", o == c->options ? "" : "\n", o->name);
        else help_option(o, out);
    }
    help_option(&help, out);
}

int cli_wrong(const cli *c, const char *format, ...)
{
    char line[LINE_MAX_BYTES];
    va_list args;
    va_start(args, format);
    format_line(line, format, args);
    va_end(args);
    fflush(stdout);
    fprintf(stderr, "error: %s (see %s --help)\n", line, c->program);
    return 2;
}

static int wrong_choice(const cli *c, const cli_option *o, const char *called, const char *value)
{
    char list[1024];
    size_t used = 0;
    int i;
    list[0] = 0;
    for (i = 0; o->choices[i] != NULL && used < sizeof list; i++) {
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", o->choices[i]);
    }
    return cli_wrong(c, "%s: '%s' is none of %s", called, value, list);
}

static int wrong_number(const cli *c, const cli_option *o, const char *called, const char *value)
{
    const double unbounded = 1e300;
    if (o->kind == OPTION_REAL && o->high < unbounded) {
        return cli_wrong(c, "%s: '%s' is not a number from %g to %g", called, value, o->low, o->high);
    }
    if (o->kind == OPTION_REAL && o->low > -unbounded) {
        return cli_wrong(c, "%s: '%s' is not a number of at least %g", called, value, o->low);
    }
    if (o->kind == OPTION_REAL) return cli_wrong(c, "%s: '%s' is not a number", called, value);
    if (o->kind == OPTION_SEED) {
        return cli_wrong(c, "%s: '%s' is not a whole number from 0 to 2^64-1, or -1", called, value);
    }
    if (o->max == INT64_MAX || o->max == INT32_MAX) {
        return cli_wrong(c, "%s: '%s' is not a whole number of at least %lld", called, value, (long long)o->min);
    }
    return cli_wrong(c, "%s: '%s' is not a whole number from %lld to %lld", called, value, (long long)o->min,
                     (long long)o->max);
}

/* Stores a value; `called` is the option as the user wrote it. CLI_GO_ON or the exit status. */
static int set_option(const cli *c, const cli_option *o, const char *called, const char *value)
{
    int64_t whole;
    double real;
    int i, ok = 1;
    switch (o->kind) {
    case OPTION_STRING:
        *(const char **)o->value = value;
        break;
    case OPTION_INT:
        ok = parse_int64(value, strlen(value), &whole) == 0 && whole >= o->min && whole <= o->max;
        if (ok) *(int64_t *)o->value = whole;
        break;
    case OPTION_SEED:
        ok = parse_uint64(value, strlen(value), (uint64_t *)o->value) == 0;
        break;
    case OPTION_REAL:
        ok = parse_real(value, strlen(value), &real) == 0 && real >= o->low && real <= o->high;
        if (ok) *(double *)o->value = real;
        break;
    case OPTION_CHOICE:
        for (i = 0; o->choices[i] != NULL && strcmp(o->choices[i], value) != 0; i++) continue;
        if (o->choices[i] == NULL) return wrong_choice(c, o, called, value);
        *(int *)o->value = i;
        break;
    default: /* a flag */
        *(int *)o->value = 1;
        break;
    }
    if (!ok) return wrong_number(c, o, called, value);
    if (o->given != NULL) ++*o->given;
    return CLI_GO_ON;
}

static const cli_option *find_option(const cli *c, char letter, const char *name, size_t length)
{
    const cli_option *o;
    for (o = c->options; o->kind != OPTION_END; o++) {
        if (o->kind == OPTION_GROUP) continue;
        if (letter != 0 && o->letter == letter) return o;
        if (letter == 0 && o->name != NULL && strlen(o->name) == length && memcmp(o->name, name, length) == 0) return o;
    }
    return NULL;
}

/* Reads the option at argv[*i] and steps over the value it takes. */
static int read_option(const cli *c, int argc, char **argv, int *i)
{
    const char *arg = argv[*i], *value = NULL;
    int is_long = arg[1] == '-';
    size_t length = is_long ? strcspn(arg + 2, "=") : 1;
    const cli_option *o = is_long ? find_option(c, 0, arg + 2, length) : find_option(c, arg[1], NULL, 0);
    char called[80];
    snprintf(called, sizeof called, "%.*s", (int)(is_long && length < 70 ? length + 2 : 2), arg);
    if (strcmp(arg, "--help") == 0 || (o == NULL && strcmp(arg, "-h") == 0)) {
        cli_help(c, stdout);
        return 0;
    }
    if (o == NULL) return cli_wrong(c, "unknown option '%s'", arg);
    if (is_long && arg[2 + length] == '=') value = arg + 3 + length;
    if (!is_long && arg[2] != 0) value = arg + 2;
    if (o->kind == OPTION_FLAG) {
        if (value != NULL) return cli_wrong(c, "%s takes no value, but '%s' follows", called, value);
        return set_option(c, o, called, "");
    }
    if (value == NULL) {
        if (*i + 1 >= argc) return cli_wrong(c, "%s needs a value: %s", called, o->argument);
        value = argv[++*i];
    }
    return set_option(c, o, called, value);
}

int cli_parse(const cli *c, int argc, char **argv, const char **args, int *n_args)
{
    int i, n = 0, options_ended = 0;
    for (i = 1; i < argc; i++) {
        if (!options_ended && strcmp(argv[i], "--") == 0) {
            options_ended = 1;
        } else if (!options_ended && argv[i][0] == '-' && argv[i][1] != 0) {
            int status = read_option(c, argc, argv, &i);
            if (status != CLI_GO_ON) return status;
        } else if (n < c->max_args) {
            args[n++] = argv[i];
        } else {
            return cli_wrong(c, "one argument too many: '%s'", argv[i]);
        }
    }
    if (n < c->min_args) return cli_wrong(c, "missing argument %s", c->arg_names[n]);
    if (n_args != NULL) *n_args = n;
    return CLI_GO_ON;
}

/* ==== TERMINAL AND CLOCK ======================================================================================== */

const char *human_size(char buf[16], uint64_t n)
{
    static const char *const unit[] = { "KB", "MB", "GB", "TB", "PB", "EB" };
    double value = (double)n / 1000;
    int i = 0;
    if (n < 1000) {
        snprintf(buf, 16, "%u bytes", (unsigned)n);
        return buf;
    }
    while (value >= 999.5 && i < 5) {
        value /= 1000;
        i++;
    }
    snprintf(buf, 16, value < 9.995 ? "%.2f %s" : value < 99.95 ? "%.1f %s" : "%.0f %s", value, unit[i]);
    return buf;
}

const char *human_time(char buf[16], double seconds)
{
    long whole = seconds < 1e8 ? (long)(seconds + 0.5) : 100000000L;
    if (seconds < 0.0995) snprintf(buf, 16, "%.1f ms", seconds * 1e3);
    else if (seconds < 9.995) snprintf(buf, 16, "%.2f s", seconds);
    else if (seconds < 59.95) snprintf(buf, 16, "%.1f s", seconds);
    else if (whole < 3600) snprintf(buf, 16, "%d min %02d s", (int)(whole / 60 % 60), (int)(whole % 60));
    else snprintf(buf, 16, "%d h %02d min", (int)(whole / 3600 % 100000), (int)(whole / 60 % 60));
    return buf;
}

enum { PROGRESS_WIDTH = 78 };

void progress_begin(progress *p, const char *label, int bytes)
{
    p->label = label;
    p->bytes = bytes;
    p->on = is_terminal(stderr);
    p->started = p->on ? time_now() : 0;
    p->shown = p->started;
}

void progress_update(progress *p, uint64_t done, uint64_t total)
{
    char line[PROGRESS_WIDTH + 1], a[16], b[16], spent[16];
    double now;
    if (!p->on) return;
    now = time_now();
    if (now - p->shown < 0.1) return;
    p->shown = now;
    if (p->bytes) {
        human_size(a, done);
        human_size(b, total);
    } else {
        snprintf(a, sizeof a, "%llu", (unsigned long long)done % 1000000000000u);
        snprintf(b, sizeof b, "%llu", (unsigned long long)total % 1000000000000u);
    }
    snprintf(line, sizeof line, "%.30s  %d %%  %s of %s  %s", p->label,
             total > 0 ? (int)(100.0 * (double)done / (double)total) : 0, a, b, human_time(spent, now - p->started));
    fprintf(stderr, "\r%-*s", PROGRESS_WIDTH, line);
    fflush(stderr);
}

void progress_end(progress *p)
{
    if (p->on && p->shown > p->started) fprintf(stderr, "\r%*s\r", PROGRESS_WIDTH, "");
    p->on = 0;
}

/* ==== PROCESS =================================================================================================== */

uint64_t random_seed(void)
{
    uint64_t x = (uint64_t)time(NULL) ^ (uint64_t)os_process_id() << 32 ^ (uint64_t)(time_now() * 1e9) << 8;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

int program_end(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    return tool_error("stdout: %s", strerror(errno));
}
