/* test_sources.c - checkpoints in other forms than plain safetensors: packed weights and PyTorch files, against the
 * values of tests/ref_sources.py; damage of every byte; archives and pickles that lie.
 */
#include <stdlib.h>
#include <string.h>

#include "convert_output.h"
#include "tools/checkpoint.h"
#include "tools/pickle.h"
#include "tools/torch_file.h"
#include "tools/zip.h"

/* ---- VALUES ---------------------------------------------------------------------------------------------------- */

enum { MAX_FILES = 4 };

/* A directory of tests/data/sources in memory. */
typedef struct folder {
    memory_file files[MAX_FILES];
    char *data[MAX_FILES];
    memory_dir list;
    char *expected;
} folder;

static int read_file(const char *name, const char *file, char **data, size_t *n) {
    char path[512];
    tfm_error err;
    snprintf(path, sizeof path, "%s/data/sources/%s/%s", test_data(), name, file);
    return path_kind(path) == PATH_FILE ? read_whole(path, 1 << 20, data, n, &err) : -1;
}

static void folder_open(folder *f, const char *name) {
    static const char *const files[] = {
        "config.json", "model.safetensors", "pytorch_model.bin", "model.pth", "pytorch_model.bin.index.json",
        "pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"};
    size_t n;
    memset(f, 0, sizeof *f);
    f->list.files = f->files;
    for (size_t i = 0; i < sizeof files / sizeof *files && f->list.n_files < MAX_FILES; i++) {
        const size_t k = f->list.n_files;
        if (read_file(name, files[i], &f->data[k], &n)) continue;
        memory_file file = {files[i], f->data[k], n};
        f->files[f->list.n_files++] = file;
    }
    if (read_file(name, "expected.txt", &f->expected, &n)) f->expected = NULL;
    check(f->expected && f->list.n_files >= 2, "sources/%s: files of tests/ref_sources.py", name);
}

static void folder_close(folder *f) {
    for (size_t i = 0; i < MAX_FILES; i++) free(f->data[i]);
    free(f->expected);
}

static uint64_t fnv(const unsigned char *bytes, size_t n) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ bytes[i]) * 0x100000001b3u;
    return h;
}

/* All rows of a tensor as float32, hashed as little-endian bytes. */
static int hash_tensor(const checkpoint *c, const ckpt_tensor *t, uint64_t *hash, tfm_error *err) {
    const size_t n = (size_t)(t->rows * t->cols);
    unsigned char *raw = malloc((size_t)t->row_bytes * (size_t)t->rows + 1), *bytes = malloc(4 * n + 1);
    float *values = malloc((n + 1) * sizeof *values);
    if (!raw || !bytes || !values) exit(1);
    int code = c->read_rows(c, t, 0, t->rows, raw, err);
    tfm_tensor as_stored = {raw, t->type, TFM_ROWS, 1, (int64_t)n};
    size_t at = 0;
    if (!code) tfm_tensor_row(&as_stored, 0, values);
    for (size_t i = 0; !code && i < n; i++) put_f32(bytes, &at, values[i]);
    *hash = fnv(bytes, at);
    free(raw);
    free(bytes);
    free(values);
    return code;
}

/* Each line of expected.txt: name rows cols hash. */
static void check_lines(const char *folder_name, const checkpoint *c, char *lines) {
    for (char *line = strtok(lines, "\n"); line; line = strtok(NULL, "\n")) {
        char name[128];
        long long rows, cols;
        unsigned long long want;
        uint64_t got = 0;
        tfm_error err = {0};
        if (*line == '#' || sscanf(line, "%127s %lld %lld %llx", name, &rows, &cols, &want) != 4) continue;
        const ckpt_tensor *t = checkpoint_find(c, name);
        check(t && t->rows == rows && t->cols == cols, "%s: tensor %s", folder_name, name);
        if (!t) continue;
        int code = hash_tensor(c, t, &got, &err);
        check(!code && got == want, "%s: %s: values differ %s", folder_name, name, code ? err.msg : "");
    }
}

