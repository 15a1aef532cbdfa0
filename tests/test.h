/* The harness: a named table of functions, two counters. Each check prints only when it fails. */
#ifndef TEST_H
#define TEST_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Counts one check; if !ok, counts and prints a failure: the test's name and the formatted text. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void check(int ok, const char *format, ...);

/* Counts something that this machine cannot run, and says why. */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
void skip(const char *format, ...);

/* Where tests may write: a folder of their own, "build/tests" unless the runner was told another. */
const char *test_dir(void);
/* Writes seeds_KIND/NAME there, for the fuzz targets; a failure counts. */
void write_seed(const char *kind, const char *name, const void *bytes, size_t n);
/* Where the committed data lie: "tests" unless the runner was told another. */
const char *test_data(void);

#ifdef __cplusplus
}
#endif
#endif
