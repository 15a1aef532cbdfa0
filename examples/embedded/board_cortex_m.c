/* Cortex-M: vectors, start, text by semihosting (a debugger or an emulator prints it), SysTick as the clock. */
#include "board.h"

extern uint32_t data_source[], data_begin[], data_end[], bss_begin[], bss_end[], stack_bottom[], stack_top[];
int main(void);
void reset(void);

/* ---- semihosting ------------------------------------------------------------------------------------------------ */

enum { SYS_WRITEC = 3, SYS_EXIT_EXTENDED = 0x20, APPLICATION_EXIT = 0x20026 };

static int call_host(int operation, const void *argument) {
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

void board_put(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) call_host(SYS_WRITEC, text + i);
}

static void leave(int status) {
    const uint32_t argument[2] = {APPLICATION_EXIT, (uint32_t)status};
    for (;;) call_host(SYS_EXIT_EXTENDED, argument);
}

/* ---- clock ------------------------------------------------------------------------------------------------------ */

#ifdef SSE_COUNTER
/* The counter of Arm's SSE-300 subsystem: control, ..., low word, high word. */
#define COUNTER ((volatile uint32_t *)0x58100000)

uint64_t board_ticks(void) {
    COUNTER[0] = 1;
    return (uint64_t)COUNTER[3] << 32 | COUNTER[2];
}
#else
/* 24 bits, downwards. */

#define SYSTICK ((volatile uint32_t *)0xe000e010) /* control, reload, current */

uint64_t board_ticks(void) {
    static uint64_t total;
    static uint32_t last;
    if (!SYSTICK[0]) {
        SYSTICK[1] = last = 0xffffff;
        SYSTICK[2] = 0;
        SYSTICK[0] = 5; /* on, the CPU's clock, no interrupt */
    }
    const uint32_t now = SYSTICK[2];
    total += (last - now) & 0xffffff;
    last = now;
    return total;
}
#endif

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

#ifdef TRAP_UNALIGNED
/* To show that nothing but the C library's memcpy makes unaligned accesses (it does where the CPU can). */
void *memcpy(void *to, const void *from, size_t n) {
    volatile unsigned char *p = to;
    const unsigned char *q = from;
    while (n--) *p++ = *q++;
    return to;
}
#endif

/* ---- start ------------------------------------------------------------------------------------------------------ */

static void fault(void) { leave(3); }

void reset(void) {
    *(volatile uint32_t *)0xe000ed88 |= 0xfu << 20; /* CPACR: the floating-point unit, and Helium, may be used */
#ifdef TRAP_UNALIGNED
    *(volatile uint32_t *)0xe000ed14 |= 1u << 3; /* CCR: an unaligned access is a fault */
#endif
    __asm__ volatile("dsb\n isb");
    for (uint32_t *p = data_begin, *q = data_source; p < data_end;) *p++ = *q++;
    for (uint32_t *p = bss_begin; p < bss_end;) *p++ = 0;
    paint_stack();
    leave(main());
}

__attribute__((section(".vectors"), used)) static void (*const vectors[16])(void) = {
    (void (*)(void))stack_top, reset, fault, fault, fault, fault, fault, fault,
    fault, fault, fault, fault, fault, fault, fault, fault
};
