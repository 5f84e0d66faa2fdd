/* Every kind of reference to code that a position-independent program has; each function in a section of its own. */
#include <stdio.h>
#include <stdlib.h>

#define KEEP __attribute__((noinline, used))

static int counter;

KEEP int triple(int value) { return value * 3 + 1; }
KEEP static int fivefold(int value) { counter += value; return value * 5 + 7; }

KEEP int pick(int which, int value) {
    switch (which) {
        case 0: return triple(value);
        case 1: return fivefold(value) + 2;
        case 2: return printf("%d\n", value);
        case 3: return abs(value) - 9;
        case 4: return value ^ 0x55;
        case 5: return triple(value) * fivefold(value);
        case 6: return counter;
        default: return -1;
    }
}

KEEP int interpret(const unsigned char *program, int value) {
    static const void *const labels[] = {&&stop, &&add, &&twice, &&call};
    goto *labels[*program & 3];
add:
    value += 3;
    goto *labels[*++program & 3];
twice:
    value *= 2;
    goto *labels[*++program & 3];
call:
    value = triple(value);
    goto *labels[*++program & 3];
stop:
    return value;
}

KEEP static int compare(const void *left, const void *right) { return *(const int *)left - *(const int *)right; }

KEEP int sorted(int first, int second, int third) {
    int values[3] = {first, second, third};
    qsort(values, 3, sizeof values[0], compare);
    return values[0] * 100 + values[1] * 10 + values[2];
}

KEEP int hand_over(int value) { return pick(value & 7, value + 1); }

KEEP int checked(int value) {
    if (__builtin_expect(value > 1000, 0)) {
        fprintf(stderr, "too large\n");
        abort();
    }
    return value + counter;
}

int (*const table[])(int) = {triple, fivefold, hand_over, checked};

__attribute__((constructor)) KEEP static void prepare(void) { counter = 4; }

static int resolved_plain(int value) { return value + 11; }
static int (*resolve(void))(int) { return resolved_plain; }
int chosen(int value) __attribute__((ifunc("resolve")));

KEEP int last(int value) { return value; }

int main(void) {
    const unsigned char program[] = {1, 2, 3, 2, 0};
    int sum = interpret(program, 1) + sorted(3, 1, 2) + chosen(5) + last(6);
    for (int which = 0; which < 9; which++) {
        sum += pick(which, which * 3) + table[which & 3](which);
    }
    printf("%d %d\n", sum, counter);
    return 0;
}
