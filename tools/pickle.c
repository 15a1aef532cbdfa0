/* pickle.c - a stack machine for the opcodes that torch.save writes (protocols 2 to 5), over a table of known names. */
#include "pickle.h"

#include <stdlib.h>
#include <string.h>

/* ---- NAMES ----------------------------------------------------------------------------------------------------- */

/* What calling a name gives. */
typedef enum pickle_call {
    CALL_NEVER,        /* a type of elements: no call */
    CALL_DICT, CALL_TENSOR, CALL_TENSOR_OF_TYPE,
    CALL_FIRST,        /* its first argument: a parameter is its tensor */
    CALL_INNER         /* its first argument called with its third */
} pickle_call;

typedef struct pickle_name {
    const char *module, *name;
    pickle_call call;
    int dtype;         /* of a type of elements, else -1 */
} pickle_name;

/* Storages by the name of their type, and the same types as torch calls them. */
static const pickle_name pickle_names[] = {
    {"collections", "OrderedDict", CALL_DICT, -1},
    {"torch._utils", "_rebuild_tensor", CALL_TENSOR, -1},
    {"torch._utils", "_rebuild_tensor_v2", CALL_TENSOR, -1},
    {"torch._utils", "_rebuild_tensor_v3", CALL_TENSOR_OF_TYPE, -1},
    {"torch._utils", "_rebuild_parameter", CALL_FIRST, -1},
    {"torch._utils", "_rebuild_parameter_with_state", CALL_FIRST, -1},
    {"torch._tensor", "_rebuild_from_type_v2", CALL_INNER, -1},
    {"torch.nn.parameter", "Parameter", CALL_NEVER, -1},
    {"torch", "Tensor", CALL_NEVER, -1},
    {"torch", "Size", CALL_FIRST, -1},
    {"torch.storage", "UntypedStorage", CALL_NEVER, -1},
    {"torch", "DoubleStorage", CALL_NEVER, ST_F64}, {"torch", "float64", CALL_NEVER, ST_F64},
    {"torch", "FloatStorage", CALL_NEVER, ST_F32}, {"torch", "float32", CALL_NEVER, ST_F32},
    {"torch", "HalfStorage", CALL_NEVER, ST_F16}, {"torch", "float16", CALL_NEVER, ST_F16},
    {"torch", "BFloat16Storage", CALL_NEVER, ST_BF16}, {"torch", "bfloat16", CALL_NEVER, ST_BF16},
    {"torch", "LongStorage", CALL_NEVER, ST_I64}, {"torch", "int64", CALL_NEVER, ST_I64},
    {"torch", "IntStorage", CALL_NEVER, ST_I32}, {"torch", "int32", CALL_NEVER, ST_I32},
    {"torch", "ShortStorage", CALL_NEVER, ST_I16}, {"torch", "int16", CALL_NEVER, ST_I16},
    {"torch", "CharStorage", CALL_NEVER, ST_I8}, {"torch", "int8", CALL_NEVER, ST_I8},
    {"torch", "ByteStorage", CALL_NEVER, ST_U8}, {"torch", "uint8", CALL_NEVER, ST_U8},
    {"torch", "BoolStorage", CALL_NEVER, ST_BOOL}, {"torch", "bool", CALL_NEVER, ST_BOOL},
    {"torch", "ComplexFloatStorage", CALL_NEVER, ST_C64}, {"torch", "complex64", CALL_NEVER, ST_C64},
    {"torch", "uint64", CALL_NEVER, ST_U64}, {"torch", "uint32", CALL_NEVER, ST_U32},
    {"torch", "uint16", CALL_NEVER, ST_U16},
    {"torch", "float8_e4m3fn", CALL_NEVER, ST_F8_E4M3}, {"torch", "float8_e5m2", CALL_NEVER, ST_F8_E5M2},
    {"torch", "float8_e8m0fnu", CALL_NEVER, ST_F8_E8M0},
    {"torch", "float8_e4m3fnuz", CALL_NEVER, ST_F8_E4M3FNUZ}, {"torch", "float8_e5m2fnuz", CALL_NEVER, ST_F8_E5M2FNUZ}};

