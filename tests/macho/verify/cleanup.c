// Exception tables, and a frame for the compact and the long form of unwind information.
extern int puts(const char *);
static void close_it(int *x) { puts("closed"); *x = 0; }
__attribute__((noinline)) int guarded(int n) { int held __attribute__((cleanup(close_it))) = n; return puts("in") + held; }
__attribute__((noinline)) int guarded_too(int n) { int held __attribute__((cleanup(close_it))) = n * 3; puts("one"); return puts("two") + held; }
__attribute__((noinline)) int framed(int n) { char room[64]; for (int i = 0; i < 64; i++) ((volatile char *)room)[i] = n; return puts(room); }
