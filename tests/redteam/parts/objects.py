"""C++ classes: virtual and multiple inheritance, pointers to members, run-time types, code of templates and lambdas."""

from choices import fill
from parts import part


@part(languages="cpp", weight=4)
def classes(choices, prefix):
    """Virtual functions, virtual bases, pointers to members and run-time types."""
    count = choices.randint(2, 6)
    virtual = choices.choice(["virtual ", "", "virtual "])
    shape = "".join(f"  virtual u64 v{at}(u64 x) {{ return {choices.term('x')} + own; }}\n" for at in range(count))
    left = "".join(f"  u64 v{at}(u64 x) override {{ return {choices.term('x')} + left; }}\n" for at in range(count) if choices.chance(60))
    right = "".join(f"  virtual u64 w{at}(u64 x) {{ return {choices.term('x')} + right; }}\n" for at in range(count))
    both = f"  u64 v0(u64 x) override {{ return {choices.term('x')} + left * right; }}\n  u64 w1(u64 x) override {{ return v0(x) + w0(x); }}\n"
    members = ", ".join(f"&@prefix@Left::m{choices.randrange(4)}" for _ in range(4))
    left += "".join(f"  {choices.choice(['virtual ', ''])}u64 m{at}(u64 x) {{ return {choices.term('x')} + left * {at}; }}\n" for at in range(4))
    text = f"""
#include <typeinfo>
struct @prefix@Top {{ u64 own = 1; virtual ~@prefix@Top() {{ mix(own); }}
{shape}}};
struct @prefix@Left : {virtual}@prefix@Top {{ u64 left = 2; ~@prefix@Left() {{ mix(left); }}
{left}}};
struct @prefix@Right : {virtual}@prefix@Top {{ u64 right = 3; ~@prefix@Right() {{ mix(right); }}
{right}}};
struct @prefix@Both : @prefix@Left, @prefix@Right {{ ~@prefix@Both() {{ mix(9); }}
{both}}};
using @prefix@Member = u64 (@prefix@Left::*)(u64);
static @prefix@Member volatile @prefix@members[] = {{{members}}};
NOINLINE static u64 @prefix@use(@prefix@Left *object, u64 x) {{
  u64 r = 0;
  for (int at = 0; at < 4; at++) {{ @prefix@Member member = const_cast<@prefix@Member &>(@prefix@members[at]); r = r * 31 + (object->*member)(x + r); }}
  if (auto *other = dynamic_cast<@prefix@Right *>(object)) r += other->w1(x) * 7;
  if (auto *both = dynamic_cast<@prefix@Both *>(object)) r ^= both->w0(x);
  return r + strlen(typeid(*object).name());
}}
C_NAMES u64 @prefix@run(int argument) {{
  u64 r = 0;
  @prefix@Left *objects[] = {{new @prefix@Left, new @prefix@Both}};
  for (auto *object : objects) {{ r = r * 31 + @prefix@use(OPAQUE(object), (u64)argument); delete object; }}
  return r;
}}
"""
    return fill(text, prefix=prefix)


@part(languages="cpp", weight=3)
def callables(choices, prefix):
    """Lambdas, std::function, templates, static locals, inline variables and thread functions."""
    numbers = [choices.randrange(2, 99) for _ in range(choices.randint(2, 6))]
    uses = "".join(f"  functions.push_back([=](u64 x) {{ return {choices.term('x')} + r; }});\n  r += @prefix@scaled<{number}>(r);\n" for number in numbers)
    text = f"""
#include <functional>
#include <vector>
inline u64 @prefix@shared = filler1({choices.randrange(99)});
struct @prefix@Counted {{ u64 value; explicit @prefix@Counted(u64 x) : value(x) {{ mix(x); }} ~@prefix@Counted() {{ printf("@prefix@ gone %llx\\n", value & 255); }} }};
template <int number> NOINLINE u64 @prefix@scaled(u64 x) {{ static @prefix@Counted counted(number); return x * number + counted.value++; }}
static thread_local @prefix@Counted @prefix@mine({choices.randrange(99)});
C_NAMES u64 @prefix@run(int argument) {{
  u64 r = (u64)argument + @prefix@shared + @prefix@mine.value;
  std::vector<std::function<u64(u64)>> functions;
{uses}
  for (auto &function : functions) r = r * 31 + function(r);
  u64 (*plain)(u64) = [](u64 x) -> u64 {{ return {choices.term('x')}; }};
  return r + OPAQUE(plain)(r);
}}
"""
    return fill(text, prefix=prefix)


@part(languages="cpp", weight=2)
def coroutines(choices, prefix):
    """Functions that suspend and resume."""
    text = f"""
#include <coroutine>
struct @prefix@Task {{
  struct promise_type {{
    u64 value = 0;
    @prefix@Task get_return_object() {{ return {{std::coroutine_handle<promise_type>::from_promise(*this)}}; }}
    std::suspend_always initial_suspend() noexcept {{ return {{}}; }}
    std::suspend_always final_suspend() noexcept {{ return {{}}; }}
    std::suspend_always yield_value(u64 x) noexcept {{ value = x; return {{}}; }}
    void return_void() {{ value = 1; }}
    void unhandled_exception() {{ value = 99; }}
  }};
  std::coroutine_handle<promise_type> handle;
}};
NOINLINE static @prefix@Task @prefix@count(u64 x, u64 turns) {{
  for (u64 at = 0; at < turns; at++) {{ co_yield {choices.term('x')} + at; x = x * {choices.randrange(3, 99)}; if (x % {choices.randrange(50, 200)} == 7) throw 3; }}
}}
C_NAMES u64 @prefix@run(int argument) {{
  auto task = @prefix@count((u64)argument, {choices.randint(2, 9)});
  u64 r = 0;
  while (!task.handle.done()) {{ task.handle.resume(); r = r * 31 + task.handle.promise().value; }}
  task.handle.destroy();
  return r;
}}
"""
    return fill(text, prefix=prefix)
