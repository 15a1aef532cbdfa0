/* cli.c - a program's table of options: parsing, help, messages about wrong usage. */
#include "cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { HELP_COLUMN = 30 };

/* The default of an option as the help shows it, or "". */
static const char *shown_default(const cli_option *o, char *buf, size_t size)
{
    if (o->shown != NULL) return o->shown;
    switch (o->kind) {
    case OPTION_STRING: return *(const char *const *)o->value != NULL ? *(const char *const *)o->value : "";
    case OPTION_INT: snprintf(buf, size, "%lld", (long long)*(const int64_t *)o->value); return buf;
    case OPTION_SEED: snprintf(buf, size, "%llu", (unsigned long long)*(const uint64_t *)o->value); return buf;
    case OPTION_REAL: snprintf(buf, size, "%g", *(const double *)o->value); return buf;
    case OPTION_CHOICE: return o->choices[*(const int *)o->value];
    default: return "";
    }
}

/* ": a, b, c"; a long list takes several lines. */
static void print_choices(const cli_option *o, FILE *out)
{
    size_t used = strlen(o->help), i;
    for (i = 0; o->choices[i] != NULL; i++) {
        fprintf(out, i > 0 ? "," : ":");
        if (used > 64) fprintf(out, "\n%*s", HELP_COLUMN - 1, "");
        used = (used > 64 ? 0 : used) + strlen(o->choices[i]) + 2;
        fprintf(out, " %s", o->choices[i]);
    }
}

static void help_option(const cli_option *o, FILE *out)
{
    char buf[64], left[128];
    const char *text, *value = o->argument != NULL ? o->argument : "", *preset = shown_default(o, buf, sizeof buf);
    const char *space = o->argument != NULL ? " " : "", *name = o->name != NULL ? o->name : "";
    if (o->letter == 0) snprintf(left, sizeof left, "      --%s%s%s", name, space, value);
    else snprintf(left, sizeof left, "  -%c%s%s%s%s", o->letter, o->name != NULL ? ", --" : "", name, space, value);
    fprintf(out, "%-*s", HELP_COLUMN - 2, left);
    if (strlen(left) > HELP_COLUMN - 2) fprintf(out, "\n%*s", HELP_COLUMN - 2, "");
    fprintf(out, "  ");
    for (text = o->help; *text != 0; text++) {
        fputc(*text, out);
        if (*text == '\n') fprintf(out, "%*s", HELP_COLUMN, "");
    }
    if (o->kind == OPTION_CHOICE) print_choices(o, out);
    if (preset[0] != 0) fprintf(out, " (default %s)", preset);
    fputc('\n', out);
}

/* The table as text. */
static void print_help(const cli *c, FILE *out)
{
    static const cli_option help = CLI_FLAG('h', "help", NULL, "show this text");
    const cli_option *o;
    fprintf(out, "usage: %s %s\n", c->program, c->usage);
    if (c->about != NULL) fprintf(out, "\n%s\n", c->about);
    fputc('\n', out);
    for (o = c->options; o->kind != OPTION_END; o++) {
        if (o->kind == OPTION_GROUP) fprintf(out, "%s%s:\n", o == c->options ? "" : "\n", o->name);
        else help_option(o, out);
    }
    help_option(&help, out);
}

int cli_wrong(const cli *c, const char *format, ...)
{
    char line[1536];
    va_list args;
    va_start(args, format);
    if (vsnprintf(line, sizeof line, format, args) < 0) line[0] = 0;
    va_end(args);
    tool_error("%s (see %s --help)", line, c->program);
    return 2;
}

static int wrong_choice(const cli *c, const cli_option *o, const char *called, const char *value)
{
    char list[1024];
    size_t used = 0;
    int i;
    list[0] = 0;
    for (i = 0; o->choices[i] != NULL && used < sizeof list; i++) {
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", o->choices[i]);
    }
    return cli_wrong(c, "%s: '%s' is none of %s", called, value, list);
}

static int wrong_number(const cli *c, const cli_option *o, const char *called, const char *value)
{
    const double unbounded = 1e300;
    if (o->kind == OPTION_REAL && o->high < unbounded) {
        return cli_wrong(c, "%s: '%s' is not a number from %g to %g", called, value, o->low, o->high);
    }
    if (o->kind == OPTION_REAL && o->low > -unbounded) {
        return cli_wrong(c, "%s: '%s' is not a number of at least %g", called, value, o->low);
    }
    if (o->kind == OPTION_REAL) return cli_wrong(c, "%s: '%s' is not a number", called, value);
    if (o->kind == OPTION_SEED) {
        return cli_wrong(c, "%s: '%s' is not a whole number from 0 to 2^64-1, or -1", called, value);
    }
    if (o->max == INT64_MAX) {
        return cli_wrong(c, "%s: '%s' is not a whole number of at least %lld", called, value, (long long)o->min);
    }
    return cli_wrong(c, "%s: '%s' is not a whole number from %lld to %lld", called, value, (long long)o->min,
                     (long long)o->max);
}

