// A pointer to a local function, and what stands last in every order.
extern int puts(const char *);
extern int table_c(int);
static int local(int x) { return x + 99; }
int (*volatile chosen)(int) = local;
__attribute__((noinline)) int other(int x) { return chosen(x) + table_c(x) + (x > 3 ? other(x - 1) : 0); }
__attribute__((noinline)) int far_one(int x) { int (*p)(int) = x > 7 ? other : local; puts("far"); return p(x); }
