/* json_values.c - what readers ask of a finished tree: look-up, paths for messages, values as types. */
#include "json.h"

#include <math.h>
#include <string.h>

/* ---- look-up --------------------------------------------------------------------------------------------------- */

int json_is(const json *v, json_type type)
{
    return v != NULL && v->type == (uint8_t)type;
}

int json_is_null(const json *v)
{
    return v == NULL || v->type == JSON_NULL;
}

size_t json_count(const json *container)
{
    return json_is(container, JSON_ARRAY) || json_is(container, JSON_OBJECT) ? container->count : 0;
}

const json *json_at(const json *container, size_t i)
{
    return i < json_count(container) ? &container->u.items[i] : NULL;
}

static uint32_t find_member(const json *items, uint32_t n, const char *key, size_t length)
{
    uint32_t i;
    for (i = 0; i < n; i++)
        if (items[i].key_length == length && memcmp(items[i].key, key, length) == 0) return i;
    return NAME_ABSENT;
}

const json *json_get_n(const json *object, const char *key, size_t length)
{
    uint32_t i;
    if (!json_is(object, JSON_OBJECT)) return NULL;
    if (object->v.index != NULL) i = name_index_find(object->v.index, object->u.items, key, length);
    else i = find_member(object->u.items, object->count, key, length);
    return i == NAME_ABSENT ? NULL : &object->u.items[i];
}

const json *json_get(const json *object, const char *key)
{
    return json_get_n(object, key, strlen(key));
}

/* ---- paths ----------------------------------------------------------------------------------------------------- */

const char *json_type_name(int type)
{
    static const char *const names[] = { "null", "a boolean", "a number", "a string", "an array", "an object" };
    return type >= 0 && type <= JSON_OBJECT ? names[type] : "nothing";
}

/* Writes the path down to v behind the `used` bytes of buf; returns the new length. */
static size_t append_path(const json *v, char *buf, size_t size, size_t used)
{
    int n;
    if (v == NULL || used >= size) return used;
    if (v->type == JSON_DOCUMENT) {
        n = snprintf(buf + used, size - used, "%s", v->u.text);
    } else {
        int is_top = v->parent == NULL || v->parent->type == JSON_DOCUMENT;
        used = append_path(v->parent, buf, size, used);
        if (is_top || used >= size) return used;
        if (v->parent->type == JSON_ARRAY) {
            n = snprintf(buf + used, size - used, "[%lu]", (unsigned long)(v - v->parent->u.items));
        } else {
            int first = v->parent->parent == NULL || v->parent->parent->type == JSON_DOCUMENT;
            n = snprintf(buf + used, size - used, "%s%s", first ? ": " : ".", v->key);
        }
    }
    return n > 0 ? used + (size_t)n : used;
}

const char *json_path(const json *v, char *buf, size_t size)
{
    if (size > 0) buf[0] = 0;
    append_path(v, buf, size, 0);
    return buf;
}

/* ---- typed values ---------------------------------------------------------------------------------------------- */

static int fail_type(const json *v, const char *expected, tfm_error *err)
{
    char path[512];
    if (v == NULL) return tool_fail(err, TFM_ERR_FORMAT, "expected %s, found nothing", expected);
    return tool_fail(err, TFM_ERR_FORMAT, "%s: expected %s, found %s", json_path(v, path, sizeof path), expected,
                     json_type_name(v->type));
}

static int fail_absent(const json *object, const char *key, tfm_error *err)
{
    char path[512];
    int at_top = object == NULL || object->parent == NULL || object->parent->type == JSON_DOCUMENT;
    json_path(object, path, sizeof path);
    return tool_fail(err, TFM_ERR_FORMAT, "%s%s%s: missing", path, at_top ? ": " : ".", key);
}

int json_as_int(const json *v, int64_t *out, tfm_error *err)
{
    char path[512];
    if (!json_is(v, JSON_NUMBER)) return fail_type(v, "an integer", err);
    if (v->is_integer) {
        *out = v->v.integer;
        return TFM_OK;
    }
    if (!(fabs(v->v.number) <= 9007199254740992.0) || floor(v->v.number) != v->v.number) {
        return tool_fail(err, TFM_ERR_FORMAT, "%s: expected an integer, found %s", json_path(v, path, sizeof path),
                         v->u.text);
    }
    *out = (int64_t)v->v.number;
    return TFM_OK;
}

