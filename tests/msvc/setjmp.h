/* setjmp.h - not used; the compiler's own header of intrinsics wants the type. */
#pragma once
typedef int jmp_buf[16];
