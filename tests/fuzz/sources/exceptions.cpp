// Landing pads, virtual tables and constructors; the loading program supplies the runtime.
struct Failure { int code; };
struct Shape { virtual int area(int) const; virtual ~Shape(); };
struct Square : Shape { int area(int) const override; };

__attribute__((noinline)) int risky(int value) {
    if (value > 3) throw Failure{value};
    return value + 1;
}
struct Guard { int *place; ~Guard() { *place += 5; } };
int Shape::area(int side) const { return side; }
Shape::~Shape() { }
int Square::area(int side) const { return side * side; }
__attribute__((noinline)) int guarded(int value, const Shape &shape) {
    int sum = 0;
    try {
        Guard guard{&sum};
        sum += risky(value) + shape.area(value);
    } catch (const Failure &failure) {
        sum -= failure.code;
    } catch (int number) {
        sum += number;
    }
    return sum;
}
static Square square;
extern "C" int enter(int value) { return guarded(value, square) + guarded(value + 2, square); }
