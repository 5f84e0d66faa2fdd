#define KEPT __attribute__((noinline, used))

/* Both files have a function of this name: an order by names cannot tell them apart. */
static KEPT int helper(int value) {
    volatile int sum = value;
    for (int round = 0; round < 7; round++) sum = sum * 7 + round;
    return sum;
}

KEPT int second_one(int value) {
    volatile int sum = value + 7;
    return sum * 2;
}

KEPT int second_never(int value) {
    volatile int sum = value;
    for (int round = 0; round < 100; round++) sum = sum * 31 + round;
    return sum;
}

KEPT int second_two(int value) {
    volatile int sum = value;
    return sum * 5;
}
