// Exceptions through frames whose functions carry or carried breakpoints; virtual and member function pointers.
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>
#include "step.h"

namespace {
struct Shape {
    virtual ~Shape() { step_end(); }
    virtual int step_area() const = 0;
    static void step_end() { STEP(); }
};
struct Square : Shape {
    int step_area() const override { STEP(); return 4; }
    int step_member(int x) { STEP(); return x + 1; }
};
struct Circle : Shape {
    int step_area() const override { throw std::runtime_error("no area"); }
};
struct Guard {
    ~Guard() { step_clean(); }
    static void step_clean() { STEP(); }
};

int step_deep(int depth) {
    STEP();
    Guard guard;
    if (depth == 0) throw std::string("bottom");
    return step_deep(depth - 1) + 1;
}
int step_catcher(int depth) {
    STEP();
    try {
        return step_deep(depth);
    } catch (const std::string &text) {
        return static_cast<int>(text.size());
    }
}
int step_after(int x) { STEP(); return x * 2; }
}

int main() {
    std::vector<std::unique_ptr<Shape>> shapes;
    shapes.push_back(std::make_unique<Square>());
    shapes.push_back(std::make_unique<Circle>());
    int sum = 0;
    for (const auto &shape : shapes) {
        try {
            sum += shape->step_area();
        } catch (const std::exception &error) {
            sum += step_catcher(static_cast<int>(std::string(error.what()).size()));
        }
    }
    int (Square::*volatile member)(int) = &Square::step_member;
    sum += (static_cast<Square &>(*shapes[0]).*member)(3);
    shapes.clear();
    return step_after(sum) & 63;
}
