/* isa.h - which instruction sets run here.
 *
 * The header's detection is trusted for those that cannot lie. One that a machine may claim and then fail to run is
 * tried once by a child process, which computes a product both ways.
 */
#ifndef TOOLS_ISA_H
#define TOOLS_ISA_H

#include "tfm.h"

int isa_works(int32_t isa); /* whether it runs here; call before threads start */
int32_t isa_best(void);     /* the widest that works */

#endif
