/* Every form in which C and hand-written assembly refer to functions: one line of output for each. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEPT __attribute__((noinline))

/* Tables for a switch, with and without holes. */
KEPT int dense(int value, int other) {
    switch (value) {
    case 0: return other * 3 + 1;
    case 1: return other - 17;
    case 2: return other ^ 0x55;
    case 3: return other * other;
    case 4: return other / 3;
    case 5: return other << 4;
    case 6: return ~other;
    case 7: return other % 13;
    default: return -1;
    }
}

KEPT const char *sparse(int value) {
    switch (value) {
    case 100: return "hundred";
    case 101: return "hundred and one";
    case 103: return "hundred and three";
    case 104: return "hundred and four";
    case 107: return "hundred and seven";
    case 110: return "hundred and ten";
    default: return "other";
    }
}

/* Computed goto: addresses of labels, and differences of labels. */
KEPT int by_address(const unsigned char *code) {
    static void *const labels[] = {&&stop, &&increment, &&twice, &&negate};
    int value = 5;
    goto *labels[*code];
increment: value++; goto *labels[*++code];
twice: value *= 2; goto *labels[*++code];
negate: value = -value; goto *labels[*++code];
stop: return value;
}

KEPT int by_difference(const unsigned char *code) {
    static const int labels[] = {&&stop - &&stop, &&increment - &&stop, &&twice - &&stop, &&negate - &&stop};
    int value = 7;
    goto *(&&stop + labels[*code]);
increment: value++; goto *(&&stop + labels[*++code]);
twice: value *= 2; goto *(&&stop + labels[*++code]);
negate: value = -value; goto *(&&stop + labels[*++code]);
stop: return value;
}

/* Functions that a resolver chooses at start; called, and through pointers. */
static int plain_add(int a, int b) { return a + b; }
static int other_add(int a, int b) { return b + a + 1; }
static int (*resolve_add(void))(int, int) { return sizeof(long) == 8 ? plain_add : other_add; }
int add(int, int) __attribute__((ifunc("resolve_add")));
static int (*resolve_local(void))(int, int) { return plain_add; }
static int local_add(int, int) __attribute__((ifunc("resolve_local")));
int (*volatile add_pointer)(int, int) = add;

/* All models of thread-local storage. */
static __thread int local_exec = 3;
__thread int initial_exec __attribute__((tls_model("initial-exec"))) = 5;
__thread int global_dynamic __attribute__((tls_model("global-dynamic"))) = 7;
static __thread int local_dynamic_one __attribute__((tls_model("local-dynamic"))) = 11;
static __thread int local_dynamic_two __attribute__((tls_model("local-dynamic"))) = 13;
KEPT int thread_sum(int value) {
    local_exec += value;
    initial_exec += value;
    global_dynamic += value;
    local_dynamic_one += value;
    local_dynamic_two -= value;
    return local_exec * 1000 + initial_exec * 100 + global_dynamic * 10 + local_dynamic_one + local_dynamic_two;
}
static void *thread_main(void *argument) {
    int *result = argument;
    *result = thread_sum(*result);
    return result;
}

/* Constructors and destructors. */
static int constructed;
__attribute__((constructor(200))) static void early(void) { constructed = constructed * 10 + 1; }
__attribute__((constructor)) static void late(void) { constructed = constructed * 10 + 2; }
__attribute__((destructor)) static void last(void) { puts("destructed"); fflush(stdout); }
static void at_exit(void) { puts("at exit"); }

/* Weak, overridable and aliased. */
int nowhere(int) __attribute__((weak));
__attribute__((weak)) int replaceable(int value) { return value + 40; }
KEPT int original(int value) { return value * 9; }
int alias(int) __attribute__((alias("original")));
extern int hidden(int) __attribute__((visibility("hidden")));
int hidden(int value) { return value - 4; }

