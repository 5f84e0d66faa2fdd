"""Ways of calling and returning: recursion, tail calls, lists of arguments, long jumps, signals, threads."""

from choices import fill
from parts import part


@part()
def recursion(choices, prefix):
    """Functions that call one another, themselves, and end in calls."""
    text = f"""
static u64 @prefix@odd(u64 n, u64 x);
static NOINLINE u64 @prefix@even(u64 n, u64 x) {{ return n ? @prefix@odd(n - 1, {choices.term('x')}) : x; }}
static NOINLINE u64 @prefix@odd(u64 n, u64 x) {{ return n ? @prefix@even(n - 1, {choices.term('x')}) : x + 1; }}
{choices.function_attributes()} u64 @prefix@tree(u64 n) {{ return n < 2 ? n : @prefix@tree(n - 1) * {choices.randrange(2, 9)} + @prefix@tree(n - 2); }}
C_NAMES u64 @prefix@run(int argument) {{ return @prefix@even((u64)(argument & 31), 1) + @prefix@tree((u64)(argument & 7) + 3); }}
"""
    return fill(text, prefix=prefix)


@part()
def lists(choices, prefix):
    """Functions with lists of arguments, arrays of variable length, long double and vectors."""
    text = f"""
#include <stdarg.h>
typedef float @prefix@vector ATTRIBUTE(vector_size(16));
static NOINLINE u64 @prefix@sum(int count, ...) {{
  va_list list; u64 r = 0; va_start(list, count);
  for (int at = 0; at < count; at++) r = r * 31 + (at & 1 ? (u64)va_arg(list, int) : (u64)(i64)va_arg(list, double));
  va_end(list); return r;
}}
static NOINLINE u64 @prefix@space(u32 n) {{
  u32 *room = (u32 *)__builtin_alloca((n + 1) * sizeof(u32)); u64 r = 0;
  for (u32 at = 0; at < n; at++) room[at] = at * {choices.randrange(99)}u;
  for (u32 at = 0; at < n; at++) r += room[OPAQUE(at)];
  return r;
}}
static NOINLINE long double @prefix@wide(long double x) {{ return x * {choices.randrange(1, 9)}.25L + {choices.randrange(99)}.5L; }}
static NOINLINE u64 @prefix@lanes(float x) {{
  @prefix@vector v = {{x, 2, 3, 4}}, w = {{{choices.randrange(9)}, 1, {choices.randrange(9)}, 2}};
  v = v * w + w; float out[4]; memcpy(out, &v, sizeof out);
  return (u64)(i64)(out[0] + out[1] * 3 + out[2] * 5 + out[3] * 7);
}}
C_NAMES u64 @prefix@run(int argument) {{
  u64 r = @prefix@sum(5, 1.5, argument, 2.5, {choices.randrange(99)}, 8.0);
  r += @prefix@space((u32)argument & 63) + @prefix@lanes((float)(argument & 255));
  return r * 31 + (u64)(i64)@prefix@wide((long double)argument);
}}
"""
    return fill(text, prefix=prefix)


@part()
def far_returns(choices, prefix):
    """Nested long jumps out of calls."""
    text = f"""
#include <setjmp.h>
static jmp_buf @prefix@outer, @prefix@inner;
static NOINLINE void @prefix@deep(int n, u64 x) {{
  mix({choices.term('x')});
  if (n == 0) longjmp(x & 1 ? @prefix@outer : @prefix@inner, (int)(x % 7) + 1);
  @prefix@deep(n - 1, x + 1);
}}
static NOINLINE u64 @prefix@middle(int argument) {{
  volatile int turn = 0;
  int code = setjmp(@prefix@inner);
  if (code) mix((u64)code * {choices.randrange(3, 99)});
  if (turn++ < 4) @prefix@deep(turn, (u64)(unsigned)argument + (u64)turn);
  return (u64)turn;
}}
C_NAMES u64 @prefix@run(int argument) {{
  volatile u64 r = 1;
  for (volatile int turn = 0; turn < 4; turn++) {{
    int code = setjmp(@prefix@outer);
    if (code) {{ r = r * 31 + (u64)code; continue; }}
    r += @prefix@middle(argument + turn);
  }}
  return r;
}}
"""
    return fill(text, prefix=prefix)


