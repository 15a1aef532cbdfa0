/* families.c - looking things up in the tables of families. */
#include <string.h>

#include "family_rows.h"

const family *family_at(int i) {
    static const family *const tables[] = {families_base, families_llama, families_gpt, families_moe};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const family *f = tables[t]; f->name; f++)
            if (i-- == 0) return f;
    return NULL;
}

static int is_word_of(const char *words, const char *word) {
    size_t n = strlen(word);
    for (const char *at = words; at && n; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (!strncmp(at, word, n) && (at[n] == 0 || at[n] == ' ')) return 1;
    }
    return 0;
}

static const family *family_named(const char *name) {
    const family *f;
    for (int i = 0; name && (f = family_at(i)) != NULL; i++)
        if (!strcmp(f->name, name)) return f;
    return NULL;
}

const family *family_base(const family *f) { return family_named(f->base); }

const family *family_find(source_form form, const char *name, family_asks *ask, const void *user) {
    const family *f, *plain = NULL;
    for (int i = 0; (f = family_at(i)) != NULL; i++) {
        const char *words = f->form[form].names_of, *end = words ? strchr(words, '=') : NULL;
        char key[64];
        if (!is_word_of(words, name)) continue;
        if (!end && !plain) plain = f;
        if (!end) continue;
        snprintf(key, sizeof key, "%.*s", (int)(end - words), words);
        if (ask && ask(user, key)) return f;
    }
    return plain;
}

const char *family_list(source_form form, char *buf, size_t size) {
    const family *f;
    size_t used = 0;
    buf[0] = 0;
    for (int i = 0; (f = family_at(i)) != NULL; i++) {
        const char *names = f->form[form].names_of;
        if (!names || strchr(names, '=') || used >= size) continue; /* a variant: its family stands alone too */
        if (!strchr(names, ' ') && is_word_of(buf, names)) continue;
        int n = snprintf(buf + used, size - used, "%s%s", used ? " " : "", names);
        used += n > 0 ? (size_t)n : 0;
    }
    return buf;
}

static int is_last(const rule *r) { return !r->key && r->kind != RULE_FIXED; }

const rule *family_rule(const family *f, source_form form, const char *key, int i) {
    for (; f; f = family_base(f)) {
        int here = 0;
        for (const rule *r = f->form[form].rules; r && !is_last(r); r++)
            if (r->key && !strcmp(r->key, key) && here++ == i) return r;
        if (here) return NULL;
    }
    return NULL;
}

void family_defaults(const family *f, source_form form, value_set *set) {
    if (f->base) family_defaults(family_base(f), form, set);
    for (const rule *r = f->form[form].rules; r && !is_last(r); r++) {
        if (r->kind != RULE_FIXED && !(r->flags & RULE_DEFAULT)) continue;
        set->v[r->param] = r->kind == RULE_BITS ? (int)set->v[r->param] | (int)r->value : r->value;
        set->given[r->param] = GIVEN_DEFAULT;
    }
}

const char *family_missing(const family *f, source_form form, const value_set *set) {
    for (const family *at = f; at; at = family_base(at))
        for (const rule *r = at->form[form].rules; r && !is_last(r); r++)
            if ((r->flags & RULE_REQUIRED) && set->given[r->param] != GIVEN_FILE &&
                family_rule(f, form, r->key, 0) == r)
                return r->key;
    return NULL;
}

const name_row *family_name(const family *f, source_form form, int role, int i) {
    for (; f; f = family_base(f)) {
        int here = 0;
        for (const name_row *n = f->form[form].names; n && n->pattern; n++)
            if (n->role == role && here++ == i) return n;
        if (here) return NULL;
    }
    return NULL;
}

const char *const *family_prefixes(const family *f, source_form form) {
    while (f->base && !f->form[form].prefixes) f = family_base(f);
    return f->form[form].prefixes;
}

int family_owns(const family *f, source_form form, const char *prefix, const char *name) {
    while (f->base && !f->form[form].own) f = family_base(f);
    for (const char *const *own = f->form[form].own; own && *own; own++) {
        const char *start = strcmp(*own, "@") ? *own : prefix;
        if (!strncmp(name, start, strlen(start))) return 1;
    }
    return 0;
}

/* Whether text is pattern, whose '*' stand for anything. */
static int matches(const char *pattern, const char *text) {
    const char *star = NULL, *again = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = ++pattern;
            again = text;
        } else if (*pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star;
            text = ++again;
        } else {
            return 0;
        }
    }
    while (*pattern == '*') pattern++;
    return *pattern == 0;
}

int family_skips(const family *f, source_form form, const char *name) {
    for (; f; f = family_base(f))
        for (const char *const *skip = f->form[form].skip; skip && *skip; skip++)
            if (matches(*skip, name)) return 1;
    return 0;
}

const char *family_format(const char *pattern, const char *prefix, int layer, int expert, char *buf, size_t size) {
    size_t used = 0;
    for (const char *p = pattern; *p && used + 1 < size; p++) {
        int n = 1;
        if (*p == '@') n = snprintf(buf + used, size - used, "%s", prefix);
        else if (*p == '#') n = snprintf(buf + used, size - used, "%d", layer);
        else if (*p == '~') n = snprintf(buf + used, size - used, "%d", expert);
        else buf[used] = *p;
        used += n > 0 ? (size_t)n : 0;
    }
    buf[used < size ? used : size - 1] = 0;
    return buf;
}

const name_row *family_joined(const family *f, source_form form, int i) {
    for (; f; f = family_base(f))
        for (const name_row *n = f->form[form].names; n && n->pattern; n++)
            if (strpbrk(n->pattern, "|%") && i-- == 0) return n;
    return NULL;
}