int json_as_real(const json *v, double *out, tfm_error *err)
{
    if (!json_is(v, JSON_NUMBER)) return fail_type(v, "a number", err);
    *out = v->is_integer ? (double)v->v.integer : v->v.number;
    return TFM_OK;
}

int json_as_bool(const json *v, int *out, tfm_error *err)
{
    if (!json_is(v, JSON_BOOL)) return fail_type(v, "a boolean", err);
    *out = v->boolean;
    return TFM_OK;
}

int json_as_string(const json *v, const char **out, tfm_error *err)
{
    char path[512];
    if (!json_is(v, JSON_STRING)) return fail_type(v, "a string", err);
    if (strlen(v->u.text) != v->count) {
        return tool_fail(err, TFM_ERR_FORMAT, "%s: string with a zero byte", json_path(v, path, sizeof path));
    }
    *out = v->u.text;
    return TFM_OK;
}

int json_int(const json *object, const char *key, int64_t *out, tfm_error *err)
{
    const json *v = json_get(object, key);
    return v != NULL ? json_as_int(v, out, err) : fail_absent(object, key, err);
}

int json_real(const json *object, const char *key, double *out, tfm_error *err)
{
    const json *v = json_get(object, key);
    return v != NULL ? json_as_real(v, out, err) : fail_absent(object, key, err);
}

int json_bool(const json *object, const char *key, int *out, tfm_error *err)
{
    const json *v = json_get(object, key);
    return v != NULL ? json_as_bool(v, out, err) : fail_absent(object, key, err);
}

int json_string(const json *object, const char *key, const char **out, tfm_error *err)
{
    const json *v = json_get(object, key);
    return v != NULL ? json_as_string(v, out, err) : fail_absent(object, key, err);
}

static int get_container(const json *object, const char *key, json_type type, const json **out, tfm_error *err)
{
    const json *v = json_get(object, key);
    if (v == NULL) return fail_absent(object, key, err);
    if (!json_is(v, type)) return fail_type(v, json_type_name((int)type), err);
    *out = v;
    return TFM_OK;
}

int json_array(const json *object, const char *key, const json **out, tfm_error *err)
{
    return get_container(object, key, JSON_ARRAY, out, err);
}

int json_object(const json *object, const char *key, const json **out, tfm_error *err)
{
    return get_container(object, key, JSON_OBJECT, out, err);
}

static int fail_short(const json *array, size_t i, tfm_error *err)
{
    char path[512];
    return tool_fail(err, TFM_ERR_FORMAT, "%s: item %zu is missing", json_path(array, path, sizeof path), i);
}

int json_item_int(const json *array, size_t i, int64_t *out, tfm_error *err)
{
    const json *v = json_at(array, i);
    return v != NULL ? json_as_int(v, out, err) : fail_short(array, i, err);
}

int json_item_real(const json *array, size_t i, double *out, tfm_error *err)
{
    const json *v = json_at(array, i);
    return v != NULL ? json_as_real(v, out, err) : fail_short(array, i, err);
}

int json_int_or(const json *object, const char *key, int64_t otherwise, int64_t *out, tfm_error *err)
{
    const json *v = json_get(object, key);
    *out = otherwise;
    return json_is_null(v) ? TFM_OK : json_as_int(v, out, err);
}

int json_bool_or(const json *object, const char *key, int otherwise, int *out, tfm_error *err)
{
    const json *v = json_get(object, key);
    *out = otherwise;
    return json_is_null(v) ? TFM_OK : json_as_bool(v, out, err);
}

int json_string_or(const json *object, const char *key, const char *otherwise, const char **out, tfm_error *err)
{
    const json *v = json_get(object, key);
    *out = otherwise;
    return json_is_null(v) ? TFM_OK : json_as_string(v, out, err);
}
