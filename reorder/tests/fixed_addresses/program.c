/* Addresses of functions in operands, in words of data, in tables for jumps, and in a slot of the GOT. */
#include <stdio.h>

#define KEPT __attribute__((noinline))

KEPT int first(int value) { return value + 1; }
KEPT int second(int value) { return value * 2; }
KEPT int third(int value) { return value - 3; }
KEPT int bystander(int value) { return value ^ 5; }

static int (*const volatile table[])(int) = {first, second, third};
/* Numbers: a test overwrites them with what looks like addresses. */
const volatile unsigned long numbers[2] = {1, 2};

KEPT int apply(int (*function)(int), int value) { return function(value); }
KEPT int is_first(int (*function)(int)) { return function == first; }

KEPT int jump(const unsigned char *code) {
    static void *const labels[] = {&&stop, &&increment, &&twice};
    int value = 5;
    goto *labels[*code];
increment: value++; goto *labels[*++code];
twice: value *= 2; goto *labels[*++code];
stop: return value;
}

KEPT int choose(int value, int other) {
    switch (value) {
    case 0: return other * 3 + 1;
    case 1: return other - 17;
    case 2: return other ^ 0x55;
    case 3: return other * other;
    case 4: return other / 3;
    case 5: return other << 4;
    default: return -1;
    }
}

/* A reference through the GOT that no linker can replace. */
KEPT int through_slot(int value) {
    int (*function)(int);
    __asm__("push bystander@GOTPCREL(%%rip)\n\tpop %0" : "=r"(function));
    return function(value);
}

int main(void) {
    static const unsigned char code[] = {2, 1, 2, 0};
    int sum = apply(first, 4) * 100 + apply(table[2], 9) + is_first(table[0]) * 1000;
    for (int value = 0; value < 6; value++) sum = sum * 3 + choose(value, value + 20);
    printf("%d %d %d\n", sum, jump(code), through_slot(7));
    return numbers[0] == 99;
}
