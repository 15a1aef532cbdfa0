/* arena.c - memory and what is found in it. */
#include "arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- MEMORY ------------------------------------------------------------------------------------------------------ */

#if defined(TFM_FUZZING)
enum { ARENA_BLOCK = 0 }; /* every allocation has a block of its own, so that sanitizers see where it ends */
#else
enum { ARENA_BLOCK = 65536 };
#endif
enum { ARENA_ALIGN = 16, ARENA_LARGEST_STEP = 1 << 20 };

struct arena_block {
    struct arena_block *next;
    unsigned char *data; /* aligned */
};

static unsigned long refusals;

unsigned long memory_refusals(void)
{
    return refusals;
}

static struct arena_block *new_block(arena *a, size_t size)
{
    size_t overhead = sizeof(struct arena_block) + ARENA_ALIGN - 1;
    struct arena_block *block;
    if (size > SIZE_MAX - overhead) return NULL;
    block = (struct arena_block *)calloc(1, size + overhead);
    if (block == NULL) {
        refusals++;
        return NULL;
    }
    block->data = (unsigned char *)(block + 1);
    block->data += (ARENA_ALIGN - (uintptr_t)block->data % ARENA_ALIGN) % ARENA_ALIGN;
    a->total += size + overhead;
    return block;
}

static void *take(arena *a, size_t size, size_t align)
{
    size_t step = a->total / 8, start = (a->used + align - 1) / align * align;
    struct arena_block *block;
    if (a->blocks != NULL && start <= a->room && size <= a->room - start) {
        a->used = start + size;
        return a->blocks->data + start;
    }
    if (step > ARENA_LARGEST_STEP) step = ARENA_LARGEST_STEP;
    if (step < (size_t)ARENA_BLOCK || ARENA_BLOCK == 0) step = ARENA_BLOCK;
    block = new_block(a, size > step / 4 ? size : step);
    if (block == NULL) return NULL;
    if (size > step / 4 && a->blocks != NULL) { /* a block of its own, behind the one with room left */
        block->next = a->blocks->next;
        a->blocks->next = block;
        return block->data;
    }
    block->next = a->blocks;
    a->blocks = block;
    a->room = size > step / 4 ? size : step;
    a->used = size;
    return block->data;
}

void *arena_alloc(arena *a, size_t size)
{
    return take(a, size, ARENA_ALIGN);
}

void *arena_array(arena *a, size_t count, size_t size)
{
    if (size != 0 && count > SIZE_MAX / size) return NULL;
    return arena_alloc(a, count * size);
}

char *arena_text(arena *a, size_t n)
{
    return n < SIZE_MAX ? (char *)take(a, n + 1, 1) : NULL;
}

char *arena_strndup(arena *a, const char *s, size_t n)
{
    char *copy = arena_text(a, n);
    if (copy != NULL && n > 0) memcpy(copy, s, n);
    return copy;
}

char *arena_strdup(arena *a, const char *s)
{
    return arena_strndup(a, s, strlen(s));
}

char *arena_printf(arena *a, const char *format, ...)
{
    va_list args;
    char *text;
    int n;
    va_start(args, format);
    n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    text = n >= 0 ? arena_text(a, (size_t)n) : NULL;
    if (text == NULL) return NULL;
    va_start(args, format);
    vsnprintf(text, (size_t)n + 1, format, args);
    va_end(args);
    return text;
}

void arena_free(arena *a)
{
    while (a->blocks != NULL) {
        struct arena_block *next = a->blocks->next;
        free(a->blocks);
        a->blocks = next;
    }
    memset(a, 0, sizeof *a);
}

void *array_grow(void *array, size_t *capacity, size_t needed, size_t element_size)
{
    size_t room = *capacity < 16 ? 16 : *capacity;
    void *grown;
    if (needed <= *capacity) return array;
    while (room < needed) room = room > SIZE_MAX / 2 ? needed : room * 2;
    if (element_size != 0 && room > SIZE_MAX / element_size) return NULL;
    grown = realloc(array, room * element_size);
    if (grown != NULL) *capacity = room;
    else refusals++;
    return grown;
}

/* ---- NAMES ------------------------------------------------------------------------------------------------------- */