static void check_values(const char *name, const char *warning) {
    arena mem = {NULL, 0, 0, 0};
    folder f;
    output o;
    checkpoint c;
    folder_open(&f, name);
    output_start(&o);
    source_dir dir = dir_memory(name, &f.list);
    convert_options options = output_options(&o);
    memset(&c, 0, sizeof c);
    c.mem = &mem;
    c.options = &options;
    int code = checkpoint_open_hf(&c, &dir, &o.err);
    check(!code, "%s: %s", name, code ? o.err.msg : "");
    check(warning ? strstr(o.warning, warning) != NULL : !o.warning[0], "%s: %s", name, o.warning);
    if (!code && f.expected) check_lines(name, &c, f.expected);
    if (c.close) c.close(&c);
    arena_free(&mem);
    output_end(&o);
    output_start(&o);
    sink out = output_sink(&o);
    options = output_options(&o);
    code = output_open(&o, convert_directory(&dir, &out, &options, &o.err));
    check(!code && tfm_model_weight_count(o.model) == 12, "%s: %s", name, code ? o.err.msg : "a tensor too few");
    output_end(&o);
    folder_close(&f);
}

static void test_values(void) {
    check_values("awq", "7 matrices of \"awq\" become float32, the same values");
    check_values("gptq", "7 matrices of \"gptq\"");
    check_values("gptq_v2", "7 matrices");
    check_values("gptq8", "7 matrices");
    check_values("fp8", "7 matrices of \"fp8\"");
    check_values("fp8_rows", "7 matrices of \"compressed-tensors\"");
    check_values("fp8_all", "7 matrices");
    check_values("int8", "7 matrices");
    check_values("words", "7 matrices");
    check_values("torch", NULL);
    check_values("torch_views", NULL);
    check_values("torch_training", NULL);
    check_values("torch_big", NULL);
    check_values("torch_old", NULL);
    check_values("torch_shards", NULL);
}

/* ---- DAMAGE ---------------------------------------------------------------------------------------------------- */

/* Opens the directory and reads every tensor to its end. */
static int read_all(const folder *f, tfm_error *err) {
    arena mem = {NULL, 0, 0, 0};
    memory_dir list = f->list;
    source_dir dir = dir_memory("dir", &list);
    output o;
    checkpoint c;
    uint64_t hash;
    memset(&o, 0, sizeof o); /* for its warnings alone */
    convert_options options = output_options(&o);
    memset(&c, 0, sizeof c);
    memset(err, 0, sizeof *err);
    c.mem = &mem;
    c.options = &options;
    int code = checkpoint_open_hf(&c, &dir, err);
    for (size_t i = 0; !code && i < c.n_tensors; i++)
        if (c.tensors[i].type >= 0 && c.tensors[i].rows * c.tensors[i].cols < 1 << 16)
            code = hash_tensor(&c, &c.tensors[i], &hash, err);
    if (c.close) c.close(&c);
    arena_free(&mem);
    return code;
}

/* Cuts are errors; a changed byte is an error or other numbers, never a crash. The first n bytes are all tried. */
static void check_damage(const char *name, size_t file, size_t n) {
    folder f;
    tfm_error err;
    folder_open(&f, name);
    const size_t size = f.files[file].size;
    unsigned char *bytes = (unsigned char *)f.data[file];
    for (size_t cut = 0; cut < size; cut += cut < n ? 1 : 97) {
        f.files[file].size = cut;
        check(read_all(&f, &err) && err.msg[0], "%s: cut at %zu of %zu", name, cut, size);
    }
    f.files[file].size = size;
    for (size_t i = 0; i < size; i += i < n || i + 300 > size ? 1 : 41) {
        for (int k = 0; k < 2; k++) {
            const unsigned char kept = bytes[i], other[2] = {(unsigned char)(kept ^ 0xff), (unsigned char)(kept ^ 1)};
            bytes[i] = other[k];
            int code = read_all(&f, &err);
            check(!code || err.msg[0], "%s: byte %zu: an error without a message", name, i);
            bytes[i] = kept;
        }
    }
    folder_close(&f);
}

/* ---- PICKLES --------------------------------------------------------------------------------------------------- */

#define PROTO "\x80\x02"
#define LITERAL(s) s, sizeof s - 1

typedef struct pickle_row {
    const char *bytes;
    size_t n;
    const char *error; /* a part of the message; NULL: it is read */
} pickle_row;

