/* Every reference that linkers keep a relocation for, and those they rewrite without touching it. */
#include <stdio.h>
#include <stdlib.h>

#define KEEP __attribute__((noinline, used))

static __thread int thread_counter;
__thread int shared_thread_counter = 3;
extern int absent(int) __attribute__((weak));

KEEP int triple(int value) { return value * 3 + 1; }
KEEP static int fivefold(int value) { thread_counter += value; return value * 5 + 7; }
KEEP static int bystander(int value) { return value - 2; }
KEEP static int relative_one(int value) { return value + 100; }
__attribute__((visibility("hidden"))) KEEP int relative_two(int value) { return value + 200; }
KEEP static int relative_three(int value) { return value + 300; }

__asm__(".section .rodata\n .p2align 2\n .globl offsets\n .hidden offsets\noffsets:\n"
        " .long relative_one - offsets, relative_two - offsets, relative_three - offsets\n"
        " .p2align 3\n .globl self_relative\n .hidden self_relative\nself_relative: .quad relative_two - .\n .text\n");
extern const int offsets[];
extern const long self_relative;

KEEP int pick(int which, int value) {
    switch (which) {
        case 0: return triple(value);
        case 1: return fivefold(value) + 2;
        case 2: return printf("%d\n", value);
        case 3: return abs(value) - 9;
        case 4: return value ^ 0x55;
        case 5: return triple(value) * fivefold(value);
        case 6: return thread_counter + shared_thread_counter;
        default: return -1;
    }
}

KEEP static int compare(const void *left, const void *right) { return *(const int *)left - *(const int *)right; }

KEEP int sorted(int first, int second, int third) {
    int values[3] = {first, second, third};
    qsort(values, 3, sizeof values[0], compare);
    return values[0] * 100 + values[1] * 10 + values[2];
}

static int resolved_plain(int value) { return value + 11; }
static int (*resolve(void))(int) { return resolved_plain; }
int chosen(int value) __attribute__((ifunc("resolve")));

int (*const table[])(int) = {triple, fivefold, chosen, bystander};

int main(void) {
    int sum = sorted(3, 1, 2) + chosen(5);
    for (int which = 0; which < 9; which++) {
        sum += pick(which, which * 3) + table[which & 3](which);
    }
    for (int index = 0; index < 3; index++) {
        sum += ((int (*)(int))((const char *)offsets + offsets[index]))(index);
    }
    sum += ((int (*)(int))((const char *)&self_relative + self_relative))(1);
    if (absent) {
        sum += absent(1);
    }
    printf("%d\n", sum);
    return 0;
}
