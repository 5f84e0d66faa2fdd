// SIGTRAP of the program's own: sent, and from breakpoints of its own, also one that is a function's first instruction.
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#include <ucontext.h>
#include "step.h"

static volatile int traps;
static void step_on_trap(int number, siginfo_t *info, void *context) {
    STEP();
    (void)number;
    traps++;
    if (info->si_code > 0) ((ucontext_t *)context)->uc_mcontext.pc += 4;
}
__attribute__((noinline)) static void step_sent(void) { STEP(); raise(SIGTRAP); }
__attribute__((noinline)) static void step_own(void) { STEP(); __asm__ volatile("brk #0"); }
__attribute__((noinline)) static void step_after(void) { STEP(); }
void begins_with_breakpoint(void);
__asm__(".text\n.type begins_with_breakpoint, %function\nbegins_with_breakpoint: brk #1000\n ret\n"
        ".size begins_with_breakpoint, . - begins_with_breakpoint\n");

int main(void) {
    // The handler itself begins with a breakpoint of the recorder's, which is hit while SIGTRAP is blocked.
    struct sigaction action = {.sa_sigaction = step_on_trap, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, NULL);
    step_sent();
    step_own();
    begins_with_breakpoint();
    begins_with_breakpoint();
    step_after();
    return traps;
}
