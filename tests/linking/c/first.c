#define KEPT __attribute__((noinline, used))

/* Both files have a function of this name: an order by names cannot tell them apart. */
static KEPT int helper(int value) {
    volatile int sum = value;
    for (int round = 0; round < 3; round++) sum = sum * 3 + round;
    return sum;
}

KEPT int first_one(int value) {
    volatile int sum = value + 3;
    return sum * 2;
}

KEPT int first_never(int value) {
    volatile int sum = value;
    for (int round = 0; round < 100; round++) sum = sum * 31 + round;
    return sum;
}

KEPT int first_two(int value) {
    volatile int sum = value;
    return helper(sum) * 3;
}
