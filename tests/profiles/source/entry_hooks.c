// Prints where functions were entered first, when the program ends: as decimal offsets for the hook that compilers call
// with -finstrument-function-entry-bare, as hexadecimal ones for that of -fsanitize-coverage=func,trace-pc-guard.
// Both count from the start of the image.
#include <stdint.h>
#include <stdio.h>

#define PLAIN __attribute__((no_instrument_function, no_sanitize("coverage")))

extern char __executable_start;
static uintptr_t entries[1024];
static int entry_count;
static int is_hexadecimal;

PLAIN static void note(void *address) {
  uintptr_t offset = (uintptr_t)address - (uintptr_t)&__executable_start;
  for (int i = 0; i < entry_count; i++)
    if (entries[i] == offset) return;
  if (entry_count < 1024) entries[entry_count++] = offset;
}

PLAIN void __cyg_profile_func_enter_bare(void) { note(__builtin_return_address(0)); }

PLAIN void __sanitizer_cov_trace_pc_guard_init(uint32_t *start, uint32_t *stop) {
  is_hexadecimal = 1;
  for (uint32_t *guard = start; guard < stop; guard++) *guard = 1;
}

PLAIN void __sanitizer_cov_trace_pc_guard(uint32_t *guard) {
  if (*guard) note(__builtin_return_address(0));
  *guard = 0;
}

PLAIN __attribute__((destructor)) static void print(void) {
  for (int i = 0; i < entry_count; i++) printf(is_hexadecimal ? "0x%lx\n" : "%lu\n", (unsigned long)entries[i]);
}
