"""Composes a program from parts: `generate(seed, language)` gives its files by name, always the same ones.

Each part is a piece of source with a function `u64 PREFIX_run(int)`, which executes all its cases. The program calls the
parts once for each argument and prints a digest after each, so that a wrong digest identifies its part.
"""

import pathlib
import sys

from choices import FILLERS, Choices, fill
from parts import PARTS

PRELUDE = r"""
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdint.h>
#include <stddef.h>
typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;
#define ATTRIBUTE(...) __attribute__((__VA_ARGS__))
#if defined(__clang__)
#define GCC_ATTRIBUTE(...)
#else
#define GCC_ATTRIBUTE(...) __attribute__((__VA_ARGS__))
#endif
#define NOINLINE __attribute__((noinline))
#define HIDDEN __attribute__((visibility("hidden")))
/* A value of which the compiler knows nothing. */
#ifdef __cplusplus
template <class Type> static inline __attribute__((always_inline)) Type opaque(Type value) { __asm__ volatile("" : "+r"(value)); return value; }
#define OPAQUE(value) opaque(value)
#else
#define OPAQUE(value) ({ __auto_type opaque_ = (value); __asm__ volatile("" : "+r"(opaque_)); opaque_; })
#endif
#ifdef __cplusplus
#define C_NAMES extern "C"
#define C_BEGIN extern "C" {
#define C_END }
#else
#define C_NAMES
#define C_BEGIN
#define C_END
#endif
C_BEGIN
HIDDEN void mix(u64 value);
HIDDEN extern u64 digest;
HIDDEN extern volatile u64 nothing;
/* A number of which the code alone tells nothing either. */
#define UNKNOWN(type, value) ((type)((value) + (type)nothing))
@fillers@
C_END
"""

MAIN = r"""
C_BEGIN
u64 digest;
volatile u64 nothing;
NOINLINE void mix(u64 value) { digest = (digest ^ value) * 0x100000001b3ull; digest ^= digest >> 29; }
C_END
@bodies@
#ifdef main
C_NAMES
#endif
int main(int count, char **words) {
  for (int at = 1; at < count; at++) {
    int argument = atoi(words[at]);
    printf("argument %d\n", argument);
@calls@
  }
  printf("digest %016llx\n", digest);
  fflush(stdout);
  return (int)(digest & 63);
}
"""

CALL = """    fflush(stdout); mix(@prefix@run(argument)); printf("@prefix@ %016llx\\n", digest);
"""


def fillers(choices):
    """Functions of different sizes that all parts call, so that some functions can move."""
    bodies = []
    for number in range(FILLERS):
        statements = "".join(f" value = value * {choices.randrange(3, 999)}u ^ (value >> {choices.randrange(1, 20)});"
                             for _ in range(choices.randint(1, 6)))
        inner = f" if (value & 1) value += filler{number - 1}(value >> 3);" if number and choices.chance(60) else ""
        bodies.append(f"NOINLINE u64 filler{number}(u64 value) {{{statements}{inner} return value; }}\n")
    choices.shuffle(bodies)
    return "".join(bodies)


def plan(seed, language):
    """Names of the parts of a program, in the order in which they are called, and how they are spread over its files."""
    choices = Choices(f"{language} {seed}")
    able = [name for name, part in sorted(PARTS.items()) if language in part.languages]
    weights = [PARTS[name].weight for name in able]
    names = choices.choices(able, weights, k=choices.randint(3, 7))
    files = choices.choice([1, 1, 2, 3])
    return names, [choices.randrange(files) for _ in names]


def generate(seed, language, keep=None):
    """The files of a program by name. `keep` limits it to parts by number; the others are unchanged."""
    names, places = plan(seed, language)
    shared = Choices(f"{language} {seed} fillers")
    wanted = [number for number in range(len(names)) if keep is None or number in keep]
    declarations = "".join(f"HIDDEN u64 filler{number}(u64 value);\n" for number in range(FILLERS))
    declarations += "".join(f"HIDDEN u64 p{number}_{names[number]}_run(int argument);\n" for number in wanted)
    prelude = fill(PRELUDE, fillers=declarations)
    units = {0: []}
    for number in wanted:
        prefix = f"p{number}_{names[number]}_"
        text = PARTS[names[number]].write(Choices(f"{language} {seed} {number}", language), prefix)
        units.setdefault(places[number], []).append(f"/* {names[number]} */\n{text}\n")
    calls = "".join(fill(CALL, prefix=f"p{number}_{names[number]}_") for number in wanted)
    main = fill(MAIN, bodies=fillers(shared), calls=calls)
    files = {}
    # The other files need no number in between: dropped parts must not change the rest.
    for place, texts in sorted(units.items()):
        files[f"unit{place}.{language}"] = prelude + "".join(texts) + (main if place == 0 else "")
    return files


def arguments(seed):
    """The arguments of the program: small numbers, so that all residues occur, and a few large ones."""
    choices = Choices(f"arguments {seed}")
    return [str(choices.choice([at, at, choices.randrange(-300, 300), choices.randrange(1 << 30)])) for at in range(choices.randint(2, 5))]


def main():
    """Writes one program: program.py SEED c|cpp DIRECTORY [PART,PART…]."""
    seed, language, directory, *rest = sys.argv[1:]
    keep = {int(word) for word in rest[0].split(",")} if rest else None
    pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
    for name, text in generate(seed, language, keep).items():
        pathlib.Path(directory, name).write_text(text)
    print(" ".join(arguments(seed)))


if __name__ == "__main__":
    main()
