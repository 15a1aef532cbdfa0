/* convert_output.c - see convert_output.h */
#include <stdlib.h>
#include <string.h>

#include "convert_output.h"

enum { ROOM = 4 << 20 };

static int output_write(void *user, uint64_t offset, const void *buf, size_t n) {
    output *o = user;
    if (offset > ROOM || n > ROOM - offset) return -1;
    memcpy(o->bytes + offset, buf, n);
    if (offset + n > o->size) o->size = (size_t)offset + n;
    return 0;
}

static void output_warn(void *user, const char *line) {
    output *o = user;
    size_t n = strlen(o->warning);
    snprintf(o->warning + n, sizeof o->warning - n, "%s\n", line);
}

void output_start(output *o) {
    memset(o, 0, sizeof *o);
    o->room = calloc(1, ROOM + 64);
    if (!o->room) exit(1);
    o->bytes = o->room + (64 - (uintptr_t)o->room % 64);
}

void output_end(output *o) {
    tfm_model_close(o->model);
    free(o->room);
}

sink output_sink(output *o) {
    sink s = {o, output_write};
    return s;
}

convert_options output_options(output *o) {
    convert_options options;
    memset(&options, 0, sizeof options);
    options.user = o;
    options.warn = output_warn;
    return options;
}

int output_open(output *o, int code) {
    if (!code) code = tfm_model_from_memory(o->bytes, o->size, NULL, &o->model, &o->err);
    if (!code) code = tfm_model_verify(o->model, &o->err);
    return code;
}

void put_le(unsigned char *to, size_t *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) to[(*at)++] = (unsigned char)(value >> (8 * i));
}

void put_f32(unsigned char *to, size_t *at, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_le(to, at, bits, 4);
}
