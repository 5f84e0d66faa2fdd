"""Switches of all shapes, some next to constant arrays that may look like more of their tables."""

from choices import fill
from parts import part

INDEX_TYPES = {
    "int": (-(1 << 31), (1 << 31) - 1), "unsigned": (0, (1 << 32) - 1), "signed char": (-128, 127),
    "unsigned char": (0, 255), "short": (-(1 << 15), (1 << 15) - 1), "unsigned short": (0, (1 << 16) - 1),
    "long": (-(1 << 62), 1 << 62), "u64": (0, 1 << 62),
}


def labels(choices):
    """Case values of one switch."""
    shape = choices.choice(["dense", "dense", "dense", "dense", "low", "low", "far", "far", "gaps", "gaps", "sparse", "huge"])
    count = choices.randint(4, 16)
    if shape == "dense":
        low = choices.choice([0, 0, 0, 1, 2, 5])
        return list(range(low, low + count))
    if shape == "low":
        low = -choices.randrange(1, 40)
        return list(range(low, low + count))
    if shape == "far":
        low = choices.randrange(-100000, 100000)
        return list(range(low, low + count))
    if shape == "gaps":
        return sorted(choices.sample(range(count * 2), count))
    if shape == "huge":
        return list(range(choices.randint(200, 400)))
    return sorted(choices.sample(range(-5000, 5000), count))


def default(choices):
    """The code after a switch without a matching case: text, and whether the index must be one of the cases."""
    return choices.choice([("", False), ("default: return x ^ 77;", False), ("default: __builtin_unreachable();", True),
                           ("default: __builtin_unreachable();", True), ("default: @die@(x);", False), ("default: __builtin_trap();", True)])


def cases(choices, values, allow_ranges):
    """The cases of one switch; some fall through, share a body, or end in a function that does not return."""
    text = []
    dying = choices.choice([0, 0, 0, 15, 40])
    falling = choices.choice([0, 0, 10, 30])
    at = 0
    while at < len(values):
        value = values[at]
        if allow_ranges and choices.chance(8) and at + 3 < len(values) and values[at + 3] == value + 3:
            text.append(f"case {value} ... {value + 3}:")
            at += 3
        else:
            text.append(f"case {value}:")
        at += 1
        if choices.chance(6) and at < len(values):
            continue
        if len(values) > 60 and choices.chance(70):
            text.append(f"r += {choices.randrange(1 << 20)}u; mix(r); break;")
        elif choices.chance(dying):
            text.append(f"@die@({choices.term('x')});")
        else:
            end = choices.choice(["break;", "break;", "return r;", f"return {choices.term('x')};", "goto out;"])
            text.append(choices.statements("r", "x") + (" __attribute__((fallthrough));" if choices.chance(falling) and at < len(values) else f" {end}"))
    return "\n    ".join(text)


