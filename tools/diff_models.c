/* diff_models.c - fields over the library's tables, tokenizers as bytes, tensors by identity. */
#include "diff_models.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor_figures.h"

typedef struct side {
    const char *path;
    tfm_model *model;
    const tfm_config *config;
    tfm_weight *weights;    /* by layer, role and expert */
    int64_t n;
} side;

typedef struct difference {
    side a, b;
    int json, n;            /* differences so far */
    int fields, tensors;    /* of them */
} difference;

/* ---- OPENING --------------------------------------------------------------------------------------------------- */

static int by_identity(const void *x, const void *y) {
    const tfm_weight *a = x, *b = y;
    if (a->stack != b->stack) return a->stack < b->stack ? -1 : 1;
    if (a->layer != b->layer) return a->layer < b->layer ? -1 : 1;
    if (a->role != b->role) return a->role < b->role ? -1 : 1;
    return a->expert < b->expert ? -1 : a->expert > b->expert;
}

static int open_side(side *s, const char *path) {
    tfm_error err;
    s->path = path;
    if (tfm_model_open(path, NULL, &s->model, &err))
        return strstr(err.msg, path) ? tool_error("%s", err.msg) : tool_error("%s: %s", path, err.msg);
    s->config = tfm_model_config_of(s->model);
    s->n = tfm_model_weight_count(s->model);
    s->weights = malloc((size_t)s->n * sizeof *s->weights + 1);
    if (!s->weights) return tool_error("%s: out of memory", path);
    for (int64_t i = 0; i < s->n; i++) tfm_model_weight(s->model, i, &s->weights[i]);
    qsort(s->weights, (size_t)s->n, sizeof *s->weights, by_identity);
    return 0;
}

static void close_side(side *s) {
    free(s->weights);
    tfm_model_close(s->model);
}

/* ---- THE DESCRIPTION ------------------------------------------------------------------------------------------- */

/* A field's value as text: a name, a number, a list. */
static const char *value_text(const void *base, const tfm_field *f, char *buf, size_t size) {
    const char *at = (const char *)base + f->offset, *name;
    int32_t whole;
    float real;
    size_t used = 0;
    memcpy(&whole, at, 4);
    memcpy(&real, at, 4);
    name = f->kind == 1 ? tfm_field_value_name(f->name, whole) : NULL;
    if (name) snprintf(buf, size, "%s", name);
    else if (f->kind == 2) snprintf(buf, size, "%.9g", (double)real);
    else if (f->kind == 1) snprintf(buf, size, "%d", (int)whole);
    for (uint32_t i = 0; f->kind == 3 && i < f->count && used < size; i++) {
        memcpy(&whole, at + 4 * i, 4);
        used += (size_t)snprintf(buf + used, size - used, "%s%d", i ? " " : "", (int)whole);
    }
    return buf;
}

/* The fields that differ between two structures; layers: "" or " of layer 3". */
static void diff_fields(difference *d, const void *a, const void *b, const tfm_field *fields, int n, int32_t layer) {
    char x[256], y[256], where[32] = "";
    if (layer >= 0) snprintf(where, sizeof where, "layer %d: ", (int)layer);
    for (int i = 0; i < n; i++) {
        const tfm_field *f = &fields[i];
        if (!memcmp((const char *)a + f->offset, (const char *)b + f->offset, 4 * (size_t)f->count)) continue;
        value_text(a, f, x, sizeof x);
        value_text(b, f, y, sizeof y);
        if (d->json)
            printf("%s\n  {\"layer\": %d, \"name\": \"%s\", \"a\": \"%s\", \"b\": \"%s\"}", d->fields ? "," : "",
                   (int)layer, f->name, x, y);
        else
            printf("%s%s%s%s is %s%s%s, and %s%s%s\n", where, ink(INK_BOLD), f->name, ink(INK_PLAIN),
                   ink(INK_RED), x, ink(INK_PLAIN), ink(INK_GREEN), y, ink(INK_PLAIN));
        d->fields++;
        d->n++;
    }
}

static const tfm_block *block_of(const tfm_config *c, int32_t layer) {
    return &c->blocks[c->layer_block ? c->layer_block[layer] : 0];
}

static void diff_descriptions(difference *d) {
    const tfm_config *a = d->a.config, *b = d->b.config;
    int n;
    const tfm_field *fields = tfm_config_fields(&n);
    diff_fields(d, a, b, fields, n, -1);
    fields = tfm_block_fields(&n);
    for (int32_t i = 0; i < a->n_layers && i < b->n_layers; i++)
        diff_fields(d, block_of(a, i), block_of(b, i), fields, n, i);
}

/* ---- SECTIONS -------------------------------------------------------------------------------------------------- */

/* Whether a section of the two files is the same, both absent included. */
static int same_section(const difference *d, int32_t section) {
    size_t n, m;
    const void *a = tfm_model_section(d->a.model, section, &n), *b = tfm_model_section(d->b.model, section, &m);
    return !a == !b && (!a || (n == m && !memcmp(a, b, n)));
}

/* Returns whether they are the same. */
static int diff_section(difference *d, int32_t section, const char *name) {
    const int same = same_section(d, section);
    d->n += !same;
    if (!same && !d->json) printf("the %s differs\n", name);
    return same;
}

/* ---- TENSORS --------------------------------------------------------------------------------------------------- */

