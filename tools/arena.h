/* arena.h - memory, an index of names, and numbers out of bytes. */
#ifndef TOOLS_ARENA_H
#define TOOLS_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "text.h"

/* ---- MEMORY ---------------------------------------------------------------------------------------------------- */

/* Many allocations, one release. An all-zero arena is empty and ready for use. */
typedef struct arena {
    struct arena_block *blocks; /* newest first */
    size_t used, room;          /* bytes taken of the newest block, bytes it has */
    size_t total;               /* bytes taken from the system so far */
} arena;

void *arena_alloc(arena *a, size_t size);                  /* zeroed, aligned to 16 bytes; NULL if there is no memory */
void *arena_array(arena *a, size_t count, size_t size);    /* the same for count * size, multiplication checked */
char *arena_text(arena *a, size_t n);                      /* n zero bytes and a final zero, packed closely */
char *arena_strdup(arena *a, const char *s);               /* a copy of a C string */
char *arena_strndup(arena *a, const char *s, size_t n);    /* a copy of n bytes (zeros included) and a final zero */
char *arena_printf(arena *a, const char *format, ...) TOOL_PRINTF(2, 3);
void arena_free(arena *a);                                 /* releases everything; the arena is empty again */
/* How often the system had no memory for an arena or array_grow so far, of those of any thread: who tries something and
 * goes on where it fails must not take that for an answer. */
unsigned long memory_refusals(void);

/* Makes room for `needed` elements in an array from malloc, doubling it. Returns the array (perhaps moved), or NULL
 * and leaves the old one alone. New elements are not cleared. */
void *array_grow(void *array, size_t *capacity, size_t needed, size_t element_size);

/* ---- NAMES ----------------------------------------------------------------------------------------------------- */

/* An index of the names in a table of the caller's: finds entry i by its name in constant time. The table may move;
 * it is reached through the callback on each call. */
typedef struct name_index {
    uint64_t *slots; /* hash << 32 | entry + 1, or 0; open addressing, at most half full */
    uint32_t mask;
    const char *(*name_of)(const void *table, uint32_t entry, size_t *length);
} name_index;

#define NAME_ABSENT UINT32_MAX

/* Room for up to `capacity` names. TFM_OK or TFM_ERR_MEMORY. */
int name_index_init(name_index *index, arena *a, size_t capacity,
                    const char *(*name_of)(const void *table, uint32_t entry, size_t *length));
/* Adds entry; returns TFM_OK, 1 if the name is already there (*present is its entry), or TFM_ERR_FORMAT for a file
 * made to collide. */
int name_index_add(name_index *index, const void *table, uint32_t entry, uint32_t *present);
uint32_t name_index_find(const name_index *index, const void *table, const char *name, size_t length);

/* ---- BYTES ----------------------------------------------------------------------------------------------------- */

/* Little-endian numbers at any address, on any host. */
uint16_t load_u16(const void *bytes);
uint32_t load_u32(const void *bytes);
uint64_t load_u64(const void *bytes);
float load_f32(const void *bytes);
double load_f64(const void *bytes);
/* n numbers of a float type from that order to the host's, or back; of any other type nothing changes. */
void file_order(int32_t type, void *numbers, int64_t n);

/* 0 and the result, or -1 if it does not fit in 64 bits. */
int checked_mul(uint64_t a, uint64_t b, uint64_t *product);

#endif
