/* RISC-V: start, text by semihosting (a debugger or an emulator prints it), the cycle counter as the clock. */
#include "board.h"

extern uint32_t data_source[], data_begin[], data_end[], bss_begin[], bss_end[], stack_bottom[], stack_top[];
int main(void);
void start(void);

/* ---- semihosting: three instructions that a debugger knows, in one piece ----------------------------------------- */

enum { SYS_WRITEC = 3, SYS_EXIT_EXTENDED = 0x20, APPLICATION_EXIT = 0x20026 };

__attribute__((noinline, aligned(16))) static int call_host(int operation, const void *argument) {
    register int a0 __asm__("a0") = operation;
    register const void *a1 __asm__("a1") = argument;
    __asm__ volatile(".option push\n .option norvc\n .balign 16\n"
                     " slli x0, x0, 0x1f\n ebreak\n srai x0, x0, 7\n .option pop"
                     : "+r"(a0) : "r"(a1) : "memory");
    return a0;
}

void board_put(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) call_host(SYS_WRITEC, text + i);
}

__attribute__((used)) static void leave(int status) {
    const uint32_t argument[2] = {APPLICATION_EXIT, (uint32_t)status};
    for (;;) call_host(SYS_EXIT_EXTENDED, argument);
}

/* ---- clock ------------------------------------------------------------------------------------------------------ */

uint64_t board_ticks(void) {
    uint32_t high, low, again;
    do __asm__ volatile(".option push\n .option arch, +zicsr\n csrr %0, mcycleh\n csrr %1, mcycle\n csrr %2, mcycleh\n"
                        ".option pop" : "=r"(high), "=r"(low), "=r"(again));
    while (high != again);
    return (uint64_t)high << 32 | low;
}

/* ---- stack ------------------------------------------------------------------------------------------------------ */

enum { PAINT = 0x5aa5c33c };

static void paint_stack(void) {
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0) - 128;
    for (volatile uint32_t *p = stack_bottom; (uintptr_t)p < here; p++) *p = PAINT;
}

size_t board_stack_used(void) {
    const uint32_t *p = stack_bottom;
    while (p < stack_top && *p == PAINT) p++;
    return (size_t)((const char *)stack_top - (const char *)p);
}

/* ---- start ------------------------------------------------------------------------------------------------------ */

__attribute__((used, aligned(4))) static void fault(void) { leave(3); }

__attribute__((used)) static void run(void) {
    for (uint32_t *p = data_begin, *q = data_source; p < data_end;) *p++ = *q++;
    for (uint32_t *p = bss_begin; p < bss_end;) *p++ = 0;
    paint_stack();
    leave(main());
}

__attribute__((naked, section(".vectors"))) void start(void) {
    __asm__ volatile(".option push\n .option norelax\n la gp, __global_pointer$\n"
                     ".option arch, +zicsr\n la sp, stack_top\n la t0, fault\n csrw mtvec, t0\n"
                     "li t0, 0x2000\n csrs mstatus, t0\n" /* the floating-point unit, if there is one */
                     ".option pop\n j run");
}
