/* gguf_values.c - what readers ask of the metadata: a value by its key, checked for its type. */
#include "gguf.h"

#include <string.h>

enum value_kind { NO_NUMBER, INTEGER, REAL };

static const struct {
    const char *name;
    unsigned char bytes; /* 0: of varying length */
    unsigned char kind;
} value_types[GGUF_N_VALUE_TYPES] = { /* in the order of gguf_value_type */
    { "a u8", 1, INTEGER },  { "an i8", 1, INTEGER },  { "a u16", 2, INTEGER },    { "an i16", 2, INTEGER },
    { "a u32", 4, INTEGER }, { "an i32", 4, INTEGER }, { "an f32", 4, REAL },      { "a bool", 1, NO_NUMBER },
    { "a string", 0, NO_NUMBER }, { "an array", 0, NO_NUMBER }, { "a u64", 8, INTEGER }, { "an i64", 8, INTEGER },
    { "an f64", 8, REAL },
};

size_t gguf_value_bytes(gguf_value_type type)
{
    return value_types[type].bytes;
}

const gguf_kv *gguf_find(const gguf *g, const char *key)
{
    uint32_t at = name_index_find(&g->kv_index, g->kv, key, strlen(key));
    return at == NAME_ABSENT ? NULL : &g->kv[at];
}

static int is_integer_type(gguf_value_type type)
{
    return value_types[type].kind == INTEGER;
}

static int is_number_type(gguf_value_type type)
{
    return value_types[type].kind != NO_NUMBER;
}

static int is_string_type(gguf_value_type type)
{
    return type == GGUF_STRING;
}

static gguf_value_type element_type(const gguf_kv *kv)
{
    return kv->type == GGUF_ARRAY ? kv->element : kv->type;
}

int64_t gguf_int_at(const gguf_kv *kv, size_t i)
{
    gguf_value_type type = element_type(kv);
    const unsigned char *raw = kv->u.raw + i * value_types[type].bytes;
    uint64_t wide;
    switch (type) {
    case GGUF_U8:
    case GGUF_BOOL: return raw[0];
    case GGUF_I8: return (int8_t)raw[0];
    case GGUF_U16: return load_u16(raw);
    case GGUF_I16: return (int16_t)load_u16(raw);
    case GGUF_U32: return load_u32(raw);
    case GGUF_I32: return (int32_t)load_u32(raw);
    case GGUF_I64: return (int64_t)load_u64(raw);
    case GGUF_U64:
        wide = load_u64(raw);
        return wide > INT64_MAX ? INT64_MAX : (int64_t)wide;
    default: return 0;
    }
}

double gguf_real_at(const gguf_kv *kv, size_t i)
{
    gguf_value_type type = element_type(kv);
    if (type == GGUF_F32) return (double)load_f32(kv->u.raw + i * 4);
    if (type == GGUF_F64) return load_f64(kv->u.raw + i * 8);
    return (double)gguf_int_at(kv, i);
}

static int fail_key(const gguf *g, const char *key, const char *expected, const gguf_kv *found, tfm_error *err)
{
    if (found == NULL) return tool_fail(err, TFM_ERR_FORMAT, "%s: %s: missing", g->src.name, key);
    return tool_fail(err, TFM_ERR_FORMAT, "%s: %s: expected %s, found %s%s", g->src.name, key, expected,
                     found->type == GGUF_ARRAY ? "an array, each element " : "",
                     value_types[element_type(found)].name);
}

int gguf_int(const gguf *g, const char *key, int64_t *out, tfm_error *err)
{
    const gguf_kv *kv = gguf_find(g, key);
    if (kv == NULL || !is_integer_type(kv->type)) return fail_key(g, key, "an integer", kv, err);
    *out = gguf_int_at(kv, 0);
    return TFM_OK;
}

int gguf_real(const gguf *g, const char *key, double *out, tfm_error *err)
{
    const gguf_kv *kv = gguf_find(g, key);
    if (kv == NULL || !is_number_type(kv->type)) return fail_key(g, key, "a number", kv, err);
    *out = gguf_real_at(kv, 0);
    return TFM_OK;
}

