/* terminal.c - figures and progress for people, and the end of a program. */
#define _CRT_SECURE_NO_WARNINGS

#include "terminal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "os.h"
#include "text.h"

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

const char *ink(int which)
{
    static const char *const sequences[INK_COUNT] = { "\033[0m", "\033[1m", "\033[31m", "\033[32m" };
    const char *off = getenv("NO_COLOR"), *term = getenv("TERM");
    if ((off && *off) || !term || strcmp(term, "dumb") == 0 || !is_terminal(stdout)) return "";
    return sequences[which];
}

/* "3.4 s", "2 min 05 s" */
static const char *human_time(char buf[16], double seconds)
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
    char line[128], a[16], b[16], spent[16];
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
    fprintf(stderr, "\r%-*.*s", PROGRESS_WIDTH, PROGRESS_WIDTH, line);
    fflush(stderr);
}

void progress_end(progress *p)
{
    if (p->on && p->shown > p->started) fprintf(stderr, "\r%*s\r", PROGRESS_WIDTH, "");
    p->on = 0;
}

uint64_t random_seed(void)
{
    uint64_t x = (uint64_t)time(NULL) ^ (uint64_t)os_process_id() << 32 ^ (uint64_t)(time_now() * 1e9) << 8;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

int program_end(int status)
{
    errno = 0; /* of an earlier failure nothing is left to name */
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    return tool_error("stdout: %s", errno ? strerror(errno) : "cannot be written");
}