enum { MAX_PROBES = 256 }; /* names of honest files need a few; a file made to collide is refused */

static uint32_t name_hash(const char *name, size_t length)
{
    const uint64_t odd = 0x9e3779b97f4a7c15u;
    uint64_t h = (uint64_t)length * odd;
    unsigned char tail[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
    for (; length >= 8; name += 8, length -= 8) {
        h = (h ^ load_u64(name)) * odd;
        h ^= h >> 32;
    }
    if (length > 0) memcpy(tail, name, length);
    h = (h ^ load_u64(tail)) * odd;
    return (uint32_t)(h >> 32);
}

int name_index_init(name_index *index, arena *a, size_t capacity,
                    const char *(*name_of)(const void *table, uint32_t entry, size_t *length))
{
    uint32_t n = 16;
    if (capacity > (size_t)1 << 30) return TFM_ERR_MEMORY;
    while (n / 2 < capacity) n *= 2;
    index->slots = (uint64_t *)arena_array(a, n, sizeof *index->slots);
    index->mask = n - 1;
    index->name_of = name_of;
    return index->slots != NULL ? TFM_OK : TFM_ERR_MEMORY;
}

static uint32_t entry_of(uint64_t slot)
{
    return (uint32_t)slot - 1;
}

/* The slot that holds the name, or the free one where it belongs; NAME_ABSENT if the search takes too long. */
static uint32_t find_slot(const name_index *index, const void *table, const char *name, size_t length, uint32_t hash)
{
    uint32_t at = hash & index->mask;
    int probes;
    for (probes = 0; probes < MAX_PROBES; probes++, at = (at + 1) & index->mask) {
        uint64_t slot = index->slots[at];
        size_t n;
        const char *other;
        if (slot == 0) return at;
        if (slot >> 32 != hash) continue; /* spares a look at the table, which is seldom in the cache */
        other = index->name_of(table, entry_of(slot), &n);
        if (n == length && memcmp(other, name, n) == 0) return at;
    }
    return NAME_ABSENT;
}

int name_index_add(name_index *index, const void *table, uint32_t entry, uint32_t *present)
{
    size_t length;
    const char *name = index->name_of(table, entry, &length);
    uint32_t hash = name_hash(name, length), slot = find_slot(index, table, name, length, hash);
    if (slot == NAME_ABSENT) return TFM_ERR_FORMAT;
    if (index->slots[slot] != 0) {
        if (present != NULL) *present = entry_of(index->slots[slot]);
        return 1;
    }
    index->slots[slot] = (uint64_t)hash << 32 | (entry + 1);
    return TFM_OK;
}

uint32_t name_index_find(const name_index *index, const void *table, const char *name, size_t length)
{
    uint32_t slot;
    if (index->slots == NULL) return NAME_ABSENT;
    slot = find_slot(index, table, name, length, name_hash(name, length));
    return slot == NAME_ABSENT || index->slots[slot] == 0 ? NAME_ABSENT : entry_of(index->slots[slot]);
}

/* ---- BYTES ------------------------------------------------------------------------------------------------------- */

uint16_t load_u16(const void *bytes)
{
    const unsigned char *b = (const unsigned char *)bytes;
    return (uint16_t)(b[0] | b[1] << 8);
}

uint32_t load_u32(const void *bytes)
{
    const unsigned char *b = (const unsigned char *)bytes;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

uint64_t load_u64(const void *bytes)
{
    const unsigned char *b = (const unsigned char *)bytes;
    return load_u32(b) | (uint64_t)load_u32(b + 4) << 32;
}

float load_f32(const void *bytes)
{
    uint32_t bits = load_u32(bytes);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

double load_f64(const void *bytes)
{
    uint64_t bits = load_u64(bytes);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void file_order(int32_t type, void *numbers, int64_t n)
{
    tfm_tensor t = { numbers, type, TFM_ROWS, 1, n };
    if (tfm_type_get(type)->block == 1 && n > 0) tfm_file_order(&t, numbers);
}

int checked_mul(uint64_t a, uint64_t b, uint64_t *product)
{
    if (b != 0 && a > UINT64_MAX / b) return -1;
    *product = a * b;
    return 0;
}
