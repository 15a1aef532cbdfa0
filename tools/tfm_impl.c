#define TFM_IMPLEMENTATION
#include "tfm.h"
