#include "shared.hpp"

KEPT int never(int value) { return scaled<90>(value); }

KEPT static void refuse(int area) { throw std::range_error("area " + std::to_string(area)); }

KEPT int measure(const Shape &shape, int limit) {
    int area = shape.area();
    if (area > limit) refuse(area);
    return scaled<3>(area) + scaled<4>(area);
}