#define TEN(x) x x x x x x x x x x
static const pickle_row pickle_rows[] = {
    {LITERAL(PROTO "]q\0" TEN(TEN("NN\x86" "a")) "0" "ccollections\nOrderedDict\nq\1" "h\0\x85R."), NULL},
    {LITERAL(PROTO "]q\0" TEN(TEN("NN\x86" "a")) "0" "ccollections\nOrderedDict\nq\1" TEN("h\1h\0\x85R0") "."),
     "too many dicts"},
    {LITERAL(PROTO "}."), NULL},
    {LITERAL(PROTO "}q\0X\1\0\0\0aK\1s."), NULL},
    {LITERAL(PROTO "ccollections\nOrderedDict\n)R}b."), NULL},
    {LITERAL(PROTO "(lp0\n."), "opcode 0x70"},
    {LITERAL(PROTO "cos\nsystem\nX\2\0\0\0ls\x85R."), "os.system is no part of a tensor"},
    {LITERAL(PROTO "cbuiltins\neval\n)R."), "builtins.eval"},
    {LITERAL("\x80\x04\x8c\2os\x8c\6system\x93."), "os.system"},
    {LITERAL(PROTO "ctorch\nFloatStorage\n)R."), "torch.FloatStorage is called"},
    {LITERAL(PROTO "ctorch._tensor\n_rebuild_from_type_v2\nctorch._tensor\n_rebuild_from_type_v2\nN)N\x87\x86R."),
     "arguments"},
    {LITERAL(PROTO "ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._tensor\n_rebuild_from_type_v2\nN)NtR."),
     "is called"},
    {LITERAL(PROTO "ctorch._utils\n_rebuild_tensor_v2\n)R."), "arguments"},
    {LITERAL(PROTO "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0" "0X\3\0\0\0cpuJ\xff\xff\xff\xfftQ."), "storage"},
    {LITERAL(PROTO "K\1Q."), "storage"},
    {LITERAL(PROTO "h\0."), "memo"},
    {LITERAL(PROTO "}r\xff\xff\xff\x7f."), "memo"},
    {LITERAL(PROTO "."), "value is missing"},
    {LITERAL(PROTO "}}."), "left over"},
    {LITERAL(PROTO "(."), "value is missing"},
    {LITERAL(PROTO "K\1K\2s."), "value is missing"},
    {LITERAL(PROTO "K\0K\1K\2s."), "no list or dict"},
    {LITERAL(PROTO "}(K\1u."), "a key without a value"},
    {LITERAL(PROTO "}(K\1K\2u."), NULL},
    {LITERAL(PROTO "](K\1K\2e."), NULL},
    {LITERAL(PROTO "](K\1K\2u."), "no list or dict"},
    {LITERAL(PROTO "u."), "a mark is missing"},
    {LITERAL(PROTO "](a."), "value is missing"},
    {LITERAL(PROTO "K\1(\x86."), "value is missing"},
    {LITERAL(PROTO "K\1}b."), "has a state"},
    {LITERAL(PROTO "X\xff\xff\xff\xff" "a."), "ends in the middle"},
    {LITERAL(PROTO "\x8d\xff\xff\xff\xff\xff\xff\xff\xff" "a."), "ends in the middle"},
    {LITERAL(PROTO "cos\nsys"), "ends in the middle"},
    {LITERAL(PROTO), "ends in the middle"},
    {LITERAL("\x80\x09}."), "protocol"},
    {LITERAL(PROTO "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\xff."), NULL},
};

static void test_pickles(void) {
    for (size_t i = 0; i < sizeof pickle_rows / sizeof *pickle_rows; i++) {
        const pickle_row *row = &pickle_rows[i];
        arena mem = {NULL, 0, 0, 0};
        tfm_error err = {0};
        pickle p;
        char *exact = malloc(row->n + !row->n); /* so that a sanitizer sees a read beyond */
        if (!exact) exit(1);
        memcpy(exact, row->bytes, row->n);
        int code = pickle_read(&p, "t.pkl", exact, row->n, &mem, &err);
        if (row->error) check(code && strstr(err.msg, row->error), "pickle %zu: %d \"%s\"", i, code, err.msg);
        else check(!code && p.length == row->n, "pickle %zu: %s", i, err.msg);
        free(exact);
        arena_free(&mem);
    }
}

/* ---- ARCHIVES -------------------------------------------------------------------------------------------------- */

/* An archive of two members, "a/x" of 4 bytes and "a/y" of 2, with what may be wrong about it. */
typedef struct zip_case {
    const char *what, *error;
    int zip64;               /* sizes and places stand in the ZIP64 records */
    int method, flags;
    uint64_t packed, bytes;  /* of the second member; 0: as it is */
    uint64_t header;         /* 0: where it is; else this + 1 */
    uint64_t n_entries, directory; /* 0: as it is */
    const char *second;      /* its name */
} zip_case;

static void put_text(unsigned char *to, size_t *at, const char *text) {
    for (; *text; text++) put_le(to, at, (unsigned char)*text, 1);
}

