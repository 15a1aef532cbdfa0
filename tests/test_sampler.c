/* The sampler: settings, penalties, the order of its filters, and a recorded stream that every platform must repeat. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "test.h"
#include "tiny.h"

enum { MOST_VOCAB = 5000 };

static tfm_sampler_config settings(float temp)
{
    tfm_sampler_config c;
    memset(&c, 0, sizeof c);
    c.size = sizeof c;
    c.temp = temp;
    return c;
}

/* A sampler in memory of its own; NULL after a failed check. */
static tfm_sampler *sampler_new(const tfm_sampler_config *c, int32_t n_vocab, void **memory)
{
    tfm_sampler *s = NULL;
    tfm_error err;
    size_t bytes = 0;
    check(tfm_sampler_size(n_vocab, &bytes) == TFM_OK, "size for %d ids", (int)n_vocab);
    *memory = tiny_alloc(bytes);
    check(tfm_sampler_init(c, n_vocab, *memory, bytes, &s, &err) == TFM_OK, "init: %s", err.msg);
    return s;
}

/* Draws `draws` ids; seen[id] counts them. */
static void draw(const tfm_sampler_config *c, const float *logits, int32_t n_vocab, int draws, int *seen)
{
    void *memory;
    tfm_sampler *s = sampler_new(c, n_vocab, &memory);
    tfm_error err;
    int i, good = 1;
    memset(seen, 0, (size_t)n_vocab * sizeof *seen);
    for (i = 0; i < draws && s && good; i++) {
        int32_t id = -1;
        good = tfm_sample(s, logits, NULL, 0, &id, &err) == TFM_OK && id >= 0 && id < n_vocab;
        if (good) seen[id]++;
    }
    check(good, "draw %d of %d fails", i, draws);
    tiny_free(memory);
}

/* One id; the error code is negative. */
static int32_t pick(const tfm_sampler_config *c, const float *logits, int32_t n_vocab, const int32_t *history,
                    int64_t n)
{
    void *memory;
    tfm_sampler *s = sampler_new(c, n_vocab, &memory);
    tfm_error err;
    int32_t id = -1;
    const tfm_result result = s ? tfm_sample(s, logits, history, n, &id, &err) : TFM_ERR_ARG;
    tiny_free(memory);
    return result ? result : id;
}

static void check_settings(void)
{
    static const char *const names[] = { "temp", "top_k", "top_p", "min_p", "repeat_penalty", "presence_penalty",
                                         "frequency_penalty", "repeat_last_n" };
    const float nan = (float)NAN;
    tfm_sampler_config c;
    tfm_sampler *s;
    tfm_error err;
    size_t bytes = 0;
    char *memory;
    int i;
    check(tfm_sampler_size(0, &bytes) == TFM_ERR_ARG, "size of an empty vocabulary");
    check(tfm_sampler_size(INT32_MAX, &bytes) == TFM_ERR_ARG, "size of a vocabulary of 2^31");
    check(tfm_sampler_size(10, &bytes) == TFM_OK && bytes == 128 + 64 + 64 + 128, "size for 10 ids is %d", (int)bytes);
    memory = (char *)tiny_alloc(bytes + 64);
    for (i = 0; i < 8; i++) {
        c = settings(1);
        if (i == 0) c.temp = -1;
        if (i == 1) c.top_k = -1;
        if (i == 2) c.top_p = nan;
        if (i == 3) c.min_p = 1.5f;
        if (i == 4) c.repeat_penalty = -1;
        if (i == 5) c.presence_penalty = nan;
        if (i == 6) c.frequency_penalty = (float)INFINITY;
        if (i == 7) c.repeat_last_n = -1;
        check(tfm_sampler_init(&c, 10, memory, bytes, &s, &err) == TFM_ERR_ARG && strstr(err.msg, names[i]) != NULL,
              "bad %s: %s", names[i], err.msg);
    }
    c = settings(1);
    check(tfm_sampler_init(&c, 10, memory + 1, bytes, &s, &err) == TFM_ERR_MEMORY, "memory that is not aligned");
    check(tfm_sampler_init(&c, 10, memory, bytes - 1, &s, &err) == TFM_ERR_MEMORY, "memory that is too small");
    c.size = 0;
    check(tfm_sampler_init(&c, 10, memory, bytes, &s, &err) == TFM_ERR_ARG, "size that is not set");
    tiny_free(memory);
}

