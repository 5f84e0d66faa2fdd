// Needs no C library, so that all its code is guarded: an indirect branch to anything but a landing pad faults, recorded or
// not.
#include "step.h"

void no_pad(void);
__asm__(".text\n.type no_pad, %function\nno_pad: ret\n.size no_pad, . - no_pad\n");

static int step_signed(int x);
static int step_leaf(int x) { STEP(); return x + 1; }
static int step_by_jump(int x) { STEP(); return x + 2; }
static int (*volatile pointers[])(int) = {step_leaf, step_by_jump, step_signed};

// Not a leaf: it begins with `paciasp`, which is a landing pad as well.
static int step_signed(int x) { STEP(); return pointers[0](x) + 1; }
static int step_tail(int x) { STEP(); return pointers[1](x); }

__attribute__((used)) static void begin(void) {
    int x = pointers[2](1) + step_tail(2);
#ifdef VIOLATION
    void (*volatile pointer)(void) = no_pad;
    pointer();
#endif
    system_call(EXIT_GROUP, x, 0, 0);
}
__asm__(".text\n.globl _start\n.type _start, %function\n_start: bti c\n bl begin\n.size _start, . - _start\n");
