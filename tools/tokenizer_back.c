/* tokenizer_back.c - tables of the tokenizer section become lists of names, types, scores and merges again.
 *
 * Expressions are stored compiled, and GGUF knows pre-tokenizers by name alone: the names are tried, and the one is
 * taken under which a text and the vocabulary's own pieces come out as the same ids. Scores are stored as ranks, so
 * they come out as ranks: their order is all that a vocabulary of scores uses.
 */
#include "tokenizer_back.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer_build.h"

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_USER_DEFINED = 4, TYPE_UNUSED = 5, TYPE_BYTE = 6 };

typedef struct merge { uint32_t left, right, rank, result; } merge;

typedef struct token_name {
    const char *text;
    size_t length;
    int type;
} token_name;

typedef struct teller {
    const char *file;
    const tfm_tokenizer *t;
    const unsigned char *section;
    const tfm_config *config;
    int64_t n_rows;
    token_name *names;         /* [n_rows] */
    merge *merges;             /* by rank */
    size_t n_merges;
    arena *a;
    tfm_error *err;
    size_t n_named, n_paired; /* bytes of pieces, and of merges written out: forged tables may share the same bytes */
} teller;

/* ---- THE SECTION ----------------------------------------------------------------------------------------------- */

static uint32_t word(const teller *b, uint32_t i) { return load_u32(b->section + 4 * (size_t)i); }

static uint32_t count_of(const teller *b, int table) { return word(b, TFM_TOK_TABLES + 2 * (uint32_t)table + 1); }

static const unsigned char *table_of(const teller *b, int table) {
    return b->section + word(b, TFM_TOK_TABLES + 2 * (uint32_t)table);
}

static int has_flag(const teller *b, uint32_t flag) { return (word(b, TFM_TOK_FLAGS) & flag) != 0; }

static int fail(const teller *b, const char *what) {
    return tool_fail(b->err, TFM_ERR_UNSUPPORTED, "%s: tokenizer: %s", b->file, what);
}

static int out_of_memory(const teller *b) { return tool_fail(b->err, TFM_ERR_MEMORY, "%s: out of memory", b->file); }

/* ---- NAMES ----------------------------------------------------------------------------------------------------- */

/* Texts of added tokens stand in tries alone: every path that ends is one. */
typedef struct trie_walk {
    teller *b;
    int trie;
    uint32_t n_nodes; /* that were met; each has one parent */
    char text[1024];
} trie_walk;

static int name_added(trie_walk *w, uint32_t entry, size_t length) {
    teller *b = w->b;
    if (entry >= count_of(b, TFM_TOK_ADDED)) return TFM_OK;
    const unsigned char *added = table_of(b, TFM_TOK_ADDED) + 8 * (size_t)entry;
    const uint32_t id = load_u32(added), flags = load_u32(added + 4);
    if (id >= b->n_rows) return TFM_OK;
    token_name *n = &b->names[id];
    n->text = arena_strndup(b->a, w->text, length);
    n->length = length;
    n->type = flags & TFM_TOK_CONTROL ? TYPE_CONTROL : TYPE_USER_DEFINED;
    return n->text ? TFM_OK : out_of_memory(b);
}

/* A node's children are the nodes from its first child to that of the next node. Depth is bounded by the text. */
static int walk_node(trie_walk *w, uint32_t node, size_t depth) {
    const unsigned char *nodes = table_of(w->b, w->trie);
    const uint32_t n = count_of(w->b, w->trie);
    if (node + 1 >= n || depth + 1 >= sizeof w->text) return TFM_OK;
    if (++w->n_nodes > n) return fail(w->b, "the tries of its added tokens are damaged");
    const uint32_t head = load_u32(nodes + 8 * (size_t)node), ends = load_u32(nodes + 8 * (size_t)node + 4);
    const uint32_t first = head & 0xffffff, last = load_u32(nodes + 8 * (size_t)(node + 1)) & 0xffffff;
    w->text[depth] = (char)(head >> 24);
    int code = ends ? name_added(w, ends - 1, depth + 1) : TFM_OK;
    for (uint32_t child = first; !code && child < last && child > node; child++) code = walk_node(w, child, depth + 1);
    return code;
}

