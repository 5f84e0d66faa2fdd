#include <stdio.h>
__attribute__((noinline)) static long kind(unsigned long number, long x) {
    long result = x;
    switch (number) {
    case 0: result = x * 3 + 1; break;
    case 1: result = x ^ 0x55; break;
    case 2: result = x - 1000; break;
    case 3: result = x >> 3; break;
    case 4: result = x * x; break;
    case 5: result = ~x; break;
    case 6: printf("six\n"); break;
    default: __builtin_unreachable();
    }
    return result + 5;
}
int main(int count, char **words) {
    long sum = 0;
    for (int at = 0; at < 7; at++) sum += kind(at * (unsigned)count, sum + at);
    printf("%ld\n", sum);
    return 0;
}
