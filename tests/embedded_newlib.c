/* What newlib's printf and malloc ask of a board, for the tests of the kernels: board_cortex_m.c does the rest. */
#define _DEFAULT_SOURCE /* S_IFCHR, where the C library goes by the standard alone */
#include <stddef.h>
#include <sys/stat.h>

#include "examples/embedded/board.h"

void *_sbrk(ptrdiff_t n);
int _write(int file, const char *text, int n);
int _read(int file, char *text, int n);
int _close(int file);
int _fstat(int file, struct stat *s);
int _isatty(int file);
int _lseek(int file, int offset, int from);
int _kill(int process, int signal);
int _getpid(void);
void _exit(int status);

void *_sbrk(ptrdiff_t n) {
    static char heap[64 << 20] __attribute__((aligned(64)));
    static ptrdiff_t used;
    if (n > (ptrdiff_t)sizeof heap - used) return (void *)-1;
    used += n;
    return heap + used - n;
}

int _write(int file, const char *text, int n) {
    (void)file;
    board_put(text, (size_t)n);
    return n;
}

int _fstat(int file, struct stat *s) {
    (void)file;
    s->st_mode = S_IFCHR;
    return 0;
}

int _isatty(int file) { (void)file; return 1; }
int _read(int file, char *text, int n) { (void)file, (void)text, (void)n; return 0; }
int _close(int file) { (void)file; return -1; }
int _lseek(int file, int offset, int from) { (void)file, (void)offset, (void)from; return 0; }
int _kill(int process, int signal) { (void)process, (void)signal; return -1; }
int _getpid(void) { return 1; }
void _exit(int status) { (void)status; for (;;) {} }
