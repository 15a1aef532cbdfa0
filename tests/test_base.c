/* test_base.c - what all programs share: messages, memory, numbers, files, the command line, threads. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tools/base.h"
#include "tools/os.h"
#include "tools/pool.h"
#include "test.h"

void test_errors(void);
void test_arena(void);
void test_numbers(void);
void test_sinks(void);
void test_cli(void);
void test_pool(void);
void test_child(void);

void test_errors(void)
{
    char longer[600];
    tfm_error err;
    size_t n;
    check(tool_fail(NULL, -3, "x") == -3, "no place for the message");
    check(tool_fail(&err, TFM_ERR_IO, "%s: %d", "a\x1b[1m\n\xff\xc2\x9bz\xc3\xa9", 7) == TFM_ERR_IO, "code");
    check(strcmp(err.msg, "a?[1m????z\xc3\xa9: 7") == 0, "control characters: '%s'", err.msg);
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    tool_fail(&err, TFM_ERR_IO, "start %s end", longer);
    n = strlen(err.msg);
    check(n < sizeof err.msg && n > sizeof err.msg - 8, "length %zu", n);
    check(memcmp(err.msg, "start ", 6) == 0 && strcmp(err.msg + n - 4, " end") == 0, "both ends stay: '%s'", err.msg);
    check(utf8_sequence("\xf0\x9f\x98\x80", 4) == 4 && utf8_sequence("\xed\xa0\x80", 3) == 0 &&
          utf8_sequence("\xc0\x80", 2) == 0 && utf8_sequence("\xe2\x82", 2) == 0, "UTF-8");
}

void test_arena(void)
{
    arena a = { NULL, 0, 0, 0 };
    size_t i, j, bad = 0;
    uint64_t product;
    for (i = 1; i < 3000; i++) {
        unsigned char *p = (unsigned char *)arena_alloc(&a, i * 37 % 5000);
        if (p == NULL || (uintptr_t)p % 16 != 0) bad++;
        for (j = 0; p != NULL && j < i * 37 % 5000; j++) {
            bad += p[j] != 0;
            p[j] = 0xff;
        }
    }
    check(bad == 0, "%zu bytes or pointers are wrong", bad);
    check(arena_array(&a, SIZE_MAX / 2, 4) == NULL, "a product that wraps");
    check(arena_alloc(&a, SIZE_MAX - 3) == NULL, "a size that wraps");
    check(strcmp(arena_printf(&a, "%d-%s", 7, "x"), "7-x") == 0, "arena_printf");
    arena_free(&a);
    check(a.total == 0 && arena_alloc(&a, 1) != NULL, "usable after release");
    arena_free(&a);
    check(checked_mul((uint64_t)1 << 32, (uint64_t)1 << 32, &product) != 0, "2^64");
    check(checked_mul((uint64_t)1 << 32, UINT32_MAX, &product) == 0, "below 2^64");
    check(product == (uint64_t)UINT32_MAX << 32, "the product");
}

void test_numbers(void)
{
    static const char *const reals[] = { "0", "-0.5", "1e22", "123456789012345678901234567890", "1e-5", "0.1", ".5",
                                         "5.", "2.2250738585072014e-308", "1e400", "4.9e-324", "9007199254740993",
                                         "+3E+2", "1e-400", "3.14159265358979323846264338327950288" };
    static const char *const wrong[] = { "", "-", "1e", "e5", ".", "1.2.3", "0x10", "inf", "nan", "1 ", " 1", "1e+",
                                         "--1" };
    double value;
    int64_t whole;
    uint64_t seed;
    size_t i;
    for (i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        int code = parse_real(reals[i], strlen(reals[i]), &value);
        check(code == 0 && value == strtod(reals[i], NULL), "%s gives %.17g", reals[i], value);
    }
    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        check(parse_real(wrong[i], strlen(wrong[i]), &value) != 0, "'%s' is no number", wrong[i]);
    }
    check(parse_int64("-9223372036854775808", 20, &whole) == 0 && whole == INT64_MIN, "the least int64");
    check(parse_int64("9223372036854775808", 19, &whole) != 0, "one above the greatest int64");
    check(parse_int64("", 0, &whole) != 0 && parse_int64("-", 1, &whole) != 0 && parse_int64("1x", 2, &whole) != 0,
          "no integers");
    check(parse_uint64("-1", 2, &seed) == 0 && seed == UINT64_MAX, "-1 as a seed");
    check(parse_uint64("18446744073709551615", 20, &seed) == 0 && seed == UINT64_MAX, "the greatest seed");
    check(parse_uint64("18446744073709551616", 20, &seed) != 0, "one above it");
}

/* A file that becomes shorter while it is read, and names that lead out of a directory. */
static void check_sources(void)
{
    static const char *const outside[] = { "../x", "..", "", "a/b", "a\\b" };
    char path[512], byte;
    tfm_error err;
    source src;
    source_dir dir;
    FILE *f;
    size_t i;
    snprintf(path, sizeof path, "%s/readers_source", test_dir());
    f = file_open(path, "wb");
    check(f != NULL && fputs("abc", f) >= 0 && fclose(f) == 0, "%s", path);
    check(source_open_file(&src, path, &err) == TFM_OK && src.size == 3, "%s", err.msg);
    f = file_open(path, "wb");
    if (f != NULL) fclose(f);
    check(source_read(&src, 2, &byte, 1, &err) == TFM_ERR_IO && strstr(err.msg, "shorter") != NULL, "%s", err.msg);
    source_close_file(&src);
    check(dir_open_local(&dir, path, &err) < 0 && strstr(err.msg, "not a directory") != NULL, "%s", err.msg);
    check(dir_open_local(&dir, test_dir(), &err) == TFM_OK, "%s", err.msg);
    check(dir.open(dir.user, "readers_absent", &src, &err) == 1, "an absent file");
    check(dir.open(dir.user, "readers_source", &src, &err) == 0, "a file");
    dir.close(dir.user, &src);
    for (i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        check(dir.open(dir.user, outside[i], &src, &err) == TFM_ERR_FORMAT, "'%s' leads outside", outside[i]);
    }
    dir_close_local(&dir);
}

