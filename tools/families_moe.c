/* families_moe.c - mixtures of experts. See family_rows.h. */
#include "family_rows.h"

const family families_moe[] = {
    FAMILIES_END};
