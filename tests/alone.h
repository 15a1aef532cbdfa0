/* alone.h - check() and its counts for a test that is a program of its own; tests/main.c has that of run_tests.
 * Included once, after ALONE_NAME is defined: the word that stands before what failed. */
#ifndef TEST_ALONE_H
#define TEST_ALONE_H

#include <stdarg.h>
#include <stdio.h>

#include "test.h"

static int passed, failed;

void check(int good, const char *format, ...) { /* not static: tiny.c calls it */
    va_list args;
    if (good) passed++;
    else failed++;
    if (good) return;
    va_start(args, format);
    printf("FAILED " ALONE_NAME ": ");
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

#endif