@part()
def return_addresses(choices, prefix):
    """A function that inspects its return address; its caller has no cold code, so it is one piece."""
    text = f"""
static NOINLINE GCC_ATTRIBUTE(noclone) void *@prefix@here(void) {{ return __builtin_extract_return_addr(__builtin_return_address(0)); }}
C_NAMES HIDDEN NOINLINE GCC_ATTRIBUTE(noclone) u64 @prefix@caller(u64 x) {{
  u64 distance = (u64)((char *)@prefix@here() - (char *)&@prefix@caller);
  u64 again = (u64)((char *)@prefix@here() - (char *)&@prefix@caller);
  return (again - distance) * {choices.randrange(3, 99)} + x;
}}
C_NAMES u64 @prefix@run(int argument) {{ return @prefix@caller((u64)argument); }}
"""
    return fill(text, prefix=prefix)


@part()
def signals(choices, prefix):
    """Signal handlers: raised, by an invalid access, and left by a long jump."""
    text = f"""
#include <signal.h>
#include <setjmp.h>
static sigjmp_buf @prefix@back;
static volatile sig_atomic_t @prefix@seen;
static void @prefix@count(int number) {{ @prefix@seen += number; }}
static void @prefix@leave(int number, siginfo_t *information, void *context) {{ (void)information; (void)context; siglongjmp(@prefix@back, number); }}
{choices.function_attributes()} u64 @prefix@touch(volatile int *place) {{ mix({choices.randrange(99)}); return (u64)*place; }}
C_NAMES u64 @prefix@run(int argument) {{
  struct sigaction count, leave, old;
  memset(&count, 0, sizeof count); memset(&leave, 0, sizeof leave);
  count.sa_handler = @prefix@count; leave.sa_sigaction = @prefix@leave; leave.sa_flags = SA_SIGINFO;
  sigaction(SIGUSR1, &count, 0); sigaction(SIGSEGV, &leave, &old);
  raise(SIGUSR1); raise(SIGUSR1);
  volatile u64 r = (u64)@prefix@seen;
  int code = sigsetjmp(@prefix@back, 1);
  if (code == 0) r += @prefix@touch((volatile int *)OPAQUE((void *)(uintptr_t)(argument & 7)));
  else r = r * 31 + (u64)code;
  sigaction(SIGSEGV, &old, 0);
  return r;
}}
"""
    return fill(text, prefix=prefix)


@part()
def threads(choices, prefix):
    """Threads, and thread-local variables."""
    text = f"""
#include <pthread.h>
static __thread u64 @prefix@own = {choices.randrange(1 << 20)};
static __thread u64 @prefix@zero;
static NOINLINE u64 *@prefix@place(void) {{ return &@prefix@own; }}
static void *@prefix@work(void *value) {{
  for (int turn = 0; turn < 9; turn++) {{ *@prefix@place() += (u64)(uintptr_t)value; @prefix@zero ^= @prefix@own * {choices.randrange(3, 99)}; }}
  return (void *)(uintptr_t)(@prefix@zero & 0xffffff);
}}
C_NAMES u64 @prefix@run(int argument) {{
  pthread_t threads[2]; u64 r = 0; void *result;
  for (int at = 0; at < 2; at++) if (pthread_create(&threads[at], 0, @prefix@work, (void *)(uintptr_t)((argument & 255) + at))) return 0;
  for (int at = 0; at < 2; at++) {{ pthread_join(threads[at], &result); r = r * 31 + (u64)(uintptr_t)result; }}
  return r + @prefix@own + (u64)(uintptr_t)@prefix@work((void *)3);
}}
"""
    return fill(text, prefix=prefix)
