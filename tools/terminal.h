/* terminal.h - what people watch: sizes, progress; and how a program ends. */
#ifndef TOOLS_TERMINAL_H
#define TOOLS_TERMINAL_H

#include <stdint.h>

const char *human_size(char buf[16], uint64_t n);   /* "1.12 GB" (powers of 1000) */

/* Colours for stdout: an escape sequence where it is a terminal that knows them, else "". NO_COLOR: none. */
enum { INK_PLAIN, INK_BOLD, INK_RED, INK_GREEN, INK_COUNT };
const char *ink(int which);

/* A line on stderr that is rewritten in place; nothing at all unless stderr is a terminal. */
typedef struct progress {
    const char *label;
    double started, shown;
    int on, bytes; /* bytes: the figures are sizes */
} progress;

void progress_begin(progress *p, const char *label, int bytes);
void progress_update(progress *p, uint64_t done, uint64_t total); /* cheap: draws at most ten times a second */
void progress_end(progress *p);                                   /* clears the line */

uint64_t random_seed(void); /* differs from run to run */
/* Flushes stdout; returns status, or 1 with a message if something that was printed could not be written. */
int program_end(int status);

#endif