/* ---- THE MACHINE ----------------------------------------------------------------------------------------------- */

typedef struct machine {
    const char *file;
    const unsigned char *bytes;
    size_t n, at;
    pickle_value *stack;
    size_t depth, stack_room;
    pickle_value *memo;
    size_t n_memo, memo_room;
    pickle *out;
    arena *a;
    tfm_error *err;
    size_t n_copied; /* pairs of lists that became dicts; each stands in a list once, and a list takes bytes */
} machine;

static int fail(const machine *m, const char *what) {
    return tool_fail(m->err, TFM_ERR_FORMAT, "%s: pickle: %s (before byte %zu)", m->file, what, m->at);
}

static int out_of_memory(const machine *m) {
    return tool_fail(m->err, TFM_ERR_MEMORY, "%s: out of memory for its pickle", m->file);
}

/* The next n bytes; NULL: there are fewer. */
static const unsigned char *take(machine *m, uint64_t n) {
    const unsigned char *p = m->bytes + m->at;
    if (n > m->n - m->at) return NULL;
    m->at += (size_t)n;
    return p;
}

/* An unsigned number of `bytes` bytes. */
static int take_number(machine *m, int bytes, uint64_t *value) {
    const unsigned char *p = take(m, (uint64_t)bytes);
    *value = 0;
    if (!p) return fail(m, "it ends in the middle");
    for (int i = 0; i < bytes; i++) *value |= (uint64_t)p[i] << (8 * i);
    return TFM_OK;
}

static int push(machine *m, pickle_value v) {
    pickle_value *grown = array_grow(m->stack, &m->stack_room, m->depth + 1, sizeof *grown);
    if (!grown) return out_of_memory(m);
    m->stack = grown;
    m->stack[m->depth++] = v;
    return TFM_OK;
}

static int push_kind(machine *m, pickle_kind kind, int64_t integer) {
    pickle_value v;
    v.kind = kind;
    v.u.integer = integer;
    return push(m, v);
}

/* The topmost value; it is never a mark. */
static int pop(machine *m, pickle_value *v) {
    if (!m->depth || m->stack[m->depth - 1].kind == PICKLE_MARK) return fail(m, "a value is missing");
    *v = m->stack[--m->depth];
    return TFM_OK;
}

/* How many values stand above the last mark. */
static int count_above_mark(const machine *m, size_t *n) {
    *n = 0;
    while (*n < m->depth && m->stack[m->depth - 1 - *n].kind != PICKLE_MARK) ++*n;
    return *n == m->depth ? fail(m, "a mark is missing") : TFM_OK;
}

/* Appends the n topmost values and takes them from the stack. */
static int collect(machine *m, pickle_list *to, size_t n) {
    if (n > to->room - to->n) {
        const size_t room = to->n + n > 2 * to->room ? to->n + n : 2 * to->room;
        pickle_value *items = arena_array(m->a, room, sizeof *items);
        if (!items) return out_of_memory(m);
        if (to->n) memcpy(items, to->items, to->n * sizeof *items);
        to->items = items;
        to->room = room;
    }
    m->depth -= n;
    if (n) memcpy(to->items + to->n, m->stack + m->depth, n * sizeof *to->items);
    to->n += n;
    return TFM_OK;
}

/* A new tuple, list or dict of the n topmost values. */
static int push_list(machine *m, pickle_kind kind, size_t n) {
    pickle_value v;
    v.kind = kind;
    v.u.list = arena_alloc(m->a, sizeof *v.u.list);
    if (!v.u.list) return out_of_memory(m);
    int code = n > m->depth ? fail(m, "a value is missing") : TFM_OK;
    for (size_t i = 0; !code && i < n; i++)
        if (m->stack[m->depth - 1 - i].kind == PICKLE_MARK) code = fail(m, "a value is missing");
    if (!code) code = collect(m, v.u.list, n);
    return code ? code : push(m, v);
}

