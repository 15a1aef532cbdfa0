/* chat_infer.c - a template becomes data, if data can say what it does.
 *
 * 1. Look: conversations whose texts are markers are rendered; what stands between two markers is the join of their
 *    roles at that place (whether there is a system text, a prompt, the first turn, the last one). If two conversations
 *    disagree about a join, the format is no table of joins.
 * 2. Rules: texts with white space at their ends and with marks inside are tried at every place, and the rule is
 *    taken that explains what became of them.
 * 3. Write: joins are merged where a part of the place does not matter.
 * 4. Check: conversations made at random are rendered by the template and by tfm_chat_render on the section; they must
 *    agree, also about which ones are refused. A template may look for words of its own in a text: texts
 *    made of every string literal in it ('/think') must not be written otherwise.
 * If this fails, it is tried again on fewer conversations: only alternating ones, then only those that end in a prompt.
 */
#include "chat.h"
#include "jinja_internal.h" /* what white space is */

enum { PLACES = 16, ROLES = 4, MAX_TURNS = 6, MAX_JOINS = 128, MAX_RULES = 32, CHECKS = 160,
       PROBE_STEPS = 100000 }; /* of a rendering: published templates take a few thousand */

static const char system_marker[] = "qXsystemYq", date_marker[] = "qXdateYq";
static const char *const turn_markers[MAX_TURNS] = {"qX0Yq", "qX1Yq", "qX2Yq", "qX3Yq", "qX4Yq", "qX5Yq"};

/* Which conversations count: any sequence of turns, alternating ones, those that end with a user and a prompt. */
enum scope { SCOPE_ANY, SCOPE_ALTERNATING, SCOPE_PROMPTED, SCOPES };

typedef struct shape { /* a conversation without its texts */
    int roles[MAX_TURNS], n, system, prompt;
} shape;

typedef struct rule { int what; const char *cut; } rule; /* cut: NULL, or the mark */

typedef struct inference {
    arena *a;            /* of the result */
    arena *scratch;      /* of one rendering */
    const chat_source *source;
    const jinja *t;
    jinja_options options;
    const char *date_asked, *date_format; /* of the last rendering; of all */
    enum scope scope;
    const char *joins[ROLES][ROLES][PLACES]; /* text with markers, NULL: never seen */
    rule rules[ROLES][PLACES];               /* by place; the mask says which of its bits count */
    int rule_mask[ROLES];
    const char *reason;
} inference;

static int give_up(inference *f, const char *reason) {
    f->reason = reason;
    return -1;
}

static int place_of(const shape *s, int first, int last) {
    return (s->system ? TFM_CHAT_HAS_SYSTEM : 0) | (s->prompt ? TFM_CHAT_HAS_PROMPT : 0) |
           (first ? TFM_CHAT_FIRST : 0) | (last ? TFM_CHAT_LAST : 0);
}
/* The place of the join before turn i (i = n: the end), and of turn i itself. */
static int join_place(const shape *s, int i) { return place_of(s, i == 1, i == s->n - 1); }
static int turn_place(const shape *s, int i) { return place_of(s, i == 0, i == s->n - 1); }

/* ---- RENDERING ------------------------------------------------------------------------------------------------- */

/* The conversation in the template's words, NULL if the template refuses it; -1 in *code if it fails otherwise. */
static const char *render(inference *f, const shape *s, const char *system, const char *const *texts, size_t *n) {
    tfm_turn turns[MAX_TURNS + 1];
    jinja_output out;
    tfm_error err;
    size_t count = 0;
    if (s->system) {
        turns[count].role = TFM_CHAT_SYSTEM;
        turns[count].text = system;
        turns[count++].n = strlen(system);
    }
    for (int i = 0; i < s->n; i++, count++) {
        turns[count].role = s->roles[i];
        turns[count].text = texts[i];
        turns[count].n = strlen(texts[i]);
    }
    arena_free(f->scratch);
    f->date_asked = NULL;
    if (chat_interpret(f->scratch, f->t, f->source, turns, count, s->prompt, &f->options, &out, &err)) return NULL;
    *n = out.n;
    return strlen(out.text) == out.n ? out.text : NULL;
}

