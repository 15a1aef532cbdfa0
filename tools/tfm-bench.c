/* tfm-bench - how fast a model reads a prompt and writes an answer, and how much of the memory's bandwidth that uses.
 *
 * Decoding one token reads every weight once, so its speed is bounded by bandwidth / bytes per token. The bandwidth is
 * measured in the same run, between the repetitions, with the same threads: figures of another day or another machine
 * say little. It is a sum over a buffer of the model's size, so that a model which fits a cache is compared with the
 * cache. Bytes per token are those of the source's format, whatever the file's layout adds.
 *
 * At a depth, a token reads the keys and values of the positions before it too: the bound counts them.
 */
#include <stdlib.h>
#include <string.h>

#include "plot.h"
#include "run.h"

enum { MAX_REPEATS = 1000, MAX_DEPTHS = 32 };
#define STREAM_MOST ((uint64_t)1 << 30) /* a larger buffer measures nothing else */
#define STREAM_LEAST ((uint64_t)1 << 20)

static run_options options = RUN_FAST;
static int64_t n_prompt = 512, n_generate = 128, repeats = 5;
static int prompt_given, generate_given, json;
static const char *depth_list, *svg_path;
static int32_t depths[MAX_DEPTHS];
static int n_depths;

static const cli_option option_rows[] = {
    CLI_GROUP("Measuring"),
    CLI_INT('p', "prompt", "N", &n_prompt, 0, INT32_MAX, NULL, "tokens of the prompt; 0 skips this part",
            &prompt_given),
    CLI_INT('n', "generate", "N", &n_generate, 0, INT32_MAX, NULL,
            "tokens to decode one by one, from an empty\ncontext; 0 skips this part", &generate_given),
    CLI_STRING('d', "depth", "N,N,...", &depth_list, "0", "tokens that stand in the context already;\nseveral, "
               "rising, are measured in turn", NULL),
    CLI_INT('r', "repeat", "N", &repeats, 1, MAX_REPEATS, NULL, "repetitions of everything", NULL),
    CLI_FLAG(0, "json", &json, "print one JSON object"),
    CLI_STRING(0, "svg", "FILE", &svg_path, "", "draw speed over depth into FILE; without -d at\n0, 512, 1024, 2048 "
               "... as far as the context goes", NULL),
    RUN_OPTION_ROWS(options, "as many as needed"),
    CLI_END
};
static const char *const arg_names[] = { "MODEL" };
static const cli command_line = {
    "tfm-bench", "MODEL [-p N] [-n N] [-d N,N,...] [-t THREADS] [-r N] [--json] [--svg FILE]",
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

static double fork_join; /* seconds to hand nothing to all threads and wait for them; 0 for one */

static void do_nothing(void *arg, int index) { (void)arg, (void)index; }

/* The best of some runs of many, as it is while a session runs: workers have not gone to sleep. */
static void measure_fork_join(const run *r)
{
    int i, j;
    for (i = 0; r->threads && i < 20; i++) {
        const double start = time_now();
        double each;
        for (j = 0; j < 500; j++) pool_run(r->threads, do_nothing, NULL, r->setup.n_threads);
        each = (time_now() - start) / 500;
        if (i == 0 || each < fork_join) fork_join = each;
    }
}

/* ---- THE MODEL ------------------------------------------------------------------------------------------------- */

typedef struct figures { series prefill, decode; } figures;
static figures all_figures[MAX_DEPTHS];
static series bandwidths;
static uint64_t private_bytes; /* what opening the model took */

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

/* Brings the session to ids[0..depth), by going back if it can. */
static int reach(run *r, const int32_t *ids, int64_t depth)
{
    tfm_error err;
    if (tfm_session_length(r->session) >= depth && !tfm_session_rewind(r->session, depth, NULL)) return CLI_GO_ON;
    if (run_reset(r) != CLI_GO_ON) return 1;
    if (depth > 0 && tfm_eval(r->session, ids, depth, &err)) return run_error(r, &err);
    return CLI_GO_ON;
}

/* Tokens per second of evaluating ids[depth..depth + n), `step` at a time. */
static int measure(run *r, const int32_t *ids, int64_t depth, int64_t n, int64_t step, double *speed)
{
    tfm_error err;
    int64_t i;
    double start;
    if (reach(r, ids, depth) != CLI_GO_ON) return 1;
    start = time_now();
    for (i = 0; i < n; i += step)
        if (tfm_eval(r->session, ids + depth + i, step, &err)) return run_error(r, &err);
    *speed = (double)n / (time_now() - start);
    return CLI_GO_ON;
}

/* Everything at one depth once. */
static int measure_round(run *r, stream *s, const int32_t *ids, int64_t depth, figures *f)
{
    double speed;
    if (n_prompt > 0) {
        if (measure(r, ids, depth, n_prompt, n_prompt, &speed) != CLI_GO_ON) return 1;
        series_add(&f->prefill, speed);
    }
    if (bandwidths.n < MAX_REPEATS) series_add(&bandwidths, stream_measure(s, r->threads));
    if (n_generate > 0) {
        if (measure(r, ids, depth, n_generate, 1, &speed) != CLI_GO_ON) return 1;
        series_add(&f->decode, speed);
    }
    return CLI_GO_ON;
}

static int64_t longest_part(void) { return n_prompt > n_generate ? n_prompt : n_generate; }

/* A first round of two tokens warms caches and pages and is not counted. */
static int measure_all(run *r, stream *s)
{
    const int64_t most = longest_part() + depths[n_depths - 1];
    int32_t *ids = (int32_t *)malloc((size_t)most * sizeof *ids);
    const int64_t rounds = repeats * n_depths;
    int status = CLI_GO_ON;
    int64_t i;
    double ignored;
    progress p;
    if (!ids) return tool_error("no memory for %lld tokens", (long long)most);
    make_ids(ids, most, r->config->n_vocab);
    progress_begin(&p, "measuring", 0);
    status = measure(r, ids, 0, most < 2 ? most : 2, 1, &ignored);
    for (i = 0; i < rounds && status == CLI_GO_ON; i++) {
        progress_update(&p, (uint64_t)i, (uint64_t)rounds);
        status = measure_round(r, s, ids, depths[i / repeats], &all_figures[i / repeats]);
    }
    progress_end(&p);
    free(ids);
    return status;
}

/* ---- OUTPUT ---------------------------------------------------------------------------------------------------- */

/* Medians at one depth. kv: bytes of keys and values that a token reads; bound: tokens/s of reading alone. */
typedef struct summary { double prefill, decode, gb_per_s, bandwidth, share, bound; uint64_t bytes, kv; } summary;

/* The keys and values of as many positions as stand before a token, on average while n_generate are decoded. */
static uint64_t kv_bytes_at(const run *r, int64_t depth)
{
    tfm_session_config c = r->setup;
    size_t bytes = 0;
    c.n_ctx = (int32_t)(depth + n_generate / 2);
    c.n_batch = 1;
    if (c.n_ctx == 0 || tfm_session_kv_bytes(r->model, &c, &bytes, NULL)) return 0;
    return bytes;
}

static summary summarise(const run *r, int at)
{
    summary s;
    s.prefill = series_median(&all_figures[at].prefill);
    s.decode = series_median(&all_figures[at].decode);
    s.bandwidth = series_median(&bandwidths);
    s.bytes = model_bytes_per_token(r->model);
    s.kv = kv_bytes_at(r, depths[at]);
    s.gb_per_s = s.decode * (double)s.bytes * 1e-9;
    s.bound = s.bandwidth * 1e9 / (double)(s.bytes + s.kv);
    s.share = s.gb_per_s / s.bandwidth;
    return s;
}

static const char *isa_of(const run *r) { return tfm_isa_name(tfm_session_isa(r->session)); }

static void print_json_depths(const run *r)
{
    int i;
    printf("\"depths\": [");
    for (i = 0; i < n_depths; i++) {
        const summary s = summarise(r, i);
        const figures *f = &all_figures[i];
        printf("%s{\"depth\": %d, ", i ? ", " : "", (int)depths[i]);
        printf("\"prefill_tokens_per_s\": %.3f, \"prefill_spread\": %.4f, ", s.prefill, series_spread(&f->prefill));
        printf("\"decode_tokens_per_s\": %.3f, \"decode_spread\": %.4f, \"kv_bytes_per_token\": %llu, "
               "\"bound_tokens_per_s\": %.3f}", s.decode, series_spread(&f->decode), (unsigned long long)s.kv, s.bound);
    }
    printf("]");
}

/* The figures at the first depth, then those at each. */
static void print_json(const run *r)
{
    const summary s = summarise(r, 0);
    const figures *f = &all_figures[0];
    printf("{\"prefill_tokens_per_s\": %.3f, \"decode_tokens_per_s\": %.3f, ", s.prefill, s.decode);
    printf("\"prefill_spread\": %.4f, \"decode_spread\": %.4f, ", series_spread(&f->prefill),
           series_spread(&f->decode));
    printf("\"n_prompt\": %lld, \"n_gen\": %lld, \"repeats\": %lld, ", (long long)n_prompt, (long long)n_generate,
           (long long)repeats);
    printf("\"threads\": %d, \"isa\": \"%s\", \"kv\": \"%s\", \"act\": \"%s\", \"n_batch\": %d, ",
           (int)r->setup.n_threads, isa_of(r), run_kv_names[options.kv], run_act_names[options.act],
           (int)r->setup.n_batch);
    printf("\"bytes_per_token\": %llu, \"decode_gb_per_s\": %.3f, ", (unsigned long long)s.bytes, s.gb_per_s);
    printf("\"bandwidth_gb_per_s\": %.3f, \"bandwidth_spread\": %.4f, \"bandwidth_share\": %.4f, ", s.bandwidth,
           series_spread(&bandwidths), s.share);
    printf("\"load_ms\": %.3f, \"load_private_bytes\": %llu, ", 1e3 * (r->open_seconds + r->session_seconds),
           (unsigned long long)private_bytes);
    printf("\"fork_join_us\": %.3f, ", 1e6 * fork_join);
    print_json_depths(r);
    printf("}\n");
}

static void print_depth(const run *r, int at)
{
    const summary s = summarise(r, at);
    const figures *f = &all_figures[at];
    if (depths[at] > 0 || n_depths > 1) printf("after %d tokens\n", (int)depths[at]);
    if (n_prompt > 0)
        printf("prompt     %9.1f tokens/s, spread %4.1f %%  (%lld tokens)\n", s.prefill,
               100 * series_spread(&f->prefill), (long long)n_prompt);
    if (n_generate > 0)
        printf("decode     %9.1f tokens/s, spread %4.1f %%  (%lld tokens; reading alone %.1f)\n", s.decode,
               100 * series_spread(&f->decode), (long long)n_generate, s.bound);
}

static void print_text(const run *r)
{
    const summary s = summarise(r, 0);
    char size[16];
    int i;
    printf("%s: %s, %d thread%s, kv %s, act %s, ", r->path, isa_of(r), (int)r->setup.n_threads,
           r->setup.n_threads == 1 ? "" : "s", run_kv_names[options.kv], run_act_names[options.act]);
    printf("%lld repetition%s\n", (long long)repeats, repeats == 1 ? "" : "s");
    printf("load       %9.1f ms: model %.1f, session %.1f", 1e3 * (r->open_seconds + r->session_seconds),
           1e3 * r->open_seconds, 1e3 * r->session_seconds);
    if (private_bytes > 0) printf("; %s of private memory after the model", human_size(size, private_bytes));
    printf("\n");
    for (i = 0; i < n_depths; i++) print_depth(r, i);
    if (fork_join > 0) printf("fork, join %9.2f us\n", 1e6 * fork_join);
    printf("bandwidth  %9.1f GB/s,     spread %4.1f %%\n", s.bandwidth, 100 * series_spread(&bandwidths));
    printf("weights    %s a token", human_size(size, s.bytes));
    if (n_generate > 0) printf(": decode reads %.1f GB/s, %.0f %% of the bandwidth", s.gb_per_s, 100 * s.share);
    printf("\n");
}

/* ---- THE PICTURE ----------------------------------------------------------------------------------------------- */

typedef struct lines { double prefill[3][MAX_DEPTHS], decode[3][MAX_DEPTHS], bound[MAX_DEPTHS], x[MAX_DEPTHS]; } lines;

static void gather(const run *r, lines *l)
{
    int i;
    for (i = 0; i < n_depths; i++) {
        const summary s = summarise(r, i);
        const figures *f = &all_figures[i];
        l->x[i] = depths[i];
        l->prefill[0][i] = s.prefill;
        l->decode[0][i] = s.decode;
        l->bound[i] = s.bound;
        if (n_prompt > 0) l->prefill[1][i] = f->prefill.value[0], l->prefill[2][i] = f->prefill.value[f->prefill.n - 1];
        if (n_generate > 0) l->decode[1][i] = f->decode.value[0], l->decode[2][i] = f->decode.value[f->decode.n - 1];
    }
}

static int write_picture(run *r, const char *svg)
{
    sink out;
    tfm_error err;
    int bad = run_open_output(r, &out, svg_path, &err);
    if (bad) return run_error(r, &err);
    bad = sink_write(&out, 0, svg, strlen(svg), &err);
    if (bad) sink_discard(&out);
    else bad = sink_commit(&out, &err);
    return bad ? run_error(r, &err) : CLI_GO_ON;
}

static int draw(run *r)
{
    static lines l;
    const plot_curve decode[] = {
        { "decode (median, band: all runs)", l.decode[0], l.decode[1], l.decode[2], PLOT_SOLID },
        { "bound: reading weights and cache at the measured bandwidth", l.bound, NULL, NULL, PLOT_DASHED }
    };
    const plot_curve prefill[] = { { "prompt", l.prefill[0], l.prefill[1], l.prefill[2], PLOT_SOLID } };
    const plot_panel panels[] = { { "decode, tokens/s", decode, 2 }, { "prompt, tokens/s", prefill, 1 } };
    const char *base = strrchr(r->path, '/') ? strrchr(r->path, '/') + 1 : r->path, *svg;
    plot p = { NULL, NULL, "tokens in the context", l.x, n_depths, panels, 1 };
    arena a = { NULL, 0, 0, 0 };
    int status;
    gather(r, &l);
    p.title = arena_printf(&a, "Speed over depth: %s", base);
    p.subtitle = arena_printf(&a, "%s, %d threads, kv %s, prompt of %lld, %lld decoded, %.1f GB/s read in the same run",
                              isa_of(r), (int)r->setup.n_threads, run_kv_names[options.kv], (long long)n_prompt,
                              (long long)n_generate, series_median(&bandwidths));
    if (n_generate == 0) p.panels++;
    else if (n_prompt > 0) p.n_panels = 2;
    svg = p.title && p.subtitle ? plot_svg(&p, &a) : NULL;
    status = svg ? write_picture(r, svg) : tool_error("no memory for the picture");
    arena_free(&a);
    return status;
}

/* ---- THE COMMAND LINE ------------------------------------------------------------------------------------------ */

/* "0,512,1024" into depths, rising. */
static int read_depths(void)
{
    const char *at = depth_list;
    while (at) {
        const size_t length = strcspn(at, ",");
        int64_t value;
        if (parse_int64(at, length, &value) || value < 0 || value > INT32_MAX / 2)
            return cli_wrong(&command_line, "-d %s: not a list of numbers of tokens", depth_list);
        if (n_depths > 0 && value <= depths[n_depths - 1])
            return cli_wrong(&command_line, "-d %s: the depths must rise", depth_list);
        if (n_depths == MAX_DEPTHS) return cli_wrong(&command_line, "-d: more than %d depths", (int)MAX_DEPTHS);
        depths[n_depths++] = (int32_t)value;
        at = at[length] ? at + length + 1 : NULL;
    }
    if (n_depths == 0) depths[n_depths++] = 0;
    return CLI_GO_ON;
}

/* As many positions as the longer part needs; the defaults shrink to what the model is made for. */
static int choose_context(run *r)
{
    const int64_t room = options.ctx ? options.ctx : r->config->n_ctx;
    const int64_t left = room > depths[n_depths - 1] ? room - depths[n_depths - 1] : 1;
    int64_t most, depth;
    if (!prompt_given && n_prompt > left) n_prompt = left;
    if (!generate_given && n_generate > left) n_generate = left;
    if (svg_path && !depth_list)
        for (depth = 512; depth + longest_part() <= room && n_depths < MAX_DEPTHS; depth *= 2)
            depths[n_depths++] = (int32_t)depth;
    most = depths[n_depths - 1] + longest_part();
    if (options.ctx && most > options.ctx)
        return cli_wrong(&command_line, "-c %lld has no room for %lld tokens", (long long)options.ctx, (long long)most);
    if (!options.ctx) r->setup.n_ctx = (int32_t)most;
    return CLI_GO_ON;
}

int main(int argc, char **argv)
{
    static stream s;
    const char *path;
    uint64_t before;
    run r;
    int status;
    program_start(&argc, &argv);
    status = cli_parse(&command_line, argc, argv, &path, NULL);
    if (status == CLI_GO_ON) status = read_depths();
    if (status != CLI_GO_ON) return program_end(status);
    if (n_prompt + n_generate == 0) return cli_wrong(&command_line, "-p 0 and -n 0 leave nothing to measure");
    before = memory_private();
    status = run_open(&r, &command_line, &options, path);
    private_bytes = memory_private() - before;
    if (status == CLI_GO_ON) status = choose_context(&r);
    if (status == CLI_GO_ON) status = run_start(&r);
    if (status == CLI_GO_ON) status = stream_open(&s, model_source_bytes(r.model), r.setup.n_threads);
    if (status == CLI_GO_ON) measure_fork_join(&r);
    if (status == CLI_GO_ON) status = measure_all(&r, &s);
    if (status == CLI_GO_ON && svg_path) status = draw(&r);
    if (status == CLI_GO_ON) {
        if (json) print_json(&r);
        else print_text(&r);
        status = 0;
    }
    free(s.words);
    run_close(&r);
    return program_end(status);
}
