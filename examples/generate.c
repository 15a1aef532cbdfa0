/* generate - goes on with a text.
 *
 * This is what an application around tfm.h looks like, whole: open a model, turn the prompt into tokens, evaluate them
 * in one go, and then, one token at a time, choose the next one from the logits, print it and evaluate it. What is
 * special about a model is in its file; the loop is the same for all of them. examples/minimal.c is the same in 30
 * lines, without the options, the figures and Ctrl-C.
 *
 * stdout gets the text and nothing else, as it is made; figures and warnings go to stderr.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/chat.h"
#include "tools/sampling.h"

#define PROMPT_MOST ((uint64_t)1 << 28)

static run_options options = RUN_FAST;
static sampling choice = SAMPLING_DEFAULTS;
static const char *prompt_text, *prompt_path, *system_text;
static int64_t n_most = -1;
static int echo, chat;

static const cli_option option_rows[] = {
    CLI_GROUP("The text"),
    CLI_STRING('p', "prompt", "TEXT", &prompt_text, "", "the text to go on with", NULL),
    CLI_STRING('f', "file", "FILE", &prompt_path, NULL, "the same from a file, byte for byte; - is stdin", NULL),
    CLI_INT('n', "tokens", "N", &n_most, 0, INT32_MAX, "until the model ends the text", "tokens to generate", NULL),
    CLI_FLAG(0, "echo", &echo, "print the prompt first"),
    CLI_FLAG(0, "chat", &chat, "the prompt is what a user says, in the model's chat format;\nthe text is the answer"),
    CLI_STRING(0, "system", "TEXT", &system_text, "", "what a --chat begins with: who the model is to be", NULL),
    SAMPLING_OPTION_ROWS(choice),
    RUN_OPTION_ROWS(options, "the model's, at most 4096"),
    CLI_END
};
static const char *const arg_names[] = { "MODEL" };
static const cli command_line = {
    "generate", "MODEL [-p TEXT | -f FILE] [-n N] [options]", "Goes on with a text.", option_rows, 1, 1, arg_names
};

/* ---- THE STATE OF A GENERATION ----------------------------------------------------------------------------------- */

typedef struct generation {
    run r;
    int32_t *ids;         /* prompt, then answer: room for n_ctx + 1 */
    int64_t n, n_prompt;
    int continues;        /* the answer goes on with the prompt's text */
    tfm_decoder decoder;
    char *piece;          /* piece_size bytes, enough for every piece of text */
    size_t piece_size;
    double prompt_seconds, answer_seconds;
    int interrupted, context_full;
} generation;

static int no_memory(void)
{
    return tool_error("out of memory");
}

static void generation_close(generation *g)
{
    free(g->ids);
    free(g->piece);
    sampling_end(&choice);
    run_close(&g->r);
}

/* ---- THE PROMPT ------------------------------------------------------------------------------------------------- */

/* The conversation of a system text, if there is one, and what the user says, as the model's format has it. */
static int32_t *encode_chat(const run *r, const char *text, size_t size, int64_t *n, tfm_error *err)
{
    const tfm_chat *format = tfm_model_chat(r->model);
    arena mem = { NULL, 0, 0, 0 };
    chat_text rendered;
    tfm_turn turns[2];
    int32_t *ids = NULL;
    size_t n_turns = 0;
    if (!format) {
        tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: has no chat template", r->path);
        return NULL;
    }
    if (system_text) {
        turns[0].role = TFM_CHAT_SYSTEM;
        turns[0].text = system_text;
        turns[n_turns++].n = strlen(system_text);
    }
    turns[n_turns].role = TFM_CHAT_USER;
    turns[n_turns].text = text;
    turns[n_turns++].n = size;
    if (!chat_render(&mem, format, turns, n_turns, 1, &rendered, err))
        ids = run_encode_marked(r, rendered.text, rendered.marks, rendered.n, n, err);
    arena_free(&mem);
    return ids;
}

/* The ids of the prompt; an empty one is the model's begin of text. */
static int encode_prompt(generation *g, const char *text, size_t size)
{
    const run *r = &g->r;
    tfm_error err;
    int32_t *ids = chat ? encode_chat(r, text, size, &g->n_prompt, &err)
                        : run_encode(r, text, size, 0, &g->n_prompt, &err);
    int status = CLI_GO_ON;
    if (!ids) return tool_error("the prompt: %s", err.msg);
    g->ids = (int32_t *)calloc((size_t)r->setup.n_ctx + 1, sizeof *g->ids);
    g->continues = size > 0 && !chat;
    if (!g->ids) {
        status = tool_error("out of memory for the ids of a context of %d", (int)r->setup.n_ctx);
    } else if (g->n_prompt > r->setup.n_ctx) {
        status = tool_error("the prompt: %lld tokens do not fit the context of %d", (long long)g->n_prompt,
                            (int)r->setup.n_ctx);
    } else if (g->n_prompt > 0) {
        memcpy(g->ids, ids, (size_t)g->n_prompt * sizeof *ids);
    } else if (r->config->bos >= 0) {
        g->ids[g->n_prompt++] = r->config->bos;
    } else {
        status = tool_error("the prompt: it is empty, and %s has no token that begins a text", r->path);
    }
    g->n = g->n_prompt;
    free(ids);
    return status;
}

