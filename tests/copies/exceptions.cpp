// Copies of blocks: exceptions thrown, caught, rethrown and passed through frames; threads; virtual calls
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <typeinfo>
#include <vector>

#define ALONE __attribute__((noinline))

struct Noisy {
  const char *name;
  ALONE explicit Noisy(const char *name) : name(name) { std::printf("make %s\n", name); }
  ALONE ~Noisy() { std::printf("drop %s\n", name); }
};

struct Odd : std::runtime_error {
  int value;
  ALONE explicit Odd(int value) : std::runtime_error("odd " + std::to_string(value)), value(value) {}
};

ALONE static int deepest(int x) {
  Noisy noisy("deepest");
  switch (x) {
  case 0: return 10;
  case 1: throw Odd(x);
  case 2: throw std::string("text");
  case 3: throw 3.5;
  case 4: throw std::out_of_range("range");
  case 5: return static_cast<int>(std::string("abc").at(7));
  case 6: throw &typeid(int);
  default: return x;
  }
}

ALONE static int through(int x) {
  Noisy first("through");
  std::vector<std::unique_ptr<Noisy>> several;
  several.push_back(std::make_unique<Noisy>("several"));
  int result = deepest(x);
  Noisy second("after");
  return result + 1;
}

ALONE static int again(int x) {
  try {
    return through(x);
  } catch (const Odd &odd) {
    std::printf("rethrow %d\n", odd.value);
    throw;
  } catch (const std::string &text) {
    std::printf("caught %s\n", text.c_str());
    throw std::logic_error(text + " again");
  } catch (double number) {
    return static_cast<int>(number * 2);
  }
}

ALONE static int nested(int x) {
  try {
    try {
      return again(x);
    } catch (...) {
      Noisy inside("handler");
      try {
        throw 7;
      } catch (int number) {
        std::printf("inner %d\n", number);
      }
      throw;
    }
  } catch (const std::runtime_error &error) {
    std::printf("runtime %s\n", error.what());
    return -1;
  } catch (const std::exception &error) {
    std::printf("exception %s\n", error.what());
    return -2;
  } catch (...) {
    std::puts("unknown");
    return -3;
  }
}

struct Shape {
  virtual ~Shape() = default;
  virtual int area(int x) const = 0;
  int twice(int x) const { return 2 * area(x); }
};
struct Square : Shape {
  ALONE int area(int x) const override { if (x < 0) throw Odd(x); return x * x; }
};
struct Other : virtual Shape {
  int extra = 3;
  ALONE int area(int x) const override { return x + extra; }
};

thread_local int own = 5;
thread_local std::string label = "label";
ALONE static void work(int x, int *result) {
  own += x;
  label += "!";
  try {
    *result = own + nested(x) + static_cast<int>(label.size());
  } catch (...) {
    *result = -99;
  }
}

ALONE static int once(int x) {
  static const int value = nested(x) + 100;
  return value;
}

int main() {
  int sum = 0;
  for (int i = 0; i < 8; i++) sum += nested(i);
  Square square;
  Other other;
  const Shape *shapes[] = {&square, &other};
  for (int x = -1; x < 2; x++)
    for (const Shape *shape : shapes) try {
        sum += shape->twice(x);
      } catch (const Odd &odd) {
        std::printf("shape %d\n", odd.value);
      }
  for (int i = 0; i < 3; i++) {
    int result = 0;
    std::thread thread(work, i, &result);
    thread.join();
    sum += result;
  }
  sum += once(1) + once(2);
  std::printf("%d %d\n", sum, own);
  return sum & 0x3f;
}