static int push_text(machine *m, uint64_t n) {
    const unsigned char *p = take(m, n);
    pickle_value v;
    if (!p) return fail(m, "it ends in the middle");
    v.kind = PICKLE_TEXT;
    if (memchr(p, 0, (size_t)n)) v.u.text = ""; /* bytes that are no name of anything */
    else v.u.text = arena_strndup(m->a, (const char *)p, (size_t)n);
    return v.u.text ? push(m, v) : out_of_memory(m);
}

static int push_sized_text(machine *m, int length_bytes) {
    uint64_t n;
    const int code = take_number(m, length_bytes, &n);
    return code ? code : push_text(m, n);
}

/* Two's complement of n bytes; one of more than 8 (the mark of old files) becomes 0. */
static int push_long(machine *m, uint64_t n) {
    const unsigned char *p = take(m, n);
    uint64_t value = 0;
    if (!p) return fail(m, "it ends in the middle");
    if (n > 8) return push_kind(m, PICKLE_INT, 0);
    for (uint64_t i = 0; i < n; i++) value |= (uint64_t)p[i] << (8 * i);
    if (n && n < 8 && p[n - 1] & 0x80) value |= ~(uint64_t)0 << (8 * n);
    int64_t integer;
    memcpy(&integer, &value, sizeof integer);
    return push_kind(m, PICKLE_INT, integer);
}

/* Big-endian, of all numbers only this one. */
static int push_real(machine *m) {
    const unsigned char *p = take(m, 8);
    unsigned char little[8];
    pickle_value v;
    if (!p) return fail(m, "it ends in the middle");
    for (int i = 0; i < 8; i++) little[i] = p[7 - i];
    v.kind = PICKLE_REAL;
    v.u.real = load_f64(little);
    return push(m, v);
}

/* ---- NAMES AND CALLS ------------------------------------------------------------------------------------------- */

static int push_name(machine *m, const char *module, const char *name) {
    pickle_value v;
    for (size_t i = 0; i < sizeof pickle_names / sizeof *pickle_names; i++) {
        if (strcmp(pickle_names[i].module, module) || strcmp(pickle_names[i].name, name)) continue;
        v.kind = PICKLE_NAME;
        v.u.name = &pickle_names[i];
        return push(m, v);
    }
    return tool_fail(m->err, TFM_ERR_UNSUPPORTED, "%s: pickle: %.80s.%.80s is no part of a tensor, and nothing is "
                     "executed here", m->file, module, name);
}

/* Two lines: module, name. */
static int read_name(machine *m) {
    char *parts[2];
    for (int i = 0; i < 2; i++) {
        const unsigned char *p = m->bytes + m->at, *end = memchr(p, '\n', m->n - m->at);
        if (!end) return fail(m, "it ends in the middle");
        parts[i] = arena_strndup(m->a, (const char *)p, (size_t)(end - p));
        if (!parts[i]) return out_of_memory(m);
        m->at += (size_t)(end - p) + 1;
    }
    return push_name(m, parts[0], parts[1]);
}

static int pop_name(machine *m) {
    pickle_value module, name;
    int code = pop(m, &name);
    if (!code) code = pop(m, &module);
    if (code) return code;
    if (name.kind != PICKLE_TEXT || module.kind != PICKLE_TEXT) return fail(m, "a name is no text");
    return push_name(m, module.u.text, name.u.text);
}

