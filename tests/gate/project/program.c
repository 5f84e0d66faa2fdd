/* A program whose startup runs a few functions of several pages each. */
#include <stdio.h>
#include <string.h>

/* This many bytes of no-op code. */
#define FILL(bytes) __asm__ volatile(".fill " #bytes ", 1, 0x90")
#define FUNCTION __attribute__((noinline)) static int

FUNCTION read_settings(int n) { FILL(3000); return n + 1; }
FUNCTION open_window(int n) { FILL(5000); return n * 2; }
FUNCTION show_help(int n) { FILL(9000); return n - 3; }
FUNCTION print_version(int n) { FILL(7000); return n ^ 4; }
/* more functions */

int main(int count, char **words) {
  int n = read_settings(count);
  n = open_window(n);
  if (count > 1 && !strcmp(words[1], "--help")) n = show_help(n);
  if (count > 1 && !strcmp(words[1], "--version")) n = print_version(n);
  /* more of startup */
  printf("%d\n", n);
  return 0;
}
