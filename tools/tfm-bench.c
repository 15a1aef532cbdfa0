/* tfm-bench - how fast a model reads a prompt and writes an answer, and how much of the memory's bandwidth that uses.
 *
 * Decoding one token reads every weight once, so its speed is bounded by bandwidth / bytes per token. The bandwidth is
 * measured in the same run, between the repetitions, with the same threads: figures of another day or another machine
 * say little. It is a sum over a buffer of the model's size, so that a model which fits a cache is compared with the
 * cache. Bytes per token are those of the source's format, whatever the file's layout adds.
 */
#include <stdlib.h>
#include <string.h>

#include "run.h"

enum { MAX_REPEATS = 1000 };
#define STREAM_MOST ((uint64_t)1 << 30) /* a larger buffer measures nothing else */
#define STREAM_LEAST ((uint64_t)1 << 20)

static run_options options = RUN_FAST;
static int64_t n_prompt = 512, n_generate = 128, repeats = 5;
static int prompt_given, generate_given, json;

static const cli_option option_rows[] = {
    CLI_GROUP("Measuring"),
    CLI_INT('p', "prompt", "N", &n_prompt, 0, INT32_MAX, NULL, "tokens of the prompt; 0 skips this part",
            &prompt_given),
    CLI_INT('n', "generate", "N", &n_generate, 0, INT32_MAX, NULL,
            "tokens to decode one by one, from an empty\ncontext; 0 skips this part", &generate_given),
    CLI_INT('r', "repeat", "N", &repeats, 1, MAX_REPEATS, NULL, "repetitions of everything", NULL),
    CLI_FLAG(0, "json", &json, "print one JSON object"),
    RUN_OPTION_ROWS(options, "as many as needed"),
    CLI_END
};
static const char *const arg_names[] = { "MODEL" };
static const cli command_line = {
    "tfm-bench", "MODEL [-p N] [-n N] [-t THREADS] [-r N] [--json]",
    "Measures prompt and decode speed beside the memory bandwidth of the same run. Speeds are\n"
    "medians; the spread is (highest - lowest) / median.",
    option_rows, 1, 1, arg_names
};

/* ---- SERIES OF MEASUREMENTS ------------------------------------------------------------------------------------ */

typedef struct series { double value[MAX_REPEATS]; int n; } series; /* kept sorted */

static void series_add(series *s, double x)
{
    int i = s->n++;
    for (; i > 0 && s->value[i - 1] > x; i--) s->value[i] = s->value[i - 1];
    s->value[i] = x;
}

static double series_median(const series *s)
{
    return s->n == 0 ? 0 : 0.5 * (s->value[(s->n - 1) / 2] + s->value[s->n / 2]);
}

static double series_spread(const series *s)
{
    return s->n == 0 ? 0 : (s->value[s->n - 1] - s->value[0]) / series_median(s);
}

/* ---- BANDWIDTH ------------------------------------------------------------------------------------------------- */

/* A buffer that each thread reads a part of. */
typedef struct stream {
    uint64_t *words;
    size_t n_words;
    int parts;
    uint64_t sums[1024]; /* one a part, so that the reading has a result; 1024 is the most that -t takes */
} stream;

static void stream_part(void *arg, int index)
{
    stream *s = (stream *)arg;
    const size_t share = s->n_words / 8 / (size_t)s->parts * 8;
    const uint64_t *w = s->words + share * (size_t)index, *end = w + share;
    uint64_t a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
    for (; w < end; w += 8) { /* eight chains: bound by loads, not by additions */
        a += w[0];
        b += w[1];
        c += w[2];
        d += w[3];
        e += w[4];
        f += w[5];
        g += w[6];
        h += w[7];
    }
    s->sums[index] += a + b + c + d + e + f + g + h;
}

static int stream_open(stream *s, uint64_t bytes, int threads)
{
    memset(s, 0, sizeof *s);
    bytes = bytes > STREAM_MOST ? STREAM_MOST : bytes < STREAM_LEAST ? STREAM_LEAST : bytes;
    s->n_words = (size_t)bytes / sizeof *s->words;
    s->parts = threads;
    s->words = (uint64_t *)malloc(s->n_words * sizeof *s->words);
    if (!s->words) return tool_error("no memory to measure the bandwidth");
    memset(s->words, 1, s->n_words * sizeof *s->words);
    return CLI_GO_ON;
}

