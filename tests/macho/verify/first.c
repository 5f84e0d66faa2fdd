// Pointers in data, a switch with a table, recursion, a constructor.
extern int puts(const char *);
extern int strcmp(const char *, const char *);
extern int other(int);
extern int far_one(int);
typedef int (*function)(int);

static int table_a(int x) { return x * 3 + 1; }
static int table_b(int x) { return x * 5 - 7; }
int table_c(int x) { return x ^ 0x55; }
function handlers[] = {table_a, table_b, table_c};

__attribute__((noinline)) int dispatch(int kind, int x) {
  switch (kind) {
  case 0: return x + 11;
  case 1: return x * 13;
  case 2: return x - 17;
  case 3: return x << 3;
  case 4: return x / 7;
  case 5: return x % 9;
  case 6: return puts("six") + x;
  case 7: return x | 64;
  case 8: return other(x);
  default: return -1;
  }
}
__attribute__((noinline)) int apply(function f, int x) { return f(x) + f(x + 1); }
__attribute__((noinline)) int many(int x) {
  int sum = 0;
  for (int i = 0; i < 3; i++)
    sum += handlers[i](x) + apply(table_a, i) + apply(table_c, x);
  return sum;
}
__attribute__((constructor)) static void early(void) { puts("early"); }
int main(int count, char **words) {
  if (count > 1 && !strcmp(words[1], "x"))
    return dispatch(count, 4);
  return many(count) + other(count) + far_one(count);
}
