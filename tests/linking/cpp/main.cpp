#include "shared.hpp"
#include <cstdio>

struct Square final : Shape {
    explicit Square(int side) : side(side) {}
    KEPT int area() const override { return side * side; }
    int side;
};

KEPT int survey(int value) {
    try {
        return measure(Square(value), 20) + scaled<4>(value);
    } catch (const std::range_error &error) {
        std::printf("caught %s\n", error.what());
        return scaled<3>(value);
    }
}

int main(int count, char **) {
    std::printf("%d\n", survey(count + 6));
    std::printf("%d\n", survey(count));
    return 0;
}