static int name_all_added(teller *b) {
    static const int roots[2] = {TFM_TOK_ROOT_RAW, TFM_TOK_ROOT_NORM}, tries[2] = {TFM_TOK_TRIE_RAW, TFM_TOK_TRIE_NORM};
    int code = TFM_OK;
    for (int k = 0; k < 2; k++) {
        trie_walk w = {b, tries[k], 0, {0}};
        for (uint32_t byte = 0; !code && byte < count_of(b, roots[k]); byte++) {
            const uint32_t node = load_u32(table_of(b, roots[k]) + 4 * (size_t)byte);
            if (node) code = walk_node(&w, node, 0);
        }
    }
    return code;
}

/* Bytes as the characters that stand for them in byte-level vocabularies. */
static const char *to_byte_level(teller *b, const char *text, size_t n, size_t *length) {
    char *out = arena_text(b->a, 2 * n + 1);
    *length = 0;
    for (size_t i = 0; out && i < n; i++) {
        const uint32_t c = tok_byte_character((unsigned char)text[i]);
        if (c < 0x80) {
            out[(*length)++] = (char)c;
        } else {
            out[(*length)++] = (char)(0xc0 | c >> 6);
            out[(*length)++] = (char)(0x80 | (c & 0x3f));
        }
    }
    return out;
}

static const char *mark_spaces(teller *b, const char *text, size_t n, size_t *length) {
    char *out = arena_text(b->a, 3 * n + 1);
    *length = 0;
    for (size_t i = 0; out && i < n; i++) {
        if (text[i] != ' ') {
            out[(*length)++] = text[i];
            continue;
        }
        memcpy(out + *length, TOK_SPACE_MARK, 3);
        *length += 3;
    }
    return out;
}

static int name_piece(teller *b, int32_t id) {
    token_name *name = &b->names[id];
    const int flags = (uint32_t)id < count_of(b, TFM_TOK_PIECE_FLAGS) ? table_of(b, TFM_TOK_PIECE_FLAGS)[id] : 0;
    size_t n = 0;
    const char *text = tfm_token_piece(b->t, id, &n);
    if (name->text) return TFM_OK; /* an added token */
    if ((b->n_named += n) > (size_t)count_of(b, TFM_TOK_BYTES) + count_of(b, TFM_TOK_TEXT_BYTES))
        return fail(b, "its pieces overlap");
    name->type = TYPE_NORMAL;
    if (!text || !n || !(flags & TFM_TOKEN_PRESENT)) {
        name->text = arena_printf(b->a, "[PAD%d]", (int)id);
        name->length = name->text ? strlen(name->text) : 0;
        name->type = TYPE_UNUSED;
    } else if (flags & TFM_TOKEN_BYTE && !has_flag(b, TFM_TOK_BYTE_LEVEL)) {
        name->text = arena_printf(b->a, "<0x%02X>", (unsigned)(unsigned char)*text);
        name->length = 6;
        name->type = TYPE_BYTE;
    } else if (has_flag(b, TFM_TOK_BYTE_LEVEL) && tfm_token_find(b->t, text, n) == id) {
        name->text = to_byte_level(b, text, n, &name->length);
    } else if (!has_flag(b, TFM_TOK_BYTE_LEVEL) && !(flags & TFM_TOK_PIECE_LITERAL)) {
        name->text = mark_spaces(b, text, n, &name->length);
    } else { /* no text leads to it: its name is all that is known */
        name->text = text;
        name->length = n;
    }
    if (id == (int32_t)word(b, TFM_TOK_UNK)) name->type = TYPE_UNKNOWN;
    return name->text ? TFM_OK : out_of_memory(b);
}

/* ---- MERGES ---------------------------------------------------------------------------------------------------- */

static int by_rank(const void *a, const void *b) {
    const merge *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return x->left != y->left ? (x->left < y->left ? -1 : 1) : x->right < y->right ? -1 : x->right > y->right;
}

static int read_merges(teller *b) {
    const uint32_t n = count_of(b, TFM_TOK_MERGES);
    b->merges = arena_array(b->a, (size_t)n + 1, sizeof *b->merges);
    if (!b->merges) return out_of_memory(b);
    for (uint32_t i = 0; i < n; i++) {
        const unsigned char *p = table_of(b, TFM_TOK_MERGES) + 16 * (size_t)i;
        const merge m = {load_u32(p), load_u32(p + 4), load_u32(p + 8), load_u32(p + 12)};
        if (m.left < b->n_rows && m.right < b->n_rows && m.result < b->n_rows) b->merges[b->n_merges++] = m;
    }
    qsort(b->merges, b->n_merges, sizeof *b->merges, by_rank);
    return TFM_OK;
}