static void check_greedy(void)
{
    const tfm_sampler_config c = settings(0), warm = settings(1);
    const int32_t bad_history[1] = { 4 };
    tfm_sampler_config penalty = settings(0);
    float ties[4] = { 1, 3, 3, 2 }, x[4] = { 1, (float)INFINITY, 0, 2 };
    penalty.presence_penalty = 1;
    check(pick(&c, ties, 4, NULL, 0) == 1, "ties go to the lowest id");
    check(pick(&c, x, 4, NULL, 0) == 1 && pick(&warm, x, 4, NULL, 0) == 1, "infinity is the largest");
    x[1] = (float)NAN;
    check(pick(&c, x, 4, NULL, 0) == TFM_ERR_NUMERIC, "NaN, greedy");
    check(pick(&warm, x, 4, NULL, 0) == TFM_ERR_NUMERIC, "NaN");
    x[0] = x[1] = x[2] = x[3] = -(float)INFINITY;
    check(pick(&warm, x, 4, NULL, 0) == TFM_ERR_NUMERIC, "all -infinity");
    check(pick(&penalty, ties, 4, bad_history, 1) == TFM_ERR_ARG, "a history with an id out of range");
}

/* Every seed gives a fair stream that can be repeated; seeds that differ in high bits only differ. */
static void check_seeds(void)
{
    static const uint64_t seeds[] = { 0, 1, 2, (uint64_t)1 << 32, (uint64_t)1 << 63, UINT64_MAX };
    const float even[2] = { 0.5f, 0.5f }, quarters[4] = { -1.3862944f, -1.3862944f, -0.6931474f, -(float)INFINITY };
    tfm_sampler_config c = settings(1);
    uint64_t streams[6];
    int seen[4], i, k;
    for (i = 0; i < 6; i++) {
        void *memory;
        tfm_sampler *s;
        int32_t id = 0;
        c.seed = seeds[i];
        draw(&c, even, 2, 1000, seen);
        check(seen[0] >= 400 && seen[0] <= 600, "seed %d: %d zeros of 1000", i, seen[0]);
        s = sampler_new(&c, 2, &memory);
        streams[i] = 0;
        for (k = 0; k < 64 && s; k++) {
            tfm_sample(s, even, NULL, 0, &id, NULL);
            streams[i] = streams[i] << 1 | (uint64_t)id;
        }
        tiny_free(memory);
        for (k = 0; k < i; k++) check(streams[k] != streams[i], "seeds %d and %d give one stream", k, i);
        draw(&c, quarters, 4, 1000, seen);
        check(seen[3] == 0, "seed %d: an id of probability 0 is drawn", i);
        check(seen[2] >= 420 && seen[2] <= 580, "seed %d: %d of 1000 where a half is due", i, seen[2]);
    }
}

/* Whether the penalised logit of an id lies at `want`: an id that is not in the history and stands just below must
 * lose against it, one just above must win. The other ids are out of the race. */
static void check_logit(tfm_sampler_config c, float logit, const int32_t *history, int64_t n, int32_t id, float want)
{
    float logits[6];
    int i;
    c.temp = 0;
    for (i = 0; i < 6; i++) logits[i] = -1000;
    logits[id] = logit;
    logits[5] = want - 1e-5f;
    check(pick(&c, logits, 6, history, n) == id, "id %d: its logit is not above %g", (int)id, (double)logits[5]);
    logits[5] = want + 1e-5f;
    check(pick(&c, logits, 6, history, n) == 5, "id %d: its logit is not below %g", (int)id, (double)logits[5]);
    check(logits[id] == logit, "the caller's logits change");
}