/* ("storage", type, key, place, elements) */
static int read_storage(machine *m) {
    pickle_value v;
    int code = pop(m, &v);
    if (code) return code;
    const pickle_list *list = v.kind == PICKLE_TUPLE ? v.u.list : NULL;
    const pickle_value *p = list ? list->items : NULL;
    if (!list || list->n < 5 || p[0].kind != PICKLE_TEXT || strcmp(p[0].u.text, "storage") ||
        p[1].kind != PICKLE_NAME || p[2].kind != PICKLE_TEXT || p[4].kind != PICKLE_INT || p[4].u.integer < 0)
        return fail(m, "what stands for a storage is none");
    if (p[1].u.name->dtype < 0 && strcmp(p[1].u.name->name, "UntypedStorage"))
        return fail(m, "a storage is of no type that is known");
    if (list->n > 5 && p[5].kind != PICKLE_NONE) return fail(m, "a storage is a view of another");
    pickle_storage *s = arena_alloc(m->a, sizeof *s);
    if (!s) return out_of_memory(m);
    s->key = p[2].u.text;
    s->dtype = p[1].u.name->dtype;
    s->n = (uint64_t)p[4].u.integer;
    s->next = m->out->storages;
    m->out->storages = s;
    m->out->n_storages++;
    v.kind = PICKLE_STORAGE;
    v.u.storage = s;
    return push(m, v);
}

/* A tuple of at most ST_MAX_DIMS numbers that are not negative. */
static int read_dims(const machine *m, const pickle_value *v, int64_t *out, int *n) {
    if (v->kind != PICKLE_TUPLE || v->u.list->n > ST_MAX_DIMS) return fail(m, "a tensor's shape is none");
    *n = (int)v->u.list->n;
    for (int i = 0; i < *n; i++) {
        const pickle_value *dim = &v->u.list->items[i];
        if (dim->kind != PICKLE_INT || dim->u.integer < 0) return fail(m, "a tensor's shape is none");
        out[i] = dim->u.integer;
    }
    return TFM_OK;
}

/* (storage, first element, shape, strides ...), for CALL_TENSOR_OF_TYPE with a type as the seventh. */
static int push_tensor(machine *m, const pickle_list *args, pickle_call call) {
    const size_t least = call == CALL_TENSOR_OF_TYPE ? 7 : 4;
    const pickle_value *p = args->items;
    pickle_value v;
    int n_strides = 0;
    if (args->n < least || p[0].kind != PICKLE_STORAGE || p[1].kind != PICKLE_INT || p[1].u.integer < 0)
        return fail(m, "a tensor's arguments are none");
    const int dtype = call == CALL_TENSOR_OF_TYPE && p[6].kind == PICKLE_NAME ? p[6].u.name->dtype
                                                                              : p[0].u.storage->dtype;
    if (dtype < 0) return fail(m, "a tensor is of no type that is known");
    pickle_tensor *t = arena_alloc(m->a, sizeof *t);
    if (!t) return out_of_memory(m);
    t->storage = p[0].u.storage;
    t->first = (uint64_t)p[1].u.integer;
    t->dtype = (st_dtype)dtype;
    int code = read_dims(m, &p[2], t->dims, &t->n_dims);
    if (!code) code = read_dims(m, &p[3], t->strides, &n_strides);
    if (!code && n_strides != t->n_dims) code = fail(m, "a tensor's strides are not as many as its dimensions");
    v.kind = PICKLE_TENSOR;
    v.u.tensor = t;
    return code ? code : push(m, v);
}

/* An empty dict, or one of pairs: ([[key, value] ...],) */
static int push_dict(machine *m, const pickle_list *args) {
    const pickle_list *pairs = args->n && args->items[0].kind == PICKLE_LIST ? args->items[0].u.list : NULL;
    if (args->n && !pairs) return fail(m, "a dict is made of something unknown");
    int code = TFM_OK;
    m->n_copied += pairs ? pairs->n : 0;
    if (m->n_copied > m->n) return fail(m, "one list is in too many dicts");
    for (size_t i = 0; !code && pairs && i < pairs->n; i++) {
        const pickle_value *pair = &pairs->items[i];
        if ((pair->kind != PICKLE_LIST && pair->kind != PICKLE_TUPLE) || pair->u.list->n != 2)
            return fail(m, "a dict is made of something unknown");
        code = push(m, pair->u.list->items[0]);
        if (!code) code = push(m, pair->u.list->items[1]);
    }
    return code ? code : push_list(m, PICKLE_DICT, pairs ? 2 * pairs->n : 0);
}