/* The k-th conversation of a scope; 0 if there are no more. Sequences of up to 4 turns, alternating ones of up to 5. */
static int nth_shape(enum scope scope, int k, shape *s) {
    memset(s, 0, sizeof *s);
    s->system = k & 1;
    s->prompt = scope == SCOPE_PROMPTED || k >> 1 & 1;
    k = scope == SCOPE_PROMPTED ? k >> 1 : k >> 2;
    if (scope == SCOPE_ANY && k < 30) { /* 2 of one turn, 4 of two, 8 of three, 16 of four */
        for (s->n = 1; k >= 1 << s->n; s->n++) k -= 1 << s->n;
        for (int i = 0; i < s->n; i++) s->roles[i] = k >> i & 1 ? TFM_CHAT_ASSISTANT : TFM_CHAT_USER;
        return 1;
    }
    if (scope == SCOPE_ANY) k = k == 30 ? 4 : 99;
    s->n = scope == SCOPE_PROMPTED ? 2 * k + 1 : k + 1;
    for (int i = 0; i < s->n && i < MAX_TURNS; i++) s->roles[i] = i % 2 ? TFM_CHAT_ASSISTANT : TFM_CHAT_USER;
    return s->n <= 5;
}

/* ---- 1. LOOK --------------------------------------------------------------------------------------------------- */

static int count_of(const char *text, const char *part) {
    int n = 0;
    for (const char *p = strstr(text, part); p; p = strstr(p + strlen(part), part)) n++;
    return n;
}

static int note_join(inference *f, int from, int to, int place, const char *text, size_t n) {
    const char **slot = &f->joins[from][to][place];
    const char *copy = arena_strndup(f->a, text, n);
    if (!copy) return give_up(f, "there is no memory");
    if (*slot && strcmp(*slot, copy))
        return give_up(f, "what stands between two turns depends on more than their place");
    *slot = copy;
    return 0;
}

static int note_date(inference *f) {
    if (!f->date_asked) return 0;
    if (f->date_format && strcmp(f->date_format, f->date_asked)) return give_up(f, "it writes the date in two forms");
    f->date_format = arena_strdup(f->a, f->date_asked);
    return f->date_format ? 0 : give_up(f, "there is no memory");
}

static int look_at(inference *f, const shape *s) {
    size_t n = 0;
    const char *text = render(f, s, system_marker, turn_markers, &n), *at = text;
    if (!text) return 0; /* refused: no joins */
    for (int i = 0; i <= s->n; i++) {
        const char *next = i < s->n ? strstr(at, turn_markers[i]) : at + strlen(at);
        if (!next || (i < s->n && count_of(text, turn_markers[i]) != 1))
            return give_up(f, "it does not write the text of every turn once and in order");
        if (note_join(f, i ? s->roles[i - 1] : 0, i < s->n ? s->roles[i] : 0, join_place(s, i), at,
                      (size_t)(next - at))) return -1;
        at = next + (i < s->n ? strlen(turn_markers[i]) : 0);
    }
    return note_date(f);
}

static int look(inference *f) {
    shape s;
    memset(f->joins, 0, sizeof f->joins);
    for (int k = 0; nth_shape(f->scope, k, &s); k++) if (look_at(f, &s)) return -1;
    for (int role = TFM_CHAT_USER; role < ROLES; role++)
        for (int place = 0; place < PLACES; place++) if (f->joins[0][role][place]) return 0;
    return give_up(f, "it refuses every probe");
}

/* ---- 2. RULES -------------------------------------------------------------------------------------------------- */

static int is_blank(const char *p, size_t n, int lines, size_t *length) {
    uint32_t code;
    *length = jinja_char(p, n, &code);
    return lines ? code == '\n' : jinja_is_space(code);
}

/* The probes have ASCII blanks at their right end only. */
static void trim(const char **p, size_t *n, int left, int right, int lines) {
    size_t k;
    while (left && *n && is_blank(*p, *n, lines, &k)) { *p += k; *n -= k; }
    while (right && *n && is_blank(*p + *n - 1, 1, lines, &k)) --*n;
}

