// Calls of every kind, from constructors to destructors.
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#include "step.h"

void step_never(void) { STEP(); }
static int step_leaf(int x) { STEP(); return x + 3; }
static int step_middle(int x) { STEP(); return step_leaf(x) + 2; }
static int step_by_pointer(int x) { STEP(); return x ^ 1; }
static int step_by_pointer_too(int x) { STEP(); return x ^ 2; }
static int step_compare(const void *left, const void *right) { STEP(); return *(const int *)left - *(const int *)right; }
static void step_handler(int signal) { STEP(); (void)signal; }
static void step_at_exit(void) { STEP(); }
__attribute__((constructor)) static void step_constructor(void) { STEP(); }
__attribute__((destructor)) static void step_destructor(void) { STEP(); }

static int (*volatile pointers[])(int) = {step_by_pointer_too, step_by_pointer};

// Jumps to its target as the last thing it does.
__attribute__((noinline)) static int step_tail(int x) { STEP(); return pointers[0](x); }

// The loader asks it which function to use, before any constructor.
static int resolved(int x) { return x + 5; }
static int (*resolve(void))(int) { return resolved; }
int chosen(int) __attribute__((ifunc("resolve")));

int main(int count, char **words) {
    int numbers[] = {3, 1, 2};
    (void)words;
    for (int round = 0; round < 3; round++) count = step_middle(count);
    count += step_tail(count) + pointers[1](count) + chosen(count);
    qsort(numbers, 3, sizeof *numbers, step_compare);
    signal(SIGUSR1, step_handler);
    raise(SIGUSR1);
    atexit(step_at_exit);
    return (count + numbers[0]) & 63;
}
