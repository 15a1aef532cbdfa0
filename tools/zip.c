/* zip.c - end record, ZIP64 end record, central directory, local headers: each as the format's specification has it. */
#include "zip.h"

#include <stdlib.h>
#include <string.h>

enum {
    END_BYTES = 22, END64_BYTES = 56, LOCATOR_BYTES = 20, CENTRAL_BYTES = 46, LOCAL_BYTES = 30,
    MAX_COMMENT = 65535,
    MAX_ENTRIES = 1 << 20,
    MAX_DIRECTORY = 1 << 28,
    ZIP64_EXTRA = 1, FLAG_ENCRYPTED = 1
};

enum { SIGN_LOCAL = 0x04034b50, SIGN_CENTRAL = 0x02014b50, SIGN_END = 0x06054b50, SIGN_END64 = 0x06064b50,
       SIGN_LOCATOR = 0x07064b50 };

typedef struct zip_reader {
    zip *z;
    const source *src;
    arena *a;
    tfm_error *err;
    uint64_t n_entries, directory_at, directory_bytes;
} zip_reader;

static int fail(const zip_reader *r, const char *what) {
    return tool_fail(r->err, TFM_ERR_FORMAT, "%s: zip archive: %s", r->z->archive, what);
}

static int fail_entry(const zip_reader *r, const char *name, const char *what) {
    return tool_fail(r->err, TFM_ERR_FORMAT, "%s: zip archive: %s %s", r->z->archive, name, what);
}

/* ---- THE END --------------------------------------------------------------------------------------------------- */

/* The end record lies before a comment of the length that it says: the last place where that holds. */
static int find_end(const zip_reader *r, unsigned char end[END_BYTES], uint64_t *at) {
    const uint64_t size = r->src->size;
    const size_t n = (size_t)(size < END_BYTES + MAX_COMMENT ? size : END_BYTES + MAX_COMMENT);
    unsigned char *tail = malloc(n + 1);
    if (!tail) return tool_fail(r->err, TFM_ERR_MEMORY, "%s: out of memory", r->z->archive);
    int code = source_read(r->src, size - n, tail, n, r->err), found = 0;
    for (size_t i = n < END_BYTES ? 0 : n - END_BYTES + 1; !code && !found && i-- > 0;) {
        if (load_u32(tail + i) != SIGN_END || load_u16(tail + i + 20) != n - i - END_BYTES) continue;
        memcpy(end, tail + i, END_BYTES);
        *at = size - n + i;
        found = 1;
    }
    free(tail);
    if (code) return code;
    return found ? TFM_OK : fail(r, "its end is missing (is the file cut short?)");
}

/* The ZIP64 record, whose place the locator right before the end record tells. *present = 0: there is none. */
static int read_end64(zip_reader *r, uint64_t end_at, int *present) {
    unsigned char locator[LOCATOR_BYTES], end[END64_BYTES];
    *present = 0;
    if (end_at < LOCATOR_BYTES) return TFM_OK;
    int code = source_read(r->src, end_at - LOCATOR_BYTES, locator, sizeof locator, r->err);
    if (code || load_u32(locator) != SIGN_LOCATOR) return code;
    const uint64_t at = load_u64(locator + 8);
    if (at > end_at || end_at - at < END64_BYTES + LOCATOR_BYTES) return fail(r, "its ZIP64 end lies outside");
    code = source_read(r->src, at, end, sizeof end, r->err);
    if (code) return code;
    if (load_u32(end) != SIGN_END64) return fail(r, "its ZIP64 end is missing");
    r->n_entries = load_u64(end + 32);
    r->directory_bytes = load_u64(end + 40);
    r->directory_at = load_u64(end + 48);
    *present = 1;
    return TFM_OK;
}

static int read_end(zip_reader *r) {
    unsigned char end[END_BYTES];
    uint64_t at = 0;
    int zip64, code = find_end(r, end, &at);
    if (!code) code = read_end64(r, at, &zip64);
    if (code) return code;
    if (!zip64) {
        r->n_entries = load_u16(end + 10);
        r->directory_bytes = load_u32(end + 12);
        r->directory_at = load_u32(end + 16);
    }
    if (r->directory_at > at || r->directory_bytes > at - r->directory_at || r->directory_bytes > MAX_DIRECTORY)
        return fail(r, "its directory lies outside");
    if (r->n_entries > MAX_ENTRIES || r->n_entries > r->directory_bytes / CENTRAL_BYTES)
        return fail(r, "more members than its directory can hold");
    return TFM_OK;
}

/* ---- MEMBERS --------------------------------------------------------------------------------------------------- */

/* The sizes and the place that do not fit into 32 bits stand in an extra field, in this order. */
static int read_zip64_extra(const zip_reader *r, const char *name, const unsigned char *extra, size_t n,
                            uint64_t *const values[3]) {
    for (size_t at = 0; n - at >= 4;) {
        const size_t bytes = load_u16(extra + at + 2);
        if (bytes > n - at - 4) break;
        if (load_u16(extra + at) != ZIP64_EXTRA) {
            at += 4 + bytes;
            continue;
        }
        const unsigned char *p = extra + at + 4, *end = p + bytes;
        for (int i = 0; i < 3; i++) {
            if (*values[i] != UINT32_MAX) continue;
            if (end - p < 8) return fail_entry(r, name, "has sizes that are cut short");
            *values[i] = load_u64(p);
            p += 8;
        }
        return TFM_OK;
    }
    return TFM_OK;
}

