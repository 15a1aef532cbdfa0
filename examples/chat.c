/* chat - a conversation with a model.
 *
 *     chat MODEL [--system TEXT]
 *
 * A line on stdin is what the user says (one that ends in \ goes on in the next), stdout gets the answer as it is made.
 * Ctrl-C stops an answer; an empty stdin ends the program. With a pipe for stdin it answers line after line.
 *
 * The conversation is kept as turns. For each answer all of it is written in the model's chat format and turned into
 * tokens; what the session holds already is the longest common beginning, so that only new tokens are evaluated. That
 * needs no special cases for formats that change what came before, and no bookkeeping about them.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/chat.h"
#include "tools/sampling.h"

static run_options options = RUN_FAST;
static sampling choice = SAMPLING_DEFAULTS;
static const char *system_text;
static int64_t n_most = -1;
static int show_figures;

static const cli_option option_rows[] = {
    CLI_GROUP("The conversation"),
    CLI_STRING(0, "system", "TEXT", &system_text, "", "who the model is to be", NULL),
    CLI_INT('n', "tokens", "N", &n_most, 0, INT32_MAX, "until the model ends it", "tokens of an answer at most", NULL),
    CLI_FLAG(0, "figures", &show_figures, "after each answer tokens and speed on stderr"),
    SAMPLING_OPTION_ROWS(choice),
    RUN_OPTION_ROWS(options, "the model's, at most 4096"),
    CLI_END
};
static const char *const arg_names[] = { "MODEL" };
static const cli command_line = {
    "chat", "MODEL [--system TEXT] [options]",
    "Holds a conversation: a line on stdin is a turn of yours (\\ at its end: it goes on).\n"
    "Ctrl-C stops an answer.", option_rows, 1, 1, arg_names
};

/* ---- THE STATE OF A CONVERSATION --------------------------------------------------------------------------------- */

typedef struct conversation {
    run r;
    const tfm_chat *format;
    arena mem;            /* texts of the turns */
    tfm_turn *turns;      /* system, user, assistant, user ... */
    size_t n_turns, room;
    int32_t *ids;         /* tokens in the session: room for n_ctx + 1 */
    int64_t n_ids;
    char *line, *answer, *piece;
    size_t line_room, answer_size, answer_room, piece_size;
    int64_t reused, evaluated, generated; /* of the last answer */
    double seconds;
    int full;             /* the context */
} conversation;

static int no_memory(void)
{
    return tool_error("out of memory");
}

static int add_turn(conversation *c, int role, const char *text, size_t n)
{
    tfm_turn *turns = (tfm_turn *)array_grow(c->turns, &c->room, c->n_turns + 1, sizeof *turns);
    char *copy = arena_strndup(&c->mem, text, n);
    if (turns) c->turns = turns;
    if (!turns || !copy) return no_memory();
    turns[c->n_turns].role = role;
    turns[c->n_turns].text = copy;
    turns[c->n_turns++].n = n;
    return CLI_GO_ON;
}

static int open_conversation(conversation *c, const char *path)
{
    int status = run_open(&c->r, &command_line, &options, path);
    if (status != CLI_GO_ON) return status;
    c->format = tfm_model_chat(c->r.model);
    if (!c->r.tokenizer) return tool_error("%s: has no tokenizer", path);
    if (!c->format) return tool_error("%s: has no chat template", path);
    c->piece_size = tfm_decode_max(c->r.tokenizer);
    c->piece = (char *)malloc(c->piece_size);
    c->ids = (int32_t *)malloc(((size_t)c->r.setup.n_ctx + 1) * sizeof *c->ids);
    if (!c->piece || !c->ids) return no_memory();
    if (system_text) status = add_turn(c, TFM_CHAT_SYSTEM, system_text, strlen(system_text));
    return status == CLI_GO_ON ? sampling_start(&choice, &command_line, &c->r) : status;
}

static void close_conversation(conversation *c)
{
    free(c->turns);
    free(c->ids);
    free(c->line);
    free(c->answer);
    free(c->piece);
    sampling_end(&choice);
    arena_free(&c->mem);
    run_close(&c->r);
}

/* ---- READING ----------------------------------------------------------------------------------------------------- */

/* What the user says next, without its line break: *n bytes, or -1 at the end of stdin. */
static int read_line(conversation *c, int64_t *n)
{
    size_t used = 0;
    int byte = 0;
    if (is_terminal(stdin)) {
        fprintf(stderr, "> ");
        fflush(stderr);
    }
    while ((byte = getchar()) != EOF) {
        char *line = (char *)array_grow(c->line, &c->line_room, used + 1, 1);
        if (!line) return no_memory();
        c->line = line;
        if (byte != '\n') {
            line[used++] = (char)byte;
        } else if (used && line[used - 1] == '\\') {
            line[used - 1] = '\n';
        } else {
            if (used && line[used - 1] == '\r') used--;
            break;
        }
    }
    *n = byte == EOF && !used ? -1 : (int64_t)used;
    return CLI_GO_ON;
}

/* ---- ANSWERING --------------------------------------------------------------------------------------------------- */

static int on_progress(void *user, int64_t done, int64_t total)
{
    (void)user;
    (void)done;
    (void)total;
    return run_interrupted();
}

/* Evaluates ids[from .. n_ids). Ctrl-C is no error: run_interrupted() tells, and the session says how far it got. */
static int evaluate(conversation *c, int64_t from)
{
    tfm_error err;
    const tfm_result result = tfm_eval(c->r.session, c->ids + from, c->n_ids - from, &err);
    return result && result != TFM_ERR_CANCELLED ? run_error(&c->r, &err) : CLI_GO_ON;
}

