// What C++ adds: exceptions, virtual bases, run-time types, static initialisation, thread-local objects, tables.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <typeinfo>
#include <vector>

#define KEPT __attribute__((noinline))

struct Base {
    virtual ~Base() { destroyed++; }
    virtual int value() const { return 1; }
    static int destroyed;
};
int Base::destroyed = 0;
struct Left : virtual Base { int value() const override { return 10 + Base::value(); } };
struct Right : virtual Base { int extra = 5; virtual int more() const { return extra; } };
struct Diamond : Left, Right {
    int value() const override { return 100 + Left::value() + more(); }
    int more() const override { return 7; }
};

struct Failure : std::runtime_error {
    int code;
    Failure(const std::string &what, int code) : std::runtime_error(what), code(code) {}
};
struct Guard {
    std::string name;
    explicit Guard(std::string name) : name(std::move(name)) {}
    ~Guard() { std::printf("~%s ", name.c_str()); }
};

KEPT int thrower(int depth) {
    Guard guard("guard" + std::to_string(depth));
    if (depth == 0) throw Failure("bottom", 42);
    if (depth == 100) throw depth;
    return thrower(depth - 1) + 1;
}
KEPT int catcher(int depth) {
    try {
        return thrower(depth);
    } catch (const Failure &failure) {
        return failure.code + (int)std::string(failure.what()).size();
    } catch (int number) {
        return -number;
    }
}
KEPT int rethrower(int depth) {
    try {
        try {
            return thrower(depth);
        } catch (...) {
            std::printf("again ");
            throw;
        }
    } catch (const std::exception &error) {
        return (int)std::string(error.what()).size();
    }
}
KEPT int token(int kind, int value) {
    switch (kind) {
    case 0: return value + 1;
    case 1: if (value > 1000) throw Failure("large", value); return value * 2;
    case 2: return value - 3;
    case 3: return value * value;
    case 4: return -value;
    case 5: return value >> 1;
    case 6: throw Failure("six", 6);
    default: return 0;
    }
}

static const std::map<std::string, std::function<int(int)>> registry = {
    {"twice", [](int value) { return value * 2; }},
    {"square", [](int value) { return value * value; }},
};
struct Counted {
    int count = 0;
    ~Counted() { std::printf("thread %d\n", count); }
};
static thread_local Counted counted;
static void in_thread() {
    for (int round = 0; round < 3; round++) counted.count += catcher(round);
    std::puts("");
}
typedef int (Right::*Member)() const;

#ifdef LIBRARY
extern "C" int program() {
#else
int main() {
#endif
    {
        std::unique_ptr<Base> object(new Diamond);
        auto *right = dynamic_cast<Right *>(object.get());
        Member member = &Right::more;
        std::printf("%d %d %d %s\n", object->value(), right->more(), (right->*member)(), typeid(*object).name());
    }
    std::printf("%d\n", Base::destroyed);
    int caught = catcher(3);
    std::printf("%d\n", caught);
    caught = catcher(100);
    std::printf("%d\n", caught);
    caught = rethrower(2);
    std::printf("%d\n", caught);
    int sum = 0;
    for (int kind = 0; kind < 8; kind++) {
        try {
            sum += token(kind, kind * 300 + 900);
        } catch (const Failure &failure) {
            sum += failure.code;
        }
    }
    std::printf("%d %d %d\n", sum, registry.at("twice")(21), registry.at("square")(9));
    try {
        std::vector<int>(3).at(7);
    } catch (const std::out_of_range &) {
        std::puts("range");
    }
    std::thread(in_thread).join();
    std::vector<std::string> words = {"pear", "apple", "fig"};
    std::sort(words.begin(), words.end(), [](const auto &left, const auto &right) { return left < right; });
    std::printf("%s %s %s\n", words[0].c_str(), words[1].c_str(), words[2].c_str());
    try {
        std::rethrow_exception(std::make_exception_ptr(Failure("carried", 8)));
    } catch (const Failure &failure) {
        std::printf("%s %d\n", failure.what(), failure.code);
    }
    return 0;
}