/* One entry of the directory, of which `left` bytes remain; *used is its length. */
static int read_central(zip_reader *r, const unsigned char *p, size_t left, zip_entry *e, size_t *used) {
    if (left < CENTRAL_BYTES || load_u32(p) != SIGN_CENTRAL) return fail(r, "its directory is damaged");
    const size_t n_name = load_u16(p + 28), n_extra = load_u16(p + 30), n_comment = load_u16(p + 32);
    uint64_t packed = load_u32(p + 20), bytes = load_u32(p + 24), header = load_u32(p + 42);
    uint64_t *const values[3] = {&bytes, &packed, &header};
    if (n_name + n_extra + n_comment > left - CENTRAL_BYTES) return fail(r, "its directory is damaged");
    *used = CENTRAL_BYTES + n_name + n_extra + n_comment;
    if (memchr(p + CENTRAL_BYTES, 0, n_name)) return fail(r, "a member's name has a zero byte");
    e->name = arena_strndup(r->a, (const char *)p + CENTRAL_BYTES, n_name);
    if (!e->name) return tool_fail(r->err, TFM_ERR_MEMORY, "%s: out of memory", r->z->archive);
    int code = read_zip64_extra(r, e->name, p + CENTRAL_BYTES + n_name, n_extra, values);
    if (code) return code;
    if (load_u16(p + 8) & FLAG_ENCRYPTED) return fail_entry(r, e->name, "is encrypted");
    if (load_u16(p + 10) != 0 || packed != bytes) return fail_entry(r, e->name, "is compressed");
    e->bytes = bytes;
    e->header = header;
    return TFM_OK;
}

/* Where the data begins: behind the local header, whose name and extra field have lengths of their own. */
static int read_local(zip_reader *r, zip_entry *e) {
    unsigned char local[LOCAL_BYTES];
    const uint64_t end = r->directory_at;
    if (e->header > end || end - e->header < LOCAL_BYTES) return fail_entry(r, e->name, "lies outside");
    int code = source_read(r->src, e->header, local, sizeof local, r->err);
    if (code) return code;
    if (load_u32(local) != SIGN_LOCAL) return fail_entry(r, e->name, "has no header");
    const uint64_t skip = LOCAL_BYTES + (uint64_t)load_u16(local + 26) + load_u16(local + 28);
    if (skip > end - e->header || e->bytes > end - e->header - skip) return fail_entry(r, e->name, "lies outside");
    e->offset = e->header + skip;
    return TFM_OK;
}

static int by_header(const void *a, const void *b) {
    const zip_entry *x = *(const zip_entry *const *)a, *y = *(const zip_entry *const *)b;
    return x->header < y->header ? -1 : x->header > y->header;
}

static int check_overlap(const zip_reader *r) {
    const zip *z = r->z;
    const zip_entry **sorted = calloc(z->n + 1, sizeof *sorted);
    int code = TFM_OK;
    if (!sorted) return tool_fail(r->err, TFM_ERR_MEMORY, "%s: out of memory", z->archive);
    for (size_t i = 0; i < z->n; i++) sorted[i] = &z->entries[i];
    qsort(sorted, z->n, sizeof *sorted, by_header);
    for (size_t i = 1; !code && i < z->n; i++)
        if (sorted[i - 1]->offset + sorted[i - 1]->bytes > sorted[i]->header)
            code = fail_entry(r, sorted[i]->name, "overlaps another member");
    free((void *)sorted);
    return code;
}

static const char *entry_name(const void *table, uint32_t entry, size_t *length) {
    const zip_entry *e = (const zip_entry *)table + entry;
    *length = strlen(e->name);
    return e->name;
}

static int read_entries(zip_reader *r, const unsigned char *directory) {
    zip *z = r->z;
    size_t at = 0, used = 0;
    int code = TFM_OK;
    for (uint64_t i = 0; !code && i < r->n_entries; i++, at += used) {
        zip_entry *e = &z->entries[z->n];
        code = read_central(r, directory + at, (size_t)r->directory_bytes - at, e, &used);
        if (!code) code = read_local(r, e);
        if (!code && name_index_add(&z->index, z->entries, (uint32_t)z->n, NULL))
            code = fail_entry(r, e->name, "stands twice");
        z->n++;
    }
    return code ? code : check_overlap(r);
}

int zip_open(zip *z, const source *src, arena *a, tfm_error *err) {
    zip_reader r = {z, src, a, err, 0, 0, 0};
    memset(z, 0, sizeof *z);
    z->archive = src->name;
    int code = read_end(&r);
    if (code) return code;
    unsigned char *directory = malloc((size_t)r.directory_bytes + 1);
    z->entries = arena_array(a, (size_t)r.n_entries + 1, sizeof *z->entries);
    if (!directory || !z->entries || name_index_init(&z->index, a, (size_t)r.n_entries + 1, entry_name))
        code = tool_fail(err, TFM_ERR_MEMORY, "%s: out of memory", src->name);
    if (!code) code = source_read(src, r.directory_at, directory, (size_t)r.directory_bytes, err);
    if (!code) code = read_entries(&r, directory);
    free(directory);
    return code;
}

const zip_entry *zip_find(const zip *z, const char *name) {
    const uint32_t i = name_index_find(&z->index, z->entries, name, strlen(name));
    return i == NAME_ABSENT ? NULL : &z->entries[i];
}