static void put_local(unsigned char *to, size_t *at, const char *name, const char *data) {
    put_le(to, at, 0x04034b50, 4);
    put_le(to, at, 45, 2);
    for (int i = 0; i < 4; i++) put_le(to, at, 0, 2); /* flags, method, time, date */
    put_le(to, at, 0, 4);
    put_le(to, at, strlen(data), 4);
    put_le(to, at, strlen(data), 4);
    put_le(to, at, strlen(name), 2);
    put_le(to, at, 5, 2); /* an extra field of padding, as torch.save has it */
    put_text(to, at, name);
    put_le(to, at, 0, 5);
    put_text(to, at, data);
}

static void put_central(unsigned char *to, size_t *at, const zip_case *z, const char *name, uint64_t packed,
                        uint64_t bytes, uint64_t header) {
    put_le(to, at, 0x02014b50, 4);
    put_le(to, at, 45, 2);
    put_le(to, at, 45, 2);
    put_le(to, at, (uint64_t)z->flags, 2);
    put_le(to, at, (uint64_t)z->method, 2);
    put_le(to, at, 0, 8); /* time, date, checksum */
    put_le(to, at, z->zip64 ? UINT32_MAX : packed, 4);
    put_le(to, at, z->zip64 ? UINT32_MAX : bytes, 4);
    put_le(to, at, strlen(name), 2);
    put_le(to, at, z->zip64 ? 28 : 0, 2);
    put_le(to, at, 0, 8); /* comment, disk, attributes */
    put_le(to, at, 0, 2);
    put_le(to, at, z->zip64 ? UINT32_MAX : header, 4);
    put_text(to, at, name);
    if (!z->zip64) return;
    put_le(to, at, 1, 2);
    put_le(to, at, 24, 2);
    put_le(to, at, bytes, 8);
    put_le(to, at, packed, 8);
    put_le(to, at, header, 8);
}

static void put_end(unsigned char *to, size_t *at, const zip_case *z, size_t directory, size_t n_directory) {
    const uint64_t n = z->n_entries ? z->n_entries : 2, where = z->directory ? z->directory : directory;
    const size_t end64 = *at;
    if (z->zip64) {
        put_le(to, at, 0x06064b50, 4);
        put_le(to, at, 44, 8);
        put_le(to, at, 0, 8);
        put_le(to, at, 0, 4);
        put_le(to, at, n, 8);
        put_le(to, at, n, 8);
        put_le(to, at, n_directory, 8);
        put_le(to, at, where, 8);
        put_le(to, at, 0x07064b50, 4);
        put_le(to, at, 0, 4);
        put_le(to, at, end64, 8);
        put_le(to, at, 1, 4);
    }
    put_le(to, at, 0x06054b50, 4);
    put_le(to, at, 0, 4);
    put_le(to, at, z->zip64 ? 0xffff : n, 2);
    put_le(to, at, z->zip64 ? 0xffff : n, 2);
    put_le(to, at, z->zip64 ? UINT32_MAX : n_directory, 4);
    put_le(to, at, z->zip64 ? UINT32_MAX : where, 4);
    put_le(to, at, 0, 2);
}

static size_t make_zip(unsigned char *to, const zip_case *z) {
    const char *second = z->second ? z->second : "a/y";
    size_t at = 0, header;
    put_local(to, &at, "a/x", "abcd");
    header = at;
    put_local(to, &at, second, "ef");
    const size_t directory = at;
    put_central(to, &at, z, "a/x", 4, 4, 0);
    put_central(to, &at, z, second, z->packed ? z->packed : 2, z->bytes ? z->bytes : 2,
                z->header ? z->header - 1 : header);
    put_end(to, &at, z, directory, at - directory);
    return at;
}