static int put_merges(teller *b, gguf_out *g) {
    enum { MOST = 1 << 28 };
    b->n_paired = 0;
    gguf_put_array(g, "tokenizer.ggml.merges", GGUF_STRING, b->n_merges);
    for (size_t i = 0; i < b->n_merges; i++) {
        const token_name *l = &b->names[b->merges[i].left], *r = &b->names[b->merges[i].right];
        if ((b->n_paired += l->length + r->length) > MOST) return fail(b, "its merges are too long");
        char *pair = arena_text(b->a, l->length + r->length + 1);
        if (!pair) return out_of_memory(b);
        memcpy(pair, l->text, l->length);
        pair[l->length] = ' ';
        memcpy(pair + l->length + 1, r->text, r->length);
        gguf_add_text(g, pair, l->length + r->length + 1);
    }
    return TFM_OK;
}

/* A piece's score is the best rank of the merges that make it, the other way up. */
static int put_scores(teller *b, gguf_out *g) {
    float *scores = arena_array(b->a, (size_t)b->n_rows, sizeof *scores);
    if (!scores) return out_of_memory(b);
    for (size_t i = b->n_merges; i-- > 0;) scores[b->merges[i].result] = -(float)b->merges[i].rank;
    gguf_put_array(g, "tokenizer.ggml.scores", GGUF_F32, (uint64_t)b->n_rows);
    for (int64_t i = 0; i < b->n_rows; i++) gguf_add_f32(g, scores[i]);
    return TFM_OK;
}

/* ---- METADATA -------------------------------------------------------------------------------------------------- */

static int has_id(const teller *b, int table, int64_t id) {
    for (uint32_t i = 0; i < count_of(b, table); i++)
        if (load_u32(table_of(b, table) + 4 * (size_t)i) == (uint64_t)id) return 1;
    return 0;
}

int tokenizer_put_ids(gguf_out *g, const char *file, const tfm_config *c, tfm_error *err) {
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    const int n_ends = (int)(sizeof ends / sizeof *ends);
    if (c->n_eos > n_ends)
        return tool_fail(err, TFM_ERR_UNSUPPORTED, "%s: eos: %d ids, and GGUF can say %d", file, (int)c->n_eos, n_ends);
    if (c->bos >= 0) gguf_put_u32(g, "tokenizer.ggml.bos_token_id", (uint32_t)c->bos);
    for (int i = 0; i < c->n_eos; i++) gguf_put_u32(g, ends[i], (uint32_t)c->eos[i]);
    return TFM_OK;
}

/* What the ids around a text say; only one beginning and one end can be said. */
static int put_surroundings(teller *b, gguf_out *g) {
    const int64_t bos = b->config->bos, eos = b->config->n_eos ? b->config->eos[0] : -1;
    const uint32_t n_prefix = count_of(b, TFM_TOK_PREFIX), n_suffix = count_of(b, TFM_TOK_SUFFIX);
    if (n_prefix > 1 || (n_prefix && !has_id(b, TFM_TOK_PREFIX, bos)))
        return fail(b, "what stands before every text is not the one bos token that GGUF can say");
    if (n_suffix > 1 || (n_suffix && !has_id(b, TFM_TOK_SUFFIX, eos)))
        return fail(b, "what stands after every text is not the one eos token that GGUF can say");
    if (word(b, TFM_TOK_UNK) < (uint64_t)b->n_rows)
        gguf_put_u32(g, "tokenizer.ggml.unknown_token_id", word(b, TFM_TOK_UNK));
    gguf_put_bool(g, "tokenizer.ggml.add_bos_token", n_prefix != 0);
    gguf_put_bool(g, "tokenizer.ggml.add_eos_token", n_suffix != 0);
    return TFM_OK;
}

static int has_prepend(const teller *b) {
    for (uint32_t i = 0; i < count_of(b, TFM_TOK_OPS); i++)
        if (load_u32(table_of(b, TFM_TOK_OPS) + 24 * (size_t)i) == TFM_TOK_PREPEND) return 1;
    return 0;
}

static int put_all(teller *b, gguf_out *g, const char *pre) {
    const int byte_level = has_flag(b, TFM_TOK_BYTE_LEVEL);
    gguf_put_text(g, "tokenizer.ggml.model", byte_level ? "gpt2" : "llama");
    if (pre) gguf_put_text(g, "tokenizer.ggml.pre", pre);
    gguf_put_array(g, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)b->n_rows);
    for (int64_t i = 0; i < b->n_rows; i++) gguf_add_text(g, b->names[i].text, b->names[i].length);
    gguf_put_array(g, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)b->n_rows);
    for (int64_t i = 0; i < b->n_rows; i++) gguf_add_u32(g, (uint32_t)b->names[i].type);
    if (!byte_level) gguf_put_bool(g, "tokenizer.ggml.add_space_prefix", has_prepend(b));
    const int code = byte_level ? put_merges(b, g) : put_scores(b, g);
    return code ? code : put_surroundings(b, g);
}

