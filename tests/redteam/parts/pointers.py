"""Addresses of functions as data: in arrays, structures and unions, with flags, mixed, and as sums."""

from choices import fill
from parts import part

ALIGNMENTS = [16, 32, 32, 64, 64, 128, 256, 4096]


def targets(choices, count, attributes="", linkage="static NOINLINE"):
    """Functions with one argument: text; they are named @prefix@f0 and so on."""
    return "".join(f"{linkage} {attributes} u64 @prefix@f{at}(u64 x) {{ {choices.statements('x', 'x')} return x * {at + 2}; }}\n" for at in range(count))


@part(weight=5)
def flagged(choices, prefix):
    """Functions with an alignment, whose addresses carry flags in the bits that are zero."""
    alignment = choices.choice(ALIGNMENTS)
    count = choices.randint(2, 8 if alignment < 1000 else 3)
    names = ", ".join(f"@prefix@f{at}" for at in range(count))
    form = choices.choice(["array", "array", "code", "check"])
    # The signature that -fsanitize=function puts before an entry takes part of its alignment: the flags would hide in the rest.
    text = targets(choices, count, f'ATTRIBUTE(aligned({alignment}), no_sanitize("all"))')
    text += f"typedef u64 (*@prefix@function)(u64);\nstatic @prefix@function {choices.choice(['const ', ''])}volatile @prefix@table[] = {{{names}}};\n"
    if form == "code":
        choose = " ".join(f"if (at == {at}) return (uintptr_t)@prefix@f{at};" for at in range(count)) + " return 0;"
    else:
        choose = "return (uintptr_t)@prefix@table[at];"
    text += f"static NOINLINE uintptr_t @prefix@choose(int at) {{ {choose} }}\n"
    if form == "check":
        use = f"mix(@prefix@choose(at) % {alignment}); r += ((@prefix@function)@prefix@choose(at))(r);"
    else:
        use = f"uintptr_t tagged = @prefix@choose(at) | (r & {alignment - 1}); r += ((@prefix@function)(OPAQUE(tagged) & ~(uintptr_t){alignment - 1}))(tagged & {alignment - 1});"
    text += f"C_NAMES u64 @prefix@run(int argument) {{ u64 r = (u64)argument; for (int at = 0; at < {count}; at++) {{ {use} }} return r; }}\n"
    return fill(text, prefix=prefix)


@part(weight=5)
def tables(choices, prefix):
    """Function pointers in data of all forms."""
    count = choices.randint(2, 9)
    function = "@prefix@function"
    text = targets(choices, count, choices.choice(["", "", "ATTRIBUTE(cold)", "ATTRIBUTE(hot)"]), choices.choice(["static NOINLINE", "static", "C_NAMES HIDDEN NOINLINE"]))
    text += "typedef u64 (*@prefix@function)(u64);\n"
    form = choices.choice(["plain", "structure", "packed", "union", "shifted", "mixed", "rows", "pointer to pointer", "middle"])
    qualifier = choices.choice(["static ", "static const ", "static const ", "const ", "static volatile "])
    if form == "plain":
        names = ", ".join(f"@prefix@f{choices.randrange(count)}" for _ in range(count * 2))
        text += f"{qualifier}{function} @prefix@table[] = {{{names}}};\n"
        count, get = count * 2, "@prefix@table[at]"
    elif form in ("structure", "packed"):
        packed = "__attribute__((packed))" if form == "packed" else ""
        rows = ", ".join(f"{{{at}, @prefix@f{at}, {choices.randrange(99)}}}" for at in range(count))
        text += f"struct {packed} @prefix@row {{ char key; {function} code; short extra; }};\nstatic struct @prefix@row @prefix@table[] = {{{rows}}};\n"
        get = "@prefix@table[OPAQUE(at)].code"
    elif form == "union":
        rows = ", ".join(f"{{(void *)@prefix@f{at}}}" for at in range(count))
        text += f"union @prefix@any {{ void *data; {function} code; u64 number; }};\nstatic union @prefix@any @prefix@table[] = {{{rows}}};\n"
        get = "@prefix@table[OPAQUE(at)].code"
    elif form == "shifted":
        # An address stored in data as twice its value plus one, as some languages do.
        text += f"static u64 @prefix@table[{count}];\nATTRIBUTE(constructor) static void @prefix@set(void) {{ " + \
            " ".join(f"@prefix@table[{at}] = ((u64)(uintptr_t)@prefix@f{at} << 1) | 1;" for at in range(count)) + " }\n"
        get = f"(({function})(uintptr_t)(OPAQUE(@prefix@table[at]) >> 1))"
    elif form == "mixed":
        key = choices.randrange(1 << 60)
        text += f"static u64 @prefix@table[{count}];\nATTRIBUTE(constructor) static void @prefix@set(void) {{ " + \
            " ".join(f"@prefix@table[{at}] = (u64)(uintptr_t)@prefix@f{at} ^ {key}u;" for at in range(count)) + " }\n"
        get = f"(({function})(uintptr_t)(OPAQUE(@prefix@table[at]) ^ {key}u))"
    elif form == "rows":
        rows = ", ".join(f"{{@prefix@f{at}, @prefix@f{choices.randrange(count)}}}" for at in range(count))
        text += f"{qualifier}{function} @prefix@table[][2] = {{{rows}}};\n"
        get = "@prefix@table[at][r & 1]"
    elif form == "pointer to pointer":
        names = ", ".join(f"@prefix@f{at}" for at in range(count))
        text += f"static {function} @prefix@inner[] = {{{names}}};\nstatic {function} *@prefix@table = @prefix@inner + {count};\n"
        get = "OPAQUE(@prefix@table)[-1 - at]"
    else:
        # Addresses inside of functions, adjusted before the call.
        delta = choices.choice([1, 4, 8, -1, 16])
        names = ", ".join(f"(char *)@prefix@f{at} + {delta}" for at in range(count))
        text += f"static char *@prefix@table[] = {{{names}}};\n" if choices.chance(100) else ""
        get = f"(({function})(OPAQUE(@prefix@table[at]) - {delta}))"
    text += f"C_NAMES u64 @prefix@run(int argument) {{ u64 r = (u64)argument; for (int at = 0; at < {count}; at++) r += {get}(r); return r; }}\n"
    return fill(text, prefix=prefix)


