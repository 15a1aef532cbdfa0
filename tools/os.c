/* os.c - the calls of os.h, once for Windows and once for POSIX systems. */
#if defined(__linux__)
#define _GNU_SOURCE 1 /* sched_getaffinity */
#elif defined(__APPLE__)
#define _DARWIN_C_SOURCE 1
#elif !defined(_WIN32)
#define _POSIX_C_SOURCE 200809L
#endif
#define _FILE_OFFSET_BITS 64
#define _CRT_SECURE_NO_WARNINGS

#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
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
#include <sys/wait.h>
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#endif
#endif

enum { IO_CHUNK = 1 << 30 }; /* the most one system call is asked for */

static void (*clean_up)(void); /* what os_catch_signals was told */

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

static int info_of_handle(HANDLE file, os_info *info)
{
    BY_HANDLE_FILE_INFORMATION id;
    memset(info, 0, sizeof *info);
    info->kind = PATH_OTHER;
    if (GetFileType(file) != FILE_TYPE_DISK) return 0;
    if (!GetFileInformationByHandle(file, &id)) return -1;
    info->kind = id.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY ? PATH_DIRECTORY : PATH_FILE;
    info->size = (uint64_t)id.nFileSizeHigh << 32 | id.nFileSizeLow;
    info->device = id.dwVolumeSerialNumber;
    info->number = (uint64_t)id.nFileIndexHigh << 32 | id.nFileIndexLow;
    return 0;
}

int os_info_of(int fd, os_info *info)
{
    return info_of_handle((HANDLE)_get_osfhandle(fd), info);
}

int os_open(const char *path, int how)
{
    int flags = how == OS_READ ? _O_RDONLY : how == OS_WRITE ? _O_WRONLY : _O_WRONLY | _O_CREAT | _O_EXCL;
    wchar_t *wide = to_wide(path);
    int fd = wide != NULL ? _wopen(wide, flags | _O_BINARY | _O_NOINHERIT, _S_IREAD | _S_IWRITE) : -1;
    free(wide);
    return fd;
}

int os_stat(const char *path, os_info *info)
{
    const DWORD share = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    wchar_t *wide = to_wide(path);
    HANDLE file;
    DWORD why;
    int result;
    if (wide == NULL) return -1;
    file = CreateFileW(wide, 0, share, NULL, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, NULL); /* folders too */
    why = GetLastError();
    free(wide);
    if (file == INVALID_HANDLE_VALUE) {
        errno = why == ERROR_ACCESS_DENIED || why == ERROR_SHARING_VIOLATION ? EACCES : ENOENT;
        return -1;
    }
    result = info_of_handle(file, info);
    CloseHandle(file);
    return result;
}

int64_t os_read(int fd, uint64_t offset, void *buf, size_t n)
{
    if (_lseeki64(fd, (int64_t)offset, SEEK_SET) < 0) return -1;
    return _read(fd, buf, (unsigned)(n < IO_CHUNK ? n : IO_CHUNK));
}

int64_t os_write(int fd, uint64_t offset, const void *buf, size_t n)
{
    if (_lseeki64(fd, (int64_t)offset, SEEK_SET) < 0) return -1;
    return _write(fd, buf, (unsigned)(n < IO_CHUNK ? n : IO_CHUNK));
}

int os_sync(int fd)
{
    return _commit(fd);
}

int os_close(int fd)
{
    return _close(fd);
}

int os_rename(const char *from, const char *to)
{
    wchar_t *a = to_wide(from), *b = to_wide(to);
    int ok = a != NULL && b != NULL && MoveFileExW(a, b, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH);
    if (!ok) errno = EACCES;
    free(a);
    free(b);
    return ok ? 0 : -1;
}

int os_remove(const char *path)
{
    wchar_t *wide = to_wide(path);
    int result = wide != NULL ? _wunlink(wide) : -1;
    free(wide);
    return result;
}

char *os_resolve(const char *path)
{
    return _strdup(path);
}

int os_is_separator(char c)
{
    return c == '/' || c == '\\' || c == ':';
}

