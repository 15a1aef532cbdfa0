/* chat_cli.c - the template interpreter for scripts: a case (see chat_case.h) as JSON on each line of stdin; a line
 * "ok TEXT" or "error MESSAGE" on stdout for each, the text as a JSON string.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/chat_case.h"

static void print_json(const char *text, size_t n) {
    putchar('"');
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c < 32 || c == '"' || c == '\\' || c == 127) printf("\\u%04x", c);
        else putchar(c);
    }
    putchar('"');
}

static void run_line(const char *line, size_t n) {
    arena a = {NULL, 0, 0, 0};
    tfm_error err;
    jinja_output out;
    const json *c = json_parse("case", line, n, &a, &err);
    if (c && !chat_case_render(&a, c, &out, &err)) {
        printf("ok ");
        print_json(out.text, out.n);
        printf(" ");
        for (size_t i = 0; i < out.n; i++) putchar(out.input[i] ? '1' : '0');
        printf("\n");
    } else {
        printf("error %s\n", err.msg);
    }
    fflush(stdout);
    arena_free(&a);
}

int main(void) {
    char *line = NULL;
    size_t n = 0, room = 0;
    for (int c = getchar(); c != EOF; c = getchar()) {
        if (n + 1 >= room && !(line = realloc(line, room = 2 * room + 4096))) return 1;
        if (c != '\n') { line[n++] = (char)c; continue; }
        run_line(line, n);
        n = 0;
    }
    free(line);
    return 0;
}