/* What a rule leaves of a text, in the arena. */
static const char *apply(arena *a, const rule *r, const char *text) {
    const char *p = text, *last = NULL;
    for (const char *q = r->cut ? strstr(p, r->cut) : NULL; q; q = strstr(q + 1, r->cut)) last = q;
    if (last) p = last + strlen(r->cut);
    size_t n = strlen(p);
    if (last && r->what & (TFM_CHAT_CUT_TRIM | TFM_CHAT_CUT_TRIM_LINES))
        trim(&p, &n, 1, 0, (r->what & TFM_CHAT_CUT_TRIM_LINES) != 0);
    trim(&p, &n, r->what & TFM_CHAT_TRIM_LEFT, r->what & TFM_CHAT_TRIM_RIGHT, 0);
    trim(&p, &n, r->what & TFM_CHAT_TRIM_LINES_LEFT, r->what & TFM_CHAT_TRIM_LINES_RIGHT, 1);
    return arena_strndup(a, p, n);
}

/* Appends a join, the system's marker replaced. */
static const char *add_join(arena *a, const char *text, const char *join, const char *system) {
    const char *at;
    while (text && (at = strstr(join, system_marker)) != NULL) {
        text = arena_printf(a, "%s%.*s%s", text, (int)(at - join), join, system);
        join = at + sizeof system_marker - 1;
    }
    return text ? arena_printf(a, "%s%s", text, join) : NULL;
}

/* The conversation as the joins have it, with texts that are used as they are. */
static const char *compose(const inference *f, arena *a, const shape *s, const char *system, const char *const *texts) {
    const char *text = "";
    for (int i = 0; i <= s->n && text; i++) {
        const char *join = f->joins[i ? s->roles[i - 1] : 0][i < s->n ? s->roles[i] : 0][join_place(s, i)];
        text = join ? add_join(a, text, join, system) : NULL;
        if (text && i < s->n) text = arena_printf(a, "%s%s", text, texts[i]);
    }
    return text;
}

/* Candidate rules: every way to trim, alone and after every mark the template splits at. 0 if there are no more. */
static int nth_rule(const inference *f, int k, rule *r) {
    static const int left[] = {0, TFM_CHAT_TRIM_LEFT, TFM_CHAT_TRIM_LINES_LEFT};
    static const int right[] = {0, TFM_CHAT_TRIM_RIGHT, TFM_CHAT_TRIM_LINES_RIGHT};
    static const int cut[] = {0, TFM_CHAT_CUT_TRIM, TFM_CHAT_CUT_TRIM_LINES};
    r->what = left[k % 3] | right[k / 3 % 3];
    r->cut = NULL;
    k /= 9;
    if (!k) return 1;
    r->what |= cut[(k - 1) % 3];
    r->cut = jinja_split_literal(f->t, (size_t)(k - 1) / 3);
    return r->cut != NULL;
}

/* The texts that tell rules apart; those behind the first three have a mark in them, each that the template knows. */
static const char *nth_probe(const inference *f, arena *a, int k) {
    static const char *const plain[] = {"qXprobeYq", "\n \t\xE3\x80\x80 qXprobeYq \t \n", " \nqXprobeYq\n \n"};
    static const char *const around[] = {"qXbeforeYq%s\n\n \nqXprobeYq\n", "%sqX1st%s \n qXprobeYq "};
    if (k < 3) return plain[k];
    const char *mark = jinja_split_literal(f->t, (size_t)(k - 3) / 2);
    if (!mark) return NULL;
    return (k - 3) % 2 ? arena_printf(a, around[1], mark, mark) : arena_printf(a, around[0], mark);
}

/* Whether a rule explains what the template makes of a turn (-1: the system's) of a conversation. */
static int explains(inference *f, const rule *r, const shape *s, int turn, const char *probe, const char *got,
                    arena *a) {
    const char *texts[MAX_TURNS], *left = apply(a, r, probe);
    memcpy(texts, turn_markers, sizeof texts);
    if (turn >= 0) texts[turn] = left;
    const char *text = left ? compose(f, a, s, turn < 0 ? left : system_marker, texts) : NULL;
    return text && !strcmp(text, got);
}

/* One conversation with one probe in it, as the template renders it. */
typedef struct sample { shape s; int turn, place, role; const char *probe, *got; } sample;

enum { MAX_SAMPLES = 4096 };