static int read_prompt(generation *g)
{
    tfm_error err;
    char *text = NULL;
    size_t size = 0;
    int status;
    if (!g->r.tokenizer) return tool_error("%s: has no tokenizer", g->r.path);
    if (prompt_path && read_whole(prompt_path, PROMPT_MOST, &text, &size, &err)) return tool_error("%s", err.msg);
    if (prompt_text) size = strlen(prompt_text);
    status = encode_prompt(g, prompt_path ? text : prompt_text ? prompt_text : "", size);
    if (echo && status == CLI_GO_ON) fwrite(prompt_path ? text : prompt_text ? prompt_text : "", 1, size, stdout);
    fflush(stdout);
    free(text);
    return status;
}

/* ---- THE ANSWER ------------------------------------------------------------------------------------------------- */

static int make_decoder(generation *g)
{
    const int32_t flags = TFM_DECODE_SKIP_SPECIAL | (g->continues ? TFM_DECODE_CONTINUATION : 0);
    tfm_decode_init(&g->decoder, g->r.tokenizer, flags);
    g->piece_size = tfm_decode_max(g->r.tokenizer);
    g->piece = (char *)malloc(g->piece_size);
    return g->piece ? CLI_GO_ON : no_memory();
}

/* Prints text but for what may become a stop string; NULL at the end: what is left. */
static void print_text(const char *text, size_t size)
{
    const char *shown = sampling_show(&choice, text, size, &size);
    fwrite(shown, 1, size, stdout);
    fflush(stdout);
}

/* Ctrl-C also stops an evaluation that is under way. */
static int on_progress(void *user, int64_t done, int64_t total)
{
    (void)user;
    (void)done;
    (void)total;
    return run_interrupted();
}

/* Evaluates ids[from .. g->n). CLI_GO_ON, or 1; g->interrupted says that it was stopped. */
static int evaluate(generation *g, int64_t from)
{
    tfm_error err;
    const tfm_result result = tfm_eval(g->r.session, g->ids + from, g->n - from, &err);
    g->interrupted = result == TFM_ERR_CANCELLED;
    return result && !g->interrupted ? run_error(&g->r, &err) : CLI_GO_ON;
}

/* Chooses, prints and evaluates tokens until there is a reason to stop. */
static int write_answer(generation *g)
{
    tfm_error err;
    int status = CLI_GO_ON;
    int32_t id;
    while (!g->interrupted && (n_most < 0 || g->n - g->n_prompt < n_most)) {
        if (sampling_next(&choice, &g->r, g->ids, g->n, &id, &err)) return run_error(&g->r, &err);
        if (sampling_ends(&choice, &g->r, id, chat)) break;
        g->ids[g->n++] = id;
        print_text(g->piece, tfm_decode(&g->decoder, id, g->piece, g->piece_size));
        if (ferror(stdout) || choice.stopped || g->n - g->n_prompt == n_most) break;
        g->context_full = g->n > g->r.setup.n_ctx;
        if (g->context_full) break;
        status = evaluate(g, g->n - 1);
        if (status != CLI_GO_ON) return status;
        g->interrupted |= run_interrupted();
    }
    return status;
}

static int generate(generation *g)
{
    const double start = time_now();
    int status = evaluate(g, 0);
    g->prompt_seconds = time_now() - start;
    if (status == CLI_GO_ON) status = write_answer(g);
    g->answer_seconds = time_now() - start - g->prompt_seconds;
    print_text(g->piece, tfm_decode_flush(&g->decoder, g->piece, g->piece_size));
    print_text(NULL, 0);
    if (is_terminal(stdout)) printf("\n");
    fflush(stdout);
    return status;
}

static double rate(int64_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}

static void print_figures(const generation *g)
{
    const run *r = &g->r;
    const int64_t n = g->n - g->n_prompt;
    if (g->context_full) tool_warn("the context of %d is full", (int)r->setup.n_ctx);
    fprintf(stderr, "prompt     %6lld tokens %10.2f tokens/s\n", (long long)g->n_prompt,
            rate(g->n_prompt, g->prompt_seconds));
    fprintf(stderr, "generated  %6lld tokens %10.2f tokens/s\n", (long long)n, rate(n, g->answer_seconds));
    if (choice.temp > 0) fprintf(stderr, "seed %llu, ", (unsigned long long)choice.seed);
    fprintf(stderr, "context %d, %s, %d thread%s\n", (int)r->setup.n_ctx, tfm_isa_name(tfm_session_isa(r->session)),
            (int)r->setup.n_threads, r->setup.n_threads == 1 ? "" : "s");
}

int main(int argc, char **argv)
{
    generation g;
    const char *path;
    int status;
    program_start(&argc, &argv);
    status = cli_parse(&command_line, argc, argv, &path, NULL);
    if (status != CLI_GO_ON) return program_end(status);
    if (system_text && !chat) return cli_wrong(&command_line, "--system needs --chat");
    if (prompt_text && prompt_path) return cli_wrong(&command_line, "-p and -f: one prompt is enough");
    memset(&g, 0, sizeof g);
    status = run_open(&g.r, &command_line, &options, path);
    if (status == CLI_GO_ON) status = sampling_start(&choice, &command_line, &g.r);
    if (status == CLI_GO_ON) status = read_prompt(&g);
    if (status == CLI_GO_ON) status = make_decoder(&g);
    if (status == CLI_GO_ON) {
        run_catch_interrupt();
        g.r.setup.progress = on_progress;
        status = run_start(&g.r);
    }
    if (status == CLI_GO_ON) status = generate(&g);
    if (status == CLI_GO_ON) print_figures(&g);
    generation_close(&g);
    return program_end(status == CLI_GO_ON ? 0 : status);
}