unsigned long os_process_id(void)
{
    return (unsigned long)_getpid();
}

static BOOL WINAPI os_on_console(DWORD event)
{
    (void)event;
    clean_up();
    return FALSE; /* the default handler ends the process */
}

void os_catch_signals(void (*before_the_end)(void))
{
    clean_up = before_the_end;
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

int os_mkdir(const char *path)
{
    wchar_t *wide = to_wide(path);
    int result = wide != NULL ? _wmkdir(wide) : -1;
    free(wide);
    return result;
}

int os_rmdir(const char *path)
{
    wchar_t *wide = to_wide(path);
    int result = wide != NULL ? _wrmdir(wide) : -1;
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

uint64_t memory_private(void) { return 0; }

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

int os_try(int (*job)(void *arg), void *arg)
{
    (void)job;
    (void)arg;
    return 0;
}

#else /* POSIX */

static void info_from_stat(const struct stat *st, os_info *info)
{
    info->kind = S_ISREG(st->st_mode) ? PATH_FILE : S_ISDIR(st->st_mode) ? PATH_DIRECTORY : PATH_OTHER;
    info->size = (uint64_t)st->st_size;
    info->device = (uint64_t)st->st_dev;
    info->number = (uint64_t)st->st_ino;
}

int os_info_of(int fd, os_info *info)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return -1;
    info_from_stat(&st, info);
    return 0;
}

int os_stat(const char *path, os_info *info)
{
    struct stat st;
    if (stat(path, &st) != 0) return -1;
    info_from_stat(&st, info);
    return 0;
}

int os_open(const char *path, int how)
{
    int flags = how == OS_READ ? O_RDONLY : how == OS_WRITE ? O_WRONLY : O_WRONLY | O_CREAT | O_EXCL, fd;
    do fd = open(path, flags | O_CLOEXEC, 0666);
    while (fd < 0 && errno == EINTR);
    return fd;
}

int64_t os_read(int fd, uint64_t offset, void *buf, size_t n)
{
    ssize_t got;
    do got = pread(fd, buf, n < IO_CHUNK ? n : IO_CHUNK, (off_t)offset);
    while (got < 0 && errno == EINTR);
    return got;
}

int64_t os_write(int fd, uint64_t offset, const void *buf, size_t n)
{
    ssize_t done;
    do done = pwrite(fd, buf, n < IO_CHUNK ? n : IO_CHUNK, (off_t)offset);
    while (done < 0 && errno == EINTR);
    return done;
}

int os_sync(int fd)
{
    return fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP ? 0 : -1; /* some file systems cannot */
}

int os_close(int fd)
{
    return close(fd);
}

int os_rename(const char *from, const char *to)
{
    return rename(from, to);
}

int os_remove(const char *path)
{
    return unlink(path);
}

char *os_resolve(const char *path)
{
    return realpath(path, NULL);
}

int os_is_separator(char c)
{
    return c == '/' || c == '\\'; /* the second so that a file means the same on every system */
}

unsigned long os_process_id(void)
{
    return (unsigned long)getpid();
}

int os_try(int (*job)(void *arg), void *arg)
{
    enum { SECONDS = 5 };
    int status = 1;
    pid_t child;
    child = fork();
    if (child == 0) {
        alarm(SECONDS);
        _exit(job(arg) ? 0 : 1);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return child > 0 && status == 0;
}

void os_on_signal(int signal_number)
{
    clean_up();
    raise(signal_number); /* its handler is the default one again: this ends the process */
}

void os_catch_signals(void (*before_the_end)(void))
{
    static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGALRM, SIGXCPU };
    struct sigaction old, ours;
    size_t i;
    clean_up = before_the_end;
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

int os_mkdir(const char *path)
{
    return mkdir(path, 0777);
}

int os_rmdir(const char *path)
{
    return rmdir(path);
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

uint64_t memory_private(void)
{
    unsigned long kb = 0;
    char line[128];
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "Private_Dirty: %lu", &kb) == 1) break;
    if (f != NULL) fclose(f);
    return (uint64_t)kb * 1024;
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