static void check_penalties(void)
{
    const int32_t history[4] = { 0, 1, 1, 2 };
    tfm_sampler_config c = settings(0);
    c.repeat_penalty = 1.3f; /* divides above 0, multiplies below, once however often the id occurred */
    check_logit(c, 2, history, 4, 0, 1.538462f);
    check_logit(c, -1, history, 4, 1, -1.3f);
    check_logit(c, 0, history, 4, 2, 0);
    check_logit(c, 3, history, 4, 3, 3);
    check_logit(c, -4, history, 4, 4, -4);
    c.repeat_penalty = 0.5f;
    check_logit(c, 2, history, 4, 0, 4);
    check_logit(c, -1, history, 4, 1, -0.5f);
    c.repeat_penalty = 1.3f;
    c.repeat_last_n = 3;
    check_logit(c, 2, history, 4, 0, 2);
    check_logit(c, -1, history, 4, 1, -1.3f);
    c = settings(0);
    c.presence_penalty = 0.25f;
    c.frequency_penalty = 0.5f;
    check_logit(c, 2, history, 4, 0, 1.25f);
    check_logit(c, 2, history, 4, 1, 0.75f);
    check_logit(c, 2, history, 4, 3, 2);
}

/* The ids that can be drawn must be exactly those below n_kept. */
static void check_kept(const char *what, tfm_sampler_config c, const float *logits, int32_t n_vocab, int n_kept)
{
    static int seen[MOST_VOCAB];
    int i, kept = 0, wrong = 0;
    draw(&c, logits, n_vocab, 20 * n_vocab + 400, seen);
    for (i = 0; i < n_vocab; i++) {
        kept += seen[i] > 0;
        wrong += seen[i] > 0 && i >= n_kept;
    }
    check(kept == n_kept && wrong == 0, "%s: %d ids are drawn, %d were due, %d are wrong", what, kept, n_kept, wrong);
}

static void check_filters(void)
{
    const float p[4] = { logf(0.5f), logf(0.3f), logf(0.15f), logf(0.05f) };
    const float even[6] = { 1, 1, 1, 1, 1, 1 };
    tfm_sampler_config c = settings(1);
    check_kept("nothing", c, p, 4, 4);
    c.top_k = 2;
    check_kept("top-k", c, p, 4, 2);
    c.top_k = 3;
    check_kept("top-k, ties", c, even, 6, 3);
    c.top_k = 4;
    check_kept("top-k of all", c, p, 4, 4);
    c = settings(1);
    c.top_p = 0.45f;
    check_kept("top-p, the first crosses", c, p, 4, 1);
    c.top_p = 0.55f;
    check_kept("top-p, the second crosses", c, p, 4, 2);
    c.top_p = 0.81f;
    check_kept("top-p, the third crosses", c, p, 4, 3);
    c.temp = 4; /* comes before top-p: the first two reach no 55 % any more */
    c.top_p = 0.55f;
    check_kept("temperature, then top-p", c, p, 4, 2);
    c.top_p = 0.65f;
    check_kept("temperature, then top-p", c, p, 4, 3);
    c = settings(1);
    c.top_p = 0.7f;
    c.top_k = 2; /* 0.5 of 0.8 is less than 0.7: both stay; then min-p */
    check_kept("top-k, then top-p", c, p, 4, 2);
    c.top_p = 0.6f;
    check_kept("top-k, then top-p", c, p, 4, 1);
    c = settings(1);
    c.min_p = 0.2f;
    check_kept("min-p", c, p, 4, 3);
    c.min_p = 1;
    check_kept("min-p of 1", c, p, 4, 1);
}

/* More ids than the first steps of the partial sort of top-p take. */
static void check_large(void)
{
    static float logits[MOST_VOCAB];
    static int seen[MOST_VOCAB];
    tfm_sampler_config c = settings(1);
    int i, wrong = 0, far = 0;
    for (i = 0; i < 400; i++) logits[i] = i < 300 ? 0.0f : -0.1f;
    c.top_p = 0.75f; /* of 300 + 100 * 0.90484 = 390.48 */
    check_kept("top-p beyond the first step", c, logits, 400, 293);
    c.top_p = 0.95f; /* 370.96 = 300 + 78.4 * 0.90484 */
    check_kept("top-p into the tail", c, logits, 400, 379);
    for (i = 0; i < MOST_VOCAB; i++) logits[i] = 0;
    c.top_p = 0.9f;
    draw(&c, logits, MOST_VOCAB, 100, seen);
    for (i = 0; i < MOST_VOCAB; i++) {
        wrong += seen[i] > 0 && i > 4500;
        far += seen[i] > 0 && i > 4096;
    }
    check(wrong == 0 && far > 0, "top-p of %d equal ids: %d wrong, %d beyond the second step", MOST_VOCAB, wrong, far);
}