/* Everything the probes show about a role. Returns the number of samples. */
static int sample_role(inference *f, int role, sample *samples, arena *a) {
    const char *probe, *got, *texts[MAX_TURNS];
    int n = 0;
    size_t size;
    shape s;
    for (int k = 0; nth_shape(f->scope == SCOPE_ANY ? SCOPE_ALTERNATING : f->scope, k, &s); k++) {
        for (int turn = role == TFM_CHAT_SYSTEM ? -1 : 0; turn < s.n; turn++) {
            if (role == TFM_CHAT_SYSTEM ? turn >= 0 || !s.system : s.roles[turn] != role) continue;
            for (int p = 0; (probe = nth_probe(f, a, p)) != NULL && n < MAX_SAMPLES; p++) {
                memcpy(texts, turn_markers, sizeof texts);
                if (turn >= 0) texts[turn] = probe;
                got = render(f, &s, turn < 0 ? probe : system_marker, texts, &size);
                if (got) got = arena_strdup(a, got);
                if (!got) continue;
                samples[n].s = s;
                samples[n].turn = turn;
                samples[n].role = role;
                samples[n].place = turn < 0 ? place_of(&s, 0, 0) : turn_place(&s, turn);
                samples[n].probe = probe;
                samples[n++].got = got;
            }
        }
    }
    return n;
}

/* A rule for all samples whose place is `place` under the mask; -1 if there is none. */
static int find_rule(inference *f, const sample *samples, int n, int mask, int place, rule *r) {
    for (int k = 0; nth_rule(f, k, r); k++) {
        int fits = 1;
        for (int i = 0; i < n && fits; i++) {
            arena a = {NULL, 0, 0, 0};
            if ((samples[i].place & mask) != place) continue;
            fits = explains(f, r, &samples[i].s, samples[i].turn, samples[i].probe, samples[i].got, &a);
            arena_free(&a);
        }
        if (fits) return 0;
    }
    return -1;
}

static int find_rules_of(inference *f, int role, const sample *samples, int n) {
    static const int masks[] = {0, TFM_CHAT_LAST, TFM_CHAT_FIRST, TFM_CHAT_HAS_PROMPT, TFM_CHAT_HAS_SYSTEM,
                                TFM_CHAT_FIRST | TFM_CHAT_LAST};
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++) {
        int good = 1;
        for (int place = 0; place < PLACES && good; place++)
            if ((place & masks[m]) == place) good = !find_rule(f, samples, n, masks[m], place, &f->rules[role][place]);
        f->rule_mask[role] = masks[m];
        if (good) return 0;
    }
    return give_up(f, role == TFM_CHAT_ASSISTANT ? "it changes the text of an answer in a way that is no rule"
                                                 : "it changes the text of a turn in a way that is no rule");
}

static int find_rules(inference *f) {
    arena a = {NULL, 0, 0, 0};
    sample *samples = arena_array(&a, MAX_SAMPLES, sizeof *samples);
    int code = samples ? 0 : give_up(f, "there is no memory");
    for (int role = TFM_CHAT_SYSTEM; role < ROLES && !code; role++) {
        const int n = sample_role(f, role, samples, &a);
        code = find_rules_of(f, role, samples, n);
        for (int place = 0; place < PLACES && !code; place++) /* marks live in the template, texts of probes do not */
            if (f->rules[role][place].cut && !f->rules[role][place].cut[0]) f->rules[role][place].cut = NULL;
    }
    arena_free(&a);
    return code;
}

/* ---- 3. WRITE -------------------------------------------------------------------------------------------------- */

typedef struct section_writer {
    arena *a;
    uint32_t joins[MAX_JOINS][4], parts[8 * MAX_JOINS][3], rules[MAX_RULES][4], variables[CHAT_MAX_VARIABLES][2],
        ends[8];
    uint32_t n_joins, n_parts, n_rules, n_variables, n_ends, flags, date;
    char *strings;
    size_t n_strings, room;
    int full;
} section_writer;

/* Where n bytes (and a zero) stand among the strings; those that are there already are used again. */
static uint32_t put_string(section_writer *w, const char *text, size_t n) {
    for (size_t i = 0; n + 1 <= w->n_strings && i <= w->n_strings - n - 1; i++)
        if (!memcmp(w->strings + i, text, n) && !w->strings[i + n]) return (uint32_t)i;
    if (w->n_strings + n + 1 > w->room) {
        const size_t room = 2 * (w->n_strings + n) + 1024;
        char *more = arena_alloc(w->a, room);
        if (!more) { w->full = 1; return 0; }
        if (w->n_strings) memcpy(more, w->strings, w->n_strings);
        w->strings = more;
        w->room = room;
    }
    memcpy(w->strings + w->n_strings, text, n);
    w->strings[w->n_strings + n] = 0;
    w->n_strings += n + 1;
    return (uint32_t)(w->n_strings - n - 1);
}

