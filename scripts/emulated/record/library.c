// Opened late by opener.c.
#include "step.h"

__attribute__((constructor)) static void step_library_begins(void) { STEP(); }
int step_library(int x) { STEP(); return x + 7; }