/* GB/s of reading it all, twice and more until 20 ms have passed. */
static double stream_measure(stream *s, pool *threads)
{
    const double start = time_now();
    double seconds = 0;
    int passes = 0;
    while (passes < 2 || seconds < 0.02) {
        pool_run(threads, stream_part, s, s->parts);
        seconds = time_now() - start;
        passes++;
    }
    return (double)passes * (double)(s->n_words * sizeof *s->words) / seconds * 1e-9;
}

/* ---- THE MODEL ------------------------------------------------------------------------------------------------- */

typedef struct figures { series prefill, decode, bandwidth; } figures;

/* Some valid ids, always the same ones. */
static void make_ids(int32_t *ids, int64_t n, int32_t n_vocab)
{
    uint32_t state = 1;
    int64_t i;
    for (i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        ids[i] = (int32_t)((state >> 8) % (uint32_t)n_vocab);
    }
}

/* Tokens per second of evaluating ids[0..n) from an empty context, `step` at a time. */
static int measure(run *r, const int32_t *ids, int64_t n, int64_t step, double *speed)
{
    tfm_error err;
    int64_t i;
    double start;
    if (run_reset(r) != CLI_GO_ON) return 1;
    start = time_now();
    for (i = 0; i < n; i += step)
        if (tfm_eval(r->session, ids + i, step, &err)) return run_error(r, &err);
    *speed = (double)n / (time_now() - start);
    return CLI_GO_ON;
}

/* Everything once; a first round warms caches and pages and is not counted. */
static int measure_round(run *r, stream *s, const int32_t *ids, figures *f)
{
    double speed;
    if (n_prompt > 0) {
        if (measure(r, ids, n_prompt, n_prompt, &speed) != CLI_GO_ON) return 1;
        series_add(&f->prefill, speed);
    }
    series_add(&f->bandwidth, stream_measure(s, r->threads));
    if (n_generate > 0) {
        if (measure(r, ids, n_generate, 1, &speed) != CLI_GO_ON) return 1;
        series_add(&f->decode, speed);
    }
    return CLI_GO_ON;
}

static int measure_all(run *r, stream *s, figures *f)
{
    const int64_t most = n_prompt > n_generate ? n_prompt : n_generate;
    int32_t *ids = (int32_t *)malloc((size_t)most * sizeof *ids);
    int status = CLI_GO_ON;
    int64_t i;
    double ignored;
    progress p;
    if (!ids) return tool_error("no memory for %lld tokens", (long long)most);
    make_ids(ids, most, r->config->n_vocab);
    progress_begin(&p, "measuring", 0);
    status = measure(r, ids, most < 2 ? most : 2, 1, &ignored);
    for (i = 0; i < repeats && status == CLI_GO_ON; i++) {
        progress_update(&p, (uint64_t)i, (uint64_t)repeats);
        status = measure_round(r, s, ids, f);
    }
    progress_end(&p);
    free(ids);
    return status;
}

/* ---- OUTPUT ---------------------------------------------------------------------------------------------------- */

typedef struct summary { double prefill, decode, gb_per_s, bandwidth, share; uint64_t bytes; const char *isa; } summary;

static summary summarise(const run *r, const figures *f)
{
    summary s;
    s.prefill = series_median(&f->prefill);
    s.decode = series_median(&f->decode);
    s.bandwidth = series_median(&f->bandwidth);
    s.bytes = model_bytes_per_token(r->model);
    s.gb_per_s = s.decode * (double)s.bytes * 1e-9;
    s.share = s.gb_per_s / s.bandwidth;
    s.isa = tfm_isa_name(tfm_session_isa(r->session));
    return s;
}