static void put_part(section_writer *w, uint32_t kind, const char *text, size_t n) {
    if (kind == TFM_CHAT_TEXT && !n) return;
    if (w->n_parts == 8 * MAX_JOINS) { w->full = 1; return; }
    uint32_t *p = w->parts[w->n_parts++];
    p[0] = kind;
    p[1] = n ? put_string(w, text, n) : 0;
    p[2] = (uint32_t)n;
}

/* A join's text as parts: what stands between the markers, and what the markers stand for. */
static void put_parts(section_writer *w, const char *text) {
    for (;;) {
        const char *system = strstr(text, system_marker), *date = strstr(text, date_marker);
        const char *at = !system || (date && date < system) ? date : system;
        if (!at) break;
        put_part(w, TFM_CHAT_TEXT, text, (size_t)(at - text));
        put_part(w, at == system ? TFM_CHAT_SYSTEM_TEXT : TFM_CHAT_DATE_TEXT, "", 0);
        text = at + (at == system ? sizeof system_marker : sizeof date_marker) - 1;
    }
    put_part(w, TFM_CHAT_TEXT, text, strlen(text));
}

/* Whether the joins at two places with one value under the mask are always equal. A place that was not seen with or
 * without system text or prompt was refused: there the bit counts. */
static int mask_holds(const char *const *joins, int mask) {
    for (int p = 0; p < PLACES; p++) {
        const int strict = (TFM_CHAT_HAS_SYSTEM | TFM_CHAT_HAS_PROMPT) & ~mask;
        for (int bit = 1; bit < PLACES; bit *= 2)
            if (strict & bit && joins[p] && !joins[p ^ bit]) return 0;
        for (int q = 0; q < p; q++)
            if ((p & mask) == (q & mask) && joins[p] && joins[q] && strcmp(joins[p], joins[q])) return 0;
    }
    return 1;
}

static void put_joins(section_writer *w, const inference *f, int from, int to) {
    const char *const *joins = f->joins[from][to];
    int mask = PLACES - 1, done = 0;
    for (int bit = PLACES / 2; bit; bit /= 2) if (mask_holds(joins, mask & ~bit)) mask &= ~bit;
    for (int p = 0; p < PLACES; p++) {
        const int value = p & mask;
        if (!joins[p] || done >> value & 1) continue;
        done |= 1 << value;
        if (w->n_joins == MAX_JOINS) { w->full = 1; return; }
        uint32_t *row = w->joins[w->n_joins++];
        row[0] = (uint32_t)(from | to << 8 | mask << 16 | value << 24);
        row[1] = w->n_parts;
        put_parts(w, joins[p]);
        row[2] = w->n_parts - row[1];
    }
}

static void put_rules(section_writer *w, const inference *f, int role) {
    const int mask = f->rule_mask[role];
    for (int place = 0; place < PLACES; place++) {
        const rule *r = &f->rules[role][place];
        if ((place & mask) != place || (!r->what && !r->cut)) continue;
        if (w->n_rules == MAX_RULES) { w->full = 1; return; }
        uint32_t *row = w->rules[w->n_rules++];
        row[0] = (uint32_t)(role | mask << 8 | place << 16);
        row[1] = (uint32_t)r->what;
        row[2] = r->cut ? put_string(w, r->cut, strlen(r->cut)) : 0;
        row[3] = r->cut ? (uint32_t)strlen(r->cut) : 0;
    }
}

static void put_words(unsigned char *p, const uint32_t *words, size_t n) {
    for (size_t i = 0; i < n; i++, p += 4)
        for (int k = 0; k < 4; k++) p[k] = (unsigned char)(words[i] >> (8 * k));
}