static int call(machine *m, const pickle_value *f, const pickle_value *args) {
    if (f->kind != PICKLE_NAME || args->kind != PICKLE_TUPLE) return fail(m, "what is called is no name");
    const pickle_list *list = args->u.list;
    pickle_call kind = f->u.name->call;
    if (kind == CALL_INNER) { /* (function, type, arguments, state); the function is none of this kind */
        if (list->n < 3 || list->items[0].kind != PICKLE_NAME || list->items[2].kind != PICKLE_TUPLE)
            return fail(m, "a tensor's arguments are none");
        kind = list->items[0].u.name->call;
        list = list->items[2].u.list;
    }
    switch (kind) {
    case CALL_DICT: return push_dict(m, list);
    case CALL_TENSOR:
    case CALL_TENSOR_OF_TYPE: return push_tensor(m, list, kind);
    case CALL_FIRST:
        if (!list->n) return fail(m, "an argument is missing");
        return push(m, list->items[0]);
    default:
        return tool_fail(m->err, TFM_ERR_UNSUPPORTED, "%s: pickle: %s.%s is called, and nothing is executed here",
                         m->file, f->u.name->module, f->u.name->name);
    }
}

static int reduce(machine *m) {
    pickle_value f, args;
    int code = pop(m, &args);
    if (!code) code = pop(m, &f);
    return code ? code : call(m, &f, &args);
}

/* The state of a dict or tensor that stands below it on the stack: attributes, none of them of interest. */
static int drop_state(machine *m) {
    pickle_value state;
    int code = pop(m, &state);
    if (code) return code;
    const pickle_kind kind = m->depth ? m->stack[m->depth - 1].kind : PICKLE_MARK;
    return kind == PICKLE_DICT || kind == PICKLE_TENSOR ? TFM_OK : fail(m, "an object of no known kind has a state");
}

/* ---- CONTAINERS AND MEMO --------------------------------------------------------------------------------------- */

/* n values go into the list or dict below them; above: a mark stands between. */
static int add_to(machine *m, pickle_kind kind, size_t n, int above) {
    if (kind == PICKLE_DICT && n % 2) return fail(m, "a key without a value");
    if (m->depth < n + 1 + (size_t)above) return fail(m, "a value is missing");
    const pickle_value *to = &m->stack[m->depth - n - 1 - (size_t)above];
    if (to->kind != kind) return fail(m, "values for something that is no list or dict");
    pickle_list *list = to->u.list;
    for (size_t i = 0; i < n; i++)
        if (m->stack[m->depth - 1 - i].kind == PICKLE_MARK) return fail(m, "a value is missing");
    int code = collect(m, list, n);
    m->depth -= (size_t)above;
    return code;
}

static int add_above_mark(machine *m, pickle_kind kind) {
    size_t n;
    const int code = count_above_mark(m, &n);
    return code ? code : add_to(m, kind, n, 1);
}

static int list_above_mark(machine *m, pickle_kind kind) {
    size_t n;
    int code = count_above_mark(m, &n);
    if (!code && kind == PICKLE_DICT && n % 2) code = fail(m, "a key without a value");
    if (!code) code = push_list(m, kind, n);
    if (code) return code;
    m->stack[m->depth - 2] = m->stack[m->depth - 1]; /* the mark goes */
    m->depth--;
    return TFM_OK;
}

static int drop_above_mark(machine *m) {
    size_t n;
    const int code = count_above_mark(m, &n);
    if (!code) m->depth -= n + 1;
    return code;
}