/* ---- THE SAME IDS ---------------------------------------------------------------------------------------------- */

static const char probe_text[] =
    "The quick brown fox jumps over the lazy dog. I'm, you're, WE'VE, he'll  it's DON'T\n\n\n 3.14159 1234567890 12 "
    "345\t\ttabs   spaces    \r\n x = foo_bar[i++] + (a->b) * 0x1F; // \"quoted\" 'single' `tick` @#$%^&*()\n"
    "\xC3\x84rger \xC3\x9C" "bung na\xC3\xAFve caf\xC3\xA9 \xE4\xBD\xA0\xE5\xA5\xBD\xE4\xB8\x96\xE7\x95\x8C "
    "\xE3\x81\x93\xE3\x82\x93\xE3\x81\xAB\xE3\x81\xA1\xE3\x81\xAF \xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82 "
    "\xD9\x85\xD8\xB1\xD8\xAD\xD8\xA8\xD8\xA7 \xF0\x9F\x98\x80\xF0\x9F\x91\x8D \xE2\x82\xAC 100\xC2\xB2 \xE2\x80\x94"
    " a\xCC\x81 A/B\n/path/to Hello,World!!! \n \n  end ";

/* The text, and pieces of the vocabulary at even distances with what they meet in texts between them. */
static char *make_probe(teller *b, size_t *n) {
    enum { PIECES = 3000, ROOM = 1 << 17 };
    const int64_t step = b->n_rows / PIECES + 1;
    char *text = arena_text(b->a, ROOM);
    size_t used = sizeof probe_text - 1;
    if (!text) return NULL;
    memcpy(text, probe_text, used);
    for (int64_t id = 0; id < b->n_rows; id += step) {
        size_t length;
        const char *piece = tfm_token_piece(b->t, (int32_t)id, &length);
        if (!piece || length + 1 > ROOM - used) continue;
        memcpy(text + used, piece, length);
        used += length;
        if (id / step % 3 == 0) text[used++] = id / step % 2 ? ' ' : '\n';
    }
    *n = used;
    return text;
}

/* The ids of a text, in the arena; NULL after an error. */
static int32_t *encode(const tfm_tokenizer *t, const char *text, size_t n, arena *a, int64_t *n_ids, tfm_error *err) {
    const int64_t most = tfm_encode_max(t, n);
    const size_t size = tfm_encode_size(t, n);
    arena mem = {NULL, 0, 0, 0};
    void *work = arena_alloc(&mem, size);
    int32_t *ids = most > 0 ? arena_array(a, (size_t)most, sizeof *ids) : NULL;
    if (!work || !ids) tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    else if (tfm_encode(t, text, n, 0, ids, most, n_ids, work, size, err)) ids = NULL;
    arena_free(&mem);
    return work ? ids : NULL;
}

/* Whether two sections compile their expressions to the same. */
static int same_expressions(const teller *x, const teller *y) {
    static const struct { int table; size_t bytes; } tables[] = {
        {TFM_TOK_OPS, 24}, {TFM_TOK_CODE, 8}, {TFM_TOK_CLASSES, 32}, {TFM_TOK_RANGES, 8}};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        const int table = tables[i].table;
        if (count_of(x, table) != count_of(y, table)) return 0;
        if (memcmp(table_of(x, table), table_of(y, table), count_of(x, table) * tables[i].bytes)) return 0;
    }
    return 1;
}

