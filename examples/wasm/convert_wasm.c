/* convert_wasm.c - the converter as a WebAssembly module: a GGUF file that the host reads becomes a .tfm file that the
 * host writes, piece by piece. Host functions: env.read_at(offset, address, n) 0, 1 (the file ends earlier) or -1;
 * env.write_at(offset, address, n) 0 or -1; env.warn(address, n); env.progress(done, total).
 */
#include <stdlib.h>
#include <string.h>

#include "convert.h"

#define EXPORT(name) __attribute__((export_name(#name)))
#define IMPORT(name) __attribute__((import_module("env"), import_name(#name)))

IMPORT(read_at) int host_read_at(double offset, void *buf, uint32_t n);
IMPORT(write_at) int host_write_at(double offset, const void *buf, uint32_t n);
IMPORT(warn) void host_warn(const char *line, uint32_t n);
IMPORT(progress) void host_progress(double done, double total);

static tfm_error last;

static int read_at(void *user, uint64_t offset, void *buf, size_t n) {
    (void)user;
    return host_read_at((double)offset, buf, (uint32_t)n);
}
static int write_at(void *user, uint64_t offset, const void *buf, size_t n) {
    (void)user;
    return host_write_at((double)offset, buf, (uint32_t)n);
}
static void warn(void *user, const char *line) {
    (void)user;
    host_warn(line, (uint32_t)strlen(line));
}
static void progress_to(void *user, uint64_t done, uint64_t total) {
    (void)user;
    host_progress((double)done, (double)total);
}

EXPORT(last_error) const char *last_error(void) { return last.msg; }
EXPORT(allocate) void *allocate(uint32_t n) { return malloc(n); }

EXPORT(convert) int convert(double size, const char *name) {
    source src = {NULL, name, (uint64_t)size, read_at};
    sink out = {NULL, write_at};
    convert_options o;
    memset(&o, 0, sizeof o);
    o.warn = warn;
    o.progress = progress_to;
    return convert_file(&src, &out, &o, &last);
}
