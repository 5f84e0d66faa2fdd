"""How linkers and loaders treat functions: chosen at load time, weak, with two names, in own sections, run before main."""

from choices import fill
from parts import part


@part()
def chosen(choices, prefix):
    """A function that a resolver chooses when the program is loaded."""
    which = choices.randrange(2)
    text = f"""
C_BEGIN
static NOINLINE u64 @prefix@first(u64 x) {{ return {choices.term('x')}; }}
static NOINLINE u64 @prefix@second(u64 x) {{ return {choices.term('x')} + 1; }}
typedef u64 (*@prefix@function)(u64);
ATTRIBUTE(no_stack_protector, no_sanitize("all"), used) static @prefix@function @prefix@resolve(void) {{ return {"@prefix@first" if which else "@prefix@second"}; }}
{choices.choice(['HIDDEN', ''])} u64 @prefix@best(u64 x) __attribute__((ifunc("@prefix@resolve")));
C_END
static @prefix@function volatile @prefix@stored = @prefix@best;
C_NAMES u64 @prefix@run(int argument) {{
  u64 r = @prefix@best((u64)argument);
  @prefix@function taken = OPAQUE(&@prefix@best);
  return r + taken(r) + @prefix@stored(r * 3);
}}
"""
    return fill(text, prefix=prefix)


@part()
def names(choices, prefix):
    """Weak functions, some of which are undefined, and aliases of functions."""
    text = f"""
C_BEGIN
ATTRIBUTE(weak) NOINLINE u64 @prefix@weak(u64 x) {{ return {choices.term('x')}; }}
ATTRIBUTE(weak) u64 @prefix@missing(u64 x);
NOINLINE ATTRIBUTE(used) u64 @prefix@real(u64 x) {{ return {choices.term('x')} * 3; }}
u64 @prefix@alias(u64 x) ATTRIBUTE(alias("@prefix@real"));
static u64 @prefix@local(u64 x) ATTRIBUTE(alias("@prefix@real"));
C_END
static u64 (*volatile @prefix@stored[])(u64) = {{@prefix@alias, @prefix@local, @prefix@real, @prefix@weak}};
C_NAMES u64 @prefix@run(int argument) {{
  u64 r = @prefix@weak((u64)argument) + @prefix@alias(3) + @prefix@local(5);
  if (OPAQUE(&@prefix@missing)) r += @prefix@missing(r);
  for (int at = 0; at < 4; at++) r = r * 7 + @prefix@stored[at](r);
  return r * 2 + (u64)(@prefix@stored[0] == OPAQUE(&@prefix@real));
}}
"""
    return fill(text, prefix=prefix)


@part()
def begin_and_end(choices, prefix):
    """Functions that run before and after main, in a given order; those after main print."""
    numbers = [choices.randrange(101, 2000) for _ in range(choices.randint(1, 4))]
    text = "static u64 @prefix@before = 1;\n"
    for at, number in enumerate(numbers):
        text += f"ATTRIBUTE(constructor({number})) static void @prefix@begin{at}(void) {{ @prefix@before = {choices.term('@prefix@before')} + {at}; }}\n"
        if choices.chance(60):
            text += f'ATTRIBUTE(destructor({number})) static void @prefix@end{at}(void) {{ printf("@prefix@end{at} %llx\\n", (u64)@prefix@before); @prefix@before *= 3; }}\n'
    text += "static void @prefix@last(void) { @prefix@before += 5; }\n"
    text += "C_NAMES u64 @prefix@run(int argument) { static int once; if (!once++) atexit(@prefix@last); return @prefix@before + (u64)argument; }\n"
    return fill(text, prefix=prefix)


@part()
def sections(choices, prefix):
    """Functions and rows in sections whose first and last address the linker names."""
    count = choices.randint(1, 5)
    functions = "".join(f'static NOINLINE ATTRIBUTE(section("@prefix@text"), used) u64 @prefix@f{at}(u64 x) {{ {choices.statements("x", "x")} return x; }}\n' for at in range(count))
    rows = "".join(f'static struct @prefix@row ATTRIBUTE(section("@prefix@rows"), used, aligned(16)) @prefix@r{at} = {{@prefix@f{at}, {choices.randrange(99)}}};\n' for at in range(count))
    text = f"""
{functions}
struct @prefix@row {{ u64 (*code)(u64); u64 number; }};
{rows}
C_BEGIN
HIDDEN extern struct @prefix@row __start_@prefix@rows[], __stop_@prefix@rows[];
HIDDEN extern char __start_@prefix@text[], __stop_@prefix@text[];
C_END
C_NAMES u64 @prefix@run(int argument) {{
  u64 r = (u64)argument;
  for (struct @prefix@row *row = __start_@prefix@rows; row < OPAQUE(&__stop_@prefix@rows[0]); row++) {{
    char *place = (char *)row->code;
    r = r * 31 + row->code(r) + row->number + (place >= OPAQUE(&__start_@prefix@text[0]) && place < OPAQUE(&__stop_@prefix@text[0]));
  }}
  return r;
}}
"""
    return fill(text, prefix=prefix)


@part(weight=3)
def attributes(choices, prefix):
    """Functions with attributes of all kinds that call one another."""
    count = choices.randint(3, 10)
    text = ""
    for at in range(count):
        inner = f"x += @prefix@f{choices.randrange(at)}(x);" if at and choices.chance(70) else ""
        guard = f"if (__builtin_expect(x % {choices.randrange(3, 20)} == 0, 0)) {{ mix(x); {inner} {choices.statements('x', 'x')} }} else {{ {inner} }}" if choices.chance(50) else inner
        text += f"{choices.choice(['static', '', 'HIDDEN'])} {choices.function_attributes()} u64 @prefix@f{at}(u64 x) {{ {choices.statements('x', 'x')} {guard} return x; }}\n"
    text += f"C_NAMES u64 @prefix@run(int argument) {{ u64 r = 0; for (u64 x = 0; x < 6; x++) r = r * 31 + @prefix@f{count - 1}(x + (u64)argument); return r; }}\n"
    return fill(text, prefix=prefix)
