// Copies of blocks: -fnon-call-exceptions and a handler of SIGSEGV that throws
#include <csignal>
#include <cstdio>
#include <cstring>

#define ALONE __attribute__((noinline))

struct Fault { int number; };
struct Guard { const char *name; ~Guard() { std::printf("left %s\n", name); } };

static void handler(int number, siginfo_t *, void *) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  throw Fault{number};
}

ALONE static int read(const int *volatile from, int x) {
  Guard guard{"read"};
  if (x > 2) x -= 2;
  int value = *from;
  return value + x;
}

ALONE static int attempt(const int *from, int x) {
  Guard guard{"attempt"};
  try {
    return read(from, x);
  } catch (const Fault &fault) {
    std::printf("fault %d\n", fault.number == SIGSEGV);
    return -x;
  }
}

ALONE static int direct(const int *volatile from) {
  try {
    return *from;
  } catch (const Fault &) {
    return -50;
  }
}

int main() {
  struct sigaction action;
  std::memset(&action, 0, sizeof action);
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, nullptr);
  int value = 5, sum = 0;
  for (int i = 0; i < 4; i++) {
    sum += attempt(i % 2 ? &value : reinterpret_cast<const int *>(8L), i);
    sum += direct(i % 2 ? reinterpret_cast<const int *>(16L) : &value);
  }
  std::printf("%d\n", sum);
  return 0;
}
