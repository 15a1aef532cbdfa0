/* chat_cli.c - the template interpreter for scripts: a case (see chat_case.h) as JSON on each line of stdin; a line
 * "ok TEXT MARKS" or "error MESSAGE" on stdout for each, the text as a JSON string, a mark 1 for each byte of input.
 * A case with "messages" goes through the template's format as data: {"template", "variables", "messages",
 * "add_generation_prompt"}.
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

static void print_text(const char *text, const unsigned char *marks, int marked, size_t n) {
    printf("ok ");
    print_json(text, n);
    printf(" ");
    for (size_t i = 0; i < n; i++) putchar(marks[i] == marked ? '1' : '0');
    printf("\n");
}

/* The template as data, rendered by tfm.h. */
static int run_data(arena *a, const json *c, tfm_error *err) {
    static arena kept;                          /* the section of the last template, for many lines with one */
    static chat_section section;
    static const char *last = NULL;
    const tfm_chat *chat = NULL;
    const json *text = json_get(c, "template");
    chat_text out;
    size_t n;
    memset(&out, 0, sizeof out);
    if (!last || strcmp(last, text->u.text)) {
        arena_free(&kept);
        last = NULL;
        int code = chat_case_build(&kept, c, &section, err);
        if (code) return code;
        last = arena_strdup(&kept, text->u.text);
    }
    if (section.notice) return tool_fail(err, TFM_ERR_UNSUPPORTED, "notice: %s", section.notice);
    tfm_turn *turns = chat_turns(a, json_get(c, "messages"), &n, err);
    const json *prompt = json_get(c, "add_generation_prompt");
    if (!turns) return TFM_ERR_ARG;
    int code = tfm_chat_open(section.bytes, section.size, arena_alloc(a, tfm_chat_size()), tfm_chat_size(), &chat, err);
    if (!code) code = chat_render(a, chat, turns, n, prompt && prompt->boolean, &out, err);
    if (!code) print_text(out.text, out.marks, 0, out.n);
    return code;
}

static void run_line(const char *line, size_t n) {
    arena a = {NULL, 0, 0, 0};
    tfm_error err;
    jinja_output out;
    const json *c = json_parse("case", line, n, &a, &err);
    const int data = c && json_get(c, "messages") != NULL;
    int code = !c ? TFM_ERR_FORMAT : data ? run_data(&a, c, &err) : chat_case_render(&a, c, &out, &err);
    if (code) printf("error %s\n", err.msg);
    else if (!data) print_text(out.text, out.input, 1, out.n);
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