/* A part that is split off, and jumps back. */
static volatile int failures;
__attribute__((cold, noinline)) static void fails(const char *what) { failures += (int)strlen(what); }
KEPT int mostly_warm(int value) {
    int sum = value;
    for (int round = 0; round < 4; round++) {
        if (__builtin_expect(value == 1000 + round, 0)) {
            fails("rare");
            sum += failures;
            if (failures > 100) abort();
        }
        sum = sum * 3 + round;
    }
    return sum;
}

/* Tables of functions. */
static int first(int value) { return value + 1; }
static int second(int value) { return value * 2; }
static int third(int value) { return value - 3; }
static int (*const constant_table[])(int) = {first, second, third, original, alias};
static int (*writable_table[])(int) = {third, first, second};
struct operation { const char *name; int (*function)(int); };
static const struct operation operations[] = {{"first", first}, {"second", second}, {"original", original}};
static int descending(const void *left, const void *right) {
    return *(const int *)right - *(const int *)left;
}
KEPT int compared(int (*function)(int)) { return function == first ? 1 : function == second ? 2 : 0; }

/* Control that leaves the order of calls. */
static jmp_buf place;
static volatile sig_atomic_t signalled;
static void handler(int number) { signalled = number; }
KEPT void leap(int value) { longjmp(place, value); }

/* In assembly.S. */
int assembly_sized(int);
int assembly_table(int);
int assembly_falls(int);
int assembly_data(int);
int assembly_pointer(int);
extern int (*const assembly_pointers[2])(int);

#ifdef LIBRARY
int program(void);
int program(void) {
#else
int main(void) {
#endif
    static const unsigned char code[] = {2, 1, 3, 3, 2, 1, 2, 0};
    for (int value = 0; value < 9; value++) printf("%d ", dense(value, value * 7 + 2));
    for (int value = 99; value < 112; value += 2) printf("%s, ", sparse(value));
    printf("\n%d %d\n", by_address(code), by_difference(code));
    printf("%d %d %d %d\n", add(3, 4), local_add(5, 6), add_pointer(7, 8), add_pointer == add);
    int in_thread = 2;
    pthread_t thread;
    pthread_create(&thread, NULL, thread_main, &in_thread);
    pthread_join(thread, NULL);
    printf("%d %d %d\n", thread_sum(1), thread_sum(2), in_thread);
    printf("%d %d %d %d %d\n", constructed, nowhere ? nowhere(1) : 77, replaceable(2), alias(3), hidden(4));
    printf("%d %d\n", mostly_warm(5), mostly_warm(1002));
    int total = 0;
    for (int index = 0; index < 5; index++) total = total * 7 + constant_table[index](index);
    for (int index = 0; index < 3; index++) total = total * 5 + writable_table[index](index);
    for (int index = 0; index < 3; index++) {
        total += operations[index].function(index) + (int)strlen(operations[index].name);
    }
    int numbers[] = {5, 3, 9, 1, 7};
    qsort(numbers, 5, sizeof *numbers, descending);
    printf("%d %d %d %d %d\n", total, numbers[0], numbers[4], compared(first), compared(constant_table[1]));
    int jumped = setjmp(place);
    if (jumped < 3) leap(jumped + 1);
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    printf("%d %d\n", jumped, signalled == SIGUSR1);
    printf("%d %d %d", assembly_sized(3), assembly_table(0), assembly_table(2));
    printf(" %d %d %d", assembly_falls(5), assembly_data(6), assembly_pointer(7));
    printf(" %d %d\n", assembly_pointers[0](1), assembly_pointers[1](2));
    char text[64];
    snprintf(text, sizeof text, "%.3f %lld %s", strtod("2.71828", NULL), strtoll("-99", NULL, 10), "end");
    char *copy = strdup(text);
    memmove(copy + 1, copy, strlen(copy) - 1);
    printf("%s %s %d\n", text, strstr(copy, "718"), memcmp(text, copy, 3) != 0);
    free(copy);
    atexit(at_exit);
    return 0;
}