static const char *name_of(const tfm_weight *w, char *buf, size_t size) {
    tfm_weight_name(w->stack, w->layer, w->role, w->expert, buf, size);
    return buf;
}

static void print_tensor(difference *d, const tfm_weight *w, const char *what) {
    char name[64];
    name_of(w, name, sizeof name);
    if (d->json) printf("%s\n  {\"name\": \"%s\", \"difference\": \"%s\"}", d->tensors ? "," : "", name, what);
    else printf("%s%-32s%s %s\n", ink(INK_BOLD), name, ink(INK_PLAIN), what);
    d->tensors++;
    d->n++;
}

/* The largest difference beside the size of what differs. */
static void print_values(difference *d, const tfm_weight *a, const tfm_weight *b, double largest, int64_t row) {
    const char *ta = tfm_type_get(a->t.type)->name, *tb = tfm_type_get(b->t.type)->name;
    char name[64], what[160], number[32];
    tensor_figures f;
    const double rms = tensor_measure(&a->t, &f) ? 0 : f.rms;
    name_of(a, name, sizeof name);
    snprintf(number, sizeof number, isinf(largest) ? "\"inf\"" : "%.6g", largest);
    snprintf(what, sizeof what, "largest difference %.4g in row %lld, rms %.4g", largest, (long long)row, rms);
    if (!d->json) {
        printf("%s%-32s%s %s%s%s%s%s\n", ink(INK_BOLD), name, ink(INK_PLAIN), ta, a->t.type != b->t.type ? " and " : "",
               a->t.type != b->t.type ? tb : "", largest > 0 ? ", " : ", the same values", largest > 0 ? what : "");
    } else {
        printf("%s\n  {\"name\": \"%s\", \"type_a\": \"%s\", \"type_b\": \"%s\", \"largest_difference\": %s, "
               "\"row\": %lld, \"rms\": %.6g}", d->tensors ? "," : "", name, ta, tb, number, (long long)row, rms);
    }
    d->tensors++;
    d->n++;
}

static int diff_tensor(difference *d, const tfm_weight *a, const tfm_weight *b) {
    char what[128];
    double largest;
    int64_t row;
    if (a->t.rows != b->t.rows || a->t.cols != b->t.cols) {
        snprintf(what, sizeof what, "%lld x %lld, and %lld x %lld", (long long)a->t.rows, (long long)a->t.cols,
                 (long long)b->t.rows, (long long)b->t.cols);
        print_tensor(d, a, what);
        return 0;
    }
    if (a->t.type == b->t.type && a->t.layout == b->t.layout &&
        !memcmp(a->t.data, b->t.data, tfm_tensor_bytes(a->t.type, a->t.layout, a->t.rows, a->t.cols)))
        return 0;
    if (tensor_compare(&a->t, &b->t, &largest, &row)) return tool_error("out of memory");
    if (largest > 0 || a->t.type != b->t.type) print_values(d, a, b, largest, row);
    return 0;
}

/* Both lists are in order: what is behind stands in one file alone. */
static int diff_tensors(difference *d) {
    int64_t i = 0, k = 0;
    int status = 0;
    while (!status && (i < d->a.n || k < d->b.n)) {
        const int order = i == d->a.n ? 1 : k == d->b.n ? -1 : by_identity(&d->a.weights[i], &d->b.weights[k]);
        if (order < 0) print_tensor(d, &d->a.weights[i++], "is in the first file alone");
        else if (order > 0) print_tensor(d, &d->b.weights[k++], "is in the second file alone");
        else status = diff_tensor(d, &d->a.weights[i++], &d->b.weights[k++]);
    }
    return status;
}

/* ---- ALL ------------------------------------------------------------------------------------------------------- */

/* "name": "text", with what JSON keeps for itself written as it asks. */
static void print_json_text(const char *name, const char *text) {
    printf("\"%s\": \"", name);
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c < ' ') printf("\\u%04x", c);
        else if (c == '"' || c == '\\') printf("\\%c", c);
        else putchar(c);
    }
    printf("\", ");
}

static int diff_all(difference *d) {
    if (d->json) {
        printf("{");
        print_json_text("a", d->a.path);
        print_json_text("b", d->b.path);
        printf("\"fields\": [");
    }
    diff_descriptions(d);
    if (d->json) printf("],\n");
    const int tokenizer = diff_section(d, TFM_SECTION_TOKENIZER, "tokenizer");
    const int chat = diff_section(d, TFM_SECTION_CHAT, "chat format");
    if (d->json)
        printf("\"same_tokenizer\": %s, \"same_chat\": %s, \"tensors\": [", tokenizer ? "true" : "false",
               chat ? "true" : "false");
    const int status = diff_tensors(d);
    if (d->json) printf("],\n\"differences\": %d}\n", d->n);
    else if (!d->n) printf("no difference\n");
    return status ? status : d->n ? DIFF_DIFFERENT : DIFF_SAME;
}

int diff_models(const char *path_a, const char *path_b, int json) {
    difference d;
    memset(&d, 0, sizeof d);
    d.json = json;
    int status = open_side(&d.a, path_a);
    if (!status) status = open_side(&d.b, path_b);
    if (!status) status = diff_all(&d);
    close_side(&d.a);
    close_side(&d.b);
    return status;
}