def kind(choices, name, death):
    """A function with a switch, and the expression that calls it for every case: (text, lines of calls)."""
    values = labels(choices)
    low, high = min(values), max(values)
    index, masked = "c", None
    if choices.chance(25):
        masked = choices.choice([8, 16, 32, 7, 12, 5])
        values, low, high = list(range(masked)), 0, masked - 1
        index = f"(c & {masked - 1})" if masked & (masked - 1) == 0 else f"(c % {masked})"
    fitting = [t for t, (least, most) in INDEX_TYPES.items() if least <= low and high <= most]
    index_type = "unsigned" if masked else choices.choice(fitting)
    rest, closed = default(choices)
    if masked:
        rest, closed = choices.choice([("", False), (rest, closed)])
    body = f"switch ({index}) {{\n    {cases(choices, values, True)}\n    {rest}\n    }}"
    looped = choices.choice(["", "", "", "for (u64 turn = 0; turn < 3; turn++) { x += turn;", "while (x & 7) { x--;"])
    if looped:
        body = f"{looped}\n  {body}\n  }}"
    if choices.chance(15):
        inner = sorted(choices.sample(range(30), choices.randint(4, 12)))
        body += f"\n  switch (r & 31) {{\n    {cases(choices, inner, False)}\n    }}"
    text = fill(
        "@static@ @attributes@ u64 @name@(@type@ c, u64 x) {\n  u64 r = x;\n  @body@\n  goto out;\nout:\n  return r;\n}\n",
        static=choices.choice(["static", "static", ""]), attributes=choices.function_attributes(), name=name, type=index_type, body=body,
    ).replace("@die@", death)
    least, most = (low, high) if closed or masked else (low - 2, high + 2)
    bottom, top = INDEX_TYPES[index_type]
    least, most = max(least, bottom), min(most, top)
    if closed and len(values) < high - low + 1:
        calls = "".join(f"  AT({value}) r += {name}(UNKNOWN({index_type}, {value}), (u64)argument + r % 5);\n" for value in values[:40])
    else:
        step = max(1, (most - least) // 40)
        calls = f"  for (i64 c = {least}; c <= {most}; c += {step}) AT(c) r += {name}(UNKNOWN({index_type}, c), (u64)argument + r % 5);\n"
    return text, calls


FRAME = """
#include <setjmp.h>
static jmp_buf @prefix@back;
ATTRIBUTE(noreturn, noinline@cold@) static void @prefix@die(u64 x) { mix(x + 17); longjmp(@prefix@back, 1); }
@functions@
C_NAMES u64 @prefix@run(int argument) {
  volatile u64 total = 0;
  u64 r = 0;
#undef AT
#define AT(value) if (setjmp(@prefix@back)) { mix((u64)(value)); total += 3; } else
@calls@
  return r + total;
}
"""


def framed(choices, prefix, functions, calls):
    """Functions and their calls in a run that survives cases that do not return."""
    # Locals that a longjmp would invalidate are kept in memory.
    text = fill(FRAME, prefix=prefix, cold=choices.choice([", cold", ", cold", ""]), functions=functions, calls=calls)
    return text.replace("  u64 r = 0;\n", "  volatile u64 r = 0;\n").replace("for (i64 c =", "for (volatile i64 c =")


@part(weight=8)
def switches(choices, prefix):
    """Some switches."""
    texts, calls = zip(*(kind(choices, f"{prefix}kind{number}", f"{prefix}die") for number in range(choices.randint(1, 4))))
    return framed(choices, prefix, "\n".join(texts), "".join(calls))


def array(choices, name):
    """A constant array and a function that reads it: (text before, text after, expression)."""
    element, bits = choices.choice([("int", 32)] * 6 + [("signed char", 8), ("short", 16), ("i64", 64), ("unsigned", 32)])
    count = choices.randint(3, 40)
    if bits >= 32:
        # The size of a distance from read-only data to code in a small program, or from code to data.
        start = choices.choice([-1, -1, -1, 1]) * choices.randrange(200, 1 << choices.choice([12, 13, 14, 15, 17]))
        step = choices.choice([-1, 1]) * choices.choice([0, 1, 1, 4, 8, 16, choices.randrange(1, 80)])
    else:
        start, step = choices.randrange(-100, 100), choices.choice([-1, 0, 1])
    values = [start + step * at for at in range(count)]
    values = [max(min(value, (1 << (bits - 1)) - 1), -(1 << (bits - 1))) if element != "unsigned" else value & 0xffffffff for value in values]
    numbers = ", ".join(f"{value}u" if element == "unsigned" else str(value) for value in values)
    before = f"static const {element} {name}[{count}] = {{{numbers}}};\n"
    offset = choices.choice([0, 0, 0, -1, 1, count, count // 2, -3, 8])
    base = f"({name} + {offset})" if offset >= 0 else f"({name} - {-offset})"
    form = choices.randrange(5)
    sign = "" if element != "unsigned" else "(int)"
    loop = choices.choice([f"for (long i = {count}; i > 0; i--)", f"for (long i = 1; i <= {count}; i++)"])
    if form == 0:
        body = f"{loop} s = s * 31 + (u64){sign}{name}[i - 1];"
    elif form == 1:
        body = f"const {element} *base = OPAQUE({base}); {loop} s = s * 31 + (u64){sign}base[i - 1 - ({offset})];"
    elif form == 2:
        body = f"const {element} *at = OPAQUE({name} + {count}); while (at != OPAQUE((const {element} *){name})) s = s * 31 + (u64){sign}*--at;"
    elif form == 3:
        before += f"static const {element} *{name}_holder[2] = {{{base}, {name} + {choices.randrange(count)}}};\n"
        body = f"{loop} s = s * 31 + (u64){sign}OPAQUE({name}_holder[0])[i - 1 - ({offset})]; s += (u64)*OPAQUE({name}_holder[1]);"
    else:
        body = f"{loop} s = s * 31 + (u64){sign}{name}[OPAQUE(i) - 1];"
    after = f"{choices.choice(['static ', ''])}{choices.function_attributes()} u64 {name}_digest(void) {{ u64 s = 0; {body} return s; }}\n"
    return before, after, f"  mix({name}_digest());\n"


@part(weight=8)
def arrays(choices, prefix):
    """Switches whose tables are next to constant arrays."""
    before, after, calls = [], [], []
    for number in range(choices.randint(1, 3)):
        text, call = kind(choices, f"{prefix}kind{number}", f"{prefix}die")
        after.append(text)
        calls.append(call)
    for number in range(choices.randint(1, 4)):
        data, text, call = array(choices, f"{prefix}zone{number}")
        choices.choice([before, after]).append(data)
        after.append(text)
        calls.append(call)
    return framed(choices, prefix, "".join(before) + "\n".join(after), "".join(calls))


@part(weight=4)
def answers(choices, prefix):
    """Switches that only choose a value: numbers, strings, functions."""
    count = choices.randint(4, 20)
    low = choices.choice([0, 0, 1, -3])
    forms = {
        "u64": [f"{choices.randrange(1 << 40)}ull" for _ in range(count)],
        "const char *": [f'"text {choices.randrange(1 << 16)}"' for _ in range(count)],
    }
    functions = "".join(f"static NOINLINE u64 @prefix@answer{at}(u64 x) {{ return {choices.term('x')}; }}\n" for at in range(count))
    lines = lambda values: "".join(f"case {low + at}: return {value};\n" for at, value in enumerate(values))
    rest, closed = choices.choice([("default: return 0;", False), ("default: __builtin_unreachable();", True)])
    margin = 0 if closed else 2
    text = f"""
{functions}
typedef u64 (*@prefix@function)(u64);
{choices.function_attributes()} u64 @prefix@number(int c) {{ switch (c) {{ {lines(forms['u64'])} {rest} }} }}
{choices.function_attributes()} const char *@prefix@word(int c) {{ switch (c) {{ {lines(forms['const char *'])} {rest} }} }}
{choices.function_attributes()} @prefix@function @prefix@choose(int c) {{ switch (c) {{ {lines(f"@prefix@answer{at}" for at in range(count))} {rest} }} }}
C_NAMES u64 @prefix@run(int argument) {{
  u64 r = (u64)argument;
  for (int c = {low - margin}; c < {low + count + margin}; c++) {{
    r = r * 7 + @prefix@number(OPAQUE(c));
    const char *word = @prefix@word(OPAQUE(c));
    if (word) r = r * 31 + (u64)word[5] + strlen(word);
    @prefix@function chosen = @prefix@choose(OPAQUE(c));
    if (chosen) r += chosen(r);
  }}
  return r;
}}
"""
    return fill(text, prefix=prefix)
