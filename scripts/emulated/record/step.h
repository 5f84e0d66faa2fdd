// Each function that is compared prints its name when it is first executed, so that the program itself says what a
// recorder must find. Needs no C library.
static inline long system_call(long number, long first, long second, long third) {
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = first;
    register long x1 __asm__("x1") = second;
    register long x2 __asm__("x2") = third;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
}

enum { WRITE = 64, EXIT_GROUP = 94 };

#define STEP()                                                                           \
    do {                                                                                 \
        static int is_known;                                                             \
        if (!is_known) {                                                                 \
            char line[] = "12345678901234567890123456789012";                            \
            unsigned length = sizeof __func__;                                           \
            for (unsigned i = 0; i < sizeof __func__; i++) line[i] = __func__[i];        \
            line[length - 1] = '\n';                                                     \
            is_known = 1;                                                                \
            if (length > sizeof line || system_call(WRITE, 1, (long)line, length) < 0)   \
                system_call(EXIT_GROUP, 99, 0, 0);                                       \
        }                                                                                \
    } while (0)
