"""Computed gotos and interpreters: tables of labels as addresses and as distances."""

from choices import fill
from parts import part


@part(weight=5)
def labels(choices, prefix):
    """A small interpreter with a label for each instruction."""
    count = choices.randint(3, 16)
    forms = ["absolute", "absolute", "local", "stored"]
    if choices.language == "c":
        # C++ does not accept a difference of labels as a constant.
        forms += ["distance int", "distance short", "distance from end"]
    form = choices.choice(forms)
    names = [f"&&l{at}" for at in range(count)]
    if form == "absolute":
        table = f"static const void *{choices.choice(['', 'const '])}table[] = {{{', '.join(names)}}};"
        jump = "goto *table[code[at++]]"
    elif form == "local":
        table = f"const void *table[] = {{{', '.join(names)}}};"
        jump = "goto *table[code[at++]]"
    elif form == "stored":
        # Labels that leave the function through data.
        table = f"static void *table[{count}]; if (!table[0]) {{ " + " ".join(f"table[{at}] = {name};" for at, name in enumerate(names)) + " }"
        jump = "goto *table[code[at++]]"
    else:
        element = "short" if form == "distance short" else "int"
        base = f"&&l{count - 1}" if form == "distance from end" else "&&l0"
        differences = ", ".join(f"(char *){name} - (char *){base}" for name in names)
        table = f"static const {element} table[] = {{{differences}}};"
        jump = f"goto *(void *)((char *){base} + table[code[at++]])"
    shared = choices.chance(30)
    bodies = "".join(f"l{at}: {choices.statements('r', 'x')} x += {at}; if (at >= length) return r; {'goto next' if shared else jump};\n" for at in range(count))
    code = ", ".join(str(choices.randrange(count)) for _ in range(choices.randint(count, 60)))
    text = f"""
static const unsigned char @prefix@code[] = {{{', '.join(str(at) for at in range(count))}, {code}}};
{choices.function_attributes().replace('ATTRIBUTE(flatten)', '')} NOINLINE GCC_ATTRIBUTE(noclone) u64 @prefix@interpret(const unsigned char *code, u64 length, u64 x) {{
  {table}
  u64 at = 0, r = 7;
{'next:' if shared else ''}
  {jump};
  {bodies}
}}
C_NAMES u64 @prefix@run(int argument) {{ return @prefix@interpret(@prefix@code, sizeof @prefix@code, (u64)argument); }}
"""
    return fill(text, prefix=prefix)


@part(languages="c", weight=2)
def label_argument(choices, prefix):
    """The address of a label is passed to another function, which returns it; a function with two entries."""
    count = choices.randint(2, 6)
    text = f"""
typedef struct {{ void *place; u64 value; }} @prefix@resume;
static NOINLINE void *@prefix@pass(void *place, u64 x) {{ mix(x); return place; }}
static NOINLINE GCC_ATTRIBUTE(noclone) u64 @prefix@generator(@prefix@resume *state) {{
  if (state->place) goto *@prefix@pass(state->place, state->value);
  {"".join(f'state->place = &&r{at}; state->value += {choices.randrange(99)}u; return {choices.term("state->value")}; r{at}: mix({at});' for at in range(count))}
  state->place = 0;
  return 0;
}}
C_NAMES u64 @prefix@run(int argument) {{
  @prefix@resume state = {{0, (u64)argument}};
  u64 r = 0;
  for (int turn = 0; turn < {count * 2}; turn++) r = r * 31 + @prefix@generator(&state);
  return r;
}}
"""
    return fill(text, prefix=prefix)


@part(languages="c", weight=2)
def nested(choices, prefix):
    """Nested functions, called through trampolines on the stack; clang does not support them."""
    text = f"""
static NOINLINE u64 @prefix@apply(u64 (*inner)(u64), u64 x) {{ return inner(x) + {choices.randrange(99)}; }}
C_NAMES u64 @prefix@run(int argument) {{
#if defined(__clang__)
  return @prefix@apply(filler{choices.randrange(8)}, (u64)argument);
#else
  __label__ away;
  u64 r = (u64)argument;
  u64 first(u64 x) {{ r += {choices.term('x')}; return r; }}
  u64 second(u64 x) {{ if (x & {1 << choices.randrange(4)}) goto away; return first(x) ^ {choices.term('x')}; }}
  r += @prefix@apply(first, r);
  r += @prefix@apply(second, r * 3);
  r += @prefix@apply(second, r * 5 + 1);
  return r;
away:
  return r * 31 + 9;
#endif
}}
"""
    return fill(text, prefix=prefix)
