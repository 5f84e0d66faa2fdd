// Copies of blocks: exceptions that must end the program: noexcept, a list of exceptions, a destructor, none that catches
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>

#define ALONE __attribute__((noinline))

ALONE static int thrower(int x) { if (x > 0) throw x; return x; }
ALONE static int quiet(int x) noexcept { std::puts("quiet"); int y = thrower(x); std::puts("not ended"); return y + 1; }
#if __cplusplus < 201703L
ALONE static int listed(int x) throw(std::runtime_error, double) { if (x > 5) throw 2.5; return thrower(x) + 1; }
#else
ALONE static int listed(int x) { return quiet(x); }
#endif
struct Bad { int x; ALONE ~Bad() { thrower(x); } };
ALONE static int destroyed(int x) { Bad bad{x}; return x; }
ALONE static int outside(int x) { return thrower(x) + 2; }

static void ended() { std::puts("terminate"); std::fflush(stdout); std::_Exit(42); }

int main(int count, char **arguments) {
  if (count < 2) { std::puts("no ending"); return quiet(0) + listed(0) + destroyed(0) + outside(0); }
  if (count > 2) std::set_terminate(ended);
  setvbuf(stdout, nullptr, _IONBF, 0);
  try {
    if (std::strcmp(arguments[1], "quiet") == 0) return quiet(count);
    if (std::strcmp(arguments[1], "listed") == 0) return listed(count);
    if (std::strcmp(arguments[1], "destroyed") == 0) return destroyed(count);
    if (std::strcmp(arguments[1], "allowed") == 0) return listed(9);
  } catch (int x) {
    std::printf("caught %d\n", x);
    return 3;
  } catch (double x) {
    std::printf("caught %g\n", x);
    return 4;
  }
  return outside(count);
}
