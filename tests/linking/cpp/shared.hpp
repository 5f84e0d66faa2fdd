#include <stdexcept>
#include <string>

#define KEPT __attribute__((noinline, used))

// Every file that uses it has a copy; the linker keeps one.
template <int Number> KEPT int scaled(int value) {
    volatile int sum = value;
    for (int round = 0; round < Number; round++) sum = sum * Number + round;
    return sum;
}

struct Shape {
    virtual ~Shape() = default;
    virtual int area() const = 0;
};

int measure(const Shape &shape, int limit);
int survey(int value);