/* The tables one behind the other. */
static int write_section(section_writer *w, const chat_source *src, chat_section *out, tfm_error *err) {
    const struct { const uint32_t *words; uint32_t n, entry; } tables[] = {
        {w->joins[0], w->n_joins, 4}, {w->parts[0], w->n_parts, 3}, {w->rules[0], w->n_rules, 4},
        {w->ends, w->n_ends, 1}, {w->variables[0], w->n_variables, 2}};
    const char *const bytes[] = {src->text, w->strings};
    const size_t sizes[] = {src->n, w->n_strings};
    uint32_t head[TFM_CHAT_TABLES + 2 * TFM_CHAT_N_TABLES];
    size_t at = sizeof head;
    memset(head, 0, sizeof head);
    for (size_t i = 0; i < TFM_CHAT_N_TABLES; i++) {
        const size_t n = i < 5 ? tables[i].n : sizes[i - 5];
        head[TFM_CHAT_TABLES + 2 * i] = (uint32_t)at;
        head[TFM_CHAT_TABLES + 2 * i + 1] = (uint32_t)n;
        at += i < 5 ? 4 * n * tables[i].entry : (n + 3) & ~(size_t)3;
    }
    head[TFM_CHAT_FORM] = 1;
    head[TFM_CHAT_SIZE] = (uint32_t)at;
    head[TFM_CHAT_FLAGS] = w->flags;
    head[TFM_CHAT_DATE] = w->date;
    out->size = at;
    out->bytes = arena_alloc(w->a, at);
    if (!out->bytes || w->full)
        return tool_fail(err, TFM_ERR_MEMORY, "%s: the chat format does not fit its tables", src->file);
    put_words(out->bytes, head, sizeof head / 4);
    for (size_t i = 0; i < TFM_CHAT_N_TABLES; i++) {
        unsigned char *p = out->bytes + head[TFM_CHAT_TABLES + 2 * i];
        if (i < 5) put_words(p, tables[i].words, (size_t)tables[i].n * tables[i].entry);
        else if (sizes[i - 5]) memcpy(p, bytes[i - 5], sizes[i - 5]);
    }
    return TFM_OK;
}

static void put_variables(section_writer *w, const chat_source *src) {
    for (size_t i = 0; i < src->n_variables; i++, w->n_variables++) {
        w->variables[w->n_variables][0] = put_string(w, src->variables[i].name, strlen(src->variables[i].name));
        w->variables[w->n_variables][1] = put_string(w, src->variables[i].value, strlen(src->variables[i].value));
    }
}

/* The ids that end an answer: control tokens with which the text behind one begins. */
static void put_ends(section_writer *w, const inference *f, const tfm_tokenizer *t, arena *a) {
    for (int to = 0; to < ROLES && t; to++) {
        for (int place = 0; place < PLACES; place++) {
            const char *text = f->joins[TFM_CHAT_ASSISTANT][to][place];
            const size_t n = text ? strlen(text) : 0;
            int32_t ids[8];
            int64_t count = 0, i = 0;
            size_t length;
            if (!n || n > 4096) continue;
            void *scratch = arena_alloc(a, tfm_encode_size(t, n));
            if (!scratch) return;
            tfm_encode(t, text, n, TFM_ENCODE_NO_SPECIAL | TFM_ENCODE_PARSE_SPECIAL, ids, 8, &count, scratch,
                       tfm_encode_size(t, n), NULL);
            for (; i < count && i < 2 && !(tfm_token_flags(t, ids[i]) & TFM_TOKEN_SPECIAL); i++) {
                const char *piece = tfm_token_piece(t, ids[i], &length);
                if (!piece || strspn(piece, " \n") < length) break;
            }
            if (i >= count || i >= 8 || !(tfm_token_flags(t, ids[i]) & TFM_TOKEN_SPECIAL) || w->n_ends == 8) continue;
            uint32_t k = 0;
            while (k < w->n_ends && w->ends[k] != (uint32_t)ids[i]) k++;
            if (k == w->n_ends) w->ends[w->n_ends++] = (uint32_t)ids[i];
        }
    }
}

static int write_known(inference *f, const tfm_tokenizer *tokenizer, int no_empty, chat_section *out, tfm_error *err) {
    section_writer *w = arena_alloc(f->a, sizeof *w);
    if (!w) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    w->a = f->a;
    w->flags = (uint32_t)(TFM_CHAT_KNOWN | (no_empty ? TFM_CHAT_NO_EMPTY : 0));
    put_variables(w, f->source);
    for (int from = 0; from < ROLES; from++)
        for (int to = 0; to < ROLES; to++) put_joins(w, f, from, to);
    for (int role = TFM_CHAT_SYSTEM; role < ROLES; role++) put_rules(w, f, role);
    if (f->date_format) w->date = 1 + put_string(w, f->date_format, strlen(f->date_format));
    put_ends(w, f, tokenizer, f->a);
    return write_section(w, f->source, out, err);
}