/* Whether the metadata, read back, give the tokenizer's ids; 2: by the same expressions. Negative: no memory. */
static int same_ids(teller *b, const gguf_out *g, const char *text, size_t n, const int32_t *want, int64_t n_want) {
    arena mem = {NULL, 0, 0, 0};
    size_t n_head;
    const unsigned char *head = gguf_out_head(g, &mem, &n_head);
    tok_section section;
    gguf back;
    const int32_t *ids = NULL;
    int64_t count = -1;
    const tfm_tokenizer *t = NULL;
    void *object = arena_alloc(&mem, tfm_tokenizer_size());
    int code = head && object ? TFM_OK : TFM_ERR_MEMORY;
    const source src = source_memory(b->file, head, code ? 0 : n_head);
    memset(&section, 0, sizeof section);
    if (!code) code = gguf_open(&back, &src, &mem, NULL);
    if (!code) code = tokenizer_from_gguf(&mem, &back, b->n_rows, &section, NULL);
    if (!code) code = tfm_tokenizer_open(section.bytes, section.size, object, tfm_tokenizer_size(), &t, NULL);
    if (!code) ids = encode(t, text, n, &mem, &count, NULL);
    int same = ids && count == n_want && !memcmp(ids, want, (size_t)n_want * sizeof *want);
    const teller other = {b->file, t, section.bytes, b->config, b->n_rows, NULL, NULL, 0, &mem, NULL, 0, 0};
    if (same && same_expressions(b, &other)) same = 2;
    arena_free(&mem);
    return code == TFM_ERR_MEMORY ? code : same;
}

/* The first of the names of the i-th pre-tokenizer; NULL: there is none. */
static const char *first_name(int i, char *buf, size_t size) {
    const char *names = tokenizer_pre_names(i);
    if (!names) return NULL;
    snprintf(buf, size, "%.*s", (int)strcspn(names + 1, " "), names + 1);
    return buf;
}

/* How well the metadata under a name say the tokenizer: 0, or what same_ids gives. */
static int try_name(teller *b, const char *pre, const char *text, size_t n, const int32_t *want, int64_t n_want,
                    int *same) {
    gguf_out trial;
    memset(&trial, 0, sizeof trial);
    int code = tokenizer_put_ids(&trial, b->file, b->config, b->err);
    if (!code) code = put_all(b, &trial, pre);
    *same = code ? 0 : same_ids(b, &trial, text, n, want, n_want);
    gguf_out_free(&trial);
    return *same < 0 ? out_of_memory(b) : code;
}

/* The metadata under the name of a pre-tokenizer that has the same expressions, else one that gives the same ids. */
static int put_tried(teller *b, gguf_out *g, const char **warning) {
    size_t n;
    int64_t n_want = 0;
    char name[64], best[64] = "default";
    const unsigned long refusals = memory_refusals();
    const char *text = make_probe(b, &n);
    if (!text) return out_of_memory(b);
    const int32_t *want = encode(b->t, text, n, b->a, &n_want, b->err);
    const int byte_level = has_flag(b, TFM_TOK_BYTE_LEVEL);
    int code = want ? TFM_OK : b->err->code, found = 0, same;
    if (!code && !byte_level) code = try_name(b, best, text, n, want, n_want, &found);
    for (int i = 0; !code && byte_level && found < 2 && first_name(i, name, sizeof name); i++) {
        code = try_name(b, name, text, n, want, n_want, &same);
        if (same <= found) continue;
        found = same;
        memcpy(best, name, sizeof best);
    }
    if (code) return code;
    if (memory_refusals() != refusals) return out_of_memory(b); /* and "not the same" meant nothing */
    if (!found && byte_level) return fail(b, "its pre-tokenizer or its merges are none that GGUF has a name for");
    if (!found) *warning = "the tokenizer's merges are no order of scores: some texts will be cut otherwise";
    return put_all(b, g, best);
}

int tokenizer_to_gguf(gguf_out *g, const char *file, const tfm_model *model, int64_t n_rows, arena *a,
                      const char **warning, tfm_error *err) {
    size_t n;
    const unsigned char *section = tfm_model_section(model, TFM_SECTION_TOKENIZER, &n);
    teller b = {file, tfm_model_tokenizer(model), section, tfm_model_config_of(model), n_rows, NULL, NULL, 0, a, err, 0,
                0};
    *warning = NULL;
    if (!section || !b.t) return TFM_OK;
    if (word(&b, TFM_TOK_MODEL) != TFM_TOK_BPE) return fail(&b, "its model is none that is written to GGUF (BPE is)");
    if (!has_flag(&b, TFM_TOK_BYTE_LEVEL) && !has_flag(&b, TFM_TOK_BYTE_FALLBACK))
        return fail(&b, "it is neither byte-level nor does it fall back to bytes");
    b.names = arena_array(a, (size_t)n_rows, sizeof *b.names);
    if (!b.names) return out_of_memory(&b);
    int code = name_all_added(&b);
    for (int64_t id = 0; !code && id < n_rows; id++) code = name_piece(&b, (int32_t)id);
    if (!code) code = read_merges(&b);
    return code ? code : put_tried(&b, g, warning);
}
