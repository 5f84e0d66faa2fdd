// A second unit, whose functions end up between those of the first.
#include <stdio.h>
#include <string.h>

static inline __attribute__((always_inline)) int mixed(int left, int right) {
    int both = left ^ right;
    return both * both;
}

__attribute__((noinline, cold)) int cold_path(int number) {
    int half = number / 2;
    return half + (int)strlen("cold") + mixed(number, 3);
}

__attribute__((noinline)) int digits(int number) {
    char text[32];
    snprintf(text, sizeof text, "%d", number);
    int total = 0;
    for (char *at = text; *at; at++) {
        int digit = *at - '0';
        total += mixed(digit, number);
    }
    return total;
}

__attribute__((noinline)) int unused_one(int number) { return digits(number) + cold_path(number + 1); }

__attribute__((noinline)) int unused_two(int number) {
    switch (number) {
    case 0:
        return digits(1);
    case 1:
        return cold_path(2);
    case 2:
        return unused_one(3);
    case 3:
        return 44;
    case 4:
        return digits(number * 2);
    default:
        return 0;
    }
}