static void print_json(const run *r, const figures *f)
{
    const summary s = summarise(r, f);
    printf("{\"prefill_tokens_per_s\": %.3f, \"decode_tokens_per_s\": %.3f, ", s.prefill, s.decode);
    printf("\"prefill_spread\": %.4f, \"decode_spread\": %.4f, ", series_spread(&f->prefill),
           series_spread(&f->decode));
    printf("\"n_prompt\": %lld, \"n_gen\": %lld, \"repeats\": %lld, ", (long long)n_prompt, (long long)n_generate,
           (long long)repeats);
    printf("\"threads\": %d, \"isa\": \"%s\", \"kv\": \"%s\", \"act\": \"%s\", \"n_batch\": %d, ",
           (int)r->setup.n_threads, s.isa, run_kv_names[options.kv], run_act_names[options.act], (int)r->setup.n_batch);
    printf("\"bytes_per_token\": %llu, \"decode_gb_per_s\": %.3f, ", (unsigned long long)s.bytes, s.gb_per_s);
    printf("\"bandwidth_gb_per_s\": %.3f, \"bandwidth_spread\": %.4f, \"bandwidth_share\": %.4f}\n", s.bandwidth,
           series_spread(&f->bandwidth), s.share);
}

static void print_text(const run *r, const figures *f)
{
    const summary s = summarise(r, f);
    char size[16];
    printf("%s: %s, %d thread%s, kv %s, act %s, ", r->path, s.isa, (int)r->setup.n_threads,
           r->setup.n_threads == 1 ? "" : "s", run_kv_names[options.kv], run_act_names[options.act]);
    printf("%lld repetition%s\n", (long long)repeats, repeats == 1 ? "" : "s");
    if (n_prompt > 0)
        printf("prompt     %9.1f tokens/s, spread %4.1f %%  (%lld tokens)\n", s.prefill,
               100 * series_spread(&f->prefill), (long long)n_prompt);
    if (n_generate > 0)
        printf("decode     %9.1f tokens/s, spread %4.1f %%  (%lld tokens)\n", s.decode,
               100 * series_spread(&f->decode), (long long)n_generate);
    printf("bandwidth  %9.1f GB/s,     spread %4.1f %%\n", s.bandwidth, 100 * series_spread(&f->bandwidth));
    printf("weights    %s a token", human_size(size, s.bytes));
    if (n_generate > 0) printf(": decode reads %.1f GB/s, %.0f %% of the bandwidth", s.gb_per_s, 100 * s.share);
    printf("\n");
}

/* As many positions as the longer part needs; the defaults shrink to what the model is made for. */
static int choose_context(run *r)
{
    const int64_t room = options.ctx ? options.ctx : r->config->n_ctx;
    int64_t most;
    if (!prompt_given && n_prompt > room) n_prompt = room;
    if (!generate_given && n_generate > room) n_generate = room;
    most = n_prompt > n_generate ? n_prompt : n_generate;
    if (options.ctx && most > options.ctx)
        return cli_wrong(&command_line, "-c %lld has no room for %lld tokens", (long long)options.ctx, (long long)most);
    if (!options.ctx) r->setup.n_ctx = (int32_t)most;
    return CLI_GO_ON;
}

int main(int argc, char **argv)
{
    static stream s;
    static figures f;
    const char *path;
    run r;
    int status;
    program_start(&argc, &argv);
    status = cli_parse(&command_line, argc, argv, &path, NULL);
    if (status != CLI_GO_ON) return program_end(status);
    if (n_prompt + n_generate == 0) return cli_wrong(&command_line, "-p 0 and -n 0 leave nothing to measure");
    status = run_open(&r, &command_line, &options, path);
    if (status == CLI_GO_ON) status = choose_context(&r);
    if (status == CLI_GO_ON) status = run_start(&r);
    if (status == CLI_GO_ON) status = stream_open(&s, model_source_bytes(r.model), r.setup.n_threads);
    if (status == CLI_GO_ON) status = measure_all(&r, &s, &f);
    if (status == CLI_GO_ON) {
        if (json) print_json(&r, &f);
        else print_text(&r, &f);
        status = 0;
    }
    free(s.words);
    run_close(&r);
    return program_end(status);
}