@part(weight=5)
def sums(choices, prefix):
    """Functions as distances from a function, from the table or from the entry itself, as numbers of four or eight bytes."""
    count = choices.randint(2, 8)
    word, element = choices.choice([(".long", "int"), (".long", "int"), (".quad", "i64")])
    base = choices.choice(["f0", "f0", "table", "self", "last"])
    names = [f"@prefix@f{at}" for at in range(count)]
    origin = {"f0": "@prefix@f0", "table": "@prefix@table", "self": ".", "last": f"@prefix@f{count - 1}"}[base]
    section = choices.choice([".rodata", ".rodata", ".data", ".data.rel.ro"])
    flags = {".rodata": "a", ".data": "aw", ".data.rel.ro": "aw"}[section]
    entries = "\\n".join(f"{word} {name} - {origin}" for name in names)
    text = "C_BEGIN\n" + targets(choices, count, "ATTRIBUTE(used)", "HIDDEN NOINLINE") + f"HIDDEN extern const {element} @prefix@table[{count}];\nC_END\n"
    text += f'__asm__(".pushsection {section},\\"{flags}\\",%progbits\\n.balign 8\\n.globl @prefix@table\\n.hidden @prefix@table\\n@prefix@table:\\n{entries}\\n.popsection");\n'
    start = {"f0": "(char *)@prefix@f0", "table": "(char *)@prefix@table", "self": "(char *)&@prefix@table[at]", "last": f"(char *)@prefix@f{count - 1}"}[base]
    target = f"((u64 (*)(u64))({start} + @prefix@table[at]))"
    form = choices.choice(["call", "jump", "stored"])
    if form == "call":
        text += f"C_NAMES u64 @prefix@run(int argument) {{ u64 r = (u64)argument; for (int at = 0; at < {count}; at++) r += {target}(r); return r; }}\n"
    elif form == "jump":
        text += f"static NOINLINE u64 @prefix@go(int at, u64 x) {{ return {target}(x); }}\n"
        text += f"C_NAMES u64 @prefix@run(int argument) {{ u64 r = (u64)argument; for (int at = 0; at < {count}; at++) r += @prefix@go(at, r); return r; }}\n"
    else:
        text += f"static u64 (*volatile @prefix@chosen)(u64);\nstatic NOINLINE void @prefix@choose(int at) {{ @prefix@chosen = {target}; }}\n"
        text += f"C_NAMES u64 @prefix@run(int argument) {{ u64 r = (u64)argument; for (int at = 0; at < {count}; at++) {{ @prefix@choose(at); r += @prefix@chosen(r); }} return r; }}\n"
    return fill(text, prefix=prefix)


@part(weight=2)
def differences(choices, prefix):
    """Distances between functions that the program computes itself, keeps in 32 bits and adds again."""
    count = choices.randint(2, 8)
    stores = " ".join(f"@prefix@table[{at}] = (int)((intptr_t)@prefix@f{at} - (intptr_t)@prefix@f0);" for at in range(count))
    text = targets(choices, count) + f"""
static int @prefix@table[{count}];
static NOINLINE void @prefix@set(void) {{ {stores} }}
C_NAMES u64 @prefix@run(int argument) {{
  u64 r = (u64)argument;
  @prefix@set();
  for (int at = 0; at < {count}; at++) r += ((u64 (*)(u64))((intptr_t)OPAQUE(&@prefix@f0) + @prefix@table[at]))(r);
  return r;
}}
"""
    return fill(text, prefix=prefix)
