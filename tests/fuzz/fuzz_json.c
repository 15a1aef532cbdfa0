/* fuzz_json.c - libFuzzer target for the JSON reader: what is accepted is a tree whose links hold, whose strings are
 * what look-ups find, and which the reader that leaves no copy reads the same way. */
#include <string.h>

#include "tools/json.h"

static volatile double consumed; /* so that no read is optimised away */

static void use(const json *v) {
    char path[64];
    int64_t whole;
    double real;
    const char *text;
    consumed += (double)strlen(json_path(v, path, sizeof path));
    consumed += json_as_int(v, &whole, NULL);
    consumed += json_as_real(v, &real, NULL);
    if (json_as_string(v, &text, NULL) == TFM_OK) consumed += (double)strlen(text);
    for (size_t i = 0; i < json_count(v); i++) {
        const json *child = json_at(v, i);
        if (child->parent != v) __builtin_trap();
        if (json_is(v, JSON_OBJECT) && json_get_n(v, child->key, child->key_length) != child) __builtin_trap();
        use(child);
    }
}

static int same(const json *a, const json *b) {
    if (a->type != b->type || a->count != b->count || a->key_length != b->key_length) return 0;
    if (a->key && memcmp(a->key, b->key, a->key_length)) return 0;
    if (json_is(a, JSON_STRING) && memcmp(a->u.text, b->u.text, a->count)) return 0;
    for (size_t i = 0; i < json_count(a); i++)
        if (!same(json_at(a, i), json_at(b, i))) return 0;
    return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    arena a = {NULL, 0, 0, 0};
    tfm_error err, other;
    memset(&err, 0, sizeof err);
    char *copy = (char *)arena_alloc(&a, size + 1);
    const json *root = json_parse("fuzz.json", (const char *)data, size, &a, &err);
    if (root) use(root);
    else if (err.code >= 0 || !err.msg[0] || strchr(err.msg, '\n')) __builtin_trap(); /* refusals say why, in a line */
    if (copy) {
        if (size) memcpy(copy, data, size);
        const json *again = json_parse_in_place("fuzz.json", copy, size, &a, &other);
        if (!again != !root || (root && !same(root, again))) __builtin_trap();
    }
    arena_free(&a);
    return 0;
}
