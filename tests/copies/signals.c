// Copies of blocks: signals that arrive in copies, handlers that return, jump away, or end the program
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define ALONE __attribute__((noinline))

static volatile sig_atomic_t arrived;
static sigjmp_buf place;

ALONE static void count(int number) { arrived += number == SIGUSR1 ? 1 : 100; }
ALONE static void escape(int number) { siglongjmp(place, number); }

ALONE static int divide(volatile int left, volatile int right) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = escape;
  sigaction(SIGSEGV, &action, NULL);
  if (sigsetjmp(place, 1) != 0) return -1;
  if (right == 0) *(volatile int *)8 = left;
  return left / right;
}

ALONE static long busy(int rounds) {
  volatile long all = 0;
  for (int i = 0; arrived < 100 * rounds; i++) all += i % 7 == 3 ? 2 : i % 5;
  return all != 0;
}

int main(int number, char **arguments) {
  (void)arguments;
  signal(SIGUSR1, count);
  for (int i = 0; i < 3; i++) raise(SIGUSR1);
  printf("%d\n", (int)arrived);
  printf("%d %d\n", divide(12, 3), divide(1, number - 1));
  arrived = 0;
  signal(SIGALRM, count);
  struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &often, NULL);
  printf("%ld\n", busy(5));
  setitimer(ITIMER_REAL, &never, NULL);
  fflush(stdout);
  if (number == 1) abort();
  return 0;
}
