/* os.h - everything in which the operating systems differ, but for threads (pool.c).
 *
 * Paths and arguments are UTF-8 on every system. A port to another system is one more section of os.c.
 */
#ifndef TOOLS_OS_H
#define TOOLS_OS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- for every program ----------------------------------------------------------------------------------------- */

/* First thing in every main: binary stdin and stdout, UTF-8 arguments (argv may be replaced) and console. */
void program_start(int *argc, char ***argv);
double time_now(void);    /* seconds of a clock that never goes back */
int is_terminal(FILE *f);
int cpu_count(void);      /* processors this process may use, at least 1 */
/* Bytes of memory that this process wrote and shares with no file, 0 where the system does not say. */
uint64_t memory_private(void);
/* fopen for UTF-8 paths and files of any size. */
FILE *file_open(const char *path, const char *mode);

/* ---- for files.c and terminal.c -------------------------------------------------------------------------------- */

enum { OS_READ, OS_WRITE, OS_CREATE }; /* what is there: to read, to write; a new file to write */
enum { PATH_ABSENT, PATH_FILE, PATH_DIRECTORY, PATH_OTHER };

typedef struct os_info {
    int kind;                /* PATH_... */
    uint64_t size;
    uint64_t device, number; /* tell two files apart */
} os_info;

/* These fail as POSIX calls do: with -1 (os_resolve: NULL) and errno. */
int os_stat(const char *path, os_info *info); /* links are followed */
int os_info_of(int fd, os_info *info);
int os_open(const char *path, int how);       /* OS_... */
int64_t os_read(int fd, uint64_t offset, void *buf, size_t n); /* may do less than n bytes, as may os_write */
int64_t os_write(int fd, uint64_t offset, const void *buf, size_t n);
int os_sync(int fd);                          /* on the disk when it returns, where the system can tell */
int os_close(int fd);
int os_rename(const char *from, const char *to); /* replaces `to` in one step */
int os_remove(const char *path);
int os_mkdir(const char *path);
int os_rmdir(const char *path);               /* an empty one */
char *os_resolve(const char *path);           /* the path behind a link, from malloc */

int os_is_separator(char c);                  /* between the names of a path */
unsigned long os_process_id(void);
/* Whether job(arg) returns non-zero, found out in a child process, which it may crash or hang for seconds. 0 where the
 * system cannot copy a process. To be called before there are threads. */
int os_try(int (*job)(void *arg), void *arg);
/* Before a signal (^C, a closed terminal) ends the process, clean_up runs; it may only close and remove files. */
void os_catch_signals(void (*clean_up)(void));

#endif
