/* board.h - all that main.c asks of the hardware: board_cortex_m.c, board_riscv.c, board_host.c. */
#ifndef BOARD_H
#define BOARD_H

#include <stddef.h>
#include <stdint.h>

void board_put(const char *text, size_t n);
uint64_t board_ticks(void);       /* of a clock that runs with the CPU; call it every few seconds */
size_t board_stack_used(void);    /* the most so far, in bytes */

#endif