/* Ids that were recorded once: integer logits, so that no function of libm is involved. */
static void check_recorded(void)
{
    static const int32_t want[12] = { 1950, 3155, 3737, 4090, 1423, 3173, 214, 2276, 4487, 4895, 3365, 2593 };
    static float logits[MOST_VOCAB];
    tfm_sampler_config c = settings(0.8f);
    tfm_sampler *s;
    tfm_error err;
    void *memory;
    int32_t history[12], i;
    for (i = 0; i < MOST_VOCAB; i++) logits[i] = (float)(tiny_hash("sampler", (uint32_t)i) >> 16) / 4096.0f;
    c.top_k = 40;
    c.top_p = 0.95f;
    c.min_p = 0.05f;
    c.repeat_penalty = 1.1f;
    c.seed = 42;
    s = sampler_new(&c, MOST_VOCAB, &memory);
    for (i = 0; i < 12 && s; i++) {
        check(tfm_sample(s, logits, history, i, &history[i], &err) == TFM_OK, "recorded %d: %s", (int)i, err.msg);
        check(history[i] == want[i], "recorded %d: id %d instead of %d", (int)i, (int)history[i], (int)want[i]);
    }
    tiny_free(memory);
}

/* Added before everything else, -infinity even to +infinity; what is out of range is refused. */
static void check_bias(void)
{
    const float logits[4] = { 1, 3, 2, 0 };
    const float infinite[2] = { 0, INFINITY };
    tfm_logit_bias bias[2] = { { 1, -5 }, { 3, 7 } };
    tfm_sampler_config c = settings(0);
    tfm_sampler *s = NULL;
    void *memory = tiny_alloc(1 << 16);
    const int32_t history[1] = { 3 };
    c.bias = bias;
    check(pick(&c, logits, 4, NULL, 0) == 1, "n_bias 0");
    c.n_bias = 1;
    check(pick(&c, logits, 4, NULL, 0) == 2, "-5 on the best");
    c.n_bias = 2;
    check(pick(&c, logits, 4, NULL, 0) == 3, "+7 on the worst");
    c.repeat_penalty = 10; /* of the biased logit: 0.7 */
    check(pick(&c, logits, 4, history, 1) == 2, "bias comes before the penalties");
    c.repeat_penalty = 0;
    bias[1].bias = -INFINITY;
    bias[1].id = 1;
    c.bias = bias + 1;
    c.n_bias = 1;
    check(pick(&c, infinite, 2, NULL, 0) == 0, "-infinity on +infinity");
    bias[1].bias = NAN;
    check(tfm_sampler_init(&c, 4, memory, 1 << 16, &s, NULL) == TFM_ERR_ARG, "a bias that is no number");
    bias[1].bias = INFINITY;
    check(tfm_sampler_init(&c, 4, memory, 1 << 16, &s, NULL) == TFM_ERR_ARG, "+infinity");
    bias[1].bias = 1;
    bias[1].id = 4;
    check(tfm_sampler_init(&c, 4, memory, 1 << 16, &s, NULL) == TFM_ERR_ARG, "a token out of range");
    bias[1].id = -1;
    check(tfm_sampler_init(&c, 4, memory, 1 << 16, &s, NULL) == TFM_ERR_ARG, "a token below 0");
    tiny_free(memory);
}

void test_sampler(void)
{
    check_settings();
    check_greedy();
    check_seeds();
    check_penalties();
    check_bias();
    check_filters();
    check_large();
    check_recorded();
}
