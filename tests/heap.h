/* heap.h - malloc and its kin, counted and made to fail: link heap.c with
 *     -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free
 * and every call in the program's own objects comes here first (what libc does inside stays its own).
 *
 * A program under test may be told by its environment: TFM_FAIL_ALLOC=N lets call N (1, 2, ...) fail. */
#ifndef TEST_HEAP_H
#define TEST_HEAP_H

/* Starts counting anew. Call fail_at fails (0: none does), and with `for_good` every call behind it, too. */
void heap_start(long fail_at, int for_good);
long heap_calls(void);  /* of malloc, calloc and realloc since then */
long heap_failed(void); /* how many of them were made to fail */
long heap_live(void);   /* blocks that were made and not freed, ever */

#endif
