// Copies of blocks: switches, computed jumps, jumps across frames, tail calls, arguments on the stack, compared pointers
#include <alloca.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALONE __attribute__((noinline))

typedef int (*Step)(int);

ALONE static int dense(int x) {
  switch (x) {
  case 0: return puts("zero");
  case 1: puts("one"); /* fall through */
  case 2: return 22;
  case 3: x += 9; break;
  case 4: return -x;
  case 5: puts("five"); break;
  case 6: return x * x;
  case 7: abs(x); return 77;
  default: return 1000 + x;
  }
  return x + 3;
}

ALONE static int sparse(int x) {
  switch (x) {
  case -70000: return 1;
  case -3: return 2;
  case 12: return 3;
  case 900: return 4;
  case 100000: return 5;
  case 2000000000: return 6;
  }
  return 0;
}

ALONE static long wide(long x) {
  switch (x) {
  case 0 ... 40: return x;
  case 41 ... 60: return 2 * x;
  case 1L << 40: return 7;
  }
  return -1;
}

ALONE static const char *names(unsigned x) {
  switch (x) {
  case 0: return "a";
  case 1: return "bc";
  case 2: return "def";
  case 3: return "ghij";
  case 4: return "k";
  }
  return "none";
}

ALONE static int interpret(const unsigned char *code) {
  static void *const actions[] = {&&add, &&twice, &&less, &&print, &&end};
  int value = 1;
  goto *actions[*code++];
add:
  value += *code++;
  goto *actions[*code++];
twice:
  value *= 2;
  goto *actions[*code++];
less:
  if (value > 20) value -= 20;
  goto *actions[*code++];
print:
  printf("value %d\n", value);
  goto *actions[*code++];
end:
  return value;
}

static jmp_buf place;

ALONE static void leave(int depth) {
  if (depth == 0) longjmp(place, 5);
  leave(depth - 1);
  puts("never");
}

ALONE static int return_twice(int x) {
  volatile int count = x;
  int found = setjmp(place);
  if (found != 0) return found + count;
  count++;
  leave(4);
  return -1;
}

ALONE static int odd(int x);
ALONE static int even(int x) { return x == 0 ? 1 : odd(x - 1); }
ALONE static int odd(int x) { return x == 0 ? 0 : even(x - 1); }
ALONE static int apply(Step step, int x) { return step(x); }

ALONE static int sum(int count, ...) {
  va_list arguments;
  va_start(arguments, count);
  double all = 0;
  for (int i = 0; i < count; i++) all += i % 2 ? va_arg(arguments, double) : va_arg(arguments, int);
  va_end(arguments);
  return (int)(all * 2);
}

ALONE static int on_stack(int count) {
  int *numbers = alloca(sizeof(int) * (size_t)count);
  char text[count + 1];
  memset(text, 'x', (size_t)count);
  text[count] = 0;
  for (int i = 0; i < count; i++) numbers[i] = i * i;
  int all = (int)strlen(text);
  for (int i = 0; i < count; i++) all += numbers[i];
  return all;
}

ALONE static int search(const int *values, int count, int wanted) {
  int low = 0, high = count - 1;
  while (low <= high) {
    int middle = (low + high) / 2;
    if (values[middle] == wanted) return middle;
    if (values[middle] < wanted) low = middle + 1;
    else high = middle - 1;
  }
  return -1;
}

ALONE static int by_value(const void *left, const void *right) { return *(const int *)left - *(const int *)right; }

static const Step steps[] = {dense, sparse, even, odd, on_stack};
Step volatile chosen = even;
ALONE static int which(Step step) {
  for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++)
    if (steps[i] == step) return (int)i;
  return -1;
}

static void at_end(void) { puts("end"); }

int main(int count, char **arguments) {
  (void)arguments;
  atexit(at_end);
  for (int i = -1; i < 10; i++) printf("%d %s %ld\n", dense(i), names((unsigned)i), wide(i * 7));
  const int keys[] = {-70000, -3, 12, 900, 100000, 2000000000, 5};
  for (int i = 0; i < 7; i++) printf("%d ", sparse(keys[i]));
  printf("%ld\n", wide(1L << 40));
  const unsigned char code[] = {0, 30, 3, 2, 3, 1, 3, 2, 4};
  printf("%d\n", interpret(code));
  printf("%d %d\n", return_twice(count), even(11));
  printf("%d %d %d\n", which(chosen), chosen == even, apply(chosen, 6));
  printf("%d %d\n", sum(4, 1, 2.5, 3, 4.25), on_stack(9 + count));
  int values[] = {9, 4, 7, 1, 8, 2, 6};
  qsort(values, 7, sizeof *values, by_value);
  for (int i = 0; i < 10; i++) printf("%d", search(values, 7, i));
  puts("");
  return steps[count % 4](3) & 0x7f;
}