/* ---- 4. CHECK -------------------------------------------------------------------------------------------------- */

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

/* Texts as people and models write them, and as nobody should. */
static const char *random_text(const inference *f, arena *a, uint32_t *state, int empty) {
    static const char *const texts[] = {
        "Hello", "What is 2+2?", " leading", "trailing ", "\n\nlines\n", "na\xC3\xAFve \xF0\x9F\xA6\x99",
        "{{ x }} {% if %}", "a\\nb \"q\" 'r'", "\xE3\x80\x80wide\xC2\xA0", "<think>\nhm\n</think>\n\nanswer", "1",
        "<b>&amp;</b>", "</think>only the end", "system", "a\n\n\nb", "[INST] <<SYS>>\n<</SYS>>\n\n [/INST]", "\t",
        "false", "{}", "0", "None"};
    const uint32_t k = next_random(state) % 26;
    if (k < 21) return texts[k];
    if (k == 21 && empty) return "";
    if (k == 22 && empty) return " \n";
    const char *mark = jinja_split_literal(f->t, k % 3), *text = mark ? arena_printf(a, "x%s\n\ny", mark) : NULL;
    return text ? text : "plain text";
}

static int random_shape(enum scope scope, uint32_t *state, shape *s) {
    memset(s, 0, sizeof *s);
    s->system = next_random(state) % 2 != 0;
    s->prompt = scope == SCOPE_PROMPTED || next_random(state) % 3;
    s->n = 1 + (int)(next_random(state) % MAX_TURNS);
    if (scope == SCOPE_PROMPTED && s->n % 2 == 0) s->n--;
    for (int i = 0; i < s->n; i++)
        s->roles[i] = scope == SCOPE_ANY && next_random(state) % 4 == 0 ? TFM_CHAT_USER + (int)(next_random(state) % 2)
                      : i % 2 ? TFM_CHAT_ASSISTANT : TFM_CHAT_USER;
    return s->n;
}

/* The section against the template on one conversation. 0: they agree. What data refuse is interpreted instead. */
enum { REFUSED_ALONE = 1, WRITTEN_OTHERWISE };
static int differs(inference *f, const tfm_chat *c, const shape *s, const char *system, const char *const *texts,
                   arena *a) {
    tfm_turn turns[MAX_TURNS + 1];
    size_t n = 0, need = 0, count = 0;
    const char *want = render(f, s, system, texts, &n);
    if (s->system) {
        turns[count].role = TFM_CHAT_SYSTEM;
        turns[count].text = system;
        turns[count++].n = strlen(system);
    }
    for (int i = 0; i < s->n; i++, count++) {
        turns[count].role = s->roles[i];
        turns[count].text = texts[i];
        turns[count].n = strlen(texts[i]);
    }
    char *got = arena_text(a, 2 * n + 4096);
    if (!got) return WRITTEN_OTHERWISE;
    const int code = tfm_chat_render(c, turns, (int64_t)count, s->prompt ? TFM_CHAT_PROMPT : 0, date_marker, got, NULL,
                                     2 * n + 4096, &need, NULL);
    if (code == TFM_ERR_MEMORY) return WRITTEN_OTHERWISE;
    if (code) return want ? REFUSED_ALONE : 0;
    return !want || need != n || memcmp(got, want, n) ? WRITTEN_OTHERWISE : 0;
}

static int check_section(inference *f, const chat_section *section, int empty) {
    uint64_t object[32];
    const tfm_chat *c;
    uint32_t state = 1;
    int bad = tfm_chat_size() > sizeof object ||
              tfm_chat_open(section->bytes, section->size, object, sizeof object, &c, NULL) != 0;
    for (int i = 0; i < CHECKS && !bad; i++) {
        const char *texts[MAX_TURNS];
        arena a = {NULL, 0, 0, 0};
        shape s;
        random_shape(f->scope, &state, &s);
        const char *system = random_text(f, &a, &state, empty);
        for (int k = 0; k < MAX_TURNS; k++) texts[k] = random_text(f, &a, &state, empty);
        bad = differs(f, c, &s, system, texts, &a);
        if (empty == 0 && bad) { /* a turn that is empty once its rule has worked is refused, and may be */
            for (int k = 0; k < s.n; k++) if (strspn(texts[k], " \t\n") == strlen(texts[k])) bad = 0;
            if (s.system && strspn(system, " \t\n") == strlen(system)) bad = 0;
        }
        arena_free(&a);
    }
    return bad;
}

