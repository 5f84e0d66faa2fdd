"""C++ exceptions of all kinds."""

from choices import fill
from parts import part


@part(languages="cpp", weight=6)
def exceptions(choices, prefix):
    """Nested exceptions, thrown through several functions with destructors, caught by type, and rethrown."""
    depth = choices.randint(1, 5)
    levels = []
    for at in range(depth):
        inner = f"@prefix@level{at - 1}(x + {at})" if at else "@prefix@source(x)"
        form = choices.choice(["plain", "guard", "again", "change", "swallow", "noexcept", "inside"])
        body = {
            "plain": f"return {inner} * 3;",
            "guard": f"@prefix@Guard guard({at}); u64 r = {inner}; mix(r); return r + {choices.randrange(99)};",
            "again": f"try {{ return {inner}; }} catch (int) {{ mix({at}); throw; }}",
            "change": f"try {{ return {inner}; }} catch (const @prefix@Base &base) {{ mix(base.number()); throw (int)(base.number() & 7); }}",
            "swallow": f"try {{ @prefix@Guard guard({at}); return {inner}; }} catch (const @prefix@Left &left) {{ return left.number() + {at}; }}",
            "noexcept": f"auto safe = [&]() noexcept -> u64 {{ try {{ return {inner}; }} catch (...) {{ mix(77); return 5; }} }}; u64 r = safe(); if (r == 5) throw 3L; return r;",
            "inside": f"try {{ return {inner}; }} catch (...) {{ try {{ throw @prefix@Right(x); }} catch (const @prefix@Right &right) {{ mix(right.number()); }} throw; }}",
        }[form]
        levels.append(f"{choices.choice(['static ', ''])}{choices.function_attributes()} u64 @prefix@level{at}(u64 x) {{ {body} }}\n")
    text = f"""
struct @prefix@Base {{ u64 value; explicit @prefix@Base(u64 x) : value(x) {{}} virtual ~@prefix@Base() {{ mix(value); }} virtual u64 number() const {{ return value; }} }};
struct @prefix@Left : @prefix@Base {{ using @prefix@Base::@prefix@Base; u64 number() const override {{ return {choices.term('value')}; }} }};
struct @prefix@Right : @prefix@Base {{ using @prefix@Base::@prefix@Base; u64 number() const override {{ return {choices.term('value')}; }} }};
struct @prefix@Guard {{ int place; explicit @prefix@Guard(int at) : place(at) {{ mix(1000u + (u64)place); }} ~@prefix@Guard() {{ mix(2000u + (u64)place); }} }};
struct @prefix@Fails {{ @prefix@Guard guard{{50}}; @prefix@Guard other; explicit @prefix@Fails(u64 x) : other(51) {{ if (x & 1) throw @prefix@Left(x); }} }};
NOINLINE static u64 @prefix@source(u64 x) {{
  switch (x % 8) {{
  case 0: throw (int)(x & 15);
  case 1: throw @prefix@Left({choices.term('x')});
  case 2: throw @prefix@Right({choices.term('x')});
  case 3: throw "words";
  case 4: {{ @prefix@Fails fails(x >> 3); return fails.other.place; }}
  case 5: mix(x); throw 7L;
  case 6: return {choices.term('x')};
  default: return x;
  }}
}}
{"".join(levels)}
C_NAMES u64 @prefix@run(int argument) {{
  u64 r = (u64)argument;
  for (u64 x = 0; x < 16; x++) {{
    try {{ r = r * 31 + @prefix@level{depth - 1}(x + (u64)(unsigned)argument); }}
    catch (int number) {{ r += (u64)number * 3; }}
    catch (const @prefix@Left &left) {{ r ^= left.number(); }}
    catch (const @prefix@Base &base) {{ r += base.number() * 5; }}
    catch (const char *word) {{ r += (u64)word[0]; }}
    catch (...) {{ r = r * 7 + 1; }}
  }}
  return r;
}}
"""
    return fill(text, prefix=prefix)


@part(languages="cpp", weight=3)
def thrown_cases(choices, prefix):
    """A switch of which many cases throw, so that compilers split them off."""
    count = choices.randint(6, 20)
    bodies = ""
    for at in range(count):
        ends = choices.choice(["break;", "return r;", "guard.number += 3; break;"])
        body = f"throw {at};" if choices.chance(40) else f"r = {choices.term('x')}; mix(r); {ends}"
        bodies += f"  case {at}: {body}\n"
    text = f"""
struct @prefix@Guard {{ u64 number; ~@prefix@Guard() {{ mix(number); }} }};
{choices.function_attributes()} u64 @prefix@kind(u32 c, u64 x) {{
  @prefix@Guard guard{{x}}; u64 r = x;
  switch (c) {{
{bodies}  default: {choices.choice(['throw -1;', 'return 0;', '__builtin_unreachable();'])}
  }}
  return r + guard.number;
}}
C_NAMES u64 @prefix@run(int argument) {{
  u64 r = 0;
  for (u32 c = 0; c < {count}; c++) try {{ r += @prefix@kind(OPAQUE(c), (u64)argument); }} catch (int number) {{ r = r * 31 + (u64)number; }}
  return r;
}}
"""
    return fill(text, prefix=prefix)