/* 1 if the file's text is this. */
static int file_holds(const char *path, const char *text)
{
    char data[1000];
    size_t n;
    FILE *f = fopen(path, "rb"); /* not read_whole: what that has read is not written over */
    if (!f) return 0;
    n = fread(data, 1, sizeof data, f);
    fclose(f);
    return n == strlen(text) && memcmp(data, text, n) == 0;
}

/* Many files, each written in two pieces and at rest between them. */
static void check_resting_sinks(void)
{
    enum { MANY = 40 };
    char path[512];
    tfm_error err;
    sink out[MANY];
    int i, piece;
    for (i = 0; i < MANY; i++) {
        snprintf(path, sizeof path, "%s/readers_rest%d", test_dir(), i);
        remove(path);
        check(sink_open_file(&out[i], path, &err) == TFM_OK, "%s", err.msg);
    }
    for (piece = 0; piece < 2; piece++)
        for (i = 0; i < MANY; i++) {
            check(sink_write(&out[i], piece ? 0 : 2, piece ? "ab" : "cd", 2, &err) == TFM_OK, "%s", err.msg);
            sink_rest(&out[i]);
            sink_rest(&out[i]);
        }
    for (i = 0; i < MANY; i++) {
        snprintf(path, sizeof path, "%s/readers_rest%d", test_dir(), i);
        if (i % 2) sink_discard(&out[i]);
        else check(sink_commit(&out[i], &err) == TFM_OK, "%s", err.msg);
        check(i % 2 ? path_kind(path) == PATH_ABSENT : file_holds(path, "abcd"), "file %d after a rest", i);
    }
}

