/* text.h - messages, UTF-8, and numbers written in decimal, whatever the locale. */
#ifndef TOOLS_TEXT_H
#define TOOLS_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h> /* defines __MINGW_PRINTF_FORMAT */

#include "tfm.h"

#if defined(__MINGW_PRINTF_FORMAT)
#define TOOL_PRINTF(at, args) __attribute__((format(__MINGW_PRINTF_FORMAT, at, args)))
#elif defined(__GNUC__)
#define TOOL_PRINTF(at, args) __attribute__((format(printf, at, args)))
#else
#define TOOL_PRINTF(at, args)
#endif

/* ---- MESSAGES -------------------------------------------------------------------------------------------------- */

/* Fills err (may be NULL) with one formatted line and returns code, so that a failing function ends with
 *     return tool_fail(err, TFM_ERR_FORMAT, "%s: %s: expected an integer", file, key);
 * Text that came from a file is made harmless: control characters and broken UTF-8 become '?'. A line that is too
 * long loses its middle, so that both the file at its start and the reason at its end stay readable. */
int tool_fail(tfm_error *err, int code, const char *format, ...) TOOL_PRINTF(3, 4);

/* "warning: ..." as one harmless line on stderr. */
void tool_warn(const char *format, ...) TOOL_PRINTF(1, 2);

/* "error: ..." as one harmless line on stderr. Returns 1, the exit status of a failed program. */
int tool_error(const char *format, ...) TOOL_PRINTF(1, 2);

/* The cleaning alone, in place; or text on stdout, cleaned, with `newline` where it has one. */
void tool_clean_line(char *line);
void tool_print_clean(const char *text, size_t n, const char *newline);

/* ---- NUMBERS --------------------------------------------------------------------------------------------------- */

/* The whole of text[0..n) must be the number. 0, or -1 (malformed or out of range). */
int parse_int64(const char *text, size_t n, int64_t *value);
int parse_uint64(const char *text, size_t n, uint64_t *value); /* "-1" is 2^64 - 1 */
int parse_real(const char *text, size_t n, double *value);     /* decimal, rounded right in any locale; 1e999 is inf */

/* ---- UTF-8 ----------------------------------------------------------------------------------------------------- */

/* Bytes of the well-formed UTF-8 sequence that s[0..n) starts with, or 0. */
size_t utf8_sequence(const void *s, size_t n);

#endif
