/* Runs a program that was linked as a shared library. */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments) {
    void *library = count == 2 ? dlopen(arguments[1], RTLD_NOW) : NULL;
    int (*program)(void) = library ? (int (*)(void))dlsym(library, "program") : NULL;
    if (!program) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    int status = program();
    fflush(stdout);
    return status + dlclose(library);
}