/* Numbers of the memo follow one another in honest pickles; none is as large as the pickle. */
static int memo_put(machine *m, uint64_t i) {
    pickle_value v;
    int code = pop(m, &v);
    if (code) return code;
    m->depth++;
    if (i >= m->n) return fail(m, "a number of the memo is too large");
    pickle_value *grown = array_grow(m->memo, &m->memo_room, (size_t)i + 1, sizeof *grown);
    if (!grown) return out_of_memory(m);
    m->memo = grown;
    for (; m->n_memo <= i; m->n_memo++) m->memo[m->n_memo].kind = PICKLE_MARK; /* none */
    m->memo[i] = v;
    return TFM_OK;
}

static int memo_get(machine *m, uint64_t i) {
    if (i >= m->n_memo || m->memo[i].kind == PICKLE_MARK) return fail(m, "the memo has no such number");
    return push(m, m->memo[i]);
}

/* ---- OPCODES --------------------------------------------------------------------------------------------------- */

enum {
    OP_MARK = '(', OP_STOP = '.', OP_POP = '0', OP_POP_MARK = '1', OP_BINFLOAT = 'G', OP_BININT = 'J', OP_BININT1 = 'K',
    OP_BININT2 = 'M', OP_NONE = 'N', OP_BINPERSID = 'Q', OP_REDUCE = 'R', OP_BINSTRING = 'T', OP_SHORT_BINSTRING = 'U',
    OP_BINUNICODE = 'X', OP_EMPTY_LIST = ']', OP_APPEND = 'a', OP_BUILD = 'b', OP_GLOBAL = 'c', OP_DICT = 'd',
    OP_APPENDS = 'e', OP_BINGET = 'h', OP_LONG_BINGET = 'j', OP_LIST = 'l', OP_BINPUT = 'q', OP_LONG_BINPUT = 'r',
    OP_SETITEM = 's', OP_TUPLE = 't', OP_EMPTY_TUPLE = ')', OP_SETITEMS = 'u', OP_EMPTY_DICT = '}', OP_BINBYTES = 'B',
    OP_SHORT_BINBYTES = 'C', OP_PROTO = 0x80, OP_NEWOBJ = 0x81, OP_TUPLE1 = 0x85, OP_TUPLE2 = 0x86, OP_TUPLE3 = 0x87,
    OP_NEWTRUE = 0x88, OP_NEWFALSE = 0x89, OP_LONG1 = 0x8a, OP_LONG4 = 0x8b, OP_SHORT_BINUNICODE = 0x8c,
    OP_BINUNICODE8 = 0x8d, OP_STACK_GLOBAL = 0x93, OP_MEMOIZE = 0x94, OP_FRAME = 0x95
};

/* Opcodes whose argument is a number of so many bytes. */
static int argument_bytes(int op) {
    switch (op) {
    case OP_BININT1: case OP_BINGET: case OP_BINPUT: case OP_LONG1: case OP_PROTO: return 1;
    case OP_BININT2: return 2;
    case OP_BININT: case OP_LONG_BINGET: case OP_LONG_BINPUT: case OP_LONG4: return 4;
    case OP_FRAME: return 8;
    default: return 0;
    }
}

