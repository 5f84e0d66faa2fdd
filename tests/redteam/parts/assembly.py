"""Assembly in C: addresses in instructions only, tables in the code, functions without a frame."""

from choices import fill
from parts import part

TAKE = r"""
#if defined(__x86_64__)
#define @prefix@TAKE(result, name) __asm__("lea " name "(%%rip), %0" : "=r"(result))
#else
#define @prefix@TAKE(result, name) __asm__("adrp %0, " name "\n\tadd %0, %0, :lo12:" name : "=r"(result))
#endif
"""


@part(weight=2)
def taken(choices, prefix):
    """Addresses that assembly takes, of functions and of places between them."""
    text = TAKE + f"""
C_BEGIN
HIDDEN NOINLINE ATTRIBUTE(used) u64 @prefix@f(u64 x) {{ return {choices.term('x')}; }}
HIDDEN NOINLINE ATTRIBUTE(used) u64 @prefix@g(u64 x) {{ return {choices.term('x')}; }}
C_END
C_NAMES u64 @prefix@run(int argument) {{
  u64 (*first)(u64), (*second)(u64);
  @prefix@TAKE(first, "@prefix@f");
  @prefix@TAKE(second, "@prefix@g");
  return first((u64)argument) * 31 + second(3) + (first == OPAQUE(&@prefix@f));
}}
"""
    return fill(text, prefix=prefix)


@part(weight=2)
def naked(choices, prefix):
    """Functions written entirely in assembly, with sizes or without, with numbers or a table after the code."""
    size = choices.chance(60)
    end = "\\n.size @prefix@f, . - @prefix@f" if size else ""
    numbers = [choices.randrange(1 << 30) for _ in range(4)]
    places = ["@prefix@t0", "@prefix@t1", "@prefix@t2", "@prefix@t3"]
    where = choices.choice(["text", "rodata"])
    data = "\\n".join(f".long {place} - @prefix@d" for place in places)
    table = f".balign 4\\n@prefix@d: {data}" if where == "text" else f".pushsection .rodata\\n.balign 4\\n@prefix@d: {data}\\n.popsection"
    x86 = "\\n".join(["and $3, %edi", "lea @prefix@d(%rip), %rdx", "movslq (%rdx,%rdi,4), %rcx", "add %rdx, %rcx", choices.choice(["jmp *%rcx", "notrack jmp *%rcx", "push %rcx; ret"])]
                     + [f"{place}: mov ${number}, %eax; ret" for place, number in zip(places, numbers)] + ([table] if where == "text" else []))
    arm = "\\n".join(["and w0, w0, #3", "adrp x1, @prefix@d", "add x1, x1, :lo12:@prefix@d", "ldrsw x2, [x1, w0, uxtw #2]", "add x2, x2, x1", "br x2"]
                     + [f"{place}: ldr w0, {place}n; ret; {place}n: .long {number}" for place, number in zip(places, numbers)] + ([table] if where == "text" else []))
    head = "\\n".join([".pushsection .text", ".balign 16", ".globl @prefix@f", ".hidden @prefix@f", ".type @prefix@f, %function", "@prefix@f:"] + ([".cfi_startproc"] if size else []))
    tail = ("\\n.cfi_endproc" if size else "") + end + "\\n.popsection" + ("" if where == "text" else "\\n" + table)
    text = f"""
C_NAMES HIDDEN u64 @prefix@f(u64 x);
#if defined(__x86_64__)
__asm__("{head}\\n{x86}{tail}");
#else
__asm__("{head}\\n{arm}{tail}");
#endif
C_NAMES u64 @prefix@run(int argument) {{ u64 r = 0; for (u64 at = 0; at < 4; at++) r = r * 31 + (u32)@prefix@f(at + (u64)argument); return r; }}
"""
    return fill(text, prefix=prefix)


@part(weight=2)
def runs_on(choices, prefix):
    """A function in assembly that continues into the next one, and one with two entries."""
    number = choices.randrange(1, 99)
    size = choices.choice(["", "\\n.size @prefix@first, @prefix@second - @prefix@first\\n.size @prefix@second, . - @prefix@second"])
    unwind = choices.chance(50)
    begin, middle, end = (".cfi_startproc\\n", ".cfi_endproc\\n", "\\n.cfi_endproc") if unwind else ("", "", "")
    names = "\\n".join(f".globl @prefix@{name}\\n.hidden @prefix@{name}\\n.type @prefix@{name}, %function" for name in ("first", "second"))
    text = f"""
C_BEGIN
HIDDEN u64 @prefix@first(u64 x);
HIDDEN u64 @prefix@second(u64 x);
C_END
#if defined(__x86_64__)
__asm__(".pushsection .text\\n{names}\\n.balign 16\\n@prefix@first:\\n{begin}add ${number}, %rdi\\n{middle}@prefix@second:\\n{begin}lea 5(%rdi,%rdi,2), %rax\\nret{end}{size}\\n.popsection");
#else
__asm__(".pushsection .text\\n{names}\\n.balign 16\\n@prefix@first:\\n{begin}add x0, x0, #{number}\\n{middle}@prefix@second:\\n{begin}add x0, x0, x0, lsl #1\\nret{end}{size}\\n.popsection");
#endif
C_NAMES u64 @prefix@run(int argument) {{ return @prefix@first((u64)argument) * 31 + @prefix@second((u64)argument); }}
"""
    return fill(text, prefix=prefix)