/* Makes the session hold the prompt ids[0..n), evaluating only what it does not hold yet. */
static int take_prompt(conversation *c, const int32_t *ids, int64_t n)
{
    const int64_t have = tfm_session_length(c->r.session);
    int64_t same = 0;
    if (n > c->r.setup.n_ctx) {
        c->full = 1;
        return CLI_GO_ON;
    }
    while (same < have && same < n - 1 && ids[same] == c->ids[same]) same++; /* the last one gives the logits */
    if (tfm_session_rewind(c->r.session, same, NULL)) { /* a window may no longer reach back */
        same = 0;
        if (run_reset(&c->r) != CLI_GO_ON) return 1;
    }
    memcpy(c->ids, ids, (size_t)n * sizeof *ids);
    c->n_ids = n;
    c->reused = same;
    c->evaluated = n - same;
    return evaluate(c, same);
}

/* Prints text but for what may become a stop string, and adds it to the answer. NULL at the end. */
static int show(conversation *c, const char *text, size_t size)
{
    const char *shown = sampling_show(&choice, text, size, &size);
    char *answer = (char *)array_grow(c->answer, &c->answer_room, c->answer_size + size + 1, 1);
    if (!answer) return no_memory();
    c->answer = answer;
    memcpy(answer + c->answer_size, shown, size);
    c->answer_size += size;
    fwrite(shown, 1, size, stdout);
    fflush(stdout);
    return CLI_GO_ON;
}

/* Chooses, prints and evaluates tokens until there is a reason to stop. */
static int write_answer(conversation *c)
{
    tfm_decoder decoder;
    tfm_error err;
    int32_t id;
    int status = CLI_GO_ON;
    tfm_decode_init(&decoder, c->r.tokenizer, TFM_DECODE_SKIP_SPECIAL);
    choice.stopped = 0;
    for (; status == CLI_GO_ON && !run_interrupted() && c->generated != n_most; c->generated++) {
        if (sampling_next(&choice, &c->r, c->ids, c->n_ids, &id, &err)) return run_error(&c->r, &err);
        if (sampling_ends(&choice, &c->r, id, 1)) break;
        c->full = c->n_ids >= c->r.setup.n_ctx;
        if (c->full) break;
        c->ids[c->n_ids++] = id;
        status = show(c, c->piece, tfm_decode(&decoder, id, c->piece, c->piece_size));
        if (choice.stopped || ferror(stdout)) break;
        if (status == CLI_GO_ON) status = evaluate(c, c->n_ids - 1);
    }
    if (status == CLI_GO_ON) status = show(c, c->piece, tfm_decode_flush(&decoder, c->piece, c->piece_size));
    return status == CLI_GO_ON ? show(c, NULL, 0) : status;
}

/* The whole conversation as tokens, with what makes the model answer behind it; from malloc. */
static int32_t *encode_conversation(conversation *c, int64_t *n, tfm_error *err)
{
    arena mem = { NULL, 0, 0, 0 };
    chat_text text;
    int32_t *ids = NULL;
    if (!chat_render(&mem, c->format, c->turns, c->n_turns, 1, &text, err))
        ids = run_encode_marked(&c->r, text.text, text.marks, text.n, n, err);
    arena_free(&mem);
    return ids;
}

static void print_figures(const conversation *c)
{
    if (!show_figures) return;
    fprintf(stderr, "reused %lld, evaluated %lld, generated %lld tokens, %.2f s, context %lld of %d\n",
            (long long)c->reused,
            (long long)c->evaluated, (long long)c->generated, c->seconds, (long long)tfm_session_length(c->r.session),
            (int)c->r.setup.n_ctx);
}

static int answer(conversation *c)
{
    const double start = time_now();
    tfm_error err;
    int64_t n = 0;
    int32_t *ids = encode_conversation(c, &n, &err);
    int status;
    if (!ids) return tool_error("%s", err.msg);
    c->answer_size = 0;
    c->reused = c->evaluated = c->generated = 0;
    c->full = 0;
    run_catch_interrupt();
    status = n > 0 ? take_prompt(c, ids, n) : tool_error("%s: its chat format writes nothing", c->r.path);
    free(ids);
    if (status == CLI_GO_ON && !c->full && !run_interrupted()) status = write_answer(c);
    run_leave_interrupt();
    if (status == CLI_GO_ON) printf("\n");
    fflush(stdout);
    if (c->full) tool_warn("the context of %d is full: the answer ends here", (int)c->r.setup.n_ctx);
    c->seconds = time_now() - start;
    print_figures(c);
    return status == CLI_GO_ON ? add_turn(c, TFM_CHAT_ASSISTANT, c->answer ? c->answer : "", c->answer_size) : status;
}

static int converse(conversation *c)
{
    int64_t n = 0;
    int status = read_line(c, &n);
    while (status == CLI_GO_ON && n >= 0 && !ferror(stdout)) {
        if (n > 0) status = add_turn(c, TFM_CHAT_USER, c->line, (size_t)n);
        if (n > 0 && status == CLI_GO_ON) status = answer(c);
        if (status == CLI_GO_ON) status = read_line(c, &n);
    }
    return status;
}

int main(int argc, char **argv)
{
    static conversation c;
    const char *path;
    int status;
    program_start(&argc, &argv);
    status = cli_parse(&command_line, argc, argv, &path, NULL);
    if (status != CLI_GO_ON) return program_end(status);
    status = open_conversation(&c, path);
    if (status == CLI_GO_ON) {
        c.r.setup.progress = on_progress;
        status = run_start(&c.r);
    }
    if (status == CLI_GO_ON && is_terminal(stderr) && choice.temp > 0)
        fprintf(stderr, "seed %llu\n", (unsigned long long)choice.seed);
    if (status == CLI_GO_ON) status = converse(&c);
    close_conversation(&c);
    return program_end(status == CLI_GO_ON ? 0 : status);
}
