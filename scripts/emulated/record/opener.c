// Opens a library, whose breakpoints must be set before its constructors run, and maps code at a wanted address.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/mman.h>
#include "step.h"

static void step_before(void) { STEP(); }
static void step_after(void) { STEP(); }

int main(int count, char **words) {
    if (count < 2) return 97;
    step_before();
    // The call begins with an address in the register of its result, and fails.
    mmap((void *)0x700000000000, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED_NOREPLACE, 99, 0);
    void *library = dlopen(words[1], RTLD_NOW);
    if (!library) return 98;
    int (*function)(int) = (int (*)(int))dlsym(library, "step_library");
    int sum = function(1);
    step_after();
    return sum;
}
