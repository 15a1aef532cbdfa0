/* c_array.c - the text is decimal numbers without blanks: 3.6 characters a byte. */
#include <stdlib.h>
#include <string.h>

#include "c_array.h"

/* ---- memory as a sink ------------------------------------------------------------------------------------------- */

static int memory_write(void *user, uint64_t offset, const void *buf, size_t n) {
    memory_sink *m = user;
    if (offset > SIZE_MAX / 4 || n > SIZE_MAX / 4) return -1;
    const size_t end = (size_t)offset + n;
    if (end > m->room) {
        const size_t room = 2 * end;
        unsigned char *bytes = realloc(m->bytes, room);
        if (!bytes) return -1;
        memset(bytes + m->room, 0, room - m->room);
        m->bytes = bytes;
        m->room = room;
    }
    memcpy(m->bytes + offset, buf, n);
    if (end > m->n) m->n = end;
    return 0;
}

sink sink_memory(memory_sink *m) {
    sink s;
    memset(m, 0, sizeof *m);
    s.user = m;
    s.write_at = memory_write;
    return s;
}

void sink_memory_free(memory_sink *m) {
    free(m->bytes);
    memset(m, 0, sizeof *m);
}

/* ---- the array -------------------------------------------------------------------------------------------------- */

int c_array_name_ok(const char *name) {
    if (!*name || (*name >= '0' && *name <= '9') || strlen(name) > 64) return 0;
    for (; *name; name++)
        if (*name != '_' && !(*name >= 'a' && *name <= 'z') && !(*name >= 'A' && *name <= 'Z') &&
            !(*name >= '0' && *name <= '9')) return 0;
    return 1;
}

const char *c_array_constant(arena *mem, const char *name, const char *suffix) {
    char *text = arena_printf(mem, "%s%s", name, suffix);
    for (char *p = text; p && *p; p++)
        if (*p >= 'a' && *p <= 'z') *p = (char)(*p - 'a' + 'A');
    return text;
}

/* "12," and so on for n bytes; returns the characters. Lines end after 32 bytes. */
static size_t spell(char *text, const unsigned char *bytes, size_t n) {
    char *p = text;
    for (size_t i = 0; i < n; i++) {
        const int b = bytes[i];
        if (b >= 100) *p++ = (char)('0' + b / 100);
        if (b >= 10) *p++ = (char)('0' + b / 10 % 10);
        *p++ = (char)('0' + b % 10);
        *p++ = i + 1 < n ? ',' : '\n';
    }
    return (size_t)(p - text);
}

int c_array_write(sink *out, const char *name, const void *bytes, size_t n, tfm_error *err) {
    arena mem = {NULL, 0, 0, 0};
    const char *constant = c_array_constant(&mem, name, ""), *p = NULL;
    char text[4 * 32 + 1];
    uint64_t at = 0;
    if (constant)
        p = arena_printf(&mem, "/* Made by tfm-convert --c-array: include it in one source file. */\n"
                         "#define %s_BYTES %llu\n\n"
                         "#if defined(__GNUC__)\n__attribute__((aligned(64)))\n"
                         "#elif defined(_MSC_VER)\n__declspec(align(64))\n"
                         "#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L\n_Alignas(64)\n#endif\n"
                         "static const unsigned char %s[%s_BYTES] = {\n",
                         constant, (unsigned long long)n, name, constant);
    int code = p ? sink_write(out, 0, p, strlen(p), err) : tool_fail(err, TFM_ERR_MEMORY, "out of memory");
    if (!code) at = strlen(p);
    arena_free(&mem);
    for (size_t i = 0; !code && i < n; i += 32) {
        const size_t some = n - i < 32 ? n - i : 32;
        size_t length = spell(text, (const unsigned char *)bytes + i, some);
        if (i + some < n) { /* the comma goes on in the next line */
            text[length - 1] = ',';
            text[length++] = '\n';
        }
        code = sink_write(out, at, text, length, err);
        at += length;
    }
    return code ? code : sink_write(out, at, "};\n", 3, err);
}