int gguf_bool(const gguf *g, const char *key, int *out, tfm_error *err)
{
    const gguf_kv *kv = gguf_find(g, key);
    if (kv == NULL || kv->type != GGUF_BOOL) return fail_key(g, key, "a bool", kv, err);
    *out = kv->u.raw[0];
    return TFM_OK;
}

int gguf_str(const gguf *g, const char *key, const char **out, tfm_error *err)
{
    const gguf_kv *kv = gguf_find(g, key);
    if (kv == NULL || kv->type != GGUF_STRING) return fail_key(g, key, "a string", kv, err);
    if (strlen(kv->u.strings[0].text) != kv->u.strings[0].length) {
        return tool_fail(err, TFM_ERR_FORMAT, "%s: %s: string with a zero byte", g->src.name, key);
    }
    *out = kv->u.strings[0].text;
    return TFM_OK;
}

int gguf_int_or(const gguf *g, const char *key, int64_t otherwise, int64_t *out, tfm_error *err)
{
    *out = otherwise;
    return gguf_find(g, key) != NULL ? gguf_int(g, key, out, err) : TFM_OK;
}

int gguf_bool_or(const gguf *g, const char *key, int otherwise, int *out, tfm_error *err)
{
    *out = otherwise;
    return gguf_find(g, key) != NULL ? gguf_bool(g, key, out, err) : TFM_OK;
}

int gguf_str_or(const gguf *g, const char *key, const char *otherwise, const char **out, tfm_error *err)
{
    *out = otherwise;
    return gguf_find(g, key) != NULL ? gguf_str(g, key, out, err) : TFM_OK;
}

/* The kv whose value or n values of a matching type stand for n layers. */
static int find_per_layer(const gguf *g, const char *key, int want_bool, size_t n, const gguf_kv **out, tfm_error *err)
{
    const gguf_kv *kv = gguf_find(g, key);
    const char *expected = want_bool ? "bools" : "integers";
    int fits = kv != NULL && (want_bool ? element_type(kv) == GGUF_BOOL : is_integer_type(element_type(kv)));
    if (!fits) return fail_key(g, key, expected, kv, err);
    if (kv->type == GGUF_ARRAY && kv->count != n) {
        return tool_fail(err, TFM_ERR_FORMAT, "%s: %s: expected %zu %s, found %zu", g->src.name, key, n, expected,
                         kv->count);
    }
    *out = kv;
    return TFM_OK;
}

int gguf_ints(const gguf *g, const char *key, int64_t *out, size_t n, tfm_error *err)
{
    const gguf_kv *kv = NULL;
    size_t i;
    int code = find_per_layer(g, key, 0, n, &kv, err);
    for (i = 0; code == TFM_OK && i < n; i++) out[i] = gguf_int_at(kv, kv->type == GGUF_ARRAY ? i : 0);
    return code;
}

int gguf_bools(const gguf *g, const char *key, int *out, size_t n, tfm_error *err)
{
    const gguf_kv *kv = NULL;
    size_t i;
    int code = find_per_layer(g, key, 1, n, &kv, err);
    for (i = 0; code == TFM_OK && i < n; i++) out[i] = kv->u.raw[kv->type == GGUF_ARRAY ? i : 0];
    return code;
}

static int find_array(const gguf *g, const char *key, int (*fits)(gguf_value_type), const char *expected,
                      const gguf_kv **out, tfm_error *err)
{
    *out = gguf_find(g, key);
    if (*out != NULL && (*out)->type == GGUF_ARRAY && fits((*out)->element)) return TFM_OK;
    return fail_key(g, key, expected, *out, err);
}

int gguf_string_array(const gguf *g, const char *key, const gguf_kv **out, tfm_error *err)
{
    return find_array(g, key, is_string_type, "an array of strings", out, err);
}

int gguf_int_array(const gguf *g, const char *key, const gguf_kv **out, tfm_error *err)
{
    return find_array(g, key, is_integer_type, "an array of integers", out, err);
}

int gguf_real_array(const gguf *g, const char *key, const gguf_kv **out, tfm_error *err)
{
    return find_array(g, key, is_number_type, "an array of numbers", out, err);
}