/* Whether data write a text that the template does not, for a conversation with the text in one of its turns. */
static int miswrites(inference *f, const tfm_chat *c, int n, int turn, const char *text, arena *a) {
    const shape s = {{TFM_CHAT_USER, TFM_CHAT_ASSISTANT, TFM_CHAT_USER}, n, turn < 0, 1};
    const char *texts[MAX_TURNS];
    memcpy(texts, turn_markers, sizeof texts);
    if (turn >= 0) texts[turn] = text;
    return differs(f, c, &s, turn < 0 ? text : system_marker, texts, a) == WRITTEN_OTHERWISE;
}

static int check_literals(inference *f, const chat_section *section) {
    uint64_t object[32];
    const tfm_chat *c;
    const char *literal;
    int bad = tfm_chat_open(section->bytes, section->size, object, sizeof object, &c, NULL) != 0;
    for (size_t i = 0; !bad && (literal = jinja_any_literal(f->t, i)) != NULL; i++) {
        for (int k = 0; k < 4 * 6 && !bad; k++) { /* the system's text and a single turn, the same and three of three */
            arena a = {NULL, 0, 0, 0};
            const int three = k % 6 > 1, turn = k % 6 - (three ? 3 : 1);
            const char *text = arena_printf(&a, "%s%s%s", k / 6 & 1 ? "qX" : "", literal, k / 6 & 2 ? "Yq" : "");
            bad = !text || miswrites(f, c, three ? 3 : 1, turn, text, &a);
            arena_free(&a);
        }
    }
    return bad;
}

/* One attempt: TFM_OK and out->known, or out->known = 0 and the reason. */
static int attempt(inference *f, const tfm_tokenizer *tokenizer, chat_section *out, tfm_error *err) {
    out->known = 0;
    if (look(f) || find_rules(f)) return TFM_OK;
    for (int no_empty = 0; no_empty < 2; no_empty++) {
        int code = write_known(f, tokenizer, no_empty, out, err);
        if (code) return code;
        out->known = !check_section(f, out, !no_empty) && !check_literals(f, out);
        if (out->known) return TFM_OK;
    }
    f->reason = "what it does to some texts or turns is no table";
    return TFM_OK;
}

/* The text alone. */
static int write_text(arena *a, const chat_source *src, chat_section *out, tfm_error *err) {
    section_writer *w = arena_alloc(a, sizeof *w);
    if (!w) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    w->a = a;
    put_variables(w, src);
    return write_section(w, src, out, err);
}

int chat_build(arena *a, const chat_source *src, const tfm_tokenizer *tokenizer, chat_section *out, tfm_error *err) {
    const unsigned long refusals = memory_refusals();
    arena scratch = {NULL, 0, 0, 0};
    inference *f = arena_alloc(a, sizeof *f);
    tfm_error why;
    int code = TFM_OK;
    memset(out, 0, sizeof *out);
    if (!f) return tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    f->a = a;
    f->scratch = &scratch;
    f->source = src;
    f->options.fixed_date = date_marker;
    f->options.date_format = &f->date_asked;
    f->options.max_steps = PROBE_STEPS;
    f->t = jinja_parse(src->file, src->text, src->n, a, &why);
    for (int scope = SCOPE_ANY; f->t && scope < SCOPES && !code && !out->known; scope++) {
        f->scope = (enum scope)scope;
        f->date_format = NULL;
        code = attempt(f, tokenizer, out, err);
    }
    if (!code && memory_refusals() != refusals) /* and nothing that was concluded from failures holds */
        code = tool_fail(err, TFM_ERR_MEMORY, "%s: out of memory", src->file);
    if (!code && !out->known) {
        code = write_text(a, src, out, err);
        if (f->t)
            out->notice = arena_printf(a, "%s: the chat template is kept as text, not as data: %s", src->file,
                                       f->reason);
        else
            out->notice = arena_printf(a, "the chat template cannot be used: %s", why.msg);
        if (!out->notice) code = tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    }
    arena_free(&scratch);
    return code;
}
