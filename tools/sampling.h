/* sampling.h - what the programs that write text share: how the next token is chosen, and where an answer ends.
 *
 *     static sampling choice = SAMPLING_DEFAULTS;
 *     static const cli_option rows[] = { SAMPLING_OPTION_ROWS(choice), CLI_END };
 *     ...
 *     status = sampling_start(&choice, &command_line, &r);
 *     tfm_sample(choice.sampler, ...);
 */
#ifndef TOOLS_SAMPLING_H
#define TOOLS_SAMPLING_H

#include "run.h"

enum { SAMPLING_MOST = 32 }; /* stop strings, biases */

typedef struct sampling {
    double temp, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
    int64_t top_k, repeat_last_n, logprobs;
    uint64_t seed;
    int seed_given, ignore_eos;
    cli_list stops, biases;
    /* of sampling_start */
    tfm_logit_bias bias[SAMPLING_MOST];
    tfm_stop stop[SAMPLING_MOST];
    void *memory;
    tfm_sampler *sampler;
    char *held; /* text that may become a stop string */
    size_t n_held, half;
    int stopped; /* one was found */
} sampling;

#define SAMPLING_DEFAULTS { 0.8, 0.95, 0.05, 1, 0, 0, 40, 0, 0, 0, 0, 0, { { NULL }, 0 }, { { NULL }, 0 }, \
                            { { 0, 0 } }, { { NULL, 0 } }, NULL, NULL, NULL, 0, 0, 0 }

#define SAMPLING_OPTION_ROWS(s)                                                                                      \
    CLI_GROUP("Where an answer ends"),                                                                               \
    CLI_LIST(0, "stop", "TEXT", &(s).stops, "end before TEXT, none of which is printed;\nmay be given several times"), \
    CLI_FLAG(0, "ignore-eos", &(s).ignore_eos, "go on when the model ends the text"),                                \
    CLI_GROUP("Choosing tokens, in this order"),                                                                     \
    CLI_LIST(0, "logit-bias", "ID+V", &(s).biases, "add V (or with - subtract it) to the logit of token ID;\n"       \
             "ID-inf: never; may be given several times"),                                                           \
    CLI_REAL(0, "repeat-penalty", "R", &(s).repeat_penalty, 1e-6, 1e6, NULL,                                         \
             "divide the logits of earlier tokens; 1 = off", NULL),                                                  \
    CLI_REAL(0, "presence-penalty", "P", &(s).presence_penalty, -1e6, 1e6, NULL,                                     \
             "subtract P once per earlier token", NULL),                                                             \
    CLI_REAL(0, "frequency-penalty", "P", &(s).frequency_penalty, -1e6, 1e6, NULL,                                   \
             "subtract P for each occurrence", NULL),                                                                \
    CLI_INT(0, "repeat-last-n", "N", &(s).repeat_last_n, 0, INT32_MAX, "all",                                        \
            "how far back the penalties look: the last N tokens\nof prompt and answer; 0 = all", NULL),              \
    CLI_REAL(0, "temp", "T", &(s).temp, 0, 1000, NULL,                                                               \
             "below 1 more predictable, above 1 more random;\n0 = always the likeliest", NULL),                      \
    CLI_INT(0, "top-k", "K", &(s).top_k, 0, INT32_MAX, NULL, "keep the K likeliest; 0 = off", NULL),                 \
    CLI_REAL(0, "top-p", "P", &(s).top_p, 0, 1, NULL, "keep the likeliest that reach P together; 1 = off", NULL),    \
    CLI_REAL(0, "min-p", "P", &(s).min_p, 0, 1, NULL, "drop what is less than P times the likeliest; 0 = off", NULL), \
    CLI_SEED(0, "seed", "S", &(s).seed, "random", "the same seed gives the same text", &(s).seed_given),             \
    CLI_INT(0, "logprobs", "N", &(s).logprobs, 1, 100, "off",                                                        \
            "a line on stderr for each token: its log probability\nand those of the N likeliest, as JSON", NULL)

/* Checks what the table could not (CLI_GO_ON, or 2 after one line on stderr), and makes the sampler. */
int sampling_start(sampling *s, const cli *c, const run *r);
void sampling_end(sampling *s);

/* The next token after ids[0..n). */
tfm_result sampling_next(sampling *s, const run *r, const int32_t *ids, int64_t n, int32_t *id, tfm_error *err);
/* Whether a token ends the text: one of the model's, or of its chat format's. */
int sampling_ends(const sampling *s, const run *r, int32_t id, int chat);

/* More text, of at most tfm_decode_max bytes: returns what of it (and of what was held back) may be shown now, *n bytes
 * that live until the next call; s->stopped is set when a stop string was found. At the end: text NULL. */
const char *sampling_show(sampling *s, const char *text, size_t size, size_t *n);

#endif
