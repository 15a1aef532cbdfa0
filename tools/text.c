/* text.c - messages, UTF-8, numbers written in decimal. */
#include "text.h"

#include <float.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- UTF-8 ------------------------------------------------------------------------------------------------------- */

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

/* ---- MESSAGES ---------------------------------------------------------------------------------------------------- */

/* Bytes of the character at s; *harmful: it commands a terminal, or is broken UTF-8. */
static size_t character_at(const char *s, size_t n, int *harmful)
{
    unsigned char c = (unsigned char)s[0];
    size_t length = utf8_sequence(s, n);
    *harmful = length == 0 || c < 0x20 || c == 0x7f || (c == 0xc2 && (unsigned char)s[1] < 0xa0);
    return length == 0 ? 1 : length;
}

void tool_clean_line(char *line)
{
    size_t i, length, n = strlen(line);
    int harmful;
    for (i = 0; i < n; i += length) {
        length = character_at(line + i, n - i, &harmful);
        if (harmful) memset(line + i, '?', length);
    }
}

void tool_print_clean(const char *text, size_t n, const char *newline)
{
    size_t i, length;
    int harmful;
    for (i = 0; i < n; i += length) {
        length = character_at(text + i, n - i, &harmful);
        if (text[i] == '\n') fputs(newline, stdout);
        else if (harmful) putchar('?');
        else fwrite(text + i, 1, length, stdout);
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
    int n = vsnprintf(line, LINE_MAX_BYTES, format, args);
    if (n < 0) snprintf(line, LINE_MAX_BYTES, "message cannot be formatted");
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

static void print_line(const char *kind, const char *format, va_list args)
{
    char line[LINE_MAX_BYTES];
    format_line(line, format, args);
    fflush(stdout); /* both may be the same terminal: keep the order */
    fprintf(stderr, "%s: %s\n", kind, line);
}

void tool_warn(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_line("warning", format, args);
    va_end(args);
}

int tool_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_line("error", format, args);
    va_end(args);
    return 1;
}

/* ---- NUMBERS ----------------------------------------------------------------------------------------------------- */

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
