/* The same program on the machine at hand, to compare with. */
#include <stdio.h>

#include "board.h"

void board_put(const char *text, size_t n) { fwrite(text, 1, n, stdout); }
uint64_t board_ticks(void) { return 0; }
size_t board_stack_used(void) { return 0; }