static int step_value(machine *m, int op, uint64_t argument) {
    switch (op) {
    case OP_NONE: return push_kind(m, PICKLE_NONE, 0);
    case OP_NEWTRUE: return push_kind(m, PICKLE_BOOL, 1);
    case OP_NEWFALSE: return push_kind(m, PICKLE_BOOL, 0);
    case OP_BININT: return push_kind(m, PICKLE_INT, (int32_t)(uint32_t)argument);
    case OP_BININT1: case OP_BININT2: return push_kind(m, PICKLE_INT, (int64_t)argument);
    case OP_LONG1: case OP_LONG4: return push_long(m, argument);
    case OP_BINFLOAT: return push_real(m);
    case OP_SHORT_BINSTRING: case OP_SHORT_BINUNICODE: case OP_SHORT_BINBYTES: return push_sized_text(m, 1);
    case OP_BINSTRING: case OP_BINUNICODE: case OP_BINBYTES: return push_sized_text(m, 4);
    case OP_BINUNICODE8: return push_sized_text(m, 8);
    case OP_EMPTY_TUPLE: return push_list(m, PICKLE_TUPLE, 0);
    case OP_TUPLE1: case OP_TUPLE2: case OP_TUPLE3: return push_list(m, PICKLE_TUPLE, (size_t)(op - OP_TUPLE1 + 1));
    case OP_EMPTY_LIST: return push_list(m, PICKLE_LIST, 0);
    case OP_EMPTY_DICT: return push_list(m, PICKLE_DICT, 0);
    case OP_TUPLE: return list_above_mark(m, PICKLE_TUPLE);
    case OP_LIST: return list_above_mark(m, PICKLE_LIST);
    case OP_DICT: return list_above_mark(m, PICKLE_DICT);
    default:
        return tool_fail(m->err, TFM_ERR_UNSUPPORTED, "%s: pickle: opcode 0x%02x is not known (byte %zu)", m->file, op,
                         m->at - 1);
    }
}

static int step(machine *m, int op) {
    uint64_t argument = 0;
    pickle_value dropped;
    const int bytes = argument_bytes(op), code = bytes ? take_number(m, bytes, &argument) : TFM_OK;
    if (code) return code;
    switch (op) {
    case OP_PROTO: return argument <= 5 ? TFM_OK : fail(m, "its protocol is not known");
    case OP_FRAME: return TFM_OK;
    case OP_MARK: return push_kind(m, PICKLE_MARK, 0);
    case OP_POP: return pop(m, &dropped);
    case OP_POP_MARK: return drop_above_mark(m);
    case OP_GLOBAL: return read_name(m);
    case OP_STACK_GLOBAL: return pop_name(m);
    case OP_BINPERSID: return read_storage(m);
    case OP_REDUCE: case OP_NEWOBJ: return reduce(m);
    case OP_BUILD: return drop_state(m);
    case OP_APPEND: return add_to(m, PICKLE_LIST, 1, 0);
    case OP_SETITEM: return add_to(m, PICKLE_DICT, 2, 0);
    case OP_APPENDS: return add_above_mark(m, PICKLE_LIST);
    case OP_SETITEMS: return add_above_mark(m, PICKLE_DICT);
    case OP_BINPUT: case OP_LONG_BINPUT: return memo_put(m, argument);
    case OP_MEMOIZE: return memo_put(m, m->n_memo);
    case OP_BINGET: case OP_LONG_BINGET: return memo_get(m, argument);
    default: return step_value(m, op, argument);
    }
}

int pickle_read(pickle *out, const char *file, const void *bytes, size_t n, arena *a, tfm_error *err) {
    machine m = {file, bytes, n, 0, NULL, 0, 0, NULL, 0, 0, out, a, err, 0};
    int code = TFM_OK, op = 0;
    memset(out, 0, sizeof *out);
    while (!code && op != OP_STOP) {
        const unsigned char *p = take(&m, 1);
        op = p ? *p : 0;
        if (!p) code = fail(&m, "it ends in the middle");
        else if (op != OP_STOP) code = step(&m, op);
    }
    if (!code) code = pop(&m, &out->value);
    if (!code && m.depth) code = fail(&m, "values are left over");
    out->length = m.at;
    free(m.stack);
    free(m.memo);
    return code;
}

const pickle_value *pickle_get(const pickle_value *dict, const char *key) {
    if (dict->kind != PICKLE_DICT) return NULL;
    for (size_t i = 0; i + 1 < dict->u.list->n; i += 2) {
        const pickle_value *k = &dict->u.list->items[i];
        if (k->kind == PICKLE_TEXT && !strcmp(k->u.text, key)) return k + 1;
    }
    return NULL;
}
