// Forked and executed processes, in one order; a 32-bit program among them if the second argument names one.
#include <spawn.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/wait.h>
#include "step.h"

extern char **environ;
static void step_in_child(void) { STEP(); }
static void step_in_both(void) { STEP(); }
static void step_in_vforked(void) { STEP(); }
static void step_in_executed(void) { STEP(); }
static void step_after(void) { STEP(); }

static int ended(pid_t child) {
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

int main(int count, char **words) {
    if (count == 1) {
        step_in_executed();
        return 5;
    }
    pid_t child = fork();
    if (child == 0) {
        step_in_child();
        step_in_both();
        _exit(3);
    }
    int status = WEXITSTATUS(ended(child));
    step_in_both();
    child = vfork();
    if (child == 0) {
        step_in_vforked();
        _exit(4);
    }
    status += WEXITSTATUS(ended(child));
    if (count > 2) {
        char *other[] = {words[2], NULL};
        if (posix_spawn(&child, words[2], NULL, NULL, other, environ) != 0) return 98;
        status += WEXITSTATUS(ended(child));
    }
    step_after();
    char *again[] = {words[0], NULL};
    if (posix_spawn(&child, words[0], NULL, NULL, again, environ) != 0) return 97;
    return status + WEXITSTATUS(ended(child));
}
