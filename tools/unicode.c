/* unicode.c - see unicode.h. */
#include "unicode.h"

#include <string.h>

#include "unicode_gguf.h"
#include "unicode_tables.h"

#define COUNT(array) (sizeof array / sizeof array[0])
#define MAP(name) {name##_rows, COUNT(name##_rows) / 4, name##_strings, sizeof name##_strings}
#define GROUPS(name) {name##_rows, COUNT(name##_rows) / 4, NULL, 0}

unicode_map unicode_map_of(unicode_map_kind kind) {
    static const unicode_map maps[] = {MAP(lower), MAP(strip_accents), MAP(bert_clean), MAP(bert_marks),
                                       MAP(compatibility), GROUPS(scripts), GROUPS(clusters),
                                       MAP(gguf_base), MAP(gguf_clean), MAP(gguf_accents), MAP(gguf_alone),
                                       MAP(gguf_lower)};
    return maps[kind];
}

/* The next character of a name that counts, in lower case; 0 at the end. */
static int next_of(const char **p, const char *end) {
    while (*p < end && strchr("_- ", **p)) ++*p;
    if (*p == end) return 0;
    const int ch = (unsigned char)*(*p)++;
    return ch >= 'A' && ch <= 'Z' ? ch + 32 : ch;
}
static int same_name(const char *a, size_t n_a, const char *b) {
    const char *a_end = a + n_a, *b_end = b + strlen(b);
    for (;;) {
        const int x = next_of(&a, a_end), y = next_of(&b, b_end);
        if (x != y) return 0;
        if (!x) return 1;
    }
}

const uint32_t *unicode_set(const char *name, size_t length, size_t *n) {
    for (size_t i = 0; i < COUNT(sets); i++) {
        if (!same_name(name, length, sets[i].name)) continue;
        *n = sets[i].n;
        return set_ranges + 2 * (size_t)sets[i].first;
    }
    return NULL;
}

const uint32_t *unicode_categories(size_t *n) {
    *n = COUNT(category_runs);
    return category_runs;
}

uint32_t unicode_fold(uint32_t c, int index) {
    size_t low = 0, high = COUNT(fold_pairs) / 2;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (fold_pairs[2 * mid] < c) low = mid + 1;
        else high = mid;
    }
    low += (size_t)index;
    return low < COUNT(fold_pairs) / 2 && fold_pairs[2 * low] == c ? fold_pairs[2 * low + 1] : 0;
}