void test_sinks(void)
{
    char path[512];
    tfm_error err;
    sink out, second;
    source src;
    check_sources();
    check_resting_sinks();
    snprintf(path, sizeof path, "%s/readers_sink", test_dir());
    remove(path);
    check(sink_open_file(&out, path, &err) == TFM_OK && sink_write(&out, 3, "def", 3, &err) == TFM_OK, "%s", err.msg);
    check(path_kind(path) == PATH_ABSENT, "not visible before it is whole");
    snprintf(path, sizeof path, "%s/./readers_sink", test_dir());
    check(sink_open_file(&second, path, &err) == TFM_ERR_ARG && strstr(err.msg, "already") != NULL, "one file twice");
    snprintf(path, sizeof path, "%s/readers_sink", test_dir());
    check(sink_write(&out, 0, "abc", 3, &err) == TFM_OK && sink_commit(&out, &err) == TFM_OK, "%s", err.msg);
    check(file_holds(path, "abcdef"), "bytes at their offsets");
    check(sink_open_file(&out, path, &err) == TFM_OK && sink_write(&out, 0, "xyz", 3, &err) == TFM_OK, "%s", err.msg);
    sink_discard(&out);
    sink_discard(&out);
    check(file_holds(path, "abcdef"), "discarding leaves the old file");
    check(source_open_file(&src, path, &err) == TFM_OK && src.size == 6, "%s", err.msg);
    check(sink_open_file(&out, path, &err) == TFM_ERR_ARG, "the output is a file that is read");
    check(source_read(&src, 5, path, 2, &err) == TFM_ERR_FORMAT, "reading past the end");
    source_close_file(&src);
    check(source_open_file(&src, test_dir(), &err) < 0 && strstr(err.msg, "directory") != NULL, "directory as a file");
    check(sink_open_file(&out, test_dir(), &err) < 0 && strstr(err.msg, "directory") != NULL, "directory as output");
    snprintf(path, sizeof path, "%s/readers_absent/x", test_dir());
    check(sink_open_file(&out, path, &err) < 0 && source_open_file(&src, path, &err) < 0, "absent directory");
}

void test_cli(void)
{
    static const char *const kinds[] = { "one", "two", NULL };
    const char *argv[] = { "prog", "A", "--top-k=40", "-p", "-x", "-n5", "--temp", "-0.5", "--kind", "two", "--seed",
                           "-1", "-v", "--", "-B" };
    const char *text = NULL, *args[2];
    int64_t top_k = 0, n = 0;
    double temp = 0;
    uint64_t seed = 0;
    int kind = 0, verbose = 0, given = 0, n_args = 0, status;
    const cli_option options[] = {
        CLI_GROUP("Group"),
        CLI_INT(0, "top-k", "K", &top_k, 0, 1000, NULL, "help", &given),
        CLI_INT('n', NULL, "N", &n, 0, INT64_MAX, NULL, "help", NULL),
        CLI_STRING('p', "prompt", "TEXT", &text, NULL, "help", NULL),
        CLI_REAL(0, "temp", "T", &temp, -1, 2, NULL, "help", NULL),
        CLI_CHOICE(0, "kind", "K", &kind, kinds, NULL, "help", NULL),
        CLI_SEED(0, "seed", "S", &seed, "random", "help", NULL),
        CLI_FLAG('v', "verbose", &verbose, "help"),
        CLI_END
    };
    const cli c = { "prog", "[options] A B", NULL, options, 2, 2, NULL };
    status = cli_parse(&c, sizeof argv / sizeof argv[0], (char **)(uintptr_t)argv, args, &n_args);
    check(status == CLI_GO_ON && n_args == 2, "status %d, %d arguments", status, n_args);
    if (status != CLI_GO_ON) return;
    check(strcmp(args[0], "A") == 0 && strcmp(args[1], "-B") == 0, "arguments %s %s", args[0], args[1]);
    check(top_k == 40 && given == 1 && n == 5 && strcmp(text, "-x") == 0, "values");
    check(temp == -0.5 && kind == 1 && seed == UINT64_MAX && verbose == 1, "more values");
}

typedef struct counts {
    int of[64];
} counts;

static void count_one(void *arg, int index)
{
    ((counts *)arg)->of[index]++;
}

void test_pool(void)
{
    int threads, n, i, round, bad = 0;
    for (threads = 1; threads <= 5; threads++) {
        pool *p = pool_new(threads);
        check(p != NULL && pool_threads(p) == threads, "a pool of %d", threads);
        for (round = 0; round < 200; round++) {
            counts c;
            memset(&c, 0, sizeof c);
            n = round % 12;
            pool_run(p, count_one, &c, n);
            for (i = 0; i < 64; i++) bad += c.of[i] != (i < n);
        }
        pool_free(p);
    }
    check(bad == 0, "%d indices not run once", bad);
}

#if !defined(_WIN32)
static int say_yes(void *arg) { return *(int *)arg; }

static int do_wrong(void *arg) {
    signal(SIGILL, SIG_DFL);
    raise(SIGILL);
    return *(int *)arg;
}

/* What a child process finds out: its answer, or that it died. */
void test_child(void) {
    int yes = 1, no = 0;
    check(os_try(say_yes, &yes), "a job that succeeds");
    check(!os_try(say_yes, &no), "a job that fails");
    check(!os_try(do_wrong, &yes), "a job that dies of an illegal instruction");
}
#else
void test_child(void) { skip("no child processes on this system"); }
#endif