/* Stores a value; `called` is the option as the user wrote it. CLI_GO_ON or the exit status. */
static int set_option(const cli *c, const cli_option *o, const char *called, const char *value)
{
    int64_t whole;
    double real;
    int i, ok = 1;
    switch (o->kind) {
    case OPTION_STRING:
        *(const char **)o->value = value;
        break;
    case OPTION_LIST: {
        cli_list *list = (cli_list *)o->value;
        const int most = (int)(sizeof list->items / sizeof *list->items);
        if (list->n == most) return cli_wrong(c, "%s: more than %d times", called, most);
        list->items[list->n++] = value;
        break;
    }
    case OPTION_INT:
        ok = parse_int64(value, strlen(value), &whole) == 0 && whole >= o->min && whole <= o->max;
        if (ok) *(int64_t *)o->value = whole;
        break;
    case OPTION_SEED:
        ok = parse_uint64(value, strlen(value), (uint64_t *)o->value) == 0;
        break;
    case OPTION_REAL:
        ok = parse_real(value, strlen(value), &real) == 0 && real >= o->low && real <= o->high;
        if (ok) *(double *)o->value = real;
        break;
    case OPTION_CHOICE:
        for (i = 0; o->choices[i] != NULL && strcmp(o->choices[i], value) != 0; i++) continue;
        if (o->choices[i] == NULL) return wrong_choice(c, o, called, value);
        *(int *)o->value = i;
        break;
    default: /* a flag */
        *(int *)o->value = 1;
        break;
    }
    if (!ok) return wrong_number(c, o, called, value);
    if (o->given != NULL) ++*o->given;
    return CLI_GO_ON;
}

static const cli_option *find_option(const cli *c, char letter, const char *name, size_t length)
{
    const cli_option *o;
    for (o = c->options; o->kind != OPTION_END; o++) {
        if (o->kind == OPTION_GROUP) continue;
        if (letter != 0 && o->letter == letter) return o;
        if (letter == 0 && o->name != NULL && strlen(o->name) == length && memcmp(o->name, name, length) == 0) return o;
    }
    return NULL;
}

/* Reads the option at argv[*i] and steps over the value it takes. */
static int read_option(const cli *c, int argc, char **argv, int *i)
{
    const char *arg = argv[*i], *value = NULL;
    int is_long = arg[1] == '-';
    size_t length = is_long ? strcspn(arg + 2, "=") : 1;
    const cli_option *o = is_long ? find_option(c, 0, arg + 2, length) : find_option(c, arg[1], NULL, 0);
    char called[80];
    snprintf(called, sizeof called, "%.*s", (int)(is_long && length < 70 ? length + 2 : 2), arg);
    if (strcmp(arg, "--help") == 0 || (o == NULL && strcmp(arg, "-h") == 0)) {
        print_help(c, stdout);
        return 0;
    }
    if (o == NULL) return cli_wrong(c, "unknown option '%s'", arg);
    if (is_long && arg[2 + length] == '=') value = arg + 3 + length;
    if (!is_long && arg[2] != 0) value = arg + 2;
    if (o->kind == OPTION_FLAG) {
        if (value != NULL) return cli_wrong(c, "%s takes no value, but '%s' follows", called, value);
        return set_option(c, o, called, "");
    }
    if (value == NULL) {
        if (*i + 1 >= argc) return cli_wrong(c, "%s needs a value: %s", called, o->argument);
        value = argv[++*i];
    }
    return set_option(c, o, called, value);
}

int cli_parse(const cli *c, int argc, char **argv, const char **args, int *n_args)
{
    int i, n = 0, options_ended = 0;
    for (i = 1; i < argc; i++) {
        if (!options_ended && strcmp(argv[i], "--") == 0) {
            options_ended = 1;
        } else if (!options_ended && argv[i][0] == '-' && argv[i][1] != 0) {
            int status = read_option(c, argc, argv, &i);
            if (status != CLI_GO_ON) return status;
        } else if (n < c->max_args) {
            args[n++] = argv[i];
        } else {
            return cli_wrong(c, "one argument too many: '%s'", argv[i]);
        }
    }
    if (n < c->min_args) return cli_wrong(c, "missing argument %s", c->arg_names[n]);
    if (n_args != NULL) *n_args = n;
    return CLI_GO_ON;
}