static const zip_case zip_cases[] = {
    {"plain", NULL, 0, 0, 0, 0, 0, 0, 0, 0, NULL},
    {"ZIP64", NULL, 1, 0, 0, 0, 0, 0, 0, 0, NULL},
    {"compressed", "a/x is compressed", 0, 8, 0, 0, 0, 0, 0, 0, NULL},
    {"sizes that differ", "a/y is compressed", 0, 0, 0, 2, 1 << 30, 0, 0, 0, NULL},
    {"encrypted", "a/x is encrypted", 0, 0, 1, 0, 0, 0, 0, 0, NULL},
    {"a member larger than the archive", "a/y lies outside", 1, 0, 0, UINT64_MAX, UINT64_MAX, 0, 0, 0, NULL},
    {"a header outside", "a/y lies outside", 1, 0, 0, 0, 0, UINT64_MAX, 0, 0, NULL},
    {"a header that is none", "a/y has no header", 0, 0, 0, 0, 0, 2, 0, 0, NULL},
    {"two members in one place", "overlaps", 0, 0, 0, 0, 0, 1, 0, 0, NULL},
    {"two members of one name", "a/x stands twice", 0, 0, 0, 0, 0, 0, 0, 0, "a/x"},
    {"too many members", "more members", 1, 0, 0, 0, 0, 0, UINT64_MAX, 0, NULL},
    {"a member too many", "more members", 0, 0, 0, 0, 0, 0, 3, 0, NULL},
    {"a directory outside", "directory lies outside", 1, 0, 0, 0, 0, 0, 0, UINT64_MAX, NULL},
    {"a directory elsewhere", "directory is damaged", 0, 0, 0, 0, 0, 0, 0, 1, NULL},
};

static void check_zip(const zip_case *z) {
    unsigned char file[1024];
    const size_t n = make_zip(file, z);
    for (size_t cut = 0; cut <= n; cut++) {
        arena mem = {NULL, 0, 0, 0};
        source src = source_memory("t.zip", file, cut);
        tfm_error err = {0};
        zip found;
        int code = zip_open(&found, &src, &mem, &err);
        if (cut < n) {
            check(code && err.msg[0], "zip, %s: cut at %zu", z->what, cut);
        } else if (z->error) {
            check(code && strstr(err.msg, z->error), "zip, %s: %d %s", z->what, code, err.msg);
        } else {
            const zip_entry *e = code ? NULL : zip_find(&found, "a/y");
            check(e && e->bytes == 2 && !memcmp(file + e->offset, "ef", 2), "zip, %s: %s", z->what, err.msg);
            check(!code && !zip_find(&found, "a/z"), "zip, %s: an absent member", z->what);
        }
        arena_free(&mem);
    }
}

/* A seed for tests/fuzz/fuzz_convert.c: the same directory with a tokenizer. */
static void write_whole_seed(const char *name, const folder *f, int torch) {
    static const char tokenizer[] =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}";
    static unsigned char seed[1 << 15];
    size_t at = 0;
    put_le(seed, &at, (uint64_t)torch, 1);
    put_le(seed, &at, f->files[0].size, 2);
    put_le(seed, &at, sizeof tokenizer - 1, 2);
    memcpy(seed + at, f->files[0].data, f->files[0].size);
    at += f->files[0].size;
    memcpy(seed + at, tokenizer, sizeof tokenizer - 1);
    at += sizeof tokenizer - 1;
    memcpy(seed + at, f->files[1].data, f->files[1].size);
    write_seed("convert", name, seed, at + f->files[1].size);
}

/* Seeds for tests/fuzz/fuzz_checkpoint.c: directories of a configuration and weights. */
static void write_seeds(void) {
    static const char *const names[] = {"awq", "gptq", "gptq_v2", "gptq8", "fp8", "fp8_rows", "int8", "words", "torch",
                                        "torch_old", "torch_views"};
    static unsigned char seed[1 << 15];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        folder f;
        size_t at = 0;
        folder_open(&f, names[i]);
        put_le(seed, &at, strcmp(f.files[1].name, "model.safetensors") != 0, 1);
        put_le(seed, &at, f.files[0].size, 2);
        for (int k = 0; k < 2; k++) {
            memcpy(seed + at, f.files[k].data, f.files[k].size);
            at += f.files[k].size;
        }
        write_seed("checkpoint", names[i], seed, at);
        write_whole_seed(names[i], &f, seed[0]);
        folder_close(&f);
    }
    unsigned char archive[1 + 1024] = {4};
    const zip_case plain = {"plain", NULL, 1, 0, 0, 0, 0, 0, 0, 0, NULL};
    write_seed("checkpoint", "zip", archive, 1 + make_zip(archive + 1, &plain));
}

void test_sources(void) {
    test_values();
    write_seeds();
    test_pickles();
    for (size_t i = 0; i < sizeof zip_cases / sizeof *zip_cases; i++) check_zip(&zip_cases[i]);
}

void test_sources_damage(void) {
    check_damage("torch", 1, 1400);
    check_damage("torch_old", 1, 3000);
    check_damage("awq", 1, 200);
    check_damage("gptq", 1, 200);
    check_damage("fp8", 1, 200);
    check_damage("words", 1, 200);
}
