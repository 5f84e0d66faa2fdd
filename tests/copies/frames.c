// Copies of blocks: a program that counts its own frames, or prints where they are
#define _GNU_SOURCE
#include <execinfo.h>
#include <stdio.h>

#define ALONE __attribute__((noinline))

extern char __executable_start[], end[];
static int with_places;

// With places: that of each call within the image, for a test that knows its symbols.
ALONE void frames(void) {
  void *places[32];
  int count = backtrace(places, 32);
  printf("%d frames\n", count);
  for (int i = 0; with_places && i < count; i++) {
    char *place = (char *)places[i] - 1;
    if (place >= __executable_start && (place < end || place < __executable_start + 0x100000))
      printf("at %lx\n", (unsigned long)(place - __executable_start));
  }
}

ALONE int third(int x) { if (x % 3 != 1) puts("x"); frames(); return x + 1; }
ALONE int second(int x) {
  switch (x & 7) {
  case 0: return third(x) + 1;
  case 1: puts("one"); return third(x) + 2;
  case 2: return third(x * 2) - 1;
  case 3: return 9;
  case 4: return third(4) * 2;
  default: return third(3) + x;
  }
}
ALONE int first(int x) { int all = 0; for (int i = 0; i < x; i++) if (i != 1) all += second(i); return all; }

int main(int count, char **arguments) {
  (void)arguments;
  with_places = count > 1;
  printf("%d\n", first(6));
  return 0;
}
