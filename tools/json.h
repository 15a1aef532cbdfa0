/* json.h - JSON from files nobody vouches for, read into a tree that stays as it is.
 *
 * Accepts what Python's json module writes and reads: NaN, Infinity and -Infinity, any nesting up to 128, a byte
 * order mark, lone surrogates in \u escapes (they become U+FFFD), duplicate keys (the last value counts, at the first
 * one's place). Refuses broken UTF-8 and bare control characters in strings, as that module does. Reading takes linear
 * time; look-ups in large objects go through an index.
 */
#ifndef TOOLS_JSON_H
#define TOOLS_JSON_H

#include "base.h"

typedef enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT } json_type;

enum { JSON_DOCUMENT = 255 }; /* type of the root's parent, whose text is the file's name: the start of every path */

typedef struct json json;

struct json {
    uint8_t type;        /* json_type */
    uint8_t is_integer;  /* a number written without '.' or exponent that fits in int64_t */
    uint8_t boolean;
    uint8_t has_duplicates; /* an object in whose text some key stands twice */
    uint32_t count;      /* bytes of a string or of a number's text, items of an array, members of an object */
    uint32_t key_length;
    const char *key;     /* in an object: the member's name, zero-terminated (may hold zeros inside) */
    const json *parent;  /* the container, for messages */
    union {
        const char *text; /* a string decoded to UTF-8, or a number as it was written; zero-terminated */
        json *items;      /* array items or object members, one after the other */
    } u;
    union {
        int64_t integer;         /* of a number that is_integer */
        double number;           /* of any other */
        const name_index *index; /* of a large object, else NULL */
    } v;
};

/* The tree of text[0..n), in the arena; NULL and an error with line and column if it is not JSON. `name` is the file
 * for messages and is copied; text is not needed afterwards. */
const json *json_parse(const char *name, const char *text, size_t n, arena *a, tfm_error *err);
/* The same without a copy: the tree's strings take the place of text[0..n], which must live as long as the tree. */
const json *json_parse_in_place(const char *name, char *text, size_t n, arena *a, tfm_error *err);
/* The same from a source of at most `limit` bytes. */
const json *json_read(const source *s, uint64_t limit, arena *a, tfm_error *err);

/* Look-up and iteration. They accept NULL and values of another type, and find nothing in them. */
const json *json_get(const json *object, const char *key);                    /* NULL: absent */
const json *json_get_n(const json *object, const char *key, size_t length);
const json *json_at(const json *container, size_t i);                          /* item or member i; its ->key */
size_t json_count(const json *container);                                      /* items or members, else 0 */
int json_is(const json *v, json_type type);                                    /* v exists and has the type */
int json_is_null(const json *v);                                               /* absent or null */

/* The value as a type, or an error that names file and path: "config.json: rope_scaling.factor: expected ...". */
int json_as_int(const json *v, int64_t *out, tfm_error *err);      /* also 1e3 and 8.0, if integral */
int json_as_real(const json *v, double *out, tfm_error *err);
int json_as_bool(const json *v, int *out, tfm_error *err);
int json_as_string(const json *v, const char **out, tfm_error *err); /* refuses one with a zero byte inside */

/* A member as a type. Absent is an error that names the key. */
int json_int(const json *object, const char *key, int64_t *out, tfm_error *err);
int json_real(const json *object, const char *key, double *out, tfm_error *err);
int json_bool(const json *object, const char *key, int *out, tfm_error *err);
int json_string(const json *object, const char *key, const char **out, tfm_error *err);
int json_array(const json *object, const char *key, const json **out, tfm_error *err);
int json_object(const json *object, const char *key, const json **out, tfm_error *err);

/* Item i of an array as a type; an array that ends before it is an error that names it. */
int json_item_int(const json *array, size_t i, int64_t *out, tfm_error *err);
int json_item_real(const json *array, size_t i, double *out, tfm_error *err);

/* The same where absent or null means a default. */
int json_int_or(const json *object, const char *key, int64_t otherwise, int64_t *out, tfm_error *err);
int json_bool_or(const json *object, const char *key, int otherwise, int *out, tfm_error *err);
int json_string_or(const json *object, const char *key, const char *otherwise, const char **out, tfm_error *err);

/* "config.json: rope_scaling.factor" for messages of the caller's; cut to the buffer. Returns buf. */
const char *json_path(const json *v, char *buf, size_t size);
const char *json_type_name(int type); /* "a string", "an object" ... */

#endif
