// Copies of blocks: unwinding that is not a plain exception: forced, foreign, stored, nested, past noexcept, out of threads
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <pthread.h>
#include <setjmp.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <unwind.h>

#define ALONE __attribute__((noinline))

struct Noisy {
  const char *name;
  ALONE explicit Noisy(const char *name) : name(name) { std::printf("make %s\n", name); }
  ALONE ~Noisy() { std::printf("drop %s\n", name); }
};

// Frames that clean up, catch and go on, or catch and throw again, around `inner`.
ALONE static int around(int x, const std::function<int(int)> &inner) {
  Noisy outer("outer");
  try {
    Noisy middle("middle");
    int result = inner(x);
    Noisy after("after");
    return result + 1;
  } catch (const std::string &text) {
    std::printf("text %s\n", text.c_str());
    return 2;
  } catch (const std::exception &error) {
    std::printf("error %s\n", error.what());
    if (x & 1) throw;
    return 3;
  }
}
ALONE static int twice(int x, const std::function<int(int)> &inner) {
  try {
    return around(x, [&](int y) { Noisy lambda("lambda"); return around(y, inner); });
  } catch (...) {
    Noisy handler("handler");
    std::puts("passing");
    throw;
  }
}

// Stored, and thrown again elsewhere; nested.
ALONE static int thrower(int x) {
  switch (x) {
  case 0: throw std::runtime_error("zero");
  case 1: throw std::logic_error("one");
  case 2: throw std::string("two");
  case 3: throw 3;
  case 4: std::throw_with_nested(std::runtime_error("four"));
  default: return x;
  }
}
ALONE static void tell(const std::exception &error, int depth) {
  std::printf("%d: %s\n", depth, error.what());
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception &inner) {
    tell(inner, depth + 1);
  } catch (...) {
    std::puts("something else inside");
  }
}
ALONE static int nesting(int x) {
  try {
    try {
      return twice(x, thrower);
    } catch (...) {
      std::throw_with_nested(std::runtime_error("around " + std::to_string(x)));
    }
  } catch (const std::exception &error) {
    tell(error, 0);
    return -1;
  }
}
ALONE static int stored(int x) {
  std::exception_ptr kept;
  std::thread thread([&] {
    try {
      twice(x, thrower);
    } catch (...) {
      kept = std::current_exception();
    }
  });
  thread.join();
  if (!kept) return 5;
  int sum = 0;
  for (int i = 0; i < 2; i++) try {
      around(i, [&](int) -> int { std::rethrow_exception(kept); });
    } catch (const std::exception &error) {
      sum += std::strlen(error.what());
    } catch (...) {
      sum += 100;
    }
  return sum;
}

// Of another language: nothing but catch-all and cleanup sees it.
struct Foreign { _Unwind_Exception header; int value; };
static void forget(_Unwind_Reason_Code, _Unwind_Exception *exception) {
  std::puts("forget");
  delete reinterpret_cast<Foreign *>(exception);
}
ALONE static int foreign(int x) {
  auto *exception = new Foreign();
  exception->header.exception_class = 0x52454f5244455200;
  exception->header.exception_cleanup = forget;
  exception->value = x;
  _Unwind_RaiseException(&exception->header);
  std::puts("nobody");
  return x;
}
ALONE static int strange(int x) {
  try {
    return twice(x, foreign);
  } catch (const std::exception &) {
    return -1;
  } catch (...) {
    std::puts("strange");
    return 7;
  }
}

// Forced: threads that end, or are ended, in the middle.
ALONE static int leave(int x) { if (x < 9) pthread_exit(reinterpret_cast<void *>(static_cast<long>(x))); return x; }
static std::atomic<bool> waits;
ALONE static int wait_for_ever(int x) { waits = true; for (;;) { pause(); x++; } return x; }
static void *leaving(void *) { twice(4, leave); return nullptr; }
static void *waiting(void *) { twice(4, wait_for_ever); return nullptr; }
struct Late { ALONE ~Late() { try { thrower(0); } catch (const std::exception &error) { std::printf("late %s\n", error.what()); } } };
thread_local Late late;
static void *ending(void *) { (void)&late; Noisy own("own"); return reinterpret_cast<void *>(static_cast<long>(around(8, thrower))); }
ALONE static long joined(void *(*body)(void *), bool is_cancelled) {
  pthread_t thread;
  if (pthread_create(&thread, nullptr, body, nullptr) != 0) std::abort();
  while (is_cancelled && !waits) usleep(1000);
  if (is_cancelled) pthread_cancel(thread);
  void *result;
  pthread_join(thread, &result);
  return result == PTHREAD_CANCELED ? -9 : reinterpret_cast<long>(result);
}

// Past frames that need no cleanup.
static jmp_buf back;
ALONE static int jumper(int x) { if (x > 2) longjmp(back, x); return jumper(x + 1) + 1; }
ALONE static int jumped(int x) { int value = setjmp(back); return value ? value * 10 : jumper(x); }

ALONE static int quiet(int x, const std::function<int(int)> &inner) noexcept { Noisy silent("silent"); return inner(x) + 1; }
static void ended() { std::puts("terminate"); std::fflush(stdout); std::_Exit(42); }

int main(int count, char **arguments) {
  setvbuf(stdout, nullptr, _IONBF, 0);
  std::string what = count > 1 ? arguments[1] : "";
  if (count > 2) std::set_terminate(ended);
  if (what == "thread") { std::thread([] { twice(3, thrower); }).join(); return 1; }
  if (what == "quiet") return quiet(3, thrower);
  if (what == "foreign") return quiet(3, foreign);
  if (what == "none") return foreign(3);
  if (what == "twice") { try { twice(1, [](int) -> int { struct Bad { ~Bad() noexcept(false) { throw 1; } } bad; throw 2; }); } catch (int) { std::puts("caught"); } return 0; }
  if (what == "forced") { std::thread([] { quiet(3, leave); }).join(); return 1; }
  int sum = 0;
  for (int i = 0; i < 6; i++) sum += nesting(i) + stored(i);
  sum += strange(1) + strange(2);
  std::printf("%ld\n", joined(leaving, false));
  std::printf("%ld\n", joined(waiting, true));
  std::printf("%ld\n", joined(ending, false));
  sum += jumped(0) + quiet(5, thrower);
  std::printf("%d\n", sum);
  pthread_exit(nullptr);
}
