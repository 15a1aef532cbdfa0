/* sampling.c - see sampling.h. */
#include "sampling.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- options --------------------------------------------------------------------------------------------------- */

/* "15+2.5", "15-2.5", "15-inf" */
static int parse_bias(const char *text, int32_t n_vocab, tfm_logit_bias *out)
{
    const size_t digits = strspn(text, "0123456789");
    const char sign = text[digits], *value = text + digits + 1;
    int64_t id;
    double v = 0;
    if (!digits || (sign != '+' && sign != '-') || parse_int64(text, digits, &id) || id >= n_vocab) return -1;
    if (sign == '-' && !strcmp(value, "inf")) v = HUGE_VAL;
    else if (strspn(value, "0123456789.eE") != strlen(value) || parse_real(value, strlen(value), &v) || v > 1e6)
        return -1;
    out->id = (int32_t)id;
    out->bias = sign == '-' ? -(float)v : (float)v;
    return 0;
}

static int check_lists(sampling *s, const cli *c, const run *r)
{
    int i;
    for (i = 0; i < s->biases.n; i++) {
        if (parse_bias(s->biases.items[i], r->config->n_vocab, &s->bias[i]))
            return cli_wrong(c, "--logit-bias: '%s' is no token below %d with +V, -V or -inf", s->biases.items[i],
                             (int)r->config->n_vocab);
    }
    for (i = 0; i < s->stops.n; i++) {
        s->stop[i].text = s->stops.items[i];
        s->stop[i].n = strlen(s->stops.items[i]);
        if (!s->stop[i].n) return cli_wrong(c, "--stop: the text is empty");
    }
    return CLI_GO_ON;
}

/* Room for what is held back and a piece of text, twice: the second half is what sampling_show hands out. */
static int make_room(sampling *s, const run *r)
{
    size_t longest = 0;
    int i;
    for (i = 0; i < s->stops.n; i++) longest = s->stop[i].n > longest ? s->stop[i].n : longest;
    s->half = longest + (r->tokenizer ? tfm_decode_max(r->tokenizer) : 0) + 1;
    s->held = (char *)malloc(2 * s->half);
    return s->held ? 0 : -1;
}

int sampling_start(sampling *s, const cli *c, const run *r)
{
    const int32_t n_vocab = r->config->n_vocab;
    const int status = check_lists(s, c, r);
    tfm_sampler_config o;
    tfm_error err;
    size_t bytes;
    char *aligned;
    if (status != CLI_GO_ON) return status;
    if (make_room(s, r)) return tool_error("out of memory");
    if (tfm_sampler_size(n_vocab, &bytes))
        return tool_error("%s: the sampler cannot choose among %d tokens", r->path, (int)n_vocab);
    s->memory = malloc(bytes + 63);
    if (!s->memory) return tool_error("out of memory");
    memset(&o, 0, sizeof o);
    o.size = sizeof o;
    o.temp = (float)s->temp;
    o.top_k = (int32_t)s->top_k;
    o.top_p = s->top_p < FLT_MIN ? FLT_MIN : (float)s->top_p; /* 0 keeps the likeliest; in the struct it means off */
    o.min_p = (float)s->min_p;
    o.repeat_penalty = (float)s->repeat_penalty;
    o.presence_penalty = (float)s->presence_penalty;
    o.frequency_penalty = (float)s->frequency_penalty;
    o.repeat_last_n = s->repeat_last_n;
    o.seed = s->seed_given ? s->seed : (s->seed = random_seed());
    o.bias = s->bias;
    o.n_bias = s->biases.n;
    aligned = (char *)s->memory + (64 - (uintptr_t)s->memory % 64) % 64;
    if (tfm_sampler_init(&o, n_vocab, aligned, bytes, &s->sampler, &err)) return tool_error("%s", err.msg);
    return CLI_GO_ON;
}

void sampling_end(sampling *s)
{
    free(s->memory);
    free(s->held);
    s->memory = s->held = NULL;
    s->n_held = 0;
}

/* ---- choosing -------------------------------------------------------------------------------------------------- */

static void print_logprob(const float *logits, int32_t id, double log_sum)
{
    fprintf(stderr, "{\"id\": %d, \"logprob\": %.6f", (int)id, (double)logits[id] - log_sum);
}

/* One line of JSON: the token, then the N likeliest with ties to the lower id. From the model's logits, before bias,
 * penalties and temperature. */
static void print_logprobs(const sampling *s, const float *logits, int32_t n_vocab, int32_t id)
{
    const double max = (double)logits[tfm_argmax(logits, n_vocab)];
    double sum = 0;
    int32_t last = -1, i, k;
    for (i = 0; i < n_vocab; i++) sum += exp((double)logits[i] - max);
    print_logprob(logits, id, max + log(sum));
    fprintf(stderr, ", \"top\": [");
    for (k = 0; k < s->logprobs && k < n_vocab; k++) {
        int32_t best = -1;
        for (i = 0; i < n_vocab; i++) {
            const int after = last < 0 || logits[i] < logits[last] || (logits[i] == logits[last] && i > last);
            if (after && (best < 0 || logits[i] > logits[best])) best = i;
        }
        if (best < 0) break;
        if (k) fprintf(stderr, ", ");
        print_logprob(logits, best, max + log(sum));
        fprintf(stderr, "}");
        last = best;
    }
    fprintf(stderr, "]}\n");
}

tfm_result sampling_next(sampling *s, const run *r, const int32_t *ids, int64_t n, int32_t *id, tfm_error *err)
{
    const float *logits = tfm_logits(r->session, 0);
    const tfm_result result = tfm_sample(s->sampler, logits, ids, n, id, err);
    if (!result && s->logprobs) print_logprobs(s, logits, r->config->n_vocab, *id);
    return result;
}

/* ---- where an answer ends -------------------------------------------------------------------------------------- */

int sampling_ends(const sampling *s, const run *r, int32_t id, int chat)
{
    const tfm_chat *format = chat ? tfm_model_chat(r->model) : NULL;
    int32_t i, end;
    if (s->ignore_eos) return 0;
    for (i = 0; i < r->config->n_eos; i++)
        if (r->config->eos[i] == id) return 1;
    for (i = 0; format && (end = tfm_chat_end(format, i)) >= 0; i++)
        if (end == id) return 1;
    return 0;
}

const char *sampling_show(sampling *s, const char *text, size_t size, size_t *n)
{
    char *shown = s->held + s->half;
    int32_t which = -1;
    *n = 0;
    if (s->stopped) return "";
    if (!text) {
        *n = s->n_held;
        s->n_held = 0;
        return *n ? s->held : "";
    }
    if (!s->stops.n) {
        *n = size;
        return text;
    }
    memcpy(s->held + s->n_held, text, size);
    s->n_held += size;
    *n = tfm_stop_scan(s->stop, s->stops.n, s->held, s->n_held, &which);
    s->stopped = which >= 0;
    memcpy(shown, s->held, *n);
    s->n_held -= *n;
    memmove(s->held, s->held + *n, s->n_held);
    return shown;
}
